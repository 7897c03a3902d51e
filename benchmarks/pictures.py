"""Pictures of recorded rows, for the documentation: what a table of every epoch would hide."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import figure as figures

from benchmarks.recording import Row
from diva.atomic import write_atomically

FOLDER = Path(__file__).parent.parent / "docs" / "images"
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")


def draw_incremental(rows: Sequence[Row]) -> Any:
    """Accuracy on all digits so far, and on the first three, at the end of every stage: mean over seeds, and each seed."""
    figure, panels = _panels(2)
    for colour, variant in zip(COLOURS, dict.fromkeys(row["variant"] for row in rows), strict=False):
        for panel, column in zip(panels, ("one-to-one accuracy", "first three digits"), strict=True):
            stages = sorted({row["digits"] for row in rows})
            at = [[row[column] for row in rows if row["variant"] == variant and row["digits"] == n] for n in stages]
            panel.plot(stages, [np.mean(values) for values in at], color=colour, label=variant)
            for n, values in zip(stages, at, strict=True):
                panel.plot([n] * len(values), values, ".", color=colour, markersize=4)
            panel.set_title({"one-to-one accuracy": "all digits so far", "first three digits": "the first three"}[column])
            panel.set_xlabel("digits")
            panel.set_xticks(stages)
            panel.set_ylim(0, 1.02)
    panels[0].set_ylabel("one-to-one accuracy")
    panels[1].legend(fontsize=7, loc="lower left")  # nothing falls so low there
    return figure


def draw_accuracy(rows: Sequence[Row]) -> Any:
    """One-to-one accuracy of every seed, a panel for each data set."""
    figure = _figure(7.2, 2.6)
    panels = figure.subplots(1, len(rows), sharey=True, squeeze=False)[0]
    for row, panel in zip(rows, panels, strict=True):
        for x, (name, (values, _)) in enumerate(row["methods"].items()):
            colour = COLOURS[1] if name == "DIVA" else "#767676"
            offsets = np.linspace(-0.12, 0.12, len(values)) if len(values) > 1 else [0.0]
            panel.plot(x + np.asarray(offsets), values, "o", color=colour, ms=4, alpha=0.75, mew=0)
            panel.hlines(np.mean(values), x - 0.28, x + 0.28, color=colour, lw=1.6)
        names = [
            name.replace(", told K", "\ntold K").replace("Gaussian mixture", "GMM").replace("UMAP, then ", "UMAP,\n")
            for name in row["methods"]
        ]
        panel.set_xticks(range(len(names)), names, fontsize=6.5)
        panel.set(xlim=(-0.6, len(names) - 0.4), ylim=(0, 1.02))
        panel.set_title(row["title"].replace(", ", "\n", 1), fontsize=7.5, loc="left", fontweight="bold")
        _quiet(panel)
    panels[0].set_ylabel("one-to-one accuracy", fontsize=8)
    return figure


def draw_zoo_spread(rows: Sequence[Row]) -> Any:
    """Adjusted Rand index on every data set, a line for each method, the best mean on top."""
    figure = _figure(7.2, 2.8)
    panel = figure.subplots()
    ordered = sorted(rows, key=lambda row: float(np.mean(row["values"])))
    jitter = np.random.default_rng(0)
    for y, row in enumerate(ordered):
        colour = COLOURS[1] if row["method"].startswith("DPMixture") else "#767676"
        values = np.asarray(row["values"])
        panel.plot(values, y + jitter.uniform(-0.22, 0.22, len(values)), "o", color=colour, ms=2.5, alpha=0.35, mew=0)
        box = {"facecolor": "none", "edgecolor": colour, "linewidth": 1.0}
        line = {"color": colour, "linewidth": 1.0}
        panel.boxplot(
            values,
            positions=[y],
            vert=False,
            widths=0.6,
            showfliers=False,
            patch_artist=True,
            boxprops=box,
            medianprops={"color": colour, "linewidth": 2.0},
            whiskerprops=line,
            capprops=line,
            manage_ticks=False,
        )
        panel.text(1.03, y, f"mean {values.mean():.3f}", fontsize=7, va="center", color=colour)
    panel.set_yticks(range(len(ordered)), [row["method"] for row in ordered], fontsize=7)
    panel.set_xlim(min(-0.05, *(min(row["values"]) - 0.02 for row in rows)), 1.02)
    panel.set_xlabel("adjusted Rand index", fontsize=8)
    _quiet(panel, axis="x")
    return figure


def _figure(width: float, height: float) -> Any:
    mpl.rcParams["svg.hashsalt"] = "diva"
    return figures.Figure(figsize=(width, height), layout="constrained")


def _quiet(panel: Any, axis: str = "y") -> None:
    """Less ink."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis=axis, color="#e4e7eb", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(labelsize=7)


def _panels(n: int) -> tuple[Any, Any]:
    figure = _figure(3.1 * n, 2.8)
    return figure, figure.subplots(1, n, squeeze=False)[0]


DRAWN: dict[str, Callable[[Sequence[Row]], Any]] = {
    "accuracy": draw_accuracy,
    "incremental": draw_incremental,
    "zoo_spread": draw_zoo_spread,
}


def draw(name: str, rows: Sequence[Row]) -> Path:
    """Write the picture of a benchmark's rows."""
    buffer = io.BytesIO()
    DRAWN[name](rows).savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    path = FOLDER / f"{name}.png"
    write_atomically(path, buffer.getvalue())
    return path
