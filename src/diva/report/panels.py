"""The parts of the page: each is some HTML and the plots in it, as plotly takes them."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from diva.report.findings import Findings, FoundCluster
from diva.report.lineage import Flow, Link
from diva.report.palette import INK, NEUTRAL, colour_of, faded, symbol_of, text_on
from diva.report.pictures import make_sheet, png_uri

Plot = dict[str, Any]  # {"data": [...], "layout": {...}}

MOST_CLUSTERS = 60  # galleries on one page
MOST_BARS = 40  # features in the reconstruction panel
MOST_CELLS = 900  # of a contingency table that is annotated

PHASE_TINTS = {"warm-up": "#f4ecdb", "coupled": "#e6eef7", "sharpening": "#e7f3ec"}
METRICS = {
    "acc_one_to_one": (
        "One-to-one accuracy",
        "Each cluster stands for at most one class and each class for at most one cluster. The strictest, and the headline.",
    ),
    "acc_majority": (
        "Majority accuracy",
        "Each cluster takes its largest class, however often. Also known as purity; easy to raise with many clusters.",
    ),
    "acc_three_to_one": ("Three-to-one accuracy", "As one-to-one, but up to three clusters may share a class."),
    "nmi": (
        "Normalized mutual information (NMI)",
        "How much clusters tell about classes and classes about clusters, from 0 to 1.",
    ),
    "ari": (
        "Adjusted Rand index (ARI)",
        "Pairs of samples that both put together or both keep apart; 0 is chance, 1 is perfect.",
    ),
    "ami": ("Adjusted mutual information (AMI)", "Mutual information less what chance would give; 0 is chance, 1 is perfect."),
}


@dataclass(frozen=True)
class Panel:
    """A section of the page.

    Attributes
    ----------
    name : str
        Its anchor.
    title : str
    body : str
        HTML.
    plots : dict
        Id of an element in the body -> what plotly draws there.
    data : dict
        What the page's script needs besides.
    """

    name: str
    title: str
    body: str
    plots: dict[str, Plot] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)


def make_panels(findings: Findings) -> list[Panel]:
    """All parts that there is something to say for, in reading order."""
    makers: Sequence[Callable[[Findings], Panel | None]] = (
        map_panel,
        gallery_panel,
        sizes_panel,
        agreement_panel,
        tree_panel,
        epochs_panel,
        lineage_panel,
        reconstruction_panel,
        settings_panel,
    )
    return [panel for make in makers if (panel := make(findings)) is not None]


# --- at a glance


def summary(findings: Findings) -> str:
    """The sentence under the title."""
    model = findings.model
    return (
        f"{_count(model.n_clusters_, 'cluster')} found in {findings.n_samples:,} {escape(findings.what_samples_are)}. "
        "Nobody said how many there are."
    )


def tiles(findings: Findings) -> str:
    """What was found, as large numbers."""
    model, rows = findings.model, findings.metrics
    facts = [
        (f"{model.n_clusters_:,}", "clusters" if model.n_clusters_ != 1 else "cluster"),
        (f"{model.n_components_:,}", "components" if model.n_components_ != 1 else "component"),
        (f"{findings.n_samples:,}", "samples"),
        (_percent(findings.confidence), "mean confidence"),
        (f"{len(findings.history):,}", "epochs" if len(findings.history) != 1 else "epoch"),
        (_duration(findings.seconds), "of training"),
    ]
    if rows and (row := rows.get("clusters")):
        facts += [(_percent(row["acc_one_to_one"]), "one-to-one accuracy"), (f"{row['nmi']:.3f}", "NMI")]
    cells = "".join(f'<div class="tile"><dt>{name}</dt><dd>{value}</dd></div>' for value, name in facts)
    return f'<dl class="tiles">{cells}{_sparkline(findings)}</dl>'


def _sparkline(findings: Findings) -> str:
    """Components over epochs, as small as a word."""
    counts = [record.n_components or record.n_clusters or 0 for record in findings.history]
    if len(counts) < 2 or max(counts) == 0:
        return ""
    top = max(*counts, findings.model.n_components_)
    points = [(200 * i / (len(counts) - 1), 37 - 34 * count / top) for i, count in enumerate(counts)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    label = f"K over the epochs: from {counts[0]} to {counts[-1]}, at most {max(counts)}"
    return (
        f'<div class="tile wide"><dt>K over the epochs, at most {max(counts)}</dt><dd>'
        f'<svg viewBox="-3 0 206 40" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<polygon points="0,37 {line} 200,37" class="area"/>'
        f'<polyline points="{line}" class="line" vector-effect="non-scaling-stroke"/></svg></dd></div>'
    )


# --- the map


def map_panel(findings: Findings) -> Panel:
    """Codes on a plane, with a switch of what colours mean."""
    snapshot = findings.snapshot
    levels = map_levels(findings)
    buttons = "".join(
        f'<button type="button" data-level="{key}" aria-pressed="{str(i == 0).lower()}">{escape(level["title"])}</button>'
        for i, (key, level) in enumerate(levels.items())
    )
    points = findings.projection.points
    data: dict[str, Any] = {
        "x": _rounded(points[:, 0], 2),
        "y": _rounded(points[:, 1], 2),
        "index": snapshot.index.tolist(),
        "confidence": _rounded(snapshot.confidence, 3),
        "levels": levels,
        "sheet": None,
        "rows": None,
    }
    if findings.is_image:
        data["sheet"] = asdict(make_sheet(findings.pictures(snapshot.values)))
    else:
        which, values = findings.unusual
        used, place = np.unique(which, return_inverse=True)
        data["rows"] = {
            "names": [findings.feature_names[j] for j in used],
            "which": place.reshape(which.shape).tolist(),
            "values": [[float(f"{v:.4g}") for v in row] for row in values],
        }
    kept = "" if len(snapshot) == findings.n_samples else f" {len(snapshot):,} of {findings.n_samples:,} samples are shown."
    how = (
        "Both numbers of the codes."
        if findings.projection.method == "codes"
        else f"Codes of {snapshot.codes.shape[1]} numbers, laid out on a plane by {escape(findings.projection.title)}: "
        "neighbours are alike, distances between groups say little."
    )
    body = (
        f'<p class="note">{how}{kept} Point at a sample to see it, or use the arrow keys on the map.</p>'
        f'<div class="switch" role="group" aria-label="Colour the map by">{buttons}</div>'
        '<div class="map-frame"><div id="map" class="plot" tabindex="0" role="application" '
        'aria-label="Map of the codes. Arrow keys step through the samples."></div>'
        '<div id="card" hidden></div></div><p id="said" class="hidden" aria-live="polite"></p>'
    )
    return Panel("map-of-codes", "Map of the codes", body, data={"map": data})


def map_levels(findings: Findings) -> dict[str, Any]:
    """What points can be coloured by: groups with their names, colours, shapes and middles."""
    snapshot = findings.snapshot
    levels: dict[str, Any] = {
        "cluster": ("Clusters", snapshot.clusters, [str(c.number) for c in findings.clusters]),
        "component": (
            "Components",
            snapshot.components,
            [str(findings.component_name(k)) for k in range(findings.model.n_components_)],
        ),
    }
    if snapshot.truth is not None and findings.class_names:
        levels["class"] = ("True classes", snapshot.truth, findings.class_names)
    described = {}
    for key, (title, groups, names) in levels.items():
        present = np.unique(groups).tolist()
        described[key] = {
            "title": title,
            "word": key,
            "groups": groups.tolist(),
            "names": names,
            "colours": [colour_of(i) for i in range(len(names))],
            "symbols": [symbol_of(i) for i in range(len(names))],
            "middles": {i: _rounded(np.median(findings.projection.points[groups == i], axis=0), 2) for i in present},
        }
    return described


# --- the gallery


def gallery_panel(findings: Findings) -> Panel:
    """Every cluster: its typical, generated and least certain members, or what sets it apart."""
    shown = sorted(findings.clusters, key=lambda c: -c.size)[:MOST_CLUSTERS]
    shown = sorted(shown, key=lambda c: c.number)
    card = _image_card if findings.is_image else _table_card
    left_out = findings.model.n_clusters_ - len(shown)
    note = (
        "Real members nearest the centre of their cluster, new ones made by the model, and the members it is least certain of."
        if findings.is_image
        else "What sets each cluster apart: the mean of a feature less its mean over all samples, in standard deviations."
    )
    more = f' <span class="note">The {_count(left_out, "smallest cluster")} are left out.</span>' if left_out else ""
    cards = "".join(card(findings, cluster) for cluster in shown)
    kind = "images" if findings.is_image else "rows"
    return Panel("gallery", "Gallery of clusters", f'<p class="note">{note}{more}</p><div class="cards {kind}">{cards}</div>')


def _card_head(findings: Findings, cluster: FoundCluster) -> str:
    parts = [f"{cluster.size:,} samples ({_percent(cluster.share)})", f"confidence {_percent(cluster.confidence)}"]
    if len(cluster.components) > 1:
        parts.append(f"{len(cluster.components)} components")
    if cluster.mostly is not None:
        name, share = cluster.mostly
        parts.append(f"{_percent(share)} of class {escape(name)}")
    return f'<h3>{chip(cluster.number)} Cluster {cluster.number}</h3><p class="facts">{" · ".join(parts)}</p>'


def _image_card(findings: Findings, cluster: FoundCluster) -> str:
    snapshot = findings.snapshot

    def about(position: int) -> str:
        said = f"sample {snapshot.index[position]}, confidence {snapshot.confidence[position]:.3f}"
        if findings.class_names and snapshot.truth is not None:
            said += f", class {findings.class_names[snapshot.truth[position]]}"
        return said

    def strip(title: str, label: str, values: Any, titles: Sequence[str]) -> str:
        if len(values) == 0:
            return ""
        images = "".join(
            f'<img src="{png_uri(picture)}" alt="" title="{escape(said)}" loading="lazy">'
            for picture, said in zip(findings.pictures(values), titles, strict=True)
        )
        whole = f"{len(values)} {label} cluster {cluster.number}"
        return f'<h4>{title}</h4><div class="strip" role="img" aria-label="{whole}">{images}</div>'

    body = (
        strip(
            "Nearest the centre",
            "members nearest the centre of",
            snapshot.values[cluster.nearest],
            [*map(about, cluster.nearest)],
        )
        + strip("Made by the model", "generated members of", cluster.drawn, ["made by the model"] * len(cluster.drawn))
        + strip("Least certain", "least certain members of", snapshot.values[cluster.least], [*map(about, cluster.least)])
    )
    body = body or '<p class="note">No sample belongs to this cluster.</p>'
    return f'<article class="card" id="cluster-{cluster.number}">{_card_head(findings, cluster)}{body}</article>'


def _table_card(findings: Findings, cluster: FoundCluster) -> str:
    head = _card_head(findings, cluster)
    if not cluster.differences:
        return f'<article class="card">{head}<p class="note">No sample belongs to this cluster.</p></article>'
    widest = max(max(abs(d.by) for c in findings.clusters for d in c.differences), 1.0)
    rows = ""
    for d in cluster.differences:
        share = 50 * abs(d.by) / widest
        side = f"left:50%;width:{share:.1f}%" if d.by >= 0 else f"right:50%;width:{share:.1f}%"
        values = "".join(f"<td>{_short(v)}</td>" for v in (d.mean, d.overall, d.nearest, d.drawn, d.least))
        rows += (
            f'<tr><th scope="row">{escape(d.feature)}</th><td class="bar-cell"><span class="bar" '
            f'style="{side};background:{cluster.colour}"></span><span class="bar-text">{d.by:+.2f}</span></td>{values}</tr>'
        )
    nearest, least = (int(findings.snapshot.index[side[0]]) for side in (cluster.nearest, cluster.least))
    doubtful = ", ".join(
        f"{findings.snapshot.index[i]}&nbsp;({findings.snapshot.confidence[i]:.2f})" for i in cluster.least[:6]
    )
    return (
        f'<article class="card" id="cluster-{cluster.number}">{head}<div class="scroll"><table class="differences"><thead><tr>'
        '<th scope="col">Feature</th><th scope="col" class="bar-head">Difference</th><th scope="col">Mean here</th>'
        f'<th scope="col">Mean of all</th><th scope="col">Nearest the centre<br><small>sample {nearest}</small></th>'
        '<th scope="col">Made by<br>the model</th>'
        f'<th scope="col">Least certain<br><small>sample {least}</small></th></tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="note">Least certain samples, with their confidence: {doubtful}.</p></article>'
    )


# --- sizes


def sizes_panel(findings: Findings) -> Panel:
    """How large and how certain each cluster is."""
    clusters = findings.clusters
    names = [f"cluster {c.number}" for c in clusters]
    colours = [c.colour for c in clusters]
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "marker": {"color": colours},
        "showlegend": False,
        "cliponaxis": False,
    }
    plot: Plot = {
        "data": [
            bar
            | {
                "x": [c.size for c in clusters],
                "text": [f"{c.size:,}" for c in clusters],
                "textposition": "outside",
                "hovertemplate": "%{y}: %{x:,} samples<extra></extra>",
            },
            bar
            | {
                "x": [round(c.confidence, 4) for c in clusters],
                "text": [_percent(c.confidence) for c in clusters],
                "textposition": "inside",
                "insidetextanchor": "end",
                "textangle": 0,
                "xaxis": "x2",
                "hovertemplate": "%{y}: mean confidence %{x:.3f}<extra></extra>",
            },
        ],
        "layout": {
            "height": _rows_height(len(clusters), 24),
            "yaxis": {"autorange": "reversed", "automargin": True, "type": "category", "ticklen": 4},
            "xaxis": {
                "title": {"text": "samples"},
                "domain": [0, 0.56],
                "range": [0, 1.18 * max(c.size for c in clusters) or 1],
            },
            "xaxis2": {
                "title": {"text": "mean confidence"},
                "domain": [0.64, 1],
                "range": [0, 1],
                "tickformat": ".0%",
                "nticks": 4,
            },
            "bargap": 0.25,
        },
    }
    body = _plot_box("sizes-plot", f"Bar chart of the sizes and mean confidence of {_count(len(clusters), 'cluster')}")
    return Panel("sizes", "Sizes and confidence", body, {"sizes-plot": plot})


# --- agreement with labels


def agreement_panel(findings: Findings) -> Panel | None:
    """Metrics by their full names, and classes against clusters; None without labels."""
    table, names, metrics = findings.snapshot.table, findings.class_names, findings.metrics
    if table is None or names is None or metrics is None:
        return None
    levels = [level for level in ("clusters", "components") if level in metrics]
    head = "".join(f'<th scope="col">{level.capitalize()}</th>' for level in levels)
    rows = "".join(
        f'<tr><th scope="row">{title}<small>{words}</small></th>'
        + "".join(f"<td>{metrics[level][key]:.3f}</td>" for level in levels)
        + "</tr>"
        for key, (title, words) in METRICS.items()
        if all(key in metrics[level] for level in levels)
    )
    order = findings.table_order
    counts = table[:, order]
    share = counts / np.maximum(counts.sum(axis=0), 1)
    columns = [str(k) for k in order]
    is_annotated = counts.size <= MOST_CELLS
    cell_text = [[f"{n:,}" if n else "" for n in line] for line in counts.tolist()]
    heat: Plot = {
        "data": [
            {
                "type": "heatmap",
                "z": [_rounded(line, 3) for line in share],
                "x": columns,
                "y": list(range(len(names))),
                "customdata": [
                    [f"class {escape(name)}<br>{n:,} sample{'s' * (n != 1)}" for n in line]
                    for name, line in zip(names, counts.tolist(), strict=True)
                ],
                "colorscale": [[0, "#ffffff"], [0.25, "#c9dcec"], [0.6, "#5b97c5"], [1, "#0b4d80"]],
                "zmin": 0,
                "zmax": 1,
                "xgap": 1,
                "ygap": 1,
                "colorbar": {
                    "title": {"text": "share of<br>the cluster"},
                    "tickformat": ".0%",
                    "thickness": 10,
                    "outlinewidth": 0,
                },
                "hovertemplate": "cluster %{x}, %{customdata}<br>%{z:.1%} of the cluster<extra></extra>",
            }
            | ({"text": cell_text, "texttemplate": "%{text}", "textfont": {"size": 11}} if is_annotated else {})
        ],
        "layout": {
            "height": _rows_height(len(names), 28),
            "xaxis": {"title": {"text": "cluster"}, "type": "category", "automargin": True, "showgrid": False, "tickangle": 0},
            "yaxis": {
                "title": {"text": "class", "standoff": 8},
                "tickvals": list(range(len(names))),
                "ticktext": [escape(_clipped(name, 24)) for name in names],
                "range": [len(names) - 0.5, -0.5],
                "automargin": True,
                "showgrid": False,
            },
        },
    }
    body = (
        '<p class="note">Labels were only used to look at the result, never to find it.</p>'
        f'<div class="scroll"><table class="metrics"><thead><tr><th scope="col">Metric</th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div><h3>Classes against clusters</h3>"
        + _plot_box(
            "contingency-plot", f"Contingency table of {len(names)} classes and {len(columns)} clusters", counts.shape[1]
        )
    )
    return Panel("agreement", "Agreement with the labels", body, {"contingency-plot": heat})


# --- the tree


def tree_panel(findings: Findings) -> Panel | None:
    """How components were grouped; None if they were not."""
    tree = findings.tree
    if tree is None:
        return None
    paths: dict[int | None, tuple[list[float | None], list[float | None]]] = {}
    for across, down, cluster in tree.brackets:
        xs, ys = paths.setdefault(cluster, ([], []))
        xs += [round(v, 4) for v in across]
        ys += down
        xs.append(None)
        ys.append(None)
    lines = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": xs,
            "y": ys,
            "line": {"color": NEUTRAL if cluster is None else colour_of(cluster), "width": 1.5 if cluster is None else 2.5},
            "hoverinfo": "skip",
            "showlegend": False,
        }
        for cluster, (xs, ys) in sorted(paths.items(), key=lambda item: item[0] is not None)
    ]
    clusters = [int(findings.cluster_of[k]) for k in tree.leaves]
    sizes = np.bincount(findings.model.component_labels_, minlength=findings.model.n_components_)
    names = [findings.component_name(k) for k in tree.leaves]
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": [0] * len(names),
        "y": list(range(len(names))),
        "marker": {"color": [colour_of(c) for c in clusters], "size": 9, "symbol": [symbol_of(c) for c in clusters]},
        "text": [
            f"component {name}<br>cluster {cluster}<br>{sizes[k]:,} samples"
            for name, cluster, k in zip(names, clusters, tree.leaves, strict=True)
        ],
        "hovertemplate": "%{text}<extra></extra>",
        "showlegend": False,
        "cliponaxis": False,
    }
    plot: Plot = {
        "data": [*lines, points],
        "layout": {
            "height": _rows_height(len(names), 22 if len(names) <= 40 else 14),
            "hovermode": "closest",
            "xaxis": {"title": {"text": "distance, 1 / (1 + resolution up to which the join pays)"}, "range": [-0.02, 1.03]},
            "yaxis": {
                "tickvals": list(range(len(names))),
                "ticktext": [f"{name} · cluster {cluster}" for name, cluster in zip(names, clusters, strict=True)],
                "range": [len(names) - 0.4, -0.6],
                "automargin": True,
                "showgrid": False,
                "ticklen": 8,
                "tickfont": {"size": 12 if len(names) <= 40 else 9},
            },
            "shapes": [
                {
                    "type": "line",
                    "x0": tree.cut,
                    "x1": tree.cut,
                    "y0": 0,
                    "y1": 1,
                    "yref": "paper",
                    "line": {"dash": "dot", "width": 1.5, "color": INK},
                }
            ],
            "annotations": [
                {
                    "x": tree.cut,
                    "y": 1,
                    "yref": "paper",
                    "text": "cut here",
                    "showarrow": False,
                    "yanchor": "bottom",
                    "font": {"size": 12},
                }
            ],
        },
    }
    note = (
        "Components that samples wander between when they are moved a little join early. Left of the dotted line, "
        "joined components are one cluster."
    )
    body = f'<p class="note">{note}</p>' + _plot_box("tree-plot", f"Tree of {len(names)} components, coloured by cluster")
    return Panel("tree", "Tree of components and clusters", body, {"tree-plot": plot})


# --- epochs


def epochs_panel(findings: Findings) -> Panel | None:
    """K and the bound over epochs, with what changed K."""
    history = findings.history
    if not history:
        return None
    epochs = [record.epoch + 1 for record in history]
    components = [record.n_components or None for record in history]
    clusters = [record.n_clusters for record in history]
    mode = "lines+markers" if len(history) <= 2 else "lines"
    line = {"type": "scatter", "mode": mode, "x": epochs, "connectgaps": False}
    data: list[dict[str, Any]] = [
        line
        | {
            "y": components,
            "name": "components",
            "line": {"color": "#0072B2", "shape": "hv"},
            "hovertemplate": "%{y} components",
        },
    ]
    if any(c is not None for c in clusters):
        data.append(
            line
            | {"y": clusters, "name": "clusters", "line": {"color": "#D55E00", "shape": "hv"}, "hovertemplate": "%{y} clusters"}
        )
    for name, symbol, colour, count in (
        ("births", "triangle-up", "#009E73", [r.births for r in history]),
        ("merges and deletions", "triangle-down", "#882255", [r.merges + r.deletes for r in history]),
    ):
        moved = [i for i, n in enumerate(count) if n]
        if moved:
            level = [components[i] or 0 for i in moved]
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [epochs[i] for i in moved],
                    "y": level,
                    "marker": {
                        "symbol": symbol,
                        "color": colour,
                        "size": [min(7 + 2 * count[i] ** 0.5, 20) for i in moved],
                        "line": {"color": "#fff", "width": 1},
                    },
                    "customdata": [count[i] for i in moved],
                    "hovertemplate": "%{customdata} " + name,
                }
            )
    bounds = {"bound": [r.bound for r in history]}
    if any(r.validation_bound is not None for r in history):
        bounds["bound on validation data"] = [r.validation_bound for r in history]  # type: ignore[misc]
    for (name, values), colour in zip(bounds.items(), ("#332288", "#E69F00"), strict=False):
        numbers = [None if v is None else float(f"{v:.6g}") for v in values]
        data.append(line | {"y": numbers, "name": name, "line": {"color": colour}, "yaxis": "y2", "hovertemplate": "%{y:.2f}"})
    shapes: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for phase, first, last in findings.phases:
        span = {"x0": first - 0.5, "x1": last + 0.5}
        shapes.append(
            {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "line": {"width": 0}}
            | span
            | {"fillcolor": PHASE_TINTS.get(phase, "#f0f0f0")}
        )
        notes.append(
            {"x": first - 0.5, "y": 1, "yref": "paper", "text": escape(phase), "showarrow": False, "yanchor": "bottom"}
            | {"xanchor": "left", "font": {"size": 12, "color": "#52606d"}}
        )
    plot: Plot = {
        "data": data,
        "layout": {
            "height": 480,
            "hovermode": "x unified",
            "showlegend": True,
            "margin": {"t": 26},
            "legend": {"orientation": "h", "y": -0.16, "x": 0, "yanchor": "top"},
            "xaxis": {
                "title": {"text": "epoch", "standoff": 6},
                "anchor": "y2",
                "range": [epochs[0] - 0.5, epochs[-1] + 0.5],
                "showgrid": False,
                "hoverformat": "d",
            }
            | ({"dtick": 1} if len(epochs) <= 12 else {}),
            "yaxis": {"title": {"text": "K"}, "domain": [0.47, 1], "rangemode": "tozero", "automargin": True},
            "yaxis2": {
                "title": {"text": "bound per sample"},
                "domain": [0, 0.41],
                "automargin": True,
                "range": _bound_range(findings),
            },
            "shapes": shapes,
            "annotations": notes,
        },
    }
    note = (
        "Births add components where the mixture describes samples badly, merges and deletions remove those that are not needed; "
        "each is kept only if it raises the bound."
    )
    body = f'<p class="note">{note}</p>' + _plot_box("epochs-plot", "Number of components and the bound over the epochs")
    return Panel("epochs", "K and the bound over the epochs", body, {"epochs-plot": plot})


def _bound_range(findings: Findings) -> list[float] | None:
    """Where the bound spends its time: a few bad epochs do not flatten the rest."""
    values = np.array([v for r in findings.history for v in (r.bound, r.validation_bound) if v is not None])
    if len(values) < 8:
        return None
    low, high = np.quantile(values, 0.03), values.max()
    pad = 0.12 * max(float(high - low), 1e-9)
    return [float(low - pad), float(high + pad)]


# --- lineage


def lineage_panel(findings: Findings) -> Panel | None:
    """Where components came from; None if none ever moved."""
    if not findings.flows:
        return None
    plots, body = {}, ""
    for number, (title, flow) in enumerate(findings.flows.items()):
        name = f"lineage-plot-{number}"
        plots[name] = _flow_plot(findings, flow)
        body += f'<h3>{title}</h3><p class="note">{flow_note(flow)}</p>' + _plot_box(
            name, f"Flow diagram: {title.lower()}, {len(flow.ends)} components at the end"
        )
    intro = "From left to right, move by move; the width of a band is the number of samples that it leads to."
    return Panel("lineage", "Lineage of components", f'<p class="note">{intro}</p>{body}', plots)


def flow_note(flow: Flow) -> str:
    """What a flow diagram shows and what it leaves out."""
    said = f"{flow.n_shown} of {_count(flow.n_moves, 'move')} led to the {_count(len(flow.ends), 'component')} at the right."
    left_out = [
        (flow.n_moves - flow.n_shown, "move", "about components that vanished again"),
        (flow.n_light, "component", "of little mass"),
        (flow.n_unmoved, "component", "that no move was about"),
    ]
    parts = [f"{_count(n, word)} {what}" for n, word, what in left_out if n]
    return f"{said} Left out: {'; '.join(parts)}." if parts else said


def _flow_plot(findings: Findings, flow: Flow) -> Plot:
    nodes = flow.nodes
    colours = [findings.colour_of_component(node.component) for node in nodes]
    plot: Plot = {
        "data": [
            {
                "type": "sankey",
                "arrangement": "fixed",
                "node": {
                    "label": [str(node.component) if node.is_end or node.time == 0 else "" for node in nodes],
                    "x": [round(0.002 + 0.996 * node.x, 4) for node in nodes],
                    "y": [round(min(max(node.y, 0.001), 0.999), 4) for node in nodes],
                    "color": colours,
                    "customdata": [node.component for node in nodes],
                    "thickness": 10,
                    "pad": 6,
                    "line": {"width": 0},
                    "hovertemplate": "component %{customdata}<br>leads to %{value:,.0f} samples<extra></extra>",
                },
                "link": {
                    "source": [link.source for link in flow.links],
                    "target": [link.target for link in flow.links],
                    "value": [round(max(link.value, 1e-3), 3) for link in flow.links],
                    "color": [
                        faded(findings.colour_of_component(flow.nodes[link.target].component), 0.32) for link in flow.links
                    ],
                    "customdata": [_what_happened(link) for link in flow.links],
                    "hovertemplate": "%{customdata}<extra></extra>",
                },
            }
        ],
        "layout": {"height": max(160, 20 * len(flow.ends) + 60), "margin": {"t": 10, "b": 10, "l": 6, "r": 34}},
    }
    return plot


def _what_happened(link: Link) -> str:
    record = link.record
    when = "in the final mixture" if record.epoch is None else f"in epoch {record.epoch + 1}"
    return f"{record.move} of {', '.join(map(str, record.parents))} {when}, lap {record.lap}<br>gain {record.gain:,.3g}"


# --- reconstruction


def reconstruction_panel(findings: Findings) -> Panel:
    """What the decoder makes of codes: pictures above pictures, or how much of each feature is lost."""
    if findings.is_image:
        index, made = findings.examples
        originals, copies = findings.pictures(findings.snapshot.values[index]), findings.pictures(made)
        pairs = "".join(
            f'<figure><img src="{png_uri(original)}" alt="Sample {number}"><img src="{png_uri(copy)}" alt="its reconstruction">'
            f"<figcaption>{chip(cluster)}</figcaption></figure>"
            for original, copy, number, cluster in zip(
                originals, copies, findings.snapshot.index[index], findings.snapshot.clusters[index], strict=True
            )
        )
        note = "Above the sample, below what the decoder makes of its code, with the number of its cluster."
        return Panel("reconstruction", "Reconstruction", f'<p class="note">{note}</p><div class="pairs">{pairs}</div>')
    errors = findings.feature_errors
    order = np.argsort(-errors, kind="stable")[:MOST_BARS]
    left_out = len(errors) - len(order)
    bars: Plot = {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "y": list(range(len(order))),
                "x": [round(float(errors[j]), 4) for j in order],
                "text": [f"{errors[j]:.0%}" for j in order],
                "textposition": "outside",
                "cliponaxis": False,
                "marker": {"color": "#0072B2"},
                "hovertemplate": "%{text} of the variance lost<extra></extra>",
            }
        ],
        "layout": {
            "height": _rows_height(len(order), 24),
            "bargap": 0.25,
            "xaxis": {
                "title": {"text": "share of the variance that is lost"},
                "tickformat": ".0%",
                "range": [0, 1.12 * max(1.0, float(errors.max()))],
            },
            "yaxis": {
                "tickvals": list(range(len(order))),
                "ticktext": [escape(_clipped(findings.feature_names[j])) for j in order],
                "range": [len(order) - 0.4, -0.6],
                "automargin": True,
                "ticklen": 4,
            },
        },
    }
    note = "How much of each feature's variance codes do not hold, the worst first: 0 % is a perfect copy, 100 % is no better than the mean."
    if left_out:
        note += f" {_count(left_out, 'feature')} that are reconstructed better are left out."
    body = f'<p class="note">{note}</p>' + _plot_box("reconstruction-plot", "Reconstruction error of each feature")
    return Panel("reconstruction", "Reconstruction", body, {"reconstruction-plot": bars})


# --- settings


def settings_panel(findings: Findings) -> Panel:
    """Configuration, versions, timings."""
    model, about = findings.model, findings.snapshot.about
    given = {n: v for n, v in model.get_params(deep=False).items() if n not in ("callbacks", "encoder", "decoder", "run_dir")}
    defaults = type(model)().get_params(deep=False)
    changed = {n: v for n, v in given.items() if v != defaults[n]} or {"all": "defaults"}
    history = findings.history
    mixture_seconds = sum(r.mixture_seconds for r in history)
    times = {
        "Finished": _date(about.get("finished")),
        "Training": _duration(findings.seconds),
        "of which the mixture": _duration(mixture_seconds),
        "Per epoch": _duration(findings.seconds / max(1, len(history))),
    }
    versions = about.get("versions") or {}
    body = (
        '<div class="columns">'
        f"<div><h3>Parameters that were set</h3>{_facts(changed)}<h3>Timings</h3>{_facts(times)}"
        f"<h3>Versions</h3>{_facts(versions)}</div>"
        f"<div><h3>What the parameters came to</h3>{_facts(asdict(model.recipe_))}</div></div>"
    )
    return Panel("settings", "Configuration", body)


def _facts(facts: dict[str, Any]) -> str:
    rows = "".join(f'<tr><th scope="row">{escape(str(k))}</th><td>{escape(_plain(v))}</td></tr>' for k, v in facts.items())
    return f'<table class="facts-table"><tbody>{rows}</tbody></table>'


# --- small things


def escape(text: str) -> str:
    """Text as HTML shows it."""
    return html.escape(text, quote=True)


def chip(cluster: int) -> str:
    """The number of a cluster on its colour."""
    colour = colour_of(cluster)
    return f'<span class="chip" style="background:{colour};color:{text_on(colour)}">{cluster}</span>'


def _plot_box(name: str, label: str, n_columns: int = 0) -> str:
    """Room for a plot; a wide one may be scrolled sideways."""
    plot = f'<div id="{name}" class="plot" role="img" aria-label="{escape(label)}"></div>'
    if n_columns > 8:
        return f'<div class="scroll" tabindex="0" aria-label="{escape(label)}"><div style="min-width:{n_columns * 34 + 190}px">{plot}</div></div>'
    return plot


def _rows_height(n: int, each: int) -> int:
    return max(150, each * n + 80)


def _count(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def _percent(share: float) -> str:
    """A share that is only shown as 100 % if it is all there is."""
    text = f"{100 * share:.1f}"
    return "&gt; 99.9 %" if text == "100.0" and share < 1 else f"{text.removesuffix('.0')} %"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _date(text: Any) -> str:
    try:
        return f"{datetime.fromisoformat(str(text)):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return "unknown"


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}".replace("e+0", "e").replace("e-0", "e-")


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else "none" if value is None else str(value)


def _clipped(text: str, most: int = 32) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _rounded(values: Any, digits: int) -> list[float]:
    rounded: list[float] = np.round(np.asarray(values, dtype=np.float64), digits).tolist()
    return rounded
