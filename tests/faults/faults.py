"""Disks that fail, and processes that die, at the n-th write: a layer below everything that changes files in a folder."""

from __future__ import annotations

import builtins
import contextvars
import errno
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from threadpoolctl import threadpool_limits

Kind = Literal["full", "broken", "kill"]
KILLED = 9


@dataclass
class Disk:
    """Counts what is done below a folder: opening to write, writing, syncing, renaming, linking, making folders.

    From the n-th on the disk is ``full``, or the n-th alone fails on a ``broken`` one, or there the process dies (``kill``).
    What is half written stays so. Calls that a signal interrupts are not among them: Python itself makes them again (PEP 475).
    """

    folder: Path
    kind: Kind = "broken"
    n: int = -1  # none fails
    done: list[str] = field(default_factory=list)

    def reach(self, what: str, path: Any) -> None:
        """One more is about to be done."""
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        if not os.path.realpath(path).startswith(f"{os.path.realpath(self.folder)}/"):
            return
        self.done.append(f"{what} {os.path.basename(path)}")
        number = len(self.done) - 1
        if number == self.n and self.kind == "kill":
            os._exit(KILLED)
        if number == self.n and self.kind == "broken":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if 0 <= self.n <= number and self.kind == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextmanager
    def mounted(self) -> Iterator[Disk]:
        """Let all that Python writes go through it; what libraries write by themselves does not."""
        real = {name: getattr(os, name) for name in ("open", "fsync", "replace", "rename", "link", "mkdir")}
        real_open = builtins.open

        def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if not set(mode) & set("wax+") or isinstance(file, int):
                return real_open(file, mode, *args, **kwargs)
            self.reach("open", file)
            if "b" not in mode:
                return real_open(file, mode, *args, **kwargs)
            return io.BufferedWriter(_File(self, file, mode.replace("b", "")))

        def opened_low(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR):
                self.reach("open", path)
            return int(real["open"](path, flags, *args, **kwargs))

        def counted(name: str) -> Callable[..., Any]:
            def call(path: Any, *args: Any, **kwargs: Any) -> Any:
                self.reach(name, path)
                return real[name](path, *args, **kwargs)

            return call

        builtins.open = io.open = opened  # type: ignore[assignment]
        os.open = opened_low  # type: ignore[assignment]
        for name in ("fsync", "replace", "rename", "link", "mkdir"):
            setattr(os, name, counted(name))
        try:
            yield self
        finally:
            builtins.open = io.open = real_open
            for name, function in real.items():
                setattr(os, name, function)


class _File(io.FileIO):
    """A file on such a disk: where a write fails, half of it is there."""

    def __init__(self, disk: Disk, path: Any, mode: str) -> None:
        super().__init__(path, mode)
        self._disk = disk

    def write(self, data: Any) -> int:
        before = self._disk.n
        if len(self._disk.done) == before:
            super().write(bytes(data)[: len(data) // 2])
        self._disk.reach("write", self.fileno())
        return super().write(data)


def in_a_process(work: Callable[[], Any]) -> Any:
    """What a fork of this process answers, as JSON; None if it was killed.

    It has one thread: those of OpenMP do not live on in a fork, which would wait for them forever.
    """
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        answer: Any = "it raised an exception"
        try:
            torch.set_num_threads(1)
            with threadpool_limits(1):
                answer = contextvars.Context().run(work)
        finally:
            os.write(writing, json.dumps(answer).encode()[:60_000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, KILLED), code
    return json.loads(answer) if answer else None
