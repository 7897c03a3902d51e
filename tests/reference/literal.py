"""The model as a textbook writes it: numpy, scipy and loops, nothing shared with the package.

A diagonal component is D independent components of one dimension, so only Normal-Wisharts are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from diva.mixture.gaussian import GaussianFamily, NormalGamma


@dataclass(frozen=True)
class NormalWishart:
    """Lambda ~ Wishart(psi^-1, nu), mu | Lambda ~ N(m, (kappa Lambda)^-1)."""

    m: np.ndarray
    kappa: float
    nu: float
    psi: np.ndarray

    @property
    def dim(self) -> int:
        return len(self.m)

    def given(self, z: np.ndarray, weights: np.ndarray) -> NormalWishart:
        """Posterior after weighted rows, from their mean and scatter."""
        n = weights.sum()
        if n == 0:
            return self
        mean = weights @ z / n
        scatter = (weights[:, None] * (z - mean)).T @ (z - mean)
        apart = mean - self.m
        return NormalWishart(
            (self.kappa * self.m + n * mean) / (self.kappa + n),
            self.kappa + n,
            self.nu + n,
            self.psi + scatter + self.kappa * n / (self.kappa + n) * np.outer(apart, apart),
        )

    @property
    def e_log_det(self) -> float:
        """E[log |Lambda|]."""
        digammas = special.digamma((self.nu - np.arange(self.dim)) / 2).sum()
        return digammas + self.dim * np.log(2) - np.linalg.slogdet(self.psi)[1]

    def e_log_likelihood(self, z: np.ndarray) -> np.ndarray:
        """E[log N(z | mu, Lambda^-1)] of each row."""
        distance = np.einsum("ni,ij,nj->n", z - self.m, self.nu * np.linalg.inv(self.psi), z - self.m)
        return 0.5 * (self.e_log_det - self.dim * np.log(2 * np.pi) - self.dim / self.kappa - distance)

    def kl(self, prior: NormalWishart) -> float:
        """KL from a prior, of the precision and then of the mean given the precision."""
        q = stats.wishart(self.nu, np.linalg.inv(self.psi))
        e_lambda = self.nu * np.linalg.inv(self.psi)
        e_log_prior = (
            (prior.nu - self.dim - 1) / 2 * self.e_log_det
            - np.trace(prior.psi @ e_lambda) / 2
            + prior.nu / 2 * np.linalg.slogdet(prior.psi)[1]
            - prior.nu * self.dim / 2 * np.log(2)
            - special.multigammaln(prior.nu / 2, self.dim)
        )
        apart = self.m - prior.m
        of_mean = prior.kappa * apart @ e_lambda @ apart + self.dim * (
            prior.kappa / self.kappa - 1 - np.log(prior.kappa / self.kappa)
        )
        return -q.entropy() - e_log_prior + of_mean / 2

    def log_predictive(self, z: np.ndarray) -> np.ndarray:
        """Log density of new rows: Student t."""
        dof = self.nu - self.dim + 1
        shape = self.psi * (self.kappa + 1) / (self.kappa * dof)
        if self.dim == 1:
            return stats.t.logpdf(z[:, 0], dof, self.m[0], np.sqrt(shape[0, 0]))
        return np.atleast_1d(stats.multivariate_t.logpdf(z, self.m, shape, dof))


def independent_parts(family: GaussianFamily) -> Iterator[tuple[slice, NormalWishart]]:
    """Columns that vary together, and their prior: all of them, or one by one."""
    m0 = family.m0.numpy()
    if isinstance(family, NormalGamma):
        for d in range(family.dim):
            part = slice(d, d + 1)
            yield part, NormalWishart(m0[part], family.kappa0, family.nu0, family.beta0.numpy()[part, None])
    else:
        yield slice(None), NormalWishart(m0, family.kappa0, family.nu0, family.psi0.numpy())


def stick_parameters(counts: np.ndarray, alpha: float) -> list[tuple[float, float]]:
    """Beta parameters of each stick."""
    return [(1 + counts[k], alpha + counts[k + 1 :].sum()) for k in range(len(counts))]
