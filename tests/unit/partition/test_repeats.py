"""Clusters that come again in other fits."""

import numpy as np
import pytest

from diva.partition.repeats import recurrence


def test_names_do_not_matter():
    labels = np.random.default_rng(0).integers(4, size=100)
    np.testing.assert_allclose(recurrence(labels, [7 - labels, labels]), 1.0)


def test_what_is_joined_and_what_is_parted_both_tell():
    labels = np.repeat([2, 5], [30, 10])
    joined, parted = np.zeros(40, dtype=int), np.repeat([0, 1, 2], [20, 10, 10])
    np.testing.assert_allclose(recurrence(labels, [joined]), [30 / 40, 10 / 40])
    np.testing.assert_allclose(recurrence(labels, [parted]), [20 / 30, 1.0])
    np.testing.assert_allclose(recurrence(labels, [joined, parted]), [(30 / 40 + 20 / 30) / 2, (10 / 40 + 1) / 2])


@pytest.mark.parametrize("n_clusters", [2, 5])
def test_chance_is_far_from_one(n_clusters):
    rng = np.random.default_rng(1)
    labels, others = rng.integers(n_clusters, size=500), rng.integers(n_clusters, size=(3, 500))
    assert recurrence(labels, others).max() < 0.5
