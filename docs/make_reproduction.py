"""Write the numbers of docs/reproduction.md from recorded rows: ``python docs/make_reproduction.py [FOLDER]``.

With the folder of a reproduction (``diva reproduce ... --out FOLDER``), its rows and figures are taken over first. Without, all
is made anew from the recorded rows, but for figures of codes and draws, which are not in rows.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from diva.experiments.figures import write_figures
from diva.experiments.page import FIGURES, ROWS, as_text, read_rows, results_of, sections_of
from diva.experiments.spec import EXPERIMENTS
from diva.experiments.tables import Results

DOCS = Path(__file__).parent
PAGE = DOCS / "reproduction.md"
RECORDED = DOCS.parent / "benchmarks" / "results" / "reproduction.jsonl"
IMAGES = DOCS / "images" / "reproduction"
MARK = "<!-- Below this line, python docs/make_reproduction.py writes. -->"
OF_ROWS = ("table1", "incremental", "dynamic", "moves", "shuffle", "dp-draw")  # experiments with figures made of rows alone


def take_over(folder: Path) -> None:
    """Copy rows and figures of a reproduction."""
    shutil.copyfile(folder / ROWS, RECORDED)
    IMAGES.mkdir(parents=True, exist_ok=True)
    for figure in sorted((folder / FIGURES).glob("*.png")):
        shutil.copyfile(figure, IMAGES / figure.name)


def recorded() -> Results:
    """What was measured."""
    rows = read_rows(RECORDED) if RECORDED.exists() else []
    return results_of(rows, rows[0]["profile"] if rows else "quick")


def page() -> str:
    """The page: what is written by hand, and below it what follows from the rows."""
    images = {key: sorted(path for path in IMAGES.glob("*.png") if _belongs(path.stem, key)) for key in EXPERIMENTS}
    by_hand = PAGE.read_text().partition(MARK)[0]
    return f"{by_hand}{MARK}\n\n{as_text(sections_of(recorded(), images), DOCS, heading='')}\n"


def _belongs(name: str, experiment: str) -> bool:
    """Whether a figure is one of an experiment: its names begin with it."""
    key = experiment.replace("-", "_")
    return name == key or name.startswith(f"{key}_")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        take_over(Path(sys.argv[1]))
    write_figures(OF_ROWS, recorded(), {}, IMAGES, formats=("png",))
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
