"""Expansion: births as Hughes and Sudderth (2013) and the paper have them, judged by a few samples or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from diva.mixture.bound import elbo
from diva.mixture.centres import nearest, seed_centres
from diva.mixture.local import LocalStep
from diva.mixture.moves.base import Candidate, Edit, MoveMemory, MoveRecord, Proposal, Study, joint_entropy_floor, x_log_x
from diva.mixture.moves.birth import COLLECT_ABOVE, BirthOptions, Samplers, Samples, bring_together, fold_small
from diva.mixture.moves.merge import entropy_only, joining_proposal
from diva.mixture.state import MixtureState


@dataclass(frozen=True)
class Expansion(BirthOptions):
    """Collect samples x' of a component, fit K' fresh components to them, and expand the mixture by these.

    In the next lap all data choose among the K + K' components, the fresh ones with the statistics of x', which are then taken
    back. Merges join again what was not needed.
    """

    judged: bool = True  # accepted if it raises the bound on x' (section 3.3); otherwise always (appendix)
    newborn: frozenset[int] = frozenset()  # components that a fit before has expanded the mixture by, in its last lap

    def study(self, state: MixtureState, memory: MoveMemory, rng: np.random.Generator) -> ExpansionStudy:
        """Choose whose samples to collect: every component's, or one if what is created is not judged."""
        seed = int(rng.integers(2**63))
        counts, seen = state.total.counts, float(state.total.counts.sum()) > 0
        wanted = [
            k
            for k, component in enumerate(state.ids)
            if not (seen and counts[k] <= self.min_target_atoms)
            and not memory.cools_down(("birth", component), float(counts[k]))
        ]
        if not self.judged and len(wanted) > 1:
            chance = counts[wanted].cpu().numpy()
            wanted = [int(np.random.default_rng([seed, 0]).choice(wanted, p=chance / chance.sum()))]
        newborn = memory.newborn if state.memo else self.newborn
        return ExpansionStudy(state, wanted, sorted(newborn.intersection(state.ids)), self, memory, seed)


class ExpansionStudy(Study):
    """Collects samples of some components."""

    def __init__(
        self, state: MixtureState, wanted: list[int], newborn: list[int], options: Expansion, memory: MoveMemory, seed: int
    ) -> None:
        self._targets = [state.ids[k] for k in wanted]
        self._newborn, self._options, self._memory, self._seed = newborn, options, memory, seed
        self._columns = torch.tensor(wanted, dtype=torch.long, device=state.total.counts.device)
        self._samplers = Samplers(options, state.total.counts[self._columns])
        self._dim = state.family.dim
        self.busy = bool(wanted) or bool(newborn)

    def observe(self, step: LocalStep) -> Sequence[Tensor]:
        """Draw from the codes that a component holds with more than a little."""
        if self._targets:
            resp, luck = step.resp[:, self._columns], step.luck(self._seed)
            z, numbers = step.features[:, : self._dim], torch.arange(step.first, step.first + len(resp), device=luck.device)
            self._samplers.offer(z, step.weighted(resp), resp > COLLECT_ABOVE, luck, numbers)
        return ()

    def end_lap(self) -> Sequence[Candidate]:
        """Newborn components that have stayed small go; then there is room for others."""
        bring_together([self._samplers])
        candidates: list[Candidate] = []
        if self._options.min_retained_atoms > 0:
            candidates += [_Small(component, self._options.min_retained_atoms) for component in self._newborn]
        for j, component in enumerate(self._targets):
            sample = self._samplers.sample(j)
            if sample is not None:
                rng = np.random.default_rng([self._seed, component])
                candidates.append(_Fresh(component, *sample, self._options, self._memory, rng))
        return candidates


class _Small(Candidate):
    """A newborn component that goes to its nearest neighbour if it has adopted too little."""

    def __init__(self, component: int, least: float) -> None:
        self.key, self.touches = ("retain",), frozenset()  # whatever else happened to it in this lap
        self._component, self._least = component, least

    def proposal(self, state: MixtureState) -> Proposal | None:
        if self._component not in state.ids or state.n_components < 2:
            return None
        gone = state.position(self._component)
        if float(state.total.counts[gone]) >= self._least:
            return None
        survivor = int(state.merge_scores[gone].argmax())
        # the entropy is known from below until the next lap
        floors = [entropy_only(state, joint_entropy_floor(part, survivor, gone)) for part in (state.past, *state.memo)]
        proposal = joining_proposal("merge", state, survivor, gone, tuple(floors[1:]), floors[0])
        return replace(proposal, certain=True)


class _Fresh(Candidate):
    """Samples of a component, and the fresh components that can be fitted to them."""

    def __init__(
        self, parent: int, z: Tensor, weights: Tensor, options: Expansion, memory: MoveMemory, rng: np.random.Generator
    ) -> None:
        self.key, self.touches = ("birth", parent), frozenset([parent])
        self._z, self._weights = z.double(), weights.double()
        self._options, self._memory, self._rng = options, memory, rng

    def proposal(self, state: MixtureState) -> Proposal | None:
        """K' more components behind those that are there; their past is what x' lends them."""
        k, n_old = state.position(self.key[1]), state.n_components
        room = self._options.max_components - n_old
        if room < 2:
            self._memory.crowded = True
            return None
        samples = Samples(state.family, state.alpha, state.family.features(self._z), self._weights)
        resp = self._create(samples, float(state.total.counts[k]), min(self._options.n_fresh, room))
        if resp is None:
            return None
        lent = samples.stats(resp)
        fresh = tuple(range(state.next_id, state.next_id + len(lent)))
        edit = Edit(torch.arange(n_old), (*state.ids, *fresh), torch.arange(n_old, n_old + len(lent)))
        deltas = tuple(state.family.empty(len(lent)) for _ in state.memo)
        gain = _gain_on(samples, resp)
        children, certain = (self.key[1], *fresh), not self._options.judged
        return Proposal("birth", self.key[1:], children, edit, deltas, lent, gain, certain)

    def _create(self, samples: Samples, mass: float, n_fresh: int) -> Tensor | None:
        """Fit K' components to x', (n, K'); None where it supports just one, or the component is too small to give birth."""
        options = self._options
        if mass <= options.min_target_atoms:
            return None
        centres = seed_centres(self._z, self._weights, n_fresh, self._rng)
        resp = torch.nn.functional.one_hot(nearest(self._z, centres), len(centres)).to(self._z.dtype)
        fitted = samples.restricted_steps(resp, options.n_steps)
        large = fold_small(fitted, options.least_sample(float(self._weights.sum()), mass))
        return samples.responsibilities(large) if len(large) > 1 else None

    def accepted(self, record: MoveRecord) -> None:
        """Note who waits for the next lap."""
        self._memory.newborn.update(record.children[1:])


def _gain_on(samples: Samples, resp: Tensor) -> float:
    """Bound on x' alone under its fresh components, less that under one."""
    fresh, entropy = samples.stats(resp), -float(samples.weights @ x_log_x(resp).sum(1))
    apart, together = (float(elbo(samples.family, samples.alpha, stats)) for stats in (fresh, fresh.merged()))
    return apart + entropy - together
