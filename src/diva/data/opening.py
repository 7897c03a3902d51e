"""Whatever users pass, as a source of samples; and the scaling that fits it."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from diva.data.batches import to_numpy
from diva.data.catalog import is_name, load_dataset
from diva.data.files import open_path
from diva.data.objects import check_frame, source_from_object
from diva.data.samples import ArraySource, DatasetSource, Scaling, Source, measure_moments, measure_range, parts_of

HIGHEST = 1e30  # beyond, squares overflow in float32
MEANT = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))
MANY = 8  # images that are not all as good as black
NEARLY = 1e-3  # by how much a range may be exceeded and still be that range


def open_samples(estimator: Any, X: Any, *, reset: bool) -> Source:
    """Check X and make it a source; sets or checks the estimator's ``n_features_in_`` as scikit-learn does.

    Raises
    ------
    TypeError, ValueError
        If X is nothing that samples can be taken from, or holds numbers that are not finite. A ``DataError`` if a file
        cannot be read, or columns are no numbers.
    """
    if isinstance(X, Source):
        return _open_source(estimator, X, reset)
    if isinstance(X, torch.utils.data.Dataset):
        return _open_dataset(estimator, X, reset)
    if isinstance(X, tuple) and len(X) == 2 and all(hasattr(part, "shape") for part in X):
        raise ValueError("Expected samples only, got a pair of arrays. Pass X alone: labels are not used.")
    if isinstance(X, str | os.PathLike):
        return _open_named(estimator, X, reset)
    if isinstance(X, torch.utils.data.DataLoader):
        raise TypeError("Expected samples, got a DataLoader. Pass its dataset: DIVA shuffles and batches by itself.")
    found = source_from_object(X)
    if found is not None:
        return _open_found(estimator, found, reset)
    check_frame(X)
    if isinstance(X, torch.Tensor):
        X = to_numpy(X)
    if isinstance(X, list) and X and getattr(X[0], "ndim", 0) in (2, 3):
        X = _stacked(X)
    elif isinstance(X, list) and X and isinstance(X[0], list) and X[0] and isinstance(X[0][0], list):
        X = _numbers(X)
    if getattr(X, "ndim", None) in (3, 4):
        return _open_images(estimator, np.asarray(X) if not isinstance(X, np.ndarray) else X, reset)
    if isinstance(X, np.memmap) and X.ndim == 2 and X.dtype.kind in "fui" and len(X) > 1:
        validate_data(estimator, np.array(X[:1]), reset=reset, ensure_all_finite=False)
    else:
        X = validate_data(
            estimator, X, reset=reset, dtype=[np.float64, np.float32, np.uint8], ensure_min_samples=1 if not reset else 2
        )
    source = ArraySource(X)
    _check_finite(estimator, source)
    return source


def _open_named(estimator: Any, name: str | os.PathLike[str], reset: bool) -> Source:
    """A path, or the name of a data set that is known."""
    if isinstance(name, str) and is_name(name):
        return _open_found(estimator, load_dataset(name).source, reset)
    return _open_found(estimator, open_path(name).source, reset)


def _open_found(estimator: Any, source: Source, reset: bool) -> Source:
    """A source that was made here; images in an array are checked as if they had been passed themselves."""
    if isinstance(source, ArraySource) and source.values.ndim in (3, 4):
        return _open_images(estimator, source.values, reset)
    return _open_source(estimator, source, reset)


def _stacked(images: list[Any]) -> NDArray[Any]:
    shapes = {tuple(np.shape(image)) for image in images}
    if len(shapes) > 1:
        raise ValueError(f"Expected images of one size, got {', '.join(map(str, sorted(shapes)[:3]))} ... Crop or resize them.")
    return np.stack([to_numpy(image) if isinstance(image, torch.Tensor) else np.asarray(image) for image in images])


def _numbers(nested: list[Any]) -> NDArray[Any]:
    try:
        return np.array(nested, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("Expected images of one size made of numbers, got lists of different lengths or of text.") from error


def _open_dataset(estimator: Any, dataset: Any, reset: bool) -> Source:
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise TypeError(f"Expected a Dataset with a length and items by number, got an iterable {type(dataset).__name__}.")
    if len(dataset) < (2 if reset else 1):
        raise ValueError(f"Found {len(dataset)} items while a minimum of {2 if reset else 1} is required.")
    source = DatasetSource(dataset)
    if source.take(np.arange(1)).dtype.kind not in "fuib":
        raise ValueError("Expected a Dataset whose items are numbers, or tuples that begin with them.")
    return _open_source(estimator, source, reset)


def _open_source(estimator: Any, source: Source, reset: bool) -> Source:
    if len(source) < (2 if reset else 1):
        raise ValueError(f"Found {len(source)} samples while a minimum of {2 if reset else 1} is required.")
    if reset and not isinstance(source, DatasetSource):  # a Dataset has its channels first
        _check_channels_last((len(source), *source.item_shape))
    _set_features(estimator, math.prod(source.item_shape), reset)
    _check_finite(estimator, source)
    return source


def _check_channels_last(shape: tuple[int, ...]) -> None:
    if len(shape) == 4 and shape[3] > 4 and shape[1] <= 4:
        raise ValueError(
            f"Expected images of shape (n, height, width, channels), got {shape}, which looks like channels first. "
            "Use X.transpose(0, 2, 3, 1)."
        )


def _open_images(estimator: Any, X: NDArray[Any], reset: bool) -> Source:
    if X.dtype.kind not in "fuib":
        raise ValueError(f"Expected images of numbers, got an array of dtype {X.dtype}.")
    if 0 in X.shape or len(X) < (2 if reset else 1):
        raise ValueError(f"Found array with shape {X.shape} while a minimum of {2 if reset else 1} images is required.")
    if reset:
        _check_channels_last(X.shape)
    _set_features(estimator, math.prod(X.shape[1:]), reset)
    source = ArraySource(X)
    _check_finite(estimator, source)
    return source


def _set_features(estimator: Any, n_features: int, reset: bool) -> None:
    if reset:
        estimator.n_features_in_ = n_features
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    elif n_features != estimator.n_features_in_:
        name = type(estimator).__name__
        raise ValueError(f"X has {n_features} features, but {name} is expecting {estimator.n_features_in_} features as input.")


def _check_finite(estimator: Any, source: Source) -> None:
    first = 0
    for part in parts_of(source):
        if part.dtype.kind == "f":
            flat = part.reshape(len(part), -1)
            with np.errstate(over="ignore", invalid="ignore"):
                reach = float(np.abs(flat).max(initial=0.0))  # NaN and infinity are not below any number
            if not reach <= HIGHEST:
                row, number = np.argwhere(~(np.abs(flat) <= HIGHEST))[0]
                value = flat[row, number]
                found = "NaN" if np.isnan(value) else "infinity" if np.isinf(value) else f"{value:g}, too large to square"
                raise ValueError(
                    f"Input X contains {found} (sample {first + row}, number {number}). {type(estimator).__name__} does not "
                    "accept missing, infinite or huge values: drop, impute or rescale them first."
                )
        first += len(part)


def scaling_for(source: Source, image_shape: tuple[int, ...] | None) -> Scaling:
    """Scale images to [-1, 1] by the range of their kind, rows to mean 0 and a mean variance of 1."""
    shape = source.item_shape
    if not 1 <= len(shape) <= 3 or 0 in shape:
        raise ValueError(f"Expected samples with 1, 2 or 3 axes, got samples of shape {shape}.")
    if image_shape is None and len(shape) == 1:
        return _row_scaling(source)
    if image_shape is not None:
        if len(shape) > 1 and _with_channels(shape) != _with_channels(tuple(image_shape)):
            raise ValueError(f"image_shape={tuple(image_shape)}, but the images are of shape {shape}. Leave it out.")
        if math.prod(image_shape) != math.prod(shape):
            raise ValueError(
                f"image_shape={tuple(image_shape)} has {math.prod(image_shape)} numbers, samples have {math.prod(shape)}."
            )
        shape = tuple(image_shape)
    channels_first = isinstance(source, DatasetSource) and image_shape is None and len(shape) == 3 and shape[0] <= 4 < shape[2]
    channels, height, width = shape if channels_first else ((*shape, 1)[2], *shape[:2])
    lowest, highest = image_range(source)
    offset, unit = (highest + lowest) / 2, (highest - lowest) / 2
    return Scaling(
        (channels, height, width), not channels_first, *(torch.tensor([v], dtype=torch.float64) for v in (offset, unit))
    )


def _with_channels(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if len(shape) == 3 else (*shape, 1)


def allowed_shapes(item_shape: tuple[int, ...], scaling: Scaling) -> list[tuple[int, ...]]:
    """Shapes that new samples may have: that of the fit first, then the same flattened, with or without a channel axis."""
    allowed = [item_shape, (math.prod(item_shape),)]
    if scaling.is_image and scaling.channels_last:
        channels, height, width = scaling.input_shape
        allowed += [(height, width, channels), *([(height, width)] if channels == 1 else [])]
    return allowed


def check_shape(source: Source, item_shape: tuple[int, ...], scaling: Scaling) -> None:
    """Raise ValueError unless new samples have the shape of those of the fit, or are the same flattened."""
    if source.item_shape not in allowed_shapes(item_shape, scaling):
        raise ValueError(f"Samples should have shape {item_shape} as in fit, got {source.item_shape}.")


def image_range(source: Source) -> tuple[float, float]:
    """The range images are meant to have: 0 to 255, 0 to 1, -1 to 1, or else what they do have."""
    lowest, highest = measure_range(source)
    if lowest >= -NEARLY and highest <= 1.0 + NEARLY:
        return 0.0, 1.0
    if lowest >= -1.0 - NEARLY and highest <= 1.0 + NEARLY:
        return -1.0, 1.0
    if lowest >= 0.0 and 64.0 <= highest <= 255.0:  # numbers up to 16, as scikit-learn's digits, are not meant to be up to 255
        return 0.0, 255.0
    return (lowest, highest) if highest > lowest else (lowest - 1.0, lowest + 1.0)


def check_range(source: Source, scaling: Scaling) -> None:
    """Raise ValueError if new images are clearly in other units than those of the fit."""
    if not scaling.is_image:
        return
    low, high = scaling.value_range
    lowest, highest = measure_range(source)
    reach = high - low
    advice = "Scale the images as they were for fit."
    if lowest < low - 2 * reach or highest > high + 2 * reach:
        raise ValueError(f"Images should be from {low:g} to {high:g} as in fit, got {lowest:g} to {highest:g}. {advice}")
    is_float = source.take(np.arange(1)).dtype.kind == "f"
    dim = low
    if is_float and high == 255.0 and len(source) > 1:
        dim = 1.0
    elif (low, high) not in MEANT and len(source) >= MANY:  # a range that was measured: the fit's images did reach its end
        dim = low + reach / 100
    if low < highest <= dim and lowest < highest:
        raise ValueError(f"Images should be from {low:g} to {high:g} as in fit, got {lowest:g} to {highest:g}. {advice}")


def _row_scaling(source: Source) -> Scaling:
    """Centre every feature and divide all by one number: rare features, such as words, must not become the loudest."""
    mean, deviation = measure_moments(source)
    typical = float(np.sqrt((deviation**2).mean()))
    unit = typical if typical > 1e-9 * float(np.abs(mean).max()) + 1e-30 else 1.0
    return Scaling(source.item_shape, False, torch.from_numpy(mean), torch.tensor([unit], dtype=torch.float64))
