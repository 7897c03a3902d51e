"""A golden record: what fixed fits give, bit for bit, so that a change of structure can be told from a change of numbers.

    python -m tests.golden record.json                        # write it
    python -m tests.golden new.json --against record.json     # write it and compare; exit 1 where they differ
    python -m tests.golden new.json --only mixture streams    # some of the cases

Bits depend on the processor's instructions and on torch, so a record is compared with one of the same machine only: make it at
the commit before, and keep it outside the repository.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from diva import DIVA, DPMixture, load


def digest(array):
    """A few characters that change with any bit of an array, its shape or its dtype."""
    array = np.ascontiguousarray(array)
    return hashlib.sha256(f"{array.dtype.str}{array.shape}".encode() + array.tobytes()).hexdigest()[:16]


def of_lineage(records):
    return (
        digest(
            np.array([[len(r.parents), *r.parents, len(r.children), *r.children] for r in records], dtype=object).astype(str)
        )
        if records
        else ""
    )


def of_clusters(model):
    """What every estimator has: labels, ids, K, lineage, tree."""
    tree = model.hierarchy_
    return {
        "n_clusters": int(model.n_clusters_),
        "n_components": int(model.n_components_),
        "labels": digest(model.labels_),
        "component_labels": digest(model.component_labels_),
        "cluster_ids": model.cluster_ids_.tolist(),
        "component_ids": model.component_ids_.tolist(),
        "moves": [[r.move, list(r.parents), list(r.children), float(r.gain).hex()] for r in model.lineage_],
        "events": [[r.event, list(r.parents), list(r.children)] for r in model.cluster_lineage_],
        "tree": None if tree is None else digest(tree.labels),
    }


def of_mixture(model, X):
    found = of_clusters(model)
    found |= {name: digest(getattr(model, name)) for name in ("weights_", "means_", "covariances_")}
    found |= {"elbo": float(model.elbo_).hex(), "laps": [[r.n_components, float(r.elbo).hex()] for r in model.history_]}
    found |= {"proba": digest(model.predict_proba(X)), "scores": digest(model.score_samples(X))}
    drawn, labels = model.sample(20, random_state=1)
    return found | {
        "drawn": digest(drawn),
        "drawn_labels": digest(labels),
        "components": digest(model.predict(X, level="component")),
    }


def of_diva(model, X):
    found = of_clusters(model)
    found |= {f"{name}_": digest(getattr(model.mixture_, name)) for name in ("weights", "means", "covariances")}
    weights = {name: digest(value.numpy()) for name, value in model.vae_.state_dict().items()}
    found |= {"elbo": float(model.mixture_.elbo).hex(), "weights": weights}
    found["epochs"] = [
        [r.n_components, *(float(v).hex() for v in (r.loss, r.reconstruction, r.kl, r.bound))] for r in model.history_
    ]
    found |= {
        "proba": digest(model.predict_proba(X)),
        "scores": digest(model.score_samples(X)),
        "codes": digest(model.transform(X)),
    }
    found |= {"novel": digest(model.predict(X, reject=True)), "reconstructed": digest(model.reconstruct(X[:20]))}
    return found | {"drawn": digest(model.sample(5, random_state=1)[0])}


def data_folder():
    folder = os.environ.get("DIVA_DATA")
    return None if folder is None else Path(folder)


def mnist(n):
    raw = gzip.decompress((data_folder() / "mnist/train-images-idx3-ubyte.gz").read_bytes())
    return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28)[:n]


def har(n):
    return np.load(data_folder() / "har_recomputed/har_recomputed.npz")["X"][:n].astype(np.float32)


def simulated(seed, n=1500, k=7, d=5):
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 4, size=(k, d))
    return centres[rng.integers(k, size=n)] + rng.normal(size=(n, d)) * rng.uniform(0.3, 1.5, size=d)


def mixture_cases():
    X = simulated(0)
    yield "full", of_mixture(DPMixture(random_state=0).fit(X), X)
    yield "diag, single precision", of_mixture(DPMixture(covariance_type="diag", random_state=1).fit(X.astype(np.float32)), X)
    grouped = DPMixture(grouping="valleys", random_state=2).fit(X)
    yield "grouped", of_mixture(grouped, X)
    yield "grouped, further", of_mixture(grouped.partial_fit(simulated(3)), X)
    yield "weights", of_mixture(DPMixture(random_state=0).fit(X, sample_weight=np.linspace(0.5, 2, len(X))), X)
    again = DPMixture(random_state=4, warm_start=True).fit(X[:700])
    yield "warm start", of_mixture(again.fit(X), X)
    yield "known clusters", of_mixture(DPMixture(random_state=0).fit_clusters(X, np.arange(len(X)) % 3), X)


def digits_cases():
    images = load_digits().images
    for seed in range(3):
        yield f"seed {seed}", of_diva(DIVA(n_epochs=12, random_state=seed).fit(images), images)


def mnist_cases():
    images = mnist(2000)
    yield "2,000 images", of_diva(DIVA(n_epochs=6, random_state=0).fit(images), images)
    yield "paper", of_diva(DIVA("paper", n_epochs=3, random_state=0).fit(images[:1000]), images[:200])


def har_cases():
    X = har(2000)
    model = DIVA(n_epochs=6, random_state=0).fit(X)
    yield "2,000 rows", of_diva(model, X)
    yield "ensemble", of_diva(DIVA(n_epochs=4, hidden_sizes=(64,), pca=20, random_state=0).fit(har(4200)), har(300))


def streams_cases():
    digits = load_digits()
    old, new = digits.images[digits.target < 3], digits.images[(digits.target >= 3) & (digits.target < 5)]
    first = DIVA(n_epochs=12, batch_size=64, further_epochs=4, random_state=0).fit(old)
    for name, params in {
        "draws": {"adapt": True},
        "reservoir": {"adapt": True, "replay": "reservoir", "reservoir": 30},
        "nothing": {"adapt": True, "replay": None},
        "networks at rest": {"adapt": False},
        "auto": {},
    }.items():
        model = copy.deepcopy(first).set_params(**params).partial_fit(new[:100])
        yield f"{name}, once", of_diva(model, old)
        yield f"{name}, twice", of_diva(model.partial_fit(new[100:]), old)
    together = copy.deepcopy(first).set_params(warm_start=True)
    yield "together", of_diva(together.fit(digits.images[digits.target < 5]), old)


def command_line_cases():
    digits = load_digits()
    with tempfile.TemporaryDirectory() as folder:
        run, parts = Path(folder) / "run", Path(folder) / "parts"
        parts.mkdir()
        np.save(Path(folder) / "old.npy", digits.images[:300])
        for i in range(4):
            np.save(parts / f"{i}.npy", digits.images[300 + 150 * i : 450 + 150 * i])
        fit = ["fit", f"{folder}/old.npy", "--out", str(run), "--n-epochs", "6", "--further-epochs", "2", "--no-report"]
        say(*fit)
        say("stream", str(run), str(parts), "--predictions", f"{folder}/predictions.jsonl")
        model = load(next((run / "stream").glob("model-*.diva")))
        events = [json.loads(line) for line in (run / "stream/events.jsonl").read_text().splitlines()]
        kept = [{k: v for k, v in event.items() if "seconds" not in k and k != "time"} for event in events]
        yield "model", of_diva(model, digits.images[:200])
        yield "events", [event.get("event") for event in kept]
        lines = (Path(folder) / "predictions.jsonl").read_text().splitlines()
        yield (
            "predictions",
            digest(np.array([[json.loads(line)["cluster"], json.loads(line)["probability"]] for line in lines])),
        )


def say(*command):
    subprocess.run([sys.executable, "-m", "diva", *command], check=True, capture_output=True)


CASES = {
    "mixture": mixture_cases,
    "digits": digits_cases,
    "mnist": mnist_cases,
    "har": har_cases,
    "streams": streams_cases,
    "command_line": command_line_cases,
}


def differences(before, now, where=""):
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            yield from differences(before.get(key, "missing"), now.get(key, "missing"), f"{where} / {key}" if where else key)
    elif before != now:
        yield f"{where}: was {str(before)[:90]}, is {str(now)[:90]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    record = {"machine": {"torch": torch.__version__, "instructions": torch.backends.cpu.get_cpu_capability()}}
    for name in asked.only:
        if name in ("mnist", "har") and data_folder() is None:
            print(f"{name}: left out, since DIVA_DATA is not set")
            continue
        started = time.perf_counter()
        record[name] = dict(CASES[name]())
        print(f"{name}: {len(record[name])} fits, {time.perf_counter() - started:.0f} s", flush=True)
    asked.out.write_text(json.dumps(record, indent=1) + "\n")
    if asked.against is not None:
        before = json.loads(asked.against.read_text())
        told = list(differences({k: v for k, v in before.items() if k in record}, record))
        print("\n".join(told) if told else "the same, bit for bit")
        sys.exit(bool(told))


if __name__ == "__main__":
    main()
