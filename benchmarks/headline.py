"""The table of the README: diva beside what else a user would take, from recorded rows; what nobody has measured says so.

DIVA's rows come from ``python -m benchmarks digits mnist fashion har reuters``, all others from ``zoo`` and ``zoo_large``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from benchmarks.bench_zoo import group_of, read_rows
from benchmarks.recording import RESULTS, Row, table
from benchmarks.sections import ROOT, write_section

PAGE = ROOT / "README.md"
ACCURACY = "one-to-one accuracy"
NOT_MEASURED = "not measured"
ZOO = "125 small problems"
# title, name in the rows of the zoo, file of DIVA's rows, what DeepDPM's authors published
DATA = (
    ("digits", "digits", "diva_digits", ""),
    ("MNIST, 10,000", "mnist", "diva_mnist", ".93"),
    ("Fashion-MNIST, 10,000", "fashion_mnist", "diva_fashion", ".63"),
    ("HAR", "har", "diva_har", ""),
    ("Reuters R8", "reuters_r8", "diva_reuters", ""),
    ("Reuters-10k", "reuters10k", "diva_reuters10k", ".83"),
    (ZOO, "", "", ""),
)
METHODS = {
    "DIVA": "DIVA",
    "DPMixture": "DPMixture()",
    "k-means": "k-means, told K",
    "HDBSCAN": "HDBSCAN()",
    "UMAP": "UMAP + HDBSCAN",
    "BGM": "BayesianGaussianMixture(30)",
}
ABOUT = """\
One-to-one accuracy (each cluster may stand for one class; classes were shown to none) and the time of one fit on a processor
with two cores, means over seeds. Only k-means is told the number of clusters. Parameters are the defaults, but for DIVA on
MNIST (15 epochs) and on Fashion-MNIST (15 epochs, batches of 64, `augmentation="photo"`).
"""
NOTES = """\
DIVA is scored on test images of MNIST and Fashion-MNIST that it has not seen, others on the samples that they were fitted on.
On the larger data others have one seed, k-means up to three, and their seconds were taken beside other work. Rows of 2026-11-19
([which](docs/benchmarks.md)) are of another, faster machine than the others: compare seconds within a row only where both are.
DeepDPM: Table 1 of [the paper](https://arxiv.org/abs/2305.14067). Points that HDBSCAN leaves out count as one cluster; after
UMAP its clusters have a hundredth of the samples at least. "over": stopped after that time.
"""
RECORDED_AS = {"DIVA": "DIVA", "k-means": "k-means, true K"}


def rows_of_page() -> list[Row]:
    """A row for each data set."""
    recorded = list(read_rows().values())
    rows = []
    for title, name, file, published in DATA:
        mine = [row for row in recorded if (group_of(row["data"]) != "larger" if title == ZOO else row["data"] == name)]
        row: Row = {"data": title}
        for key, shown in METHODS.items():
            other_name = RECORDED_AS.get(key)  # in the file that DIVA's rows are in
            found = [r for r in deep_rows(file) if r["method"] == other_name]
            row[shown] = cell_of(found or [r for r in mine if r["method"] == key])
        rows.append(row | {"DeepDPM, published": published or "-"})
    return rows


def deep_rows(file: str) -> list[Row]:
    """The rows of a data set that DIVA was measured on, beside some others."""
    path = RESULTS / f"{file}.json"
    if not file or not path.exists():
        return []
    return [row | {"data": file} for row in json.loads(path.read_text())["rows"]]


def cell_of(rows: Sequence[Row]) -> str:
    """Mean accuracy over data sets, each the mean over its seeds, and how long one fit took, or that none came to an end."""
    if not rows:
        return NOT_MEASURED
    scored = [row for row in rows if ACCURACY in row]
    seconds = shown_seconds(float(np.mean([row["seconds"] for row in scored or rows])))
    if not scored:
        return f"over {seconds}"
    sets = {row["data"]: [other for other in scored if other["data"] == row["data"]] for row in scored}
    accuracy = np.mean([np.mean([row[ACCURACY] for row in mine]) for mine in sets.values()])
    return f"{accuracy:.3f}".lstrip("0") + f", {seconds}"


def shown_seconds(seconds: float) -> str:
    """Seconds as people say them."""
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s" if seconds < 180 else f"{seconds / 60:.0f} min"


def section() -> list[str]:
    """The table and what it is about."""
    return [*ABOUT.splitlines(), "", *table(rows_of_page()), "", *NOTES.splitlines()]


def main() -> None:
    write_section(PAGE, "headline", section())
