"""What failed once: lines of two files, each a kind, a seed, a number, and what went wrong."""

from __future__ import annotations

from pathlib import Path

FOUND = Path(__file__).with_name("found.txt")  # cases of estimators
FOUND_FILES = Path(__file__).with_name("found_files.txt")  # changes to files


def found_in(path: Path) -> list[tuple[str, str, str]]:
    """What to replay, each once."""
    lines = [line.split("#")[0].split() for line in path.read_text().splitlines()]
    return sorted({(kind, seed, number) for kind, seed, number in filter(None, lines)})
