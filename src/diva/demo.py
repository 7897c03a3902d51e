"""``python -m diva.demo``: cluster scikit-learn's digits without saying how many kinds there are, and show what was found."""

from __future__ import annotations

import base64
import html
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from diva.estimator import DIVA
from diva.metrics import Agreement
from diva.training import EpochRecord

FOLDER = Path("demo")
N_SHOWN = 5  # pictures of each sort in a row: typical members, least typical ones, draws

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>diva: {title}</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }}
 table {{ border-collapse: collapse; margin: 1rem 0; }} td, th {{ padding: .25rem .9rem .25rem 0; text-align: right; }}
 th {{ border-bottom: 1px solid #999; font-weight: 600; }} img {{ max-width: 100%; }} .note {{ color: #555; }}
</style>
<h1>{title}</h1>
<p>{summary}</p>
<img src="data:image/png;base64,{picture}"
 alt="One cluster a row: typical members, least typical members, and samples drawn from the model">
<h2>Clusters</h2>
{clusters}
<h2>Agreement with the true digits</h2>
<p class="note">The labels were not used to find the clusters.</p>
{metrics}
</html>
"""


@dataclass(frozen=True)
class Cluster:
    """One row of what was found."""

    number: int
    size: int
    n_components: int
    confidence: float
    mostly: str
    members: NDArray[np.int64]  # positions in the data, most typical first
    drawn: NDArray[Any]  # images that the model made


def main() -> int:
    """Fit, print, draw."""
    digits = load_digits()
    images = digits.images
    print(f"Clustering {len(images):,} handwritten digits of 8 x 8 pixels; neither labels nor their number are given.")
    start = time.perf_counter()
    model = DIVA(random_state=0, callbacks=[show_progress]).fit(images)
    seconds = time.perf_counter() - start
    if sys.stdout.isatty():
        print("\r" + " " * 72 + "\r", end="")

    clusters = describe(model, images, digits.target)
    levels = {"clusters": model.labels_, "components": model.component_labels_}
    metrics = [{"level": name} | Agreement(digits.target, labels).as_row() for name, labels in levels.items()]
    rows = [
        {
            "cluster": c.number,
            "samples": c.size,
            "components": c.n_components,
            "mean confidence": c.confidence,
            "mostly": c.mostly,
        }
        for c in clusters
    ]
    summary = (
        f"Found {model.n_clusters_} clusters made of {model.n_components_} Gaussian components "
        f"in {seconds:.1f} seconds, starting from one."
    )
    print(summary, "", *text_table(rows), "", *text_table(metrics), sep="\n")

    FOLDER.mkdir(exist_ok=True)
    picture = FOLDER / "digits.png"
    draw(clusters, images, picture)
    report = FOLDER / "report.html"
    report.write_text(
        PAGE.format(
            title="Handwritten digits",
            summary=html.escape(summary),
            picture=base64.b64encode(picture.read_bytes()).decode(),
            clusters=html_table(rows),
            metrics=html_table(metrics),
        ),
        encoding="utf-8",
    )
    print(f"\nOpen {report} to see the members of every cluster.")
    return 0


def show_progress(model: DIVA, record: EpochRecord) -> None:
    """One line that is written over and over; nothing where nobody watches."""
    if sys.stdout.isatty():
        size = f"{record.n_components} components" if record.n_clusters is None else f"{record.n_clusters} clusters"
        print(f"\r{f'epoch {record.epoch + 1}, {record.phase}, {size}':72s}", end="", flush=True)


def describe(model: DIVA, images: NDArray[Any], classes: NDArray[Any]) -> list[Cluster]:
    """What is in each cluster, the largest first."""
    proba = model.predict_proba(images)
    density = model.score_samples(images)
    clusters = []
    for number in range(model.n_clusters_):
        members = np.flatnonzero(model.labels_ == number)
        if len(members) == 0:
            continue
        kinds, counts = np.unique(classes[members], return_counts=True)
        top = counts.argmax()
        clusters.append(
            Cluster(
                number=number,
                size=len(members),
                n_components=len(np.unique(model.component_labels_[members])),
                confidence=float(proba[members, number].mean()),
                mostly=f"{kinds[top]} ({counts[top] / len(members):.0%})",
                members=members[np.argsort(-density[members], kind="stable")],
                drawn=model.sample(N_SHOWN, cluster=number, random_state=0)[0],
            )
        )
    return sorted(clusters, key=lambda cluster: -cluster.size)


def draw(clusters: list[Cluster], images: NDArray[Any], path: Path) -> None:
    """Every cluster in a row: typical members, the least typical ones, and draws of the model."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    n_columns = 3 * N_SHOWN + 3  # a label, and a gap after the first two sorts
    size = (0.6 * (n_columns + 1), 0.64 * len(clusters) + 0.7)
    figure, axes = plt.subplots(len(clusters), n_columns, figsize=size, squeeze=False)
    for ax in axes.flat:
        ax.axis("off")
    sorts = ("most typical", "least typical", "drawn from the model")
    starts = [1 + i * (N_SHOWN + 1) for i in range(len(sorts))]
    for row, cluster in zip(axes, clusters, strict=True):
        label = f"cluster {cluster.number}\n{cluster.size} samples"
        row[0].text(-0.5, 0.5, label, fontsize=8, va="center", ha="center", transform=row[0].transAxes)
        shown = (images[cluster.members[:N_SHOWN]], images[cluster.members[N_SHOWN:][-N_SHOWN:]], cluster.drawn)
        for start, pictures in zip(starts, shown, strict=True):
            for ax, picture in zip(row[start:], pictures, strict=False):
                ax.imshow(picture, cmap="gray_r", interpolation="nearest", vmin=0, vmax=images.max())
    for start, title in zip(starts, sorts, strict=True):
        axes[0, start + N_SHOWN // 2].set_title(title, fontsize=9, pad=8)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(figure)


def text_table(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as aligned text."""
    names = list(rows[0])
    cells = [names, *([_cell(row[n]) for n in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return ["  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in cells]


def html_table(rows: list[dict[str, Any]]) -> str:
    """Rows as an HTML table."""
    head = "".join(f"<th>{html.escape(n)}</th>" for n in rows[0])
    body = ("<tr>" + "".join(f"<td>{html.escape(_cell(v))}</td>" for v in row.values()) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def _cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
