"""Simulate, fit, find again. The bars at full size are in benchmarks/bench_recovery.py; here a tenth of it on every run."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from diva import DPMixture
from diva.data import make_gaussian_mixture

pytestmark = pytest.mark.quality


def simulate(n_components, n_features, n_samples, seed, **options):
    rng = np.random.default_rng(seed)
    truth = make_gaussian_mixture(n_components, n_features, rng, **options)
    x, y = truth.sample(n_samples, rng)
    return truth, x, y


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_finds_twenty_gaussians_of_unequal_weight(covariance_type):
    off, lost, n_laps = [], [], []
    for seed in range(3):
        truth, x, y = simulate(20, 16, 20_000, seed, rotated=covariance_type == "full")
        model = DPMixture(covariance_type=covariance_type, random_state=seed).fit(x)
        off.append(abs(model.n_components_ - 20))
        lost.append(adjusted_rand_score(y, truth.best_labels(x)) - adjusted_rand_score(y, model.labels_))
        grown = DPMixture(covariance_type=covariance_type, covariance_scale=0.1, n_init=0, random_state=seed).fit(x)
        assert abs(grown.n_components_ - 20) <= 2
        n_laps.append(len(grown.history_))  # births from one component need few
    assert np.median(off) <= 1
    assert np.median(lost) < 0.01
    assert np.median(n_laps) <= 15


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
@pytest.mark.parametrize("n_samples", [100, 10_000])
def test_one_gaussian_is_one_component(covariance_type, n_samples):
    _, x, _ = simulate(1, 16, n_samples, 0, rotated=True)
    assert DPMixture(covariance_type="full", random_state=0).fit(x).n_components_ == 1
    _, x, _ = simulate(1, 16, n_samples, 0)
    assert DPMixture(covariance_type=covariance_type, random_state=0).fit(x).n_components_ == 1


def test_parameters_are_recovered_within_their_standard_error():
    truth, x, y = simulate(3, 4, 20_000, 0, rotated=True)
    model = DPMixture(random_state=0).fit(x)
    assert model.n_components_ == 3
    for k in range(3):
        mine = model.labels_ == k
        true_k = np.bincount(y[mine]).argmax()
        covariance = truth.axes[true_k] @ np.diag(truth.scales[true_k] ** 2) @ truth.axes[true_k].T
        n = mine.sum()
        standard_error = np.sqrt(np.diag(covariance) / n)
        np.testing.assert_array_less(np.abs(model.means_[k] - truth.means[true_k]), 5 * standard_error)
        np.testing.assert_allclose(model.covariances_[k], covariance, atol=5 * covariance.max() * np.sqrt(2 / n))
        assert model.weights_[k] == pytest.approx(truth.weights[true_k], abs=5 * np.sqrt(0.25 / len(x)))


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
@pytest.mark.parametrize("seed", range(5))
def test_finds_a_hundred_gaussians(covariance_type, seed):
    _, x, _ = simulate(100, 8, 100_000, seed, separation=12.0, rotated=covariance_type == "full")
    assert abs(DPMixture(covariance_type=covariance_type, random_state=seed).fit(x).n_components_ - 100) <= 5


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
@pytest.mark.parametrize("seed", range(5))
def test_finds_twenty_gaussians_in_a_hundred_thousand_samples(covariance_type, seed):
    _, x, y = simulate(20, 16, 100_000, seed, rotated=covariance_type == "full")
    model = DPMixture(covariance_type=covariance_type, random_state=seed).fit(x)
    assert abs(model.n_components_ - 20) <= 1
    assert adjusted_rand_score(y, model.labels_) >= 0.98
    assert len(model.history_) <= 15  # on all data, from what was found on a sample


def test_pixels_are_clustered_in_their_own_unit():
    """Digits without any network: pixels at the edge, which are nearly always black, must not be as loud as the others."""
    digits = load_digits()
    scores = [adjusted_rand_score(digits.target, DPMixture(random_state=seed).fit(digits.data).labels_) for seed in range(3)]
    assert np.median(scores) > 0.6, scores
