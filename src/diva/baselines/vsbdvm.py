"""VSB-DVM: Yang et al., "An end-to-end Bayesian nonparametric generalization of deep variational mixture model", ICDM 2019.

A Gaussian mixture is the prior of the codes z of a variational auto-encoder, without any pre-training. Who belongs where is not
asked of the mixture: a head on the encoder breaks a stick for each sample. With b_k(x) from the head,

    v_k ~ Kumaraswamy(1, b_k(x)),   gamma_k ~ v_k prod_{j<k} (1 - v_j), normalised over K components,

so that components that are not needed get nothing, and K is only the most there may be. Per sample the loss is

    -E log p(x | z)  +  sum_k gamma_k E[-log N(z; mu_k, sigma_k^2)]  -  entropy of q(z | x)
                     +  KL(gamma || p(k | z))  +  eta sum_k KL(Kumaraswamy(1, b_k) || Beta(1, alpha)),

with p(k | z) by Bayes from components of equal weight. Their means and variances have no gradients: they are moving averages of
the codes, weighed by gamma. As Kumaraswamy(1, b) is Beta(1, b), the last divergence is log(b / alpha) - 1 + alpha / b exactly.
The published code has a series of ten terms for it, 1,000 epochs of batches of 100, a rate of averages of .0021 and the true K.

Departures: the head starts with equal expected segments and components start nearly alike, as otherwise the first few, or the
nearest few, took most samples here; averages move ten times as fast, as there are fewer steps; learning rates fall steadily,
without swings; labels are those of expected sticks, not of a draw; the likelihood of rows is Gaussian with a variance that is
learnt, not 5 squared errors; and only what ``fit`` is given is learnt from, where the original adds the test data.

On ten well separated Gaussians (1,000 samples, one hidden layer of 64, one seed), K = 10 ends with 7 clusters, three of two
classes; K = 50 with all classes apart after 200 epochs (one-to-one .97, 16 clusters, 5 of them of one or two samples), and
with two classes in two after 600. Components that start where k-means puts them, on codes of a plain auto-encoder that have
all ten right, end with one cluster: a head that does not know yet where samples belong gives all to the component that is
least wrong on average, and stays there. The published code bounds how wrong one can be, by 1e-10 beside K^-D N(z; k) in p(k |
z), which for its K = D = 10 is 1 beside the density; with that and its start, K = 10 was at .39 after 60 epochs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from diva.baselines.deep import GoingOn
from diva.baselines.variational import (
    BoundTerms,
    NegativeBound,
    VariationalClusterer,
    VariationalConfig,
    VariationalNetwork,
)
from diva.models.config import LAYERS, Acceleration, DataParameters, RunParameters
from diva.networks import MLPEncoder, kumaraswamy, normal
from diva.parameters import Number, Whole, parameter, takes
from diva.training.state import TrainState

DECAY, DECAY_EPOCHS = 0.9, 40
SMALLEST_B = 1e-3
FIRST_MEANS = 0.1  # standard deviation of the means of components at the start


@dataclass(frozen=True)
class VSBDVMConfig(VariationalConfig):
    """Variational stick-breaking deep variational mixture."""

    max_clusters: int = parameter(50, Whole(), help="Most clusters there may be, K.")
    latent_dim: int = parameter(10, Whole(), help="Length of a code.")
    hidden_sizes: tuple[int, ...] = parameter((500, 500, 2000), LAYERS, help="Layers of the encoder; the decoder mirrors it.")
    stick_size: int = parameter(200, Whole(), help="Size of the layer between the encoder and the sticks.")
    n_epochs: int = parameter(200, Whole(), help="Passes over the data.")
    learning_rate: float = parameter(2e-3, Number(), help="Of the optimizer, Adam; falls by a tenth every 40 epochs.")
    component_rate: float = parameter(0.02, Number(0, 1), help="Share by which a step moves components; falls likewise.")
    concentration: float = parameter(3.0, Number(), help="Of the prior of the sticks, alpha.")
    stick_weight: float = parameter(0.005, Number(0), help="Of the divergence of the sticks from their prior, eta.")


class VSBDVMNetwork(VariationalNetwork):
    """q(z | x), the sticks, the mixture and the decoder."""

    called_modules: ClassVar[tuple[str, ...]] = ("encoder.body", "decoder")  # three heads are on the body

    def __init__(self, input_shape: tuple[int, ...], config: VSBDVMConfig) -> None:
        super().__init__(input_shape, config, config.max_clusters)
        n_clusters, self.component_rate = config.max_clusters, config.component_rate
        self.concentration, self.stick_weight = config.concentration, config.stick_weight
        self.encoder = MLPEncoder(self.n_features, config.latent_dim, config.hidden_sizes)
        last = nn.Linear(config.stick_size, n_clusters)
        equal = torch.arange(n_clusters - 1, -1, -1.0).clamp_min(0.1)  # b by which E v_k = 1 / (1 + b_k) makes equal segments
        last.bias.data.copy_(equal + torch.log(-torch.expm1(-equal)))  # softplus undone
        self.stick_head = nn.Sequential(
            nn.Linear(config.hidden_sizes[-1], config.stick_size), nn.Softplus(), last, nn.Softplus()
        )
        self.means = nn.Buffer(FIRST_MEANS * torch.randn(n_clusters, config.latent_dim))
        self.variances = nn.Buffer(torch.ones(n_clusters, config.latent_dim))

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and log variance of q(z | x), and b of the sticks."""
        hidden = self.encoder.body(x.flatten(1))
        return (
            self.encoder.mean(hidden),
            normal.bounded(self.encoder.log_var(hidden)),
            self.stick_head(hidden) + SMALLEST_B,
        )

    def bound_terms(self, x: Tensor, noise: torch.Generator) -> BoundTerms:
        """Reconstruction, then the rest of the loss."""
        mean, log_var, b = self.posterior(x)
        z = normal.draw(mean, log_var, noise)
        log_gamma = kumaraswamy.log_segments(kumaraswamy.draw(torch.ones_like(b), b, noise)).log_softmax(1)
        gamma = log_gamma.exp()
        self.move_components(z.detach(), gamma.detach())
        components = self.means.clone(), self.variances.log()
        cross_entropy = -(gamma * normal.log_density(mean, *components, log_var)).sum(1)
        log_p = normal.log_density(z, *components).log_softmax(1)
        sticks = ((b / self.concentration).log() - 1 + self.concentration / b).sum(1)
        kl = cross_entropy - normal.entropy(log_var) + (gamma * (log_gamma - log_p)).sum(1) + self.stick_weight * sticks
        return BoundTerms(self.likelihood(self.decode(z), x), kl, log_gamma)

    def move_components(self, z: Tensor, gamma: Tensor) -> None:
        """Moving averages of means and variances of the codes, weighed by gamma."""
        weights = (gamma / (gamma.sum(0) + 1e-10)).T  # (K, n)
        means = weights @ z
        variances = (weights.unsqueeze(2) * (z - means.unsqueeze(1)).square()).sum(1)
        self.means.lerp_(means, self.component_rate)
        self.variances.lerp_(variances, self.component_rate).clamp_(1e-6)

    def encode(self, x: Tensor) -> Tensor:
        """Means of q(z | x), and logarithms of gamma at the expected sticks, beside each other."""
        mean, _, b = self.posterior(x)
        return torch.cat([mean, kumaraswamy.log_segments(1 / (1 + b)).log_softmax(1)], 1)

    def assign(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of gamma, and the log density of the mixture."""
        z, log_gamma = encoded.tensor_split([self.latent_dim], 1)
        density = normal.log_density(z, self.means, self.variances.log()).logsumexp(1) - math.log(len(self.means))
        return log_gamma, density


class FallingRates(NegativeBound):
    """The objective, with learning rates that fall."""

    def before_epoch(self, state: TrainState) -> None:
        """Set the rates of the optimizer and of the moving averages."""
        super().before_epoch(state)
        left = DECAY ** (state.position / DECAY_EPOCHS)
        state.optimizer.param_groups[0]["lr"] = left * self.config.learning_rate
        state.network.component_rate = left * self.config.component_rate


@takes(DataParameters, VSBDVMConfig, GoingOn, Acceleration, RunParameters)
class VSBDVM(VariationalClusterer):
    """Variational stick-breaking deep variational mixture (Yang et al. 2019), which finds the number of clusters."""

    config_class: ClassVar[type[VSBDVMConfig]] = VSBDVMConfig
    network_class: ClassVar[Any] = VSBDVMNetwork
    objective_class: ClassVar[type[NegativeBound]] = FallingRates
    config_: VSBDVMConfig
    network_: VSBDVMNetwork
