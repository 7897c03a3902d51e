"""Decide from the outside whether a stream used every sample exactly once; nothing here knows the code of diva.

What goes in: what each sample adds to statistics that are sums, the statistics before and after, and the lines that were
written about batches and samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Lines = Sequence[Mapping[str, Any]]


def violations(
    added: NDArray[np.float64], before: NDArray[np.float64], after: NDArray[np.float64], events: Lines, predictions: Lines
) -> list[str]:
    """All that contradicts "every sample once, in order"; empty if nothing does.

    Parameters
    ----------
    added : array of shape (n, d)
        What each sample adds to the statistics, in the order in which samples were put in; the first number is 1.
    before, after : arrays of shape (d,)
        Statistics when the stream began and when it ended.
    events, predictions : sequences of mappings
        Lines of the logs: batches say ``batch``, ``first``, ``last`` and ``n_samples``, checkpoints ``samples``; predictions
        their ``sample``.
    """
    return [*_of_batches(len(added), events), *_of_predictions(len(added), predictions), *_of_sums(added, after - before)]


def _of_batches(n: int, events: Lines) -> list[str]:
    found, next_sample, committed = [], 0, 0
    for number, batch in enumerate((e for e in events if e["event"] == "batch"), start=1):
        if batch["batch"] != number:
            found.append(f"batch {number} is called {batch['batch']}")
        if batch["first"] != next_sample or batch["last"] - batch["first"] + 1 != batch["n_samples"]:
            found.append(f"batch {number} has samples {batch['first']} to {batch['last']}, expected from {next_sample} on")
        next_sample = batch["last"] + 1
    for checkpoint in (e for e in events if e["event"] == "checkpoint"):
        if checkpoint["samples"] < committed:
            found.append(f"a checkpoint of {checkpoint['samples']} samples follows one of {committed}")
        committed = checkpoint["samples"]
    if (next_sample, committed) != (n, n):
        found.append(f"{n} samples were put in, but batches end at {next_sample} and checkpoints at {committed}")
    return found


def _of_predictions(n: int, predictions: Lines) -> list[str]:
    if [line["sample"] for line in predictions] == list(range(n)):
        return []
    counts = Counter(line["sample"] for line in predictions)
    wrong = [sample for sample in sorted({*range(n), *counts}) if counts[sample] != int(0 <= sample < n)]
    return [f"samples {wrong[:5]} are not predicted once"] if wrong else ["predictions are not in order"]


def _of_sums(added: NDArray[np.float64], grown: NDArray[np.float64], tol: float = 1e-6) -> list[str]:
    difference = grown - added.sum(axis=0)
    if np.abs(difference).max() <= tol * max(1.0, np.abs(added).sum(axis=0).max()):
        return []
    found = [f"the statistics grew by {grown[0]:g} samples of {len(added)}, and differ by {difference.round(6).tolist()}"]
    for sign, what in ((1, "used twice"), (-1, "lost")):
        nearest = int(np.abs(added - sign * difference).sum(axis=1).argmin())
        if np.allclose(added[nearest], sign * difference, atol=tol * len(added)):
            found.append(f"sample {nearest} was {what}")
    return found
