"""Numbers and names as people read them."""

from __future__ import annotations

from datetime import datetime
from typing import Any


def count(n: int, word: str) -> str:
    """So many of something.

    >>> count(1, "cluster"), count(1200, "sample")
    ('1 cluster', '1,200 samples')
    """
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def percent(share: float) -> str:
    """A share, which is 100 % only if it is all there is.

    >>> percent(0.5), percent(0.123), percent(0.99999), percent(1.0)
    ('50 %', '12.3 %', 'over 99.9 %', '100 %')
    """
    text = f"{100 * share:.1f}"
    return "over 99.9 %" if text == "100.0" and share < 1 else f"{text.removesuffix('.0')} %"


def duration(seconds: float) -> str:
    """A time span.

    >>> duration(3.21), duration(102), duration(7260)
    ('3.2 s', '1 min 42 s', '2 h 01 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def date(text: Any) -> str:
    """An ISO date without its seconds."""
    try:
        return f"{datetime.fromisoformat(str(text)):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return "unknown"


def number(value: float, decimals: int) -> str:
    """A number with so many decimals, however large it is.

    >>> number(1234.5678, 1), number(-1e-12, 2), number(2.5e12, 0)
    ('1,234.6', '0.00', '2.5e+12')
    """
    if abs(value) >= 1e9:
        return f"{value:.3g}"
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def plain(value: Any) -> str:
    """A parameter."""
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else "none" if value is None else str(value)


def clipped(text: str, most: int = 32) -> str:
    """Text that is not longer than a line.

    >>> clipped("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"
