"""How seconds grow with samples, columns, dimensions and components: a price for each, and what a billion samples would take.

One thread does all of it, so that prices are those of a core; what several processes gain is measured by
``python -m benchmarks ranks``, and memory by ``memmap``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

from benchmarks.bench_distributed import D, K, settled
from benchmarks.bench_training import start_on, timed_epoch
from benchmarks.recording import Row, best_time, record
from diva.data import ArrayBatches
from diva.mixture.laps import assign_lap, revisit_lap
from diva.mixture.standardize import StandardizedBatches
from diva.models.base import flushed_denormals
from diva.networks.priors import StandardNormal
from diva.threads import one_thread

FAR = 1_000_000_000  # samples
CORES = 64  # 8 machines of 8 cores, a process each
SPEEDUP = 0.85  # of two processes beside one that could be twice as fast: the bar of ``ranks``

Work = dict[str, Callable[[Row], float]]  # what there is to do, by name


@contextmanager
def one_core() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


def priced(rows: list[Row], seconds: str, work: Work) -> dict[str, float]:
    """Seconds for each piece of work, none below zero, by least squares of relative errors; rows are told what that gives."""
    pieces = np.array([[amount(row) for amount in work.values()] for row in rows])
    measured = np.array([row[seconds] for row in rows])
    prices, _ = nnls(pieces / measured[:, None], np.ones(len(rows)))
    for row, seconds_expected in zip(rows, pieces @ prices, strict=True):
        row["by the model, s"] = float(seconds_expected)
    return dict(zip(work, prices.tolist(), strict=True))


def formula(prices: dict[str, float]) -> str:
    return "Seconds = " + " + ".join(f"{price:.3g} {of}".rstrip() for of, price in prices.items() if price > 0) + "."


def expected(prices: dict[str, float], work: Work, row: Row) -> float:
    return sum(price * work[of](row) for of, price in prices.items())


def shared(seconds: float) -> float:
    """The same work on many cores."""
    return seconds / CORES / SPEEDUP


def lap_costs(base: int = 400_000) -> None:
    """Seconds of a lap over two decades of samples, dimensions and components."""
    rows: list[Row] = []
    sizes = [(base // 10, D, K), (base, D, K), (base * 10, D, K), (base, 2, K), (base, 200, K), (base, D, 2), (base, D, 200)]
    with one_core():
        for n, dim, k in sizes:
            x, standardization, state = settled(n, dim, k)
            batches = StandardizedBatches(ArrayBatches(x), standardization, torch.device("cpu"))
            with one_thread():
                state = assign_lap(state, batches, [])
                seconds = best_time(lambda state=state, batches=batches: revisit_lap(state, batches, []), 3)
            rows.append({"n": n, "D": dim, "K": state.n_components, "lap, s": seconds})
            print(rows[-1], flush=True)
    work: Work = {
        "n K D": lambda r: r["n"] * r["K"] * r["D"],
        "n K": lambda r: r["n"] * r["K"],
        "n D": lambda r: r["n"] * r["D"],
        "n": lambda r: r["n"],
        "": lambda _: 1.0,
    }
    prices = priced(rows, "lap, s", work)
    far = expected(prices, work, {"n": FAR, "D": D, "K": K})
    record(
        "costs_lap",
        "What a lap costs: diagonal, one core",
        rows,
        [
            formula(prices),
            "In two dimensions the components overlap: responsibilities that are neither 0 nor 1 take longer.",
            f"Extrapolated: {FAR:,} samples, D = {D}, K = {K}: {far:,.0f} s a lap on one such core, {shared(far):,.1f} s on "
            f"{CORES} (8 machines of 8 cores, a process each at {SPEEDUP:.0%} of its speed alone, which two exceed here), if "
            "data are read as fast as they are needed (4 D bytes a sample). A lap has 20 messages of 8 K (2 D + 2) bytes from "
            "each process: some kilobytes.",
            "Memory: a batch is 1/20 of the data and is read through a map, in pieces of a few megabytes; statistics take "
            "20 K (2 D + 2) numbers (diagonal). Labels, 8 bytes a sample, are what grows: shared out, as the rows are.",
        ],
    )


def _rows(n: int, dim: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(n, dim)).astype(np.float32)


def epoch_costs(base: int = 2_560) -> None:
    """Seconds of a training epoch of rows, by the default networks, over two decades of samples and of columns."""
    rows: list[Row] = []
    with one_core(), flushed_denormals():
        for n, d in [(base // 4, 64), (base, 64), (base * 25, 64), (base, 8), (base, 800)]:
            state, task = start_on(_rows(n, d))
            seconds = min(timed_epoch(state, task, StandardNormal()) for _ in range(2 if n > base else 4))
            rows.append({"n": n, "d": d, "batch": task.config.batch_size, "epoch, s": seconds})
            print(rows[-1], flush=True)
    work: Work = {"n d": lambda r: r["n"] * r["d"], "n": lambda r: r["n"], "n / batch": lambda r: r["n"] / r["batch"]}
    prices = priced(rows, "epoch, s", work)
    far = expected(prices, work, {"n": FAR, "d": 64, "batch": 128 * CORES})
    record(
        "costs_epoch",
        "What a training epoch costs: rows, one core",
        rows,
        [
            formula(prices),
            f"Extrapolated: {FAR:,} samples of 64 columns: {far / 3600:,.0f} hours an epoch on one such core, "
            f"{shared(far / 3600):,.1f} hours on {CORES}, each with 128 samples of every batch, if gradients (4 bytes "
            "a parameter, some ten megabytes a step) are sent while others are computed, as DistributedDataParallel does.",
        ],
    )


BENCHMARKS = {"costs_lap": lap_costs, "costs_epoch": epoch_costs}
