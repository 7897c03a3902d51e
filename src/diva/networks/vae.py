"""The variational auto-encoder: encoder, decoder and loss; it knows its prior only as something with a ``kl``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from diva.networks import SquaredError
from diva.networks.priors import LatentPrior

LOG_VAR_LIMIT = 10.0  # variances of a code stay between e^-10 and e^10, however the encoder errs


@dataclass(frozen=True)
class LossTerms:
    """Terms of the loss, per sample of a batch."""

    reconstruction: Tensor  # (n,): summed over the numbers of a sample
    kl: Tensor  # (n,)
    q_mean: Tensor  # (n, D) or (2 n, D): means of the codes of the samples as they are, then of their views
    z: Tensor  # (n, D): the codes that were decoded


class VAE(nn.Module):
    """An encoder that returns (mean, log_var), a decoder, and what a reconstruction is worth: SquaredError or GaussianNLL."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module, likelihood: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.likelihood = SquaredError() if likelihood is None else likelihood

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of q(z|x), each (n, D)."""
        q_mean, q_log_var = self.encoder(x)
        return q_mean, LOG_VAR_LIMIT * torch.tanh(q_log_var / LOG_VAR_LIMIT)

    def decode(self, z: Tensor) -> Tensor:
        """Reconstructions of codes (n, D)."""
        x: Tensor = self.decoder(z)
        return x

    def loss(self, x: Tensor, prior: LatentPrior, noise: torch.Generator, view: Tensor | None = None) -> LossTerms:
        """Reconstruct samples (n, ...) from codes sampled with ``noise``, or from those of a view of them.

        A view, the samples moved, is encoded in the place of ``x``, which is still what the decoder should return. Both go
        through the encoder together, so that batch norm sees one population.
        """
        means, log_vars = self.encode(x if view is None else torch.cat([x, view]))
        q_mean, q_log_var = means[-len(x) :], log_vars[-len(x) :]
        deviation = torch.randn(q_mean.shape, generator=noise, device=noise.device).to(q_mean.device)
        z = q_mean + deviation * (q_log_var / 2).exp()
        at = z if view is None else means[: len(x)]  # the paper assigns the sampled code
        return LossTerms(self.likelihood(self.decode(z), x), prior.kl(q_mean, q_log_var, at.detach()), means, z)
