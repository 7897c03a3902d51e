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


def draw_births_and_merges(rows: Sequence[Row]) -> Any:
    """Components, and how many were born and merged, after every epoch."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure, panels = _panels(len(names))
    for name, panel in zip(names, panels, strict=True):
        mine = [row for row in rows if row["data"] == name]
        epochs = [row["epoch"] for row in mine]
        panel.bar(epochs, [row["births"] for row in mine], color=COLOURS[2], label="births")
        gone = [-(row["merges"] + row["deletions"]) for row in mine]
        panel.bar(epochs, gone, color=COLOURS[1], label="merges and deletions")
        panel.plot(epochs, [row["K"] for row in mine], color=COLOURS[0], marker=".", label="components")
        panel.step(epochs, [row["digits"] for row in mine], color="grey", linestyle=":", where="mid", label="digits")
        panel.axhline(0, color="black", linewidth=0.5)
        panel.set_title(name, fontsize=9)
        panel.set_xlabel("epoch")
    panels[0].legend(fontsize=7)
    return figure


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


def _panels(n: int) -> tuple[Any, Any]:
    mpl.rcParams["svg.hashsalt"] = "diva"
    figure = figures.Figure(figsize=(3.1 * n, 2.8), layout="constrained")
    return figure, figure.subplots(1, n, squeeze=False)[0]


DRAWN: dict[str, Callable[[Sequence[Row]], Any]] = {
    "births_and_merges": draw_births_and_merges,
    "incremental": draw_incremental,
}


def draw(name: str, rows: Sequence[Row]) -> Path:
    """Write the picture of a benchmark's rows."""
    buffer = io.BytesIO()
    DRAWN[name](rows).savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    path = FOLDER / f"{name}.png"
    write_atomically(path, buffer.getvalue())
    return path
