"""Plots as matplotlib draws them, for papers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from diva.report.marks import Area, Band, Bars, Heat, Line, Mark, Picture, Plot, Points, Rule, Span, Text
from diva.report.palette import INK, MARKERS, SHADES, text_on

PIXELS_PER_INCH = 140  # of a page, whose text is then about as large as that of a paper
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


def to_matplotlib(plot: Plot) -> Any:
    """Draw a plot on a new Figure; call it with ``STYLE`` set."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(plot.width / PIXELS_PER_INCH, plot.height / PIXELS_PER_INCH), layout="constrained")
    stacked = plot.columns == 1
    n_rows = -(-len(plot.areas) // plot.columns)
    shares = {"height_ratios" if stacked else "width_ratios": plot.shares}
    grid = figure.subplots(n_rows, plot.columns, squeeze=False, sharex="col" if n_rows > 1 else False, gridspec_kw=shares)
    for axes in grid.flat[len(plot.areas) :]:
        axes.set_axis_off()
    for i, (axes, area) in enumerate(zip(grid.flat, plot.areas, strict=False)):
        for mark in area.marks:
            DRAW[type(mark)](axes, mark)
        _set_axes(axes, area, is_lowest=i + plot.columns >= len(plot.areas))
    if n_rows == 1 and all(area.y == plot.areas[0].y for area in plot.areas):
        for axes in grid[0, 1:]:
            axes.set(yticks=[], ylabel="")
    if plot.legend and any(mark.name for mark in (*plot.marks(Line), *plot.marks(Points))):
        figure.legend(loc="outside lower center", fontsize=7, ncols=5)
    return figure


def _draw_line(axes: Any, mark: Line) -> None:
    x, y = (np.array(values, dtype=float) for values in (mark.x, mark.y))  # None becomes nan, a gap
    style = {"color": mark.colour, "linewidth": 0.6 * mark.width, "marker": "o" if mark.dots else None, "markersize": 3}
    style |= {"drawstyle": "steps-post" if mark.steps else "default", "solid_capstyle": "butt", "clip_on": bool(mark.name)}
    axes.plot(x, y, label=mark.name or None, **style)


def _draw_points(axes: Any, mark: Points) -> None:
    if mark.opacity > 0:  # otherwise they are only there to be pointed at
        style = {"color": mark.colour, "marker": MARKERS[mark.symbol], "linewidths": 0, "label": mark.name or None}
        size = np.square(0.45 * np.asarray(mark.size))
        axes.scatter(mark.x, mark.y, size, alpha=mark.opacity, rasterized=len(mark.x) > 200, clip_on=False, **style)


def _draw_bars(axes: Any, mark: Bars) -> None:
    bars = axes.barh(range(len(mark.values)), mark.values, color=mark.colours, height=0.75)
    if mark.texts:
        axes.bar_label(bars, mark.texts, padding=2, fontsize=7)


def _draw_picture(axes: Any, mark: Picture) -> None:
    place = (mark.x, mark.x + mark.width, mark.y + mark.height, mark.y)
    axes.imshow(mark.pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest", extent=place)


def _draw_span(axes: Any, mark: Span) -> None:
    axes.axvspan(mark.first, mark.last, color=mark.colour, linewidth=0)
    if axes.get_subplotspec().is_first_row():
        _name_above(axes, mark.first, mark.name, "left")


def _draw_rule(axes: Any, mark: Rule) -> None:
    axes.axvline(mark.x, color=INK, linewidth=0.8, linestyle=":" if mark.name else "-")
    _name_above(axes, mark.x, mark.name, "center")


def _draw_heat(axes: Any, mark: Heat) -> None:
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    shades = LinearSegmentedColormap.from_list("shades", SHADES)
    axes.imshow(mark.shares, cmap=shades, vmin=0, vmax=1, aspect="auto")
    for i, line in enumerate(mark.texts):
        for j, text in enumerate(line):
            axes.text(j, i, text, ha="center", va="center", fontsize=6, color=text_on(to_hex(shades(mark.shares[i][j]))))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_text(axes: Any, mark: Text) -> None:
    side = {"left": ("right", -5), "right": ("left", 5)}.get(mark.place, ("center", 0))
    box = None if mark.box is None else {"facecolor": mark.box, "edgecolor": "none", "boxstyle": "round,pad=0.2"}
    style = {"fontsize": 7, "fontweight": "bold" if mark.bold else "normal", "color": mark.colour, "bbox": box}
    place = {"textcoords": "offset points", "xytext": (side[1], 0), "ha": side[0], "va": "center", "annotation_clip": False}
    axes.annotate(mark.text, (mark.x, mark.y), **place, **style)


def _name_above(axes: Any, x: float, name: str, side: str) -> None:
    place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "xytext": (2 if side == "left" else 0, 2)}
    axes.annotate(name, (x, 1), ha=side, fontsize=7, **place)


def _draw_band(axes: Any, band: Band) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    half, low0, low1 = (band.x0 + band.x1) / 2, band.y0 + band.height, band.y1 + band.height
    there = [(band.x0, band.y0), (half, band.y0), (half, band.y1), (band.x1, band.y1)]
    back = [(band.x1, low1), (half, low1), (half, low0), (band.x0, low0)]
    curve = [Path.CURVE4] * 3
    outline = Path([*there, *back, there[0]], [Path.MOVETO, *curve, Path.LINETO, *curve, Path.CLOSEPOLY])
    axes.add_patch(PathPatch(outline, facecolor=band.colour, alpha=0.35, linewidth=0))


DRAW: dict[type[Mark], Callable[[Any, Any], None]] = {
    Line: _draw_line,
    Points: _draw_points,
    Bars: _draw_bars,
    Heat: _draw_heat,
    Band: _draw_band,
    Text: _draw_text,
    Picture: _draw_picture,
    Span: _draw_span,
    Rule: _draw_rule,
}


def _set_axes(axes: Any, area: Area, is_lowest: bool) -> None:
    if area.title:
        axes.set_title(area.title, fontsize=8, loc="left")
    if area.x.hidden and area.y.hidden:
        axes.set_axis_off()
    axes.set(xlim=area.x.range, ylim=area.y.range, ylabel=area.y.title, xlabel=area.x.title if is_lowest else "")
    for axis, described in ((axes.xaxis, area.x), (axes.yaxis, area.y)):
        if described.ticks is not None:
            axis.set_ticks([v for v, _ in described.ticks], [text for _, text in described.ticks], fontsize=7)
        if described.percent:
            axis.get_major_locator().set_params(nbins=4)
            axis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        if described.whole:
            axis.get_major_locator().set_params(integer=True)
