import numpy as np
import pytest

from diva.partition.walk import Walk, neighbour_walk


def test_flow_of_a_weighted_walk():
    walk = Walk(np.eye(2), np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([2.0, 1.0]))
    np.testing.assert_allclose(walk.flow, np.array([[2.0, 1.0], [1.0, 2.0]]) / 6)
    np.testing.assert_allclose(walk.overlap, np.diag([2.0, 1.0]) / 3)


def test_resampling_draws_samples():
    walk = Walk(np.eye(5), np.eye(5))
    again = walk.resampled(np.random.default_rng(0))
    assert again.weights.sum() == 5
    np.testing.assert_allclose(np.diag(again.flow), again.weights / 5)
    assert walk.weights is None


@pytest.mark.parametrize("n_samples", [1, 2, 5])
def test_neighbour_walk_of_few_samples(n_samples):
    resp = np.eye(5)[:n_samples]
    moved = neighbour_walk(np.arange(n_samples)[:, None], resp, n_neighbors=10).resp_moved
    others = (resp.sum(axis=0) - resp) / max(n_samples - 1, 1)
    np.testing.assert_allclose(moved, others if n_samples > 1 else resp)


def test_neighbour_walk_goes_to_the_nearest():
    walk = neighbour_walk([[0.0], [1.0], [3.0]], np.eye(3), n_neighbors=1)
    np.testing.assert_array_equal(walk.resp_moved, np.eye(3)[[1, 0, 1]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Walk(np.ones(3), np.ones(3)), r"\(n_samples, n_components\)"),
        (lambda: Walk(np.ones((0, 3)), np.ones((0, 3))), "none of them 0"),
        (lambda: Walk(np.ones((2, 3)), np.ones((3, 3))), "shape of resp"),
        (lambda: Walk(np.full((2, 2), np.nan), np.ones((2, 2))), "finite"),
        (lambda: Walk(np.ones((2, 2)), -np.ones((2, 2))), "not negative"),
        (lambda: Walk(np.ones((2, 2)), np.ones((2, 2)), np.ones(3)), "weights should have shape"),
        (lambda: Walk(np.ones((2, 2)), np.ones((2, 2)), np.zeros(2)), "not all 0"),
        (lambda: Walk(np.ones((2, 2)), np.zeros((2, 2))).flow, "no flow"),
        (lambda: neighbour_walk(np.ones((3, 1)), np.ones((2, 1))), "points and resp"),
        (lambda: neighbour_walk(np.ones((3, 1)), np.ones((3, 1)), n_neighbors=0), "at least 1"),
    ],
)
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()
