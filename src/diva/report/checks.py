"""What to check next: the doubts that a careful reader of the findings would have, in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from diva.report.findings import Findings
from diva.report.words import count, percent

CLOSE = 2.0  # nats of evidence below which two clusters are hardly apart: about seven to one
TINY_SHARE = 0.005  # of all samples
TINY_SIZE = 5
UNSURE = 0.8  # share of nearest neighbours in the same cluster, below which that is doubtful
DOMINANT = 0.9  # share of the variance that one feature may hold


class Check(NamedTuple):
    """A doubt, and what to do about it; both plain text."""

    title: str
    text: str


def checks(findings: Findings) -> list[Check]:
    """All doubts there are, the gravest first; the last is always worth a try."""
    found = [*_one_cluster(findings), *_units(findings), *_close(findings), *_unsure(findings), *_tiny(findings)]
    return [*found, *_repeated(findings), _another_seed(findings)]


def _one_cluster(findings: Findings) -> Iterator[Check]:
    if len(findings.filled) == 1:
        yield Check(
            "One cluster",
            "No evidence for more was found. If you expected some: look at the map by components, leave out columns that are "
            "noise or ids, put columns on one scale, or ask for a finer cut: predict(X, level=2).",
        )


def _units(findings: Findings) -> Iterator[Check]:
    if findings.is_image or findings.are_words or findings.summary.n_features < 2:
        return
    variance = findings.snapshot.rows.var(axis=0)
    share = variance / max(float(variance.sum()), 1e-300)
    if share.max() > DOMINANT:
        name = findings.feature_names[int(share.argmax())]
        yield Check(
            "Units",
            f"{name} holds {percent(float(share.max()))} of the variance of all features. If that is only its unit, rescale "
            "it; if it is an id or a date, leave it out.",
        )


def _close(findings: Findings) -> Iterator[Check]:
    close = [c for c in findings.filled if c.separation is not None and c.separation < CLOSE]
    if close:
        odds = ", ".join(f"{findings.label_of(c.position)} ({_odds(c.separation or 0.0)})" for c in close[:6])
        yield Check(
            f"{count(len(close), 'cluster')} hardly apart",
            f"The evidence that these are clusters of their own is weak: {odds}. See what they would be joined with in the "
            "tree; merge([a, b]) joins two by hand, a coarser layer joins all such.",
        )


def _odds(nats: float) -> str:
    """Odds as people say them.

    >>> _odds(0.0), _odds(2.0)
    ('1 to 1', '7 to 1')
    """
    return f"{max(1, round(math.exp(min(nats, 20.0)))):,} to 1"


def _unsure(findings: Findings) -> Iterator[Check]:
    unsure = [c for c in findings.filled if c.stability < UNSURE]
    if unsure:
        named = ", ".join(f"{findings.label_of(c.position)} ({percent(c.stability)})" for c in unsure[:6])
        yield Check(
            f"{count(len(unsure), 'cluster')} unstable",
            f"Many nearest neighbours of samples in {named} are in other clusters: their borders are in doubt. Look at the "
            "least certain members in the gallery before you rely on them.",
        )


def _tiny(findings: Findings) -> Iterator[Check]:
    limit = max(TINY_SIZE, TINY_SHARE * findings.summary.n_samples)
    tiny = [c for c in findings.filled if c.size < limit]
    if tiny and len(findings.filled) > 1:
        named = ", ".join(f"{findings.label_of(c.position)} ({count(c.size, 'sample')})" for c in tiny[:6])
        yield Check(
            f"{count(len(tiny), 'tiny cluster')}",
            f"{named}{' and more' if len(tiny) > 6 else ''}: rare kinds, or errors in the data? Look at their members.",
        )


def _repeated(findings: Findings) -> Iterator[Check]:
    rows = findings.snapshot.rows
    if rows.size > 5_000_000:
        return
    n_same = len(rows) - len(np.unique(rows, axis=0))
    if n_same > 0.05 * len(rows):
        yield Check(
            "Samples that are there twice",
            f"{n_same:,} of the {len(rows):,} samples looked at are copies of another. Copies look like evidence: drop them "
            "unless they were measured twice.",
        )


def _another_seed(findings: Findings) -> Check:
    again = "diva compare RUN_A RUN_B" if findings.summary.rounds == "epoch" else "diva.metrics"
    return Check(
        "Does it repeat?",
        f"Fit again with another random_state and compare ({again}): what two seeds disagree on is not in the data. In "
        "Python, describe(X, n_fits=5) says of each cluster whether it comes again.",
    )
