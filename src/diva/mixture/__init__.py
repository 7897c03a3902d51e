"""The Dirichlet process Gaussian mixture alone: tensors in, tensors out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diva.mixture.estimator import DPMixture
    from diva.mixture.process import draw_dirichlet_process

__all__ = ["DPMixture", "draw_dirichlet_process"]

# Imported when first used (PEP 562): its parameters are declared without torch.
_MODULES = {"DPMixture": "diva.mixture.estimator", "draw_dirichlet_process": "diva.mixture.process"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
