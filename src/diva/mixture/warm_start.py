"""Where a fit starts: from given components, in all data or inside given clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diva.mixture.local import summarize
from diva.mixture.model import MixtureModel
from diva.mixture.state import MixtureState


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Components of another mixture, by codes they hold: where to start from when an encoder has moved all codes."""

    codes: NDArray[Any]  # (m, D)
    components: NDArray[np.int64]  # (m,): position of each code's component in ``ids``
    weights: NDArray[np.float64]  # (m,): how many samples each code stands for
    ids: tuple[int, ...]  # names to keep
    next_id: int  # first name that is free

    def applied_to(self, start: MixtureModel) -> MixtureModel:
        """Replace the components of a model that has seen nothing."""
        return replace(start, state=self._state(start, np.arange(len(self.ids))))

    def within_clusters(
        self, start: MixtureModel, labels: NDArray[np.int64], clusters: NDArray[np.int64]
    ) -> dict[int, MixtureState]:
        """Components of each of some clusters: those most of whose codes, by their labels (m,), are in it."""
        found = self.cluster_of_component(labels)
        return {c: self._state(start, np.flatnonzero(found == c)) for c in clusters.tolist() if (found == c).any()}

    def cluster_of_component(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Cluster in which most of each component is, (K,); -1 for a component without codes."""
        table = np.zeros((len(self.ids), int(labels.max(initial=-1)) + 1))
        np.add.at(table, (self.components, labels), self.weights)
        return np.where(table.sum(1) > 0, table.argmax(1), -1)

    def _state(self, start: MixtureModel, chosen: NDArray[np.int64]) -> MixtureState:
        """Some of the components, where their codes put them, that have seen nothing of these."""
        family, device = start.state.family, start.device
        rows = np.isin(self.components, chosen)
        z = start.standardization.points(torch.from_numpy(self.codes[rows]).double()).to(device)
        member = torch.from_numpy(self.components[rows][:, None] == chosen).double().to(device)
        stats = summarize(family, z, member, torch.from_numpy(self.weights[rows]).to(device))
        ids = tuple(self.ids[k] for k in chosen)
        return MixtureState(family, start.state.alpha, stats.zeros(len(stats)), (), stats, ids, self.next_id)
