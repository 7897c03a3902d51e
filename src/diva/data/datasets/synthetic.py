"""Simulated data whose groups are known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diva.data.sources import ArraySource, LoadedData
from diva.exceptions import UnknownDatasetError

Array = NDArray[np.float64]
GAUSSIANS = re.compile(r"gaussians-([1-9]\d{0,3})(?:-([1-9]\d{0,3}))?")
GAUSSIANS_FEATURES = 10  # where the name does not say
GAUSSIANS_PER_COMPONENT = 500
GAUSSIANS_NUMBERS = 200_000  # components x features: 400 MB of samples


@dataclass(frozen=True)
class GaussianMixtureTruth:
    """The mixture that simulated data come from."""

    weights: Array  # (K,)
    means: Array  # (K, D)
    scales: Array  # (K, D): standard deviations along the component's own axes
    axes: Array  # (K, D, D): those axes, as columns; the identity where the components are not rotated

    def sample(self, n_samples: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Draw samples (n, D) in float32 and the component of each, (n,)."""
        y = rng.choice(len(self.weights), n_samples, p=self.weights)
        x = rng.standard_normal((n_samples, self.means.shape[1]), dtype=np.float32) * self.scales.astype(np.float32)[y]
        for k, axes in enumerate(self.axes.astype(np.float32)):
            x[y == k] = x[y == k] @ axes.T
        return x + self.means.astype(np.float32)[y], y

    def best_labels(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Most probable component under the truth: what no method can beat on average."""
        log_joint = [
            np.log(w) - np.log(s).sum() - 0.5 * (((x - m) @ a / s) ** 2).sum(1)
            for w, m, s, a in zip(self.weights, self.means, self.scales, self.axes, strict=True)
        ]
        labels: NDArray[np.int64] = np.argmax(log_joint, axis=0)
        return labels


def make_gaussian_mixture(
    n_components: int,
    n_features: int,
    rng: np.random.Generator,
    *,
    separation: float = 10.0,
    imbalance: float = 10.0,
    rotated: bool = False,
) -> GaussianMixtureTruth:
    """Make a random mixture of Gaussians.

    Parameters
    ----------
    n_components, n_features : int
    rng : numpy.random.Generator
    separation : float
        Root mean square distance of two means, in units of a component's typical standard deviation.
    imbalance : float
        Weight of the largest component over that of the smallest.
    rotated : bool
        Whether components have axes of their own.
    """
    weights = np.geomspace(1.0, imbalance, n_components)
    means = rng.standard_normal((n_components, n_features)) * separation / np.sqrt(2 * n_features)
    scales = rng.uniform(0.5, 1.5, (n_components, n_features))
    axes = np.broadcast_to(np.eye(n_features), (n_components, n_features, n_features))
    if rotated:
        axes = np.stack([np.linalg.qr(rng.standard_normal((n_features, n_features)))[0] for _ in range(n_components)])
    return GaussianMixtureTruth(weights / weights.sum(), means, scales, axes)


def gaussians_size(name: str) -> tuple[int, int]:
    """Number of components and of features that a name such as gaussians-10-2 asks for."""
    match = GAUSSIANS.fullmatch(name)
    if match is None:
        raise UnknownDatasetError(f"Expected gaussians-K or gaussians-K-D, got {name!r}.")
    n_components, n_features = int(match[1]), int(match[2] or GAUSSIANS_FEATURES)
    if n_components * n_features > GAUSSIANS_NUMBERS:
        raise UnknownDatasetError(f"{name} is too large: K times D should be at most {GAUSSIANS_NUMBERS:,}.")
    return n_components, n_features


def load_gaussians(name: str) -> LoadedData:
    """The data set that a name such as gaussians-10-2 stands for: always the same samples."""
    n_components, n_features = gaussians_size(name)
    rng = np.random.default_rng([n_components, n_features])
    truth = make_gaussian_mixture(n_components, n_features, rng)
    n_samples = GAUSSIANS_PER_COMPONENT * n_components
    (x, y), (x_test, y_test) = truth.sample(n_samples, rng), truth.sample(n_samples // 5, rng)
    return LoadedData(ArraySource(x), y, ArraySource(x_test), y_test)
