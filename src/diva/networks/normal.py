"""Gaussians with a diagonal covariance, as encoders and priors give them: means and log variances."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diva.networks.vae import LOG_VAR_LIMIT

LOG_2PI = math.log(2 * math.pi)


def bounded(log_var: Tensor) -> Tensor:
    """Log variances that cannot overflow, however a network errs."""
    return LOG_VAR_LIMIT * torch.tanh(log_var / LOG_VAR_LIMIT)


def draw(mean: Tensor, log_var: Tensor, noise: torch.Generator) -> Tensor:
    """One draw of each, through which gradients flow."""
    return mean + torch.randn(mean.shape, generator=noise, device=noise.device).to(mean) * (log_var / 2).exp()


def entropy(log_var: Tensor) -> Tensor:
    """Of each Gaussian, (n, D) -> (n,)."""
    return 0.5 * (1 + LOG_2PI + log_var).sum(1)


def log_density(z: Tensor, mean: Tensor, log_var: Tensor, z_log_var: Tensor | None = None) -> Tensor:
    """Log density of codes (n, D) under K components, (K, D) or (n, K, D): (n, K).

    With the log variances of codes that are uncertain, its expectation.
    """
    squares = (z.unsqueeze(1) - mean).square()
    if z_log_var is not None:
        squares = squares + z_log_var.exp().unsqueeze(1)
    return -0.5 * (squares / log_var.exp() + log_var + LOG_2PI).sum(2)
