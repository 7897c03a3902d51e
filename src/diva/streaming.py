"""What a stream does to a model, batch by batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchRecord:
    """What one fit or partial fit did, as a plain row.

    Attributes
    ----------
    batch : int
        From 0, the first fit.
    n_samples : int
    novel_share : float or None
        Of its samples, those the model before called novel; None for a first fit.
    learnt : bool
        Whether the networks learnt, or only the mixture.
    births, merges, deletes : int
        Of components.
    n_components, n_clusters : int
        Afterwards.
    seconds : float
    """

    batch: int
    n_samples: int
    novel_share: float | None
    learnt: bool
    births: int
    merges: int
    deletes: int
    n_components: int
    n_clusters: int
    seconds: float
