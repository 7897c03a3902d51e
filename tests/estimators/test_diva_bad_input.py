"""One table of everything that may be handed to DIVA: it either works, or says what is wrong before it trains."""

import copy
import functools
import re
import traceback
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import diva.training.loop
from diva import DIVA
from diva.exceptions import TrainingError
from diva.training.augmentation import Affine

from .helpers import blobs

WORKS = "works"
LOUD = pytest.mark.filterwarnings("ignore::diva.exceptions.ScaleWarning")  # one column holds nearly all of the variance
EITHER = "works or is refused"
TINY = {"latent_dim": 2, "hidden_sizes": (8,), "n_epochs": 2, "n_laps": 1, "n_views": 1, "random_state": 0}
CENTRES = [[0.0, 0, 0, 0], [8, 0, 0, 8], [0, 8, 8, 0]]
X = blobs(CENTRES, n=8)
rng = np.random.default_rng(0)


def stable(value):
    """A name for a test: repr without the address, which differs between workers."""
    return re.sub(r"0x[0-9A-Fa-f]+", "somewhere", repr(value))


def drawn(n=20, size=8, seed=0):
    """Images from 0 to 1 of bars that lie or stand, (n, size, size)."""
    chance = np.random.default_rng(seed)
    images = chance.uniform(0, 0.2, size=(n, size, size))
    for number, image in enumerate(images):
        place = chance.integers(1, size - 1)
        if number % 2:
            image[place] = 1.0
        else:
            image[:, place] = 1.0
    return images


IMAGES = drawn()
BYTES = (IMAGES * 255).astype(np.uint8)
FLAT = IMAGES.reshape(len(IMAGES), -1)
SINGLE = {"rows32": X.astype(np.float32), "images32": IMAGES.astype(np.float32)}


# --- ways to hand over data


def with_value(value, dtype=np.float64, values=X):
    """One odd entry, number 1 of sample 3."""
    odd = values.astype(dtype)
    odd.reshape(len(odd), -1)[3, 1] = value
    return odd


def mapped(values):
    """The values in a file, mapped read-only."""

    def write(folder):
        np.save(folder / "x.npy", values)
        return np.load(folder / "x.npy", mmap_mode="r")

    return write


def read_only(values):
    values = values.copy()
    values.flags.writeable = False
    return values


class Items(Dataset):
    """Whatever is in a list, as a Dataset."""

    def __init__(self, items):
        self.items = list(items)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(X)


class Encoder(nn.Module):
    """A linear encoder; ``change`` spoils what it returns."""

    def __init__(self, n_features=4, latent_dim=2, change=lambda mean, log_var: (mean, log_var)):
        super().__init__()
        self.flat = nn.Flatten()
        self.mean, self.log_var = nn.Linear(n_features, latent_dim), nn.Linear(n_features, latent_dim)
        self.change = change

    def forward(self, x):
        x = self.flat(x)
        return self.change(self.mean(x), self.log_var(x))


def own(encoder=None, decoder=None):
    return {"encoder": encoder or Encoder(), "decoder": decoder or nn.Linear(2, 4)}


# --- ways to call


def fit(data, y=None, validation=None, **params):
    """Fit and hand back the model with the data to judge it by."""

    def call(folder):
        made = data(folder) if callable(data) else data
        return DIVA(**(TINY | params)).fit(made, y, validation=validation), made

    return call


@functools.cache
def fitted(which):
    made = {"rows": X, "images": IMAGES, "bytes": BYTES, "flat": FLAT, "tiny": X * 1e-12, "ungrouped": X}
    data = (made | SINGLE)[which]
    params = {"flat": {"image_shape": (8, 8)}, "ungrouped": {"grouping": None}}.get(which, {})
    return DIVA(**(TINY | params)).fit(data)


def then(method, *args, after="rows", **kwargs):
    """Fit good data, then do something else."""

    def call(folder):
        model = fitted(after)
        if method in ("fit", "partial_fit"):
            model = copy.deepcopy(model)
        made = [a(folder) if callable(a) else a for a in args]
        return getattr(model, method)(*made, **kwargs), made[0] if made else None

    return call


def bad(**params):
    ((name, value),) = params.items()
    return pytest.param(fit(X, **params), ((ValueError, TypeError), name), id=f"{name}={stable(value)}")


def good(**params):
    return pytest.param(fit(X, **params), WORKS, id=",".join(f"{k}={stable(v)}" for k, v in params.items())[:60])


NAN = (ValueError, "NaN")
NAN_AT = (ValueError, "NaN", "sample 3", "number 1")
INFINITE = (ValueError, "infinity")
INFINITE_AT = (ValueError, "infinity", "sample 3", "number 1")

ROWS = [
    # --- numbers that are none
    pytest.param(fit(with_value(np.nan)), NAN, id="nan"),
    pytest.param(fit(with_value(np.inf)), INFINITE, id="inf"),
    pytest.param(fit(with_value(-np.inf, np.float32)), INFINITE, id="-inf-float32"),
    pytest.param(fit(torch.from_numpy(with_value(np.nan))), NAN, id="nan-tensor"),
    pytest.param(fit(pd.DataFrame(with_value(np.nan))), NAN, id="nan-frame"),
    pytest.param(fit(mapped(with_value(np.nan))), NAN_AT, id="nan-memmap"),
    pytest.param(fit(mapped(with_value(np.inf))), INFINITE_AT, id="inf-memmap"),
    pytest.param(fit(Items(with_value(np.nan))), NAN_AT, id="nan-dataset"),
    pytest.param(fit(with_value(None, object)), NAN, id="none-inside"),
    # --- shapes
    pytest.param(fit(X[:0]), (ValueError, "0 sample"), id="no-rows"),
    pytest.param(fit(X[:, :0]), (ValueError, "0 feature"), id="no-features"),
    pytest.param(fit([]), (ValueError, "2D array"), id="empty-list"),
    pytest.param(fit(None), ((ValueError, TypeError),), id="none"),
    pytest.param(fit(5.0), ((ValueError, TypeError),), id="a-number"),
    pytest.param(fit("x.npy"), (ValueError, "no file", "x.npy"), id="a-path-that-is-none"),
    pytest.param(fit("no-such-data"), (ValueError, "no-such-data"), id="a-word"),
    pytest.param(fit({"a": X}), ((ValueError, TypeError), "dict"), id="dict"),
    pytest.param(fit(X[:, 0]), (ValueError, "2D array", "reshape"), id="1-d"),
    pytest.param(fit(X[None, None, None]), (ValueError, "dim 5"), id="5-d"),
    pytest.param(fit([[1.0, 2.0], [3.0]]), (ValueError, "inhomogeneous"), id="ragged"),
    pytest.param(fit(X.tolist()), WORKS, id="nested-lists"),
    pytest.param(fit(X[:1]), (ValueError, "1 sample"), id="one-sample"),
    pytest.param(fit(mapped(X[:1].copy())), (ValueError, "minimum of 2"), id="one-sample-memmap"),
    pytest.param(fit(mapped(X[:0].copy())), (ValueError, "0 sample"), id="no-rows-memmap"),
    pytest.param(fit(X[:2]), WORKS, id="two-samples"),
    pytest.param(fit(X[:3], batch_size=2), WORKS, id="three-samples-in-two-batches"),
    pytest.param(fit(X[:7], batch_size=1), WORKS, id="batches-of-one"),
    pytest.param(fit(X[:5], batch_size=10**9), WORKS, id="fewer-samples-than-a-batch"),
    pytest.param(fit(X[:, :1]), WORKS, id="one-feature"),
    pytest.param(fit(rng.normal(size=(10, 30))), WORKS, id="fewer-samples-than-features"),
    # --- memory
    pytest.param(fit(X[::-1, ::-1]), WORKS, id="negative-strides"),
    pytest.param(fit(np.asfortranarray(X)), WORKS, id="column-major"),
    pytest.param(fit(X[::2]), WORKS, id="every-other-row"),
    pytest.param(fit(read_only(X)), WORKS, id="read-only"),
    pytest.param(fit(mapped(X)), WORKS, id="memmap"),
    pytest.param(fit(mapped(X.astype(np.float16))), WORKS, id="memmap-float16"),
    pytest.param(fit(mapped(X.astype(int))), WORKS, id="memmap-int"),
    pytest.param(fit(mapped(X.astype(">f4"))), WORKS, id="memmap-big-endian"),
    # --- degenerate
    pytest.param(fit(np.column_stack([X, np.full(len(X), 7.0)])), WORKS, id="constant-column"),
    pytest.param(fit(np.full((20, 3), 7.0)), WORKS, id="all-constant"),
    pytest.param(fit(np.zeros((20, 3))), WORKS, id="all-zero"),
    pytest.param(fit(np.repeat(X[[0, -1]], 20, axis=0)), WORKS, id="duplicates-only"),
    pytest.param(fit(X[:8]), WORKS, id="one-class-only"),
    pytest.param(fit(np.eye(6)[rng.integers(0, 6, 40)]), WORKS, id="one-hot"),
    pytest.param(fit(np.concatenate([X, np.full((1, 4), 1e9)])), WORKS, id="one-outlier"),
    # --- scales
    pytest.param(fit(X * 1e12), WORKS, id="times-1e12"),
    pytest.param(fit(X * 1e-12), WORKS, id="times-1e-12"),
    pytest.param(fit(X * 1e-30), WORKS, id="times-1e-30"),
    pytest.param(fit(X * 1e-200), WORKS, id="times-1e-200"),
    pytest.param(fit(with_value(1e30)), WORKS, id="one-1e30", marks=LOUD),
    pytest.param(fit(X * 1e28), WORKS, id="times-1e28"),
    pytest.param(fit(X * 1e32), (ValueError, "too large", "escale"), id="times-1e32"),
    pytest.param(fit(X * 1e300), (ValueError, "escale"), id="times-1e300"),
    pytest.param(fit((X * 1e32).astype(np.float32)), (ValueError, "escale"), id="times-1e32-float32"),
    pytest.param(fit(rng.normal(size=(40, 7)) * 10.0 ** np.arange(-9, 10, 3)), WORKS, id="mixed-scales", marks=LOUD),
    # --- types
    pytest.param(fit(X.astype(np.float16)), WORKS, id="float16"),
    pytest.param(fit(X.astype(np.longdouble)), WORKS, id="longdouble"),
    pytest.param(fit(X.astype(">f8")), WORKS, id="big-endian"),
    pytest.param(fit(X.astype(int)), WORKS, id="int"),
    pytest.param(fit(X.astype(np.uint64) + 2**40), WORKS, id="large-uint64"),
    pytest.param(fit((X * 10 + 50).clip(0, 255).astype(np.uint8)), WORKS, id="uint8"),
    pytest.param(fit(X > 4), WORKS, id="bool"),
    pytest.param(fit(X.astype(object)), WORKS, id="numeric-objects"),
    pytest.param(fit(np.full((5, 2), "cat")), (ValueError, "could not convert string", "cat"), id="strings"),
    pytest.param(fit(with_value("cat", object)), (ValueError, "could not convert string", "cat"), id="mixed-objects"),
    pytest.param(fit(X + 1j), (ValueError, "Complex"), id="complex"),
    pytest.param(fit(scipy.sparse.csr_array(X)), WORKS, id="sparse"),
    pytest.param(fit(scipy.sparse.csr_array(X[:1])), (ValueError, "minimum of 2"), id="sparse-one-row"),
    pytest.param(fit(scipy.sparse.csr_array(X + 1j)), (ValueError, "complex"), id="sparse-complex"),
    pytest.param(fit(scipy.sparse.csr_array(with_value(np.nan))), (ValueError, "NaN"), id="sparse-nan"),
    pytest.param(fit(scipy.sparse.coo_matrix(X)), WORKS, id="sparse-matrix"),
    pytest.param(fit(pd.DataFrame({"a": ["x", "y", "z"], "b": [1, 2, 3]})), (ValueError, "'a'"), id="frame-of-words"),
    pytest.param(fit(pd.DataFrame(X, columns=list("abcd"))), WORKS, id="frame"),
    pytest.param(fit(torch.from_numpy(X)), WORKS, id="tensor"),
    pytest.param(fit(torch.from_numpy(X).requires_grad_()), WORKS, id="tensor-with-gradient"),
    pytest.param(fit(torch.from_numpy(X).half()), WORKS, id="tensor-float16"),
    pytest.param(fit(torch.from_numpy(X).bfloat16()), WORKS, id="tensor-bfloat16"),
    pytest.param(fit(torch.from_numpy(X) > 4), WORKS, id="tensor-bool"),
    pytest.param(fit(torch.from_numpy(X).int()), WORKS, id="tensor-int"),
    pytest.param(fit(torch.from_numpy(X).T.contiguous().T), WORKS, id="tensor-transposed"),
    pytest.param(fit(torch.from_numpy(X).to_sparse()), (ValueError, "to_dense"), id="tensor-sparse"),
    pytest.param(fit(torch.from_numpy(X) + 1j), (ValueError, "omplex"), id="tensor-complex"),
    # --- labels by mistake
    pytest.param(fit((X, np.zeros(len(X)))), (ValueError, "pair of arrays", "X alone"), id="pair"),
    pytest.param(fit((torch.from_numpy(X), torch.zeros(len(X)))), (ValueError, "pair of arrays"), id="pair-of-tensors"),
    pytest.param(fit((IMAGES, np.zeros(len(IMAGES)))), (ValueError, "pair of arrays"), id="pair-of-images"),
    pytest.param(fit([X, np.zeros(len(X))]), (ValueError,), id="list-of-pair"),
    pytest.param(fit(np.arange(20) % 3), (ValueError, "2D array"), id="labels-alone"),
    pytest.param(fit(X, y="anything"), WORKS, id="y-is-ignored"),
    pytest.param(fit(X, y=np.zeros(3)), WORKS, id="y-of-another-length-is-ignored"),
]

PICTURES = [
    pytest.param(fit(IMAGES), WORKS, id="images"),
    pytest.param(fit(IMAGES[..., None]), WORKS, id="one-channel"),
    pytest.param(fit(np.stack([IMAGES] * 3, axis=3)), WORKS, id="three-channels"),
    pytest.param(fit(np.stack([IMAGES] * 5, axis=3)), WORKS, id="five-channels"),
    pytest.param(fit(list(IMAGES)), WORKS, id="list-of-images"),
    pytest.param(fit(IMAGES.tolist()), WORKS, id="nested-lists-of-images"),
    pytest.param(fit(BYTES), WORKS, id="images-uint8"),
    pytest.param(fit(IMAGES > 0.5), WORKS, id="images-bool"),
    pytest.param(fit((IMAGES * 16).astype(int)), WORKS, id="images-int"),
    pytest.param(fit(IMAGES.astype(np.float16)), WORKS, id="images-float16"),
    pytest.param(fit(IMAGES.astype(">f8")), WORKS, id="images-big-endian"),
    pytest.param(fit(np.asfortranarray(IMAGES)), WORKS, id="images-column-major"),
    pytest.param(fit(IMAGES[::-1, ::-1, ::-1]), WORKS, id="images-negative-strides"),
    pytest.param(fit(read_only(IMAGES)), WORKS, id="images-read-only"),
    pytest.param(fit(mapped(IMAGES)), WORKS, id="images-memmap"),
    pytest.param(fit(torch.from_numpy(IMAGES).bfloat16()), WORKS, id="images-tensor-bfloat16"),
    pytest.param(fit(IMAGES * 2 - 1), WORKS, id="images-from-minus-1"),
    pytest.param(fit(IMAGES * 1e-30), WORKS, id="images-times-1e-30"),
    pytest.param(fit(IMAGES * 1e-300), WORKS, id="images-times-1e-300"),
    pytest.param(fit(IMAGES * 1e29), WORKS, id="images-times-1e29"),
    pytest.param(fit(IMAGES * 1e31), (ValueError, "too large", "escale"), id="images-times-1e31"),
    pytest.param(fit(IMAGES * 1.7e308), (ValueError, "escale"), id="images-at-the-end-of-float64"),
    pytest.param(fit(IMAGES + 1e12), WORKS, id="images-offset-1e12"),
    pytest.param(fit(np.zeros((10, 8, 8))), WORKS, id="black-images"),
    pytest.param(fit(np.ones((10, 8, 8))), WORKS, id="white-images"),
    pytest.param(fit(np.full((10, 8, 8), 255, np.uint8)), WORKS, id="white-images-uint8"),
    pytest.param(fit(np.full((10, 8, 8), -7.0)), WORKS, id="constant-images"),
    pytest.param(fit(np.repeat(IMAGES[:1], 20, axis=0)), WORKS, id="one-image-again-and-again"),
    pytest.param(fit(IMAGES[::2]), WORKS, id="one-class-of-images"),
    pytest.param(fit(IMAGES[:1]), (ValueError, "(1, 8, 8)", "minimum of 2"), id="one-image"),
    pytest.param(fit(IMAGES[:2]), WORKS, id="two-images"),
    pytest.param(fit(drawn(5, 4), batch_size=2), WORKS, id="4x4-the-last-batch-has-one"),
    pytest.param(fit(drawn(5, 4), batch_size=1, augmentation=None), EITHER, id="4x4-batches-of-one-without-views"),
    pytest.param(fit(drawn(5, 4), batch_size=2, preset="paper"), EITHER, id="4x4-the-last-batch-has-one-paper"),
    pytest.param(fit(IMAGES[:0]), (ValueError, "(0, 8, 8)"), id="no-images"),
    pytest.param(fit(IMAGES[:, :0]), (ValueError, "(20, 0, 8)"), id="images-without-height"),
    pytest.param(fit(IMAGES.astype(object)), (ValueError, "object"), id="images-of-objects"),
    pytest.param(fit(IMAGES.astype(str)), (ValueError, "<U"), id="images-of-strings"),
    pytest.param(fit(IMAGES + 1j), (ValueError, "complex"), id="images-complex"),
    pytest.param(fit(with_value(np.nan, values=IMAGES)), NAN_AT, id="images-nan"),
    pytest.param(fit(with_value(-np.inf, values=IMAGES)), INFINITE_AT, id="images--inf"),
    pytest.param(fit(np.where(IMAGES > 0.9, np.inf, -np.inf)), INFINITE, id="images-of-both-infinities"),
    pytest.param(fit(IMAGES[:, :7]), (ValueError, "divisible by 4", "7 x 8"), id="height-7"),
    pytest.param(fit(IMAGES[:, :, :6]), (ValueError, "divisible by 4", "8 x 6"), id="width-6"),
    pytest.param(fit(IMAGES[:, :2, :2]), (ValueError, "divisible by 4"), id="2x2"),
    pytest.param(fit(np.stack([IMAGES] * 3, axis=1)), (ValueError, "channels first", "transpose"), id="channels-first"),
    pytest.param(
        fit(torch.from_numpy(IMAGES)[:, None]), (ValueError, "channels first", "transpose"), id="channels-first-tensor"
    ),
    pytest.param(fit(FLAT, image_shape=(8, 8)), WORKS, id="flat-with-image-shape"),
    pytest.param(fit(FLAT, image_shape=[8, 8, 1]), WORKS, id="flat-with-image-shape-list"),
    pytest.param(fit(FLAT, image_shape=(4, 4, 4)), WORKS, id="flat-with-channels"),
    pytest.param(fit(IMAGES, image_shape=(8, 8)), WORKS, id="images-with-image-shape"),
    pytest.param(fit(IMAGES, image_shape=(4, 16)), (ValueError, "(4, 16)", "(8, 8)"), id="images-of-another-image-shape"),
    pytest.param(fit(FLAT, image_shape=(7, 8)), (ValueError, "(7, 8)", "56", "64"), id="wrong-image-shape"),
    pytest.param(fit(FLAT, image_shape=(2, 32)), (ValueError, "divisible by 4"), id="image-shape-not-divisible"),
    pytest.param(fit(FLAT, preset="images"), (ValueError, "rows", "image_shape"), id="rows-as-images"),
    pytest.param(fit(IMAGES, preset="features"), WORKS, id="images-as-features"),
    pytest.param(fit(X, augmentation="affine"), (ValueError, "affine"), id="affine-views-of-rows"),
    pytest.param(fit(X, augmentation="affine+flip"), (ValueError, "affine"), id="affine-flip-views-of-rows"),
    pytest.param(fit(X, augmentation="photo"), (ValueError, "photo"), id="photo-views-of-rows"),
    pytest.param(fit(IMAGES, augmentation="mask"), WORKS, id="masked-images"),
    pytest.param(fit(IMAGES, augmentation="affine+flip"), WORKS, id="flipped-images"),
    pytest.param(fit(IMAGES, augmentation="photo"), WORKS, id="images-in-another-light"),
]

SETS = [
    pytest.param(fit(TensorDataset(torch.from_numpy(X))), WORKS, id="dataset"),
    pytest.param(fit(TensorDataset(torch.from_numpy(X), torch.zeros(len(X)))), WORKS, id="dataset-with-labels"),
    pytest.param(fit(Items(IMAGES)), WORKS, id="dataset-of-images"),
    pytest.param(fit(Items(BYTES)), WORKS, id="dataset-of-bytes"),
    pytest.param(fit(Items(X[:1])), (ValueError, "1 items", "minimum of 2"), id="dataset-of-one"),
    pytest.param(fit(Items([])), (ValueError, "0 items", "minimum of 2"), id="empty-dataset"),
    pytest.param(fit(Items([*X, X[0, :2]])), (ValueError, "item 24", "(2,)", "(4,)"), id="ragged-dataset"),
    pytest.param(fit(Items([{"x": 1}, {"x": 2}])), (ValueError, "numbers"), id="dataset-of-dicts"),
    pytest.param(fit(Items(["a", "b", "c"])), (ValueError, "numbers"), id="dataset-of-words"),
    pytest.param(fit(Items([[], []])), ((ValueError, TypeError),), id="dataset-of-empty-tuples"),
    pytest.param(fit(Items([1.0, 2.0, 3.0])), (ValueError, "shape"), id="dataset-of-single-numbers"),
    pytest.param(fit(Items(torch.from_numpy(IMAGES)[:, None])), WORKS, id="dataset-channels-first"),
    pytest.param(fit(Items(rng.random((6, 4, 4, 2, 2)))), (ValueError, "(4, 4, 2, 2)"), id="dataset-of-4-d-items"),
    pytest.param(fit(Items(np.zeros((5, 0)))), (ValueError,), id="dataset-without-features"),
    pytest.param(fit(Stream()), (TypeError, "length", "Stream"), id="iterable-dataset"),
    pytest.param(fit(DataLoader(TensorDataset(torch.from_numpy(X)))), ((ValueError, TypeError), "DataLoader"), id="loader"),
    pytest.param(fit(iter(X)), ((ValueError, TypeError),), id="iterator"),
]

VALIDATION = [
    pytest.param(fit(X, validation=X[:5]), WORKS, id="validation"),
    pytest.param(fit(X, validation=X[:1]), WORKS, id="validation-of-one"),
    pytest.param(fit(IMAGES, validation=IMAGES[:1]), WORKS, id="validation-of-one-image"),
    pytest.param(fit(X, validation=with_value(np.nan)), NAN, id="validation-nan"),
    pytest.param(fit(X, validation=X[:0]), (ValueError, "0 sample"), id="validation-empty"),
    pytest.param(fit(X, validation=X[:, :2]), (ValueError, "2 features", "expecting 4"), id="validation-features"),
    pytest.param(fit(X, validation=(X, np.zeros(len(X)))), (ValueError, "pair of arrays"), id="validation-pair"),
    pytest.param(fit(X, validation=0.1), ((ValueError, TypeError),), id="validation-a-share"),
    pytest.param(fit(IMAGES, validation=BYTES), (ValueError, "0 to 1", "255"), id="validation-of-another-range"),
    pytest.param(
        fit(IMAGES, validation=IMAGES.reshape(-1, 4, 16)), (ValueError, "(8, 8)", "(4, 16)"), id="validation-of-another-shape"
    ),
]


class Opaque:
    """Neither a number nor anything else."""


PARAMETERS = [
    *(bad(preset=v) for v in (None, "nonsense", 3, True, ["auto"], np.nan)),
    *(bad(image_shape=v) for v in ("8x8", 64, (8,), (8, 8, 1, 1), (8.0, 8.0), (-8, -8), (0, 64), (True, 64), (8, None))),
    *(
        bad(**{name: v})
        for name in ("latent_dim", "n_epochs", "batch_size", "n_laps", "max_components", "n_views", "early_stopping")
        for v in (0, -1, 1.0, 2.5, np.nan, np.inf, "3", True, [3], Opaque)
    ),
    pytest.param(fit(X, latent_dim=10**15), ((ValueError, MemoryError), "latent_dim"), id="latent_dim=1e15"),
    pytest.param(fit(X, hidden_sizes=(10**15,)), ((ValueError, MemoryError), "hidden_sizes"), id="hidden_sizes=1e15"),
    *(
        bad(**{name: v})
        for name in ("learning_rate", "concentration", "covariance_scale")
        for v in (0, -1.0, np.nan, np.inf, "0.1", True, [0.1], 1e300, 10**400, 1e-300, 1j)
    ),
    *(bad(weight_decay=v) for v in (-1e-9, np.nan, np.inf, "0", True, [0.0])),
    *(bad(**{name: v}) for name in ("warmup", "self_training") for v in (-0.1, 1.1, np.nan, np.inf, "0.2", True, [0.2])),
    pytest.param(fit(X, warmup=0.6, self_training=0.6), (ValueError, "warmup", "self_training", "0.6"), id="more-than-all"),
    *(bad(reconstruction=v) for v in ("bce", 1, True, "MSE")),
    *(bad(kl_weight=v) for v in (-1.0, np.nan, np.inf, "none", True, [1.0], np.ones(2), 1e300)),
    *(bad(assignment=v) for v in ("firm", 0, False)),
    *(bad(covariance_type=v) for v in ("tied", 1, "FULL")),
    *(bad(grouping=v) for v in ("louvain", True, 0, 3)),
    *(bad(resolution=v) for v in (0, -1, np.nan, np.inf, "fine", True, [1.0], np.ones(2))),
    *(bad(hidden_sizes=v) for v in ((), 8, "8", (8, 0), (8.0,), (-1,), (True,), (None,), {8}, np.nan)),
    *(bad(checkpoint_every=v) for v in (None, 0, -1, 1.5, "1", True, np.nan)),
    *(bad(resume=v) for v in (None, "yes", 1.5, np.nan)),
    *(bad(verbose=v) for v in (None, "yes", 1.5)),
    pytest.param(fit(X, resume=True), (ValueError, "resume", "run_dir"), id="resume-without-run-dir"),
    *(bad(run_dir=v) for v in (5, 1.5, True, ["runs"], b"runs", "", "a\0b")),
    *(bad(augmentation=v) for v in ("rotate", True, 3, ["affine"], ("affine", "mask"), np.ones(2))),
    *(bad(callbacks=v) for v in (None, lambda model, record: None, print, "print", [None], (print, 3), {print})),
    *(bad(device=v) for v in (None, "nonsense", "", 1.5, ["cpu"], "cuda:99", "meta")),
    *(bad(compile=v) for v in (None, "yes", 1.5)),
    *(bad(precision=v) for v in (None, "float16", torch.bfloat16, 16, True)),
    *([] if torch.cuda.is_available() else [bad(device="cuda"), bad(device=torch.device("cuda")), bad(device=0)]),
    *(
        pytest.param(fit(X, random_state=v), (ValueError, "eed"), id=f"random_state={stable(v)}")
        for v in ("zero", 1.5, -1, 2**33, [1.5], np.nan)
    ),
    # --- fine
    good(latent_dim=np.int64(2), n_epochs=np.int32(2), batch_size=np.uint8(16), n_views=np.int64(2), n_laps=np.int8(1)),
    good(learning_rate=np.float32(1e-3), weight_decay=np.float64(0), warmup=np.float32(0.5), kl_weight=np.float32(1)),
    good(concentration=1, covariance_scale=np.int64(1), resolution=np.float32(1.0), self_training=0),
    good(hidden_sizes=[8, 8]),
    good(hidden_sizes=(np.int64(8),)),
    good(latent_dim=1),
    good(latent_dim=7),
    good(n_epochs=1),
    good(n_epochs=1, self_training=1.0),
    good(self_training=1.0),
    good(warmup=1.0),
    good(warmup=1, self_training=0),
    good(warmup=0),
    good(warmup=0, self_training=1),
    good(kl_weight=0),
    good(kl_weight="auto"),
    good(weight_decay=0.1),
    good(batch_size=4),
    good(early_stopping=1),
    good(n_views=3),
    good(n_laps=3),
    good(resolution="auto"),
    good(resolution=1e-9),
    good(resolution=1e9),
    good(covariance_type="diag"),
    good(grouping="walk", augmentation=None),
    good(grouping=None),
    good(random_state=None),
    good(random_state=np.int64(3)),
    good(random_state=np.random.RandomState(3)),
    good(device="cpu"),
    good(device=torch.device("cpu")),
    good(verbose=True),
    good(verbose=np.True_),
    good(callbacks=[]),
    good(callbacks=[lambda model, record: None]),
    good(callbacks=(lambda model, record: "true",)),
    # --- extremes within the limits
    *(good(**{name: v}) for name in ("concentration", "covariance_scale") for v in (1e-12, 1e12)),
    good(learning_rate=1e-12),
    good(kl_weight=1e6),
]


def spoilt(change):
    """Views that are none; the first word of the error should be who made them."""
    return fit(X, augmentation=change)


VIEWS = [
    pytest.param(spoilt(lambda x, generator: x + 0.1), WORKS, id="own-views"),
    pytest.param(spoilt(lambda x, generator: x.clone().double()), EITHER, id="views-float64"),
    pytest.param(spoilt(lambda x, generator: None), ((ValueError, TypeError), "augmentation"), id="views-none"),
    pytest.param(spoilt(lambda x, generator: x.numpy()), ((ValueError, TypeError), "augmentation"), id="views-numpy"),
    pytest.param(spoilt(lambda x, generator: x[:, :2]), ((ValueError, TypeError), "augmentation"), id="views-narrower"),
    pytest.param(spoilt(lambda x, generator: x[:3]), ((ValueError, TypeError), "augmentation"), id="views-fewer"),
    pytest.param(spoilt(lambda x, generator: torch.cat([x, x])), ((ValueError, TypeError), "augmentation"), id="views-more"),
    pytest.param(spoilt(lambda x, generator: x * torch.nan), ((ValueError, TypeError), "augmentation"), id="views-nan"),
    pytest.param(spoilt(lambda x: x), (ValueError, "augmentation"), id="views-of-one-argument"),
    pytest.param(spoilt(Affine), ((ValueError, TypeError), "augmentation"), id="a-class-of-views"),
]

NETWORKS = [
    pytest.param(fit(X, **own()), WORKS, id="own-networks"),
    pytest.param(fit(X, encoder=Encoder()), (ValueError, "both"), id="encoder-without-decoder"),
    pytest.param(fit(X, decoder=nn.Linear(2, 4)), (ValueError, "both"), id="decoder-without-encoder"),
    pytest.param(fit(X, encoder="mlp", decoder="mlp"), (ValueError, "encoder", "Module", "mlp"), id="networks-by-name"),
    pytest.param(fit(X, **own(decoder=len)), (ValueError, "decoder", "Module"), id="decoder-a-function"),
    pytest.param(fit(X, encoder=Encoder, decoder=nn.Linear), (ValueError, "Module"), id="classes-of-networks"),
    pytest.param(
        fit(X, **own(Encoder(latent_dim=3), nn.Linear(3, 4))), (ValueError, "latent_dim"), id="encoder-of-another-length"
    ),
    pytest.param(fit(X, **own(Encoder(n_features=5))), (ValueError, "encoder", "(2, 4)"), id="encoder-of-other-input"),
    pytest.param(fit(X, **own(decoder=nn.Linear(2, 5))), (ValueError, "decoder", "(2, 5)"), id="decoder-of-other-output"),
    pytest.param(fit(X, **own(decoder=nn.Linear(3, 4))), (ValueError, "decoder"), id="decoder-of-other-input"),
    pytest.param(fit(X, **own(nn.Linear(4, 2))), (ValueError, "log_var"), id="encoder-returns-one-tensor"),
    *(
        pytest.param(fit(X, **own(Encoder(change=change))), (ValueError, "encoder"), id=f"encoder-returns-{name}")
        for name, change in {
            "none": lambda mean, log_var: None,
            "three": lambda mean, log_var: (mean, log_var, mean),
            "a-dict": lambda mean, log_var: {"mean": mean, "log_var": log_var},
            "numpy": lambda mean, log_var: (mean.detach().numpy(), log_var.detach().numpy()),
            "one-row": lambda mean, log_var: (mean[:1], log_var[:1]),
            "flat": lambda mean, log_var: (mean.flatten(), log_var.flatten()),
            "another-log-var": lambda mean, log_var: (mean, log_var[:, :1]),
        }.items()
    ),
    pytest.param(fit(X, **own(Encoder().double(), nn.Linear(2, 4).double())), (ValueError, "encoder"), id="networks-float64"),
    pytest.param(
        fit(X, **own(Encoder(change=lambda m, v: (m * torch.nan, v)))), ((ValueError, TrainingError),), id="encoder-returns-nan"
    ),
    pytest.param(fit(X, **own(Encoder().requires_grad_(False))), WORKS, id="frozen-encoder"),
    pytest.param(
        fit(X, **own(Encoder().requires_grad_(False), nn.Linear(2, 4).requires_grad_(False))), EITHER, id="frozen-networks"
    ),
    pytest.param(fit(X[:7], batch_size=1, **own()), WORKS, id="own-networks-batches-of-one"),
    pytest.param(
        fit(IMAGES[:, :7, :7], **own(Encoder(49), nn.Sequential(nn.Linear(2, 49), nn.Unflatten(1, (1, 7, 7))))),
        WORKS,
        id="own-networks-7x7",
    ),
]

READS = ("predict", "predict_proba", "transform", "reconstruct", "score_samples", "score", "partial_fit")
frame = pd.DataFrame(X, columns=list("abcd"))

USE = [
    *(
        pytest.param(lambda _, m=method: getattr(DIVA(), m)(X), (NotFittedError,), id=f"unfitted-{method}")
        for method in READS
        if method != "partial_fit"
    ),
    pytest.param(lambda _: DIVA().inverse_transform(np.zeros((3, 2))), (NotFittedError,), id="unfitted-inverse_transform"),
    pytest.param(lambda _: DIVA().sample(), (NotFittedError,), id="unfitted-sample"),
    pytest.param(lambda folder: DIVA().save(folder / "m.diva"), (NotFittedError,), id="unfitted-save"),
    *(
        case
        for method in READS
        for case in (
            pytest.param(then(method, with_value(np.nan)), NAN, id=f"{method}-nan"),
            pytest.param(then(method, with_value(np.nan, values=IMAGES), after="images"), NAN_AT, id=f"{method}-images-nan"),
            pytest.param(then(method, X[:, :2]), (ValueError, "2 features", "expecting 4"), id=f"{method}-features"),
            pytest.param(
                then(method, IMAGES.reshape(-1, 4, 16), after="images"), (ValueError, "(8, 8)", "(4, 16)"), id=f"{method}-shape"
            ),
            pytest.param(then(method, IMAGES[:, :4], after="images"), (ValueError, "32", "64"), id=f"{method}-height"),
            pytest.param(then(method, X[:0]), (ValueError, "0 sample"), id=f"{method}-nothing"),
            pytest.param(then(method, BYTES, after="images"), (ValueError, "0 to 1", "255"), id=f"{method}-bytes-for-floats"),
            pytest.param(
                then(method, IMAGES, after="bytes"), (ValueError, "0 to 255", "to 1."), id=f"{method}-floats-for-bytes"
            ),
        )
    ),
    pytest.param(then("predict", IMAGES.reshape(-1, 4, 16), after="flat"), (ValueError, "(4, 16)"), id="flat-then-4x16"),
    pytest.param(then("predict", X, level="nonsense"), (ValueError, "level", "nonsense"), id="level=nonsense"),
    pytest.param(then("predict", X, level=1.5), (ValueError, "level", "1.5"), id="level=1.5"),
    pytest.param(then("predict", X, level=True), (ValueError, "level", "True"), id="level=True"),
    pytest.param(then("predict", X, level=0), (ValueError, "level", "from 1", "got 0"), id="level=0"),
    pytest.param(then("predict", X, level=99), (ValueError, "level", "got 99"), id="level=99"),
    pytest.param(then("predict", X, level=2, after="ungrouped"), (ValueError, "level=2", "grouping"), id="level-ungrouped"),
    *(
        pytest.param(then("sample", n), (ValueError, "n_samples", repr(n)), id=f"sample({stable(n)})")
        for n in (0, -1, 1.5, "a", None, True)
    ),
    pytest.param(then("sample", cluster=99), (ValueError, "cluster", "99"), id="sample-cluster-99"),
    pytest.param(then("sample", component=-1), (ValueError, "component", "-1"), id="sample-component--1"),
    pytest.param(then("sample", random_state="a"), (ValueError, "seed"), id="sample-random_state-a"),
    *(
        pytest.param(then("inverse_transform", Z), (ValueError, *words), id=f"inverse_transform-{name}")
        for name, Z, words in (
            ("width", np.zeros((3, 5)), ["(n_samples, 2)", "(3, 5)", "transform"]),
            ("1-d", np.zeros(2), ["2D array"]),
            ("nan", np.full((3, 2), np.nan), ["NaN"]),
            ("inf", np.full((3, 2), np.inf), ["infinity"]),
            ("huge", np.full((3, 2), 1e300), ["too large"]),
            ("nothing", np.zeros((0, 2)), ["0 sample"]),
            ("words", np.full((3, 2), "cat"), ["cat"]),
        )
    ),
    pytest.param(
        lambda _: DIVA(**TINY).fit(frame).predict(frame.rename(columns={"a": "e"})), (ValueError, "names"), id="other-names"
    ),
    pytest.param(lambda _: DIVA(**TINY).fit(frame).predict(frame[list("dcba")]), (ValueError, "same order"), id="names-turned"),
]


@pytest.fixture
def epochs(monkeypatch):
    """Epochs begun, to see that nothing is trained on what is refused."""
    begun = []
    train = diva.training.loop.train_epoch
    monkeypatch.setattr(diva.training.loop, "train_epoch", lambda *args: (begun.append(1), train(*args))[1])
    return begun


def assert_usable(model, data):
    """Nothing a user can ask of a fitted model is NaN or infinite."""
    codes = model.transform(data)
    assert codes.shape == (len(model.labels_), model.config_.latent_dim)
    proba = model.predict_proba(data)
    assert proba.shape == (len(codes), model.n_clusters_)
    assert proba.min() >= 0
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-5)
    for name in ("transform", "score_samples", "reconstruct"):
        assert np.isfinite(getattr(model, name)(data)).all(), name
    assert np.isfinite(model.sample(3, random_state=0)[0]).all()
    assert all(np.isfinite([r.loss, r.reconstruction, r.kl, r.kl_weight, r.bound]).all() for r in model.history_)
    np.testing.assert_array_equal(model.predict(data), model.labels_)


def assert_told(error, words):
    """The message has what it should, and did not come from inside torch."""
    for word in words:
        assert word in str(error)
    innermost = traceback.extract_tb(error.__traceback__)[-1].filename
    assert "/site-packages/torch/" not in innermost, f"raised inside torch: {error}"


@pytest.mark.parametrize(("call", "expected"), [*ROWS, *PICTURES, *SETS, *VALIDATION, *PARAMETERS, *VIEWS, *NETWORKS, *USE])
def test_it_works_or_says_what_is_wrong(call, expected, tmp_path, monkeypatch, epochs):
    monkeypatch.chdir(tmp_path)  # for a run_dir that is none
    if expected == WORKS:
        assert_usable(*call(tmp_path))
    elif expected == EITHER:
        try:
            model, data = call(tmp_path)
        except (ValueError, TypeError) as error:
            assert_told(error, [])
            assert not epochs
        else:
            assert_usable(model, data)
    else:
        errors, *words = expected
        for which in ("rows", "images", "bytes", "flat", "ungrouped"):
            fitted(which)
        epochs.clear()
        with pytest.raises(errors) as caught:
            call(tmp_path)
        assert_told(caught.value, words)
        is_training_error = isinstance(caught.value, TrainingError) or "names" in words or "same order" in words
        assert is_training_error or not epochs


# --- what is refused leaves no trace


@pytest.mark.parametrize(
    ("params", "data"),
    [
        pytest.param({"preset": "images"}, X, id="rows-as-images"),
        pytest.param({}, IMAGES[:, :7], id="height-7"),
        pytest.param({"image_shape": (3, 3)}, X, id="image-shape"),
        pytest.param({}, with_value(np.nan, values=IMAGES), id="nan"),
        pytest.param({"callbacks": [lambda *_: 1 / 0]}, X, id="callback-fails"),
    ],
)
def test_a_first_fit_that_fails_leaves_no_fitted_model(params, data):
    model = DIVA(**(TINY | params))
    with pytest.raises((ValueError, ZeroDivisionError)):
        model.fit(data)
    with pytest.raises(NotFittedError):
        model.predict(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(X[:, :2], id="rows-as-images"),
        pytest.param(IMAGES[:, :7], id="height-7"),
        pytest.param(with_value(np.nan, values=IMAGES), id="nan-in-an-image"),
    ],
)
def test_a_later_fit_that_fails_leaves_the_model_before_it(data):
    model = copy.deepcopy(fitted("images"))
    model.preset = "images"
    codes = model.transform(IMAGES)
    with pytest.raises(ValueError, match=r"rows|divisible|NaN"):
        model.fit(data)
    np.testing.assert_array_equal(model.transform(IMAGES), codes)


@pytest.mark.parametrize("bad_data", [X[:, :2], with_value(np.nan), X[:0]], ids=["features", "nan", "nothing"])
def test_a_partial_fit_that_fails_leaves_the_model_before_it(bad_data):
    model = copy.deepcopy(fitted("rows"))
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match=r"features|NaN|0 sample"):
        model.partial_fit(bad_data)
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize("which", ["rows", "images"])
def test_data_are_not_changed(which):
    data = {"rows": X, "images": IMAGES}[which].astype(np.float32)
    before = data.copy()
    model = DIVA(**TINY).fit(data)
    model.partial_fit(data)
    model.reconstruct(data)
    np.testing.assert_array_equal(data, before)


@pytest.mark.parametrize("rate", [1e12, 1e3, 10.0])
@pytest.mark.parametrize("which", ["rows", "images"])
def test_a_learning_rate_that_explodes_is_an_error_for_people_or_finite(rate, which):
    data = {"rows": X, "images": IMAGES}[which]
    for n_epochs in (1, 3):  # the weights may explode in the very last step, when no loss is computed any more
        model = DIVA(**(TINY | {"n_epochs": n_epochs, "learning_rate": rate, "batch_size": 64}))
        try:
            model.fit(data)
        except (TrainingError, ValueError) as error:
            assert "learning_rate" in str(error)  # noqa: PT017
        else:
            assert_usable(model, data)


def test_weight_decay_that_explodes_is_an_error_for_people_or_finite():
    try:
        model = DIVA(**TINY, weight_decay=1e300).fit(X)
    except (TrainingError, ValueError) as error:
        assert "weight_decay" in str(error)  # noqa: PT017
    else:
        assert_usable(model, X)


@pytest.mark.parametrize("factor", [1e3, 1e12, 1e29])
@pytest.mark.parametrize("after", ["rows", "tiny"])
def test_later_samples_far_outside_are_refused_or_get_finite_answers(factor, after):
    model = fitted(after)
    for method in ("transform", "predict_proba", "score_samples", "reconstruct"):
        try:
            answer = getattr(model, method)(X * factor)
        except ValueError as error:
            assert "fit" in str(error) or "escale" in str(error)  # noqa: PT017
        else:
            assert np.isfinite(answer).all(), method


@pytest.mark.parametrize("offset", [1e5, 1e8, 1.7e9], ids=["1e5", "1e8", "seconds-since-1970"])
def test_an_offset_does_not_change_the_codes(offset):
    whole = X.round()  # exact in float64 at any of these offsets
    model, same = DIVA(**TINY).fit(whole + offset), DIVA(**TINY).fit(whole)
    np.testing.assert_allclose(model.transform(whole + offset), same.transform(whole), atol=0.02)


def test_large_whole_numbers_are_not_rounded_to_float32():
    whole = (X * 10).round().astype(np.int64)
    model, same = DIVA(**TINY).fit(whole + 10**9), DIVA(**TINY).fit(whole)
    np.testing.assert_allclose(model.transform(whole + 10**9), same.transform(whole), atol=0.02)


@pytest.mark.parametrize("factor", [1e-6, 1e6, 2.0**40])
def test_units_of_rows_do_not_change_the_codes(factor):
    model, same = DIVA(**TINY).fit(X * factor), fitted("rows")
    np.testing.assert_allclose(model.transform(X * factor), same.transform(X), atol=1e-3)


@pytest.mark.parametrize(
    "hand_over",
    [
        pytest.param(lambda values, _: torch.from_numpy(values), id="tensor"),
        pytest.param(lambda values, folder: mapped(values)(folder), id="memmap"),
        pytest.param(lambda values, _: TensorDataset(torch.from_numpy(values)), id="dataset"),
        pytest.param(lambda values, _: np.asfortranarray(values), id="column-major"),
    ],
)
@pytest.mark.parametrize("which", ["rows32", "images32"])
def test_every_way_to_hand_over_the_data_gives_the_same_model(hand_over, which, tmp_path):
    values = SINGLE[which]
    data = hand_over(values, tmp_path)
    other, same = DIVA(**TINY).fit(data), fitted(which)
    np.testing.assert_array_equal(other.labels_, same.labels_)
    np.testing.assert_array_equal(other.transform(data), same.transform(values))


@pytest.mark.parametrize("warned", [False, True])
def test_a_component_limit_of_one_is_one_component(warned):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DIVA(**TINY, max_components=1, grouping="walk" if warned else None).fit(X)
    assert model.n_components_ == model.n_clusters_ == 1
    assert_usable(model, X)


def test_a_loss_that_is_not_finite_is_an_error_without_a_warning():
    with pytest.raises(TrainingError, match=r"epoch 0, step 0.*Most likely"):
        DIVA(**TINY, **own(Encoder(change=lambda mean, log_var: (mean / (mean.abs() > 1e9), log_var)))).fit(X)
