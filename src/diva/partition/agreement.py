"""How far a partition and a graph of nearest neighbours agree: evidence for a clustering that asks for no labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.stats import entropy

from diva.partition.walk import neighbour_walk


def neighbour_agreement(points: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Share of what the cluster of a sample tells that the clusters of its neighbours tell as well.

    Mutual information of the clusters at both ends of a step to a nearest neighbour, by the entropy of the clusters (Theil's
    uncertainty coefficient): 1 if all neighbours are of one cluster, 0 if they are by chance, or if there is one cluster only.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.repeat([0.0, 100.0], 50)[:, None] + np.arange(100)[:, None] / 100
    >>> neighbour_agreement(points, np.repeat([0, 1], 50))
    1.0
    """
    found, cluster_of = np.unique(np.asarray(labels), return_inverse=True)
    if len(found) < 2:
        return 0.0
    flow = neighbour_walk(points, np.eye(len(found))[cluster_of]).flow
    ends = flow.sum(axis=0)
    shared = 2 * entropy(ends) - entropy(flow.ravel())
    return round(float(np.clip(shared / entropy(ends), 0.0, 1.0)), 12)
