"""The local step: responsibilities of codes, and the statistics they leave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from diva.distributed import Mine, sum_in_order
from diva.mixture.gaussian import GaussianFamily, Linear
from diva.mixture.stats import SuffStats
from diva.threads import mapped

# numbers of one chunk that should stay in a core's cache between the two products
CHUNK_NUMBERS = 1 << 21
# float32 keeps a log-likelihood to about 1e-3 up to this squared ratio of position to width; beyond, products are float64
FLOAT32_AMPLIFICATION = 2e3
# responsibility from which moves look at a code one by one; what they do with less is coarser, and just as exact in the bound
MEMBER_ABOVE = 1e-3


class Chunk(NamedTuple):
    """Codes that fit in cache."""

    z: Tensor  # (m, D)
    weights: Tensor | None  # (m,)
    first: int  # number of the first row, among all data


class Block(Protocol):
    """One fixed batch of codes, in parts that do not depend on who works on them."""

    def parts(self, n_rows: int) -> Mine:
        """Parts that fall to this process, each an iterable of chunks of at most ``n_rows`` rows."""
        ...


@dataclass(frozen=True)
class LocalStep:
    """A few codes and what the mixture makes of them; the moves look at data through this."""

    features: Tensor  # (m, F)
    log_resp: Tensor  # (m, K)
    resp: Tensor
    weights: Tensor | None  # (m,)
    first: int = 0  # number of the first row, among all data

    def luck(self, seed: int) -> Tensor:
        """A number from 0 to 1 for each row, (m,), that belongs to the seed and to the number of the row."""
        return torch.from_numpy(row_luck(seed, self.first, len(self.resp))).to(self.resp.device)

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
    """Something that watches visits, chunk by chunk; what it sees adds up over chunks, and over processes."""

    precise = False  # whether it needs the local step in float64

    def observe(self, step: LocalStep) -> Sequence[Tensor]:
        """Look at one chunk; returns what adds up, in tensors whose shapes do not depend on the chunk."""
        raise NotImplementedError

    def end_batch(self, sums: Sequence[Tensor]) -> None:
        """Take in what the chunks of a batch have added up to, in float64."""


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
        coef, offset = self.scores if features.dtype == torch.float64 else self._single_scores
        return torch.addmm(offset.to(features.device), features, coef.to(features.device))

    @cached_property
    def _single_scores(self) -> Linear:
        return Linear(*(t.float() for t in self.scores))

    def local_step(self, z: Tensor, weights: Tensor | None = None, first: int = 0) -> LocalStep:
        """Do the local step on codes (m, D)."""
        features = self.features(z)
        log_resp = torch.log_softmax(self.log_scores(features), dim=1)
        weights = None if weights is None else weights.to(features.dtype)
        return LocalStep(features, log_resp, exp_of_log(log_resp), weights, first)

    def features(self, z: Tensor) -> Tensor:
        """What the scores are linear in, (m, D) -> (m, F), in the precision that they need."""
        return self.family.features(z.double() if self.precise else z)

    def best(self, z: Tensor) -> Tensor:
        """Position of the most probable component of each code, (m,)."""
        return self.log_scores(self.features(z)).argmax(1)

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


def row_luck(seed: int, first: int, n_rows: int) -> np.ndarray:
    """Uniform draws (n_rows,) for the rows from ``first`` on: those of a row are the same whoever draws them, and when.

    The counter of Philox (Salmon et al. 2011) is the number of the row; one step of it makes four draws.
    """
    skipped = first % 4
    generator = np.random.Generator(np.random.Philox(key=seed).advance(first // 4))
    return generator.random(skipped + n_rows)[skipped:]


def visit(posterior: Posterior, block: Block, observers: Sequence[Observer] = ()) -> SuffStats:
    """Summarize one batch under the posterior, letting observers watch.

    Sums within a chunk may be float32, those of chunks and parts are float64; parts are added up in their order.
    """
    if any(observer.precise for observer in observers):
        posterior = replace(posterior, precise=True)
    family = posterior.family

    def look_at(part: Iterable[Chunk]) -> list[list[Tensor]]:
        """What the statistics, and then each observer, add up over the chunks of a part."""
        sums: list[list[Tensor]] = []
        for z, weights, first in part:
            step = posterior.local_step(z, weights, first)
            resp = step.weighted(step.resp)
            own = [resp.sum(0), resp.T @ step.features, -step.weighted(step.neg_entropy).sum(0)]
            seen = [own, *(observer.observe(step) for observer in observers)]
            if sums:
                for total, more in zip(sums, seen, strict=True):
                    for t, m in zip(total, more, strict=True):
                        t += m
            else:
                sums = [[t.to("cpu", torch.float64) for t in some] for some in seen]
        return sums

    parts = block.parts(posterior.chunk_rows())
    found = [sums for sums in mapped(look_at, parts.items) if sums]  # a part may have no rows
    shape = found[0] if found else look_at([Chunk(family.m0.new_zeros(0, family.dim), None, 0)])
    vectors = [torch.cat([t.flatten() for some in part for t in some]) for part in found]
    flat = sum_in_order(vectors, sum(t.numel() for some in shape for t in some), parts.most)
    pieces = iter(torch.split(flat.to(family.m0.device), [t.numel() for some in shape for t in some]))
    (counts, products, entropy), *seen = [[next(pieces).view(t.shape) for t in some] for some in shape]
    for observer, sums in zip(observers, seen, strict=True):
        observer.end_batch(sums)
    return family.stats(counts, products, entropy)


def summarize(family: GaussianFamily, z: Tensor, resp: Tensor, weights: Tensor | None = None) -> SuffStats:
    """Statistics of codes (n, D) under given responsibilities (n, K): the plain version, all float64."""
    resp = resp.double()
    weighted = resp if weights is None else resp * weights.double().unsqueeze(1)
    entropy = -(weighted * torch.where(resp > 0, resp, 1.0).log()).sum(0)
    return family.stats(weighted.sum(0), weighted.T @ family.features(z.double()), entropy)
