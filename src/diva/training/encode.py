"""From samples to codes and from codes to a mixture: the two halves of Algorithm 1 between epochs of the VAE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data import ArrayBatches, PartOfSource, Samples, Scaling
from diva.mixture.laps import MixtureFit, fit_mixture
from diva.mixture.model import MixtureModel
from diva.mixture.moves import Move
from diva.mixture.options import MixtureOptions
from diva.mixture.prior import MixturePrior
from diva.mixture.standardize import StandardizedBatches, measure
from diva.networks.vae import VAE
from diva.training.augmentation import Views

ENCODE_ROWS = 512


@dataclass(frozen=True)
class Codes:
    """q(z|x) of some samples.

    Attributes
    ----------
    mean, log_var : Tensor of shape (n, D)
    """

    mean: Tensor
    log_var: Tensor

    def sample(self, noise: torch.Generator) -> Tensor:
        """One draw of each code, (n, D)."""
        return self.mean + torch.randn(self.mean.shape, generator=noise, device=noise.device) * (self.log_var / 2).exp()


@torch.no_grad()
def encode(
    vae: VAE, samples: Samples, device: torch.device, views: Views | None = None, generator: torch.Generator | None = None
) -> Codes:
    """Encode all samples, or a view of each, with the encoder at rest.

    In eval mode batch norm uses its running statistics, so a code does not depend on who else is in the batch.
    """
    was_training = vae.training
    vae.eval()
    n, mean, log_var = len(samples), torch.empty(0), torch.empty(0)
    try:
        for index in torch.split(torch.arange(len(samples)), ENCODE_ROWS):
            x = samples.take(index).to(device)
            if views is not None and generator is not None:
                x = views(x, generator)
            part = vae.encode(x)
            if index[0] == 0:  # room for all at once: many small pieces among large ones tear memory to shreds
                mean, log_var = (torch.empty(n, *values.shape[1:], dtype=values.dtype) for values in part)
            mean[index], log_var[index] = (values.cpu() for values in part)
    finally:
        vae.train(was_training)
    return Codes(mean, log_var)


@torch.no_grad()
def decode(vae: VAE, z: Tensor, scaling: Scaling, item_shape: tuple[int, ...], device: torch.device) -> NDArray[np.float32]:
    """Samples that codes (n, D) stand for, in the units of the data."""
    parts = [scaling.to_raw(vae.decode(part.to(device)), item_shape) for part in torch.split(z, 512)]
    return np.concatenate(parts)


def subset(samples: Samples, n_samples: int, rng: np.random.Generator) -> Samples:
    """At most so many samples, drawn without replacement; all of them, in order, if there are no more."""
    if len(samples) <= n_samples:
        return samples
    return replace(samples, source=PartOfSource(samples.source, np.sort(rng.choice(len(samples), n_samples, replace=False))))


def start_mixture(z: Tensor, options: MixtureOptions, first_id: int = 0) -> MixturePrior:
    """One component at the middle of some codes, standardized by themselves: K = 1."""
    start = MixtureModel.start(measure(ArrayBatches(z.numpy())).standardization, options, first_id)
    return MixturePrior(start.state, start.standardization)


def update_mixture(
    prior: MixturePrior, z: Tensor, moves: Sequence[Move], max_laps: int, rng: np.random.Generator
) -> tuple[MixturePrior, MixtureFit]:
    """Go on with a mixture on new codes of the same samples: its components are where it starts, its old data are forgotten."""
    batches = StandardizedBatches(ArrayBatches(z.numpy()), prior.standardization, torch.device("cpu"))
    fit = fit_mixture(batches, prior.mixture.forgetting_data(), rng, moves=moves, max_laps=max_laps)
    return replace(prior, mixture=fit.state.with_memo_as_past()), fit
