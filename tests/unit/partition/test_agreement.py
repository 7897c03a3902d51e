import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_moons

from diva.partition.agreement import neighbour_agreement

MOONS, OF_MOON = make_moons(400, noise=0.05, random_state=0)


def test_clusters_that_are_apart_agree_with_neighbours():
    assert neighbour_agreement(MOONS, OF_MOON) == 1.0


def test_names_of_clusters_do_not_matter():
    assert neighbour_agreement(MOONS, np.where(OF_MOON, -7, 1000)) == 1.0


def test_clusters_by_chance_do_not_agree():
    by_chance = np.random.default_rng(0).integers(3, size=len(MOONS))
    assert neighbour_agreement(MOONS, by_chance) == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("n", [1, 50])
def test_one_cluster_tells_nothing(n):
    assert neighbour_agreement(MOONS[:n], np.zeros(n, dtype=int)) == 0.0


def test_a_cut_through_a_cluster_agrees_less():
    X, y = make_blobs(600, centers=3, random_state=0, center_box=(-20, 20))
    cut = np.where((y == 0) & (X[:, 0] > np.median(X[y == 0, 0])), 3, y)
    assert neighbour_agreement(X, cut) < neighbour_agreement(X, y) - 0.02
