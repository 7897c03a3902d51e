"""Replay: what stands in for data that are gone, so that networks can go on learning without forgetting them.

Generative replay (Shin et al. 2017): the mixture's statistics remember where the codes of old samples are; draws of it,
decoded, keep the decoder as it is. The encoder needs real samples, which are gone, and decoded ones do not do: it tells them
apart by their sharpness. But how far old codes move when the last layer of the encoder changes is known from the second
moments of the features that this layer saw, and those add up over batches like all statistics here. So the layers below are
frozen, the last one learns, and there is a penalty on the drift of old codes: in nats, by the precision of the mixture's
components there, which is the Fisher information of where a code is, as elastic weight consolidation has it of weights
(Kirkpatrick 2017).

Experience replay keeps a few real samples in a reservoir instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from diva.data import Samples, Source
from diva.mixture.model import MixtureModel
from diva.networks.vae import VAE
from diva.training.encode import ENCODE_ROWS, decode, encode

MOST_DRAWN = 10_000
MOST_BYTES = 256 << 20
MOST_RANK = 512  # directions of features whose moments are kept one by one
MOMENT_SAMPLES = 4096  # that moments are measured on, at most


@dataclass(frozen=True, eq=False)
class PastSamples:
    """Real samples of the past, and where they belonged."""

    source: Source
    mean: Tensor  # (m, D): where the encoder put them, and how sure it was
    variance: Tensor
    components: NDArray[np.int64]  # (m,): positions in the mixture
    weights: NDArray[np.float64]  # (m,): how many samples each stands for
    gone: bool  # whether those samples are gone, so that these count in their place

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class ExperienceReplay:
    """Remembered samples among those that are learnt from, and the codes they should keep."""

    first: int  # samples from this number on are remembered ones
    mean: Tensor  # (m, D)
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
class FeatureMoments:
    """Second moments of the features that the last layer of an encoder has seen, with a constant 1 beside them."""

    root: Tensor  # (h + 1, r): the moments are ``root @ root.T`` and, in all other directions, ``rest``
    rest: float

    @classmethod
    def of(cls, features: Tensor, weights: Tensor) -> FeatureMoments:
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

    def fits(self, n_weights: int) -> bool:
        """Whether these are moments of so many features, the constant among them."""
        rank = min(self.root.shape[-1], n_weights)
        return self.root.shape == (n_weights, rank) and self.root.dtype == torch.float32 and self.rest >= 0

    def joined(self, other: FeatureMoments, share: float) -> FeatureMoments:
        """FeatureMoments of both, ``share`` of all samples being the other's."""
        both = torch.cat([self.root.T, other.root.T])
        weights = torch.cat([torch.full((self.root.shape[1],), 1 - share), torch.full((other.root.shape[1],), share)])
        joint = FeatureMoments.of(both, weights)
        return FeatureMoments(joint.root, joint.rest + (1 - share) * self.rest + share * other.rest)

    def moved(self, change: Tensor) -> Tensor:
        """Second moments of how far outputs move when weights (D, h + 1) change by so much, (D, D)."""
        along = change @ self.root.to(change)
        return along @ along.T + self.rest * change @ change.T


@dataclass(frozen=True, eq=False)
class CodeDrift:
    """How far the codes of samples that are gone have moved since the encoder's last layer began to learn."""

    moments: FeatureMoments
    layer: Tensor  # (D, h + 1): weights and biases of the encoder's last layer, as they were
    precision: Tensor  # (D, D): of the mixture's components, on average

    def of(self, vae: VAE) -> Tensor:
        """KL divergence of components that move like the old codes from those that stay: half their Mahalanobis distance.

        What is little along one axis of a component is far along another; a move is harmless only in the component's own units.
        """
        change = last_layer(vae) - self.layer.to(last_layer(vae))
        return 0.5 * (self.precision.to(change) * self.moments.moved(change)).sum()


@dataclass(frozen=True, eq=False)
class GenerativeReplay:
    """What stands in for samples that are gone while networks learn."""

    before: MixtureModel  # the mixture as it was
    z: Tensor  # (m, D): draws of it, in proportion to its masses
    x: Tensor  # (m, ...): what the decoder made of them
    drift: CodeDrift

    def __len__(self) -> int:
        return len(self.z)


@dataclass(frozen=True, eq=False)
class Reservoir:
    """Real samples, each of all seen as likely to be among them."""

    values: NDArray[Any]  # (m, ...)
    keys: NDArray[np.float64]  # (m,): a random number for each; those with the smallest stay

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
        values = storable(source.take(chosen))
        if len(self):
            values = np.concatenate([self.values, values])
        return Reservoir(values[stay], both[stay])


def trains_last_layer(vae: VAE) -> bool:
    """Whether the encoder has a last layer that can learn while the layers below are frozen; networks of a user may not."""
    return isinstance(getattr(vae.encoder, "mean", None), nn.Linear) and isinstance(
        getattr(vae.encoder, "body", None), nn.Module
    )


def last_layer(vae: VAE) -> Tensor:
    """Weights and biases of the layer that gives codes, (D, h + 1); gradients pass."""
    layer = vae.encoder.mean
    assert isinstance(layer, nn.Linear)
    return torch.cat([layer.weight, layer.bias.unsqueeze(1)], dim=1)


def freeze_body(vae: VAE) -> None:
    """Freeze the layers of the encoder below its last."""
    assert isinstance(vae.encoder.body, nn.Module)
    for parameter in vae.encoder.body.parameters():
        parameter.requires_grad_(False)


@torch.no_grad()
def measure_moments(vae: VAE, samples: Samples, device: torch.device, rng: np.random.Generator) -> FeatureMoments:
    """Moments of the features of real samples."""
    vae.eval()
    n = min(len(samples), MOMENT_SAMPLES)
    chosen = np.sort(rng.choice(len(samples), n, replace=False))
    parts = []
    for index in torch.split(torch.from_numpy(chosen), ENCODE_ROWS):
        assert isinstance(vae.encoder.body, nn.Module)
        features = vae.encoder.body(samples.take(index).to(device)).cpu()
        parts.append(torch.cat([features, torch.ones(len(features), 1)], dim=1))
    return FeatureMoments.of(torch.cat(parts), torch.full((n,), 1.0 / n))


def draw_replay(
    vae: VAE, mixture: MixtureModel, moments: FeatureMoments, samples: Samples, mass: float, rng: np.random.Generator
) -> GenerativeReplay:
    """Draw codes in proportion to the masses of the components, and decode them.

    Parameters
    ----------
    vae, mixture, moments
        Of the model as it was.
    samples : Samples
        New ones, whose shape and scaling the draws get.
    mass : float
        Samples seen before.
    rng : numpy.random.Generator
    """
    counts, shape = mixture.masses.clip(min=0.0), samples.source.item_shape
    n = max(2, min(round(mass), MOST_DRAWN, MOST_BYTES // (4 * int(np.prod(shape)))))
    z = torch.from_numpy(mixture.draw(rng.choice(len(counts), n, p=counts / counts.sum()), rng)).float()
    layer = last_layer(vae).detach()
    x = samples.scaling.to_input(decode(vae, z, lambda x: samples.scaling.to_raw(x, shape), layer.device))
    return GenerativeReplay(mixture, z, x, CodeDrift(moments, layer.clone().cpu(), mean_precision(mixture)))


def mean_precision(mixture: MixtureModel) -> Tensor:
    """Precision of the components, weighed by their masses, (D, D)."""
    each = mixture.covariances
    if each.ndim == 2:
        return torch.from_numpy(mixture.weights @ (1.0 / each)).diag()
    return torch.from_numpy(np.tensordot(mixture.weights, np.linalg.inv(each), axes=1))


def remember(
    vae: VAE, mixture: MixtureModel, samples: Samples, mass: float, device: torch.device, *, gone: bool
) -> PastSamples:
    """Where the model as it was puts samples that stand for all it has seen."""
    codes = encode(vae, samples, device)
    components = mixture.predict(codes.mean.numpy(), "component")
    weights = np.full(len(samples), mass / len(samples))
    return PastSamples(samples.source, codes.mean, codes.log_var.exp(), components, weights, gone)


def repeated(n_samples: int, n_wanted: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """So many of a few, each as often as the others."""
    return np.resize(rng.permutation(n_samples), n_wanted)


def storable(values: NDArray[Any]) -> NDArray[Any]:
    """In a dtype that a model's file holds, so that a loaded model goes on like the one that was saved."""
    if values.dtype in (np.uint8, np.float32, np.float64):
        return np.ascontiguousarray(values)
    return np.ascontiguousarray(values, dtype=np.float64 if values.dtype.itemsize > 2 else np.float32)
