"""Fuzz the estimators for as long as you like.

    python -m tests.fuzz --estimator dpmixture --cases 100000 --seed 7
    python -m tests.fuzz --estimator dpmixture --seed 7 --only 1234      # one case, with its traceback

How far it has come is kept in a file, so that the same command goes on after any end, a crash of the interpreter included: the
case that was running then has failed. Failures are also added to ``tests/fuzz/found.txt``, which the tests replay; keep the
line together with what mends it. Several processes with seeds of their own may run side by side.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tests.fuzz.cases import CASES, Failure, run_case
from tests.fuzz.found import FOUND


@dataclass
class Progress:
    """How far a run has come."""

    path: Path
    next: int = 0
    running: int | None = None
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, path: Path) -> Progress:
        """Read from its file, if there is one."""
        if not path.exists():
            return cls(path)
        known = json.loads(path.read_text())
        return cls(path, known["next"], known["running"], known["seconds"], Counter(known["outcomes"]))

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({name: value for name, value in vars(self).items() if name != "path"}))

    def __str__(self) -> str:
        said = ", ".join(f"{n} {outcome}" for outcome, n in sorted(self.outcomes.items()))
        return f"{self.next} cases in {self.seconds:.0f} s: {said}"


def record(estimator: str, seed: int, number: int, what: str) -> None:
    """Keep a failure where the tests find it."""
    line = f"{estimator} {seed} {number}  # {' '.join(what.split())[:300]}"
    print(line, flush=True)
    with FOUND.open("a") as file:
        file.write(f"{line}\n")


def run(estimator: str, seed: int, n_cases: int, progress: Progress) -> None:
    if progress.running is not None:  # it died there
        record(estimator, seed, progress.running, "the process died")
        progress.outcomes["failed"] += 1
        progress.next = progress.running + 1
    while progress.next < n_cases:
        number, begun, story = progress.next, time.process_time(), []
        progress.running = number
        progress.write()
        try:
            progress.outcomes[run_case(estimator, seed, number, story)] += 1
        except Failure as failure:
            progress.outcomes["failed"] += 1
            record(estimator, seed, number, f"{failure} | {' | '.join(story)}")
        progress.next, progress.running = number + 1, None
        progress.seconds += time.process_time() - begun
        if progress.next % 500 == 0:
            print(progress, flush=True)
    progress.write()
    print(progress)


def main() -> int:
    """Run the cases; 1 if some failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--estimator", choices=list(CASES), default="dpmixture")
    parser.add_argument("--cases", type=int, default=100_000, help="how many in all")
    parser.add_argument("--seed", type=int, default=0, help="of all cases")
    parser.add_argument("--only", type=int, help="run this case alone, and show where it fails")
    parser.add_argument("--progress", type=Path, help="file that keeps how far it has come")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only is not None:
        story: list[str] = []
        try:
            print(run_case(options.estimator, options.seed, options.only, story))
        finally:
            print("\n".join(story))
        return 0
    path = options.progress or Path("build", "fuzz", f"{options.estimator}-{options.seed}.json")
    progress = Progress.of(path)
    run(options.estimator, options.seed, options.cases, progress)
    return int(progress.outcomes["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
