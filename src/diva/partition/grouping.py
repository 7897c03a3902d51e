r"""Group mixture components into clusters: the communities of a random walk between them.

A Gaussian mixture must cut a curved class into several components, and its bound is right to do so. The clusters people
want are the groups of components that samples wander between when they are moved a little: to an augmented view, to a
draw from the encoder's posterior, or to a nearest neighbour. With responsibilities :math:`r` of the samples and
:math:`r'` of the moved samples the walk is the symmetric *flow*

.. math:: T_{ab} \propto \sum_n r_a(x_n) r_b(x_n') + r_b(x_n) r_a(x_n'), \qquad \sum_{ab} T_{ab} = 1,

with masses :math:`m_a = \sum_b T_{ab}`. Clusters maximize its modularity
:math:`\sum_{g(a) = g(b)} T_{ab} - \gamma m_a m_b` at a resolution :math:`\gamma`, which `choose_resolution` finds
without labels. `Hierarchy` keeps the whole tree, so that clusters can be cut coarser or finer afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import networkx as nx
import numpy as np
import numpy.typing as npt
from sklearn.neighbors import NearestNeighbors

__all__ = [
    "Candidate",
    "GroupingChoice",
    "Hierarchy",
    "Walk",
    "choose_resolution",
    "communities",
    "extend",
    "group",
    "group_as",
    "neighbour_walk",
    "revise",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# The contact of two components is T_ab / sqrt(m_a m_b): 0 for strangers, 1/2 for halves of one perfectly mixed whole.
# The values below were set by experiment on synthetic shapes, digits, and MNIST and Fashion-MNIST pixels and codes.
_EDGE = 1e-4  # edges of less contact are left out of the graph: half the time, the same communities
_STRANGERS = 0.01  # groups in less contact than this are all equally apart
_HARD_CONTACT = 0.015  # contact between parts of one whole, at least: where only moving makes samples cross ...
_SOFT_CONTACT = 0.085  # ... and where the responsibilities themselves overlap, as those of two halves of a Gaussian do
_SLIVER = 0.1  # weak ties to less than this share of a group's mass say little about the group
_MIN_SEPARATION = 0.2  # log ratio of cohesion to exposure; what a mixture makes of one arc, ring or square stays below
_NEAR_BEST = 0.9  # partitions that score as well as this are as good; then the widest plateau decides
_CLEAR_SEPARATION = 1.8  # of groups with gaps between them, such as moons (2.4) and circles (2.2); digits have up to 1.0
_HEAVY_PART = 0.5  # of the mean mass of known groups; lighter parts of one are not parted from it
_CAUTION = 0.8  # power of the separation in the score: more of it prefers fewer groups with clearer gaps

_LOWEST_RESOLUTION = 1e-4  # whatever touches is one group
_RESOLUTIONS = (0.005, 4.0)


@dataclass(frozen=True, eq=False)
class Walk:
    """Samples and where they went: one step of a random walk between components.

    Parameters
    ----------
    resp : array of shape (n_samples, n_components)
        Responsibilities of the samples.
    resp_moved : array of shape (n_samples, n_components)
        Responsibilities of the same samples after they were moved: augmented, perturbed, or replaced by neighbours.
    weights : array of shape (n_samples,), optional
        How often each sample counts; once by default.

    Examples
    --------
    >>> import numpy as np
    >>> Walk(np.eye(2), np.array([[0.8, 0.2], [0.2, 0.8]])).flow
    array([[0.4, 0.1],
           [0.1, 0.4]])
    """

    resp: FloatArray
    resp_moved: FloatArray
    weights: FloatArray | None = None

    def __post_init__(self) -> None:
        resp = np.asarray(self.resp, dtype=np.float64)
        moved = np.asarray(self.resp_moved, dtype=np.float64)
        if resp.ndim != 2 or 0 in resp.shape:
            raise ValueError(f"resp should have shape (n_samples, n_components), none of them 0, but got {resp.shape}.")
        if moved.shape != resp.shape:
            raise ValueError(f"resp_moved should have the shape of resp, {resp.shape}, but got {moved.shape}.")
        # Sums are finite only if all terms are, and need no array as large as the responsibilities.
        if not np.isfinite(resp.sum() + moved.sum()) or min(resp.min(), moved.min()) < 0:
            raise ValueError("resp and resp_moved should be finite and not negative.")
        object.__setattr__(self, "resp", resp)
        object.__setattr__(self, "resp_moved", moved)
        if self.weights is not None:
            weights = np.asarray(self.weights, dtype=np.float64)
            if weights.shape != resp.shape[:1]:
                raise ValueError(f"weights should have shape {resp.shape[:1]}, but got {weights.shape}.")
            if not np.isfinite(weights).all() or weights.min() < 0 or weights.sum() <= 0:
                raise ValueError("weights should be finite, not negative and not all 0.")
            object.__setattr__(self, "weights", weights)

    @property
    def n_components(self) -> int:
        """Number of components, K."""
        return int(self.resp.shape[1])

    @cached_property
    def flow(self) -> FloatArray:
        """Share of the samples that go from a to b or back, shape (K, K): symmetric, sums to 1."""
        return self._together(self.resp_moved)

    @cached_property
    def overlap(self) -> FloatArray:
        """The flow of samples that stay where they are, shape (K, K): what the components share to begin with."""
        return self._together(self.resp)

    def resampled(self, rng: np.random.Generator) -> Walk:
        """Bootstrap: as many samples, drawn with replacement.

        Parameters
        ----------
        rng : numpy.random.Generator

        Returns
        -------
        Walk
            Shares its arrays with this one; only the weights differ.
        """
        n_samples = len(self.resp)
        shares = np.full(n_samples, 1 / n_samples) if self.weights is None else self.weights / self.weights.sum()
        return Walk(self.resp, self.resp_moved, rng.multinomial(n_samples, shares).astype(np.float64))

    def _together(self, other: FloatArray) -> FloatArray:
        here = self.resp if self.weights is None else self.resp * self.weights[:, None]
        both: FloatArray = here.T @ other
        both += both.T.copy()
        total = float(both.sum())
        if total <= 0:
            raise ValueError("No sample has responsibilities both before and after its move, so there is no flow.")
        both /= total
        return both


def neighbour_walk(points: npt.ArrayLike, resp: npt.ArrayLike, n_neighbors: int = 10) -> Walk:
    """Walk from each sample to its nearest neighbours, for data that nobody knows how to perturb.

    Parameters
    ----------
    points : array-like of shape (n_samples, n_features)
        Where the samples are; usually the codes the mixture was fitted on.
    resp : array-like of shape (n_samples, n_components)
        Their responsibilities.
    n_neighbors : int, default 10
        Neighbours to walk to, all equally likely; the sample itself is not one of them. With fewer samples, all others.

    Returns
    -------
    Walk
        ``resp_moved`` is the mean responsibility of the neighbours.
    """
    points = np.asarray(points)
    resp = np.asarray(resp, dtype=np.float64)
    if points.ndim != 2 or resp.ndim != 2 or len(points) != len(resp):
        raise ValueError(
            "points and resp should have shapes (n_samples, n_features) and (n_samples, n_components), "
            f"but got {points.shape} and {resp.shape}."
        )
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors should be at least 1, but got {n_neighbors}.")
    n_near = min(n_neighbors, len(points) - 1)
    if n_near < 1:  # a single sample has nowhere to go
        return Walk(resp, resp)
    near = NearestNeighbors(n_neighbors=n_near).fit(points).kneighbors(return_distance=False)  # (n, n_near)
    moved = np.zeros_like(resp)
    for j in range(n_near):  # one neighbour at a time: resp[near] would be n_near times as large as resp
        moved += resp[near[:, j]]
    return Walk(resp, moved / n_near)


def communities(flow: npt.ArrayLike, resolution: float, rng: np.random.Generator | int = 0) -> IntArray:
    """Communities of the walk at one resolution, by Louvain's method.

    Parameters
    ----------
    flow : array-like of shape (n_components, n_components)
        Symmetric and not negative; any scale.
    resolution : float
        Positive. Two groups are better joined if flow_ab > resolution * mass_a * mass_b: a higher resolution makes more
        groups.
    rng : numpy.random.Generator or int, default 0
        Order in which Louvain's method visits the components.

    Returns
    -------
    array of int, shape (n_components,)
        Group of each component. Group 0 is the heaviest, and takes the components without any mass.
    """
    flow = _checked_flow(flow)
    _check_resolution(resolution)
    seed = int(np.random.default_rng(rng).integers(2**31))
    return _louvain(flow, resolution, seed)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A partition that `choose_resolution` considered.

    Attributes
    ----------
    labels : array of int, shape (n_components,)
        Group of each component, numbered by falling mass.
    resolutions : tuple of float
        The resolutions tried that gave this partition; a long list is a wide plateau.
    separation : float
        How much better groups hold together than they touch, a log ratio; 0 for a single group.
    entropy : float
        Of the group masses, in nats: the log of the effective number of groups.
    stability : float or None
        Mean adjusted Rand index with the partitions of bootstrapped walks, where it had to be known.
    """

    labels: IntArray
    resolutions: tuple[float, ...]
    separation: float
    entropy: float
    stability: float | None = None

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.labels.max()) + 1

    @property
    def score(self) -> float:
        """Promise * stability; 0 if not measured, or not separated well enough."""
        stability = self.stability or 0.0
        return self.promise * stability if self.separation * stability > _MIN_SEPARATION else 0.0

    @property
    def promise(self) -> float:
        """Separation^0.8 * entropy: the score of a perfectly stable partition."""
        return float(max(self.separation, 0.0) ** _CAUTION * self.entropy)

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


@dataclass(frozen=True, eq=False)
class GroupingChoice:
    """What `choose_resolution` chose, and from what.

    Attributes
    ----------
    best : Candidate
        The choice.
    candidates : tuple of Candidate
        All distinct partitions seen, coarsest first.
    """

    best: Candidate
    candidates: tuple[Candidate, ...]

    @property
    def resolution(self) -> float:
        """The chosen resolution."""
        return self.best.resolution

    @property
    def labels(self) -> IntArray:
        """The chosen group of each component, shape (n_components,)."""
        return self.best.labels


def choose_resolution(
    walk: Walk, rng: np.random.Generator | int = 0, *, n_resolutions: int = 30, n_bootstraps: int = 6
) -> GroupingChoice:
    r"""Choose the resolution without labels: groups that hold together better than they touch, reproducibly.

    Modularity alone cannot tell: a long class falls apart at a resolution that leaves several round ones joined. What
    tells is the *contact* :math:`c_{ab} = T_{ab} / \sqrt{m_a m_b}` of components, which does not depend on how large
    the groups around them are. The contact of two groups is the mean contact over the samples that pass between them. A
    group's *exposure* is its strongest contact with another group; its *cohesion* is the weakest contact it would have
    to be cut at, but no more than is typical of the walk (a component alone is as cohesive as is typical). The
    *separation* of a partition is the mean of log(cohesion / exposure) over the mass. One Gaussian or one arc cut into
    components has contacts of one kind only, so that no partition of it is separated.

    Partitions are found on a grid of resolutions. Their *stability* is the mean adjusted Rand index with the partitions
    of bootstrapped walks. Among those whose separation * stability exceeds a minimum, the one with the largest
    separation^0.8 * stability * entropy is found, or of those nearly as good the one that persists over most
    resolutions. If its groups are clearly set apart, it is chosen, whatever its resolution: two moons need a low one. If
    no partition reaches the minimum, everything that touches is one group. In between, groups exist and touch, as those
    of most real data do, and modularity at its natural resolution of 1 decides.

    Parameters
    ----------
    walk : Walk
    rng : numpy.random.Generator or int, default 0
        For Louvain's method and the bootstrap.
    n_resolutions : int, default 30
        Resolutions to try, evenly spaced on a log scale.
    n_bootstraps : int, default 6
        Bootstrapped walks that measure stability; 0 takes every partition for stable.

    Returns
    -------
    GroupingChoice
    """
    rng = np.random.default_rng(rng)
    seed = int(rng.integers(2**31))
    flow = _checked_flow(walk.flow)
    candidates = _candidates(flow, _softness(walk), n_resolutions, seed)
    coarsest = candidates[0]
    candidates.sort(key=lambda candidate: -candidate.promise)
    bootstraps: list[FloatArray] | None = None
    best_score = 0.0
    for i, candidate in enumerate(candidates):
        # Stability is at most 1 and the only dear part, so measure it only where it can still matter.
        if candidate.promise < _NEAR_BEST * best_score:
            break
        if candidate.separation > _MIN_SEPARATION:
            if bootstraps is None:
                bootstraps = [_checked_flow(walk.resampled(rng).flow) for _ in range(n_bootstraps)]
            stability = _stability(candidate, flow.sum(axis=0), bootstraps, seed)
            candidates[i] = replace(candidate, stability=stability)
            best_score = max(best_score, candidates[i].score)
    near = [candidate for candidate in candidates if candidate.score >= _NEAR_BEST * best_score > 0]
    best = max(near, key=lambda candidate: (len(candidate.resolutions), candidate.score), default=coarsest)
    if near and best.separation * (best.stability or 0.0) < _CLEAR_SEPARATION:
        best = min(candidates, key=lambda candidate: min(map(_from_natural, candidate.resolutions)))
    return GroupingChoice(best, tuple(sorted(candidates, key=lambda candidate: candidate.n_groups)))


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """A binary tree over the components, and the clusters chosen in it.

    Attributes
    ----------
    merges : array of int, shape (n_components - 1, 2)
        The nodes joined at each step, as in scipy: components are nodes 0 to K - 1, step i makes node K + i.
    heights : array of shape (n_components - 1,)
        Resolution up to which each join pays, flow_ab / (mass_a * mass_b); never rises, 0 between strangers. Joins
        inside the chosen clusters come first, at the chosen resolution or above; all others are below.
    masses : array of shape (n_components,)
        Mass of each component; groups are numbered by falling mass.
    labels : array of int, shape (n_components,)
        The chosen cluster of each component.
    resolution : float
        The chosen resolution.
    """

    merges: IntArray
    heights: FloatArray
    masses: FloatArray
    labels: IntArray
    resolution: float

    def __post_init__(self) -> None:
        for name, dtype in (
            ("merges", np.int64),
            ("heights", np.float64),
            ("masses", np.float64),
            ("labels", np.int64),
        ):
            values = np.array(getattr(self, name), dtype=dtype)
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        self._check()

    @property
    def n_components(self) -> int:
        """Number of components, K."""
        return len(self.masses)

    @property
    def n_groups(self) -> int:
        """Number of chosen clusters."""
        return int(self.labels.max()) + 1

    def cut(self, n_groups: int) -> IntArray:
        """Cut the tree into so many groups.

        Parameters
        ----------
        n_groups : int
            From 1 to n_components.

        Returns
        -------
        array of int, shape (n_components,)
            Group of each component, 0 the heaviest; nested in the cuts with fewer groups.
        """
        if not 1 <= n_groups <= self.n_components:
            raise ValueError(f"n_groups should be from 1 to {self.n_components}, the components, but got {n_groups}.")
        n_components = self.n_components
        node = np.arange(n_components)  # the node each component is in so far
        for step, pair in enumerate(self.merges[: n_components - n_groups]):
            node[np.isin(node, pair)] = n_components + step
        return _number_by_mass(node, self.masses)

    def cut_at(self, resolution: float) -> IntArray:
        """Cut the tree at a resolution: joins that pay at it are made, all others not.

        Parameters
        ----------
        resolution : float
            Positive; the chosen one gives the chosen clusters, a higher one more groups.

        Returns
        -------
        array of int, shape (n_components,)
            Group of each component, 0 the heaviest.
        """
        _check_resolution(resolution)
        return self.cut(self.n_components - int((self.heights >= resolution).sum()))

    def permuted(self, order: npt.ArrayLike) -> Hierarchy:
        """Return the same tree with its components in another order.

        Parameters
        ----------
        order : array-like of int, shape (n_components,)
            Old position of the component that stands at each new one.
        """
        order = _integers(order)
        place = np.arange(2 * self.n_components - 1)  # inner nodes keep their numbers
        place[order] = np.arange(self.n_components)
        return replace(self, merges=place[self.merges], masses=self.masses[order], labels=self.labels[order])

    def linkage(self) -> FloatArray:
        """Return the tree as scipy.cluster.hierarchy takes it, for example to draw a dendrogram.

        Returns
        -------
        array of shape (n_components - 1, 4)
            The two nodes, their distance 1 / (1 + height), and the number of components in the new node.
        """
        sizes = np.ones(2 * self.n_components - 1)
        for step, (left, right) in enumerate(self.merges):
            sizes[self.n_components + step] = sizes[left] + sizes[right]
        return np.column_stack([self.merges, 1 / (1 + self.heights), sizes[self.n_components :]])

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON."""
        return {
            "merges": self.merges.tolist(),
            "heights": self.heights.tolist(),
            "masses": self.masses.tolist(),
            "labels": self.labels.tolist(),
            "resolution": float(self.resolution),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Hierarchy:
        """Rebuild what `to_dict` gave.

        Parameters
        ----------
        data : mapping
            Values for ``merges``, ``heights``, ``masses``, ``labels`` and ``resolution``.

        Raises
        ------
        ValueError
            If something is missing, or does not fit together.
        """
        names = ("merges", "heights", "masses", "labels", "resolution")
        missing = [name for name in names if name not in data]
        if missing:
            raise ValueError(f"A hierarchy should have {', '.join(names)}, but {', '.join(missing)} is missing.")
        try:
            merges = _integers(data["merges"]).reshape(-1, 2)
            heights, masses = (np.array(data[name], dtype=np.float64) for name in ("heights", "masses"))
            return cls(merges, heights, masses, _integers(data["labels"]), float(data["resolution"]))
        except (TypeError, OverflowError) as error:
            raise ValueError(f"A hierarchy should hold numbers only: {error}") from error

    def _check(self) -> None:
        n_components = self.masses.size
        shapes: dict[str, tuple[int, ...]] = {"masses": (n_components,), "labels": (n_components,)}
        shapes |= {"merges": (n_components - 1, 2), "heights": (n_components - 1,)}
        for name, shape in shapes.items():
            if n_components == 0 or getattr(self, name).shape != shape:
                raise ValueError(f"{name} should have shape {shape}, but got {getattr(self, name).shape}.")
        _check_resolution(self.resolution)
        for name in ("heights", "masses"):
            values = getattr(self, name)
            if not np.isfinite(values).all() or (values < 0).any():
                raise ValueError(f"{name} should be finite and not negative.")
        if (np.diff(self.heights) > 0).any():
            raise ValueError("heights should never rise.")
        # A node must exist before it is joined, and is joined once: each of 0 .. 2K - 3 appears exactly once.
        made_before = n_components + np.arange(n_components - 1)[:, None]
        if (self.merges >= made_before).any() or (np.sort(self.merges, axis=None) != np.arange(self.merges.size)).any():
            raise ValueError("merges should join each node once, after it was made.")
        if self.labels.min() < 0 or self.labels.max() >= n_components or (self.cut(self.n_groups) != self.labels).any():
            raise ValueError("labels should be the cut of the tree into as many groups.")
        if (self.cut_at(self.resolution) != self.labels).any():
            raise ValueError("labels should be the cut of the tree at the resolution.")


def group(walk: Walk, resolution: float | Literal["auto"] = "auto", rng: np.random.Generator | int = 0) -> Hierarchy:
    """Group the components of a walk into clusters, and keep the tree.

    Parameters
    ----------
    walk : Walk
        For example from `neighbour_walk`.
    resolution : float or "auto", default "auto"
        Positive; higher makes more clusters. "auto" asks `choose_resolution`.
    rng : numpy.random.Generator or int, default 0
        The same state gives the same result.

    Returns
    -------
    Hierarchy
        ``labels`` is the cluster of each component, 0 the heaviest.

    Examples
    --------
    Four components, the first two and the last two of which share samples:

    >>> import numpy as np
    >>> step = np.kron(np.eye(2), [[0.8, 0.2], [0.2, 0.8]])
    >>> tree = group(Walk(np.eye(4), step))
    >>> tree.labels
    array([0, 0, 1, 1])
    >>> tree.cut(3)
    array([0, 0, 1, 2])
    """
    if isinstance(resolution, str):
        if resolution != "auto":
            raise ValueError(f'resolution should be a positive number or "auto", but got "{resolution}".')
        choice = choose_resolution(walk, rng)
        labels, resolution = choice.labels, choice.resolution
    else:
        labels = communities(walk.flow, resolution, rng)
    return _tree(_checked_flow(walk.flow), labels, float(resolution))


def group_as(walk: Walk, labels: npt.ArrayLike) -> Hierarchy:
    """Keep clusters that are known already, and build the tree inside and above them.

    Parameters
    ----------
    walk : Walk
    labels : array-like of int, shape (n_components,)
        Cluster of each component; they are numbered anew by falling mass.
    """
    flow = _checked_flow(walk.flow)
    given = _integers(labels)
    if given.shape != (len(flow),):
        raise ValueError(f"labels should have shape ({len(flow)},), one cluster for each component, but got {given.shape}.")
    return _tree(flow, _number_by_mass(given, flow.sum(axis=0)), 1.0)


def revise(flow: npt.ArrayLike, labels: npt.ArrayLike, resolution: float, rng: np.random.Generator | int = 0) -> IntArray:
    """Revise groups that are known already: join those that share much, part one that turns out to be two.

    A group is parted only where a part is at least half as heavy as groups are on average. Of a small part the known group
    says more than the flow: what was learnt from the groups has drawn their members together.

    Parameters
    ----------
    flow : array-like of shape (n_components, n_components)
        Symmetric and not negative; any scale.
    labels : array-like of int, shape (n_components,)
        Group of each component.
    resolution : float
        As of `communities`.
    rng : numpy.random.Generator or int, default 0

    Returns
    -------
    array of int, shape (n_components,)
        Group of each component, 0 the heaviest.

    Examples
    --------
    The first two groups share more than chance would have it, the third is two:

    >>> import numpy as np
    >>> flow = np.array([[4.0, 2.0, 0.0, 0.0], [2.0, 4.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0], [0.0, 0.0, 0.0, 4.0]])
    >>> revise(flow, [0, 1, 2, 2], resolution=0.5)
    array([0, 0, 1, 2])
    """
    flow = _checked_flow(flow)
    _, known = np.unique(_integers(labels), return_inverse=True)
    anew = communities(flow, resolution, rng)
    mass_of = np.zeros((known.max() + 1, anew.max() + 1))  # of each part of a known group
    np.add.at(mass_of, (known, anew), flow.sum(axis=0))
    heavy = mass_of >= _HEAVY_PART * mass_of.sum() / len(mass_of)
    part = np.where(heavy[known, anew], anew, mass_of.argmax(axis=1)[known])  # light parts stay with the heaviest
    _, piece = np.unique(np.column_stack([known, part]), axis=0, return_inverse=True)
    member = np.eye(piece.max() + 1)[piece]  # (K, pieces)
    revised: IntArray = communities(member.T @ flow @ member, resolution, rng)[piece]
    return revised


def extend(walk: Walk, known: npt.ArrayLike, resolution: float = 1.0) -> Hierarchy:
    """Find a place for new components among clusters that stay as they are.

    New components join what they are in most contact with: a known cluster, or each other. Known clusters are never joined.

    Parameters
    ----------
    walk : Walk
    known : array-like of int, shape (n_components,)
        Cluster of each component, -1 for the new ones.
    resolution : float, default 1
        Two groups are joined if flow_ab > resolution * mass_a * mass_b.

    Examples
    --------
    The third component shares samples with the second, the fourth with none:

    >>> import numpy as np
    >>> step = np.array([[1, 0, 0, 0], [0, 0.6, 0.4, 0], [0, 0.4, 0.6, 0], [0, 0, 0, 1]])
    >>> extend(Walk(np.eye(4), step), [0, 1, -1, -1]).labels
    array([1, 0, 0, 2])
    """
    _check_resolution(resolution)
    flow = _checked_flow(walk.flow)
    labels = _integers(known).copy()
    if labels.shape != (len(flow),):
        raise ValueError(f"known should have shape ({len(flow)},), one cluster for each component, but got {labels.shape}.")
    is_known = labels >= 0
    labels[~is_known] = labels.max(initial=-1) + 1 + np.arange((~is_known).sum())
    while True:
        names = np.unique(labels)
        member = (labels == names[:, None]).astype(np.float64)  # (G, K)
        between = member @ flow @ member.T
        masses = between.sum(axis=0)
        gain = between - resolution * np.outer(masses, masses)
        fixed = member @ is_known > 0
        gain[np.outer(fixed, fixed)] = -np.inf
        np.fill_diagonal(gain, -np.inf)
        a, b = np.unravel_index(gain.argmax(), gain.shape)
        if not gain[a, b] > 0:
            return _tree(flow, _number_by_mass(labels, flow.sum(axis=0)), resolution)
        labels[labels == names[b]] = names[a]


def _tree(flow: FloatArray, labels: IntArray, resolution: float) -> Hierarchy:
    """Join greedily, inside the given groups first; heights are kept on their side of the resolution."""
    n_components = len(flow)
    n_inside = n_components - (int(labels.max()) + 1)
    merges = np.zeros((n_components - 1, 2), dtype=np.int64)
    heights = np.zeros(n_components - 1)
    node = np.arange(n_components)  # the node in each slot
    for step, join in enumerate(_joins(flow, labels)):
        merges[step] = sorted((node[join.kept], node[join.gone]))
        node[join.kept] = n_components + step
        heights[step] = join.height
    # Joins of a greedy tree fall by themselves up to rounding, but Louvain's groups need not be groups of that tree.
    heights[:n_inside] = np.maximum(heights[:n_inside], resolution)
    heights[n_inside:] = np.minimum(heights[n_inside:], np.nextafter(resolution, 0))
    return Hierarchy(merges, np.minimum.accumulate(heights), flow.sum(axis=0), labels, resolution)


class _Join(NamedTuple):
    kept: int  # slot of the joint group
    gone: int  # slot that is empty from now on
    height: float  # flow_ab / (mass_a mass_b)
    contact: float  # mean contact over the flow between the two
    lighter: float  # mass of the lighter one


def _joins(flow: FloatArray, labels: IntArray) -> Iterator[_Join]:
    """Greedy agglomeration, highest resolution first: all joins inside the labelled groups, then all others.

    This is the linkage of Bonald et al., "Hierarchical graph clustering using node pair sampling" (2018). The height
    of a joint group with a third is a mean of the two heights, so heights never rise.
    """
    flow = flow.copy()  # flow between the groups in the slots
    masses = flow.sum(axis=0)
    strength = flow * _contact(flow)  # flow-weighted contact between them
    height = _ratio(flow, np.outer(masses, masses))
    np.fill_diagonal(height, -1.0)
    joinable = np.where(labels[:, None] == labels, height, -1.0)  # -1: not now
    alive = np.ones(len(flow), dtype=bool)
    for _ in range(len(flow) - 1):
        if joinable.max() < 0:  # every labelled group is one by now
            joinable = np.where(np.outer(alive, alive), height, -1.0)
        kept, gone = divmod(int(joinable.argmax()), len(flow))
        if joinable[kept, gone] == 0:  # strangers: the lightest pair of them, so that heavy groups last longest
            pairs = np.argwhere(joinable == 0).tolist()
            kept, gone = min(pairs, key=lambda pair: (masses[pair[0]] + masses[pair[1]], pair))
        contact = strength[kept, gone] / flow[kept, gone] if flow[kept, gone] > 0 else 0.0
        lighter = min(masses[kept], masses[gone])
        yield _Join(kept, gone, float(joinable[kept, gone]), float(contact), float(lighter))
        for table in (flow, strength):
            table[kept] += table[gone]
            table[:, kept] += table[:, gone]
        masses[kept] += masses[gone]
        alive[gone] = False
        row = np.where(alive, _ratio(flow[kept], masses[kept] * masses), -1.0)
        row[kept] = -1.0
        height[kept] = height[:, kept] = row
        joinable[kept] = joinable[:, kept] = np.where(joinable[kept] >= 0, row, -1.0)
        joinable[gone] = joinable[:, gone] = -1.0


def _candidates(flow: FloatArray, softness: float, n_resolutions: int, seed: int) -> list[Candidate]:
    """Distinct partitions on a grid of resolutions; the first is at the lowest, where all that touches is one."""
    masses = flow.sum(axis=0)
    heights = _ratio(flow, np.outer(masses, masses))
    np.fill_diagonal(heights, 0.0)
    grid = [_LOWEST_RESOLUTION, *np.geomspace(*_RESOLUTIONS, n_resolutions).tolist()]
    if heights.max() >= grid[-1]:  # above all heights no join pays: every component for itself
        grid.append(1.05 * float(heights.max()))
    plateaus: dict[bytes, tuple[IntArray, list[float]]] = {}
    for resolution in grid:
        labels = _louvain(flow, resolution, seed)
        plateaus.setdefault(labels.tobytes(), (labels, []))[1].append(resolution)
    return [
        Candidate(labels, tuple(plateau), _separation(flow, labels, softness), _entropy(labels, masses))
        for labels, plateau in plateaus.values()
    ]


def _separation(flow: FloatArray, labels: IntArray, softness: float) -> float:
    """Mean over the mass of log(cohesion / exposure); see `choose_resolution`."""
    carried = flow.sum(axis=0) > 0
    flow, labels = flow[np.ix_(carried, carried)], labels[carried]
    masses, contact = flow.sum(axis=0), _contact(flow)
    member = np.eye(int(labels.max()) + 1)[labels]  # (K, n_groups)
    group_masses = masses @ member
    if len(group_masses) == 1:
        return 0.0
    between = 1 - np.eye(len(flow))
    expected = _HARD_CONTACT + softness * (_SOFT_CONTACT - _HARD_CONTACT)
    typical = max(_mean_contact(flow * between, contact), expected)

    cohesion = np.full(len(group_masses), typical)
    n_inside = len(flow) - len(group_masses)
    for _, join in zip(range(n_inside), _joins(flow, labels), strict=False):
        whole = labels[join.kept]
        share = join.lighter / group_masses[whole]
        cohesion[whole] = min(cohesion[whole], join.contact * max(1.0, _SLIVER / share))

    outside = 1 - np.eye(len(group_masses))
    passing = member.T @ flow @ member * outside
    exposure = _ratio(member.T @ (flow * contact) @ member * outside, passing).max(axis=1)
    alone = member.sum(axis=0) == 1
    exposure = np.maximum(exposure, np.where(alone, min(_STRANGERS, expected / 4), _STRANGERS))
    cohesion = np.maximum(cohesion, _STRANGERS / 10)
    return float(group_masses @ np.log(cohesion / exposure) / group_masses.sum())


def _softness(walk: Walk) -> float:
    """Share of the crossings that samples make without moving: 0 for hard responsibilities, 1 if moving adds nothing.

    The contact of overlapping components is a matter of their densities. That of hard ones depends on how far samples
    move, and can be small even if the components are parts of one Gaussian: then little contact is no sign of a gap.
    """
    between = 1 - np.eye(walk.n_components)
    crossing = float((walk.flow * between).sum())
    return min(1.0, float((walk.overlap * between).sum()) / crossing) if crossing > 0 else 0.0


def _stability(candidate: Candidate, masses: FloatArray, bootstraps: list[FloatArray], seed: int) -> float:
    """Mean adjusted Rand index, weighted by mass, with the communities of bootstrapped flows."""
    if not bootstraps:
        return 1.0
    return float(
        np.mean(
            [
                _weighted_rand(candidate.labels, _louvain(flow, candidate.resolution, seed + i + 1), masses)
                for i, flow in enumerate(bootstraps)
            ]
        )
    )


def _weighted_rand(labels: IntArray, others: IntArray, masses: FloatArray) -> float:
    """Compare two partitions of the components: adjusted Rand index for pairs of samples drawn by mass."""
    table = np.zeros((labels.max() + 1, others.max() + 1))
    np.add.at(table, (labels, others), masses / masses.sum())
    together = (table**2).sum()
    first, second = (table.sum(axis=1) ** 2).sum(), (table.sum(axis=0) ** 2).sum()
    chance, most = first * second, (first + second) / 2
    return float((together - chance) / (most - chance)) if most - chance > 1e-12 else 1.0


def _louvain(flow: FloatArray, resolution: float, seed: int) -> IntArray:
    """Louvain's communities, numbered by falling mass; components without mass join group 0."""
    masses = flow.sum(axis=0)
    # Visit in an order of masses, not of positions, so that permuted components give the same groups.
    order = np.lexsort((*np.sort(flow, axis=0), masses))[::-1]
    order = order[masses[order] > 0]
    ordered = flow[np.ix_(order, order)]
    edges = np.triu(np.where(_contact(ordered) >= _EDGE, ordered, 0.0), 1)
    graph = nx.Graph()
    # networkx counts a loop twice in the degree, the diagonal of the flow counts once in the mass.
    graph.add_weighted_edges_from((i, i, loop / 2) for i, loop in enumerate(np.diag(ordered).tolist()))
    rows, columns = edges.nonzero()
    graph.add_weighted_edges_from(zip(rows.tolist(), columns.tolist(), edges[rows, columns].tolist(), strict=True))
    groups = nx.community.louvain_communities(graph, weight="weight", resolution=resolution, seed=seed % 2**31)
    labels = np.zeros(len(flow), dtype=np.int64)
    for label, members in enumerate(groups):
        labels[order[list(members)]] = label
    carried = masses > 0
    labels[carried] = _number_by_mass(labels[carried], masses[carried])
    labels[~carried] = 0
    return labels


def _number_by_mass(labels: npt.NDArray[np.integer[Any]], masses: FloatArray) -> IntArray:
    """Renumber groups by falling mass; equal masses by their first component."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    # Rounding, because sums over the same components in another order must not change the numbers.
    weight = np.round(np.bincount(inverse, weights=masses), 12)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.lexsort((first, -weight))] = np.arange(len(first))
    return rank[inverse]


def _entropy(labels: IntArray, masses: FloatArray) -> float:
    shares = np.bincount(labels, weights=masses) / masses.sum()
    shares = shares[shares > 0]
    return float(-(shares @ np.log(shares)))


def _contact(flow: FloatArray) -> FloatArray:
    masses = flow.sum(axis=0)
    return _ratio(flow, np.sqrt(np.outer(masses, masses)))


def _mean_contact(flow: FloatArray, contact: FloatArray) -> float:
    total = float(flow.sum())
    return float((flow * contact).sum()) / total if total > 0 else 0.0


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide; 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def _checked_flow(flow: npt.ArrayLike) -> FloatArray:
    """Scale to sum 1, exactly symmetric, and free of the rounding that would decide ties."""
    given: FloatArray = np.asarray(flow, dtype=np.float64)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or given.size == 0:
        raise ValueError(f"flow should have shape (n_components, n_components), but got {given.shape}.")
    total = float(given.sum())
    if not np.isfinite(total) or given.min() < 0 or total <= 0:
        raise ValueError("flow should be finite, not negative and not all 0.")
    if not np.allclose(given, given.T, rtol=1e-6, atol=1e-9 * total):
        raise ValueError("flow should be symmetric; pass Walk(resp, resp_moved).flow.")
    checked: FloatArray = np.round((given + given.T) / (2 * total), 12)
    checked /= checked.sum()
    return checked


def _check_resolution(resolution: float) -> None:
    if not (np.isfinite(resolution) and resolution > 0):
        raise ValueError(f"resolution should be a positive number, but got {resolution}.")


def _integers(values: Any) -> IntArray:
    numbers = np.array(values, dtype=np.float64)
    if not (np.abs(numbers) < 2**53).all() or (numbers != np.round(numbers)).any():
        raise ValueError(f"Expected whole numbers, but got {values}.")
    return numbers.astype(np.int64)
