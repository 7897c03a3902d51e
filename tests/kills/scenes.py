"""Commands that are killed and started again, and what must be true when they have come to their end."""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tests.history import violations
from typer.testing import CliRunner

from diva.cli import app
from diva.runs.load import load

ROWS = np.concatenate([np.random.default_rng(c).normal(3 * c, 0.3, size=(20, 3)) for c in range(3)])
PUT_IN = np.random.default_rng(9).normal(size=(150, 3)) + 3 * np.random.default_rng(8).integers(0, 3, size=(150, 1))
TINY = ["--n-epochs", "2", "--latent-dim", "2", "--hidden-sizes", "4", "--n-views", "1", "--n-laps", "1", "--no-report"]
FIT = ["fit", "rows.npy", "--out", "run", *TINY]
STREAM = ["stream", "run", "parts", "--batch-size", "7", "--predictions", "p.jsonl"]


def run(*args: Any) -> Any:
    """The command line, in this process."""
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="diva")


class Scene(ABC):
    """A folder in which a command is disturbed. All methods but ``begin`` expect it to be the working directory."""

    def __init__(self, folder: Path) -> None:
        self._prepared = folder / "prepared"
        self._place = folder / "place"
        self._prepared.mkdir(parents=True)
        with chdir(self._prepared):
            np.save("rows.npy", ROWS)
            self.prepare()

    @contextmanager
    def begin(self) -> Iterator[None]:
        """A fresh copy of the folder, as working directory."""
        shutil.copytree(self._prepared, self._place)
        with chdir(self._place):
            yield
        shutil.rmtree(self._place)

    @abstractmethod
    def prepare(self) -> None:
        """Write what the command needs, and learn what its end should be."""

    @abstractmethod
    def work(self) -> int:
        """Start the command as a user would who finds what is there; returns its exit code."""

    @abstractmethod
    def found(self) -> list[str]:
        """What is wrong in the end; empty if nothing is."""


class StreamScene(Scene):
    """``diva stream``: judged by the samples put in, the logs and the sums of the model, not by an undisturbed run."""

    def prepare(self) -> None:
        """A run, and parts of other sizes than batches."""
        assert run(*FIT).exit_code == 0
        Path("parts").mkdir()
        for number, part in enumerate(np.array_split(PUT_IN, 11)):
            np.save(f"parts/{number:03d}.npy", part)
        self._before = load("run/model.diva")

    def work(self) -> int:
        return int(run(*STREAM).exit_code)

    def found(self) -> list[str]:
        (path,) = Path("run/stream").glob("*.diva")
        before, after = self._before, load(path)
        if not np.array_equal(after.transform(ROWS), before.transform(ROWS)):
            return ["networks learnt, so that sums are of different spaces"]
        events, predictions = lines("run/stream/events.jsonl"), lines("p.jsonl")
        return violations(shares(before, PUT_IN), sums(before), sums(after), events, predictions)


class FitScene(Scene):
    """``diva fit``, and ``diva resume`` where a checkpoint is left: the numbers are those of an undisturbed run."""

    def prepare(self) -> None:
        assert run(*FIT).exit_code == 0
        self._expected, self._files = self._outcome()
        shutil.rmtree("run")

    def work(self) -> int:
        result = run(*FIT)
        if result.exit_code == 2 and "Go on with `diva resume run`" in " ".join(result.stderr.split()):
            result = run("resume", "run", "--no-report")
        elif result.exit_code == 2 and "already holds a run. Choose another folder" in " ".join(result.stderr.split()):
            return 0
        return int(result.exit_code)

    def found(self) -> list[str]:
        outcome, files = self._outcome()
        wrong = [] if outcome == self._expected else ["the model gives other numbers"]
        return wrong if files == self._files else [*wrong, f"other files: {sorted(files ^ self._files)}"]

    @staticmethod
    def _outcome() -> tuple[list[Any], set[str]]:
        model = load("run/model.diva")
        files = {path for path in os.listdir("run") if not path.endswith(".tmp")}  # a process that dies may leave such
        return [model.transform(ROWS).tolist(), model.predict(ROWS).tolist(), model.labels_.tolist()], files


SCENES = {"stream": StreamScene, "fit": FitScene}


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
    """Objects of a file of JSON lines."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]
