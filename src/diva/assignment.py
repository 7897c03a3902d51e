"""What a model says about samples, whichever model it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Assignment:
    """All that a model says about samples, for one look at them."""

    codes: NDArray[np.float32]  # (n, latent_dim); of a mixture alone, the samples on the scale it sees them on
    probabilities: NDArray[np.float64]  # (n, n_clusters): of each cluster, by position
    positions: NDArray[np.int64]  # (n,): the most probable cluster, as a position; ``ids[positions]`` are permanent ids
    components: NDArray[np.int64]  # (n,): the most probable component of the mixture, or the cluster again
    scores: NDArray[np.float64]  # (n,): low means unlike anything the model knows
    novel: NDArray[np.bool_]  # (n,)

    @property
    def confidence(self) -> NDArray[np.float64]:
        """Probability of the cluster at ``positions``, (n,)."""
        rows = np.arange(len(self.positions))
        return np.minimum(self.probabilities[rows, self.positions], 1.0)  # responsibilities are rounded to float32
