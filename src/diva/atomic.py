"""Write files whole or not at all."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


def write_atomically(target: Path, content: bytes, shown: str | os.PathLike[str] | None = None) -> None:
    """Write a file whole or not at all: to a temporary file, synced, then renamed; ``shown`` is its name in messages."""
    path = target if shown is None else shown
    temporary = temporary_for(target, path)
    try:
        with naming(path):
            with open(temporary, "xb") as file:
                file.write(content)
                sync(file)
            os.replace(temporary, target)
    finally:
        with suppress(OSError):
            temporary.unlink()
    with suppress(OSError):  # not every file system can sync a folder, and the new file is already in place
        sync_folder(target.parent)


def temporary_for(target: Path, shown: str | os.PathLike[str]) -> Path:
    """Name of a file that may take the place of another once it is whole."""
    if not target.parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, f"Could not write {os.fspath(shown)!r}: its folder does not exist. Create it first."
        )
    return target.parent / f".diva-{uuid.uuid4().hex}.tmp"


def without_link(path: Path) -> Path:
    """The same path without a link that leads from it elsewhere, in a folder that may come from anywhere."""
    if path.is_symlink():
        path.unlink()
    return path


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let a disk that fails be told with the name of the file."""
    try:
        yield
    except OSError as error:
        advice = "A file already there is unchanged. Free some space, or choose a folder you can write to."
        problem = os.strerror(error.errno or errno.EIO)
        raise OSError(error.errno, f"Could not write {os.fspath(path)!r}: {problem}. {advice}") from error


def sync(file: IO[bytes]) -> None:
    """Bring all that was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
