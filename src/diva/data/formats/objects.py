"""Objects of other libraries as sources: sparse matrices, frames, Hugging Face datasets, AnnData.

None of these libraries is imported here, but for scipy: objects are known by where their class comes from.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from diva.data.formats.images import ImageSource, Pictures
from diva.data.formats.messages import listed
from diva.data.formats.spool import BLOCK_BYTES, MEMORY_BYTES, StoredSource, spooled
from diva.data.formats.tables import arrow_source, common_dtype
from diva.data.sources import ArraySource, Source
from diva.exceptions import DataError

NUMERIC = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64")
LABEL_COLUMNS = ("label", "labels", "target", "y")


def source_from_object(data: Any) -> Source | None:
    """A source if ``data`` is of a library that is known here, else None."""
    if sparse.issparse(data):
        return SparseSource(data)
    kind = type(data).__name__
    if is_from(data, "datasets"):
        return _huggingface(data, kind)
    if is_from(data, "anndata") and hasattr(data, "obs"):
        return _anndata(data)
    if is_from(data, "pyarrow") and hasattr(data, "to_batches") and hasattr(data, "schema"):
        return arrow_source(data)
    if is_from(data, "polars") and kind == "LazyFrame":
        raise DataError("Expected a frame with its rows, got a polars LazyFrame. Use its collect method.")
    return None


def is_from(data: Any, library: str) -> bool:
    """Whether an object's class, or one that it extends, is of a library."""
    return any(base.__module__.split(".")[0] == library for base in type(data).__mro__)


# --- sparse matrices


class SparseSource:
    """Rows of a sparse matrix or array of scipy, made dense when they are asked for."""

    def __init__(self, rows: Any, name: str = "") -> None:
        if rows.ndim != 2:
            raise DataError(f"Expected a sparse matrix of shape (n_samples, n_features), got shape {rows.shape}.")
        if rows.dtype.kind not in "fuib":
            raise DataError(f"Expected a sparse matrix of numbers, got one of dtype {rows.dtype}.")
        self._rows = sparse.csr_array(rows)
        self._dtype = common_dtype([rows.dtype])
        self.item_shape = (int(rows.shape[1]),)
        self.name = name  # of the file, for messages

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        values: NDArray[Any] = self._rows[np.asarray(index, dtype=np.int64)].toarray().astype(self._dtype, copy=False)
        return values


class StoredSparseSource(StoredSource):
    """Rows of a sparse matrix (n, d) in a group of HDF5 with ``data``, ``indices`` and ``indptr``; only the last in memory."""

    def __init__(self, group: Any, shape: tuple[int, int]) -> None:
        self._numbers, self._columns = group["data"], group["indices"]
        self._starts: NDArray[np.int64] = group["indptr"][:].astype(np.int64)
        super().__init__(int(shape[0]), (int(shape[1]),), common_dtype([np.dtype(self._numbers.dtype)]))

    def read_run(self, first: int, out: NDArray[Any]) -> None:  # noqa: D102
        starts = self._starts[first : first + len(out) + 1]
        part = slice(starts[0], starts[-1])
        out[...] = sparse.csr_array((self._numbers[part], self._columns[part], starts - starts[0]), shape=out.shape).toarray()


# --- frames


def is_documents(data: Any) -> bool:
    """Whether data are a list of text."""
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(each, str) for each in data)


def check_frame(data: Any) -> None:
    """Raise DataError if a pandas or polars frame has columns that are not numbers, or data are a list of text."""
    if is_documents(data):
        raise DataError(
            "Expected numbers, got a list of text. Make numbers of it first, or set columns='auto' to have it done."
        )
    is_pandas = is_from(data, "pandas")
    if not (is_pandas or is_from(data, "polars")) or not hasattr(data, "columns"):
        return
    numeric = _is_pandas_number if is_pandas else _is_polars_number
    wrong = [name for i, name in enumerate(data.columns) if not numeric(data.iloc[:, i] if is_pandas else data[name])]
    if wrong:
        raise DataError(
            f"Expected columns of numbers, got text, categories or dates in {listed(wrong)}. Leave such columns out, make "
            "numbers of them first, or set columns='auto' to have it done."
        )


def _is_pandas_number(column: Any) -> bool:
    kind = getattr(column.dtype, "kind", "O")
    if str(column.dtype) == "category":
        return False
    if kind == "O":
        if str(column.dtype) != "object":
            return False
        try:
            np.asarray(column, dtype=np.float64)
        except (TypeError, ValueError):
            return False
    return kind in "fuibcO"  # complex numbers have a message of their own


def _is_polars_number(column: Any) -> bool:
    return bool(column.dtype.is_numeric() or str(column.dtype) == "Boolean")


# --- Hugging Face


def _huggingface(data: Any, kind: str) -> Source:
    if kind.endswith("Dict"):
        raise DataError(f"Expected one split, got {', '.join(map(repr, data.keys()))}. Choose one, for example data['train'].")
    if not hasattr(data, "__len__"):
        raise DataError(f"Expected a dataset whose length is known, got a {kind}. Load it without streaming=True.")
    if not len(data):
        raise DataError("Expected a dataset with samples, got none.")
    features = dict(data.features)
    images = [name for name, feature in features.items() if type(feature).__name__ == "Image"]
    if images:
        return _pictures(data, images[0])
    names = [
        name
        for name, feature in features.items()
        if type(feature).__name__ != "ClassLabel" and name not in LABEL_COLUMNS and not name.startswith("__index_level")
    ]
    if not names:
        raise DataError(f"Expected columns of images or numbers, got {', '.join(map(repr, features))}.")
    return _columns(data, names)


def _pictures(data: Any, column: str) -> Source:
    undecoded = data.with_format(None).cast_column(column, type(data.features[column])(decode=False))

    def opened(number: int) -> Any:
        cell = undecoded[number][column]
        return io.BytesIO(cell["bytes"]) if cell["bytes"] is not None else cell["path"]

    return ImageSource(Pictures([f"image {i} of the dataset" for i in range(len(data))], opened))


def _dtype_of(name: str, feature: Any) -> np.dtype[Any]:
    inner = feature
    while hasattr(inner, "feature") or isinstance(inner, list):
        inner = inner[0] if isinstance(inner, list) else inner.feature
    kind = str(getattr(inner, "dtype", type(inner).__name__))
    if kind not in NUMERIC:
        raise _no_numbers(name, kind)
    return np.dtype(kind)


def _no_numbers(name: str, kind: str) -> DataError:
    return DataError(
        f"Expected numbers in column {name!r} of the dataset, got {kind}. Choose columns with its select_columns method, or "
        "leave some out with remove_columns."
    )


def _columns(data: Any, names: list[str]) -> Source:
    """Columns of numbers side by side, or one column of arrays."""
    dtype = common_dtype([_dtype_of(name, data.features[name]) for name in names])
    data = data.with_format("numpy", columns=names, dtype=dtype)  # it would round to float32 by itself
    shapes = [_cells(data, name, 0, 1).shape[1:] for name in names]
    item_shape = shapes[0] if len(names) == 1 and shapes[0] else (sum(math.prod(shape) for shape in shapes),)
    rows = max(1, BLOCK_BYTES // (dtype.itemsize * math.prod(item_shape)))

    def blocks() -> Iterator[NDArray[Any]]:
        for first in range(0, len(data), rows):
            cells = [_cells(data, name, first, rows) for name in names]
            for name, cell, shape in zip(names, cells, shapes, strict=True):
                if cell.shape[1:] != shape:
                    raise _ragged(name)
            yield np.concatenate([cell.reshape(len(cell), -1) for cell in cells], axis=1).reshape(-1, *item_shape)

    return spooled(blocks(), item_shape, dtype)


def _cells(data: Any, name: str, first: int, n: int) -> NDArray[Any]:
    """Some rows of a column."""
    values = np.asarray(data[first : first + n][name])
    if values.dtype.kind == "O":
        shapes = {np.shape(value) for value in values}
        if any(value is None for value in values):
            raise _no_numbers(name, "missing values")
        if len(shapes) > 1:
            raise _ragged(name)
        values = np.stack([np.asarray(value) for value in values])
    if values.dtype.kind not in "fuib":
        raise _no_numbers(name, "something else")
    return values


def _ragged(name: str) -> DataError:
    return DataError(
        f"Expected lists of one length in column {name!r} of the dataset, got different ones. Cut or fill them to one length."
    )


# --- AnnData


def _anndata(data: Any) -> Source:
    try:
        values = data.X
    except Exception as error:  # versions of anndata and scipy that do not fit each other
        raise DataError(
            "X of the AnnData object cannot be read by the anndata that is installed. Read it into memory first, or pass X."
        ) from error
    if values is None:
        raise DataError(
            "Expected numbers in X of the AnnData object, got none. Copy a layer there: adata.X = adata.layers[...]."
        )
    if sparse.issparse(values):
        return SparseSource(values)
    if hasattr(values, "group") and hasattr(values, "to_memory"):  # sparse, and in its file
        is_small = sum(values.group[part].nbytes for part in ("data", "indices")) <= MEMORY_BYTES
        by_rows = getattr(values, "format", "csr") == "csr"
        return StoredSparseSource(values.group, values.shape) if by_rows and not is_small else SparseSource(values.to_memory())
    if isinstance(values, np.ndarray):
        return ArraySource(np.asarray(values))
    rows = max(1, BLOCK_BYTES // (values.dtype.itemsize * max(1, values.shape[1])))  # dense, and in its file
    return spooled((values[i : i + rows] for i in range(0, len(values), rows)), values.shape[1:], values.dtype)
