"""Gaussian components whose number changes while a network learns, kept with its weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from diva.baselines.autoencoder import AutoEncoderClusterer
from diva.mixture.gaussian import NormalWishart
from diva.mixture.local import summarize
from diva.mixture.stats import SuffStats


class Growing(nn.Module):
    """A module whose own tensors have one row for each cluster: as many as those that are loaded into it."""

    grows = True

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        own = dict([*self.named_parameters(recurse=False), *self.named_buffers(recurse=False)])
        loaded = {name: state_dict[prefix + name] for name in own if prefix + name in state_dict}  # torch misses the rest
        if len({value.shape[:1] for value in loaded.values()}) > 1:
            raise ValueError("tensors are of different numbers of clusters")
        for name, value in loaded.items():
            if value.shape[1:] == own[name].shape[1:]:  # torch refuses the rest
                own[name].data = own[name].new_empty(value.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


class Components(Growing):
    """Gaussians with a Normal–Wishart prior, as the sufficient statistics of the codes that they hold.

    The prior is centred at 0 and expects a covariance of ``scale`` times the identity, with D + 2 degrees of freedom.
    """

    def __init__(self, dim: int, kappa0: float, scale: float) -> None:
        super().__init__()
        self.prior = (dim, kappa0, scale)
        self.counts = nn.Buffer(torch.zeros(1, dtype=torch.float64))
        self.sum_z = nn.Buffer(torch.zeros(1, dim, dtype=torch.float64))
        self.sum_zz = nn.Buffer(torch.zeros(1, dim, dim, dtype=torch.float64))

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def family(self) -> NormalWishart:
        """The prior."""
        dim, kappa0, scale = self.prior
        return NormalWishart(self.counts.new_zeros(dim), kappa0, dim + 2.0, scale * torch.eye(dim).to(self.counts))

    @property
    def stats(self) -> SuffStats:
        """What they hold."""
        return SuffStats(self.counts, self.sum_z, self.sum_zz, torch.zeros_like(self.counts))

    def hold(self, stats: SuffStats) -> None:
        """Let them hold other codes."""
        for name in ("counts", "sum_z", "sum_zz"):
            setattr(self, name, getattr(stats, name))

    def summarize(self, z: Tensor, labels: Tensor, n_components: int) -> SuffStats:
        """Statistics of codes (n, D) in the component that labels (n,) name."""
        return summarize(self.family, z, nn.functional.one_hot(labels, n_components))

    def log_density(self, z: Tensor) -> Tensor:
        """Log density of codes under each component, at the mean of its mean and precision, (n, K); gradients pass."""
        coef, offset = self.family.plug_in_log_density(self.stats)
        return torch.addmm(offset, self.family.features(z.double()), coef)

    def log_evidence(self, stats: SuffStats) -> Tensor:
        r"""Log marginal likelihood of the codes of each component, f(X_k); :math:`N_k D/2 \log 2\pi` is left out."""
        return self.family.log_normalizer(stats) - self.family.log_normalizer(self.family.empty())


def compact(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The clusters that labels (n,) name, and the labels as positions among them."""
    used, positions = torch.unique(labels, return_inverse=True)
    return used, positions


class GrowingClusterer(AutoEncoderClusterer):
    """A model that finds the number of clusters; its network can ``keep`` some of them."""

    def _finish(self, state: Any, objective: Any) -> None:
        used, _ = compact(torch.from_numpy(self._assign(self._encode(objective.samples)).positions))
        self.network_.keep(used.to(self._device()))  # every cluster has a sample
        super()._finish(state, objective)

    def _restore(self, document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super()._restore(document, tensors)
        parts = [part for part in self.network_.modules() if isinstance(part, Growing)]
        if any(len(next(part.buffers(recurse=False))) != self.n_clusters_ for part in parts):
            raise ValueError("nets and components are of different numbers of clusters")
