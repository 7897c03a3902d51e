import numpy as np

from diva.data import make_gaussian_mixture


def test_weights_and_separation_are_as_asked():
    truth = make_gaussian_mixture(500, 10, np.random.default_rng(0), separation=7.0, imbalance=10.0)
    assert np.isclose(truth.weights.max() / truth.weights.min(), 10.0)
    distances = np.linalg.norm(truth.means[:, None] - truth.means[None], axis=-1)
    assert np.isclose(np.sqrt((distances[np.triu_indices(500, 1)] ** 2).mean()), 7.0, rtol=0.05)


def test_rotated_samples_have_the_stated_covariance():
    rng = np.random.default_rng(0)
    truth = make_gaussian_mixture(1, 3, rng, rotated=True)
    x, y = truth.sample(200_000, rng)
    expected = truth.axes[0] @ np.diag(truth.scales[0] ** 2) @ truth.axes[0].T
    np.testing.assert_allclose(np.cov(x.T), expected, atol=0.03)
    assert x.dtype == np.float32
    assert set(y) == {0}


def test_best_labels_are_right_where_groups_are_far_apart():
    rng = np.random.default_rng(0)
    truth = make_gaussian_mixture(5, 8, rng, separation=60.0, rotated=True)
    x, y = truth.sample(2000, rng)
    assert (truth.best_labels(x) == y).mean() > 0.999
