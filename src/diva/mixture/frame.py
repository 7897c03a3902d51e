"""Coordinates in which a mixture works: centred at the first data, one standard deviation long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diva.data import Rows

# far outside anything seen in a fit (a standard score is at most sqrt(n)); keeps squares finite in float32
FARTHEST = 1e7
MEASURE_ROWS = 1 << 16


@dataclass(frozen=True)
class Frame:
    """An origin and a unit for every feature, fixed at the first fit and saved with the model.

    Raw second moments cancel: at mean 1e3 and standard deviation 0.1, float32 reports a variance of 1.4 instead of 0.01. In
    this frame they do not, and the scale of the data drops out of every other computation.

    Attributes
    ----------
    origin, unit : Tensor of shape (D,), float64
    """

    origin: Tensor
    unit: Tensor

    @property
    def log_volume(self) -> float:
        """Log of the volume of the unit cell: densities per unit are this much larger than densities of the data."""
        return float(self.unit.log().sum())

    def enter(self, rows: Rows, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """Bring rows into the frame; float32 stays float32."""
        values = rows.values if rows.values.flags.writeable else np.array(rows.values)
        x = torch.from_numpy(values).to(device)
        # subtracting first is exact where x is near the origin; the origin of float32 data is a float32 number
        z = (x - self.origin.to(device, x.dtype)) / self.unit.to(device, x.dtype)
        weights = None if rows.weights is None else torch.from_numpy(np.array(rows.weights)).to(device)
        return z.clamp_(-FARTHEST, FARTHEST), weights

    def leave(self, z: Tensor) -> Tensor:
        """Bring points of the frame back to where the data live."""
        return z.cpu() * self.unit + self.origin


@dataclass(frozen=True)
class FramedBlock:
    """One batch, seen in a frame."""

    rows: Rows
    frame: Frame
    device: torch.device

    def chunks(self, n_rows: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield codes and weights."""
        for piece in self.rows.pieces(n_rows):
            yield self.frame.enter(piece, self.device)


@dataclass(frozen=True)
class FramedBatches:
    """Batches of a source, seen in a frame; iterable again and again if the source is."""

    source: Iterable[Rows]
    frame: Frame
    device: torch.device

    def __iter__(self) -> Iterator[FramedBlock]:
        for rows in self.source:
            yield FramedBlock(rows, self.frame, self.device)


def measure(source: Iterable[Rows]) -> Frame:
    """Find the frame of some data, in one pass and float64.

    Raises
    ------
    ValueError
        If there are no rows, no weight, or numbers that are not finite or too large to square.
    """
    mass, n_rows = 0.0, 0
    mean = m2 = np.zeros(0)
    single = True
    for rows in source:
        for piece in rows.pieces(MEASURE_ROWS):
            single &= piece.values.dtype == np.float32
            x = piece.values.astype(np.float64)
            w = np.ones(len(x)) if piece.weights is None else np.asarray(piece.weights, dtype=np.float64)
            if n_rows == 0:
                mean, m2 = x[0].copy(), np.zeros(x.shape[1])
            _check_finite(x, n_rows)
            n_rows += len(x)
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
    if mass == 0.0:
        raise ValueError("Expected at least one sample of positive weight, got weights that sum to zero.")
    with np.errstate(over="ignore", invalid="ignore"):
        unit = np.sqrt(m2 / mass)
    if not (np.isfinite(unit).all() and np.isfinite(mean).all()):
        worst = int(np.argmin(np.isfinite(unit) & np.isfinite(mean)))
        raise ValueError(
            f"Feature {worst} holds numbers too large to square in float64. Rescale the data, for example by their maximum."
        )
    # what a column of equal numbers can still deviate by rounding is no spread: such a column tells nothing
    smallest = 1e-35 if single else 1e-150  # below, squares or their quotients would vanish
    unit[unit <= 10 * np.finfo(np.float64).eps * np.abs(mean) + smallest] = 1.0
    origin = mean.astype(np.float32).astype(np.float64) if single else mean
    return Frame(torch.from_numpy(origin), torch.from_numpy(unit))


def _check_finite(x: np.ndarray, first_row: int) -> None:
    finite = np.isfinite(x)
    if not finite.all():
        row, feature = np.argwhere(~finite)[0]
        found = "NaN" if np.isnan(x[row, feature]) else "infinity"
        raise ValueError(
            f"Input X contains {found} (row {first_row + row}, feature {feature}). DPMixture does not accept missing or "
            "infinite values: drop or impute them first."
        )
