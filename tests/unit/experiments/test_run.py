"""Claims on cells: one owner at a time, and a dead one is replaced."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time

import pytest

from diva.experiments import run
from diva.experiments.run import Workspace, claimed
from diva.experiments.spec import PROFILES


def test_one_owner_at_a_time(tmp_path):
    with claimed(tmp_path) as first:
        with claimed(tmp_path) as second:
            assert (first, second) == (True, False)
        with claimed(tmp_path) as third:  # the second has not taken the claim of the first away
            assert not third
    assert not list(tmp_path.iterdir())
    with claimed(tmp_path) as later:
        assert later


def claim_of(folder, number=0, **owner):
    path = folder / f"claim-{number}"
    path.write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid()} | owner))
    return path


def test_a_dead_owner_is_replaced_at_once(tmp_path):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    claim_of(tmp_path, pid=int(ended.stdout))
    with claimed(tmp_path) as mine:
        assert mine
        assert (tmp_path / "claim-1").exists()
    assert not list(tmp_path.glob("claim-*"))


def test_an_owner_elsewhere_is_replaced_when_it_has_been_silent(tmp_path):
    claim = claim_of(tmp_path, host="elsewhere")
    with claimed(tmp_path) as mine:
        assert not mine
    silent = time.time() - run.STALE_SECONDS - 60
    os.utime(claim, (silent, silent))
    with claimed(tmp_path) as mine:
        assert mine


def test_an_owner_says_that_it_lives(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "HEARTBEAT_SECONDS", 0.01)
    with claimed(tmp_path):
        claim = tmp_path / "claim-0"
        os.utime(claim, (0, 0))
        for _ in range(500):
            if claim.stat().st_mtime > 0:
                break
            time.sleep(0.01)
        assert time.time() - claim.stat().st_mtime < run.STALE_SECONDS


def _race(folder, wins, start):
    start.wait()
    with claimed(folder) as mine:
        if mine:
            wins.put(os.getpid())
            time.sleep(1)


@pytest.mark.parametrize("is_stale", [False, True])
def test_of_several_who_try_one_succeeds(tmp_path, is_stale):
    if is_stale:
        os.utime(claim_of(tmp_path, host="elsewhere"), (0, 0))
    context = multiprocessing.get_context("fork")
    wins, start = context.Queue(), context.Event()
    racers = [context.Process(target=_race, args=(tmp_path, wins, start)) for _ in range(6)]
    for racer in racers:
        racer.start()
    start.set()
    for racer in racers:
        racer.join()
    assert wins.get(timeout=5)
    assert wins.empty()


def test_a_folder_has_one_profile(tmp_path):
    workspace = Workspace(tmp_path / "new")
    workspace.open(PROFILES["smoke"])
    workspace.open(PROFILES["smoke"])
    with pytest.raises(ValueError, match="holds a reproduction with the profile smoke, not full"):
        workspace.open(PROFILES["full"])
    with pytest.raises(FileNotFoundError, match="diva reproduce all"):
        Workspace(tmp_path).profile_name()
    (tmp_path / "new" / "profile.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        workspace.profile_name()
