"""Learning in the folder of a run: what `diva fit` and `diva resume` do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diva.atomic import without_link
from diva.cli import _console
from diva.cli._errors import saying, stopping_at_once
from diva.cli._sources import SOURCE_FILE, SourceSpec
from diva.data import LoadedData
from diva.data.datasets.registry import AS_PUBLISHED
from diva.distributed import alone, is_main
from diva.mixture import DPMixture
from diva.models.config import PAPER_DATASETS
from diva.parameters import plain
from diva.report import write_report
from diva.runs.archive import Archive
from diva.runs.folder import CHECKPOINT, CONFIG, RunFolder, RunIdentity, fingerprint
from diva.runs.summarize import summarize
from diva.version import __version__


def suggestions(data: LoadedData, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that suit a data set; beside a preset that was asked for, only those that it has for the data set."""
    preset = given.get("preset", "auto")
    if preset == "paper":
        return PAPER_DATASETS.get(data.name, {})
    return data.suggested if preset == "auto" else {}


def learn(model: Any, run: Path, spec: SourceSpec, data: LoadedData, *, with_report: bool, as_json: bool) -> None:
    """Fit a model in the folder of a run, write there all that belongs to it, and say what was found."""
    if data.fidelity and data.fidelity != AS_PUBLISHED:
        _console.note(f"{data.name}: {data.fidelity}")
    if not as_json and is_main():
        _console.show_columns(data.facts)
    limits: list[str] = []

    def how_to_go_on() -> str:
        saved = (run / CHECKPOINT).exists()
        return f"Go on with: diva resume {run}" if saved else "No epoch was finished: run the same command again."

    with ExitStack() as held, _console.EpochProgress(model) as progress:
        with (
            saying(how_to_go_on),
            stopping_at_once(lambda: f". {how_to_go_on()}"),
            _console.keeping_limits(limits),
        ):
            source_note, started = SourceNote(spec, run), time.perf_counter()
            if isinstance(model, DPMixture):
                progress.now("fitting the mixture")
                fit_mixture(model, run, data, source_note.on_step)
            else:
                model.set_params(run_dir=run, callbacks=[source_note, progress])
                model.fit(data.source)
            seconds = time.perf_counter() - started
            if not is_main():
                return  # one process writes and speaks
            held.enter_context(alone())
            progress.now("looking at what was found")
            summary = summarize(model, data)
            source_note.on_step()  # where there was nothing to learn
            summary.save(run)
        progress.now("writing the report")
        report = _written_report(run) if with_report else None
    found = _console.describe(summary, str(run), report) | {"warnings": limits}
    if isinstance(model, DPMixture):
        found |= {"laps": len(model.history_), "seconds": round(seconds, 2)}
    if as_json:
        print(json.dumps(found))
    else:
        _console.show_summary(found)


def fit_mixture(model: DPMixture, run: Path, data: LoadedData, on_start: Callable[[], None]) -> None:
    """Fit a mixture in the folder of a run. It has no epochs, so a run that is resumed begins anew, with the same numbers."""
    if not is_main():
        model.fit(data.source)
        return
    kind, folder = "DPMixture checkpoint", RunFolder(run)
    params = {name: plain(value) for name, value in model.get_params(deep=False).items()}
    identity = RunIdentity({"version": __version__, "model": "DPMixture", "params": params}, fingerprint(data.source))
    with folder.locked():
        if folder.checkpoint.exists():
            folder.read_checkpoint(kind, identity)  # raises if it is of another run
        else:
            folder.start(identity.config)
        on_start()
        try:
            model.fit(data.source)
        except (TypeError, ValueError):  # data that cannot be learnt from: nothing has begun
            if not folder.checkpoint.exists():
                for name in (CONFIG, SOURCE_FILE):
                    (run / name).unlink(missing_ok=True)
            raise
        folder.write_checkpoint(Archive(kind, {"history": []}, {}), identity)  # says that the run got here, and with what
        model.save(without_link(folder.model))


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
