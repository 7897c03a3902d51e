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
from sklearn.decomposition import PCA

from diva.metrics import Agreement
from diva.mixture import DPMixture

FOLDER = Path("demo")
N_CODES = 10  # principal components; the deep estimator will learn its codes instead
N_SHOWN = 14  # members in a row of the picture

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
<img src="data:image/png;base64,{picture}" alt="Real members of every cluster, one cluster a row, nearest the centre first">
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
    members: NDArray[np.int64]  # positions in the data, surest and most typical first


def main() -> int:
    """Fit, print, draw."""
    digits = load_digits()
    codes = PCA(N_CODES, random_state=0).fit_transform(digits.data)
    print(f"Clustering {len(codes):,} handwritten digits (8 x 8 pixels, {N_CODES} principal components); K is not given.")
    start = time.perf_counter()
    model = DPMixture(grouping="walk", random_state=0).fit(codes)
    seconds = time.perf_counter() - start

    clusters = describe(model, codes, digits.target)
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
    draw(clusters, digits.images, picture)
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


def describe(model: DPMixture, codes: NDArray[Any], classes: NDArray[Any]) -> list[Cluster]:
    """What is in each cluster, the largest first."""
    proba = model.predict_proba(codes)
    density = model.score_samples(codes)
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
            )
        )
    return clusters


def draw(clusters: list[Cluster], images: NDArray[Any], path: Path) -> None:
    """Members of every cluster, one cluster a row: typical ones, then the least typical."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    half = N_SHOWN // 2
    figure, axes = plt.subplots(
        len(clusters), N_SHOWN + 1, figsize=(0.62 * (N_SHOWN + 2), 0.66 * len(clusters) + 0.7), squeeze=False
    )
    for ax in axes.flat:
        ax.axis("off")
    for row, cluster in zip(axes, clusters, strict=True):
        label = f"cluster {cluster.number}\n{cluster.size} samples"
        row[0].text(-0.4, 0.5, label, fontsize=8, va="center", ha="center", transform=row[0].transAxes)
        shown = [*cluster.members[:half], *cluster.members[half:][-half:]]
        for ax, member in zip(row[1:], shown, strict=False):
            ax.imshow(images[member], cmap="gray_r", interpolation="nearest")
    for column, title in ((half // 2 + 1, "most typical"), (half + half // 2 + 1, "least typical")):
        axes[0, column].set_title(title, fontsize=9, pad=8)
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
