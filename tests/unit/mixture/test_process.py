"""A draw from a Dirichlet process, against what is known of its moments."""

import numpy as np
import pytest

from diva.mixture import draw_dirichlet_process


def test_weights_are_a_distribution_and_atoms_come_from_the_base():
    atoms, weights = draw_dirichlet_process(5.0, random_state=0)
    assert atoms.shape == weights.shape
    assert (weights > 0).all()
    assert weights.sum() == pytest.approx(1.0)
    places, shares = draw_dirichlet_process(5.0, lambda n, rng: rng.uniform(3, 4, size=(n, 2)), random_state=0)
    assert places.shape == (len(shares), 2)
    assert places.min() >= 3
    assert places.max() <= 4


def test_the_same_seed_gives_the_same_draw():
    for one, other in zip(draw_dirichlet_process(random_state=3), draw_dirichlet_process(random_state=3), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("concentration", [0.5, 5.0, 30.0])
def test_moments(concentration):
    """G(A) ~ Beta(a H(A), a (1 - H(A))) for any set A, here the negative half; two draws of G are equal with 1 / (1 + a)."""
    n, rng = 2000, np.random.RandomState(0)
    drawn = [draw_dirichlet_process(concentration, random_state=rng) for _ in range(n)]
    half = np.array([weights[atoms < 0].sum() for atoms, weights in drawn])
    variance = 0.25 / (1 + concentration)
    assert abs(half.mean() - 0.5) < 4 * np.sqrt(variance / n)
    assert half.var() == pytest.approx(variance, rel=0.12)
    equal = np.array([(weights**2).sum() for _, weights in drawn])
    assert abs(equal.mean() - 1 / (1 + concentration)) < 4 * equal.std() / np.sqrt(n)
    first = np.array([weights[0] for _, weights in drawn])  # a stick: Beta(1, a)
    assert abs(first.mean() - 1 / (1 + concentration)) < 4 * first.std() / np.sqrt(n)


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"concentration": 0}, "concentration"),
        ({"concentration": "a"}, "concentration"),
        ({"rest": 0}, "rest"),
        ({"rest": 1}, "rest"),
    ],
)
def test_what_makes_no_sense_is_named(params, name):
    with pytest.raises(ValueError, match=f"{name} should be"):
        draw_dirichlet_process(**params)
