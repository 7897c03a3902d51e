"""NumPy's files: an array in .npy, several in .npz, and sparse matrices in .npz."""

from __future__ import annotations

import math
import re
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy import sparse

from diva.data.formats.messages import did_you_mean
from diva.data.formats.objects import SparseSource
from diva.data.formats.spool import MEMORY_BYTES, spooled_bytes
from diva.data.sources import ArraySource, LoadedData, Source
from diva.exceptions import DataError, NoSamplesError

SAMPLE_NAMES = ("X", "x", "data", "images", "arr_0")
LABEL_NAMES = ("y", "Y", "labels", "label", "target", "targets")
DAMAGED = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError)


def open_npy(path: Path) -> LoadedData:
    """Samples in an array, mapped from the file."""
    return LoadedData(ArraySource(read_npy(path)))


def read_npy(path: Path) -> NDArray[Any]:
    """An array that holds samples, mapped from the file; raises DataError if there is none."""
    check_not_empty(path)
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
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


def check_not_empty(path: Path) -> None:
    """Raise DataError if there is nothing in a file."""
    if path.stat().st_size == 0:
        raise DataError(f"Expected data in {path}, but the file is empty.")


# --- .npz


def open_npz(path: Path, key: str | None = None) -> LoadedData:
    """One of several arrays, with the labels beside it; or a sparse matrix."""
    check_not_empty(path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            if ({"data", "indices", "indptr", "shape"} <= set(names) and key is None) or {"format", "row", "col"} <= set(names):
                source: Source = SparseSource(_sparse(path, names))
                return LoadedData(source, _labels(path, names, None, len(source)))
            heads = {}
            for name in names:
                with archive.open(f"{name}.npy") as file:
                    heads[name] = _read_head(file)
            chosen = _choose(path, heads, key)
            source = _member(archive, path, chosen)
    except DataError:
        raise
    except DAMAGED as error:
        raise DataError(f"Expected arrays in {path}, but it is damaged or of another kind. Copy or save it anew.") from error
    return LoadedData(source, _labels(path, names, chosen, len(source), is_chosen=key is not None))


def _read_head(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and dtype of an array, without its numbers."""
    read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
    return read(file)


def _choose(path: Path, heads: dict[str, Any], key: str | None) -> str:
    listed = ", ".join(f"{name!r} of shape {head[0]}" for name, head in heads.items()) or "none"
    if key is not None:
        if key not in heads:
            raise DataError(f"Expected an array {key!r} in {path}, got {listed}.{did_you_mean(key, list(heads))}")
        return key
    for name in SAMPLE_NAMES:
        if name in heads:
            return name
    numeric = [
        name
        for name, (shape, _, dtype) in heads.items()
        if dtype.kind in "fuib" and 2 <= len(shape) <= 4 and name not in LABEL_NAMES
    ]
    if len(numeric) != 1:
        raise DataError(
            f"Expected an array called X, or a single one of numbers, in {path}, got {listed}. Name one with --key."
        )
    return numeric[0]


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> Source:
    with archive.open(f"{name}.npy") as file:
        shape, fortran_order, dtype = _read_head(file)
        check_array(shape, dtype, f"{name!r} of {path}")
        if fortran_order or math.prod(shape) * dtype.itemsize <= MEMORY_BYTES:
            with np.load(path, allow_pickle=False) as arrays:
                return ArraySource(arrays[name])
        return spooled_bytes(file.read, shape, dtype)


def _sparse(path: Path, names: Sequence[str]) -> Any:
    """What scipy.sparse.save_npz wrote, or the parts of a matrix by rows."""
    if "format" in names:
        return sparse.load_npz(path).tocsr()
    with np.load(path, allow_pickle=False) as parts:
        data, indices, indptr, shape = (parts[name] for name in ("data", "indices", "indptr", "shape"))
    if indices.dtype.kind not in "ui" or indptr.dtype.kind not in "ui":
        raise DataError(f"Expected whole numbers as indices and indptr in {path}, got {indices.dtype} and {indptr.dtype}.")
    index_dtype = np.int64 if max(int(indptr[-1]), *map(int, shape)) > np.iinfo(np.int32).max else np.int32
    rows = sparse.csr_array((data, indices.astype(index_dtype), indptr.astype(index_dtype)), shape=tuple(map(int, shape)))
    rows.check_format(full_check=True)
    return rows


def _labels(path: Path, names: Sequence[str], chosen: str | None, n: int, is_chosen: bool = False) -> NDArray[Any] | None:
    """Labels beside the samples; ``x_train`` goes with ``y_train``."""
    twin = [] if chosen is None else [re.sub("^[xX]", "y", chosen), chosen.replace("images", "labels")]
    for name in (*twin, *LABEL_NAMES):
        if name == chosen or name not in names:
            continue
        try:
            with np.load(path, allow_pickle=False) as arrays:
                labels: NDArray[Any] = arrays[name].reshape(-1)
        except DAMAGED as error:
            if "allow_pickle" in str(error):
                raise _of_objects(f"{name!r} of {path}") from error
            raise DataError(f"The labels {name!r} in {path} are damaged. Copy or save it anew.") from error
        if len(labels) == n:
            return labels
        if not is_chosen:
            raise DataError(f"Expected a label for each of the {n} samples in {path}, got {len(labels)} in {name!r}.")
    return None
