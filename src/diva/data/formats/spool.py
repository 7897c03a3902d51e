"""Rows that come in blocks, kept in memory while they are few and in a temporary file once they are many."""

from __future__ import annotations

import errno
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from diva.data.sources import ArraySource, Source
from diva.exceptions import DataError

MEMORY_BYTES = 1 << 28  # up to here rows stay in memory
BLOCK_BYTES = 1 << 25  # read or written at a time


class HiddenFile:
    """A temporary file without a name: the system frees it however the process ends.

    It is read by position. A mapped file would count as resident memory, page by page, until all of it does.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="diva-", buffering=0)  # noqa: SIM115

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def append(self, values: NDArray[Any]) -> None:
        """Write at the end."""
        view = _bytes_of(values)
        while len(view):
            view = view[self._file.write(view) :]

    def fill(self, out: NDArray[Any], offset: int) -> None:
        """Read into an array from a position on; raises DataError if there is less."""
        view = _bytes_of(out)
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


class SpooledSource:
    """Samples in a temporary file.

    Parameters
    ----------
    file : HiddenFile
        One sample after the other.
    n_samples : int
    item_shape : tuple of int
    dtype : numpy dtype
    """

    def __init__(self, file: HiddenFile, n_samples: int, item_shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self._file = file
        self._n_samples = n_samples
        self._item_shape = item_shape
        self._dtype = np.dtype(dtype)
        self._item_bytes = math.prod(item_shape) * self._dtype.itemsize

    def __len__(self) -> int:
        return self._n_samples

    @property
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return self._item_shape

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        return take_by_runs(index, len(self), self._read, (self._item_shape, self._dtype))

    def _read(self, first: int, out: NDArray[Any]) -> None:
        self._file.fill(out, first * self._item_bytes)


def take_by_runs(
    index: NDArray[np.int64],
    n_samples: int,
    read: Callable[[int, NDArray[Any]], None],
    like: tuple[tuple[int, ...], np.dtype[Any]],
) -> NDArray[Any]:
    """Samples in any order, by reading runs of neighbours from first to last.

    Parameters
    ----------
    index : array of int
    n_samples : int
        How many there are.
    read : callable
        ``read(first, out)`` fills ``out`` with the samples from number ``first`` on.
    like : (item_shape, dtype)
    """
    index = np.asarray(index, dtype=np.int64)
    if index.size and not -n_samples <= index.min() <= index.max() < n_samples:
        raise IndexError(f"There are {n_samples} samples, asked for number {index.max()}.")
    wanted, places = np.unique(np.where(index < 0, index + n_samples, index), return_inverse=True)
    item_shape, dtype = like
    out = np.empty((len(wanted), *item_shape), dtype=dtype)
    edges = [*np.flatnonzero(np.diff(wanted, prepend=-2) != 1).tolist(), len(wanted)]
    for start, end in pairwise(edges):
        read(int(wanted[start]), out[start:end])
    in_order = len(wanted) == len(index) and bool((places == np.arange(len(places))).all())
    return out if in_order else out[places]


class Spool:
    """Takes in blocks of samples and becomes a source.

    Parameters
    ----------
    item_shape : tuple of int
    dtype : numpy dtype
    """

    def __init__(self, item_shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self._item_shape = item_shape
        self._dtype = np.dtype(dtype)
        self._blocks: list[NDArray[Any]] = []
        self._n_bytes = 0
        self._n_samples = 0
        self._file: HiddenFile | None = None

    def add(self, block: NDArray[Any]) -> None:
        """Take in some samples, (m, *item_shape)."""
        block = np.ascontiguousarray(block, dtype=self._dtype)
        self._n_samples += len(block)
        self._n_bytes += block.nbytes
        self._blocks.append(block)
        if self._file is not None or self._n_bytes > MEMORY_BYTES:
            self._write_out()

    def finish(self) -> Source:
        """All samples that came, as a source."""
        if self._file is not None:
            return SpooledSource(self._file, self._n_samples, self._item_shape, self._dtype)
        values = np.empty((self._n_samples, *self._item_shape), dtype=self._dtype)
        first = 0
        self._blocks.reverse()
        while self._blocks:  # a block is let go as soon as it is copied: never is there twice as much
            block = self._blocks.pop()
            values[first : first + len(block)] = block
            first += len(block)
        return ArraySource(values)

    def _write_out(self) -> None:
        try:
            self._file = self._file or HiddenFile()
            self._blocks.reverse()
            while self._blocks:
                self._file.append(self._blocks.pop())
        except OSError as error:
            raise _no_room(error, self._n_bytes) from error


def spooled(blocks: Iterable[NDArray[Any]], item_shape: tuple[int, ...], dtype: DTypeLike) -> Source:
    """Blocks of samples as a source."""
    spool = Spool(item_shape, dtype)
    for block in blocks:
        spool.add(block)
    return spool.finish()


def blocks_of(read: Callable[[int], bytes], n_samples: int, item_shape: tuple[int, ...], dtype: DTypeLike) -> Iterator[Any]:
    """Cut bytes into blocks of samples as they are read; raises EOFError if it ends too soon."""
    kind = np.dtype(dtype)
    item_bytes = math.prod(item_shape) * kind.itemsize
    rows = max(1, BLOCK_BYTES // max(1, item_bytes))
    for first in range(0, n_samples, rows):
        n = min(rows, n_samples - first)
        parts, missing = [], n * item_bytes
        while missing:
            part = read(missing)
            if not part:
                raise EOFError(f"{missing} bytes are missing")
            parts.append(part)
            missing -= len(part)
        yield np.frombuffer(b"".join(parts), dtype=kind).reshape(n, *item_shape)


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
