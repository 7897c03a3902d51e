"""The evidence lower bound, every constant kept: moves compare different numbers of components."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diva.mixture.gaussian import LOG_2PI, GaussianFamily
from diva.mixture.stats import SuffStats
from diva.mixture.sticks import stick_bound, stick_gain_of_joining

PAIRS_AT_ONCE = 2048


def elbo(family: GaussianFamily, alpha: float, total: SuffStats) -> Tensor:
    r"""Bound on log p(z) right after a global step.

    .. math:: \sum_k [\Lambda(S_k) - \Lambda(0)] + A(N) + \sum_k H_k - \tfrac{N D}{2} \log 2\pi

    After a global step the expected log-likelihood and the divergence of q from the prior collapse into a difference of log
    normalizers; docs/derivations.md has the steps.
    """
    data = family.log_normalizer(total).sum() - len(total) * family.nothing.sum()
    return data + stick_bound(total.counts, alpha) + total.entropy.sum() - total.counts.sum() * family.dim / 2 * LOG_2PI


def joining_gains(family: GaussianFamily, alpha: float, total: SuffStats, a: Tensor, b: Tensor) -> Tensor:
    r"""Rise of the bound, entropy aside, if components a[p] and b[p] became one, for each pair p.

    .. math:: \Lambda(S_a + S_b) - \Lambda(S_a) - \Lambda(S_b) + \Lambda(0) + \Delta A

    Joining never raises the entropy, so a pair whose value here is negative needs no look at the data.
    """
    alone = family.log_normalizer(total)
    gains = []
    for i, j in zip(a.tensor_split(_n_parts(a)), b.tensor_split(_n_parts(a)), strict=True):
        joint = family.log_normalizer(total[i] + total[j])
        gains.append(joint - alone[i] - alone[j] + family.nothing + stick_gain_of_joining(total.counts, i, j, alpha))
    return torch.cat(gains)


def _n_parts(pairs: Tensor) -> int:
    """How many parts keep the statistics of joined pairs, of which there may be very many, small in memory."""
    return max(1, math.ceil(len(pairs) / PAIRS_AT_ONCE))
