"""What ``diva fit`` and ``diva resume`` share: learn in the folder of a run, and say what was found."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from diva.cli import _console
from diva.cli._errors import INTERRUPTED, Stopped, stopping_at_once
from diva.cli._sources import SourceSpec
from diva.data import LoadedData
from diva.data.datasets.registry import AS_PUBLISHED
from diva.models.base import DeepClusterer
from diva.report import write_report
from diva.runs.folder import CHECKPOINT
from diva.runs.summarize import summarize


def learn(model: DeepClusterer, run: Path, spec: SourceSpec, data: LoadedData, *, with_report: bool, as_json: bool) -> None:
    """Fit a model in the folder of a run, its ``run_dir``, and write there all that belongs to it.

    Parameters
    ----------
    model : DeepClusterer
        Not fitted yet.
    run : Path
    spec : SourceSpec
        How the data were named, to be noted in the folder.
    data : LoadedData
    with_report, as_json : bool
        What is written and printed at the end.
    """
    if data.fidelity and data.fidelity != AS_PUBLISHED:
        _console.note(f"{data.name}: {data.fidelity}")
    limits: list[str] = []
    try:
        with stopping_at_once(), _console.EpochProgress() as progress, _console.keeping_limits(limits):
            model.set_params(run_dir=run, callbacks=[SourceNote(spec, run), progress])
            progress.watch(model)
            model.fit(data.source)
            summary = summarize(model, data)
            summary.save(run)
    except Stopped:
        saved = (run / CHECKPOINT).exists()
        how = f"Go on with: diva resume {run}" if saved else "No epoch was finished, so there is nothing to go on from."
        _console.errors.print(f"Stopped. {how}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    report = _written_report(run) if with_report else None
    found = _console.describe(summary, str(run), report) | {"warnings": limits}
    if as_json:
        print(json.dumps(found))
    else:
        _console.show_summary(found)


def _written_report(run: Path) -> str:
    try:
        return str(write_report(run))
    except OSError as error:
        problem = error.strerror or str(error)
        raise ValueError(f"The model is saved in {run}, but not the report: {problem} Then: diva report {run}") from error


class SourceNote:
    """A callback that notes in the folder of a run what its data are, as soon as it is sure that they can be learnt from."""

    def __init__(self, spec: SourceSpec, run: Path) -> None:
        self._spec, self._run, self._is_written = spec, run, False

    def on_step(self, *_: int) -> None:
        """Write it once, after the first step."""
        if not self._is_written:
            self._spec.write(self._run)
            self._is_written = True

    def __call__(self, *_: object) -> None:
        """Epochs change nothing about it."""
