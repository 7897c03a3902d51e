"""DeepDPM: Ronen, Finder and Freifeld, "DeepDPM: deep clustering with an unknown number of clusters", CVPR 2022.

A clustering net, one hidden layer and K outputs, says which cluster a code belongs to. It learns to agree with the E-step of a
Bayesian Gaussian mixture whose M-step takes the net's answers as responsibilities: amortized EM. A sub-cluster net for each
cluster learns to cut it in two. Every so many epochs clusters are split where the cut explains the data better, or near ones
are merged, by the Hastings ratio of a Dirichlet process mixture; the nets gain or lose an output. Codes are those of an
auto-encoder, which takes turns with the clusters: it then reconstructs, and draws codes to the mean of their cluster.

Departures: codes are centred and scaled instead of normalized; a component has the mean of its precision, not the mode;
sub-cluster nets learn from the start; fewer epochs, the clustering net at the higher learning rate of the sub-cluster nets;
clusters that are nobody's most probable one are removed; the auto-encoder is that of `diva.baselines.autoencoder`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from diva.baselines.autoencoder import FeatureConfig, Pretraining, StackedAutoEncoder, k_means
from diva.baselines.components import Components, Growing, GrowingClusterer, compact
from diva.baselines.deep import GoingOn
from diva.data import Samples
from diva.mixture.local import summarize
from diva.mixture.stats import SuffStats
from diva.models.base import Assignment
from diva.models.config import Acceleration, DataParameters, RunParameters
from diva.parameters import Number, Whole, parameter, takes
from diva.training.adam import Adam
from diva.training.encode import Codes
from diva.training.loop import Batch, Loss
from diva.training.state import EpochRecord, TrainState

KAPPA0, WEIGHT_COUNT = 1e-4, 0.1  # how many codes the prior mean is worth, and the prior weight of a cluster
NEIGHBOURS = 3  # that a cluster may be merged with


@dataclass(frozen=True)
class DeepDPMConfig(FeatureConfig):
    """Clusters that split and merge."""

    batch_size: int = parameter(128, Whole(), help="Samples in a step of the optimizer.")
    n_epochs: int = parameter(500, Whole(), help="Passes over the data in all.")
    layer_share: float = parameter(0.06, Number(0, 1), help="Share of the epochs that train one layer at a time.")
    whole_share: float = parameter(0.12, Number(0, 1), help="Share of the epochs that train the whole auto-encoder.")
    n_alternations: int = parameter(3, Whole(), help="How often clusters are learnt; features are learnt in between.")
    feature_share: float = parameter(0.1, Number(0, 1), help="Share of the epochs after those that train features in between.")
    reconstruction_weight: float = parameter(1.0, Number(0), help="Of the squared error beside the distance to cluster means.")
    n_clusters: int = parameter(1, Whole(), help="Number of clusters to begin with.")
    concentration: float = parameter(10.0, Number(), help="Of the Dirichlet process: more of it splits more.")
    prior_scale: float = parameter(
        0.005,
        Number(),
        help="Variance that the prior expects in each direction, as a share of that of all codes in all directions.",
    )
    n_hidden: int = parameter(50, Whole(), help="Hidden units of the clustering net and of each sub-cluster net.")
    cluster_learning_rate: float = parameter(5e-3, Number(), help="Of Adam, for the clustering net and the sub-cluster nets.")
    move_every: int = parameter(12, Whole(), help="Epochs from splits to merges, and from merges to splits.")


class ClusterHead(Growing):
    """What the nets have for each cluster: an output of the clustering net, a sub-cluster net, and means of its two halves."""

    def __init__(self, dim: int, n_hidden: int) -> None:
        super().__init__()
        self.output = nn.Parameter(torch.zeros(1, n_hidden + 1))  # the last column is the bias
        self.sub_hidden = nn.Parameter(torch.zeros(1, n_hidden, dim + 1))
        self.sub_output = nn.Parameter(torch.zeros(1, 2, n_hidden + 1))
        self.sub_means = nn.Buffer(torch.zeros(1, 2, dim))

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of the clusters, (n, n_hidden) -> (n, K)."""
        return functional.pad(hidden, (0, 1), value=1.0) @ self.output.T

    def halves(self, z: Tensor, labels: Tensor) -> Tensor:
        """Logits of the two halves of the clusters that labels (n,) name, (n, D) -> (n, 2)."""
        hidden = torch.einsum("nd,nhd->nh", functional.pad(z, (0, 1), value=1.0), self.sub_hidden[labels]).relu()
        return torch.einsum("nh,njh->nj", functional.pad(hidden, (0, 1), value=1.0), self.sub_output[labels])

    def select(self, sources: Tensor) -> None:
        """Let cluster i be what cluster ``sources[i]`` was."""
        for value in (*self.parameters(), self.sub_means):
            value.data, value.grad = value.data[sources.to(value.device)], None

    def renew(self, weights: Tensor, clusters: Tensor) -> None:
        """Fresh weights for some clusters."""
        fresh = torch.empty(len(clusters), *weights.shape[1:]).uniform_(-1, 1) / weights.shape[-1] ** 0.5
        weights.data[clusters.to(weights.device)] = fresh.to(weights)


class DeepDPMNetwork(StackedAutoEncoder):
    """The auto-encoder, unless codes are given; the nets; and the mixture that they learn from."""

    def __init__(self, input_shape: tuple[int, ...], config: DeepDPMConfig) -> None:
        super().__init__(input_shape, config.sizes)
        self.hidden = nn.Linear(config.latent_dim, config.n_hidden)
        self.head = ClusterHead(config.latent_dim, config.n_hidden)
        self.components = Components(config.latent_dim, KAPPA0, config.prior_scale * config.latent_dim)

    def cluster_logits(self, z: Tensor) -> Tensor:
        """The clustering net, (n, D) -> (n, K)."""
        logits: Tensor = self.head(self.hidden(z).relu())
        return logits

    def log_joint(self, z: Tensor) -> Tensor:
        """Log of weight times density of each component, (n, K): the E-step, but for normalization."""
        weights = self.components.counts + WEIGHT_COUNT
        return (weights / weights.sum()).log() + self.components.log_density(z)

    def keep(self, clusters: Tensor) -> None:
        """Forget all clusters but some."""
        self.head.select(clusters)
        self.components.hold(self.components.stats[clusters])


class SplitsAndMerges(Pretraining):
    """The objective: an auto-encoder, then clusters and features in turn."""

    config: DeepDPMConfig

    def __init__(self, config: DeepDPMConfig, samples: Samples, device: torch.device) -> None:
        super().__init__(config, samples, device)
        n, rest = self.n_epochs - self.n_pretraining, config.n_alternations - 1 if self.n_layers else 0
        clusters, features = (1 - config.feature_share) / (rest + 2), config.feature_share / max(rest, 1)
        shares = np.cumsum([0, 2 * clusters, *[features, clusters] * rest])  # the first turn, from few clusters, is the longest
        self.turns = [self.n_pretraining + round(n * share / shares[-1]) for share in shares]
        if min(np.diff(self.turns)) < 1:  # too few epochs to take turns
            self.turns = [self.n_pretraining, self.n_epochs]
        self.starts = (*self.starts, *self.turns[1:-1])

    def turn(self, position: int) -> tuple[bool, int, int]:
        """Whether clusters are learnt, how many epochs of the turn are done, and how many follow."""
        number = int(np.searchsorted(self.turns, position, side="right")) - 1
        return number % 2 == 0, position - self.turns[number], self.turns[number + 1] - position - 1

    def phase(self, position: int) -> str:
        """What is learnt at a place of the schedule."""
        return super().phase(position) if position < self.n_pretraining or self.turn(position)[0] else "features"

    @torch.no_grad()
    def before_epoch(self, state: TrainState) -> None:
        """Begin a turn; the E-step."""
        super().before_epoch(state)
        clustering = self.phase(state.position) == "clustering"
        if state.position in self.turns:
            self.renew_optimizer(state)
            if clustering:
                self.begin_clusters(state)
        if clustering:
            target = state.network.log_joint(state.buffers["codes"].to(self.device)).log_softmax(1)
            state.buffers = state.buffers | {"target": target.float().cpu()}

    def renew_optimizer(self, state: TrainState) -> None:
        """Adam without moments: for the nets while clusters are learnt, else for the auto-encoder."""
        rate = self.config.cluster_learning_rate if self.turn(state.position)[0] else self.config.learning_rate
        state.optimizer = Adam(state.network.parameters(), lr=rate, weight_decay=self.config.weight_decay)

    def begin_clusters(self, state: TrainState) -> None:
        """Fresh nets, and a mixture of the codes as they are now: with clusters of k-means, or those of the turn before."""
        net, z = state.network, self.standardized_codes(state.network)
        labels = state.buffers["labels"] if "labels" in state.buffers else self.groups(z, self.config.n_clusters, state)
        labels = compact(labels)[1]
        state.buffers = {"codes": z, "labels": labels}
        clusters = torch.arange(int(labels.max()) + 1)
        net.components.hold(net.components.summarize(z.to(self.device), labels.to(self.device), len(clusters)))
        net.hidden.reset_parameters()
        net.head.select(torch.zeros_like(clusters))
        net.head.renew(net.head.output, clusters)
        self.cut(clusters, state)

    def groups(self, z: Tensor, n_clusters: int, state: TrainState) -> Tensor:
        """Labels (n,) of codes on the CPU, by k-means."""
        n_clusters = min(n_clusters, len(np.unique(z, axis=0)))
        return torch.from_numpy(k_means(z, n_clusters, state.rng, n_init=3).labels_.astype(np.int64))

    def cut(self, clusters: Tensor, state: TrainState) -> None:
        """Fresh sub-cluster nets for some clusters, with the two halves that k-means finds."""
        head, z, labels = state.network.head, state.buffers["codes"], state.buffers["labels"]
        head.renew(head.sub_hidden, clusters)
        head.renew(head.sub_output, clusters)
        for k in clusters.tolist():
            mine = z[labels == k]
            halves = self.groups(mine, 2, state)  # one, if all codes are the same
            head.sub_means[k] = torch.stack([mine[halves == 0].mean(0), mine[halves == halves.max()].mean(0)])

    def loss(self, batch: Batch, state: TrainState) -> Loss:
        """Squared error; or agreement with the E-step, and spread of halves; or squared error and spread of clusters."""
        if state.position < self.n_pretraining:
            return super().loss(batch, state)
        net, labels = state.network, state.buffers["labels"][batch.index].to(self.device)
        if not self.turn(state.position)[0]:
            x = self.samples.take(batch.index).to(self.device)
            z = net.encode(x)
            error = functional.mse_loss(net.enter(net.decode(z)), net.enter(x))
            spread = functional.mse_loss(z, net.components.family.means(net.components.stats)[labels].to(z))
            return Loss(self.config.reconstruction_weight * error + spread, {"reconstruction": error})
        z, target = (state.buffers[name][batch.index].to(self.device) for name in ("codes", "target"))
        kl = functional.kl_div(target, net.cluster_logits(z).log_softmax(1), log_target=True, reduction="batchmean")
        distances = (z.unsqueeze(1) - net.head.sub_means[labels]).square().sum(2)
        spread = (net.head.halves(z, labels).softmax(1) * distances).sum(1).mean()
        return Loss(kl + spread, {"kl": kl})

    @torch.no_grad()
    def after_epoch(self, state: TrainState, means: Mapping[str, float]) -> EpochRecord:
        """The M-step, and moves if they are due."""
        record = super().after_epoch(state, means)
        if record.phase != "clustering":
            return record
        _, done, left = self.turn(state.position)
        every, since = self.config.move_every, done - round(self.config.move_every * 55 / 30)  # a scale of the paper's epochs
        if done >= every * 25 / 30 and not 0 < max(since, 0) % every <= every * 5 / 30:  # else, the nets follow the mixture
            self.update_clusters(state)
        due = since >= 0 and since % every == 0 and left >= every / 3
        moves: dict[str, Any] = self.move(state, splits=since // every % 2 == 0) if due else {}
        return replace(record, n_clusters=len(state.network.components), **moves)

    def update_clusters(self, state: TrainState) -> None:
        """The M-step: mixture and halves as the nets have them."""
        net, z = state.network, state.buffers["codes"].to(self.device)
        resp = net.cluster_logits(z).softmax(1)
        labels = resp.argmax(1)
        net.components.hold(summarize(net.components.family, z, resp))
        member, halves = functional.one_hot(labels, resp.shape[1]).to(z), net.head.halves(z, labels).softmax(1)
        counts = (member.T @ halves).unsqueeze(2)  # (K, 2, 1)
        sums = torch.einsum("nk,nj,nd->kjd", member, halves, z)
        net.head.sub_means = torch.where(counts > 0, sums / counts, net.head.sub_means)
        state.buffers = state.buffers | {"labels": labels.cpu()}

    def move(self, state: TrainState, splits: bool) -> dict[str, Any]:
        """Remove clusters that are empty; then split all that should be, or merge."""
        net, z, n_before = state.network, state.buffers["codes"].to(self.device), len(state.network.components)
        used, labels = compact(state.buffers["labels"].to(self.device))
        net.head.select(used)
        if splits:
            labels = 2 * labels + net.head.halves(z, labels).argmax(1)
        parts = net.components.summarize(z, labels, (1 + splits) * len(used))
        target, sources = (self.split if splits else self.merge)(parts, net.components, state)
        net.head.select(sources)
        net.components.hold(parts.regrouped(target, len(sources)))
        state.buffers = state.buffers | {"labels": target[labels].cpu()}
        self.renew_optimizer(state)  # its moments are of another shape
        self.cut((torch.bincount(target) == 2 - splits).nonzero().squeeze(1), state)
        n_moved = abs(len(sources) - len(used))
        return {"births" if splits else "merges": n_moved, "deletes": n_before - len(used)}

    def split(self, halves: SuffStats, components: Components, state: TrainState) -> tuple[Tensor, Tensor]:
        """The cluster that each of the halves (2 K,) goes to, and the one that each cluster comes from."""
        first, second = halves[::2], halves[1::2]
        accepted = self.accept(self.log_hastings(first, second, components), state)
        accepted &= torch.minimum(first.counts, second.counts) >= 1
        same = torch.arange(len(first), device=accepted.device)
        other = torch.where(accepted, len(first) - 1 + accepted.cumsum(0), same)
        return torch.stack([same, other], 1).flatten(), torch.cat([same, same[accepted]])

    def merge(self, clusters: SuffStats, components: Components, state: TrainState) -> tuple[Tensor, Tensor]:
        """The same for clusters (K,): the best pairs of neighbours first, and none twice."""
        means = clusters.sum_z / clusters.counts.unsqueeze(1)
        near = torch.cdist(means, means).argsort(1)[:, 1 : NEIGHBOURS + 1].tolist()
        pairs = sorted({(min(a, b), max(a, b)) for a, others in enumerate(near) for b in others})
        log_ratio = -self.log_hastings(clusters[[a for a, _ in pairs]], clusters[[b for _, b in pairs]], components)
        accepted = self.accept(log_ratio, state)
        target, free = torch.arange(len(clusters), device=means.device), set(range(len(clusters)))
        for a, b in (pairs[i] for i in log_ratio.argsort(descending=True).tolist() if accepted[i]):
            if {a, b} <= free:
                target[b] = a
                free -= {a, b}
        sources, target = compact(target)
        return target, sources

    def log_hastings(self, a: SuffStats, b: SuffStats, components: Components) -> Tensor:
        """Log ratio of two clusters over one that holds both: of a split; of a merge, it is the inverse."""
        one, other, both = (part.counts.lgamma() + components.log_evidence(part) for part in (a, b, a + b))
        return math.log(self.config.concentration) + one + other - both

    def accept(self, log_ratio: Tensor, state: TrainState) -> Tensor:
        """With a probability of the ratio, or 1 at most."""
        return torch.from_numpy(np.log(state.rng.random(len(log_ratio)))).to(log_ratio) < log_ratio


@takes(DataParameters, DeepDPMConfig, GoingOn, Acceleration, RunParameters)
class DeepDPM(GrowingClusterer):
    """Deep clustering by splits and merges (Ronen et al. 2022), which finds the number of clusters."""

    config_class, network_class, objective_class = DeepDPMConfig, DeepDPMNetwork, SplitsAndMerges
    config_: DeepDPMConfig
    network_: DeepDPMNetwork

    def _go_on(self, state: TrainState, objective: Pretraining) -> None:
        super()._go_on(state, objective)
        state.buffers = {"labels": torch.from_numpy(self._assign(self._encode(objective.samples)).positions)}

    def _is_usable(self, state: TrainState) -> bool:
        return "codes" in state.buffers

    @torch.no_grad()
    def _assign(self, codes: Codes) -> Assignment:
        z = codes.mean.to(self._device())
        proba = self.network_.cluster_logits(z).double().softmax(1).cpu().numpy()
        positions, scores = proba.argmax(1), self.network_.log_joint(z).logsumexp(1).cpu().numpy()
        return Assignment(codes.mean.numpy(), proba, positions, positions, scores, scores < self.novelty_threshold_)
