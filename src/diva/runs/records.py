"""Records, frozen dataclasses of plain values, as JSON and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """What one epoch did, as a plain row; None where a model has no such thing."""

    epoch: int
    phase: str
    loss: float  # what was minimized, mean over the steps
    reconstruction: float | None = None  # terms of it, before they are weighed
    kl: float | None = None
    self_training: float | None = None
    kl_weight: float | None = None
    bound: float | None = None  # evidence lower bound per sample, of what was learnt from and of what was held out
    validation_bound: float | None = None
    n_components: int = 0
    n_clusters: int | None = None
    births: int = 0  # of components, after the epoch
    merges: int = 0
    deletes: int = 0
    mixture_elbo_per_sample: float | None = None
    seconds: float = 0.0  # the whole epoch, and the part of it that the mixture took
    mixture_seconds: float = 0.0

    @property
    def score(self) -> float:
        """What early stopping watches; the larger the better."""
        watched = self.bound if self.validation_bound is None else self.validation_bound
        return -self.loss if watched is None else watched


def read_json(path: Path) -> Any:
    """What a file of a run says; raises OSError if it cannot be read, ValueError if it is no file, or no JSON.

    Folders of runs may come from anywhere: a pipe or a device in the place of a file would never end.
    """
    if path.exists() and not path.is_file():
        raise ValueError("it is a folder, a pipe or a device")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def record_from_plain(kind: type[Record], plain: Any) -> Record:
    """Rebuild a record from JSON; raises TypeError or ValueError unless every field is there and of its type."""
    types = get_type_hints(kind)
    if not isinstance(plain, dict) or set(plain) != set(types):
        raise ValueError(f"a record of kind {kind.__name__} should have the fields {sorted(types)}")
    return kind(**{name: _checked(name, plain[name], expected) for name, expected in types.items()})


def _checked(name: str, value: Any, expected: Any) -> Any:
    if get_origin(expected) is tuple:
        if not isinstance(value, list):
            raise TypeError(f"{name} should be a list")
        return tuple(_checked(name, v, get_args(expected)[0]) for v in value)
    options = get_args(expected) or (expected,)  # int | None has two
    if float in options and type(value) is int:
        value = float(value)
    if type(value) not in options:
        raise TypeError(f"{name} should be {expected}, is {value!r}")
    return value
