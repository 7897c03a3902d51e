"""How well clusters agree with known classes; every metric by its full name.

"Accuracy" of a clustering means three different things in the literature, and they differ by tens of points when there are more
clusters than classes. None of these functions is called just accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix


@dataclass(frozen=True, eq=False)
class Agreement:
    """Classes and clusters of the same samples, counted once.

    Parameters
    ----------
    classes, clusters : array-like of shape (n_samples,)
    """

    classes: ArrayLike
    clusters: ArrayLike

    def __post_init__(self) -> None:
        shapes = np.shape(self.classes), np.shape(self.clusters)
        if shapes[0] != shapes[1] or len(shapes[0]) != 1 or shapes[0][0] == 0:
            raise ValueError(
                f"Expected a class and a cluster for each of at least one sample, got shapes {shapes[0]} and {shapes[1]}."
            )

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """Samples of each class (row) in each cluster (column)."""
        counts: NDArray[np.int64] = contingency_matrix(self.classes, self.clusters)
        return counts

    @property
    def n_clusters(self) -> int:
        """K, the clusters that hold at least one sample."""
        return int(self.table.shape[1])

    @cached_property
    def acc_one_to_one(self) -> float:
        """Each cluster stands for at most one class and each class for at most one cluster (Hungarian method)."""
        return self._assigned(self.table)

    @cached_property
    def acc_three_to_one(self) -> float:
        """Each class may be used by three clusters (Hungarian method); what DIVA's reference code logs."""
        return self._assigned(np.repeat(self.table, 3, axis=0))

    @cached_property
    def acc_majority(self) -> float:
        """Each cluster takes its majority class, however often; also known as purity, and easy with many clusters."""
        return float(self.table.max(axis=0).sum() / self.table.sum())

    @cached_property
    def nmi(self) -> float:
        """Normalized mutual information, arithmetic mean."""
        return float(normalized_mutual_info_score(self.classes, self.clusters))

    @cached_property
    def ari(self) -> float:
        """Adjusted Rand index."""
        return float(adjusted_rand_score(self.classes, self.clusters))

    @cached_property
    def ami(self) -> float:
        """Adjusted mutual information."""
        return float(adjusted_mutual_info_score(self.classes, self.clusters))

    def as_row(self) -> dict[str, Any]:
        """All of them, one-to-one accuracy first."""
        names = ("acc_one_to_one", "acc_majority", "acc_three_to_one", "nmi", "ari", "ami", "n_clusters")
        return {name: getattr(self, name) for name in names}

    def _assigned(self, table: NDArray[np.int64]) -> float:
        rows, columns = linear_sum_assignment(table, maximize=True)
        return float(table[rows, columns].sum() / self.table.sum())


def acc_one_to_one(classes: ArrayLike, clusters: ArrayLike) -> float:
    """One-to-one accuracy, the headline; see ``Agreement``.

    >>> acc_one_to_one([0, 0, 1, 1], [5, 5, 7, 8])
    0.75
    """
    return Agreement(classes, clusters).acc_one_to_one
