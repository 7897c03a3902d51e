"""``diva fit`` and ``diva resume``: learn, with checkpoints, and say what was found."""

from __future__ import annotations

import json
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from diva.cli import console, parameters
from diva.cli.errors import INTERRUPTED, Stopped, UsageError, for_people
from diva.cli.options import (
    Columns,
    ImageSize,
    Json,
    Key,
    LabelColumn,
    Limit,
    Report,
    Split,
    columns_of,
    image_size_of,
    split_of,
)
from diva.cli.runs import new_run, replacing
from diva.cli.sources import SourceSpec, open_spec, specify
from diva.data import LoadedData
from diva.data.datasets.info import AS_PUBLISHED
from diva.data.datasets.registry import is_name
from diva.exceptions import ComponentLimitWarning
from diva.models.diva import DIVA
from diva.report import write_report
from diva.runs.folder import CHECKPOINT, CONFIG, MODEL
from diva.runs.snapshot import SNAPSHOT
from diva.runs.summarize import summarize
from diva.training.state import EpochRecord

Source = Annotated[
    str, typer.Argument(help="A data set (see `diva data list`), .npy, .npz, .csv, .parquet, .idx.gz, or a folder of images.")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the run; by default a new one under runs/.")]
Config = Annotated[Path | None, typer.Option("--config", "-c", help="TOML file with parameters of the model.")]
Labels = Annotated[str | None, typer.Option(help="File with known classes: .npy, or text with one a line.")]


def fit(
    source: Source,
    out: Out = None,
    config: Config = None,
    split: Split = "train",
    columns: Columns = None,
    label_column: LabelColumn = None,
    labels: Labels = None,
    image_size: ImageSize = None,
    key: Key = None,
    limit: Limit = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already in --out.")] = False,
    report: Report = True,
    as_json: Json = False,
    **given: str | None,
) -> None:
    """Find clusters in SOURCE; nobody needs to know how many there are.

    \b
    Examples
      diva fit digits
      diva fit measurements.csv --label-column kind --out runs/measurements
      diva fit photos/ --image-size 32,32 --augmentation photo
      diva fit features.parquet --columns a,b,c --n-epochs 30 --random-state 1
    """
    with for_people():
        spec = specify(
            source,
            split=split_of(split),
            columns=columns_of(columns),
            label_column=label_column,
            labels=labels,
            image_size=image_size_of(image_size),
            key=key,
            limit=limit,
        )
        params = parameters.resolve(given, config)  # a wrong flag is said before long reading
        data = open_spec(spec)
        params = {"random_state": 0} | data.suggested | params
        run = new_run(out, data.name, overwrite)
        with replacing(run):
            learn(run, spec, data, params, resume=False, with_report=report, as_json=as_json)


parameters.add_flags(fit)


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
        spec = SourceSpec.read(run)
        if (run / MODEL).exists() and (run / SNAPSHOT).exists():
            raise UsageError(f"The run in {str(run)!r} is complete. See `diva report {run}` and `diva predict {run} SOURCE`.")
        if source is not None:
            spec = replace(spec, source=specify(source).source)
        elif not is_name(spec.source) and not Path(spec.source).exists():
            raise UsageError(f"The data of this run were {spec.source!r}, which is gone. Pass --source if they were moved.")
        learn(run, spec, open_spec(spec), stored_params(run), resume=True, with_report=report, as_json=as_json)


def stored_params(run: Path) -> dict[str, Any]:
    """Parameters of a run that was started before."""
    try:
        stored = json.loads((run / CONFIG).read_text())["params"]
        params: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in stored.items() if name in parameters.names()
        }
        DIVA(**params)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{str(run / CONFIG)!r} is missing or damaged ({error}). Start the run again with `diva fit`."
        ) from None
    return params


def learn(
    run: Path,
    spec: SourceSpec,
    data: LoadedData,
    params: dict[str, Any],
    *,
    resume: bool,
    with_report: bool,
    as_json: bool,
) -> None:
    """Fit in the folder of a run, and write there all that belongs to it."""
    if data.fidelity and data.fidelity != AS_PUBLISHED:
        console.note(f"{data.name}: {data.fidelity}")
    begins = Beginning(spec, run)
    try:
        with stopping_at_once(), console.EpochProgress() as progress, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            model = DIVA(**params, run_dir=run, resume=resume, callbacks=[begins, progress])
            progress.watch(model)
            model.fit(data.source)
            summary = summarize(model, data)
            summary.save(run)
    except Stopped:
        saved = (run / CHECKPOINT).exists()
        how = f"Go on with: diva resume {run}" if saved else "No epoch was finished, so there is nothing to go on from."
        console.errors.print(f"Stopped. {how}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    path = _reported(run) if with_report else None
    said = console.describe(summary, str(run), path)
    said["warnings"] = list(dict.fromkeys(str(w.message) for w in warned if issubclass(w.category, ComponentLimitWarning)))
    if as_json:
        print(json.dumps(said))
    else:
        console.show_summary(said)


def _reported(run: Path) -> str:
    try:
        return str(write_report(run))
    except OSError as error:
        problem = error.strerror or str(error)
        raise ValueError(f"The model is saved in {run}, but not the report: {problem} Then: diva report {run}") from error


class Beginning:
    """A callback that notes in the folder of a run what its data are, as soon as it is sure that they can be learnt from."""

    def __init__(self, spec: SourceSpec, run: Path) -> None:
        self._spec, self._run, self._noted = spec, run, False

    def on_step(self, step: int, n_steps: int) -> None:
        """Write it once, after the first step."""
        if not self._noted:
            self._spec.write(self._run)
            self._noted = True

    def __call__(self, model: DIVA, record: EpochRecord) -> None:
        """Epochs are not its business."""


@contextmanager
def stopping_at_once() -> Iterator[None]:
    """Make Ctrl-C and a polite kill end the fit where it is: the last checkpoint is whole, and the run can go on from it."""

    def stop(number: int, frame: Any) -> None:
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
