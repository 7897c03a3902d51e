"""From samples to codes and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data import PartOfSource, Samples
from diva.distributed import gather, gather_rows, mine, own_generator, world_size
from diva.training.augmentation import Augmentation

ENCODE_ROWS = 512


class AutoEncoder(Protocol):
    """Networks that give codes and take them: a VAE gives mean and log variance of a code, others the code alone."""

    training: bool

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor] | Tensor:
        """Codes of network input."""
        ...

    def decode(self, z: Tensor) -> Tensor:
        """Network input that codes stand for."""
        ...

    def train(self, mode: bool = True) -> Any:
        """Switch between training and evaluation."""
        ...


@dataclass(frozen=True)
class Codes:
    """q(z|x) of some samples."""

    mean: Tensor  # (n, D): an encoder without variances gives a ``log_var`` of shape (n, 0)
    log_var: Tensor

    def sample(self, noise: torch.Generator) -> Tensor:
        """One draw of each code, (n, D)."""
        return self.mean + torch.randn(self.mean.shape, generator=noise, device=noise.device) * (self.log_var / 2).exp()


@torch.no_grad()
def encode(
    network: AutoEncoder,
    samples: Samples,
    device: torch.device,
    augmentation: Augmentation | None = None,
    generator: torch.Generator | None = None,
) -> Codes:
    """Encode all samples, or an augmented view of each, in eval mode.

    Batch norm then uses its running statistics, so that a code does not depend on who else is in the batch.
    """
    was_training = network.training
    network.train(False)
    n, mean, log_var = len(samples), torch.empty(0), torch.empty(0)
    try:
        generator = None if generator is None else own_generator(generator)
        own = mine(torch.split(torch.arange(n), ENCODE_ROWS)).items
        for index in own:
            x = samples.take(index).to(device)
            if augmentation is not None and generator is not None:
                x = augmentation(x, generator)
            part = network.encode(x)
            part = part if isinstance(part, tuple) else (part, part[:, :0])
            if mean.numel() == 0:  # room for all at once: many small pieces among large ones tear memory to shreds
                mean, log_var = (torch.empty(n, *values.shape[1:], dtype=values.dtype) for values in part)
            mean[index], log_var[index] = (values.cpu() for values in part)
    finally:
        network.train(was_training)
    return Codes(*_of_all(own, mean, log_var))


def _of_all(own: Sequence[Tensor], mean: Tensor, log_var: Tensor) -> tuple[Tensor, Tensor]:
    """Codes that other processes have found, where there are others; all then have them all."""
    if world_size() == 1:
        return mean, log_var
    index = torch.cat([*own, torch.empty(0, dtype=torch.int64)])
    # a process without samples does not know how wide codes are
    wide = next(w for w in gather((mean.shape[1:], log_var.shape[1:]) if len(own) else None, "encoding") if w is not None)
    found = [values[index] if len(own) else torch.empty(0, *shape) for values, shape in zip((mean, log_var), wide, strict=True)]
    _, *gathered = gather_rows(index.numpy(), *(values.numpy() for values in found))
    mean, log_var = (torch.from_numpy(values) for values in gathered)
    return mean, log_var


@torch.no_grad()
def decode(
    network: AutoEncoder, z: Tensor, to_raw: Callable[[Tensor], NDArray[np.float32]], device: torch.device
) -> NDArray[np.float32]:
    """Samples that codes (n, D) stand for; ``to_raw`` takes network output to the units and shape of the data."""
    return np.concatenate([to_raw(network.decode(part.to(device))) for part in torch.split(z, ENCODE_ROWS)])


def subset(samples: Samples, n_samples: int, rng: np.random.Generator) -> Samples:
    """At most so many samples, drawn without replacement; all of them, in order, if there are no more."""
    if len(samples) <= n_samples:
        return samples
    return replace(samples, source=PartOfSource(samples.source, np.sort(rng.choice(len(samples), n_samples, replace=False))))
