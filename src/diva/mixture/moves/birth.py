"""Birth: components that describe their data badly are split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from diva.distributed import gather
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
                adoptions.append(_Adoption(state, k, children, self, memory))
        memory.targets.clear()
        adopting = {adoption.key[1] for adoption in adoptions}
        masses = state.total.counts.tolist()
        full = state.n_components >= self.max_components
        wanted = [
            k
            for k, component in enumerate(state.ids)
            if not full
            and component not in adopting
            and (not state.memo or masses[k] > self.min_target_atoms)
            and not memory.cools_down(("birth", component), masses[k])
        ]
        return BirthStudy(state, adoptions, wanted, self, memory, seed)


@dataclass(frozen=True)
class Children:
    """Fresh components that could replace one."""

    scores: Linear  # log weight plus expected log-likelihood of each child
    masses: Tensor  # (J,): mass each can expect
    heir: int  # the child that keeps the parent's id and all that no other child claims
    precise: bool  # whether a child is too tight for float32

    def __len__(self) -> int:
        return len(self.scores.offset)


@torch.no_grad()  # not inference mode: what a family keeps of it may be needed where gradients are
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
    anchor = state.past[k] if anchored else None
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
    represented = present / float(weights.sum())
    if anchor is None:
        stats = stats * represented
    else:
        past = _padded(anchor, len(stats))
        stats = (stats - past) * represented + past
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
    anchor: SuffStats | None = None  # what the first child has seen before

    def stats(self, resp: Tensor) -> SuffStats:
        """Statistics of the children, entropy left out: only differences of it matter here, and only to join siblings."""
        weighted = resp * self.weights.unsqueeze(1)
        counts = weighted.sum(0)
        own = self.family.stats(counts, weighted.T @ self.features, torch.zeros_like(counts))
        return own if self.anchor is None else own + _padded(self.anchor, len(own))

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


class Found(NamedTuple):
    """Codes that were drawn for a component."""

    rows: Tensor  # (m,): their numbers
    luck: Tensor  # (m,): by which they were drawn
    z: Tensor  # (m, D)
    weights: Tensor  # (m,)

    def luckier_than(self, chance: float) -> Found:
        """Those that a smaller chance would have drawn."""
        kept = self.luck < chance
        return self if bool(kept.all()) else Found(*(t[kept] for t in self))


class Samplers:
    """Fair samples of codes for several components: ``n_collected`` each if so many come, and at most twice that.

    A code is drawn if its luck, which belongs to its row, is below the chance; so it does not matter in which order codes come,
    or which process has them.
    """

    def __init__(self, options: BirthOptions, expected: Tensor) -> None:
        self._size = options.n_collected
        # draw a little more than is needed of what is expected; should more come, the sample is thinned
        self._chance = (1.3 * self._size / expected.clamp_min(1.0)).clamp_max(options.collected_share)
        self._found: list[list[Found]] = [[] for _ in expected]
        self._lock = Lock()  # parts of a batch may be looked at side by side

    def offer(self, z: Tensor, weights: Tensor, eligible: Tensor, luck: Tensor, numbers: Tensor) -> None:
        """Draw from codes (m, D), with their luck and numbers (m,), for each component; weights and eligible (m, J)."""
        chosen = eligible & (weights > 0) & (luck.unsqueeze(1) < self._chance)
        columns, rows = torch.nonzero(chosen.T, as_tuple=True)
        sizes = torch.bincount(columns, minlength=len(self._found)).tolist()
        drawn = (numbers[rows], luck[rows], z[rows], weights[rows, columns])
        with self._lock:
            for j, part in enumerate(zip(*(torch.split(t, sizes) for t in drawn), strict=True)):
                if sizes[j]:
                    self._found[j].append(Found(*part).luckier_than(float(self._chance[j])))
                    self._thin(j)

    def _thin(self, j: int) -> None:
        """While there are too many, halve the chance."""
        while sum(len(part.rows) for part in self._found[j]) > 2 * self._size:
            self._chance[j] /= 2
            self._found[j] = [Found(*map(torch.cat, zip(*self._found[j], strict=True))).luckier_than(float(self._chance[j]))]

    def found(self) -> list[tuple[float, Found]]:
        """For each component, the chance and what was drawn with it."""
        empty = torch.empty(0)
        joined = [Found(*map(torch.cat, zip(*parts, strict=True))) if parts else Found(*4 * [empty]) for parts in self._found]
        return list(zip(self._chance.tolist(), joined, strict=True))

    def take_in(self, of_all: Sequence[Sequence[tuple[float, Found]]]) -> None:
        """Replace what this process has drawn by what all have, rows in the order of their numbers."""
        for j, drawn in enumerate(zip(*of_all, strict=True)):
            self._chance[j] = min(chance for chance, _ in drawn)
            parts = [found.luckier_than(float(self._chance[j])) for _, found in drawn if len(found.rows)]
            self._found[j] = parts
            self._thin(j)
            if self._found[j]:
                joined = Found(*map(torch.cat, zip(*self._found[j], strict=True)))
                order = torch.argsort(joined.rows)
                self._found[j] = [Found(*(t[order] for t in joined))]

    def sample(self, j: int) -> tuple[Tensor, Tensor] | None:
        """Return codes and weights gathered for the j-th, or None if there are not even two."""
        return next(((found.z, found.weights) for found in self._found[j] if len(found.rows) > 1), None)


def bring_together(samplers: Sequence[Samplers]) -> None:
    """Let all processes have what each has drawn, at the end of a lap."""
    everyone = gather([each.found() for each in samplers], "gathering samples")
    for each, *of_all in zip(samplers, *everyone, strict=True):
        each.take_in(of_all)


class _Adoption(Candidate):
    """Children waiting for adoption: what they would take from the parent, batch by batch."""

    def __init__(self, state: MixtureState, k: int, children: Children, options: Birth, memory: MoveMemory) -> None:
        self._parent = state.ids[k]
        self.key = ("birth", self._parent)
        self.touches = frozenset([self._parent])
        self.precise = children.precise
        self._k, self._family, self._memory = k, state.family, memory
        self._options = options
        order = [children.heir, *(j for j in range(len(children)) if j != children.heir)]
        self._n_children = len(children)
        self._scores = Linear(children.scores.coef[:, order], children.scores.offset[order])
        self.samplers = Samplers(options, children.masses[order])
        self._deltas: list[SuffStats] = []  # of each batch: what the heir and then each other child gains

    def observe(self, step: LocalStep, luck: Tensor) -> tuple[Tensor, ...]:
        """Split the parent's responsibilities among the children.

        Returns mass, products and entropy of all children but the heir, and the entropy of the split itself.
        """
        rows = step.members[self._k]  # all else stays with the heir
        features = step.features[rows]
        coef, offset = (t.to(features.dtype) for t in self._scores)
        log_q = torch.log_softmax(torch.addmm(offset, features, coef), dim=1)
        q = exp_of_log(log_q)
        resp = step.resp[rows, self._k]
        mass = step.weighted(resp, rows)
        taken = mass.unsqueeze(1) * q
        split = -(taken * log_q).sum(0)  # by child
        entropy = split - taken.T @ step.log_resp[rows, self._k]
        # what the children take is collected at once, so that those that are born can be split in the very next lap
        z, eligible = features[:, : self._family.dim], q * resp.unsqueeze(1) > COLLECT_ABOVE
        self.samplers.offer(z, taken, eligible, luck[rows], rows + step.first)
        return taken[:, 1:].sum(0), taken[:, 1:].T @ features, entropy[1:], split.sum()

    def end_batch(self, counts: Tensor, products: Tensor, entropy: Tensor, split: Tensor) -> None:
        """Note what the heir and then each other child gains of a batch."""
        gained = self._family.stats(counts, products, entropy)
        lost = self._family.empty() - gained.merged()
        self._deltas.append(concat([replace(lost, entropy=lost.entropy + split), gained]))

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
            if (sample := self.samplers.sample(j)) is not None:
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
        seed: int,
    ) -> None:
        self._adoptions, self._memory, self._seed = adoptions, memory, seed
        self._dim = state.family.dim
        self._wanted = [(state.ids[k], float(state.total.counts[k])) for k in wanted]
        self._columns = torch.tensor(wanted, dtype=torch.long, device=state.total.counts.device)
        present = state.total.counts - state.past.counts if state.memo else torch.ones_like(state.total.counts)
        self._samplers = Samplers(options, present[self._columns])
        self.precise = any(adoption.precise for adoption in adoptions)
        self.busy = bool(adoptions) or bool(wanted)

    def observe(self, step: LocalStep) -> Sequence[Tensor]:
        """Let children adopt, and draw samples of the components wanted."""
        if not self.busy:
            return ()
        luck = step.luck(self._seed)
        if self._wanted:
            resp = step.resp[:, self._columns]
            z, numbers = step.features[:, : self._dim], torch.arange(step.first, step.first + len(resp), device=luck.device)
            self._samplers.offer(z, step.weighted(resp), resp > COLLECT_ABOVE, luck, numbers)
        return [part for adoption in self._adoptions for part in adoption.observe(step, luck)]

    def end_batch(self, sums: Sequence[Tensor]) -> None:
        """Tell each adoption what its children would take of a batch."""
        for number, adoption in enumerate(self._adoptions):
            adoption.end_batch(*sums[4 * number : 4 * number + 4])

    def end_lap(self) -> Sequence[Candidate]:
        """Hand the collected samples on and return the births that can now be judged."""
        bring_together([self._samplers, *(adoption.samplers for adoption in self._adoptions)])
        for j, (component, mass) in enumerate(self._wanted):
            if (sample := self._samplers.sample(j)) is not None:
                self._memory.targets[component] = sample
            else:  # too few codes to split
                self._memory.rejected(("birth", component), mass)
        return self._adoptions
