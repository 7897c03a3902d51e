"""Rows are prepared the same way when they are fitted, asked about, and after loading."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfTransformer

from diva import DIVA, load
from diva.data import ArraySource
from diva.data.preparation import PreparedSource, fit_preparation


@pytest.fixture
def counts() -> np.ndarray:
    return np.random.default_rng(0).poisson(0.7, size=(120, 30))


def prepared(values: np.ndarray, **steps) -> np.ndarray:
    source = ArraySource(values)
    return PreparedSource(source, fit_preparation(source, **steps)).take(np.arange(len(values)))


def test_tfidf_is_that_of_scikit_learn(counts):
    expected = TfidfTransformer(sublinear_tf=True).fit_transform(counts).toarray()
    np.testing.assert_allclose(prepared(counts, tfidf=True, n_axes=None), expected, rtol=1e-5, atol=1e-6)


def test_principal_axes_are_those_of_scikit_learn(monkeypatch):
    monkeypatch.setattr("diva.data.sources.NUMBERS_AT_ONCE", 100)  # several parts
    x = np.random.default_rng(0).normal(size=(200, 12)) * np.arange(1, 13) + 1000
    expected = PCA(5).fit_transform(x)
    found = prepared(x, tfidf=False, n_axes=5)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-3, atol=1e-3)


def test_all_axes_can_be_undone():
    x = np.random.default_rng(0).normal(size=(50, 6))
    source = ArraySource(x)
    steps = fit_preparation(source, tfidf=False, n_axes=6)
    np.testing.assert_allclose(steps.undo(steps.apply(x)), x, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "steps", "said"),
    [
        (np.full((5, 3), 0.5), {"tfidf": True, "n_axes": None}, "counts of words"),
        (np.full((5, 3), -1.0), {"tfidf": True, "n_axes": None}, "counts of words"),
        (np.zeros((5, 3)), {"tfidf": False, "n_axes": 4}, "pca=4 is more"),
        (np.zeros((5, 4, 4)), {"tfidf": False, "n_axes": 2}, "rows of numbers"),
        (np.zeros((5, 20_000)), {"tfidf": False, "n_axes": 2}, "at most 10,000"),
    ],
)
def test_what_cannot_be_prepared_is_refused(values, steps, said):
    with pytest.raises(ValueError, match=said):
        fit_preparation(ArraySource(values), **steps)


def test_a_loaded_model_prepares_alike(counts, tmp_path):
    model = DIVA(tfidf=True, pca=8, n_epochs=2, latent_dim=2, hidden_sizes=(16,), random_state=0).fit(counts)
    model.save(tmp_path / "model.diva")
    same = load(tmp_path / "model.diva")
    np.testing.assert_array_equal(same.transform(counts), model.transform(counts))
    assert model.reconstruct(counts).shape == counts.shape
    assert same.sample(3)[0].shape == (3, 30)
    assert model.n_features_in_ == 30
    with pytest.raises(ValueError, match="features"):
        same.predict(counts[:, :8])
