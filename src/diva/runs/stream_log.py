"""How far a stream has come, on disk: one small file, the commit, is replaced in one step; the rest counts as far as it says.

What a killed process wrote after its last commit is cut off by the next one, which then does the same again. So every event and
every prediction is there once, as if nothing had happened.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Self

from diva.atomic import sync_folder, without_link, write_atomically
from diva.data import Offset, Part
from diva.exceptions import StreamStateError
from diva.runs.records import read_json

STREAM = "stream"  # folder in that of a run
PREDICTING = "stream-predictions"  # the same for a stream that only predicts
STATE = "stream.json"
EVENTS = "events.jsonl"
FILES = "files.jsonl"
MODEL_NAME = re.compile(r"model-\d{6,}\.diva")
SCHEMA = 1


@dataclass(frozen=True)
class Commit:
    """What has been done for good."""

    source: str  # absolute path, or ``-`` for standard input
    offset: Offset = field(default_factory=Offset)  # of the source
    batches: int = 0  # used so far, of all sources
    samples: int = 0
    model: str | None = None  # file in the folder of the stream; None is the model of the fit
    events_bytes: int = 0  # how much of each log counts
    files_bytes: int = 0
    predictions: str | None = None  # absolute path
    predictions_bytes: int = 0

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"offset": self.offset.to_plain()}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """Read it back; raises KeyError, TypeError or ValueError if it is none."""
        commit = cls(**plain | {"offset": Offset.from_plain(plain["offset"])})
        counts = (commit.batches, commit.samples, commit.events_bytes, commit.files_bytes, commit.predictions_bytes)
        if not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError("it should count with whole numbers")
        if not isinstance(commit.source, str) or not isinstance(commit.predictions, str | None):
            raise TypeError("paths should be text")
        if commit.model is not None and not MODEL_NAME.fullmatch(commit.model):
            raise ValueError("it names no model")
        return commit


def read_commit(folder: Path) -> Commit | None:
    """Last commit in the folder of a stream, if there is any; raises StreamStateError if it is damaged."""
    path = folder / STATE
    try:
        plain = read_json(path)
        if plain.pop("schema") != SCHEMA:
            raise ValueError("it was written by another version of diva")
        return Commit.from_plain(plain)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StreamStateError(
            f"{str(path)!r} is damaged ({error}). Restore it from a copy, or delete the folder {str(folder)!r} to begin anew "
            "with the model of the fit."
        ) from error


class StreamLog:
    """The logs of a stream, open to be written, and the commit that says how much of them counts.

    Opening makes the folder what it was at the commit to go on from, which is written first if the folder holds another. Only
    one process may have it open. ``last`` is the last commit.
    """

    def __init__(self, folder: Path, commit: Commit) -> None:
        self.folder, self.last = folder, commit
        for path in (folder, folder / EVENTS, folder / FILES):
            _check_is_its_own(path)
        folder.mkdir(exist_ok=True)
        if read_commit(folder) != commit:
            self._write(commit)
        with ExitStack() as logs:
            self._events = logs.enter_context(_opened_at(folder / EVENTS, commit.events_bytes))
            self._files = logs.enter_context(_opened_at(folder / FILES, commit.files_bytes))
            self._predictions = None
            if commit.predictions is not None:
                self._predictions = logs.enter_context(_opened_at(Path(commit.predictions), commit.predictions_bytes))
            self._sweep()
            self._logs = logs.pop_all()  # all are open: now they stay so

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # a full disk was said already
            self._logs.close()

    def used_parts(self) -> list[Part]:
        """Files of the source that were used up."""
        try:
            lines = (self.folder / FILES).read_bytes()[: self.last.files_bytes].splitlines()
            return [Part(name, int(n_bytes)) for name, n_bytes in map(json.loads, lines)]
        except (ValueError, TypeError, RecursionError) as error:
            raise StreamStateError(_changed(self.folder / FILES)) from error

    def note(self, events: Iterable[dict[str, Any]], finished: Iterable[Part], predictions: Iterable[dict[str, Any]]) -> None:
        """Write what a batch did; it counts from the next commit on."""
        _append(self._events, events)
        _append(self._files, ([part.name, part.n_bytes] for part in finished))
        if self._predictions is not None:
            _append(self._predictions, predictions)

    def commit(self, offset: Offset, batches: int, samples: int, save: Callable[[Path], None] | None) -> None:
        """Make all that was done count: so many batches and samples; ``save`` writes the model, None if it has not changed."""
        model = self.last.model
        if save is not None:
            model = f"model-{batches:06d}.diva"
            save(without_link(self.folder / model))
        event = {"event": "checkpoint", "batch": batches, "samples": samples, "offset": offset.to_plain(), "model": model}
        _append(self._events, [event])
        commit = replace(
            self.last,
            offset=offset,
            batches=batches,
            samples=samples,
            model=model,
            events_bytes=_synced(self._events),
            files_bytes=_synced(self._files),
            predictions_bytes=0 if self._predictions is None else _synced(self._predictions),
        )
        self._write(commit)
        self.last = commit
        self._sweep()

    def _write(self, commit: Commit) -> None:
        document = {"schema": SCHEMA} | commit.to_plain()
        write_atomically(self.folder / STATE, (json.dumps(document, indent=1) + "\n").encode())

    def _sweep(self) -> None:
        """Remove models that are not the last, and what a killed process left half-written."""
        for path in self.folder.glob("*.diva"):
            if MODEL_NAME.fullmatch(path.name) and path.name != self.last.model:
                path.unlink(missing_ok=True)
        for path in self.folder.glob(".diva-*.tmp"):
            path.unlink(missing_ok=True)


def _opened_at(path: Path, n_bytes: int) -> IO[bytes]:
    """A log to be appended to, cut to what counts."""
    if n_bytes and (not path.exists() or path.stat().st_size < n_bytes):
        raise StreamStateError(_changed(path))
    log = open(path, "ab")  # noqa: SIM115  # open as long as the stream
    log.truncate(n_bytes)
    log.seek(0, os.SEEK_END)
    with suppress(OSError):  # not every file system can
        sync_folder(path.parent)
    return log


def _check_is_its_own(path: Path) -> None:
    """Raise StreamStateError if a stream would write elsewhere, or wait for a pipe: a run may come from anywhere."""
    if path.is_symlink() or not (path.is_file() or path.is_dir() or not path.exists()):
        raise StreamStateError(f"{str(path)!r} is a link, a pipe or a device, which no stream makes. Remove it first.")


def _changed(path: Path) -> str:
    return f"{str(path)!r} was changed or cut short since the stream wrote it. Restore it from a copy, then start again."


def _append(log: IO[bytes], rows: Iterable[Any]) -> None:
    log.write("".join(json.dumps(row) + "\n" for row in rows).encode())
    log.flush()


def _synced(log: IO[bytes]) -> int:
    """Bring a log to the disk; returns its length."""
    log.flush()
    os.fsync(log.fileno())
    return log.tell()
