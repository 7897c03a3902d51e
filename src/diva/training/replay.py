"""What a model remembers of data that are gone, so that networks can go on learning without forgetting them.

The mixture's statistics remember where the codes of old samples are; draws of it, decoded, remind the decoder. The encoder
needs real samples, which are gone, and decoded ones do not do: it tells them apart by their sharpness. But how far old codes
move when the last layer of the encoder changes is known from the second moments of the features that this layer saw, and those
add up over batches like all statistics here. So the layers below rest, the last one learns, and pays for every old code it
moves: in nats, by the precision of the mixture's components there, which is the Fisher information of where a code is (a
quadratic penalty as in elastic weight consolidation, Kirkpatrick et al. 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from diva.data import Samples, Source
from diva.data.samples import Scaling
from diva.mixture.estimator import DPMixture
from diva.networks.vae import VAE
from diva.training.encode import ENCODE_ROWS, decode, encode

MOST_DRAWN = 10_000
MOST_BYTES = 256 << 20
MOST_RANK = 512  # directions of features whose moments are kept one by one
MOMENT_SAMPLES = 4096  # that moments are measured on, at most


@dataclass(frozen=True, eq=False)
class Memory:
    """Real samples of the past, and where they belonged.

    Attributes
    ----------
    source : Source
    mean, variance : Tensor of shape (m, D)
        Where the encoder put them, and how sure it was.
    components : array of int, shape (m,)
        Positions in the mixture.
    weights : array of shape (m,)
        How many samples each stands for.
    gone : bool
        Whether those samples are gone, so that these count in their place.
    """

    source: Source
    mean: Tensor
    variance: Tensor
    components: NDArray[np.int64]
    weights: NDArray[np.float64]
    gone: bool

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Remembered samples among those that are learnt from, and the codes they should keep.

    Attributes
    ----------
    first : int
        Samples from this number on are remembered ones.
    mean, variance : Tensor of shape (m, D)
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
class Moments:
    """Second moments of the features that the last layer of an encoder has seen, with a constant 1 beside them.

    Attributes
    ----------
    root : Tensor of shape (h + 1, r)
        The moments are ``root @ root.T`` and, in all other directions, ``rest``.
    rest : float
    """

    root: Tensor
    rest: float

    @classmethod
    def of(cls, features: Tensor, weights: Tensor) -> Moments:
        """Measure features (n, h + 1) with weights that add up to 1."""
        rows = features * weights.sqrt().unsqueeze(1)
        rank = min(MOST_RANK, *rows.shape)
        if rank == min(rows.shape):
            _, size, axes = torch.linalg.svd(rows, full_matrices=False)
            axes = axes.T
        else:
            _, size, axes = torch.svd_lowrank(rows, q=rank, niter=2)
        left = float(rows.square().sum() - size.square().sum())
        n_others = features.shape[1] - rank
        return cls((axes * size).contiguous(), max(left / n_others, 0.0) if n_others else 0.0)

    def joined(self, other: Moments, share: float) -> Moments:
        """Moments of both, ``share`` of all samples being the other's."""
        both = torch.cat([self.root.T, other.root.T])
        weights = torch.cat([torch.full((self.root.shape[1],), 1 - share), torch.full((other.root.shape[1],), share)])
        joint = Moments.of(both, weights)
        return Moments(joint.root, joint.rest + (1 - share) * self.rest + share * other.rest)

    def moved(self, change: Tensor) -> Tensor:
        """Second moments of how far outputs move when weights (D, h + 1) change by so much, (D, D)."""
        along = change @ self.root.to(change)
        return along @ along.T + self.rest * change @ change.T


@dataclass(frozen=True, eq=False)
class Recall:
    """What stands in for samples that are gone while networks learn.

    Attributes
    ----------
    before : DPMixture
        The mixture as it was.
    z : Tensor of shape (m, D)
        Draws of it, in proportion to its masses.
    x : Tensor of shape (m, ...)
        What the decoder made of them.
    components : array of int, shape (m,)
        Position of the component of each draw.
    moments : Moments
    layer : Tensor of shape (D, h + 1)
        Weights and biases of the encoder's last layer, as they were.
    precision : Tensor of shape (D, D)
        Of the mixture's components, on average.
    """

    before: DPMixture
    z: Tensor
    x: Tensor
    components: NDArray[np.int64]
    moments: Moments
    layer: Tensor
    precision: Tensor

    def __len__(self) -> int:
        return len(self.z)

    def drift(self, vae: VAE) -> Tensor:
        """KL divergence of components that move like the old codes from those that stay: half their Mahalanobis distance.

        What is little along one axis of a component is far along another; a move is harmless only in the component's own units.
        """
        change = last_layer(vae) - self.layer.to(last_layer(vae))
        return 0.5 * (self.precision.to(change) * self.moments.moved(change)).sum()


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

    @classmethod
    def empty(cls) -> Reservoir:
        """Nothing seen."""
        return cls(np.empty((0, 1), dtype=np.float32), np.empty(0))

    def after(self, source: Source, size: int, rng: np.random.Generator) -> Reservoir:
        """Take in samples that are seen for the first time."""
        keys = rng.random(len(source))
        chosen = np.sort(np.argsort(keys)[:size])
        both = np.concatenate([self.keys, keys[chosen]])
        stay = np.sort(np.argsort(both)[:size])
        values = keepable(source.take(chosen))
        if len(self):
            values = np.concatenate([self.values, values])
        return Reservoir(values[stay], both[stay])


def can_rest(vae: VAE) -> bool:
    """Whether the encoder has a last layer that can learn while the layers below rest; networks of a user may not."""
    return isinstance(getattr(vae.encoder, "mean", None), nn.Linear) and isinstance(
        getattr(vae.encoder, "body", None), nn.Module
    )


def last_layer(vae: VAE) -> Tensor:
    """Weights and biases of the layer that gives codes, (D, h + 1); gradients pass."""
    layer = vae.encoder.mean
    assert isinstance(layer, nn.Linear)
    return torch.cat([layer.weight, layer.bias.unsqueeze(1)], dim=1)


def let_rest(vae: VAE) -> None:
    """Stop the layers of the encoder below its last from learning."""
    assert isinstance(vae.encoder.body, nn.Module)
    for parameter in vae.encoder.body.parameters():
        parameter.requires_grad_(False)


@torch.no_grad()
def measure_moments(vae: VAE, samples: Samples, device: torch.device, rng: np.random.Generator) -> Moments:
    """Moments of the features of real samples."""
    vae.eval()
    n = min(len(samples), MOMENT_SAMPLES)
    chosen = np.sort(rng.choice(len(samples), n, replace=False))
    parts = []
    for index in torch.split(torch.from_numpy(chosen), ENCODE_ROWS):
        assert isinstance(vae.encoder.body, nn.Module)
        features = vae.encoder.body(samples.take(index).to(device)).cpu()
        parts.append(torch.cat([features, torch.ones(len(features), 1)], dim=1))
    return Moments.of(torch.cat(parts), torch.full((n,), 1.0 / n))


def recall(
    vae: VAE,
    mixture: DPMixture,
    moments: Moments,
    scaling: Scaling,
    item_shape: tuple[int, ...],
    mass: float,
    device: torch.device,
    rng: np.random.Generator,
) -> Recall:
    """Draw codes in proportion to the masses of the components, and decode them.

    Parameters
    ----------
    vae, mixture, moments, scaling
        Of the model as it was.
    item_shape : tuple of int
        Of the samples, as a source gives them.
    mass : float
        Samples seen before.
    device : torch.device
    rng : numpy.random.Generator
    """
    counts = mixture._state.total.counts.cpu().numpy().clip(min=0.0)
    n = max(2, min(round(mass), MOST_DRAWN, MOST_BYTES // (4 * int(np.prod(item_shape)))))
    components = rng.choice(len(counts), n, p=counts / counts.sum())
    z = torch.from_numpy(mixture._draw(components, rng)).float()
    x = scaling.to_input(decode(vae, z, scaling, item_shape, device))
    return Recall(mixture, z, x, components, moments, last_layer(vae).detach().clone().cpu(), mean_precision(mixture))


def mean_precision(mixture: DPMixture) -> Tensor:
    """Precision of the components, weighed by their masses, (D, D)."""
    each = mixture.covariances_
    if each.ndim == 2:
        return torch.from_numpy(mixture.weights_ @ (1.0 / each)).diag()
    return torch.from_numpy(np.tensordot(mixture.weights_, np.linalg.inv(each), axes=1))


def remember(vae: VAE, mixture: DPMixture, samples: Samples, mass: float, device: torch.device, *, gone: bool) -> Memory:
    """Where the model as it was puts samples that stand for all it has seen."""
    codes = encode(vae, samples, device)
    components = mixture.predict(codes.mean.numpy(), level="component")
    weights = np.full(len(samples), mass / len(samples))
    return Memory(samples.source, codes.mean, codes.log_var.exp(), components, weights, gone)


def repeated(n_samples: int, n_wanted: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """So many of a few, each as often as the others."""
    return np.resize(rng.permutation(n_samples), n_wanted)


def keepable(values: NDArray[Any]) -> NDArray[Any]:
    """In a dtype that a model's file holds, so that a loaded model goes on like the one that was saved."""
    if values.dtype in (np.uint8, np.float32, np.float64):
        return np.ascontiguousarray(values)
    return np.ascontiguousarray(values, dtype=np.float64 if values.dtype.itemsize > 2 else np.float32)
