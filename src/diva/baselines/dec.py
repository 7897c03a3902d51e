"""DEC, deep embedded clustering: Xie, Girshick and Farhadi, "Unsupervised deep embedding for clustering analysis", ICML 2016.

A stacked denoising auto-encoder learns codes, layer by layer and then as a whole. Its encoder is then trained so that soft
assignments Q of the codes to K centres, by a Student t kernel, come near a target P that sharpens them: confident assignments
guide the rest. Departures: Adam in the place of stochastic gradient descent while single layers are trained, which needs far
fewer steps; the whole auto-encoder denoises too, and more inputs are left out, as there may be few samples; its gradients are
clipped; codes are scaled to suit the kernel before clusters are learnt; targets are computed anew more often; and only what
``fit`` is given is learnt from, where the original learns from training and test data together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn import functional

from diva.data import Samples
from diva.models.base import Assignment, DeepClusterer
from diva.models.config import LAYERS, LONGEST, DataParameters, RunParameters, TrainingConfig
from diva.parameters import Number, Whole, parameter, takes, values_of
from diva.training.encode import Codes, encode
from diva.training.loop import Batch, Loss, shuffled_batches
from diva.training.state import EpochRecord, TrainState


@dataclass(frozen=True)
class DECConfig(TrainingConfig):
    """Deep embedded clustering."""

    n_clusters: int = parameter(10, Whole(2), help="Number of clusters, K.")
    latent_dim: int = parameter(10, Whole(high=LONGEST), help="Length of a code.")
    hidden_sizes: tuple[int, ...] = parameter((500, 500, 2000), LAYERS, help="Layers of the encoder; the decoder mirrors it.")
    batch_size: int = parameter(256, Whole(), help="Samples in a step of the optimizer.")
    n_epochs: int = parameter(200, Whole(), help="Passes over the data in all.")
    layer_share: float = parameter(0.2, Number(0, 1), help="Share of the epochs that train one layer at a time.")
    whole_share: float = parameter(0.5, Number(0, 1), help="Share of the epochs that train the whole auto-encoder.")
    dropout: float = parameter(0.5, Number(0, 1), help="Share of inputs that are left out while the auto-encoder is trained.")
    whole_learning_rate: float = parameter(0.5, Number(), help="Of gradient descent for the whole auto-encoder; falls to 0.")
    cluster_learning_rate: float = parameter(0.01, Number(), help="Of stochastic gradient descent, while clusters are learnt.")
    target_steps: int = parameter(40, Whole(), help="Steps after which the target distribution is computed anew.")
    tolerance: float = parameter(0.001, Number(0, 1), help="Training ends when fewer labels than this share change.")


class StackedAutoEncoder(nn.Module):
    """Encoder, its mirror image, and the centres of the clusters; codes and reconstructions are linear."""

    def __init__(self, input_shape: tuple[int, ...], config: DECConfig) -> None:
        super().__init__()
        pairs = list(pairwise([math.prod(input_shape), *config.hidden_sizes, config.latent_dim]))
        ends = [nn.Identity() if pair is pairs[-1] else nn.ReLU() for pair in pairs]
        starts = [nn.Identity() if pair is pairs[0] else nn.ReLU() for pair in pairs]
        self.encoder = nn.ModuleList(nn.Sequential(nn.Linear(a, b), end) for (a, b), end in zip(pairs, ends, strict=True))
        self.decoder = nn.ModuleList(nn.Sequential(nn.Linear(b, a), end) for (a, b), end in zip(pairs, starts, strict=True))
        self.steepest = math.inf  # norm of a gradient, relative to what it changes
        for weight in (layer[0].weight for layer in (*self.encoder, *self.decoder)):
            weight.register_hook(lambda g, w=weight: g * (self.steepest * w.detach().norm() / (g.norm() + 1e-30)).clamp_max(1))
        self.centres = nn.Parameter(torch.zeros(config.n_clusters, config.latent_dim))
        self.unit = nn.Buffer(torch.ones(()))
        self.input_shape, self.lowest = input_shape, -1.0 if len(input_shape) == 3 else 0.0

    def enter(self, x: Tensor) -> Tensor:
        """Rows of a mean square of 1, as DEC expects them; the darkest number of an image is 0."""
        return (x.flatten(1) - self.lowest) / self.unit

    def encode(self, x: Tensor) -> Tensor:
        """Codes (n, D)."""
        codes: Tensor = nn.Sequential(*self.encoder)(self.enter(x))
        return codes

    def decode(self, z: Tensor) -> Tensor:
        """Samples, in the shape of the input."""
        x: Tensor = nn.Sequential(*reversed(self.decoder))(z) * self.unit + self.lowest
        return x.reshape(-1, *self.input_shape)

    def kernel(self, z: Tensor) -> Tensor:
        """Similarity of codes and centres by Student's t with one degree of freedom, (n, K)."""
        return 1 / (1 + (z.unsqueeze(1) - self.centres).square().sum(2))

    def soft_assignment(self, z: Tensor) -> Tensor:
        """Equation 1: q_ij, (n, K)."""
        return functional.normalize(self.kernel(z), p=1.0, dim=1)


class EmbeddedClustering:
    """The objective: a denoising auto-encoder, then KL(P || Q)."""

    def __init__(self, config: DECConfig, samples: Samples, device: torch.device) -> None:
        self.config, self.samples, self.device, self.n_epochs = config, samples, device, config.n_epochs
        self.n_layers = len(config.hidden_sizes) + 1
        self.n_layerwise = min(self.n_epochs - 1, round(config.layer_share * self.n_epochs))
        self.n_pretraining = min(self.n_epochs - 1, self.n_layerwise + round(config.whole_share * self.n_epochs))
        layers = (math.ceil(i * self.n_layerwise / self.n_layers) for i in range(self.n_layers))
        self.starts = (*layers, self.n_layerwise, self.n_pretraining)  # of a layer, of the whole, of clustering

    def before_epoch(self, state: TrainState) -> None:
        """For the whole auto-encoder, set the learning rate; for clusters, compute the target every so many steps."""
        if state.position in self.starts:
            state.best_score = -math.inf  # losses of different parts do not compare
        if state.position in self.starts[-2:]:  # Adam reconstructs better, yet its codes form worse clusters
            state.optimizer = torch.optim.SGD(state.network.parameters(), lr=self.config.cluster_learning_rate, momentum=0.9)
        steps, done = math.ceil(len(self.samples) / self.config.batch_size), state.position - self.n_pretraining
        state.network.steepest = 0.01 if done < 0 else math.inf  # so that one learning rate suits layers and data of any size
        if self.n_layerwise <= state.position < self.n_pretraining:
            left = (done + 0.5) / (self.n_layerwise - self.n_pretraining)
            state.optimizer.param_groups[0]["lr"] = left * self.config.whole_learning_rate
        if done < 0 or done % max(1, round(self.config.target_steps / steps)):
            return
        z = encode(state.network, self.samples, self.device).mean
        z = z if "target" in state.buffers else self.place_centres(z, state)
        q = state.network.soft_assignment(z.to(self.device)).detach().cpu()
        target, labels = functional.normalize(q**2 / q.sum(0), p=1.0, dim=1), q.argmax(1)  # equation 3
        if "labels" in state.buffers and (labels != state.buffers["labels"]).float().mean() < self.config.tolerance:
            state.position = self.n_epochs - 1  # this epoch is the last
        state.buffers = {"target": target, "labels": labels}

    def place_centres(self, z: Tensor, state: TrainState) -> Tensor:
        """By k-means; then codes, which are returned, are scaled to be about 2 from their centre: the tail of the kernel."""
        seed = int(state.rng.integers(2**31))
        with threadpool_limits(1):  # so that it does not depend on which thread is done first
            found = KMeans(self.config.n_clusters, n_init=20, random_state=seed).fit(z.numpy())
        net, unit = state.network, max(math.sqrt(found.inertia_ / len(z)) / 2, 1e-6)
        net.centres.data.copy_(torch.from_numpy(found.cluster_centers_ / unit))
        for value in net.encoder[-1].parameters():
            value.data /= unit
        net.decoder[-1][0].weight.data *= unit  # so that reconstructions stay as they are
        return z / unit

    def batches(self, state: TrainState) -> Sequence[Batch]:
        """All samples in random order."""
        return [Batch(index) for index in shuffled_batches(len(self.samples), self.config.batch_size, state.generator)]

    def loss(self, batch: Batch, state: TrainState) -> Loss:
        """Squared error of a layer or of the whole, or equation 2."""
        net, x = state.network, self.samples.take(batch.index).to(self.device)
        if state.position >= self.n_pretraining:
            target = state.buffers["target"][batch.index].to(self.device)
            kl = functional.kl_div(net.soft_assignment(net.encode(x)).log(), target, reduction="batchmean")
            return Loss(kl, {"kl": kl})
        one_layer = state.position < self.n_layerwise
        first = state.position * self.n_layers // self.n_layerwise if one_layer else 0
        learnt = slice(first, first + 1 if one_layer else self.n_layers)
        hidden = nn.Sequential(*net.encoder[:first])(net.enter(x)).detach()
        code = nn.Sequential(*net.encoder[learnt])(functional.dropout(hidden, self.config.dropout))
        code = functional.dropout(code, self.config.dropout, training=one_layer)
        error = functional.mse_loss(nn.Sequential(*reversed(net.decoder[learnt]))(code), hidden)
        return Loss(error, {"reconstruction": error})

    def after_epoch(self, state: TrainState, means: Mapping[str, float]) -> EpochRecord:
        """Nothing but the record."""
        ends = {"layers": self.n_layerwise, "auto-encoder": self.n_pretraining, "clustering": self.n_epochs}
        phase = next(name for name, end in ends.items() if state.position < end)
        found: dict[str, Any] = {**means, "n_clusters": self.config.n_clusters if phase == "clustering" else None}
        return EpochRecord(epoch=state.epoch, phase=phase, **found)

    def stop_early(self, state: TrainState, record: EpochRecord) -> None:  # noqa: ARG002  # asked of every model
        """Go on to the next layer, or the next phase; clusters are learnt until few labels change."""
        state.position = next((start for start in self.starts if start >= state.position), state.position)


@takes(DataParameters, DECConfig, RunParameters)
class DEC(DeepClusterer):
    """Deep embedded clustering (Xie et al. 2016) into a given number of clusters."""

    config_class: ClassVar[type[DECConfig]] = DECConfig
    config_: DECConfig
    network_: StackedAutoEncoder

    def _resolve(self, is_image: bool, n_samples: int) -> DECConfig:  # noqa: ARG002  # asked of every model
        return DECConfig.from_plain(values_of(self, DECConfig).to_plain())  # numbers of numpy cannot be written as JSON

    def _make_network(self) -> StackedAutoEncoder:
        return StackedAutoEncoder(self.pipeline_.scaling.input_shape, self.config_)

    def _make_objective(self, samples: Samples, validation: Samples | None) -> EmbeddedClustering:  # noqa: ARG002  # asked of every model
        if len(samples) < self.config_.n_clusters:
            raise ValueError(f"n_clusters={self.config_.n_clusters} needs as many samples, got {len(samples)}.")
        return EmbeddedClustering(self.config_, samples, self._device())

    def _make_state(self, objective: EmbeddedClustering, seed: int) -> TrainState:
        state = self._fresh_state(seed)
        some = objective.samples.take(torch.arange(min(2048, len(objective.samples)))).to(objective.device)
        state.network.unit.copy_(state.network.enter(some).square().mean().sqrt().clamp_min(1e-6))
        return state

    def _is_usable(self, state: TrainState) -> bool:
        return "target" in state.buffers

    def _assign(self, codes: Codes) -> Assignment:
        kernel = self.network_.kernel(codes.mean.to(self.network_.centres)).detach().double().cpu()
        positions, scores = kernel.argmax(1).numpy(), kernel.sum(1).log().numpy()
        proba = functional.normalize(kernel, p=1.0, dim=1).numpy()
        return Assignment(codes.mean.numpy(), proba, positions, positions, scores, scores < self.novelty_threshold_)

    def _restore(self, document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        if document["n_clusters"] != self.config_.n_clusters:
            raise ValueError("its number of clusters is not that of its configuration")
        super()._restore(document, tensors)
