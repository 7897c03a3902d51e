"""How cost grows with samples and components, and that memory does not."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.bench_speed import one_lap
from benchmarks.recording import Row, record
from diva.data import make_gaussian_mixture

WORKER = """
import json, sys, threading, time
import numpy as np, psutil
from diva import DPMixture
process = psutil.Process()
before = process.memory_info().rss
peak = [before]
def watch():
    while True:
        peak[0] = max(peak[0], process.memory_info().rss)
        time.sleep(0.005)
threading.Thread(target=watch, daemon=True).start()
x = np.memmap(sys.argv[1], dtype=np.float32, mode="r", shape=(int(sys.argv[2]), 16))
start = time.perf_counter()
model = DPMixture(covariance_type="diag", random_state=0).fit(x)
print(json.dumps({"seconds": time.perf_counter() - start, "K found": model.n_components_, "laps": len(model.history_),
                  "resident after import, MB": before / 1e6, "peak above that, MB": (peak[0] - before) / 1e6}))
"""


def memmap_fit(n_samples: int = 10_000_000) -> Row:
    """Fit a mapped file in a process of its own and watch its resident set."""
    rng = np.random.default_rng(0)
    truth = make_gaussian_mixture(20, 16, rng)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.f32"
        with path.open("wb") as file:
            for _ in range(0, n_samples, 500_000):
                file.write(truth.sample(500_000, rng)[0].tobytes())
        megabytes = path.stat().st_size / 1e6
        command = [sys.executable, "-c", WORKER, str(path), str(n_samples)]
        outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    return {"n": n_samples, "file, MB": megabytes, **json.loads(outcome.stdout)}


def main() -> None:
    by_n = [one_lap(n, sklearn_too=False) for n in (100_000, 1_000_000, 10_000_000)]
    record("scale_n", "Cost of a lap by number of samples, D = 16", [_per(row, "n") for row in by_n])
    by_k = [one_lap(500_000, k, sklearn_too=False) for k in (10, 40, 160)]
    record("scale_k", "Cost of a lap by number of components, n = 500,000, D = 16", [_per(row, "K") for row in by_k])


def memory() -> None:
    record("memory", "A memory-mapped file of float32, D = 16, 20 Gaussians, fitted from K = 1", [memmap_fit()])


def _per(row: Row, what: str) -> Row:
    return {
        "n": row["n"],
        "K": row["K"],
        "lap, s": row["lap, s"],
        f"ns per sample{' and K' if what == 'K' else ''}": 1e9 * row["lap, s"] / row["n"] / (row["K"] if what == "K" else 1),
    }


if __name__ == "__main__":
    main()
