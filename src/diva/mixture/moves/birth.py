"""Birth: components that describe their data badly are split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from diva.mixture.bound import joining_gains
from diva.mixture.centres import nearest, seed_centres
from diva.mixture.gaussian import GaussianFamily, Linear
from diva.mixture.local import FLOAT32_AMPLIFICATION, LocalStep, exp_of_log
from diva.mixture.moves.base import Candidate, Collected, Edit, MoveMemory, MoveRecord, Proposal, Study, x_log_x
from diva.mixture.state import MixtureState
from diva.mixture.stats import SuffStats, add_up, concat
from diva.mixture.sticks import expected_log_weights, stick_posterior

COLLECT_ABOVE = 0.1  # responsibility above which a code is collected for a component


@dataclass(frozen=True)
class BirthOptions:
    """What all ways of giving birth share; minimum atoms are samples of the data, however few are collected."""

    n_fresh: int = 5  # components created on the samples of one
    n_collected: int = 1000  # samples collected for each component, at least, if it has so many
    collected_share: float = 1.0  # chance of a code to be collected: births are planned on this share of the data, at most
    n_steps: int = 10  # restricted variational steps of the creation, at most
    min_new_atoms: float = 1.0  # what a fresh component needs; those with less leave their samples to their siblings
    min_target_atoms: float = 2.0  # a component gives birth if it has more
    min_retained_atoms: float = 0.0  # what a component that was born needs to stay, once it has adopted data
    max_components: int = 200  # no birth goes beyond so many

    def least_sample(self, collected: float, represented: float) -> float:
        """Weight of collected samples that a fresh component needs, at least 1, if they represent so much of the data."""
        return max(1.0, self.min_new_atoms * min(1.0, collected / max(represented, 1e-300)))


@dataclass(frozen=True)
class Birth(BirthOptions):
    """Collect samples of a component, create fresh components on them, let them adopt its data, judge by all of it."""

    collected: Mapping[int, Collected] = field(default_factory=dict)  # by a fit before, for births in the first lap

    def study(self, state: MixtureState, memory: MoveMemory, rng: np.random.Generator) -> BirthStudy:
        """Create children for what was collected, and choose what to collect next."""
        adoptions = []
        seed = int(rng.integers(2**63))  # one draw a lap, however many rows: repeated rows then equal weighted ones
        for parent, (z, weights) in sorted((memory.targets if state.memo else self.collected).items()):
            if parent not in state.ids:
                continue
            k = state.position(parent)
            if state.total.counts[k] < self.min_target_atoms:
                memory.rejected(("birth", parent), float(state.total.counts[k]))
                continue
            options = replace(self, n_fresh=min(self.n_fresh, 1 + self.max_components - state.n_components))
            children = create(state, k, z, weights, options, np.random.default_rng([seed, parent]))
            if children is None:
                memory.rejected(("birth", parent), float(state.total.counts[k]))
            else:
                adoptions.append(_Adoption(state, k, children, self, memory, np.random.default_rng([seed, parent, 1])))
        memory.targets.clear()
        adopting = {adoption.key[1] for adoption in adoptions}
        full = state.n_components >= self.max_components
        wanted = [
            k
            for k, component in enumerate(state.ids)
            if not full
            and component not in adopting
            and (not state.memo or state.total.counts[k] > self.min_target_atoms)
            and not memory.cools_down(("birth", component), float(state.total.counts[k]))
        ]
        return BirthStudy(state, adoptions, wanted, self, memory, np.random.default_rng(seed))


@dataclass(frozen=True)
class Children:
    """Fresh components that could replace one."""

    scores: Linear  # log weight plus expected log-likelihood of each child
    masses: Tensor  # (J,): mass each can expect
    heir: int  # the child that keeps the parent's id and all that no other child claims
    precise: bool  # whether a child is too tight for float32

    def __len__(self) -> int:
        return len(self.scores.offset)


def create(
    state: MixtureState, k: int, z: Tensor, weights: Tensor, options: Birth, rng: np.random.Generator
) -> Children | None:
    """Fit a few components to samples of component k; None where the samples support just one.

    If part of k's mass is past, a child made of that past takes part: new data choose between the old component and fresh ones.
    """
    family = state.family
    z, weights = z.double(), weights.double()
    present = float(state.total.counts[k] - state.past.counts[k])
    least = options.least_sample(float(weights.sum()), present)
    anchored = float(state.past.counts[k]) > options.min_new_atoms
    anchor = state.past[k] if anchored else family.empty()
    samples = Samples(family, state.alpha, family.features(z), weights, anchor)
    centres = seed_centres(z, weights, options.n_fresh, rng)
    resp = torch.nn.functional.one_hot(nearest(z, centres), len(centres)).to(z.dtype)
    if anchored:
        resp = torch.cat([resp.new_zeros(len(resp), 1), resp], dim=1)
    stats = fold_small(samples.restricted_steps(resp, options.n_steps), least)
    if len(stats) > 1:
        resp = samples.joined_siblings(samples.responsibilities(stats))
        if resp.shape[1] > 1:
            stats = fold_small(samples.restricted_steps(resp, 2), least)
    if len(stats) < 2:
        return None
    # the samples stand for all of the component's present data
    past = _padded(anchor, len(stats))
    stats = (stats - past) * (present / float(weights.sum())) + past
    heir = 0 if anchored else int(stats.counts.argmax())
    return Children(samples.scores(stats), stats.counts, heir, precise=family.amplification(stats) > FLOAT32_AMPLIFICATION)


def _padded(anchor: SuffStats, n_components: int) -> SuffStats:
    return concat([anchor, anchor.zeros(n_components - 1)])


def fold_small(stats: SuffStats, least: float) -> SuffStats:
    """Drop children below a mass; the next local step gives what they had to their siblings."""
    keep = stats.counts >= least
    keep[stats.counts.argmax()] = True
    return stats[torch.nonzero(keep).squeeze(1)]


@dataclass(frozen=True)
class Samples:
    """What was collected for a component, and the variational inference restricted to it."""

    family: GaussianFamily
    alpha: float
    features: Tensor  # (n, F)
    weights: Tensor  # (n,)
    anchor: SuffStats  # what the first child has seen before

    def stats(self, resp: Tensor) -> SuffStats:
        """Statistics of the children, entropy left out: only differences of it matter here, and only to join siblings."""
        weighted = resp * self.weights.unsqueeze(1)
        counts = weighted.sum(0)
        own = self.family.stats(counts, weighted.T @ self.features, torch.zeros_like(counts))
        return own + _padded(self.anchor, len(own))

    def scores(self, stats: SuffStats) -> Linear:
        """Log weight plus expected log-likelihood of each child, linear in the features."""
        coef, offset = self.family.expected_log_likelihood(stats)
        return Linear(coef, offset + expected_log_weights(*stick_posterior(stats.counts, self.alpha)))

    def responsibilities(self, stats: SuffStats) -> Tensor:
        """Probability of each child for each sample, (n, J)."""
        coef, offset = self.scores(stats)
        return torch.softmax(torch.addmm(offset, self.features, coef), dim=1)

    def restricted_steps(self, resp: Tensor, n_steps: int) -> SuffStats:
        """Variational steps on the collected samples alone, until they hardly move any more."""
        stats = self.stats(resp)
        settled = 0.005 * float(self.weights.sum())
        for _ in range(n_steps):
            before = stats.counts
            stats = self.stats(self.responsibilities(stats))
            if float((stats.counts - before).abs().max()) < settled:
                break
        return stats

    def joined_siblings(self, resp: Tensor) -> Tensor:
        """Join the pair of children that raises the samples' bound most, until none does."""
        while (n_children := resp.shape[1]) > 1:
            a, b = torch.triu_indices(n_children, n_children, offset=1, device=resp.device)
            apart = x_log_x(resp)
            entropy = self.weights @ (apart[:, a] + apart[:, b] - x_log_x(resp[:, a] + resp[:, b]))
            gains = joining_gains(self.family, self.alpha, self.stats(resp), a, b) + entropy
            best = int(gains.argmax())
            if gains[best] <= 0:
                break
            first, second = int(a[best]), int(b[best])
            resp = resp.clone()
            resp[:, first] += resp[:, second]
            resp = torch.cat([resp[:, :second], resp[:, second + 1 :]], dim=1)
        return resp


class Samplers:
    """Fair samples of codes for several components: ``n_collected`` each if so many come, and at most twice that."""

    def __init__(self, options: BirthOptions, expected: Tensor, rng: np.random.Generator) -> None:
        self._size, self._rng = options.n_collected, rng
        # draw a little more than is needed of what is expected; should more come, the sample is thinned
        self._chance = (1.3 * self._size / expected.clamp_min(1.0)).clamp_max(options.collected_share).float()
        self._found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in expected]

    def offer(self, z: Tensor, weights: Tensor, eligible: Tensor) -> None:
        """Draw from codes (m, D) for each component, weights and eligible (m, J)."""
        chosen = eligible & (weights > 0)
        if bool((self._chance < 1.0).any()):  # small data leave the generator alone
            luck = torch.from_numpy(self._rng.random(len(z), dtype=np.float32)).to(z.device)
            chosen &= luck.unsqueeze(1) < self._chance
        columns, rows = torch.nonzero(chosen.T, as_tuple=True)
        sizes = torch.bincount(columns, minlength=len(self._found)).tolist()
        parts = zip(torch.split(z[rows], sizes), torch.split(weights[rows, columns], sizes), strict=True)
        for j, part in enumerate(parts):
            if sizes[j]:
                self._found[j].append(part)
                self._thin(j)

    def _thin(self, j: int) -> None:
        """While there are too many, halve the chance and, to be fair, drop each code found so far with it."""
        while sum(len(z) for z, _ in self._found[j]) > 2 * self._size:
            z, weights = self._all(j)
            kept = torch.from_numpy(self._rng.random(len(z)) < 0.5).to(z.device)
            self._found[j] = [(z[kept], weights[kept])]
            self._chance[j] /= 2

    def _all(self, j: int) -> tuple[Tensor, Tensor]:
        z, weights = zip(*self._found[j], strict=True)
        return torch.cat(z), torch.cat(weights)

    def sample(self, j: int) -> tuple[Tensor, Tensor] | None:
        """Return codes and weights found for the j-th, or None if there are not even two."""
        return self._all(j) if sum(len(z) for z, _ in self._found[j]) > 1 else None


class _Adoption(Candidate):
    """Children waiting for adoption: what they would take from the parent, batch by batch."""

    def __init__(
        self, state: MixtureState, k: int, children: Children, options: Birth, memory: MoveMemory, rng: np.random.Generator
    ) -> None:
        self._parent = state.ids[k]
        self.key = ("birth", self._parent)
        self.touches = frozenset([self._parent])
        self.precise = children.precise
        self._k, self._family, self._memory = k, state.family, memory
        self._options = options
        order = [children.heir, *(j for j in range(len(children)) if j != children.heir)]
        self._n_children = len(children)
        self._scores = Linear(children.scores.coef[:, order], children.scores.offset[order])
        self._samplers = Samplers(options, children.masses[order], rng)
        self._deltas: list[SuffStats] = []  # of each batch: what the heir and then each other child gains

    def begin_batch(self) -> None:
        """Start from nothing."""
        self._deltas.append(self._family.empty(self._n_children))

    def observe(self, step: LocalStep) -> None:
        """Split the parent's responsibilities among the children."""
        rows = step.members[self._k]  # all else stays with the heir
        if len(rows) == 0:
            return
        features = step.features[rows]
        coef, offset = (t.to(features.dtype) for t in self._scores)
        log_q = torch.log_softmax(torch.addmm(offset, features, coef), dim=1)
        q = exp_of_log(log_q)
        resp = step.resp[rows, self._k]
        mass = step.weighted(resp, rows)
        taken = mass.unsqueeze(1) * q
        split = -(taken * log_q).sum(0).double()  # entropy of the split itself, by child
        entropy = split - (taken.T @ step.log_resp[rows, self._k]).double()
        products = taken[:, 1:].T @ features
        gained = self._family.stats(taken[:, 1:].sum(0).double(), products.double(), entropy[1:])
        lost = self._family.empty() - gained.merged()
        lost = SuffStats(lost.counts, lost.sum_z, lost.sum_zz, lost.entropy + split.sum())
        self._deltas[-1] += concat([lost, gained])
        # what the children take is collected at once, so that those that are born can be split in the very next lap
        self._samplers.offer(features[:, : self._family.dim], taken, q * resp.unsqueeze(1) > COLLECT_ABOVE)

    def proposal(self, state: MixtureState) -> Proposal | None:
        """The heir keeps the parent's name and place, the other children join at the end."""
        k, n_old = state.position(self._parent), state.n_components
        fresh = tuple(range(state.next_id, state.next_id + self._n_children - 1))
        if n_old + len(fresh) > self._options.max_components:
            self._memory.crowded = True
            return None
        masses = add_up(self._deltas).counts
        masses[0] += state.total.counts[k]
        if float(masses.min()) < self._options.min_retained_atoms:
            return None
        positions = torch.tensor([k, *range(n_old, n_old + len(fresh))])
        edit = Edit(torch.arange(n_old), (*state.ids, *fresh), positions)
        nothing = self._family.empty(self._n_children)
        return Proposal("birth", (self._parent,), (self._parent, *fresh), edit, tuple(self._deltas), nothing)

    def accepted(self, record: MoveRecord) -> None:
        """Hand the children's samples on."""
        for j, child in enumerate(record.children):
            if (sample := self._samplers.sample(j)) is not None:
                self._memory.targets[child] = sample


class BirthStudy(Study):
    """Adoption for the children created before this lap, collection for those to be created after it."""

    def __init__(
        self,
        state: MixtureState,
        adoptions: list[_Adoption],
        wanted: list[int],
        options: Birth,
        memory: MoveMemory,
        rng: np.random.Generator,
    ) -> None:
        self._adoptions, self._memory = adoptions, memory
        self._dim = state.family.dim
        self._wanted = [(state.ids[k], float(state.total.counts[k])) for k in wanted]
        self._columns = torch.tensor(wanted, dtype=torch.long, device=state.total.counts.device)
        present = state.total.counts - state.past.counts if state.memo else torch.ones_like(state.total.counts)
        self._samplers = Samplers(options, present[self._columns], rng)
        self.precise = any(adoption.precise for adoption in adoptions)
        self.busy = bool(adoptions) or bool(wanted)

    def begin_batch(self) -> None:
        """Start from nothing."""
        for adoption in self._adoptions:
            adoption.begin_batch()

    def observe(self, step: LocalStep) -> None:
        """Let children adopt, and draw samples of the components wanted."""
        for adoption in self._adoptions:
            adoption.observe(step)
        if self._wanted:
            resp = step.resp[:, self._columns]
            self._samplers.offer(step.features[:, : self._dim], step.weighted(resp), resp > COLLECT_ABOVE)

    def end_lap(self) -> Sequence[Candidate]:
        """Hand the collected samples on and return the births that can now be judged."""
        for j, (component, mass) in enumerate(self._wanted):
            if (sample := self._samplers.sample(j)) is not None:
                self._memory.targets[component] = sample
            else:  # too few codes to split
                self._memory.rejected(("birth", component), mass)
        return self._adoptions
