"""Coordinates in which a mixture works: the first data less their mean, in units of their standard deviation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diva.data import Rows

# far outside anything seen in a fit (a standard score is at most sqrt(n)); keeps squares finite in float32
FARTHEST = 1e7
HEAVIEST = 1e30  # sum of weights
MEASURE_ROWS = 1 << 16


@dataclass(frozen=True)
class Standardization:
    """Mean and scale of every feature, fixed at the first fit and saved with the model.

    Raw second moments cancel: at mean 1e3 and standard deviation 0.1, float32 reports a variance of 1.4 instead of 0.01. Those
    of standardized data do not, and the scale of the data drops out of every other computation.
    """

    mean: Tensor  # (D,)
    scale: Tensor

    @property
    def log_volume(self) -> float:
        """Log of the product of the scales: log densities of standardized data are larger by this."""
        return float(self.scale.log().sum())

    def apply(self, rows: Rows, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """Standardize rows; float32 stays float32. Raises ValueError if they are of another width, or not finite."""
        if rows.values.shape[1] != len(self.mean):
            raise ValueError(f"X has {rows.values.shape[1]} features, but DPMixture is expecting {len(self.mean)} features.")
        x = torch.from_numpy(_plain(rows.values)).to(device)
        if not bool(torch.isfinite(x.sum())):  # one cheap pass; a sum may also overflow
            _check_finite(rows)
        if bool((self.scale > 1e30).any()):  # differences of float32 numbers could overflow
            x = x.double()
        # subtracting first is exact where x is near the mean; the mean of float32 data is a float32 number
        z = (x - self.mean.to(device, x.dtype)) / self.scale.to(device, x.dtype)
        weights = None if rows.weights is None else torch.from_numpy(np.array(rows.weights)).to(device)
        return z.clamp_(-FARTHEST, FARTHEST), weights

    def points(self, z: Tensor) -> Tensor:
        """Standardize points (n, D) as they are, however far out; gradients pass."""
        return (z - self.mean.to(z)) / self.scale.to(z)

    def undo(self, z: Tensor) -> Tensor:
        """Bring standardized points back to where the data live."""
        return z.cpu() * self.scale + self.mean


@dataclass(frozen=True)
class StandardizedBlock:
    """One batch, standardized."""

    rows: Rows
    standardization: Standardization
    device: torch.device

    def chunks(self, n_rows: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield codes and weights."""
        for piece in self.rows.pieces(n_rows):
            yield self.standardization.apply(piece, self.device)


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
    lowest: np.ndarray  # (D,)
    highest: np.ndarray

    def check_within_reach_of(self, other: Standardization) -> None:
        """Raise ValueError if the data lie so far from those of another that their squares would be lost."""
        mean, scale = other.mean.numpy(), other.scale.numpy()
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
    mass, n_rows = 0.0, 0
    mean = m2 = lowest = highest = np.zeros(0)
    single = True
    for rows in source:
        for piece in rows.pieces(MEASURE_ROWS):
            _check_finite(piece)
            single &= piece.values.dtype == np.float32
            x = piece.values.astype(np.float64)
            w = np.ones(len(x)) if piece.weights is None else np.asarray(piece.weights, dtype=np.float64)
            if n_rows == 0:
                mean, m2, lowest, highest = x[0].copy(), np.zeros(x.shape[1]), x[0], x[0]
            n_rows += len(x)
            lowest, highest = np.minimum(lowest, x.min(axis=0)), np.maximum(highest, x.max(axis=0))
            if (piece_mass := float(w.sum())) == 0.0:
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                # Chan's update; deviations from the running mean keep a constant column exactly constant
                deviation = x - mean
                shift = w @ deviation / piece_mass
                m2 = m2 + w @ (deviation - shift) ** 2 + shift**2 * (mass * piece_mass / (mass + piece_mass))
                mean = mean + shift * (piece_mass / (mass + piece_mass))
            mass += piece_mass
    if n_rows == 0:
        raise ValueError("Expected at least one sample, got none.")
    if not 0.0 < mass < HEAVIEST:
        raise ValueError(f"Expected sample weights with a positive sum below {HEAVIEST:g}, got {mass:g}. Rescale them.")
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.sqrt(m2 / mass)
    if not (np.isfinite(scale).all() and np.isfinite(mean).all()):
        worst = int(np.argmin(np.isfinite(scale) & np.isfinite(mean)))
        raise ValueError(
            f"Feature {worst} holds numbers too large to square in float64. Rescale the data, for example by their maximum."
        )
    # what a column of equal numbers can still deviate by rounding is no spread: such a column tells nothing
    smallest = 1e-35 if single else 1e-150  # below, squares or their quotients would vanish
    scale[scale <= 10 * np.finfo(np.float64).eps * np.abs(mean) + smallest] = 1.0
    mean = mean.astype(np.float32).astype(np.float64) if single else mean
    return Measurement(Standardization(torch.from_numpy(mean), torch.from_numpy(scale)), n_rows, lowest, highest)


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
