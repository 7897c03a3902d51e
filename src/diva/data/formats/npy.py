"""NumPy's files: an array in .npy, several in .npz, and sparse matrices in .npz."""

from __future__ import annotations

import io
import lzma
import math
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy import sparse

from diva.data.formats.files import check_file, check_unpacked
from diva.data.formats.messages import did_you_mean
from diva.data.formats.objects import SparseSource
from diva.data.formats.spool import MEMORY_BYTES, spooled_bytes, spooled_columns
from diva.data.sources import ArraySource, LoadedData, Source
from diva.exceptions import DataError, NoSamplesError

SAMPLE_NAMES = ("X", "x", "data", "images", "arr_0")
LABEL_NAMES = ("y", "Y", "labels", "label", "target", "targets")
SPARSE_NAMES = ({"data", "shape", "format"}, {"data", "shape", "indices", "indptr"})
READ_BYTES = 1 << 20
HEAD_BYTES = 1 << 14  # the description of an array is shorter
INDEX_PARTS: dict[str, tuple[str, ...]] = {  # of a sparse matrix, by its format
    **dict.fromkeys(("csr", "csc", "bsr"), ("indices", "indptr")),
    "coo": ("row", "col"),
    "dia": ("offsets",),
}
DAMAGED = (  # what numpy, scipy and zipfile raise when a file is not what it should be
    *(OSError, EOFError, ValueError, TypeError, LookupError, OverflowError, RuntimeError, SyntaxError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError),
)


def open_npy(path: Path) -> LoadedData:
    """Samples in an array, mapped from the file."""
    return LoadedData(ArraySource(read_npy(path), str(path)))


def read_npy(path: Path) -> NDArray[Any]:
    """An array that holds samples, mapped from the file; raises DataError if there is none."""
    check_file(path)
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except PermissionError:
        raise
    except DAMAGED as error:
        if "allow_pickle" in str(error) or "Python objects" in str(error):
            raise _of_objects(str(path)) from error
        raise DataError(f"Expected an array in {path}, but it is damaged or of another kind. Copy or save it anew.") from error
    if not isinstance(values, np.ndarray):
        raise DataError(f"Expected one array in {path}, got several. Give the file a name that ends with .npz.")
    check_array(values.shape, values.dtype, str(path))
    return values


def check_array(shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> None:
    """Raise DataError unless an array holds samples made of numbers."""
    if dtype.kind == "O":
        raise _of_objects(name)
    if dtype.kind not in "fuib":
        raise DataError(f"Expected an array of numbers in {name}, got one of dtype {dtype}.")
    if not 2 <= len(shape) <= 4:
        raise DataError(f"Expected samples along the first of 2, 3 or 4 axes in {name}, got an array of shape {shape}.")
    if 0 in shape:
        raise NoSamplesError(f"Expected samples in {name}, got an empty array of shape {shape}.")


def _of_objects(name: str) -> DataError:
    return DataError(
        f"Expected an array of numbers in {name}, got one of Python objects, which are not read because they can hold "
        "programs. Save it as numbers, for example with numpy.save(name, array.astype(float))."
    )


# --- .npz


@dataclass(frozen=True)
class Head:
    """What an array in an archive says of itself, before its numbers."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    offset: int  # where the numbers begin

    @property
    def n_bytes(self) -> int:
        """Of all numbers."""
        return math.prod(self.shape) * self.dtype.itemsize


class Archive:
    """The arrays of an .npz file, none of which is unpacked before its size was looked at."""

    def __init__(self, path: Path, file: zipfile.ZipFile) -> None:
        self.path = path
        self._file = file
        self._members = {info.filename.removesuffix(".npy"): info for info in file.infolist() if info.filename.endswith(".npy")}
        self._heads = {name: self._read_head(name) for name in self._members}
        self._n_unpacked = 0

    @property
    def heads(self) -> dict[str, Head]:
        """By the names of the arrays."""
        return self._heads

    def _read_head(self, name: str) -> Head:
        with self._file.open(self._members[name]) as file:
            start = io.BytesIO(file.read(HEAD_BYTES))
        read = npy.read_array_header_1_0 if npy.read_magic(start) == (1, 0) else npy.read_array_header_2_0
        return Head(*read(start), start.tell())

    @contextmanager
    def numbers_of(self, name: str) -> Iterator[Callable[[int], bytes]]:
        """A function that reads the next bytes of the numbers of an array, which are as many as it says."""
        head, member = self._heads[name], self._members[name]
        if head.dtype.hasobject:
            raise _of_objects(f"{name!r} of {self.path}")
        if min(head.shape, default=0) < 0 or head.n_bytes != member.file_size - head.offset:
            raise ValueError(f"{name} is said to have shape {head.shape}, and has {member.file_size - head.offset} bytes")
        self._n_unpacked += member.file_size
        check_unpacked(self.path, self._n_unpacked)
        with self._file.open(member) as file:
            file.read(head.offset)
            yield file.read

    def read(self, name: str) -> NDArray[Any]:
        """An array as a whole."""
        head, done = self._heads[name], 0
        with self.numbers_of(name) as read:
            content = np.empty(head.n_bytes, np.uint8)
            while done < len(content) and (piece := read(READ_BYTES)):
                content[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
                done += len(piece)
        if done < len(content):
            raise EOFError(f"{name} is cut short")
        values = np.ndarray(head.shape, head.dtype, content.data, order="F" if head.fortran_order else "C")
        return values.astype(head.dtype.newbyteorder("="), copy=False)


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Arrays of an .npz file; raises DataError, here or when one is read, if it is damaged."""
    check_file(path)
    try:
        with zipfile.ZipFile(path) as file:
            yield Archive(path, file)
    except (DataError, PermissionError):
        raise
    except DAMAGED as error:
        raise DataError(f"Expected arrays in {path}, but it is damaged or of another kind. Copy or save it anew.") from error


def open_npz(path: Path, key: str | None = None) -> LoadedData:
    """One of several arrays, with the labels beside it; or a sparse matrix."""
    with open_archive(path) as archive:
        is_sparse = any(names <= set(archive.heads) for names in SPARSE_NAMES)
        if is_sparse and key is None:
            source: Source = SparseSource(read_sparse_rows(archive), str(path))
            return LoadedData(source, _labels(archive, None, len(source)))
        chosen = _choose(path, archive.heads, key)
        source = _member(archive, chosen)
        return LoadedData(source, _labels(archive, chosen, len(source), is_chosen=key is not None))


def _choose(path: Path, heads: dict[str, Head], key: str | None) -> str:
    listed = ", ".join(f"{name!r} of shape {head.shape}" for name, head in heads.items()) or "none"
    if key is not None:
        if key not in heads:
            raise DataError(f"Expected an array {key!r} in {path}, got {listed}.{did_you_mean(key, list(heads))}")
        return key
    for name in SAMPLE_NAMES:
        if name in heads:
            return name
    numeric = [
        name
        for name, head in heads.items()
        if head.dtype.kind in "fuib" and 2 <= len(head.shape) <= 4 and name not in LABEL_NAMES
    ]
    if len(numeric) != 1:
        raise DataError(
            f"Expected an array called X, or a single one of numbers, in {path}, got {listed}. Name one with --key."
        )
    return numeric[0]


def _member(archive: Archive, name: str) -> Source:
    head = archive.heads[name]
    check_array(head.shape, head.dtype, f"{name!r} of {archive.path}")
    if head.n_bytes <= MEMORY_BYTES:
        return ArraySource(archive.read(name), str(archive.path))
    with archive.numbers_of(name) as read:
        spool = spooled_columns if head.fortran_order else spooled_bytes
        return spool(read, head.shape, head.dtype, str(archive.path))


def read_sparse_rows(archive: Archive) -> Any:
    """What scipy.sparse.save_npz wrote, or the parts of a matrix by rows; every index is looked at, as scipy does not."""
    kind = str(archive.read("format").astype("U").item()) if "format" in archive.heads else "csr"
    if kind not in INDEX_PARTS:
        raise DataError(f"Expected a sparse matrix in one of {', '.join(INDEX_PARTS)} in {archive.path}, got {kind[:20]!r}.")
    if archive.heads["data"].dtype.kind not in "fuib":
        raise DataError(f"Expected numbers in the sparse matrix in {archive.path}, got {archive.heads['data'].dtype}.")
    data, given = archive.read("data"), archive.read("shape").reshape(-1)
    indices = [archive.read(name) for name in INDEX_PARTS[kind]]
    for name, values in zip(("shape", *INDEX_PARTS[kind]), (given, *indices), strict=True):
        if values.dtype.kind not in "ui":
            raise DataError(f"Expected whole numbers as {name!r} in {archive.path}, got {values.dtype}.")
    shape = tuple(map(int, given))
    if len(shape) != 2 or min(shape) < 1:
        raise NoSamplesError(f"Expected the shape of a matrix with rows and columns in {archive.path}, got {shape}.")
    # rows and columns that hold nothing cost nothing in the file, but a place each in memory
    check_unpacked(archive.path, data.nbytes + 8 * sum(shape))
    largest = max(data.size, *shape)
    index_dtype = np.int64 if largest > np.iinfo(np.int32).max else np.int32
    if any(part.size and not -largest <= part.min() <= part.max() <= largest for part in indices):
        raise ValueError("an index is out of range")
    indices = [part.astype(index_dtype) for part in indices]
    if kind == "coo":
        return sparse.coo_array((data, tuple(indices)), shape=shape).tocsr()
    if kind == "dia":
        return sparse.dia_array((data, indices[0]), shape=shape).tocoo().tocsr()
    rows = getattr(sparse, f"{kind}_array")((data, *indices), shape=shape)
    rows.check_format(full_check=True)
    return rows.tocsr()


def _labels(archive: Archive, chosen: str | None, n: int, is_chosen: bool = False) -> NDArray[Any] | None:
    """Labels beside the samples; ``x_train`` goes with ``y_train``."""
    twin = [] if chosen is None else [re.sub("^[xX]", "y", chosen), chosen.replace("images", "labels")]
    for name in (*twin, *LABEL_NAMES):
        if name == chosen or name not in archive.heads:
            continue
        head = archive.heads[name]
        if math.prod(head.shape) == n:
            return archive.read(name).reshape(-1)
        if not is_chosen:
            raise DataError(
                f"Expected a label for each of the {n} samples in {archive.path}, got {math.prod(head.shape)} in {name!r}."
            )
    return None
