"""Baselines with networks go on from the fit before, with more classes."""

import numpy as np
import pytest
import torch

import diva
from diva.baselines import BASELINES, DDPM, DEC, GMVAE, DeepDPM, load_baseline
from diva.metrics import Agreement

from .helpers import labelled_gaussians

torch.set_num_threads(1)

DEEP = [name for name in BASELINES if "warm_start" in load_baseline(name).declared_parameters]
SMALL = {"n_clusters": 5, "max_clusters": 8, "latent_dim": 3, "hidden_sizes": (16,), "n_epochs": 10, "batch_size": 32}
X, Y = labelled_gaussians(200, n_classes=5, n_features=8)
FEW = X[Y < 3]


def small(kind, **given):
    """A model of few numbers, with the parameters that it has."""
    known = {name: value for name, value in SMALL.items() if name in kind.declared_parameters}
    return kind(**known | given, random_state=0)


def first_weights(model):
    return next(value for name, value in model.network_.state_dict().items() if name.endswith("0.weight")).clone()


def change(after, before):
    return float((after - before).norm() / before.norm())


def test_all_baselines_with_networks_do():
    assert DEEP == ["dec", "vade", "gmvae", "sbvae", "vsbdvm", "deepdpm", "ddpm"]


@pytest.mark.parametrize("name", DEEP)
def test_a_warm_start_goes_on_with_networks_and_records(name):
    model = small(load_baseline(name)).fit(FEW)
    before, records, scaling = first_weights(model), model.history_, model.pipeline_
    fresh = small(load_baseline(name)).set_params(random_state=1).fit(X)
    model.set_params(warm_start=True, n_epochs=4, random_state=1).fit(X)
    assert change(first_weights(fresh), before) > 0.8 > 0.4 > change(first_weights(model), before)
    assert model.history_[: len(records)] == records
    further = model.history_[len(records) :]
    assert {record.phase for record in further} <= {"clustering", "training", "features"}
    assert [record.epoch for record in further] == list(range(len(records), len(records) + len(further)))
    assert len(model.labels_) == len(X)
    assert model.pipeline_ is scaling  # codes of old samples mean what they did


@pytest.mark.parametrize("name", DEEP)
def test_without_a_warm_start_all_is_forgotten(name):
    model = small(load_baseline(name)).fit(X).fit(FEW)
    other = small(load_baseline(name)).fit(FEW)
    np.testing.assert_array_equal(model.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("kind", [DEC, GMVAE, DeepDPM])
def test_a_warm_start_that_failed_is_resumed(kind, tmp_path):
    def fail(_, record):
        if record.epoch == first.history_[-1].epoch + 2:
            raise RuntimeError("cut off")

    first = small(kind, warm_start=True).fit(FEW)
    first.save(tmp_path / "first.diva")
    whole = diva.load(tmp_path / "first.diva").fit(X)
    how = {"run_dir": str(tmp_path / "run"), "resume": True}
    with pytest.raises(RuntimeError, match="cut off"):
        diva.load(tmp_path / "first.diva").set_params(**how, callbacks=[fail]).fit(X)
    resumed = diva.load(tmp_path / "first.diva").set_params(**how).fit(X)
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))


@pytest.mark.parametrize("kind", [DEC, GMVAE, DDPM])
def test_other_sizes_are_refused(kind):
    model = small(kind, warm_start=True).fit(FEW)
    said = model.predict(X)
    with pytest.raises(ValueError, match=r"warm_start=True goes on with networks as they are, but .* Set it to False"):
        model.set_params(hidden_sizes=(7,)).fit(X)
    np.testing.assert_array_equal(model.predict(X), said)


@pytest.mark.quality
def test_new_classes_get_clusters():
    rng, y, found = np.random.default_rng(0), np.repeat(range(5), 100), []
    X = 6 * rng.normal(size=(5, 4))[y] + rng.normal(size=(500, 4))
    for seed in range(3):
        model = DeepDPM(features="given", n_epochs=120, warm_start=True, random_state=seed).fit(X[y < 3])
        assert model.n_clusters_ <= 4
        found.append(Agreement(y, model.fit(X).labels_).acc_one_to_one)
    assert np.median(found) >= 0.95
