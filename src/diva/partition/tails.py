"""A dense cluster beside a broad one, or one cluster with its tails? Two Gaussians against a t distribution.

A Gaussian mixture describes a cluster whose tails are heavier than a Gaussian's by a dense component and a broad one. A single
t distribution describes such a cluster with fewer numbers (Peel and McLachlan, "Robust mixture modelling using the t
distribution", 2000), but not a cluster in the middle of even noise, or one beside another. It is fitted by EM (Liu and Rubin,
"ML estimation of the t distribution using EM and its extensions", 1995); what more numbers cost is Schwarz's criterion (1978).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import brentq
from scipy.special import digamma, gammaln, logsumexp

from diva.partition.walk import FloatArray

MOST_STEPS = 50
SETTLED = 1e-4  # nats per sample that another step may gain
DEGREES = (0.1, 1e3)  # of freedom: beyond, it is a Gaussian
EPSILON = np.finfo(np.float64).eps


def evidence_against_tails(
    points: FloatArray, weights: FloatArray, shares: FloatArray, means: FloatArray, covariances: FloatArray
) -> float:
    """By how many nats some Gaussians are better than one t distribution, less what their parameters cost.

    Parameters
    ----------
    points : array of shape (n, D)
    weights : array of shape (n,)
        How many samples each stands for.
    shares : array of shape (K,)
    means : array of shape (K, D)
    covariances : array of shape (K, D, D), or (K, D) if they are diagonal
        Of the Gaussians.

    Examples
    --------
    Heavy tails are no second cluster:

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_t(3, size=(500, 1))
    >>> two = np.array([0.8, 0.2]), np.zeros((2, 1)), np.array([[1.0], [9.0]])
    >>> evidence_against_tails(x, np.ones(500), *two) < 0
    True
    """
    n_components, dim = means.shape
    n_each = 2 * dim if covariances.ndim == 2 else dim + dim * (dim + 1) // 2
    n_more = n_components * (n_each + 1) - 1 - (n_each + 1)  # shares sum to one; the t distribution has degrees of freedom
    cost: float = 0.5 * n_more * math.log(max(float(weights.sum()), 1.0))
    held = weights > EPSILON * weights.sum()  # the others are lost in rounding
    points, weights = points[held], weights[held]
    if not held.any():
        return -math.inf  # nobody says that there are two
    try:
        gaussians = _log_likelihood_of_gaussians(points, weights, shares, means, covariances)
        tails = _log_likelihood_of_t(points, weights, is_diagonal=covariances.ndim == 2)
    except np.linalg.LinAlgError:  # the points do not fill their space
        return -math.inf
    return gaussians - tails - cost


def _log_likelihood_of_gaussians(
    points: FloatArray, weights: FloatArray, shares: FloatArray, means: FloatArray, covariances: FloatArray
) -> float:
    log_density = []
    for share, mean, covariance in zip(shares, means, covariances, strict=True):
        squared, log_det = _standardized(points - mean, covariance)
        log_density.append(math.log(share) - 0.5 * (squared + log_det + len(mean) * math.log(2 * math.pi)))
    return float(weights @ logsumexp(log_density, axis=0))


def _log_likelihood_of_t(points: FloatArray, weights: FloatArray, *, is_diagonal: bool) -> float:
    """Of the best t distribution."""
    total, dim = float(weights.sum()), points.shape[1]
    pulls, degrees = np.ones(len(points)), 4.0
    best, least = -math.inf, EPSILON * (weights @ (points - weights @ points / total) ** 2)
    for _ in range(MOST_STEPS):
        pulled = weights * pulls
        gaps = points - pulled @ points / pulled.sum()
        squares = pulled @ gaps**2
        if not (squares > least).all():  # it shrinks to a point, and its density has no bound
            raise np.linalg.LinAlgError
        squares = squares if is_diagonal else (gaps * pulled[:, None]).T @ gaps
        squared, log_det = _standardized(gaps, squares / total)
        half, halves = degrees / 2, (degrees + dim) / 2
        height = float(gammaln(halves) - gammaln(half)) - 0.5 * (dim * math.log(degrees * math.pi) + log_det)
        now: float = total * height - halves * float(weights @ np.log1p(squared / degrees))
        if now <= best + SETTLED * total:
            return max(now, best)
        best = now
        pulls = (degrees + dim) / (degrees + squared)
        degrees = _degrees(float(weights @ (np.log(pulls) - pulls)) / total + float(digamma(halves)) - math.log(halves))
    return best


def _standardized(gaps: FloatArray, covariance: FloatArray) -> tuple[FloatArray, float]:
    """Squared Mahalanobis distances of gaps (n, D), (n,), and the log determinant; LinAlgError if there is none."""
    if covariance.ndim == 1:
        return np.asarray((gaps**2 / covariance).sum(axis=1)), float(np.log(covariance).sum())
    factor = np.linalg.cholesky(covariance)
    standard = solve_triangular(factor, gaps.T, lower=True, check_finite=False)
    return np.asarray((standard**2).sum(axis=0)), 2 * float(np.log(np.diag(factor)).sum())


def _degrees(known: float) -> float:
    """Degrees of freedom at which the expected log likelihood is highest."""

    def slope(degrees: float) -> float:
        return math.log(degrees / 2) - float(digamma(degrees / 2)) + 1 + known

    least, most = DEGREES
    if slope(most) > 0:
        return most
    return least if slope(least) < 0 else float(brentq(slope, least, most))
