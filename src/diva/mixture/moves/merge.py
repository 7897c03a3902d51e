"""Merge: two components that one could describe become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diva.mixture.local import LocalStep
from diva.mixture.moves.base import Candidate, Edit, Key, MoveMemory, Proposal, Study, joint_entropy_floor, x_log_x
from diva.mixture.state import MixtureState
from diva.mixture.stats import SuffStats
from diva.mixture.sticks import stick_gain_of_joining


@dataclass(frozen=True)
class Merge:
    """Join pairs, best marginal-likelihood ratio first."""

    max_partners: int = 3  # pairs a component may take part in during one lap; of those that share one only one can be accepted

    def study(self, state: MixtureState, memory: MoveMemory, rng: np.random.Generator) -> MergeStudy:  # noqa: ARG002  # a Move takes it
        """Choose pairs that could pay, from the statistics alone."""
        return MergeStudy(state, self._promising_pairs(state, memory))

    def _promising_pairs(self, state: MixtureState, memory: MoveMemory) -> list[tuple[int, int]]:
        if state.n_components < 2:
            return []
        counts = state.total.counts
        # the sticks gain a few logarithms of the mass at most: a cheap bound that spares most pairs the exact value
        hopeful = state.merge_scores.triu(1) > -3.0 * float(torch.log1p(counts.sum()))
        a, b = torch.nonzero(hopeful.triu(1), as_tuple=True)
        if len(a) == 0:
            return []
        gains = state.merge_scores[a, b] + stick_gain_of_joining(counts, a, b, state.alpha)
        order = torch.argsort(gains, descending=True, stable=True)
        masses, n_pairs = counts.tolist(), [0] * state.n_components
        pairs = []
        for gain, i, j in zip(*(t[order].tolist() for t in (gains, a, b)), strict=True):
            if gain <= 0:
                break
            key = _key(state.ids[i], state.ids[j])
            if max(n_pairs[i], n_pairs[j]) < self.max_partners and not memory.cools_down(key, masses[i] + masses[j]):
                pairs.append((i, j))
                n_pairs[i] += 1
                n_pairs[j] += 1
        return pairs


def _key(first: int, second: int) -> Key:
    return ("merge", min(first, second), max(first, second))


class MergeStudy(Study):
    """Gathers the joint entropy of the chosen pairs, the one thing their gain needs from data."""

    def __init__(self, state: MixtureState, pairs: list[tuple[int, int]]) -> None:
        self._ids = [(state.ids[i], state.ids[j]) for i, j in pairs]
        self._a, self._b = torch.tensor(pairs, dtype=torch.long, device=state.total.counts.device).view(-1, 2).T
        self._deltas: list[Tensor] = []  # (P,) of each batch
        self.busy = bool(pairs)

    def observe(self, step: LocalStep) -> Sequence[Tensor]:
        """Joint minus separate entropies."""
        if not self._ids:
            return ()
        apart = step.neg_entropy
        together = x_log_x(step.resp[:, self._a] + step.resp[:, self._b])
        return (step.weighted(apart[:, self._a] + apart[:, self._b] - together).sum(0),)

    def end_batch(self, sums: Sequence[Tensor]) -> None:
        """Keep them."""
        self._deltas += sums

    def end_lap(self) -> Sequence[Candidate]:
        """Return every pair, best first."""
        if not self._ids:
            return []
        entropies = torch.stack(self._deltas, dim=1)  # (P, B)
        return [_Pair(a, b, entropies[p]) for p, (a, b) in enumerate(self._ids)]


class _Pair(Candidate):
    """Two components and, for each batch, what joining them does to the entropy."""

    def __init__(self, first: int, second: int, entropy_deltas: Tensor) -> None:
        self.key = _key(first, second)
        self.touches = frozenset([first, second])
        self._entropy_deltas = entropy_deltas

    def proposal(self, state: MixtureState) -> Proposal:
        survivor, gone = sorted((state.position(i) for i in self.touches), key=lambda k: -float(state.total.counts[k]))
        floor = joint_entropy_floor(state.past, survivor, gone)
        return joining_proposal(
            "merge",
            state,
            survivor,
            gone,
            tuple(entropy_only(state, e) for e in self._entropy_deltas),
            entropy_only(state, floor),
        )


def entropy_only(state: MixtureState, entropy: Tensor | float) -> SuffStats:
    """Statistics that change nothing but the entropy of one component."""
    empty = state.family.empty()
    return SuffStats(empty.counts, empty.sum_z, empty.sum_zz, empty.entropy + entropy)


def joining_proposal(
    move: str,
    state: MixtureState,
    survivor: int,
    gone: int,
    deltas: tuple[SuffStats, ...],
    past_delta: SuffStats,
    others: Sequence[int] = (),
) -> Proposal:
    """Component at ``gone`` is added to ``survivor``; ``deltas`` then correct the survivor and the ``others``."""
    ids = tuple(c for k, c in enumerate(state.ids) if k != gone)
    assignment = torch.tensor([k - (k > gone) for k in range(state.n_components)])
    assignment[gone] = assignment[survivor]
    positions = assignment[[survivor, *others]]
    parents, children = (state.ids[survivor], state.ids[gone]), (state.ids[survivor],)
    return Proposal(move, parents, children, Edit(assignment, ids, positions), deltas, past_delta)
