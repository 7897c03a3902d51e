"""How large the report of 10,000 images is, and how long it takes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.datasets import LOADERS
from benchmarks.recording import Row, record
from diva import DIVA
from diva.data import ArraySource, LoadedData
from diva.report import write_figures, write_report
from diva.runs.summarize import summarize


def main() -> None:
    """The 10,000 test images of MNIST, with labels, after two epochs: a report does not ask how good the clusters are."""
    mnist = LOADERS["mnist"]()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        model = DIVA(n_epochs=2, random_state=0, run_dir=run).fit(mnist.x_test)
        summarize(model, LoadedData(ArraySource(mnist.x_test), mnist.y_test, name="mnist")).save(run)
        rows: list[Row] = []
        for what in ("with its projection", "projection there already"):
            start = time.perf_counter()
            report = write_report(run)
            seconds = time.perf_counter() - start
            rows.append({"report": what, "seconds": seconds, "megabytes": report.stat().st_size / 1e6})
            print(rows[-1], flush=True)
        start = time.perf_counter()
        figures = write_figures(run, run / "figures")
        size = sum(figure.stat().st_size for figure in figures) / 1e6
        rows.append(
            {"report": f"{len(figures)} figures, PNG and SVG", "seconds": time.perf_counter() - start, "megabytes": size}
        )
    record("report", "Report of the 10,000 test images of MNIST", rows)
