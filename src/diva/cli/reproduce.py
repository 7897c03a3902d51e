"""``diva reproduce``: the paper's evaluation, run again, beside the published values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as Shown
from rich.text import Text

from diva.cli import _console
from diva.cli._errors import UsageError, for_people, stopping_at_once
from diva.cli._options import one_of
from diva.cli._terminal import errors
from diva.experiments.page import progress, write_pages
from diva.experiments.run import Workspace, run_jobs
from diva.experiments.spec import EXPERIMENTS, PROFILES, SYSTEMS, Job, Profile, available, cells_of, configure
from diva.experiments.tables import Table
from diva.report.words import count, duration

LOOKING = ("list", "status", "page")


def reproduce(
    what: Annotated[str, typer.Argument(help=f"One of {', '.join((*LOOKING, *EXPERIMENTS, 'all'))}.", show_default=False)],
    profile: Annotated[
        str | None, typer.Option(help="How much of it: smoke (minutes), quick (hours) or full.", metavar="smoke|quick|full")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for cells, rows, figures and pages.")] = None,
) -> None:
    """Run the paper's evaluation, and show the results beside the published values.

    list says what there is; status how far a folder has come; page writes tables and figures of what has been run. A cell, one
    fit of a system to data with a seed, that is done is not run again, and one that was interrupted goes on. Started several
    times on one folder, on one machine or on several that share it, the processes share the cells.

    \b
    Examples
      diva reproduce list
      diva reproduce table1 --profile quick --out reproduction
      diva reproduce status --out reproduction
    """
    with for_people():
        one_of("WHAT", what, (*LOOKING, *EXPERIMENTS, "all"))
        if what == "list":
            _show(_listed(PROFILES[_profile_name(profile or "full")]))
            return
        if out is None:
            raise UsageError("--out is missing: the folder of the reproduction, such as --out reproduction.")
        workspace = Workspace(out)
        if what in ("status", "page"):
            chosen = PROFILES[_profile_name(workspace.profile_name())]
            if what == "status":
                _show(progress(workspace, chosen))
                return
        else:
            chosen = PROFILES[_profile_name(profile or "quick")]
            workspace.open(chosen)
            _run(what, workspace, chosen)
        for path in write_pages(workspace, chosen)[:3]:
            _console.say(f"Wrote {path}")


def _tell(text: str) -> None:
    """A line on standard error, where it is a file too: these runs are long."""
    errors.print(text, soft_wrap=True, markup=False)


def _profile_name(text: str) -> str:
    return one_of("--profile", text, PROFILES)


def _run(what: str, workspace: Workspace, profile: Profile) -> None:
    names = list(EXPERIMENTS) if what == "all" else [what]
    cells = cells_of(names, profile)
    jobs = [job for cell in cells if (job := configure(cell, profile)) is not None]
    waiting = [job for job in jobs if workspace.state(job) != "done"]
    _tell(f"{count(len(cells), 'cell')}, {len(jobs) - len(waiting)} done before.")
    for key in dict.fromkeys(cell.data for cell in cells):
        if missing := available(key, profile).missing:
            _tell(missing)
    ended = 0

    def tell(event: str, job: Job, found: Any) -> None:
        nonlocal ended
        if event == "started":
            return
        ended += 1
        head = f"[{ended}/{len(waiting)}] {job.cell.data}, {SYSTEMS[job.cell.system].title}"
        head += f", {'-'.join(map(str, job.cell.stages))} classes" if job.cell.stages else ""
        if event == "failed":
            _tell(f"{head}: failed, {found}")
        else:
            said = f"majority {found['majority accuracy']:.3f}, one-to-one {found['one-to-one accuracy']:.3f}, K {found['K']}"
            _tell(f"{head}, seed {job.cell.seed}: {said}, {duration(found['seconds'])}")

    with stopping_at_once(lambda: ". Start the same command again to go on: what is done is kept."):
        run_jobs(waiting, workspace, tell)


def _listed(profile: Profile) -> Table:
    lines = []
    for key, experiment in EXPERIMENTS.items():
        cells = list(experiment.cells(profile))
        lines.append((key, experiment.title, experiment.where, str(len(cells))))
    about = tuple(f"{one.name}: {one.about}" for one in PROFILES.values())
    return Table("", ("name", "what", "where in the paper", f"cells ({profile.name})"), tuple(lines), about)


def _show(table: Table) -> None:
    """Print a table for people, or plain lines with tabs where the output goes into a file or another program."""
    console = Console()
    if not console.is_terminal:
        for line in (table.columns, *table.lines):
            typer.echo("\t".join(line))
    else:
        shown = Shown(box=None, header_style="bold", pad_edge=False)
        for name in table.columns:
            shown.add_column(name, overflow="fold")
        for line in table.lines:
            shown.add_row(*map(Text, line))
        console.print(shown)
    for note in table.notes:
        typer.echo(note)
