"""Components that are joined one pair at a time, and where to stop: starts that a fit can go on from.

Model-based agglomeration (Fraley and Raftery, "How many clusters? Which clustering method?", 1998) with marginal instead of
maximum likelihoods, as in Heller and Ghahramani, "Bayesian hierarchical clustering" (2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.signal import find_peaks

from diva.mixture.bound import log_marginals
from diva.mixture.state import MixtureState
from diva.mixture.stats import SuffStats
from diva.mixture.sticks import stick_bound

ADAPT_BELOW = 0.9  # share of the components that are left when the prior is learnt anew: it changes slowly, and costs all pairs


def agglomerate(state: MixtureState, n_cuts: int) -> list[MixtureState]:
    """Join components that hold whole codes until one is left, always the pair that pays most or costs least.

    Joins that do not pay are made all the same: the next may pay for both. The bound over the number of components may have
    more than one peak, many components where clusters are curved and few where they are taken as they are; the ``n_cuts`` most
    prominent ones are returned, highest first.
    """
    joins, bounds = _all_joins(state)
    padded = np.pad(bounds, 1, constant_values=-np.inf)
    peaks, found = find_peaks(padded, prominence=0)
    chosen = set(peaks[np.argsort(-found["prominences"], kind="stable")[:n_cuts]].tolist())
    return [_after(state, joins[: peak - 1]) for peak in sorted(chosen, key=lambda peak: -padded[peak])]


@torch.no_grad()
def _all_joins(state: MixtureState) -> tuple[list[tuple[int, int]], NDArray[np.float64]]:
    """Positions of who is kept and who is gone, join by join, and the bounds before the first and after each."""
    n = state.n_components
    # a prior that followed components before they have a volume, which takes D + 1 codes each, would vanish with them
    n_adapted = min(n, float(state.total.counts.sum()) / (state.family.dim + 1)) / ADAPT_BELOW
    family, held = state.family, state.total[torch.arange(n)]  # a copy: joins are made in place
    # numbers of single pairs and components are numpy's, which is several times as fast as torch with so few
    scores, lone, masses = (t.cpu().numpy().copy() for t in (state.merge_scores, state.log_marginals, held.counts))
    left = np.arange(n)
    joins: list[tuple[int, int]] = []
    masses_then, lone_then = [masses.copy()], [lone.copy()]  # after each join
    while len(left) > 1:
        kept, gone = sorted(divmod(int(scores.argmax()), n))
        joins.append((kept, gone))
        left = left[left != gone]
        for part in held.fields():
            part[kept].add_(part[gone])
        masses[kept], masses[gone] = masses[kept] + masses[gone], 0.0
        lone[kept], lone[gone] = lone[kept] + (lone[gone] + scores[kept, gone]), 0.0
        scores[gone] = scores[:, gone] = -np.inf
        those = held[torch.from_numpy(left)]
        if len(left) < ADAPT_BELOW * n_adapted:
            now = holding(replace(state, family=family), those).with_adapted_prior()
            family, n_adapted = now.family, len(left)
            scores[np.ix_(left, left)], lone[left] = now.merge_scores.cpu(), now.log_marginals.cpu()
        else:
            joint = log_marginals(family, those + held[kept]).cpu().numpy()
            scores[kept, left] = scores[left, kept] = joint - lone[left] - lone[kept]
            scores[kept, kept] = -np.inf
        masses_then.append(masses.copy())
        lone_then.append(lone.copy())
    return joins, _bounds(np.stack(masses_then), np.stack(lone_then), state.alpha)


def _after(state: MixtureState, joins: Sequence[tuple[int, int]]) -> MixtureState:
    """The components after some joins, with the prior that suits them."""
    group = np.arange(state.n_components)
    for kept, gone in joins:
        group[group == gone] = kept
    names, positions = np.unique(group, return_inverse=True)
    held = state.total.regrouped(torch.from_numpy(positions), len(names))
    return holding(state, held).in_canonical_order().with_adapted_prior()


def holding(state: MixtureState, stats: SuffStats) -> MixtureState:
    """Components of the same prior that hold something else, which is not theirs to keep."""
    ids = tuple(range(len(stats)))
    return replace(state, past=stats.zeros(len(ids)), memo=(), total=stats, ids=ids, next_id=len(ids))


def _bounds(masses: NDArray[np.float64], alone: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Evidence lower bounds (B,) of components that hold whole codes, each (B, K); the same constant aside."""
    sticks = stick_bound(torch.from_numpy(masses).sort(descending=True).values, alpha)
    return np.asarray(alone.sum(1) + sticks.numpy())
