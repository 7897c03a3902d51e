"""What has to be known of samples before they can be learnt from, measured part by part: all of it in one pass."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diva.data.sources import Source, parts_of


class Statistic(Protocol):
    """Something that is measured, or checked, while samples are read."""

    def update(self, part: NDArray[Any]) -> None:
        """Take in the samples that come next, (m, ...)."""
        ...


def read_through(source: Source, *statistics: Statistic) -> None:
    """Read all samples once, from first to last, and show every part of them to the statistics, in the order given."""
    if not statistics:
        return
    for part in parts_of(source):
        for statistic in statistics:
            statistic.update(part)


class Range:
    """Smallest and largest number."""

    def __init__(self) -> None:
        self.lowest, self.highest = np.inf, -np.inf

    def update(self, part: NDArray[Any]) -> None:  # noqa: D102
        self.lowest, self.highest = min(self.lowest, float(part.min())), max(self.highest, float(part.max()))


class FeatureMoments:
    """Mean and standard deviation of every number of a sample, each (features,)."""

    def __init__(self) -> None:
        self._first: NDArray[np.float64] | None = None
        self._n = 0

    def update(self, part: NDArray[Any]) -> None:  # noqa: D102
        values = part.reshape(len(part), -1).astype(np.float64)
        if self._first is None:
            self._first = values[0].copy()
            self._total, self._squares = np.zeros_like(self._first), np.zeros_like(self._first)
        deviation = values - self._first  # near 0, so that squares do not cancel
        self._n, self._total = self._n + len(part), self._total + deviation.sum(0)
        self._squares = self._squares + (deviation**2).sum(0)

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of each."""
        assert self._first is not None
        return self._first + self._total / self._n

    @property
    def deviation(self) -> NDArray[np.float64]:
        """Standard deviation of each."""
        return np.sqrt(np.maximum(self._squares / self._n - (self._total / self._n) ** 2, 0.0))
