"""The Dirichlet process Gaussian mixture alone: tensors in, tensors out."""

from diva.mixture.estimator import DPMixture
from diva.mixture.process import draw_dirichlet_process

__all__ = ["DPMixture", "draw_dirichlet_process"]
