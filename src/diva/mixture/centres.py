"""Where components begin: seeds of k-means++ (Arthur and Vassilvitskii 2007), and steps of k-means (Lloyd 1982) from them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

N_STEPS = 10  # of k-means: where variational steps follow, more of them make no difference


def seed_centres(z: Tensor, weights: Tensor, n_fresh: int, rng: np.random.Generator) -> Tensor:
    """Hard assignment to k-means++ centres, (n, J).

    Drawn by inverse cumulative weights along one fixed order of the points, so that rows that come shuffled, or repeated
    instead of weighted, get the same centres; scikit-learn's function does not promise that.
    """
    order = torch.argsort(z @ torch.cos(torch.arange(z.shape[1], dtype=z.dtype, device=z.device)))
    points, chance = z[order], weights[order]
    centres: list[Tensor] = []
    distance = torch.full_like(chance, torch.inf)
    for u in rng.random(n_fresh):
        ladder = (chance if not centres else chance * distance).cumsum(0)
        if ladder[-1] <= 0:  # fewer different points than centres
            break
        chosen = torch.searchsorted(ladder, u * ladder[-1], right=True).clamp_max(len(points) - 1)
        centres.append(points[chosen])
        distance = torch.minimum(distance, ((points - points[chosen]) ** 2).sum(1))
    nearest = torch.cdist(z, torch.stack(centres)).argmin(1)
    return torch.nn.functional.one_hot(nearest, len(centres)).to(z.dtype)


def k_means(z: Tensor, weights: Tensor, n_centres: int, rng: np.random.Generator) -> Tensor:
    """Hard assignment of weighted codes (n, D) to centres, (n, J); J is smaller where codes are fewer or a centre is empty."""
    member = seed_centres(z, weights, n_centres, rng)
    for _ in range(N_STEPS):
        weighted = member * weights.unsqueeze(1)
        masses = weighted.sum(0)
        held = masses > 0
        centres = (weighted.T @ z)[held] / masses[held].unsqueeze(1)
        before, member = member, torch.nn.functional.one_hot(torch.cdist(z, centres).argmin(1), len(centres)).to(z.dtype)
        if before.shape == member.shape and bool((before == member).all()):
            break
    return member[:, (member * weights.unsqueeze(1)).sum(0) > 0]
