"""The folder of a run: a checkpoint after every epoch, the history, the fitted model.

A checkpoint is one file, written whole or not at all; the one before stays until the next is complete. A run that was killed
goes on from it and ends with the numbers of an undisturbed one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from diva.atomic import write_atomically
from diva.data import PartOfSource, Source
from diva.data.sources import parts_of
from diva.exceptions import ModelFileError, RunBusyError
from diva.runs.archive import Archive, read_archive, write_archive

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

CHECKPOINT = "checkpoint.safetensors"
CONFIG = "config.json"
HISTORY = "history.jsonl"
MODEL = "model.diva"
LOCK = ".lock"
FINGERPRINT_BYTES = 1 << 28  # up to here all samples are looked at
FINGERPRINT_SAMPLES = 4096
MOST_TRIES = 100  # to lock a file that others remove

_lent: ContextVar[Path | None] = ContextVar("lent", default=None)  # the folder that a fit may enter, since its caller has it


@dataclass(frozen=True)
class RunIdentity:
    """What must be the same for a run to go on."""

    config: dict[str, Any]  # parameters and what they came to; the version of diva is written along and may differ
    fingerprint: str  # of the data


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps its files."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        """Path of the checkpoint."""
        return self.path / CHECKPOINT

    @property
    def model(self) -> Path:
        """Path of the fitted model."""
        return self.path / MODEL

    @contextmanager
    def locked(self, *, lend: bool = False) -> Iterator[None]:
        """Make the folder and keep other processes out of it; if nothing comes of it, the folder is left as it was found.

        Parameters
        ----------
        lend : bool, default=False
            Whether the next ``locked`` inside, for example that of a fit, is let in.

        Raises
        ------
        RunBusyError
            If another process works in it.
        """
        place = Path(os.path.realpath(self.path))
        with nullcontext() if _lent.get() == place else self._locked():
            token = _lent.set(place if lend else None)
            try:
                yield
            finally:
                _lent.reset(token)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        found = set() if made else set(os.listdir(self.path))
        with self._open_lock():  # the lock goes with the process, however it ends
            try:
                yield
            finally:
                if set(os.listdir(self.path)) - found == {LOCK}:  # nothing came of it
                    with suppress(OSError):
                        (self.path / LOCK).unlink()
                        for folder in made:
                            folder.rmdir()

    def _open_lock(self) -> IO[str]:
        """The file of the lock, open and locked; raises RunBusyError."""
        path = self.path / LOCK
        for _ in range(MOST_TRIES):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                file = open(path, "a+")  # noqa: SIM115  # held open as long as the lock
            except OSError as error:
                raise OSError(
                    error.errno, f"Could not make the run folder {str(self.path)!r}: {error.strerror}. Choose another."
                ) from error
            if not _lock(file):
                file.close()
                break
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    return file
            file.close()  # whoever had it has just removed it
        raise RunBusyError(f"Another process works in {self.path}. Wait for it, stop it, or choose another run_dir.")

    def start(self, config: dict[str, Any]) -> None:
        """Make the folder and write the configuration.

        Raises
        ------
        FileExistsError
            If it holds a run already.
        """
        if self.checkpoint.exists():
            raise FileExistsError(
                f"{self.path} already holds a run. Set resume=True to go on with it, or choose another run_dir."
            )
        self.sweep()
        write_atomically(self.path / CONFIG, (json.dumps(config, indent=2) + "\n").encode())

    def write_checkpoint(self, archive: Archive, identity: RunIdentity) -> None:
        """Replace the checkpoint, then the history, in one step each."""
        document = archive.document | {"config": identity.config, "fingerprint": identity.fingerprint}
        write_archive(self.checkpoint, archive.kind, document, archive.tensors, follow_links=False)
        self.write_history(archive)

    def write_history(self, archive: Archive) -> None:
        """Replace the history in one step."""
        lines = "".join(json.dumps(record) + "\n" for record in archive.document["history"])
        write_atomically(self.path / HISTORY, lines.encode())

    def sweep(self) -> None:
        """Remove what a killed process left half-written."""
        for leftover in self.path.glob(".diva-*.tmp"):
            leftover.unlink(missing_ok=True)

    def read_checkpoint(self, kind: str, identity: RunIdentity) -> Archive:
        """Read the checkpoint; raises ValueError if it is of another run or of other data."""
        self.sweep()
        archive = read_archive(self.checkpoint, kinds=(kind,))
        before = archive.document.get("config")
        if not isinstance(before, dict) or "fingerprint" not in archive.document:
            raise ModelFileError(f"{self.checkpoint} lacks its configuration. Delete it to start anew.")
        changed = _differences(before, json.loads(json.dumps(identity.config)))
        if changed:
            raise ValueError(
                f"The run in {self.path} was started with {', '.join(changed)}. Use the same, or choose another run_dir."
            )
        if archive.document["fingerprint"] != identity.fingerprint:
            raise ValueError(f"The run in {self.path} was started on other data. Pass the same, or choose another run_dir.")
        return archive


def _lock(file: IO[str]) -> bool:
    """Lock an open file for this process alone; False if another has it."""
    if fcntl is None:
        return True  # no such locks on this system
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    """What differs between two configurations, as people would say it."""
    said = []
    for key in sorted((before.keys() | now.keys()) - {"version"}):
        was, value = before.get(key), now.get(key)
        if isinstance(was, dict) and isinstance(value, dict):
            said += _differences(was, value, f"{key}: " if key == "config" else "")
        elif was != value:
            said.append(f"{prefix}{key}={was!r} (now {value!r})")
    return said


def fingerprint(source: Source) -> str:
    """What tells one data set from another: number, shape, and the samples, or some of them if they are many."""
    n, shape = len(source), source.item_shape
    first = source.take(np.arange(1))
    digest = hashlib.sha256(json.dumps([n, list(shape), first.dtype.str]).encode())
    is_small = n * first.nbytes <= FINGERPRINT_BYTES
    some = np.unique(np.linspace(0, n - 1, FINGERPRINT_SAMPLES).astype(np.int64))
    for part in parts_of(source if is_small else PartOfSource(source, some)):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()
