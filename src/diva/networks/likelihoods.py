"""What a reconstruction is worth."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

LOG_VARIANCE_LIMIT = 15.0


class SquaredError(nn.Module):
    """Sum of squared errors of each sample."""

    def forward(self, reconstruction: Tensor, x: Tensor) -> Tensor:
        """Compare (n, ...) with (n, ...): (n,)."""
        return (reconstruction - x).square().flatten(1).sum(1)


class GaussianNLL(nn.Module):
    """Negative log-likelihood under a Gaussian around the reconstruction; its one variance is learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.log_variance = nn.Parameter(torch.zeros(()))

    def forward(self, reconstruction: Tensor, x: Tensor) -> Tensor:
        """Compare (n, ...) with (n, ...): (n,)."""
        log_variance = LOG_VARIANCE_LIMIT * torch.tanh(self.log_variance / LOG_VARIANCE_LIMIT)
        squares = (reconstruction - x).square().flatten(1)
        return 0.5 * (squares.sum(1) / log_variance.exp() + squares.shape[1] * (log_variance + math.log(2 * math.pi)))


class BernoulliNLL(nn.Module):
    """Cross entropy of images from -1 to 1, each number as the probability of a bright pixel."""

    def forward(self, reconstruction: Tensor, x: Tensor) -> Tensor:
        """Compare (n, ...) with (n, ...): (n,)."""
        shown, meant = ((values.flatten(1) + 1) / 2 for values in (reconstruction, x))
        return functional.binary_cross_entropy(shown.clamp(0, 1), meant.clamp(0, 1), reduction="none").sum(1)
