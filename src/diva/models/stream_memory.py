"""What a model keeps of a stream: how much it has seen, its latest samples, and what each batch did."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data import Source
from diva.mixture.estimator import DPMixture
from diva.mixture.saving import record_from_plain
from diva.models.novelty import Doubt
from diva.runs.archive import Archive
from diva.training.replay import Moments, Reservoir, keepable

LEARN_FROM = 500  # samples that are judged together ...
LEARN_BYTES = 64 << 20  # ... or as many as this holds
LEARN_SHARE = 0.1  # of them novel, at least, for networks to learn from them
BIRTH_SHARE = 0.02  # of a batch novel, at least, before births are proposed: twice what is novel by chance
MOST_BATCHES = 10_000  # of whose records are kept


Verdict = Literal["wait", "learn", "known"]


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


@dataclass(frozen=True, eq=False)
class Window:
    """Samples that have been counted but not judged: when there are enough, either networks learn from them or it is over.

    Attributes
    ----------
    values : array of shape (m, ...)
    novel : array of bool, shape (m,)
        Which of them were of no known kind when they came.
    """

    values: NDArray[Any]
    novel: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.novel)

    @classmethod
    def empty(cls) -> Window:
        """Nothing waits."""
        return cls(np.empty((0, 1), dtype=np.float32), np.empty(0, dtype=np.bool_))

    def after(self, source: Source, novel: NDArray[np.bool_]) -> Window:
        """Let samples wait."""
        values = keepable(source.take(np.arange(len(source))))
        if not len(self):
            return Window(values, novel)
        return Window(np.concatenate([self.values, values]), np.concatenate([self.novel, novel]))

    def judge(self, source: Source, novel: NDArray[np.bool_]) -> Verdict:
        """Decide about the samples that wait and others that have just come."""
        bytes_each = max(1, source.take(np.arange(1)).nbytes)
        if len(self) + len(novel) < min(LEARN_FROM, max(1, LEARN_BYTES // bytes_each)):
            return "wait"
        return "learn" if float(np.concatenate([self.novel, novel]).mean()) >= LEARN_SHARE else "known"


@dataclass(frozen=True, eq=False)
class Stream:
    """What a model keeps of its stream beside mixture and networks.

    Attributes
    ----------
    n_seen : int
        Samples in all.
    n_batches : int
        Fits and partial fits.
    reservoir : Reservoir
    window : Window
    anchor : DPMixture or None
        The mixture as it was before the samples that wait: what networks learn is added to that.
    moments : Moments or None
        Of the features of all samples learnt from; None if the encoder is of a user, or should not learn.
    doubt : Doubt or None
        How unsure the encoder is of samples it knows.
    typical_score : float
        Median score of samples that were learnt from.
    records : tuple of BatchRecord
        Of the latest batches.
    """

    n_seen: int = 0
    n_batches: int = 0
    reservoir: Reservoir = field(default_factory=Reservoir.empty)
    window: Window = field(default_factory=Window.empty)
    anchor: DPMixture | None = None
    moments: Moments | None = None
    doubt: Doubt | None = None
    typical_score: float = 0.0
    records: tuple[BatchRecord, ...] = ()

    def to_archive(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Take it apart; what is empty is left out."""
        document: dict[str, Any] = {
            "n_seen": self.n_seen,
            "n_batches": self.n_batches,
            "records": [asdict(r) for r in self.records],
            "doubt": None if self.doubt is None else asdict(self.doubt),
            "typical_score": self.typical_score,
            "moments_rest": None if self.moments is None else self.moments.rest,
        }
        tensors: dict[str, Tensor] = {}
        if len(self.reservoir):
            tensors["reservoir.values"] = torch.from_numpy(self.reservoir.values)
            tensors["reservoir.keys"] = torch.from_numpy(self.reservoir.keys)
        if len(self.window):
            tensors["window.values"] = torch.from_numpy(self.window.values)
            tensors["window.novel"] = torch.from_numpy(self.window.novel)
        document["anchor"] = None
        if self.anchor is not None:
            document["anchor"], parts = self.anchor._to_archive()
            tensors |= {f"anchor.{name}": value for name, value in parts.items()}
        if self.moments is not None:
            tensors["moments.root"] = self.moments.root
        return document, tensors

    @classmethod
    def from_archive(
        cls, document: dict[str, Any], tensors: dict[str, Tensor], item_shape: tuple[int, ...], n_weights: int, latent_dim: int
    ) -> Stream:
        """Put it together again; raises KeyError, TypeError or ValueError if its parts do not fit.

        Parameters
        ----------
        document, tensors
        item_shape : tuple of int
            Of a sample, as a source gives it.
        n_weights : int
            Of one output of the encoder's last layer, its bias among them.
        latent_dim : int
        """
        counts = (document["n_seen"], document["n_batches"])
        if not all(type(n) is int and n >= 1 for n in counts) or not isinstance(document["records"], list):
            raise ValueError("counts of samples and batches should be whole numbers")
        parts: list[tuple[NDArray[Any], NDArray[Any]]] = []
        for name, mark, dtype in (("reservoir", "keys", torch.float64), ("window", "novel", torch.bool)):
            if not {f"{name}.values", f"{name}.{mark}"} & tensors.keys():
                parts.append((np.empty((0, 1), np.float32), torch.empty(0, dtype=dtype).numpy()))
                continue
            values, marks = tensors[f"{name}.values"], tensors[f"{name}.{mark}"]
            if values.shape != (len(marks), *item_shape) or marks.ndim != 1 or marks.dtype != dtype:
                raise ValueError(f"samples of the {name} are incomplete")
            parts.append((values.numpy(), marks.numpy()))
        anchor = None
        if document["anchor"] is not None:
            inside = {name.removeprefix("anchor."): value for name, value in tensors.items() if name.startswith("anchor.")}
            anchor = DPMixture._from_archive(Archive("DPMixture", document["anchor"], inside))
        if (anchor is None) != (len(parts[1][1]) == 0) or (anchor is not None and anchor.n_features_in_ != latent_dim):
            raise ValueError("samples that wait and the mixture before them should come together")
        moments = None
        if document["moments_rest"] is not None:
            moments = Moments(tensors["moments.root"], float(document["moments_rest"]))
            root = moments.root
            if root.shape != (n_weights, min(root.shape[-1], n_weights)) or root.dtype != torch.float32 or moments.rest < 0:
                raise ValueError("moments of features are of another shape")
        records = tuple(record_from_plain(BatchRecord, r) for r in document["records"])
        doubt, typical = record_from_plain(Doubt, document["doubt"]), float(document["typical_score"])
        if not doubt.std > 0 or not math.isfinite(doubt.mean + doubt.std + typical):
            raise ValueError("scores of known samples should be numbers")
        return cls(*counts, Reservoir(*parts[0]), Window(*parts[1]), anchor, moments, doubt, typical, records)
