"""Kumaraswamy's distribution on (0, 1), which is drawn from in closed form, and the stick that is broken by its draws."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

EULER = 0.5772156649015329
N_TERMS = 10  # of the series for E log(1 - v)
INNERMOST = 0.01  # draws leave this share out on either side, so that no stick is all or nothing


def log_beta(a: Tensor, b: Tensor) -> Tensor:
    """Logarithm of Euler's beta function."""
    return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)


def draw(a: Tensor, b: Tensor, noise: torch.Generator) -> Tensor:
    """Draw v ~ Kumaraswamy(a, b): its distribution function 1 - (1 - v^a)^b is solved for v."""
    u = INNERMOST + (1 - 2 * INNERMOST) * torch.rand(b.shape, generator=noise, device=noise.device).to(b)
    return (1 - u ** (1 / b)).clamp_min(1e-7) ** (1 / a)


def mean(a: Tensor, b: Tensor) -> Tensor:
    """E v = b B(1 + 1/a, b)."""
    return (b.log() + log_beta(1 + 1 / a, b)).exp()


def kl_to_beta(a: Tensor, b: Tensor, alpha: float, beta: float) -> Tensor:
    """KL(Kumaraswamy(a, b) || Beta(alpha, beta)), one for each stick (Nalisnick and Smyth 2017, equation 7)."""
    series = sum(((log_beta(m / a, b)).exp() / (m + a * b) for m in range(1, N_TERMS + 1)), torch.zeros_like(b))
    prior = math.lgamma(alpha) + math.lgamma(beta) - math.lgamma(alpha + beta)
    first = (a - alpha) / a * (-EULER - torch.digamma(b) - 1 / b)
    return first + (a * b).log() + prior - (b - 1) / b + (beta - 1) * b * series


def log_segments(v: Tensor) -> Tensor:
    """Logarithms of v_k prod_{j<k} (1 - v_j), the pieces broken off a stick one after the other, (n, K) -> (n, K)."""
    left = torch.log1p(-v[:, :-1].clamp_max(1 - 1e-6)).cumsum(1)
    return v.clamp_min(1e-20).log() + functional.pad(left, (1, 0))
