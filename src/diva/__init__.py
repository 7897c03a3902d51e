"""Find groups in data when nobody knows how many there are."""

from diva.estimator import DIVA
from diva.mixture import DPMixture
from diva.persistence import load
from diva.version import __version__

__all__ = ["DIVA", "DPMixture", "__version__", "load"]
