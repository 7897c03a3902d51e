"""Find groups in data when nobody knows how many there are."""

from diva.mixture import DPMixture
from diva.models.diva import DIVA
from diva.runs.load import load
from diva.version import __version__

__all__ = ["DIVA", "DPMixture", "__version__", "load"]
