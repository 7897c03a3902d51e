"""The parts of the page: each is some HTML and the plots in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diva.report import plots
from diva.report.checks import checks
from diva.report.findings import Findings, FoundCluster, Level
from diva.report.lineage import Flow
from diva.report.marks import Plot
from diva.report.palette import colour_of, symbol_of, text_on
from diva.report.pictures import make_sheet, png_uri
from diva.report.projection import METHODS
from diva.report.table import automatic_name, told
from diva.report.words import count, date, duration, number, percent, plain

MOST_COLUMNS = 200  # of a table in a list
MOST_CLUSTERS = 60  # galleries on one page
FIRST_CLUSTERS = 20  # of them, those that are open at once
N_TEXTS = 4  # of a cluster, of each sort

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
    """A section of the page."""

    name: str  # its anchor
    title: str
    body: str  # HTML
    plots: dict[str, Plot] = field(default_factory=dict)  # id of an element in the body -> what is drawn there
    data: dict[str, Any] = field(default_factory=dict)  # what the page's script needs besides


def make_panels(findings: Findings) -> list[Panel]:
    """All parts that there is something to say for, in reading order."""
    of_clusters = (map_panel, gallery_panel, sizes_panel, agreement_panel, tree_panel)
    of_training = (columns_panel, epochs_panel, lineage_panel, reconstruction_panel, settings_panel, checks_panel)
    return [panel for make in (*of_clusters, *of_training) if (panel := make(findings)) is not None]


def checks_panel(findings: Findings) -> Panel:
    """What to check next."""
    items = "".join(f"<li><b>{escape(title)}.</b> {escape(text)}</li>" for title, text in checks(findings))
    return Panel("checks", "What to check next", f'<ul class="checks">{items}</ul>')


# --- at a glance


def summary(findings: Findings) -> str:
    """The sentence under the title."""
    found = findings.summary
    said = f"{count(found.n_clusters, 'cluster')} found in {found.n_samples:,} {escape(findings.what_samples_are)}"
    if found.n_clusters == 1:
        said += ": there is no evidence for more"
    given = {**(found.params or {}), **(found.config or {})}.get("n_clusters") is not None
    said += f" by {escape(found.model)}." if given else ". Nobody said how many there are."
    if found.agreement and (codes := (found.config or {}).get("codes")) in ("features", "learnt"):
        features, learnt = (f"{found.agreement[name]:.2f}" for name in ("features", "learnt"))
        kept = "the features as they are" if codes == "features" else "learnt codes"
        said += f" Clusters are of {kept}: what neighbours agree on is {features} nats for features, {learnt} for learnt codes."
    if (found.config or {}).get("scale") == "columns":
        said += " Columns were put on one scale."
    return said


def tiles(findings: Findings) -> str:
    """What was found, as large numbers."""
    found = findings.summary

    def counted(n: int, word: str) -> tuple[str, str]:
        return f"{n:,}", count(n, word).split(" ", 1)[1]

    stability = percent(float(findings.agreement.mean())).replace("over ", "&gt;&#8239;")
    facts = [
        counted(found.n_clusters, "cluster"),
        *([] if found.n_components is None else [counted(found.n_components, "component")]),
        counted(found.n_samples, "sample"),
        (stability, "of neighbours agree"),
        counted(len(found.epochs), found.rounds),
        *([(duration(found.seconds), "of training")] if found.seconds else []),
    ]
    if found.metrics and (row := found.metrics.get("clusters")):
        facts += [(percent(row["acc_one_to_one"]), "one-to-one accuracy"), (f"{row['nmi']:.3f}", "NMI")]
    cells = "".join(f'<div class="tile"><dt>{name}</dt><dd>{value}</dd></div>' for value, name in facts)
    return f'<dl class="tiles by-{len(facts) // 2 + 1}">{cells}{_sparkline(findings)}</dl>'


def _sparkline(findings: Findings) -> str:
    """K over epochs, as small as a word."""
    counts = [epoch.n_components or epoch.n_clusters or 0 for epoch in findings.summary.epochs]
    if len(counts) < 2 or max(counts) == 0 or findings.summary.components is None:
        return ""
    points = [(200 * i / (len(counts) - 1), 37 - 34 * k / max(counts)) for i, k in enumerate(counts)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    over = f"K over the {findings.summary.rounds}s"
    label = f"{over}: at first {counts[0]}, in the end {counts[-1]}, at most {max(counts)}"
    return (
        f'<div class="tile wide"><dt>{over}, at most {max(counts)}</dt><dd>'
        f'<svg viewBox="-3 0 206 40" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<polygon points="0,37 {line} 200,37" class="area"/>'
        f'<polyline points="{line}" class="line" vector-effect="non-scaling-stroke"/></svg></dd></div>'
    )


# --- the data


def columns_panel(findings: Findings) -> Panel | None:
    """Columns of a table, and what each was used as."""
    facts = findings.summary.data or {}
    rows = facts.get("columns") or ()
    if not rows:
        return None

    def cell(tag: str, name: str, value: Any) -> str:
        kind = "" if name in ("features", "missing") else ' class="text"'
        return f"<{tag}{kind}>{escape(str(value) if value else '')}</{tag}>"

    head = "".join(cell("th", name, name) for name in rows[0])
    cells = "".join(
        "<tr>" + "".join(cell("td", name, value) for name, value in row.items()) + "</tr>" for row in rows[:MOST_COLUMNS]
    )
    said = ["Columns that are not learnt from are kept apart." if any(not row.get("features") for row in rows) else ""]
    if facts.get("on_one_scale"):
        said.append("Columns are on one scale: each counts alike, whatever its unit.")
    if n_filled := facts.get("rows_filled"):
        said.append(f"Gaps in {count(n_filled, 'row')} were filled with the mean of their column, which says nothing.")
    if n_dropped := facts.get("rows_dropped"):
        said.append(f"{count(n_dropped, 'row').capitalize()} with gaps were left out.")
    if len(rows) > MOST_COLUMNS:
        said.append(f"The first {MOST_COLUMNS} of {len(rows):,} columns are shown.")
    words = "".join(
        f"<li>{escape(cluster.title)}: {escape(', '.join(words))}</li>"
        for cluster, words in zip(findings.clusters, facts.get("words") or (), strict=False)
        if words
    )
    told = f"<p>Words that tell clusters apart:</p><ul>{words}</ul>" if words else ""
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{cells}</tbody></table></div>'
    return Panel("columns", "Columns and what they are used as", f"<p>{' '.join(filter(None, said))}</p>{told}{table}")


# --- the map


def map_panel(findings: Findings) -> Panel:
    """Codes on a plane: what colours mean can be switched; samples and clusters can be chosen, searched and saved."""
    snapshot, summary = findings.snapshot, findings.summary
    levels = {level.word: _map_level(findings, level) for level in findings.levels}
    levels |= {f"layer-{i}": _map_level(layer, layer.levels[0]) for i, layer in enumerate(findings.layers)}
    buttons = "".join(
        f'<button type="button" data-level="{key}" aria-pressed="{str(i == 0).lower()}">{escape(level["title"])}</button>'
        for i, (key, level) in enumerate(levels.items())
        if not key.startswith("layer-")
    )
    x, y = findings.projection.points.T
    data: dict[str, Any] = {
        "x": _rounded(x, 2),
        "y": _rounded(y, 2),
        "index": snapshot.index.tolist(),
        "names": summary.sample_names,
        "confidence": _rounded(snapshot.confidence, 3),
        "levels": levels,
        "sheet": asdict(make_sheet(findings.pictures(snapshot.values))) if findings.is_image else None,
        "rows": None if findings.is_image else _unusual_features(findings),
    }
    how = "The codes as they are."
    if (method := findings.projection.method) != "codes":
        how = f"Codes of {snapshot.codes.shape[1]} numbers, laid out on a plane by {METHODS[method]}: "
        how += "neighbours are alike, distances between groups say little."
    n_samples = summary.n_samples
    kept = "" if len(snapshot) == n_samples else f" {len(snapshot):,} of {n_samples:,} samples are shown."
    use = " Point at a sample to see it, click it to choose its cluster; use the arrow keys on the map."
    tools = "".join(
        f'<button type="button" data-tool="{tool}" aria-pressed="false">{title}</button>'
        for tool, title in (("zoom", "Zoom"), ("pan", "Pan"), ("lasso", "Lasso"), ("reset", "Whole map"))
    )
    body = (
        _note(f"{how}{kept}{use}")
        + f'<div class="map-tools"><div class="switch" role="group" aria-label="Colour the map by">{buttons}</div>'
        f'<div class="switch tools" role="group" aria-label="What dragging does">{tools}</div>'
        '<input id="search" type="search" placeholder="Search samples, clusters, features" aria-label="Search the map">'
        "</div>"
        '<div class="map-frame"><div id="map" class="plot" tabindex="0" role="application" '
        'aria-label="Map of the codes. Arrow keys step through the samples."></div>'
        '<div id="card" hidden></div></div>'
        '<p class="chosen" id="chosen"><span id="chosen-text" aria-live="polite"></span> '
        '<button type="button" id="save">Save as CSV</button> <button type="button" id="clear" hidden>Choose all</button></p>'
        '<p id="said" class="hidden" aria-live="polite"></p>'
    )
    return Panel("map-of-codes", "Map of the codes", layer_switch(findings) + body, data={"map": data})


def layer_switch(findings: Findings) -> str:
    """Partitions to choose from, which map, gallery, sizes and tree follow; nothing if there is only one."""
    if not findings.layers:
        return ""
    options = "".join(
        f'<option value="layer-{i}">{count(layer.summary.n_clusters, "group")}, '
        f"{'coarser' if layer.summary.n_clusters < findings.summary.n_clusters else 'finer'}, "
        f"strength {number(layer.strength or 0.0, 1)} nats</option>"
        for i, layer in enumerate(findings.layers)
    )
    chosen = f'<option value="cluster" selected>{count(findings.summary.n_clusters, "cluster")}, as found</option>'
    return (
        '<p class="layers"><label for="layer">Layer</label> '
        f'<select id="layer">{chosen}{options}</select> '
        "<small>Map, gallery, sizes and tree follow.</small></p>"
    )


def _map_level(findings: Findings, level: Level) -> dict[str, Any]:
    """What points can be coloured by: groups with their names, colours, shapes and middles."""
    return {
        "title": level.title,
        "word": level.word,
        "groups": level.groups.tolist(),
        "names": level.names,
        "colours": [colour_of(i) for i in level.colours],
        "symbols": [symbol_of(i) for i in level.colours],
        "middles": {i: _rounded(xy, 2) for i, xy in findings.middles(level).items()},
        "numbers": [int(i) for i in level.colours],
    }


def _unusual_features(findings: Findings) -> dict[str, Any]:
    """Features in which each row stands out, with the names that are used."""
    which, values = findings.unusual
    used, place = np.unique(which, return_inverse=True)
    return {
        "names": [findings.feature_names[j] for j in used],
        "which": place.reshape(which.shape).tolist(),
        "values": [[float(f"{v:.4g}") for v in row] for row in values],
    }


# --- the gallery


def gallery_panel(findings: Findings) -> Panel:
    """Every cluster of every layer: its typical, generated and least certain members, or what sets it apart."""
    return Panel("gallery", "Gallery of clusters", in_layers(findings, _gallery))


def in_layers(findings: Findings, make: Callable[[Findings], str]) -> str:
    """The same HTML of the clusters as found and of each layer, of which one is shown at a time."""
    parts = {"cluster": findings, **{f"layer-{i}": layer for i, layer in enumerate(findings.layers)}}
    if len(parts) == 1:
        return make(findings)
    return "".join(
        f'<div data-layer="{key}"{"" if key == "cluster" else " hidden"}>{make(part)}</div>' for key, part in parts.items()
    )


def _gallery(findings: Findings) -> str:
    largest = sorted(findings.filled, key=lambda c: -c.size)[:MOST_CLUSTERS]
    card = _image_card if findings.is_image else _table_card
    made = "" if findings.snapshot.draws is None else ", new ones made by the model"
    note = (
        f"Members nearest the centre of their cluster{made}, and the members that the model is least certain of."
        if findings.is_image
        else "What sets each cluster apart: the mean of a feature less its mean over all samples, in standard deviations; bars "
        "are scaled for each cluster."
    )
    if findings.are_words:
        note += " Values are tf-idf: how often a word is in a text, less for words that are in many."
    if left_out := len(findings.filled) - len(largest):
        note += f" The {left_out:,} smallest clusters are left out."
    kind = "images" if findings.is_image else "rows"

    def cards(clusters: Sequence[FoundCluster]) -> str:
        return f'<div class="cards {kind}">{"".join(card(findings, cluster) for cluster in clusters)}</div>'

    if len(largest) <= FIRST_CLUSTERS:
        body = cards(sorted(largest, key=lambda c: c.number))
    else:
        note += " The largest come first."
        more = count(len(largest) - FIRST_CLUSTERS, "more cluster")
        body = cards(largest[:FIRST_CLUSTERS])
        body += f"<details><summary>Show {more}</summary>{cards(largest[FIRST_CLUSTERS:])}</details>"
    return _note(note) + body


def _card(findings: Findings, cluster: FoundCluster, body: str) -> str:
    parts = [f"{count(cluster.size, 'sample')} ({percent(cluster.share)})"]
    if cluster.majority is not None:
        parts.append(f"{percent(cluster.majority[1])} are {escape(cluster.majority[0])}")
    if cluster.separation is not None:
        parts.append(f"evidence {number(cluster.separation, 1)} nats")
    parts.append(f"stability {percent(cluster.stability)}")
    if cluster.n_components > 1:
        parts.append(count(cluster.n_components, "component"))
    title = f"{chip(cluster.number)} {escape(cluster.title)}"
    if not cluster.name and (telling := automatic_name(findings, cluster)):
        title += f" <small>{escape(telling)}</small>"
    return (
        f'<article class="card" id="{findings.key}-{cluster.number}"><h3>{title}</h3>'
        f'<p class="facts">{" · ".join(parts)}</p>{body or _note("No sample is in this cluster.")}</article>'
    )


def _image_card(findings: Findings, cluster: FoundCluster) -> str:
    snapshot = findings.snapshot

    def about(position: int) -> str:
        said = f"sample {snapshot.index[position]}, confidence {snapshot.confidence[position]:.3f}"
        if findings.class_names and snapshot.truth is not None:
            said += f", class {findings.class_names[snapshot.truth[position]]}"
        return said

    def strip(title: str, label: str, values: NDArray[Any], titles: Sequence[str]) -> str:
        if len(values) == 0:
            return ""
        images = "".join(
            f'<img src="{png_uri(picture)}" alt="" title="{escape(said)}">'
            for picture, said in zip(findings.pictures(values), titles, strict=True)
        )
        whole = f"{len(values)} {label} cluster {cluster.number}"
        return f'<h4>{title}</h4><div class="strip" role="img" aria-label="{whole}">{images}</div>'

    def real(title: str, label: str, positions: NDArray[np.int64]) -> str:
        return strip(title, label, snapshot.values[positions], [about(i) for i in positions])

    return _card(
        findings,
        cluster,
        real("Nearest the centre", "members nearest the centre of", cluster.nearest)
        + strip("Made by the model", "generated members of", cluster.drawn, ["made by the model"] * len(cluster.drawn))
        + real("Least certain", "least certain members of", cluster.least),
    )


def _table_card(findings: Findings, cluster: FoundCluster) -> str:
    if not cluster.differences:
        return _card(findings, cluster, "")
    index, confidence = findings.snapshot.index, findings.snapshot.confidence
    widest = max(abs(d.by) for d in cluster.differences) or 1.0
    rows = ""
    for d in cluster.differences:
        side = "left" if d.by >= 0 else "right"
        bar = f"{side}:50%;width:{50 * abs(d.by) / widest:.1f}%;background:{cluster.colour}"
        values = "".join(f"<td>{number(v, d.decimals)}</td>" for v in d.values.values())
        rows += (
            f'<tr><th scope="row">{escape(d.feature)}</th><td>{d.by:+.2f}</td>'
            f'<td class="bar-cell"><span class="bar" style="{bar}"></span></td>{values}</tr>'
        )
    shown = "" if findings.layer_of else _texts_of(findings, cluster)
    samples = {"Nearest centre": index[cluster.nearest[0]], "Least certain": index[cluster.least[0]]}
    heads = "".join(
        f'<th scope="col">{title}' + (f"<br><small>sample {samples[title]}</small></th>" if title in samples else "</th>")
        for title in cluster.differences[0].values
    )
    doubtful = ", ".join(f"{index[i]}&nbsp;({confidence[i]:.2f})" for i in cluster.least[:6])
    return _card(
        findings,
        cluster,
        '<div class="scroll" tabindex="0" role="group" aria-label="Table of features"><table class="differences"><thead><tr>'
        f'<th scope="col">Feature</th><th scope="col" colspan="2" class="bar-head">Difference</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{_beside(findings, cluster)}"
        + shown
        + ("" if findings.layer_of else _note(f"Least certain samples, with their confidence: {doubtful}.")),
    )


def _texts_of(findings: Findings, cluster: FoundCluster) -> str:
    """Texts in the middle of a cluster and at its border."""
    names = findings.summary.sample_names
    if not findings.are_words or names is None:
        return ""
    groups = {"Nearest the centre": cluster.nearest, "Least certain": cluster.least}
    return "".join(
        f"<h4>{title}</h4><ul>{''.join(f'<li>{escape(names[i])}</li>' for i in positions[:N_TEXTS])}</ul>"
        for title, positions in groups.items()
    )


def _beside(findings: Findings, cluster: FoundCluster) -> str:
    """What sets a cluster apart from the one beside it."""
    if cluster.neighbour is None or not (said := told(findings, cluster.beside_neighbour)):
        return ""
    return _note(f"Beside its neighbour, {chip(findings.summary.ids[cluster.neighbour])}: {escape(said)}.")


# --- sizes, agreement with labels


def sizes_panel(findings: Findings) -> Panel:
    """How large and how certain each cluster is, in every layer."""
    drawn: dict[str, Plot] = {}

    def sizes(part: Findings) -> str:
        label = f"Bar chart of the sizes of {count(len(part.filled), 'cluster')}"
        drawn[f"{part.key}-sizes-plot"] = plots.sizes_plot(part)
        empty = len(part.clusters) - len(part.filled)
        note = _note(f"{count(empty, 'cluster')} without samples left out here and in the gallery.") if empty else ""
        return note + _plot_box(f"{part.key}-sizes-plot", label)

    note = _note(
        "Stability is the share of the nearest neighbours of a cluster's samples that are in it too: it is low where a border "
        "is in doubt. It does not tell whether a cluster is two: for that, see the strengths in the tree."
    )
    return Panel("sizes", "Sizes and stability", note + in_layers(findings, sizes), drawn)


def agreement_panel(findings: Findings) -> Panel | None:
    """Metrics by their full names, and classes against clusters; None without labels."""
    table, names, metrics = findings.snapshot.table, findings.class_names, findings.summary.metrics
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
    n_columns = len(findings.table_order)
    label = f"Contingency table of {len(names)} classes and {n_columns} clusters"
    body = (
        _note("Labels were only used to look at the result, never to find it.")
        + f'<div class="scroll"><table class="metrics"><thead><tr><th scope="col">Metric</th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div><h3>Classes against clusters</h3>"
        + _note("Samples of each class in each cluster; the darker, the larger the share of the cluster.")
        + _plot_box("contingency-plot", label, n_columns if table.shape[0] * n_columns <= plots.MOST_CELLS else 0)
    )
    plot = plots.contingency_plot(findings)
    return Panel("agreement", "Agreement with the labels", body, {"contingency-plot": plot})


# --- tree, epochs, lineage


def tree_panel(findings: Findings) -> Panel | None:
    """How components were grouped, in every layer; None if they were not."""
    tree = findings.summary.tree
    if tree is None:
        return None
    note = (
        "From left to right, what is most likely one joins first. Each join has a strength: the log odds, in nats, that the "
        "two are not one (2 nats are seven to one). What is joined left of the dotted line is one cluster; the further right a "
        "branch goes before it is joined, the clearer the cluster. The wider a branch, the more samples. Leaves are named by "
        "component and cluster."
    )
    drawn: dict[str, Plot] = {}

    def draw(part: Findings) -> str:
        assert part.summary.tree is not None
        drawn[f"{part.key}-tree-plot"] = plots.tree_plot(part, part.summary.tree)
        return _plot_box(f"{part.key}-tree-plot", f"Tree of {len(tree.merges) + 1} components, coloured by cluster")

    return Panel("tree", "Tree of components and clusters", _note(note) + in_layers(findings, draw), drawn)


def epochs_panel(findings: Findings) -> Panel | None:
    """The bound or the loss over epochs, and K with what changed it if the model has components."""
    found = findings.summary
    if not found.epochs:
        return None
    title, note = f"The {'loss' if findings.bound_range is None else 'bound'} over the {found.rounds}s", ""
    if found.n_components is not None:
        title = title.replace("The", "K and the")
        note = (
            "Births add components where the mixture describes samples badly, merges and deletions remove those that are not "
            "needed; each is kept only if it raises the bound. "
            f"The mixture at the end has {count(found.n_components, 'component')} in {count(found.n_clusters, 'cluster')}."
        )
    if findings.n_below:
        note += f" The bound of {count(findings.n_below, found.rounds)} is too low to be shown."
    return _plot_panel("epochs", title, _note(note), plots.epochs_plot(findings), title)


def lineage_panel(findings: Findings) -> Panel | None:
    """Where components came from; None if none ever moved."""
    if not findings.flows:
        return None
    intro = (
        "From left to right, move by move; the width of a band is the number of samples that it leads to. "
        "Colours are those of the clusters; what is gone is grey, or has colours only to tell it apart if all of it is gone."
    )
    drawn, body = {}, _note(intro)
    for i, (title, flow) in enumerate(findings.flows.items()):
        drawn[f"lineage-plot-{i}"] = plots.flow_plot(findings, flow)
        label = f"Flow diagram, {title.lower()}: {len(flow.ends)} components at the end"
        body += f"<h3>{title}</h3>{_note(_what_flows(flow))}{_plot_box(f'lineage-plot-{i}', label)}"
    return Panel("lineage", "Lineage of components", body, drawn)


def _what_flows(flow: Flow) -> str:
    """What a flow diagram shows and what it leaves out."""
    said = f"{flow.n_shown} of {count(flow.n_moves, 'move')} led to the {count(len(flow.ends), 'component')} at the right."
    left_out = [
        (flow.n_moves - flow.n_shown, "move", "that led to none of them"),
        (flow.n_light, "component", "of little mass"),
        (flow.n_unmoved, "component", "that no move was about"),
    ]
    parts = [f"{count(n, word)} {what}" for n, word, what in left_out if n]
    return f"{said} Left out: {'; '.join(parts)}." if parts else said


# --- reconstruction, settings


def reconstruction_panel(findings: Findings) -> Panel | None:
    """What the decoder makes of codes: pictures above pictures, or how much of each feature is lost; None without a decoder."""
    snapshot = findings.snapshot
    if findings.reconstructions is not None:
        names, clusters = (of[snapshot.reconstructed].tolist() for of in (snapshot.index, snapshot.clusters))
        pairs = "".join(
            f'<figure><img src="{png_uri(original)}" alt="Sample {name}"><img src="{png_uri(copy)}" alt="its reconstruction">'
            f"<figcaption>{chip(findings.summary.ids[cluster])}</figcaption></figure>"
            for original, copy, name, cluster in zip(*findings.reconstructions, names, clusters, strict=True)
        )
        note = "Above the sample, below what the decoder makes of its code, with the number of its cluster."
        return Panel("reconstruction", "Reconstruction", f'{_note(note)}<div class="pairs">{pairs}</div>')
    if snapshot.feature_errors is None:
        return None
    note = (
        "How much of each feature's variance the codes do not hold, the worst first: "
        "0 % is a perfect copy, 100 % is no better than the mean."
    )
    if (left_out := len(snapshot.feature_errors) - plots.MOST_BARS) > 0:
        note += f" {count(left_out, 'feature')} that come out better are left out."
    plot = plots.errors_plot(findings, snapshot.feature_errors)
    return _plot_panel("reconstruction", "Reconstruction", _note(note), plot, "Reconstruction error of each feature")


def settings_panel(findings: Findings) -> Panel:
    """Configuration, versions, timings."""
    found = findings.summary
    times = {"finished": date(found.finished)}
    if found.seconds:
        times["training"] = duration(found.seconds)
        if found.components is not None:
            times["of which the mixture"] = duration(sum(epoch.mixture_seconds for epoch in found.epochs))
        times[f"per {found.rounds}"] = duration(found.seconds / max(1, len(found.epochs)))
    body = (
        '<div class="columns">'
        f"<div><h3>Parameters that were set</h3>{_facts(found.params or {'none': 'all at their defaults'})}"
        f"<h3>Timings</h3>{_facts(times)}<h3>Versions</h3>{_facts(found.versions)}</div>"
        f"<div><h3>What the parameters came to</h3>{_facts(found.config or {})}</div></div>"
    )
    return Panel("settings", "Configuration", body)


def _facts(facts: Mapping[str, Any]) -> str:
    rows = "".join(f'<tr><th scope="row">{escape(str(k))}</th><td>{escape(plain(v))}</td></tr>' for k, v in facts.items())
    return f'<table class="facts-table"><tbody>{rows}</tbody></table>'


# --- small things


def chip(cluster: int) -> str:
    """The number of a cluster on its colour."""
    colour = colour_of(cluster)
    return f'<span class="chip" style="background:{colour};color:{text_on(colour)}">{cluster}</span>'


def _note(text: str) -> str:
    return f'<p class="note">{text}</p>'


def _plot_panel(name: str, title: str, before: str, plot: Plot, label: str) -> Panel:
    """A panel with one plot, and some HTML before it."""
    return Panel(name, title, before + _plot_box(f"{name}-plot", label), {f"{name}-plot": plot})


def _plot_box(name: str, label: str, n_columns: int = 0) -> str:
    """Room for a plot; a wide one may be scrolled sideways."""
    plot = f'<div id="{name}" class="plot" role="img" aria-label="{escape(label)}"></div>'
    if n_columns <= 8:
        return plot
    scroll = f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(label)}">'
    return f'{scroll}<div style="min-width:{n_columns * 34 + 120}px">{plot}</div></div>'


def _rounded(values: Any, digits: int) -> list[float]:
    rounded: list[float] = np.round(np.asarray(values, dtype=np.float64), digits).tolist()
    return rounded
