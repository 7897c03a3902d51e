"""A stream that is killed again and again uses every sample once, as somebody finds who only looks at what went in and out."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.faults import Disk, in_a_process
from tests.history import violations
from typer.testing import CliRunner

from diva.cli import app
from diva.runs.load import load

ROWS = np.concatenate([np.random.default_rng(c).normal(3 * c, 0.3, size=(20, 3)) for c in range(3)])
TINY = ["--n-epochs", "2", "--latent-dim", "2", "--hidden-sizes", "4", "--n-views", "1", "--n-laps", "1", "--no-report"]
STREAM = ["stream", "run", "parts", "--batch-size", "7", "--predictions", "p.jsonl"]
PUT_IN = np.random.default_rng(9).normal(size=(150, 3)) + 3 * np.random.default_rng(8).integers(0, 3, size=(150, 1))


def run(*args: Any) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="diva")


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A run, and parts of other sizes than batches."""
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", ROWS)
    assert run("fit", "rows.npy", "--out", "run", *TINY).exit_code == 0
    Path("parts").mkdir()
    for number, part in enumerate(np.array_split(PUT_IN, 11)):
        np.save(f"parts/{number:03d}.npy", part)
    return tmp_path


def sums(model: Any) -> np.ndarray:
    """Mass, sum and sum of squares over all components: what moves between components does not change them."""
    total = model.mixture_.state.total
    squares = total.sum_zz.diagonal(dim1=1, dim2=2) if total.sum_zz.ndim == 3 else total.sum_zz
    return np.concatenate([[total.counts.sum()], total.sum_z.sum(0), squares.sum(0)])


def shares(model: Any, rows: np.ndarray) -> np.ndarray:
    """What each sample adds to the sums."""
    space = model.mixture_.standardization
    z = (model.transform(rows).astype(np.float64) - space.mean.numpy()) / space.scale.numpy()
    return np.column_stack([np.ones(len(z)), z, z**2])


def lines(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def found(before: Any) -> list[str]:
    (path,) = Path("run/stream").glob("*.diva")
    after = load(path)
    np.testing.assert_array_equal(
        after.transform(ROWS), before.transform(ROWS)
    )  # networks did not learn: sums are of one space
    return violations(shares(before, PUT_IN), sums(before), sums(after), lines("run/stream/events.jsonl"), lines("p.jsonl"))


@pytest.mark.parametrize("n_kills", [12, pytest.param(150, marks=pytest.mark.slow)])
def test_killed_again_and_again(n_kills, place):
    chance, before, n_died = np.random.default_rng(n_kills), load("run/model.diva"), 0
    for _ in range(n_kills):
        disk = Disk(place, "kill", int(chance.integers(0, 30)))

        def work(disk: Disk = disk) -> int:
            with disk.mounted():
                return int(run(*STREAM).exit_code)

        n_died += in_a_process(work) is None
    assert n_died > 5
    assert run(*STREAM).exit_code == 0
    assert found(before) == []


def test_killed_at_any_moment(place):
    chance, before = np.random.default_rng(0), load("run/model.diva")
    for _ in range(6):
        if not (pid := os.fork()):
            os._exit(run(*STREAM).exit_code)
        time.sleep(chance.uniform(0.02, 0.4))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert run(*STREAM).exit_code == 0
    assert found(before) == []


# --- the checker finds what it should


@pytest.fixture(scope="module")
def history() -> dict[str, Any]:
    added = np.column_stack([np.ones(40), np.random.default_rng(0).normal(size=(40, 4))])
    events: list[dict[str, Any]] = []
    for i in range(4):
        events.append({"event": "batch", "batch": i + 1, "first": 10 * i, "last": 10 * i + 9, "n_samples": 10})
        events.append({"event": "checkpoint", "batch": i + 1, "samples": 10 * i + 10})
    predictions = [{"sample": i} for i in range(40)]
    before = np.arange(5.0)
    whole = {"added": added, "before": before, "after": before + added.sum(0), "events": events, "predictions": predictions}
    assert violations(**whole) == []
    return whole


BROKEN = {
    "sample 7 was lost": lambda h: {"after": h["after"] - h["added"][7]},
    "sample 7 was used twice": lambda h: {"after": h["after"] + h["added"][7]},
    "statistics grew by 40 samples": lambda h: {"after": h["after"] - h["added"][7] + h["added"][8]},
    "expected from 10 on": lambda h: {"events": h["events"][:2] + h["events"][4:]},
    "batch 5 is called 4": lambda h: {"events": h["events"] + h["events"][-2:]},
    "batches end at 30 and checkpoints at 30": lambda h: {"events": h["events"][:-2]},
    "checkpoints at 30": lambda h: {"events": h["events"][:-1]},
    r"samples \[39\] are not predicted once": lambda h: {"predictions": h["predictions"][:-1]},
    r"samples \[0\] are not predicted once": lambda h: {"predictions": h["predictions"][:1] + h["predictions"]},
    "not in order": lambda h: {"predictions": h["predictions"][::-1]},
}


@pytest.mark.parametrize("said", BROKEN)
def test_the_checker_finds(said, history):
    assert re.search(said, "; ".join(violations(**history | BROKEN[said](history))))
