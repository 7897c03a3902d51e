"""A stream that is killed again and again uses every sample once, as somebody finds who only looks at what went in and out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.faults import Disk, in_a_process
from tests.history import violations
from tests.kills.killing import Tally, round_of_kills, undisturbed_seconds
from tests.kills.scenes import SCENES, Scene

from diva.threads import one_thread


@pytest.fixture(scope="module")
def scenes(tmp_path_factory) -> dict[str, Scene]:
    return {name: scene(tmp_path_factory.mktemp(name) / name) for name, scene in SCENES.items()}


@pytest.mark.parametrize("n_kills", [12, pytest.param(150, marks=pytest.mark.slow)])
def test_killed_at_any_write(n_kills, scenes):
    chance, scene, n_died = np.random.default_rng(n_kills), scenes["stream"], 0
    with scene.begin():
        for _ in range(n_kills):
            disk = Disk(Path.cwd(), "kill", int(chance.integers(0, 30)))

            def work(disk: Disk = disk) -> int:
                with disk.mounted():
                    return scene.work()

            n_died += in_a_process(work) is None
        assert n_died > 5
        assert scene.work() == 0
        assert scene.found() == []


@pytest.mark.parametrize("name", SCENES)
def test_killed_at_any_moment(name, scenes):
    with one_thread():  # others do not live on in a fork
        seconds = undisturbed_seconds(scenes[name])
        round_of_kills(scenes[name], np.random.default_rng(0), 0.5 * seconds, 5, tally := Tally())
    assert tally.kills >= 2
    assert tally.found == []


# --- the checker finds what it should


@pytest.fixture(scope="module")
def history() -> dict[str, Any]:
    added = np.column_stack([np.ones(40), np.random.default_rng(0).normal(size=(40, 4))])
    events: list[dict[str, Any]] = []
    for i in range(4):
        events.append({"event": "batch", "batch": i + 1, "first": 10 * i, "last": 10 * i + 9, "n_samples": 10})
        events.append({"event": "checkpoint", "batch": i + 1, "samples": 10 * i + 10})
    predictions = [{"sample": i} for i in range(40)]
    before = np.arange(5.0)
    whole = {"added": added, "before": before, "after": before + added.sum(0), "events": events, "predictions": predictions}
    assert violations(**whole) == []
    return whole


BROKEN = {
    "sample 7 was lost": lambda h: {"after": h["after"] - h["added"][7]},
    "sample 7 was used twice": lambda h: {"after": h["after"] + h["added"][7]},
    "statistics grew by 40 samples": lambda h: {"after": h["after"] - h["added"][7] + h["added"][8]},
    "expected from 10 on": lambda h: {"events": h["events"][:2] + h["events"][4:]},
    "batch 5 is called 4": lambda h: {"events": h["events"] + h["events"][-2:]},
    "batches end at 30 and checkpoints at 30": lambda h: {"events": h["events"][:-2]},
    "checkpoints at 30": lambda h: {"events": h["events"][:-1]},
    r"samples \[39\] are not predicted once": lambda h: {"predictions": h["predictions"][:-1]},
    r"samples \[0\] are not predicted once": lambda h: {"predictions": h["predictions"][:1] + h["predictions"]},
    "not in order": lambda h: {"predictions": h["predictions"][::-1]},
}


@pytest.mark.parametrize("said", BROKEN)
def test_the_checker_finds(said, history):
    assert re.search(said, "; ".join(violations(**history | BROKEN[said](history))))
