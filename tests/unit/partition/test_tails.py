"""A core and its tails, or two."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, multivariate_t

from diva.partition import valleys
from diva.partition.tails import _log_likelihood_of_gaussians, _log_likelihood_of_t, evidence_against_tails
from diva.partition.valleys import Components, group_by_valleys

CORE_AND_TAILS = np.array([0.8, 0.2]), np.zeros((2, 2)), np.array([np.eye(2), 9 * np.eye(2)])


def drawn_from_t(n=600, degrees=3.0, seed=0):
    return multivariate_t(shape=np.array([[1.0, 0.5], [0.5, 2.0]]), df=degrees, seed=seed).rvs(n)


def test_gaussians_are_those_of_scipy():
    points, weights = drawn_from_t(50), np.linspace(0.5, 2.0, 50)
    shares, means, covariances = CORE_AND_TAILS
    pairs = list(zip(means, covariances, strict=True))
    density = sum(share * multivariate_normal(*pair).pdf(points) for share, pair in zip(shares, pairs, strict=True))
    assert _log_likelihood_of_gaussians(points, weights, *CORE_AND_TAILS) == pytest.approx(weights @ np.log(density))


def test_the_best_t_distribution_is_at_least_as_likely_as_that_which_was_drawn_from():
    points = drawn_from_t()
    truth = multivariate_t(shape=np.array([[1.0, 0.5], [0.5, 2.0]]), df=3.0).logpdf(points).sum()
    found = _log_likelihood_of_t(points, np.ones(len(points)), is_diagonal=False)
    assert truth <= found <= truth + 10  # six numbers were fitted


def test_a_weight_counts_like_a_repetition():
    points = drawn_from_t(100)
    weighted = evidence_against_tails(points, np.full(100, 2.0), *CORE_AND_TAILS)
    assert weighted == pytest.approx(evidence_against_tails(np.repeat(points, 2, axis=0), np.ones(200), *CORE_AND_TAILS))


@pytest.mark.parametrize("seed", range(5))
def test_tails_are_no_cluster(seed):
    assert evidence_against_tails(drawn_from_t(seed=seed), np.ones(600), *CORE_AND_TAILS) < 0


@pytest.mark.parametrize("seed", range(5))
def test_what_is_beside_is_no_tail(seed):
    rng = np.random.default_rng(seed)
    points = np.concatenate([rng.normal(size=(500, 2)), rng.normal([3.0, 0.0], 2.5, size=(300, 2))])
    two = np.array([5 / 8, 3 / 8]), np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([np.eye(2), 6.25 * np.eye(2)])
    assert evidence_against_tails(points, np.ones(800), *two) > 0


def test_without_samples_there_is_no_evidence():
    assert evidence_against_tails(np.empty((0, 2)), np.empty(0), *CORE_AND_TAILS) == -np.inf


def test_diagonal_covariances_say_the_same_of_one_feature():
    points = drawn_from_t()[:, :1]
    shares, means, covariances = CORE_AND_TAILS
    full = evidence_against_tails(points, np.ones(600), shares, means[:, :1], covariances[:, :1, :1])
    diagonal = evidence_against_tails(points, np.ones(600), shares, means[:, :1], covariances[:, :1, 0])
    assert full == pytest.approx(diagonal)


@pytest.mark.parametrize("is_diagonal", [True, False])
def test_points_that_do_not_fill_their_space_are_no_evidence(is_diagonal):
    shares, means, covariances = CORE_AND_TAILS
    covariances = np.ones((2, 2)) if is_diagonal else covariances
    flat = np.column_stack([np.arange(10.0), np.zeros(10)])
    assert evidence_against_tails(flat, np.ones(10), shares, means, covariances) == -np.inf


@pytest.mark.parametrize("is_looked_for", [True, False])
def test_a_cluster_with_heavy_tails_beside_others_is_one(is_looked_for, monkeypatch):
    rng = np.random.default_rng(0)
    heavy = drawn_from_t(800, 2.0)
    others = [rng.normal(centre, 1.0, size=(200, 2)) for centre in ([40.0, 0.0], [0.0, 40.0])]
    points = np.concatenate([heavy, *others])
    means = np.array([[0.0, 0.0], [3.0, 3.0], [40.0, 0.0], [0.0, 40.0]])
    covariances = np.array([np.eye(2), 20 * np.eye(2), np.eye(2), np.eye(2)])
    scores = np.stack([multivariate_normal(*pair).logpdf(points) for pair in zip(means, covariances, strict=True)], axis=1)
    resp = np.exp(scores - scores.max(axis=1, keepdims=True))
    components = Components(means, covariances, points, resp / resp.sum(axis=1, keepdims=True))
    if not is_looked_for:
        monkeypatch.setattr(valleys, "evidence_against_tails", lambda *_: np.inf)
    assert group_by_valleys(components).n_groups == (3 if is_looked_for else 4)


@pytest.mark.parametrize("light", [0.0, 1e-300, 1e-24])
def test_one_sample_that_holds_all_the_weight_is_no_evidence(light):
    shares, means, covariances = CORE_AND_TAILS
    points = drawn_from_t(20)
    for some in (covariances, np.ones((2, 2))):
        assert evidence_against_tails(points, np.array([1e6, *[light] * 19]), shares, means, some) == -np.inf
