"""What was found as a table, one row for each cluster: what `describe` gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diva.report.findings import Difference, Findings, FoundCluster
from diva.report.words import number

Row = dict[str, Any]

N_EXAMPLES = 5  # samples named for each cluster
N_TOLD = 3  # features or words
LEAST = 0.25  # standard deviations: what differs less is not worth telling


def cluster_rows(findings: Findings, *, with_examples: bool = True) -> list[Row]:
    """One row for each cluster that holds samples, the largest first.

    Parameters
    ----------
    findings : Findings
    with_examples : bool
        Whether the samples are the user's own, so that their numbers mean something.
    """
    return [_row(findings, cluster, with_examples) for cluster in sorted(findings.filled, key=lambda c: -c.size)]


def _row(findings: Findings, cluster: FoundCluster, with_examples: bool) -> Row:
    row: Row = {
        "cluster": cluster.number,
        "name": cluster.name or automatic_name(findings, cluster),
        "size": cluster.size,
        "share": round(cluster.share, 4),
        "confidence": round(cluster.confidence, 4),
        "stability": round(cluster.stability, 4),
        "separation": None if cluster.separation is None else round(cluster.separation, 2),
        "neighbour": None if cluster.neighbour is None else findings.summary.ids[cluster.neighbour],
    }
    if cluster.majority is not None:
        row |= {"mostly": cluster.majority[0], "purity": round(cluster.majority[1], 4)}
    if not findings.is_image:
        row["apart"] = told(findings, cluster.differences)
        row["beside_neighbour"] = told(findings, cluster.beside_neighbour)
    if with_examples:
        row["examples"] = findings.snapshot.index[cluster.nearest[:N_EXAMPLES]].tolist()
    return row


def automatic_name(findings: Findings, cluster: FoundCluster) -> str:
    """A name by the words or the features that set a cluster apart; empty where there are none."""
    telling = _telling(findings, cluster.differences)
    if findings.are_words:
        return ", ".join(d.feature for d in telling)
    return ", ".join(f"{'high' if d.by > 0 else 'low'} {d.feature}" for d in telling[:2])


def told(findings: Findings, differences: Sequence[Difference]) -> str:
    """Differences in words: those of features with the two means, those of words by the words alone."""
    telling = _telling(findings, differences)
    if findings.are_words:
        return ", ".join(d.feature for d in telling)
    parts = []
    for d in telling:
        here, there = list(d.values.values())[:2]
        parts.append(f"{d.feature} {number(here, d.decimals)} (else {number(there, d.decimals)})")
    return "; ".join(parts)


def _telling(findings: Findings, differences: Sequence[Difference]) -> list[Difference]:
    return [d for d in differences if (d.by if findings.are_words else abs(d.by)) >= LEAST][:N_TOLD]
