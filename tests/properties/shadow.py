"""A slow twin of the mixture that remembers every responsibility, and repeats each move on them by its definition.

Whatever visits and moves happen, the statistics a state remembers are those of the twin's responsibilities.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from diva.mixture.gaussian import GaussianFamily
from diva.mixture.local import MEMBER_ABOVE, LocalStep, Observer, summarize
from diva.mixture.moves import MoveRecord
from diva.mixture.moves.base import Candidate
from diva.mixture.stats import SuffStats, add_up

from .helpers import MemoryBlock

LogResp = dict[int, Tensor]  # component id -> log responsibility for every row


class Recorder(Observer):
    """Watches visits and keeps the responsibilities of each batch."""

    def __init__(self) -> None:
        self._chunks: list[Tensor] = []
        self.batches: list[Tensor] = []

    def observe(self, step: LocalStep) -> tuple[Tensor, ...]:
        self._chunks.append(step.log_resp.double())
        return ()

    def end_batch(self, sums) -> None:
        self.batches.append(torch.cat(self._chunks))
        self._chunks.clear()


@dataclass(frozen=True)
class Part:
    """Rows and who holds them."""

    block: MemoryBlock
    log_resp: LogResp

    @classmethod
    def of(cls, block: MemoryBlock, ids: Iterable[int], log_resp: Tensor) -> Part:
        return cls(block, dict(zip(ids, log_resp.T, strict=True)))

    def stats(self, family: GaussianFamily, ids: tuple[int, ...]) -> SuffStats:
        resp = torch.stack([self.log_resp[i].exp() for i in ids], dim=1)
        return summarize(family, self.block.z, resp, self.block.weights)


@dataclass(frozen=True)
class Shadow:
    family: GaussianFamily
    present: list[Part]
    past: list[Part] = field(default_factory=list)

    def past_stats(self, ids: tuple[int, ...]) -> SuffStats:
        return add_up([self.family.empty(len(ids)), *(part.stats(self.family, ids) for part in self.past)])

    def total(self, ids: tuple[int, ...]) -> SuffStats:
        return add_up([self.past_stats(ids), *(part.stats(self.family, ids) for part in self.present)])

    def moved(self, candidate: Candidate, record: MoveRecord) -> Shadow:
        """The twin after a move, whether or not it is going to be accepted."""
        if record.move == "birth":
            present = [replace(p, log_resp=_born(p, self.family, candidate, record)) for p in self.present]
            past = [replace(p, log_resp=_left_to_heir(p.log_resp, record)) for p in self.past]
        elif record.move == "merge":
            present, past = (
                [replace(p, log_resp=_merged(p.log_resp, *record.parents)) for p in parts]
                for parts in (self.present, self.past)
            )
        elif record.move == "delete":
            (gone,), neighbours = record.parents, candidate._ids
            present = [replace(p, log_resp=_deleted(p.log_resp, gone, neighbours)) for p in self.present]
            past = [replace(p, log_resp=_merged(p.log_resp, neighbours[0], gone)) for p in self.past]
        else:
            return self
        return replace(self, present=present, past=past)


def _born(part: Part, family: GaussianFamily, candidate, record: MoveRecord) -> LogResp:
    """r_nj = r_nk q_nj for the children j of k; rows that k hardly holds stay with the heir, the child of the same name."""
    (parent,), scores = record.parents, candidate._scores  # the heir's scores come first
    log_q = torch.log_softmax(family.features(part.block.z) @ scores.coef + scores.offset, dim=1)
    log_r = part.log_resp[parent]
    log_q[log_r.exp() <= MEMBER_ABOVE] = _all_to_first(len(scores.offset))
    return part.log_resp | dict(zip(record.children, (log_r.unsqueeze(1) + log_q).T, strict=True))


def _left_to_heir(log_resp: LogResp, record: MoveRecord) -> LogResp:
    nothing = torch.full_like(log_resp[record.parents[0]], -torch.inf)
    return dict.fromkeys(record.children, nothing) | log_resp


def _merged(log_resp: LogResp, survivor: int, gone: int) -> LogResp:
    """r_na + r_nb."""
    kept = {i: r for i, r in log_resp.items() if i != gone}
    return kept | {survivor: torch.logaddexp(log_resp[survivor], log_resp[gone])}


def _deleted(log_resp: LogResp, gone: int, neighbours: list[int]) -> LogResp:
    """Neighbours share in proportion to what they hold; rows the component hardly held go to the heir, the first of them."""
    log_shares = torch.log_softmax(torch.stack([log_resp[i] for i in neighbours], dim=1), dim=1)
    log_shares[log_resp[gone].exp() <= MEMBER_ABOVE] = _all_to_first(len(neighbours))
    kept = {i: r for i, r in log_resp.items() if i != gone}
    received = zip(neighbours, (log_resp[gone].unsqueeze(1) + log_shares).T, strict=True)
    return kept | {i: torch.logaddexp(log_resp[i], log_r) for i, log_r in received}


def _all_to_first(n: int) -> Tensor:
    return torch.tensor([1.0] + [0.0] * (n - 1), dtype=torch.float64).log()
