"""How many threads a computation deserves.

Most steps of a fit are small: a second thread costs more to wake than it saves, and on a busy machine very much more (a softmax
of 1,500 x 5 took 10 ms instead of 0.2 when another process used the second core). Only the products over many codes are large.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

LARGE = 1 << 17  # numbers

_allowed: ContextVar[int | None] = ContextVar("allowed", default=None)


@contextmanager
def one_thread() -> Iterator[None]:
    """Work with one thread, but let :func:`threads_for` use as many as torch has now."""
    allowed = torch.get_num_threads()
    token = _allowed.set(allowed)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(allowed)
        _allowed.reset(token)


@contextmanager
def threads_for(n_numbers: int) -> Iterator[None]:
    """Inside :func:`one_thread`: use all threads if the work is large."""
    allowed = _allowed.get()
    if allowed is None or n_numbers < LARGE:
        yield
        return
    torch.set_num_threads(allowed)
    try:
        yield
    finally:
        torch.set_num_threads(1)


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
