import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from diva.data import ArraySource, DatasetSource, LoadedData, PartOfSource, sources
from diva.data.sources import measure_moments, measure_range, parts_of


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number]


def rng():
    return np.random.default_rng(0)


def test_array_source():
    X = rng().random((7, 4, 3))
    source = ArraySource(X)
    assert len(source) == 7
    assert source.item_shape == (4, 3)
    np.testing.assert_array_equal(source.take(np.array([3, 0, 3])), X[[3, 0, 3]])


def test_array_source_of_a_mapped_file(tmp_path):
    X = rng().random((7, 3))
    np.save(tmp_path / "x.npy", X)
    source = ArraySource(np.load(tmp_path / "x.npy", mmap_mode="r"))
    np.testing.assert_array_equal(source.take(np.array([6, 1])), X[[6, 1]])


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x, 3), lambda x: [x, "label"], lambda x: x.numpy()])
def test_dataset_source(wrap):
    X = torch.rand(6, 4, 3, generator=torch.Generator().manual_seed(0))
    source = DatasetSource(Items([wrap(x) for x in X]))
    assert len(source) == 6
    assert source.item_shape == (4, 3)
    np.testing.assert_array_equal(source.take(np.array([5, 2, 2])), X[[5, 2, 2]].numpy())


def test_dataset_source_of_tensors():
    X = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    source = DatasetSource(TensorDataset(X, torch.arange(6)))
    np.testing.assert_array_equal(source.take(np.arange(6)), X.numpy())
    half = DatasetSource(TensorDataset(X.bfloat16()))
    np.testing.assert_array_equal(half.take(np.arange(6)), X.bfloat16().float().numpy())


def test_dataset_source_names_the_odd_item():
    source = DatasetSource(Items([torch.zeros(3), torch.zeros(3), torch.zeros(4)]))
    with pytest.raises(ValueError, match=r"Every item should have shape \(3,\), item 2 has \(4,\)\."):
        source.take(np.array([0, 2]))


def test_part_of_a_source():
    X = rng().random((10, 3))
    part = PartOfSource(ArraySource(X), np.array([7, 2, 5, 0]))
    assert len(part) == 4
    assert part.item_shape == (3,)
    np.testing.assert_array_equal(part.take(np.array([3, 0])), X[[0, 7]])
    nested = PartOfSource(part, np.array([1, 2]))
    np.testing.assert_array_equal(nested.take(np.arange(2)), X[[2, 5]])


def test_only_the_first_samples():
    data = LoadedData(ArraySource(np.arange(10).reshape(5, 2)), np.arange(5), sample_names=tuple("abcde"), name="letters")
    few = data.first(2)
    assert (len(few.source), few.labels.tolist(), few.sample_names, few.name) == (2, [0, 1], ("a", "b"), "letters")
    assert data.first(None) is data
    assert data.first(5) is data


def test_labels_with_the_names_of_their_classes():
    data = LoadedData(ArraySource(np.zeros((3, 2))), np.array([1, 0, 1]))
    assert data.named_labels is data.labels
    assert LoadedData(data.source, data.labels, class_names=("cat", "dog")).named_labels.tolist() == ["dog", "cat", "dog"]


# --- measuring


def test_moments_do_not_cancel():
    X = rng().normal(size=(200, 3)) + 1e8
    mean, deviation = measure_moments(ArraySource(X))
    np.testing.assert_allclose(mean, X.mean(0), rtol=1e-12)
    np.testing.assert_allclose(deviation, (X - 1e8).std(0), rtol=1e-6)


@pytest.mark.parametrize("n_numbers", [1, 7, 40, 10_000])
def test_parts_do_not_matter(monkeypatch, n_numbers):
    X = rng().normal(size=(23, 3))
    whole = measure_range(ArraySource(X)), measure_moments(ArraySource(X))
    monkeypatch.setattr(sources, "NUMBERS_AT_ONCE", n_numbers)
    parts = list(parts_of(ArraySource(X)))
    np.testing.assert_array_equal(np.concatenate(parts), X)
    assert max(part.size for part in parts) <= max(3, n_numbers)
    assert measure_range(ArraySource(X)) == whole[0] == (X.min(), X.max())
    np.testing.assert_allclose(measure_moments(ArraySource(X)), whole[1])
    np.testing.assert_allclose(whole[1], [X.mean(0), X.std(0)])
