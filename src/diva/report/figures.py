"""The plots of a report as files for papers."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from diva.atomic import write_atomically
from diva.report.draw_matplotlib import STYLE, to_matplotlib
from diva.report.findings import Findings, read_findings
from diva.report.marks import Plot
from diva.report.plots import (
    contingency_plot,
    differences_plot,
    epochs_plot,
    errors_plot,
    flow_plot,
    gallery_plot,
    map_plot,
    pairs_plot,
    sizes_plot,
    tree_plot,
)

FORMATS = ("png", "svg", "pdf", "eps")


def write_figures(
    run: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    formats: Sequence[str] = ("png", "svg"),
    *,
    projection: str = "auto",
) -> list[Path]:
    """Draw what a run found, one file for each figure and format; needs matplotlib.

    Parameters
    ----------
    run : str or path-like
        Folder of a finished run with a summary, as ``diva fit`` makes it.
    folder : str or path-like
        Where the files go; made if need be.
    formats : sequence of str
        Of "png" (300 dots per inch), "svg", "pdf" and "eps".
    projection : {"auto", "tsne", "umap", "pca", "codes"}
        How codes are laid out on the map.

    Returns
    -------
    list of Path
        The files written: map, gallery, sizes, tree, epochs, lineage, contingency, reconstruction, as far as the run has them.
    """
    unknown = [f for f in formats if f not in FORMATS]
    if unknown or isinstance(formats, str):
        raise ValueError(f"formats should be a sequence of {', '.join(map(repr, FORMATS))}, got {formats!r}.")
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("Figures need matplotlib. Install it with: pip install 'diva-clustering[plot]'") from error
    findings = read_findings(run, projection=projection)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(STYLE):
        for name, plot in _plots(findings):
            figure = to_matplotlib(plot)
            for form in formats:
                buffer = io.BytesIO()
                dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
                figure.savefig(buffer, format=form, dpi=300, bbox_inches="tight", pad_inches=0.03, metadata=dated)
                path = target / f"{name}.{form}"
                write_atomically(path, buffer.getvalue())
                written.append(path)
    return written


def _plots(findings: Findings) -> Iterator[tuple[str, Plot]]:
    """Name of a file and its plot, for all that the run has."""
    summary, snapshot = findings.summary, findings.snapshot
    for level in findings.levels:
        yield f"map-{level.word}", map_plot(findings, level)
    yield "gallery", (gallery_plot if findings.is_image else differences_plot)(findings)
    yield "sizes", sizes_plot(findings)
    if summary.tree is not None:
        yield "tree", tree_plot(findings, summary.tree)
    if summary.epochs:
        yield "epochs", epochs_plot(findings)
    for i, flow in enumerate(findings.flows.values()):
        yield "lineage" if i == 0 else f"lineage-{i + 1}", flow_plot(findings, flow)
    if snapshot.table is not None and findings.class_names:
        yield "contingency", contingency_plot(findings)
    if snapshot.reconstructions is not None:
        yield "reconstruction", pairs_plot(findings)
    elif snapshot.feature_errors is not None:
        yield "reconstruction", errors_plot(findings)
