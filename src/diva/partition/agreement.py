"""Which of two partitions nearest neighbours agree on more: evidence for a clustering that asks for no labels.

What the cluster of a sample tells of the cluster of its neighbour, their mutual information, grows with the number of clusters,
and relative to their entropy it falls. So two partitions are compared at the same number: the finer one is made coarser first,
joining those clusters that lose least of it (the agglomerative information bottleneck; Slonim and Tishby 1999).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

from diva.partition.walk import FloatArray, neighbour_walk


def neighbour_information(points: npt.ArrayLike, *partitions: npt.ArrayLike) -> list[float]:
    """Mutual information, in nats, of the clusters of a sample and of a nearest neighbour, for partitions made equally coarse.

    A partition into one cluster tells nothing, and does not make the others coarser.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> points = np.repeat([0.0, 100.0], 50)[:, None] + rng.normal(size=(100, 1))
    >>> halves, by_turns = np.repeat([0, 1], 50), np.tile([0, 1], 50)
    >>> [round(nats, 1) for nats in neighbour_information(points, halves, by_turns)]
    [0.7, 0.0]
    """
    flows = [_flow(points, np.asarray(labels)) for labels in partitions]
    n_clusters = min((len(flow) for flow in flows if len(flow) > 1), default=1)
    return [_information(coarsened(flow, n_clusters)) for flow in flows]


def coarsened(flow: FloatArray, n_clusters: int) -> FloatArray:
    """Join clusters, two at a time, until there are so many; each time those whose flows (K, K) lose least information."""
    flow = np.array(flow)
    sums = xlogy_sum(flow)
    while (n := len(flow)) > n_clusters:
        ends, here = flow.sum(axis=0), np.diag(flow)
        entries, own = xlogy(flow, flow), xlogy(here, here)
        # sums[i, j] counts all k; entries i and j become one, and what goes between them stays within
        between = xlogy(here[:, None] + flow, here[:, None] + flow)
        block = xlogy(inside := here[:, None] + here + 2 * flow, inside) - own[:, None] - own - 2 * entries
        rows = sums - between - between.T
        others = entries.sum(axis=1) - own
        gained = 2 * (rows - (others[:, None] + others - 2 * entries)) + block
        of_ends = xlogy(both := ends[:, None] + ends, both) - xlogy(ends, ends)[:, None] - xlogy(ends, ends)
        change = gained - 2 * of_ends  # of the mutual information
        np.fill_diagonal(change, -np.inf)
        kept, gone = sorted(divmod(int(change.argmax()), n))
        flow[kept] += flow[gone]
        flow[:, kept] += flow[:, gone]
        flow = np.delete(np.delete(flow, gone, axis=0), gone, axis=1)
        sums = xlogy_sum(flow)
    return flow


def xlogy_sum(flow: FloatArray) -> FloatArray:
    """Sum over k of x log x at x = flow[i, k] + flow[j, k], (K, K)."""
    return np.stack([xlogy(joint := flow + row, joint).sum(axis=1) for row in flow])


def _flow(points: npt.ArrayLike, labels: npt.NDArray[np.int64]) -> FloatArray:
    found, cluster_of = np.unique(labels, return_inverse=True)
    return neighbour_walk(points, np.eye(len(found))[cluster_of]).flow


def _information(flow: FloatArray) -> float:
    ends = flow.sum(axis=0)
    return max(0.0, float(xlogy(flow, flow).sum() - 2 * xlogy(ends, ends).sum()))
