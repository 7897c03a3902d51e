"""What baselines that are variational auto-encoders share: the decoder, one phase of training, and clusters that are in use."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from diva.baselines.deep import DeepBaseline
from diva.data import Samples
from diva.models.base import Assignment
from diva.models.config import LAYERS, TrainingConfig
from diva.networks import BernoulliNLL, GaussianNLL, MLPDecoder
from diva.parameters import Whole, parameter
from diva.training.encode import Codes
from diva.training.loop import Batch, Loss, shuffled_batches
from diva.training.state import EpochRecord, TrainState


@dataclass(frozen=True)
class VariationalConfig(TrainingConfig):
    """Networks and optimizer."""

    hidden_sizes: tuple[int, ...] = parameter((500, 500), LAYERS, help="Layers of the encoder; the decoder mirrors it.")
    n_epochs: int = parameter(100, Whole(), help="Passes over the data.")


@dataclass(frozen=True)
class BoundTerms:
    """The negative evidence lower bound of each sample in two parts, and where the samples belong."""

    reconstruction: Tensor  # (n,)
    kl: Tensor  # (n,): all but the reconstruction
    log_proba: Tensor  # (n, K)


class VariationalNetwork(nn.Module):
    """A decoder to images, as probabilities of bright pixels, or to rows, as means of Gaussians; a baseline adds the rest."""

    def __init__(self, input_shape: tuple[int, ...], config: VariationalConfig, n_clusters: int) -> None:
        super().__init__()
        self.input_shape, self.n_features, self.latent_dim = input_shape, math.prod(input_shape), config.latent_dim
        is_image = len(input_shape) == 3
        self.decoder = nn.Sequential(
            MLPDecoder(self.n_features, config.latent_dim, config.hidden_sizes),
            nn.Tanh() if is_image else nn.Identity(),
            nn.Unflatten(1, input_shape),
        )
        self.likelihood = BernoulliNLL() if is_image else GaussianNLL()
        self.in_use = nn.Buffer(torch.ones(n_clusters, dtype=torch.bool))  # at the end of training: some sample is in it

    @abstractmethod
    def bound_terms(self, x: Tensor, noise: torch.Generator) -> BoundTerms:
        """What is learnt from a batch."""

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """Codes, and in columns behind them what else says where a sample belongs."""

    @abstractmethod
    def assign(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Log probability of each cluster given what ``encode`` found (n, K), and how like what it knows that is (n,)."""

    def decode(self, z: Tensor) -> Tensor:
        """Samples, in the shape of the input."""
        x: Tensor = self.decoder(z[:, : self.latent_dim])
        return x


class NegativeBound:
    """The objective: the negative evidence lower bound, in one phase."""

    def __init__(self, config: Any, samples: Samples, device: torch.device) -> None:
        self.config, self.samples, self.device, self.n_epochs = config, samples, device, config.n_epochs

    def before_epoch(self, state: TrainState) -> None:
        """Count anew how many samples are in each cluster."""
        state.buffers["counts"] = torch.zeros(len(state.network.in_use), dtype=torch.int64)

    def batches(self, state: TrainState) -> Sequence[Batch]:
        """All samples in random order."""
        return [Batch(index) for index in shuffled_batches(len(self.samples), self.config.batch_size, state.generator)]

    def loss(self, batch: Batch, state: TrainState) -> Loss:
        """Mean over a batch."""
        terms = state.network.bound_terms(self.samples.take(batch.index).to(self.device), state.generator)
        counts = state.buffers["counts"]
        counts += torch.bincount(terms.log_proba.detach().argmax(1).cpu(), minlength=len(counts))
        reconstruction, kl = terms.reconstruction.mean(), terms.kl.mean()
        return Loss(reconstruction + kl, {"reconstruction": reconstruction, "kl": kl})

    def after_epoch(self, state: TrainState, means: Mapping[str, float]) -> EpochRecord:
        """Nothing but the record."""
        n_clusters = int((state.buffers["counts"] > 0).sum())
        found: dict[str, Any] = {**means, "bound": -means["loss"], "n_clusters": n_clusters}
        return EpochRecord(epoch=state.epoch, phase="training", **found)

    def stop_early(self, state: TrainState, record: EpochRecord) -> None:  # noqa: ARG002  # asked of every model
        """There is no other phase to go to."""
        state.position = self.n_epochs


class VariationalClusterer(DeepBaseline):
    """A variational auto-encoder that knows where samples belong; clusters are those of its components that have samples."""

    config_: Any
    network_: VariationalNetwork
    objective_class: ClassVar[type[NegativeBound]] = NegativeBound

    def _go_on(self, state: TrainState, objective: NegativeBound) -> None:
        super()._go_on(state, objective)
        state.network.in_use.fill_(True)  # components without old samples may have new ones

    def _finish(self, state: TrainState, objective: NegativeBound) -> None:
        positions, in_use = self._assign(self._encode(objective.samples)).positions, self.network_.in_use
        in_use.copy_(torch.bincount(torch.from_numpy(positions), minlength=len(in_use)) > 0)
        super()._finish(state, objective)

    @torch.no_grad()
    def _assign(self, codes: Codes) -> Assignment:
        log_proba, familiarity = self.network_.assign(codes.mean.to(self._device()))
        proba = log_proba.double()[:, self.network_.in_use].softmax(1).cpu().numpy()
        z, positions, scores = codes.mean[:, : self.config_.latent_dim], proba.argmax(1), familiarity.double().cpu().numpy()
        return Assignment(z.numpy(), proba, positions, positions, scores, scores < self.novelty_threshold_)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Codes of samples, (n_samples, latent_dim): what the decoder takes, by its mean."""
        return super().transform(X)[:, : self.config_.latent_dim]
