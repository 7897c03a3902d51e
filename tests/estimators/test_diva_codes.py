"""Learnt codes must earn their place beside the features as they are."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.metrics import adjusted_rand_score
from torch import nn

import diva
from diva import DIVA, DPMixture
from diva.models.feature_clusters import Candidate

IRIS = load_iris().data
X, CLASSES = make_blobs(300, 4, centers=3, random_state=0)
X = X * [1.0, 1000.0, 0.001, 10.0]  # one column hides the others
pytestmark = pytest.mark.filterwarnings("ignore::diva.exceptions.ScaleWarning")


@pytest.fixture(scope="module")
def model():
    return DIVA(n_epochs=5, random_state=0).fit(X)


def test_columns_in_other_units_do_not_hide_clusters(model):
    assert adjusted_rand_score(CLASSES, model.labels_) > 0.95


def test_says_what_was_taken_and_why(model):
    assert model.config_.codes == "features"
    assert model.agreement_["features"] > model.agreement_["learnt"]


def test_noise_is_one_cluster():
    assert DIVA(random_state=0).fit(np.random.default_rng(0).standard_normal((50, 500))).n_clusters_ == 1


def test_cuts_through_noise_tell_nothing():
    noise = np.random.default_rng(0).standard_normal((400, 5)).astype(np.float32)
    cut = DPMixture(random_state=0).fit_clusters(noise, np.digitize(noise[:, 0], [-0.7, 0.7])).mixture_
    rival = Candidate(DPMixture(random_state=0).fit(noise).mixture_, np.arange(400), noise)
    assert rival.compared(cut, noise) == {"learnt": 0.0, "features": 0.0}


def test_features_are_their_own_codes(model):
    assert model.transform(X).shape == X.shape
    np.testing.assert_allclose(model.reconstruct(X), X, rtol=1e-4, atol=1e-5)
    drawn, _ = model.sample(50, random_state=0)
    assert (np.abs(drawn - X.mean(0)) < 10 * X.std(0)).all()


def test_clusters_are_those_of_the_mixture_alone(model):
    assert adjusted_rand_score(model.labels_, DPMixture(random_state=0).fit_predict(X)) == 1.0


def test_a_file_keeps_it(model, tmp_path):
    model.save(tmp_path / "model.diva")
    again = diva.load(tmp_path / "model.diva")
    assert again.agreement_ == model.agreement_
    np.testing.assert_array_equal(again.predict(X), model.labels_)


def test_goes_on_with_more_data(model, tmp_path):
    model.save(tmp_path / "model.diva")
    going_on = diva.load(tmp_path / "model.diva")
    far = X[:60] + 30 * X.std(0)
    going_on.partial_fit(far)
    assert set(going_on.predict(far)).isdisjoint(model.cluster_ids_)
    np.testing.assert_array_equal(going_on.predict(X), model.labels_)
    assert not going_on.batches_[-1].learnt


def test_a_warm_start_keeps_names(model, tmp_path):
    model.save(tmp_path / "model.diva")
    again = diva.load(tmp_path / "model.diva").set_params(warm_start=True).fit(X[::-1].copy())
    np.testing.assert_array_equal(again.labels_[::-1], model.labels_)


def test_features_alone_need_no_epochs():
    model = DIVA(codes="features", random_state=0).fit(IRIS)
    assert model.history_ == []
    assert model.agreement_ == {}
    np.testing.assert_array_equal(model.labels_, model.predict(IRIS))


def test_learnt_codes_on_request():
    model = DIVA(codes="learnt", n_epochs=3, random_state=0).fit(IRIS)
    assert model.config_.codes == "learnt"
    assert model.transform(IRIS).shape == (len(IRIS), 10)


def test_images_are_always_learnt():
    assert DIVA(n_epochs=2, random_state=0).fit(load_digits().images[:100]).config_.codes == "learnt"


def test_learnt_codes_stay_where_they_agree_more_with_neighbours():
    """Many columns of noise blind the features; what they share is one direction that networks find."""
    rng = np.random.default_rng(0)
    of = rng.integers(2, size=600)
    curved = np.stack([np.cos(np.pi * of), np.sin(np.pi * of)], axis=1) + 0.1 * rng.normal(size=(600, 2))
    model = DIVA(n_epochs=10, random_state=0).fit(curved @ rng.normal(size=(2, 30)) + 0.1 * rng.normal(size=(600, 30)))
    assert model.agreement_[model.config_.codes] == max(model.agreement_.values())


def test_own_networks_are_meant_to_learn():
    with pytest.raises(ValueError, match="no networks"):
        DIVA(codes="features", encoder=nn.Linear(4, 2), decoder=nn.Linear(2, 4)).fit(IRIS)


@pytest.mark.parametrize(("given", "done"), [(None, "columns"), ("auto", "columns"), ("one", "one"), ("columns", "columns")])
def test_columns_are_put_on_one_scale_by_default(given, done):
    model = DIVA(codes="learnt", scale=given, hidden_sizes=(8,), n_epochs=1, random_state=0).fit(IRIS)
    assert model.config_.scale == done
