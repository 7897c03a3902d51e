"""A run's folder belongs to one command from its first look to its end, and is of use however that ends."""

from __future__ import annotations

import contextvars
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from diva.cli import app
from diva.cli._learn import SourceNote
from diva.exceptions import RunBusyError
from diva.runs.folder import LOCK, RunFolder
from diva.runs.load import load
from diva.runs.summarize import summarize

TINY = ["--n-epochs", "2", "--latent-dim", "2", "--hidden-sizes", "4", "--n-views", "1", "--n-laps", "1", "--no-report"]
FIT = ["fit", "rows.npy", "--out", "run", *TINY]
ROWS = np.concatenate([np.random.default_rng(c).normal(3 * c, 0.3, size=(20, 3)) for c in range(3)])


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", ROWS)


def run(*args: Any) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="diva")


def in_a_process(work: Callable[[], Any]) -> int:
    """Exit code of another process, a fork of this one, that does some work."""
    pid = os.fork()
    if not pid:
        try:
            code = contextvars.Context().run(work)  # what this process has locked is not lent to another
        finally:
            os._exit(code if isinstance(code, int) else 99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def from_elsewhere(*args: str) -> str:
    """What another process says on standard error to a command that fails."""

    def work() -> int:
        result = run(*args)
        Path("said.txt").write_text(result.stderr)
        return int(result.exit_code)

    assert in_a_process(work) == 1
    return Path("said.txt").read_text()


def killed(*args: str, at: tuple[Any, str] = (RunFolder, "write_checkpoint"), call: int = 0) -> None:
    """Run a command in a process that dies at a call of a function, by default where it would write its first checkpoint."""

    def work() -> None:
        function, calls = getattr(*at), iter(range(99))
        setattr(*at, lambda *given: os._exit(9) if next(calls) == call else function(*given))
        run(*args)

    assert in_a_process(work) == 9


def contents(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def answers(folder: str) -> list[Any]:
    model = load(Path(folder, "model.diva"))
    return [model.transform(ROWS).tolist(), model.labels_.tolist()]


@pytest.mark.parametrize("moment", ["SourceNote.on_step", "summarize"])  # before the first checkpoint; after the model
def test_a_second_overwrite_is_refused_and_touches_nothing(moment, monkeypatch):
    assert run(*FIT).exit_code == 0
    step = SourceNote.on_step if moment == "SourceNote.on_step" else summarize
    others: list[str] = []

    def meanwhile(*args: Any) -> Any:
        if not others:
            others.append(from_elsewhere(*FIT, "--overwrite", "--random-state", "2"))
        return step(*args)

    monkeypatch.setattr(f"diva.cli._learn.{moment}", meanwhile)
    assert run(*FIT, "--overwrite", "--random-state", 1).exit_code == 0
    assert "Another process" in others[0]
    assert json.loads(Path("run/config.json").read_text())["params"]["random_state"] == 1
    assert not Path("run/.replaced").exists()


def test_a_resumed_run_is_kept_from_others(monkeypatch):
    killed(*FIT)
    others: list[str] = []

    def meanwhile(*args: Any) -> Any:
        others.append(from_elsewhere("resume", "run", "--no-report"))
        return summarize(*args)

    monkeypatch.setattr("diva.cli._learn.summarize", meanwhile)
    assert run("resume", "run", "--no-report").exit_code == 0
    assert "Another process" in others[0]


# --- ended before the first checkpoint


@pytest.mark.parametrize("again", [FIT, ["resume", "run", "--no-report"]], ids=["fit", "resume"])
def test_a_run_killed_before_its_first_checkpoint_is_started_again(again):
    assert run(*FIT).exit_code == 0
    expected, files = answers("run"), set(os.listdir("run"))
    os.rename("run", "undisturbed")
    killed(*FIT)
    assert set(os.listdir("run")) == {LOCK, "config.json", "source.json"}
    result = run(*again)
    assert result.exit_code == 0, result.output
    assert answers("run") == expected
    assert set(os.listdir("run")) == files


def test_the_beginning_of_a_run_may_give_way_to_another():
    killed(*FIT)
    np.save("others.npy", ROWS[::2])
    assert run("fit", "others.npy", "--out", "run", *TINY).exit_code == 0
    assert json.loads(Path("run/source.json").read_text())["source"].endswith("others.npy")


def test_another_source_is_not_taken_for_that_of_a_run_which_had_not_begun():
    killed(*FIT)  # left its source
    np.save("others.npy", ROWS[::2])
    killed("fit", "others.npy", "--out", "run", *TINY, at=(SourceNote, "on_step"))  # before it says what its data are
    result = run("resume", "run")
    assert result.exit_code == 2
    assert "Start it again with `diva fit`" in " ".join(result.stderr.split())


@pytest.mark.parametrize("n_written", [0, 1])
def test_a_full_disk_says_what_works_and_it_works(n_written, monkeypatch):
    assert run(*FIT, "--out", "undisturbed").exit_code == 0
    write, calls = RunFolder.write_checkpoint, iter(range(9))

    def full(*args: Any) -> None:
        if next(calls) >= n_written:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*args)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_checkpoint", full)
        result = run(*FIT)
    assert result.exit_code == 1
    said = " ".join(result.stderr.split())
    assert ("Go on with: diva resume run" if n_written else "run the same command again") in said
    assert "The disk is full: free some space." in said
    again = run("resume", "run", "--no-report") if n_written else run(*FIT)
    assert again.exit_code == 0, again.output
    assert answers("run") == answers("undisturbed")


# --- an old run that is replaced


def test_an_old_run_comes_back_if_the_new_one_was_killed_before_it_had_begun():
    assert run(*FIT).exit_code == 0
    before = contents("run")
    killed(*FIT, "--overwrite", "--random-state", "1")
    assert not Path("run/model.diva").exists()
    assert run("predict", "run", "rows.npy").exit_code == 0
    assert contents("run") == before


def test_an_old_run_that_was_half_put_back_is_not_lost():
    assert run(*FIT).exit_code == 0
    before = contents("run")
    killed(*FIT, "--overwrite", "--random-state", "1")
    killed("predict", "run", "rows.npy", at=(Path, "replace"), call=2)
    assert run("predict", "run", "rows.npy").exit_code == 0
    assert contents("run") == before


# --- the lock


def test_a_folder_is_lent_once(tmp_path):
    folder = RunFolder(tmp_path / "a" / "b")
    with folder.locked(lend=True), folder.locked(), pytest.raises(RunBusyError), folder.locked():
        pass
    with folder.locked(), pytest.raises(RunBusyError), folder.locked():
        pass
    assert not (tmp_path / "a").exists()  # as it was found


def test_a_lock_that_was_removed_is_none(tmp_path):
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    with first.locked():
        (tmp_path / "run" / LOCK).unlink()
        with second.locked(), pytest.raises(RunBusyError), RunFolder(tmp_path / "run").locked():
            pass


def test_a_folder_of_the_user_is_left_as_it_was(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").touch()
    with RunFolder(tmp_path / "mine").locked():
        pass
    assert os.listdir(tmp_path / "mine") == ["notes"]
