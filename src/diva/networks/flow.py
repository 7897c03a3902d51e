"""An invertible network: Real NVP, Dinh, Sohl-Dickstein and Bengio, "Density estimation using Real NVP", ICLR 2017."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AffineCoupling(nn.Module):
    """Numbers at some places stay; they say how the others are scaled and shifted. At first, by 1 and 0."""

    def __init__(self, stays: Tensor, n_hidden: int) -> None:
        super().__init__()
        dim = len(stays)
        self.stays = nn.Buffer(stays.float())
        self.net = nn.Sequential(nn.Linear(dim, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_hidden), nn.ReLU())
        self.last = nn.Linear(n_hidden, 2 * dim)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def log_scale_and_shift(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the numbers that stay say, each (n, D); scales are between 1/e and e."""
        log_scale, shift = (self.last(self.net(x * self.stays)) * (1 - self.stays).repeat(2)).chunk(2, dim=1)
        return log_scale.tanh(), shift

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers (n, D) and the log determinant of the Jacobian, (n,)."""
        log_scale, shift = self.log_scale_and_shift(x)
        return x * log_scale.exp() + shift, log_scale.sum(1)

    def inverse(self, y: Tensor) -> Tensor:
        """What the numbers (n, D) were."""
        log_scale, shift = self.log_scale_and_shift(y)
        return (y - shift) * (-log_scale).exp()


class RealNVP(nn.Module):
    """Couplings in which even and odd places stay in turn; the identity at first."""

    def __init__(self, dim: int, n_couplings: int, n_hidden: int) -> None:
        super().__init__()
        self.couplings = nn.ModuleList(AffineCoupling(torch.arange(dim) % 2 == i % 2, n_hidden) for i in range(n_couplings))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f(x), (n, D), and log |det df/dx|, (n,)."""
        log_det = x.new_zeros(len(x))
        for coupling in self.couplings:
            x, more = coupling(x)
            log_det = log_det + more
        return x, log_det

    def inverse(self, z: Tensor) -> Tensor:
        """The x of which f(x) is z, each (n, D)."""
        for coupling in reversed(self.couplings):
            assert isinstance(coupling, AffineCoupling)
            z = coupling.inverse(z)
        return z
