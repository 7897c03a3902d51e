import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from diva.partition.isotonic import optimism, valley_log_ratio

histograms = st.lists(st.integers(0, 30), min_size=2, max_size=12).map(lambda counts: np.array(counts, dtype=float))


def log_likelihood(counts, density):
    return float(np.sum(counts[counts > 0] * np.log(density[counts > 0])))


def best(counts, *, rising):
    if len(counts) == 0:
        return 0.0
    return log_likelihood(counts, isotonic_regression(counts, increasing=rising).x)


@given(histograms)
def test_it_is_the_ratio_that_isotonic_regression_gives(counts):
    """For counts, isotonic least squares and maximum likelihood are the same (Robertson et al. 1988, theorem 1.5.2)."""
    valley = max(best(counts[:i], rising=False) + best(counts[i:], rising=True) for i in range(len(counts) + 1))
    one = max(best(counts, rising=False), best(counts, rising=True))
    assert valley_log_ratio(counts) == pytest.approx(valley - one, abs=1e-9)


@given(histograms)
def test_a_histogram_read_backwards_has_the_same_valley(counts):
    assert valley_log_ratio(counts) == pytest.approx(valley_log_ratio(counts[::-1]), abs=1e-9)


def test_what_only_falls_has_no_valley():
    assert valley_log_ratio(np.array([8.0, 5.0, 5.0, 1.0, 0.0])) == 0.0


@pytest.mark.parametrize("n_samples", [20, 300])
def test_noise_gains_less_than_the_optimism_on_the_mean(n_samples):
    draws = np.random.default_rng(1).multinomial(n_samples, np.full(24, 1 / 24), 200)
    gains = np.array([valley_log_ratio(counts.astype(float)) for counts in draws])
    assert gains.mean() == pytest.approx(optimism(n_samples, 24) / 2, abs=0.4)
    assert np.mean(gains > optimism(n_samples, 24)) < 0.15
