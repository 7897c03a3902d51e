"""What all moves share: study data during a lap, propose a candidate, accept it if the bound rises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from diva.mixture.bound import elbo
from diva.mixture.gaussian import GaussianFamily
from diva.mixture.local import Observer
from diva.mixture.state import MixtureState
from diva.mixture.stats import SuffStats, add_up

Key = tuple[Any, ...]  # the move's name, then the ids it is about
Collected = tuple[Tensor, Tensor]  # codes (m, D) of a component, and their weights (m,)


@dataclass(frozen=True)
class Edit:
    """A change of some components, as it applies to any part of the memo: regroup, then add.

    Because regrouping and adding are linear, the edited total is the sum of the edited memo.
    """

    assignment: Tensor  # (K,): new position of each old component; those that share a position are added up
    ids: tuple[int, ...]  # names of the components after the change
    positions: Tensor  # (J,): new positions that receive a delta

    def apply(self, stats: SuffStats, delta: SuffStats) -> SuffStats:
        """Edit the statistics of one part of the data."""
        return stats.regrouped(self.assignment, len(self.ids)).plus_at(self.positions, delta)

    def sorted_by(self, masses: Tensor) -> Edit:
        """Put the new components in order of falling mass, where the stick-breaking bound is highest."""
        order = torch.argsort(masses, descending=True, stable=True).cpu()
        rank = torch.argsort(order)
        return Edit(rank[self.assignment], tuple(self.ids[i] for i in order.tolist()), rank[self.positions])


@dataclass(frozen=True)
class Proposal:
    """A candidate mixture: an edit and, for each batch and for the past, what it adds."""

    move: str  # which move proposes it
    parents: tuple[int, ...]  # ids it takes apart or joins, and ids that stand in their place
    children: tuple[int, ...]
    edit: Edit
    deltas: tuple[SuffStats, ...]  # addition for each batch of the memo
    past_delta: SuffStats  # addition for the past
    gain: float | None = None  # by which it is judged; None: rise of the bound on all data
    certain: bool = False  # accepted whatever the gain


@dataclass(frozen=True)
class MoveRecord:
    """What became of a proposal; the accepted ones are the lineage."""

    move: str
    parents: tuple[int, ...]
    children: tuple[int, ...]
    gain: float
    masses: tuple[float, ...]
    accepted: bool
    lap: int = 0
    epoch: int | None = None


def try_proposal(state: MixtureState, proposal: Proposal, *, in_order: bool = True) -> tuple[MixtureState, MoveRecord]:
    """Accept a proposal if it raises the bound on all data, or is to be judged otherwise; else return the very same state.

    ``in_order`` judges the candidate with its components in order of mass, where a shuffle would put them anyway.
    """
    delta = add_up((proposal.past_delta, *proposal.deltas))
    edit = proposal.edit
    if in_order:
        edit = edit.sorted_by(edit.apply(state.total, delta).counts)
    total = edit.apply(state.total, delta)
    gain = float(elbo(state.family, state.alpha, total)) - state.elbo if proposal.gain is None else proposal.gain
    accepted = proposal.certain or gain > 1e-12 * abs(state.elbo) + 1e-9  # more than the rounding of the two bounds
    child_masses = tuple(float(total.counts[edit.ids.index(c)]) for c in proposal.children)
    record = MoveRecord(proposal.move, proposal.parents, proposal.children, gain, child_masses, accepted)
    if not accepted:
        return state, record
    candidate = replace(
        state,
        past=edit.apply(state.past, proposal.past_delta),
        memo=tuple(edit.apply(part, d) for part, d in zip(state.memo, proposal.deltas, strict=True)),
        total=total,
        ids=edit.ids,
        next_id=max(state.next_id, *(c + 1 for c in edit.ids)),
    )
    return candidate, record


@dataclass
class MoveMemory:
    """What the moves remember from lap to lap: samples collected for births, newborn components, rejected proposals.

    A rejected proposal is not made again until the mass it is about has changed by a share of ``cool_down``, so that proposing
    gets cheaper as the mixture settles.
    """

    cool_down: float = 0.05
    crowded: bool = False  # a birth found no room under max_components
    targets: dict[int, Collected] = field(default_factory=dict)  # by the id of the component
    newborn: set[int] = field(default_factory=set)  # components that wait for the next lap with what an expansion lent them
    mass_when_rejected: dict[Key, float] = field(default_factory=dict)

    def cools_down(self, key: Key, mass: float) -> bool:
        """Whether this proposal was rejected when the mass was about the same."""
        mass_then = self.mass_when_rejected.get(key)
        return mass_then is not None and abs(mass - mass_then) <= self.cool_down * mass_then

    def prior_moved(self, before: GaussianFamily, now: GaussianFamily) -> bool:
        """Whether the variance that components are expected to have changed by more than the same share."""
        return before is not now and bool(((now.variance / before.variance).log().abs() > self.cool_down).any())

    def rejected(self, key: Key, mass: float) -> None:
        """Start the cool-down of a proposal at its present mass."""
        self.mass_when_rejected[key] = mass


class Candidate:
    """Something a study has learnt enough about to propose."""

    key: Key  # under which its cool-down is kept
    touches: frozenset[int]  # ids whose responsibilities it would change: it is stale once another move changed one of them

    def proposal(self, state: MixtureState) -> Proposal | None:
        """Build the proposal on the state as it is now; None if there is no room for it."""
        raise NotImplementedError

    def accepted(self, record: MoveRecord) -> None:
        """Take note that the proposal was accepted."""


class Study(Observer):
    """One move's work during one lap: it watches every batch, if it has to, then proposes."""

    busy = False  # whether there is anything to learn from another lap

    def end_lap(self) -> Sequence[Candidate]:
        """Return the candidates, the most promising first."""
        raise NotImplementedError


class Move(Protocol):
    """A way of changing the number or order of components; its options are its fields."""

    def study(self, state: MixtureState, memory: MoveMemory, rng: np.random.Generator) -> Study:
        """Plan what to learn during the next lap."""
        ...


def try_candidates(
    state: MixtureState, candidates: Sequence[Candidate], memory: MoveMemory, changed: set[int], *, in_order: bool = True
) -> tuple[MixtureState, list[MoveRecord]]:
    """Try candidates one after the other, each on the outcome of those before it.

    ``changed`` holds the ids whose responsibilities are no longer those the candidates observed; it grows.
    """
    records = []
    for candidate in candidates:
        if candidate.touches & changed:
            continue
        proposal = candidate.proposal(state)
        if proposal is None:
            memory.rejected(candidate.key, state.mass_of(candidate.key[1:]))
            continue
        state, record = try_proposal(state, proposal, in_order=in_order)
        records.append(record)
        if record.accepted:
            changed |= candidate.touches | {*record.parents, *record.children}
            candidate.accepted(record)
        else:
            memory.rejected(candidate.key, state.mass_of(candidate.key[1:]))
    return state, records


def x_log_x(x: Tensor) -> Tensor:
    """X log x, 0 at 0; twice as fast as torch.xlogy, which is not vectorized."""
    return x * x.clamp_min(torch.finfo(x.dtype).tiny).log()


def joint_entropy_floor(past: SuffStats, a: int, b: int) -> float:
    r"""Lower bound on what joining a and b adds to the entropy of data that are gone.

    The exact value :math:`-\sum_n (r_a + r_b) h(r_a / (r_a + r_b))` needs the data. It is at least minus the entropy of the
    two together at their total shares (Jensen) and at least :math:`-H_a - H_b`, since a joint entropy is not negative.
    """
    mass_a, mass_b = (max(float(past.counts[i]), 0.0) for i in (a, b))
    if mass_a == 0.0 or mass_b == 0.0:
        return 0.0
    share = torch.tensor([mass_a, mass_b], dtype=torch.float64) / (mass_a + mass_b)
    jensen = -(mass_a + mass_b) * float(-x_log_x(share).sum())
    return max(jensen, -float(past.entropy[a] + past.entropy[b].clamp_min(0.0)))
