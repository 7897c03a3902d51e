"""Fully connected encoder and decoder of the paper's second architecture figure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

HIDDEN_SIZES = (500, 500, 2000)  # the paper's


def _layers(sizes: Sequence[int], batch_norm: bool = False) -> list[nn.Module]:
    """Linear layers with a ReLU after each, and batch norm between them if wanted."""
    between = [[nn.BatchNorm1d(size)] if batch_norm else [] for size in sizes[1:]]
    triples = zip(pairwise(sizes), between, strict=True)
    return [module for pair, norm in triples for module in (nn.Linear(*pair), *norm, nn.ReLU())]


class MLPEncoder(nn.Module):
    """Linear layers and ReLU, then mean and log variance."""

    def __init__(
        self, n_features: int, latent_dim: int, hidden_sizes: Sequence[int] = HIDDEN_SIZES, *, batch_norm: bool = False
    ) -> None:
        super().__init__()
        self.body = nn.Sequential(*_layers([n_features, *hidden_sizes], batch_norm))
        self.mean = nn.Linear(hidden_sizes[-1], latent_dim)
        self.log_var = nn.Linear(hidden_sizes[-1], latent_dim)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Encode rows (n, d): mean and log variance, each (n, D)."""
        hidden = self.body(x)
        return self.mean(hidden), self.log_var(hidden)


class MLPDecoder(nn.Module):
    """The encoder mirrored, with a linear output; ``hidden_sizes`` are those of the encoder, in its order."""

    def __init__(self, n_features: int, latent_dim: int, hidden_sizes: Sequence[int] = HIDDEN_SIZES) -> None:
        super().__init__()
        sizes = [latent_dim, *reversed(hidden_sizes)]
        self.body = nn.Sequential(*_layers(sizes), nn.Linear(sizes[-1], n_features))

    def forward(self, z: Tensor) -> Tensor:
        """Decode codes (n, D) to rows (n, d)."""
        rows: Tensor = self.body(z)
        return rows
