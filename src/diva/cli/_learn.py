"""Learning in the folder of a run: what `diva fit` and `diva resume` do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diva.cli import _console
from diva.cli._errors import saying, stopping_at_once
from diva.cli._sources import SourceSpec
from diva.data import LoadedData
from diva.data.datasets.registry import AS_PUBLISHED
from diva.models.base import Clusterer
from diva.models.config import PAPER_DATASETS
from diva.report import write_report
from diva.runs.folder import CHECKPOINT
from diva.runs.summarize import summarize


def suggestions(data: LoadedData, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that suit a data set; beside a preset that was asked for, only those that it has for the data set."""
    preset = given.get("preset", "auto")
    if preset == "paper":
        return PAPER_DATASETS.get(data.name, {})
    return data.suggested if preset == "auto" else {}


def learn(model: Clusterer, run: Path, spec: SourceSpec, data: LoadedData, *, with_report: bool, as_json: bool) -> None:
    """Fit a model in the folder of a run, its ``run_dir``, write there all that belongs to it, and say what was found."""
    if data.fidelity and data.fidelity != AS_PUBLISHED:
        _console.note(f"{data.name}: {data.fidelity}")
    limits: list[str] = []

    def how_to_go_on() -> str:
        saved = (run / CHECKPOINT).exists()
        return f"Go on with: diva resume {run}" if saved else "No epoch was finished: run the same command again."

    with _console.EpochProgress(model) as progress:
        with (
            saying(how_to_go_on),
            stopping_at_once(lambda: f". {how_to_go_on()}"),
            _console.keeping_limits(limits),
        ):
            source_note = SourceNote(spec, run)
            model.set_params(run_dir=run, callbacks=[source_note, progress])
            model.fit(data.source)
            progress.now("looking at what was found")
            summary = summarize(model, data)
            source_note.on_step()  # where there was nothing to learn
            summary.save(run)
        progress.now("writing the report")
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


@dataclass
class SourceNote:
    """A callback that notes in the folder of a run what its data are, as soon as it is sure that they can be learnt from."""

    spec: SourceSpec
    run: Path
    is_written: bool = False

    def on_step(self, *_: int) -> None:
        """Write it once, after the first step."""
        if not self.is_written:
            self.spec.write(self.run)
            self.is_written = True

    def __call__(self, *_: object) -> None:
        """Epochs change nothing about it."""
