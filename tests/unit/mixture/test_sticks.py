import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diva.mixture.sticks import expected_weights, stick_bound, stick_gain_of_joining, stick_posterior

masses = st.lists(st.floats(0.0, 1e4), min_size=2, max_size=8).map(lambda xs: torch.tensor(xs, dtype=torch.float64))
alphas = st.sampled_from([0.1, 1.0, 5.0, 30.0])


def test_posterior_by_hand():
    eta1, eta0 = stick_posterior(torch.tensor([4.0, 2.0, 1.0]), alpha=0.5)
    assert eta1.tolist() == [5.0, 3.0, 2.0]
    assert eta0.tolist() == [3.5, 1.5, 0.5]


def test_posterior_works_for_many_mixtures_at_once():
    counts = torch.tensor([[4.0, 2.0], [1.0, 3.0]])
    for row, eta0 in zip(counts, stick_posterior(counts, 1.0)[1], strict=True):
        assert torch.equal(stick_posterior(row, 1.0)[1], eta0)


def test_rounding_never_makes_a_beta_parameter_negative():
    counts = torch.tensor([1e16, 1.0, 1e-9, 0.0], dtype=torch.float64)
    assert all((eta >= 1e-3).all() for eta in stick_posterior(counts, 1e-3))


def test_without_data_weights_are_the_prior_s():
    weights = expected_weights(*stick_posterior(torch.zeros(3, dtype=torch.float64), alpha=1.0))
    assert weights.tolist() == [0.5, 0.25, 0.125, 0.125]


@given(masses, alphas)
def test_no_order_is_better_than_that_of_falling_mass(counts, alpha):
    best = stick_bound(counts.sort(descending=True).values, alpha)
    assert stick_bound(counts, alpha) <= best + 1e-9 * (1 + best.abs())
    assert stick_bound(counts.flip(0), alpha) <= best + 1e-9 * (1 + best.abs())


@given(masses, alphas)
def test_an_empty_component_costs_nothing(counts, alpha):
    """Its stick keeps the prior: truncation is not a choice of the model."""
    with_empty = torch.cat([counts, counts.new_zeros(1)])
    torch.testing.assert_close(stick_bound(with_empty, alpha), stick_bound(counts, alpha), rtol=1e-10, atol=1e-10)


@given(masses, alphas)
def test_gain_of_joining_is_the_difference_of_bounds(counts, alpha):
    k = len(counts)
    a, b = torch.triu_indices(k, k, offset=1)
    before = stick_bound(counts.sort(descending=True).values, alpha)
    for i, j, gain in zip(a.tolist(), b.tolist(), stick_gain_of_joining(counts, a, b, alpha), strict=True):
        joined = [float(counts[i] + counts[j]), *(float(c) for other, c in enumerate(counts) if other not in (i, j))]
        after = stick_bound(torch.tensor(sorted(joined, reverse=True), dtype=torch.float64), alpha)
        torch.testing.assert_close(gain, after - before, rtol=1e-9, atol=1e-7)


def test_gain_of_joining_leaves_the_counts_alone():
    counts = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    stick_gain_of_joining(counts, torch.tensor([0]), torch.tensor([1]), 1.0)
    assert counts.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("alpha", [0.1, 5.0])
def test_joining_needs_no_particular_order(alpha):
    counts = torch.tensor([1.0, 7.0, 3.0], dtype=torch.float64)
    one, other = torch.tensor([0]), torch.tensor([2])
    torch.testing.assert_close(
        stick_gain_of_joining(counts, one, other, alpha), stick_gain_of_joining(counts, other, one, alpha)
    )
