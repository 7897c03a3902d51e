r"""Choosing the resolution without labels, by separation and stability.

A partition is good if it comes again when the data are perturbed: Ben-Hur, Elisseeff and Guyon, "A stability based method for
discovering structure in clustered data" (2002); von Luxburg, "Clustering stability: an overview" (2010).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from diva.partition.agglomeration import joins
from diva.partition.louvain import louvain
from diva.partition.walk import FloatArray, IntArray, Walk, affinity_of, checked_flow, ratio

# The values below were set by experiment on synthetic shapes, digits, and MNIST and Fashion-MNIST pixels and codes.
_MIN_AFFINITY = 0.01  # groups with less affinity than this are all equally apart
_HARD_AFFINITY = 0.015  # between parts of one whole, at least: where only moving makes samples cross ...
_SOFT_AFFINITY = 0.085  # ... and where the responsibilities themselves overlap, as those of two halves of a Gaussian do
_SMALL_PART = 0.1  # weak ties to less than this share of a group's mass say little about the group
_MIN_SEPARATION = 0.2  # log ratio of cohesion to exposure; what a mixture makes of one arc, ring or square stays below
_NEAR_BEST = 0.9  # partitions that score as well as this are as good; then the widest plateau decides
_CLEAR_SEPARATION = 1.8  # of groups with gaps between them, such as moons (2.4) and circles (2.2); digits have up to 1.0
_EXPONENT = 0.8  # of the separation in the score: more of it prefers fewer groups with clearer gaps

_LOWEST_RESOLUTION = 1e-4  # whatever touches is one group
_RESOLUTIONS = (0.005, 4.0)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A partition that `choose_resolution` considered."""

    labels: IntArray  # (n_components,): group of each component, numbered by falling mass
    resolutions: tuple[float, ...]  # the resolutions tried that gave this partition; a long list is a wide plateau
    separation: float  # how much better groups hold together than they touch, a log ratio; 0 for a single group
    entropy: float  # of the group masses, in nats: the log of the effective number of groups
    # mean adjusted Rand index with the partitions of bootstrapped walks, where it had to be known
    stability: float | None = None

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.labels.max()) + 1

    @property
    def score(self) -> float:
        """Separation^0.8 * entropy * stability; 0 if not measured, or not separated well enough."""
        stability = self.stability or 0.0
        return self.score_if_stable * stability if self.separation * stability > _MIN_SEPARATION else 0.0

    @property
    def score_if_stable(self) -> float:
        """The score of a perfectly stable partition."""
        return float(max(self.separation, 0.0) ** _EXPONENT * self.entropy)

    @property
    def resolution(self) -> float:
        """The middle of the plateau."""
        return self.resolutions[len(self.resolutions) // 2]

    @property
    def natural_resolution(self) -> float:
        """The lowest for a single group; the natural one of 1, if it gives this partition; else the middle of the plateau."""
        if self.n_groups == 1:
            return min(self.resolutions)
        natural = min(self.resolutions, key=_from_natural)
        return natural if _from_natural(natural) < 0.1 else self.resolution


def _from_natural(resolution: float) -> float:
    return float(abs(np.log(resolution)))


class ResolutionChoice(NamedTuple):
    """What `choose_resolution` chose, and all distinct partitions it chose from, coarsest first."""

    best: Candidate
    candidates: tuple[Candidate, ...]


def choose_resolution(
    walk: Walk, rng: np.random.Generator | int = 0, *, n_resolutions: int = 30, n_bootstraps: int = 6
) -> ResolutionChoice:
    r"""Choose the resolution without labels: groups that hold together better than they touch, reproducibly.

    Modularity alone cannot tell: a long class falls apart at a resolution that leaves several round ones joined. What
    tells is the *affinity* :math:`c_{ab} = T_{ab} / \sqrt{m_a m_b}` of components, which does not depend on how large
    the groups around them are. The affinity of two groups is the mean affinity over the samples that pass between them. A
    group's *exposure* is its strongest affinity with another group; its *cohesion* is the weakest affinity it would have
    to be cut at, but no more than is typical of the walk (a component alone is as cohesive as is typical). The
    *separation* of a partition is the mean of log(cohesion / exposure) over the mass. One Gaussian or one arc cut into
    components has affinities of one kind only, so that no partition of it is separated.

    Partitions are found on a grid of resolutions. Their *stability* is the mean adjusted Rand index with the partitions
    of bootstrapped walks. Among those whose separation * stability exceeds a minimum, the one with the largest
    separation^0.8 * stability * entropy is found, or of those nearly as good the one that persists over most
    resolutions. If its groups are clearly set apart, it is chosen, whatever its resolution: two moons need a low one. If
    no partition reaches the minimum, everything that touches is one group. In between, groups exist and touch, as those
    of most real data do, and modularity at its natural resolution of 1 decides.

    The resolutions tried are evenly spaced on a log scale; ``n_bootstraps=0`` takes every partition for stable.
    """
    rng = np.random.default_rng(rng)
    seed = int(rng.integers(2**31))
    flow = checked_flow(walk.flow)
    candidates = _candidates(flow, _softness(walk), n_resolutions, seed)
    coarsest = candidates[0]
    candidates.sort(key=lambda candidate: -candidate.score_if_stable)
    bootstraps: list[FloatArray] | None = None
    best_score = 0.0
    for i, candidate in enumerate(candidates):
        # Stability is at most 1 and the only dear part, so measure it only where it can still matter.
        if candidate.score_if_stable < _NEAR_BEST * best_score:
            break
        if candidate.separation > _MIN_SEPARATION:
            if bootstraps is None:
                bootstraps = [checked_flow(walk.resampled(rng).flow) for _ in range(n_bootstraps)]
            stability = _stability(candidate, flow.sum(axis=0), bootstraps, seed)
            candidates[i] = replace(candidate, stability=stability)
            best_score = max(best_score, candidates[i].score)
    near = [candidate for candidate in candidates if candidate.score >= _NEAR_BEST * best_score > 0]
    best = max(near, key=lambda candidate: (len(candidate.resolutions), candidate.score), default=coarsest)
    if near and best.separation * (best.stability or 0.0) < _CLEAR_SEPARATION:
        best = min(candidates, key=lambda candidate: min(map(_from_natural, candidate.resolutions)))
    return ResolutionChoice(best, tuple(sorted(candidates, key=lambda candidate: candidate.n_groups)))


def _candidates(flow: FloatArray, softness: float, n_resolutions: int, seed: int) -> list[Candidate]:
    """Distinct partitions on a grid of resolutions; the first is at the lowest, where all that touches is one."""
    masses = flow.sum(axis=0)
    heights = ratio(flow, np.outer(masses, masses))
    np.fill_diagonal(heights, 0.0)
    grid = [_LOWEST_RESOLUTION, *np.geomspace(*_RESOLUTIONS, n_resolutions).tolist()]
    if heights.max() >= grid[-1]:  # above all heights no join pays: every component for itself
        grid.append(1.05 * float(heights.max()))
    plateaus: dict[bytes, tuple[IntArray, list[float]]] = {}
    for resolution in grid:
        labels = louvain(flow, resolution, seed)
        plateaus.setdefault(labels.tobytes(), (labels, []))[1].append(resolution)
    return [
        Candidate(labels, tuple(plateau), _separation(flow, labels, softness), _entropy(labels, masses))
        for labels, plateau in plateaus.values()
    ]


def _separation(flow: FloatArray, labels: IntArray, softness: float) -> float:
    """Mean over the mass of log(cohesion / exposure); see `choose_resolution`."""
    carried = flow.sum(axis=0) > 0
    flow, labels = flow[np.ix_(carried, carried)], labels[carried]
    masses, affinity = flow.sum(axis=0), affinity_of(flow)
    member = np.eye(int(labels.max()) + 1)[labels]  # (K, n_groups)
    group_masses = masses @ member
    if len(group_masses) == 1:
        return 0.0
    between = 1 - np.eye(len(flow))
    expected = _HARD_AFFINITY + softness * (_SOFT_AFFINITY - _HARD_AFFINITY)
    typical = max(_mean_affinity(flow * between, affinity), expected)

    cohesion = np.full(len(group_masses), typical)
    n_inside = len(flow) - len(group_masses)
    for _, join in zip(range(n_inside), joins(flow, labels), strict=False):
        whole = labels[join.kept]
        share = join.lighter / group_masses[whole]
        cohesion[whole] = min(cohesion[whole], join.affinity * max(1.0, _SMALL_PART / share))

    outside = 1 - np.eye(len(group_masses))
    passing = member.T @ flow @ member * outside
    exposure = ratio(member.T @ (flow * affinity) @ member * outside, passing).max(axis=1)
    alone = member.sum(axis=0) == 1
    exposure = np.maximum(exposure, np.where(alone, min(_MIN_AFFINITY, expected / 4), _MIN_AFFINITY))
    cohesion = np.maximum(cohesion, _MIN_AFFINITY / 10)
    return float(group_masses @ np.log(cohesion / exposure) / group_masses.sum())


def _softness(walk: Walk) -> float:
    """Share of the crossings that samples make without moving: 0 for hard responsibilities, 1 if moving adds nothing.

    The affinity of overlapping components is a matter of their densities. That of hard ones depends on how far samples
    move, and can be small even if the components are parts of one Gaussian: then little affinity is no sign of a gap.
    """
    between = 1 - np.eye(walk.n_components)
    crossing = float((walk.flow * between).sum())
    return min(1.0, float((walk.overlap * between).sum()) / crossing) if crossing > 0 else 0.0


def _stability(candidate: Candidate, masses: FloatArray, bootstraps: list[FloatArray], seed: int) -> float:
    """Mean adjusted Rand index, weighted by mass, with the communities of bootstrapped flows."""
    if not bootstraps:
        return 1.0
    found = (louvain(flow, candidate.resolution, seed + i) for i, flow in enumerate(bootstraps, start=1))
    return float(np.mean([_weighted_rand(candidate.labels, labels, masses) for labels in found]))


def _weighted_rand(labels: IntArray, others: IntArray, masses: FloatArray) -> float:
    """Compare two partitions of the components: adjusted Rand index for pairs of samples drawn by mass."""
    table = np.zeros((labels.max() + 1, others.max() + 1))
    np.add.at(table, (labels, others), masses / masses.sum())
    together = (table**2).sum()
    first, second = (table.sum(axis=1) ** 2).sum(), (table.sum(axis=0) ** 2).sum()
    chance, most = first * second, (first + second) / 2
    return float((together - chance) / (most - chance)) if most - chance > 1e-12 else 1.0


def _entropy(labels: IntArray, masses: FloatArray) -> float:
    shares = np.bincount(labels, weights=masses) / masses.sum()
    shares = shares[shares > 0]
    return float(-(shares @ np.log(shares)))


def _mean_affinity(flow: FloatArray, affinity: FloatArray) -> float:
    total = float(flow.sum())
    return float((flow * affinity).sum()) / total if total > 0 else 0.0
