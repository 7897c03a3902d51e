"""Write files whole or not at all."""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress
from pathlib import Path


def write_atomically(target: Path, content: bytes, shown: str | os.PathLike[str] | None = None) -> None:
    """Write a file whole or not at all: to a temporary file, synced, then renamed; ``shown`` is its name in messages."""
    path = target if shown is None else shown
    if not target.parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, f"Could not write {os.fspath(path)!r}: its folder does not exist. Create it first."
        )
    temporary = target.parent / f".diva-{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        advice = "A file already there is unchanged. Free some space, or choose a folder you can write to."
        raise OSError(error.errno, f"Could not write {os.fspath(path)!r}: {error.strerror}. {advice}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    with suppress(OSError):  # not every file system can sync a folder, and the new file is already in place
        sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
