"""What is asked of a file before it is read: that it is one, and that it unpacks to a size that fits its own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from diva.exceptions import DataError

UNPACKED_BYTES = 1 << 28  # any file may unpack to this much
UNPACKED_RATIO = 200  # a larger one to so many times its own size
UNPACK_LIMIT = "DIVA_UNPACK_GB"  # environment variable that raises both


def check_file(path: Path) -> None:
    """Raise DataError unless there is something in a regular file: a pipe or a device may never end, or never begin."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"Expected a file, but {path} is a folder, a pipe or a device. Copy what it gives into a file first.")
    if found.st_size == 0:
        raise DataError(f"Expected data in {path}, but the file is empty.")


def may_not_be_read(path: object) -> str:
    """What to say of a file that is there, but for others."""
    return f"{path} may not be read. Ask for the right to read it, or copy it."


def check_unpacked(path: Path, n_bytes: int) -> None:
    """Raise DataError if a packed file holds so many bytes that it seems made to fill memory or disk."""
    size = path.stat().st_size
    limit = max(UNPACKED_BYTES, UNPACKED_RATIO * size, _allowed())
    if n_bytes > limit:
        raise DataError(
            f"Expected at most {_megabytes(limit)} in {path}, which is a file of {size:,} bytes, got {_megabytes(n_bytes)} or "
            f"more: so much in so little is rarely data. If you trust it, set {UNPACK_LIMIT}={-(-n_bytes // 2**30)} (GB)."
        )


def _allowed() -> int:
    given = os.environ.get(UNPACK_LIMIT, "0")
    try:
        return int(float(given) * 2**30)
    except (ValueError, OverflowError) as error:
        raise DataError(f"Expected a number of gigabytes in {UNPACK_LIMIT}, got {given!r}.") from error


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.0f} MB"
