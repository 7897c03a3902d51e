"""Odd arrays, made from chance alone: the same generator gives the same data, whatever is asked of them afterwards.

An array is made in four steps, each a table of ways: what values it has, how they are spoilt, how they are stored, and what
holds them. A new way goes to the END of its table, so that seeds that were kept go on making what they made.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse
import torch
from numpy.random import Generator
from numpy.typing import NDArray

Values = NDArray[Any]


@dataclass(frozen=True)
class Odd:
    """Data to hand over, and how they came to be."""

    data: Any
    words: str
    n_samples: int
    n_features: int


def pick(chance: Generator, table: Mapping[str, Any], usual: float = 0.0) -> tuple[str, Any]:
    """An entry of a table; with probability ``usual`` its first."""
    is_usual, number = chance.random() < usual, int(chance.integers(len(table)))
    name = list(table)[0 if is_usual else number]
    return name, table[name]


def shape(chance: Generator) -> tuple[int, int]:
    """Few samples mostly; now and then more features than samples."""
    ranges = [(1, 4), (2, 12), (5, 60), (5, 60), (20, 60), (60, 200)]
    n = int(chance.integers(*ranges[chance.choice(6, p=[0.1, 0.25, 0.3, 0.2, 0.12, 0.03])]))
    d = int(chance.integers(*[(1, 4), (1, 9), (n, n + 40)][chance.choice(3, p=[0.6, 0.3, 0.1])]))
    return n, min(d, 70)


# --- values


def blobs(chance: Generator, n: int, d: int) -> Values:
    return chance.normal(size=(n, d)) + 8.0 * chance.integers(0, 3, size=(n, 1))


def outlier(chance: Generator, n: int, d: int) -> Values:
    x = chance.normal(size=(n, d))
    x[chance.integers(n), chance.integers(d)] = 10.0 ** chance.uniform(1, 300)
    return x


def nearly_constant(chance: Generator, n: int, d: int) -> Values:
    level = 10.0 ** chance.uniform(-10, 10)
    return level * (1.0 + 10.0 ** chance.uniform(-17, -5) * chance.normal(size=(n, d)))


def some_constant(chance: Generator, n: int, d: int) -> Values:
    x = chance.normal(size=(n, d))
    x[:, chance.random(d) < 0.5] = chance.choice([0.0, 1.0, -1e300, 1e-310, np.pi])
    return x


def wide_range(chance: Generator, n: int, d: int) -> Values:
    return chance.choice([-1.0, 1.0], size=(n, d)) * 10.0 ** chance.uniform(-300, 300, size=(n, d))


VALUES: dict[str, Callable[[Generator, int, int], Values]] = {
    "blobs": blobs,
    "normal": lambda chance, n, d: chance.normal(size=(n, d)),
    "uniform": lambda chance, n, d: chance.random((n, d)),
    "constant": lambda chance, n, d: np.full((n, d), chance.choice([0.0, 1.0, -3.5, 1e300, 5e-324])),
    "some constant": some_constant,
    "nearly constant": nearly_constant,
    "duplicates": lambda chance, n, d: chance.normal(size=(n, d))[chance.integers(0, 1 + n // 3, size=n)],
    "two points": lambda chance, n, d: np.where(chance.random((n, 1)) < 0.5, 0.0, chance.normal(size=d)),
    "counts": lambda chance, n, d: chance.poisson(2.0, size=(n, d)).astype(float),
    "binary": lambda chance, n, d: (chance.random((n, d)) < 0.3).astype(float),
    "one-hot": lambda chance, n, d: np.eye(d)[chance.integers(d, size=n)],
    "a line": lambda chance, n, d: chance.normal(size=(n, 1)) @ chance.normal(size=(1, d)),
    "linear in others": lambda chance, n, d: chance.normal(size=(n, 2)) @ chance.normal(size=(2, d)) + chance.normal(size=d),
    "outlier": outlier,
    "heavy tails": lambda chance, n, d: chance.standard_cauchy((n, d)) ** 3,
    "wide range": wide_range,
    "units": lambda chance, n, d: chance.normal(size=(n, d)) * 10.0 ** chance.uniform(-30, 30, size=d),
    "far from zero": lambda chance, n, d: chance.normal(size=(n, d)) + 10.0 ** chance.uniform(3, 18),
    "sparse": lambda chance, n, d: chance.normal(size=(n, d)) * (chance.random((n, d)) < 0.1),
    "unit length": lambda chance, n, d: (x := chance.normal(size=(n, d))) / np.linalg.norm(x, axis=1, keepdims=True),
    "a ramp": lambda chance, n, d: np.add.outer(np.arange(n), np.arange(d)).astype(float),
    "denormals": lambda chance, n, d: chance.integers(0, 9, size=(n, d)) * 5e-324,
    "negative zeros": lambda chance, n, d: np.where(chance.random((n, d)) < 0.5, -0.0, 0.0),
    "signs": lambda chance, n, d: chance.choice([-1.0, 1.0], size=(n, d)),
}

SCALES: dict[str, Callable[[Generator], float]] = {
    "as it is": lambda _: 1.0,
    "any scale": lambda chance: 10.0 ** chance.uniform(-300, 300),
    "float32 and beyond": lambda chance: 10.0 ** chance.uniform(-45, 39),
}


# --- spoilt


def spoilt(chance: Generator, x: Values, value: Any) -> Values:
    if value is None:
        x = x.astype(object)
    x[chance.integers(len(x)), chance.integers(x.shape[1])] = value
    return x


def spoilt_column(chance: Generator, x: Values) -> Values:
    x[:, chance.integers(x.shape[1])] = np.nan
    return x


SPOILT: dict[str, Callable[[Generator, Values], Values]] = {
    "": lambda _, x: x,
    "NaN": lambda chance, x: spoilt(chance, x, np.nan),
    "infinity": lambda chance, x: spoilt(chance, x, np.inf),
    "minus infinity": lambda chance, x: spoilt(chance, x, -np.inf),
    "largest": lambda chance, x: spoilt(chance, x, np.finfo(float).max),
    "both largest": lambda chance, x: spoilt(chance, spoilt(chance, x, np.finfo(float).max), -np.finfo(float).max),
    "None": lambda chance, x: spoilt(chance, x, None),
    "a column of NaN": spoilt_column,
    "all NaN": lambda _, x: x * np.nan,
    "no rows": lambda _, x: x[:0],
    "no columns": lambda _, x: x[:, :0],
    "one dimension": lambda _, x: x[:, 0],
    "three dimensions": lambda _, x: x[:, :, None],
    "no dimension": lambda _, x: x[0, 0],
}


# --- stored


def as_dtype(code: str) -> Callable[[Generator, Values], Values]:
    def convert(_: Generator, x: Values) -> Values:
        if x.dtype == object:  # None is among them
            return x
        if np.dtype(code).kind in "iub":
            x = np.nan_to_num(x, nan=0.0, posinf=100.0, neginf=-100.0).clip(-100 if "i" in code else 0, 100)
        with np.errstate(over="ignore", invalid="ignore"):
            return x.astype(code)

    return convert


DTYPES: dict[str, Callable[[Generator, Values], Values]] = {
    "": lambda _, x: x,
    **{
        code: as_dtype(code)
        for code in (
            "f4",
            "f2",
            ">f8",
            ">f4",
            ">f2",
            "longdouble",
            "i1",
            "i2",
            "i4",
            "i8",
            ">i4",
            "u1",
            "u2",
            "u4",
            "u8",
            ">u2",
        )
    },
    "bool": lambda _, x: np.asarray(x, dtype=object).astype(bool),
    "object": lambda _, x: x.astype(object),
    "complex": as_dtype("c16"),
    "complex64": as_dtype("c8"),
    "text": lambda _, x: x.astype(str),
    "bytes": lambda _, x: x.astype(str).astype("S"),
    "dates": lambda _, x: np.zeros(x.shape, "M8[s]"),
    "durations": lambda _, x: np.zeros(x.shape, "m8[s]"),
    "records": lambda _, x: np.zeros(x.shape, [("a", "f8"), ("b", "i4")]),
    "objects of all kinds": lambda _, x: np.frompyfunc(lambda v: [v], 1, 1)(x.astype(object)),
}


def misaligned(_: Generator, x: Values) -> Values:
    if x.dtype == object:
        return x
    buffer = np.zeros(x.nbytes + 1, np.uint8)
    held = np.ndarray(x.shape, x.dtype, buffer=buffer.data, offset=1)
    held[...] = x
    return held


def mapped(_: Generator, x: Values) -> Values:
    if x.dtype == object or not x.size:
        return x
    with tempfile.NamedTemporaryFile() as file:
        held = np.memmap(file, x.dtype, "w+", shape=x.shape)
        held[...] = x
        return held


def read_only(_: Generator, x: Values) -> Values:
    x = np.array(x)  # a copy, and an array even of a single number
    x.flags.writeable = False
    return x


LAYOUTS: dict[str, Callable[[Generator, Values], Values]] = {
    "": lambda _, x: x,
    "by columns": lambda _, x: np.asfortranarray(x),
    "every other row": lambda _, x: np.repeat(x, 2, axis=0)[::2] if x.ndim else x,
    "every other column": lambda _, x: np.repeat(x, 2, axis=1)[:, ::2] if x.ndim > 1 else x,
    "backwards": lambda _, x: x[::-1] if x.ndim else x,
    "columns backwards": lambda _, x: x[:, ::-1] if x.ndim > 1 else x,
    "one row again and again": lambda _, x: np.broadcast_to(x[:1], x.shape) if x.ndim else x,
    "one column again and again": lambda _, x: np.broadcast_to(x[:, :1], x.shape) if x.ndim > 1 else x,
    "read-only": read_only,
    "misaligned": misaligned,
    "mapped": mapped,
}


# --- held


def tensor(dtype: torch.dtype, change: Callable[[torch.Tensor], torch.Tensor] = lambda t: t) -> Callable[..., Any]:
    def hold(_: Generator, x: Values) -> Any:
        if x.dtype.kind not in "fiub":
            return x
        with np.errstate(over="ignore", invalid="ignore"):
            return change(torch.from_numpy(np.array(x, "f8")).to(dtype))

    return hold


def only(ndim: int, hold: Callable[[Generator, Values], Any], kinds: str = "fiubc") -> Callable[[Generator, Values], Any]:
    """Leave arrays as they are that the holder cannot hold; this is not about other libraries."""
    return lambda chance, x: hold(chance, x) if x.ndim == ndim and x.dtype.kind in kinds else x


def native(x: Values) -> Values:
    """As libraries want it that know neither long doubles, nor halves, nor the other order of bytes."""
    x = x.astype("f8") if x.dtype.kind == "f" and x.dtype.itemsize not in (4, 8) else x
    return np.ascontiguousarray(x.astype(x.dtype.newbyteorder("=")))


def nullable(_: Generator, x: Values) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        frame = pd.DataFrame(native(x)).astype("Float64" if x.dtype.kind == "f" else "Int64")
    if x.size:
        frame.iloc[0, 0] = pd.NA
    return frame


def doubled_entries(chance: Generator, x: Values) -> Any:
    rows, columns = chance.integers(x.shape[0], size=(2, 9)) % [[x.shape[0]], [x.shape[1]]]
    return scipy.sparse.coo_matrix((np.ones(9), (rows, columns)), shape=x.shape)


def mixed_frame(_: Generator, x: Values) -> Any:
    frame = pd.DataFrame(native(x))
    frame["word"] = "a"
    return frame


HOLDERS: dict[str, Callable[[Generator, Values], Any]] = {
    "": lambda _, x: x,
    "lists": lambda _, x: x.tolist(),
    "tuples": lambda _, x: tuple(map(tuple, x.tolist())) if x.ndim == 2 else x,
    "pandas": only(2, lambda _, x: pd.DataFrame(native(x), columns=[f"c{i}" for i in range(x.shape[1])]), "fiub"),
    "pandas, numbers as names": only(2, lambda _, x: pd.DataFrame(native(x)), "fiub"),
    "pandas with NA": only(2, nullable, "fiu"),
    "pandas with a word": only(2, mixed_frame, "fiub"),
    "pandas column": only(1, lambda _, x: pd.Series(native(x)), "fiub"),
    "polars": only(2, lambda _, x: pl.DataFrame(native(x), schema=[f"c{i}" for i in range(x.shape[1])]), "fiu"),
    "arrow": only(2, lambda _, x: pa.table({f"c{i}": native(x[:, i]) for i in range(x.shape[1])}), "fiub"),
    "torch": tensor(torch.float64),
    "torch float32": tensor(torch.float32),
    "torch half": tensor(torch.float16),
    "torch bfloat16": tensor(torch.bfloat16),
    "torch integers": tensor(torch.int32),
    "torch booleans": tensor(torch.bool),
    "torch with gradient": tensor(torch.float64, lambda t: t.requires_grad_()),
    "torch strided": tensor(torch.float64, lambda t: t.repeat_interleave(2, 0)[::2] if t.ndim else t),
    "torch expanded": tensor(torch.float64, lambda t: t[:1].expand(t.shape) if t.ndim and len(t) else t),
    "torch complex": tensor(torch.complex64),
    "torch sparse": tensor(torch.float64, lambda t: t.to_sparse() if t.ndim else t),
    "torch meta": tensor(torch.float64, lambda t: t.to("meta")),
    **{
        f"scipy {kind}": only(2, lambda _, x, kind=kind: scipy.sparse.coo_matrix(native(x)).asformat(kind), "fiub")
        for kind in ("csr", "csc", "coo", "bsr", "lil", "dok")
    },
    "scipy array": only(2, lambda _, x: scipy.sparse.csr_array(native(x)), "fiub"),
    "scipy, entries twice": only(2, lambda chance, x: doubled_entries(chance, x) if x.size else x),
    "masked": lambda chance, x: np.ma.masked_array(x, mask=chance.random(x.shape) < 0.1) if x.dtype.kind in "fiu" else x,
    "batches": lambda chance, x: np.array_split(x, chance.integers(1, 4)) if x.ndim == 2 else x,
    "batches of tensors": only(2, lambda _, x: [torch.from_numpy(native(x).astype("f8"))] * 2, "fiub"),
    "one-shot batches": lambda _, x: iter([x]),
    "data set": only(2, lambda _, x: torch.utils.data.TensorDataset(torch.from_numpy(native(x).astype("f8"))), "fiub"),
    "a word": lambda _, x: "no-such-file",
    "nothing": lambda _, x: None,
    "a dictionary": lambda _, x: {"x": x},
}


def odd_array(chance: Generator, n_features: int | None = None) -> Odd:
    """Data that somebody might hand over, good or bad; of so many features, where they are to follow others."""
    n, d = shape(chance)
    d = n_features or d
    kind, values = pick(chance, VALUES)
    scale, factor = pick(chance, SCALES, usual=0.7)
    spoiling, spoil = pick(chance, SPOILT, usual=0.88)
    dtype, convert = pick(chance, DTYPES, usual=0.6)
    layout, lay = pick(chance, LAYOUTS, usual=0.5)
    holder, hold = pick(chance, HOLDERS, usual=0.5)
    with np.errstate(all="ignore"):
        x = spoil(chance, values(chance, n, d) * factor(chance))
        data = hold(chance, lay(chance, np.asarray(convert(chance, x))))  # of no dimension, numpy makes a plain number
    words = ", ".join(w for w in (f"({n}, {d}) {kind}", scale, spoiling, dtype, layout, holder) if w not in ("", "as it is"))
    return Odd(data, words, n, d)


def odd_images(chance: Generator) -> Odd:
    """Small images, grey or in colour, of numbers that are odd as well."""
    n, size = int(chance.integers(2, 20)), int(chance.integers(1, 13))
    item = (size, int(chance.integers(1, 13)), *((int(chance.integers(1, 6)),) if chance.random() < 0.5 else ()))
    kind, values = pick(chance, VALUES)
    scale, factor = pick(chance, SCALES, usual=0.8)
    dtype, convert = pick(chance, DTYPES, usual=0.4)
    layout, lay = pick(chance, LAYOUTS, usual=0.6)
    with np.errstate(all="ignore"):
        x = (values(chance, n, int(np.prod(item))) * factor(chance)).reshape(n, *item)
        data = lay(chance, convert(chance, x))
    return Odd(data, f"images {(n, *item)} {kind}, {scale}, {dtype}, {layout}", n, int(np.prod(item)))


def odd_weights(chance: Generator, n: int) -> Values:
    """Weights of samples, most of them of use."""
    table = {
        "ones": np.ones(n),
        "uniform": chance.random(n),
        "some zero": chance.random(n) * (chance.random(n) < 0.5),
        "one alone": np.eye(1, n)[0],
        "all zero": np.zeros(n),
        "tiny": np.full(n, 1e-300),
        "huge": np.full(n, 1e300),
        "wide range": 10.0 ** chance.uniform(-40, 25, size=n),
        "large": 10.0 ** chance.uniform(0, 14, size=n),
        "negative": -np.ones(n),
        "NaN": np.full(n, np.nan),
        "too many": np.ones(n + 1),
        "integers": chance.integers(0, 4, size=n),
        "text": np.array(["a"] * n),
    }
    return np.asarray(pick(chance, table)[1])
