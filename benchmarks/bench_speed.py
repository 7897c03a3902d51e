"""Speed of a lap and of a fit, side by side with bare torch and with scikit-learn, in one process and on the same threads."""

from __future__ import annotations

import time
import warnings

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture
from threadpoolctl import threadpool_limits

from benchmarks.recording import Row, best_time, record
from diva import DPMixture
from diva.data import ArrayBatches, make_gaussian_mixture
from diva.mixture.laps import assign_lap, revisit_lap
from diva.mixture.standardize import StandardizedBatches
from diva.threads import one_thread

D, K = 16, 20


def one_lap(n_samples: int = 1_000_000, n_components: int = K, sklearn_too: bool = True) -> Row:
    """A settled lap (no move left to try) against the two products and the softmax it cannot do without."""
    rng = np.random.default_rng(0)
    truth = make_gaussian_mixture(n_components, D, rng)
    x, _ = truth.sample(n_samples, rng)
    model = DPMixture(covariance_type="diag", random_state=0, max_components=400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[: min(n_samples, 5_000 * n_components)])
    batches = StandardizedBatches(ArrayBatches(x), model.mixture_.standardization, torch.device("cpu"))
    with one_thread():
        state = assign_lap(model.mixture_.state.forgetting_data(), batches, [])

    row: Row = {"n": n_samples, "K": state.n_components, "threads": torch.get_num_threads()}
    row["bare products and softmax, s"] = bare_products(batches, state.posterior.scores.coef.float())
    with one_thread():  # as a fit does: parts of a batch on as many threads as torch had
        row["lap, s"] = best_time(lambda: revisit_lap(state, batches, []))
    row["lap / bare"] = row["lap, s"] / row["bare products and softmax, s"]
    if sklearn_too:
        row["scikit-learn iteration, s"] = sklearn_iteration(x, state.n_components)
        row["scikit-learn / lap"] = row["scikit-learn iteration, s"] / row["lap, s"]
    return row


def bare_products(batches: StandardizedBatches, coef: torch.Tensor) -> float:
    """Seconds of two matrix products and a softmax, with the features made beforehand."""
    z = torch.cat([chunk.z for block in batches for part in block.parts(1 << 16).items for chunk in part])
    features = torch.cat([z, z * z], dim=1)
    with_ones = torch.cat([torch.ones(len(z), 1), features], dim=1)
    return best_time(lambda: torch.softmax(features @ coef, dim=1).T @ with_ones)


def sklearn_iteration(x: np.ndarray, n_components: int) -> float:
    """Seconds of one iteration: a fit of four less a fit of one, which start alike."""

    def fit(n_iter: int) -> float:
        model = BayesianGaussianMixture(
            n_components=n_components, covariance_type="diag", max_iter=n_iter, tol=0.0, init_params="random", random_state=0
        )
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(x)
        return time.perf_counter() - start

    return (fit(4) - fit(1)) / 3


def full_fit(seed: int = 0, n_samples: int = 100_000) -> list[Row]:
    """From K = 1 with all moves, against scikit-learn given 50 components."""
    rng = np.random.default_rng(seed)
    truth = make_gaussian_mixture(K, D, rng)
    x, y = truth.sample(n_samples, rng)
    rows = []
    models = {
        "diva.DPMixture": DPMixture(covariance_type="diag", random_state=seed),
        "BayesianGaussianMixture(50)": BayesianGaussianMixture(
            n_components=50, covariance_type="diag", weight_concentration_prior=5.0, max_iter=1000, random_state=seed
        ),
    }
    for name, model in models.items():
        if not isinstance(model, DPMixture) and (seed or torch.get_num_threads() > 1):
            continue  # minutes each; one tells
        start = time.perf_counter()
        labels = model.fit_predict(x)
        seconds = time.perf_counter() - start
        rows.append(
            {
                "model": name,
                "seed": seed,
                "threads": torch.get_num_threads(),
                "seconds": seconds,
                "laps": len(model.history_) if isinstance(model, DPMixture) else model.n_iter_,
                "K": len(np.unique(labels)),
                "ARI": float(adjusted_rand_score(y, labels)),
                "speed-up": rows[0]["seconds"] and seconds / rows[0]["seconds"] if rows else 1.0,
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    laps, fits = [], []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        with threadpool_limits(threads):
            laps.append(one_lap())
            laps.append(one_lap(n_samples=100_000))
            print(laps, flush=True)
            for seed in range(3):
                fits += full_fit(seed)
    record("lap", "One lap, diagonal, D = 16, float32", laps)
    record("fit", "A full fit from K = 1, n = 100,000, D = 16, 20 Gaussians", fits)


if __name__ == "__main__":
    main()
