"""The evidence lower bound, every constant kept: moves compare different numbers of components."""

from __future__ import annotations

import torch
from torch import Tensor

from diva.mixture.gaussian import LOG_2PI, GaussianFamily
from diva.mixture.stats import SuffStats
from diva.mixture.sticks import stick_bound, stick_gain_of_joining

NUMBERS_AT_ONCE = 1 << 17  # of the statistics of joined pairs, which may be very many: in parts they are summed faster


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
    lone = log_marginals(family, total)
    together = joint_log_marginals(family, total, a, b)
    return together - lone[a] - lone[b] + stick_gain_of_joining(total.counts, a, b, alpha)


def log_marginals(family: GaussianFamily, stats: SuffStats) -> Tensor:
    r"""Log marginal likelihood :math:`\log M(k)` of what each component holds, (K,); a constant of the data aside."""
    return family.log_normalizer(stats) - family.nothing


def joint_log_marginals(family: GaussianFamily, total: SuffStats, a: Tensor, b: Tensor) -> Tensor:
    r"""The same of components a[p] and b[p] together, :math:`\log M(a+b)`, for each pair p."""
    n_rows = max(1, NUMBERS_AT_ONCE // total.sum_zz[0].numel())
    pairs = zip(torch.split(a, n_rows), torch.split(b, n_rows), strict=True)
    return torch.cat([log_marginals(family, total[i] + total[j]) for i, j in pairs])
