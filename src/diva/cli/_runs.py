"""Folders of runs: where a new one goes, and how an old one is opened."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from diva.cli._errors import UsageError
from diva.cli._sources import SOURCE_FILE, SourceSpec
from diva.data.formats.paths import is_table
from diva.models.base import DeepClusterer
from diva.report.page import REPORT
from diva.report.projection import PROJECTION
from diva.runs.folder import CHECKPOINT, CONFIG, HISTORY, MODEL, RunFolder
from diva.runs.load import load
from diva.runs.snapshot import SNAPSHOT
from diva.runs.stream_log import PREDICTING, STREAM, read_commit
from diva.runs.summarize import summarize_old_run
from diva.runs.summary import RESULTS, read_facts

RUNS = Path("runs")
REPLACED = ".replaced"  # where an old run waits until the new one has something to show
MADE = (CHECKPOINT, CONFIG, HISTORY, MODEL, RESULTS, SNAPSHOT, SOURCE_FILE, REPORT, PROJECTION, STREAM, PREDICTING)


def new_run(out: Path | None, name: str, overwrite: bool) -> Path:
    """Folder of a new run: the one asked for, or the next free one under ``runs``; raises UsageError if it is taken."""
    if out is None:
        names = itertools.chain([name], (f"{name}-{i}" for i in itertools.count(2)))
        return next(folder for each in names if not (folder := RUNS / each).exists())
    if str(out) in ("", "."):
        raise UsageError("--out should be a folder of its own for the run, not the current one.")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{str(out)!r} is a file; --out should be the folder of a run.")
    there = [made for made in MADE if (out / made).exists()]
    if there and not overwrite:
        if CHECKPOINT not in there and MODEL not in there:
            raise UsageError(f"{str(out)!r} holds a {there[0]!r}, which a run would replace. Choose another folder for --out.")
        is_complete = MODEL in there and SNAPSHOT in there
        how = "Choose another folder" if is_complete else f"Go on with `diva resume {out}`"
        raise UsageError(f"{str(out)!r} already holds a run. {how}, or pass --overwrite.")
    return out


@contextmanager
def replacing(run: Path) -> Iterator[None]:
    """Put the files of an old run aside; they are gone when the new one has a checkpoint, and back if it never gets there."""
    aside = run / REPLACED
    if aside.exists() and not (run / CHECKPOINT).exists():  # a process was killed in between
        _put_back(aside)
    if not any((run / made).exists() for made in MADE):
        yield
        return
    with RunFolder(run).locked():
        shutil.rmtree(aside, ignore_errors=True)  # a process was killed when it had put the new run in place
        aside.mkdir()
        for made in MADE:
            if (run / made).exists():
                (run / made).replace(aside / made)
    try:
        yield
    finally:
        if not (run / CHECKPOINT).exists():
            _put_back(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _put_back(aside: Path) -> None:
    for old in aside.iterdir():
        old.replace(aside.parent / old.name)
    aside.rmdir()


def open_model(run: Path) -> DeepClusterer:
    """Fitted model of a run, as its stream has left it if it has one; or of a model file. Raises UsageError without one."""
    if run.is_file():
        return _load(run)
    check_finished(run)
    while True:
        path = newest_model(run)
        try:
            return _load(path)
        except FileNotFoundError:
            if newest_model(run) == path:  # otherwise a stream has just replaced it by the next
                raise


def newest_model(run: Path) -> Path:
    """Model file of a run: that of the last checkpoint of its stream, or that of the fit."""
    commit = read_commit(run / STREAM)
    return run / MODEL if commit is None or commit.model is None else run / STREAM / commit.model


def check_finished(run: Path) -> None:
    """Raise UsageError unless a folder holds a run with a fitted model."""
    if not run.exists():
        raise UsageError(f"There is no run folder {str(run)!r}. Make one with `diva fit SOURCE --out {run}`.")
    if not (run / MODEL).exists():
        if (run / CHECKPOINT).exists():
            raise UsageError(f"The run in {str(run)!r} is not finished. Go on with `diva resume {run}`.")
        raise UsageError(f"{str(run)!r} holds no run: there is neither {MODEL} nor {CHECKPOINT} in it.")


def add_missing_summary(run: Path) -> None:
    """Give a run that was made before there were summaries its own, from its model and its snapshot."""
    if (run / SNAPSHOT).exists() and not (run / RESULTS).exists():
        summarize_old_run(load(run / MODEL), run).save(run)


def recorded_names(run: Path, what: Literal["columns", "feature_names"]) -> tuple[str, ...] | None:
    """Names that a run has of its columns, or of the features they hold; a model file alone has none."""
    if not any((run / made).exists() for made in (RESULTS, SNAPSHOT)):
        return None
    names = read_facts(run).get(what)
    return None if names is None else tuple(names)


def recorded_image_size(run: Path, source: str) -> tuple[int, int] | None:
    """What images were resized to for a run; None if the source is no folder of images."""
    if not Path(source).is_dir() or is_table(source) or not (run / SOURCE_FILE).exists():
        return None
    return SourceSpec.read(run).image_size


def _load(path: Path) -> DeepClusterer:
    model = load(path)
    if not isinstance(model, DeepClusterer):
        raise UsageError(f"{str(path)!r} holds a {type(model).__name__}; this command is for models of `diva fit`.")
    return model
