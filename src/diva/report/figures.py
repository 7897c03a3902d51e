"""The plots of a report as files for papers."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from diva.atomic import write_atomically
from diva.report import plots
from diva.report.draw_matplotlib import STYLE, to_matplotlib
from diva.report.draw_plotly import to_plotly
from diva.report.findings import Findings, naming_the_run, read_findings
from diva.report.marks import Plot

WHY_NOT = {
    "tree": "there is a single component, or components were not grouped",
    "history": "no epochs were kept",
    "lineage": "no component was born or merged",
}
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
    if isinstance(formats, str) or not set(formats) <= set(FORMATS):
        raise ValueError(f"formats should be a sequence of {', '.join(map(repr, FORMATS))}, got {formats!r}.")
    _check_matplotlib()
    import matplotlib

    with naming_the_run(run):
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


def draw(findings: Findings, kind: str, *, level: str = "cluster", backend: str = "auto") -> Any:
    """One plot as a figure of matplotlib or of plotly; what the findings do not have is a ValueError that says so."""
    backends = ("auto", "matplotlib", "plotly")
    if backend not in backends:
        raise ValueError(f"backend should be one of {', '.join(map(repr, backends))}, got {backend!r}.")
    plot = _plot_of(findings, kind, level)
    if backend == "plotly" or (backend == "auto" and find_spec("matplotlib") is None):
        from plotly.graph_objects import Figure

        drawn = to_plotly(plot)
        return Figure(drawn["data"], {"template": "simple_white", "showlegend": False} | drawn["layout"])
    _check_matplotlib()
    import matplotlib

    with matplotlib.rc_context(STYLE):
        return to_matplotlib(plot)


def _plot_of(findings: Findings, kind: str, level: str) -> Plot:
    if kind == "map":
        levels = {each.word: each for each in findings.levels}
        if level not in levels:
            raise ValueError(f"level should be one of {', '.join(map(repr, levels))} here, got {level!r}.")
        return plots.map_plot(findings, levels[level])
    named = dict(_plots(findings, with_maps=False))
    names = {"history": "epochs", "gallery": "gallery", "features": "gallery"}
    if (kind == "features") == findings.is_image and kind in ("features", "gallery"):
        raise ValueError("Images have a gallery, kind='gallery'; tables have features, kind='features'.")
    name = names.get(kind, kind)
    if name not in named:
        raise ValueError(f"There is nothing to draw for kind={kind!r}: {WHY_NOT.get(kind, 'the model has no such thing')}.")
    return named[name]


def _check_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise ImportError("Figures need matplotlib. Install it with: pip install 'diva-clustering[plot]'")


def _plots(findings: Findings, *, with_maps: bool = True) -> Iterator[tuple[str, Plot]]:
    """Name of a file and its plot, for all that the run has."""
    summary, snapshot = findings.summary, findings.snapshot
    for level in findings.levels if with_maps else ():
        yield f"map-{level.word}", plots.map_plot(findings, level)
    yield "gallery", (plots.gallery_plot if findings.is_image else plots.differences_plot)(findings)
    yield "sizes", plots.sizes_plot(findings)
    if summary.tree is not None:
        yield "tree", plots.tree_plot(findings, summary.tree)
    if summary.epochs:
        yield "epochs", plots.epochs_plot(findings)
    for i, flow in enumerate(findings.flows.values()):
        yield "lineage" if i == 0 else f"lineage-{i + 1}", plots.flow_plot(findings, flow)
    if snapshot.table is not None and findings.class_names:
        yield "contingency", plots.contingency_plot(findings)
    if findings.reconstructions is not None:
        yield "reconstruction", plots.pairs_plot(findings, findings.reconstructions)
    elif snapshot.feature_errors is not None:
        yield "reconstruction", plots.errors_plot(findings, snapshot.feature_errors)
