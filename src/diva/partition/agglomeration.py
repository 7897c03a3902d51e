"""Greedy agglomeration of components: Bonald et al., "Hierarchical graph clustering using node pair sampling" (2018)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from diva.partition.walk import FloatArray, IntArray, affinity_of, ratio


class Join(NamedTuple):
    """One step of the agglomeration."""

    kept: int  # slot of the joint group
    gone: int  # slot that is empty from now on
    height: float  # flow_ab / (mass_a mass_b)
    affinity: float  # mean affinity over the flow between the two
    lighter: float  # mass of the lighter one


def joins(flow: FloatArray, labels: IntArray) -> Iterator[Join]:
    """Greedy agglomeration, highest resolution first: all joins inside the labelled groups, then all others.

    The height of a joint group with a third is a mean of the two heights, so heights never rise.
    """
    flow = flow.copy()  # flow between the groups in the slots
    masses = flow.sum(axis=0)
    strength = flow * affinity_of(flow)  # flow-weighted affinity between them
    height = ratio(flow, np.outer(masses, masses))
    np.fill_diagonal(height, -1.0)
    joinable = np.where(labels[:, None] == labels, height, -1.0)  # -1: not now
    alive = np.ones(len(flow), dtype=bool)
    for _ in range(len(flow) - 1):
        if joinable.max() < 0:  # every labelled group is one by now
            joinable = np.where(np.outer(alive, alive), height, -1.0)
        kept, gone = divmod(int(joinable.argmax()), len(flow))
        if joinable[kept, gone] == 0:  # nothing is shared: the lightest pair, so that heavy groups last longest
            pairs = np.argwhere(joinable == 0).tolist()
            kept, gone = min(pairs, key=lambda pair: (masses[pair[0]] + masses[pair[1]], pair))
        affinity = strength[kept, gone] / flow[kept, gone] if flow[kept, gone] > 0 else 0.0
        lighter = min(masses[kept], masses[gone])
        yield Join(kept, gone, float(joinable[kept, gone]), float(affinity), float(lighter))
        for table in (flow, strength):
            table[kept] += table[gone]
            table[:, kept] += table[:, gone]
        masses[kept] += masses[gone]
        alive[gone] = False
        row = np.where(alive, ratio(flow[kept], masses[kept] * masses), -1.0)
        row[kept] = -1.0
        height[kept] = height[:, kept] = row
        joinable[kept] = joinable[:, kept] = np.where(joinable[kept] >= 0, row, -1.0)
        joinable[gone] = joinable[:, gone] = -1.0
