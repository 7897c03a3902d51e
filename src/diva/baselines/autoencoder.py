"""The stacked denoising auto-encoder that several deep clusterers start from, learnt layer by layer and then as a whole.

Vincent et al., "Stacked denoising autoencoders", JMLR 2010; sizes as in Xie, Girshick and Farhadi, ICML 2016. Departures: Adam
in the place of stochastic gradient descent while single layers are trained, which needs far fewer steps; the whole auto-encoder
denoises too, and more inputs are left out, as there may be few samples; its gradients are clipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn import functional

from diva.baselines.deep import DeepBaseline
from diva.data import Samples
from diva.models.config import LAYERS, LONGEST, TrainingConfig
from diva.parameters import Number, OneOf, Whole, parameter
from diva.training.encode import encode
from diva.training.loop import Batch, Loss, shuffled_batches
from diva.training.state import EpochRecord, TrainState


@dataclass(frozen=True)
class AutoEncoderConfig(TrainingConfig):
    """Auto-encoder."""

    latent_dim: int = parameter(10, Whole(high=LONGEST), help="Length of a code.")
    hidden_sizes: tuple[int, ...] = parameter((500, 500, 2000), LAYERS, help="Layers of the encoder; the decoder mirrors it.")
    batch_size: int = parameter(256, Whole(), help="Samples in a step of the optimizer.")
    n_epochs: int = parameter(200, Whole(), help="Passes over the data in all.")
    layer_share: float = parameter(0.2, Number(0, 1), help="Share of the epochs that train one layer at a time.")
    whole_share: float = parameter(0.5, Number(0, 1), help="Share of the epochs that train the whole auto-encoder.")
    dropout: float = parameter(0.5, Number(0, 1), help="Share of inputs that are left out while the auto-encoder is trained.")
    whole_learning_rate: float = parameter(0.5, Number(), help="Of gradient descent for the whole auto-encoder; falls to 0.")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the layers of the encoder."""
        return (*self.hidden_sizes, self.latent_dim)


@dataclass(frozen=True)
class FeatureConfig(AutoEncoderConfig):
    """Auto-encoder, or none."""

    features: Literal["auto-encoder", "given"] = parameter(
        "auto-encoder",
        OneOf("auto-encoder", "given"),
        help="Whether features are learnt, or the samples are features themselves.",
    )

    @property
    def sizes(self) -> tuple[int, ...]:  # noqa: D102
        return super().sizes if self.features == "auto-encoder" else ()


class StackedAutoEncoder(nn.Module):
    """Encoder and its mirror image, with layers of given sizes, if any; codes and reconstructions are linear."""

    def __init__(self, input_shape: tuple[int, ...], sizes: Sequence[int]) -> None:
        super().__init__()
        pairs = list(pairwise([math.prod(input_shape), *sizes]))
        ends = [nn.Identity() if pair is pairs[-1] else nn.ReLU() for pair in pairs]
        starts = [nn.Identity() if pair is pairs[0] else nn.ReLU() for pair in pairs]
        self.encoder = nn.ModuleList(nn.Sequential(nn.Linear(a, b), end) for (a, b), end in zip(pairs, ends, strict=True))
        self.decoder = nn.ModuleList(nn.Sequential(nn.Linear(b, a), end) for (a, b), end in zip(pairs, starts, strict=True))
        self.steepest = math.inf  # norm of a gradient, relative to what it changes
        for weight in (layer[0].weight for layer in (*self.encoder, *self.decoder)):
            weight.register_hook(lambda g, w=weight: g * (self.steepest * w.detach().norm() / (g.norm() + 1e-30)).clamp_max(1))
        self.unit = nn.Buffer(torch.ones(()))
        self.input_shape, self.lowest = input_shape, -1.0 if len(input_shape) == 3 else 0.0

    def enter(self, x: Tensor) -> Tensor:
        """Rows of a mean square of 1, once `measure` has seen some; the darkest number of an image is 0."""
        return (x.flatten(1) - self.lowest) / self.unit

    def measure(self, samples: Samples, device: torch.device) -> None:
        """Set the unit by the first samples."""
        some = samples.take(torch.arange(min(2048, len(samples)))).to(device)
        self.unit.copy_(self.enter(some).square().mean().sqrt().clamp_min(1e-6))

    def encode(self, x: Tensor) -> Tensor:
        """Codes (n, D)."""
        codes: Tensor = nn.Sequential(*self.encoder)(self.enter(x))
        return codes

    def decode(self, z: Tensor) -> Tensor:
        """Samples, in the shape of the input."""
        x: Tensor = nn.Sequential(*reversed(self.decoder))(z) * self.unit + self.lowest
        return x.reshape(-1, *self.input_shape)

    @torch.no_grad()
    def rescale(self, unit: float, origin: Tensor | None = None) -> None:
        """Measure codes from an origin (D,) in another unit; reconstructions stay as they are."""
        last: Any = self.encoder[-1]
        first: Any = self.decoder[-1]
        enters, leaves = last[0], first[0]
        if origin is not None:
            enters.bias -= origin.to(enters.bias)
            leaves.bias += leaves.weight @ origin.to(leaves.weight)
        enters.weight /= unit
        enters.bias /= unit
        leaves.weight *= unit


class Pretraining:
    """The first part of an objective: single layers, then the whole auto-encoder; a model adds what it learns from codes."""

    def __init__(self, config: AutoEncoderConfig, samples: Samples, device: torch.device) -> None:
        self.config, self.samples, self.device, self.n_epochs = config, samples, device, config.n_epochs
        self.n_layers = len(config.sizes)
        layer_share, whole_share = (config.layer_share, config.whole_share) if self.n_layers else (0, 0)
        self.n_layerwise = min(self.n_epochs - 1, round(layer_share * self.n_epochs))
        self.n_pretraining = min(self.n_epochs - 1, self.n_layerwise + round(whole_share * self.n_epochs))
        layers = (math.ceil(i * self.n_layerwise / self.n_layers) for i in range(self.n_layers))
        self.starts: tuple[int, ...] = (*layers, self.n_layerwise, self.n_pretraining)  # of a layer, of the whole, of the rest

    def before_epoch(self, state: TrainState) -> None:
        """For the whole auto-encoder, set the learning rate."""
        if state.position in self.starts:
            state.best_score = -math.inf  # losses of different parts do not compare
        if state.position == self.n_layerwise:  # Adam reconstructs better, yet its codes form worse clusters
            rate = self.config.whole_learning_rate
            state.optimizer = torch.optim.SGD(state.network.parameters(), lr=rate, momentum=0.9)
        done = state.position - self.n_pretraining
        state.network.steepest = 0.01 if done < 0 else math.inf  # so that one learning rate suits layers and data of any size
        if self.n_layerwise <= state.position < self.n_pretraining:
            left = (done + 0.5) / (self.n_layerwise - self.n_pretraining)
            state.optimizer.param_groups[0]["lr"] = left * self.config.whole_learning_rate

    def batches(self, state: TrainState) -> Sequence[Batch]:
        """All samples in random order."""
        return [Batch(index) for index in shuffled_batches(len(self.samples), self.config.batch_size, state.generator)]

    def loss(self, batch: Batch, state: TrainState) -> Loss:
        """Squared error of a layer or of the whole."""
        net, x = state.network, self.samples.take(batch.index).to(self.device)
        one_layer = state.position < self.n_layerwise
        first = state.position * self.n_layers // self.n_layerwise if one_layer else 0
        learnt = slice(first, first + 1 if one_layer else self.n_layers)
        hidden = nn.Sequential(*net.encoder[:first])(net.enter(x)).detach()
        code = nn.Sequential(*net.encoder[learnt])(functional.dropout(hidden, self.config.dropout))
        code = functional.dropout(code, self.config.dropout, training=one_layer)
        error = functional.mse_loss(nn.Sequential(*reversed(net.decoder[learnt]))(code), hidden)
        return Loss(error, {"reconstruction": error})

    def standardized_codes(self, network: Any) -> Tensor:
        """Codes (n, D); the auto-encoder, if there is one, is changed so that their mean is 0 and their mean variance 1."""
        z = encode(network, self.samples, self.device).mean
        if not self.n_layers:
            return z
        origin, unit = z.mean(0), max(float(z.var(0, correction=0).mean().sqrt()), 1e-6)
        network.rescale(unit, origin)
        return (z - origin) / unit

    def phase(self, position: int) -> str:
        """What is learnt at a place of the schedule."""
        ends = {"layers": self.n_layerwise, "auto-encoder": self.n_pretraining, "clustering": self.n_epochs}
        return next(name for name, end in ends.items() if position < end)

    def after_epoch(self, state: TrainState, means: Mapping[str, float]) -> EpochRecord:
        """Nothing but the record."""
        terms: dict[str, Any] = dict(means)
        return EpochRecord(epoch=state.epoch, phase=self.phase(state.position), **terms)

    def stop_early(self, state: TrainState, record: EpochRecord) -> None:  # noqa: ARG002  # asked of every model
        """Go on to the next layer, or the next phase."""
        state.position = next((start for start in self.starts if start >= state.position), state.position)


def k_means(z: Tensor, n_clusters: int, rng: np.random.Generator, n_init: int = 20) -> KMeans:
    """Clusters of codes (n, D) on the CPU."""
    with threadpool_limits(1):  # so that it does not depend on which thread is done first
        return KMeans(n_clusters, n_init=n_init, random_state=int(rng.integers(2**31))).fit(z.numpy())


class AutoEncoderClusterer(DeepBaseline):
    """A model that starts from the auto-encoder."""

    config_class: ClassVar[type[AutoEncoderConfig]]
    network_class: ClassVar[Callable[..., StackedAutoEncoder]]
    objective_class: ClassVar[Callable[..., Pretraining]]
    config_: AutoEncoderConfig

    def _resolve(self, is_image: bool, n_samples: int) -> AutoEncoderConfig:
        config = cast(AutoEncoderConfig, super()._resolve(is_image, n_samples))
        return config if config.sizes else replace(config, latent_dim=math.prod(self.pipeline_.scaling.input_shape))

    def _make_objective(self, samples: Samples, validation: Samples | None) -> Pretraining:
        if (told := getattr(self.config_, "n_clusters", 1)) > len(samples):
            raise ValueError(f"n_clusters={told} needs as many samples, got {len(samples)}.")
        return cast(Pretraining, super()._make_objective(samples, validation))

    def _begin(self, state: TrainState, objective: Pretraining) -> None:
        state.network.measure(objective.samples, objective.device)

    def _go_on(self, state: TrainState, objective: Pretraining) -> None:
        super()._go_on(state, objective)
        state.position = objective.n_pretraining
