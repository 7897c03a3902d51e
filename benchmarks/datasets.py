"""Real data for benchmarks and tests, by name; see diva.data.datasets.load for where the files are looked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diva.data import Source, load_dataset


@dataclass(frozen=True)
class Labelled:
    """Training and test samples; the labels are for scoring only. Without a split, both are all of the data."""

    x: NDArray[Any]
    y: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]

    def first(self, n: int) -> Labelled:
        """Only the first n training samples."""
        return Labelled(self.x[:n], self.y[:n], self.x_test, self.y_test)


def load(name: str) -> Labelled:
    """A data set in memory, dense."""
    data = load_dataset(name)
    x = everything(data.source)
    if data.test_source is None or data.test_labels is None:
        return Labelled(x, data.labels, x, data.labels)
    return Labelled(x, data.labels, everything(data.test_source), data.test_labels)


def everything(source: Source) -> NDArray[Any]:
    return source.take(np.arange(len(source)))


LOADERS = {name: partial(load, name) for name in ("digits", "mnist", "fashion_mnist", "har", "reuters_r8")}
