"""Codes that are the features themselves: a VAE that has nothing to learn."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LOG_VAR = -8.0  # of a code: it is known all but exactly


class FeatureEncoder(nn.Module):
    """Gives the numbers of a sample, in one row."""

    def __init__(self) -> None:
        super().__init__()
        self.log_var = nn.Parameter(torch.tensor(LOG_VAR), requires_grad=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of samples (n, ...), each (n, D)."""
        rows = x.flatten(1)
        return rows, self.log_var.expand_as(rows)


class FeatureDecoder(nn.Module):
    """Puts the numbers of a sample back in their shape."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.input_shape = input_shape

    def forward(self, z: Tensor) -> Tensor:
        """Samples (n, ...) of codes (n, D)."""
        return z.reshape(-1, *self.input_shape)
