"""Delete: a component whose neighbours can share its data goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from diva.mixture.local import MEMBER_ABOVE, LocalStep, exp_of_log
from diva.mixture.moves.base import Candidate, MoveMemory, Proposal, Study, joint_entropy_floor, x_log_x
from diva.mixture.moves.merge import joining_proposal
from diva.mixture.state import MixtureState
from diva.mixture.stats import SuffStats, add_up, concat

TAKES = 0.05  # share of a deleted component's mass from which the lineage names who took it


@dataclass(frozen=True)
class Delete:
    """Give a component's data to its nearest neighbours by a local step restricted to them.

    All others may share what a light component held: a broad one that gathers a few outliers of many has no near neighbour.
    """

    n_neighbours: int = 5  # how many components may share what the deleted one held
    worst_cost: float = 1.0  # nats a sample that joining a component whole to its best partner may cost, to be considered
    light: float = 0.05  # share of the mean mass below which a component is considered whatever the cost
    max_considered: int = 5  # components in one lap, light ones first, then the cheapest

    def study(self, state: MixtureState, memory: MoveMemory, rng: np.random.Generator) -> DeleteStudy:  # noqa: ARG002  # a Move takes it
        """Choose components that others come near to describing."""
        if state.n_components < 3:  # with two, a merge says all
            return DeleteStudy(state, [])
        masses = state.total.counts
        cost, near = (-state.merge_scores).sort(dim=1)  # a component's own cost is infinite, so it comes last
        cost_per_sample = cost[:, 0] / masses.clamp_min(1e-300)
        light = masses < self.light * masses.mean()
        worth = torch.where(light, -torch.inf, cost_per_sample)
        deletions = []
        order = worth.argsort(stable=True)
        for k, price, mass in zip(*(t.tolist() for t in (order, worth[order], masses[order])), strict=True):
            if price < self.worst_cost and not memory.cools_down(("delete", state.ids[k]), mass):
                n_near = state.n_components - 1 if light[k] else min(self.n_neighbours, state.n_components - 1)
                deletions.append(_Deletion(state, k, near[k, :n_near].tolist()))
        return DeleteStudy(state, deletions[: self.max_considered])


class DeleteStudy(Study):
    """Adds up what each neighbour would receive."""

    def __init__(self, state: MixtureState, deletions: list[_Deletion]) -> None:
        self._deletions, self.busy = deletions, bool(deletions)
        device = state.total.counts.device
        self._gone = torch.tensor([d.gone for d in deletions], dtype=torch.long, device=device)
        self._heirs = torch.tensor([d.neighbours[0] for d in deletions], dtype=torch.long, device=device)

    def observe(self, step: LocalStep) -> Sequence[Tensor]:
        """Share out one chunk."""
        if not self._deletions:
            return ()
        # codes a component hardly holds: all to the heir, where only the entropy differs from a merge
        r_gone, r_heir = step.resp[:, self._gone], step.resp[:, self._heirs]
        r_gone = torch.where(r_gone > MEMBER_ABOVE, 0.0, r_gone)
        apart = step.neg_entropy[:, self._gone] + step.neg_entropy[:, self._heirs]
        entropy = step.weighted(apart - x_log_x(r_gone + r_heir)).sum(0)
        return [entropy, *(part for deletion in self._deletions for part in deletion.observe(step))]

    def end_batch(self, sums: Sequence[Tensor]) -> None:
        """Tell each deletion what its neighbours would receive of a batch."""
        for number, deletion in enumerate(self._deletions):
            deletion.end_batch(sums[0][number], *sums[1 + 3 * number : 4 + 3 * number])

    def end_lap(self) -> Sequence[Candidate]:
        """Return the components considered, the cheapest first."""
        return self._deletions


class _Deletion(Candidate):
    """One component, its neighbours (the heir first), and what they would receive batch by batch."""

    def __init__(self, state: MixtureState, gone: int, neighbours: list[int]) -> None:
        self.key = ("delete", state.ids[gone])
        self.gone, self.neighbours = gone, neighbours
        self._ids = [state.ids[j] for j in neighbours]
        self.touches = frozenset([state.ids[gone], *self._ids])
        self._family = state.family
        self._deltas: list[SuffStats] = []

    def observe(self, step: LocalStep) -> tuple[Tensor, Tensor, Tensor]:
        """Share out the codes the component does hold, in proportion to the neighbours' responsibilities.

        Returns mass and products that all but the heir take, and the change of all their entropies.
        """
        rows = step.members[self.gone]
        log_resp = step.log_resp[rows][:, self.neighbours]
        before = exp_of_log(log_resp)
        extra = step.resp[rows, self.gone].unsqueeze(1) * torch.softmax(log_resp, dim=1)  # (m, J)
        entropy = step.weighted(before * log_resp - x_log_x(before + extra), rows).sum(0)
        taken = step.weighted(extra[:, 1:], rows)
        return taken.sum(0), taken.T @ step.features[rows], entropy

    def end_batch(self, heir_entropy: Tensor, taken: Tensor, products: Tensor, entropy: Tensor) -> None:
        """Note what the neighbours would receive; ``heir_entropy`` is the change of entropy from all the other codes."""
        # the heir's part of these rows was counted in heir_entropy as if it received nothing
        entropy = torch.cat([entropy[:1] + heir_entropy, entropy[1:]])
        gained = self._family.stats(taken, products, torch.zeros_like(taken))
        given = self._family.empty() - gained.merged()  # the heir was credited with everything
        self._deltas.append(replace(concat([given, gained]), entropy=entropy))

    def proposal(self, state: MixtureState) -> Proposal:
        """Hand everything to the heir, then correct by what the others take."""
        gone, (heir, *others) = state.position(self.key[1]), (state.position(i) for i in self._ids)
        past = self._family.empty(len(self.neighbours))
        past.entropy[0] = joint_entropy_floor(state.past, heir, gone)
        received = add_up(self._deltas).counts.clone()  # of the heir: less what the others take of the whole
        received[0] += state.total.counts[gone]
        takers = [self._ids[j] for j in received.argsort(descending=True).tolist() if received[j] >= TAKES * received.sum()]
        proposal = joining_proposal("delete", state, heir, gone, tuple(self._deltas), past, others)
        return replace(proposal, parents=(self.key[1],), children=tuple(takers))
