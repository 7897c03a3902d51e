"""What a model remembers beside mixture and networks, so that it can go on with new data: counts, samples, statistics."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data import Source
from diva.mixture.model import MixtureModel
from diva.models.novelty import Novelty
from diva.networks.vae import VAE
from diva.runs.archive import parts_with
from diva.runs.records import record_from_plain
from diva.training.replay import FeatureMoments, Reservoir, last_layer, storable, trains_last_layer

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
class BatchOutcome:
    """What came of a batch."""

    started: float  # when its fit began
    n_moves: int  # length of the lineage before
    n_seen: int  # samples seen in all, afterwards
    learnt: bool = True
    novel: NDArray[np.bool_] | None = None  # (n_samples,): which of its samples the model before called novel


@dataclass(frozen=True, eq=False)
class Window:
    """Samples that have been counted but not judged: when there are enough, either networks learn from them or it is over."""

    values: NDArray[Any]  # (m, ...)
    novel: NDArray[np.bool_]  # (m,): which of them were novel when they came

    def __len__(self) -> int:
        return len(self.novel)

    @classmethod
    def empty(cls) -> Window:
        """Nothing waits."""
        return cls(np.empty((0, 1), dtype=np.float32), np.empty(0, dtype=np.bool_))

    def after(self, source: Source, novel: NDArray[np.bool_]) -> Window:
        """Let samples wait."""
        values = storable(source.take(np.arange(len(source))))
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
class StreamMemory:
    """What a model remembers of all data it has seen."""

    n_seen: int = 0  # samples in all
    n_batches: int = 0  # fits and partial fits
    reservoir: Reservoir = field(default_factory=Reservoir.empty)
    window: Window = field(default_factory=Window.empty)
    # the mixture as it was before the samples that wait: what networks learn is added to that
    anchor: MixtureModel | None = None
    # of the features of all samples learnt from; None if the encoder is of a user, or should not learn
    moments: FeatureMoments | None = None
    novelty: Novelty | None = None
    records: tuple[BatchRecord, ...] = ()  # of the latest batches

    def to_archive(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Take it apart; what is empty is left out."""
        anchor, tensors = (None, {}) if self.anchor is None else self.anchor.to_archive()
        tensors = {f"anchor.{name}": value for name, value in tensors.items()}
        document: dict[str, Any] = {
            "n_seen": self.n_seen,
            "n_batches": self.n_batches,
            "records": [asdict(r) for r in self.records],
            "novelty": None if self.novelty is None else self.novelty.to_plain(),
            "moments_rest": None if self.moments is None else self.moments.rest,
            "anchor": anchor,
        }
        if len(self.reservoir):
            tensors["reservoir.values"] = torch.from_numpy(self.reservoir.values)
            tensors["reservoir.keys"] = torch.from_numpy(self.reservoir.keys)
        if len(self.window):
            tensors["window.values"] = torch.from_numpy(self.window.values)
            tensors["window.novel"] = torch.from_numpy(self.window.novel)
        if self.moments is not None:
            tensors["moments.root"] = self.moments.root
        return document, tensors

    @classmethod
    def from_archive(
        cls, document: dict[str, Any], tensors: dict[str, Tensor], item_shape: tuple[int, ...], vae: VAE
    ) -> StreamMemory:
        """Put it together again; raises KeyError, TypeError or ValueError if its parts do not fit.

        Parameters
        ----------
        document, tensors
        item_shape : tuple of int
            Of a sample, as a source gives it.
        vae : VAE
            Of the model.
        """
        counts = (document["n_seen"], document["n_batches"])
        if not all(type(n) is int and n >= 1 for n in counts) or not isinstance(document["records"], list):
            raise ValueError("counts of samples and batches should be whole numbers")
        reservoir = Reservoir(*_kept_samples(tensors, "reservoir", "keys", torch.float64, item_shape))
        window = Window(*_kept_samples(tensors, "window", "novel", torch.bool, item_shape))
        anchor = document["anchor"]
        if anchor is not None:
            anchor = MixtureModel.from_archive(anchor, parts_with(tensors, "anchor."))
        if (anchor is None) != (len(window) == 0):
            raise ValueError("samples that wait and the mixture before them should come together")
        moments = None
        if document["moments_rest"] is not None:
            moments = FeatureMoments(tensors["moments.root"], float(document["moments_rest"]))
            n_weights = last_layer(vae).shape[1] if trains_last_layer(vae) else 0
            if not moments.fits(n_weights):
                raise ValueError("moments of features are of another shape")
        records = tuple(record_from_plain(BatchRecord, r) for r in document["records"])
        novelty = Novelty.from_plain(document["novelty"])
        return cls(*counts, reservoir, window, anchor, moments, novelty, records)


def _kept_samples(
    tensors: dict[str, Tensor], name: str, mark: str, dtype: torch.dtype, item_shape: tuple[int, ...]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Samples that were kept, and a mark of each; empty if there are none."""
    if not {f"{name}.values", f"{name}.{mark}"} & tensors.keys():
        return np.empty((0, 1), np.float32), torch.empty(0, dtype=dtype).numpy()
    values, marks = tensors[f"{name}.values"], tensors[f"{name}.{mark}"]
    if values.shape != (len(marks), *item_shape) or marks.ndim != 1 or marks.dtype != dtype:
        raise ValueError(f"samples of the {name} are incomplete")
    return values.numpy(), marks.numpy()
