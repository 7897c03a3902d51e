"""Streams that are killed many times, and use every sample once all the same; and very long ones, which do not grow."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from sklearn.datasets import load_digits

from benchmarks.recording import Row, record
from diva import DPMixture
from diva.runs.archive import read_archive
from diva.runs.stream_log import read_commit

N_PARTS = 7
BATCH_SIZE = 16
STREAM = Path("run") / "stream"
ANSWERS = "answers.jsonl"


def kills(n_kills: int = 50, seed: int = 0) -> None:
    """Fit digits 0 to 4, stream the others; end it with ``kill -9`` at random moments, start it again, and compare."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        calm, killed = Path(folder, "calm"), Path(folder, "killed")
        n_samples = prepare(calm)
        shutil.copytree(calm, killed)
        begun = time.perf_counter()
        moments = watch(calm)
        undisturbed = time.perf_counter() - begun
        starting, typical = moments[0] - begun, float(np.median(np.diff(moments)))
        n_working = n_done = 0
        begun = time.perf_counter()
        for number in range(n_kills):
            # one in four comes while it starts, and so do those that would let the stream end too soon
            is_ahead = samples_used(killed) > n_samples * (number + 1) / (n_kills + 1)
            early = is_ahead or rng.random() < 0.25
            done, working = kill_once(killed, rng.uniform(0, starting if early else 3 * typical), early)
            n_done, n_working = n_done + done, n_working + working
            print(f"kill {number + 1}: {samples_used(killed)} of {n_samples} samples used", flush=True)
        assert start(killed).wait() == 0
        disturbed = time.perf_counter() - begun
        rows: list[Row] = [
            {
                "samples": n_samples,
                "batches": len(batches(killed)),
                "in which networks learnt": sum(batch["learnt"] for batch in batches(killed)),
                "kills": n_kills - n_done,
                "of them while it worked": n_working,
                "samples used once": len(once(killed)),
                "used twice or lost": n_samples - len(once(killed)),
                "events the same": same(calm, killed, STREAM / "events.jsonl"),
                "predictions the same": same(calm, killed, Path(ANSWERS)),
                "model the same": same_model(calm, killed),
                "seconds undisturbed": undisturbed,
                "seconds with kills": disturbed,
            }
        ]
    record(
        "stream_kills",
        f"diva stream under kill -9: fit on digits 0 to 4, a stream of the others in batches of {BATCH_SIZE}",
        rows,
        [
            "Events and predictions are compared byte by byte, models in all their numbers but times. A kill comes at a random "
            "moment of the start, or within the time of three batches after the first one. Every start imports torch anew.",
        ],
    )


def long(n_batches: int = 100_000, n_rows: int = 8, n_shown: int = 10, seed: int = 0) -> None:
    """Very many small batches for ``DPMixture.partial_fit``: memory, time and the saved file should not grow."""
    rng = np.random.default_rng(seed)

    def arriving(n: int) -> np.ndarray:
        """Three groups, the third of which moves slowly, so that there is always something to learn."""
        moved = model.mixture_.naming.batch / n_batches if hasattr(model, "mixture_") else 0.0
        return rng.normal(size=(n, 2)) + np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0 + moved]])[rng.integers(0, 3, size=n)]

    model = DPMixture(random_state=seed)
    model.fit(arriving(500))
    process, rows = psutil.Process(), []
    with tempfile.TemporaryDirectory() as folder:
        for part in range(n_shown):
            begun = time.process_time()
            for _ in range(n_batches // n_shown):
                model.partial_fit(arriving(n_rows))
            seconds = time.process_time() - begun
            model.save(Path(folder, "m.diva"))
            rows.append(
                {
                    "partial fits": (part + 1) * (n_batches // n_shown),
                    "milliseconds of a processor each": 1000 * seconds / (n_batches // n_shown),
                    "resident megabytes": process.memory_info().rss / 2**20,
                    "kilobytes of the file": length(Path(folder, "m.diva")) / 1024,
                    "components": model.n_components_,
                    "clusters": model.n_clusters_,
                    "moves on record": len(model.lineage_),
                }
            )
            print(rows[-1], flush=True)
    title = f"DPMixture.partial_fit in a long stream: {n_batches:,} batches of {n_rows} rows"
    record("stream_long", title, rows, ["One thread. Every row is about the batches since the one before."])


def prepare(folder: Path) -> int:
    """A run, and the files of a stream; returns how many samples it has."""
    digits = load_digits()
    later = digits.images[digits.target >= 5]
    (folder / "incoming").mkdir(parents=True)
    np.save(folder / "known.npy", digits.images[digits.target < 5])
    for number, part in enumerate(np.array_split(later, N_PARTS)):
        np.save(folder / "incoming" / f"part-{number}.npy", part)
    subprocess.run(diva("fit", "known.npy", "--out", "run", "--no-report"), cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return len(later)


def diva(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "diva", *arguments]


def start(folder: Path) -> subprocess.Popen[bytes]:
    arguments = ("stream", "run", "incoming", "--batch-size", str(BATCH_SIZE), "--predictions", ANSWERS)
    return subprocess.Popen(diva(*arguments), cwd=folder, stdout=subprocess.DEVNULL)


def watch(folder: Path) -> list[float]:
    """Run the stream to its end; returns when each batch was done."""
    process = start(folder)
    log = folder / STREAM / "events.jsonl"
    moments, before = [], 0
    while process.poll() is None:
        if (now := length(log)) > before:
            moments.append(time.perf_counter())
            before = now
        time.sleep(0.005)
    assert process.returncode == 0
    return moments


def kill_once(folder: Path, delay: float, early: bool) -> tuple[bool, bool]:
    """Start the stream and kill it; returns whether it ended by itself before, and whether it had begun to work."""
    log = folder / STREAM / "events.jsonl"
    before = samples_used(folder), length(log)
    process = start(folder)
    begun = time.perf_counter()
    while length(log) <= before[1] and process.poll() is None:
        if early and time.perf_counter() - begun > delay:
            break
        time.sleep(0.002)
    if not early:
        time.sleep(delay)
    working = (samples_used(folder), length(log)) > before
    os.kill(process.pid, signal.SIGKILL)
    return process.wait() == 0, working


def length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def samples_used(folder: Path) -> int:
    commit = read_commit(folder / STREAM)
    return 0 if commit is None else commit.samples


def batches(folder: Path) -> list[dict[str, Any]]:
    rows = map(json.loads, (folder / STREAM / "events.jsonl").read_text().splitlines())
    return [row for row in rows if row["event"] == "batch"]


def once(folder: Path) -> list[int]:
    """Positions of samples that are in exactly one batch and have exactly one prediction."""
    used = [i for batch in batches(folder) for i in range(batch["first"], batch["last"] + 1)]
    answered = [json.loads(line)["sample"] for line in (folder / ANSWERS).read_text().splitlines()]
    n = max(*used, *answered) + 1
    both = (np.bincount(used, minlength=n) == 1) & (np.bincount(answered, minlength=n) == 1)
    return np.flatnonzero(both).tolist()


def same(one: Path, other: Path, name: Path) -> bool:
    return (one / name).read_bytes() == (other / name).read_bytes()


def same_model(one: Path, other: Path) -> bool:
    commits = [read_commit(folder / STREAM) for folder in (one, other)]
    paths = [folder / STREAM / str(commit and commit.model) for folder, commit in zip((one, other), commits, strict=True)]
    first, second = (read_archive(path, kinds=("DIVA",)) for path in paths)
    if without_times(first.document) != without_times(second.document) or first.tensors.keys() != second.tensors.keys():
        return False
    return all(torch.equal(first.tensors[name], second.tensors[name]) for name in first.tensors)


def without_times(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: without_times(value) for key, value in plain.items() if not key.endswith("seconds")}
    return [without_times(value) for value in plain] if isinstance(plain, list) else plain


if __name__ == "__main__":
    kills()
