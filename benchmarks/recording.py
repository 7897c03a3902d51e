"""How benchmarks keep and show their rows; the rows themselves are those of `diva.experiments.rows`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from diva.experiments.rows import Row, circumstances, commit, scores

__all__ = ["RESULTS", "Row", "best_time", "circumstances", "record", "scores", "show", "table"]

RESULTS = Path(__file__).parent / "results"
commit()  # noted when a benchmark starts, not when it ends: that is the code it runs


def record(name: str, title: str, rows: Sequence[Row], notes: Sequence[str] = ()) -> None:
    """Show rows as a table and keep them as JSON."""
    RESULTS.mkdir(exist_ok=True)
    document = {"title": title, **circumstances(), "notes": list(notes), "rows": list(rows)}
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"\n{title}\n" + "\n".join(table(rows)))
    for note in notes:
        print(note)


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown table of rows that share their columns."""
    columns = list(rows[0])
    cells = [[show(row[c]) for c in columns] for row in rows]
    widths = [max(len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]
    lines = [columns, ["-" * w for w in widths], *cells]
    return ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in lines]


def show(value: Any) -> str:
    """Format one cell."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def best_time(action: Callable[[], Any], repeats: int = 5) -> float:
    """Seconds of the fastest of several runs, after one to warm up."""
    action()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)
