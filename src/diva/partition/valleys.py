r"""Clusters by the valleys of a density: which components of a mixture are hills of their own, and which are parts of one.

A Gaussian mixture cuts what is not Gaussian, a ring for instance, into pieces, and its own density then has valleys between
them that the data do not have. So each valley is held against the data. Between two components, on the line along which they
are told apart best (Fisher's discriminant), the mixture says how many samples should be at the bottom of the valley beside
those at the top of the lower hill; if they were one, there would be as many. The samples, counted in two windows of the same
width, say which it is: the log ratio of the two binomial likelihoods is the evidence for two clusters, in nats, less the nat
that a valley's depth gains by having been fitted to the same samples (Akaike 1974). Pieces of one ring fill the valley,
Gaussians that overlap do not, and without a valley there is only one.

Two clusters with sharp edges, such as rectangles side by side, may have a gap between them where the mixture knows of none. So
the samples are asked without it as well: whether the histogram between the two means has a valley (`isotonic`). Neither answer
is right for all shapes: the mixture's is sharper where clusters are Gaussian, the histogram's where they are not. Each is one
opinion, and the evidence is their mean (a logarithmic pool; Genest and Zidek, "Combining probability distributions", 1986).

How much evidence two clusters need is learnt as well: in noise hardly any join of the tree is over a valley beyond doubt, so
the next is not likely to be one either (empirical Bayes; Efron, "Microarrays, empirical Bayes and the two-groups model", 2008).

Two hills may also meet in a third component that is thinner than both, such as noise around all clusters: that is a valley as
well, as deep as its density is lower. And where one of two components is thinner than the other, a broad cluster beside a dense
one or noise around it, there need be no valley between them. So that none is seen says nothing there, unless they are a core
and its tails (`tails`): the evidence is even, and what was learnt from all joins decides. *Thinner* is a component whose own
samples lie lower in the mixture, on average, than those of the other, by more than a Gaussian's log density varies over its
samples, half a chi-square of D degrees: sqrt(D / 2).

The tree over the components joins those first between which there is least evidence of a valley. It is a tree of level sets
(Hartigan 1975) whose saddles are judged by data; between components it looks where Ray and Lindsay, "The topography of
multivariate normal mixtures" (2005), and Hennig, "Methods for merging Gaussian mixture components" (2010), look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import entr, expit, logit, ndtr

from diva.partition.hierarchy import Hierarchy, nodes_after
from diva.partition.isotonic import optimism, valley_log_ratio
from diva.partition.louvain import number_by_mass
from diva.partition.tails import evidence_against_tails
from diva.partition.walk import FloatArray, IntArray, ratio

OPTIMISM = 1.0  # nats that one fitted number, the depth of a valley, gains on the samples it was fitted to (Akaike 1974)
EVEN = 1e-6  # nats: next to none, so that two are two where nothing is said for one
CERTAIN = 1e6  # nats: what somebody has said
GRID = 64  # points at which the density between two means is looked at
N_BINS = 24  # of the histogram between two means
MEMBER_ABOVE = 0.01  # responsibility from which a sample is counted for a component


class Components(NamedTuple):
    """A mixture, and samples with their responsibilities."""

    means: FloatArray  # (K, D)
    covariances: FloatArray  # (K, D, D), or their diagonals (K, D)
    points: FloatArray  # (n, D)
    resp: FloatArray  # (n, K)
    weights: FloatArray | None = None  # (n,): how many samples each stands for

    @property
    def weighted(self) -> FloatArray:
        """Responsibilities times weights, (n, K)."""
        return self.resp if self.weights is None else self.resp * self.weights[:, None]

    @property
    def masses(self) -> FloatArray:
        """Samples of each component, (K,)."""
        return np.asarray(self.weighted.sum(axis=0))

    @property
    def log_density_spread(self) -> float:
        """Standard deviation of a Gaussian's log density over its own samples."""
        return float(np.sqrt(self.means.shape[1] / 2))


class Valleys(NamedTuple):
    """Between each pair of components, on the line along which they are told apart best; arrays (K, K), symmetric."""

    directions: FloatArray  # (K, K, D)
    bottom: FloatArray  # lowest point of the density
    top: FloatArray  # that of the lower hill
    reach: FloatArray  # half the width of a window; 0 where there is no valley
    share: FloatArray  # of samples in both windows that should be at the bottom, by the mixture: at most a half


def group_by_valleys(
    components: Components,
    resolution: float | Literal["auto"] = "auto",
    together: IntArray | None = None,
    apart: Sequence[tuple[int, int]] = (),
) -> Hierarchy:
    """Group components between which the data have no valley, 0 the heaviest cluster, and keep the tree.

    The height of a join is the probability that the two are one cluster; how many are was learnt from all joins.

    Parameters
    ----------
    components : Components
    resolution : float or "auto"
        Groups are joined down to this probability; "auto" is one half, more gives more clusters.
    together : array of int, shape (K,), optional
        Components of the same number belong together whatever the samples say; -1 for those of which nothing is known.
    apart : sequence of pairs of int
        Numbers of ``together`` whose components do not belong together, whatever the samples say.

    Examples
    --------
    Three hills on a line, the first two of which are one:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> points = np.concatenate([rng.uniform(0, 4, 200), rng.normal(9, 0.5, 100)])[:, None]
    >>> resp = np.eye(3)[np.digitize(points[:, 0], [2, 6])]
    >>> means = np.array([[1.0], [3.0], [9.0]])
    >>> group_by_valleys(Components(means, np.array([[0.33], [0.33], [0.25]]), points, resp)).labels
    array([0, 0, 1])
    """
    masses, levels = components.masses, _log_levels(components)
    evidence = _even_if_thinner(components, valley_evidence(components), levels)
    known = np.zeros_like(evidence)
    if together is not None:
        known[(together[:, None] == together) & (together >= 0)] = -1.0
        for one, other in apart:
            pairs = np.outer(together == one, together == other)
            known[pairs | pairs.T] = 1.0
    merges, strengths = _joins(components, evidence, levels, known)
    heights = np.where(strengths == -CERTAIN, 1.0, expit(-strengths - _learnt_log_odds(np.maximum(strengths, -OPTIMISM))))
    heights = np.minimum.accumulate(heights)
    resolution = 0.5 if isinstance(resolution, str) else resolution
    n_groups = len(masses) - int((heights >= resolution).sum())
    labels = number_by_mass(nodes_after(merges, len(masses) - n_groups), masses)
    return Hierarchy(merges, heights, masses, labels, resolution)


def valley_evidence(components: Components) -> FloatArray:
    """Evidence of a valley between each pair, in nats: that by the mixture and that by the samples alone, (K, K)."""
    found = find_valleys(components)
    by_mixture, histograms = _count(components, found)
    evidence = np.array(by_mixture)
    # what shares no sample is far apart, by any opinion; of all others there are few for each component
    for a, b in zip(*np.nonzero(np.triu(_overlap(components) > 0, 1)), strict=True):
        by_samples = valley_log_ratio(histograms[a, b]) - optimism(float(histograms[a, b].sum()), N_BINS)
        evidence[a, b] = evidence[b, a] = (by_mixture[a, b] + by_samples) / 2
    return evidence


def _even_if_thinner(components: Components, evidence: FloatArray, levels: FloatArray) -> FloatArray:
    """That there is no valley says nothing between a component and a much thinner one that is not its tails; (K, K)."""
    evidence, touching = np.array(evidence), _overlap(components) > MEMBER_ABOVE
    thinner = np.abs(levels[:, None] - levels) > components.log_density_spread
    for a, b in zip(*np.nonzero(np.triu(thinner & (evidence < EVEN))), strict=True):
        if not touching[a, b] or _is_two(components, [a, b]):
            evidence[a, b] = evidence[b, a] = EVEN
    return evidence


def _is_two(components: Components, both: list[int]) -> bool:
    """Whether two components describe their samples better than one with heavy tails would, and tell them apart."""
    resp = components.resp[:, both]
    rows = resp.sum(axis=1) > MEMBER_ABOVE
    points, weights = components.points[rows], components.weighted[rows][:, both].sum(axis=1)
    shares = components.masses[both] / components.masses[both].sum()
    evidence = evidence_against_tails(points, weights, shares, components.means[both], components.covariances[both])
    return evidence > unclear(resp[rows], weights)


def unclear(resp: FloatArray, weights: FloatArray) -> float:
    """Nats by which it is unclear which sample belongs to which component.

    Several Gaussians may describe one cluster better than one does, but they overlap then: that counts against them (the
    integrated completed likelihood; Biernacki, Celeux and Govaert 2000).
    """
    return float(weights @ entr(resp / resp.sum(axis=1, keepdims=True)).sum(axis=1))


def _count(components: Components, found: Valleys) -> tuple[FloatArray, FloatArray]:
    """Log likelihood ratio of a valley as the mixture says against none, (K, K); samples between two means, (K, K, N_BINS)."""
    n, at = len(found.reach), np.einsum("abd,ad->ab", found.directions, components.means)
    at_bottom, at_top = np.zeros_like(found.reach), np.zeros_like(found.reach)
    histograms = np.zeros((n, n, N_BINS))
    for k, weighted in enumerate(components.weighted.T):
        rows = components.resp[:, k] > MEMBER_ABOVE
        along = components.points[rows] @ found.directions[k].T  # (m, K)
        for counts, middle in ((at_bottom, found.bottom), (at_top, found.top)):
            counts[k] = weighted[rows] @ (np.abs(along - middle[k]) < found.reach[k])
        way = at[:, k] - at[k]  # to the other mean, on its line
        share = np.divide(along - at[k], way, out=np.zeros_like(along), where=way != 0)
        between = (share > 0) & (share < 1)
        row, other = np.nonzero(between)
        bins = other * N_BINS + (share[between] * N_BINS).astype(np.int64)
        histograms[k] = np.bincount(bins, weighted[rows][row], n * N_BINS).reshape(n, N_BINS)
    at_bottom, at_top = at_bottom + at_bottom.T, at_top + at_top.T
    evidence = at_bottom * np.log(2 * found.share) + at_top * np.log(2 * (1 - found.share))
    evidence = np.where(found.reach > 0, (evidence + evidence.T) / 2, 0.0)  # the same, rounding aside
    return np.asarray(evidence - OPTIMISM), histograms + histograms.transpose(1, 0, 2)[:, :, ::-1]


def _overlap(components: Components) -> FloatArray:
    """Samples that two components share, (K, K)."""
    return np.asarray(components.weighted.T @ components.resp)


def find_valleys(components: Components) -> Valleys:
    """Look for a valley in the density of each pair of components."""
    means, masses = components.means, components.masses
    directions = _directions(means, components.covariances)
    at = np.einsum("abd,ad->ab", directions, means)  # where the mean of a is on the line of (a, b)
    variances = np.stack([_along(directions[a], components.covariances[a]) for a in range(len(means))])
    sd = np.sqrt(np.maximum(variances, 1e-300))
    weight = ratio(masses[:, None] * np.ones_like(at), masses[:, None] + masses)
    hills = _Hills(at, sd, weight, at.T, sd.T, 1 - weight)
    steps = np.linspace(0.0, 1.0, GRID)[:, None, None]
    line = at + steps * (at.T - at)
    density = hills.density(line)  # (GRID, K, K)
    lower_hill = np.minimum(
        np.maximum.accumulate(density, axis=0), np.maximum.accumulate(density[::-1], axis=0)[::-1]
    )  # that must be left to get out of here
    deepest = (lower_hill * (1 - 1e-6) - density).argmax(axis=0)
    bottom, floor = _at(line, deepest), _at(density, deepest)
    # hills on either side of the deepest point
    before = np.arange(GRID)[:, None, None] <= deepest
    left, right = (np.where(side, density, -1.0).argmax(axis=0) for side in (before, ~before))
    is_lower = _at(density, left) <= _at(density, right)
    top = np.where(is_lower, _at(line, left), _at(line, right))
    reach = np.minimum(np.abs(_at(line, left) - bottom), np.abs(_at(line, right) - bottom)) / 2
    has_valley = floor < np.minimum(_at(density, left), _at(density, right)) * (1 - 1e-6)
    np.fill_diagonal(has_valley, False)
    reach = np.where(has_valley, reach, 0.0)
    mass_bottom, mass_top = hills.mass(bottom, reach), hills.mass(top, reach)
    share = np.clip(ratio(mass_bottom, mass_bottom + mass_top), 1e-12, 0.5)
    return Valleys(directions, bottom, top, reach, share)


class _Hills(NamedTuple):
    """The densities of two components on the line between them, all pairs at once."""

    mean_a: FloatArray
    sd_a: FloatArray
    weight_a: FloatArray
    mean_b: FloatArray
    sd_b: FloatArray
    weight_b: FloatArray

    def density(self, t: FloatArray) -> FloatArray:
        a = self.weight_a / self.sd_a * np.exp(-0.5 * ((t - self.mean_a) / self.sd_a) ** 2)
        b = self.weight_b / self.sd_b * np.exp(-0.5 * ((t - self.mean_b) / self.sd_b) ** 2)
        return np.asarray(a + b)

    def mass(self, middle: FloatArray, reach: FloatArray) -> FloatArray:
        """Of a window around the middle."""
        parts = (
            weight * (ndtr((middle + reach - mean) / sd) - ndtr((middle - reach - mean) / sd))
            for mean, sd, weight in (self[:3], self[3:])
        )
        return np.asarray(sum(parts))


def _directions(means: FloatArray, covariances: FloatArray) -> FloatArray:
    """Unit vectors of Fisher's discriminant from each component to each other one, the same for (a, b) and (b, a)."""
    gaps = means[None] - means[:, None]  # (K, K, D)
    if covariances.ndim == 2:
        raw = gaps / (covariances[:, None] + covariances)
    else:
        raw = np.stack([np.linalg.solve(covariances[a] + covariances, gaps[a][..., None])[..., 0] for a in range(len(means))])
    raw *= np.sign(np.arange(len(means)) - np.arange(len(means))[:, None])[..., None]
    raw = (raw + raw.transpose(1, 0, 2)) / 2  # rounding aside, they are the same
    return ratio(raw, np.linalg.norm(raw, axis=2, keepdims=True) * np.ones_like(raw))


def _along(directions: FloatArray, covariance: FloatArray) -> FloatArray:
    """Variance of one component along directions (K, D), (K,)."""
    if covariance.ndim == 1:
        return np.asarray((directions**2) @ covariance)
    return np.asarray(np.einsum("kd,de,ke->k", directions, covariance, directions, optimize=True))


def _at(values: FloatArray, index: IntArray) -> FloatArray:
    """Pick along the first axis."""
    return np.asarray(np.take_along_axis(values, index[None], axis=0)[0])


def _log_levels(components: Components) -> FloatArray:
    """Log density of the mixture where a component's samples are, their mean, (K,); a constant aside.

    Not that at its mean: what lies around something dense has its mean there, and no sample.
    """
    masses, of_best = components.masses, components.resp.argmax(axis=1)
    log_density = np.zeros(len(components.points))
    for k, (mean, covariance) in enumerate(zip(components.means, components.covariances, strict=True)):
        rows = of_best == k
        gaps = components.points[rows] - mean
        if covariance.ndim == 1:
            squared, log_det = gaps**2 @ (1 / covariance), np.log(covariance).sum()
        else:
            squared, log_det = ((gaps @ np.linalg.inv(covariance)) * gaps).sum(axis=1), np.linalg.slogdet(covariance)[1]
        # by Bayes' rule the density of the mixture is that of any component, times its share, over its responsibility
        log_density[rows] = np.log(max(masses[k], 1e-300)) - 0.5 * (squared + log_det) - np.log(components.resp[rows, k])
    return ratio(components.weighted.T @ log_density, masses)


def _joins(components: Components, evidence: FloatArray, levels: FloatArray, known: FloatArray) -> tuple[IntArray, FloatArray]:
    """Join the groups between which there is least evidence, until all are one; nodes are numbered as scipy does.

    Between groups the evidence is the mean of that of their components, weighted by the samples that two components share: it
    counts where groups touch. It is not summed: pairs share components, and in noise a long border would become a valley.
    Where ``known`` (K, K) is -1 two are one, where it is 1 they are not, whatever the evidence.
    """
    known, levels = np.array(known), np.array(levels)
    n, masses, thin = len(evidence), components.masses, components.log_density_spread
    overlap = _overlap(components)
    touch = overlap + 1e-12 * overlap.sum() / n**2  # even where no sample is shared, evidence has a mean
    np.fill_diagonal(touch, 0.0)
    lower = np.minimum(levels[:, None], levels)
    sums = np.stack([touch, touch * evidence, touch * lower, touch * np.minimum(masses[:, None], masses)])
    node, alive = np.arange(n), np.ones(n, dtype=bool)
    merges, strengths = np.zeros((n - 1, 2), dtype=np.int64), np.zeros(n - 1)
    for step in range(n - 1):
        mean, level, samples = (ratio(part, sums[0]) for part in sums[1:])
        depth = np.minimum(levels[:, None], levels) - level  # of the bridge below the lower hill
        mean = np.where(depth > thin, np.maximum(mean, _thinness(samples, depth)), mean)
        mean = np.where(known == 0, mean, np.where(known > 0, CERTAIN, -CERTAIN))
        mean = np.where(np.outer(alive, alive) & (sums[0] > 0), mean, np.inf)
        kept, gone = divmod(int(mean.argmin()), n)
        merges[step] = sorted((node[kept], node[gone]))
        strengths[step] = mean[kept, gone]
        node[kept], levels[kept], alive[gone] = n + step, max(levels[kept], levels[gone]), False
        either = np.where(np.abs(known[kept]) >= np.abs(known[gone]), known[kept], known[gone])
        known[kept] = known[:, kept] = np.where(np.maximum(known[kept], known[gone]) > 0, 1.0, either)
        sums[:, kept] += sums[:, gone]
        sums[:, :, kept] += sums[:, :, gone]
        sums[:, kept, kept] = 0.0
    return merges, np.maximum.accumulate(strengths)


def _learnt_log_odds(strengths: FloatArray) -> float:
    """Log odds that a join is over a valley, before its own evidence: the share of valleys among all joins, by EM.

    The share has Jeffreys' prior, Beta(1/2, 1/2), so that few joins leave it near a half. Odds are even at best: that all
    others are clusters is no reason to part two between which there is no valley.
    """
    share = 0.5
    for _ in range(100):  # settles in a few
        expected = expit(strengths + logit(share)).sum()
        share = (expected + 0.5) / (len(strengths) + 1.0)
    return min(float(logit(share)), 0.0)


def _thinness(samples: FloatArray, depth: FloatArray) -> FloatArray:
    """Log ratio of Poisson likelihoods: so many samples were found where equal density would have e^depth times as many."""
    depth = np.clip(depth, 0.0, 5.0)  # far more than is needed
    return np.asarray(samples * (np.expm1(depth) - depth))
