"""Plots as plotly takes them: plain data, drawn by the page's script."""

from __future__ import annotations

from html import escape
from typing import Any

from diva.report.marks import Area, Axis, Band, Bars, Heat, Line, Mark, Plot, Points, Rule, Span, Text
from diva.report.palette import INK, SHADES, faded
from diva.report.words import clipped

Drawn = dict[str, Any]  # {"data": [...], "layout": {...}}, and if need be {"narrow": what differs on a phone}

GAP = 0.06  # between areas, as a share of the plot
SOFT_INK = "#52606d"
BARE = {"showgrid": False, "showticklabels": False, "showline": False, "ticks": ""}


def to_plotly(plot: Plot) -> Drawn:
    """Translate a plot."""
    layout: Drawn = {"height": plot.height, "hovermode": "closest", "bargap": 0.25, "shapes": [], "annotations": []}
    narrow: Drawn = {}
    is_bare = all(area.x.hidden for area in plot.areas)
    layout["margin"] = {"t": 8, "b": 8, "l": 34, "r": 38} if is_bare else {}
    if plot.marks(Span) or any(rule.name for rule in plot.marks(Rule)):
        layout["margin"]["t"] = 26  # for names above
    if plot.legend:
        layout |= {"hovermode": "x unified", "showlegend": True}
        layout["legend"] = {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"}
        layout["margin"]["b"] = 86
        narrow |= {"height": plot.height + 70, "margin": layout["margin"] | {"b": 166}}
    drawn: Drawn = {"data": [], "layout": layout, "narrow": narrow}
    for i, area in enumerate(plot.areas):
        _add_area(drawn, plot, area, i)
    return drawn


def _add_area(drawn: Drawn, plot: Plot, area: Area, i: int) -> None:
    layout, narrow = drawn["layout"], drawn["narrow"]
    stacked = plot.columns == 1
    own = "" if i == 0 else str(i + 1)
    x, y = f"x{'' if stacked else own}", f"y{own if stacked else ''}"  # what is shared is drawn once
    start, end = _domain(plot, i)
    across = _axis(area.x, plot.height) | ({} if stacked else {"domain": [start, end]})
    down = _axis(area.y, plot.height) | ({"domain": [1 - end, 1 - start]} if stacked and len(plot.areas) > 1 else {})
    if stacked:
        across["anchor"] = y  # below the last area
    layout[_long(x)], layout[_long(y)] = across, down
    narrow |= _on_a_phone(area, _long(x), _long(y))
    for mark in area.marks:
        match mark:
            case Line() | Points() | Bars() | Heat():
                drawn["data"].append(_trace(mark) | {"xaxis": x, "yaxis": y})
            case Text():
                layout["annotations"].append(_text(mark) | {"xref": x, "yref": y})
            case Span() if i == 0:
                layout["shapes"].append(
                    {"type": "rect", "x0": mark.first, "x1": mark.last, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
                    | {"fillcolor": mark.colour, "line": {"width": 0}}
                )
                layout["annotations"].append(_above(mark.first, mark.name) | {"xanchor": "left"})
            case Rule():
                rule = {"type": "line", "x0": mark.x, "x1": mark.x, "y0": 0, "y1": 1, "xref": x, "yref": "paper"}
                layout["shapes"].append(rule | {"line": {"dash": "dot", "width": 1.5, "color": INK}})
                layout["annotations"].append(_above(mark.x, mark.name))
            case Band():
                layout["shapes"].append(_band(mark) | {"xref": x, "yref": y, "layer": "below", "line": {"width": 0}})


def _domain(plot: Plot, i: int) -> tuple[float, float]:
    """Where an area begins and ends, from left to right or from top to bottom."""
    total, gaps = sum(plot.shares), GAP * (len(plot.shares) - 1)
    ends = [sum(plot.shares[: j + 1]) / total * (1 - gaps) + GAP * j for j in range(len(plot.shares))]
    return ends[i] - plot.shares[i] / total * (1 - gaps), min(1.0, ends[i])


def _axis(axis: Axis, height: float) -> dict[str, Any]:
    if axis.hidden:
        return BARE | {"range": axis.range}
    drawn: dict[str, Any] = {"title": {"text": escape(axis.title), "standoff": 8}, "automargin": True, "nticks": 6}
    if axis.range is not None:
        drawn["range"] = axis.range
    if axis.ticks is not None:
        each = height / max(1, len(axis.ticks))
        drawn |= {"tickvals": [v for v, _ in axis.ticks], "ticktext": [escape(text) for _, text in axis.ticks], "tickangle": 0}
        drawn |= {"ticklen": 4, "showgrid": False, "tickfont": {"size": 12 if each >= 20 else 9}}
    if axis.percent:
        drawn["tickformat"] = ".0%"
    if axis.whole:
        drawn |= {"showgrid": False, "hoverformat": "d", "nticks": 12, "tickformat": "d"}
        if axis.range is not None and axis.range[1] - axis.range[0] <= 12:
            drawn["dtick"] = 1
    return drawn


def _on_a_phone(area: Area, x: str, y: str) -> dict[str, Any]:
    """What differs where there is little room: texts beside bars take more of it, names are shorter."""
    if not any(isinstance(mark, Bars) and mark.texts for mark in area.marks) or area.x.range is None:
        return {}
    low, high = area.x.range
    across: dict[str, Any] = {"range": [low, low + 1.45 * (high - low)], "nticks": 3}
    if area.x.ticks:
        across |= {"tickvals": [v for v, _ in area.x.ticks[::2]], "ticktext": [escape(text) for _, text in area.x.ticks[::2]]}
    return {x: across, y: {"ticktext": [escape(clipped(text, 18)) for _, text in area.y.ticks or ()]}}


def _trace(mark: Mark) -> dict[str, Any]:
    match mark:
        case Line():
            told = {"name": mark.name, "hovertemplate": "%{y}"} if mark.name else {"hoverinfo": "skip"}
            line = {"color": mark.colour, "width": 2 if mark.name else mark.width, "shape": "hv" if mark.steps else "linear"}
            curve = {"type": "scatter", "mode": "lines+markers" if mark.dots else "lines", "x": mark.x, "y": mark.y}
            return curve | {"line": line, "cliponaxis": bool(mark.name)} | told
        case Points():
            marker: dict[str, Any] = {"color": mark.colour, "symbol": mark.symbol, "size": mark.size, "opacity": mark.opacity}
            if mark.name:
                marker["line"] = {"color": "#fff", "width": 1}
            points = {"type": "scatter", "mode": "markers", "x": mark.x, "y": mark.y, "marker": marker, "name": mark.name}
            return points | _hover(mark.hover) | {"cliponaxis": False}
        case Bars():
            bars = {"type": "bar", "orientation": "h", "x": mark.values, "y": list(range(len(mark.values)))}
            beside = {"text": mark.texts, "textposition": "outside", "cliponaxis": False}
            return bars | beside | {"marker": {"color": mark.colours}} | _hover(mark.hover)
        case Heat():
            heat = {"type": "heatmap", "z": mark.shares, "zmin": 0, "zmax": 1, "colorscale": SHADES, "showscale": False}
            cells = {"text": mark.texts, "texttemplate": "%{text}", "textfont": {"size": 12}} if mark.texts else {}
            said = [[_lines(text) for text in row] for row in mark.hover]
            return heat | {"xgap": 1, "ygap": 1} | cells | {"customdata": said, "hovertemplate": "%{customdata}<extra></extra>"}
    raise TypeError(f"{type(mark).__name__} is no trace")


def _hover(said: Any) -> dict[str, Any]:
    if not said:
        return {"hoverinfo": "skip"}
    return {"customdata": [_lines(text) for text in said], "hovertemplate": "%{customdata}<extra></extra>"}


def _band(mark: Band) -> dict[str, Any]:
    half, low0, low1 = (mark.x0 + mark.x1) / 2, mark.y0 + mark.height, mark.y1 + mark.height
    there = f"M{mark.x0:.4f},{mark.y0:.4f} C{half:.4f},{mark.y0:.4f} {half:.4f},{mark.y1:.4f} {mark.x1:.4f},{mark.y1:.4f}"
    back = f"L{mark.x1:.4f},{low1:.4f} C{half:.4f},{low1:.4f} {half:.4f},{low0:.4f} {mark.x0:.4f},{low0:.4f} Z"
    return {"type": "path", "path": f"{there} {back}", "fillcolor": faded(mark.colour, 0.32)}


def _text(mark: Text) -> dict[str, Any]:
    side = {"left": {"xanchor": "right", "xshift": -6}, "right": {"xanchor": "left", "xshift": 6}}.get(mark.place, {})
    return {"x": mark.x, "y": mark.y, "text": escape(mark.text), "showarrow": False, "font": {"size": 12}} | side


def _above(x: float, name: str) -> dict[str, Any]:
    place = {"x": x, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False}
    return place | {"text": escape(name), "font": {"size": 12, "color": SOFT_INK}}


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def _long(axis: str) -> str:
    """Name of an axis in the layout: x2 -> xaxis2."""
    return f"{axis[0]}axis{axis[1:]}"
