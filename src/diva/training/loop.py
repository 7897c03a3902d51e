"""The training loop of every deep model: epochs of gradient steps, early stopping, and room for what a model does between them.

It knows an `Objective` and a `TrainState`, and nothing of what they stand for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from diva.distributed import add_up_, gather, mine, world_size
from diva.exceptions import TrainingError
from diva.training.state import EpochRecord, TrainState

State = TypeVar("State", bound=TrainState, contravariant=True)

CAUSES = {
    "reconstruction": "the decoder's output overflowed: lower learning_rate, or look for extreme values in the data",
    "kl": "codes or their variances overflowed: lower learning_rate, or raise covariance_scale",
}
OTHER_CAUSE = "a network overflowed: lower learning_rate"


@dataclass(frozen=True)
class Batch:
    """Which samples a step learns from."""

    index: Tensor  # (n,)
    # (m,): which of the samples that stand in for data that are gone
    replayed: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.index)

    def own_share(self) -> Batch:
        """Samples that fall to this process; raises ValueError, on all of them, if one had too few for batch norm."""
        if world_size() > 1 and len(self) < 2 * world_size():
            raise ValueError(
                f"{world_size()} processes cannot share a batch of {len(self)} samples: each needs two. "
                "Raise batch_size, or start fewer."
            )
        return Batch(*(rows[mine(range(len(rows))).items] for rows in (self.index, self.replayed)))


@dataclass(frozen=True)
class Loss:
    """What a step minimizes."""

    total: Tensor
    terms: Mapping[str, Tensor]  # means of its terms before they are weighed, scalars, for the record


class Objective(Protocol[State]):
    """What a model learns, step by step, and what it does before and after an epoch."""

    @property
    def n_epochs(self) -> int:
        """Length of the schedule."""
        ...

    def before_epoch(self, state: State) -> None:
        """Prepare, for example pseudo-labels."""
        ...

    def batches(self, state: State) -> Sequence[Batch]:
        """What the steps of an epoch learn from."""
        ...

    def loss(self, batch: Batch, state: State) -> Loss:
        """Loss of a batch."""
        ...

    def after_epoch(self, state: State, means: Mapping[str, float]) -> EpochRecord:
        """What follows from the steps, for example a mixture, and the record of the epoch; ``means`` are of the loss terms."""
        ...

    def stop_early(self, state: State, record: EpochRecord) -> None:
        """Skip epochs that would not help any more, by moving ``state.position`` on."""
        ...


@dataclass(frozen=True)
class Watch:
    """Who is told how training goes."""

    # gets the record of each epoch; training ends if it returns True
    on_epoch: Callable[[EpochRecord], bool] = lambda _: False
    on_step: Callable[[int, int], None] = lambda *_: None  # gets the number of steps done in this epoch, and of all


def run_epochs(state: Any, objective: Objective[Any], patience: int | None = None, watch: Watch | None = None) -> None:
    """Train until the schedule ends, or ``watch`` wants it to.

    Parameters
    ----------
    state : TrainState
        Changed in place.
    objective : Objective
    patience : int, optional
        Epochs without a better score after which the objective may stop a phase early.
    watch : Watch, optional
    """
    watch = watch or Watch()
    state.follow_main()
    while state.position < objective.n_epochs:
        started = time.perf_counter()
        # dropout in a user's networks draws on torch's own generator; so it repeats, and a resumed run goes on alike
        torch.manual_seed(state.seed + state.epoch)
        objective.before_epoch(state)
        state.follow_main()
        means = train_epoch(state, objective, watch.on_step)
        record = objective.after_epoch(state, means)
        record = replace(record, seconds=time.perf_counter() - started)
        state.history.append(record)
        if record.score > state.best_score:
            state.best_score, state.best_epoch = record.score, state.epoch
        waited = state.epoch - state.best_epoch
        state.epoch += 1
        state.position += 1
        if patience is not None and waited >= patience:
            objective.stop_early(state, record)
        if watch.on_epoch(record):
            break


def train_epoch(
    state: Any, objective: Objective[Any], on_step: Callable[[int, int], None] = lambda *_: None
) -> dict[str, float]:
    """One pass over the samples, in steps of the optimizers; returns the means of the loss and its terms."""
    state.network.train()
    means = RunningMeans()
    batches = objective.batches(state)
    for step, batch in enumerate(batches):
        own = batch.own_share()
        loss = objective.loss(own, state)
        check_finite(loss, state.epoch, step)
        for optimizer in state.optimizers:
            optimizer.zero_grad(set_to_none=True)
        (loss.total * (len(own) / len(batch))).backward()  # type: ignore[no-untyped-call]  # shares add up to the batch's mean
        add_up_(p.grad for o in state.optimizers for group in o.param_groups for p in group["params"] if p.grad is not None)
        for optimizer in state.optimizers:
            optimizer.step()
        means.add(len(own), loss)
        on_step(step + 1, len(batches))
    average_batch_norms(state.network)
    return means.of_all()


def average_batch_norms(network: nn.Module) -> None:
    """Running statistics become those of all processes; in training each normalizes by its own share of a batch.

    As DistributedDataParallel does it: a message for each layer and step would cost more than it gives (Hoffer, Hubara and
    Soudry, "Train longer, generalize better", 2017, normalize parts of large batches on purpose).
    """
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm) and module.running_mean is not None]
    running = [cast(Tensor, value) for norm in norms for value in (norm.running_mean, norm.running_var)]
    for value in running:
        value /= world_size()
    add_up_(running)


def shuffled_batches(n_samples: int, batch_size: int, generator: torch.Generator) -> Sequence[Tensor]:
    """All samples in random order, in batches of nearly equal size, at least 2, so that none is too small for batch norm."""
    order = torch.randperm(n_samples, generator=generator)
    return order.tensor_split(max(1, min(math.ceil(n_samples / batch_size), n_samples // 2)))


class RunningMeans:
    """Means over an epoch of the loss and its terms, each batch weighed by its samples."""

    def __init__(self) -> None:
        self.n = 0
        self.values: dict[str, float] = {}

    def add(self, n: int, loss: Loss) -> None:
        """Take in a batch of n samples."""
        self.n += n
        share = n / self.n
        parts = {"loss": loss.total, **loss.terms}
        values = torch.stack([part.detach().cpu() for part in parts.values()]).tolist()
        for name, value in zip(parts, values, strict=True):
            mean = self.values.get(name, 0.0)
            self.values[name] = mean + share * (value - mean)

    def of_all(self) -> dict[str, float]:
        """Means over the samples of all processes."""
        everyone = gather((self.n, self.values), "adding up an epoch")
        n = sum(own for own, _ in everyone)
        return self.values if len(everyone) == 1 else {k: sum(m * v[k] for m, v in everyone) / n for k in self.values}


def check_finite(loss: Loss, epoch: int, step: int) -> None:
    """Stop at the step where a NaN appears, not where it is noticed."""
    if bool(torch.isfinite(loss.total)):
        return
    culprit = next((name for name, value in loss.terms.items() if not bool(torch.isfinite(value))), "last")
    cause = CAUSES.get(culprit, OTHER_CAUSE)
    found = float(loss.total.detach())
    raise TrainingError(f"The {culprit} term became {found} in epoch {epoch}, step {step}. Most likely {cause}.")
