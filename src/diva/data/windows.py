"""One long recording, cut into windows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diva.data.batches import to_numpy
from diva.data.formats.paths import open_path
from diva.data.sources import ArraySource, Source, name_of
from diva.exceptions import DataError


@dataclass(frozen=True)
class WindowSource:
    """Windows (window, channels) of a recording whose rows are steps in time; memory holds the recording alone."""

    recording: Source
    window: int
    step: int

    def __len__(self) -> int:
        return (len(self.recording) - self.window) // self.step + 1

    @property
    def name(self) -> str:
        """Of the file, for messages."""
        return name_of(self.recording)

    @property
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return (self.window, *self.recording.item_shape)

    @property
    def middles(self) -> NDArray[np.int64]:
        """Row in the middle of each window."""
        return np.arange(len(self)) * self.step + self.window // 2

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        rows = np.asarray(index, dtype=np.int64)[:, None] * self.step + np.arange(self.window)
        return self.recording.take(rows.reshape(-1)).reshape(*rows.shape, *self.recording.item_shape)


def cut_windows(recording: Any, window: int, step: int | None = None) -> WindowSource:
    """Cut one long recording into windows, which any estimator takes as samples.

    Parameters
    ----------
    recording : array-like of shape (n_steps, n_channels), Source, or path of a file that holds one
    window : int
        Steps in a window.
    step : int, optional
        Steps from the beginning of one window to that of the next; by default half a window, so that they overlap.

    Raises
    ------
    DataError
        If the recording is shorter than a window, or no recording.

    Examples
    --------
    >>> cut_windows(np.zeros((1000, 3)), window=128, step=64).take(np.arange(2)).shape
    (2, 128, 3)
    """
    step = max(1, window // 2) if step is None else step
    if window < 2 or step < 1:
        raise DataError(f"Expected a window of at least 2 steps and a step of at least 1, got {window} and {step}.")
    if isinstance(recording, str | os.PathLike):
        recording = open_path(recording).source
    if not isinstance(recording, Source):
        values = to_numpy(recording) if isinstance(recording, torch.Tensor) else np.asarray(recording)
        recording = ArraySource(values[:, None] if values.ndim == 1 else values)
    if len(recording.item_shape) != 1:
        shape = (len(recording), *recording.item_shape)
        raise DataError(f"Expected one recording of shape (n_steps, n_channels) to cut, got {shape}.")
    if len(recording) < window:
        raise DataError(f"Expected a recording of at least {window:,} steps, one window, got {len(recording):,}.")
    return WindowSource(recording, window, step)
