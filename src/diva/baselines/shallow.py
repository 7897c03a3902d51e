"""What baselines without networks share: samples as rows of numbers, learnt from all at once, in memory."""

from __future__ import annotations

import time
from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from diva.atomic import without_link
from diva.data import Samples
from diva.models.base import Clusterer, describe_epoch, seed_of
from diva.models.config import Config
from diva.parameters import values_of
from diva.runs.archive import Archive
from diva.training.encode import Codes
from diva.training.state import EpochRecord


class ShallowClusterer(Clusterer):
    """A clusterer that learns in one step; ``history_`` has one record, and a run that was interrupted starts anew.

    A model fills in ``_fit_rows`` and ``_assign``; what it has learnt is in ``_to_document`` and ``_restore``.
    """

    @abstractmethod
    def _fit_rows(self, rows: NDArray[np.float32], seed: int) -> None:
        """Learn from rows (n, d): samples as `diva.data` scales them, flattened."""

    def _resolve(self, is_image: bool, n_samples: int) -> Config:  # noqa: ARG002  # asked of every model
        return self.config_class.from_plain(values_of(self, self.config_class).to_plain())

    def _encode(self, samples: Samples) -> Codes:
        """By default, the rows themselves."""
        rows = samples.take(torch.arange(len(samples))).flatten(1)
        return Codes(rows, rows[:, :0])

    @property
    def _n_features_out(self) -> int:
        return self.pipeline_.scaling.n_numbers

    def _learn(self, samples: Samples, validation: Samples | None) -> None:
        run, started = self.run_parameters, time.perf_counter()
        kind = f"{type(self).__name__} checkpoint"
        with self._locked_folder() as folder:
            identity = self._identity(self.config_, samples, validation) if folder else None
            if folder is not None and identity is not None:
                if run.resume and folder.checkpoint.exists():
                    folder.read_checkpoint(kind, identity)  # raises if it is of another run
                else:
                    folder.start(identity.config)
            for callback in run.callbacks:
                if hasattr(callback, "on_step"):
                    callback.on_step(1, 1)
            with threadpool_limits(1):  # so that it does not depend on which thread is done first
                self._fit_rows(ShallowClusterer._encode(self, samples).mean.numpy(), seed_of(run.random_state))
                bound = float(self._set_answers(samples).scores.mean())
                held_out = None if validation is None else float(self._assign(self._encode(validation)).scores.mean())
            seconds = time.perf_counter() - started
            found = {"bound": bound, "validation_bound": held_out, "n_clusters": self.n_clusters_, "seconds": seconds}
            record = EpochRecord(epoch=0, phase="fit", loss=-bound, **found)  # type: ignore[arg-type]
            self.history_ = [record]
            if folder is not None and identity is not None:  # says that the run got here, and with what
                folder.write_checkpoint(Archive(kind, {"history": [vars(record)]}, {}), identity)
                self.save(without_link(folder.model))
            if run.verbose:
                print(describe_epoch(record, 1), flush=True)
            for callback in run.callbacks:
                callback(self, record)
