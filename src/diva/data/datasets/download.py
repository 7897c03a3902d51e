"""Fetch the files of data sets: resumed where they broke off, proved by their checksums, and in place only when whole."""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from diva.data.datasets.info import RemoteFile
from diva.data.datasets.load import cache_folder, data_folders, find_layout, where_to_put
from diva.data.datasets.registry import dataset_info
from diva.exceptions import DownloadError

Progress = Callable[[int, int | None], None]
CHUNK = 1 << 18
TIMEOUT = 30.0  # seconds without a byte
N_ATTEMPTS = 3


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
        _fetch(remote, part, on_progress or (lambda *_: None), opener or urllib.request.build_opener())
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


def get_dataset(
    name: str,
    *,
    on_progress: Progress | None = None,
    opener: urllib.request.OpenerDirector | None = None,
) -> list[Path]:
    """Download a data set, unless it is here already.

    Parameters
    ----------
    name : str
    on_progress : callable, optional
        Called with the bytes of the data set that have arrived and, where known, those expected.
    opener : urllib.request.OpenerDirector, optional
        How addresses are opened, for proxies or passwords.

    Returns
    -------
    list of Path
        Its files; none where it needs none.

    Raises
    ------
    UnknownDatasetError
        If there is none of this name.
    DownloadError
        If it cannot be downloaded; the message says how to fetch it by hand.
    """
    info = dataset_info(name)
    if not info.layouts:
        return []
    for root in data_folders():
        paths = [root / info.layouts[0].folder / remote.filename for remote in info.files]
        if paths and all(_is_good(path, remote) for path, remote in zip(paths, info.files, strict=True)):
            return paths
    if not info.files:
        found = find_layout(info)
        if found is not None:
            return [found[1] / filename for filename in found[0].files]
        raise DownloadError(where_to_put(info))
    folder, done, paths = cache_folder() / info.layouts[0].folder, 0, []
    for number, remote in enumerate(info.files):
        path = folder / remote.filename
        if not _is_good(path, remote):
            rest = [later.size for later in info.files[number + 1 :]]
            download_file(remote, path, on_progress=_within(on_progress, done, rest), opener=opener)
        done += path.stat().st_size
        paths.append(path)
    return paths


def _is_good(path: Path, remote: RemoteFile) -> bool:
    return path.is_file() and remote.difference(path) is None


def _within(on_progress: Progress | None, before: int, rest: list[int | None]) -> Progress | None:
    """Progress of one file as that of the whole data set."""
    if on_progress is None:
        return None
    known = [size for size in rest if size is not None]

    def tell(done: int, total: int | None) -> None:
        all_known = total is not None and len(known) == len(rest)
        on_progress(before + done, before + total + sum(known) if total is not None and all_known else None)

    return tell
