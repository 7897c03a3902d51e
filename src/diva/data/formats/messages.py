"""What messages about names of columns, fields, arrays and files say."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def did_you_mean(name: str, there: Sequence[str]) -> str:
    """A suggestion, or nothing."""
    near = difflib.get_close_matches(name, there, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def listed(names: Sequence[object]) -> str:
    """The first of them."""
    shown = ", ".join(map(repr, names[:8]))
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


def readable(name: str) -> str:
    """A name of a file as text that can be written: bytes that are no UTF-8 are replaced."""
    return name.encode("utf-8", "replace").decode()
