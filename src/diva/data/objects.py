"""Objects of other libraries as sources: sparse matrices, frames, Hugging Face datasets, AnnData.

None of these libraries is imported here, but for scipy: objects are known by where their class comes from.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from diva.data.images import ImageSource, Pictures
from diva.data.samples import ArraySource, Source
from diva.data.spool import take_by_runs
from diva.data.tables import arrow_source, common_dtype
from diva.exceptions import DataError

NUMERIC = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64")
LABEL_COLUMNS = ("label", "labels", "target", "y")


class SparseSource:
    """Rows of a sparse matrix, made dense when they are asked for.

    Parameters
    ----------
    rows : scipy sparse matrix or array of shape (n, d)
    """

    def __init__(self, rows: Any) -> None:
        if rows.ndim != 2:
            raise DataError(f"Expected a sparse matrix of shape (n_samples, n_features), got shape {rows.shape}.")
        if rows.dtype.kind not in "fuib":
            raise DataError(f"Expected a sparse matrix of numbers, got one of dtype {rows.dtype}.")
        self._rows = sparse.csr_array(rows)
        self._dtype = common_dtype([rows.dtype])

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    @property
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return (int(self._rows.shape[1]),)

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        values: NDArray[Any] = self._rows[np.asarray(index, dtype=np.int64)].toarray().astype(self._dtype, copy=False)
        return values


class SlicedSource:
    """Rows of something that stays in its file and is read by slices, as h5py does it, dense or sparse."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._dtype = common_dtype([np.dtype(rows.dtype)])

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    @property
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return tuple(self._rows.shape[1:])

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        return take_by_runs(index, len(self), self._read, (self.item_shape, self._dtype))

    def _read(self, first: int, out: NDArray[Any]) -> None:
        part = self._rows[first : first + len(out)]
        out[...] = part.toarray() if sparse.issparse(part) else part


def source_from_object(data: Any) -> Source | None:
    """A source if ``data`` is of a library that is known here, else None."""
    if sparse.issparse(data):
        return SparseSource(data)
    kind = type(data).__name__
    if _is_from(data, "datasets"):
        return _huggingface(data, kind)
    if _is_from(data, "anndata") and hasattr(data, "obs"):
        return _anndata(data)
    if _is_from(data, "pyarrow") and hasattr(data, "to_batches") and hasattr(data, "schema"):
        return arrow_source(data)
    if _is_from(data, "polars") and kind == "LazyFrame":
        raise DataError("Expected a frame with its rows, got a polars LazyFrame. Use its collect method.")
    return None


def _is_from(data: Any, library: str) -> bool:
    return any(base.__module__.split(".")[0] == library for base in type(data).__mro__)


# --- frames


def check_frame(data: Any) -> None:
    """Raise DataError if a pandas or polars frame has columns that are not numbers."""
    is_pandas = _is_from(data, "pandas")
    if not (is_pandas or _is_from(data, "polars")) or not hasattr(data, "columns"):
        return
    numeric = _is_pandas_number if is_pandas else _is_polars_number
    names = list(data.columns)
    wrong = [name for i, name in enumerate(names) if not numeric(data.iloc[:, i] if is_pandas else data[name])]
    if wrong:
        shown = ", ".join(repr(name) for name in wrong[:8]) + (f" and {len(wrong) - 8} more" if len(wrong) > 8 else "")
        raise DataError(
            f"Expected columns of numbers, got text, categories or dates in {shown}. Leave such columns out, or make numbers "
            "of them first."
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
    return ColumnSource(data, names)


def _pictures(data: Any, column: str) -> Source:
    undecoded = data.with_format(None).cast_column(column, type(data.features[column])(decode=False))

    def opened(number: int) -> Any:
        cell = undecoded[number][column]
        return io.BytesIO(cell["bytes"]) if cell["bytes"] is not None else cell["path"]

    return ImageSource(Pictures([f"image {i} of the dataset" for i in range(len(data))], opened))


@dataclass(frozen=True)
class _Layout:
    """How columns lie side by side."""

    item_shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _dtype_of(name: str, feature: Any) -> np.dtype[Any]:
    inner = feature
    while hasattr(inner, "feature") or isinstance(inner, list):
        inner = inner[0] if isinstance(inner, list) else inner.feature
    kind = str(getattr(inner, "dtype", type(inner).__name__))
    if kind not in NUMERIC:
        raise DataError(_no_numbers(name, kind))
    return np.dtype(kind)


def _no_numbers(name: str, kind: str) -> str:
    return (
        f"Expected numbers in column {name!r} of the dataset, got {kind}. Choose columns with its select_columns method, or "
        "leave some out with remove_columns."
    )


class ColumnSource:
    """Columns of numbers of a Hugging Face dataset: side by side, or one column of arrays.

    Parameters
    ----------
    data : datasets.Dataset
    names : sequence of str
        Of the columns.
    """

    def __init__(self, data: Any, names: Sequence[str]) -> None:
        dtype = common_dtype([_dtype_of(name, data.features[name]) for name in names])
        self._data = data.with_format("numpy", columns=list(names), dtype=dtype)  # it would round to float32 by itself
        self._names = list(names)
        cells = [self._column(name, 0, 1) for name in names]
        shape = cells[0].shape[1:] if len(cells) == 1 else (sum(int(np.prod(cell.shape[1:])) for cell in cells),)
        self._layout = _Layout(shape or (1,), dtype)

    def __len__(self) -> int:
        return len(self._data)

    @property
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return self._layout.item_shape

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        return take_by_runs(index, len(self), self._read, (self._layout.item_shape, self._layout.dtype))

    def _read(self, first: int, out: NDArray[Any]) -> None:
        n = len(out)
        cells = [self._column(name, first, n) for name in self._names]
        values = cells[0] if len(cells) == 1 else np.concatenate([cell.reshape(n, -1) for cell in cells], axis=1)
        out[...] = values.reshape(out.shape)

    def _column(self, name: str, first: int, n: int) -> NDArray[Any]:
        values = np.asarray(self._data[first : first + n][name])
        if values.dtype.kind == "O" and len({np.shape(value) for value in values}) > 1:
            raise DataError(
                f"Expected lists of one length in column {name!r}, got different ones in rows {first} to {first + n - 1}."
            )
        if values.dtype.kind == "O":
            values = np.stack([np.asarray(value) for value in values])
        if values.dtype.kind not in "fuib":
            raise DataError(_no_numbers(name, "missing values"))
        if hasattr(self, "_layout") and len(self._names) == 1 and values[0].size != int(np.prod(self._layout.item_shape)):
            raise DataError(f"Expected arrays of shape {self._layout.item_shape} in column {name!r}, got {values.shape[1:]}.")
        return values


# --- AnnData


class StoredRows:
    """Rows of a sparse matrix in an HDF5 group, by slices; only where the rows begin is kept in memory."""

    def __init__(self, group: Any, shape: tuple[int, int]) -> None:
        self._numbers, self._columns = group["data"], group["indices"]
        self._starts: NDArray[np.int64] = group["indptr"][:].astype(np.int64)
        self.shape = shape
        self.dtype = np.dtype(self._numbers.dtype)

    def __getitem__(self, rows: slice) -> Any:
        starts = self._starts[rows.start : rows.stop + 1]
        part = slice(starts[0], starts[-1])
        shape = (len(starts) - 1, self.shape[1])
        return sparse.csr_array((self._numbers[part], self._columns[part], starts - starts[0]), shape=shape)


def _anndata(data: Any) -> Source:
    try:
        values = data.X
    except Exception as error:  # versions of anndata and scipy that do not fit each other
        raise DataError(
            "X of the AnnData object cannot be read by the anndata that is installed. Read the file into memory, or pass X."
        ) from error
    if values is None:
        raise DataError(
            "Expected numbers in X of the AnnData object, got none. Copy a layer there: adata.X = adata.layers[...]."
        )
    if sparse.issparse(values):
        return SparseSource(values)
    if hasattr(values, "group") and hasattr(values, "to_memory"):  # sparse, and in its file
        by_rows = getattr(values, "format", "csr") == "csr" and not getattr(data, "is_view", False)
        return SlicedSource(StoredRows(values.group, values.shape)) if by_rows else SparseSource(values.to_memory())
    if getattr(data, "isbacked", False):
        return SlicedSource(values)
    return ArraySource(np.asarray(values))
