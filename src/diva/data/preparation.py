"""What happens to rows before they are scaled: counts of words become tf-idf, many features fewer. Saved with the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data.sources import Check, Source, parts_of

WIDEST_PCA = 10_000  # features: their covariance is held in memory


@dataclass(frozen=True)
class Preparation:
    """Steps for rows (n, d), in this order; each may be left out."""

    idf: Tensor | None = None  # (d,): rows are counts of words: their logs times this, divided by the row's length
    mean: Tensor | None = None  # (d,): principal axes to project on
    axes: Tensor | None = None

    def apply(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Prepare raw rows."""
        values = rows.astype(np.float64)
        if self.idf is not None:
            values = _sublinear(values) * self.idf.numpy()
            values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
        if self.axes is not None and self.mean is not None:
            values = (values - self.mean.numpy()) @ self.axes.numpy().T
        return values.astype(np.float32)

    def undo(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """From principal axes back to features; tf-idf stays, since the lengths of the texts are gone."""
        if self.axes is None or self.mean is None:
            return values
        back: NDArray[np.float32] = (values @ self.axes.numpy() + self.mean.numpy()).astype(np.float32)
        return back

    def n_features_out(self, n_features: int) -> int:
        """Numbers in a prepared row."""
        return n_features if self.axes is None else len(self.axes)

    def to_tensors(self) -> dict[str, Tensor]:
        """What must be saved."""
        return {name: value for name in ("idf", "mean", "axes") if (value := getattr(self, name)) is not None}

    def check(self, n_features: int) -> None:
        """Raise ValueError if it does not fit rows of so many features."""
        shapes = {name: tuple(value.shape) for name, value in self.to_tensors().items()}
        n_axes = len(self.axes) if self.axes is not None else 0
        expected = {"idf": (n_features,), "mean": (n_features,), "axes": (n_axes, n_features)}
        if any(shapes[name] != expected[name] for name in shapes) or ("mean" in shapes) != ("axes" in shapes):
            raise ValueError("the preparation of rows does not fit their length")
        if any(value.dtype != torch.float64 for value in self.to_tensors().values()):
            raise ValueError("the preparation of rows should be float64")


@dataclass(frozen=True)
class PreparedSource:
    """Rows of another source, prepared."""

    raw: Source
    preparation: Preparation

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return (self.preparation.n_features_out(self.raw.item_shape[0]),)

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        return self.preparation.apply(self.raw.take(index))


def fit_preparation(source: Source, *checks: Check, tfidf: bool, n_axes: int | None) -> Preparation | None:
    """Measure what the steps need, in one pass for each, with the checks in the first; None if there are no steps.

    Raises
    ------
    ValueError
        If the samples are not rows, not counts, or too few or too narrow for so many axes.
    """
    if not tfidf and n_axes is None:
        return None
    if len(source.item_shape) != 1:
        raise ValueError(f"tfidf and pca are for rows of numbers, but samples have shape {source.item_shape}. Leave them out.")
    preparation = Preparation()
    if tfidf:
        preparation, checks = Preparation(_inverse_frequencies(source, *checks)), ()
    if n_axes is None:
        return preparation
    mean, axes = _principal_axes(source, preparation, n_axes, *checks)
    return Preparation(preparation.idf, mean, axes)


def _sublinear(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(counts > 0, 1.0 + np.log(np.maximum(counts, 1e-300)), 0.0)


def _inverse_frequencies(source: Source, *checks: Check) -> Tensor:
    """Smoothed, as scikit-learn's TfidfTransformer has them."""
    n_with = np.zeros(source.item_shape)
    for part in parts_of(source, *checks):
        if part.min(initial=0) < 0 or (part != np.round(part)).any():
            raise ValueError("tfidf=True is for counts of words, but some numbers are negative or not whole. Leave it out.")
        n_with += (part > 0).sum(axis=0)
    return torch.from_numpy(np.log((1 + len(source)) / (1 + n_with)) + 1)


def _principal_axes(source: Source, before: Preparation, n_axes: int, *checks: Check) -> tuple[Tensor, Tensor]:
    """Eigenvectors of the covariance: exact, and in memory that does not grow with the number of samples."""
    n_features = source.item_shape[0]
    if n_axes > min(n_features, len(source)):
        raise ValueError(
            f"pca={n_axes} is more than {len(source):,} samples of {n_features:,} features have axes. Choose a smaller number."
        )
    if n_features > WIDEST_PCA:
        raise ValueError(f"pca takes at most {WIDEST_PCA:,} features, got {n_features:,}. Select or reduce them first.")
    n, first, total, products = 0, np.zeros(n_features), np.zeros(n_features), np.zeros((n_features, n_features))
    for part in parts_of(source, *checks):
        values = before.apply(part).astype(np.float64)
        first = first if n else values[0].copy()
        deviation = values - first  # near 0, so that products do not cancel
        total += deviation.sum(axis=0)
        products += deviation.T @ deviation
        n += len(part)
    mean = total / n
    _, vectors = np.linalg.eigh(products / n - np.outer(mean, mean))
    axes = vectors[:, ::-1][:, :n_axes].T
    axes *= np.where(axes[np.arange(n_axes), np.abs(axes).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]  # signs that repeat
    return torch.from_numpy(first + mean), torch.from_numpy(np.ascontiguousarray(axes))
