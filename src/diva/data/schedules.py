"""Data that change over time, for experiments with streams: which samples come when. No model, no files.

A schedule is a small frozen value. ``schedule.stages(labels, rng)`` gives its stages one after the other; each holds the
numbers of its samples, so that any source can be cut by it: ``PartOfSource(source, stage.index)``. The same seed gives the
same stages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Stage:
    """What comes at one time.

    Attributes
    ----------
    number : int
        From 0.
    index : ndarray of int64
        Numbers of its samples, in random order.
    classes, new_classes : tuple of int
        Classes in it, and those among them that no stage before had.
    progress : float
        From 0 at the first stage to 1 at the last.
    """

    number: int
    index: Index
    classes: tuple[int, ...]
    new_classes: tuple[int, ...]
    progress: float

    def batches(self, batch_size: int) -> Iterator[Index]:
        """Its samples in batches; the last may be smaller."""
        if batch_size < 1:
            raise ValueError(f"batch_size should be at least 1, got {batch_size}.")
        for start in range(0, len(self.index), batch_size):
            yield self.index[start : start + batch_size]


@dataclass(frozen=True)
class ClassSchedule:
    """Classes that appear, and perhaps vanish, over time.

    Attributes
    ----------
    classes : tuple of tuple of int
        Classes present at each stage.
    keep : bool, default=True
        Whether old data stay: every stage then holds all samples of its classes. Otherwise every sample comes once, and the
        samples of a class are shared out evenly among the stages that have it.

    Examples
    --------
    >>> import numpy as np
    >>> schedule = ClassSchedule(((0, 1), (0, 1, 2)))
    >>> [stage.new_classes for stage in schedule.stages([0, 1, 2, 2], np.random.default_rng(0))]
    [(0, 1), (2,)]
    """

    classes: tuple[tuple[int, ...], ...]
    keep: bool = True

    def __post_init__(self) -> None:
        if not self.classes or not all(self.classes):
            raise ValueError(f"classes should name at least one class for every stage, got {self.classes}.")

    def stages(self, labels: ArrayLike, rng: np.random.Generator) -> Iterator[Stage]:
        """Stages from first to last."""
        members = _members(labels, rng, {c for stage in self.classes for c in stage})
        shares: dict[int, Iterator[Index]] = {}
        for c, index in members.items():
            n_uses = sum(c in stage for stage in self.classes)
            shares[c] = repeat(index) if self.keep else iter(np.array_split(index, max(1, n_uses)))
        parts = [np.concatenate([next(shares[c]) for c in sorted(set(classes))]) for classes in self.classes]
        yield from _stages(parts, labels, rng)


@dataclass(frozen=True)
class MixtureDrift:
    """A mixture of classes that turns gradually into another; every sample comes at most once.

    Attributes
    ----------
    start, end : tuple of float
        Shares of the classes 0, 1, ... at the first and at the last stage; they need not add up to 1.
    n_stages : int
    """

    start: tuple[float, ...]
    end: tuple[float, ...]
    n_stages: int = 10

    def __post_init__(self) -> None:
        if len(self.start) != len(self.end) or not self.start:
            raise ValueError(f"start and end should name the same classes, got {len(self.start)} and {len(self.end)} shares.")
        _check_shares("start", self.start)
        _check_shares("end", self.end)
        if self.n_stages < 2:
            raise ValueError(f"n_stages should be at least 2, got {self.n_stages}.")

    def shares(self, progress: float) -> NDArray[np.float64]:
        """Shares of the classes at a time from 0 to 1; they add up to 1."""
        first, last = (np.asarray(s, np.float64) / np.sum(s) for s in (self.start, self.end))
        mixed: NDArray[np.float64] = (1 - progress) * first + progress * last
        return mixed

    def stages(self, labels: ArrayLike, rng: np.random.Generator) -> Iterator[Stage]:
        """Stages of one size, the largest for which no class runs out."""
        shares = np.stack([self.shares(t) for t in np.linspace(0, 1, self.n_stages)])  # (stages, classes)
        needed = [c for c in range(len(self.start)) if shares[:, c].any()]
        members = _members(labels, rng, needed)
        size = min(len(members[c]) / shares[:, c].sum() for c in needed)
        # bounds are rounded rather than counts, so that no class is asked for more than it has
        bounds = np.floor(np.cumsum(shares, axis=0) * size + 1e-9).astype(np.int64)
        bounds = np.concatenate([np.zeros((1, len(self.start)), np.int64), bounds])
        parts = [np.concatenate([members[c][bounds[t, c] : bounds[t + 1, c]] for c in needed]) for t in range(self.n_stages)]
        yield from _stages(parts, labels, rng)


@dataclass(frozen=True)
class Imbalance:
    """Classes of very different size; every sample comes at most once.

    Attributes
    ----------
    shares : tuple of float
        Sizes of the classes 0, 1, ... in proportion to each other. See ``geometric``.
    n_stages : int, default=1
        Number of stages, all with these shares.
    """

    shares: tuple[float, ...]
    n_stages: int = 1

    def __post_init__(self) -> None:
        _check_shares("shares", self.shares)
        if self.n_stages < 1:
            raise ValueError(f"n_stages should be at least 1, got {self.n_stages}.")

    @classmethod
    def geometric(cls, n_classes: int, ratio: float, n_stages: int = 1) -> Imbalance:
        """Sizes that fall evenly from class 0 to the last, which is smaller by this ratio."""
        if n_classes < 1 or not ratio >= 1:
            raise ValueError(f"Expected at least 1 class and a ratio of at least 1, got {n_classes} and {ratio}.")
        return cls(tuple(np.geomspace(1.0, 1.0 / ratio, n_classes).tolist()), n_stages)

    def stages(self, labels: ArrayLike, rng: np.random.Generator) -> Iterator[Stage]:
        """Stages as large as the data allow; a class with a share has at least one sample in all."""
        needed = [c for c, share in enumerate(self.shares) if share > 0]
        members = _members(labels, rng, needed)
        size = min(len(members[c]) / self.shares[c] for c in needed)
        kept = {c: members[c][: max(1, int(self.shares[c] * size + 1e-9))] for c in needed}
        split = {c: np.array_split(kept[c], self.n_stages) for c in needed}
        parts = [np.concatenate([split[c][t] for c in needed]) for t in range(self.n_stages)]
        yield from _stages(parts, labels, rng)


@dataclass(frozen=True)
class FeatureDrift:
    """Features that move gradually: samples come once, in stages of one size, and are moved by ``apply``.

    Attributes
    ----------
    shift : float, default=0
        How far every sample has moved at the end, along the diagonal of all features.
    rotation : float, default=0
        Degrees by which the first two features have turned about 0 at the end.
    n_stages : int, default=10

    Examples
    --------
    >>> import numpy as np
    >>> FeatureDrift(rotation=90).apply(np.array([[1.0, 0.0]]), progress=1.0).round(6)
    array([[0., 1.]])
    """

    shift: float = 0.0
    rotation: float = 0.0
    n_stages: int = 10

    def __post_init__(self) -> None:
        if self.n_stages < 2:
            raise ValueError(f"n_stages should be at least 2, got {self.n_stages}.")

    def stages(self, labels: ArrayLike, rng: np.random.Generator) -> Iterator[Stage]:
        """Stages from first to last; classes are mixed alike in all of them."""
        split = [np.array_split(index, self.n_stages) for index in _members(labels, rng).values()]
        parts = [np.concatenate([part[t] for part in split]) for t in range(self.n_stages)]
        yield from _stages(parts, labels, rng)

    def apply(self, x: NDArray[Any], progress: float) -> NDArray[Any]:
        """Samples (n, features) as they are at a time from 0 to 1, for example ``stage.progress``."""
        if x.ndim != 2 or (self.rotation and x.shape[1] < 2):
            raise ValueError(f"Expected samples of shape (n, features), got {x.shape}. A rotation needs two features.")
        moved = x.astype(np.result_type(x.dtype, np.float32), copy=True)
        if self.rotation:
            angle = np.deg2rad(self.rotation * progress)
            turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]], moved.dtype)
            moved[:, :2] = moved[:, :2] @ turn
        moved += moved.dtype.type(self.shift * progress / np.sqrt(x.shape[1]))
        return moved


def _members(labels: ArrayLike, rng: np.random.Generator, needed: Collection[int] = ()) -> dict[int, Index]:
    """Numbers of the samples of each class, in random order; raises ValueError if a needed class has none."""
    values = np.asarray(labels)
    if values.ndim != 1 or values.dtype.kind not in "iu" or len(values) == 0:
        raise ValueError(f"Expected one whole number as label for each sample, got {values.dtype} of shape {values.shape}.")
    members = {int(c): rng.permutation(np.flatnonzero(values == c)).astype(np.int64) for c in np.unique(values)}
    missing = sorted(set(needed) - set(members))
    if missing:
        raise ValueError(f"The schedule names the classes {missing}, but no sample has such a label.")
    return members


def _check_shares(name: str, shares: Sequence[float]) -> None:
    values = np.asarray(shares, np.float64)
    if not len(values) or not np.isfinite(values).all() or (values < 0).any() or not values.sum() > 0:
        raise ValueError(f"{name} should hold numbers that are not negative, and one above 0, got {tuple(shares)}.")


def _stages(parts: list[Index], labels: ArrayLike, rng: np.random.Generator) -> Iterator[Stage]:
    values, seen = np.asarray(labels), set[int]()
    for number, part in enumerate(parts):
        classes = tuple(int(c) for c in np.unique(values[part]))
        new = tuple(c for c in classes if c not in seen)
        seen.update(new)
        yield Stage(number, rng.permutation(part), classes, new, number / max(1, len(parts) - 1))
