"""Everything that changes while a model learns; a checkpoint is exactly this."""

from __future__ import annotations

import json
import math
import time
from copy import copy, deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from diva.distributed import from_main, is_main, world_size
from diva.runs.archive import Archive, parts_with
from diva.runs.records import EpochRecord, record_from_plain
from diva.training.adam import Adam

__all__ = ["EpochRecord", "TrainState"]


@dataclass
class TrainState:
    """Networks, optimizer, chance and counters."""

    network: Any  # has ``encode`` and ``decode``
    optimizer: torch.optim.Optimizer
    generator: torch.Generator  # all chance: torch's for networks and augmentation, numpy's for everything else
    rng: np.random.Generator
    seed: int  # what they were set to at the beginning
    epoch: int = 0  # epochs done
    position: int = 0  # place in the schedule: further than ``epoch`` if a phase stopped early
    best_score: float = -math.inf  # for early stopping
    best_epoch: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    buffers: dict[str, Tensor] = field(default_factory=dict)  # whatever else a model has to remember from one epoch to the next
    started: float = field(default_factory=time.perf_counter)  # when training began in this process; not archived

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """All that take a step after each batch."""
        return [self.optimizer]

    def copy(self) -> Self:
        """The same networks, with chance and records of its own: what is done with it does not move the original on."""
        other = copy(self)
        other.rng = deepcopy(self.rng)
        other.generator = torch.Generator().set_state(self.generator.get_state())
        other.history, other.buffers = list(self.history), dict(self.buffers)
        return other

    def follow_main(self) -> None:
        """Become what process 0 has, where there are several; its networks, mixture and chance are then those of all."""
        if world_size() == 1:
            return
        document, tensors = from_main(self.to_archive() if is_main() else ({}, {}), "taking over what process 0 has learnt")
        if not is_main():
            self.restore(Archive("", json.loads(json.dumps(document)), tensors))  # as from a file

    def to_archive(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Take it apart: what JSON can hold, and tensors."""
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        tensors |= optimizer_tensors("optimizer", self.optimizer)
        tensors |= {f"buffer.{name}": value for name, value in self.buffers.items()}
        tensors["generator"] = self.generator.get_state()
        document = {
            "optimizer": optimizer_settings(self.optimizer),
            "rng": self.rng.bit_generator.state,
            "epoch": self.epoch,
            "position": self.position,
            "best_bound": self.best_score if self.history else None,
            "best_epoch": self.best_epoch,
            "history": [asdict(record) for record in self.history],
        }
        return document, tensors

    def restore(self, archive: Archive) -> None:
        """Become what was archived; networks must be of the same shape. Raises KeyError, TypeError or ValueError if not."""
        document, tensors = archive.document, archive.tensors
        self.network.load_state_dict(parts_with(tensors, "network."))
        self._restore_optimizer(document["optimizer"])
        restore_optimizer("optimizer", self.optimizer, tensors)
        self.generator.set_state(tensors["generator"])
        self.rng.bit_generator.state = document["rng"]
        counts = [document[name] for name in ("epoch", "position", "best_epoch")]
        if not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError("its counts of epochs are not whole numbers")
        self.epoch, self.position, self.best_epoch = counts
        self.best_score = -math.inf if document["best_bound"] is None else float(document["best_bound"])
        self.history = [record_from_plain(EpochRecord, r) for r in document["history"]]
        self.buffers = parts_with(tensors, "buffer.")

    def _restore_optimizer(self, plain: Any) -> None:
        """An optimizer like the archived one, which may have followed another."""
        if plain is None or plain == optimizer_settings(self.optimizer):
            return
        if set(plain) - {"kind", *KEPT_SETTINGS}:
            raise ValueError("its optimizer has settings that are not known")
        settings = {name: float(value) for name, value in plain.items() if name != "kind"}
        self.optimizer = OPTIMIZERS[plain["kind"]](self.network.parameters(), **settings)


OPTIMIZERS = {"Adam": Adam, "SGD": torch.optim.SGD}
KEPT_SETTINGS = ("lr", "weight_decay", "momentum")


def optimizer_settings(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Class and settings of an optimizer, for JSON."""
    kept = {name: float(optimizer.defaults[name]) for name in KEPT_SETTINGS if name in optimizer.defaults}
    return {"kind": type(optimizer).__name__, **kept}


def optimizer_tensors(name: str, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Moments and step counts of an optimizer; they are missing before the first step."""
    params = enumerate(p for group in optimizer.param_groups for p in group["params"])
    return {f"{name}.{i}.{key}": value for i, p in params for key, value in optimizer.state.get(p, {}).items()}


def restore_optimizer(name: str, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Give an optimizer its moments back; raises KeyError or ValueError unless they are those of its parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in parts_with(tensors, f"{name}.").items():
        number, what = key.split(".")
        state.setdefault(int(number), {})[what] = value
    params = dict(enumerate(p for group in optimizer.param_groups for p in group["params"]))
    adam = isinstance(optimizer, torch.optim.Adam)
    for position, moments in state.items():
        shape = tuple(params[position].shape)
        expected = {"step": (), "exp_avg": shape, "exp_avg_sq": shape} if adam else {"momentum_buffer": shape}
        if {what: tuple(value.shape) for what, value in moments.items()} != expected:
            raise ValueError(f"moments of parameter {position} are missing or of another shape")
        for what in expected.keys() - {
            "step"
        }:  # a fused step takes numbers as they lie in memory, those of images channels last
            moments[what] = torch.empty_like(params[position]).copy_(moments[what])
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
