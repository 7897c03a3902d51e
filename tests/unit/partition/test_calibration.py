"""Probabilities that are as sure as nearest neighbours are alike."""

import numpy as np
import pytest

from diva.partition.calibration import N_ASKED, neighbour_temperature, tempered


def two_kinds(n, sharpness, rng):
    """Points on a line, and probabilities of two clusters that a slope of ``sharpness`` gives them."""
    points = rng.normal(size=(n, 1))
    right = 1 / (1 + np.exp(-np.clip(sharpness * points[:, 0], -500, 500)))
    return points, np.stack([1 - right, right], axis=1)


@pytest.mark.parametrize("n", [300, 3 * N_ASKED])
def test_what_is_too_sure_becomes_as_sure_as_neighbours_are(n):
    rng = np.random.default_rng(0)
    points, proba = two_kinds(n, 3.0, rng)
    in_noise = np.column_stack([points, 3 * rng.normal(size=(n, 12))])  # neighbours are not near on the line
    warm = neighbour_temperature(in_noise, proba)
    assert warm > 1.5
    for factor in (2.0, 10.0):  # however sharp the probabilities were, they come out the same
        sharp = tempered(proba, 1 / factor)
        assert neighbour_temperature(in_noise, sharp) == pytest.approx(factor * warm, rel=0.01)


def test_probabilities_that_neighbours_do_not_contradict_stay():
    points, proba = two_kinds(400, 3.0, np.random.default_rng(1))
    assert neighbour_temperature(np.where(points > 0, 10 + points, points), proba) == 1.0


def test_copies_and_weights_say_the_same():
    rng = np.random.default_rng(2)
    points, proba = two_kinds(200, 30.0, rng)
    points = np.column_stack([points, rng.normal(size=(200, 8))])
    weights = rng.integers(0, 4, size=200)
    weighed = neighbour_temperature(points, proba, weights)
    assert weighed > 1.5
    assert neighbour_temperature(np.repeat(points, weights, axis=0), np.repeat(proba, weights, axis=0)) == weighed


@pytest.mark.parametrize("n", [0, 1])
def test_without_neighbours_nothing_changes(n):
    assert neighbour_temperature(np.zeros((n, 2)), np.full((n, 3), 1 / 3)) == 1.0


def test_one_cluster_is_certain():
    points = np.random.default_rng(0).normal(size=(50, 2))
    assert neighbour_temperature(points, np.ones((50, 1))) == 1.0


def test_a_temperature_changes_no_order():
    proba = np.random.default_rng(0).dirichlet(np.ones(5), size=100)
    for temperature in (1.0, 3.0, 1e6):
        warm = tempered(proba, temperature)
        np.testing.assert_allclose(warm.sum(axis=1), 1.0)
        np.testing.assert_array_equal(warm.argsort(axis=1), proba.argsort(axis=1))
