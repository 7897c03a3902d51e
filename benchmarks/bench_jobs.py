"""Six people's jobs, from their file to a picture: how many commands, and how many minutes of the computer's.

``python -m benchmarks jobs`` makes the files, runs what each would type, and writes the table of docs/quick-start.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits, load_wine

from benchmarks.recording import RESULTS, Row, record, table
from benchmarks.sections import ROOT, write_section

PAGE = ROOT / "docs" / "quick-start.md"
NAME = "jobs"


@dataclass(frozen=True)
class Job:
    """What somebody has, what they type, and the picture they get."""

    who: str
    make: Callable[[Path], None]
    typed: tuple[str, ...]
    picture: str


def table_with_gaps(folder: Path) -> None:
    """Wines with one number in thirty missing, and a name each."""
    wine, rng = load_wine(as_frame=True), np.random.default_rng(0)
    gaps = wine.data.mask(rng.random(wine.data.shape) < 1 / 30)
    gaps.insert(0, "name", [f"wine {i}" for i in range(len(gaps))])
    gaps.to_csv(folder / "wines.csv", index=False)


def photographs(folder: Path) -> None:
    """A folder of small pictures."""
    (folder / "photos").mkdir()
    for i, image in enumerate(load_digits().images):
        Image.fromarray((15 * image).astype(np.uint8)).resize((16, 16)).save(folder / "photos" / f"{i:04d}.png")


def text_column(folder: Path) -> None:
    """Notes of four kinds, a line each."""
    rng = np.random.default_rng(0)
    words = ("train late ticket station delay", "screen laptop battery driver update")
    words += ("invoice payment refund bank receipt", "garden rain tomato seed soil")
    lines = ["id,text"]
    for i in range(400):
        own, common = words[i % 4].split(), ("please", "help", "today", "again", "thanks")
        lines.append(f"{i},{' '.join([*rng.choice(own, 6), *rng.choice(common, 3)])}")
    (folder / "notes.csv").write_text("\n".join(lines) + "\n")


def vectors(folder: Path) -> None:
    """20,000 unit vectors of 30 topics."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 384))[rng.integers(30, size=20_000)] + 0.4 * rng.normal(size=(20_000, 384))
    np.save(folder / "vectors.npy", (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32))


def arriving(folder: Path) -> None:
    """A first file, and two that come later: the last has a class that nobody has seen."""
    rng = np.random.default_rng(0)
    (folder / "incoming").mkdir()
    for name, centres in (("first.npy", (-4, 4)), ("incoming/1.npy", (-4, 4)), ("incoming/2.npy", (-4, 4, 12))):
        np.save(folder / name, np.concatenate([rng.normal(c, 1.0, size=(500, 8)) for c in centres]))


def notebook(folder: Path) -> None:
    """A cell of a notebook."""
    lines = ["from sklearn.datasets import load_wine", "from diva import DPMixture", "X = load_wine(as_frame=True).data"]
    lines += ['DPMixture(random_state=0).fit(X).report(X, "wines.html")']
    (folder / "cell.py").write_text("\n".join(lines) + "\n")


MIXTURE = "diva fit {} --model mixture --out run"
JOBS = (
    Job("a table with gaps", table_with_gaps, ("diva fit wines.csv --out run",), "run/report.html"),
    Job("a folder of photographs", photographs, ("diva fit photos --image-size 16,16 --out run",), "run/report.html"),
    Job("a text column", text_column, ("diva fit notes.csv --out run",), "run/report.html"),
    Job("20,000 vectors", vectors, (MIXTURE.format("vectors.npy"),), "run/report.html"),
    Job("a stream", arriving, (MIXTURE.format("first.npy"), "diva stream run incoming", "diva report run"), "run/report.html"),
    Job("a notebook", notebook, ("python cell.py",), "wines.html"),
)


def run_job(job: Job) -> Row:
    """Do a job in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder, seconds, said = Path(name), 0.0, "yes"
        job.make(folder)
        for typed in job.typed:
            program, *arguments = typed.split()
            command = [sys.executable, *([] if program == "python" else ["-m", program]), *arguments]
            start = time.perf_counter()
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            seconds += time.perf_counter() - start
            if done.returncode != 0:
                said = f"no: {done.stderr.strip().splitlines()[-1]}"
                break
        if said == "yes" and not (folder / job.picture).exists():
            said = "no: there is no picture"
    return {"job": job.who, "typed": list(job.typed), "minutes": seconds / 60, "done": said}


def section() -> list[str]:
    """The table of the page, from the recorded rows."""
    path = RESULTS / f"{NAME}.json"
    rows = {row["job"]: row for row in json.loads(path.read_text())["rows"]} if path.exists() else {}
    shown = []
    for job in JOBS:
        row: dict[str, Any] = rows.get(job.who, {})
        typed = row.get("typed") == list(job.typed) and row["done"] == "yes"
        minutes = f"{row['minutes']:.1f}" if typed else "not measured"
        typed_text = ", then ".join(f"`{command}`" for command in job.typed)
        shown.append({"you have": job.who, "you type": typed_text, "commands": len(job.typed), "minutes": minutes})
    return [*table(shown), "", "Minutes are the computer's, from the first command to a picture to look at, on two cores."]


def main() -> None:
    rows: list[Row] = []
    for job in JOBS:
        rows.append(run_job(job))
        record(NAME, "Six people's jobs, from a file to a picture", rows)
    write_section(PAGE, NAME, section())
