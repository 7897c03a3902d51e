import numpy as np
import pytest

from diva.data import ArraySource, sources
from diva.data.sources import parts_of
from diva.data.statistics import FeatureMoments, Range, read_through


def rng():
    return np.random.default_rng(0)


def measured(X):
    span, moments = Range(), FeatureMoments()
    read_through(ArraySource(X), span, moments)
    return (span.lowest, span.highest), (moments.mean, moments.deviation)


def test_moments_do_not_cancel():
    X = rng().normal(size=(200, 3)) + 1e8
    _, (mean, deviation) = measured(X)
    np.testing.assert_allclose(mean, X.mean(0), rtol=1e-12)
    np.testing.assert_allclose(deviation, (X - 1e8).std(0), rtol=1e-6)


@pytest.mark.parametrize("n_numbers", [1, 7, 40, 10_000])
def test_parts_do_not_matter(monkeypatch, n_numbers):
    X = rng().normal(size=(23, 3))
    whole = measured(X)
    monkeypatch.setattr(sources, "NUMBERS_AT_ONCE", n_numbers)
    parts = list(parts_of(ArraySource(X)))
    np.testing.assert_array_equal(np.concatenate(parts), X)
    assert max(part.size for part in parts) <= max(3, n_numbers)
    again = measured(X)
    assert again[0] == whole[0] == (X.min(), X.max())
    np.testing.assert_allclose(again[1], whole[1])
    np.testing.assert_allclose(whole[1], [X.mean(0), X.std(0)])
