"""Write docs/zoo.md from the rows of the zoo, so that no figure in it is typed by hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import zoo_pictures
from benchmarks.bench_zoo import LARGER, LIMIT, METHODS, MOST_SAMPLES, ROWS, group_of, read_rows
from benchmarks.recording import Row, table
from benchmarks.worker import TOO_SLOW
from diva.exceptions import DatasetNotFoundError

PAGE = Path(__file__).parent.parent / "docs" / "zoo.md"
SCORES = {"ARI": "adjusted Rand index", "one-to-one accuracy": "one-to-one accuracy", "NMI": "NMI"}
MARGIN = 0.02  # of the adjusted Rand index, from which on a data set is won
GROUPS = ("shapes", "tables")
OWN = ("DPMixture", "DIVA")  # methods whose K is shown


# --- summary


@dataclass(frozen=True)
class Mean:
    """A method on a data set, over seeds; a fit without a result has scores of 0."""

    scores: dict[str, float]
    seconds: float
    ks: tuple[int, ...]  # of the fits that have a result
    troubles: tuple[str, ...]  # of those that have none

    @property
    def n_seeds(self) -> int:
        return len(self.ks) + len(self.troubles)


Means = dict[str, dict[str, Mean]]  # by method, then by data set


def means_of(rows: Iterable[Row]) -> Means:
    """Means over seeds, methods in their usual order."""
    cells: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        cells.setdefault(row["method"], {}).setdefault(row["data"], []).append(row)
    order = [key for key in METHODS if key in cells]
    return {key: {data: mean_of(cells[key][data]) for data in sorted(cells[key])} for key in order}


def mean_of(rows: Sequence[Row]) -> Mean:
    return Mean(
        {name: float(np.mean([row.get(name, 0.0) for row in rows])) for name in SCORES},
        float(np.mean([row["seconds"] for row in rows])),
        tuple(row["K"] for row in rows if "K" in row),
        tuple(row["trouble"] for row in rows if "trouble" in row),
    )


def headline(means: Means, groups: Sequence[str] = GROUPS) -> list[Row]:
    """A row for every method: mean scores over data sets, of all and of each group."""
    found = []
    for key, sets in means.items():
        row: Row = {"method": METHODS[key].title, "data sets": len(sets), "seeds": max(mean.n_seeds for mean in sets.values())}
        for name, title in SCORES.items():
            row[f"{title}, all" if groups else title] = average(sets, name)
            row |= {f"{title}, {group}": average(sets, name, group) for group in groups}
        row["no result"] = sum(len(mean.troubles) for mean in sets.values())
        row["seconds"] = f"{sum(mean.seconds for mean in sets.values()):,.0f}"
        found.append(row)
    return found


def average(sets: dict[str, Mean], score: str, group: str | None = None) -> str:
    """Mean of a score over the data sets of a group, or over all."""
    values = [mean.scores[score] for data, mean in sets.items() if group is None or group_of(data) == group]
    return f"{np.mean(values):.3f}" if values else "-"


def duels(means: Means) -> list[Row]:
    """How many data sets the method of a row won and lost against that of each column."""
    return [
        {"won / lost against": METHODS[key].title, **{METHODS[other].title: duel(means, key, other) for other in means}}
        for key in means
    ]


def duel(means: Means, key: str, other: str) -> str:
    """Data sets won / lost by more than the margin, of those that both have."""
    if key == other:
        return ""
    both = means[key].keys() & means[other].keys()
    ahead = np.array([means[key][data].scores["ARI"] - means[other][data].scores["ARI"] for data in both])
    return f"{int((ahead > MARGIN).sum())} / {int((ahead < -MARGIN).sum())}"


def lines_of(rows: Iterable[Row], means: Means) -> list[Row]:
    """A row for every data set: the adjusted Rand index of every method, the best in bold, and how many clusters diva found."""
    about = {row["data"]: row for row in rows}
    own = [key for key in OWN if key in means]
    found = []
    for data in sorted(about):
        values = {key: sets[data].scores["ARI"] for key, sets in means.items() if data in sets}
        best = max(values.values())
        line: Row = {"data": data, "samples x columns": f"{about[data]['n']:,} x {about[data]['columns']:,}"}
        line |= {METHODS[key].title: shown(sets.get(data), best) for key, sets in means.items()}
        line |= {f"K of {key}": ks_of(means[key].get(data)) for key in own}
        found.append({**line, "true K": about[data]["true K"]})
    return found


def shown(mean: Mean | None, best: float) -> str:
    """An adjusted Rand index, or why there is none."""
    if mean is None:
        return ""
    if not mean.ks:
        return TOO_SLOW if TOO_SLOW in mean.troubles else "failed"
    value = mean.scores["ARI"]
    return f"**{value:.3f}**" if round(value, 3) >= round(best, 3) else f"{value:.3f}"


def ks_of(mean: Mean | None) -> str:
    """The numbers of clusters over seeds, one where they agree."""
    ks = [] if mean is None else mean.ks
    return str(ks[0]) if len(set(ks)) == 1 else ", ".join(map(str, ks))


def facts_of(rows: Collection[Row]) -> str:
    """When, at which commit and where the rows were measured."""
    dates = sorted({row["date"] for row in rows})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    commits = {key: _all(row["commit"] for row in rows if row["method"] == key) for key in METHODS}
    if len(set(filter(None, commits.values()))) == 1:
        said = f"commit {_all(row['commit'] for row in rows)}"
    else:
        said = "commits " + "; ".join(f"{commit} ({METHODS[key].title})" for key, commit in commits.items() if commit)
    return f"Measured {when}, {said}, processor {_all(row['processor'] for row in rows)}; {_all(r['version'] for r in rows)}."


def _all(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


# --- page


def main() -> None:
    rows = read_rows(ROWS)
    try:
        pictures = [path.name for path in zoo_pictures.draw(rows)]
    except DatasetNotFoundError as error:
        raise SystemExit(str(error)) from error
    PAGE.write_text(page(list(rows.values()), pictures))
    print(f"wrote {PAGE} and {len(pictures)} pictures")


def page(rows: Sequence[Row], pictures: Sequence[str] = ()) -> str:
    """The page, from rows and the names of pictures."""
    zoo = [row for row in rows if row["data"] not in LARGER]
    larger = [row for row in rows if row["data"] in LARGER]
    lines = [*introduction(zoo), *zoo_section(zoo, pictures), *larger_section(larger), *how_measured(rows), *how_to_run()]
    return "\n".join(lines) + "\n"


def introduction(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return ["# Many data sets", "", "Nothing has been measured yet."]
    counts = {group: len({row["data"] for row in rows if group_of(row["data"]) == group}) for group in GROUPS}
    return [
        "# Many data sets",
        "",
        f"What diva finds on {sum(counts.values())} data sets that others have published, beside what else one would try: "
        f"{counts['shapes']} shapes, drawn in two or three dimensions, and {counts['tables']} tables of real measurements. "
        "k-means and the Gaussian mixture are told how many clusters there are; all others are not.",
    ]


def zoo_section(rows: Sequence[Row], pictures: Sequence[str]) -> list[str]:
    if not rows:
        return []
    means = means_of(rows)
    lines = ["", facts_of(rows), "", "## All data sets", "", *table(headline(means)), "", *incomplete(means)]
    lines += [
        "Scores are means over data sets. No result: fits that failed or took too long, which count as 0. Seconds: of one fit "
        "of every data set, together.",
        "",
        f"Data sets on which a method's adjusted Rand index was higher / lower than another's by more than {MARGIN}:",
        "",
        *table(duels(means)),
        "",
        "## Each data set",
        "",
        "Adjusted Rand index, mean over seeds; the best in bold. K is the number of clusters each seed found.",
    ]
    for group in GROUPS:
        lines += folded(group, rows, means)
    if pictures:
        lines += ["", "## In pictures", "", *captions(pictures)]
    return lines


def incomplete(means: Means) -> list[str]:
    """A warning where methods were run on different data sets."""
    if len({frozenset(sets) for sets in means.values()}) == 1:
        return []
    return ["Not every method has been run on every data set: means over different data sets do not compare.", ""]


def folded(group: str, rows: Sequence[Row], means: Means) -> list[str]:
    mine = [row for row in rows if group_of(row["data"]) == group]
    if not mine:
        return []
    lines = lines_of(mine, means)
    summary = f"<summary>{group.capitalize()}: {len(lines)} data sets</summary>"
    return ["", '<details markdown="1">', summary, "", *table(lines), "", "</details>"]


def captions(pictures: Sequence[str]) -> list[str]:
    shown = " and ".join(zoo_pictures.SHOWN)
    said = (
        f"The shapes of two columns: the classes, then what {shown} found with seed 0, the number of clusters, and the "
        "adjusted Rand index (ARI). A cluster has the colour of the class it agrees with best; grey points were left out as "
        "noise."
    )
    alternative = f"Shapes coloured by their classes and by what {shown} found"
    return [said, *(line for name in pictures for line in ("", f"![{alternative}](images/{name})"))]


def larger_section(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    means = means_of(rows)
    said = f"Images, texts and sensors, as they are; of each the first {MOST_SAMPLES:,} samples at most."
    lines = ["", "## Larger data", "", said, "", facts_of(rows), "", *table(headline(means, groups=())), "", *incomplete(means)]
    return [*lines, "Adjusted Rand index on each:", "", *table(lines_of(rows, means))]


def how_measured(rows: Sequence[Row]) -> list[str]:
    limits = sorted({row["seconds"] for row in rows if row.get("trouble") == TOO_SLOW} or {LIMIT})
    limit = " or ".join(f"{seconds:g}" for seconds in limits)
    return [
        "",
        "## How it is measured",
        "",
        "- Everything is called with its defaults but for what its name says. `n/100`: 5 at least, which is the default. UMAP: "
        "10 dimensions (as many as there are columns, if they are fewer), 20 neighbours, `min_dist=0`. EVoC: on fewer than "
        "four columns as many embedding dimensions; it is made for embeddings and compares directions only. k-means: "
        "the best of 10 starts. Gaussian mixtures: full covariances.",
        "- Tables are standardized for every method, shapes are given as they are.",
        "- Adjusted Rand index: pairs of samples on which clusters and classes agree, 0 by chance and 1 at best. One-to-one "
        "accuracy: samples that are right if each cluster stands for at most one class and each class for at most one cluster. "
        "NMI: normalized mutual information. Points that a method labels -1 count as one cluster of their own in all scores, "
        "though not in K.",
        "- The classes of shapes are a person's idea of the groups; where noise is labelled, it is a class.",
        "- HDBSCAN draws no random numbers and runs once. The others run with several seeds, whose mean counts.",
        f"- A fit that takes more than {limit} seconds is given up as too slow. Every fit has one thread, one fit runs at a "
        "time, and what is compiled at the first call (UMAP, EVoC) is compiled before the clock starts.",
    ]


def how_to_run() -> list[str]:
    return [
        "",
        "```console",
        "$ export DIVA_DATA=folder   # holds zoo/zoo.npz",
        "$ python -m benchmarks zoo zoo_large   # goes on where it stopped",
        "$ python -m benchmarks zoo --only shape-D31,table-iris --methods DPMixture,DIVA",
        "$ python -m benchmarks zoo --again DPMixture   # after a change",
        "$ python -m benchmarks zoo_page   # this page",
        "```",
    ]
