"""Stick-breaking weights of the Dirichlet process: q(v_k) = Beta(eta1_k, eta0_k)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

PAIRS_AT_ONCE = 2048  # whose masses, with those of all other components, are in memory at once


def stick_posterior(counts: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    r"""Beta parameters of each stick.

    .. math:: \eta_{k1} = 1 + N_k, \qquad \eta_{k0} = \alpha + \sum_{l>k} N_l

    The paper's second sum runs to N; it should run to K.
    """
    passed = counts.flip(-1).cumsum(-1).flip(-1) - counts  # mass that goes on beyond stick k
    return 1.0 + counts, alpha + passed.clamp_min(0.0)


def expected_log_weights(eta1: Tensor, eta0: Tensor) -> Tensor:
    r"""Expected log mixture weights under q(v).

    .. math:: E[\log \pi_k] = E[\log v_k] + \sum_{l<k} E[\log(1 - v_l)]
    """
    both = torch.digamma(eta1 + eta0)
    e_log_rest = torch.digamma(eta0) - both
    return torch.digamma(eta1) - both + e_log_rest.cumsum(0) - e_log_rest


def expected_weights(eta1: Tensor, eta0: Tensor) -> Tensor:
    """Expected weights E[pi_k] of shape (K + 1,); the last is what is left for components not yet seen."""
    v = eta1 / (eta1 + eta0)
    rest = torch.cumprod(1.0 - v, 0)
    return torch.cat([v, v.new_ones(1)]) * torch.cat([v.new_ones(1), rest])


def stick_bound(counts: Tensor, alpha: float) -> Tensor:
    r"""Allocation part of the bound, :math:`A(N) = \sum_k \log B(\eta_{k1}, \eta_{k0}) - \log B(1, \alpha)`.

    Masses (..., K) are in stick order; leading axes are independent mixtures.
    """
    eta1, eta0 = stick_posterior(counts, alpha)
    log_beta = torch.lgamma(eta1) + torch.lgamma(eta0) - torch.lgamma(eta1 + eta0)
    return (log_beta + math.log(alpha)).sum(-1)  # B(1, alpha) = 1 / alpha


def stick_gain_of_joining(counts: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
    """Change of the allocation bound when components a[p] and b[p] become one, for each p; order by mass throughout."""
    apart = stick_bound(counts.sort(descending=True).values, alpha)
    together = []
    for i, j in zip(torch.split(a, PAIRS_AT_ONCE), torch.split(b, PAIRS_AT_ONCE), strict=True):
        pairs = torch.arange(len(i), device=counts.device)
        joined = counts.repeat(len(i), 1)
        joined[pairs, i] += counts[j]
        joined[pairs, j] = -1.0  # sorts last, and is cut off
        together.append(stick_bound(joined.sort(dim=-1, descending=True).values[:, :-1], alpha))
    return torch.cat(together) - apart
