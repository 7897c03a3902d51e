"""Terms of a loss that several models share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from diva.networks.vae import LossTerms

KL_SHARE = (
    0.25  # of the calibrated weight: an error that is still falling overstates the noise, and too much lets codes collapse
)


@dataclass(frozen=True)
class Elbo:
    """The negative evidence lower bound of a VAE with a Gaussian decoder, its KL term weighed."""

    reconstruction: Literal["mse", "nll"]
    # beside the *mean* over a sample's numbers of the squared error, as in the paper, or of the negative log-likelihood
    kl_weight: float | Literal["auto"]
    n_numbers: int  # numbers in a sample, d

    def nat(self, variance: float) -> float:
        """What a nat is worth beside the reconstruction term.

        With a Gaussian decoder of variance s the bound is -(SSE / 2s + KL): beside the squared error it is 2s.
        """
        return 1.0 if self.reconstruction == "nll" else 2.0 * KL_SHARE * variance

    def weight(self, variance: float) -> float:
        """Weight of the KL term beside the squared error or negative log-likelihood, summed over the numbers of a sample."""
        return self.nat(variance) if self.kl_weight == "auto" else self.kl_weight * self.n_numbers

    def loss(self, terms: LossTerms, variance: float) -> Tensor:
        """Mean loss of a batch, per number of a sample as in the paper."""
        return (terms.reconstruction + self.weight(variance) * terms.kl).mean() / self.n_numbers

    def bound(self, reconstruction: float, kl: float, variance: float) -> float:
        """Evidence lower bound per sample."""
        if self.reconstruction == "nll":
            return -(reconstruction + kl)
        return -(reconstruction / (2 * variance) + 0.5 * self.n_numbers * math.log(2 * math.pi * variance) + kl)
