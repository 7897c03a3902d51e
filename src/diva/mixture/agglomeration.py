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
from diva.mixture.sticks import stick_bound

ADAPT_BELOW = 0.9  # share of the components that are left when the prior is learnt anew: it changes slowly, and costs all pairs


def agglomerate(state: MixtureState, n_cuts: int) -> list[MixtureState]:
    """Join components that hold whole codes until one is left, always the pair that pays most or costs least.

    Joins that do not pay are made all the same: the next may pay for both. The bound over the number of components may have
    more than one peak, many components where clusters are curved and few where they are taken as they are; the ``n_cuts`` most
    prominent ones are returned, highest first.
    """
    cuts = [torch.arange(state.n_components)]  # group of each component, as joins are made
    # a prior that followed components before they have a volume, which takes D + 1 codes each, would vanish with them
    n_adapted = min(state.n_components, float(state.total.counts.sum()) / (state.family.dim + 1)) / ADAPT_BELOW
    family, held, scores = state.family, state.total, state.merge_scores.clone()
    lone, nothing = _alone(state), family.log_normalizer(family.empty())
    bounds = [_bound(held, lone, state.alpha)]
    while len(held) > 1:
        kept, gone = sorted(divmod(int(scores.argmax()), len(scores)))
        positions = torch.arange(len(held))
        positions[gone] = kept
        positions -= (positions > gone).long()
        cuts.append(positions[cuts[-1]])
        held = held.regrouped(positions, len(held) - 1)
        if len(held) < ADAPT_BELOW * n_adapted:
            now = holding(replace(state, family=family), held).with_adapted_prior()
            family, nothing, n_adapted = now.family, now.family.log_normalizer(now.family.empty()), len(held)
            scores, lone = now.merge_scores.clone(), _alone(now)
        else:
            lone[kept] += lone[gone] + scores[kept, gone]
            scores, lone = _without(_without(scores, gone), gone, axis=1), _without(lone, gone)
            joint = family.log_normalizer(held + held[kept]) - nothing
            scores[kept] = scores[:, kept] = joint - lone - lone[kept]
            scores[kept, kept] = -torch.inf
        bounds.append(_bound(held, lone, state.alpha))
    padded = np.array([-np.inf, *bounds, -np.inf])
    peaks, found = find_peaks(padded, prominence=0)
    chosen = set(peaks[np.argsort(-found["prominences"], kind="stable")[:n_cuts]].tolist())
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


def _without(values: Tensor, position: int, axis: int = 0) -> Tensor:
    """All but one along an axis."""
    size = values.shape[axis]
    return torch.cat([values.narrow(axis, 0, position), values.narrow(axis, position + 1, size - position - 1)], dim=axis)


def _alone(state: MixtureState) -> Tensor:
    """Log marginal likelihood of what each component holds, (K,); a constant of the data aside."""
    return state.family.log_normalizer(state.total) - state.family.log_normalizer(state.family.empty())


def _bound(held: SuffStats, alone: Tensor, alpha: float) -> float:
    """Evidence lower bound of components that hold whole codes; the same constant aside."""
    return float(alone.sum() + stick_bound(held.counts.sort(descending=True).values, alpha))
