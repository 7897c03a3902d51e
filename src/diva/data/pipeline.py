"""From what users pass to what a network sees: opened, checked, prepared if asked for, and scaled.

Rows can be prepared before they are scaled: counts of words become tf-idf, many features fewer. All is saved with the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data.batches import Rows
from diva.data.columns import TableSchema, schema_of
from diva.data.scaling import RowScale, Samples, Scaling, check_range, check_shape, is_series, scaling_for, series_scaling
from diva.data.sources import Check, ReshapedSource, Source, name_of, parts_of
from diva.data.validate import FiniteCheck, open_columns, open_samples
from diva.distributed import gather

STEPS = ("idf", "unit", "mean", "axes")
WIDEST_PCA = 10_000  # features: their covariance is held in memory


@dataclass(frozen=True)
class Preparation:
    """Steps for rows (n, d), in this order; each may be left out."""

    idf: Tensor | None = None  # (d,): rows are counts of words: their logs times this, divided by the row's length
    unit: Tensor | None = None  # (d,): features are divided by, so that columns of a table count alike
    mean: Tensor | None = None  # (d,): principal axes to project on
    axes: Tensor | None = None

    def apply(self, rows: NDArray[Any], dtype: type = np.float32) -> NDArray[Any]:
        """Prepare raw rows."""
        values = rows.astype(np.float64)
        if self.idf is not None:
            values = _sublinear(values) * self.idf.numpy()
            values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
        if self.unit is not None:
            values /= self.unit.numpy()
        if self.axes is not None and self.mean is not None:
            values = (values - self.mean.numpy()) @ self.axes.numpy().T
        return values.astype(dtype)

    def undo(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """From principal axes back to features; tf-idf stays, since the lengths of the texts are gone."""
        if self.axes is not None and self.mean is not None:
            values = values @ self.axes.numpy() + self.mean.numpy()
        if self.unit is not None:
            values = values * self.unit.numpy()
        return np.asarray(values, dtype=np.float32)

    def n_features_out(self, n_features: int) -> int:
        """Numbers in a prepared row."""
        return n_features if self.axes is None else len(self.axes)

    def to_tensors(self) -> dict[str, Tensor]:
        """What must be saved."""
        return {name: value for name in STEPS if (value := getattr(self, name)) is not None}

    def check(self, n_features: int) -> None:
        """Raise ValueError if it does not fit rows of so many features."""
        shapes = {name: tuple(value.shape) for name, value in self.to_tensors().items()}
        n_axes = len(self.axes) if self.axes is not None else 0
        expected = dict.fromkeys(STEPS, (n_features,)) | {"axes": (n_axes, n_features)}
        if any(shapes[name] != expected[name] for name in shapes) or ("mean" in shapes) != ("axes" in shapes):
            raise ValueError("the preparation of rows does not fit their length")
        if any(value.dtype != torch.float64 for value in self.to_tensors().values()):
            raise ValueError("the preparation of rows should be float64")
        if self.unit is not None and not bool((self.unit > 0).all()):
            raise ValueError("units of columns should be positive")


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


@dataclass(frozen=True)
class InputPipeline:
    """All that happens to samples before a network sees them: fixed at the first fit and saved with the model."""

    item_shape: tuple[int, ...]  # shape of a raw sample
    preparation: Preparation | None  # steps before scaling, for rows
    scaling: Scaling
    schema: TableSchema | None = None  # of a table: what its columns are used as

    @classmethod
    def fit(
        cls,
        estimator: Any,
        X: Any,
        *,
        image_shape: tuple[int, ...] | None = None,
        kind: str | None = None,
        tfidf: bool = False,
        n_axes: int | None = None,
        scale: RowScale = "one",
    ) -> tuple[Self, Samples]:
        """Open samples and measure what they need, in a single pass; tf-idf and principal axes take one more each.

        Sets the estimator's ``n_features_in_``; raises TypeError or ValueError if ``X`` cannot be learnt from.
        """
        source = open_samples(estimator, X, reset=True)
        item_shape, schema = source.item_shape, schema_of(source)
        checks: tuple[Check, ...] = (FiniteCheck(type(estimator).__name__, name_of(source)),)
        units = None
        if schema is not None:
            estimator.feature_names_in_ = np.array(schema.feature_names, dtype=object)
            units, n_axes = schema.units, n_axes or _fewer(schema.n_axes, len(source), item_shape[0])
        preparation = fit_preparation(source, *checks, tfidf=tfidf, n_axes=n_axes, units=units)
        if preparation is not None:
            source, checks = PreparedSource(source, preparation), ()
            scale = "one" if scale == "auto" else scale  # prepared rows are on one scale
        if is_series(item_shape, kind, image_shape):
            scaling = series_scaling(source, *checks)
        else:
            names = getattr(estimator, "feature_names_in_", None)
            scaling = scaling_for(source, image_shape, *checks, names=names, scale=scale)
        return cls(item_shape, preparation, scaling, schema), Samples(source, scaling)

    def open(self, estimator: Any, X: Any) -> Samples:
        """New samples, checked against those of the fit in one pass."""
        source = open_samples(estimator, X if self.schema is None else open_columns(X, schema=self.schema), reset=False)
        check_shape(source, self.item_shape, self.scaling)
        if source.item_shape != self.item_shape:  # kept by streams beside those of the fit
            source = ReshapedSource(source, self.item_shape)
        check_range(source, self.scaling, FiniteCheck(type(estimator).__name__, name_of(source)))
        return Samples(source if self.preparation is None else PreparedSource(source, self.preparation), self.scaling)

    @property
    def windows(self) -> tuple[int, int] | None:
        """Steps and channels, if samples are windows of sensors."""
        return None if self.scaling.is_image or len(self.item_shape) != 2 else (self.item_shape[0], self.item_shape[1])

    @property
    def prepared_shape(self) -> tuple[int, ...]:
        """Shape of a sample before it is scaled."""
        return self.item_shape if self.preparation is None else self.scaling.input_shape

    def to_raw(self, x: Tensor) -> NDArray[np.float32]:
        """Network output as samples in the units and shape of the data; tf-idf is not undone."""
        values = self.scaling.to_raw(x, self.prepared_shape)
        return values if self.preparation is None else self.preparation.undo(values)

    def to_archive(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What a model file keeps of it: entries of the document, and tensors."""
        document = {
            "input_shape": list(self.scaling.input_shape),
            "channels_last": self.scaling.channels_last,
            "item_shape": list(self.item_shape),
            **({} if self.schema is None else {"schema": self.schema.to_dict()}),
        }
        steps = {} if self.preparation is None else self.preparation.to_tensors()
        tensors = {f"preparation.{name}": value for name, value in steps.items()}
        return document, tensors | {"scaling.offset": self.scaling.offset, "scaling.unit": self.scaling.unit}

    @classmethod
    def from_archive(cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild it; raises KeyError, TypeError or ValueError if the contents do not fit together."""
        input_shape, item_shape, channels_last = (document[name] for name in ("input_shape", "item_shape", "channels_last"))
        if type(channels_last) is not bool:
            raise TypeError("flags should be true or false")
        if not all(type(n) is int for n in (*input_shape, *item_shape)):
            raise TypeError("sizes should be whole numbers")
        if min(item_shape, default=0) < 1:
            raise ValueError("sizes should be positive")
        scaling = Scaling(tuple(input_shape), channels_last, tensors["scaling.offset"], tensors["scaling.unit"])
        scaling.check()
        steps = {name: tensors[f"preparation.{name}"] for name in STEPS if f"preparation.{name}" in tensors}
        preparation = Preparation(**steps) if steps else None
        n_numbers = math.prod(item_shape)
        if preparation is not None:
            preparation.check(n_numbers)
            n_numbers = preparation.n_features_out(n_numbers)
        if n_numbers != scaling.n_numbers:
            raise ValueError("samples and network input have different sizes")
        schema = TableSchema.from_dict(document["schema"]) if "schema" in document else None
        if schema is not None and tuple(item_shape) != (schema.n_features,):
            raise ValueError("columns and samples have different sizes")
        return cls(tuple(item_shape), preparation, scaling, schema)


def _fewer(n_axes: int | None, n_samples: int, n_features: int) -> int | None:
    """So many axes as suit a table, if its rows can be reduced to them."""
    n_axes = None if n_axes is None else min(n_axes, n_samples - 1)
    return n_axes if n_axes and n_axes < n_features else None


def fit_preparation(
    source: Source, *checks: Check, tfidf: bool, n_axes: int | None, units: NDArray[np.float64] | None = None
) -> Preparation | None:
    """Measure what the steps need, in one pass for each, with the checks in the first; None if there are no steps.

    Raises ValueError if the samples are not rows, not counts, or too few or too narrow for so many axes.
    """
    if not tfidf and n_axes is None and units is None:
        return None
    if len(source.item_shape) != 1:
        raise ValueError(f"tfidf and pca are for rows of numbers, but samples have shape {source.item_shape}. Leave them out.")
    preparation = Preparation(unit=None if units is None else torch.from_numpy(units))
    if tfidf:
        preparation, checks = replace(preparation, idf=_inverse_frequencies(source, *checks)), ()
    if n_axes is None:
        return preparation
    mean, axes = _principal_axes(source, preparation, n_axes, *checks)
    return replace(preparation, mean=mean, axes=axes)


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
    return axes_of((Rows(before.apply(part)) for part in parts_of(source, *checks)), n_features, n_axes)


def axes_of(parts: Iterable[Rows], n_features: int, n_axes: int) -> tuple[Tensor, Tensor]:
    """Mean (d,) and the first principal axes (n_axes, d) of rows; raises ValueError if they are too wide."""
    if n_features > WIDEST_PCA:
        raise ValueError(f"pca takes at most {WIDEST_PCA:,} features, got {n_features:,}. Select or reduce them first.")
    n, first, total, products = 0.0, np.zeros(n_features), np.zeros(n_features), np.zeros((n_features, n_features))
    is_shard = False
    for part in parts:
        is_shard = part.is_shard
        if len(part) == 0:
            continue
        values = part.values.astype(np.float64)
        first = first if n else values[0].copy()
        deviation = values - first  # near 0, so that products do not cancel
        weighted = deviation if part.weights is None else deviation * part.weights[:, None]
        total += weighted.sum(axis=0)
        products += weighted.T @ deviation
        n += len(part) if part.weights is None else float(part.weights.sum())
    if is_shard:
        n, first, total, products = _of_all_shards(n, first, total, products)
    mean = total / n
    _, vectors = np.linalg.eigh(products / n - np.outer(mean, mean))
    axes = vectors[:, ::-1][:, :n_axes].T
    axes *= np.where(axes[np.arange(n_axes), np.abs(axes).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]  # signs that repeat
    return torch.from_numpy(first + mean), torch.from_numpy(axes.copy())  # one number alone may still be stored backwards


def _of_all_shards(n: float, first: NDArray[Any], total: NDArray[Any], products: NDArray[Any]) -> tuple[Any, ...]:
    """Mass, a point, and sums and products of deviations from it: of the rows of all processes."""
    (n, first, total, products), *others = (own for own in gather((n, first, total, products), "finding axes") if own[0])
    for n_other, first_other, total_other, products_other in others:
        apart = first_other - first
        products = products + products_other + np.outer(total_other, apart) + np.outer(apart, total_other + n_other * apart)
        total, n = total + total_other + n_other * apart, n + n_other
    return n, first, total, products
