"""Running cells in a folder that several processes or machines may share.

Every cell has a folder of its own. Whoever runs it claims it first: claims are files ``claim-0``, ``claim-1``, ... that are
made only if they are not there, and the highest counts. The owner touches its claim while it works. A claim that has not been
touched for `STALE_SECONDS`, or whose process on this machine is gone, is stale: whoever makes the next one has the cell. Times
are those of the file system, not of the machines. If an owner that was thought dead comes back, both end with the same numbers,
and a row is written whole.

Each cell runs in a process of its own, so that its peak memory is its own and it can be killed at any time; it ends when the
process that started it does.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from diva.atomic import write_atomically
from diva.experiments.rows import Row
from diva.experiments.spec import Job, Profile
from diva.experiments.trials import ROW, run_job

PROFILE = "profile.json"
FAILED = "failed.json"
STALE_SECONDS = 300.0
HEARTBEAT_SECONDS = 20.0

Tell = Callable[[str, Job, Any], None]  # "started", "done" or "failed"; the job; the row, or what went wrong


@dataclass(frozen=True)
class Workspace:
    """The folder of a reproduction."""

    path: Path

    def open(self, profile: Profile) -> None:
        """Make the folder, for one profile; raises ValueError if it has been used for another."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / PROFILE
        if not file.exists():
            write_atomically(file, (json.dumps({"profile": profile.name}) + "\n").encode())
        if (before := self.profile_name()) != profile.name:
            raise ValueError(
                f"{self.path} holds a reproduction with the profile {before}, not {profile.name}. Choose another folder for it."
            )

    def profile_name(self) -> str:
        """The profile it was made for; raises FileNotFoundError if it is no such folder."""
        try:
            return str(json.loads((self.path / PROFILE).read_text())["profile"])
        except FileNotFoundError:
            raise FileNotFoundError(
                2, f"{self.path} holds no reproduction. Start one: diva reproduce all --profile quick --out {self.path}"
            ) from None
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{self.path / PROFILE} is damaged. Delete it, and start again with the same profile.") from None

    def folder(self, job: Job) -> Path:
        """Where a cell lies."""
        return self.path / "cells" / job.name

    def row(self, job: Job) -> Row | None:
        """What a cell found, if it is done."""
        try:
            row: Row = json.loads((self.folder(job) / ROW).read_text())
        except FileNotFoundError:
            return None
        return row

    def state(self, job: Job) -> str:
        """One of "done", "running", "failed", "interrupted" and "waiting"."""
        folder = self.folder(job)
        if (folder / ROW).exists():
            return "done"
        if not folder.exists():
            return "waiting"
        claim = _latest_claim(folder)
        if claim is not None and not _is_stale(claim):
            return "running"
        return "failed" if (folder / FAILED).exists() else "interrupted"

    def trouble(self, job: Job) -> str:
        """Why a cell failed."""
        try:
            return str(json.loads((self.folder(job) / FAILED).read_text())["trouble"])
        except (FileNotFoundError, ValueError, KeyError):
            return ""


def run_jobs(jobs: Iterable[Job], workspace: Workspace, tell: Tell) -> None:
    """Run the cells that are neither done nor claimed by somebody else; a cell that fails does not stop the others."""
    for job in jobs:
        folder = workspace.folder(job)
        if (folder / ROW).exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        with claimed(folder) as is_mine:
            if not is_mine or (folder / ROW).exists():  # somebody else has just finished it
                continue
            tell("started", job, None)
            trouble = _run_apart(job, folder)
            if trouble:
                write_atomically(folder / FAILED, json.dumps({"trouble": trouble}).encode())
                tell("failed", job, trouble)
            else:
                (folder / FAILED).unlink(missing_ok=True)
                tell("done", job, workspace.row(job))


# --- claims


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Claim a folder; gives False, and does nothing, if somebody else has it."""
    claim = _make_claim(folder)
    if claim is None:
        yield False
        return
    ended = threading.Event()

    def touch() -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            with suppress(OSError):
                os.utime(claim)

    heart = threading.Thread(target=touch, daemon=True)
    heart.start()
    try:
        yield True
    finally:
        ended.set()
        heart.join()
        if _latest_claim(folder) == claim:
            for path in sorted(folder.glob("claim-*"), key=_number):  # the highest last, so that none counts in between
                path.unlink(missing_ok=True)


def _make_claim(folder: Path) -> Path | None:
    latest = _latest_claim(folder)
    if latest is not None and not _is_stale(latest):
        return None
    mine = folder / f"claim-{0 if latest is None else _number(latest) + 1}"
    try:
        with mine.open("x") as file:  # of several who try, one succeeds
            file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
    except FileExistsError:
        return None
    return mine


def _latest_claim(folder: Path) -> Path | None:
    return max(folder.glob("claim-*"), key=_number, default=None)


def _number(claim: Path) -> int:
    return int(claim.name.removeprefix("claim-"))


def _is_stale(claim: Path) -> bool:
    try:
        age = _now(claim.parent) - claim.stat().st_mtime
        owner = json.loads(claim.read_text())
    except FileNotFoundError:  # removed just now: free
        return True
    except ValueError:  # not written yet
        return age > STALE_SECONDS
    if owner.get("host") == socket.gethostname() and not _is_alive(int(owner.get("pid", 0))):
        return True
    return age > STALE_SECONDS


def _now(folder: Path) -> float:
    """The time of the file system, whose clock claims are stamped with."""
    probe = folder / f".now-{uuid.uuid4().hex}"
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink()


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # where asking would end it: only silence counts
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True


# --- a process for each cell


def _run_apart(job: Job, folder: Path) -> str:
    """Run a cell in a process of its own; what went wrong, or an empty text."""
    (folder / FAILED).unlink(missing_ok=True)
    process = _context().Process(target=_work, args=(job, folder))
    process.start()
    try:
        process.join()
    finally:
        if process.is_alive():  # we are being stopped
            process.kill()
            process.join()
    if (folder / ROW).exists():
        return ""
    said = ""
    with suppress(FileNotFoundError, ValueError, KeyError):
        said = str(json.loads((folder / FAILED).read_text())["trouble"])
    return said or f"the process ended with {process.exitcode}; it may have run out of memory"


def _context() -> Any:
    """Processes that are forked from one that has only imported: quick to start, and none has computed before."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["diva.experiments.trials", "torch._dynamo"])  # every optimizer imports the second
    return context


def _work(job: Job, folder: Path) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        run_job(job, folder)
    except Exception as error:  # a system may fail in any way, and the others go on
        reason = " ".join(str(error).split()) or "no reason given"
        trouble = {"trouble": f"{type(error).__name__}: {reason[:500]}", "job": asdict(job)}
        write_atomically(folder / FAILED, json.dumps(trouble).encode())
        raise SystemExit(1) from None


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
