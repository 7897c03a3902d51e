"""What is known of a data set without having it: its files, its licence, and whom to cite."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diva.data.sources import LoadedData

AS_PUBLISHED = "as published"


@dataclass(frozen=True)
class RemoteFile:
    """A published file."""

    url: str
    filename: str
    sha256: str | None = None  # checksums, where they are published
    md5: str | None = None
    size: int | None = None  # bytes, where known

    @property
    def has_checksum(self) -> bool:
        """Whether a copy can be proved to be the published file."""
        return self.sha256 is not None or self.md5 is not None

    def difference(self, path: Path) -> str | None:
        """How the file at this path differs from the published one; None where it does not, as far as is known."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"expected {self.size:,} bytes, got {size:,}"
        for algorithm, expected in (("sha256", self.sha256), ("md5", self.md5)):
            if expected is not None:
                got = checksum(path, algorithm)
                return None if got == expected else f"expected {algorithm} {expected}, got {got}"
        return None


def checksum(path: Path, algorithm: str) -> str:
    """Hexadecimal checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


@dataclass(frozen=True)
class Layout:
    """One way in which a data set can lie in a folder."""

    folder: str  # name of the folder, below the folder of all data
    files: tuple[str, ...]  # all must be there
    read: Callable[[Path], LoadedData]  # from the folder to the samples and labels
    fidelity: str = AS_PUBLISHED  # how this copy differs from the published one
    sha256: dict[str, str] = field(default_factory=dict)  # checksums by file name, where known

    def is_in(self, root: Path) -> bool:
        """Whether all its files are below this folder."""
        return all((root / self.folder / name).is_file() for name in self.files)


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set without having it."""

    name: str
    title: str
    shape: str
    n_classes: int
    licence: str
    citation: str
    # the ways its files can lie in a folder, the published one first; none where it is made on the spot
    layouts: tuple[Layout, ...] = ()
    files: tuple[RemoteFile, ...] = ()  # what ``get_dataset`` fetches; empty where it cannot be fetched automatically
    parameters: dict[str, Any] = field(default_factory=dict)  # DIVA parameters that suit it, where the defaults do not
    class_names: tuple[str, ...] | None = None
    note: str = ""  # where its files come from, if they cannot be fetched
    fidelity: str = AS_PUBLISHED  # of one that is made on the spot, how it differs from the published one
