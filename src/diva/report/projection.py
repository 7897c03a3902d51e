"""A map of the codes: two numbers for each, neighbours beside each other. Kept with the run, since it takes a while."""

from __future__ import annotations

import hashlib
import warnings
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from diva.exceptions import ModelFileError
from diva.runs.archive import read_arrays, write_archive

KIND = "DIVA projection"
PROJECTION = "projection.safetensors"
METHODS = {"tsne": "t-SNE", "umap": "UMAP", "pca": "principal components", "codes": "the codes themselves"}


@dataclass(frozen=True, eq=False)
class Projection:
    """Where each code lies on the map."""

    points: NDArray[np.float32]  # (m, 2)
    method: str  # a key of ``METHODS``


def project(codes: NDArray[np.float32], method: str = "auto") -> Projection:
    """Make a map of codes (m, D).

    The method "codes" shows their first two numbers as they are; "auto" does so if there are no more, else takes UMAP if
    umap-learn is installed, or t-SNE.
    """
    method = _resolve(codes, method)
    spread = codes - codes.mean(axis=0)
    if method == "codes" or len(codes) < 4 or not np.abs(spread).max() > 0:  # too few, or all the same: nothing to arrange
        flat = np.zeros((len(codes), 2), dtype=np.float32)
        flat[:, : min(2, codes.shape[1])] = codes[:, :2]
        return Projection(flat, "codes")
    if codes.shape[1] < 2:
        spread = np.column_stack([spread, np.zeros_like(spread)])
    if method == "pca":
        points = PCA(n_components=2, random_state=0).fit_transform(spread)
    elif method == "umap":
        with threadpool_limits(1, user_api="openmp"):  # its compiler leaves another number of threads behind than it found
            points = _umap(spread)
    else:
        perplexity = min(30.0, (len(codes) - 1) / 3)
        points = TSNE(perplexity=perplexity, init="pca", learning_rate="auto", random_state=0).fit_transform(spread)
    return Projection(points.astype(np.float32), method)


def _umap(codes: NDArray[np.float32]) -> NDArray[np.float32]:
    """UMAP of codes (m, D), (m, 2). Neighbours are given to it: to look for them itself it would first compile its search."""
    n_neighbors = min(15, len(codes) - 1)
    distances, neighbours = NearestNeighbors(n_neighbors=n_neighbors).fit(codes).kneighbors(codes)  # each among its own
    with warnings.catch_warnings():  # it warns of parts of its own that are not installed, and that new codes have no place
        warnings.simplefilter("ignore")
        from umap import UMAP  # type: ignore[import-not-found, import-untyped, unused-ignore]

        reducer = UMAP(
            n_neighbors=n_neighbors, random_state=0, n_jobs=1, precomputed_knn=(neighbours, distances.astype(np.float32), None)
        )
        return np.asarray(reducer.fit_transform(codes))


def project_run(run: Path, codes: NDArray[np.float32], method: str = "auto") -> Projection:
    """Make the map of a run's codes, or take the one that was made before."""
    method = _resolve(codes, method)
    digest = hashlib.sha256(repr(codes.shape).encode() + np.ascontiguousarray(codes).tobytes())
    path, about = run / PROJECTION, {"method": method, "mark": digest.hexdigest()}
    with suppress(OSError, ModelFileError):  # a damaged map is made anew
        _, document, arrays = read_arrays(path, kinds=(KIND,))
        if document == about and arrays["points"].shape == (len(codes), 2):
            return Projection(arrays["points"], method)
    made = project(codes, method)
    if made.method != "codes":
        with suppress(OSError):  # a folder that cannot be written to can still be looked at
            write_archive(path, KIND, about, {"points": made.points}, follow_links=False)
    return made


def _resolve(codes: NDArray[np.float32], method: str) -> str:
    choices = ("auto", *METHODS)
    if method not in choices:
        raise ValueError(f"projection should be one of {', '.join(map(repr, choices))}, got {method!r}.")
    if method == "umap" and find_spec("umap") is None:
        raise ValueError("projection='umap' needs the package umap-learn. Install it, or take 'tsne'.")
    if method != "auto":
        return method
    if codes.shape[1] <= 2:
        return "codes"
    return "umap" if find_spec("umap") is not None else "tsne"
