"""Rows that come in blocks, kept in memory while they are few and in a temporary file once they are many."""

from __future__ import annotations

import errno
import math
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from diva.data.sources import ArraySource, Source
from diva.exceptions import DataError

MEMORY_BYTES = 1 << 28  # up to here rows stay in memory
BLOCK_BYTES = 1 << 25  # read or written at a time


class StoredSource(ABC):
    """Samples outside memory, of which runs of neighbours are read at once, from first to last."""

    def __init__(self, n_samples: int, item_shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.n_samples = n_samples
        self.item_shape = item_shape
        self.dtype = np.dtype(dtype)
        self.name = ""  # of the file, for messages

    def __len__(self) -> int:
        return self.n_samples

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        index = np.asarray(index, dtype=np.int64)
        if index.size and not -len(self) <= index.min() <= index.max() < len(self):
            raise IndexError(f"There are {len(self)} samples, asked for number {index.max()}.")
        wanted, places = np.unique(np.where(index < 0, index + len(self), index), return_inverse=True)
        out = np.empty((len(wanted), *self.item_shape), dtype=self.dtype)
        edges = [*np.flatnonzero(np.diff(wanted, prepend=-2) != 1).tolist(), len(wanted)]
        for start, end in pairwise(edges):
            self.read_run(int(wanted[start]), out[start:end])
        in_order = len(wanted) == len(index) and bool((places == np.arange(len(places))).all())
        return out if in_order else out[places]

    @abstractmethod
    def read_run(self, first: int, out: NDArray[Any]) -> None:
        """Fill ``out`` with the samples from number ``first`` on."""


class SpooledSource(StoredSource):
    """Samples in a temporary file without a name: the system frees it however the process ends.

    It is read by position. A mapped file would count as resident memory, page by page, until all of it does.
    """

    def __init__(self, item_shape: tuple[int, ...], dtype: DTypeLike) -> None:
        super().__init__(0, item_shape, dtype)
        try:
            self._file = tempfile.TemporaryFile(prefix="diva-", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise _no_room(error, 0) from error

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def append(self, block: NDArray[Any]) -> None:
        """Write samples at the end; raises DataError if there is no room for them."""
        view = _bytes_of(block)
        try:
            while len(view):
                view = view[self._file.write(view) :]
        except OSError as error:
            raise _no_room(error, self.n_samples * math.prod(self.item_shape) * self.dtype.itemsize) from error
        self.n_samples += len(block)

    def read_run(self, first: int, out: NDArray[Any]) -> None:  # noqa: D102
        view, offset = _bytes_of(out), first * out[0].nbytes
        while len(view):
            n_bytes = self._read(view, offset)
            if n_bytes == 0:
                raise DataError("The temporary file with the rows was cut short. Read the data anew.")
            view, offset = view[n_bytes:], offset + n_bytes

    def _read(self, view: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [view], offset)
        self._file.seek(offset)
        return int(self._file.readinto(view))


def spooled(blocks: Iterable[NDArray[Any]], item_shape: tuple[int, ...], dtype: DTypeLike, name: str = "") -> Source:
    """Blocks of samples, (m, *item_shape) each, as a source; ``name`` is that of the file, for messages."""
    kept: list[NDArray[Any]] = []
    stored: SpooledSource | None = None
    n_bytes = 0
    for block in blocks:
        kept.append(np.ascontiguousarray(block, dtype=dtype))
        n_bytes += kept[-1].nbytes
        if n_bytes > MEMORY_BYTES:
            if stored is None:
                stored = SpooledSource(item_shape, dtype)
            while kept:
                stored.append(kept.pop(0))
    if stored is not None:
        stored.name = name
        return stored
    values = np.empty((sum(map(len, kept)), *item_shape), dtype=dtype)
    first = 0
    while kept:  # a block is let go as soon as it is copied: never is there twice as much
        block = kept.pop(0)
        values[first : first + len(block)] = block
        first += len(block)
    return ArraySource(values, name)


def spooled_bytes(read: Callable[[int], bytes], shape: tuple[int, ...], dtype: np.dtype[Any], name: str = "") -> Source:
    """An array as a source, from a function that reads so many of its bytes; raises EOFError if they end too soon."""
    item_bytes = math.prod(shape[1:]) * dtype.itemsize
    rows = max(1, BLOCK_BYTES // max(1, item_bytes))

    def blocks() -> Iterator[NDArray[Any]]:
        for first in range(0, shape[0], rows):
            n = min(rows, shape[0] - first)
            content = read(n * item_bytes)
            if len(content) < n * item_bytes:
                raise EOFError(f"{n * item_bytes - len(content)} bytes are missing")
            yield np.frombuffer(content, dtype).reshape(n, *shape[1:])

    return spooled(blocks(), shape[1:], dtype.newbyteorder("="), name)


def spooled_columns(read: Callable[[int], bytes], shape: tuple[int, ...], dtype: np.dtype[Any], name: str = "") -> Source:
    """An array in Fortran order as a source: its numbers go to a temporary file, from which samples are gathered."""
    n_samples, n_columns = shape[0], math.prod(shape[1:])
    numbers = SpooledSource((), dtype)
    at_once = max(1, BLOCK_BYTES // dtype.itemsize)
    rows = max(1, at_once // max(1, n_columns))

    def blocks() -> Iterator[NDArray[Any]]:
        for first in range(0, n_samples, rows):
            columns = np.empty((n_columns, min(rows, n_samples - first)), dtype)
            for number, column in enumerate(columns):
                numbers.read_run(number * n_samples + first, column)
            yield columns.reshape(*shape[:0:-1], -1).transpose()

    for first in range(0, n_samples * n_columns, at_once):
        wanted = min(at_once, n_samples * n_columns - first) * dtype.itemsize
        if len(content := read(wanted)) < wanted:
            raise EOFError(f"{wanted - len(content)} bytes are missing")
        numbers.append(np.frombuffer(content, dtype))
    return spooled(blocks(), shape[1:], dtype.newbyteorder("="), name)


def _bytes_of(values: NDArray[Any]) -> memoryview:
    flat: Any = values.reshape(-1).view(np.uint8)
    return memoryview(flat)


def _no_room(error: OSError, n_bytes: int) -> DataError:
    folder = tempfile.gettempdir()
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DataError(
            f"The data do not fit in memory, and the folder for temporary files, {folder}, is full after "
            f"{n_bytes / 2**20:.0f} MB. Make room there, or set TMPDIR to a folder on a larger disk."
        )
    return DataError(
        f"The data do not fit in memory, and no temporary file can be written in {folder} ({error.strerror}). "
        "Set TMPDIR to a folder that can be written to."
    )
