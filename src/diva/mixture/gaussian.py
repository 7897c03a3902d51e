r"""Gaussian components with their conjugate priors, diagonal and full, behind one small interface.

Both families see a code only through its *features*: the code and its squares (diagonal) or products of pairs (full).
The expected log-likelihood of every component is linear in them, and so are the statistics; the local step is therefore one
product of features with coefficients and the summary one product of responsibilities with features, whatever the family.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from diva.mixture.stats import SuffStats

LOG_2PI = math.log(2.0 * math.pi)


class Linear(NamedTuple):
    """A function of codes that is linear in their features: ``features @ coef + offset``."""

    coef: Tensor  # (F, K)
    offset: Tensor  # (K,)


@dataclass(frozen=True)
class GaussianFamily(ABC):
    """A conjugate prior over the mean and precision of a component."""

    m0: Tensor  # (D,): prior mean
    kappa0: float  # how many samples the prior mean is worth
    nu0: float  # degrees of freedom of the precision
    # (D,): variance of the rounding of each feature; a code is not known better, so that no component can be tighter
    rounding: Tensor | None = field(default=None, kw_only=True)
    covariance_type: ClassVar[str]

    @property
    def dim(self) -> int:
        """D, the length of a code."""
        return self.m0.shape[0]

    @property
    @abstractmethod
    def n_features(self) -> int:
        """F, the length of a code's features."""

    def features(self, z: Tensor) -> Tensor:
        """Features of codes, (n, D) -> (n, F); squares are the expected ones, where codes are rounded (Sheppard 1898)."""
        features = self.products(z)
        if self.rounding is not None:
            features[:, self.squares] += self.rounding.to(features)
        return features

    @property
    @abstractmethod
    def squares(self) -> slice | Tensor:
        """Where z_d^2 stands among the features."""

    @abstractmethod
    def products(self, z: Tensor) -> Tensor:
        """Codes and their squares, or products of pairs, (n, D) -> (n, F)."""

    @abstractmethod
    def stats(self, counts: Tensor, products: Tensor, entropy: Tensor) -> SuffStats:
        """Statistics from ``products = resp.T @ features(z)`` of shape (K, F)."""

    @abstractmethod
    def log_normalizer(self, stats: SuffStats) -> Tensor:
        r""":math:`\Lambda(S_k)`, the log normalizer of each component's posterior, (K,).

        The factor :math:`(2\pi)^{D/2}` that prior and posterior share is left out: only differences are used.
        """

    @abstractmethod
    def expected_log_likelihood(self, stats: SuffStats) -> Linear:
        r""":math:`E_q[\log N(z | \mu_k, \Lambda_k)]` as a linear function of the features of z."""

    @abstractmethod
    def expected_features(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Expected features of codes that are N(mean, diag(variance)), each (n, D) -> (n, F)."""

    @abstractmethod
    def plug_in_log_density(self, stats: SuffStats) -> Linear:
        r""":math:`\log N(z | m_k, \Sigma_k)` at the posterior's own mean and covariance, linear in the features of z."""

    @abstractmethod
    def log_predictive(self, stats: SuffStats, z: Tensor) -> Tensor:
        """Log density of new codes under each component, its parameters integrated out (Student t), (n, K)."""

    @abstractmethod
    def covariances(self, stats: SuffStats) -> Tensor:
        """Inverse of each component's expected precision, (K, D) or (K, D, D)."""

    @abstractmethod
    def expected_precisions(self, stats: SuffStats) -> Tensor:
        """Diagonal of each component's expected precision, (K, D)."""

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Variance that the prior expects of a component, (D,)."""

    @abstractmethod
    def with_variance(self, variance: Tensor) -> Self:
        """Return the prior that expects a variance (D,) of its components."""

    @property
    @abstractmethod
    def spread_per_variance(self) -> float:
        """What the prior adds to the scatter of a component, for each unit of the variance it expects."""

    def amplification(self, stats: SuffStats) -> float:
        """Largest factor by which rounding of features is amplified in a log-likelihood."""
        return float(((self.means(stats) ** 2 + 1.0) * self.expected_precisions(stats)).max())

    def cancellation(self, stats: SuffStats) -> float:
        """Nats lost in rounding where what is far away was taken out of a component: differences of sums over all data."""
        return 2.0**-48 * float((stats.squares.sum(0) * self.expected_precisions(stats)).max())

    def adapted(self, stats: SuffStats, least: Tensor) -> Self:
        r"""Prior whose spread suits components best: empirical Bayes, or type II maximum likelihood.

        Given q, the bound is highest at the spread :math:`\nu_0 K / \sum_k E[\Lambda_k]_{dd}` in each dimension d, a
        harmonic mean over the components; it never falls below what the variance ``least`` (D,) asks for.
        """
        spread = self.nu0 * len(stats) / self.expected_precisions(stats).sum(0)
        return self.with_variance((spread / self.spread_per_variance).maximum(least))

    def empty(self, n_components: int = 1) -> SuffStats:
        """Statistics of ``n_components`` components that have seen nothing."""
        counts, entropy = self.m0.new_zeros(n_components), self.m0.new_zeros(n_components)
        return self.stats(counts, self.m0.new_zeros(n_components, self.n_features), entropy)

    @cached_property
    def nothing(self) -> Tensor:
        r""":math:`\Lambda(0)`, the log normalizer of the prior, (1,)."""
        return self.log_normalizer(self.empty())

    def means(self, stats: SuffStats) -> Tensor:
        """Posterior means, (K, D)."""
        return (self._lent + stats.sum_z) / (self.kappa0 + stats.counts).unsqueeze(-1)

    @cached_property
    def _lent(self) -> Tensor:
        """Sum of the samples that the prior mean is worth, (D,)."""
        return self.kappa0 * self.m0


@dataclass(frozen=True)
class NormalGamma(GaussianFamily):
    r"""Diagonal covariance, per dimension
    :math:`\lambda \sim Gamma(\nu/2, \beta/2), \mu|\lambda \sim N(m, 1/(\kappa\lambda))`.
    """  # noqa: D205

    beta0: Tensor  # (D,)
    covariance_type = "diag"

    @property
    def n_features(self) -> int:  # noqa: D102
        return 2 * self.dim

    @property
    def squares(self) -> slice:  # noqa: D102
        return slice(self.dim, None)

    def products(self, z: Tensor) -> Tensor:  # noqa: D102
        return torch.cat([z, z * z], dim=1)

    def stats(self, counts: Tensor, products: Tensor, entropy: Tensor) -> SuffStats:  # noqa: D102
        return SuffStats(counts, products[:, : self.dim], products[:, self.dim :], entropy)

    def _update(self, stats: SuffStats) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        kappa = (self.kappa0 + stats.counts).unsqueeze(-1)  # (K, 1)
        nu = (self.nu0 + stats.counts).unsqueeze(-1)  # (K, 1)
        m = (self._lent + stats.sum_z) / kappa  # (K, D)
        beta = self._raw_beta0 + stats.sum_zz - kappa * (m * m)
        # beta - beta0 is a scatter, so it is never negative: what falls below is rounding
        return m, kappa, nu, torch.maximum(beta, self.beta0)

    @cached_property
    def _raw_beta0(self) -> Tensor:
        """The prior's scatter around 0 instead of its mean, (D,)."""
        return self.beta0 + self._lent * self.m0

    def log_normalizer(self, stats: SuffStats) -> Tensor:  # noqa: D102
        _, kappa, nu, beta = self._update(stats)
        half = nu / 2
        per_dim = torch.lgamma(half) - half * torch.log(beta / 2) - torch.log(kappa) / 2
        return per_dim.sum(-1)

    def expected_log_likelihood(self, stats: SuffStats) -> Linear:  # noqa: D102
        m, kappa, nu, beta = self._update(stats)
        e_lambda = nu / beta
        e_log_lambda = torch.digamma(nu / 2) - torch.log(beta / 2)
        offset = 0.5 * (e_log_lambda - LOG_2PI - 1 / kappa - e_lambda * m**2).sum(-1)
        return Linear(torch.cat([e_lambda * m, -0.5 * e_lambda], dim=1).T, offset)

    def expected_features(self, mean: Tensor, variance: Tensor) -> Tensor:  # noqa: D102
        return torch.cat([mean, mean * mean + variance], dim=1)

    def plug_in_log_density(self, stats: SuffStats) -> Linear:  # noqa: D102
        m, _, nu, beta = self._update(stats)
        precision = nu / beta
        offset = 0.5 * (precision.log() - LOG_2PI - precision * m**2).sum(-1)
        return Linear(torch.cat([precision * m, -0.5 * precision], dim=1).T, offset)

    def log_predictive(self, stats: SuffStats, z: Tensor) -> Tensor:  # noqa: D102
        m, kappa, nu, beta = self._update(stats)
        scale2 = beta * (kappa + 1) / (kappa * nu)  # (K, D); a t with nu degrees of freedom in each dimension
        log_norm = torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - 0.5 * torch.log(math.pi * nu * scale2)
        columns = [  # one component at a time keeps memory at n x D
            (log_norm[k] - (nu[k] + 1) / 2 * torch.log1p((z - m[k]) ** 2 / (nu[k] * scale2[k]))).sum(-1) for k in range(len(m))
        ]
        return torch.stack(columns, dim=1)

    def covariances(self, stats: SuffStats) -> Tensor:  # noqa: D102
        _, _, nu, beta = self._update(stats)
        return beta / nu

    def expected_precisions(self, stats: SuffStats) -> Tensor:  # noqa: D102
        _, _, nu, beta = self._update(stats)
        return nu / beta

    @property
    def spread_per_variance(self) -> float:  # noqa: D102
        return self.nu0 - 2.0  # E[1 / lambda] = beta / (nu - 2)

    @property
    def variance(self) -> Tensor:  # noqa: D102
        return self.beta0 / self.spread_per_variance

    def with_variance(self, variance: Tensor) -> Self:  # noqa: D102
        return replace(self, beta0=variance * self.spread_per_variance)


class Triangle(NamedTuple):
    """Upper triangle of a (D, D) matrix, row by row, as products of pairs stand among the features."""

    entries: Tensor  # (F - D,): where they stand in the flattened matrix
    features: Tensor  # (D * D,): feature that each entry of the flattened matrix is
    on_diagonal: Tensor  # (F - D,): whether i == j


@cache
def _triangle(dim: int, device: torch.device) -> Triangle:
    i, j = torch.triu_indices(dim, dim, device=device)
    features = torch.empty(dim, dim, dtype=torch.long, device=device)
    features[i, j] = features[j, i] = torch.arange(dim, dim + len(i), device=device)
    return Triangle(i * dim + j, features.flatten(), i == j)


@dataclass(frozen=True)
class NormalWishart(GaussianFamily):
    r"""Full covariance: :math:`\Lambda \sim Wishart(\Psi^{-1}, \nu), \mu|\Lambda \sim N(m, (\kappa\Lambda)^{-1})`."""

    psi0: Tensor  # (D, D)
    covariance_type = "full"

    @property
    def n_features(self) -> int:  # noqa: D102
        return self.dim + self.dim * (self.dim + 1) // 2

    @property
    def _triangle(self) -> Triangle:
        return _triangle(self.dim, self.m0.device)

    @property
    def squares(self) -> Tensor:  # noqa: D102
        return self.dim + torch.nonzero(self._triangle.on_diagonal).squeeze(1)

    def products(self, z: Tensor) -> Tensor:  # noqa: D102
        # rows of the upper triangle side by side: D slices cost far less than one gather of D(D+1)/2 columns
        return torch.cat([z, *(z[:, i : i + 1] * z[:, i:] for i in range(self.dim))], dim=1)

    def stats(self, counts: Tensor, products: Tensor, entropy: Tensor) -> SuffStats:  # noqa: D102
        sum_zz = products.index_select(1, self._triangle.features).view(-1, self.dim, self.dim)
        return SuffStats(counts, products[:, : self.dim], sum_zz, entropy)

    def _update(self, stats: SuffStats) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return m (K, D), kappa (K,), nu (K,) and the lower Cholesky factor of psi (K, D, D)."""
        kappa = self.kappa0 + stats.counts
        m = (self._lent + stats.sum_z) / kappa.unsqueeze(-1)
        psi = self._raw_psi0 + stats.sum_zz
        psi -= (kappa.unsqueeze(-1) * m).unsqueeze(-1) * m.unsqueeze(-2)  # in place: they may be very many
        chol, info = torch.linalg.cholesky_ex(psi)
        if bool(info.any()):
            chol = torch.linalg.cholesky(self._lifted(psi))
        return m, kappa, self.nu0 + stats.counts, chol

    @cached_property
    def _raw_psi0(self) -> Tensor:
        """The prior's scatter around 0 instead of its mean, (D, D)."""
        return self.psi0 + torch.outer(self._lent, self.m0)

    def _lifted(self, psi: Tensor) -> Tensor:
        """Undo rounding that made psi smaller than psi0, which exact arithmetic cannot."""
        chol0 = torch.linalg.cholesky(self.psi0)
        half = torch.linalg.solve_triangular(chol0, psi, upper=False)
        white = torch.linalg.solve_triangular(chol0, half.mT, upper=False)
        values, vectors = torch.linalg.eigh((white + white.mT) / 2)
        root: Tensor = chol0 @ (vectors * values.clamp_min(1.0).sqrt().unsqueeze(-2))
        return root @ root.mT

    def log_normalizer(self, stats: SuffStats) -> Tensor:  # noqa: D102
        _, kappa, nu, chol = self._update(stats)
        log_det_half = _log_det(chol) - self.dim * math.log(2.0)  # log |psi / 2|
        half = nu / 2
        log_gamma: Tensor = torch.special.multigammaln(half, self.dim)
        return log_gamma - half * log_det_half - self.dim / 2 * torch.log(kappa)

    def expected_log_likelihood(self, stats: SuffStats) -> Linear:  # noqa: D102
        m, kappa, nu, chol = self._update(stats)
        e_lambda = nu[:, None, None] * torch.cholesky_inverse(chol)
        e_log_det = torch.digamma((nu.unsqueeze(-1) - self._steps) / 2).sum(-1) + self.dim * math.log(2.0) - _log_det(chol)
        return self._quadratic(m, e_lambda, e_log_det - self.dim / kappa)

    @cached_property
    def _steps(self) -> Tensor:
        return torch.arange(self.dim, device=self.m0.device, dtype=self.m0.dtype)

    def _quadratic(self, m: Tensor, precision: Tensor, constant: Tensor) -> Linear:
        """Half of ``constant - D log 2 pi - (z - m)' precision (z - m)`` as a linear function of the features of z."""
        linear = (precision @ m.unsqueeze(-1)).squeeze(-1)  # (K, D)
        offset = 0.5 * (constant - self.dim * LOG_2PI - (linear * m).sum(-1))
        upper = precision.flatten(1).index_select(1, self._triangle.entries)
        quadratic = torch.where(self._triangle.on_diagonal, -0.5 * upper, -upper)  # off-diagonal products stand for two
        return Linear(torch.cat([linear, quadratic], dim=1).T, offset)

    def expected_features(self, mean: Tensor, variance: Tensor) -> Tensor:  # noqa: D102
        return self.products(mean).index_add(1, self.squares.to(mean.device), variance)

    def plug_in_log_density(self, stats: SuffStats) -> Linear:  # noqa: D102
        m, _, nu, chol = self._update(stats)
        precision = nu[:, None, None] * torch.cholesky_inverse(chol)
        return self._quadratic(m, precision, self.dim * nu.log() - _log_det(chol))

    def log_predictive(self, stats: SuffStats, z: Tensor) -> Tensor:  # noqa: D102
        m, kappa, nu, chol = self._update(stats)
        dof = nu - self.dim + 1
        scale2 = (kappa + 1) / (kappa * dof)  # shape matrix is psi * scale2
        log_norm = torch.lgamma((dof + self.dim) / 2) - torch.lgamma(dof / 2) - 0.5 * _log_det(chol)
        log_norm = log_norm - self.dim / 2 * torch.log(math.pi * dof * scale2)
        columns = []
        for k in range(len(m)):
            white = torch.linalg.solve_triangular(chol[k], (z - m[k]).T, upper=False)
            distance2 = (white**2).sum(0) / scale2[k]
            columns.append(log_norm[k] - (dof[k] + self.dim) / 2 * torch.log1p(distance2 / dof[k]))
        return torch.stack(columns, dim=1)

    def covariances(self, stats: SuffStats) -> Tensor:  # noqa: D102
        _, _, nu, chol = self._update(stats)
        return chol @ chol.mT / nu[:, None, None]

    def expected_precisions(self, stats: SuffStats) -> Tensor:  # noqa: D102
        _, _, nu, chol = self._update(stats)
        return nu[:, None] * torch.cholesky_inverse(chol).diagonal(dim1=-2, dim2=-1)

    @property
    def spread_per_variance(self) -> float:  # noqa: D102
        return self.nu0 - self.dim - 1.0  # E[Sigma] = psi / (nu - D - 1)

    @property
    def variance(self) -> Tensor:  # noqa: D102
        return self.psi0.diagonal() / self.spread_per_variance

    def with_variance(self, variance: Tensor) -> Self:  # noqa: D102
        return replace(self, psi0=torch.diag(variance) * self.spread_per_variance)


def _log_det(chol: Tensor) -> Tensor:
    # made contiguous, because logarithms of numbers that stand apart are not vectorized
    return 2.0 * chol.diagonal(dim1=-2, dim2=-1).contiguous().log().sum(-1)


def make_family(
    covariance_type: str, m0: Tensor, variance: Tensor, kappa0: float = 1e-4, nu0: float | None = None
) -> GaussianFamily:
    """Prior with a given mean and expected variance of a component, each (D,); ``nu0`` defaults to D + 2."""
    nu = len(m0) + 2.0 if nu0 is None else float(nu0)
    if covariance_type == "diag":
        return NormalGamma(m0, kappa0, nu, m0).with_variance(variance)
    return NormalWishart(m0, kappa0, nu, torch.diag(m0)).with_variance(variance)
