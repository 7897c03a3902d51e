"""Coordinates in which a mixture works: the first data less their mean, in units of their standard deviation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from diva.data import Rows
from diva.data.scaling import UnitsSeen
from diva.distributed import Mine, gather, mine, split
from diva.mixture.local import Chunk

# far outside anything seen in a fit (a standard score is at most sqrt(n)); keeps squares finite in float32
FARTHEST = 1e7
HEAVIEST = 1e30  # sum of weights
WIDEST = 1e146  # standard deviation: its square is finite, times any covariance_scale
LEAST_SINGLE = 1e-35  # standard deviation of float32 data: far enough from the least normal number
MEASURE_ROWS = 1 << 16
SAMPLE_ROWS = 10_000  # rows that a measurement keeps: enough for quartiles, and to look for a good start on
LEAST_VARIANCE = 1e-24  # along a principal axis, of standardized features: what varies less has none
MOST_AXES = 50  # principal axes that a mixture of very many samples looks at
NORMAL_QUARTILES = 1.349  # distance between the quartiles of a standard normal


@dataclass(frozen=True)
class Standardization:
    """Mean and scale of every feature, fixed at the first fit and saved with the model.

    Raw second moments cancel: at mean 1e3 and standard deviation 0.1, float32 reports a variance of 1.4 instead of 0.01. Those
    of standardized data do not, and the scale of the data drops out of every other computation.
    """

    mean: Tensor  # (D,)
    scale: Tensor
    axes: Tensor | None = None  # (D, Q): where many features are projected on a few principal axes

    @property
    def n_features(self) -> int:
        """Of the data, D."""
        return len(self.mean)

    @property
    def n_coordinates(self) -> int:
        """Of a standardized sample, D or Q."""
        return len(self.mean) if self.axes is None else self.axes.shape[1]

    @property
    def log_volume(self) -> float:
        """Log of the product of the scales: log densities of standardized data are larger by this; 0 on principal axes."""
        return float(self.scale.log().sum()) if self.axes is None else 0.0

    @cached_property
    def _single(self) -> tuple[Tensor, Tensor] | None:
        """Mean and scale in float32; None where differences could overflow, or the scale itself would be rounded to 0."""
        fits = (self.scale >= LEAST_SINGLE) & (self.scale <= 1e30)
        return (self.mean.float(), self.scale.float()) if bool(fits.all()) else None

    def apply(self, rows: Rows, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """Standardize rows; float32 stays float32. Raises ValueError if they are of another width, or not finite."""
        if rows.values.shape[1] != len(self.mean):
            raise ValueError(f"X has {rows.values.shape[1]} features, but DPMixture is expecting {len(self.mean)} features.")
        x = torch.from_numpy(_plain(rows.values)).to(device)
        if x.dtype == torch.float32 and self._single is not None:
            mean, scale = self._single
        else:  # whole numbers among others
            x, mean, scale = x.double(), self.mean, self.scale
        # subtracting first is exact where x is near the mean; the mean of float32 data is a float32 number
        z = (x - mean.to(device)).div_(scale.to(device))
        if z.numel():
            lowest, highest = torch.aminmax(z)  # one cheap pass; NaN if there is one
            if not -FARTHEST <= float(lowest) <= float(highest) <= FARTHEST:
                _check_finite(rows)
                z.clamp_(-FARTHEST, FARTHEST)
        if self.axes is not None:
            z = (z @ self.axes.to(device, x.dtype)).clamp_(-FARTHEST, FARTHEST)
        weights = None if rows.weights is None else torch.from_numpy(np.array(rows.weights)).to(device)
        return z, weights

    def points(self, z: Tensor) -> Tensor:
        """Standardize points (n, D) as they are, however far out; gradients pass."""
        points = (z - self.mean.to(z)) / self.scale.to(z)
        return points if self.axes is None else points @ self.axes.to(z)

    def undo(self, z: Tensor) -> Tensor:
        """Bring standardized points back to where the data live."""
        z = z.cpu() if self.axes is None else z.cpu() @ torch.linalg.pinv(self.axes)
        return z * self.scale + self.mean

    def on_principal_axes(self, rows: Rows, *, varies: bool = True) -> Standardization:
        """Project on the principal axes of some rows, in one unit for all of them, if features are too many.

        Too many are those whose covariance has more entries than there are different samples. Axes are kept along which the
        rows vary more than uncorrelated features would: beyond the edge of Marchenko and Pastur (1967). At least one is kept,
        and at most ``MOST_AXES``. Rows that are all alike, or do not vary but for rounding, have no axes: theirs is the
        mean of the features, in their unit.
        """
        z, given = self.apply(rows, torch.device("cpu"))
        weights = torch.ones(len(z), dtype=torch.float64) if given is None else given.double()
        n = min(float(weights.sum()), float(len(np.unique(rows.values, axis=0))))
        most = min(MOST_AXES, math.isqrt(int(2 * n)))
        if self.n_features <= most:
            return self
        values, axes = _principal_axes(z.double(), weights)
        if not varies or float(values[0]) <= LEAST_VARIANCE:
            return replace(self, axes=torch.full((self.n_features, 1), self.n_features**-0.5, dtype=torch.float64))
        edge = values.sum() / self.n_features * (1.0 + math.sqrt(self.n_features / n)) ** 2
        n_axes = max(1, min(most, int((values > edge).sum())))
        unit = values[:n_axes].mean().sqrt()
        return replace(self, axes=(axes[:, :n_axes] / unit).contiguous())  # as a file gives them back


def _principal_axes(z: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Variances along the principal axes of weighted rows (n, D), largest first, and the axes as columns."""
    share = (weights / weights.sum()).unsqueeze(1)
    z = (z - (share * z).sum(0)) * share.sqrt()
    if z.shape[1] <= len(z):
        values, axes = torch.linalg.eigh(z.T @ z)
    else:  # fewer rows than features: the products of rows have the same variances
        values, vectors = torch.linalg.eigh(z @ z.T)
        axes = torch.nn.functional.normalize(z.T @ vectors, dim=0)
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))  # an axis has no sign of its own: this entry is positive
    return values.flip(0), (axes * largest.sign()).flip(1)


@dataclass(frozen=True)
class StandardizedBlock:
    """One batch, standardized."""

    rows: Rows
    standardization: Standardization
    device: torch.device

    def parts(self, n_rows: int) -> Mine:
        """Parts that fall to this process; each yields its codes, a few at a time."""
        parts = own_parts(self.rows)
        return parts._replace(items=[_Chunks(part, n_rows, self) for part in parts.items])


@dataclass(frozen=True)
class _Chunks:
    """Some rows, standardized a few at a time, in pieces of nearly equal size."""

    rows: Rows
    n_rows: int
    block: StandardizedBlock

    def __iter__(self) -> Iterator[Chunk]:
        n_pieces = max(1, -(-len(self.rows) // self.n_rows))
        for piece in self.rows.pieces(max(1, -(-len(self.rows) // n_pieces))):
            yield Chunk(*self.block.standardization.apply(piece, self.block.device), piece.first)


def own_parts(rows: Rows) -> Mine:
    """Parts of some rows that fall to this process, each as Rows; of rows that it alone has, all as one."""
    if rows.is_shard:
        return Mine([rows] if len(rows) else [], 1)
    parts = mine(split(len(rows)))
    return parts._replace(items=[rows.part(part) for part in parts.items])


@dataclass(frozen=True)
class StandardizedBatches:
    """Batches of a source, standardized; iterable again and again if the source is."""

    source: Iterable[Rows]
    standardization: Standardization
    device: torch.device

    def __iter__(self) -> Iterator[StandardizedBlock]:
        for rows in self.source:
            yield StandardizedBlock(rows, self.standardization, self.device)


@dataclass(frozen=True)
class Measurement:
    """What one pass over some data tells."""

    standardization: Standardization
    n_rows: int
    mass: float  # sum of the weights
    lowest: np.ndarray  # (D,)
    highest: np.ndarray
    sample: Rows  # evenly spread over the data; all of them, if there are few
    flat: np.ndarray  # (D,): features whose values differ by rounding at most, if at all; their scale is 1
    least_scale: float  # below, squares or their quotients would vanish

    def robust(self) -> Standardization:
        """Median and distance of the quartiles instead of mean and standard deviation: a few wild values do not move them.

        A feature more than half of whose values are equal has no such distance, and keeps its standard deviation. Features that
        are in one unit already, as pixels, counts of words and vectors of one length are, have one scale: what hardly varies
        among them would else be as loud as what matters.
        """
        low, middle, high = _quantiles(self.sample, (0.25, 0.5, 0.75))
        scale, deviation = (high - low) / NORMAL_QUARTILES, self.standardization.scale.numpy()
        varies = ~self.flat
        if self._shares_unit(deviation * varies):
            typical = np.sqrt(np.mean(deviation[varies] ** 2)) if varies.any() else 1.0
            scale, has_distance = np.full_like(scale, typical), varies
        else:
            has_distance = (high > low) & varies
        # however wild, values should stay where squares are exact
        scale = np.maximum(scale, (self.highest - self.lowest) / (1e-1 * FARTHEST)).clip(self.least_scale)
        return Standardization(torch.from_numpy(middle), torch.from_numpy(np.where(has_distance, scale, deviation)))

    def _shares_unit(self, deviation: np.ndarray) -> bool:
        units = UnitsSeen(len(deviation))
        units(self.sample.values)
        return units.are_shared(deviation)

    def rounding(self, scale: Tensor) -> Tensor:
        """Variance of the rounding of each feature, (D,), in units of a scale (D,).

        The step of a feature is the median distance of neighbouring values: that of the numbers for counts and categories,
        next to nothing for real numbers. What was rounded to a step has a variance of step^2 / 12 around it.
        """
        steps = np.zeros(len(self.lowest))
        for d, column in enumerate(self.sample.values.T):
            if len(values := np.unique(column)) > 1:
                steps[d] = np.median(np.diff(values.astype(np.float64)))
        return (torch.from_numpy(steps) / scale) ** 2 / 12.0

    def check_within_reach_of(self, other: Standardization) -> None:
        """Raise ValueError if the data lie so far from those of another that their squares would be lost."""
        mean, scale = other.mean.numpy(), other.scale.numpy()
        with np.errstate(over="ignore"):
            distance = np.maximum(np.abs(self.lowest - mean), np.abs(self.highest - mean)) / scale
        if distance.max() > FARTHEST:
            raise ValueError(
                f"Feature {distance.argmax()} of the new data lies up to {distance.max():.1g} standard deviations of the first "
                "data away from them, too far for one mixture. Fit all data anew, or check for another unit."
            )


def measure(source: Iterable[Rows]) -> Measurement:
    """Find mean, scale and range of some data, in one pass and float64.

    Raises ValueError if there are no rows, no weight, or numbers that are not finite or too large to square.
    """
    sampler, own = _EvenSample(), []
    for number, rows in enumerate(source):
        for part in own_parts(rows).items:
            for piece in part.pieces(MEASURE_ROWS):
                _check_finite(piece)
                sampler.offer(piece)
                own.append(_Moments.of(piece, number))
    everyone = gather((own, sampler), "measuring the data")
    parts = sorted((part for of_one, _ in everyone for part in of_one), key=lambda part: part.place)
    if not parts:
        raise ValueError("Expected at least one sample, got none.")
    mass, mean, m2 = _together(parts)
    n_rows, single = sum(part.n_rows for part in parts), all(part.single for part in parts)
    lowest, highest = np.min([part.lowest for part in parts], axis=0), np.max([part.highest for part in parts], axis=0)
    if not 0.0 < mass < HEAVIEST:
        raise ValueError(f"Expected sample weights with a positive sum below {HEAVIEST:g}, got {mass:g}. Rescale them.")
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.sqrt(m2 / mass)
    if not (within := (scale <= WIDEST) & np.isfinite(mean)).all():
        worst = int(np.argmin(within))
        raise ValueError(
            f"Feature {worst} holds numbers too large to square in float64. Rescale the data, for example by their maximum."
        )
    # what a column of equal numbers can still deviate by rounding is no spread: such a column tells nothing
    least_scale = LEAST_SINGLE if single else 1e-150
    flat = scale <= 10 * np.finfo(np.float64).eps * np.abs(mean) + least_scale
    scale[flat] = 1.0
    mean = mean.astype(np.float32).astype(np.float64) if single else mean
    standardization = Standardization(torch.from_numpy(mean), torch.from_numpy(scale))
    sample = _EvenSample.joined(s for _, s in everyone).sample()
    return Measurement(standardization, n_rows, mass, lowest, highest, sample, flat, least_scale)


class _Moments(NamedTuple):
    """What some rows come to."""

    place: tuple[int, int]  # number of the batch, and of the first row: the order in which they are put together
    n_rows: int
    mass: float
    mean: np.ndarray  # (D,)
    m2: np.ndarray  # (D,): weighted sum of squared deviations from the mean
    lowest: np.ndarray
    highest: np.ndarray
    single: bool  # whether numbers are float32

    @classmethod
    def of(cls, rows: Rows, batch: int) -> Self:
        """Measure rows; deviations from the first of them keep a constant column exactly constant."""
        x = rows.values.astype(np.float64)
        w = np.ones(len(x)) if rows.weights is None else np.asarray(rows.weights, dtype=np.float64)
        mass = float(w.sum())
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = x - x[0]
            shift = w @ deviation / mass if mass else np.zeros(x.shape[1])
            m2 = w @ (deviation - shift) ** 2
        single = rows.values.dtype == np.float32
        return cls((batch, rows.first), len(x), mass, x[0] + shift, m2, x.min(axis=0), x.max(axis=0), single)


def _together(parts: Sequence[_Moments]) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, mean and sum of squared deviations of all parts, one after the other (Chan, Golub and LeVeque 1979)."""
    mass, mean, m2 = 0.0, parts[0].mean, np.zeros_like(parts[0].mean)
    for part in parts:
        if part.mass == 0.0:
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            shift, share = part.mean - mean, part.mass / (mass + part.mass)
            m2 = m2 + part.m2 + shift**2 * (mass * share)
            mean = mean + shift * share
        mass += part.mass
    return mass, mean, m2


class _EvenSample:
    """Every so-manieth row of a source whose length is not known, ``SAMPLE_ROWS`` to twice as many; all of fewer."""

    def __init__(self) -> None:
        self.stride = 1
        self.parts: list[Rows] = []

    def offer(self, rows: Rows) -> None:
        """Take some of the next rows."""
        self.parts.append(_every(rows, self.stride))
        self._thin()

    def _thin(self) -> None:
        while sum(map(len, self.parts)) > 2 * SAMPLE_ROWS:
            step, self.stride = self.stride, 2 * self.stride
            self.parts = [_every(part, self.stride, step) for part in self.parts]

    @classmethod
    def joined(cls, samples: Iterable[_EvenSample]) -> Self:
        """What several have taken of different rows, in the order of their numbers."""
        samples, whole = list(samples), cls()
        whole.stride = max(sample.stride for sample in samples)
        parts = [_every(part, whole.stride, sample.stride) for sample in samples for part in sample.parts]
        whole.parts = sorted(parts, key=lambda part: part.first)
        whole._thin()
        return whole

    def sample(self) -> Rows:
        """All that was taken, without rows of no weight."""
        values = np.concatenate([np.asarray(part.values) for part in self.parts])
        if self.parts[0].weights is None:
            return Rows(values)
        weights = np.concatenate([np.asarray(part.weights, dtype=np.float64) for part in self.parts])
        return Rows(values[weights > 0], weights[weights > 0])


def _every(rows: Rows, stride: int, step: int = 1) -> Rows:
    """Rows whose number is a multiple of ``stride``; those given are ``step`` apart."""
    begin = -(rows.first // step) % (stride // step)
    chosen = slice(begin, None, stride // step)
    weights = None if rows.weights is None else np.array(rows.weights[chosen])
    return Rows(np.array(rows.values[chosen]), weights, rows.first + begin * step)


def _quantiles(rows: Rows, shares: Sequence[float]) -> np.ndarray:
    """Weighted quantiles of each feature, (len(shares), D): the least value that so much of the weight does not exceed."""
    order = np.argsort(rows.values, axis=0, kind="stable")
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    below = weights[order].cumsum(axis=0)
    values = np.take_along_axis(rows.values, order, axis=0).astype(np.float64)
    places = [(below < share * below[-1] * (1 - 1e-12)).sum(axis=0) for share in shares]
    return np.stack([values[place, np.arange(values.shape[1])] for place in places])


def _plain(values: np.ndarray) -> np.ndarray:
    """An array torch can share: writable, with strides of whole numbers that are not negative."""
    whole = all(stride >= 0 and stride % values.itemsize == 0 for stride in values.strides)
    return values if values.flags.writeable and whole else np.array(values)


def _check_finite(rows: Rows) -> None:
    finite = np.isfinite(rows.values)
    if not finite.all():
        row, feature = np.argwhere(~finite)[0]
        found = "NaN" if np.isnan(rows.values[row, feature]) else "infinity"
        raise ValueError(
            f"Input X contains {found} (row {rows.first + row}, feature {feature}). DPMixture does not accept missing or "
            "infinite values: drop or impute them first."
        )
