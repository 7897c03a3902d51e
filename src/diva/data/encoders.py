"""Cells of one column as numbers: of numbers, categories, text and vectors. What each needs is measured once and saved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

NUMBER = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"
MOST_WORDS = 2000  # of a vocabulary: the usual size for news and abstracts
SPLIT = r"(?u)\b[^\W\d_][\w'-]+\b"  # two characters or more, not numbers


class Encoder(Protocol):
    """How the cells of a column become numbers."""

    @property
    def n_features(self) -> int:
        """Numbers for each cell."""
        ...

    @property
    def unit(self) -> float:
        """What its numbers are divided by so that columns count alike."""
        ...

    @property
    def fill(self) -> NDArray[np.float64]:
        """Numbers of a cell that says nothing, (n_features,)."""
        ...

    def feature_names(self, column: str) -> list[str]:
        """Names of its numbers."""
        ...

    def encode(self, cells: Any) -> NDArray[np.float64]:
        """Numbers of cells (an Arrow array), (n, n_features); NaN in the first where a cell says nothing."""
        ...


# --- cells


def is_text(kind: Any) -> bool:
    """Whether an Arrow type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_string_view(kind))


def _is_string_view(kind: Any) -> bool:
    return bool(pa.types.is_string_view(kind)) if hasattr(pa.types, "is_string_view") else False


def texts_of(cells: Any) -> Any:
    """Cells as text without white space around, none for empty ones; truth values are written true and false."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_null(cells.type):
        return cells.cast(pa.string())
    trimmed = pc.utf8_trim_whitespace(cells.cast(pa.string()))
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)


def categories_of(cells: Any) -> Any:
    """Cells as names of categories: True, TRUE and true are one."""
    texts = texts_of(cells)
    lower = pc.utf8_lower(texts)
    return pc.if_else(pc.is_in(lower, value_set=pa.array(["true", "false"])), lower, texts)


def numbers_of(cells: Any) -> NDArray[np.float64]:
    """Cells as numbers; NaN for missing and infinite ones, and for text that is no number."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if is_text(cells.type):
        texts = pc.utf8_ltrim(texts_of(cells), "+")
        cells = pc.if_else(pc.match_substring_regex(texts, NUMBER), texts, pa.scalar(None, pa.string()))
    values: NDArray[np.float64] = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float64)
    values[~np.isfinite(values)] = np.nan
    return values


# --- encoders


@dataclass(frozen=True)
class NumberEncoder:
    """A number; gaps say no more than the mean."""

    mean: float
    sd: float
    n_features = 1

    @property
    def unit(self) -> float:  # noqa: D102
        return self.sd if self.sd > 1e-9 * abs(self.mean) else 1.0

    @property
    def fill(self) -> NDArray[np.float64]:  # noqa: D102
        return np.array([self.mean])

    def feature_names(self, column: str) -> list[str]:  # noqa: D102
        return [column]

    def encode(self, cells: Any) -> NDArray[np.float64]:  # noqa: D102
        return numbers_of(cells)[:, None]

    def check(self) -> None:
        """Raise ValueError if it is no such encoder."""
        if not (math.isfinite(self.mean) and math.isfinite(self.sd) and self.sd >= 0):
            raise ValueError("mean and deviation of a column should be numbers")


@dataclass(frozen=True)
class CategoryEncoder:
    """One number, 0 or 1, for each category; of two categories, one number is enough. Gaps have the shares of all rows."""

    values: Sequence[str]
    shares: Sequence[float]

    @property
    def _coded(self) -> Sequence[str]:
        return self.values[1:] if len(self.values) == 2 else self.values

    @property
    def n_features(self) -> int:  # noqa: D102
        return len(self._coded)

    @property
    def unit(self) -> float:
        """Their variances add up to 1 in this unit: a column counts as one number, however many categories it has."""
        fill = self.fill
        return math.sqrt(max(float((fill * (1 - fill)).sum()), 1e-12))

    @property
    def fill(self) -> NDArray[np.float64]:  # noqa: D102
        return np.array(self.shares[-self.n_features :], dtype=np.float64)

    def feature_names(self, column: str) -> list[str]:  # noqa: D102
        return [f"{column}={value}" for value in self._coded]

    def encode(self, cells: Any) -> NDArray[np.float64]:
        """One column for each category; NaN for a category that was not there at the fit."""
        position = pc.index_in(categories_of(cells), value_set=pa.array(self.values, pa.string()))
        numbers = position.cast(pa.float64()).to_numpy(zero_copy_only=False)
        known = np.isfinite(numbers)
        out = np.zeros((len(numbers), len(self.values)))
        out[np.flatnonzero(known), numbers[known].astype(np.int64)] = 1.0
        out[~known] = np.nan
        return out[:, -self.n_features :]

    def check(self) -> None:
        """Raise ValueError if it is no such encoder."""
        texts = all(isinstance(value, str) for value in self.values)
        if not texts or len(self.values) < 2 or len(set(self.values)) < len(self.values):
            raise ValueError("categories should be different words")
        if len(self.shares) != len(self.values) or not all(0 <= share <= 1 for share in self.shares):
            raise ValueError("there should be a share for each category")


@dataclass(frozen=True)
class TextEncoder:
    """Tf-idf of unit length over a vocabulary, as scikit-learn's TfidfVectorizer has it."""

    words: Sequence[str]
    idf: Sequence[float]
    variance: float  # of all numbers together

    @classmethod
    def fit(cls, documents: Iterable[str]) -> Self | None:
        """Choose the words; None if there are none to tell documents apart by.

        Words of one document alone, and those of more than half of them, say nothing about clusters.
        """
        vectorizer = TfidfVectorizer(
            sublinear_tf=True, token_pattern=SPLIT, min_df=2, max_df=0.5, max_features=MOST_WORDS, dtype=np.float64
        )
        try:
            rows = vectorizer.fit_transform(documents)
        except ValueError:  # no words are left
            return None
        mean = np.asarray(rows.mean(axis=0)).reshape(-1)
        variance = float(rows.multiply(rows).sum() / rows.shape[0] - (mean**2).sum())
        return cls(tuple(map(str, vectorizer.get_feature_names_out())), tuple(vectorizer.idf_.tolist()), variance)

    @cached_property
    def _vectorizer(self) -> TfidfVectorizer:
        vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=SPLIT, vocabulary=list(self.words), dtype=np.float64)
        vectorizer.idf_ = np.array(self.idf, dtype=np.float64)
        return vectorizer

    @property
    def n_features(self) -> int:  # noqa: D102
        return len(self.words)

    @property
    def unit(self) -> float:  # noqa: D102
        return math.sqrt(max(self.variance, 1e-12))

    @property
    def fill(self) -> NDArray[np.float64]:
        """No words."""
        return np.zeros(len(self.words))

    def feature_names(self, column: str) -> list[str]:  # noqa: ARG002  # words need no column
        """The words."""
        return list(self.words)

    def encode(self, cells: Any) -> NDArray[np.float64]:  # noqa: D102
        texts = texts_of(cells).to_pylist()
        values: NDArray[np.float64] = self._vectorizer.transform([text or "" for text in texts]).toarray()
        values[[text is None for text in texts]] = np.nan
        return values

    def check(self) -> None:
        """Raise ValueError if it is no such encoder."""
        if not self.words or not all(isinstance(word, str) for word in self.words) or len(set(self.words)) < len(self.words):
            raise ValueError("a vocabulary should be of different words")
        if len(self.idf) != len(self.words) or not all(math.isfinite(value) and value > 0 for value in self.idf):
            raise ValueError("there should be a weight for each word")
        if not (math.isfinite(self.variance) and self.variance >= 0):
            raise ValueError("the variance of a column should be a number")


@dataclass(frozen=True)
class VectorEncoder:
    """Lists of numbers, all of one length and in one unit."""

    means: Sequence[float]
    sd: float  # root of the mean variance

    @property
    def n_features(self) -> int:  # noqa: D102
        return len(self.means)

    @property
    def unit(self) -> float:  # noqa: D102
        return self.sd if self.sd > 0 else 1.0

    @property
    def fill(self) -> NDArray[np.float64]:  # noqa: D102
        return np.array(self.means, dtype=np.float64)

    def feature_names(self, column: str) -> list[str]:  # noqa: D102
        return [f"{column}[{i}]" for i in range(len(self.means))]

    def encode(self, cells: Any) -> NDArray[np.float64]:  # noqa: D102
        return vectors_of(cells, len(self.means))

    def check(self) -> None:
        """Raise ValueError if it is no such encoder."""
        if not self.means or not all(math.isfinite(value) for value in (*self.means, self.sd)) or self.sd < 0:
            raise ValueError("means of a column of vectors should be numbers")


def vectors_of(cells: Any, width: int) -> NDArray[np.float64]:
    """Lists of numbers as rows; NaN where there is none, or one with a gap. Raises ValueError if one is of another length."""
    lengths = pc.list_value_length(cells).fill_null(width).to_numpy(zero_copy_only=False)
    if (lengths != width).any():
        row = int(np.argmax(lengths != width))
        raise ValueError(f"lists of one length, got {width} numbers at first and {lengths[row]} in row {row}")
    out = np.full((len(cells), width), np.nan)
    there = cells.is_valid().to_numpy(zero_copy_only=False)
    out[there] = numbers_of(cells.drop_null().flatten()).reshape(-1, width)
    out[np.isnan(out).any(axis=1)] = np.nan
    return out


ENCODERS: dict[str, Any] = {
    "number": NumberEncoder,
    "category": CategoryEncoder,
    "text": TextEncoder,
    "vector": VectorEncoder,
}


def encoder_to_dict(encoder: Any) -> dict[str, Any]:
    """An encoder as JSON holds it."""
    return asdict(encoder)


def encoder_from_dict(use: str, plain: Mapping[str, Any]) -> Any:
    """Read it back; raises KeyError, TypeError or ValueError if it is none."""
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
    encoder = ENCODERS[use](**given)
    encoder.check()
    return encoder
