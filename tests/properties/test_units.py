"""Where data lie, in which units, and in which order they come changes nothing but numbers that have units."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from diva import DPMixture

from .strategies import clumps, covariance_types, seeds

few = settings(max_examples=15)


@st.composite
def tables(draw, max_rows=120):
    """Data with some spread in every column."""
    X = draw(clumps(draw(st.integers(1, 3)), st.integers(20, max_rows)))
    assume((X.std(0) > 1e-3).all())
    return X


def fitted(X, covariance_type, **options):
    return DPMixture(covariance_type=covariance_type, random_state=0, **options).fit(X)


def assert_same_clustering(model, other, rtol=1e-6):
    assert model.n_components_ == other.n_components_
    np.testing.assert_array_equal(model.labels_, other.labels_)
    np.testing.assert_allclose(model.weights_, other.weights_, rtol=rtol)
    assert [record.move for record in model.lineage_] == [record.move for record in other.lineage_]


def assert_transformed(model, moved, scale, shift, rtol=1e-6):
    """``moved`` is ``model`` after x -> x * scale + shift, column by column."""
    assert_same_clustering(model, moved, rtol)
    spread = np.sqrt(model.covariances_.max()) + np.abs(model.means_).max(0)
    np.testing.assert_allclose((moved.means_ - shift) / scale / spread, model.means_ / spread, atol=rtol)
    square = scale**2 if model.covariance_type == "diag" else np.outer(scale, scale)
    np.testing.assert_allclose(moved.covariances_ / square, model.covariances_, rtol=rtol, atol=rtol * model.covariances_.max())
    n_rows = len(model.labels_)
    np.testing.assert_allclose(moved.elbo_, model.elbo_ - n_rows * np.log(scale).sum(), rtol=rtol, atol=rtol * n_rows)


@few
@given(tables(), covariance_types, st.sampled_from([-40, -3, 1, 40]))
def test_a_power_of_two_changes_not_a_bit_of_the_fit(X, covariance_type, exponent):
    model, scaled = fitted(X, covariance_type), fitted(X * 2.0**exponent, covariance_type)
    assert_same_clustering(model, scaled, rtol=0)
    np.testing.assert_array_equal(scaled.means_, model.means_ * 2.0**exponent)
    np.testing.assert_array_equal(scaled.covariances_, model.covariances_ * 4.0**exponent)
    log_scale = X.size * exponent * np.log(2.0)
    np.testing.assert_allclose(scaled.elbo_, model.elbo_ - log_scale, rtol=1e-12, atol=1e-12 * abs(log_scale))


@few
@given(tables(), covariance_types, st.floats(1e-9, 1e9), st.floats(-100.0, 100.0))
def test_shifted_and_scaled_data_shift_and_scale_the_fit(X, covariance_type, scale, shift):
    model, moved = fitted(X, covariance_type), fitted((X + shift) * scale, covariance_type)
    assert_transformed(model, moved, np.full(X.shape[1], scale), shift * scale)


@few
@given(tables(), covariance_types, seeds)
def test_every_feature_has_its_own_unit(X, covariance_type, seed):
    rng = np.random.default_rng(seed)
    scale, shift = np.exp(rng.uniform(-15.0, 15.0, X.shape[1])), rng.normal(0.0, 10.0, X.shape[1])
    model, moved = fitted(X, covariance_type), fitted((X + shift) * scale, covariance_type)
    assert_transformed(model, moved, scale, shift * scale)


@few
@given(tables(), covariance_types, st.sampled_from([1e-3, 7.0, 2.0**40]), st.floats(-10.0, 10.0))
def test_densities_change_by_the_volume_of_the_unit(X, covariance_type, scale, shift):
    model, moved = fitted(X, covariance_type), fitted((X + shift) * scale, covariance_type)
    expected = model.score_samples(X) - X.shape[1] * np.log(scale)
    np.testing.assert_allclose(moved.score_samples((X + shift) * scale), expected, rtol=1e-6, atol=1e-6)


@few
@given(tables(max_rows=200), covariance_types, seeds)
def test_the_order_of_rows_does_not_matter_where_nothing_is_sampled(X, covariance_type, seed):
    order = np.random.default_rng(seed).permutation(len(X))
    model, shuffled = fitted(X, covariance_type), fitted(X[order], covariance_type)
    np.testing.assert_array_equal(model.labels_[order], shuffled.labels_)
    np.testing.assert_allclose(model.weights_, shuffled.weights_, rtol=1e-6)
    np.testing.assert_allclose(model.elbo_, shuffled.elbo_, rtol=1e-6)


@few
@given(tables(max_rows=60), covariance_types, seeds)
def test_a_weight_is_as_good_as_a_repetition(X, covariance_type, seed):
    times = np.random.default_rng(seed).integers(1, 4, len(X))
    repeated = fitted(X.repeat(times, axis=0), covariance_type)
    weighted = DPMixture(covariance_type=covariance_type, random_state=0).fit(X, sample_weight=times)
    np.testing.assert_array_equal(weighted.labels_.repeat(times), repeated.labels_)
    np.testing.assert_allclose(weighted.elbo_, repeated.elbo_, rtol=1e-6)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_float32_finds_the_clusters_of_float64(covariance_type):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(centre, 0.3, (60, 2)) for centre in (-2.0, 0.0, 2.0)])
    double, single = fitted(X, covariance_type), fitted(X.astype(np.float32), covariance_type)
    assert adjusted_rand_score(double.labels_, single.labels_) == 1.0
    left, right = (np.argsort(model.means_[:, 0]) for model in (double, single))  # of equal mass: any order
    np.testing.assert_allclose(single.means_[right], double.means_[left], atol=1e-3)
    np.testing.assert_allclose(single.covariances_[right], double.covariances_[left], atol=1e-3)
