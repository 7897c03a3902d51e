"""Fixed, numbered batches of rows: what a memo can revisit, lap after lap."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from diva.distributed import gather, rank

MIN_BATCH_ROWS = 10_000
MAX_BATCHES = 20


@dataclass(frozen=True)
class Rows:
    """Some rows of a source, and their weights if it has any."""

    values: NDArray[Any]  # (m, D)
    weights: NDArray[Any] | None = None  # (m,)
    first: int = 0  # number of the first row, among all data
    is_shard: bool = False  # whether other processes have other rows, and not the same

    def __len__(self) -> int:
        return len(self.values)

    def part(self, rows: slice) -> Rows:
        """Some consecutive rows."""
        weights = None if self.weights is None else self.weights[rows]
        return Rows(self.values[rows], weights, self.first + rows.start, self.is_shard)

    def pieces(self, n_rows: int) -> Iterator[Rows]:
        """Cut into runs of at most ``n_rows``."""
        for i in range(0, len(self), n_rows):
            yield self.part(slice(i, i + n_rows))


class ArrayBatches:
    """Consecutive slices of one array (n, D), in memory or mapped from a file, and of its weights (n,) if it has any.

    By default at most ``MAX_BATCHES`` batches are made, so that a memo does not grow with n.
    """

    def __init__(self, values: NDArray[Any], weights: NDArray[Any] | None = None, batch_size: int | None = None) -> None:
        self._rows = Rows(values, weights)
        self._batch_size = batch_size or max(MIN_BATCH_ROWS, -(-len(values) // MAX_BATCHES))

    @property
    def n_rows(self) -> int:
        """Of all batches."""
        return len(self._rows)

    def in_batches_of(self, batch_size: int | None) -> ArrayBatches:
        """The same rows in other batches."""
        return ArrayBatches(self._rows.values, self._rows.weights, batch_size)

    def __iter__(self) -> Iterator[Rows]:
        for rows in self._rows.pieces(self._batch_size):
            yield rows
            _release_pages(self._rows.values)


def _release_pages(values: NDArray[Any]) -> None:
    """Let the system take back what was read of a mapped file; else the whole file ends up in resident memory."""
    base: Any = values
    file_has_it_all = False  # an anonymous or copy-on-write mapping holds the only copy of its numbers: never let go of those
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            file_has_it_all = base.mode in ("r", "r+", "w+")
        base = base.base
    if file_has_it_all and isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


class ReiterableBatches:
    """Batches (m, D) as some other object yields them: a list of arrays, a DataLoader that does not shuffle, a Parquet reader.

    Every iteration must yield the same batches in the same order.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        if iter(source) is source:
            raise TypeError(
                f"Expected batches that can be iterated again and again, got a one-shot {type(source).__name__}. "
                "Pass a list of arrays, or an object whose __iter__ starts anew each time."
            )
        self._source = source

    def __iter__(self) -> Iterator[Rows]:
        n_features: int | None = None
        n_rows = 0
        for number, item in enumerate(self._source):
            values = _as_rows(item, f"batch {number}")
            if n_features is not None and values.shape[1] != n_features:
                raise ValueError(
                    f"Every batch must have the same number of features: batch {number} has {values.shape[1]}, "
                    f"those before it have {n_features}."
                )
            n_features = values.shape[1]
            if len(values):
                yield Rows(values, first=n_rows)
            n_rows += len(values)


class ShardBatches:
    """Batches of which every process has some rows of its own: the first of each are those of process 0.

    Rows are numbered process by process. All processes have as many batches, some of which may be empty.
    """

    def __init__(self, own: Callable[[int | None], Iterable[Rows]], n_rows: int | None = None) -> None:
        """Take what makes the batches of this process from their number of rows, and how many it has if that is known."""
        if n_rows is None:
            lengths = [len(rows) for rows in own(None)]
            n_rows, self._n_batches, batch_size = sum(lengths), max(gather(len(lengths))), None
        else:
            self._n_batches = max(1, min(MAX_BATCHES, max(gather(n_rows)) // MIN_BATCH_ROWS))
            batch_size = max(1, -(-n_rows // self._n_batches))
        self._first = sum(gather(n_rows)[: rank()])
        self._own, self._batch_size = own, batch_size

    def __iter__(self) -> Iterator[Rows]:
        own = iter(self._own(self._batch_size))
        for rows, _ in zip_longest(own, range(self._n_batches), fillvalue=Rows(np.empty((0, 0)))):
            yield replace(rows, first=rows.first + self._first, is_shard=True)


def _as_rows(item: Any, name: str) -> NDArray[Any]:
    if isinstance(item, list | tuple) and len(item) and getattr(item[0], "ndim", 0) == 2:
        if len(item) > 1:
            raise ValueError(f"Expected {name} to be one array, got {len(item)}. Leave labels out of the source.")
        item = item[0]  # a DataLoader over a TensorDataset yields [x]
    if sparse.issparse(item):
        raise ValueError(f"Expected {name} to be dense, got a sparse {type(item).__name__}. Use its toarray method.")
    if isinstance(item, torch.Tensor):
        item = to_numpy(item)
    try:
        values = np.asarray(item)
        if values.dtype.kind == "c":
            raise ValueError("complex numbers are not supported")
        if values.dtype not in (np.float32, np.float64):
            values = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Expected {name} to be a numeric array of shape (n_samples, n_features): {error}") from error
    if values.ndim != 2:
        raise ValueError(
            f"Expected {name} to have shape (n_samples, n_features), got {values.shape}. "
            "A single feature is a column: reshape with x.reshape(-1, 1)."
        )
    return values


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """A tensor as an array; numpy has no bfloat16. Raises ValueError if it has no numbers, or not the same for each sample."""
    if tensor.is_meta:
        raise ValueError("Expected a tensor of numbers, got one on the meta device, which has a shape and nothing else.")
    if tensor.is_nested:
        raise ValueError(
            "Expected as many numbers for each sample, got a nested tensor. Pad it: torch.nested.to_padded_tensor."
        )
    if tensor.layout != torch.strided:
        raise ValueError(f"Expected a dense tensor, got one of layout {tensor.layout}. Use its to_dense method.")
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def is_batch_source(data: Any) -> bool:
    """Whether ``data`` is a collection of batches rather than one table of rows."""
    if isinstance(data, list | tuple):
        return len(data) > 0 and getattr(data[0], "ndim", None) == 2
    is_table = hasattr(data, "__array__") or hasattr(data, "shape") or hasattr(data, "__dataframe__")
    return isinstance(data, Iterable) and not is_table and not isinstance(data, str | bytes | dict)
