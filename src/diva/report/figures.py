"""The same findings as still pictures for papers, by matplotlib."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diva.atomic import write_atomically
from diva.models.diva import DIVA
from diva.report.findings import Findings, read_findings
from diva.report.lineage import Flow
from diva.report.palette import (
    CLUSTERS,
    COMPONENTS,
    FIRST_BOUND,
    INK,
    MARKERS,
    NEUTRAL,
    PHASE_TINTS,
    SECOND_BOUND,
    colour_of,
    symbol_of,
    text_on,
)
from diva.report.plots import MOST_BARS, MOST_CELLS
from diva.report.words import clipped

FORMATS = ("png", "svg", "pdf", "eps")
N_IN_STRIP = 8  # images of each sort in the gallery
MOST_ROWS = 24  # clusters in the gallery

STYLE: dict[Any, Any] = {
    "font.size": 8,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "text.parse_math": False,  # names of features may hold a dollar sign
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "diva",  # the same findings give the same file
    "pdf.fonttype": 42,
}


def write_figures(
    run: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    formats: Sequence[str] = ("png", "svg"),
    *,
    projection: str = "auto",
    model: DIVA | None = None,
) -> list[Path]:
    """Draw what a run found, one file for each figure and format; needs matplotlib.

    Parameters
    ----------
    run : str or path-like
        Folder of a finished run with a snapshot of its data, as ``diva fit`` makes it.
    folder : str or path-like
        Where the files go; made if need be.
    formats : sequence of str
        Of "png" (300 dots per inch), "svg", "pdf" and "eps".
    projection : {"auto", "tsne", "umap", "pca", "codes"}
        How codes are laid out on the map.
    model : DIVA, optional
        The fitted model, if it has networks of your own.

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
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Figures need matplotlib. Install it with: pip install 'diva-clustering[plot]'") from error
    findings = read_findings(run, projection=projection, model=model)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(STYLE):
        for name, draw in _figures(findings).items():
            figure = Figure(layout="constrained")
            draw(figure)
            for form in formats:
                buffer = io.BytesIO()
                dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
                figure.savefig(buffer, format=form, dpi=300, bbox_inches="tight", pad_inches=0.03, metadata=dated)
                path = target / f"{name}.{form}"
                write_atomically(path, buffer.getvalue())
                written.append(path)
    return written


def _figures(findings: Findings) -> dict[str, Callable[[Any], None]]:
    """Name of a file -> what draws it, for all that the run has."""
    drawn: dict[str, Callable[[Any], None]] = {
        f"map-{level.word}": lambda figure, level=level: draw_map(figure, findings, level)  # type: ignore[misc]
        for level in findings.levels
    }
    drawn["gallery"] = lambda figure: (draw_images if findings.is_image else draw_differences)(figure, findings)
    drawn["sizes"] = lambda figure: draw_sizes(figure, findings)
    if findings.tree is not None:
        drawn["tree"] = lambda figure: draw_tree(figure, findings)
    if findings.history:
        drawn["epochs"] = lambda figure: draw_epochs(figure, findings)
    for i, flow in enumerate(findings.flows.values()):
        drawn["lineage" if i == 0 else f"lineage-{i + 1}"] = lambda figure, flow=flow: draw_flow(figure, findings, flow)  # type: ignore[misc]
    if findings.snapshot.table is not None and findings.class_names:
        drawn["contingency"] = lambda figure: draw_contingency(figure, findings)
    drawn["reconstruction"] = lambda figure: (draw_pairs if findings.is_image else draw_errors)(figure, findings)
    return drawn


def draw_map(figure: Any, findings: Findings, level: Any) -> None:
    """Codes on a plane, the name of each group in its middle."""
    figure.set_size_inches(5, 4.2)
    axes = figure.subplots()
    points = findings.projection.points
    for group in np.unique(level.groups).tolist():
        x, y = points[level.groups == group].T
        style = {"color": colour_of(group), "marker": MARKERS[symbol_of(group)], "linewidths": 0}
        many = len(points) > 2000
        axes.scatter(x, y, s=2.5 if many else 9, alpha=0.7, rasterized=many, **style)
    for group, (x, y) in findings.middles(level).items():
        text = axes.text(
            x, y, clipped(level.names[group], 14), ha="center", va="center", fontsize=7, fontweight="bold", color=INK
        )
        text.set_bbox({"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1})
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def draw_images(figure: Any, findings: Findings) -> None:
    """A row for each cluster: nearest the centre, made by the model, least certain."""
    clusters = findings.filled[:MOST_ROWS]
    gap = 1
    n_columns = 3 * N_IN_STRIP + 2 * gap
    _, height, width = findings.model.pipeline_.scaling.input_shape
    side = 0.27
    figure.set_layout_engine("none")
    figure.set_size_inches(side * (n_columns + 2), side * height / width * len(clusters) + 0.3)
    grid = figure.add_gridspec(len(clusters), n_columns, wspace=0.08, hspace=0.08, left=0.1, right=1, bottom=0, top=0.93)
    for row, cluster in enumerate(clusters):
        sorts = (
            ("nearest the centre", findings.snapshot.values[cluster.nearest]),
            ("made by the model", cluster.drawn),
            ("least certain", findings.snapshot.values[cluster.least]),
        )
        for i, (title, values) in enumerate(sorts):
            start = i * (N_IN_STRIP + gap)
            for column in range(N_IN_STRIP):
                axes = figure.add_subplot(grid[row, start + column])
                axes.set_axis_off()
                if column < len(values):
                    axes.imshow(
                        findings.pictures(values[column : column + 1])[0],
                        cmap="gray",
                        vmin=0,
                        vmax=255,
                        interpolation="nearest",
                        aspect="auto",
                    )
                if column == 0 and i == 0:
                    box = {"facecolor": cluster.colour, "edgecolor": "none", "boxstyle": "round,pad=0.25"}
                    axes.text(
                        -0.5,
                        0.5,
                        str(cluster.number),
                        transform=axes.transAxes,
                        ha="right",
                        va="center",
                        bbox=box,
                        color=text_on(cluster.colour),
                        fontsize=7,
                    )
                if row == 0 and column == 0:
                    axes.text(0, 1.15, title, transform=axes.transAxes, ha="left", va="bottom")


def draw_differences(figure: Any, findings: Findings) -> None:
    """Bars for each cluster: what sets it apart, in standard deviations."""
    clusters = [c for c in findings.clusters if c.differences][:MOST_ROWS]
    n_columns = min(3, len(clusters))
    n_rows = -(-len(clusters) // n_columns)
    deepest = max(len(c.differences) for c in clusters)
    figure.set_size_inches(2.6 * n_columns + 0.4, n_rows * (0.17 * deepest + 0.5))
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True)
    for axes in grid.flat[len(clusters) :]:
        axes.set_axis_off()
    for axes, cluster in zip(grid.flat, clusters, strict=False):
        names = [clipped(d.feature, 22) for d in cluster.differences]
        axes.barh(range(len(names)), [d.by for d in cluster.differences], color=cluster.colour, height=0.7)
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.axvline(0, color=INK, linewidth=0.6)
        axes.set_title(f"cluster {cluster.number}", fontsize=8, loc="left")
    for axes in grid[-1]:
        axes.set_xlabel("difference in standard deviations")


def draw_sizes(figure: Any, findings: Findings) -> None:
    """Samples and mean confidence of each cluster."""
    clusters = findings.filled
    figure.set_size_inches(5, 0.17 * len(clusters) + 0.6)
    left, right = figure.subplots(1, 2, sharey=True)
    names = [str(c.number) for c in clusters]
    colours = [c.colour for c in clusters]
    left.barh(names, [c.size for c in clusters], color=colours, height=0.75)
    right.barh(names, [c.confidence for c in clusters], color=colours, height=0.75)
    left.set_ylim(len(clusters) - 0.4, -0.6)
    left.set(xlabel="samples", ylabel="cluster")
    right.set(xlabel="mean confidence", xlim=(0, 1))


def draw_tree(figure: Any, findings: Findings) -> None:
    """The dendrogram of components, coloured by cluster."""
    tree = findings.tree
    assert tree is not None
    figure.set_size_inches(5, 0.14 * len(tree.leaves) + 0.6)
    axes = figure.subplots()
    for x, y, cluster in tree.lines:
        axes.plot(x, y, color=NEUTRAL if cluster is None else colour_of(cluster), linewidth=0.8 if cluster is None else 1.4)
    axes.axvline(tree.cut, color=INK, linewidth=0.8, linestyle=":")
    clusters = [int(findings.cluster_of[k]) for k in tree.leaves]
    labels = [f"{findings.component_name(k)} in {c}" for k, c in zip(tree.leaves, clusters, strict=True)]
    axes.set_yticks(range(len(labels)), labels, fontsize=6)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set(xlabel="distance", ylabel="component in cluster", xlim=(tree.start, 1 + 0.02 * (1 - tree.start)))


def draw_epochs(figure: Any, findings: Findings) -> None:
    """K with births and merges above, the bound below."""
    curves = findings.curves
    figure.set_size_inches(5, 3.4)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    few = "o" if len(curves.epochs) <= 12 else None
    for axes in (upper, lower):
        for phase, first, last in findings.phases:
            axes.axvspan(first - 0.5, last + 0.5, color=PHASE_TINTS.get(phase, "#f0f0f0"), linewidth=0)
    for phase, first, _ in findings.phases:
        upper.annotate(
            phase, (first - 0.5, 1), (2, 2), xycoords=("data", "axes fraction"), textcoords="offset points", fontsize=7
        )
    for name, values, colour in (("components", curves.components, COMPONENTS), ("clusters", curves.clusters, CLUSTERS)):
        if any(v is not None for v in values):
            numbers = [np.nan if v is None else float(v) for v in values]
            upper.step(curves.epochs, numbers, where="post", color=colour, label=name, marker=few, markersize=3)
    for moves in (curves.births, curves.removals):
        if moves.epochs:
            sizes = [min(10 + 3 * n, 60) for n in moves.counts]
            upper.scatter(
                moves.epochs, moves.levels, s=sizes, marker=MARKERS[moves.symbol], color=moves.colour, label=moves.name
            )
    for name, bound, colour in (
        ("bound", curves.bound, FIRST_BOUND),
        ("bound on validation data", curves.validation_bound, SECOND_BOUND),
    ):
        if any(v is not None for v in bound):
            lower.plot(
                curves.epochs, [np.nan if v is None else v for v in bound], color=colour, label=name, marker=few, markersize=3
            )
    upper.set(ylabel="K", ylim=(0, 1.2 * curves.top), xlim=(curves.epochs[0] - 0.5, curves.epochs[-1] + 0.5))
    lower.set(ylabel="bound per sample", xlabel="epoch", ylim=findings.bound_range)
    lower.xaxis.get_major_locator().set_params(integer=True)
    if upper.get_legend_handles_labels()[0]:
        upper.legend(fontsize=7, ncols=2)
    if len(lower.lines) > 1:
        lower.legend(fontsize=7)


def draw_flow(figure: Any, findings: Findings, flow: Flow) -> None:
    """Where components came from, as bands from left to right."""
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path as Outline

    figure.set_size_inches(5.5, max(1.2, 0.15 * len(flow.ends)))
    axes = figure.subplots()
    nodes = flow.nodes
    codes = [Outline.MOVETO, *[Outline.CURVE4] * 3, Outline.LINETO, *[Outline.CURVE4] * 3, Outline.CLOSEPOLY]
    for link in flow.links:
        x0, x1 = nodes[link.source].x, nodes[link.target].x
        half, low0, low1 = (x0 + x1) / 2, link.y0 + link.height, link.y1 + link.height
        corners = [
            (x0, link.y0),
            (half, link.y0),
            (half, link.y1),
            (x1, link.y1),
            (x1, low1),
            (half, low1),
            (half, low0),
            (x0, low0),
        ]
        colour = findings.colour_of_component(nodes[link.target].component)
        axes.add_patch(PathPatch(Outline([*corners, corners[0]], codes), facecolor=colour, alpha=0.35, linewidth=0))
    for node in nodes:
        colour, thickness = findings.colour_of_component(node.component), 0.012
        corner = (node.x - thickness / 2, node.y - node.height / 2)
        axes.add_patch(Rectangle(corner, thickness, node.height, facecolor=colour, linewidth=0))
        if node.is_end:
            axes.text(node.x + 0.012, node.y, node.component, va="center", fontsize=6)
        elif node.time == 0:
            axes.text(node.x - 0.012, node.y, node.component, va="center", ha="right", fontsize=6)
    axes.set(xlim=(-0.04, 1.05), ylim=(1.01, -0.01))
    axes.set_axis_off()


def draw_contingency(figure: Any, findings: Findings) -> None:
    """Classes against clusters, with counts; the darker, the larger the share of the cluster."""
    table, names, order = findings.snapshot.table, findings.class_names, findings.table_order
    assert table is not None
    assert names is not None
    counts = table[:, order]
    share = counts / np.maximum(counts.sum(axis=0), 1)
    figure.set_size_inches(0.3 * counts.shape[1] + 1.2, 0.22 * counts.shape[0] + 0.6)
    axes = figure.subplots()
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    if counts.size <= MOST_CELLS:
        for (i, j), n in np.ndenumerate(counts):
            if n:
                axes.text(j, i, f"{n:,}", ha="center", va="center", fontsize=6, color="white" if share[i, j] > 0.55 else INK)
    axes.set_xticks(range(len(order)), [str(k) for k in order])
    axes.set_yticks(range(len(names)), [clipped(name, 24) for name in names])
    axes.set(xlabel="cluster", ylabel="class")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def draw_pairs(figure: Any, findings: Findings) -> None:
    """Samples above what the decoder makes of their codes."""
    index, made = findings.examples
    originals, copies = findings.pictures(findings.snapshot.values[index]), findings.pictures(made)
    height, width = originals.shape[1:3]
    figure.set_size_inches(0.4 * len(index), 0.82 * height / width)
    grid = figure.subplots(2, len(index), squeeze=False)
    for line, pictures in zip(grid, (originals, copies), strict=True):
        for axes, picture in zip(line, pictures, strict=True):
            axes.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axes.set_axis_off()


def draw_errors(figure: Any, findings: Findings) -> None:
    """Share of each feature's variance that reconstruction loses."""
    errors = findings.feature_errors
    order = np.argsort(-errors, kind="stable")[:MOST_BARS]
    figure.set_size_inches(4.5, 0.16 * len(order) + 0.6)
    axes = figure.subplots()
    axes.barh(range(len(order)), errors[order], color=COMPONENTS, height=0.75)
    axes.set_yticks(range(len(order)), [clipped(findings.feature_names[j]) for j in order], fontsize=7)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlabel("share of the variance that is lost")
