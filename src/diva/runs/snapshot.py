"""What a run keeps of its data, so that it can be looked at without them: some samples, their codes, where they belong.

A report is made from the folder of a run alone: the model, its history, its configuration, and this.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diva.data import PartOfSource, Source
from diva.exceptions import ModelFileError
from diva.metrics import Agreement
from diva.models.diva import DIVA
from diva.runs.archive import read_archive, write_archive
from diva.version import __version__

SNAPSHOT = "snapshot.safetensors"  # in the folder of a run
KIND = "DIVA snapshot"
MOST_SAMPLES = 10_000
MOST_BYTES = 64 << 20  # of the samples themselves: wide rows are kept in smaller numbers


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Some of a run's samples, evenly spread over them, and what is known about all of them.

    Attributes
    ----------
    index : array of int, shape (m,)
        Which samples these are, rising.
    values : array of shape (m, ...)
        The samples as they came: (m, h, w) or (m, h, w, c) for images, (m, d) for rows.
    codes : array of shape (m, D)
    clusters, components : array of int, shape (m,)
    confidence : array of shape (m,)
        Probability of the sample's own cluster.
    log_density : array of shape (m,)
        Of the code, less for one the encoder is unsure of: low means of no known kind.
    truth : array of int, shape (m,), or None
        True classes as numbers, if labels were given; they are never learnt from.
    table : array of int, shape (n_classes, n_clusters), or None
        True classes against clusters, of all samples.
    sizes : array of int, shape (n_clusters,)
        Samples in each cluster, of all samples.
    mean_confidence : array of shape (n_clusters,)
        Of the samples kept.
    about : dict
        Plain facts: ``n_samples`` (of all), ``is_image``, ``channels_last``, ``value_range`` (two numbers, of images),
        ``feature_names``, ``columns`` (of a table) and ``class_names`` (list or None), ``source`` (what the data were called),
        ``metrics`` (level -> name -> value, or None), ``versions``, ``seconds``, ``finished`` (ISO date).
    """

    index: NDArray[np.int64]
    values: NDArray[Any]
    codes: NDArray[np.float32]
    clusters: NDArray[np.int64]
    components: NDArray[np.int64]
    confidence: NDArray[np.float64]
    log_density: NDArray[np.float64]
    sizes: NDArray[np.int64]
    mean_confidence: NDArray[np.float64]
    about: dict[str, Any]
    truth: NDArray[np.int64] | None = None
    table: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.index)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file, whole or not at all."""
        tensors = {name: torch.from_numpy(np.ascontiguousarray(getattr(self, name))) for name in _required()}
        optional = {name: getattr(self, name) for name in ("truth", "table") if getattr(self, name) is not None}
        tensors |= {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in optional.items()}
        write_archive(path, KIND, self.about, tensors)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Snapshot:
        """Read it back; raises ModelFileError if the file is no snapshot."""
        archive = read_archive(path, kinds=(KIND,))
        arrays = {name: tensor.numpy() for name, tensor in archive.tensors.items()}
        missing = [name for name in _required() if name not in arrays]
        lengths = {len(arrays[name]) for name in _per_sample() if name in arrays}
        if missing or len(lengths) != 1:
            raise ModelFileError(f"{os.fspath(path)!r} is not a whole snapshot of a run. Fit again, or restore it from a copy.")
        return cls(**arrays, about=archive.document)


def take_snapshot(
    model: DIVA,
    source: Source,
    *,
    name: str,
    labels: Sequence[Any] | NDArray[Any] | None = None,
    feature_names: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> Snapshot:
    """Look at the samples that a model was fitted on.

    Parameters
    ----------
    model : DIVA
        Just fitted: its ``labels_`` are those of the source.
    source : Source
    name : str
        What the data are called.
    labels : sequence of length n_samples, optional
        True classes, to be compared with what was found.
    feature_names : sequence of str, optional
    columns : sequence of str, optional
        Of the table the samples came from; fewer than features if some hold vectors.
    """
    index = choose_samples(len(source), source.take(np.arange(1)).nbytes)
    part = PartOfSource(source, index)
    said = model.assign(part)
    codes, scores = said.codes, said.scores
    proba = model.mixture_.predict_proba(codes)
    positions = model.mixture_.cluster_of_component()[model.component_labels_]  # not ids, which may have gaps
    clusters, components = positions[index], model.component_labels_[index]
    confidence = proba[np.arange(len(index)), clusters]
    scaling = model.pipeline_.scaling
    about: dict[str, Any] = {
        "n_samples": len(source),
        "is_image": scaling.is_image,
        "channels_last": scaling.channels_last,
        "value_range": list(scaling.value_range) if scaling.is_image else None,
        "feature_names": None if feature_names is None else [str(feature) for feature in feature_names],
        "columns": None if columns is None else [str(column) for column in columns],
        "class_names": None,
        "source": name,
        "metrics": None,
        "versions": {"diva": __version__, "python": platform.python_version()}
        | {package: metadata.version(package) for package in ("torch", "numpy", "scikit-learn")},
        "seconds": float(sum(record.seconds for record in model.history_)),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    truth = table = None
    if labels is not None:
        names, classes = np.unique(np.asarray(labels), return_inverse=True)
        about["class_names"] = [str(n) for n in names.tolist()]
        levels = {"clusters": positions, "components": model.component_labels_}
        about["metrics"] = {level: Agreement(classes, found).as_row() for level, found in levels.items()}
        table = np.zeros((len(names), model.n_clusters_), dtype=np.int64)
        np.add.at(table, (classes, positions), 1)
        truth = classes[index].astype(np.int64)
    sums = np.bincount(clusters, weights=confidence, minlength=model.n_clusters_)
    kept = np.bincount(clusters, minlength=model.n_clusters_)
    return Snapshot(
        index=index,
        values=_storable(part.take(np.arange(len(index)))),
        codes=codes,
        clusters=clusters,
        components=components,
        confidence=confidence,
        log_density=scores,
        sizes=np.bincount(positions, minlength=model.n_clusters_),
        mean_confidence=np.divide(sums, kept, out=np.zeros_like(sums), where=kept > 0),
        about=about,
        truth=truth,
        table=table,
    )


def _storable(values: NDArray[Any]) -> NDArray[Any]:
    """In a dtype that files of this project hold."""
    return values if values.dtype in (np.uint8, np.float32) else values.astype(np.float32)


def choose_samples(n_samples: int, bytes_each: int, most: int = MOST_SAMPLES) -> NDArray[np.int64]:
    """Numbers of samples evenly spread over all, as many as a snapshot keeps."""
    n_kept = max(1, min(n_samples, most, MOST_BYTES // max(1, bytes_each)))
    return np.unique(np.linspace(0, n_samples - 1, n_kept).round().astype(np.int64))


def _per_sample() -> Sequence[str]:
    return ("index", "values", "codes", "clusters", "components", "confidence", "log_density")


def _required() -> Sequence[str]:
    return (*_per_sample(), "sizes", "mean_confidence")
