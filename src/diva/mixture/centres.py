"""Where components begin: seeds of k-means++ (Arthur and Vassilvitskii 2007), and steps of k-means (Lloyd 1982) from them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

CHUNK_ROWS = 8192  # codes whose distances to all centres are in memory at once
N_STEPS = 10  # of k-means: where variational steps follow, more of them make no difference


def seed_centres(z: Tensor, weights: Tensor, n_centres: int, rng: np.random.Generator) -> Tensor:
    """Centres of k-means++ among weighted codes (n, D), (J, D): fewer than asked for where fewer codes are different.

    Drawn by inverse cumulative weights along one fixed order of the points, so that rows that come shuffled, or repeated
    instead of weighted, get the same centres; scikit-learn's function does not promise that.
    """
    order = torch.argsort(z @ torch.cos(torch.arange(z.shape[1], dtype=z.dtype, device=z.device)))
    points, chance = z[order], weights[order]
    centres: list[Tensor] = []
    distance = torch.full_like(chance, torch.inf)
    for u in rng.random(n_centres):
        ladder = (chance if not centres else chance * distance).cumsum(0)
        if ladder[-1] <= 0:  # fewer different points than centres
            break
        chosen = torch.searchsorted(ladder, u * ladder[-1], right=True).clamp_max(len(points) - 1)
        centres.append(points[chosen])
        distance = torch.minimum(distance, ((points - centres[-1]) ** 2).sum(1))
    return torch.stack(centres)


def nearest(z: Tensor, centres: Tensor) -> Tensor:
    """Position of the nearest centre (J, D) of each code (n, D), (n,)."""
    return torch.cat([torch.cdist(rows, centres).argmin(1) for rows in torch.split(z, CHUNK_ROWS)])


def k_means(z: Tensor, weights: Tensor, n_centres: int, rng: np.random.Generator) -> Tensor:
    """Position of the centre of each weighted code (n, D), (n,); every centre from 0 on has some."""
    centres = seed_centres(z, weights, n_centres, rng)
    labels = nearest(z, centres)
    for _ in range(N_STEPS):
        masses = torch.zeros(len(centres), dtype=z.dtype, device=z.device).index_add_(0, labels, weights)
        sums = torch.zeros_like(centres).index_add_(0, labels, z * weights.unsqueeze(1))
        centres = (sums / masses.unsqueeze(1))[masses > 0]
        before, labels = labels, nearest(z, centres)
        if torch.equal(before, labels):
            break
    positions: Tensor = torch.unique(labels, return_inverse=True)[1]
    return positions
