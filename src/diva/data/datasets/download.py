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

from diva.data.datasets.load import cache_folder, data_folders, find_layout, where_to_put
from diva.data.datasets.registry import DataFile, dataset_info
from diva.exceptions import DownloadError

Progress = Callable[[int, int | None], None]
Opener = urllib.request.OpenerDirector
CHUNK = 1 << 18
TIMEOUT = 30.0  # seconds without a byte
N_ATTEMPTS = 3
LARGEST = 1 << 30  # bytes of a file whose size is not known


def download_file(remote: DataFile, target: Path, *, on_progress: Progress | None = None, opener: Opener | None = None) -> None:
    """Fetch a published file; raises DownloadError, which says how to fetch it by hand, if that fails or it is another.

    What has arrived waits in ``target`` + ".part", so a broken download goes on where it stopped. ``target`` itself appears
    only when the file is whole and its checksum is right. ``on_progress`` is called with the bytes that have arrived and those
    expected, or None where the server does not say; ``opener`` is for proxies or passwords.
    """
    by_hand = f"To fetch it by hand, save {remote.url} as {target}."
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not remote.has_checksum:  # nothing could prove that an old part belongs to the file of today
            part.unlink(missing_ok=True)
        try:
            _fetch(remote, part, on_progress or (lambda *_: None), opener or urllib.request.build_opener(StaysSecure()))
            difference = remote.difference(part)
        except _OtherFileError as error:
            difference = str(error)
        if difference is not None:
            part.unlink(missing_ok=True)
            raise DownloadError(
                f"{remote.url} is not the published {remote.filename}: {difference}. It was deleted. Try again; if it stays "
                f"so, the address now holds another file. {by_hand}"
            )
        os.replace(part, target)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"{remote.filename} could not be fetched from {remote.url}: {_reason(error)}. {by_hand}") from error


class StaysSecure(urllib.request.HTTPRedirectHandler):
    """Follows a server to another address, but not from https to plain http."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:  # noqa: D102
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise urllib.error.URLError(f"the server sends on from https to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _OtherFileError(Exception):
    """What is offered is not as large as what was published."""


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"no connection ({error.reason})"
    return str(error) or type(error).__name__


def _fetch(remote: DataFile, part: Path, on_progress: Progress, opener: Opener) -> None:
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


def _fetch_rest(remote: DataFile, part: Path, on_progress: Progress, opener: Opener) -> None:
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
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else None
        _check_size(remote, total, is_whole=True)
        done = start
        with part.open("ab" if start else "wb") as file:
            on_progress(done, total)
            while chunk := response.read(CHUNK):
                done += len(chunk)
                _check_size(remote, done)
                file.write(chunk)
                on_progress(done, total)
    if total is not None and done != total:
        raise OSError(f"the connection broke after {done:,} of {total:,} bytes")


def _check_size(remote: DataFile, n_bytes: int | None, *, is_whole: bool = False) -> None:
    """Raise _OtherFileError if so many bytes, of the whole file or so far, are not those of the published file."""
    if n_bytes is None:
        return
    if remote.size is None and n_bytes > LARGEST:
        raise _OtherFileError(f"expected at most {LARGEST:,} bytes, got {n_bytes:,} or more")
    if remote.size is not None and (n_bytes > remote.size or (is_whole and n_bytes != remote.size)):
        raise _OtherFileError(f"expected {remote.size:,} bytes, got {n_bytes:,}{'' if is_whole else ' or more'}")


def get_dataset(name: str, *, on_progress: Progress | None = None, opener: Opener | None = None) -> list[Path]:
    """Download a data set, unless it is here already, and return the paths of its files; none where it needs none.

    ``on_progress`` and ``opener`` are those of ``download_file``, with the bytes of the whole data set. Raises
    UnknownDatasetError if there is none of this name, and DownloadError, which says how to fetch it by hand, if that fails.
    """
    info = dataset_info(name)
    if not info.layouts:
        return []
    if not info.is_downloadable:
        found = find_layout(info)
        if found is None:
            raise DownloadError(where_to_put(info))
        return found[0].paths(found[1])
    published = info.layouts[0]
    for root in data_folders():
        paths = published.paths(root)
        if all(map(_is_good, paths, published.files)):
            return paths
    done, paths = 0, published.paths(cache_folder())
    for number, (path, remote) in enumerate(zip(paths, published.files, strict=True)):
        if not _is_good(path, remote):
            rest = [later.size for later in published.files[number + 1 :]]
            download_file(remote, path, on_progress=_within(on_progress, done, rest), opener=opener)
        done += path.stat().st_size
    return paths


def _is_good(path: Path, remote: DataFile) -> bool:
    return path.is_file() and remote.difference(path) is None


def _within(on_progress: Progress | None, before: int, rest: list[int | None]) -> Progress | None:
    """Progress of one file as that of the whole data set."""
    if on_progress is None:
        return None

    def tell(done: int, total: int | None) -> None:
        sizes = [total, *rest]
        on_progress(before + done, None if None in sizes else before + sum(size for size in sizes if size is not None))

    return tell
