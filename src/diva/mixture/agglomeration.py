"""Components that are joined one pair at a time, and where to stop: starts that a fit can go on from.

Model-based agglomeration (Fraley and Raftery, "How many clusters? Which clustering method?", 1998) with marginal instead of
maximum likelihoods, as in Heller and Ghahramani, "Bayesian hierarchical clustering" (2005).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from scipy.signal import find_peaks
from torch import Tensor

from diva.mixture.state import MixtureState
from diva.mixture.stats import SuffStats

ADAPT_BELOW = 0.9  # share of the components that are left when the prior is learnt anew: it changes slowly, and costs all pairs


def agglomerate(state: MixtureState, n_cuts: int) -> list[MixtureState]:
    """Join components that hold whole codes until one is left, always the pair that pays most or costs least.

    Joins that do not pay are made all the same: the next may pay for both. The bound over the number of components may have
    more than one peak, many components where clusters are curved and few where they are taken as they are; the ``n_cuts`` most
    prominent ones are returned, highest first. If there are fewer, one component is returned as well.
    """
    cuts = [torch.arange(state.n_components)]  # group of each component, as joins are made
    # a prior that followed components before they have a volume, which takes D + 1 codes each, would vanish with them
    n_adapted = min(state.n_components, float(state.total.counts.sum()) / (state.family.dim + 1)) / ADAPT_BELOW
    now, bounds, scores = state, [_bound(state)], state.merge_scores.clone()
    while now.n_components > 1:
        kept, gone = sorted(divmod(int(scores.argmax()), len(scores)))
        positions = torch.arange(now.n_components)
        positions[gone] = kept
        positions -= (positions > gone).long()
        cuts.append(positions[cuts[-1]])
        now = holding(now, now.total.regrouped(positions, now.n_components - 1))
        if now.n_components < ADAPT_BELOW * n_adapted:
            now = now.with_adapted_prior()
            scores, n_adapted = now.merge_scores.clone(), now.n_components
        else:
            left = torch.nonzero(torch.arange(len(scores)) != gone).flatten()
            scores = scores[left][:, left]
            scores[kept] = scores[:, kept] = _scores_of(now, kept)
        bounds.append(_bound(now))
    padded = np.array([-np.inf, *bounds, -np.inf])
    peaks, found = find_peaks(padded, prominence=0)
    chosen = set(peaks[np.argsort(-found["prominences"], kind="stable")[:n_cuts]].tolist())
    if len(chosen) < n_cuts:
        chosen.add(len(bounds))
    return [
        holding(state, state.total.regrouped(cuts[peak - 1], state.n_components - peak + 1))
        .in_canonical_order()
        .with_adapted_prior()
        for peak in sorted(chosen, key=lambda peak: -padded[peak])
    ]


def holding(state: MixtureState, stats: SuffStats) -> MixtureState:
    """Components of the same prior that hold something else, which is not theirs to keep."""
    ids = tuple(range(len(stats)))
    return replace(state, past=stats.zeros(len(ids)), memo=(), total=stats, ids=ids, next_id=len(ids))


def _bound(state: MixtureState) -> float:
    return state.in_canonical_order().elbo


def _scores_of(state: MixtureState, k: int) -> Tensor:
    """The row of ``merge_scores`` that belongs to one component, (K,)."""
    family, total = state.family, state.total
    empty = family.log_normalizer(family.empty())
    lone = family.log_normalizer(total) - empty
    scores: Tensor = family.log_normalizer(total + total[[k] * len(total)]) - empty - lone - lone[k]
    scores[k] = -torch.inf
    return scores
