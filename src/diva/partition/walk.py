r"""One step of a random walk between components, and the flow it makes.

A Gaussian mixture must cut a curved class into several components, and its bound is right to do so. The clusters people
want are the groups of components that samples wander between when they are moved a little: to an augmented view, to a
draw from the encoder's posterior, or to a nearest neighbour. With responsibilities :math:`r` of the samples and
:math:`r'` of the moved samples the walk is the symmetric *flow*

.. math:: T_{ab} \propto \sum_n r_a(x_n) r_b(x_n') + r_b(x_n) r_a(x_n'), \qquad \sum_{ab} T_{ab} = 1,

with masses :math:`m_a = \sum_b T_{ab}`. The *affinity* of two components is :math:`T_{ab} / \sqrt{m_a m_b}`, the normalized
one of spectral clustering (Ng, Jordan and Weiss 2001): 0 if they share nothing, 1/2 for halves of one perfectly mixed whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from sklearn.neighbors import NearestNeighbors

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


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
        """Bootstrap: as many samples, drawn with replacement; the arrays are shared, only the weights differ."""
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

    Samples are at ``points`` (n, D), usually the codes the mixture was fitted on, with responsibilities ``resp`` (n, K). All
    neighbours are equally likely, the sample itself is not one of them; with fewer samples than neighbours, all others are.
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


def checked_flow(flow: npt.ArrayLike) -> FloatArray:
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


def affinity_of(flow: FloatArray) -> FloatArray:
    """Normalized affinity of every pair, (K, K)."""
    masses = flow.sum(axis=0)
    return ratio(flow, np.sqrt(np.outer(masses, masses)))


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide; 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
