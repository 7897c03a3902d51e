"""Folders of runs: where a new one goes, and how an old one is opened."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from diva.cli._errors import UsageError
from diva.cli._sources import SOURCE_FILE, SourceSpec
from diva.data.formats.paths import is_table
from diva.distributed import is_launched, is_main, n_restarts
from diva.exceptions import ModelFileError, RunBusyError
from diva.report.page import REPORT
from diva.report.projection import PROJECTION
from diva.runs.folder import CHECKPOINT, CONFIG, HISTORY, MODEL, RunFolder
from diva.runs.load import load
from diva.runs.records import read_json
from diva.runs.snapshot import SNAPSHOT
from diva.runs.stream_log import PREDICTING, STREAM, read_commit
from diva.runs.summarize import summarize_old_run
from diva.runs.summary import RESULTS, read_facts

RUNS = Path("runs")
REPLACED = ".replaced"  # where an old run waits until the new one has something to show
MADE = (CHECKPOINT, CONFIG, HISTORY, MODEL, RESULTS, SNAPSHOT, SOURCE_FILE, REPORT, PROJECTION, STREAM, PREDICTING)


@contextmanager
def new_run(out: Path | None, name: str, overwrite: bool, *, goes_on: bool = False) -> Iterator[Path]:
    """Folder of a new run, which other processes are kept out of: the one asked for, or the next free one under ``runs``.

    Of several processes that work together, one has it; they need a name for it. ``goes_on`` lets a run in that has begun.

    The files of an old run are put aside; they are gone when the new one has a checkpoint, and back if it never gets there.
    Raises UsageError if the folder is taken, RunBusyError if another process works in it.
    """
    if is_launched() and out is None:
        raise UsageError("Several processes need --out: should they be started anew, they have to find their run.")
    if out is not None and not is_main():
        yield out
        return
    with ExitStack() as held:
        run = _next_free(name, held) if out is None else _checked(out)
        if out is not None:
            held.enter_context(RunFolder(run).locked(lend=True))
        settle(run)
        if goes_on:
            yield run
            return
        _check_free(run, overwrite)
        if is_abandoned(run):  # a resumed run should not take its source for that of the new one
            (run / SOURCE_FILE).unlink(missing_ok=True)
        held.enter_context(_replacing(run))
        yield run


def went_on(run: Path, overwrite: bool) -> bool:
    """Whether processes that were started anew, after one had died, find what they had begun.

    With ``overwrite``, a checkpoint could be that of the run to be replaced; it is not while that is put aside.
    """
    return n_restarts() > 0 and (run / CHECKPOINT).exists() and (not overwrite or (run / REPLACED).exists())


def _next_free(name: str, held: ExitStack) -> Path:
    for each in itertools.chain([name], (f"{name}-{i}" for i in itertools.count(2))):
        if not (run := RUNS / each).exists():
            with suppress(RunBusyError):  # another process was faster: the next one
                held.enter_context(RunFolder(run).locked(lend=True))
                return run
    raise AssertionError  # there is always a next one


def _checked(out: Path) -> Path:
    if str(out) in ("", "."):
        raise UsageError("--out should be a folder of its own for the run, not the current one.")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{str(out)!r} is a file; --out should be the folder of a run.")
    return out


def _check_free(run: Path, overwrite: bool) -> None:
    there = [made for made in MADE if (run / made).exists()]
    if not there or overwrite or is_abandoned(run):
        return
    if CHECKPOINT not in there and MODEL not in there:
        raise UsageError(f"{str(run)!r} holds a {there[0]!r}, which a run would replace. Choose another folder for --out.")
    is_complete = MODEL in there and SNAPSHOT in there
    how = "Choose another folder" if is_complete else f"Go on with `diva resume {run}`"
    raise UsageError(f"{str(run)!r} already holds a run. {how}, or pass --overwrite.")


def is_abandoned(run: Path) -> bool:
    """Whether a folder holds the beginning of a run and no more: it ended before its first checkpoint."""
    there = {made for made in MADE if (run / made).exists()}
    if not {CONFIG} <= there <= {CONFIG, SOURCE_FILE}:
        return False
    try:
        config = read_json(run / CONFIG)
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and {"version", "model", "params"} <= config.keys()


@contextmanager
def _replacing(run: Path) -> Iterator[None]:
    old = [made for made in MADE if (run / made).exists()]
    if not old or is_abandoned(run):
        yield
        return
    aside = run / REPLACED
    try:
        aside.mkdir()
        for made in old:  # the checkpoint first: without it, the old run comes back
            (run / made).replace(aside / made)
        yield
    finally:
        settle(run)


def settle(run: Path) -> None:
    """End the replacing of a run, also of a killed process: the new one stays if it has a checkpoint, else the old one."""
    aside = run / REPLACED
    if not aside.exists():
        return
    if not (run / CHECKPOINT).exists():
        for old in sorted(aside.iterdir(), key=lambda path: path.name == CHECKPOINT):  # last: then the old run is whole
            old.replace(run / old.name)
    shutil.rmtree(aside)


def open_model(run: Path) -> Any:
    """Fitted model of a run, as its stream has left it if it has one; or of a model file. Raises UsageError without one."""
    if run.is_file():
        return load(run)
    check_finished(run)
    while True:
        path = newest_model(run)
        try:
            return load(path)
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
    if (run / REPLACED).exists() and not (run / CHECKPOINT).exists():  # a process was killed before the new run had begun
        with RunFolder(run).locked():
            settle(run)
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
    if not isinstance(names, list | None) or not all(isinstance(name, str) for name in names or ()):
        raise ModelFileError(f"{what!r} in {str(run / RESULTS)!r} should be names. Fit again, or restore it from a copy.")
    return None if names is None else tuple(names)


def recorded_image_size(run: Path, source: str) -> tuple[int, int] | None:
    """What images were resized to for a run; None if the source is no folder of images."""
    if not Path(source).is_dir() or is_table(source) or not (run / SOURCE_FILE).exists():
        return None
    return SourceSpec.read(run).image_size
