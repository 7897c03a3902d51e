"""Samples as a network sees them: where they come from, and how their numbers are scaled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data.batches import to_numpy

FARTHEST = 1e6  # units from the middle; what lies beyond could overflow in a network
MEASURE_NUMBERS = 1 << 22  # read at a time while measuring


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

    def __len__(self) -> int:
        return len(self.values)

    @property
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return tuple(self.values.shape[1:])

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        return np.asarray(self.values[index])


@dataclass(frozen=True)
class Opened:
    """What was found under a path.

    Attributes
    ----------
    source : Source
    labels : array of shape (n,) or None
        Numbers or words, if the data came with any; DIVA does not learn from them.
    feature_names : list of str or None
        One for each number of a sample, if they have names.
    name : str
        For headings.
    sample_names : list of str or None
        One for each sample, such as the names of files.
    columns : list of str or None
        Of a table, that the features came from; one column may hold vectors.
    """

    source: Source
    labels: NDArray[Any] | None
    feature_names: list[str] | None
    name: str
    sample_names: list[str] | None = None
    columns: list[str] | None = None


class DatasetSource:
    """Samples of a torch Dataset with a length; of an item that is a tuple, the first part, so labels are left out.

    Images are expected as torch has them, channels first.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._item_shape = self._item(0).shape

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return self._item_shape

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        items = [self._item(i) for i in index.tolist()]
        for number, item in zip(index.tolist(), items, strict=True):
            if item.shape != self._item_shape:
                raise ValueError(f"Every item should have shape {self._item_shape}, item {number} has {item.shape}.")
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
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return self.whole.item_shape

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        return self.whole.take(self.index[index])


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
class Scaling:
    """How raw numbers become network input and back: fixed at the first fit and saved with the model.

    Attributes
    ----------
    input_shape : tuple of int
        (channels, height, width) of an image, or (features,).
    channels_last : bool
        Whether raw images have their channels last; without a channel axis, or flattened, it does not matter.
    offset, unit : Tensor of shape (features,) or (1,), float64
        Input is ``(raw - offset) / unit``.
    """

    input_shape: tuple[int, ...]
    channels_last: bool
    offset: Tensor
    unit: Tensor

    @property
    def is_image(self) -> bool:
        """Whether the network sees images."""
        return len(self.input_shape) == 3

    @property
    def n_numbers(self) -> int:
        """Numbers in a sample."""
        return math.prod(self.input_shape)

    @property
    def value_range(self) -> tuple[float, float]:
        """Raw numbers that become -1 and 1: of images, darkest and brightest."""
        offset, unit = float(self.offset[0]), float(self.unit[0])
        return offset - unit, offset + unit

    def check(self) -> None:
        """Raise ValueError if it is no scaling."""
        for name, value in (("offset", self.offset), ("unit", self.unit)):
            if value.dtype != torch.float64 or tuple(value.shape) not in ((1,), (self.n_numbers,)):
                raise ValueError(f"{name} of the scaling should be float64 of shape (1,) or ({self.n_numbers},)")
        if not bool((self.unit > 0).all()) or len(self.input_shape) not in (1, 3) or min(self.input_shape) < 1:
            raise ValueError("units of the scaling and sizes of the input should be positive")

    def to_input(self, raw: NDArray[Any]) -> Tensor:
        """Raw samples (n, ...) as float32 network input."""
        # float64 keeps what is far from 0 apart until it is centred
        dtype = np.float64 if raw.dtype.itemsize > 4 else np.float32
        x = torch.from_numpy(np.array(raw, dtype=dtype, copy=True, order="C"))
        x = ((x.reshape(len(x), -1) - self.offset.to(x.dtype)) / self.unit.to(x.dtype)).clamp(-FARTHEST, FARTHEST).float()
        if not self.is_image:
            return x
        channels, height, width = self.input_shape
        if self.channels_last:  # a permuted view: torch calls this memory format channels_last, and convolutions like it
            return x.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
        return x.reshape(-1, channels, height, width).contiguous(memory_format=torch.channels_last)

    def to_raw(self, x: Tensor, item_shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Network output as samples in the units and shape of the data."""
        if self.is_image and self.channels_last:
            x = x.permute(0, 2, 3, 1)
        raw = x.reshape(len(x), -1).cpu() * self.unit + self.offset
        values: NDArray[np.float32] = raw.reshape(-1, *item_shape).float().numpy()
        return values


@dataclass(frozen=True)
class Samples:
    """A source seen through a scaling."""

    source: Source
    scaling: Scaling

    def __len__(self) -> int:
        return len(self.source)

    def take(self, index: Tensor | NDArray[np.int64]) -> Tensor:
        """Network input for the samples with these numbers."""
        return self.scaling.to_input(self.source.take(np.asarray(index)))


def measure_range(source: Source) -> tuple[float, float]:
    """Smallest and largest number of a source, in bounded memory."""
    lowest, highest = np.inf, -np.inf
    for part in parts_of(source):
        lowest, highest = min(lowest, float(part.min())), max(highest, float(part.max()))
    return lowest, highest


def measure_moments(source: Source) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of every number of a sample, each (features,)."""
    first = source.take(np.arange(1)).reshape(-1).astype(np.float64)
    n, total, squares = 0, np.zeros_like(first), np.zeros_like(first)
    for part in parts_of(source):
        deviation = part.reshape(len(part), -1).astype(np.float64) - first  # near 0, so that squares do not cancel
        n, total, squares = n + len(part), total + deviation.sum(0), squares + (deviation**2).sum(0)
    mean = total / n
    return first + mean, np.sqrt(np.maximum(squares / n - mean**2, 0.0))


def parts_of(source: Source) -> Iterator[NDArray[Any]]:
    """Runs of samples that fit in memory, from first to last."""
    rows = max(1, MEASURE_NUMBERS // max(1, int(np.prod(source.item_shape))))
    for start in range(0, len(source), rows):
        yield source.take(np.arange(start, min(start + rows, len(source))))
