"""The Dirichlet process Gaussian mixture alone: tensors in, tensors out."""

from diva.mixture.estimator import DPMixture

__all__ = ["DPMixture"]
