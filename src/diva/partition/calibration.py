"""How sure probabilities of clusters may be: as sure as nearest neighbours are alike.

Where components are not quite Gaussian, responsibilities are nearly all 0 or 1, near a border as well. A temperature makes them
less sure (Guo et al., "On calibration of modern neural networks", 2017), here without labels: what they say of a sample should
be what is seen of its nearest neighbour.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.neighbors import NearestNeighbors

from diva.partition.walk import FloatArray, IntArray

N_ASKED = 2_000  # samples whose nearest neighbour is sought: one number is estimated
SMALLEST = 1e-300  # probability, so that it has a logarithm


def tempered(proba: npt.ArrayLike, temperature: float) -> FloatArray:
    """Probabilities (n, G) to the power of ``1 / temperature``, in rows that add up to 1.

    >>> tempered([[0.8, 0.2], [1.00000003, 0.0]], 1.0)
    array([[0.8, 0.2],
           [1. , 0. ]])
    >>> tempered([[0.8, 0.2]], 2.0).round(3)
    array([[0.667, 0.333]])
    """
    given = np.asarray(proba, dtype=np.float64)
    raised: FloatArray = given if temperature == 1 else (given / given.max(axis=1, keepdims=True)) ** (1 / temperature)
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def neighbour_temperature(points: npt.ArrayLike, proba: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """Temperature at which probabilities of samples say best in which cluster their nearest neighbours are; at least 1.

    Copies of a sample are no neighbours of it.

    Parameters
    ----------
    points : array-like of shape (n, D)
    proba : array-like of shape (n, G)
        Of each cluster. The most probable one is where a sample is.
    weights : array-like of shape (n,), optional

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    >>> halves, by_turns = (0.01 + 0.98 * np.eye(2)[labels] for labels in ([0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1]))
    >>> neighbour_temperature(points, halves), neighbour_temperature(points, by_turns) > 10
    (1.0, True)
    """
    here, proba = np.asarray(points), np.asarray(proba, dtype=np.float64)
    mass = np.ones(len(here)) if weights is None else np.asarray(weights, dtype=np.float64)
    here, proba, mass = (values[mass > 0] for values in (here, proba, mass))
    here, first, copy_of = np.unique(here, axis=0, return_index=True, return_inverse=True)
    if len(here) < 2 or proba.shape[1] < 2:
        return 1.0
    proba, mass = proba[first], np.asarray(np.bincount(copy_of.ravel(), mass), dtype=np.float64)
    asked = spread_rows(len(here), N_ASKED)
    beside = NearestNeighbors(n_neighbors=2).fit(here).kneighbors(here[asked], return_distance=False)
    nearest = np.where(beside[:, 0] == asked, beside[:, 1], beside[:, 0])
    log_proba, told, mass = np.log(np.maximum(proba[asked], SMALLEST)), proba[nearest].argmax(axis=1), mass[asked]

    def surprise(coldness: float) -> float:
        """Mean negative log probability of the neighbours' clusters, convex in the inverse of the temperature."""
        said = log_softmax(coldness * log_proba, axis=1)[np.arange(len(told)), told]
        return -float(mass @ said)

    found = minimize_scalar(surprise, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-6})
    return 1.0 if surprise(1.0) <= found.fun else float(1 / found.x)


def spread_rows(n: int, most: int) -> IntArray:
    """At most so many of n rows, at even distances.

    >>> spread_rows(3, 5), spread_rows(9, 3)
    (array([0, 1, 2]), array([0, 4, 8]))
    """
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.int64)
