"""Whatever users pass, checked, as a source of samples."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from diva.data.batches import to_numpy
from diva.data.columns import ColumnOptions, TableSchema
from diva.data.datasets.load import load_dataset
from diva.data.datasets.registry import is_name
from diva.data.formats.objects import check_frame, is_documents, source_from_object
from diva.data.formats.paths import ReadOptions, open_path, open_with
from diva.data.sources import ArraySource, DatasetSource, Source, name_of
from diva.data.typed import as_table, read_typed

DTYPES = [np.float64, np.float32, np.uint8]  # others are converted to the first
HIGHEST = 1e30  # beyond, squares overflow in float32


def open_samples(estimator: Any, X: Any, *, reset: bool) -> Source:
    """Make X a source; sets or checks the estimator's ``n_features_in_`` as scikit-learn does.

    The numbers themselves are not looked at: whoever reads them next does so together with a ``FiniteCheck``. Raises TypeError
    or ValueError if X is nothing that samples can be taken from, DataError if a file cannot be read or columns are no numbers.
    """
    n_least = 2 if reset else 1
    source = _as_source(X, n_least)
    if source is None:
        X = _as_array(X)
        if getattr(X, "ndim", None) not in (3, 4):
            return _open_rows(estimator, X, n_least, reset)
        source = ArraySource(np.asarray(X))
    _check_source(source, n_least)
    if reset and not isinstance(source, DatasetSource):  # a Dataset has its channels first
        _check_channels_last((len(source), *source.item_shape))
    _set_features(estimator, math.prod(source.item_shape), reset)
    return source


def open_columns(X: Any, options: ColumnOptions | None = None, schema: TableSchema | None = None) -> Any:
    """Rows of a table as numbers, if X is a table, its path or a list of text; anything else as it is.

    Parameters
    ----------
    X : object
    options : ColumnOptions, optional
        For a first fit: what to use columns as.
    schema : TableSchema, optional
        That of a model.
    """
    if isinstance(X, str | os.PathLike) and (not isinstance(X, str) or not is_name(X)):
        asked = options or ColumnOptions()
        of_table = ReadOptions(asked.columns, missing=asked.missing, typed=True, schema=schema, is_shard=asked.is_shard)
        return open_with(X, of_table).source
    table = as_table(X)
    if table is None:
        is_encoded = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "fuib"
        return ArraySource(X) if is_encoded and schema is not None and X.shape[1] == schema.n_features else X
    if is_documents(X):
        options = ColumnOptions(text=table.schema.names, is_shard=options is not None and options.is_shard)
    return read_typed(table, options, schema).source


class FiniteCheck:
    """Raises ValueError when it is shown NaN, infinity or numbers whose squares would overflow."""

    def __init__(self, reader: str, name: str = "") -> None:
        self._reader = reader  # who does not accept them, for the message
        self._name = name or "Input X"  # what contains them
        self._n_samples = 0

    def __call__(self, part: NDArray[Any]) -> None:
        """Check the samples that come next, in order."""
        if part.dtype.kind == "f":
            flat = part.reshape(len(part), -1)
            with np.errstate(over="ignore", invalid="ignore"):
                reach = float(np.abs(flat).max(initial=0.0))  # NaN and infinity are not below any number
            if not reach <= HIGHEST:
                row, number = np.argwhere(~(np.abs(flat.astype(np.float64)) <= HIGHEST))[0]  # half precision ends before it
                value = flat[row, number]
                found = "NaN" if np.isnan(value) else "infinity" if np.isinf(value) else f"{value:g}, too large to square"
                raise ValueError(
                    f"{self._name} contains {found} (sample {self._n_samples + row}, number {number}). {self._reader} does not "
                    "accept missing, infinite or huge values: drop, impute or rescale them first."
                )
        self._n_samples += len(part)


def _as_source(X: Any, n_least: int) -> Source | None:
    """A source if X is one, holds one or names one; None if it may be an array."""
    if isinstance(X, Source):
        return X
    if isinstance(X, torch.utils.data.Dataset):
        return _dataset_source(X, n_least)
    if isinstance(X, torch.utils.data.DataLoader):
        raise TypeError("Expected samples, got a DataLoader. Pass its dataset: DIVA shuffles and batches by itself.")
    if isinstance(X, tuple) and len(X) == 2 and all(hasattr(part, "shape") for part in X):
        raise ValueError("Expected samples only, got a pair of arrays. Pass X alone: labels are not used.")
    if isinstance(X, str | os.PathLike):
        return (load_dataset(X) if isinstance(X, str) and is_name(X) else open_path(X)).source
    return source_from_object(X)


def _dataset_source(dataset: Any, n_least: int) -> Source:
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise TypeError(f"Expected a Dataset with a length and items by number, got an iterable {type(dataset).__name__}.")
    if len(dataset) < n_least:
        raise ValueError(f"Found {len(dataset)} items while a minimum of {n_least} is required.")
    source = DatasetSource(dataset)
    if source.take(np.arange(1)).dtype.kind not in "fuib":
        raise ValueError("Expected a Dataset whose items are numbers, or tuples that begin with them.")
    return source


def _as_array(X: Any) -> Any:
    """Tensors and lists of images as arrays; anything else as it is, for scikit-learn to judge."""
    check_frame(X)
    if isinstance(X, torch.Tensor):
        return to_numpy(X)
    if isinstance(X, list) and X and getattr(X[0], "ndim", 0) in (2, 3):
        return _stacked(X)
    if isinstance(X, list) and X and isinstance(X[0], list) and X[0] and isinstance(X[0][0], list):
        try:
            return np.array(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                "Expected images of one size made of numbers, got lists of different lengths or of text."
            ) from error
    return X


def _stacked(images: list[Any]) -> NDArray[Any]:
    shapes = {tuple(np.shape(image)) for image in images}
    if len(shapes) > 1:
        raise ValueError(f"Expected images of one size, got {', '.join(map(str, sorted(shapes)[:3]))} ... Crop or resize them.")
    return np.stack([to_numpy(image) if isinstance(image, torch.Tensor) else np.asarray(image) for image in images])


def _open_rows(estimator: Any, X: Any, n_least: int, reset: bool) -> Source:
    if isinstance(X, np.memmap) and X.ndim == 2 and X.dtype.kind in "fui" and len(X) > 1:
        validate_data(estimator, np.array(X[:1]), reset=reset, ensure_all_finite=False)
    else:
        X = validate_data(estimator, X, reset=reset, dtype=DTYPES, ensure_all_finite=False, ensure_min_samples=n_least)
    return ArraySource(X)


def _check_source(source: Source, n_least: int) -> None:
    shape = (len(source), *source.item_shape)
    if isinstance(source, ArraySource) and len(shape) in (3, 4):
        if source.values.dtype.kind not in "fuib":
            raise ValueError(f"Expected images of numbers, got an array of dtype {source.values.dtype}.")
        if 0 in shape or len(source) < n_least:
            raise ValueError(f"Found array with shape {shape} while a minimum of {n_least} images is required.")
    if len(source) < n_least:
        where = f" in {name_of(source)}" if name_of(source) else ""
        raise ValueError(f"Found {len(source)} samples{where} while a minimum of {n_least} is required.")


def _check_channels_last(shape: tuple[int, ...]) -> None:
    if len(shape) == 4 and shape[3] > 4 and shape[1] <= 4:
        raise ValueError(
            f"Expected images of shape (n, height, width, channels), got {shape}, which looks like channels first. "
            "Use X.transpose(0, 2, 3, 1)."
        )


def _set_features(estimator: Any, n_features: int, reset: bool) -> None:
    if reset:
        estimator.n_features_in_ = n_features
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    elif n_features != estimator.n_features_in_:
        name = type(estimator).__name__
        raise ValueError(f"X has {n_features} features, but {name} is expecting {estimator.n_features_in_} features as input.")
