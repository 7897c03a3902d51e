"""Rows of sparse matrices, in memory or in an HDF5 file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from diva.data.formats.spool import take_by_runs
from diva.data.formats.tables import common_dtype
from diva.exceptions import DataError


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


class StoredSparseSource:
    """Rows of a sparse matrix in an HDF5 group; only where they begin is kept in memory.

    Parameters
    ----------
    group : h5py.Group
        With ``data``, ``indices`` and ``indptr``, by rows.
    shape : (n, d)
    """

    def __init__(self, group: Any, shape: tuple[int, int]) -> None:
        self._numbers, self._columns = group["data"], group["indices"]
        self._starts: NDArray[np.int64] = group["indptr"][:].astype(np.int64)
        self._shape = shape
        self._dtype = common_dtype([np.dtype(self._numbers.dtype)])

    def __len__(self) -> int:
        return int(self._shape[0])

    @property
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return (int(self._shape[1]),)

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        return take_by_runs(index, len(self), self._read, (self.item_shape, self._dtype))

    def _read(self, first: int, out: NDArray[Any]) -> None:
        starts = self._starts[first : first + len(out) + 1]
        part = slice(starts[0], starts[-1])
        out[...] = sparse.csr_array((self._numbers[part], self._columns[part], starts - starts[0]), shape=out.shape).toarray()
