"""A process that works through jobs one after the other, each within a time limit; it is killed at the limit and begun anew."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

TOO_SLOW = "too slow"
DIED = "the process died"
STARTED = "started"
PATIENCE = 5.0  # seconds for a process to end by itself


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    seconds: float
    result: Any = None
    trouble: str = ""  # why there is no result


class Worker:
    """One other process for many jobs, so that each is timed alone and none can hold up the rest.

    Parameters
    ----------
    prepare : callable
        Takes a job and returns what is to be timed, a function without parameters. Both are called in the other process, so
        that ``prepare`` must be importable there; its own time, for imports and compilation, is neither counted nor limited.
    limit : float
        Seconds after which a job is given up.
    environment : mapping of str to str
        Variables that the other process has beside those of this one.
    """

    def __init__(self, prepare: Callable[[Any], Callable[[], Any]], limit: float, environment: Mapping[str, str]) -> None:
        self.prepare = prepare
        self.limit = limit
        self.environment = environment
        self._process: Any = None
        self._connection: Any = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._connection.close()  # the process ends when nobody sends jobs any more
            self._process.join(PATIENCE)
        self.stop()

    def run(self, job: Any) -> Outcome:
        """Do a job; what goes wrong is in the outcome."""
        if self._process is None:
            self._start()
        try:
            self._connection.send(job)
            said = self._connection.recv()
            if said != STARTED:
                return said
            if not self._connection.poll(self.limit):
                self.stop()
                return Outcome(self.limit, trouble=TOO_SLOW)
            return self._connection.recv()
        except (EOFError, OSError):
            self.stop()
            return Outcome(0.0, trouble=DIED)

    def stop(self) -> None:
        """Kill the process, if there is one; the next job begins another."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = self._connection = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.prepare), daemon=True)
        with _environment(self.environment):
            self._process.start()
        theirs.close()  # so that the end of the process is the end of the pipe


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = os.environ.copy()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _serve(connection: Connection, prepare: Callable[[Any], Callable[[], Any]]) -> None:
    """Do jobs until nobody sends any."""
    while True:
        try:
            job = connection.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        connection.send(_outcome(connection, prepare, job))


def _outcome(connection: Connection, prepare: Callable[[Any], Callable[[], Any]], job: Any) -> Outcome:
    start = time.perf_counter()
    try:
        action = prepare(job)
        connection.send(STARTED)
        start = time.perf_counter()
        result = action()
    except Exception as error:  # a method may fail in any way
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        return Outcome(time.perf_counter() - start, trouble=f"{type(error).__name__}: {reason[:200]}")
    return Outcome(time.perf_counter() - start, result)
