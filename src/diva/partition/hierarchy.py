"""A tree over the components of a mixture, and the clusters chosen in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from diva.partition.agglomeration import joins
from diva.partition.louvain import check_resolution, communities, number_by_mass
from diva.partition.resolution import choose_resolution
from diva.partition.walk import FloatArray, IntArray, Walk, checked_flow

_ARRAYS = {"merges": np.int64, "heights": np.float64, "masses": np.float64, "labels": np.int64}


class Layer(NamedTuple):
    """One of several partitions of the same components."""

    n_groups: int
    strength: float  # how much clearer it is than its neighbours, in nats
    labels: IntArray  # (K,): group of each component, 0 the heaviest


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """A binary tree over the components, and the clusters chosen in it.

    Attributes
    ----------
    merges : array of int, shape (n_components - 1, 2)
        The nodes joined at each step, as in scipy: components are nodes 0 to K - 1, step i makes node K + i.
    heights : array of shape (n_components - 1,)
        Resolution up to which each join pays, flow_ab / (mass_a * mass_b); never rises, 0 where nothing is shared. Joins
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
        for name, dtype in _ARRAYS.items():
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
        return number_by_mass(nodes_after(self.merges, self.n_components - n_groups), self.masses)

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
        check_resolution(resolution)
        return self.cut(self.n_components - int((self.heights >= resolution).sum()))

    def layers(self, most: int = 5, odds: FloatArray | None = None) -> list[Layer]:
        """Partitions that are clearer than their neighbours in the tree, from fine to coarse.

        A cut is clear if what it keeps apart is far less likely to be one than what it has joined: its strength is the
        difference of the two log odds, in nats; `log_odds` by default, or those of `flow_log_odds`.
        """
        odds = self.log_odds() if odds is None else odds
        before = np.concatenate([[min(0.0, odds[0])] if len(odds) else [], odds[:-1]])
        strengths = odds - np.maximum(before, 0.0)  # of the cut before each join; joins that pay need no strength
        clearest = np.argsort(-strengths, kind="stable")[:most]
        cuts = sorted(int(step) for step in clearest if strengths[step] > 0)
        return [Layer(self.n_components - step, float(strengths[step]), self.cut(self.n_components - step)) for step in cuts]

    def separations(self, odds: FloatArray | None = None) -> FloatArray:
        """Log odds, in nats, that each chosen cluster is one of its own, where it would be joined next; (n_groups,)."""
        odds, n_components = self.log_odds() if odds is None else odds, self.n_components
        found = np.full(self.n_groups, np.inf)
        node_of = {int(node): label for node, label in zip(self._nodes(), self.labels.tolist(), strict=True)}
        for step in range(n_components - self.n_groups, n_components - 1):
            for node in self.merges[step].tolist():
                if node in node_of:
                    found[node_of[node]] = odds[step]
        return found

    def _nodes(self) -> IntArray:
        """The node of the chosen cluster of each component."""
        return nodes_after(self.merges, self.n_components - self.n_groups)

    def log_odds(self) -> FloatArray:
        """Of not being one, at each join, where heights are probabilities, as `group_by_valleys` gives them."""
        one = np.clip(self.heights, 1e-300, 1 - 1e-16)
        return np.asarray(np.log1p(-one) - np.log(one))

    def with_groups(self, n_groups: int) -> Hierarchy:
        """The same tree, cut into so many groups: heights of joins on the wrong side of the cut are moved to it."""
        if n_groups == self.n_groups:
            return self
        n_inside = self.n_components - n_groups
        labels, heights = self.cut(n_groups), self.heights.copy()
        highest = heights[n_inside - 1] if n_inside else np.nextafter(heights[0], np.inf)
        resolution = float(max(highest, np.finfo(np.float64).tiny))
        heights[:n_inside] = np.maximum(heights[:n_inside], resolution)
        heights[n_inside:] = np.minimum(heights[n_inside:], np.nextafter(resolution, 0))
        return replace(self, heights=heights, labels=labels, resolution=resolution)

    def with_joined(self, group: int, into: int) -> Hierarchy:
        """The tree in which one of the chosen clusters has joined another, before any other two do."""
        n, n_inside = self.n_components, self.n_components - self.n_groups
        nodes = self._nodes()
        moved, host = (int(nodes[self.labels == label][0]) for label in (group, into))
        joins = self.merges[:n_inside].tolist()
        node = {i: i for i in range(n + n_inside)} | {moved: -1, host: n + n_inside}  # where each is now; -1 is elsewhere
        joins.append(sorted((moved, host)))
        heights = [*self.heights[:n_inside], self.resolution]
        for step in range(n_inside, n - 1):
            left, right = (node[child] for child in self.merges[step].tolist())
            if min(left, right) < 0:  # what is left of a join that one side is gone from
                node[n + step] = max(left, right)
                continue
            joins.append(sorted((left, right)))
            heights.append(self.heights[step])
            node[n + step] = n + len(joins) - 1
        merges = np.array(joins, dtype=np.int64).reshape(-1, 2)
        labels = number_by_mass(nodes_after(merges, n_inside + 1), self.masses)
        return Hierarchy(merges, np.array(heights), self.masses, labels, self.resolution)

    def flow_log_odds(self) -> FloatArray:
        """The same where heights are flows: how many times less than what the chosen resolution asks for is shared."""
        return np.asarray(np.log(self.resolution) - np.log(np.clip(self.heights, 1e-16 * self.resolution, None)))

    def permuted(self, order: npt.ArrayLike) -> Hierarchy:
        """Return the same tree with its components in another order, the old position of each, (K,)."""
        order = _whole_numbers(order)
        place = np.arange(2 * self.n_components - 1)  # inner nodes keep their numbers
        place[order] = np.arange(self.n_components)
        return replace(self, merges=place[self.merges], masses=self.masses[order], labels=self.labels[order])

    def with_labels(self, labels: npt.ArrayLike) -> Hierarchy:
        """Choose other clusters, whatever the heights say, and keep the tree as far as they allow.

        Parameters
        ----------
        labels : array-like of int, shape (n_components,)
            The cluster of each component; numbered anew by falling mass.

        Examples
        --------
        >>> import numpy as np
        >>> tree = group(Walk(np.eye(4), np.kron(np.eye(2), [[0.8, 0.2], [0.2, 0.8]])))
        >>> tree.labels, tree.with_labels([0, 1, 2, 2]).labels
        (array([0, 0, 1, 1]), array([1, 2, 0, 0]))
        """
        given = _whole_numbers(labels)
        if given.shape != (self.n_components,):
            raise ValueError(f"labels should have shape ({self.n_components},), one for each component, got {given.shape}.")
        inside, between = self._joins_by_group(given)
        merges = np.array([*inside[0], *between[0]], dtype=np.int64).reshape(-1, 2)
        heights = np.concatenate(
            [np.maximum(inside[1], self.resolution), np.minimum(between[1], np.nextafter(self.resolution, 0))]
        )
        return replace(self, merges=merges, heights=heights, labels=number_by_mass(given, self.masses))

    def _joins_by_group(self, labels: IntArray) -> tuple[tuple[list[IntArray], FloatArray], tuple[list[IntArray], FloatArray]]:
        """Joins inside groups and then between them, each with its height, in the order in which the tree makes them."""
        k = self.n_components
        parts: dict[int, dict[int, int]] = {i: {int(g): i} for i, g in enumerate(labels.tolist())}  # node -> group -> new node
        inside: list[tuple[IntArray, float]] = []
        seams: list[tuple[int, int, float]] = []  # groups that a join brings together
        for step, (left, right) in enumerate(self.merges.tolist()):
            here, there = parts.pop(left), parts.pop(right)
            seams.append((next(iter(here)), next(iter(there)), float(self.heights[step])))
            for group_ in sorted(here.keys() & there.keys()):
                inside.append((np.sort([here[group_], there[group_]]), float(self.heights[step])))
                here[group_] = k + len(inside) - 1
            parts[k + step] = there | here
        node, between = dict(parts[2 * k - 2]), []
        for one, other, height in seams:
            if (a := node[one]) != (b := node[other]):
                between.append((np.sort([a, b]), height))
                made = k + len(inside) + len(between) - 1
                node = {group_: made if at in (a, b) else at for group_, at in node.items()}

        def split(joins: list[tuple[IntArray, float]]) -> tuple[list[IntArray], FloatArray]:
            return [pair for pair, _ in joins], np.array([height for _, height in joins], dtype=np.float64)

        return split(inside), split(between)

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
        return {name: getattr(self, name).tolist() for name in _ARRAYS} | {"resolution": float(self.resolution)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Hierarchy:
        """Rebuild what `to_dict` gave; raises ValueError if something is missing, or does not fit together."""
        names = (*_ARRAYS, "resolution")
        missing = [name for name in names if name not in data]
        if missing:
            raise ValueError(f"A hierarchy should have {', '.join(names)}, but {', '.join(missing)} is missing.")
        try:
            merges = _whole_numbers(data["merges"]).reshape(-1, 2)
            labels = _whole_numbers(data["labels"])
            return cls(merges, data["heights"], data["masses"], labels, float(data["resolution"]))
        except (TypeError, OverflowError) as error:
            raise ValueError(f"A hierarchy should hold numbers only: {error}") from error

    def _check(self) -> None:
        n_components = self.masses.size
        shapes: dict[str, tuple[int, ...]] = {"masses": (n_components,), "labels": (n_components,)}
        shapes |= {"merges": (n_components - 1, 2), "heights": (n_components - 1,)}
        for name, shape in shapes.items():
            if n_components == 0 or getattr(self, name).shape != shape:
                raise ValueError(f"{name} should have shape {shape}, but got {getattr(self, name).shape}.")
        check_resolution(self.resolution)
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


def nodes_after(merges: IntArray, n_steps: int) -> IntArray:
    """The node of a tree that each component is in after its first joins, (K,)."""
    n_components = len(merges) + 1
    node = np.arange(n_components)
    for step, pair in enumerate(merges[:n_steps]):
        node[np.isin(node, pair)] = n_components + step
    return node


def ungrouped(masses: npt.ArrayLike) -> Hierarchy:
    """A tree over components (K,) of which nothing is known: each is a cluster."""
    mass = np.asarray(masses, dtype=np.float64)
    k = len(mass)
    merges = [[0, 1]] * (k > 1) + [[step + 1, k + step - 1] for step in range(1, k - 1)]
    pairs = np.array(merges, dtype=np.int64).reshape(-1, 2)
    return Hierarchy(pairs, np.zeros(k - 1), mass, number_by_mass(np.arange(k), mass), 0.5)


def group(walk: Walk, resolution: float | Literal["auto"] = "auto", rng: np.random.Generator | int = 0) -> Hierarchy:
    """Group the components of a walk into clusters, 0 the heaviest, and keep the tree.

    A higher resolution makes more clusters; "auto" asks `choose_resolution`. The same ``rng`` gives the same result.

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
        labels, resolution = choice.best.labels, choice.best.resolution
    else:
        labels = communities(walk.flow, resolution, rng)
    return _tree(checked_flow(walk.flow), labels, float(resolution))


def group_as(walk: Walk, labels: npt.ArrayLike) -> Hierarchy:
    """Keep clusters (K,) that are known already, numbered by falling mass, and build the tree inside and above them."""
    flow = checked_flow(walk.flow)
    given = _whole_numbers(labels)
    if given.shape != (len(flow),):
        raise ValueError(f"labels should have shape ({len(flow)},), one cluster for each component, but got {given.shape}.")
    return _tree(flow, number_by_mass(given, flow.sum(axis=0)), 1.0)


def extend(walk: Walk, known: npt.ArrayLike, resolution: float = 1.0) -> Hierarchy:
    """Find a place for new components among clusters that stay as they are.

    New components, those whose ``known`` (K,) is -1, join what they share most with: a known cluster, or each other, as long
    as flow_ab > resolution * mass_a * mass_b. Known clusters are never joined.

    Examples
    --------
    The third component shares samples with the second, the fourth with none:

    >>> import numpy as np
    >>> step = np.array([[1, 0, 0, 0], [0, 0.6, 0.4, 0], [0, 0.4, 0.6, 0], [0, 0, 0, 1]])
    >>> extend(Walk(np.eye(4), step), [0, 1, -1, -1]).labels
    array([1, 0, 0, 2])
    """
    check_resolution(resolution)
    flow = checked_flow(walk.flow)
    labels = _whole_numbers(known).copy()
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
            return _tree(flow, number_by_mass(labels, flow.sum(axis=0)), resolution)
        labels[labels == names[b]] = names[a]


def _tree(flow: FloatArray, labels: IntArray, resolution: float) -> Hierarchy:
    """Join greedily, inside the given groups first; heights are kept on their side of the resolution."""
    n_components = len(flow)
    n_inside = n_components - (int(labels.max()) + 1)
    merges = np.zeros((n_components - 1, 2), dtype=np.int64)
    heights = np.zeros(n_components - 1)
    node = np.arange(n_components)  # the node in each slot
    for step, join in enumerate(joins(flow, labels)):
        merges[step] = sorted((node[join.kept], node[join.gone]))
        node[join.kept] = n_components + step
        heights[step] = join.height
    # Joins of a greedy tree fall by themselves up to rounding, but Louvain's groups need not be groups of that tree.
    heights[:n_inside] = np.maximum(heights[:n_inside], resolution)
    heights[n_inside:] = np.minimum(heights[n_inside:], np.nextafter(resolution, 0))
    return Hierarchy(merges, np.minimum.accumulate(heights), flow.sum(axis=0), labels, resolution)


def _whole_numbers(values: Any) -> IntArray:
    numbers = np.array(values, dtype=np.float64)
    if not (np.abs(numbers) < 2**53).all() or (numbers != np.round(numbers)).any():
        raise ValueError(f"Expected whole numbers, but got {values}.")
    return numbers.astype(np.int64)
