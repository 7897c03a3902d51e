"""What a VAE sees of its prior: something with a ``kl``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class LatentPrior(Protocol):
    """A prior over codes."""

    def kl(self, q_mean: Tensor, q_log_var: Tensor, at: Tensor) -> Tensor:
        """Kullback–Leibler divergence of each q(z|x) from the prior, all (n, D) -> (n,).

        ``at`` are codes by which a mixture decides who belongs to what: the sampled ones in the paper, those of clean samples
        else.
        """
        ...


@dataclass(frozen=True)
class StandardNormal:
    """N(0, I): before there is a mixture."""

    def kl(self, q_mean: Tensor, q_log_var: Tensor, at: Tensor) -> Tensor:  # noqa: ARG002, D102  # a LatentPrior takes it
        return 0.5 * (q_mean**2 + q_log_var.exp() - 1.0 - q_log_var).sum(1)
