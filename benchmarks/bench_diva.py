"""Clusters of real data, number unknown: one-to-one accuracy, NMI and K of DIVA over seeds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

from benchmarks.bench_mixture import N_DRAWS, clusters_in_noise
from benchmarks.datasets import LOADERS, Labelled
from benchmarks.recording import RESULTS, Row, record, scores
from diva import DIVA
from diva.baselines import DEC, UMAPHDBSCAN
from diva.metrics import Agreement
from diva.models.base import DeepClusterer

N_SEEDS = 5


@dataclass(frozen=True)
class Case:
    """A data set and how DIVA is called on it."""

    title: str
    data: str
    n_samples: int | None = None
    seeds: tuple[int, ...] = tuple(range(N_SEEDS))
    baselines: bool = False
    params: dict[str, Any] = field(default_factory=dict)
    model: type[DeepClusterer] = DIVA

    def load(self) -> Labelled:
        data = LOADERS[self.data]()
        return data if self.n_samples is None else data.first(self.n_samples)


CASES = {
    "digits": Case("Digits, 1,797 of 8 x 8, DIVA()", "digits"),
    "mnist": Case(
        "MNIST, 10,000 training images, scored on the test images, DIVA(n_epochs=15)", "mnist", 10_000, params={"n_epochs": 15}
    ),
    "mnist60k": Case(
        "MNIST, 60,000 training images, scored on the test images, DIVA(n_epochs=20)",
        "mnist",
        seeds=(0,),
        params={"n_epochs": 20},
    ),
    "fashion": Case(
        "Fashion-MNIST, 10,000 training images, scored on the test images, "
        "DIVA(n_epochs=15, batch_size=64, augmentation='photo')",
        "fashion_mnist",
        10_000,
        params={"n_epochs": 15, "batch_size": 64, "augmentation": "photo"},  # 64: twice the steps in 15 epochs
    ),
    "har": Case("HAR, recomputed features, DIVA()", "har", baselines=True),
    "reuters": Case("Reuters R8, tf-idf, DIVA()", "reuters_r8", baselines=True),
    "dec": Case(
        "MNIST, 10,000 training images, scored on the test images, DEC(n_clusters=10)",
        "mnist",
        10_000,
        seeds=(0, 1, 2),
        params={"n_clusters": 10},
        model=DEC,
    ),
    "paper": Case(
        'MNIST, 60,000 training images, DIVA(preset="paper", n_epochs=11)',
        "mnist",
        seeds=(0,),
        params={"preset": "paper", "n_epochs": 11},
    ),
}


def fit(case: Case, data: Labelled, seed: int) -> Row:
    start = time.perf_counter()
    model = case.model(random_state=seed, **case.params).fit(data.x)
    seconds = time.perf_counter() - start
    said = model.assign(data.x_test)
    fine = {"components": "", "components: majority accuracy": ""}
    if isinstance(model, DIVA):
        majority = Agreement(data.y_test, said.components).acc_majority
        fine = {"components": model.n_components_, "components: majority accuracy": majority}
    return {
        "method": case.model.__name__,
        "seed": seed,
        **scores(Agreement(data.y_test, said.positions)),
        **fine,
        "epochs": len(model.history_),
        "seconds": seconds,
        "threads": torch.get_num_threads(),
    }


def baseline(name: str, data: Labelled, seed: int) -> Row:
    """What a user would try instead: on the raw features and told the true K, or UMAP followed by HDBSCAN."""
    x, x_test = (values.reshape(len(values), -1).astype(np.float64) for values in (data.x, data.x_test))
    start = time.perf_counter()
    labels = ALTERNATIVES[name](len(np.unique(data.y)), seed).fit(x).predict(x_test)
    seconds = time.perf_counter() - start
    blank = {"components": "", "components: majority accuracy": "", "epochs": ""}
    return {
        "method": name,
        "seed": seed,
        **scores(Agreement(data.y_test, labels)),
        **blank,
        "seconds": seconds,
        "threads": torch.get_num_threads(),
    }


ALTERNATIVES: dict[str, Callable[[int, int], Any]] = {
    "k-means, true K": lambda k, seed: KMeans(k, n_init=10, random_state=seed),
    "Gaussian mixture, diagonal, true K": lambda k, seed: GaussianMixture(k, covariance_type="diag", random_state=seed),
    "UMAP, then HDBSCAN": lambda _, seed: UMAPHDBSCAN(random_state=seed),
}


def alternatives(n_seeds: int = 3) -> None:
    """What else one would try on the data that DIVA is measured on; rows that are there already are kept."""
    title = "What else one would try on the same data"
    path = RESULTS / "alternatives.json"
    rows: list[Row] = json.loads(path.read_text())["rows"] if path.exists() else []
    known = {(row["data"], row["method"], row["seed"]) for row in rows}
    for method in ALTERNATIVES:
        for name in ("digits", "har", "reuters", "mnist", "fashion"):
            if CASES[name].baselines and method != "UMAP, then HDBSCAN":
                continue  # beside DIVA already
            data = CASES[name].load()
            for seed in range(n_seeds):
                if (name, method, seed) not in known:
                    rows.append({"data": name, **baseline(method, data, seed)})
                    print(rows[-1], flush=True)
                    record("alternatives", title, rows)


def run(name: str) -> None:
    case = CASES[name]
    data, rows = case.load(), []
    for seed in case.seeds:
        rows.append(fit(case, data, seed))
        print(rows[-1], flush=True)
        if case.baselines:
            rows += [baseline(b, data, seed) for b in ("k-means, true K", "Gaussian mixture, diagonal, true K")]
        record(f"diva_{name}", case.title, rows, [summary(rows)])


def summary(rows: list[Row]) -> str:
    """Mean and worst over seeds of every method."""
    said = []
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        accuracy, nmi = (np.array([row[c] for row in mine]) for c in ("one-to-one accuracy", "NMI"))
        ks = ", ".join(str(row["K"]) for row in mine)
        said.append(
            f"{method}: one-to-one accuracy {accuracy.mean():.3f} (lowest {accuracy.min():.3f}), "
            f"NMI {nmi.mean():.3f}, K {ks}, over {len(mine)} seeds."
        )
    return " ".join(said)


ABLATIONS: dict[str, dict[str, Any]] = {
    "all of it": {},
    "no self-training": {"self_training": 0.0},
    "no coupling": {"warmup": 0.667},
    "no coupling, no self-training": {"warmup": 1.0, "self_training": 0.0},
    "no augmentation": {"augmentation": None},
    "no grouping: every component a cluster": {"grouping": None},
    "Gaussian likelihood with a learnt variance": {"reconstruction": "nll"},
    "learning rate 1e-3 (2e-3)": {"learning_rate": 1e-3},
    "learning rate 4e-3 (2e-3)": {"learning_rate": 4e-3},
    "KL weight 5 times larger": {"kl_weight": 5 * 0.03 / 64},
    "KL weight 5 times smaller": {"kl_weight": 0.2 * 0.03 / 64},
}


def ablation(n_seeds: int = 2) -> None:
    """What each part gives, on digits."""
    data, rows = LOADERS["digits"](), []
    for name, params in ABLATIONS.items():
        runs = [fit(Case("", "digits", params=params), data, seed) for seed in range(n_seeds)]
        accuracy = [run["one-to-one accuracy"] for run in runs]
        rows.append(
            {
                "configuration": name,
                "one-to-one accuracy": float(np.mean(accuracy)),
                "lowest": min(accuracy),
                "NMI": float(np.mean([run["NMI"] for run in runs])),
                "K": ", ".join(str(run["K"]) for run in runs),
                "seconds": float(np.mean([run["seconds"] for run in runs])),
            }
        )
        print(rows[-1], flush=True)
        note = "The calibrated KL weight is about 0.03 beside the summed squared error of 64 pixels."
        record("diva_ablation", f"Digits, one part changed at a time, mean of {n_seeds} seeds", rows, [note])


def threads() -> None:
    """The same seeds on one and on two threads: little data, which are learnt on one in any case, and more."""
    rows: list[Row] = []
    before = torch.get_num_threads()
    for name, n_seeds in (("digits", 3), ("mnist", 1)):
        data = CASES[name].load()
        for seed in range(n_seeds):
            for n_threads in (1, 2):
                torch.set_num_threads(n_threads)
                scored = {column: value for column, value in fit(CASES[name], data, seed).items() if column != "seconds"}
                rows.append({"data": name, **scored})
                print(rows[-1], flush=True)
                record("diva_threads", "Digits, and 10,000 images of MNIST, the same seeds on one and on two threads", rows)
    torch.set_num_threads(before)


def noise() -> None:
    """Bar: noise is one cluster in 19 of 20 draws."""
    rows = clusters_in_noise(lambda seed, X: DIVA(random_state=seed).fit(X).n_clusters_)
    record("diva_noise", f"Clusters that DIVA() finds in noise, {N_DRAWS} draws each", rows)
