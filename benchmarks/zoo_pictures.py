"""Pictures of the zoo's flat data sets: the classes, what DPMixture found and what HDBSCAN found, side by side."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import figure as figures
from numpy.typing import NDArray
from PIL import Image
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.cluster import contingency_matrix

from benchmarks.bench_zoo import METHODS, NOISE, Cell, keep_labels, labels_file, load_problem
from benchmarks.pictures import FOLDER
from benchmarks.recording import Row
from diva.atomic import write_atomically

SHOWN = ("DPMixture", "HDBSCAN")
SETS_PER_ROW = 2
SETS_PER_PICTURE = 24
N_SHADES = 192  # of a picture, to keep its file small
GREY = (0.75, 0.75, 0.75)
FIRST = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#bcbd22", "#17becf")


@dataclass(frozen=True, eq=False)
class Panel:
    """Points and their groups."""

    title: str
    x: NDArray[Any]
    labels: NDArray[Any] | None  # None where there are none to show
    colours: Sequence[Any] = ()  # of every point


def draw(rows: dict[Cell, Row], folder: Path = FOLDER) -> list[Path]:
    """Write pictures of all flat data sets that have been recorded; there may be none."""
    names = flat_sets(rows)
    parts = [names[i : i + SETS_PER_PICTURE] for i in range(0, len(names), SETS_PER_PICTURE)]
    drawn = {folder / f"zoo-{i}.png": picture([panels_of(n, rows) for n in part]) for i, part in enumerate(parts, start=1)}
    for path in folder.glob("zoo-*.png"):
        path.unlink()
    for path, content in drawn.items():
        write_atomically(path, content)
    return list(drawn)


def flat_sets(rows: dict[Cell, Row]) -> list[str]:
    """Shapes of two columns."""
    return sorted({cell.data for cell, row in rows.items() if row["columns"] == 2 and cell.method in SHOWN})


def panels_of(name: str, rows: dict[Cell, Row]) -> list[Panel]:
    """The classes of a data set, then what each method shown made of it."""
    problem = load_problem(name)
    truth = by_size(problem.y)
    short = name.removeprefix("shape-")
    panels = [Panel(f"{short}: {problem.n_classes} classes", problem.x, truth, colours_of(truth))]
    for key in SHOWN:
        row = rows.get(Cell(name, key, 0), {"trouble": "not run"})
        if "trouble" in row:
            panels.append(Panel(f"{key}: no result", problem.x, None))
            continue
        labels = like(truth, labels_of(name, key))
        panels.append(Panel(f"{key}: {row['K']}, ARI {row['ARI']:.2f}", problem.x, labels, colours_of(labels)))
    return panels


def labels_of(name: str, key: str) -> NDArray[Any]:
    """Labels of seed 0 as they were kept by the benchmark; where they are gone, found anew."""
    path = labels_file(name, key)
    if not path.exists():
        print(f"{name}: fitting {key} anew, its labels are not in the cache")
        keep_labels(Cell(name, key, 0), METHODS[key].labels(load_problem(name), 0))
    with np.load(path) as arrays:
        return arrays["labels"]


def by_size(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Labels from 0, the largest group first."""
    _, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return np.argsort(np.argsort(-counts, kind="stable"))[numbers]


def like(truth: NDArray[np.int64], labels: NDArray[Any]) -> NDArray[np.int64]:
    """Clusters numbered as the classes that they agree with best, further ones after all classes; -1 stays."""
    is_noise = labels == NOISE
    numbered = np.full(len(labels), NOISE, dtype=np.int64)
    if is_noise.all():
        return numbered
    clusters, which = np.unique(labels[~is_noise], return_inverse=True)
    classes, counted = np.unique(truth[~is_noise]), contingency_matrix(truth[~is_noise], which)
    numbers = np.full(len(clusters), NOISE)
    rows, columns = linear_sum_assignment(counted, maximize=True)
    numbers[columns] = classes[rows]
    further = numbers == NOISE
    numbers[further] = truth.max() + 1 + np.arange(further.sum())
    numbered[~is_noise] = numbers[which]
    return numbered


def colours_of(labels: NDArray[np.int64]) -> list[Any]:
    """A colour for every point; grey for noise."""
    wanted = {label: GREY if label == NOISE else colour(int(label)) for label in np.unique(labels)}
    return [wanted[label] for label in labels]


def colour(i: int) -> Any:
    """Distinct colours first, then ones spread over all hues in three shades."""
    if i < len(FIRST):
        return FIRST[i]
    return colorsys.hls_to_rgb(0.618034 * i % 1, (0.3, 0.5, 0.7)[i % 3], 0.75)


def picture(sets: Sequence[Sequence[Panel]]) -> bytes:
    """Panels of many data sets, two sets a row, as a PNG of few shades."""
    n_rows, per_set = -(-len(sets) // SETS_PER_ROW), len(sets[0])
    figure = figures.Figure(figsize=(1.85 * SETS_PER_ROW * per_set, 2.0 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, SETS_PER_ROW * per_set, squeeze=False).reshape(-1, per_set)
    for line, panels in zip(axes, padded(sets, len(axes)), strict=True):
        for axis, panel in zip(line, panels or [None] * per_set, strict=True):
            draw_panel(axis, panel)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
    return few_shades(buffer.getvalue())


def padded(sets: Sequence[Sequence[Panel]], n: int) -> Iterator[Sequence[Panel] | None]:
    """As many as there are places, None where nothing is left."""
    yield from sets
    yield from [None] * (n - len(sets))


def draw_panel(axis: Any, panel: Panel | None) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    if panel is None:
        axis.set_axis_off()
        return
    axis.set_title(panel.title, fontsize=8, pad=2)
    for side in axis.spines.values():
        side.set_color("lightgrey")
    if panel.labels is not None:
        size = min(6.0, max(0.5, 3000 / len(panel.x)))
        axis.scatter(panel.x[:, 0], panel.x[:, 1], s=size, c=panel.colours, linewidths=0)


def few_shades(png: bytes) -> bytes:
    """The same picture with a palette, about a third of the size."""
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(N_SHADES, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    image.save(buffer, format="png", optimize=True)
    return buffer.getvalue()
