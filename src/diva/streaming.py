"""What a model keeps of a stream: how much it has seen, its latest samples, and what each batch did."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data import Source
from diva.mixture.saving import record_from_plain
from diva.replay import Moments, Reservoir, keepable

WINDOW = 1000  # samples that are remembered as they came, until there are enough novel ones to learn from
WINDOW_BYTES = 64 << 20
LEARN_FROM = 500  # samples, at least
LEARN_SHARE = 0.1  # of them novel, at least
BIRTH_SHARE = 0.02  # of a batch novel, at least, before births are proposed: twice what is novel by chance
MOST_BATCHES = 10_000  # of whose records are kept


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
    """The latest samples that the networks have not learnt from.

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
        """Nothing came."""
        return cls(np.empty((0, 1), dtype=np.float32), np.empty(0, dtype=np.bool_))

    def beside(self, source: Source) -> Window:
        """Those that stay when other samples come; the oldest make room."""
        n_kept = max(0, min(len(self), _room_for(source) - len(source)))
        return Window(self.values[len(self) - n_kept :], self.novel[len(self) - n_kept :])

    def after(self, source: Source, novel: NDArray[np.bool_]) -> Window:
        """Take in samples."""
        n_new = min(len(source), _room_for(source))
        values, novel = keepable(source.take(np.arange(len(source) - n_new, len(source)))), novel[len(novel) - n_new :]
        old = self.beside(source)
        if not len(old):
            return Window(values, novel)
        return Window(np.concatenate([old.values, values]), np.concatenate([old.novel, novel]))


def _room_for(source: Source) -> int:
    return max(1, min(WINDOW, WINDOW_BYTES // max(1, source.take(np.arange(1)).nbytes)))


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
    moments : Moments or None
        Of the features of all samples learnt from; None if the encoder is of a user, or should not learn.
    code_variance : Tensor of shape (D,) or None
        Of q(z|x), on average.
    records : tuple of BatchRecord
        Of the latest batches.
    """

    n_seen: int = 0
    n_batches: int = 0
    reservoir: Reservoir = field(default_factory=Reservoir.empty)
    window: Window = field(default_factory=Window.empty)
    moments: Moments | None = None
    code_variance: Tensor | None = None
    records: tuple[BatchRecord, ...] = ()

    def to_archive(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Take it apart."""
        document = {"n_seen": self.n_seen, "n_batches": self.n_batches, "records": [asdict(r) for r in self.records]}
        tensors = {
            "reservoir.values": torch.from_numpy(self.reservoir.values),
            "reservoir.keys": torch.from_numpy(self.reservoir.keys),
            "window.values": torch.from_numpy(self.window.values),
            "window.novel": torch.from_numpy(self.window.novel),
        }
        if self.code_variance is not None:
            tensors["code_variance"] = self.code_variance
        if self.moments is not None:
            tensors["moments.root"] = self.moments.root
            document["moments_rest"] = self.moments.rest
        return document, tensors

    @classmethod
    def from_archive(cls, document: dict[str, Any], tensors: dict[str, Tensor]) -> Stream:
        """Put it together again; raises KeyError, TypeError or ValueError if its parts do not fit."""
        counts = (document["n_seen"], document["n_batches"])
        if not all(type(n) is int and n >= 0 for n in counts) or not isinstance(document["records"], list):
            raise ValueError("counts of samples and batches should be whole numbers")
        values, keys, latest, novel = (
            tensors[name].numpy() for name in ("reservoir.values", "reservoir.keys", "window.values", "window.novel")
        )
        if keys.dtype != np.float64 or novel.dtype != np.bool_ or len(values) != len(keys) or len(latest) != len(novel):
            raise ValueError("samples that are remembered are incomplete")
        moments = None
        if "moments.root" in tensors:
            moments = Moments(tensors["moments.root"], float(document["moments_rest"]))
            if moments.root.ndim != 2 or moments.root.dtype != torch.float32 or not moments.rest >= 0:
                raise ValueError("moments of features are not what they should be")
        records = tuple(record_from_plain(BatchRecord, r) for r in document["records"])
        return cls(*counts, Reservoir(values, keys), Window(latest, novel), moments, tensors.get("code_variance"), records)


def worth_learning(novel: NDArray[np.bool_]) -> bool:
    """Whether enough of the latest samples are novel for networks to learn from them."""
    return len(novel) >= LEARN_FROM and float(novel.mean()) >= LEARN_SHARE
