"""``diva report``: what a run found, as one HTML file and as figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diva.cli import _console
from diva.cli._errors import for_people
from diva.cli._runs import add_missing_summary, check_finished
from diva.report import write_figures, write_report
from diva.runs.stream_log import STREAM, read_commit


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="HTML file to write; RUN/report.html by default.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for the same plots as PNG and SVG, for papers.")] = None,
) -> None:
    """Write what was found as one HTML file that needs no network.

    \b
    Examples
      diva report runs/digits
      diva report runs/digits --figures paper/figures
    """
    with for_people():
        check_finished(run)
        add_missing_summary(run)
        if (streamed := read_commit(run / STREAM)) is not None:
            _console.note(f"The report is about the fit; {streamed.samples:,} samples of a stream came after it.")
        _console.say(f"Report: {write_report(run, out)}")
        if figures is not None:
            for path in write_figures(run, figures):
                _console.say(f"Figure: {path}")
