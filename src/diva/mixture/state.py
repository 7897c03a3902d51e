"""A mixture in the middle of a fit: prior, memo and total, and what follows from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from diva.exceptions import DataChangedError
from diva.mixture.bound import elbo, joint_log_marginals, log_marginals
from diva.mixture.gaussian import GaussianFamily, Linear
from diva.mixture.local import FLOAT32_AMPLIFICATION, Posterior
from diva.mixture.stats import SuffStats, add_up
from diva.mixture.sticks import expected_log_weights, stick_posterior


@dataclass(frozen=True)
class MixtureState:
    """Everything a Dirichlet process mixture knows; immutable, so a rejected move leaves nothing to undo."""

    family: GaussianFamily  # prior of the components
    alpha: float  # concentration of the Dirichlet process
    past: SuffStats  # statistics of data that are gone: part of the total, never revisited
    memo: tuple[SuffStats, ...]  # statistics of each batch at its last visit
    total: SuffStats  # ``past`` plus the sum of ``memo``
    ids: tuple[int, ...]  # permanent name of each component; never changed and never reused, unlike positions
    next_id: int  # name of the next component to be born
    precise: bool = False  # whether local steps are in float64 however wide the components are
    # (D,): the prior is learnt, and may come to expect a variance of this at least; None: it stays as it is
    least_variance: Tensor | None = None

    @classmethod
    def start(cls, family: GaussianFamily, alpha: float, first_id: int = 0) -> MixtureState:
        """One component that has seen nothing."""
        empty = family.empty()
        return cls(family, alpha, past=empty, memo=(), total=empty, ids=(first_id,), next_id=first_id + 1)

    @property
    def n_components(self) -> int:
        """K."""
        return len(self.ids)

    @cached_property
    def posterior(self) -> Posterior:
        """The global step: q(v) and q(mu, Lambda) as the local step needs them."""
        coef, offset = self.family.expected_log_likelihood(self.total)
        e_log_pi = expected_log_weights(*stick_posterior(self.total.counts, self.alpha))
        precise = self.precise or self.family.amplification(self.total) > FLOAT32_AMPLIFICATION
        return Posterior(self.family, Linear(coef, offset + e_log_pi), precise)

    @cached_property
    def elbo(self) -> float:
        """Evidence lower bound on all data, past and present."""
        return float(elbo(self.family, self.alpha, self.total))

    @cached_property
    def merge_scores(self) -> Tensor:
        r"""Log marginal-likelihood ratio of every pair, :math:`\log M(a+b) - \log M(a) - \log M(b)`, (K, K)."""
        k = self.n_components
        scores = self.total.counts.new_full((k, k), -torch.inf)
        a, b = torch.triu_indices(k, k, offset=1, device=scores.device)
        together = joint_log_marginals(self.family, self.total, a, b)
        scores[a, b] = scores[b, a] = together - self.log_marginals[a] - self.log_marginals[b]
        return scores

    @cached_property
    def log_marginals(self) -> Tensor:
        """Log marginal likelihood of what each component holds, (K,); a constant of the data aside."""
        return log_marginals(self.family, self.total)

    def position(self, component_id: int) -> int:
        """Where the component with this id stands now."""
        return self.ids.index(component_id)

    def mass_of(self, component_ids: Iterable[int]) -> float:
        """Mass of some components together."""
        return sum(float(self.total.counts[self.position(i)]) for i in component_ids)

    def revisit(self, batch: int, stats: SuffStats) -> MixtureState:
        """Replace what the memo holds of one batch; a batch never seen before joins."""
        if batch == len(self.memo):
            return replace(self, memo=(*self.memo, stats), total=self.total + stats)
        old = self.memo[batch]
        _check_same_data(batch, old, stats)
        memo = (*self.memo[:batch], stats, *self.memo[batch + 1 :])
        return replace(self, memo=memo, total=self.total - old + stats)

    def refreshed(self) -> MixtureState:
        """Sum the total anew from the memo, so that rounding does not pile up over visits."""
        return replace(self, total=add_up((self.past, *self.memo)))

    def in_canonical_order(self) -> MixtureState:
        """Heaviest first, and among components of equal mass by their means: an order that does not depend on history."""
        masses, means = self.total.counts.cpu(), self.family.means(self.total).cpu()
        rounded = torch.round(masses / masses.sum().clamp_min(1e-300) * 1e9)
        order = torch.from_numpy(np.lexsort((*means.T.flip(0).numpy(), -rounded.numpy()))).to(self.total.counts.device)
        return replace(
            self,
            past=self.past[order],
            memo=tuple(part[order] for part in self.memo),
            total=self.total[order],
            ids=tuple(self.ids[i] for i in order.tolist()),
        )

    def with_adapted_prior(self) -> MixtureState:
        """Let the prior follow the components to where the bound is highest, if it is to be learnt."""
        if self.least_variance is None:
            return self
        return replace(self, family=self.family.adapted(self.total, self.least_variance))

    def part(self, positions: Sequence[int]) -> MixtureState:
        """Some of the components, with all they have seen."""
        past = self.total[positions]
        return replace(self, past=past, memo=(), total=past, ids=tuple(self.ids[k] for k in positions))

    def without_past_of(self, component_ids: Collection[int]) -> MixtureState:
        """Let some components forget their past: of newborn ones, what was lent to them to begin with."""
        positions = torch.tensor([self.position(i) for i in component_ids], dtype=torch.long, device=self.total.counts.device)
        return replace(self, past=self.past.plus_at(positions, self.past[positions] * -1.0)).refreshed()

    def without(self, component_ids: Collection[int]) -> MixtureState:
        """Leave out components, with all they hold."""
        kept = [k for k, i in enumerate(self.ids) if i not in component_ids]
        return self if len(kept) == len(self.ids) else self.part(kept)

    def forgetting_data(self) -> MixtureState:
        """Keep the components, drop all data: for codes that a changed encoder made obsolete."""
        return replace(self, past=self.past.zeros(self.n_components), memo=())

    def with_memo_as_past(self) -> MixtureState:
        """Keep the statistics, let go of the data: what was batches becomes past. The prior stays as it is from now on."""
        past = add_up((self.past, *self.memo))
        return replace(self, past=past, memo=(), total=past, least_variance=None)


def _check_same_data(batch: int, old: SuffStats, new: SuffStats) -> None:
    """Responsibilities of a row sum to one, so mass and sum of a batch cannot change unless its rows did."""
    mass, mass_before = float(new.counts.sum()), float(old.counts.sum())
    spread = old.squares.sum(0).clamp_min(0)  # (D,)
    slack = 1e-3 * (mass_before * spread).sqrt() + 1e-3
    moved = (new.sum_z.sum(0) - old.sum_z.sum(0)).abs() > slack
    if abs(mass - mass_before) > 1e-3 * mass_before or bool(moved.any()):
        raise DataChangedError(
            f"Batch {batch} changed between two laps: it held a weight of {mass_before:g} and holds {mass:g} now"
            + (", with another sum. " if bool(moved.any()) else ". ")
            + "A memoized fit revisits the same rows in the same order; turn off shuffling and augmentation in the source."
        )
