"""What Algorithm 1 does after an epoch: laps of the mixture, with the moves that the config asks for."""

import numpy as np
import pytest
import torch

from diva import DIVA
from diva.metrics import Agreement

torch.set_num_threads(1)

rng = np.random.default_rng(0)
X = (np.repeat([[0, 0, 0, 0], [6, 0, 0, 6], [0, 6, 6, 0]], 60, axis=0) + rng.normal(size=(180, 4))).astype(np.float32)
CLASSES = np.repeat([0, 1, 2], 60)
ATOMS = {"min_new_atoms": 20, "min_target_atoms": 40, "min_retained_atoms": 40}
SMALL = {"latent_dim": 2, "hidden_sizes": (16,), "learning_rate": 0.01, "batch_size": 32, "random_state": 0}


@pytest.mark.parametrize("params", [{}, {"preset": "paper"} | ATOMS], ids=["default", "paper"])
def test_one_lap_an_epoch_gives_birth(params):
    model = DIVA(**SMALL, **params, n_epochs=20, n_laps=1).fit(X)
    assert sum(record.births for record in model.history_) > 0
    assert max(record.n_components for record in model.history_) > 1


@pytest.mark.parametrize("shuffles", [True, False])
def test_components_are_put_in_order_of_their_mass_if_wanted(shuffles):
    model = DIVA("paper", **SMALL, **ATOMS, n_epochs=8, n_laps=4, shuffles=shuffles).fit(X)
    masses = model.mixture_.masses
    assert len(masses) > 2
    assert (np.diff(masses) <= 0).all() == shuffles


def moves_of(**params):
    """Names of the moves that were accepted while training."""
    model = DIVA("paper", **SMALL, **ATOMS | params, n_epochs=8, n_laps=3).fit(X)
    return [record.move for record in model.training_lineage_ if record.children], model


@pytest.mark.parametrize("births", ["all", "collected", "always"])
def test_births_are_a_choice(births):
    moves, model = moves_of(births=births, min_retained_atoms=0)
    assert model.config_.births == births
    assert moves.count("birth") > 0
    assert model.n_components_ > 1
    born = [record for record in model.training_lineage_ if record.move == "birth"]
    assert any(record.gain < 0 for record in born) == (births == "always")
    # ours replaces the parent, which keeps its id, by children; the paper's components come beside it
    assert all(record.children[0] == record.parents[0] for record in born)


def test_deletes_are_a_choice():
    spread = {"births": "always", "n_epochs": 20, "covariance_scale": 0.001, "min_retained_atoms": 0, "min_new_atoms": 1}
    params = SMALL | ATOMS | {"preset": "paper", "n_laps": 6} | spread
    deleted = [sum(record.deletes for record in DIVA(**params, deletes=deletes).fit(X).history_) for deletes in (True, False)]
    assert deleted[0] > deleted[1] == 0


def test_what_the_last_lap_created_is_left_out():
    model = DIVA("paper", **SMALL, **ATOMS, births="always", n_epochs=1, n_laps=1).fit(X)
    birth, *gone = model.training_lineage_
    assert (birth.move, {record.move for record in gone}) == ("birth", {"delete"})
    assert [record.parents for record in gone] == [(child,) for child in birth.children[1:]]
    assert model.component_ids_.tolist() == [0]
    assert model.mixture_.masses.sum() == pytest.approx(len(X))


@pytest.mark.parametrize(("least", "alone"), [(0, False), (len(X) + 1, True)])
@pytest.mark.parametrize("births", ["all", "collected", "always"])
def test_components_that_stay_small_do_not_stay(births, least, alone):
    _, model = moves_of(births=births, min_retained_atoms=least)
    assert (model.n_components_ == 1) == alone


@pytest.mark.parametrize("births", ["all", "collected", "always"])
def test_a_component_too_small_gives_no_birth(births):
    moves, model = moves_of(births=births, min_target_atoms=len(X) + 1)
    assert moves == []
    assert model.n_components_ == 1


def test_the_paper_s_epochs_end_when_nothing_gets_better():
    model = DIVA("paper", **SMALL | {"learning_rate": 1e-9}).fit(X)
    assert model.config_.early_stopping < len(model.history_) < model.config_.n_epochs == 500


@pytest.mark.parametrize("preset", ["auto", "paper"])
def test_soft_and_hard_assignment_find_the_same_classes(preset):
    """And are not the same: hard assignment draws a sample to one component only (equation 8), soft to all (equation 9)."""
    params = SMALL | {"preset": preset, "n_epochs": 20, "kl_weight": 1e-2} | (ATOMS if preset == "paper" else {})
    soft, hard = (DIVA(**params, assignment=assignment).fit(X) for assignment in ("soft", "hard"))
    for model in (soft, hard):
        assert Agreement(CLASSES, model.predict(X, level="component")).acc_majority > 0.95
    assert soft.history_[-1].loss != hard.history_[-1].loss
