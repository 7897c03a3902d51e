"""Classes that appear over time: 3, 5, 7 and then 10 digits of MNIST, with the old data kept and with the old data gone."""

from __future__ import annotations

import copy
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import diva
from benchmarks.datasets import LOADERS, Labelled
from benchmarks.recording import Row, record, scores
from diva import DIVA
from diva.data import ClassSchedule, Stage
from diva.metrics import Agreement

PER_CLASS = 1000
N_DIGITS = (3, 5, 7, 10)
FIRST_EPOCHS, FURTHER_EPOCHS = 30, 10  # the paper changes the data every 30 epochs
SEEDS = (0, 1, 2)
N_WORKERS = 2
TITLE = "MNIST, 1,000 training images of each digit, 3, 5, 7 and then 10 digits, scored on the test images of the digits so far"

KEPT = "old data kept"
VARIANTS: dict[str, dict[str, Any]] = {
    KEPT: {"warm_start": True},
    "old data gone, replay": {"replay": "draws"},
    "old data gone, reservoir of 100": {"replay": "reservoir", "reservoir": 100},
    "old data gone, no replay": {"replay": None},
    "old data gone, networks at rest": {"adapt": False},
}


@cache
def images(seed: int) -> Labelled:
    data = LOADERS["mnist"]()
    rng = np.random.default_rng(seed)
    chosen = np.concatenate([rng.permutation(np.flatnonzero(data.y == c))[:PER_CLASS] for c in range(10)])
    return Labelled(data.x[chosen], data.y[chosen], data.x_test, data.y_test)


def stages(labels: NDArray[Any], seed: int, *, keep: bool) -> list[Stage]:
    """Kept: all digits so far at every stage. Gone: every digit once, when it is new."""
    starts = (0, *N_DIGITS[:-1])
    classes = tuple(tuple(range(0 if keep else start, n)) for start, n in zip(starts, N_DIGITS, strict=True))
    return list(ClassSchedule(classes, keep=keep).stages(labels, np.random.default_rng(seed)))


def first_fit(seed: int, folder: str) -> None:
    """Fit the first three digits, which all variants share."""
    torch.set_num_threads(1)
    data = images(seed)
    model = DIVA(random_state=seed, n_epochs=FIRST_EPOCHS, further_epochs=FURTHER_EPOCHS, replay="reservoir")
    model.fit(data.x[stages(data.y, seed, keep=True)[0].index])
    model.save(Path(folder) / f"{seed}.diva")


def follow(seed: int, variant: str, folder: str) -> list[Row]:
    """Go through the stages, from the first fit on."""
    torch.set_num_threads(1)
    data, model = images(seed), diva.load(Path(folder) / f"{seed}.diva")
    assert isinstance(model, DIVA)
    model.set_params(**{"adapt": True} | VARIANTS[variant])
    rows = [row(seed, variant, data, model, 3, None, 0.0)]
    for stage, n_digits in zip(stages(data.y, seed, keep=variant == KEPT)[1:], N_DIGITS[1:], strict=True):
        before, start = copy.copy(model), time.perf_counter()
        model.fit(data.x[stage.index]) if variant == KEPT else model.partial_fit(data.x[stage.index])
        rows.append(row(seed, variant, data, model, n_digits, before, time.perf_counter() - start))
        print(rows[-1], flush=True)
        for event in model.cluster_lineage_:
            if event.batch == model.batches_[-1].batch:
                print(f"  {event.event} {event.parents} -> {event.children}", flush=True)
    return rows


def row(seed: int, variant: str, data: Labelled, model: DIVA, n_digits: int, before: DIVA | None, seconds: float) -> Row:
    """Scores after a stage."""
    so_far, first = data.y_test < n_digits, data.y_test < 3
    now = model.predict(data.x_test)
    so_far_found, of_first = Agreement(data.y_test[so_far], now[so_far]), Agreement(data.y_test[first], now[first])
    n_before = N_DIGITS[max(0, N_DIGITS.index(n_digits) - 1)]
    identity, explained = ("", "") if before is None else keeps(before, model, data, now, n_before)
    return {
        "variant": variant,
        "seed": seed,
        "digits": n_digits,
        "one-to-one accuracy": so_far_found.acc_one_to_one,
        "NMI": so_far_found.nmi,
        "K": model.n_clusters_,
        "components": model.n_components_,
        "first three digits": of_first.acc_one_to_one,
        "old samples that keep their id": identity,
        "events explain the others": explained,
        "seconds": seconds,
    }


def keeps(before: DIVA, model: DIVA, data: Labelled, now: NDArray[np.int64], n_before: int) -> tuple[float, bool]:
    """Old test samples whose cluster still exists and that keep its id; whether every name that came or went has a record."""
    old = data.y_test < n_before
    then = before.predict(data.x_test[old])
    exists = np.isin(then, model.cluster_ids_)
    records = [r for r in model.cluster_lineage_ if r.batch == model.batches_[-1].batch]
    came, went = (set(a.cluster_ids_) - set(b.cluster_ids_) for a, b in ((model, before), (before, model)))
    told = came <= {i for r in records for i in r.children} and went <= {i for r in records for i in r.parents}
    return float((then == now[old])[exists].mean()), told


def incremental() -> None:
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(N_WORKERS) as pool:
        list(pool.map(first_fit, SEEDS, [folder] * len(SEEDS)))
        jobs = [(seed, variant) for variant in VARIANTS for seed in SEEDS]
        rows: list[Row] = []
        for done in pool.map(follow, *zip(*jobs, strict=True), [folder] * len(jobs)):
            rows += done
            record(
                "incremental", TITLE, rows, [summary(rows, variant) for variant in dict.fromkeys(r["variant"] for r in rows)]
            )


def summary(rows: list[Row], variant: str) -> str:
    """Ends of stages, over seeds."""
    mine = [row for row in rows if row["variant"] == variant]
    ends = []
    for n in N_DIGITS:
        at = [row for row in mine if row["digits"] == n]
        accuracy = ", ".join(f"{row['one-to-one accuracy']:.3f}" for row in at)
        ends.append(f"{n} digits: {accuracy} (K {', '.join(str(row['K']) for row in at)})")
    falls = [
        next(r["first three digits"] for r in mine if r["seed"] == seed and r["digits"] == 3)
        - next(r["first three digits"] for r in mine if r["seed"] == seed and r["digits"] == 10)
        for seed in dict.fromkeys(row["seed"] for row in mine)
    ]
    kept = [row["old samples that keep their id"] for row in mine if row["digits"] > 3]
    fall = ", ".join(f"{100 * value:.1f}" for value in falls)
    return f"{variant}: {'; '.join(ends)}. First three digits fall by {fall} points; ids kept by {min(kept):.3f} at least."


def novelty() -> None:
    """Digits and clothes that a model has not seen, told from digits it has."""
    jobs = [(seed, 5) for seed in SEEDS] + [(SEEDS[0], 10)]
    rows: list[Row] = []
    with ProcessPoolExecutor(N_WORKERS) as pool:
        for row in pool.map(_asked, *zip(*jobs, strict=True)):
            rows.append(row)
            title = "MNIST, 1,000 training images of each digit: what is novel, told by score_samples, on test images"
            record("novelty", title, rows)


def _asked(seed: int, n_digits: int) -> Row:
    torch.set_num_threads(1)
    data = images(seed)
    model = DIVA(random_state=seed, n_epochs=15 if n_digits == 5 else 10).fit(data.x[data.y < n_digits])
    known, unseen = (data.x_test[chosen] for chosen in (data.y_test < n_digits, data.y_test >= n_digits))
    clothes = LOADERS["fashion_mnist"]().x_test
    return {
        "learnt from": f"digits 0 to {n_digits - 1}",
        "seed": seed,
        "AUROC, other digits": auroc(model, known, unseen) if len(unseen) else "",
        "AUROC, Fashion-MNIST": auroc(model, known, clothes),
        "called novel: known digits": float(model.is_novel(known).mean()),
        "other digits": float(model.is_novel(unseen).mean()) if len(unseen) else "",
        "Fashion-MNIST": float(model.is_novel(clothes).mean()),
    }


def auroc(model: DIVA, known: NDArray[Any], novel: NDArray[Any]) -> float:
    """How well the score tells known from novel."""
    scores = np.concatenate([model.score_samples(known), model.score_samples(novel)])
    return float(roc_auc_score(np.repeat([1, 0], [len(known), len(novel)]), scores))


def assignment() -> None:
    """The paper's algorithm with soft and with hard assignment, equations 9 and 8."""
    title = 'MNIST, 1,000 training images of each digit, DIVA(preset="paper", n_epochs=10), soft and hard assignment'
    rows: list[Row] = []
    for seed in SEEDS[:1]:
        data = images(seed)
        for how in ("soft", "hard"):
            model = DIVA("paper", random_state=seed, n_epochs=FURTHER_EPOCHS, assignment=how).fit(data.x)
            found = scores(Agreement(data.y_test, model.predict(data.x_test)))
            rows.append(
                {"assignment": how, "seed": seed, **found, "bound per code": model.history_[-1].mixture_elbo_per_sample}
            )
            record("assignment", title, rows)


def small_batches(n_batches: int = 1000, batch_size: int = 20) -> None:
    """A long stream of small batches: seconds and memory of each."""
    data, seed = LOADERS["mnist"](), 0
    rng = np.random.default_rng(seed)
    known = rng.permutation(np.flatnonzero(data.y < 5))
    model = DIVA(random_state=seed, n_epochs=5).fit(data.x[known[:3000]])
    seconds, memory = [], []
    for start in range(3000, 3000 + n_batches * batch_size, batch_size):
        began = time.perf_counter()
        model.partial_fit(data.x[known[start : start + batch_size]])
        seconds.append(time.perf_counter() - began)
        memory.append(_resident())
    tenth = n_batches // 10
    rows = [
        {
            "batches": f"{start + 1} to {start + tenth}",
            "mean seconds": float(np.mean(seconds[start : start + tenth])),
            "median seconds": float(np.median(seconds[start : start + tenth])),
            "memory in MB": float(np.mean(memory[start : start + tenth])),
            "batches in which networks learnt": sum(r.learnt for r in model.batches_[1 + start : 1 + start + tenth]),
            "components": model.batches_[start + tenth].n_components,
            "clusters": model.batches_[start + tenth].n_clusters,
        }
        for start in range(0, n_batches, tenth)
    ]
    means, medians = ([row[f"{of} seconds"] for row in rows] for of in ("mean", "median"))
    notes = [
        f"Last tenth over first tenth: mean {means[-1] / means[0]:.2f}, median {medians[-1] / medians[0]:.2f}. Memory grows by "
        f"{rows[-1]['memory in MB'] - rows[0]['memory in MB']:.0f} MB."
    ]
    record("small_batches", f"MNIST, digits 0 to 4: {n_batches:,} partial fits of {batch_size} images", rows, notes)


def _resident() -> float:
    """Memory of this process now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


BENCHMARKS = {
    "incremental": incremental,
    "novelty": novelty,
    "assignment": assignment,
    "small_batches": small_batches,
}
