"""Several processes, and how near one process is to what the hardware allows.

Rows are made by ``python -m benchmarks ranks``, ``ranks_mnist``, ``hardware``, ``latency`` and ``memmap``;
docs/performance.md is written by ``performance_page``. Processes under torchrun run
``python -m benchmarks.bench_distributed WORK ...``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import torch
from threadpoolctl import threadpool_limits

from benchmarks.bench_speed import one_lap
from benchmarks.recording import Row, best_time, record
from diva import DIVA, DPMixture, distributed
from diva.data import ArrayBatches, make_gaussian_mixture
from diva.mixture.laps import assign_lap, revisit_lap
from diva.mixture.standardize import Standardization, StandardizedBatches
from diva.mixture.state import MixtureState
from diva.models.base import flushed_denormals
from diva.networks.priors import StandardNormal
from diva.threads import one_thread

D, K = 16, 20
CPU = torch.device("cpu")


def settled(n_rows: int, dim: int = D, n_components: int = K) -> tuple[np.ndarray, Standardization, MixtureState]:
    """Rows of a mixture, and a state that has learnt it from some of them."""
    rng = np.random.default_rng(0)
    truth = make_gaussian_mixture(n_components, dim, rng)
    x = np.concatenate([truth.sample(min(500_000, n_rows - i), rng)[0] for i in range(0, n_rows, 500_000)])
    with distributed.alone():
        model = DPMixture(covariance_type="diag", n_init=0, random_state=0, max_components=400).fit(x[: 1_000 * n_components])
    return x, model.mixture_.standardization, model.mixture_.state.forgetting_data()


# --- what a process of its own does: prints one line of JSON


def beside_one(work: Callable[[], object], repeats: int = 12) -> Row:
    """Seconds of some work that process 0 does alone while the others wait, and of the same on all, in turns."""
    alone, shared = [], []
    for _ in range(repeats):
        if distributed.is_main():
            with distributed.alone():
                alone.append(seconds_of(work))
        distributed.gather(None)
        shared.append(seconds_of(work))
    one, two = float(np.median(alone or [np.nan])), float(np.median(shared))
    return {"one process, s": one, "two processes, s": two, "times as fast": one / two}


def seconds_of(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def work_lap(n_rows: str) -> Row:
    """A settled lap."""
    x, standardization, start = settled(int(n_rows))
    batches = StandardizedBatches(ArrayBatches(x), standardization, CPU)
    with one_thread():
        state = assign_lap(start, batches, [])
        with distributed.alone():
            if (bound := assign_lap(start, batches, []).elbo) != state.elbo:
                raise RuntimeError(f"One process reaches the bound {bound}, several {state.elbo}.")
        return {"samples": int(n_rows), **beside_one(lambda: revisit_lap(state, batches, []))}


def work_epoch(n_images: str) -> Row:
    """A training epoch, the mixture left out."""
    from benchmarks.bench_training import start, timed_epoch

    with flushed_denormals():
        state, task = start(int(n_images))
        return {"samples": int(n_images), **beside_one(lambda: timed_epoch(state, task, StandardNormal()))}


def work_memmap(path: str, n_rows: str, dim: str) -> Row:
    """Seconds of a lap over a mapped file, and the largest resident set up to its end."""
    process, peak = psutil.Process(), [0]

    def watch() -> None:
        while True:
            peak[0] = max(peak[0], process.memory_info().rss)
            time.sleep(0.01)

    threading.Thread(target=watch, daemon=True).start()
    x = np.memmap(path, dtype=np.float32, mode="r", shape=(int(n_rows), int(dim)))
    model = DPMixture(covariance_type="diag", n_init=0, random_state=0).fit(np.array(x[:20_000]))
    batches = StandardizedBatches(ArrayBatches(x), model.mixture_.standardization, CPU)
    with one_thread():
        state = assign_lap(model.mixture_.state.forgetting_data(), batches, [])
        lap = seconds_of(lambda: revisit_lap(state, batches, []))
    return {"K": model.n_components_, "lap, s": lap, "largest resident set, MB": peak[0] / 1e6}


def work_mnist(seed: str) -> Row:
    """Accuracy on MNIST, 10,000 images."""
    from benchmarks.bench_diva import CASES, fit

    row = fit(CASES["mnist"], CASES["mnist"].load(), int(seed))
    return {name: row[name] for name in ("one-to-one accuracy", "NMI", "K", "components", "seconds")}


WORK: dict[str, Callable[..., Row]] = {"lap": work_lap, "epoch": work_epoch, "memmap": work_memmap, "mnist": work_mnist}


def launched(n_processes: int, *work: str) -> Row:
    """Do some work on several processes of one thread each; what process 0 says."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_processes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    module = ["-m", "benchmarks.bench_distributed", *work]
    said = subprocess.run([*command, *module], env=environment, capture_output=True, text=True, check=False)
    if said.returncode:
        raise RuntimeError(said.stderr[-2000:])
    return json.loads(said.stdout.strip().splitlines()[-1])


# --- benchmarks


def ranks(n_rows: int = 4_000_000, n_images: int = 1_280) -> None:
    """Bar: two processes of one thread, a lap at least 1.7 times and an epoch 1.6 times as fast as one."""
    rows = [
        {"what": what, **launched(2, name, str(size))}
        for what, name, size in (("lap of the mixture", "lap", n_rows), ("training epoch, MNIST", "epoch", n_images))
    ]
    record("ranks", "Two processes of one thread beside one, medians of 12", rows)


def ranks_mnist(n_seeds: int = 3) -> None:
    """Bar: two processes train a model as good as one does, within a point of accuracy; minutes a fit, kept as they come."""
    rows: list[Row] = []
    for seed in range(n_seeds):
        for n in (1, 2):
            rows.append({"processes": n, "seed": seed, **launched(n, "mnist", str(seed))})
            record("ranks_mnist", "MNIST, 10,000 images, one thread a process: accuracy on the test images", rows)


def hardware(n_rows: int = 1_000_000, n_images: int = 1_280) -> None:
    """Bars: laps, predict, encoding and training beside the bare products and networks; kept as they come."""
    kinds = {
        f"lap, {n_rows:,} x {D}": partial(_lap, n_rows),
        f"predict, {n_rows:,} x {D}": partial(_predict, n_rows),
        f"encode, {n_images:,} images": partial(_encode, n_images),
        f"training epoch, {n_images:,} images": partial(_train, n_images),
    }
    rows: list[Row] = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        with threadpool_limits(threads):
            for what, measured in kinds.items():
                row = {"what": what, "threads": threads, **measured()}
                rows.append(row | {"ratio": row["s"] / row["bare, s"]})
                record("hardware", "Beside what cannot be done without", rows)


def _lap(n_rows: int) -> Row:
    lap = one_lap(n_rows, sklearn_too=False)
    return {"s": lap["lap, s"], "bare, s": lap["bare products and softmax, s"]}


def _predict(n_rows: int) -> Row:
    x, standardization, state = settled(n_rows)
    model = DPMixture(covariance_type="diag", n_init=0, random_state=0, max_components=400).fit(x[: 1_000 * K])
    z = torch.from_numpy(x).sub(standardization.mean.float()).div(standardization.scale.float())
    features, coef = torch.cat([z, z * z], dim=1), state.posterior.scores.coef.float()
    bare = best_time(lambda: torch.softmax(features @ coef, dim=1))
    return {"s": best_time(lambda: model.mixture_.predict(x)), "bare, s": bare}


def _encode(n_images: int) -> Row:
    from benchmarks.bench_training import start
    from diva.training.encode import ENCODE_ROWS, encode

    with flushed_denormals(), torch.no_grad():
        state, task = start(n_images)
        x = task.samples.take(torch.arange(n_images))
        network = state.network.eval()
        bare = best_time(lambda: [network.encode(part) for part in torch.split(x, ENCODE_ROWS)], repeats=3)
        return {"s": best_time(lambda: encode(network, task.samples, CPU), repeats=3), "bare, s": bare}


def _train(n_images: int) -> Row:
    from benchmarks.bench_training import start, timed_epoch
    from diva.training.loop import shuffled_batches

    with flushed_denormals():
        state, task = start(n_images)
        x, elbo, vae = task.samples.take(torch.arange(n_images)), task.elbo, state.network.train()

        def bare_epoch() -> float:
            begun = time.perf_counter()
            for index in shuffled_batches(n_images, task.config.batch_size, state.generator):
                part = x[index]
                view = None if task.augmentation is None else task.augmentation(part, state.generator)
                loss = elbo.loss(vae.loss(part, StandardNormal(), state.generator, view), state.variance)
                state.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                state.optimizer.step()
            return time.perf_counter() - begun

        by_turns = [(timed_epoch(state, task, StandardNormal()), bare_epoch()) for _ in range(12)]  # on the same machine
        ours, bare = (min(seconds) for seconds in zip(*by_turns, strict=True))
        return {"s": ours, "bare, s": bare}


def latency(n_images: int = 2_000) -> None:
    """Bars: a single sample, under 2 ms by a mixture and under 5 ms by DIVA on MNIST."""
    from benchmarks.datasets import LOADERS

    x, _, _ = settled(20_000)
    mixture = DPMixture(covariance_type="diag", n_init=0, random_state=0).fit(x)
    images = LOADERS["mnist"]().x[:n_images]
    deep = DIVA(n_epochs=3, codes="learnt", random_state=0).fit(images)
    rows = []
    for name, model, sample in (("DPMixture", mixture, x[:1]), ("DIVA, MNIST", deep, images[:1])):
        for method in ("predict", "predict_proba", "score_samples"):
            times = []
            for _ in range(200):
                begun = time.perf_counter()
                getattr(model, method)(sample)
                times.append(1e3 * (time.perf_counter() - begun))
            rows.append({"model": name, "method": method, "median, ms": float(np.median(times)), "fastest, ms": min(times)})
    record("latency", "A single sample", rows)


def memmap(largest: int = 100_000_000, dim: int = 8) -> None:
    """Bar: a lap over a mapped file of 3.2 GB, with less than 700 MB resident; and over smaller ones."""
    truth, rows = make_gaussian_mixture(K, dim, np.random.default_rng(0)), []
    for n_rows in (largest // 100, largest // 10, largest):
        rng = np.random.default_rng(1)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.f32"
            with path.open("wb") as file:
                for i in range(0, n_rows, 500_000):
                    file.write(truth.sample(min(500_000, n_rows - i), rng)[0].astype(np.float32).tobytes())
            row = {"n": n_rows, "D": dim, "file, MB": path.stat().st_size / 1e6}
            rows.append(row | launched(1, "memmap", str(path), str(n_rows), str(dim)))
    record("memmap", "A lap over a memory-mapped file of float32", rows)


BENCHMARKS = {
    "ranks": ranks,
    "ranks_mnist": ranks_mnist,
    "hardware": hardware,
    "latency": latency,
    "memmap": memmap,
}


def main() -> None:
    name, *arguments = sys.argv[1:]
    with distributed.join():
        said = WORK[name](*arguments)
        if distributed.is_main():
            print(json.dumps(said))


if __name__ == "__main__":
    main()
