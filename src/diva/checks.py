"""Small checks of single values, shared by the estimators."""

from __future__ import annotations

import os
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch


def resolve_device(name: Any) -> torch.device:
    """The device a name stands for; "auto" takes a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def check_device(name: Any) -> None:
    """Raise ValueError unless numbers can be put on the device."""
    try:
        torch.zeros(1, dtype=torch.float64, device=resolve_device(name)).item()
    except (RuntimeError, TypeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f'device={name!r} cannot be used here ({reason}). Try "cpu" or "auto".') from error


def is_number(value: Any) -> bool:
    """Whether value is a finite real number."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and bool(np.isfinite(float(value)))
    except OverflowError:
        return False


def is_whole(value: Any) -> bool:
    """Whether value is an integer."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def plain_param(value: Any) -> Any:
    """A parameter as JSON can hold it; what it cannot hold, a module or a random state, becomes None."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.device | os.PathLike):
        return str(value)
    if isinstance(value, tuple | list):
        return [plain_param(v) for v in value]
    return value if value is None or isinstance(value, bool | int | float | str) else None
