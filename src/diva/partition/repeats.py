"""Whether clusters come again in other fits: stability of each, without labels.

A cluster that is in the data is found again in a part of them, from another seed: Hennig, "Cluster-wise assessment of cluster
stability" (2007), who measures it by the Jaccard index, the samples that two clusters share among all that are in either; Monti
et al., "Consensus clustering" (2003), whose parts, without copies of samples, are used here.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from sklearn.metrics.cluster import contingency_matrix

from diva.partition.walk import FloatArray

SHARE = 0.8  # of the samples that a repeated fit sees, as in Monti et al.


def recurrence(labels: npt.ArrayLike, others: Iterable[npt.ArrayLike]) -> FloatArray:
    """Mean over other partitions of the Jaccard index of each cluster with the one there that is most like it, (n_clusters,).

    Parameters
    ----------
    labels : array-like of shape (n,)
        Clusters of samples; what is returned is in the order of `numpy.unique`.
    others : iterable of array-like of shape (n,)
        Clusters of the same samples in other fits.

    Examples
    --------
    The first comes again, the second falls into halves:

    >>> recurrence([0, 0, 1, 1, 1, 1], [[5, 5, 7, 7, 7, 7], [0, 0, 1, 1, 2, 2]])
    array([1.  , 0.75])
    """
    return np.asarray(np.mean([_best_overlap(np.asarray(labels), np.asarray(other)) for other in others], axis=0))


def _best_overlap(labels: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> FloatArray:
    shared = contingency_matrix(labels, other).astype(np.float64)
    either = shared.sum(axis=1, keepdims=True) + shared.sum(axis=0) - shared
    return np.asarray((shared / either).max(axis=1))
