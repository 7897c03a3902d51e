"""DDPM, the deep Dirichlet process mixture: Li et al., "Deep Dirichlet process mixture models", UAI 2022.

An invertible network f, a flow, takes a sample to a place where clusters are Gaussian: x_n comes of a Dirichlet process mixture
of f(x_n), with a density that counts how f stretches space. Monte Carlo EM learns both: the E-step draws the component of every
sample by collapsed Gibbs sampling, the parameters of the components, Normal–inverse-Wishart, integrated out; the M-step makes
gradient steps on

    sum_n log N(f(x_n) | component k_n) + log |det df/dx_n|.

A flow keeps the dimension of its input: here it takes codes of an auto-encoder that was trained before and stays as it is, or
given features (``pca`` may make them), where the publication takes those of a pretrained extractor. Departures: samples are
drawn a block at a time, given all outside the block, one sample a block where there are few; the first sweep takes samples in
one after the other; the M-step has components at their posterior mean; the last sweep takes the most probable component in the
place of a draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from diva.baselines.autoencoder import FeatureConfig, Pretraining, StackedAutoEncoder
from diva.baselines.components import Components, GrowingClusterer, compact
from diva.baselines.deep import GoingOn
from diva.mixture.stats import SuffStats, concat
from diva.models.base import Assignment
from diva.models.config import Acceleration, DataParameters, RunParameters
from diva.networks.flow import RealNVP
from diva.parameters import Number, Whole, parameter, takes
from diva.training.adam import Adam
from diva.training.encode import Codes
from diva.training.loop import Batch, Loss
from diva.training.state import EpochRecord, TrainState


@dataclass(frozen=True)
class DDPMConfig(FeatureConfig):
    """Flow and Dirichlet process mixture."""

    layer_share: float = parameter(0.15, Number(0, 1), help="Share of the epochs that train one layer at a time.")
    whole_share: float = parameter(0.35, Number(0, 1), help="Share of the epochs that train the whole auto-encoder.")
    concentration: float = parameter(1.0, Number(), help="Of the Dirichlet process: more of it opens more components.")
    covariance_scale: float = parameter(
        0.1, Number(), help="Expected variance of a component, as a share of that of all codes."
    )
    n_couplings: int = parameter(6, Whole(), help="Affine couplings of the flow.")
    n_hidden: int = parameter(64, Whole(), help="Units of both hidden layers of a coupling.")
    flow_learning_rate: float = parameter(1e-3, Number(), help="Of Adam, in the M-step.")
    n_sweeps: int = parameter(1, Whole(), help="Sweeps of Gibbs sampling in an E-step.")
    n_blocks: int = parameter(100, Whole(), help="Blocks of samples in a sweep, if there are as many samples.")


class DDPMNetwork(StackedAutoEncoder):
    """The auto-encoder, unless features are given; the flow; and the components."""

    def __init__(self, input_shape: tuple[int, ...], config: DDPMConfig) -> None:
        super().__init__(input_shape, config.sizes)
        self.flow = RealNVP(config.latent_dim, config.n_couplings, config.n_hidden)
        # means are expected to be as far apart as codes are
        self.components = Components(config.latent_dim, config.covariance_scale, config.covariance_scale)

    def encode(self, x: Tensor) -> Tensor:
        """F of the features of samples, (n, D)."""
        z: Tensor = self.flow(super().encode(x))[0]
        return z

    def decode(self, z: Tensor) -> Tensor:
        """Samples, in the shape of the input."""
        return super().decode(self.flow.inverse(z))

    def keep(self, clusters: Tensor) -> None:
        """Forget all components but some."""
        self.components.hold(self.components.stats[clusters])


class MonteCarloEM(Pretraining):
    """The objective: an auto-encoder, then E-steps before and gradient steps in each epoch."""

    config: DDPMConfig

    @torch.no_grad()
    def before_epoch(self, state: TrainState) -> None:
        """The E-step."""
        super().before_epoch(state)
        if state.position == self.n_pretraining:
            state.buffers = {"features": self.standardized_codes(state.network)}
            state.optimizer = Adam(state.network.parameters(), lr=self.config.flow_learning_rate)
        if state.position >= self.n_pretraining:
            for _ in range(self.config.n_sweeps):
                self.sweep(state)

    def loss(self, batch: Batch, state: TrainState) -> Loss:
        """Squared error, or the negative log-likelihood of features in the components that were drawn, per dimension."""
        if state.position < self.n_pretraining:
            return super().loss(batch, state)
        net, x, labels = state.network, state.buffers["features"][batch.index], state.buffers["labels"][batch.index]
        z, log_det = net.flow(x.to(self.device))
        log_density = net.components.log_density(z).gather(1, labels.to(self.device).unsqueeze(1)).squeeze(1)
        return Loss(-(log_density + log_det).mean() / z.shape[1], {})

    @torch.no_grad()
    def after_epoch(self, state: TrainState, means: Mapping[str, float]) -> EpochRecord:
        """Components where the flow has taken them."""
        record = super().after_epoch(state, means)
        if record.phase != "clustering":
            return record
        if state.position == self.n_epochs - 1:
            self.sweep(state, draws=False)
        else:
            self.hold(state, self.codes(state), state.buffers["labels"].to(self.device))
        return replace(record, n_clusters=len(state.network.components))

    def codes(self, state: TrainState) -> Tensor:
        """F of all features, (n, D)."""
        parts = torch.split(state.buffers["features"], 4096)
        return torch.cat([state.network.flow(part.to(self.device))[0] for part in parts]).double()

    def hold(self, state: TrainState, z: Tensor, labels: Tensor) -> None:
        """Let components be those of given labels (n,)."""
        labels = compact(labels)[1]
        components = state.network.components
        components.hold(components.summarize(z, labels, int(labels.max()) + 1))
        state.buffers = state.buffers | {"labels": labels.cpu()}

    def sweep(self, state: TrainState, draws: bool = True) -> None:
        """Draw the component of every sample, a block at a time, given those of all others (Neal 2000, algorithm 3)."""
        z, components, family = self.codes(state), state.network.components, state.network.components.family
        order = torch.from_numpy(state.rng.permutation(len(z))).to(self.device)
        if "labels" in state.buffers:
            labels = state.buffers["labels"].to(self.device)
        else:  # the first sample has a component of its own; the others, -1, have none yet
            labels = torch.full((len(z),), -1, device=self.device)
            labels[order[0]] = 0
        stats = components.summarize(z[labels >= 0], labels[labels >= 0], int(labels.max()) + 1)
        prior = math.log(self.config.concentration) + family.log_predictive(family.empty(), z)  # (n, 1)
        for block in self.blocks(order, int((labels >= 0).sum())):
            old, codes = labels[block], z[block]
            stats = stats - components.summarize(codes[old >= 0], old[old >= 0], len(stats))
            log_p = torch.cat([self.log_joint(components, stats, codes), prior[block]], 1)
            if draws:
                log_p += torch.from_numpy(state.rng.gumbel(size=tuple(log_p.shape))).to(log_p)  # the largest is then a draw
            new = log_p.argmax(1)
            opens = new == len(stats)
            new = torch.where(opens, len(stats) - 1 + opens.cumsum(0), new)  # each has a component of its own
            stats = concat([stats, family.empty(int(opens.sum()))])
            labels[block], stats = new, stats + components.summarize(codes, new, len(stats))
        self.hold(state, z, labels)

    def blocks(self, order: Tensor, n_known: int) -> Iterator[Tensor]:
        """Samples in an order; where few have a component yet, in smaller blocks."""
        start = 1 if n_known == 1 else 0  # the first sample of a first sweep
        while start < len(order):
            size = max(1, max(n_known, start) // self.config.n_blocks)
            yield order[start : start + size]
            start += size

    @staticmethod
    def log_joint(components: Components, stats: SuffStats, z: Tensor) -> Tensor:
        """Log of count times predictive density of each component, (n, K); none for components without samples."""
        held = stats.counts > 0.5
        log_p = z.new_full((len(z), len(stats)), -math.inf)
        if bool(held.any()):
            log_p[:, held] = stats.counts[held].log() + components.family.log_predictive(stats[held.nonzero().squeeze(1)], z)
        return log_p


@takes(DataParameters, DDPMConfig, GoingOn, Acceleration, RunParameters)
class DDPM(GrowingClusterer):
    """Deep Dirichlet process mixture (Li et al. 2022): a flow and Gibbs sampling, which find the number of clusters."""

    config_class, network_class, objective_class = DDPMConfig, DDPMNetwork, MonteCarloEM
    config_: DDPMConfig
    network_: DDPMNetwork

    def _is_usable(self, state: TrainState) -> bool:
        return "labels" in state.buffers

    @torch.no_grad()
    def _assign(self, codes: Codes) -> Assignment:
        z, components = codes.mean.double().to(self._device()), self.network_.components
        log_joint = (components.counts + 1e-9).log() + components.family.log_predictive(components.stats, z)
        proba = log_joint.softmax(1).cpu().numpy()
        scores = (log_joint.logsumexp(1) - (components.counts.sum() + self.config_.concentration).log()).cpu().numpy()
        positions = proba.argmax(1)
        return Assignment(codes.mean.numpy(), proba, positions, positions, scores, scores < self.novelty_threshold_)
