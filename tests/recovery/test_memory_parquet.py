"""A file larger than the memory it is read in."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N_SAMPLES, N_FEATURES, GROUP_ROWS = 500_000, 1_000, 10_000

FIT = """
import json, sys, time
import torch
from diva import DIVA

torch.set_num_threads(1)

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))

imported, started, epochs = peak(), time.perf_counter(), []
note = lambda model, record: epochs.append((record.phase, round(peak()), round(time.perf_counter() - started)))
model = DIVA(n_epochs=2, random_state=0, callbacks=[note]).fit(sys.argv[1])
print(json.dumps({
    "imported": imported, "epochs": epochs, "peak": peak(), "seconds": time.perf_counter() - started,
    "n_clusters": model.n_clusters_, "labels": model.labels_[:3000].tolist(),
}))
"""


def write_gaussians(path):
    """Three Gaussians, 2 GB of float32; returns the true group of each row."""
    rng = np.random.default_rng(0)
    means = rng.standard_normal((3, N_FEATURES), dtype=np.float32) * 3
    truth = rng.integers(3, size=N_SAMPLES)
    schema = pa.schema([(f"f{j}", pa.float32()) for j in range(N_FEATURES)])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for first in range(0, N_SAMPLES, GROUP_ROWS):
            rows = rng.standard_normal((GROUP_ROWS, N_FEATURES), dtype=np.float32) + means[truth[first : first + GROUP_ROWS]]
            writer.write_table(pa.table(list(rows.T.copy()), schema=schema), row_group_size=GROUP_ROWS)
    return truth


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_two_gigabytes_of_parquet_are_fitted_in_less_memory(tmp_path):
    truth = write_gaussians(tmp_path / "gaussians.parquet")
    assert (tmp_path / "gaussians.parquet").stat().st_size > 2e9
    command = [sys.executable, "-c", FIT, str(tmp_path / "gaussians.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (tmp_path / "gaussians.parquet").unlink()
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    print({name: value for name, value in outcome.items() if name != "labels"})
    assert outcome["peak"] < 1500  # MB
    found = np.array(outcome["labels"])
    pairs = {(a, b) for a, b in zip(truth[: len(found)].tolist(), found.tolist(), strict=True)}
    assert len({b for _, b in pairs}) == len(pairs), "a cluster holds rows of two Gaussians"
