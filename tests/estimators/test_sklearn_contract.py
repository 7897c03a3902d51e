import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from diva import DPMixture

from .helpers import blobs

X = blobs()


WISHES = "sets n_clusters=2, which cuts a tree that grouping=None has not"
REASONS = dict.fromkeys(
    [
        "check_clustering",
        "check_dont_overwrite_parameters",
        "check_fit2d_1feature",
        "check_fit2d_1sample",
        "check_fit2d_predict1d",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
    ],
    WISHES,
)


@pytest.mark.filterwarnings("ignore::diva.exceptions.FewerClustersWarning")  # some checks set n_clusters=2 on one cluster
@parametrize_with_checks(
    [
        DPMixture(random_state=0),
        DPMixture(covariance_type="diag", random_state=0),
        DPMixture(grouping=None, random_state=0),
    ],
    expected_failed_checks=lambda estimator: REASONS if estimator.grouping is None else {},
)
def test_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_a_clone_has_the_parameters_and_nothing_else():
    model = DPMixture(2.5, covariance_type="diag", max_components=7, grouping="valleys", random_state=3).fit(X)
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    assert copied.concentration == 2.5
    with pytest.raises(NotFittedError):
        copied.predict(X)


def test_set_params_refuses_unknown_names():
    with pytest.raises(ValueError, match="concentrationn"):
        DPMixture().set_params(concentrationn=1.0)


def test_every_parameter_but_the_first_is_keyword_only():
    with pytest.raises(TypeError):
        DPMixture(5.0, "diag")


def test_works_at_the_end_of_a_pipeline():
    model = make_pipeline(StandardScaler(), PCA(2), DPMixture(random_state=0))
    labels = model.fit_predict(X)
    np.testing.assert_array_equal(labels, model.predict(X))
    assert model[-1].n_components_ == 4
    assert np.isfinite(model.score(X))
    assert model.predict_proba(X).shape == (len(X), 4)


def test_grid_search_chooses_by_the_density_of_held_out_data():
    search = GridSearchCV(DPMixture(random_state=0), {"concentration": [1e-3, 5.0], "covariance_scale": [0.1, 100.0]}, cv=3)
    search.fit(np.random.default_rng(0).permutation(X))
    assert search.best_params_["covariance_scale"] == 0.1  # components as wide as 100 times the data describe no blob
    assert search.best_estimator_.n_clusters_ == 4


def test_column_names_are_kept_and_checked():
    frame = pd.DataFrame(X, columns=["width", "height"])
    model = DPMixture(random_state=0).fit(frame)
    assert list(model.feature_names_in_) == ["width", "height"]
    np.testing.assert_array_equal(model.predict(frame), model.labels_)
    with pytest.raises(ValueError, match="in the same order"):
        model.predict(frame[["height", "width"]])
    with pytest.raises(ValueError, match="in the same order"):
        model.partial_fit(frame[["height", "width"]])
    assert not hasattr(model.fit(X), "feature_names_in_")


@pytest.mark.parametrize("params", [{}, {"covariance_type": "diag"}, {"grouping": "valleys"}], ids=str)
def test_three_ways_to_the_same_labels(params):
    labels = DPMixture(random_state=0, **params).fit_predict(X)
    model = DPMixture(random_state=0, **params).fit(X)
    np.testing.assert_array_equal(labels, model.labels_)
    np.testing.assert_array_equal(labels, model.predict(X))
    np.testing.assert_array_equal(labels, model.predict_proba(X).argmax(axis=1))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("grouping", [None, "valleys"])
def test_same_seed_same_numbers_bit_for_bit(dtype, grouping):
    rng = np.random.default_rng(0)
    ring = np.column_stack([np.cos(t := rng.uniform(0, 6, 1000)), np.sin(t)]).astype(dtype)
    ring += rng.normal(0, 0.05, ring.shape).astype(dtype)
    first, second = (DPMixture(grouping=grouping, random_state=7).fit(ring) for _ in range(2))
    assert first.n_components_ > 4
    for name in ("means_", "covariances_", "weights_", "labels_", "component_ids_", "elbo_"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    assert first.history_ == second.history_
    assert first.lineage_ == second.lineage_


def test_refitting_forgets_the_fit_before():
    model = DPMixture(random_state=0).fit(X * 100 + 7).fit(X)
    fresh = DPMixture(random_state=0).fit(X)
    np.testing.assert_array_equal(model.means_, fresh.means_)
    assert model.lineage_ == fresh.lineage_


@pytest.mark.parametrize(
    "copying", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deepcopy", "pickle"]
)
@pytest.mark.parametrize("grouping", [None, "valleys"])
def test_copies_of_a_fitted_model_are_equal_and_independent(copying, grouping):
    model = DPMixture(grouping=grouping, random_state=0).fit(X)
    copied = copying(model)
    np.testing.assert_array_equal(copied.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(copied.score_samples(X), model.score_samples(X))
    before = model.means_.copy()
    copied.partial_fit(X + 50)
    np.testing.assert_array_equal(model.means_, before)
    model.partial_fit(X + 50)
    np.testing.assert_array_equal(model.means_, copied.means_)
