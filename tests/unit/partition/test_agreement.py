import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_moons
from sklearn.metrics import mutual_info_score

from diva.partition.agreement import coarsened, neighbour_information

MOONS, OF_MOON = make_moons(400, noise=0.05, random_state=0)


def information(flow):
    """The slow clear version."""
    ends = flow.sum(axis=0)
    return sum(value * np.log(value / (ends[i] * ends[j])) for (i, j), value in np.ndenumerate(flow) if value > 0)


def joined(flow, i, j):
    member = np.delete(np.eye(len(flow)), j, axis=1)
    member[j, i] = 1.0
    return member.T @ flow @ member


def random_flow(n, seed):
    flow = np.random.default_rng(seed).random((n, n)) ** 4 + 2 * np.eye(n)
    return (flow + flow.T) / (2 * flow.sum())


def test_clusters_that_are_apart_tell_all():
    assert neighbour_information(MOONS, OF_MOON) == pytest.approx([mutual_info_score(OF_MOON, OF_MOON)])


def test_names_of_clusters_do_not_matter():
    assert neighbour_information(MOONS, OF_MOON) == neighbour_information(MOONS, np.where(OF_MOON, -7, 1000))


def test_clusters_by_chance_tell_nothing():
    by_chance = np.random.default_rng(0).integers(3, size=len(MOONS))
    assert neighbour_information(MOONS, by_chance)[0] < 0.02


@pytest.mark.parametrize("n", [1, 50])
def test_one_cluster_tells_nothing(n):
    assert neighbour_information(MOONS[:n], np.zeros(n, dtype=int)) == [0.0]


def test_one_cluster_does_not_make_others_coarser():
    assert neighbour_information(MOONS, np.zeros(len(MOONS)), OF_MOON)[1] > 0.6


def test_a_few_samples_apart_tell_less_than_clusters():
    """However clear the cut: otherwise one outlier in a cluster of its own would be the best clustering of all."""
    X, y = make_blobs(600, centers=8, random_state=0, center_box=(-40, 40))
    far = np.arange(600) < 12
    trivial, full = neighbour_information(np.where(far[:, None], X + 1000, X), far, y)
    assert trivial < full / 2


def test_the_finer_partition_is_judged_at_the_number_of_the_coarser():
    X, y = make_blobs(600, centers=4, random_state=0, center_box=(-20, 20))
    halves = np.where(X[:, 0] > np.median(X[:, 0]), 4, 0) + y
    fine, own = neighbour_information(X, halves, y)
    assert fine == pytest.approx(own, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_each_step_loses_least(seed):
    flow = random_flow(7, seed)
    best = max(information(joined(flow, i, j)) for j in range(7) for i in range(j))
    assert information(coarsened(flow, 6)) == pytest.approx(best)


def test_all_in_one_is_all_there_is():
    assert coarsened(random_flow(5, 0), 1) == pytest.approx(np.ones((1, 1)))
