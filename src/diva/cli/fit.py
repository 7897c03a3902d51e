"""``diva fit``: learn, with checkpoints, and say what was found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from diva.cli import _console
from diva.cli._errors import for_people, saying, stopping_at_once
from diva.cli._flags import SEED, given_params, make_model, suitable, with_flags
from diva.cli._options import Columns, ImageSize, Json, Key, LabelColumn, Limit, Report, Split, either, one_of
from diva.cli._runs import new_run, went_on
from diva.cli._sources import SourceSpec, open_spec, specify
from diva.data import LoadedData
from diva.data.datasets.registry import AS_PUBLISHED
from diva.distributed import alone, is_main
from diva.models.base import Clusterer
from diva.models.config import PAPER_DATASETS
from diva.report import write_report
from diva.runs.folder import CHECKPOINT
from diva.runs.load import MODELS
from diva.runs.summarize import summarize


@with_flags
def fit(
    source: Annotated[
        str,
        typer.Argument(help="A data set (see `diva data list`), .npy, .npz, .csv, .parquet, .idx.gz, or a folder of images."),
    ],
    model: Annotated[str, typer.Option(help=f"What to fit: {either([*MODELS])}.", metavar="NAME", is_eager=True)] = "diva",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the run; by default a new one under runs/.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="TOML file with parameters of the model.")] = None,
    split: Split = "train",
    columns: Columns = None,
    label_column: LabelColumn = None,
    labels: Annotated[str | None, typer.Option(help="File with known classes: .npy, or text with one a line.")] = None,
    image_size: ImageSize = None,
    key: Key = None,
    limit: Limit = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already in --out.")] = False,
    report: Report = True,
    as_json: Json = False,
    **given: str | None,
) -> None:
    """Find clusters in SOURCE; nobody needs to know how many there are.

    Parameters of another model than DIVA, a baseline to compare with, are shown by `diva fit --model NAME --help`.

    \b
    Examples
      diva fit digits
      diva fit measurements.csv --label-column species --out runs/measurements
      diva fit photos/ --image-size 32,32 --augmentation photo
      diva fit features.parquet --columns a,b,c --n-epochs 30 --random-state 1
      diva fit mnist --model dec --n-clusters 10
    """
    with for_people():
        spec = specify(source, split, columns, image_size, label_column=label_column, labels=labels, key=key, limit=limit)
        params = given_params(one_of("--model", model, MODELS), given, config)  # said before long reading
        data = open_spec(spec)
        made = make_model(model, SEED | suitable(model, suggestions(data, params)) | params)
        if goes_on := out is not None and went_on(out, overwrite):
            made.set_params(run_dir=out, resume=True)
        with new_run(out, data.name, overwrite, goes_on=goes_on) as run:
            learn(made, run, spec, data, with_report=report, as_json=as_json)


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

    with (
        ExitStack() as held,
        saying(how_to_go_on),
        stopping_at_once(lambda: f". {how_to_go_on()}"),
        _console.EpochProgress(model) as progress,
        _console.keeping_limits(limits),
    ):
        source_note = SourceNote(spec, run)
        model.set_params(run_dir=run, callbacks=[source_note, progress])
        model.fit(data.source)
        if not is_main():
            return  # one process writes and speaks
        held.enter_context(alone())
        summary = summarize(model, data)
        source_note.on_step()  # where there was nothing to learn
        summary.save(run)
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
