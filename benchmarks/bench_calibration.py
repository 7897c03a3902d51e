"""Whether confidence means something: how often samples are in the majority class of their cluster, by how sure the model is.

Beside `predict_proba` stands the share of nearest neighbours, by codes, that are in the same cluster: what the report calls
stability. Neither sees labels; both are held against "in the cluster's majority class".
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from benchmarks.bench_diva import CASES
from benchmarks.recording import RESULTS, Row, record
from diva import DIVA, load

DATA = ("digits", "har", "mnist")
N_SAMPLES = 10_000
N_BINS = 15
N_NEIGHBOURS = 20


def main() -> None:
    """Fit DIVA with one seed; models in $DIVA_MODELS, named DATA-0.diva, are used again."""
    rows: list[Row] = []
    curves: dict[str, list[tuple[float, float, float]]] = {}
    for name in DATA:
        data = CASES[name].load()
        kept = Path(os.environ.get("DIVA_MODELS", "")) / f"{name}-0.diva"
        model = load(kept) if kept.is_file() else DIVA(random_state=0, **CASES[name].params).fit(data.x)
        x, y = data.x_test[:N_SAMPLES], data.y_test[:N_SAMPLES]
        said = model.assign(x)
        right = in_majority(said.positions, y)
        beside = NearestNeighbors(n_neighbors=N_NEIGHBOURS).fit(said.codes).kneighbors(return_distance=False)
        agreement = (said.positions[beside] == said.positions[:, None]).mean(axis=1)
        for what, confidence in (("predict_proba", said.confidence), ("neighbours", agreement)):
            curves[f"{name}, {what}"] = bins(confidence, right)
            error = expected_calibration_error(confidence, right)
            facts = {"majority accuracy": float(right.mean()), "mean confidence": float(confidence.mean())}
            rows.append({"data": name, "confidence": what, "K": model.n_clusters_, **facts, "calibration error": error})
            print(rows[-1], flush=True)
        record("calibration", "Expected calibration error, against being in the cluster's majority class", rows)
        draw(curves, RESULTS / "calibration.png")


def in_majority(clusters: NDArray[np.int64], classes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each sample is of the largest class of its cluster."""
    _, classes = np.unique(classes, return_inverse=True)
    table = np.zeros((clusters.max() + 1, classes.max() + 1), dtype=np.int64)
    np.add.at(table, (clusters, classes), 1)
    return np.asarray(table.argmax(axis=1)[clusters] == classes)


def bins(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> list[tuple[float, float, float]]:
    """Mean confidence, share that is right and share of all samples, of each bin that has samples."""
    place = np.clip((confidence * N_BINS).astype(int), 0, N_BINS - 1)
    return [
        (float(confidence[own].mean()), float(right[own].mean()), float(own.mean()))
        for own in (place == i for i in range(N_BINS))
        if own.any()
    ]


def expected_calibration_error(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Mean gap between confidence and share that is right, over bins of equal width (Naeini et al. 2015)."""
    return sum(share * abs(sure - rate) for sure, rate, share in bins(confidence, right))


def draw(curves: dict[str, list[tuple[float, float, float]]], path: Path) -> None:
    """A reliability plot: on the diagonal, confidence is what it says."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#8a8f98", linewidth=1, linestyle=":")
    for name, points in curves.items():
        sure, rate, share = zip(*points, strict=True)
        (line,) = axes.plot(sure, rate, linewidth=1, label=name, linestyle="--" if "neighbours" in name else "-")
        axes.scatter(sure, rate, [6 + 150 * s for s in share], color=line.get_color(), alpha=0.6, linewidths=0)
    axes.set(xlabel="confidence", ylabel="in the majority class of the cluster", xlim=(0, 1.02), ylim=(0, 1.02))
    axes.legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=150)
