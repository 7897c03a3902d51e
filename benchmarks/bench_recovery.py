"""Simulated groups, and their number, found from K = 1."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.metrics import adjusted_rand_score

from benchmarks.recording import Row, record
from diva import DPMixture
from diva.data import make_gaussian_mixture

CASES = {
    "20 diagonal, D=16": {"n_components": 20, "n_features": 16, "separation": 10.0, "covariance_type": "diag"},
    "20 rotated, D=16": {"n_components": 20, "n_features": 16, "separation": 10.0, "covariance_type": "full"},
    "1 diagonal, D=16": {"n_components": 1, "n_features": 16, "separation": 10.0, "covariance_type": "diag"},
    "1 rotated, D=16": {"n_components": 1, "n_features": 16, "separation": 10.0, "covariance_type": "full"},
    "100 diagonal, D=8": {"n_components": 100, "n_features": 8, "separation": 12.0, "covariance_type": "diag"},
    "100 rotated, D=8": {"n_components": 100, "n_features": 8, "separation": 12.0, "covariance_type": "full"},
}


def recover(case: str, seed: int, n_samples: int = 100_000) -> Row:
    options = dict(CASES[case])
    covariance_type = str(options.pop("covariance_type"))
    rng = np.random.default_rng(seed)
    truth = make_gaussian_mixture(**options, rotated=covariance_type == "full", rng=rng)  # type: ignore[arg-type]
    x, y = truth.sample(n_samples, rng)
    start = time.perf_counter()
    model = DPMixture(covariance_type=covariance_type, random_state=seed).fit(x)
    return {
        "data": case,
        "seed": seed,
        "K true": len(truth.weights),
        "K found": model.n_components_,
        "ARI": float(adjusted_rand_score(y, model.labels_)),
        "ARI of the truth": float(adjusted_rand_score(y, truth.best_labels(x))),
        "laps": len(model.history_),
        "seconds": time.perf_counter() - start,
    }


def main(n_seeds: int = 5) -> None:
    rows = []
    for case in CASES:
        for seed in range(n_seeds):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                rows.append(recover(case, seed))
            print(rows[-1], flush=True)
    record(
        "recovery",
        "Recovery of simulated Gaussians from K = 1, n = 100,000, largest weight 10 times the smallest",
        rows,
        ["*ARI of the truth* assigns each sample by the mixture it was drawn from: the best anyone can do."],
    )


if __name__ == "__main__":
    main()
