"""The plots of the page, as plotly takes them: plain data, drawn by the page's script."""

from __future__ import annotations

from typing import Any

import numpy as np

from diva.report.findings import Findings, Tree
from diva.report.lineage import Flow, Link
from diva.report.palette import (
    CLUSTERS,
    COMPONENTS,
    FIRST_BOUND,
    INK,
    NEUTRAL,
    PHASE_TINTS,
    SECOND_BOUND,
    colour_of,
    faded,
    symbol_of,
)
from diva.report.words import clipped, count, escape, percent

Plot = dict[str, Any]  # {"data": [...], "layout": {...}}, and if need be {"narrow": what differs on a phone}

MOST_BARS = 40  # features in the reconstruction panel
MOST_CELLS = 900  # of a contingency table that is annotated


def sizes_plot(findings: Findings) -> Plot:
    """Samples and mean confidence of each cluster, as bars side by side."""
    clusters = findings.filled
    largest = max(1, *(c.size for c in clusters), 0)
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": [f"cluster {c.number}" for c in clusters],
        "marker": {"color": [c.colour for c in clusters]},
        "textposition": "outside",
        "cliponaxis": False,
    }
    sizes = {
        "x": [c.size for c in clusters],
        "text": [f"{c.size:,}" for c in clusters],
        "hovertemplate": "%{y}: %{x:,} samples<extra></extra>",
    }
    confidence = {
        "x": [round(c.confidence, 4) for c in clusters],
        "text": [percent(c.confidence).replace("over ", ">") for c in clusters],
        "xaxis": "x2",
        "hovertemplate": "%{y}: mean confidence %{x:.3f}<extra></extra>",
    }
    return {
        "data": [bar | sizes, bar | confidence],
        "layout": {
            "height": rows_height(len(clusters), 24 if len(clusters) <= 40 else 15),
            "yaxis": {
                "autorange": "reversed",
                "automargin": True,
                "type": "category",
                "dtick": 1,
                "ticklen": 4,
                "showgrid": False,
            }
            | ({} if len(clusters) <= 40 else {"tickfont": {"size": 10}}),
            "xaxis": {
                "title": {"text": "samples"},
                "domain": [0, 0.52],
                "range": [0, 1.25 * largest],
                "nticks": 5,
            },
            "xaxis2": {
                "title": {"text": "mean confidence"},
                "domain": [0.58, 1],
                "range": [0, 1.4],
                "tickvals": [0, 0.5, 1],
                "ticktext": ["0 %", "50 %", "100 %"],
            },
            "bargap": 0.25,
        },
        "narrow": {
            "xaxis": {"domain": [0, 0.48], "range": [0, 1.6 * largest], "nticks": 3},
            "xaxis2": {
                "domain": [0.6, 1],
                "range": [0, 2.1],
                "tickvals": [0, 1],
                "ticktext": ["0", "100 %"],
                "title": {"text": "confidence"},
            },
        },
    }


def contingency_plot(findings: Findings) -> Plot:
    """Classes against clusters as a heat map with the counts written in."""
    table, names, order = findings.snapshot.table, findings.class_names, findings.table_order
    assert table is not None
    assert names is not None
    counts = table[:, order]
    share = counts / np.maximum(counts.sum(axis=0), 1)
    heat: dict[str, Any] = {
        "type": "heatmap",
        "z": np.round(share, 3).tolist(),
        "x": [str(k) for k in order],
        "y": list(range(len(names))),
        "customdata": [
            [f"class {escape(name)}<br>{count(n, 'sample')}" for n in line]
            for name, line in zip(names, counts.tolist(), strict=True)
        ],
        "colorscale": [[0, "#ffffff"], [0.25, "#c9dcec"], [0.6, "#5b97c5"], [1, "#0b4d80"]],
        "zmin": 0,
        "zmax": 1,
        "xgap": 1,
        "ygap": 1,
        "showscale": False,
        "hovertemplate": "cluster %{x}, %{customdata}<br>%{z:.1%} of the cluster<extra></extra>",
    }
    is_small = counts.size <= MOST_CELLS
    if is_small:
        text = [[f"{n:,}" if n else "" for n in line] for line in counts.tolist()]
        heat |= {"text": text, "texttemplate": "%{text}", "textfont": {"size": 12}}
    return {
        "data": [heat],
        "layout": {
            "height": rows_height(len(names), 30 if is_small else 11),
            "xaxis": {"title": {"text": "cluster"}, "type": "category", "automargin": True, "showgrid": False, "tickangle": 0},
            "yaxis": {
                "title": {"text": "class", "standoff": 8},
                "tickvals": list(range(len(names))),
                "ticktext": [escape(clipped(name, 24)) for name in names],
                "range": [len(names) - 0.5, -0.5],
                "automargin": True,
                "showgrid": False,
                "ticklen": 4,
                "tickfont": {"size": 13 if is_small else 9},
            },
        },
    }


def tree_plot(findings: Findings, tree: Tree) -> Plot:
    """The dendrogram, leaves at the left, branches in the colour of their cluster."""
    paths: dict[int | None, tuple[list[float | None], list[float | None]]] = {}
    for across, down, cluster in tree.lines:
        xs, ys = paths.setdefault(cluster, ([], []))
        xs += [round(across[0], 4), round(across[1], 4), None]
        ys += [*down, None]
    branches = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": xs,
            "y": ys,
            "line": {"color": NEUTRAL if cluster is None else colour_of(cluster), "width": 1.5 if cluster is None else 2.5},
            "hoverinfo": "skip",
        }
        for cluster, (xs, ys) in sorted(paths.items(), key=lambda item: item[0] is not None)
    ]
    clusters = [int(findings.cluster_of[k]) for k in tree.leaves]
    names = [findings.component_name(k) for k in tree.leaves]
    leaves = {
        "type": "scatter",
        "mode": "markers",
        "x": [tree.start] * len(names),
        "y": list(range(len(names))),
        "marker": {"color": [colour_of(c) for c in clusters], "size": 9, "symbol": [symbol_of(c) for c in clusters]},
        "text": [
            f"component {name}<br>cluster {cluster}<br>{count(int(findings.component_sizes[k]), 'sample')}"
            for name, cluster, k in zip(names, clusters, tree.leaves, strict=True)
        ],
        "hovertemplate": "%{text}<extra></extra>",
        "cliponaxis": False,
    }
    is_small = len(names) <= 40
    cut = {"type": "line", "x0": tree.cut, "x1": tree.cut, "y0": 0, "y1": 1, "yref": "paper"}
    note = {"x": tree.cut, "y": 1, "yref": "paper", "text": "cut here", "showarrow": False, "yanchor": "bottom"}
    return {
        "data": [*branches, leaves],
        "layout": {
            "height": rows_height(len(names), 22 if is_small else 14),
            "margin": {"t": 26},
            "hovermode": "closest",
            "xaxis": {
                "title": {"text": "distance"},
                "range": [tree.start - 0.02 * (1 - tree.start), 1 + 0.03 * (1 - tree.start)],
            },
            "yaxis": {
                "tickvals": list(range(len(names))),
                "ticktext": [f"{name} in {cluster}" for name, cluster in zip(names, clusters, strict=True)],
                "range": [len(names) - 0.4, -0.6],
                "automargin": True,
                "showgrid": False,
                "ticklen": 4,
                "tickfont": {"size": 12 if is_small else 9},
            },
            "shapes": [cut | {"line": {"dash": "dot", "width": 1.5, "color": INK}}],
            "annotations": [note | {"font": {"size": 12}}],
        },
    }


def epochs_plot(findings: Findings) -> Plot:
    """K with births and merges above, the bound below, phases shaded."""
    curves = findings.curves
    epochs = curves.epochs
    line = {"type": "scatter", "mode": "lines+markers" if len(epochs) <= 12 else "lines", "x": epochs, "connectgaps": False}
    data: list[dict[str, Any]] = [
        line | {"y": values, "name": name, "line": {"color": colour, "shape": "hv"}, "hovertemplate": "%{y} " + name}
        for name, values, colour in (("components", curves.components, COMPONENTS), ("clusters", curves.clusters, CLUSTERS))
        if any(v is not None for v in values)
    ]
    data += [
        {
            "type": "scatter",
            "mode": "markers",
            "name": moves.name,
            "x": moves.epochs,
            "y": moves.levels,
            "marker": {
                "symbol": moves.symbol,
                "color": moves.colour,
                "size": [min(8 + 2 * n**0.5, 20) for n in moves.counts],
                "line": {"color": "#fff", "width": 1},
            },
            "customdata": moves.counts,
            "hovertemplate": "%{customdata} " + moves.name,
        }
        for moves in (curves.births, curves.removals)
        if moves.epochs
    ]
    data += [
        line
        | {
            "y": [None if v is None else float(f"{v:.6g}") for v in values],
            "name": name,
            "line": {"color": colour},
            "yaxis": "y2",
            "hovertemplate": "%{y:.2f}",
        }
        for name, values, colour in (
            ("bound", curves.bound, FIRST_BOUND),
            ("bound on validation data", curves.validation_bound, SECOND_BOUND),
        )
        if any(v is not None for v in values)
    ]
    rectangle = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "line": {"width": 0}}
    label = {"y": 1, "yref": "paper", "showarrow": False, "yanchor": "bottom", "xanchor": "left"}
    return {
        "data": data,
        "layout": {
            "height": 470,
            "hovermode": "x unified",
            "showlegend": True,
            "margin": {"t": 26, "b": 86},
            "legend": {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
            "xaxis": {
                "title": {"text": "epoch", "standoff": 4},
                "anchor": "y2",
                "range": [epochs[0] - 0.5, epochs[-1] + 0.5],
                "showgrid": False,
                "hoverformat": "d",
            }
            | ({"dtick": 1} if len(epochs) <= 12 else {}),
            "yaxis": {"title": {"text": "K"}, "domain": [0.47, 1], "range": [0, 1.15 * curves.top], "automargin": True},
            "yaxis2": {
                "title": {"text": "bound per sample"},
                "domain": [0, 0.41],
                "automargin": True,
                "range": findings.bound_range,
            },
            "shapes": [
                rectangle | {"x0": first - 0.5, "x1": last + 0.5, "fillcolor": PHASE_TINTS.get(phase, "#f0f0f0")}
                for phase, first, last in findings.phases
            ],
            "annotations": [
                label | {"x": first - 0.5, "text": escape(phase), "font": {"size": 12, "color": "#52606d"}}
                for phase, first, _ in findings.phases
            ],
        },
        "narrow": {"height": 540, "margin": {"t": 26, "b": 166}},
    }


def flow_plot(findings: Findings, flow: Flow) -> Plot:
    """The flow diagram of a lineage: bands and nodes as shapes, names beside them, what happened on pointing at them."""
    nodes = flow.nodes
    colour = [findings.colour_of_component(node.component) for node in nodes]
    bands = [
        {
            "type": "path",
            "path": _band(nodes[link.source].x, link.y0, nodes[link.target].x, link.y1, link.height),
            "fillcolor": faded(colour[link.target], 0.32),
            "line": {"width": 0},
        }
        for link in flow.links
    ]
    width = 5  # pixels on either side
    stems = [
        {
            "type": "rect",
            "xsizemode": "pixel",
            "xanchor": node.x,
            "x0": -width,
            "x1": width,
            "y0": node.y - node.height / 2,
            "y1": node.y + node.height / 2,
            "fillcolor": shade,
            "line": {"width": 0},
        }
        for node, shade in zip(nodes, colour, strict=True)
    ]
    names = [
        {"x": node.x, "y": node.y, "text": str(node.component), "showarrow": False, "font": {"size": 12}}
        | ({"xanchor": "left", "xshift": 4} if node.is_end else {"xanchor": "right", "xshift": -4})
        for node in nodes
        if node.is_end or node.time == 0
    ]
    told = [(node.x, node.y, f"component {node.component}, leads to {node.value:,.0f} samples") for node in nodes]
    for link in flow.links:
        source, target = nodes[link.source], nodes[link.target]
        middle = (link.y0 + link.y1 + link.height) / 2
        told.append(((source.x + target.x) / 2, middle, _what_happened(link, source.component, target.component)))
    pointers = {
        "type": "scatter",
        "mode": "markers",
        "x": [round(x, 4) for x, _, _ in told],
        "y": [round(y, 4) for _, y, _ in told],
        "text": [text for _, _, text in told],
        "marker": {"size": 12, "opacity": 0},
        "hovertemplate": "%{text}<extra></extra>",
        "cliponaxis": False,
    }
    bare = {"showgrid": False, "showticklabels": False, "showline": False, "ticks": ""}
    return {
        "data": [pointers],
        "layout": {
            "height": max(110, 21 * max(len(flow.ends), 3) + 30),
            "margin": {"t": 8, "b": 8, "l": 34, "r": 38},
            "hovermode": "closest",
            "xaxis": bare | {"range": [0, 1]},
            "yaxis": bare | {"range": [1, 0]},
            "shapes": [*bands, *stems],
            "annotations": names,
        },
    }


def _band(x0: float, y0: float, x1: float, y1: float, height: float) -> str:
    """Outline of a band from left to right, in the coordinates of the plot."""
    half = (x0 + x1) / 2
    there = f"M{x0:.4f},{y0:.4f} C{half:.4f},{y0:.4f} {half:.4f},{y1:.4f} {x1:.4f},{y1:.4f}"
    below0, below1 = y0 + height, y1 + height
    back = f"L{x1:.4f},{below1:.4f} C{half:.4f},{below1:.4f} {half:.4f},{below0:.4f} {x0:.4f},{below0:.4f} Z"
    return f"{there} {back}"


def errors_plot(findings: Findings) -> Plot:
    """How much of each feature reconstruction loses, the worst first."""
    errors = findings.feature_errors
    order = np.argsort(-errors, kind="stable")[:MOST_BARS]
    widest = max(0.2, float(errors.max()))
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(order))),
        "x": [round(float(errors[j]), 4) for j in order],
        "text": [percent(float(errors[j])) for j in order],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": COMPONENTS},
        "hovertemplate": "%{text} of the variance lost<extra></extra>",
    }
    return {
        "data": [bars],
        "layout": {
            "height": rows_height(len(order), 24),
            "bargap": 0.25,
            "xaxis": {
                "title": {"text": "share of the variance that is lost"},
                "tickformat": ".0%",
                "range": [0, 1.2 * widest],
                "nticks": 6,
            },
            "yaxis": {
                "tickvals": list(range(len(order))),
                "ticktext": [escape(clipped(findings.feature_names[j])) for j in order],
                "range": [len(order) - 0.4, -0.6],
                "automargin": True,
                "ticklen": 4,
                "showgrid": False,
            },
        },
        "narrow": {
            "xaxis": {"range": [0, 1.5 * widest], "nticks": 4, "title": {"text": "variance lost"}},
            "yaxis": {"ticktext": [escape(clipped(findings.feature_names[j], 18)) for j in order]},
        },
    }


def rows_height(n: int, each: int) -> int:
    """Height of a plot with so many rows."""
    return max(150, each * n + 74)


def _what_happened(link: Link, source: int, target: int) -> str:
    record = link.record
    when = "in the final mixture" if record.epoch is None else f"in epoch {record.epoch + 1}"
    who = (
        f"{target} went on"
        if source == target
        else f"{target} born from {source}"
        if record.move == "birth"
        else f"{source} went into {target}"
    )
    return f"{who}: {record.move} {when}, gain {record.gain:,.3g}"
