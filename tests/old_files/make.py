"""Write one file or folder of every kind that people keep, with what it should still say later.

    python -m tests.old_files.make VERSION     # tests/old_files/VERSION/, a few hundred kB

Run once for each release, by its own code, and never changed afterwards: tests/e2e/test_old_files.py opens them with the code
of today.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np

from diva import DIVA, DPMixture, load

HERE = Path(__file__).parent
NETWORKS = {"hidden_sizes": (12, 8), "latent_dim": 4, "batch_size": 32}
FLAGS = ["--hidden-sizes", "12,8", "--latent-dim", "4", "--batch-size", "32", "--further-epochs", "2", "--n-epochs", "8"]


def rows(seed, n=240):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(0, 4, size=(4, 6))
    return (centres[rng.integers(4, size=n)] + rng.normal(size=(n, 6))).astype(np.float32)


def answers(model, X):
    """What a model says about rows; plain numbers, to be compared within rounding."""
    return {
        "labels": model.predict(X).tolist(),
        "components": model.predict(X, level="component").tolist(),
        "probabilities": np.round(model.predict_proba(X), 6).tolist(),
        "scores": np.round(model.score_samples(X), 4).tolist(),
        "cluster_ids": model.cluster_ids_.tolist(),
        "component_ids": model.component_ids_.tolist(),
        "n_moves": len(model.lineage_),
    }


def say(*command):
    subprocess.run([sys.executable, "-m", "diva", *command], check=True, capture_output=True)


def die_after(n_writes, *command):
    """Run a command and kill it at its n-th write that counts."""
    program = (
        "import sys; sys.path.insert(0, '.'); from tests.e2e.sudden_death import die_at; "
        f"die_at('after', {n_writes}); from diva.cli import main; sys.argv[1:] = {list(command)!r}; main()"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == -9


def without_paths(path):
    """Files know where their data were, and models where their run is; here that is no place at all."""
    if path.suffix == ".diva":
        load(path).set_params(run_dir="/elsewhere/finished").save(path)
        return
    document = json.loads(path.read_text())
    document["source"] = "/elsewhere/" + Path(document["source"]).name
    path.write_text(json.dumps(document, indent=1) + "\n")


def main(version):
    folder = HERE / version
    folder.mkdir()
    np.save(folder / "rows.npy", rows(0))
    (folder / "parts").mkdir()
    for i in range(2):
        np.save(folder / "parts" / f"{i}.npy", rows(i + 1, 80))
    X, expected = rows(9, 40), {}
    np.save(folder / "asked.npy", X)

    mixture = DPMixture(grouping="valleys", random_state=0).fit(rows(0))
    mixture.save(folder / "mixture.diva")
    expected["mixture.diva"] = answers(mixture, X)

    model = DIVA(**NETWORKS, n_epochs=8, further_epochs=2, replay="reservoir", reservoir=20, random_state=0).fit(rows(0))
    model.partial_fit(rows(1, 60))  # a few samples wait, others are in the reservoir
    model.save(folder / "model.diva")
    expected["model.diva"] = answers(model, X)

    say("fit", str(folder / "rows.npy"), "--out", str(folder / "finished"), "--random-state", "3", *FLAGS)
    (folder / "finished/report.html").unlink()
    expected["finished"] = answers(load(folder / "finished/model.diva"), X)
    say("stream", str(folder / "finished"), str(folder / "parts"), "--batch-size", "80")
    for name in ("source.json", "model.diva", "stream/stream.json", "stream/model-000002.diva"):
        without_paths(folder / "finished" / name)
    expected["stream"] = answers(load(next((folder / "finished/stream").glob("model-*.diva"))), X)

    interrupted_run(folder, "interrupted")

    # every parameter that has had another name or other values since
    networks = {"hidden_sizes": (16,), "latent_dim": 3, "batch_size": 16, "learning_rate": 0.01}
    model = DIVA("sensors", sharpening=0.4, **networks, n_epochs=60, random_state=0).fit(rows(0))
    model.save(folder / "renamed.diva")
    expected["renamed.diva"] = answers(model, X)
    interrupted_run(folder, "interrupted-renamed", "--preset", "sensors", "--sharpening", "0.4")
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def interrupted_run(folder, name, *flags):
    """A run that was killed after its fifth epoch of eight."""
    die_after(12, "fit", str(folder / "rows.npy"), "--out", str(folder / name), "--random-state", "3", *FLAGS, *flags)
    for leftover in (folder / name).glob(".diva-*"):
        leftover.unlink()
    without_paths(folder / name / "source.json")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
