"""What a model remembers of data that are gone: draws of its mixture, decoded, and a few real samples.

While networks go on learning, these stand in for what they learnt before. The encoder is asked to put them where it put them
before; the mixture's components are carried over by where they are now, and clusters keep their names by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.codes import Codes, decode, encode
from diva.data import ArraySource, Samples, Source
from diva.data.samples import Scaling
from diva.mixture.estimator import DPMixture
from diva.vae import VAE

MOST_DRAWN = 10_000
MOST_BYTES = 256 << 20
DRAWS_EACH = 32  # of a component, at least


@dataclass(frozen=True, eq=False)
class Memory:
    """Samples that stand for all that a model has seen.

    Attributes
    ----------
    values : array of shape (m, ...)
        The samples, as a source gives them.
    codes : Codes
        Where the encoder put them.
    components : array of int, shape (m,)
        Where they belonged: positions in the mixture.
    weights : array of shape (m,)
        How many samples each stands for; 0 for those that only serve to learn.
    n_real : int
        The first so many are real samples, the others are draws.
    """

    values: NDArray[Any]
    codes: Codes
    components: NDArray[np.int64]
    weights: NDArray[np.float64]
    n_real: int

    def __len__(self) -> int:
        return len(self.values)

    @property
    def source(self) -> ArraySource:
        """The samples, to be learnt from."""
        return ArraySource(self.values)

    def rehearsed(self, mass: float, *, draws: bool, rng: np.random.Generator) -> NDArray[np.int64]:
        """Which of them to learn from, as often as there were samples before, at most ``MOST_DRAWN`` times.

        Real samples are repeated, for they are few; where there are draws as well, each kind has half.
        """
        n = min(round(mass), MOST_DRAWN)
        real, drawn = np.arange(self.n_real), np.arange(self.n_real, len(self))
        if not draws:
            return _repeated(real, n, rng)
        if not self.n_real:
            return drawn
        return np.concatenate([_repeated(real, n // 2, rng), rng.permutation(drawn)[: n - n // 2]])


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Codes that remembered samples should keep while the encoder learns.

    Attributes
    ----------
    first : int
        Samples from this number on are remembered ones.
    mean, variance : Tensor of shape (m, D)
        Where they were, and how sure the encoder was.
    """

    first: int
    mean: Tensor
    variance: Tensor

    def drift(self, index: Tensor, q_mean: Tensor) -> Tensor:
        """Half the squared distance of codes from where they were, in the units of q(z|x), (n,); 0 for new samples.

        Parameters
        ----------
        index : Tensor of shape (n,)
            Which samples they are.
        q_mean : Tensor of shape (n, D)
        """
        rows = (index - self.first).clamp_min(0)
        mean, variance = self.mean[rows].to(q_mean), self.variance[rows].to(q_mean)
        distance = 0.5 * ((q_mean - mean).square() / variance).sum(1)
        return distance * (index >= self.first).to(q_mean)


@dataclass(frozen=True, eq=False)
class Reservoir:
    """Real samples, each of all seen as likely to be among them.

    Attributes
    ----------
    values : array of shape (m, ...)
    keys : array of shape (m,)
        A random number for each; those with the smallest stay.
    """

    values: NDArray[Any]
    keys: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.keys)

    def after(self, source: Source, size: int, rng: np.random.Generator) -> Reservoir:
        """Take in samples that are seen for the first time."""
        keys = rng.random(len(source))
        chosen = np.sort(np.argsort(keys)[:size])
        both = np.concatenate([self.keys, keys[chosen]])
        stay = np.sort(np.argsort(both)[:size])
        if not len(chosen):
            return Reservoir(self.values[stay], both[stay])
        values = keepable(source.take(chosen))
        if len(self):
            values = np.concatenate([self.values, values])
        return Reservoir(values[stay], both[stay])

    @classmethod
    def empty(cls) -> Reservoir:
        """Nothing seen."""
        return cls(np.empty((0, 1), dtype=np.float32), np.empty(0))


def remember(
    vae: VAE,
    mixture: DPMixture,
    scaling: Scaling,
    item_shape: tuple[int, ...],
    mass: float,
    reservoir: Reservoir,
    device: torch.device,
    rng: np.random.Generator,
    *,
    draws: bool = True,
) -> Memory:
    """Draw samples in proportion to the masses of the components, and add those of the reservoir.

    Parameters
    ----------
    vae, mixture, scaling
        Of the model as it was.
    item_shape : tuple of int
        Of the samples, as a source gives them.
    mass : float
        Samples seen before; what the weights add up to.
    reservoir : Reservoir
    device : torch.device
    rng : numpy.random.Generator
    draws : bool
        Whether there should be draws where there are real samples.
    """
    counts = mixture._state.total.counts.cpu().numpy().clip(min=0.0)
    shares = counts / counts.sum()
    n_real = len(reservoir)
    pieces: list[NDArray[Any]] = [reservoir.values] if n_real else []
    if draws or not n_real:
        most = max(1, min(round(mass), MOST_DRAWN, MOST_BYTES // (4 * int(np.prod(item_shape)))))
        n_each = np.maximum(np.round(most * shares).astype(np.int64), DRAWS_EACH)
        drawn = np.repeat(np.arange(len(shares)), n_each)
        z = torch.from_numpy(mixture._draw(drawn, rng)).float()
        pieces.append(decode(vae, z, scaling, item_shape, device))
        weights = np.concatenate([np.zeros(n_real), mass * (shares / n_each)[drawn]])
    else:
        drawn = np.empty(0, dtype=np.int64)
        weights = np.full(n_real, mass / n_real)
    values = np.concatenate(pieces)
    codes = encode(vae, Samples(ArraySource(values), scaling), device)
    real = mixture.predict(codes.mean[:n_real].numpy(), level="component") if n_real else np.empty(0, dtype=np.int64)
    return Memory(values, codes, np.concatenate([real, drawn]), weights, n_real)


def _repeated(index: NDArray[np.int64], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """So many of a few, each as often as the others."""
    return np.resize(rng.permutation(index), n) if len(index) else index


def keepable(values: NDArray[Any]) -> NDArray[Any]:
    """In a dtype that a model's file holds, so that a loaded model goes on like the one that was saved."""
    if values.dtype in (np.uint8, np.float32, np.float64):
        return np.ascontiguousarray(values)
    return np.ascontiguousarray(values, dtype=np.float64 if values.dtype.itemsize > 2 else np.float32)
