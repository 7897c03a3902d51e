"""Where to compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diva.parameters import Holds

if TYPE_CHECKING:  # parameters are declared without torch
    import torch


def resolve_device(name: Any) -> torch.device:
    """The device a name stands for; "auto" takes a GPU if there is one."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def can_compute_on(name: Any) -> bool:
    """Whether numbers can be put on a device."""
    import torch

    try:
        torch.zeros(1, dtype=torch.float64, device=resolve_device(name)).item()
    except (RuntimeError, TypeError, AssertionError):
        return False
    return True


DEVICE = Holds(can_compute_on, 'a device that can be used here, such as "cpu" or "auto"', "DEVICE")
