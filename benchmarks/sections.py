"""Parts of pages that are written from recorded rows: between two marks, the rest of the page is written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent


def with_section(text: str, name: str, lines: Sequence[str]) -> str:
    """A page whose part of a name is these lines; raises ValueError if it has no such part."""
    start, end = f"<!-- {name}: written by python -m benchmarks {name} -->", f"<!-- end of {name} -->"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"The page should have the lines {start!r} and {end!r} once.")
    before, _, rest = text.partition(start)
    return f"{before}{start}\n" + "\n".join(lines) + f"\n{end}{rest.partition(end)[2]}"


def write_section(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replace a part of a page."""
    page.write_text(with_section(page.read_text(), name, lines))
    print(f"wrote {name} of {page}")
