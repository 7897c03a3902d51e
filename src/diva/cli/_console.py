"""What the terminal shows: progress while a model learns, and a summary at the end. Plain and short when piped."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from diva.cli._terminal import errors, output
from diva.distributed import is_main
from diva.exceptions import ComponentLimitWarning, DataKindWarning, FewerClustersWarning, NotCompiledWarning, ScaleWarning
from diva.models.base import Clusterer, describe_terms
from diva.report.words import count, duration
from diva.runs.summary import Summary
from diva.training.state import EpochRecord

BARS = "▁▂▃▄▅▆▇█"
KEPT_WARNINGS = (ComponentLimitWarning, DataKindWarning, FewerClustersWarning, NotCompiledWarning, ScaleWarning)
MOST_COLUMNS = 40  # of a table that are shown
LONGEST = 30  # sparkline, so that a line fits in 80 columns


class _Progress:
    """A line that moves while somebody watches, and leaves nothing behind."""

    def __init__(self, description: str, *columns: ProgressColumn) -> None:
        said = TextColumn("{task.fields[said]}", style="dim")
        shown = (SpinnerColumn(), TextColumn("{task.description}"), *columns, said)
        # A pipe or a file gets neither bars nor colours.
        self._progress = Progress(*shown, console=errors, transient=True, disable=not errors.is_terminal or not is_main())
        self._task = self._progress.add_task(description, total=None, said="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def now(self, doing: str) -> None:
        """Say what is being done, of which nobody knows how long it takes."""
        self._progress.update(self._task, description=doing, total=None, said="")


class EpochProgress(_Progress):
    """A callback that shows epoch, loss terms, the number of clusters and the last births and merges."""

    def __init__(self, model: Clusterer) -> None:
        columns = (BarColumn(bar_width=24), TaskProgressColumn(), TimeRemainingColumn(compact=True))
        super().__init__("looking at the data", *columns)
        self._model = model  # knows, once it has seen the data, how many epochs there will be
        self._epoch = 0
        self._last_move = ""

    def on_step(self, step: int, n_steps: int) -> None:
        """Move the bar."""
        waiting = step == n_steps
        self._progress.update(
            self._task,
            description=f"epoch {self._epoch + 1}" + (": fitting the mixture" if waiting else ""),
            completed=self._epoch + step / n_steps,
            total=getattr(self._model.config_, "n_epochs", 1),  # a model without networks learns at once
        )

    def __call__(self, _: Clusterer, record: EpochRecord) -> None:
        """Note what an epoch did."""
        self._epoch = record.epoch + 1
        moves = {"birth": record.births, "merge": record.merges, "deletion": record.deletes}
        if happened := ", ".join(count(n, name) for name, n in moves.items() if n):
            self._last_move = f"{happened} in epoch {self._epoch}"
        self._progress.update(self._task, said=f"{record.phase}  {describe_terms(record)}  {self._last_move}")
        if self._epoch >= getattr(self._model.config_, "n_epochs", 1):
            self.now("fitting the final mixture")


class BatchProgress(_Progress):
    """How far a stream has come, and one more line for every change of clusters."""

    def __init__(self, n_samples: int) -> None:
        super().__init__(f"{n_samples:,} samples")

    def say(self, events: Sequence[dict[str, Any]]) -> None:
        """Show the events of a batch, of which the first is about all of it."""
        batch, *changes = events
        said = f"batch {batch['batch']}  novel {batch['novel_share'] or 0.0:.1%}  clusters {batch['n_clusters']}"
        self._progress.update(self._task, description=f"{batch['last'] + 1:,} samples", said=said)
        for change in changes:
            note(f"batch {batch['batch']}: {change_of_clusters(change)}")


def change_of_clusters(event: dict[str, Any]) -> str:
    """One event of clusters, as people say it.

    >>> change_of_clusters({"event": "split", "parents": [3], "children": [3, 7]})
    'cluster 3 split into 3, 7'
    """
    before, after = (", ".join(map(str, event[side])) for side in ("parents", "children"))
    if event["event"] == "born":
        return f"cluster {after} born"
    if event["event"] in ("died", "renamed"):
        return f"cluster {before} {event['event']}"
    return f"clusters {before} merged into {after}" if event["event"] == "merged" else f"cluster {before} split into {after}"


def sparkline(values: Sequence[float]) -> str:
    """A curve in one line of text.

    >>> sparkline([1, 2, 4, 8])
    '▁▂▄█'
    """
    if len(values) > LONGEST:
        values = [values[round(i * (len(values) - 1) / (LONGEST - 1))] for i in range(LONGEST)]
    low, high = min(values), max(values)
    reach = (high - low) or 1.0
    return "".join(BARS[round((len(BARS) - 1) * (value - low) / reach)] for value in values)


def describe(summary: Summary, run: str, report: str | None) -> dict[str, Any]:
    """What a fit found, plain, for machines."""
    said: dict[str, Any] = {
        "run": run,
        "report": report,
        "model": summary.model,
        "n_samples": summary.n_samples,
        "n_clusters": summary.n_clusters,
        "epochs": len(summary.epochs),
        "seconds": round(summary.seconds, 2),
        "clusters": [_describe_cluster(summary, number) for number in range(summary.n_clusters)],
    }
    if summary.components is not None:
        said["n_components"] = summary.n_components
        said["components_per_epoch"] = [epoch.n_components for epoch in summary.epochs if epoch.n_components]
    if summary.metrics:
        said["metrics"] = summary.metrics
    if summary.data:
        said["data"] = summary.data
    if summary.agreement:
        said |= {"codes": (summary.config or {}).get("codes"), "agreement": summary.agreement}
    return said


def _describe_cluster(summary: Summary, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {"cluster": summary.ids[number], "size": int(summary.snapshot.sizes[number])}
    if summary.components is not None:
        row["components"] = list(summary.components.clusters).count(number)
    row["confidence"] = round(float(summary.snapshot.mean_confidence[number]), 4)
    if summary.class_names is not None:
        name, share = summary.majority(number) or (summary.class_names[0], 0.0)
        row |= {"mostly": name, "purity": round(share, 4)}
    return row


def show_columns(facts: Mapping[str, Any]) -> None:
    """Print what the columns of a table are used as, and what was left out."""
    if broken := facts.get("broken"):
        more = f" and {len(broken) - 5:,} more" if len(broken) > 5 else ""
        say(f"{count(len(broken), 'broken image')} left out: {escape(', '.join(broken[:5]))}{more}", "yellow")
    if not (rows := facts.get("columns")):
        return
    table = Table(title=f"{count(len(rows), 'column')}", title_justify="left", box=None)
    for name in rows[0]:
        table.add_column(name, justify="right" if name in ("features", "missing") else "left")
    for row in rows[:MOST_COLUMNS]:
        table.add_row(*(escape(str(value or "")) for value in row.values()))
    output.print(table)
    if len(rows) > MOST_COLUMNS:
        say(f"... and {len(rows) - MOST_COLUMNS:,} more; all are in the report.")
    if facts.get("rows_dropped"):
        say(f"{count(facts['rows_dropped'], 'row')} with gaps left out.")
    if facts.get("rows_filled"):
        say(f"{count(facts['rows_filled'], 'row')} with gaps filled; --missing drop leaves them out.")


def show_summary(said: dict[str, Any]) -> None:
    """Print the summary for people."""
    filled = [row for row in said["clusters"] if row["size"]]
    title = f"{count(len(filled), 'cluster')} in {said['n_samples']:,} samples"
    table = Table(title=title, title_justify="left", box=None)
    largest = max(row["size"] for row in filled)
    formats = {"cluster": "{}", "size": "{:,}", "": "[cyan]{}[/]", "components": "{}", "confidence": "{:.2f}"}
    formats |= {"mostly": "{}", "purity": "{:.2f}"}
    names = [name for name in formats if not name or name in filled[0]]
    for name in names:
        table.add_column(name, justify="left" if name in ("", "mostly") else "right")
    for row in filled:
        cells = row | {"": "█" * max(1, round(16 * row["size"] / largest))}
        table.add_row(*(formats[name].format(cells[name]) for name in names))
    output.print(table)
    if n_empty := len(said["clusters"]) - len(filled):
        say(f"{n_empty} more of the model's clusters hold none of these samples.")
    if curve := said.get("components_per_epoch"):
        title = f"Components per {'lap' if 'laps' in said else 'epoch'}"
        say(f"{title:<22}{sparkline(curve)}  {curve[0]} to {max(curve)}, {said['n_components']} at the end")
    if "metrics" in said:
        found = said["metrics"]["clusters"]
        say(f"Against the labels    one-to-one accuracy {found['acc_one_to_one']:.3f}, NMI {found['nmi']:.3f}")
    if len(filled) == 1:
        say("One cluster           No evidence for more was found.", "yellow")
    if said.get("codes") == "features":
        say("Codes                 the features as they are: neighbours agree more on their clusters")
    rounds = count(said["laps"], "lap") if "laps" in said else f"{said['epochs']} epochs"
    say(f"Learnt for            {duration(said['seconds'])}, {rounds}")
    for warning in said.get("warnings", ()):
        say(f"Note                  {warning}", "yellow")
    say(f"Run                   {said['run']}")
    if said["report"]:
        say(f"Report                {said['report']}")


def say(text: str, style: str | None = None) -> None:
    """A line of the result; however long, it stays one line."""
    output.print(text, soft_wrap=True, style=style)


@contextmanager
def keeping_limits(kept: list[str]) -> Iterator[None]:
    """Keep what is warned about limits, wishes and scales, each once, for the summary at the end; be silent about the rest."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
    messages = (str(w.message) for w in warned if issubclass(w.category, KEPT_WARNINGS))
    kept[:] = dict.fromkeys([*kept, *messages])


def note(text: str) -> None:
    """A remark on standard error, for people who look."""
    if sys.stderr is not None and errors.is_terminal and is_main():
        errors.print(text, style="dim", soft_wrap=True)
