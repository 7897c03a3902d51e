"""Kumaraswamy's distribution against numerical integration, and sticks against a loop."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import beta as beta_function
from scipy.stats import beta as beta_distribution
from scipy.stats import kstest

from diva.networks import kumaraswamy


def density(v, a, b):
    return a * b * v ** (a - 1) * (1 - v**a) ** (b - 1)


CASES = pytest.mark.parametrize(("a", "b"), [(1.0, 3.0), (2.0, 5.0), (0.7, 1.3), (3.0, 0.9)])


def tensors(*values):
    return [torch.tensor([[value]], dtype=torch.float64) for value in values]


@CASES
def test_mean(a, b):
    expected = quad(lambda v: v * density(v, a, b), 0, 1)[0]
    assert float(kumaraswamy.mean(*tensors(a, b))) == pytest.approx(expected, rel=1e-6)


@CASES
def test_divergence_from_a_beta(a, b):
    def integrand(v):
        return density(v, a, b) * (np.log(density(v, a, b)) - beta_distribution.logpdf(v, 1, 5))

    m = np.arange(11, 200_000)
    left_out = (5 - 1) * b * (beta_function(m / a, b) / (m + a * b)).sum()  # by a series of ten terms
    expected = quad(integrand, 0, 1)[0] - left_out
    assert float(kumaraswamy.kl_to_beta(*tensors(a, b), 1.0, 5.0)) == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_a_beta_is_no_distance_from_itself():
    assert float(kumaraswamy.kl_to_beta(*tensors(1.0, 1.0), 1.0, 1.0)) == pytest.approx(0, abs=1e-9)


@CASES
def test_draws(a, b):
    a_many, b_many = (torch.full((20_000, 1), value, dtype=torch.float64) for value in (a, b))
    v = kumaraswamy.draw(a_many, b_many, torch.Generator().manual_seed(0)).numpy()[:, 0]
    assert 0 < v.min() < v.max() < 1
    assert kstest(v, lambda x: 1 - (1 - x**a) ** b).statistic < 0.02  # one hundredth is left out on either side


def test_segments_are_what_is_broken_off_one_after_the_other():
    v = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    expected = torch.empty(6, 4)
    for i in range(6):
        left = 1.0
        for k in range(4):
            expected[i, k] = v[i, k] * left
            left = left * (1 - v[i, k])
    torch.testing.assert_close(kumaraswamy.log_segments(v).exp(), expected)


def test_sticks_of_nothing_and_of_all_have_finite_segments():
    v = torch.tensor([[0.0, 1.0, 0.5]], requires_grad=True)
    segments = kumaraswamy.log_segments(v)
    segments.sum().backward()
    assert bool(segments.isfinite().all())
    assert bool(v.grad.isfinite().all())
