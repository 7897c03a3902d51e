"""Find groups in data when nobody knows how many there are."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from diva.version import __version__

if TYPE_CHECKING:
    from diva import distributed
    from diva.mixture import DPMixture
    from diva.models.diva import DIVA
    from diva.runs.load import load

__all__ = ["DIVA", "DPMixture", "__version__", "distributed", "load"]

# Imported when first used (PEP 562): reports are read and written without torch.
_MODULES = {"DIVA": "diva.models.diva", "DPMixture": "diva.mixture", "load": "diva.runs.load"}


def __getattr__(name: str) -> Any:
    if name == "distributed":
        return import_module("diva.distributed")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
