"""Samples by their numbers, wherever they are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from diva.data.batches import Rows, to_numpy

Check = Callable[[NDArray[Any]], None]  # raises an error if it is shown samples that cannot be used
NUMBERS_AT_ONCE = 1 << 22  # that are read of a source on a pass over it


@runtime_checkable
class Source(Protocol):
    """Raw samples, by their numbers: all that DIVA asks of data, wherever they are kept."""

    def __len__(self) -> int: ...

    @property
    def item_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        ...

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """Samples with these numbers, stacked."""
        ...


@dataclass(frozen=True)
class ArraySource:
    """Samples along the first axis of an array, in memory or mapped from a file."""

    values: NDArray[Any]
    name: str = ""  # of the file, for messages

    def __len__(self) -> int:
        return len(self.values)

    @property
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return tuple(self.values.shape[1:])

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        return np.asarray(self.values[index])


class DatasetSource:
    """Samples of a torch Dataset with a length; of an item that is a tuple, the first part, so labels are left out.

    Images are expected as torch has them, channels first.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.item_shape = self._item(0).shape

    def __len__(self) -> int:
        return len(self._dataset)

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        items = [self._item(i) for i in index.tolist()]
        for number, item in zip(index.tolist(), items, strict=True):
            if item.shape != self.item_shape:
                raise ValueError(f"Every item should have shape {self.item_shape}, item {number} has {item.shape}.")
        return np.stack(items)

    def _item(self, number: int) -> NDArray[Any]:
        item = self._dataset[number]
        if isinstance(item, tuple | list):
            if len(item) == 0:
                raise ValueError(f"Expected items with a sample first, item {number} is empty.")
            item = item[0]
        return to_numpy(item) if isinstance(item, Tensor) else np.asarray(item)


@dataclass(frozen=True)
class PartOfSource:
    """Some samples of another source."""

    whole: Source
    index: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def name(self) -> str:
        """Of the file, for messages."""
        return name_of(self.whole)

    @property
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return self.whole.item_shape

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        return self.whole.take(self.index[index])


@dataclass(frozen=True)
class ReshapedSource:
    """Samples of another source, in another shape."""

    whole: Source
    item_shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.whole)

    @property
    def name(self) -> str:
        """Of the file, for messages."""
        return name_of(self.whole)

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        return self.whole.take(index).reshape(len(index), *self.item_shape)


@dataclass(frozen=True)
class JoinedSource:
    """Samples of several sources, one after the other."""

    parts: Sequence[Source]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return self.parts[0].item_shape

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        ends = np.cumsum([len(part) for part in self.parts])
        home = np.searchsorted(ends, index, side="right")
        pieces, places = [], []
        for number, part in enumerate(self.parts):
            if (chosen := np.flatnonzero(home == number)).size:
                pieces.append(part.take(index[chosen] - (ends[number] - len(part))))
                places.append(chosen)
        if len(pieces) == 1:
            return pieces[0]
        values = np.concatenate(pieces)  # in a dtype that holds them all
        return values[np.argsort(np.concatenate(places))]


@dataclass(frozen=True)
class LoadedData:
    """Samples from a file, a folder or a data set known by name, and all that came with them.

    Attributes
    ----------
    source : Source
    labels : array of shape (n,) or None
        True classes, as numbers or words; for scoring only, DIVA does not learn from them.
    test_source, test_labels : Source and array, or None
        Samples that were set apart for testing.
    name : str
        For headings.
    class_names : tuple of str or None
        Where labels are numbers from 0.
    feature_names : tuple of str or None
        One for each number of a sample.
    sample_names : tuple of str or None
        One for each sample, such as the names of files.
    columns : tuple of str or None
        Of a table, that the features came from; one column may hold vectors.
    beside : Arrow table or None
        What predictions keep of a table: its ids, or all of its columns, a row for each sample.
    texts : Arrow array of str or None
        How the text of each sample begins, where it has one.
    facts : dict
        How the data became numbers, as plain values for a summary.
    fidelity : str
        How this copy of a data set differs from the published one.
    suggested : dict
        Parameters of DIVA that suit it, where the defaults do not.
    """

    source: Source
    labels: NDArray[Any] | None = None
    test_source: Source | None = None
    test_labels: NDArray[Any] | None = None
    name: str = ""
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    sample_names: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    beside: Any = None
    texts: Any = None
    facts: dict[str, Any] = field(default_factory=dict)
    fidelity: str = ""
    suggested: dict[str, Any] = field(default_factory=dict)

    @property
    def named_labels(self) -> NDArray[Any] | None:
        """Labels as words, where the classes have names."""
        return self.labels if self.labels is None or self.class_names is None else np.asarray(self.class_names)[self.labels]

    def first(self, n: int | None) -> LoadedData:
        """Only the first n samples."""
        if n is None or n >= len(self.source):
            return self
        return replace(
            self,
            source=PartOfSource(self.source, np.arange(n)),
            labels=None if self.labels is None else self.labels[:n],
            sample_names=None if self.sample_names is None else self.sample_names[:n],
            beside=None if self.beside is None else self.beside.slice(0, n),
            texts=None if self.texts is None else self.texts.slice(0, n),
        )


def name_of(source: Source) -> str:
    """The file that samples came from, for messages; nothing where it is not known."""
    return getattr(source, "name", "")


def parts_of(source: Source, *checks: Check) -> Iterator[NDArray[Any]]:
    """Runs of samples that fit in memory, from first to last; each is shown to the checks before it is given out."""
    rows = max(1, NUMBERS_AT_ONCE // max(1, int(np.prod(source.item_shape))))
    for start in range(0, len(source), rows):
        part = source.take(np.arange(start, min(start + rows, len(source))))
        for check in checks:
            check(part)
        yield part


class SourceBatches:
    """Samples of a source as rows, in fixed batches; images are laid out flat."""

    def __init__(self, source: Source, batch_size: int | None = None) -> None:
        self._source = source
        width = max(1, math.prod(source.item_shape))
        self._batch_size = batch_size or max(1, NUMBERS_AT_ONCE // width)

    def __iter__(self) -> Iterator[Rows]:
        for start in range(0, len(self._source), self._batch_size):
            part = self._source.take(np.arange(start, min(start + self._batch_size, len(self._source))))
            values = part.reshape(len(part), -1)
            yield Rows(values if values.dtype in (np.float32, np.float64) else values.astype(np.float64), first=start)


def measure_range(source: Source, *checks: Check) -> tuple[float, float]:
    """Smallest and largest number of a source, in bounded memory."""
    lowest, highest = np.inf, -np.inf
    for part in parts_of(source, *checks):
        lowest, highest = min(lowest, float(part.min())), max(highest, float(part.max()))
    return lowest, highest


def measure_moments(source: Source, *checks: Check) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of every number of a sample, each (features,)."""
    n, first, total, squares = 0, np.zeros(1), np.zeros(1), np.zeros(1)
    for part in parts_of(source, *checks):
        values = part.reshape(len(part), -1).astype(np.float64)
        first = first if n else values[0].copy()
        deviation = values - first  # near 0, so that squares do not cancel
        n, total, squares = n + len(part), total + deviation.sum(0), squares + (deviation**2).sum(0)
    mean = total / n
    return first + mean, np.sqrt(np.maximum(squares / n - mean**2, 0.0))
