"""``diva compare``: two runs on the same data beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from diva.cli import _console
from diva.cli._errors import for_people
from diva.cli._options import Json
from diva.cli._runs import add_missing_summary, check_finished
from diva.cli._terminal import output
from diva.report.compare import Comparison
from diva.report.compare import compare as compare_summaries
from diva.runs.summary import Summary


def compare(
    run_a: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    run_b: Annotated[Path, typer.Argument(help="Folder of another run on the same data.")],
    as_json: Json = False,
) -> None:
    """Compare two runs on the same data: do they agree, what moved where, which is better without labels.

    \b
    Examples
      diva compare runs/digits runs/digits-2
    """
    with for_people():
        summaries = []
        for run in (run_a, run_b):
            check_finished(run)
            add_missing_summary(run)
            summaries.append(Summary.read(run))
        first, second = summaries
        found = compare_summaries(first, second, (str(run_a), str(run_b)))
        if as_json:
            print(json.dumps(found.as_plain()))
        else:
            _show(found)


def _show(found: Comparison) -> None:
    row = found.agreement
    _console.say(f"{found.n_samples:,} samples are in both runs.")
    _console.say(
        f"Agreement: adjusted Rand index {row['ari']:.3f}, adjusted mutual information {row['ami']:.3f}; "
        f"{row['acc_one_to_one']:.1%} of samples are in matching clusters."
    )
    table = Table(box=None)
    for title in ("run", "clusters", "neighbour information (nats)", "stability"):
        table.add_column(title, justify="left" if title == "run" else "right")
    for name, values in found.quality.items():
        nats, stability = values["neighbour information"], values["stability"]
        table.add_row(name, f"{values['clusters']:.0f}", f"{nats:.3f}", f"{stability:.3f}")
    output.print(table)
    better = found.better
    _console.say(
        "Neither is clearly better." if better is None else f"Nearest neighbours agree more on the clusters of {better}."
    )
    for move in found.moves:
        _console.say(
            f"{move['samples']:,} of cluster {move['from']} ({move['share']:.0%}) are in cluster {move['to']} of the other "
            f"run, most of the rest in {move['others_went_to']}."
        )
