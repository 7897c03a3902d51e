"""Two runs on the same samples beside each other: do they agree, what moved where, and which is better without labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diva.metrics import Agreement
from diva.partition.agreement import neighbour_information
from diva.report.findings import Findings
from diva.runs.summary import Summary

MOST_MOVES = 12


@dataclass(frozen=True)
class Comparison:
    """What two runs say about the samples that both kept."""

    n_samples: int
    agreement: dict[str, float]  # metrics of one partition against the other: 1 is the same
    moves: list[dict[str, Any]]  # the largest groups of samples that are elsewhere in the other run
    quality: dict[str, dict[str, float]]  # run -> what can be said without labels

    @property
    def better(self) -> str | None:
        """The run that nearest neighbours agree on more, made equally coarse; None if it is a draw."""
        nats = {name: row["neighbour information"] for name, row in self.quality.items()}
        first, second = nats
        if abs(nats[first] - nats[second]) < 0.01 * max(*nats.values(), 1e-9):
            return None
        return max(nats, key=lambda name: nats[name])

    def as_plain(self) -> dict[str, Any]:
        """For machines."""
        plain = {"n_samples": self.n_samples, "agreement": self.agreement, "moves": self.moves}
        return plain | {"quality": self.quality, "better": self.better}


def compare(first: Summary, second: Summary, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Compare two runs by the samples that both snapshots hold.

    Raises ValueError if the runs are not about the same samples.
    """
    here, there = first.snapshot, second.snapshot
    index, at_here, at_there = np.intersect1d(here.index, there.index, return_indices=True)
    same_size = first.n_samples == second.n_samples and first.n_features == second.n_features
    if not same_size or len(index) == 0 or not np.array_equal(here.rows[at_here], there.rows[at_there]):
        raise ValueError(
            f"The runs are not about the same samples: {names[0]} has {first.n_samples:,} of {first.source}, {names[1]} has "
            f"{second.n_samples:,} of {second.source}. Compare runs on the same data."
        )
    a, b = here.clusters[at_here], there.clusters[at_there]
    points = here.rows[at_here]
    spread = points.std(axis=0)
    points = (points - points.mean(axis=0)) / np.where(spread > 0, spread, 1.0)  # of the samples, not of either run's codes
    information = neighbour_information(points, a, b)
    row = Agreement(a, b).as_row()
    return Comparison(
        n_samples=len(index),
        agreement={name: row[name] for name in ("ari", "ami", "nmi", "acc_one_to_one")},
        moves=_moves(first, second, a, b),
        quality={
            name: {
                "clusters": float(summary.n_clusters),
                "neighbour information": nats,
                "stability": float(Findings(summary).agreement.mean()),
            }
            for name, summary, nats in zip(names, (first, second), information, strict=True)
        },
    )


def _moves(first: Summary, second: Summary, a: NDArray[np.int64], b: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Samples that left the largest part of their cluster, by where they went, the most first."""
    table = np.zeros((first.n_clusters, second.n_clusters), dtype=np.int64)
    np.add.at(table, (a, b), 1)
    home = table.argmax(axis=1)
    moved = [(int(table[i, j]), i, j) for i, j in np.argwhere(table > 0).tolist() if j != home[i]]
    return [
        {
            "samples": n,
            "share": round(n / int(table[i].sum()), 4),
            "from": first.ids[i],
            "to": second.ids[j],
            "others_went_to": second.ids[int(home[i])],
        }
        for n, i, j in sorted(moved, key=lambda move: -move[0])[:MOST_MOVES]
    ]
