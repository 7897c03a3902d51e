"""DIVA on simulated rows whose clusters are plain Gaussians."""

import numpy as np
import pytest

from diva import DIVA
from diva.metrics import Agreement


@pytest.mark.quality
def test_plain_clusters_of_many_rows():
    found, accuracy = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        truth = rng.integers(4, size=4_100)
        rows = rng.normal(0, 2, size=(4, 12))[truth] + rng.normal(size=(4_100, 12))
        model = DIVA(n_epochs=4, hidden_sizes=(32,), random_state=seed).fit(rows)
        found.append(model.n_clusters_)
        accuracy.append(Agreement(truth, model.labels_).acc_one_to_one)
    assert np.median(found) == 4
    assert np.median(accuracy) > 0.95
