"""Several processes as one: everything the package knows about ranks, on torch.distributed under ``torchrun``.

Sufficient statistics add, so a mixture is the same on one process or on a hundred. Rows are cut into *parts* that do not depend
on the number of processes; each process works on some, and what they leave is added up in the order of the parts: the sums have
the same bits however many processes there are. In one process every function here is the identity.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from threading import Thread
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from diva.exceptions import DistributedError
from diva.threads import on_own_cores

PART_ROWS = 8192  # a part has so many rows at least: of fewer, more would be spent on handing out than on computing
N_PARTS = 16  # of a batch, if it has rows enough, else 8, 4 or 2; as many processes, or threads, then have equal shares
LARGEST_PART = 1 << 18  # rows of a part beyond which there are more parts, for more processes
TIMEOUT = 600.0  # seconds that a process waits for the others
TIMEOUT_VARIABLE = "DIVA_TIMEOUT"
LAST_WORDS = 3.0  # seconds in which processes that have lost another say so

T = TypeVar("T")
_alone: ContextVar[bool] = ContextVar("alone", default=False)
_waits: dict[str, float] = {"seconds": TIMEOUT}


# --- who is there


@contextmanager
def join(timeout: float | None = None) -> Iterator[None]:
    """Join the other processes that ``torchrun`` has started; without it, nothing happens.

    gloo connects processes on CPUs, NCCL those that have a GPU each.

    Parameters
    ----------
    timeout : float, optional
        Seconds to wait for another process before giving up: ``$DIVA_TIMEOUT``, or 600.

    Examples
    --------
    >>> from diva import DPMixture, distributed
    >>> with distributed.join():  # in a script that torchrun starts; alone, it is a fit as any other
    ...     model = DPMixture(random_state=0).fit([[0.0], [0.1], [5.0], [5.1]])
    >>> model.n_components_
    2
    """
    if dist.is_initialized() or "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield
        return
    seconds = float(os.environ.get(TIMEOUT_VARIABLE, TIMEOUT)) if timeout is None else float(timeout)
    _waits["seconds"] = seconds
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    wait, number, world = timedelta(seconds=seconds), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store, _, _ = next(rendezvous("env://", number, world, timeout=wait))
    store = PrefixStore(f"diva/{n_restarts()}", store)  # torchrun keeps the addresses of processes that have died
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    local = (0, 1) if on_gpu else (int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
    with on_own_cores(*local):  # threads that connect processes are started here, and stay on them as well
        dist.init_process_group(backend, store=store, rank=number, world_size=world, timeout=wait)
        yield  # after an error, a goodbye might wait for those who cannot hear it
        dist.destroy_process_group()


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if _together() else 0


def world_size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if _together() else 1


def is_main() -> bool:
    """Whether this is the process that writes and speaks, also while it works :func:`alone`."""
    return not dist.is_initialized() or dist.get_rank() == 0


def n_restarts() -> int:
    """How often ``torchrun`` has started the processes anew after one had died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def is_launched() -> bool:
    """Whether ``torchrun`` has started more than this process."""
    return int(os.environ.get("WORLD_SIZE", 1)) > 1


@contextmanager
def alone() -> Iterator[None]:
    """Work without the others for a while: on what all have, or on what only one process does."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def _together() -> bool:
    return dist.is_initialized() and not _alone.get()


# --- shares of rows


@dataclass(frozen=True)
class Shard:
    """Data of which every process has some rows of its own; rows of process 0 come first.

    Without it, all processes are given the same data, a mapped file for instance, of which each reads its share.

    Parameters
    ----------
    rows : as X of ``fit``
        An array, a memmap, or a re-iterable of batches such as a reader of Parquet files.
    """

    rows: Any


def split(n_rows: int) -> list[slice]:
    """Cut consecutive rows into parts, whatever the number of processes."""
    few = max(1, min(n_rows // PART_ROWS, N_PARTS))
    n_parts = max(1 << few.bit_length() - 1, n_rows // LARGEST_PART // N_PARTS * N_PARTS)
    ends = [n_rows * (part + 1) // n_parts for part in range(n_parts)]
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


class Mine(NamedTuple):
    """What this process has to do of something that is divided among all."""

    items: Sequence[Any]  # its own, which are consecutive
    most: int  # that any process has


def mine(items: Sequence[T]) -> Mine:
    """Share consecutive items out."""
    world, number, n = world_size(), rank(), len(items)
    return Mine(items[n * number // world : n * (number + 1) // world], -(-n // world))


# --- what goes from one process to another


def sum_in_order(own: Sequence[Tensor], width: int, most: int) -> Tensor:
    """Add up float64 vectors of all processes, (width,), always in the same order: rank by rank, and in the order given.

    Parameters
    ----------
    own : sequence of Tensor of shape (width,)
    width : int
    most : int
        How many vectors any process has at most.
    """
    stacked = torch.stack(list(own)) if own else torch.zeros(0, width, dtype=torch.float64)
    if not _together():
        return stacked.sum(0)
    padded = stacked.new_zeros(most, width + 1)  # the last number tells vectors from padding
    padded[: len(own), :width] = stacked
    padded[: len(own), width] = 1.0
    everyone = _gather_equal(padded, "adding up statistics").flatten(0, 1)
    return everyone[everyone[:, width] > 0, :width].sum(0)


def gather(value: T, what: str = "comparing notes") -> list[T]:
    """What each process has, by rank; anything that can be pickled."""
    if not _together():
        return [value]
    data = np.frombuffer(pickle.dumps(value), dtype=np.uint8)
    parts = _gather_ragged(torch.from_numpy(data.copy()), what)
    return [pickle.loads(part.numpy().tobytes()) for part in parts]  # of our own processes


def gather_rows(numbers: NDArray[np.int64], *columns: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Rows of all processes, in the order of their numbers (n,), every column (n, ...); numbers first."""
    if _together():
        everyone = [
            [part.numpy() for part in _gather_ragged(torch.from_numpy(np.ascontiguousarray(column)), "gathering rows")]
            for column in (numbers, *columns)
        ]
        numbers, *rest = (np.concatenate(parts) for parts in everyone)
        columns = tuple(rest)
    if (np.diff(numbers) >= 0).all():
        return numbers, *columns
    order = np.argsort(numbers, kind="stable")
    return tuple(column[order] for column in (numbers, *columns))


def alike(compute: Callable[[], T], what: str = "taking what process 0 has found") -> T:
    """Let every process compute something of what all have, alone, and give them what process 0 has found.

    Nobody waits longer than that, and processors that round differently do not lead to different decisions.
    """
    if not _together():
        return compute()
    with alone():
        found = compute()
    return from_main(found, what)


def from_main(value: T, what: str = "hearing from process 0") -> T:
    """What process 0 has; anything that can be pickled."""
    if not _together():
        return value
    holder: list[Any] = [value if rank() == 0 else None]
    with _explaining(what):
        dist.broadcast_object_list(holder, src=0)
    found: T = holder[0]
    return found


def agree(value: Any, what: str) -> None:
    """Raise DistributedError unless all processes have come to the same value."""
    values = gather(value, f"comparing {what}")
    if different := [r for r, other in enumerate(values) if other != values[0]]:
        raise DistributedError(
            f"Process {different[0]} has come to another {what} than process 0: {values[different[0]]!r} instead of "
            f"{values[0]!r}. Their processors may round differently: set ATEN_CPU_CAPABILITY=avx2 and MKL_CBWR=AVX2 for all."
        )


def own_generator(generator: torch.Generator) -> torch.Generator:
    """Chance of this process alone: others draw other numbers, and the generator that all share moves on alike."""
    if not _together():
        return generator
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    return torch.Generator(generator.device).manual_seed((seed + 0x9E3779B97F4A7C15 * rank()) % 2**63)


def add_up_(tensors: Iterable[Tensor]) -> None:
    """Replace tensors by their sums over all processes, in place and in few messages."""
    if not _together():
        return
    tensors = list(tensors)
    flat = torch.cat([t.detach().flatten() for t in tensors])
    with _explaining("adding up gradients"):
        dist.all_reduce(flat)
    start = 0
    for tensor in tensors:
        tensor.detach().copy_(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()


def _gather_equal(tensor: Tensor, what: str) -> Tensor:
    """Stack what all have, (world, ...)."""
    travelling = tensor.contiguous()
    parts = [torch.empty_like(travelling) for _ in range(world_size())]
    with _explaining(what):
        dist.all_gather(parts, travelling)
    return torch.stack(parts)


def _gather_ragged(tensor: Tensor, what: str) -> list[Tensor]:
    """What each has, by rank; of any length (n, ...)."""
    tensor = tensor.contiguous()
    as_bytes = tensor.view(torch.uint8).flatten() if tensor.numel() else torch.empty(0, dtype=torch.uint8)
    sizes = _gather_equal(torch.tensor([len(tensor), len(as_bytes)]), what).tolist()
    most = max(n_bytes for _, n_bytes in sizes)
    padded = torch.zeros(most, dtype=torch.uint8)
    padded[: len(as_bytes)] = as_bytes
    parts = _gather_equal(padded, what) if most else padded.expand(world_size(), 0)
    return [
        part[:n_bytes].view(tensor.dtype).view(n, *tensor.shape[1:]) if n_bytes else tensor.new_empty(n, *tensor.shape[1:])
        for part, (n, n_bytes) in zip(parts, sizes, strict=True)
    ]


@contextmanager
def _explaining(what: str) -> Iterator[None]:
    """Say which process is missing when the others have waited in vain."""
    try:
        yield
    except RuntimeError as error:  # gloo and NCCL raise it, with a text for developers
        missing = _missing()
        who = f"Process {', '.join(map(str, missing))} did not answer" if missing else "The connection to the others broke"
        raise DistributedError(
            f"{who} while process {dist.get_rank()} of {dist.get_world_size()} was {what} (it waits {_waits['seconds']:g} "
            "seconds at most). If a machine or its network is gone, start again: a run with a checkpoint goes on from there."
        ) from error


def _missing() -> list[int]:
    """Which processes leave no word in the common store; none if it cannot be reached."""
    found: list[int] = []

    def ask() -> None:
        with suppress(RuntimeError, ValueError):
            store = dist.distributed_c10d._get_default_store()  # noqa: SLF001  # torch has no other way to ask for it
            store.set(f"lost/{dist.get_rank()}", "1")
            time.sleep(LAST_WORDS)
            found.extend(other for other in range(dist.get_world_size()) if not store.check([f"lost/{other}"]))
            if dist.get_rank() == 0:  # the store may be its own, and go with it before others have asked
                time.sleep(LAST_WORDS)

    asking = Thread(target=ask, daemon=True)  # of a machine that is cut off, the store may never answer
    asking.start()
    asking.join(3 * LAST_WORDS)
    return list(found)
