"""One table of everything that may be handed to DPMixture: it either works, or says what is wrong."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.exceptions import NotFittedError
from torch.utils.data import DataLoader, TensorDataset

from diva import DPMixture
from diva.exceptions import DataChangedError

from .helpers import assert_usable, blobs

WORKS = "works"
X = blobs(n=50)
TENSOR = torch.from_numpy(X)
NESTED = torch.nested.nested_tensor([TENSOR[:2], TENSOR[:3]], layout=torch.jagged)
rng = np.random.default_rng(0)
LINE = rng.normal(size=(60, 1)) @ rng.normal(size=(1, 7)) + 1e6 * rng.integers(0, 3, size=(60, 1))  # three, far apart


# --- ways to hand over data


def with_value(value, dtype=np.float64):
    """X with one odd entry, in row 3, feature 1."""
    odd = X.astype(dtype)
    odd[3, 1] = value
    return odd


def mapped(values):
    """The values in a file, mapped read-only."""

    def write(folder):
        np.save(folder / "x.npy", values)
        return np.load(folder / "x.npy", mmap_mode="r")

    return write


class Changing:
    """Batches that are other ones from the n-th pass on: 1 looks at the head, 2 measures, 3 is the first lap."""

    def __init__(self, before, after, from_pass):
        self.before, self.after, self.from_pass, self.n_passes = before, after, from_pass, 0

    def __iter__(self):
        self.n_passes += 1
        yield from self.after if self.n_passes >= self.from_pass else self.before


class OneShotInDisguise:
    """Its iterators are new objects, but they share one stock of batches."""

    def __init__(self, batches):
        self.stock = iter(batches)

    def __iter__(self):
        yield from self.stock


def changing(after, from_pass=4):
    return lambda folder: Changing([X[:100], X[100:]], after, from_pass)


def changing_last(after):
    """The source changes after the fit, before its rows are labelled."""

    def source(folder):
        unchanged = Changing([X[:100], X[100:]], [], np.inf)
        DPMixture(random_state=0).fit(unchanged)
        return Changing(unchanged.before, after, unchanged.n_passes)

    return source


# --- ways to call


def fit(data, sample_weight=None, y=None, **params):
    """Fit and hand back the model with the data to judge it by."""

    def call(folder):
        made = data(folder) if callable(data) else data
        return DPMixture(random_state=0, **params).fit(made, y, sample_weight=sample_weight), made

    return call


def both(data, expected, id, marks=(), **options):  # noqa: A002
    """The same for either covariance."""
    return [
        pytest.param(fit(data, covariance_type=c, **options), expected, id=f"{id}-{c}", marks=marks) for c in ("full", "diag")
    ]


def then(method, *args, first=X, fit_params=None, **kwargs):
    """Fit good data, then do something else."""

    def call(folder):
        model = DPMixture(random_state=0, **(fit_params or {})).fit(first)
        made = [a(folder) if callable(a) else a for a in args]
        return getattr(model, method)(*made, **kwargs), made[0] if made else None

    return call


def unfitted(method, *args):
    return lambda folder: getattr(DPMixture(), method)(*args)


def bad(**params):
    ((name, value),) = params.items()
    return pytest.param(fit(X, **params), (ValueError, name, repr(value)), id=f"{name}={value!r}")


NAN = (ValueError, "NaN", "row 3", "feature 1")
INFINITE = (ValueError, "infinity", "row 3", "feature 1")
CHANGED = (DataChangedError, "changed between two laps")

DATA = [
    # --- numbers that are none
    pytest.param(fit(with_value(np.nan)), NAN, id="nan"),
    pytest.param(fit(with_value(np.inf)), INFINITE, id="inf"),
    pytest.param(fit(with_value(-np.inf)), INFINITE, id="-inf"),
    pytest.param(fit(with_value(np.nan, np.float32)), NAN, id="nan-float32"),
    pytest.param(fit(mapped(with_value(np.nan))), NAN, id="nan-memmap"),
    pytest.param(fit(mapped(with_value(np.inf))), INFINITE, id="inf-memmap"),
    pytest.param(fit(mapped(with_value(-np.inf))), INFINITE, id="-inf-memmap"),
    pytest.param(fit([X, with_value(np.nan)]), (ValueError, "NaN", f"row {len(X) + 3}"), id="nan-batches"),
    pytest.param(fit([X, with_value(np.inf)]), (ValueError, "infinity", f"row {len(X) + 3}"), id="inf-batches"),
    pytest.param(fit([X, with_value(-np.inf)]), (ValueError, "infinity", f"row {len(X) + 3}"), id="-inf-batches"),
    pytest.param(fit(torch.from_numpy(with_value(np.nan))), NAN, id="nan-tensor"),
    pytest.param(fit(pd.DataFrame(with_value(np.nan))), NAN, id="nan-frame"),
    pytest.param(fit(with_value(None, object)), NAN, id="none-inside"),
    pytest.param(fit([with_value(None, object)]), NAN, id="none-inside-batch"),
    # --- shapes
    pytest.param(fit(X[:0]), (ValueError, "0 sample"), id="no-rows"),
    pytest.param(fit(X[:, :0]), (ValueError, "0 feature"), id="no-features"),
    pytest.param(fit([]), (ValueError, "2D array"), id="empty-list"),
    pytest.param(fit(None), (ValueError, "2D array"), id="none"),
    pytest.param(fit("abc"), (ValueError, "abc"), id="a-word"),
    pytest.param(fit(X[:, 0]), (ValueError, "2D array", "reshape"), id="1-d"),
    pytest.param(fit(X[None]), (ValueError, "dim 3"), id="3-d"),
    pytest.param(fit([[1.0, 2.0], [3.0]]), (ValueError, "inhomogeneous"), id="ragged"),
    pytest.param(fit(X.tolist()), WORKS, id="nested-lists"),
    *both(X[:1], WORKS, "one-sample"),
    *both(X[:2], WORKS, "two-samples"),
    *both(X[:, :1], WORKS, "one-feature"),
    *both(rng.normal(size=(10, 30)), WORKS, "fewer-samples-than-features"),
    *both(X[::-1], WORKS, "rows-reversed"),
    *both(X[:, ::-1], WORKS, "columns-reversed"),
    *both(np.asfortranarray(X), WORKS, "column-major"),
    *both(X[::2], WORKS, "every-other-row"),
    # --- degenerate
    *both(np.column_stack([X, np.full(len(X), 7.0)]), WORKS, "constant-column"),
    *both(np.full((50, 3), 7.0), WORKS, "all-constant"),
    *both(np.full((50, 3), 0.1, dtype=np.float32), WORKS, "all-constant-float32"),
    *both(np.zeros((50, 3)), WORKS, "all-zero"),
    *both(np.repeat(X[[0, -1]], 100, axis=0), WORKS, "duplicates-only"),
    *both(np.column_stack([X[:, 0], 2 * X[:, 0], -X[:, 0]]), WORKS, "collinear", max_components=30),
    *both(np.eye(10)[rng.integers(0, 10, 300)], WORKS, "one-hot"),
    *both(np.concatenate([X, [[1e9, -1e9]]]), WORKS, "one-outlier"),
    # --- scales
    *both(X * 1e12, WORKS, "times-1e12"),
    *both(X * 1e-12, WORKS, "times-1e-12"),
    *both(X * 1e200, (ValueError, "Feature 0", "too large", "Rescale"), "times-1e200"),
    *both(X * 1e150, (ValueError, "Feature 0", "too large", "Rescale"), "times-1e150", covariance_scale=1e12),
    *both(X * 1e145, WORKS, "times-1e145", covariance_scale=1e12),
    *both(X * 1e-200, WORKS, "times-1e-200"),
    *both(rng.normal(size=(200, 7)) * 10.0 ** np.arange(-9, 10, 3), WORKS, "mixed-scales"),
    *both(X + 1e8, WORKS, "offset-1e8"),
    *both((X + 1e8).astype(np.float32), WORKS, "offset-1e8-float32"),
    *both((X * 1e30).astype(np.float32), WORKS, "times-1e30-float32"),
    # --- types
    *both(X.astype(np.float16), WORKS, "float16"),
    *both(X.astype(np.float32), WORKS, "float32"),
    *both(X.astype(np.longdouble), WORKS, "longdouble"),
    *both(X.astype(">f8"), WORKS, "big-endian"),
    *both(X.astype(int), WORKS, "int"),
    *both((X * 10 + 50).clip(0, 255).astype(np.uint8), WORKS, "uint8"),
    *both(X > 4, WORKS, "bool"),
    *both(X.astype(object), WORKS, "numeric-objects"),
    *both(X.astype(str), WORKS, "numeric-strings"),
    pytest.param(fit(np.full((5, 2), "cat")), (ValueError, "could not convert string", "cat"), id="strings"),
    pytest.param(fit(with_value("cat", object)), (ValueError, "could not convert string", "cat"), id="mixed-objects"),
    pytest.param(fit(X + 1j), (ValueError, "Complex"), id="complex"),
    pytest.param(fit(scipy.sparse.csr_array(X)), (TypeError, "Sparse", "toarray"), id="sparse"),
    pytest.param(fit(torch.from_numpy(X)), WORKS, id="tensor"),
    pytest.param(fit(torch.from_numpy(X).requires_grad_()), WORKS, id="tensor-with-gradient"),
    pytest.param(
        fit(torch.from_numpy(X).bfloat16()),
        WORKS,
        id="bfloat16",
    ),
    pytest.param(fit(torch.complex(TENSOR, -TENSOR).conj().imag), WORKS, id="tensor-to-be-negated"),
    pytest.param(fit(torch.complex(TENSOR, TENSOR).conj()), (ValueError, "Complex"), id="conjugate-tensor"),
    pytest.param(fit(TENSOR.to("meta")), (ValueError, "meta device"), id="meta-tensor"),
    pytest.param(fit(NESTED), (ValueError, "nested tensor", "Pad it"), id="nested-tensor"),
    pytest.param(fit([TENSOR.to("meta")]), (ValueError, "meta device"), id="batch-of-meta-tensor"),
    pytest.param(then("predict", TENSOR.to("meta")), (ValueError, "meta device"), id="predict-meta-tensor"),
    pytest.param(fit(pd.DataFrame(X, columns=["a", "b"])), WORKS, id="frame"),
    pytest.param(fit(mapped(X)), WORKS, id="memmap"),
    pytest.param(fit(mapped(X.astype(np.float32))), WORKS, id="memmap-float32"),
    pytest.param(fit(mapped(X.astype(int))), WORKS, id="memmap-int"),
    pytest.param(fit({"a": X}), (TypeError, "dict"), id="dict"),
]

BATCHES = [
    pytest.param(fit([X[:70], X[70:]]), WORKS, id="two-batches"),
    pytest.param(fit((X[:70], X[70:])), WORKS, id="tuple-of-batches"),
    pytest.param(fit([X[:70], X[:0], X[70:]]), WORKS, id="an-empty-batch-between"),
    pytest.param(fit([torch.from_numpy(X)]), WORKS, id="batch-of-tensor"),
    pytest.param(fit([X.astype(np.float32), X]), WORKS, id="batches-of-two-dtypes"),
    pytest.param(fit([X.astype(int)]), WORKS, id="batch-of-int"),
    pytest.param(fit([pd.DataFrame(X, columns=["a", "b"])]), WORKS, id="batch-of-frame"),
    pytest.param(fit(DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=64)), WORKS, id="loader-of-lists"),
    pytest.param(fit(DataLoader(torch.from_numpy(X), batch_size=64)), WORKS, id="loader-of-tensors"),
    pytest.param(
        fit(DataLoader(torch.from_numpy(X), batch_size=64, shuffle=True)),
        (*CHANGED, "turn off shuffling"),
        id="loader-that-shuffles",
    ),
    pytest.param(
        fit(DataLoader(TensorDataset(torch.from_numpy(X), torch.zeros(len(X))), batch_size=64)),
        (ValueError, "batch 0", "labels"),
        id="loader-with-labels",
    ),
    pytest.param(fit([np.zeros((0, 2))]), (ValueError, "at least one batch with at least one sample"), id="empty-batches-only"),
    pytest.param(fit(lambda _: Changing([], [], 1)), (ValueError, "at least one batch"), id="no-batches"),
    pytest.param(fit([X, X[:, :1]]), (ValueError, "batch 1 has 1", "before it have 2"), id="batches-of-two-widths"),
    pytest.param(fit([X, X[0]]), (ValueError, "batch 1", "shape", "(2,)"), id="a-row-among-batches"),
    pytest.param(fit([np.full((5, 2), "cat")]), (ValueError, "batch 0", "numeric", "cat"), id="batch-of-strings"),
    pytest.param(fit([with_value("cat", object)]), (ValueError, "batch 0", "numeric", "cat"), id="batch-of-mixed-objects"),
    pytest.param(
        fit([X + 1j]),
        (ValueError, "batch 0", "omplex"),
        id="batch-of-complex",
    ),
    pytest.param(
        fit([scipy.sparse.csr_array(X)]),
        (ValueError, "batch 0", "parse"),
        id="batch-of-sparse",
    ),
    pytest.param(fit([X[::-1]]), WORKS, id="batch-reversed"),
    pytest.param(
        fit(lambda _: Changing([X.tolist(), X[:1].tolist()], [], np.inf)),
        WORKS,
        id="last-batch-a-list-of-one-row",
    ),
    pytest.param(fit(x for x in [X]), (TypeError, "one-shot generator", "again and again"), id="generator"),
    pytest.param(fit(map(np.abs, [X])), (TypeError, "one-shot map"), id="map"),
    pytest.param(
        fit(lambda _: OneShotInDisguise([X] * 5)),
        (ValueError, "again and again"),
        id="one-shot-in-disguise",
    ),
    pytest.param(fit(changing([X[:100], X[100:150]])), CHANGED, id="rows-vanish"),
    pytest.param(fit(changing([X[:100], X[100:] + 0.5])), (*CHANGED, "another sum"), id="values-change"),
    pytest.param(fit(changing([X[:100]])), (DataChangedError, "2 batches", "has 1 now"), id="fewer-batches"),
    pytest.param(fit(changing([X, X, X])), (DataChangedError, "200"), id="other-batches"),
    pytest.param(fit(changing([X[:100], X[100:], X])), (DataChangedError, "2 batches", "has more now"), id="more-batches"),
    pytest.param(
        fit(changing([X[:100], with_value(np.nan)[:100]])),
        (ValueError, "NaN"),
        id="nan-in-a-later-lap",
    ),
    pytest.param(
        fit(changing([X[:100, :1], X[100:, :1]], from_pass=2)),
        (ValueError, "features"),
        id="features-vanish-after-the-head",
    ),
    pytest.param(
        fit(changing([X[:100, :1], X[100:, :1]], from_pass=3)),
        (ValueError, "features"),
        id="features-vanish-in-the-first-lap",
    ),
    pytest.param(
        fit(changing_last([X[:100], with_value(np.nan)[:100]])),
        (ValueError, "NaN"),
        id="nan-when-labelling",
    ),
    pytest.param(
        fit(changing_last([X[:100]])),
        (DataChangedError, "200 rows", "100"),
        id="fewer-batches-when-labelling",
    ),
]

WEIGHTS = [
    pytest.param(fit(X, np.where(np.arange(len(X)) == 3, -1.0, 1.0)), (ValueError, "Negative", "sample_weight"), id="negative"),
    pytest.param(fit(X, np.full(len(X), np.nan)), (ValueError, "sample_weight", "NaN"), id="nan"),
    pytest.param(fit(X, np.full(len(X), np.inf)), (ValueError, "sample_weight", "infinity"), id="inf"),
    pytest.param(fit(X, np.ones(7)), (ValueError, "sample_weight", "(7,)", f"({len(X)},)"), id="wrong-length"),
    pytest.param(fit(X, np.ones((len(X), 1))), (ValueError, "1D array", "2D array"), id="column"),
    pytest.param(fit(X, np.zeros(len(X))), (ValueError, "non-zero"), id="all-zero"),
    pytest.param(fit(X, ["cat"] * len(X)), (ValueError, "could not convert string", "cat"), id="labels-by-mistake"),
    pytest.param(fit([X], np.ones(len(X))), (ValueError, "sample_weight", "source of batches"), id="with-batches"),
    pytest.param(fit(X, np.arange(len(X)) % 3), WORKS, id="some-zero"),
    pytest.param(fit(X, (np.arange(len(X)) < 100).astype(float)), WORKS, id="half-zero"),
    pytest.param(fit(mapped(X), np.arange(len(X)) % 3), WORKS, id="with-memmap"),
    pytest.param(fit(X, 2.0), WORKS, id="scalar"),
    pytest.param(fit(X, np.full(len(X), 1e-12)), WORKS, id="tiny"),
    pytest.param(  # every sample is worth a component of its own, and they are more than there may be
        fit(X, np.full(len(X), 1e12)), WORKS, id="huge", marks=pytest.mark.filterwarnings("ignore:.*max_components")
    ),
    pytest.param(
        fit(LINE, np.full(60, 1e20), covariance_type="full", n_init=0),
        (ValueError, "covariance matrix is singular", "sample_weight"),
        id="huge-on-lines",
    ),
    *(
        pytest.param(then("partial_fit", X, sample_weight=np.full(len(X), weight)), WORKS, id=f"negligible-{weight:g}")
        for weight in (1e-6, 1e-10, 1e-300)
    ),
    pytest.param(
        then("partial_fit", X[:3], first=np.repeat(X, 1000, axis=0)), WORKS, id="very-few-after-many", marks=pytest.mark.slow
    ),
    pytest.param(
        fit(X, np.full(len(X), 1e300)),
        (ValueError, "weight"),
        id="overflowing",
    ),
    pytest.param(
        fit(rng.normal(size=(20_000, 2)), np.eye(1, 20_000, 7)[0]),
        WORKS,
        id="one-row-counts",
    ),
    pytest.param(
        then("partial_fit", X, sample_weight=(np.arange(len(X)) < 50).astype(float)),
        WORKS,
        id="zero-for-whole-components",
    ),
    pytest.param(fit(X, y=np.arange(len(X))), WORKS, id="y-is-ignored"),
    pytest.param(fit(X, y="anything"), WORKS, id="y-is-ignored-whatever-it-is"),
]

PARAMETERS = [
    *(bad(concentration=value) for value in (0, -1, "a", None, True, np.nan, np.inf)),
    *(bad(covariance_scale=value) for value in (0, -0.1, "a", None)),
    *(bad(mean_precision=value) for value in (0, -1.0, None)),
    *(bad(tol=value) for value in (-1, "a", None, np.nan)),
    *(bad(max_components=value) for value in (0, -1, 2.5, None, True, "a")),
    *(bad(max_laps=value) for value in (0, 1.0, None)),
    *(bad(batch_size=value) for value in (0, -1, 2.5, "a", True)),
    *(bad(covariance_type=value) for value in ("round", None, 1)),
    *(bad(grouping=value) for value in ("x", True, 1)),
    *(bad(resolution=value) for value in (0, -1.0, "x", None, np.inf)),
    *(bad(device=value) for value in ("nonsense", None, 1.5, "cuda:99")),
    *(bad(degrees_of_freedom=value) for value in (3, 2.0, -1, "a", np.nan)),
    pytest.param(
        fit(X, device="meta"),
        (ValueError, "device", "meta"),
        id="device='meta'",
    ),
    pytest.param(
        fit(X, degrees_of_freedom=2.0, covariance_type="diag"),
        (ValueError, "more than 2", "got 2.0"),
        id="degrees_of_freedom=2-diag",
    ),
    pytest.param(fit(X, degrees_of_freedom=3.01), WORKS, id="degrees_of_freedom=3.01"),
    pytest.param(fit(X, degrees_of_freedom=2.01, covariance_type="diag"), WORKS, id="degrees_of_freedom=2.01-diag"),
    pytest.param(fit(X, tol=0), WORKS, id="tol=0"),
    pytest.param(fit(X, max_components=1), WORKS, id="max_components=1"),
    pytest.param(fit(X, batch_size=10**9), WORKS, id="batch_size=1e9"),
    pytest.param(fit(X, concentration=np.float32(5), max_components=np.int64(50)), WORKS, id="numpy-numbers"),
    pytest.param(fit(X, concentration=1e-12), WORKS, id="concentration=1e-12"),
    pytest.param(fit(X, concentration=1e-300), (ValueError, "concentration", "1e-12"), id="concentration=1e-300"),
    pytest.param(fit(X, concentration=1e9, covariance_scale=1e-9), WORKS, id="concentration=1e9"),
    pytest.param(fit(X, grouping="valleys", resolution=1e-12), WORKS, id="resolution=1e-12"),
    pytest.param(fit(X, grouping="valleys", resolution=1e12), WORKS, id="resolution=1e12"),
    pytest.param(fit(X, device="auto"), WORKS, id="device=auto"),
    pytest.param(lambda _: DPMixture(random_state="x").fit(X), (ValueError, "seed", "x"), id="random_state='x'"),
]

USE = [
    *(
        pytest.param(unfitted(m, *args), (NotFittedError, "not fitted"), id=f"{m}-before-fit")
        for m, *args in (
            ("predict", X),
            ("predict_proba", X),
            ("score_samples", X),
            ("score", X),
            ("sample",),
            ("save", "x.diva"),
        )
    ),
    *(
        pytest.param(then(m, with_value(np.nan)), (ValueError, "NaN"), id=f"{m}-nan")
        for m in ("predict", "predict_proba", "score_samples", "partial_fit")
    ),
    *(
        pytest.param(
            then(m, data),
            (ValueError, word),
            id=f"{m}-{word}-{kind}",
        )
        for m in ("predict", "predict_proba", "score_samples")
        for kind, wrap in (("batches", lambda values: [values]), ("memmap", mapped))
        for word, data in (("NaN", wrap(with_value(np.nan))), ("infinity", wrap(with_value(np.inf))))
    ),
    pytest.param(then("partial_fit", mapped(with_value(np.nan))), NAN, id="partial_fit-nan-memmap"),
    pytest.param(then("predict", X[:, :1]), (ValueError, "1 features", "expecting 2"), id="predict-features"),
    pytest.param(then("predict", [X[:, :1]]), (ValueError, "1 features", "expecting 2"), id="predict-features-batches"),
    pytest.param(
        then("predict", mapped(X[:, :1].copy())), (ValueError, "1 features", "expecting 2"), id="predict-features-memmap"
    ),
    pytest.param(then("predict", [X, X[:, :1]]), (ValueError, "batch 1 has 1"), id="predict-features-second-batch"),
    pytest.param(then("partial_fit", X[:, :1]), (ValueError, "1 features", "expecting 2"), id="partial_fit-features"),
    pytest.param(then("partial_fit", [X[:, :1]]), (ValueError, "1 features", "expecting 2"), id="partial_fit-features-batches"),
    pytest.param(then("predict", X[:0]), (ValueError, "0 sample"), id="predict-nothing"),
    pytest.param(then("predict", X, level="nonsense"), (ValueError, "level", "nonsense"), id="level=nonsense"),
    pytest.param(then("predict", X, level=1.5), (ValueError, "level", "1.5"), id="level=1.5"),
    pytest.param(then("predict", X, level=True), (ValueError, "level", "True"), id="level=True"),
    pytest.param(
        then("predict", X, level=3, fit_params={"grouping": None}),
        (ValueError, "level=3", "grouping"),
        id="level-without-grouping",
    ),
    pytest.param(
        then("predict", X, level=0, fit_params={"grouping": "valleys"}), (ValueError, "from 1 to 4", "got 0"), id="level=0"
    ),
    pytest.param(
        then("predict", X, level=99, fit_params={"grouping": "valleys"}), (ValueError, "from 1 to 4", "got 99"), id="level=99"
    ),
    *(
        pytest.param(then("sample", n), (ValueError, "n_samples", repr(n)), id=f"sample({n!r})")
        for n in (0, -1, 1.5, "a", None, True)
    ),
    pytest.param(then("sample", cluster=99), (ValueError, "cluster", "0 to 3", "99"), id="sample-cluster-99"),
    pytest.param(then("sample", component=-1), (ValueError, "component", "0 to 3", "-1"), id="sample-component--1"),
    pytest.param(then("sample", component="a"), (ValueError, "component", "'a'"), id="sample-component-a"),
    pytest.param(then("sample", component=0, cluster=1), (ValueError, "not part of"), id="sample-component-of-another-cluster"),
    pytest.param(then("partial_fit", X * 1e200), (ValueError, "too large"), id="partial_fit-1e200"),
    pytest.param(
        then("fit", blobs([[0, 0, 0], [9, 9, 9]]), fit_params={"warm_start": True}),
        (ValueError, "3 features", "expecting 2"),
        id="warm-start-features",
    ),
]


@pytest.mark.parametrize(("call", "expected"), [*DATA, *BATCHES, *WEIGHTS, *PARAMETERS, *USE])
def test_it_works_or_says_what_is_wrong(call, expected, tmp_path):
    if expected == WORKS:
        model, data = call(tmp_path)
        assert_usable(model, data)
    else:
        error, *words = expected
        with pytest.raises(error) as caught:
            call(tmp_path)
        for word in words:
            assert word in str(caught.value)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_units_do_not_change_the_clusters(scale, offset):
    model = DPMixture(random_state=0).fit(X * scale + offset * scale)
    np.testing.assert_array_equal(model.labels_, DPMixture(random_state=0).fit(X).labels_)


def test_the_end_of_float32_is_no_end():
    ends = np.where(np.arange(300)[:, None] % 10 > 0, 3e38, -3e38)
    model = DPMixture(random_state=0).fit(ends.astype(np.float32))
    np.testing.assert_allclose(model.means_, DPMixture(random_state=0).fit(ends).means_, rtol=1e-3)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        pytest.param(X[:1] * 1e12, X * 1e12, id="one-row"),
        pytest.param(X * [1, 1e-9], X, id="a-column-that-hardly-varied"),
        pytest.param(X, X + 1e12, id="elsewhere"),
    ],
)
def test_later_data_far_outside_the_first_count_as_they_are_or_are_refused(first, later):
    model = DPMixture(random_state=0).fit(first)
    try:
        model.partial_fit(later)
    except ValueError as error:
        assert "first data" in str(error)  # noqa: PT017
    else:
        mean = model.weights_ @ model.means_
        expected = np.concatenate([first, later]).mean(axis=0)
        np.testing.assert_allclose(mean, expected, atol=0.1 * np.abs(later).max())


def test_a_fit_that_fails_leaves_the_model_before_it():
    model = DPMixture(random_state=0).fit(X)
    density = model.score_samples(X)
    with pytest.raises(DataChangedError):
        model.fit(Changing([10 * X + 5], [10 * X + 6], from_pass=4))
    np.testing.assert_array_equal(model.score_samples(X), density)


@pytest.mark.parametrize("change", [{"covariance_type": "diag"}], ids=str)
@pytest.mark.parametrize("again", ["partial_fit", "fit"])
def test_parameters_of_the_prior_cannot_change_under_a_fitted_model(change, again):
    model = DPMixture(covariance_type="full", warm_start=True, random_state=0).fit(X).set_params(**change)
    with pytest.raises(ValueError, match="covariance_type"):
        getattr(model, again)(X)
