"""Rounds of kills: a command is started, killed at a random moment and started again until it ends by itself."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field

import numpy as np
from tests.kills.scenes import Scene


@dataclass
class Tally:
    """What was done to a command, and what was found wrong afterwards."""

    kills: int = 0
    rounds: int = 0
    found: list[str] = field(default_factory=list)


def round_of_kills(scene: Scene, chance: np.random.Generator, seconds: float, most_kills: int, tally: Tally) -> None:
    """Kill a command up to so many times, each within ``seconds`` of its start, then judge what it has come to."""
    with scene.begin():
        code, n_kills = None, 0
        while code is None:
            delay = chance.uniform(0.0, seconds) if n_kills < most_kills else None
            code = _run_for(scene, delay)
            n_kills += code is None
        tally.kills += n_kills
        tally.rounds += 1
        tally.found += [f"exit code {code}"] if code else scene.found()


def undisturbed_seconds(scene: Scene) -> float:
    """How long the command takes by itself, without what comes before and after."""
    with scene.begin():
        begun = time.monotonic()
        code = _run_for(scene, None)
        seconds = time.monotonic() - begun
        assert code == 0
        assert scene.found() == []
    return seconds


def _run_for(scene: Scene, seconds: float | None) -> int | None:
    """Start a command in a fork, and kill it after some time; its exit code if it ended before that, else None."""
    if not (pid := os.fork()):
        code = 99
        try:
            code = scene.work()
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)  # a process that has ended takes no notice
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return None if code == -signal.SIGKILL else code
