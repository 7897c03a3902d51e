"""From what users pass to what a network sees: opened, checked, prepared if asked for, and scaled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from diva.data.preparation import Preparation, PreparedSource, fit_preparation
from diva.data.scaling import Samples, Scaling, check_range, check_shape, scaling_for
from diva.data.sources import Check
from diva.data.validate import FiniteCheck, open_samples


@dataclass(frozen=True)
class InputPipeline:
    """All that happens to samples before a network sees them: fixed at the first fit and saved with the model."""

    item_shape: tuple[int, ...]  # shape of a raw sample
    preparation: Preparation | None  # steps before scaling, for rows
    scaling: Scaling

    @classmethod
    def fit(
        cls,
        estimator: Any,
        X: Any,
        *,
        image_shape: tuple[int, ...] | None = None,
        tfidf: bool = False,
        n_axes: int | None = None,
    ) -> tuple[Self, Samples]:
        """Open samples and measure what they need, in a single pass; tf-idf and principal axes take one more each.

        Sets the estimator's ``n_features_in_``.

        Raises
        ------
        TypeError, ValueError
            If ``X`` cannot be learnt from.
        """
        source = open_samples(estimator, X, reset=True)
        item_shape = source.item_shape
        checks: tuple[Check, ...] = (FiniteCheck(type(estimator).__name__),)
        preparation = fit_preparation(source, *checks, tfidf=tfidf, n_axes=n_axes)
        if preparation is not None:
            source, checks = PreparedSource(source, preparation), ()
        scaling = scaling_for(source, image_shape, *checks)
        return cls(item_shape, preparation, scaling), Samples(source, scaling)

    def open(self, estimator: Any, X: Any) -> Samples:
        """New samples, checked against those of the fit in one pass."""
        source = open_samples(estimator, X, reset=False)
        check_shape(source, self.item_shape, self.scaling)
        check_range(source, self.scaling, FiniteCheck(type(estimator).__name__))
        return Samples(source if self.preparation is None else PreparedSource(source, self.preparation), self.scaling)

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
        steps = {name: tensors[f"preparation.{name}"] for name in ("idf", "mean", "axes") if f"preparation.{name}" in tensors}
        preparation = Preparation(**steps) if steps else None
        n_numbers = math.prod(item_shape)
        if preparation is not None:
            preparation.check(n_numbers)
            n_numbers = preparation.n_features_out(n_numbers)
        if n_numbers != scaling.n_numbers:
            raise ValueError("samples and network input have different sizes")
        return cls(tuple(item_shape), preparation, scaling)
