"""Write docs/benchmarks.md from the recorded rows, so that no figure in it is typed by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_zoo import METHODS, read_rows
from benchmarks.pictures import draw
from benchmarks.recording import RESULTS, Row, table

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

What diva reaches and costs beside what one would use instead. Every number is made from recorded rows by
`python -m benchmarks page`; `make bench` measures them anew, and `python -m benchmarks NAME` one of them. How the paper's own
evaluation comes out is on the page about its [reproduction](reproduction.md), each of 125 data sets on the page about
[many data sets](zoo.md).

Accuracy is one-to-one: a cluster stands for one class, and a class for one cluster. Where a method is *told K*, it is given the
true number of classes, which diva has to find. ± is the standard deviation over seeds.
"""
# the data that DIVA is measured on, and other results on the same data
ACCURACY = {
    "digits": ("Digits, 8 x 8", ("diva_digits",)),
    "mnist": ("MNIST, 10,000 images", ("diva_mnist", "diva_dec")),
    "fashion": ("Fashion-MNIST, 10,000 images", ("diva_fashion",)),
    "har": ("HAR, recomputed features", ("diva_har",)),
    "reuters": ("Reuters R8, tf-idf", ("diva_reuters",)),
}
DETAILS = {
    "How good: clusters of real data": [
        *(f"diva_{name}" for name in ("digits", "mnist", "mnist60k", "fashion", "har", "reuters", "dec", "paper")),
        "diva_noise",
        "alternatives",
        "calibration",
        "diva_ablation",
        "diva_threads",
    ],
    "Classes that appear over time": ["incremental", "novelty", "assignment", "small_batches", "stream_kills", "stream_long"],
    "The mixture alone": [
        "recovery",
        *(f"mixture_{name}" for name in ("noise", "grid", "embeddings", "codes", "restarts", "ablation")),
    ],
    "How fast, how large": [*("fit", "lap", "scale_n", "scale_k", "memory", "training_overhead", "training_literal", "report")],
}
TOLD = {"DEC": "DEC, told K", "k-means, true K": "k-means, told K"}
TOLD |= {"Gaussian mixture, diagonal, true K": "Gaussian mixture, told K"}
FACTS = ("date", "commit", "processor", "instructions", "python", "torch", "scikit-learn")


def main() -> None:
    lines = [*HEAD.splitlines(), *at_a_glance(), *pictures()]
    for title, names in DETAILS.items():
        documents = [(name, document) for name in names if (document := read(name)) is not None]
        if documents:
            lines += ["", f"## {title}"]
            for name, document in documents:
                lines += folded(name, document)
    PAGE.write_text("\n".join(lines) + "\n")
    print(f"wrote {PAGE}")


def read(name: str) -> dict[str, Any] | None:
    """A recorded document, if there is one."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


# --- at a glance


def at_a_glance() -> list[str]:
    """One line for every task: diva, and the best of what else was measured on it."""
    return ["", "## At a glance", "", *table([*accuracy_rows(), *zoo_rows(), *speed_rows()])]


def line(task: str, found: str, instead: str) -> Row:
    return {"task": task, "diva": found, "instead": instead}


def accuracy_rows() -> Iterator[Row]:
    for title, methods in accuracies().values():
        ours = methods["DIVA"]
        others = [f"{spread(values)} {name}" for name, (values, _) in methods.items() if name != "DIVA"]
        ks = sorted(set(ours[1]))
        k = f"K {ks[0]}" if len(ks) == 1 else f"K {ks[0]} to {ks[-1]}"
        yield line(f"{title}: accuracy", f"**{spread(ours[0])}** `DIVA`, {k} found", ", ".join(others) or "not measured here")


def accuracies() -> dict[str, tuple[str, dict[str, tuple[list[float], list[int]]]]]:
    """One-to-one accuracy and K of every seed, by data and method."""
    found = {}
    for key, (title, names) in ACCURACY.items():
        rows = [row for name in names if (document := read(name)) is not None for row in document["rows"]]
        rows += [row for row in (read("alternatives") or {"rows": []})["rows"] if row["data"] == key]
        methods: dict[str, tuple[list[float], list[int]]] = {}
        for row in rows:
            values, ks = methods.setdefault(TOLD.get(row["method"], row["method"]), ([], []))
            values.append(row["one-to-one accuracy"])
            ks.append(row["K"])
        if "DIVA" in methods:
            found[key] = (title, methods)
    return found


def zoo_values() -> dict[str, list[float]]:
    """Adjusted Rand index of every method on each data set of the zoo, the mean over seeds."""
    cells: dict[str, dict[str, list[float]]] = {}
    for row in read_rows().values():
        if row["data"].startswith(("shape-", "table-")):
            cells.setdefault(row["method"], {}).setdefault(row["data"], []).append(row.get("ARI", 0.0))
    order = [key for key in METHODS if key in cells]
    return {METHODS[key].title: [float(np.mean(values)) for values in cells[key].values()] for key in order}


def zoo_rows() -> Iterator[Row]:
    values = zoo_values()
    ours = values.pop(METHODS["DPMixture"].title, None)
    if ours is not None:
        others = sorted(((np.mean(found), name) for name, found in values.items()), reverse=True)
        instead = ", ".join(f"{mean:.3f} {name}" for mean, name in others)
        task = f"{len(ours)} published data sets: mean adjusted Rand index"
        yield line(task, f"**{np.mean(ours):.3f}** `DPMixture`", instead)


def speed_rows() -> Iterator[Row]:
    document = read("fit")
    if document is not None:
        seconds: dict[str, list[float]] = {}
        for row in document["rows"]:
            if row["threads"] == 1:
                seconds.setdefault(row["model"], []).append(row["seconds"])
        ours = seconds.pop("diva.DPMixture")
        others = ", ".join(f"{np.mean(values):.0f} s {name}" for name, values in seconds.items())
        yield line("100,000 x 16, 20 Gaussians: a whole fit, one thread", f"**{np.mean(ours):.1f} s** `DPMixture`", others)
    if (memory := read("memory")) is not None:
        row = memory["rows"][0]
        task = f"{row['n']:,} x 16 from a file of {row['file, MB']:.0f} MB: memory above the start"
        yield line(task, f"**{row['peak above that, MB']:.0f} MB** `DPMixture`, K {row['K found']} of 20", "not measured here")


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation over seeds."""
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


# --- pictures and details


def pictures() -> list[str]:
    """Spread over seeds, and over data sets."""
    seeds = draw("accuracy", [{"title": title, "methods": methods} for title, methods in accuracies().values()])
    zoo = draw("zoo_spread", [{"method": name, "values": values} for name, values in zoo_values().items()])
    return [
        *("", "One-to-one accuracy, a dot for every seed, a line at the mean:", ""),
        f"![One-to-one accuracy of every seed](images/{seeds.name})",
        *(
            "",
            "Adjusted Rand index on the data sets of the zoo, a dot for each, boxes from the first to the third quarter:",
            "",
        ),
        f"![Adjusted Rand index on every data set](images/{zoo.name})",
    ]


def folded(name: str, document: dict[str, Any]) -> list[str]:
    """All rows of a benchmark, folded away; what they come to stays in sight."""
    known = ", ".join(f"{fact} {document[fact]}" for fact in FACTS if fact in document)
    lines = ["", f"### {document['title']}", ""]
    lines += [line for note in document["notes"] for line in (note, "")]
    if name == "incremental":
        lines += [f"![{document['title']}](images/{draw(name, document['rows']).name})", ""]
    lines += ["<details markdown>", f"<summary>{len(document['rows'])} rows</summary>", ""]
    return [*lines, *table(document["rows"]), "", f"Measured: {known}.", "", "</details>"]


if __name__ == "__main__":
    main()
