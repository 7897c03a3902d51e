import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diva.data import Rows
from diva.mixture.standardize import FARTHEST, Standardization, StandardizedBatches, measure

CPU = torch.device("cpu")


def pieces(X, weights=None, n=3):
    """The same rows as several batches."""
    split = [None] * n if weights is None else np.array_split(weights, n)
    return [Rows(x, w) for x, w in zip(np.array_split(X, n), split, strict=True)]


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from([0.0, 1e3, 1e12]), st.booleans())
def test_measure_is_mean_and_standard_deviation(seed, n_batches, offset, weighted):
    rng = np.random.default_rng(seed)
    X = offset + rng.normal(size=(50, 3)) * [1.0, 100.0, 5.0]
    weights = rng.uniform(0.0, 3.0, 50) if weighted else None
    standardization = measure(pieces(X, weights, n_batches)).standardization
    w = np.ones(50) if weights is None else weights
    # numpy's own mean of numbers near 1e12 is no better: centre exactly first
    centred = X - offset
    mean = w @ centred / w.sum()
    std = np.sqrt(w @ (centred - mean) ** 2 / w.sum())
    np.testing.assert_allclose(standardization.mean.numpy() - offset, mean, atol=1e-12 + 4e-16 * offset * 50)
    np.testing.assert_allclose(standardization.scale.numpy(), std, rtol=1e-9 + 1e-15 * offset)
    assert standardization.mean.dtype == standardization.scale.dtype == torch.float64


def test_weights_count_as_repetitions():
    X, times = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 3
    weighted, repeated = (
        measure(pieces(X, times.astype(float))).standardization,
        measure([Rows(X.repeat(times, axis=0))]).standardization,
    )
    torch.testing.assert_close(weighted.mean, repeated.mean)
    torch.testing.assert_close(weighted.scale, repeated.scale)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e12 / 3, 1e-200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_column_has_scale_one_and_becomes_zero(value, dtype):
    X = np.random.default_rng(0).normal(size=(1001, 2)).astype(dtype)
    X[:, 1] = value
    standardization = measure(pieces(X, np.random.default_rng(1).uniform(size=1001).astype(dtype))).standardization
    assert standardization.scale[1] == 1.0
    z, _ = standardization.apply(Rows(X), CPU)
    assert (z[:, 1] == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("offset", "scale"), [(0.0, 1.0), (1e3, 0.1), (-50.0, 1e5), (0.0, 1e-12)])
def test_data_become_standard_scores(dtype, offset, scale):
    X = (offset + scale * np.random.default_rng(0).normal(size=(500, 2))).astype(dtype)
    standardization = measure(pieces(X)).standardization
    z, weights = standardization.apply(Rows(X), CPU)
    assert z.numpy().dtype == dtype
    assert weights is None
    expected = (X.astype(np.float64) - X.astype(np.float64).mean(0)) / X.astype(np.float64).std(0)
    # near the mean subtraction is exact, so only the scale of z itself is rounded
    rounding = np.finfo(dtype).eps * (4 + abs(offset) / scale)
    np.testing.assert_allclose(z.numpy(), expected, atol=8 * rounding)


@pytest.mark.parametrize("scale", [1e-36, 1e-56, 1e-140, 1e40, 1e140])
def test_single_precision_is_left_where_a_scale_does_not_fit_in_it(scale):
    standardization = measure([Rows(scale * np.array([[-1.0, 0.0], [1.0, 2.0]]))]).standardization
    z, _ = standardization.apply(Rows(np.array([[0.0, 0.0], [1.0, -3.0]], dtype=np.float32)), CPU)
    expected = [[0.0, -1.0], [1.0 / scale, -3.0 / scale - 1.0]]
    np.testing.assert_allclose(z.numpy(), np.clip(expected, -FARTHEST, FARTHEST))


def test_undo_undoes_apply():
    X = np.random.default_rng(0).normal(7.0, 3.0, size=(30, 2))
    standardization = measure([Rows(X)]).standardization
    np.testing.assert_allclose(standardization.undo(standardization.apply(Rows(X), CPU)[0]).numpy(), X, rtol=1e-14)


def test_standardizing_does_not_touch_the_data():
    X = np.random.default_rng(0).normal(size=(30, 2))
    copy = X.copy()
    X.flags.writeable = False
    measure([Rows(X)]).standardization.apply(Rows(X), CPU)
    np.testing.assert_array_equal(X, copy)


def test_measure_counts_and_finds_the_range():
    X = np.array([[1.0, -5.0], [3.0, 2.0], [2.0, 9.0]])
    measured = measure(pieces(X))
    assert measured.n_rows == 3
    assert measured.lowest.tolist() == [1.0, -5.0]
    assert measured.highest.tolist() == [3.0, 9.0]


def test_data_out_of_reach_of_earlier_ones_are_refused():
    standardization = measure([Rows(np.array([[0.0], [2.0]]))]).standardization
    measure([Rows(np.array([[0.9 * FARTHEST]]))]).check_within_reach_of(standardization)
    with pytest.raises(ValueError, match=r"Feature 0 .* too far"):
        measure([Rows(np.array([[0.0], [-2.0 * FARTHEST]]))]).check_within_reach_of(standardization)


@pytest.mark.parametrize(
    ("values", "message"), [([[1.0]], "features"), ([[1.0, np.nan]], "NaN"), ([[np.inf, 0.0]], "infinity")]
)
def test_rows_of_another_kind_are_refused(values, message):
    standardization = Standardization(torch.zeros(2).double(), torch.ones(2).double())
    with pytest.raises(ValueError, match=message):
        standardization.apply(Rows(np.array(values)), CPU)


def test_points_beyond_everything_are_brought_to_the_edge():
    standardization = Standardization(torch.zeros(1).double(), torch.ones(1).double())
    z, _ = standardization.apply(Rows(np.array([[1e300], [-1e300], [5.0]])), CPU)
    assert z.squeeze(1).tolist() == [FARTHEST, -FARTHEST, 5.0]


def test_log_volume_is_that_of_the_scales():
    standardization = Standardization(torch.zeros(2).double(), torch.tensor([2.0, 8.0]).double())
    np.testing.assert_allclose(standardization.log_volume, np.log(16.0))


def test_batches_can_be_iterated_again_in_chunks():
    X, w = np.random.default_rng(0).normal(size=(10, 2)), np.arange(10.0)
    standardization = measure(pieces(X, w)).standardization
    batches = StandardizedBatches(pieces(X, w), standardization, CPU)
    for _ in range(2):
        chunks = [chunk for block in batches for part in block.parts(3).items for chunk in part]
        assert [len(chunk.z) for chunk in chunks] == [2, 2, 3, 3]
        np.testing.assert_array_equal(torch.cat([chunk.weights for chunk in chunks]).numpy(), w)


@pytest.mark.parametrize(
    ("X", "weights", "message"),
    [
        (np.zeros((0, 2)), None, "at least one sample"),
        (np.ones((3, 2)), np.zeros(3), "weight"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), None, r"NaN \(row 1, feature 0\)"),
        (np.array([[1.0, 2.0], [1.0, np.inf]]), None, r"infinity \(row 1, feature 1\)"),
        (np.array([[1.0, 1e300], [1.0, -1e300]]), None, "Feature 1 holds numbers too large"),
    ],
)
def test_measure_says_what_is_wrong(X, weights, message):
    with pytest.raises(ValueError, match=message):
        measure([Rows(X, weights)])


def test_pixels_have_one_scale_and_measurements_one_each():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 17, size=(500, 30)) * (rng.random((500, 30)) < np.linspace(0.05, 1.0, 30))
    scale = measure([Rows(pixels.astype(float))]).robust().scale
    assert scale.unique().numel() == 1
    assert float(scale[0]) == pytest.approx(np.sqrt(pixels.var(axis=0).mean()))
    measurements = measure([Rows(rng.normal(size=(500, 3)) * [1.0, 100.0, 5.0])]).robust().scale
    np.testing.assert_allclose(measurements, [1.0, 100.0, 5.0], rtol=0.2)


def test_pixels_that_are_always_black_do_not_count():
    rng = np.random.default_rng(0)
    pixels = np.column_stack([rng.integers(0, 17, size=(500, 4)), np.zeros((500, 2))])
    scale = measure([Rows(pixels)]).robust().scale
    np.testing.assert_allclose(scale, [float(np.sqrt(pixels[:, :4].var(axis=0).mean()))] * 4 + [1.0, 1.0])


@pytest.mark.parametrize("n_features", [3, 60])
@pytest.mark.parametrize(("level", "rounding"), [(1.0, 0.0), (1.0, 1e-15), (0.0, 5e-324), (5e-32, 0.0)])
def test_rows_that_do_not_vary_have_the_mean_of_the_features_for_an_axis(n_features, level, rounding):
    X = level + rounding * np.random.default_rng(0).choice([0.0, 1.0], size=(2 if n_features == 3 else 30, n_features))
    measured = measure([Rows(X)])
    assert measured.flat.all()
    onto = measured.robust().on_principal_axes(measured.sample, varies=False)
    np.testing.assert_allclose(onto.axes.numpy(), np.full((n_features, 1), n_features**-0.5))
    np.testing.assert_allclose(onto.undo(onto.apply(Rows(X), CPU)[0]).numpy(), X, atol=1e-14)
    np.testing.assert_allclose(onto.apply(Rows(X + 2.0), CPU)[0].numpy(), 2.0 * n_features**0.5)


def test_a_sample_of_rows_that_are_all_alike_has_that_axis_too():
    standardization = Standardization(torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    onto = standardization.on_principal_axes(Rows(np.zeros((5, 3))))
    np.testing.assert_allclose(onto.axes.numpy(), np.full((3, 1), 3**-0.5))
