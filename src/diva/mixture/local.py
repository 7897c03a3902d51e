"""The local step: responsibilities of codes, and the statistics they leave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from diva.mixture.gaussian import GaussianFamily, Linear
from diva.mixture.stats import SuffStats
from diva.threads import threads_for

# numbers of one chunk that should stay in a core's cache between the two products
CHUNK_NUMBERS = 1 << 21
# float32 keeps a log-likelihood to about 1e-3 up to this squared ratio of position to width; beyond, products are float64
FLOAT32_AMPLIFICATION = 2e3
# responsibility from which moves look at a code one by one; what they do with less is coarser, and just as exact in the bound
MEMBER_ABOVE = 1e-3


class Block(Protocol):
    """One fixed batch of codes, handed out in pieces that fit in cache."""

    def chunks(self, n_rows: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield codes (m, D), m at most ``n_rows``, and their weights (m,) or None."""
        ...


@dataclass(frozen=True)
class LocalStep:
    """A few codes and what the mixture makes of them; the moves look at data through this."""

    features: Tensor  # (m, F)
    log_resp: Tensor  # (m, K)
    resp: Tensor
    weights: Tensor | None  # (m,)

    @cached_property
    def neg_entropy(self) -> Tensor:
        """Each responsibility times its logarithm, (m, K)."""
        return self.resp * self.log_resp

    @cached_property
    def members(self) -> tuple[Tensor, ...]:
        """For each component the rows it holds with more than ``MEMBER_ABOVE``: found once, used by every move."""
        components, rows = torch.nonzero(self.resp.T > MEMBER_ABOVE, as_tuple=True)
        sizes = torch.bincount(components, minlength=self.resp.shape[1])
        return torch.split(rows, sizes.tolist())

    def weighted(self, resp: Tensor, rows: Tensor | None = None) -> Tensor:
        """Multiply responsibilities (m, ...) by the samples' weights."""
        if self.weights is None:
            return resp
        weights = self.weights if rows is None else self.weights[rows]
        return resp * weights.view(-1, *[1] * (resp.ndim - 1))


class Observer:
    """Something that watches visits, chunk by chunk."""

    precise = False  # whether it needs the local step in float64

    def begin_batch(self) -> None:
        """Note that what is observed from now on is of another batch."""

    def observe(self, step: LocalStep) -> None:
        """Take in one chunk."""


@dataclass(frozen=True)
class Posterior:
    """What a local step needs of a mixture: log weight plus expected log-likelihood, linear in the features."""

    family: GaussianFamily
    scores: Linear
    precise: bool

    @property
    def n_components(self) -> int:
        """K."""
        return len(self.scores.offset)

    def log_scores(self, features: Tensor) -> Tensor:
        """Unnormalized log responsibilities, (m, F) -> (m, K)."""
        coef, offset = (t.to(features) for t in self.scores)
        return torch.addmm(offset, features, coef)

    def local_step(self, z: Tensor, weights: Tensor | None = None) -> LocalStep:
        """Do the local step on codes (m, D)."""
        if self.precise:
            z = z.double()
        features = self.family.features(z)
        log_resp = torch.log_softmax(self.log_scores(features), dim=1)
        return LocalStep(features, log_resp, exp_of_log(log_resp), None if weights is None else weights.to(features.dtype))

    def responsibilities(self, z: Tensor) -> Tensor:
        """Probability of each component for each code, (m, K)."""
        return self.local_step(z).resp

    def chunk_rows(self) -> int:
        """How many rows keep features and responsibilities in cache."""
        width = self.family.n_features + 2 * self.n_components
        return max(16, min(1 << 14, CHUNK_NUMBERS // width))


def exp_of_log(log_probability: Tensor) -> Tensor:
    """Exponential of log probabilities; what would underflow becomes a tiny number instead.

    On CPUs a vectorized exponential takes 25 to 50 times as long where its result is denormal or 0, and most
    responsibilities are.
    """
    return log_probability.clamp(min=-80.0 if log_probability.dtype == torch.float32 else -700.0).exp_()


def visit(posterior: Posterior, block: Block, observers: Sequence[Observer] = ()) -> SuffStats:
    """Summarize one batch under the posterior, letting observers watch."""
    family = posterior.family
    for observer in observers:
        observer.begin_batch()
    if any(observer.precise for observer in observers):
        posterior = replace(posterior, precise=True)
    counts, products, entropy = (
        torch.zeros(shape, dtype=torch.float64, device=family.m0.device)
        for shape in (posterior.n_components, (posterior.n_components, family.n_features), posterior.n_components)
    )
    for z, weights in block.chunks(posterior.chunk_rows()):
        with threads_for(len(z) * family.n_features):
            step = posterior.local_step(z, weights)
            resp = step.weighted(step.resp)
            counts += resp.sum(0)  # sums within a chunk may be float32, sums of chunks are float64
            products += resp.T @ step.features
            entropy -= step.weighted(step.neg_entropy).sum(0)
            for observer in observers:
                observer.observe(step)
    return family.stats(counts, products, entropy)


def summarize(family: GaussianFamily, z: Tensor, resp: Tensor, weights: Tensor | None = None) -> SuffStats:
    """Statistics of codes (n, D) under given responsibilities (n, K): the plain version, all float64."""
    resp = resp.double()
    weighted = resp if weights is None else resp * weights.double().unsqueeze(1)
    entropy = -(weighted * torch.where(resp > 0, resp, 1.0).log()).sum(0)
    return family.stats(weighted.sum(0), weighted.T @ family.features(z.double()), entropy)
