"""DEC, deep embedded clustering: Xie, Girshick and Farhadi, "Unsupervised deep embedding for clustering analysis", ICML 2016.

A stacked denoising auto-encoder learns codes (`diva.baselines.autoencoder`). Its encoder is then trained so that soft
assignments Q of the codes to K centres, by a Student t kernel, come near a target P that sharpens them: confident assignments
guide the rest. Departures, beside those of the auto-encoder: codes are scaled to suit the kernel before clusters are learnt;
targets are computed anew more often; and only what ``fit`` is given is learnt from, where the original learns from training
and test data together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from diva.baselines.autoencoder import AutoEncoderClusterer, AutoEncoderConfig, Pretraining, StackedAutoEncoder, k_means
from diva.baselines.deep import GoingOn
from diva.models.base import Assignment
from diva.models.config import Acceleration, DataParameters, RunParameters
from diva.parameters import Number, Whole, parameter, takes
from diva.training.encode import Codes, encode
from diva.training.loop import Batch, Loss
from diva.training.state import EpochRecord, TrainState


@dataclass(frozen=True)
class DECConfig(AutoEncoderConfig):
    """Deep embedded clustering."""

    n_clusters: int = parameter(10, Whole(2), help="Number of clusters, K.")
    cluster_learning_rate: float = parameter(0.01, Number(), help="Of stochastic gradient descent, while clusters are learnt.")
    target_steps: int = parameter(40, Whole(), help="Steps after which the target distribution is computed anew.")
    tolerance: float = parameter(0.001, Number(0, 1), help="Training ends when fewer labels than this share change.")


class DECNetwork(StackedAutoEncoder):
    """The auto-encoder, and the centres of the clusters."""

    def __init__(self, input_shape: tuple[int, ...], config: DECConfig) -> None:
        super().__init__(input_shape, config.sizes)
        self.centres = nn.Parameter(torch.zeros(config.n_clusters, config.latent_dim))

    def kernel(self, z: Tensor) -> Tensor:
        """Similarity of codes and centres by Student's t with one degree of freedom, (n, K)."""
        return 1 / (1 + (z.unsqueeze(1) - self.centres).square().sum(2))

    def soft_assignment(self, z: Tensor) -> Tensor:
        """Equation 1: q_ij, (n, K)."""
        return functional.normalize(self.kernel(z), p=1.0, dim=1)


class EmbeddedClustering(Pretraining):
    """The objective: a denoising auto-encoder, then KL(P || Q)."""

    config: DECConfig

    def before_epoch(self, state: TrainState) -> None:
        """While clusters are learnt, compute the target every so many steps."""
        super().before_epoch(state)
        steps, done = math.ceil(len(self.samples) / self.config.batch_size), state.position - self.n_pretraining
        if done == 0:
            state.optimizer = torch.optim.SGD(state.network.parameters(), lr=self.config.cluster_learning_rate, momentum=0.9)
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
        found = k_means(z, self.config.n_clusters, state.rng)
        unit = max(math.sqrt(found.inertia_ / len(z)) / 2, 1e-6)
        state.network.centres.data.copy_(torch.from_numpy(found.cluster_centers_ / unit))
        state.network.rescale(unit)
        return z / unit

    def loss(self, batch: Batch, state: TrainState) -> Loss:
        """Squared error, or equation 2."""
        if state.position < self.n_pretraining:
            return super().loss(batch, state)
        net, x = state.network, self.samples.take(batch.index).to(self.device)
        target = state.buffers["target"][batch.index].to(self.device)
        kl = functional.kl_div(net.soft_assignment(net.encode(x)).log(), target, reduction="batchmean")
        return Loss(kl, {"kl": kl})

    def after_epoch(self, state: TrainState, means: Mapping[str, float]) -> EpochRecord:
        """The record, with K."""
        record = super().after_epoch(state, means)
        return replace(record, n_clusters=self.config.n_clusters) if record.phase == "clustering" else record


@takes(DataParameters, DECConfig, GoingOn, Acceleration, RunParameters)
class DEC(AutoEncoderClusterer):
    """Deep embedded clustering (Xie et al. 2016) into a given number of clusters."""

    config_class, network_class, objective_class = DECConfig, DECNetwork, EmbeddedClustering
    config_: DECConfig
    network_: DECNetwork

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
