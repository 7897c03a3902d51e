"""GMVAE: Dilokthanakul et al., "Deep unsupervised clustering with Gaussian mixture variational autoencoders", arXiv 1611.02648.

A sample y comes from a code x, and x from one of K Gaussians whose means and variances are functions of a second code w:

    p(w) = N(0, I),   p(z) = 1/K,   p(x | w, z=k) = N(mu_k(w), sigma_k^2(w)),   p(y | x).

An encoder gives Gaussians q(x | y) and q(w | y); of the cluster z, the exact p(z | x, w) follows by Bayes. Per sample the bound
is, with expectations over one draw of x and w,

    E log p(y | x)  -  E sum_k p(z=k | x, w) KL(q(x | y) || p(x | w, k))  -  KL(q(w | y) || p(w))
                    -  max(lambda, E KL(p(z | x, w) || p(z))).

The last term wants all clusters to be alike for a sample, and early in training it wins: up to lambda nats of what z knows of y
are therefore free (the minimum information constraint), on average over a batch as in the published code.

Departures: codes as short as DIVA's, as in its comparison (theirs: 200 and 150), a learning rate of 1e-3 in the place of 1e-4,
and a variance of the decoder for rows that all features share. Networks are fully connected for images, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from diva.baselines.deep import GoingOn
from diva.baselines.variational import BoundTerms, VariationalClusterer, VariationalConfig, VariationalNetwork
from diva.models.config import Acceleration, DataParameters, RunParameters
from diva.networks import MLPEncoder, normal
from diva.networks.priors import StandardNormal
from diva.parameters import Number, Whole, parameter, takes


@dataclass(frozen=True)
class GMVAEConfig(VariationalConfig):
    """Gaussian mixture variational auto-encoder."""

    n_clusters: int = parameter(10, Whole(), help="Number of Gaussians, K; those that no sample is in are no clusters.")
    latent_dim: int = parameter(16, Whole(), help="Length of a code x, in which clusters are found.")
    style_dim: int = parameter(16, Whole(), help="Length of the code w, which the clusters depend on.")
    prior_size: int = parameter(500, Whole(), help="Size of the layer between w and the Gaussians.")
    min_information: float = parameter(0.5, Number(0), help="Nats that assignments may know of a sample for nothing, lambda.")


class GMVAENetwork(VariationalNetwork):
    """q(x, w | y), p(x | w, z) and p(y | x)."""

    def __init__(self, input_shape: tuple[int, ...], config: GMVAEConfig) -> None:
        super().__init__(input_shape, config, config.n_clusters)
        self.sizes, self.min_information = [config.latent_dim, config.style_dim], config.min_information
        self.log_k = math.log(config.n_clusters)
        self.encoder = MLPEncoder(self.n_features, sum(self.sizes), config.hidden_sizes, batch_norm=True)
        self.prior = nn.Sequential(
            nn.Linear(config.style_dim, config.prior_size),
            nn.Tanh(),
            nn.Linear(config.prior_size, 2 * config.n_clusters * config.latent_dim),
            nn.Unflatten(1, (2, config.n_clusters, config.latent_dim)),
        )

    def components(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log variances of the Gaussians p(x | w, z), each (n, K, D)."""
        mean, log_var = self.prior(w).unbind(1)
        return mean, normal.bounded(log_var)

    def bound_terms(self, x: Tensor, noise: torch.Generator) -> BoundTerms:
        """Reconstruction, then the three divergences."""
        mean, log_var = self.encoder(x.flatten(1))
        log_var = normal.bounded(log_var)
        drawn = normal.draw(mean, log_var, noise)
        (x_mean, w_mean), (x_log_var, w_log_var), (code, w) = (part.split(self.sizes, 1) for part in (mean, log_var, drawn))
        components = self.components(w)
        log_p = normal.log_density(code, *components).log_softmax(1)  # of z given x and w
        cross_entropy = -(log_p.exp() * normal.log_density(x_mean, *components, x_log_var)).sum(1)
        information = self.log_k + (log_p.exp() * log_p).sum(1).mean()
        kl = cross_entropy - normal.entropy(x_log_var) + StandardNormal().kl(w_mean, w_log_var, w)
        return BoundTerms(self.likelihood(self.decode(code), x), kl + information.clamp_min(self.min_information), log_p)

    def encode(self, x: Tensor) -> Tensor:
        """Means of q(x | y) and of q(w | y) beside each other."""
        mean: Tensor = self.encoder(x.flatten(1))[0]
        return mean

    def assign(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """p(z | x, w) and p(x | w), as logarithms."""
        code, w = encoded.tensor_split([self.latent_dim], 1)
        joint = normal.log_density(code, *self.components(w)) - self.log_k
        return joint.log_softmax(1), joint.logsumexp(1)


@takes(DataParameters, GMVAEConfig, GoingOn, Acceleration, RunParameters)
class GMVAE(VariationalClusterer):
    """Gaussian mixture variational auto-encoder (Dilokthanakul et al. 2016) with a given number of Gaussians."""

    config_class: ClassVar[type[GMVAEConfig]] = GMVAEConfig
    network_class: ClassVar[Any] = GMVAENetwork
    config_: GMVAEConfig
    network_: GMVAENetwork
