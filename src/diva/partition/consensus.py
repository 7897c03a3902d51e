"""Revising a consensus of several clusterings.

The components of several mixtures are grouped together by the flow between them, a soft co-association: Strehl and Ghosh,
"Cluster ensembles" (2002); Monti et al., "Consensus clustering" (2003); Fred and Jain, "Combining multiple clusterings using
evidence accumulation" (2005).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from diva.partition.louvain import communities
from diva.partition.walk import IntArray, checked_flow

_HEAVY_PART = 0.5  # of the mean mass of known groups; lighter parts of one are not parted from it


def revise(flow: npt.ArrayLike, labels: npt.ArrayLike, resolution: float, rng: np.random.Generator | int = 0) -> IntArray:
    """Revise groups that are known already: join those that share much, part one that turns out to be two.

    A group is parted only where a part is at least half as heavy as groups are on average. Of a small part the known group
    says more than the flow: what was learnt from the groups has drawn their members together. Flow, resolution and what is
    returned are as of `communities`; ``labels`` (K,) are the known groups.

    Examples
    --------
    The first two groups share more than chance would have it, the third is two:

    >>> import numpy as np
    >>> flow = np.array([[4.0, 2.0, 0.0, 0.0], [2.0, 4.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0], [0.0, 0.0, 0.0, 4.0]])
    >>> revise(flow, [0, 1, 2, 2], resolution=0.5)
    array([0, 0, 1, 2])
    """
    flow = checked_flow(flow)
    _, known = np.unique(np.asarray(labels), return_inverse=True)
    anew = communities(flow, resolution, rng)
    mass_of = np.zeros((known.max() + 1, anew.max() + 1))  # of each part of a known group
    np.add.at(mass_of, (known, anew), flow.sum(axis=0))
    heavy = mass_of >= _HEAVY_PART * mass_of.sum() / len(mass_of)
    part = np.where(heavy[known, anew], anew, mass_of.argmax(axis=1)[known])  # light parts stay with the heaviest
    _, piece = np.unique(np.column_stack([known, part]), axis=0, return_inverse=True)
    member = np.eye(piece.max() + 1)[piece]  # (K, pieces)
    revised: IntArray = communities(member.T @ flow @ member, resolution, rng)[piece]
    return revised
