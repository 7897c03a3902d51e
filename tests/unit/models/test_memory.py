"""What a model remembers beside mixture and networks: here, samples that wait."""

import numpy as np

from diva.data import ArraySource
from diva.models.memory import LEARN_FROM, Window


def source(*values):
    return ArraySource(np.array(values, dtype=np.float32)[:, None])


def test_a_window_holds_what_came():
    window = Window.empty().after(source(1, 2), np.array([True, False])).after(source(3), np.array([True]))
    np.testing.assert_array_equal(window.values[:, 0], [1, 2, 3])
    np.testing.assert_array_equal(window.novel, [True, False, True])


def test_learning_needs_many_samples_and_many_novel_ones():
    waiting = Window.empty().after(source(*range(200)), np.zeros(200, bool))
    n = LEARN_FROM - 200
    assert waiting.judge(source(*range(n)), np.arange(n) < LEARN_FROM // 5) == "learn"
    assert waiting.judge(source(*range(n)), np.arange(n) < LEARN_FROM // 20) == "known"
    assert waiting.judge(source(*range(n - 1)), np.ones(n - 1, bool)) == "wait"


def test_few_large_samples_are_enough():
    large = ArraySource(np.zeros((2, 9_000_000), dtype=np.float32))
    assert Window.empty().judge(large, np.ones(2, bool)) == "learn"
