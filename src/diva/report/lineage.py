"""Which components the final ones came from, as a flow from left to right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from diva.runs.summary import Move

MOVES = ("birth", "merge", "delete")
MOST_ENDS = 40
GAP = 0.5  # of the height of the diagram, between nodes


@dataclass(eq=False)
class Node:
    """A component between two moves."""

    component: int
    mass: float  # when the move that made it was accepted
    time: int = 0  # which of the moves' moments, 0 before the first
    is_end: bool = False
    into: list[Link] = field(default_factory=list)
    out: list[Link] = field(default_factory=list)
    value: float = 0.0  # samples of the end that came through here
    x: float = 0.0
    y: float = 0.0
    height: float = 0.0


@dataclass(eq=False)
class Link:
    """What happened: a component went on, was born from another, or went into another."""

    source: Node
    target: Node
    what: str
    move: Move
    value: float = 0.0
    y0: float = 0.0  # upper edge where the band leaves its source
    y1: float = 0.0  # and where it reaches its target
    height: float = 0.0


@dataclass
class Flow:
    """A flow diagram; x and y of the nodes' centres are from 0 to 1, y downwards."""

    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    n_moves: int = 0  # births, merges and deletions
    n_shown: int = 0  # of them, those in the diagram: the others were about components that led nowhere
    n_light: int = 0  # components of the end that are left out because they are light, or because no move was about them
    n_unmoved: int = 0

    @property
    def ends(self) -> list[Node]:
        """The components that are left, top to bottom."""
        return sorted((node for node in self.nodes if node.is_end), key=lambda node: node.y)


def survivors(moves: Iterable[Move]) -> dict[int, float]:
    """Components that are left after some moves, and their mass when last moved."""
    masses: dict[int, float] = {}
    for move in moves:
        for parent in move.parents:
            masses.pop(parent, None)
        masses |= dict(zip(move.children, move.masses, strict=True))
    return masses


def trace(moves: Iterable[Move], ends: Mapping[int, float]) -> Flow:
    """Follow the components that are left, given with their masses, back to where they came from.

    Components that were born and vanished again without giving birth to any that stayed are left out; so are the lightest
    ones where there are too many to be read.
    """
    moves = [move for move in moves if move.move in MOVES]
    n_ends = len(ends)
    heaviest = sorted(ends, key=lambda component: -ends[component])[:MOST_ENDS]
    ends = {component: mass for component, mass in ends.items() if component in set(heaviest)}
    kept = _ancestors(moves, ends)
    flow = Flow(n_moves=len(moves), n_light=n_ends - len(ends))
    current: dict[int, Node] = {}  # by component id
    moments: list[tuple[int | None, int]] = []

    def node_of(component: int, mass: float) -> Node:
        if component not in current:
            current[component] = Node(component, mass)
            flow.nodes.append(current[component])
        return current[component]

    for move in moves:
        parents, children = ([c for c in side if c in kept] for side in (move.parents, move.children))
        is_shown = bool(set(children) - set(parents)) if move.move == "birth" else len(parents) == len(move.parents)
        if not parents or not children or not is_shown:
            continue
        flow.n_shown += 1
        if not moments or moments[-1] != (move.epoch, move.lap):
            moments.append((move.epoch, move.lap))
        masses = dict(zip(move.children, move.masses, strict=True))
        sources = {p: node_of(p, sum(move.masses)) for p in parents}
        stayed = {c: node_of(c, masses[c]) for c in children if move.move == "delete"}
        for child in children:
            target = current[child] = Node(child, masses[child], time=len(moments))
            flow.nodes.append(target)
            for parent, source in (sources | ({child: stayed[child]} if stayed else {})).items():
                born, merged = f"{child} born from {parent}", f"{parent} went into {child}"
                what = f"{child} went on" if parent == child else born if move.move == "birth" else merged
                flow.links.append(Link(source, target, what, move))
    for component in ends:
        if component in current:
            current[component].is_end = True
        else:
            flow.n_unmoved += 1
    _drop_dead_ends(flow)
    _weigh(flow, ends)
    _place(flow, len(moments))
    return flow


def _drop_dead_ends(flow: Flow) -> None:
    """Leave out what nothing that stayed came from, and join the rest; a node is made before those that come from it."""
    alive = {node for node in flow.nodes if node.is_end}
    for link in reversed(flow.links):
        if link.target in alive:
            alive.add(link.source)
    flow.nodes = [node for node in flow.nodes if node in alive]
    flow.links = [link for link in flow.links if link.target in alive]
    for link in flow.links:
        link.source.out.append(link)
        link.target.into.append(link)


def _ancestors(moves: Iterable[Move], ends: Mapping[int, float]) -> set[int]:
    """Ids of the ends and of all they were born from."""
    born_from = {
        child: move.parents[0] for move in moves if move.move == "birth" for child in move.children if child not in move.parents
    }
    kept: set[int] = set()
    for component in ends:
        ancestor: int | None = component
        while ancestor is not None and ancestor not in kept:
            kept.add(ancestor)
            ancestor = born_from.get(ancestor)
    return kept


def _weigh(flow: Flow, ends: Mapping[int, float]) -> None:
    """Let the samples of the ends flow back; links into one node share its value by the masses of their sources."""
    for node in reversed(flow.nodes):
        node.value = sum(link.value for link in node.out)
        if node.is_end:
            node.value += max(ends[node.component], 0.0)
        masses = [link.source.mass / len(link.source.out) for link in node.into]
        total = sum(masses)
        for link, mass in zip(node.into, masses, strict=True):
            link.value = node.value * (mass / total if total > 0 else 1 / len(masses))


def _place(flow: Flow, n_moments: int) -> None:
    """Time from left to right, all ends at the right; families stay together, nodes of one moment apart."""
    last = _last_by_family(flow)
    columns = [[node for node in flow.nodes if node.time == t and node.out] for t in range(n_moments + 1)]
    n_rows = max(len(last), *(len(column) for column in columns))
    gap = GAP / (n_rows - 1) if n_rows > 1 else 0.0
    scale = (1 - GAP if n_rows > 1 else 1.0) / (sum(node.value for node in last) or 1.0)
    for node in flow.nodes:
        node.height = node.value * scale
    top = (1 - sum(node.height for node in last) - gap * (len(last) - 1)) / 2
    for node in last:
        node.x, node.y = 1.0, top + node.height / 2
        top += node.height + gap
    for node in reversed(flow.nodes):
        if node.out:
            weights = [max(link.value, 1e-9) for link in node.out]
            node.x = node.time / (n_moments + 1)
            node.y = sum(w * link.target.y for w, link in zip(weights, node.out, strict=True)) / sum(weights)
    for column in columns:
        _spread(sorted(column, key=lambda node: node.y), gap)
    _attach(flow, scale)


def _last_by_family(flow: Flow) -> list[Node]:
    """Nodes that nothing comes from, so that those of one family are beside each other; the largest family first."""
    stack = sorted((node for node in flow.nodes if not node.into), key=lambda node: node.value)
    seen: dict[Node, None] = {}  # in the order of their first visit
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            stack.extend(link.target for link in reversed(node.out))
    return [node for node in seen if not node.out]


def _spread(column: Sequence[Node], gap: float) -> None:
    """Push nodes of one column apart, downwards and then back up if they leave the diagram."""
    floor = 0.0
    for node in column:
        node.y = max(node.y, floor + node.height / 2)
        floor = node.y + node.height / 2 + gap
    ceiling = 1.0
    for node in reversed(column):
        node.y = min(node.y, ceiling - node.height / 2)
        ceiling = node.y - node.height / 2 - gap


def _attach(flow: Flow, scale: float) -> None:
    """Let bands leave and reach their nodes in the order of where they go and come from, so that they do not cross."""
    left, right = ({node: node.y - node.height / 2 for node in flow.nodes} for _ in range(2))
    for link in sorted(flow.links, key=lambda link: link.target.y):
        link.height = link.value * scale
        link.y0, left[link.source] = left[link.source], left[link.source] + link.height
    for link in sorted(flow.links, key=lambda link: link.source.y):
        link.y1, right[link.target] = right[link.target], right[link.target] + link.height
