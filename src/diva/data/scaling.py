"""How raw numbers become network input and back, and the scaling that fits given samples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data.sources import Check, DatasetSource, Source, measure_moments, measure_range, parts_of
from diva.exceptions import DataKindWarning, ScaleWarning

RowScale: TypeAlias = Literal["auto", "columns", "one"]  # what the numbers of rows are divided by

FARTHEST = 1e6  # units from the middle; what lies beyond could overflow in a network
MEANT = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))
MANY = 8  # images that are not all as good as black
NARROWEST = 16  # pixels of an image; samples that are narrower,
LONGEST = 4  # and at least so many times as long, are windows of sensors
LOUD = 0.95  # of the variance in one feature is worth a warning
NEARLY = 1e-3  # by how much a range may be exceeded and still be that range


@dataclass(frozen=True)
class Scaling:
    """How raw numbers become network input and back: fixed at the first fit and saved with the model."""

    input_shape: tuple[int, ...]  # (channels, height, width) of an image, or (features,)
    channels_last: bool  # whether raw images have their channels last; without a channel axis, or flattened, it does not matter
    offset: Tensor  # (features,): input is ``(raw - offset) / unit``
    unit: Tensor

    @property
    def is_image(self) -> bool:
        """Whether the network sees images."""
        return len(self.input_shape) == 3

    @property
    def n_numbers(self) -> int:
        """Numbers in a sample."""
        return math.prod(self.input_shape)

    @property
    def value_range(self) -> tuple[float, float]:
        """Raw numbers that become -1 and 1: of images, darkest and brightest."""
        offset, unit = float(self.offset[0]), float(self.unit[0])
        return offset - unit, offset + unit

    def check(self) -> None:
        """Raise ValueError if it is no scaling."""
        for name, value in (("offset", self.offset), ("unit", self.unit)):
            if value.dtype != torch.float64 or tuple(value.shape) not in ((1,), (self.n_numbers,)):
                raise ValueError(f"{name} of the scaling should be float64 of shape (1,) or ({self.n_numbers},)")
        if not bool((self.unit > 0).all()) or len(self.input_shape) not in (1, 3) or min(self.input_shape) < 1:
            raise ValueError("units of the scaling and sizes of the input should be positive")

    def to_input(self, raw: NDArray[Any]) -> Tensor:
        """Raw samples (n, ...) as float32 network input."""
        # float64 keeps what is far from 0 apart until it is centred
        dtype = np.float64 if raw.dtype.itemsize > 4 else np.float32
        x = torch.from_numpy(np.array(raw, dtype=dtype, copy=True, order="C"))
        x = ((x.reshape(len(x), -1) - self.offset.to(x.dtype)) / self.unit.to(x.dtype)).clamp(-FARTHEST, FARTHEST).float()
        if not self.is_image:
            return x
        channels, height, width = self.input_shape
        if self.channels_last:  # a permuted view: torch calls this memory format channels_last, and convolutions like it
            return x.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
        return x.reshape(-1, channels, height, width).contiguous(memory_format=torch.channels_last)

    def to_raw(self, x: Tensor, item_shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Network output as samples in the units and shape of the data."""
        if self.is_image and self.channels_last:
            x = x.permute(0, 2, 3, 1)
        raw = x.reshape(len(x), -1).cpu() * self.unit + self.offset
        values: NDArray[np.float32] = raw.reshape(-1, *item_shape).float().numpy()
        return values


@dataclass(frozen=True)
class Samples:
    """A source seen through a scaling."""

    source: Source
    scaling: Scaling

    def __len__(self) -> int:
        return len(self.source)

    def take(self, index: Tensor | NDArray[np.int64]) -> Tensor:
        """Network input for the samples with these numbers."""
        return self.scaling.to_input(self.source.take(np.asarray(index)))


def scaling_for(
    source: Source,
    image_shape: tuple[int, ...] | None,
    *checks: Check,
    names: Sequence[str] | None = None,
    scale: RowScale = "one",
) -> Scaling:
    """Scale images to [-1, 1] by the range they are meant to have, rows to mean 0 and a mean variance of 1.

    Rows are divided by one number, or each column by its own; "auto" does so unless columns are in one unit already.

    Samples are read once, and checked in the same pass. Warns, by its name if they are given, of a feature that hides others.
    """
    shape = source.item_shape
    if not 1 <= len(shape) <= 3 or 0 in shape:
        raise ValueError(f"Expected samples with 1, 2 or 3 axes, got samples of shape {shape}.")
    if image_shape is None and len(shape) == 1:
        return _row_scaling(source, *checks, names=names, scale=scale)
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
    lowest, highest = image_range(*measure_range(source, *checks))
    offset, unit = (highest + lowest) / 2, (highest - lowest) / 2
    return Scaling(
        (channels, height, width), not channels_first, *(torch.tensor([v], dtype=torch.float64) for v in (offset, unit))
    )


def is_series(item_shape: tuple[int, ...], kind: str | None = None, image_shape: tuple[int, ...] | None = None) -> bool:
    """Whether samples are windows of sensors (steps, channels), as they are said to be or by their shape.

    Warns where only the shape says so: few channels and many steps, as no image has.

    >>> is_series((8, 8)), is_series((128, 9), "series"), is_series((128, 9), "images")
    (False, True, False)
    """
    if kind == "series" and len(item_shape) != 2:
        raise ValueError(f'kind="series" is for windows of shape (n, steps, channels), but samples have shape {item_shape}.')
    if kind is not None or image_shape is not None or len(item_shape) != 2:
        return kind == "series"
    steps, channels = item_shape
    if channels >= NARROWEST or steps < LONGEST * channels:
        return False
    warnings.warn(
        f"Samples of shape {item_shape} are taken for windows of {steps} steps of {channels} channels. Set kind='series' if "
        "they are, kind='images' if they are images.",
        DataKindWarning,
        stacklevel=2,
    )
    return True


def series_scaling(source: Source, *checks: Check) -> Scaling:
    """Every channel to mean 0 and variance 1, the same at all steps."""
    steps, channels = source.item_shape
    mean, deviation = (moment.reshape(steps, channels) for moment in measure_moments(source, *checks))
    centre = mean.mean(axis=0)
    spread = np.sqrt((deviation**2 + (mean - centre) ** 2).mean(axis=0))
    unit = np.where(spread > 1e-9 * np.abs(centre) + 1e-30, spread, 1.0)
    return Scaling((steps * channels,), False, *(torch.from_numpy(np.tile(each, steps)) for each in (centre, unit)))


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


def image_range(lowest: float, highest: float) -> tuple[float, float]:
    """The range images are meant to have: 0 to 255, 0 to 1, -1 to 1, or else what they do have."""
    if lowest >= -NEARLY and highest <= 1.0 + NEARLY:
        return 0.0, 1.0
    if lowest >= -1.0 - NEARLY and highest <= 1.0 + NEARLY:
        return -1.0, 1.0
    if lowest >= 0.0 and 64.0 <= highest <= 255.0:  # numbers up to 16, as scikit-learn's digits, are not meant to be up to 255
        return 0.0, 255.0
    return (lowest, highest) if highest > lowest else (lowest - 1.0, lowest + 1.0)


def check_range(source: Source, scaling: Scaling, *checks: Check) -> None:
    """Raise ValueError if new images are clearly in other units than those of the fit; makes other checks in the same pass."""
    if not scaling.is_image:
        for _ in parts_of(source, *checks):
            pass
        return
    low, high = scaling.value_range
    lowest, highest = measure_range(source, *checks)
    reach = high - low
    dim = low
    if high == 255.0 and len(source) > 1 and source.take(np.arange(1)).dtype.kind == "f":
        dim = 1.0
    elif (low, high) not in MEANT and len(source) >= MANY:  # a range that was measured: the fit's images did reach its end
        dim = low + reach / 100
    is_outside = lowest < low - 2 * reach or highest > high + 2 * reach
    if is_outside or (low < highest <= dim and lowest < highest):
        raise ValueError(
            f"Images should be from {low:g} to {high:g} as in fit, got {lowest:g} to {highest:g}. "
            "Scale the images as they were for fit."
        )


class UnitsSeen:
    """What rows show of the units of their columns; a check that refuses nothing, to be shown all rows in any pass."""

    def __init__(self, n_features: int) -> None:
        self.lowest, self.highest = np.full(n_features, np.inf), np.full(n_features, -np.inf)
        self.shortest, self.longest = np.inf, 0.0  # row
        self.n_zeros = self.n_numbers = 0

    def __call__(self, rows: NDArray[Any]) -> None:
        """Look at some rows (n, d)."""
        self.lowest, self.highest = (
            f(ends, g(rows, axis=0)) for f, g, ends in ((np.minimum, np.min, self.lowest), (np.maximum, np.max, self.highest))
        )
        with np.errstate(over="ignore"):
            lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))  # no copy of rows that are not float64
        self.shortest, self.longest = min(self.shortest, float(lengths.min())), max(self.longest, float(lengths.max()))
        self.n_zeros, self.n_numbers = self.n_zeros + int((rows == 0).sum()), self.n_numbers + rows.size

    def are_shared(self, deviation: NDArray[np.float64]) -> bool:
        """Whether columns, of these standard deviations (d,), are in one unit already.

        So are the coordinates of vectors that all have one length; columns of which most have the same ends, as pixels and
        shares do; and counts that are mostly 0, such as those of words, whose rarest columns must not become the loudest.
        """
        # beside how far rows are from each other: far from the origin, all rows are of about one length
        if self.n_numbers == 0 or self.longest <= self.shortest + NEARLY * float(np.linalg.norm(deviation)) < np.inf:
            return True
        ends, n_with = np.unique(np.stack([self.lowest, self.highest]), axis=1, return_counts=True)
        same_ends = int(n_with.max()) if ends.size else 0
        return 2 * same_ends > len(self.lowest) > 1 or 2 * self.n_zeros > self.n_numbers


def _row_scaling(source: Source, *checks: Check, names: Sequence[str] | None, scale: RowScale) -> Scaling:
    """Centre every feature, and divide each by its standard deviation or all by one number."""
    units = UnitsSeen(source.item_shape[0])
    mean, deviation = measure_moments(source, *checks, *([units] if scale == "auto" else []))
    least = 1e-9 * float(np.abs(mean).max()) + 1e-30
    if scale == "columns" or (scale == "auto" and not units.are_shared(deviation)):
        unit = torch.from_numpy(np.where(deviation > np.maximum(1e-9 * np.abs(mean), 1e-30), deviation, 1.0))
        return Scaling(source.item_shape, False, torch.from_numpy(mean), unit)
    _warn_of_loud_feature(deviation, names)
    typical = float(np.sqrt((deviation**2).mean()))
    return Scaling(
        source.item_shape,
        False,
        torch.from_numpy(mean),
        torch.tensor([typical if typical > least else 1.0], dtype=torch.float64),
    )


def _warn_of_loud_feature(deviation: NDArray[np.float64], names: Sequence[str] | None) -> None:
    """Warn of a feature that holds nearly all of the variance: what the others say is hardly seen beside it."""
    total, loudest = float((deviation**2).sum()), int(deviation.argmax())
    if (deviation > 0).sum() < 2 or not LOUD * total < float(deviation[loudest] ** 2) < np.inf:
        return
    name = f"{names[loudest]!r}" if names is not None and len(names) == len(deviation) else f"number {loudest}"
    warnings.warn(
        f"Feature {name} holds {float(deviation[loudest] ** 2) / total:.1%} of the variance, and hides the others. Put them on "
        "one scale, with scale='columns' or scikit-learn's StandardScaler, or leave it out.",
        ScaleWarning,
        stacklevel=2,
    )
