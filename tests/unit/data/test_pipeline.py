"""From what users pass to what a network sees."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfTransformer

from diva import DIVA, load
from diva.data import ArraySource, InputPipeline
from diva.data.pipeline import PreparedSource, fit_preparation


class Model(BaseEstimator):
    pass


class Counted:
    """A source that counts how often each sample was read."""

    def __init__(self, values):
        self.values, self.n_reads = values, np.zeros(len(values), int)

    def __len__(self):
        return len(self.values)

    @property
    def item_shape(self):
        return self.values.shape[1:]

    def take(self, index):
        np.add.at(self.n_reads, index, 1)
        return self.values[index]


RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 5)) * 3 + 7
PIXELS = RNG.integers(0, 256, (20, 6, 4), dtype=np.uint8)
COUNTS = RNG.poisson(0.7, (40, 5))


@pytest.mark.parametrize(
    ("values", "options", "n_reads"),
    [
        (ROWS, {}, 1),
        (PIXELS, {}, 1),
        (PIXELS.reshape(20, -1), {"image_shape": (6, 4)}, 1),
        (ROWS, {"n_axes": 2}, 2),
        (COUNTS, {"tfidf": True}, 2),
        (COUNTS, {"tfidf": True, "n_axes": 2}, 3),
    ],
)
def test_samples_are_read_once_for_every_step_that_needs_the_one_before(values, options, n_reads):
    source = Counted(values)
    InputPipeline.fit(Model(), source, **options)
    assert source.n_reads.tolist() == [n_reads] * len(values)


@pytest.mark.parametrize("values", [ROWS, PIXELS])
def test_new_samples_are_read_once(values):
    model = Model()
    pipeline, _ = InputPipeline.fit(model, values)
    source = Counted(values)
    pipeline.open(model, source)
    assert np.delete(source.n_reads, 0).tolist() == [1] * (len(values) - 1)  # of the first one the dtype is asked for


@pytest.mark.parametrize("options", [{}, {"n_axes": 2}])
def test_what_is_not_finite_is_found_in_that_pass(options):
    model = Model()
    pipeline, _ = InputPipeline.fit(model, ROWS, **options)
    bad = np.where(np.arange(40)[:, None] == 17, np.nan, ROWS)
    for read in (lambda: InputPipeline.fit(Model(), bad, **options), lambda: pipeline.open(model, bad)):
        with pytest.raises(ValueError, match=r"contains NaN \(sample 17, number 0\). Model does not accept"):
            read()


@pytest.mark.parametrize(
    ("values", "options"),
    [(ROWS, {}), (PIXELS, {}), (ROWS, {"n_axes": 3}), (COUNTS, {"tfidf": True}), (COUNTS, {"tfidf": True, "n_axes": 2})],
)
def test_a_pipeline_comes_back_from_its_archive(values, options):
    model = Model()
    pipeline, samples = InputPipeline.fit(model, values, **options)
    assert samples.source.item_shape == pipeline.prepared_shape
    again = InputPipeline.from_archive(*pipeline.to_archive())
    index = np.arange(len(values))
    assert torch.equal(again.open(model, values).take(index), samples.take(index))


@pytest.mark.parametrize(
    "change",
    [
        {"input_shape": [2.0]},
        {"item_shape": [4]},
        {"item_shape": []},
        {"channels_last": 1},
        {"input_shape": [4]},
    ],
)
def test_archives_that_do_not_fit_together(change):
    document, tensors = InputPipeline.fit(Model(), ROWS)[0].to_archive()
    with pytest.raises((TypeError, ValueError)):
        InputPipeline.from_archive(document | change, tensors)


def test_network_output_in_the_units_of_the_data():
    for values in (ROWS, PIXELS):
        pipeline, samples = InputPipeline.fit(Model(), values)
        np.testing.assert_allclose(pipeline.to_raw(samples.take(np.arange(len(values)))), values, rtol=1e-5, atol=1e-4)
    pipeline, samples = InputPipeline.fit(Model(), ROWS, n_axes=5)
    np.testing.assert_allclose(pipeline.to_raw(samples.take(np.arange(40))), ROWS, rtol=1e-4)


def test_a_source_of_images_in_the_wrong_units():
    model = Model()
    pipeline, _ = InputPipeline.fit(model, PIXELS)
    with pytest.raises(ValueError, match="from 0 to 255 as in fit"):
        pipeline.open(model, ArraySource(PIXELS * 1000.0))


# --- rows are prepared the same way when they are fitted, asked about, and after loading


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
