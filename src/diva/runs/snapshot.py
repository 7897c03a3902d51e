"""Some of a run's samples and what the model made of them, as plain arrays: what a report shows without the data."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diva.exceptions import ModelFileError
from diva.runs.archive import read_arrays, write_archive

SNAPSHOT = "snapshot.safetensors"  # in the folder of a run
KIND = "DIVA snapshot"
MOST_SAMPLES = 10_000
MOST_BYTES = 64 << 20  # of the samples themselves: wide rows are kept in smaller numbers


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Some of a run's samples, evenly spread over them, and what is known about all of them.

    Clusters, components and classes are named by their positions, from 0 on. What a model does not have is None.
    """

    index: NDArray[np.int64]  # (m,): which samples these are, rising
    values: NDArray[Any]  # (m, ...): the samples as they came: (m, h, w) or (m, h, w, c) for images, (m, d) for rows
    codes: NDArray[np.float32]  # (m, D)
    clusters: NDArray[np.int64]  # (m,)
    confidence: NDArray[np.float64]  # (m,): probability of the sample's own cluster
    sizes: NDArray[np.int64]  # (n_clusters,): samples in each cluster, of all samples
    mean_confidence: NDArray[np.float64]  # (n_clusters,): of the samples kept
    components: NDArray[np.int64] | None = None  # (m,)
    # (m,): out-of-distribution score: low for samples that are unlike those of the fit
    log_density: NDArray[np.float64] | None = None
    truth: NDArray[np.int64] | None = None  # (m,): true classes, if labels were given; they are never learnt from
    table: NDArray[np.int64] | None = None  # (n_classes, n_clusters): true classes against clusters, of all samples
    draws: NDArray[np.float32] | None = None  # (n_draws, ...): new samples that the model made
    draw_clusters: NDArray[np.int64] | None = None  # (n_draws,): the cluster that each was drawn from
    # (r,): positions in the snapshot of the images that ``reconstructions`` are of
    reconstructed: NDArray[np.int64] | None = None
    reconstructions: NDArray[np.float32] | None = None  # (r, ...)
    # (d,): of rows: share of each feature's variance that reconstruction loses
    feature_errors: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def rows(self) -> NDArray[np.float64]:
        """Samples as rows of numbers."""
        return self.values.reshape(len(self), -1).astype(np.float64)

    @cached_property
    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of each feature; 1 for those that never vary."""
        mean, sd = self.rows.mean(axis=0), self.rows.std(axis=0)
        return mean, np.where(sd > 1e-9 * np.maximum(1.0, np.abs(mean)), sd, 1.0)

    def is_whole(self) -> bool:
        """Whether its arrays are about the same samples, clusters and classes."""
        m, n_clusters = len(self), len(self.sizes)
        per_sample = (self.values, self.codes, self.clusters, self.confidence, self.components, self.log_density, self.truth)
        return (
            m > 0
            and all(array is None or len(array) == m for array in per_sample)
            and self.mean_confidence.shape == (n_clusters,)
            and 0 <= self.clusters.min() <= self.clusters.max() < n_clusters
            and (self.table is None or self.table.shape[1:] == (n_clusters,))
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file, whole or not at all."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        kept = {name: array for name, array in arrays.items() if array is not None}
        write_archive(path, KIND, {}, kept, follow_links=False)  # the folder of a run may come from anywhere

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Snapshot:
        """Read it back; raises ModelFileError if the file is no snapshot."""
        _, _, arrays = read_arrays(path, kinds=(KIND,))
        try:
            snapshot = cls(**arrays)
            is_whole = snapshot.is_whole()
        except (AttributeError, TypeError, IndexError, ValueError):
            is_whole = False
        if not is_whole:
            raise ModelFileError(f"{os.fspath(path)!r} is not a whole snapshot of a run. Fit again, or restore it from a copy.")
        return snapshot


def choose_samples(n_samples: int, bytes_each: int, most: int = MOST_SAMPLES) -> NDArray[np.int64]:
    """Numbers of samples evenly spread over all, as many as a snapshot keeps."""
    n_kept = max(1, min(n_samples, most, MOST_BYTES // max(1, bytes_each)))
    return np.unique(np.linspace(0, n_samples - 1, n_kept).round().astype(np.int64))
