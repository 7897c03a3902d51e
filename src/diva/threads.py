"""How many threads a computation deserves.

Most steps of a fit are small: a second thread costs more to wake than it saves, and on a busy machine very much more (a softmax
of 1,500 x 5 took 10 ms instead of 0.2 when another process used the second core). Only the products over many codes are large.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

import torch
from threadpoolctl import ThreadpoolController

LARGE = 1 << 17  # numbers

T = TypeVar("T")
R = TypeVar("R")

_pool: ContextVar[ThreadPoolExecutor | None] = ContextVar("pool", default=None)


@contextmanager
def one_thread() -> Iterator[None]:
    """Work with one thread, but let :func:`mapped` use as many as torch has now."""
    allowed = torch.get_num_threads()
    if allowed == 1:  # so it is already
        yield
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(allowed) as pool:  # its threads are started when first needed, and kept until the end
            token = _pool.set(pool)
            try:
                yield
            finally:
                _pool.reset(token)
    finally:
        torch.set_num_threads(allowed)


def mapped(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Apply a function to each item; inside :func:`one_thread`, on as many threads as torch had, each with items of its own.

    Every item is worked on by one thread alone, so that the result does not depend on how many there are. Threads of torch's
    own would wait for each other after every operation, and two of them were slower than one.
    """
    pool = _pool.get()
    return [function(item) for item in items] if pool is None or len(items) < 2 else list(pool.map(function, items))


def one_thread_in_numpy() -> AbstractContextManager[object]:
    """Let the libraries below numpy work with one thread."""
    limited: AbstractContextManager[object] = _libraries().limit(limits=1)
    return limited


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # looks at every library of the process, which takes 5 ms


@contextmanager
def on_own_cores(number: int, of: int) -> Iterator[None]:
    """Keep to one of ``of`` equal shares of the machine's cores, as the launchers of MPI let their processes do.

    Processes that meet after every batch wait for the one that the scheduler has just moved to another's core: two of them took
    a twelfth more time. Where somebody has chosen cores already, or there are more processes than cores, nothing is changed.
    """
    here = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not number < of <= len(here) or len(here) < (os.cpu_count() or 1):
        yield
        return
    os.sched_setaffinity(0, here[len(here) * number // of : len(here) * (number + 1) // of])
    try:
        yield
    finally:
        os.sched_setaffinity(0, here)


@contextmanager
def one_thread_if_small(n_numbers: int) -> Iterator[None]:
    """Learn from little data on one thread alone: the result is then the same on any number of cores.

    With several threads sums come out in another order, and over thousands of steps the last digits grow until clusters
    differ. On little data a second thread saves about a quarter of the time; this is worth more.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1 if n_numbers < LARGE else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
