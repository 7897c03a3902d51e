"""The plots of a report, described once for the page and for papers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list

from diva.report import palette
from diva.report.findings import Findings, Level
from diva.report.lineage import Flow, Link, Node
from diva.report.marks import Area, Axis, Band, Bars, Heat, Line, Mark, Picture, Plot, Points, Rule, Span, Text, row_ticks
from diva.report.palette import colour_of, symbol_of, text_on
from diva.report.words import clipped, count, percent
from diva.runs.records import EpochRecord
from diva.runs.summary import Tree

MOST_BARS = 40  # features in the reconstruction panel
MOST_CELLS = 900  # of a contingency table that is annotated
MANY_ROWS = 40  # from here on rows are drawn narrower
MOST_ROWS = 24  # clusters in the gallery of a paper
N_IN_STRIP = 8  # images of each sort in it


def map_plot(findings: Findings, level: Level) -> Plot:
    """Codes on a plane, the name of each group in its middle."""
    points = findings.projection.points
    size = 3.0 if len(points) > 2000 else 6.0
    marks: list[Mark] = []
    for group in np.unique(level.groups).tolist():
        x, y = points[level.groups == group].T
        number = level.colours[group]
        marks.append(Points(x.tolist(), y.tolist(), colour_of(number), symbol_of(number), size, opacity=0.7))
    for group, (x, y) in findings.middles(level).items():
        marks.append(Text(float(x), float(y), clipped(level.names[group], 14), box="#ffffffcc", bold=True))
    return Plot([Area(marks, Axis(hidden=True), Axis(hidden=True))], height=590)


def sizes_plot(findings: Findings) -> Plot:
    """Samples and stability of each cluster, as bars side by side."""
    clusters = findings.filled
    colours = [c.colour for c in clusters]
    rows = row_ticks([clipped(c.name or str(c.number), 18) for c in clusters], "cluster")
    said = [f"cluster {c.number}: {count(c.size, 'sample')}" for c in clusters]
    sizes = Bars([c.size for c in clusters], colours, [f"{c.size:,}" for c in clusters], said)
    texts = [percent(c.stability).replace("over ", ">") for c in clusters]
    said = [f"cluster {c.number}: {percent(c.stability)} of nearest neighbours are in it too" for c in clusters]
    stability = Bars([round(c.stability, 4) for c in clusters], colours, texts, said)
    largest = max(1, *(c.size for c in clusters), 0)
    shares = [(0.0, "0 %"), (0.5, "50 %"), (1.0, "100 %")]
    left = Area([sizes], Axis("samples", (0, 1.25 * largest)), rows)
    right = Area([stability], Axis("stability", (0, 1.4), shares), rows)
    return Plot([left, right], _rows_height(len(clusters), 24, 15), columns=2, shares=(5, 4))


def contingency_plot(findings: Findings) -> Plot:
    """Classes against clusters, with the counts; the darker, the larger the share of the cluster."""
    table, names, order = findings.snapshot.table, findings.class_names, findings.table_order
    assert table is not None
    assert names is not None
    counts, labels = table[:, order], [clipped(findings.label_of(k), 12) for k in order]
    shares = np.round(counts / np.maximum(counts.sum(axis=0), 1), 3).tolist()
    is_small = counts.size <= MOST_CELLS
    texts = [[f"{n:,}" if n else "" for n in line] for line in counts.tolist()] if is_small else ()
    hover = [
        [
            f"cluster {cluster}, class {name}\n{count(n, 'sample')}\n{share:.1%} of the cluster"
            for cluster, n, share in zip(labels, line, row, strict=True)
        ]
        for name, line, row in zip(names, counts.tolist(), shares, strict=True)
    ]
    x = Axis("cluster", (-0.5, len(order) - 0.5), list(enumerate(labels)))
    y = Axis("class", (len(names) - 0.5, -0.5), [(i, clipped(name, 24)) for i, name in enumerate(names)])
    height = max(150, (30 if is_small else 11) * len(names) + 74)
    return Plot([Area([Heat(shares, hover, texts)], x, y)], height, width=42 * len(order) + 168)


def tree_plot(findings: Findings, tree: Tree) -> Plot:
    """The tree of the components, leaves at the left, branches in the colour of their cluster and as wide as it has samples."""
    components = findings.summary.components
    assert components is not None
    n, n_clusters = len(components.ids), findings.summary.n_clusters
    joined = _join_places(tree, n - n_clusters)
    leaves = leaves_list(np.column_stack([tree.merges, np.arange(1.0, n), np.zeros(n - 1)])).tolist()
    start = min(joined) - 0.08 * (max(joined) - min(joined) + 1.0)
    x, y = [start] * n + joined, [0.0] * (2 * n - 1)
    sizes = [float(size) for size in components.sizes] + [0.0] * (n - 1)
    for row, leaf in enumerate(leaves):
        y[leaf] = float(row)
    cluster: list[int | None] = [*components.clusters, *[None] * (n - 1)]
    paths: dict[tuple[int | None, float], tuple[list[float | None], list[float | None]]] = {}
    for node, (left, right) in enumerate(tree.merges, start=n):
        y[node], sizes[node] = (y[left] + y[right]) / 2, sizes[left] + sizes[right]
        cluster[node] = cluster[left] if cluster[left] == cluster[right] else None
        for a, b, of in ((left, left, left), (right, right, right), (left, right, node)):
            width = 1.5 if of == node else 1.5 + round(7 * (sizes[of] / max(sum(components.sizes), 1)) ** 0.5)
            xs, ys = paths.setdefault((cluster[of], width), ([], []))
            xs += [round(x[of], 4), round(x[node], 4), None]
            ys += [y[a], y[b], None]
    marks: list[Mark] = [
        Line(xs, ys, palette.NEUTRAL if of is None else findings.colour_at(of), width=width)
        for (of, width), (xs, ys) in sorted(paths.items(), key=lambda item: item[0][1])
    ]
    for of in sorted(set(components.clusters)):
        own = [leaf for leaf in leaves if components.clusters[leaf] == of]
        label, number = findings.label_of(of), findings.summary.ids[of]
        said = [f"component {components.ids[k]}\ncluster {label}\n{count(components.sizes[k], 'sample')}" for k in own]
        marks.append(Points([start] * len(own), [y[k] for k in own], colour_of(number), symbol_of(number), 8, said))
    told = [
        f"{_strength(value)}\n{count(round(sizes[n + i]), 'sample')} together" for i, value in enumerate(strengths_of(tree))
    ]
    marks.append(Points(joined, y[n:], palette.NEUTRAL, "circle", 6, told))
    marks.append(Rule(_cut_place(joined, n - n_clusters), "cut here"))
    rows = row_ticks(
        [f"{components.ids[k]} in {clipped(findings.label_of(components.clusters[k]), 18)}" for k in leaves],
        "component in cluster" if n > 5 else "component",  # as long as the axis is high
    )
    reach = max(joined) - start
    ticks = [(_place(v), f"{v:g}") for v in (-30, -10, -3, -1, 0, 1, 3, 10, 30, 100, 300) if start <= _place(v) <= max(joined)]
    across = Axis("strength of the join, in nats", (start - 0.02 * reach, max(joined) + 0.03 * reach), ticks)
    return Plot([Area(marks, across, rows)], _rows_height(n, 22, 14))


def strengths_of(tree: Tree) -> list[float]:
    """Log odds of each join that the two are not one; of old runs, by how far it is from the cut."""
    if tree.strengths:
        return [float(value) for value in tree.strengths]
    heights = [max(1 / distance - 1, 1e-16) for distance in tree.distances]
    return [float(np.log((1 / tree.cut - 1) / height)) for height in heights]


def _strength(nats: float) -> str:
    if nats <= 0:
        return f"{-nats:.1f} nats that the two are one"
    odds = f", {np.exp(nats):,.0f} to 1" if nats < 14 else ""
    return f"{nats:.1f} nats{odds} that the two are not one"


def _place(nats: float) -> float:
    """Where a strength is drawn: as it is near 0, by its logarithm far away."""
    return float(np.sign(nats) * np.log1p(abs(nats)))


def _join_places(tree: Tree, n_inside: int) -> list[float]:
    """Places of the joins, never falling; those inside clusters and those between them are drawn apart from the cut."""
    places = np.maximum.accumulate([_place(value) for value in strengths_of(tree)])
    gap = 0.03 * max(float(places[-1] - places[0]), 1.0)
    if 0 < n_inside < len(places) and places[n_inside] - places[n_inside - 1] < 2 * gap:
        places[n_inside:] += 2 * gap - (places[n_inside] - places[n_inside - 1])
    return [round(float(place), 4) for place in places]


def _cut_place(places: Sequence[float], n_inside: int) -> float:
    """Between the last join inside a cluster and the first between two."""
    if n_inside == 0:
        return places[0] - 0.04 * (places[-1] - places[0] + 1.0)
    return (
        places[-1] + 0.02 * (places[-1] - places[0] + 1.0)
        if n_inside == len(places)
        else (places[n_inside - 1] + places[n_inside]) / 2
    )


def epochs_plot(findings: Findings) -> Plot:
    """K with births and merges above, the bound or the loss below, phases shaded."""
    epochs = findings.summary.epochs
    tints = dict(zip(dict.fromkeys(phase for phase, _, _ in findings.phases), cycle(palette.TINTS), strict=False))
    spans = [Span(first - 0.5, last + 0.5, tints[phase], phase) for phase, first, last in findings.phases]
    spans = spans if findings.summary.rounds == "epoch" else []  # laps have no phases
    numbers = [epoch.epoch + 1 for epoch in epochs]
    x = Axis(findings.summary.rounds, (numbers[0] - 0.5, numbers[-1] + 0.5), whole=True)

    def curve(name: str, values: Sequence[float | None], colour: str, steps: bool = False) -> list[Mark]:
        shown = [None if v is None else float(f"{v:.6g}") for v in values]
        line = Line(numbers, shown, colour, name, steps=steps, dots=len(numbers) <= 12)
        return [line] if any(v is not None for v in values) else []

    has_moves = findings.summary.components is not None  # otherwise K was given, and stays
    components = [epoch.n_components or None if has_moves else None for epoch in epochs]
    clusters = [epoch.n_clusters if has_moves else None for epoch in epochs]
    top = max([1, *(k or 0 for k in (*components, *clusters))])
    counts = [*curve("components", components, palette.COMPONENTS, True), *curve("clusters", clusters, palette.CLUSTERS, True)]
    counts += _moves(epochs, "births", top) + _moves(epochs, "merges and deletions", top)
    bounds = curve("bound", [epoch.bound for epoch in epochs], palette.FIRST_BOUND)
    bounds += curve("bound on validation data", [epoch.validation_bound for epoch in epochs], palette.SECOND_BOUND)
    lower = bounds or curve("loss", [epoch.loss for epoch in epochs], palette.FIRST_BOUND)
    title = "bound per sample" if bounds else "loss"
    areas = [Area([*spans, *counts], x, Axis("K", (0, 1.15 * top)))] if counts else []
    areas.append(Area([*spans, *lower], x, Axis(title, findings.bound_range)))
    return Plot(areas, height=470 if counts else 270, shares=(4, 3) if counts else (1,), legend=True)


def _moves(epochs: Sequence[EpochRecord], name: str, top: int) -> list[Mark]:
    """Births a little above the number of components, merges and deletions a little below."""
    is_birth = name == "births"
    numbers = [epoch.births if is_birth else epoch.merges + epoch.deletes for epoch in epochs]
    moved = [(epoch, n) for epoch, n in zip(epochs, numbers, strict=True) if n]
    colour, symbol, shift = (
        (palette.BIRTHS, "triangle-up", 0.06 * top) if is_birth else (palette.REMOVALS, "triangle-down", -0.06 * top)
    )
    x = [epoch.epoch + 1 for epoch, _ in moved]
    y = [max((epoch.n_components or 0) + shift, 0.02 * top) for epoch, _ in moved]
    sizes, said = [min(8 + 2 * n**0.5, 20) for _, n in moved], [f"{n} {name}" for _, n in moved]
    return [Points(x, y, colour, symbol, sizes, said, name)] if moved else []


def flow_plot(findings: Findings, flow: Flow) -> Plot:
    """Where components came from, as bands from left to right; what happened is said on pointing at them."""
    colour = _flow_colours(findings, flow)
    bands = [Band(link.source.x, link.y0, link.target.x, link.y1, link.height, colour[link.target]) for link in flow.links]
    stems = [
        Line([node.x, node.x], [node.y - node.height / 2, node.y + node.height / 2], colour[node], width=10)
        for node in flow.nodes
    ]
    names = [
        Text(node.x, node.y, str(node.component), "right" if node.is_end else "left")
        for node in flow.nodes
        if node.is_end or node.time == 0
    ]
    said = [(node.x, node.y, f"component {node.component}, leads to {node.value:,.0f} samples") for node in flow.nodes]
    said += [
        ((link.source.x + link.target.x) / 2, (link.y0 + link.y1 + link.height) / 2, _what_happened(link))
        for link in flow.links
    ]
    x, y, hover = zip(*said, strict=True)
    pointers = Points([round(v, 4) for v in x], [round(v, 4) for v in y], palette.NEUTRAL, size=12, hover=hover, opacity=0.0)
    area = Area([*bands, *stems, *names, pointers], Axis(range=(0, 1), hidden=True), Axis(range=(1, 0), hidden=True))
    return Plot([area], height=max(110, 21 * max(len(flow.ends), 3) + 30), width=770)


def _flow_colours(findings: Findings, flow: Flow) -> dict[Node, str]:
    """Colours of the clusters; where none of the components at the end is left, of those components, to tell them apart."""
    colours = {node: findings.colour_of_component(node.component) for node in flow.nodes}
    if all(colours[end] == palette.NEUTRAL for end in flow.ends):
        colours |= {end: colour_of(i) for i, end in enumerate(flow.ends)}
        for link in sorted(flow.links, key=lambda link: -link.target.time):  # what led to one end has its colour
            heirs = {colours[each.target] for each in link.source.out}
            colours[link.source] = heirs.pop() if len(heirs) == 1 else palette.NEUTRAL
    return colours


def _what_happened(link: Link) -> str:
    move = link.move
    when = "in the final mixture" if move.epoch is None else f"in epoch {move.epoch + 1}"
    return f"{link.what}: {move.move} {when}, gain {move.gain:,.3g}"


def errors_plot(findings: Findings, errors: NDArray[np.float64]) -> Plot:
    """How much of each feature reconstruction loses, the worst first."""
    order = np.argsort(-errors, kind="stable")[:MOST_BARS].tolist()
    names = [findings.feature_names[j] for j in order]
    texts = [percent(float(errors[j])) for j in order]
    said = [f"{name}: {text} of the variance lost" for name, text in zip(names, texts, strict=True)]
    bars = Bars([round(float(errors[j]), 4) for j in order], [palette.COMPONENTS] * len(order), texts, said)
    x = Axis("variance lost", (0, 1.2 * max(0.2, float(errors.max()))), percent=True)
    return Plot([Area([bars], x, row_ticks([clipped(name) for name in names]))], _rows_height(len(order), 24, 24), width=630)


def differences_plot(findings: Findings) -> Plot:
    """Bars for each cluster of a table: what sets it apart, in standard deviations; the page has tables of it."""
    clusters = [c for c in findings.clusters if c.differences][:MOST_ROWS]
    deepest = max(len(c.differences) for c in clusters)
    columns = min(3, len(clusters))
    areas = [
        Area(
            [Bars([d.by for d in c.differences], [c.colour] * len(c.differences)), Rule(0.0)],
            Axis("difference in standard deviations"),
            row_ticks([clipped(d.feature, 22) for d in c.differences]),
            title=f"cluster {c.number}",
        )
        for c in clusters
    ]
    height = -(-len(clusters) // columns) * (24 * deepest + 70)
    return Plot(areas, height, width=364 * columns + 56, columns=columns, shares=(1.0,) * columns)


def gallery_plot(findings: Findings) -> Plot:
    """A row for each cluster of images: nearest the centre, made by the model, least certain; the page has strips of it."""
    clusters, values = findings.filled[:MOST_ROWS], findings.snapshot.values
    marks: list[Mark] = []
    x, tall = 1.0, findings.image_ratio
    sorts = [("nearest the centre", [values[c.nearest] for c in clusters])]
    if any(len(c.drawn) for c in clusters):
        sorts.append(("made by the model", [c.drawn for c in clusters]))
    sorts.append(("least certain", [values[c.least] for c in clusters]))
    for title, rows in sorts:
        marks.append(Text(x, -0.4, title, "right"))
        for i, images in enumerate(rows):
            for j, pixels in enumerate(findings.pictures(images[:N_IN_STRIP])):
                marks.append(Picture(pixels, x + 1.08 * j, 1.08 * i * tall, 1.0, tall))
        x += N_IN_STRIP * 1.08 + 1
    for i, c in enumerate(clusters):
        marks.append(Text(0.4, (1.08 * i + 0.5) * tall, str(c.number), colour=text_on(c.colour), box=c.colour))
    return _picture_plot(marks, width=x - 1, top=-0.9, bottom=1.08 * len(clusters) * tall)


def pairs_plot(findings: Findings, lines: Sequence[NDArray[np.uint8]]) -> Plot:
    """Images above what the decoder makes of their codes; the page has pairs of them."""
    tall = findings.image_ratio
    marks = [
        Picture(pixels, 1.08 * j, 1.08 * i * tall, 1.0, tall) for i, line in enumerate(lines) for j, pixels in enumerate(line)
    ]
    return _picture_plot(marks, width=1.08 * len(lines[0]), top=0.0, bottom=2.08 * tall)


def _picture_plot(marks: Sequence[Mark], width: float, top: float, bottom: float) -> Plot:
    area = Area(marks, Axis(range=(0, width), hidden=True), Axis(range=(bottom, top), hidden=True))
    return Plot([area], height=38.0 * (bottom - top), width=38.0 * width)


def _rows_height(n: int, each: int, each_of_many: int) -> int:
    """Height of a plot with so many rows."""
    return max(150, (each if n <= MANY_ROWS else each_of_many) * n + 74)
