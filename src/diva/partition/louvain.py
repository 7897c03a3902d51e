r"""Communities of a walk between components, by Louvain's method (Blondel et al. 2008).

They maximize the modularity :math:`\sum_{g(a) = g(b)} T_{ab} - \gamma m_a m_b` of the flow at a resolution :math:`\gamma`
(Reichardt and Bornholdt 2006).
"""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt

from diva.partition.walk import FloatArray, IntArray, affinity_of, checked_flow

_MIN_EDGE = 1e-4  # edges of less affinity are left out of the graph: half the time, the same communities


def communities(flow: npt.ArrayLike, resolution: float, rng: np.random.Generator | int = 0) -> IntArray:
    """Communities of a flow (K, K), symmetric and of any scale, at one resolution: group of each component, (K,).

    Two groups are better joined if flow_ab > resolution * mass_a * mass_b: a higher resolution makes more groups. Group 0 is
    the heaviest, and takes the components without any mass. ``rng`` sets the order in which components are visited.
    """
    flow = checked_flow(flow)
    check_resolution(resolution)
    seed = int(np.random.default_rng(rng).integers(2**31))
    return louvain(flow, resolution, seed)


def louvain(flow: FloatArray, resolution: float, seed: int) -> IntArray:
    """Louvain's communities, numbered by falling mass; components without mass join group 0."""
    masses = flow.sum(axis=0)
    # Visit in an order of masses, not of positions, so that permuted components give the same groups.
    order = np.lexsort((*np.sort(flow, axis=0), masses))[::-1]
    order = order[masses[order] > 0]
    ordered = flow[np.ix_(order, order)]
    edges = np.triu(np.where(affinity_of(ordered) >= _MIN_EDGE, ordered, 0.0), 1)
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
    labels[carried] = number_by_mass(labels[carried], masses[carried])
    labels[~carried] = 0
    return labels


def number_by_mass(labels: npt.NDArray[np.integer[Any]], masses: FloatArray) -> IntArray:
    """Renumber groups by falling mass; equal masses by their first component."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    # Rounding, because sums over the same components in another order must not change the numbers.
    weight = np.round(np.bincount(inverse, weights=masses), 12)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.lexsort((first, -weight))] = np.arange(len(first))
    return rank[inverse]


def check_resolution(resolution: float) -> None:
    """Raise ValueError unless it is a positive number."""
    if not (np.isfinite(resolution) and resolution > 0):
        raise ValueError(f"resolution should be a positive number, but got {resolution}.")
