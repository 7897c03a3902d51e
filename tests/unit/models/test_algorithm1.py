"""What Algorithm 1 does after an epoch: laps of the mixture, with the moves that the config asks for."""

import numpy as np
import pytest
import torch

from diva import DIVA

torch.set_num_threads(1)

rng = np.random.default_rng(0)
X = (np.repeat([[0, 0, 0, 0], [6, 0, 0, 6], [0, 6, 6, 0]], 60, axis=0) + rng.normal(size=(180, 4))).astype(np.float32)
SMALL = {"latent_dim": 2, "hidden_sizes": (16,), "learning_rate": 0.01, "batch_size": 32, "random_state": 0}


@pytest.mark.parametrize("params", [{}, {"preset": "paper"}], ids=["default", "paper"])
def test_one_lap_an_epoch_gives_birth(params):
    model = DIVA(**SMALL, **params, n_epochs=20, n_laps=1).fit(X)
    assert sum(record.births for record in model.history_) > 0
    assert max(record.n_components for record in model.history_) > 1


@pytest.mark.parametrize("shuffles", [True, False])
def test_components_are_put_in_order_of_their_mass_if_wanted(shuffles):
    model = DIVA("paper", **SMALL, n_epochs=8, n_laps=4, shuffles=shuffles).fit(X)
    masses = model.mixture_.masses
    assert len(masses) > 2
    assert (np.diff(masses) <= 0).all() == shuffles
