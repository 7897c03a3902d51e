"""The folder of a run: a checkpoint after every epoch, the history, the fitted model.

A checkpoint is one file, written whole or not at all; the one before stays until the next is complete. A run that was killed
goes on from it and ends with the numbers of an undisturbed one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor, nn

from diva.atomic import write_atomically
from diva.data import PartOfSource, Source
from diva.data.sources import parts_of
from diva.exceptions import ModelFileError, RunBusyError
from diva.mixture.moves import MoveRecord
from diva.mixture.prior import MixturePrior, StandardNormal
from diva.mixture.saving import mixture_from_archive, mixture_to_archive, record_from_plain
from diva.runs.archive import Archive, read_archive, write_archive
from diva.training.loop import EpochRecord, Learner
from diva.training.pseudo_labels import Teacher

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

CHECKPOINT = "checkpoint.safetensors"
CONFIG = "config.json"
HISTORY = "history.jsonl"
MODEL = "model.diva"
LOCK = ".lock"
KIND = "DIVA checkpoint"
FINGERPRINT_BYTES = 1 << 28  # up to here all samples are looked at
FINGERPRINT_SAMPLES = 4096


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps its files."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        """Path of the checkpoint."""
        return self.path / CHECKPOINT

    @property
    def model(self) -> Path:
        """Path of the fitted model."""
        return self.path / MODEL

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and keep other processes out of it.

        Raises
        ------
        RunBusyError
            If another process works in it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = open(self.path / LOCK, "a+")  # noqa: SIM115  # held open as long as the lock
        except OSError as error:
            raise OSError(
                error.errno, f"Could not make the run folder {str(self.path)!r}: {error.strerror}. Choose another."
            ) from error
        with file:
            if not _lock(file):
                raise RunBusyError(f"Another process works in {self.path}. Wait for it, stop it, or choose another run_dir.")
            try:
                yield  # the lock goes with the process, however it ends
            finally:
                if os.listdir(self.path) == [LOCK]:  # nothing came of it
                    (self.path / LOCK).unlink()
                    with suppress(OSError):
                        self.path.rmdir()

    def start(self, config: dict[str, Any]) -> None:
        """Make the folder and write the configuration.

        Raises
        ------
        FileExistsError
            If it holds a run already.
        """
        if self.checkpoint.exists():
            raise FileExistsError(
                f"{self.path} already holds a run. Set resume=True to go on with it, or choose another run_dir."
            )
        self.sweep()
        write_atomically(self.path / CONFIG, (json.dumps(config, indent=2) + "\n").encode())

    def write_checkpoint(self, learner: Learner, config: dict[str, Any], fingerprint: str) -> None:
        """Replace the checkpoint, then the history, in one step each."""
        document, tensors = learner_to_archive(learner)
        document |= {"config": config, "fingerprint": fingerprint}
        write_archive(self.checkpoint, KIND, document, tensors)
        self.write_history(learner)

    def write_history(self, learner: Learner) -> None:
        """Replace the history in one step."""
        lines = "".join(json.dumps(asdict(record)) + "\n" for record in learner.history)
        write_atomically(self.path / HISTORY, lines.encode())

    def sweep(self) -> None:
        """Remove what a killed process left half-written."""
        for leftover in self.path.glob(".diva-*.tmp"):
            leftover.unlink(missing_ok=True)

    def read_checkpoint(self, config: dict[str, Any], fingerprint: str) -> Archive:
        """Read the checkpoint; raises ValueError if it is of another run or of other data."""
        self.sweep()
        archive = read_archive(self.checkpoint, kinds=(KIND,))
        before = archive.document.get("config")
        if not isinstance(before, dict) or "fingerprint" not in archive.document:
            raise ModelFileError(f"{self.checkpoint} lacks its configuration. Delete it to start anew.")
        changed = _differences(before, json.loads(json.dumps(config)))
        if changed:
            raise ValueError(
                f"The run in {self.path} was started with {', '.join(changed)}. Use the same, or choose another run_dir."
            )
        if archive.document["fingerprint"] != fingerprint:
            raise ValueError(f"The run in {self.path} was started on other data. Pass the same, or choose another run_dir.")
        return archive


def _lock(file: IO[str]) -> bool:
    """Lock an open file for this process alone; False if another has it."""
    if fcntl is None:
        return True  # no such locks on this system
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    """What differs between two configurations, as people would say it."""
    said = []
    for key in sorted(before.keys() | now.keys()):
        was, value = before.get(key), now.get(key)
        if isinstance(was, dict) and isinstance(value, dict):
            said += _differences(was, value, f"{key}: " if key == "recipe" else "")
        elif was != value:
            said.append(f"{prefix}{key}={was!r} (now {value!r})")
    return said


def fingerprint(source: Source) -> str:
    """What tells one data set from another: number, shape, and the samples, or some of them if they are many."""
    n, shape = len(source), source.item_shape
    first = source.take(np.arange(1))
    digest = hashlib.sha256(json.dumps([n, list(shape), first.dtype.str]).encode())
    is_small = n * first.nbytes <= FINGERPRINT_BYTES
    some = np.unique(np.linspace(0, n - 1, FINGERPRINT_SAMPLES).astype(np.int64))
    for part in parts_of(source if is_small else PartOfSource(source, some)):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def learner_to_archive(learner: Learner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Take a learner apart."""
    tensors = {f"vae.{name}": value for name, value in learner.vae.state_dict().items()}
    tensors |= _optimizer_tensors("optimizer", learner.optimizer)
    tensors["generator"] = learner.generator.get_state()
    document: dict[str, Any] = {
        "rng": learner.rng.bit_generator.state,
        "variance": learner.variance,
        "epoch": learner.epoch,
        "position": learner.position,
        "best_bound": learner.best_bound if learner.history else None,
        "best_epoch": learner.best_epoch,
        "next_component_id": learner.next_component_id,
        "history": [asdict(record) for record in learner.history],
        "lineage": [asdict(record) for record in learner.lineage],
        "prior": None,
        "taught_clusters": None,
    }
    if isinstance(learner.prior, MixturePrior):
        mixture, parts = mixture_to_archive(learner.prior.mixture, learner.prior.frame)
        document["prior"] = mixture | {"assignment": learner.prior.assignment}
        tensors |= {f"prior.{name}": value for name, value in parts.items()}
    if (teacher := learner.teacher) is not None:
        document["taught_clusters"] = teacher.head.out_features
        tensors |= {f"head.{name}": value for name, value in teacher.head.state_dict().items()}
        tensors |= _optimizer_tensors("head_optimizer", teacher.optimizer)
        tensors["taught_labels"] = teacher.labels
    return document, tensors


def learner_from_archive(archive: Archive, learner: Learner, learning_rate: float, device: torch.device) -> None:
    """Bring a new learner to where the archived one was; its networks must be of the same shape."""
    document, tensors = archive.document, archive.tensors
    learner.vae.load_state_dict(parts_with(tensors, "vae."))
    _restore_optimizer("optimizer", learner.optimizer, tensors)
    learner.generator.set_state(tensors["generator"])
    learner.rng.bit_generator.state = document["rng"]
    learner.variance = float(document["variance"])
    if not learner.variance > 0:
        raise ValueError("its variance is not positive")
    counts = [document[name] for name in ("epoch", "position", "best_epoch", "next_component_id")]
    if not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError("its counts of epochs are not whole numbers")
    learner.epoch, learner.position, learner.best_epoch, learner.next_component_id = counts
    learner.best_bound = -np.inf if document["best_bound"] is None else float(document["best_bound"])
    learner.history = [record_from_plain(EpochRecord, r) for r in document["history"]]
    learner.lineage = [record_from_plain(MoveRecord, r) for r in document["lineage"]]
    learner.prior = StandardNormal()
    if document["prior"] is not None:
        state, frame = mixture_from_archive(document["prior"], parts_with(tensors, "prior."), torch.device("cpu"))
        learner.prior = MixturePrior(state, frame, document["prior"]["assignment"])
    if document["taught_clusters"] is not None:
        weight = tensors["head.weight"]
        head = nn.Linear(weight.shape[1], document["taught_clusters"]).to(device)
        head.load_state_dict(parts_with(tensors, "head."))
        optimizer = torch.optim.Adam(head.parameters(), lr=learning_rate)
        _restore_optimizer("head_optimizer", optimizer, tensors)
        learner.teacher = Teacher(tensors["taught_labels"], head, optimizer)


def parts_with(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors whose name begins with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _optimizer_tensors(name: str, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's moments and step counts; they are missing before the first step."""
    state = optimizer.state_dict()["state"]
    return {f"{name}.{i}.{key}": value for i, moments in state.items() for key, value in moments.items()}


def _restore_optimizer(name: str, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in parts_with(tensors, f"{name}.").items():
        number, what = key.split(".")
        state.setdefault(int(number), {})[what] = value
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for position, moments in state.items():
        shape = tuple(params[position].shape)
        expected = {"step": (), "exp_avg": shape, "exp_avg_sq": shape}
        if {what: tuple(value.shape) for what, value in moments.items()} != expected:
            raise ValueError(f"moments of parameter {position} are missing or of another shape")
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
