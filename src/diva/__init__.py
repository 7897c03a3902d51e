"""Find groups in data when nobody knows how many there are."""

from diva.mixture import DPMixture
from diva.persistence import load

__all__ = ["DPMixture", "load"]
__version__ = "0.1.0.dev0"
