"""Tables: pure functions of rows and of the published values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diva.experiments import spec
from diva.experiments.data import DATA, Availability
from diva.experiments.paper import Value, short, value_of
from diva.experiments.rows import Row
from diva.experiments.spec import Cell, Profile

TOLERANCE = 0.02
NONE = "·"  # stands where there is no number
SHOWN = ("one-to-one accuracy", "three-to-one accuracy", "NMI", "ARI")
MARKS = {"reproduced": "=", "better": "+", "worse": "-", "substitute": "~", "not run": "", "data not obtainable": "∅"}


@dataclass(frozen=True)
class Table:
    """A title, names of columns, and lines of text; notes stand below."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Estimate:
    """Mean and standard deviation of a metric over seeds."""

    mean: float
    std: float
    n: int

    def __str__(self) -> str:
        return short(self.mean) + (f" ± {short(self.std)}" if self.n > 1 else "")


@dataclass(frozen=True)
class Verdict:
    """What became of a published value."""

    kind: str  # a key of `MARKS`
    note: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.note}" if self.note else self.kind


@dataclass(frozen=True)
class Results:
    """Rows of one profile, and which data are here."""

    profile: Profile
    rows: Sequence[Row]
    data: Mapping[str, Availability]  # by the key of a data set

    def of(self, cell: Cell) -> list[Row]:
        """Rows of a cell, of all seeds."""
        wanted = (cell.data, cell.system, cell.stages, cell.curve)
        return [r for r in self.rows if (r["data"], r["system"], tuple(r["stages"]), r["curve kind"]) == wanted]


def estimate(rows: Iterable[Row], metric: str) -> Estimate | None:
    """Of a metric over rows; None if there are none. The standard deviation is that of a sample, 0 for a single row."""
    values = [row[metric] for row in rows if row.get(metric) is not None]
    if not values:
        return None
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0, len(values))


def judge(rows: Sequence[Row], value: Value | None, here: Availability) -> Verdict:
    """Compare majority accuracy with a published one: reproduced if they differ by max(2 std, .02) at most."""
    if here.name is None:
        return Verdict("data not obtainable")
    ours = estimate(rows, "majority accuracy")
    if ours is None:
        return Verdict("not run")
    if value is None:
        return Verdict("not run", "nothing is published to compare with")
    if here.substitute:
        return Verdict("substitute", here.substitute)
    difference = ours.mean - value.mean
    if abs(difference) <= max(2 * value.std, TOLERANCE) + 1e-9:
        return Verdict("reproduced")
    return Verdict("better" if difference > 0 else "worse")


# --- Table 1


def table1(results: Results) -> Iterator[Table]:
    """Ours beside the paper's at a glance, and a table with every metric for each data set."""
    yield overview(results)
    for data in spec.TABLE1_DATA:
        yield table_of_data(results, data)


def overview(results: Results) -> Table:
    """Majority accuracy, ours / the paper's, with a mark for the verdict."""
    lines = []
    for system in spec.TABLE1_SYSTEMS:
        cells = (Cell(data, system, 0) for data in spec.TABLE1_DATA)
        lines.append((spec.SYSTEMS[system].title, *(compared(results, cell) for cell in cells)))
    titles = tuple(DATA[data].title for data in spec.TABLE1_DATA)
    legend = ", ".join(f"{mark} {kind}" for kind, mark in MARKS.items() if mark)
    return Table("Majority accuracy: ours / the paper's", ("system", *titles), tuple(lines), (f"Marks: {legend}.",))


def compared(results: Results, cell: Cell, n_classes: int | None = None, method: str | None = None) -> str:
    """Ours / the paper's, and a mark."""
    rows, here = results.of(cell), results.data[cell.data]
    value = value_of(cell.data, spec.SYSTEMS[cell.system].published if method is None else method, n_classes=n_classes)
    ours = estimate(rows, "majority accuracy")
    verdict = judge(rows, value, here)
    mark = MARKS[verdict.kind] if value is not None else ""
    return f"{ours or NONE} / {value or NONE} {mark}".rstrip()


def table_of_data(results: Results, data: str) -> Table:
    """Every system on a data set, with every metric."""
    here = results.data[data]
    metrics = tuple(f"{name}{' (paper)' if paper else ''}" for name in ("NMI", "ARI") for paper in (False, True))
    columns = ("system", "paper's accuracy", "majority accuracy", "verdict", "one-to-one", "three-to-one", *metrics)
    lines = []
    for key in spec.TABLE1_SYSTEMS:
        system, rows = spec.SYSTEMS[key], results.of(Cell(data, key, 0))
        value = value_of(data, system.published)
        said = {name: estimate(rows, name) for name in ("majority accuracy", *SHOWN)}
        line = [system.title, str(value or NONE), str(said["majority accuracy"] or NONE)]
        line += [str(judge(rows, value, here)) if system.published else "not in the paper"]
        line += [str(said[name] or NONE) for name in SHOWN[:2]]
        for name in ("NMI", "ARI"):
            line += [str(said[name] or NONE), str(value_of(data, system.published, name) or NONE)]
        lines.append((*line, *costs(rows)))
    notes = [here.missing] if here.missing else []
    if rows := [row for row in results.rows if row["data"] == data and not row["curve kind"] and not row["stages"]]:
        notes.append(about_data(rows[0]))
    title = DATA[data].title + (f": {here.substitute}" if here.substitute else "")
    return Table(title, (*columns, "K", "seconds", "CPU seconds", "memory, MB"), tuple(lines), tuple(notes))


def about_data(row: Row) -> str:
    """What a row was learnt from and scored on."""
    scored = f"scored on {row['test samples']:,} others" if row["has test split"] else "scored on the same, for lack of a split"
    return f"{row['training samples']:,} training samples, {scored}. Copy: {row['fidelity']}."


def costs(rows: Sequence[Row]) -> tuple[str, ...]:
    """K, mean seconds by the clock and of the processor, and the most memory."""
    memory = [row["peak memory in MB"] for row in rows if row["peak memory in MB"]]
    times = (estimate(rows, name) for name in ("seconds", "CPU seconds"))
    ks = ", ".join(str(row["K"]) for row in rows) or NONE
    return ks, *(f"{one.mean:.0f}" if one else NONE for one in times), f"{max(memory):.0f}" if memory else NONE


# --- classes that arrive


def incremental(results: Results) -> Iterator[Table]:
    """Separate fits to 3, 5, 7 and 10 classes."""
    for data in spec.INCREMENTAL_DATA:
        lines = []
        for system in spec.INCREMENTAL_SYSTEMS:
            cells = [(n, spec.incremental_cell(data, system, n, 0)) for n in spec.GROWING]
            method = spec.SYSTEMS[system].published
            lines.append((spec.SYSTEMS[system].title, *(compared(results, cell, n, method) for n, cell in cells)))
        here = results.data[data]
        title = f"{DATA[data].title}{f' ({here.substitute})' if here.substitute else ''}: majority accuracy, ours / the paper's"
        yield Table(title, ("system", *(f"{n} classes" for n in spec.GROWING)), tuple(lines))


def dynamic(results: Results) -> Iterator[Table]:
    """Scores at the end of every stage."""
    columns = ("system", *(f"{n} digits" for n in spec.GROWING), "K at the end")
    lines, found = [], {s: results.of(Cell("mnist", s, 0, spec.GROWING, "stages")) for s in spec.DYNAMIC_SYSTEMS}
    if not any(found.values()):
        return
    for system, rows in found.items():
        ends = [[row["stage scores"][i] for row in rows] for i in range(len(spec.GROWING))]
        said = [str(estimate(end, "majority accuracy") or NONE) for end in ends]
        lines.append((spec.SYSTEMS[system].title, *said, ", ".join(str(row["K"]) for row in rows) or NONE))
    notes = (
        f"{spec.GROWING[0]}, {spec.GROWING[1]}, {spec.GROWING[2]} and then {spec.GROWING[3]} digits, "
        f"{results.profile.stage_epochs} epochs each; old images stay. Networks go on from stage to stage; the other systems "
        "are fitted anew to all images so far. The paper publishes a figure, not its numbers.",
    )
    yield Table("MNIST, majority accuracy on test images of the digits so far", columns, tuple(lines), notes)


def moves(results: Results) -> Iterator[Table]:
    """Components, births and merges."""
    lines = []
    for stages in (*((n,) for n in spec.STATIC_MOVES), spec.GROWING):
        for row in results.of(Cell("mnist", "diva", 0, stages, "stages")):
            total = {name: sum(point[name] or 0 for point in row["curve"]) for name in ("births", "merges")}
            ks = [point["K"] for point in row["curve"]]
            name = f"{', '.join(map(str, stages))} digits"
            most = str(max((k for k in ks if k), default=NONE))
            accuracy = short(row["majority accuracy"])
            lines.append(
                (name, str(row["seed"]), str(total["births"]), str(total["merges"]), most, str(row["components"]), accuracy)
            )
    columns = ("data", "seed", "births", "merges", "most components", "components at the end", "majority accuracy")
    yield Table("MNIST: births and merges", columns, tuple(lines))


def trace(results: Results) -> Iterator[Table]:
    """Components by their ids, before and after a class arrives."""
    for row in results.of(Cell("mnist", "diva", 0, spec.TRACE, "stages")):
        stages = row["components by id"]
        ids = sorted({one["id"] for stage in stages for one in stage})
        lines = []
        for component in ids:
            line = [str(component)]
            for stage in stages:
                found = next((one["classes"] for one in stage if one["id"] == component), None)
                line.append(NONE if found is None else ", ".join(f"{n} of {digit}" for digit, n in enumerate(found) if n))
            fate = {(True, True): "lives on", (True, False): "gone", (False, True): "new"}[line[1] != NONE, line[2] != NONE]
            lines.append((*line, fate))
        columns = ("component", *(f"test images, {n} digits" for n in spec.TRACE), "")
        note = "Ids are permanent here; the paper's are positions, which shift when others merge."
        yield Table("MNIST, 2 and then 3 digits: components by id", columns, tuple(lines), (note,))


def shuffle(results: Results) -> Iterator[Table]:
    """With and without shuffles."""
    lines, found = [], {s: results.of(Cell("mnist", s, 0, (), "shuffle")) for s in ("diva", "diva_unshuffled")}
    if not any(found.values()):
        return
    for system, rows in found.items():
        said = [str(estimate(rows, name) or NONE) for name in ("majority accuracy", "one-to-one accuracy", "NMI")]
        lines.append(("with" if system == "diva" else "without", *said, ", ".join(str(row["K"]) for row in rows) or NONE))
    columns = ("shuffles", "majority accuracy", "one-to-one accuracy", "NMI", "K")
    yield Table("MNIST, with and without shuffles", columns, tuple(lines))


def no_tables(results: Results) -> Iterator[Table]:  # noqa: ARG001  # asked of every experiment
    """For experiments that are figures alone."""
    yield from ()


TABLES = {
    "table1": table1,
    "incremental": incremental,
    "dynamic": dynamic,
    "tsne": no_tables,
    "generate": no_tables,
    "moves": moves,
    "trace": trace,
    "shuffle": shuffle,
    "dp-draw": no_tables,
}


# --- all verdicts


def verdicts(results: Results) -> list[tuple[str, str, str, Verdict]]:
    """Of every published accuracy: experiment, data set, system and classes, verdict."""
    found = []
    for data in spec.TABLE1_DATA:
        for system in spec.TABLE1_SYSTEMS:
            if (value := value_of(data, spec.SYSTEMS[system].published)) is not None:
                verdict = judge(results.of(Cell(data, system, 0)), value, results.data[data])
                found.append(("table1", data, spec.SYSTEMS[system].title, verdict))
    for data in spec.INCREMENTAL_DATA:
        for system in spec.INCREMENTAL_SYSTEMS:
            for n in spec.GROWING:
                if (value := value_of(data, spec.SYSTEMS[system].published, n_classes=n)) is not None:
                    verdict = judge(results.of(spec.incremental_cell(data, system, n, 0)), value, results.data[data])
                    found.append(("incremental", data, f"{spec.SYSTEMS[system].title}, {n} classes", verdict))
    return found


def counted(results: Results) -> Table:
    """How many verdicts of each kind."""
    kinds = list(MARKS)
    lines: list[tuple[str, ...]] = []
    for experiment in ("table1", "incremental"):
        counts: Counter[str] = Counter(v.kind for name, *_, v in verdicts(results) if name == experiment)
        lines.append((spec.EXPERIMENTS[experiment].where, *(str(counts[kind]) for kind in kinds)))
    return Table("Verdicts", ("published accuracies of", *kinds), tuple(lines))


def as_markdown(table: Table) -> list[str]:
    """Lines of a Markdown table, without its title."""
    rows: list[Sequence[Any]] = [table.columns, ["---"] * len(table.columns), *table.lines]
    lines = ["| " + " | ".join(str(cell).replace("|", r"\|") for cell in row) + " |" for row in rows]
    return [*lines, *(line for note in table.notes for line in ("", note))]
