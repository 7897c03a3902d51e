import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from diva.data import ArraySource, DatasetSource, PartOfSource, Samples, Scaling
from diva.data import samples as samples_module
from diva.data.opening import check_range, image_range, open_samples, scaling_for
from diva.data.samples import measure_moments, measure_range, parts_of
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


def rng():
    return np.random.default_rng(0)


def samples_of(X, image_shape=None):
    source = X if hasattr(X, "item_shape") else ArraySource(X)
    return Samples(source, scaling_for(source, image_shape))


def everything(samples):
    return samples.take(np.arange(len(samples)))


# --- images

PIXELS = {
    "uint8": (rng().integers(0, 256, (6, 8, 12), dtype=np.uint8), 0.0, 255.0),
    "few levels, uint8": (rng().integers(0, 20, (6, 8, 12), dtype=np.uint8), 0.0, 19.0),
    "zero to one": (rng().random((6, 8, 12)), 0.0, 1.0),
    "zero to one, float32": (rng().random((6, 8, 12), dtype=np.float32), 0.0, 1.0),
    "zero to one, float16": (rng().random((6, 8, 12)).astype(np.float16), 0.0, 1.0),
    "minus one to one": (rng().uniform(-1, 1, (6, 8, 12)), -1.0, 1.0),
    "zero to 255, int64": (rng().integers(0, 256, (6, 8, 12)), 0.0, 255.0),
    "zero to 255, float": (rng().uniform(0, 255, (6, 8, 12)), 0.0, 255.0),
    "bool": (rng().random((6, 8, 12)) > 0.5, 0.0, 1.0),
}
KINDS = pytest.mark.parametrize("kind", PIXELS)


@KINDS
def test_images_are_scaled_by_the_range_of_their_kind(kind):
    X, low, high = PIXELS[kind]
    x = everything(samples_of(X))
    assert x.shape == (6, 1, 8, 12)
    assert x.dtype == torch.float32
    expected = (X.astype(np.float64) - low) / (high - low) * 2 - 1
    np.testing.assert_allclose(x[:, 0].numpy(), expected, atol=1e-5)
    assert -1 - 1e-6 <= float(x.min()) <= float(x.max()) <= 1 + 1e-6


@KINDS
def test_images_come_back(kind):
    X, low, high = PIXELS[kind]
    samples = samples_of(X)
    back = samples.scaling.to_raw(everything(samples), X.shape[1:])
    assert back.dtype == np.float32
    np.testing.assert_allclose(back, X.astype(np.float64), atol=1e-6 * (high - low))


def test_other_ranges_are_those_of_the_data():
    X = rng().integers(0, 17, (6, 8, 8))
    assert image_range(ArraySource(X)) == (0.0, 16.0)
    x = everything(samples_of(X))
    np.testing.assert_allclose(x[:, 0].numpy(), X / 8 - 1, atol=1e-6)
    np.testing.assert_allclose(samples_of(X).scaling.to_raw(x, (8, 8)), X, atol=1e-5)
    assert image_range(ArraySource(rng().uniform(-40, 900, (5, 8, 8)))) != (0.0, 255.0)


@pytest.mark.parametrize("excess", [0.0, 5e-4])
def test_rounding_beyond_a_range_does_not_change_it(excess):
    X = np.linspace(-excess, 1 + excess, 2 * 64).reshape(2, 8, 8)
    assert image_range(ArraySource(X)) == (0.0, 1.0)


@pytest.mark.parametrize("value", [0.0, 7.0, -3.0, 1e6])
def test_images_of_one_value(value):
    X = np.full((3, 8, 8), value)
    samples = samples_of(X)
    x = everything(samples)
    assert bool(torch.isfinite(x).all())
    assert float(x.abs().max()) <= 1.0
    np.testing.assert_allclose(samples.scaling.to_raw(x, (8, 8)), X)


def test_dark_images_are_not_taken_for_centred_ones():
    X = 0.2 * rng().random((6, 8, 8))  # no negative number: 0 is black, as in brighter images
    X[0, 0, 0] = 0.0
    assert float(everything(samples_of(X)).min()) == pytest.approx(-1.0)


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_channels_go_first(channels, dtype):
    X = rng().integers(0, 256, (5, 8, 12, channels)).astype(dtype)
    samples = samples_of(X)
    x = everything(samples)
    assert samples.scaling.input_shape == x.shape[1:] == (channels, 8, 12)
    assert samples.scaling.is_image
    for c in range(channels):
        np.testing.assert_allclose(x[:, c].numpy(), X[..., c] / 127.5 - 1, atol=1e-5)
    np.testing.assert_allclose(samples.scaling.to_raw(x, X.shape[1:]), X, atol=1e-3)


@pytest.mark.parametrize("image_shape", [(8, 12), (8, 12, 1), (4, 8, 3)])
def test_flattened_images(image_shape):
    X = rng().integers(0, 256, (5, *image_shape), dtype=np.uint8)
    flat, whole = samples_of(X.reshape(5, 96), image_shape), samples_of(X)
    assert flat.scaling.input_shape == whole.scaling.input_shape
    assert torch.equal(everything(flat), everything(whole))
    np.testing.assert_allclose(flat.scaling.to_raw(everything(flat), (96,)), X.reshape(5, 96), atol=1e-3)


def test_raw_images_with_channels_first():
    X = rng().random((5, 3, 8, 12), dtype=np.float32)
    scaling = Scaling((3, 8, 12), False, torch.tensor([0.5]), torch.tensor([0.5]))
    x = scaling.to_input(X)
    np.testing.assert_allclose(x.numpy(), 2 * X - 1, atol=1e-6)
    np.testing.assert_allclose(scaling.to_raw(x, (3, 8, 12)), X, atol=1e-6)


def test_image_shape_must_fit():
    with pytest.raises(ValueError, match=r"image_shape=\(8, 9\) has 72 numbers, samples have 64\."):
        scaling_for(ArraySource(np.zeros((3, 64))), (8, 9))


def test_items_of_more_than_three_axes_are_refused():
    with pytest.raises(ValueError, match="shape"):
        scaling_for(DatasetSource(Items([torch.rand(4, 4, 4, 2)] * 3)), None)


def test_a_dataset_of_images_with_channels_first_is_understood_or_refused():
    dataset = Items([(torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0)), 1)] * 4)  # as torchvision gives them
    try:
        outcome = scaling_for(open_samples(Model(), dataset, reset=True), None).input_shape
    except ValueError as error:
        outcome = str(error)
    assert outcome == (3, 32, 32) or "channels" in outcome


def test_input_does_not_share_memory_with_the_data():
    X = rng().random((4, 5)).astype(np.float32)
    before = X.copy()
    everything(Samples(ArraySource(X), Scaling((5,), False, torch.zeros(5), torch.ones(1)))).add_(1.0)
    assert np.array_equal(X, before)


# --- rows


def test_rows_are_centred_and_divided_by_one_number():
    X = rng().normal(size=(500, 4)) * [1.0, 10.0, 0.1, 3.0] + [0.0, -50.0, 7.0, 1.0]
    samples = samples_of(X)
    x = everything(samples).double().numpy()
    np.testing.assert_allclose(x.mean(0), 0.0, atol=1e-5)
    assert x.var(0).mean() == pytest.approx(1.0, rel=1e-5)
    np.testing.assert_allclose(x.std(0) / x.std(0)[0], X.std(0) / X.std(0)[0], rtol=1e-5)
    assert samples.scaling.input_shape == (4,)
    assert samples.scaling.unit.shape == (1,)
    assert not samples.scaling.is_image
    np.testing.assert_allclose(samples.scaling.to_raw(everything(samples), (4,)), X, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, np.float64])
def test_rows_of_any_numbers_come_back(dtype):
    X = (rng().random((20, 3)) * 200).astype(dtype)
    samples = samples_of(X)
    assert everything(samples).dtype == torch.float32
    np.testing.assert_allclose(samples.scaling.to_raw(everything(samples), (3,)), X, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("value", [0.0, 3.0, -1e8, 1e20])
def test_constant_rows(value):
    samples = samples_of(np.full((10, 3), value))
    assert torch.equal(everything(samples), torch.zeros(10, 3))
    assert float(samples.scaling.unit) == 1.0
    np.testing.assert_allclose(samples.scaling.to_raw(torch.zeros(1, 3), (3,)), np.full((1, 3), value), rtol=1e-6)


def test_constant_columns_tell_nothing():
    X = np.column_stack([rng().normal(size=50), np.full(50, 12.5)])
    x = everything(samples_of(X))
    assert torch.equal(x[:, 1], torch.zeros(50))
    assert bool(torch.isfinite(x).all())


@pytest.mark.parametrize("scale", [1e-15, 1e-3, 1e15])
def test_units_of_rows_do_not_matter(scale):
    X = rng().normal([1.0, 2.0, 3.0], size=(50, 3))
    torch.testing.assert_close(everything(samples_of(X * scale)), everything(samples_of(X)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e8])
def test_huge_offsets_do_not_matter(offset):
    X = rng().normal(size=(200, 3))
    torch.testing.assert_close(everything(samples_of(X + offset)), everything(samples_of(X)), rtol=0.0, atol=1e-3)


def test_moments_do_not_cancel():
    X = rng().normal(size=(200, 3)) + 1e8
    mean, deviation = measure_moments(ArraySource(X))
    np.testing.assert_allclose(mean, X.mean(0), rtol=1e-12)
    np.testing.assert_allclose(deviation, (X - 1e8).std(0), rtol=1e-6)


# --- measuring


@pytest.mark.parametrize("n_numbers", [1, 7, 40, 10_000])
def test_parts_do_not_matter(monkeypatch, n_numbers):
    X = rng().normal(size=(23, 3))
    whole = measure_range(ArraySource(X)), measure_moments(ArraySource(X))
    monkeypatch.setattr(samples_module, "MEASURE_NUMBERS", n_numbers)
    parts = list(parts_of(ArraySource(X)))
    np.testing.assert_array_equal(np.concatenate(parts), X)
    assert max(part.size for part in parts) <= max(3, n_numbers)
    assert measure_range(ArraySource(X)) == whole[0] == (X.min(), X.max())
    np.testing.assert_allclose(measure_moments(ArraySource(X)), whole[1])
    np.testing.assert_allclose(whole[1], [X.mean(0), X.std(0)])


# --- sources


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
    np.testing.assert_allclose(everything(samples_of(source)).numpy(), everything(samples_of(X)).numpy())


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


@pytest.mark.parametrize("index", [torch.tensor([4, 1, 1]), np.array([4, 1, 1])])
def test_samples_are_taken_by_number(index):
    X = rng().random((6, 8, 8))
    samples = samples_of(X)
    assert len(samples) == 6
    assert torch.equal(samples.take(index), everything(samples)[[4, 1, 1]])


# --- opening


@pytest.mark.parametrize(
    ("X", "item_shape"),
    [
        (np.zeros((3, 5)), (5,)),
        (np.zeros((3, 5), dtype=np.uint8), (5,)),
        ([[0.0, 1.0], [2.0, 3.0]], (2,)),
        (torch.zeros(3, 5), (5,)),
        (torch.zeros(3, 5, requires_grad=True), (5,)),
        (torch.zeros(3, 5, dtype=torch.bfloat16), (5,)),
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
        open_samples(Model(), X, reset=True)


def test_one_mapped_row_is_too_few(tmp_path):
    X = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(1, 5))
    with pytest.raises(ValueError, match="minimum of 2"):
        open_samples(Model(), X, reset=True)


def test_mapped_rows_are_checked(tmp_path):
    X = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(6, 5))
    X[4, 2] = np.nan
    with pytest.raises(ValueError, match=r"contains NaN \(sample 4, number 2\)"):
        open_samples(Model(), X, reset=True)


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


# --- units of new images


def test_new_images_in_the_units_of_the_fit():
    scaling = samples_of(PIXELS["uint8"][0]).scaling
    check_range(ArraySource(PIXELS["uint8"][0]), scaling)
    check_range(ArraySource(PIXELS["few levels, uint8"][0]), scaling)
    check_range(ArraySource(PIXELS["zero to 255, float"][0]), scaling)
    check_range(ArraySource(np.zeros((2, 8, 12))), scaling)


@pytest.mark.parametrize(
    ("fitted", "new", "message"),
    [
        ("zero to one", "uint8", r"from 0 to 1 as in fit, got 0 to 255"),
        ("minus one to one", "zero to 255, int64", r"from -1 to 1 as in fit, got 0 to 255"),
        ("uint8", "zero to one", r"from 0 to 255 as in fit, got .* to 0\.9"),
    ],
)
def test_new_images_in_other_units(fitted, new, message):
    with pytest.raises(ValueError, match=message + r".*\. Scale the images as they were for fit\."):
        check_range(ArraySource(PIXELS[new][0]), samples_of(PIXELS[fitted][0]).scaling)


def test_rows_may_be_anywhere():
    check_range(ArraySource(np.full((3, 4), 1e6)), samples_of(rng().normal(size=(10, 4))).scaling)
