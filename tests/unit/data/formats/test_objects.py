"""Objects of other libraries as sources."""

import io

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image
from scipy import sparse
from sklearn.base import BaseEstimator

from diva import DIVA
from diva.data import InputPipeline, Source, SparseSource
from diva.data.formats import objects
from diva.data.formats.objects import StoredSparseSource, source_from_object
from diva.data.validate import open_samples
from diva.exceptions import DataError

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(23, 5)) * (RNG.random((23, 5)) < 0.4)
PIXELS = RNG.integers(0, 256, size=(9, 8, 8), dtype=np.uint8)
TINY = {"latent_dim": 2, "hidden_sizes": (8,), "n_epochs": 2, "n_laps": 1, "n_views": 1, "random_state": 0}


class Model(BaseEstimator):
    """Stands for an estimator."""


def everything(source):
    return source.take(np.arange(len(source)))


def assert_like(source, expected):
    """A source holds what an array does, in whatever order it is asked for."""
    assert isinstance(source, Source)
    assert len(source) == len(expected)
    assert source.item_shape == expected.shape[1:]
    np.testing.assert_array_equal(everything(source), expected)
    for _ in range(20):
        index = RNG.integers(len(expected), size=RNG.integers(0, 30))
        np.testing.assert_array_equal(source.take(index), expected[index])


# --- sparse matrices


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "csc_array", "coo_matrix", "lil_array", "dok_array", "dia_array"])
def test_sparse_rows(kind):
    assert_like(open_samples(Model(), getattr(sparse, kind)(ROWS), reset=True), ROWS)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(bool, np.uint8), (np.uint8, np.uint8), (np.int16, np.float32), (np.float32, np.float32), (np.int64, np.float64)],
)
def test_rows_of_a_sparse_matrix_are_as_small_as_they_can_be(dtype, expected):
    values = (ROWS != 0).astype(dtype)
    source = SparseSource(sparse.csr_array(values))
    assert everything(source).dtype == expected
    assert_like(source, values)


@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix", "coo_array"])
def test_sparse_rows_give_the_same_model(kind):
    data = getattr(sparse, kind)(ROWS)
    model, same = DIVA(**TINY).fit(data), DIVA(**TINY).fit(ROWS)
    np.testing.assert_array_equal(model.labels_, same.labels_)
    for method in ("transform", "predict", "predict_proba", "score_samples"):
        np.testing.assert_array_equal(getattr(model, method)(data), getattr(same, method)(ROWS))
    assert model.n_features_in_ == 5


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (sparse.csr_array(ROWS[:1]), "Found 1 samples while a minimum of 2"),
        (sparse.csr_array(ROWS + 1j), "sparse matrix of numbers, got one of dtype complex128"),
        (sparse.coo_array(ROWS[0]), r"shape \(n_samples, n_features\), got shape \(5,\)"),
        (sparse.csr_array(np.where(ROWS.max() == ROWS, np.nan, ROWS)), "contains NaN"),
        (sparse.csr_array(ROWS * 1e200), "too large to square"),
    ],
)
def test_sparse_matrices_that_cannot_be_used(data, match):
    with pytest.raises(ValueError, match=match):
        InputPipeline.fit(Model(), data)


def test_other_numbers_of_sparse_features():
    model = Model()
    open_samples(model, sparse.csr_array(ROWS), reset=True)
    with pytest.raises(ValueError, match="X has 4 features, but Model is expecting 5"):
        open_samples(model, sparse.csr_array(ROWS[:, :4]), reset=False)


# --- frames


def frame():
    return pd.DataFrame(ROWS, columns=list("abcde"))


@pytest.mark.parametrize("data", [frame(), pl.DataFrame(ROWS, schema=list("abcde"))], ids=["pandas", "polars"])
def test_frames_keep_their_names(data):
    model = Model()
    assert_like(open_samples(model, data, reset=True), ROWS)
    assert model.feature_names_in_.tolist() == list("abcde")


def test_frames_of_other_numbers():
    mixed = pd.DataFrame({"a": [1, 2, 3], "b": [True, False, True], "c": pd.array([1, 2, 3], dtype="Int64")})
    mixed["d"] = np.array([1.5, 2, 3], dtype=object)
    assert_like(open_samples(Model(), mixed, reset=True), mixed.astype(float).to_numpy())
    mixed = pl.DataFrame({"a": [1, 2, 3], "b": [True, False, True], "c": [0.5, 1.5, 2.5]})
    assert_like(open_samples(Model(), mixed, reset=True), np.array([[1, 1, 0.5], [2, 0, 1.5], [3, 1, 2.5]]))


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame({"a": [1.0, 2.0], "word": ["x", "y"], "day": pd.to_datetime(["2020-01-01", "2020-01-02"])}),
        pd.DataFrame({"a": [1.0, 2.0], "word": pd.Categorical([1, 2]), "day": np.array([None, "x"], dtype=object)}),
        pl.DataFrame({"a": [1.0, 2.0], "word": ["x", "y"], "day": [[1], [2]]}),
        pl.DataFrame({"a": [1.0, 2.0], "word": pl.Series(["x", "y"], dtype=pl.Categorical), "day": ["x", "y"]}),
        pa.table({"a": [1.0, 2.0], "word": ["x", "y"], "day": [b"x", b"y"]}),
    ],
    ids=["pandas", "pandas categories", "polars", "polars categories", "arrow"],
)
def test_columns_that_are_no_numbers_are_named(data):
    with pytest.raises(DataError, match="'word', 'day'"):
        open_samples(Model(), data, reset=True)


@pytest.mark.parametrize("data", [make({"a": [1.0, None]}) for make in (pd.DataFrame, pl.DataFrame, pa.table)])
def test_missing_values_in_frames(data):
    with pytest.raises(ValueError, match=r"NaN|no value in row 1"):
        InputPipeline.fit(Model(), data)


def test_a_lazy_frame():
    with pytest.raises(DataError, match="collect"):
        open_samples(Model(), pl.DataFrame(ROWS).lazy(), reset=True)


def test_a_table_of_arrow():
    assert_like(open_samples(Model(), pa.Table.from_pandas(frame()), reset=True), ROWS)


def test_other_objects_are_left_alone():
    assert source_from_object(ROWS) is None
    assert source_from_object([[1, 2]]) is None
    assert source_from_object(frame()) is None


# --- large indices


def test_sparse_rows_with_large_indices():
    data = sparse.csr_array(ROWS)
    data.indices, data.indptr = data.indices.astype(np.int64), data.indptr.astype(np.int64)
    assert_like(SparseSource(data), ROWS)


# --- AnnData


@pytest.fixture(scope="module")
def anndata():
    return pytest.importorskip("anndata", reason="needs the extra anndata")


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix, sparse.csc_matrix], ids=["dense", "rows", "columns"])
def test_anndata(make, anndata):
    data = anndata.AnnData(make(ROWS.astype(np.float32)))
    assert_like(open_samples(Model(), data, reset=True), ROWS.astype(np.float32))
    assert_like(open_samples(Model(), data[3:9], reset=True), ROWS[3:9].astype(np.float32))


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix, sparse.csc_matrix], ids=["dense", "rows", "columns"])
def test_anndata_that_stays_in_its_file(make, anndata, tmp_path, monkeypatch):
    path = tmp_path / "x.h5ad"
    written = anndata.AnnData(make(ROWS.astype(np.float32)))
    for table in (written.obs, written.var):  # not every version writes the strings of pandas 3
        table.index = pd.Index(table.index.to_list(), dtype=object)
    written.write_h5ad(path)
    data = anndata.read_h5ad(path, backed="r")
    source = open_samples(Model(), data, reset=True)
    assert_like(source, ROWS.astype(np.float32))
    monkeypatch.setattr(objects, "MEMORY_BYTES", 0)
    monkeypatch.setattr(objects, "BLOCK_BYTES", 50)
    source = open_samples(Model(), data, reset=True)
    assert isinstance(source, StoredSparseSource) == (make is sparse.csr_matrix)
    assert_like(source, ROWS.astype(np.float32))
    data.file.close()
    assert_like(open_samples(Model(), path, reset=True), ROWS.astype(np.float32))


def test_anndata_without_numbers(anndata, tmp_path):
    with pytest.raises(DataError, match="Expected numbers in X of the AnnData"):
        open_samples(Model(), anndata.AnnData(shape=(3, 4)), reset=True)
    (tmp_path / "x.h5ad").write_bytes(b"nothing")
    with pytest.raises(DataError, match="damaged"):
        open_samples(Model(), tmp_path / "x.h5ad", reset=True)


# --- Hugging Face


@pytest.fixture(scope="module")
def datasets():
    return pytest.importorskip("datasets", reason="needs the extra huggingface")


def png(value):
    file = io.BytesIO()
    Image.fromarray(value).save(file, "png")
    return {"bytes": file.getvalue(), "path": None}


def test_columns_of_huggingface(datasets, monkeypatch):
    monkeypatch.setattr(objects, "BLOCK_BYTES", 50)
    data = datasets.Dataset.from_dict({"a": ROWS[:, 0], "b": ROWS[:, 1], "label": ["x"] * len(ROWS)})
    assert_like(open_samples(Model(), data, reset=True), ROWS[:, :2])


def test_vectors_of_huggingface(datasets):
    labels = datasets.ClassLabel(names=["no", "yes"])
    data = datasets.Dataset.from_dict({"v": ROWS.astype(np.float32), "kind": [0, 1] * 11 + [0]}).cast_column("kind", labels)
    assert_like(open_samples(Model(), data, reset=True), ROWS.astype(np.float32))


def test_arrays_of_huggingface(datasets):
    features = datasets.Features({"x": datasets.Array2D((8, 8), "uint8")})
    data = datasets.Dataset.from_dict({"x": PIXELS}, features=features)
    assert_like(open_samples(Model(), data, reset=True), PIXELS)


def test_images_of_huggingface(datasets):
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a"])})
    table = {"image": [png(value) for value in PIXELS], "label": [0] * len(PIXELS)}
    data = datasets.Dataset.from_dict(table, features=features)
    assert_like(open_samples(Model(), data, reset=True), PIXELS)
    assert_like(open_samples(Model(), data.select([4, 2, 2]), reset=True), PIXELS[[4, 2, 2]])


def test_huggingface_that_cannot_be_used(datasets):
    one = datasets.Dataset.from_dict({"text": ["a", "b"]})
    ragged = datasets.Dataset.from_dict({"v": [[1.0, 2.0], [1.0]]})
    missing = datasets.Dataset.from_dict({"v": [1.0, None]})
    later = datasets.Dataset.from_dict({"v": [[1.0, 2.0], [1.0]]}).select([0, 0, 1])
    for data, match in [
        (one, "numbers in column 'text'"),
        (ragged, "'v'"),
        (later, "'v'"),
        (missing, "'v'|NaN"),
        (datasets.DatasetDict({"train": one, "test": one}), "one split, got 'train', 'test'"),
        (one.select([]), "got none"),
        (datasets.Dataset.from_dict({"label": [1, 2]}), "images or numbers, got 'label'"),
    ]:
        with pytest.raises(ValueError, match=match):
            open_samples(Model(), data, reset=True)
    with pytest.raises(TypeError, match="with a length"):
        open_samples(Model(), one.to_iterable_dataset(), reset=True)
