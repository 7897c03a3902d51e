"""Names that last: clusters found anew are matched to those there were, by where their samples went.

A name lives on where most of its samples are. Whatever else happens to clusters is an event: some were born, split, merged, or
died; the records of these explain every change of a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from diva.partition.walk import ratio

MAJORITY = 0.5  # of a cluster's samples: where its name goes
PART = 0.1  # of a cluster's samples: fewer are strays, not a part that split off


@dataclass(frozen=True)
class ClusterRecord:
    """What happened to clusters, by their permanent ids.

    Attributes
    ----------
    event : {"born", "split", "merged", "died"}
    parents, children : tuple of int
        Clusters before and after. An id in both lives on: the heir of a split, the cluster others were merged into.
    masses : tuple of float
        Samples of each child, old and new.
    batch : int
        Number of the fit or partial fit in which it happened.
    """

    event: str
    parents: tuple[int, ...]
    children: tuple[int, ...]
    masses: tuple[float, ...]
    batch: int


@dataclass(frozen=True)
class Naming:
    """Ids of clusters by position, the next free id, and what happened."""

    ids: tuple[int, ...]  # permanent name of the cluster at each position
    next_id: int  # never used so far
    records: tuple[ClusterRecord, ...] = ()  # of the change that led here
    batch: int = 0  # number of that change; 0 for a first fit
    names: tuple[tuple[int, str], ...] = ()  # ids and what people call them
    apart: tuple[tuple[int, int], ...] = ()  # ids of clusters that were split by hand: data do not join them again

    @classmethod
    def first(cls, n_clusters: int) -> Naming:
        """Of a first fit: positions are names."""
        return cls(tuple(range(n_clusters)), n_clusters)

    def check(self, n_clusters: int) -> None:
        """Raise ValueError unless these are names of so many clusters."""
        numbers = (*self.ids, self.next_id, self.batch)
        if len(self.ids) != n_clusters or len(set(self.ids)) != n_clusters or not all(type(n) is int for n in numbers):
            raise ValueError("every cluster should have a name of its own, a whole number")
        if min(numbers) < 0 or max(self.ids, default=-1) >= self.next_id:
            raise ValueError("names of clusters are out of range")
        said = [i for i, _ in self.names] + [i for pair in self.apart for i in pair]
        if not set(said) <= set(self.ids) or not all(isinstance(name, str) for _, name in self.names):
            raise ValueError("what was said of clusters by hand should be about clusters that are there")

    def after(self, overlap: NDArray[np.float64], masses: Sequence[float], batch: int) -> Naming:
        """Name the clusters of a new grouping.

        ``overlap`` (clusters before, clusters now) tells how many samples of each old cluster are in each new one; only samples
        that were there before count. ``masses`` are the samples of each new cluster, new ones too.
        """
        overlap = np.asarray(overlap, dtype=np.float64)
        if overlap.shape != (len(self.ids), len(masses)):
            raise ValueError(f"overlap should have shape {(len(self.ids), len(masses))}, got {overlap.shape}.")
        went = ratio(overlap, overlap.sum(axis=1, keepdims=True))  # share of an old cluster's samples
        came = ratio(overlap, overlap.sum(axis=0, keepdims=True))  # share of a new cluster's old samples
        heirs = _heirs(overlap, went)
        names = {j: self.ids[i] for i, j in heirs.items()}
        fresh = [j for j in range(len(masses)) if j not in names]
        names |= {j: self.next_id + number for number, j in enumerate(fresh)}
        children = tuple(names[j] for j in range(len(masses)))

        def record(event: str, parents: Sequence[int], positions: Sequence[int]) -> ClusterRecord:
            named = tuple(children[j] for j in positions)
            return ClusterRecord(event, tuple(parents), named, tuple(float(masses[j]) for j in positions), batch)

        records, explained = [], set(heirs.values())
        for j in range(len(masses)):
            joined = [i for i in range(len(self.ids)) if went[i, j] >= MAJORITY]
            if len(joined) > 1:
                records.append(record("merged", [self.ids[i] for i in joined], [j]))
        for i, name in enumerate(self.ids):
            parts = [j for j in range(len(masses)) if j not in explained and went[i, j] >= PART and came[i, j] >= MAJORITY]
            if parts:
                records.append(record("split", [name], [heirs[i], *parts] if i in heirs else parts))
                explained.update(parts)
            elif i not in heirs and went[i].max(initial=0.0) < MAJORITY:
                records.append(record("died", [name], []))
        records += [record("born", [], [j]) for j in range(len(masses)) if j not in explained]
        return self._with_ids(children, len(fresh), records, batch)

    def regrouped(self, before: NDArray[np.int64], now: NDArray[np.int64], masses: NDArray[np.float64]) -> Naming:
        """Name clusters that were merged or split by hand.

        Parameters
        ----------
        before, now : array of int, shape (n_components,)
            Position of the cluster of each component.
        masses : array of shape (n_components,)
        """
        overlap = np.zeros((len(self.ids), int(now.max()) + 1))
        np.add.at(overlap, (before, now), np.maximum(masses, 1e-9))
        names, taken = {}, set()
        for _, i, j in sorted(((-overlap[i, j], i, j) for i, j in np.argwhere(overlap > 0).tolist())):
            if j not in names and i not in taken:  # the heaviest part has the name
                names[j] = self.ids[i]
                taken.add(i)
        fresh = [j for j in range(overlap.shape[1]) if j not in names]
        names |= {j: self.next_id + number for number, j in enumerate(fresh)}
        children = tuple(names[j] for j in range(overlap.shape[1]))
        totals, records, apart = overlap.sum(axis=0), [], list(self.apart)
        for j in range(overlap.shape[1]):
            if len(parents := np.flatnonzero(overlap[:, j])) > 1:
                joined = tuple(self.ids[i] for i in parents)
                records.append(ClusterRecord("merged", joined, (children[j],), (float(totals[j]),), self.batch))
                apart = [pair for pair in apart if not set(pair) <= set(joined)]
        for i in range(len(self.ids)):
            if len(parts := np.flatnonzero(overlap[i])) > 1:
                named = tuple(children[j] for j in parts)
                records.append(ClusterRecord("split", (self.ids[i],), named, tuple(totals[parts].tolist()), self.batch))
                apart += list(combinations(sorted(named), 2))
        return replace(self._with_ids(children, len(fresh), records, self.batch), apart=tuple(apart))

    def renamed(self, names: Mapping[int, str]) -> Naming:
        """Call clusters so; an empty name takes it away. Raises ValueError for a cluster that is not there."""
        if unknown := sorted(set(names) - set(self.ids)):
            raise ValueError(f"There is no cluster {unknown[0]}; there are {', '.join(map(str, sorted(self.ids)))}.")
        kept = {i: name for i, name in (dict(self.names) | dict(names)).items() if name}
        return replace(self, names=tuple(sorted(kept.items())))

    def _with_ids(self, ids: tuple[int, ...], n_fresh: int, records: Sequence[ClusterRecord], batch: int) -> Naming:
        """Other ids; what was said by hand stays for those that live on."""
        names = tuple((i, name) for i, name in self.names if i in ids)
        apart = tuple(pair for pair in self.apart if set(pair) <= set(ids))
        return Naming(ids, self.next_id + n_fresh, tuple(records), batch, names, apart)


def _heirs(overlap: NDArray[np.float64], went: NDArray[np.float64]) -> dict[int, int]:
    """Where each old name goes, old position -> new position; of several that claim a cluster the heaviest has it."""
    heirs: dict[int, int] = {}
    claims = [(overlap[i, j], -i, j) for i, j in np.argwhere(went >= MAJORITY).tolist()]
    for _, minus_i, j in sorted(claims, reverse=True):
        if -minus_i not in heirs and j not in heirs.values():  # two halves of exactly one half: the first has the name
            heirs[-minus_i] = j
    return heirs
