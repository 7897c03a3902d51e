"""Parts of data sets that keep the shares of classes."""

import numpy as np

from diva.data import ArraySource
from diva.experiments.data import load_labelled, taken


def test_a_part_keeps_the_shares_of_classes():
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    x, y = taken(ArraySource(np.arange(1000)[:, None]), labels, 100, np.random.default_rng(0))
    assert np.bincount(y).tolist() == [60, 30, 10]
    assert len(np.unique(x)) == 100
    np.testing.assert_array_equal(labels[x[:, 0]], y)


def test_all_of_it_stays_in_order():
    x, y = taken(ArraySource(np.arange(5)[:, None]), np.arange(5), 7, np.random.default_rng(0))
    assert x[:, 0].tolist() == y.tolist() == [0, 1, 2, 3, 4]


def test_seeds_draw_other_parts():
    a, b, again = (load_labelled("digits", 50, seed=seed) for seed in (0, 1, 0))
    assert not np.array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.x, again.x)
    assert not a.has_split
    assert a.x is a.x_test


def test_first_classes_alone():
    few = load_labelled("gaussians-4-3", 80, 40).with_classes(2)
    assert set(few.y) == set(few.y_test) == {0, 1}
    assert few.has_split
