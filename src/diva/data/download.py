"""Fetch a file: resumed where it broke off, proved by its checksum, and in place only when whole."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diva.exceptions import DownloadError

Progress = Callable[[int, int | None], None]
CHUNK = 1 << 18
TIMEOUT = 30.0  # seconds without a byte
N_ATTEMPTS = 3


@dataclass(frozen=True)
class RemoteFile:
    """A published file.

    Attributes
    ----------
    url, filename : str
    sha256, md5 : str or None
        Checksums, where they are published.
    size : int or None
        Bytes, where known.
    """

    url: str
    filename: str
    sha256: str | None = None
    md5: str | None = None
    size: int | None = None

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


def download_file(
    remote: RemoteFile,
    target: Path,
    *,
    on_progress: Progress | None = None,
    opener: urllib.request.OpenerDirector | None = None,
) -> None:
    """Fetch a published file.

    What has arrived waits in ``target`` + ".part", so a broken download goes on where it stopped. ``target`` itself appears
    only when the file is whole and its checksum is right.

    Parameters
    ----------
    remote : RemoteFile
    target : Path
    on_progress : callable, optional
        Called with the bytes that have arrived and those expected, or None where the server does not say.
    opener : urllib.request.OpenerDirector, optional
        For proxies or passwords; by default as urllib opens addresses.

    Raises
    ------
    DownloadError
        If the file cannot be fetched or is not the published one; the message says how to fetch it by hand.
    """
    by_hand = f"To fetch it by hand, save {remote.url} as {target}."
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not remote.has_checksum:  # nothing could prove that an old part belongs to the file of today
            part.unlink(missing_ok=True)
        _fetch(remote, part, on_progress or (lambda done, total: None), opener or urllib.request.build_opener())
        difference = remote.difference(part)
        if difference is not None:
            part.unlink()
            raise DownloadError(
                f"{remote.url} is not the published {remote.filename}: {difference}. It was deleted. Try again; if it stays "
                f"so, the address now holds another file. {by_hand}"
            )
        os.replace(part, target)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"{remote.filename} could not be fetched from {remote.url}: {_reason(error)}. {by_hand}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"no connection ({error.reason})"
    return str(error) or type(error).__name__


def _fetch(remote: RemoteFile, part: Path, on_progress: Progress, opener: urllib.request.OpenerDirector) -> None:
    """Fill the part file, going on after a broken connection."""
    for attempt in range(1, N_ATTEMPTS + 1):
        before = part.stat().st_size if part.exists() else 0
        try:
            _fetch_rest(remote, part, on_progress, opener)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 416 or before == 0:  # 416: nothing lies beyond what has arrived
                raise
            if remote.difference(part) is None:
                return
            part.unlink()  # an old part that is longer than the file, or none of it
        except (OSError, http.client.HTTPException):
            if attempt == N_ATTEMPTS:
                raise
    raise OSError("the server gave no usable answer")


def _fetch_rest(remote: RemoteFile, part: Path, on_progress: Progress, opener: urllib.request.OpenerDirector) -> None:
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(remote.url, headers={"User-Agent": "diva", "Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    with opener.open(request, timeout=TIMEOUT) as response:
        if response.status != 206:
            start = 0  # the server sends the file from its beginning
        elif not re.match(rf"bytes {start}-", response.headers.get("Content-Range", "")):
            part.unlink()
            raise OSError("the server resumed at another place than asked")
        total = _total(response, start)
        done = start
        with part.open("ab" if start else "wb") as file:
            on_progress(done, total)
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                on_progress(done, total)
    if total is not None and done != total:
        raise OSError(f"the connection broke after {done:,} of {total:,} bytes")


def _total(response: Any, start: int) -> int | None:
    length = response.headers.get("Content-Length")
    return start + int(length) if length is not None and length.isdigit() else None
