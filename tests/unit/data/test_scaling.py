import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator
from torch.utils.data import Dataset

from diva.data import ArraySource, DatasetSource, Samples, Scaling
from diva.data.scaling import check_range, image_range, scaling_for
from diva.data.validate import open_samples


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number]


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
    assert image_range(X.min(), X.max()) == (0.0, 16.0)
    x = everything(samples_of(X))
    np.testing.assert_allclose(x[:, 0].numpy(), X / 8 - 1, atol=1e-6)
    np.testing.assert_allclose(samples_of(X).scaling.to_raw(x, (8, 8)), X, atol=1e-5)
    assert image_range(-40.0, 900.0) != (0.0, 255.0)


@pytest.mark.parametrize("excess", [0.0, 5e-4])
def test_rounding_beyond_a_range_does_not_change_it(excess):
    X = np.linspace(-excess, 1 + excess, 2 * 64).reshape(2, 8, 8)
    assert image_range(X.min(), X.max()) == (0.0, 1.0)


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


OWN_UNITS = rng().normal([5.0, 0.0, -300.0], [1.0, 0.01, 100.0], size=(80, 3))
ONE_UNIT = {
    "rows of one length": (v := rng().normal(size=(80, 3))) / np.linalg.norm(v, axis=1, keepdims=True),
    "most columns have the same ends": np.clip(rng().normal(0, [1.0, 2.0, 0.1], size=(200, 3)), -1, 1),
    "mostly 0": rng().poisson([0.1, 0.1, 0.5, 0.3], size=(300, 4)),
}


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_rows_far_from_the_origin_are_not_taken_for_vectors_of_one_length(offset):
    rows = offset + np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 10.0, 100.0]
    assert scaling_for(ArraySource(rows), None, scale="auto").unit.shape == (3,)


@pytest.mark.parametrize("scale", ["auto", "columns"])
def test_columns_in_units_of_their_own_are_put_on_one_scale(scale):
    scaling = scaling_for(ArraySource(OWN_UNITS), None, scale=scale)
    torch.testing.assert_close(everything(Samples(ArraySource(OWN_UNITS), scaling)).std(0, correction=0), torch.ones(3))


@pytest.mark.parametrize("rows", ONE_UNIT.values(), ids=ONE_UNIT)
def test_columns_in_one_unit_keep_it_unless_asked_for(rows):
    scaling = {scale: scaling_for(ArraySource(rows), None, scale=scale) for scale in ("auto", "one", "columns")}
    assert torch.equal(scaling["auto"].unit, scaling["one"].unit)
    assert scaling["auto"].unit.shape == (1,)
    assert scaling["columns"].unit.shape == (rows.shape[1],)


def test_a_constant_column_among_others_tells_nothing():
    X = np.column_stack([OWN_UNITS, np.full(80, 12.5)])
    x = everything(Samples(ArraySource(X), scaling_for(ArraySource(X), None, scale="columns")))
    assert torch.equal(x[:, 3], torch.zeros(80))


@pytest.mark.parametrize("index", [torch.tensor([4, 1, 1]), np.array([4, 1, 1])])
def test_samples_are_taken_by_number(index):
    X = rng().random((6, 8, 8))
    samples = samples_of(X)
    assert len(samples) == 6
    assert torch.equal(samples.take(index), everything(samples)[[4, 1, 1]])


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
