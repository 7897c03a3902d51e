import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from diva.data import InputPipeline
from diva.data.validate import open_samples
from diva.exceptions import DataError


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number]


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.zeros(3)


class Model(BaseEstimator):
    pass


@pytest.mark.parametrize(
    ("X", "item_shape"),
    [
        (np.zeros((3, 5)), (5,)),
        (np.zeros((3, 5), dtype=np.uint8), (5,)),
        ([[0.0, 1.0], [2.0, 3.0]], (2,)),
        (torch.zeros(3, 5), (5,)),
        (torch.zeros(3, 5, requires_grad=True), (5,)),
        (torch.zeros(3, 5, dtype=torch.bfloat16), (5,)),
        (torch.zeros(3, 5, dtype=torch.complex64).conj().imag, (5,)),
        (np.zeros((3, 8, 8)), (8, 8)),
        (np.zeros((3, 8, 8, 3), dtype=np.uint8), (8, 8, 3)),
        (torch.zeros(3, 8, 8), (8, 8)),
        (TensorDataset(torch.zeros(3, 5)), (5,)),
        (Items([(np.zeros((8, 8)), 1)] * 2), (8, 8)),
    ],
)
def test_whatever_holds_samples_can_be_opened(X, item_shape):
    model = Model()
    source = open_samples(model, X, reset=True)
    assert source.item_shape == item_shape
    assert len(source) == len(X)
    assert model.n_features_in_ == np.prod(item_shape)
    assert len(open_samples(model, X, reset=False)) == len(X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_numbers_keep_their_kind(dtype):
    assert open_samples(Model(), np.zeros((3, 5), dtype=dtype), reset=True).take(np.arange(1)).dtype == dtype


def test_large_whole_numbers_are_kept():
    X = 1_700_000_000 + np.arange(20).reshape(10, 2)  # times in seconds, for example
    np.testing.assert_array_equal(open_samples(Model(), X, reset=True).take(np.arange(10)), X)


def with_value(value, shape=(4, 8, 8), at=(2, 1, 3), dtype=np.float64):
    X = np.zeros(shape, dtype=dtype)
    X[at] = value
    return X


def both_infinities():
    X = with_value(np.inf)
    X[3] = -np.inf
    return X


@pytest.mark.parametrize(
    ("X", "error", "match"),
    [
        ((np.zeros((3, 2)), np.zeros(3)), ValueError, "Expected samples only, got a pair of arrays. Pass X alone"),
        ("data.npy", DataError, "There is no file or folder data.npy"),
        (sparse.eye(1).tocsr(), ValueError, "Found 1 samples while a minimum of 2 is required"),
        (sparse.csr_array(np.eye(3) * 1j), DataError, "Expected a sparse matrix of numbers, got one of dtype complex128"),
        (np.zeros(5), ValueError, "Expected 2D array, got 1D array instead"),
        (np.zeros((2, 2, 2, 2, 2)), ValueError, "Found array with dim 5"),
        (np.zeros((0, 5)), ValueError, "minimum of 2 is required"),
        (np.zeros((1, 5)), ValueError, "minimum of 2 is required"),
        (np.zeros((1, 8, 8)), ValueError, r"shape \(1, 8, 8\) while a minimum of 2 images is required"),
        (np.zeros((3, 0, 8)), ValueError, r"shape \(3, 0, 8\) while a minimum of 2 images"),
        (np.full((3, 8, 8), "a"), ValueError, "Expected images of numbers, got an array of dtype <U1"),
        (np.zeros((3, 8, 8), dtype=complex), ValueError, "Expected images of numbers, got an array of dtype complex128"),
        (
            np.zeros((4, 3, 32, 32)),
            ValueError,
            r"width, channels\), got \(4, 3, 32, 32\).*transpose\(0, 2, 3, 1\)",
        ),
        (with_value(np.nan), ValueError, r"contains NaN \(sample 2, number 11\). Model does not accept missing"),
        (with_value(np.inf), ValueError, r"contains infinity \(sample 2, number 11\)"),
        (both_infinities(), ValueError, r"contains infinity \(sample 2, number 11\)"),
        (with_value(np.nan, (4, 5), (1, 2)), ValueError, "contains NaN"),
        (with_value(1e31), ValueError, "too large to square"),
        (with_value(1e31, (4, 5), (1, 2)), ValueError, "too large to square"),
        (np.full((4, 8, 8), 1.7e308), ValueError, "rescale"),
        (torch.zeros(4, 5, device="meta"), ValueError, "meta device"),
        ([torch.zeros(8, 8, device="meta")] * 3, ValueError, "meta device"),
        (torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)], layout=torch.jagged), ValueError, "nested tensor"),
        (Endless(), TypeError, "Expected a Dataset with a length and items by number, got an iterable Endless"),
        (Items([]), ValueError, "Found 0 items while a minimum of 2 is required"),
        (Items([torch.zeros(3)]), ValueError, "Found 1 items while a minimum of 2"),
        (Items(["a", "b"]), ValueError, "Expected a Dataset whose items are numbers"),
        (Items([torch.zeros(3), torch.full((3,), np.nan)]), ValueError, r"contains NaN \(sample 1, number 0\)"),
        (Items([torch.zeros(3), torch.zeros(2)]), ValueError, r"Every item should have shape \(3,\), item 1 has \(2,\)"),
        (DataLoader(TensorDataset(torch.zeros(4, 2))), TypeError, "Expected"),
    ],
)
def test_what_cannot_be_opened(X, error, match):
    with pytest.raises(error, match=match):
        InputPipeline.fit(Model(), X)


def test_one_mapped_row_is_too_few(tmp_path):
    X = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(1, 5))
    with pytest.raises(ValueError, match="minimum of 2"):
        open_samples(Model(), X, reset=True)


def test_mapped_rows_are_checked(tmp_path):
    X = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(6, 5))
    X[4, 2] = np.nan
    with pytest.raises(ValueError, match=r"contains NaN \(sample 4, number 2\)"):
        InputPipeline.fit(Model(), X)


@pytest.mark.parametrize("X", [np.zeros((1, 5)), np.zeros((1, 1, 5)), Items([torch.zeros(5)])])
def test_one_sample_is_enough_to_predict(X):
    model = Model()
    open_samples(model, np.zeros((2, 5)), reset=True)
    assert len(open_samples(model, X, reset=False)) == 1


@pytest.mark.parametrize("X", [np.zeros((3, 6)), np.zeros((3, 2, 3)), Items([torch.zeros(6)] * 3)])
def test_other_numbers_of_features(X):
    model = Model()
    open_samples(model, np.zeros((3, 5)), reset=True)
    with pytest.raises(ValueError, match="X has 6 features, but Model is expecting 5 features as input"):
        open_samples(model, X, reset=False)


def test_names_of_features_are_forgotten_with_images():
    pd = pytest.importorskip("pandas")
    model = Model()
    open_samples(model, pd.DataFrame({"a": [0.0, 1.0], "b": [2.0, 3.0]}), reset=True)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    open_samples(model, np.zeros((2, 4, 4)), reset=True)
    assert not hasattr(model, "feature_names_in_")
