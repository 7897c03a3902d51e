"""Real data for benchmarks and tests, from the folder $DIVA_DATA."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_digits


@dataclass(frozen=True)
class Labelled:
    """Training and test samples; the labels are for scoring only. Without a split, both are all of the data."""

    x: NDArray[Any]
    y: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]

    def first(self, n: int) -> Labelled:
        """Only the first n training samples."""
        return Labelled(self.x[:n], self.y[:n], self.x_test, self.y_test)


def folder() -> Path:
    """Where the data are; raises FileNotFoundError where $DIVA_DATA does not say."""
    name = os.environ.get("DIVA_DATA", "")
    if not name or not Path(name).is_dir():
        raise FileNotFoundError("Set DIVA_DATA to the folder that holds mnist, fashion_mnist, har_recomputed and reuters_r8.")
    return Path(name)


def _idx(path: Path, header: int) -> NDArray[np.uint8]:
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def load_idx(name: str) -> Labelled:
    """MNIST or Fashion-MNIST as published."""
    parts = []
    for part in ("train", "t10k"):
        parts.append(_idx(folder() / name / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28))
        parts.append(_idx(folder() / name / f"{part}-labels-idx1-ubyte.gz", 8))
    return Labelled(*parts)


def load_har() -> Labelled:
    """HAR, recomputed features: 10,411 x 561."""
    with np.load(folder() / "har_recomputed" / "har_recomputed.npz") as file:
        x, y = file["X"].astype(np.float32), file["y"]
    return Labelled(x, y, x, y)


def load_r8() -> Labelled:
    """Reuters R8: 7,674 x 2,000, tf-idf."""
    with np.load(folder() / "reuters_r8" / "reuters_r8_tfidf2000.npz") as file:
        parts = (file["data"], file["indices"].astype(np.int32), file["indptr"])
        x, y = sparse.csr_matrix(parts, file["shape"]).toarray().astype(np.float32), file["y"]
    return Labelled(x, y, x, y)


def load_8x8() -> Labelled:
    """Scikit-learn's digits: 1,797 x 8 x 8."""
    digits = load_digits()
    return Labelled(digits.images, digits.target, digits.images, digits.target)


LOADERS = {
    "digits": load_8x8,
    "mnist": lambda: load_idx("mnist"),
    "fashion_mnist": lambda: load_idx("fashion_mnist"),
    "har": load_har,
    "reuters_r8": load_r8,
}
