"""``diva resume``: go on with a run that was interrupted."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from diva.cli._errors import UsageError, for_people
from diva.cli._learn import learn
from diva.cli._options import Json, Report
from diva.cli._runs import is_abandoned, settle
from diva.cli._sources import SOURCE_FILE, SourceSpec, open_spec, specify
from diva.data.datasets.registry import is_name
from diva.distributed import from_main, is_main
from diva.mixture import DPMixture
from diva.runs.folder import CONFIG, MODEL, RunFolder
from diva.runs.load import ESTIMATORS
from diva.runs.records import read_json
from diva.runs.snapshot import SNAPSHOT
from diva.runs.upgrade import upgraded_run_config


def resume(
    run: Annotated[Path, typer.Argument(help="Folder of a run that was interrupted.")],
    source: Annotated[str | None, typer.Option(help="Where the data are now, if they were moved.")] = None,
    report: Report = True,
    as_json: Json = False,
) -> None:
    """Go on with a run that was interrupted; it ends with the numbers of an undisturbed one.

    \b
    Example
      diva resume runs/digits
    """
    with for_people():
        if not run.is_dir():
            raise UsageError(f"There is no run folder {str(run)!r}.")
        with RunFolder(run).locked(lend=True) if is_main() else nullcontext():  # of several processes, one has the folder
            if is_main():
                settle(run)
            from_main(None, "waiting for the folder")
            if not (run / SOURCE_FILE).exists() and is_abandoned(run):
                raise UsageError(f"The run in {str(run)!r} ended before its first step. Start it again with `diva fit`.")
            spec = SourceSpec.read(run)
            if (run / MODEL).exists() and (run / SNAPSHOT).exists():
                how = f"See `diva report {run}` and `diva predict {run} SOURCE`."
                raise UsageError(f"The run in {str(run)!r} is complete. {how}")
            if source is not None:
                spec = replace(spec, source=specify(source).source)
            elif not is_name(spec.source) and not Path(spec.source).exists():
                raise UsageError(f"The data of this run were {spec.source!r}, which is gone. Pass --source if they were moved.")
            learn(model_of(run), run, spec, open_spec(spec), with_report=report, as_json=as_json)


def model_of(run: Path) -> Any:
    """The model that a run was started with, to go on from its checkpoint; raises UsageError if the folder does not say it."""
    try:
        config = upgraded_run_config(read_json(run / CONFIG))
        params = {name: tuple(value) if isinstance(value, list) else value for name, value in config["params"].items()}
        kind = ESTIMATORS[config["model"]]
        return kind(**params) if kind is DPMixture else kind(**params, run_dir=run, resume=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{str(run / CONFIG)!r} is missing or damaged ({error}). Start the run again with `diva fit`."
        ) from None
