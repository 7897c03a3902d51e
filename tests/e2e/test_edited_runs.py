"""Folders of runs that somebody edited, and being stopped before anything has begun: one paragraph, never a stack trace."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from diva.cli import app
from diva.runs.archive import read_arrays, write_archive
from diva.runs.snapshot import KIND, SNAPSHOT
from diva.runs.summary import RESULTS

ROWS = np.concatenate([np.random.default_rng(c).normal(3 * c, 0.3, size=(20, 3)) for c in range(3)])
TINY = ["--n-epochs", "2", "--latent-dim", "2", "--hidden-sizes", "4", "--n-views", "1", "--n-laps", "1", "--no-report"]


def run(*args: Any) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="diva")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    table = "\n".join(["a,b,c,kind", *(f"{a},{b},{c},k{i // 20}" for i, (a, b, c) in enumerate(ROWS))])
    (folder / "rows.csv").write_text(table + "\n")
    assert run("fit", folder / "rows.csv", "--label-column", "kind", "--out", folder / "run", *TINY).exit_code == 0
    assert run("report", folder / "run").exit_code == 0
    return folder


@pytest.fixture
def folder(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def assert_said(result: Any) -> None:
    """It works, or ends in a message."""
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code in (0, 1, 2)


VALUES = [None, 5, -1, 1.5, "x", "", True, [], [1], ["x"], [[]], {}, {"x": 1}]
WRONG_IN_SOURCE = {
    "source": [None, 5, True, [], {}],
    "split": [None, 5, ["x"]],
    "columns": [5, 1.5, True, [1], [[]], [None]],
    "label_column": [5, [], {}],
    "labels": [5, True, ["x"]],
    "image_size": [5, ["x", "y"], [True, True], [-1, 4]],
    "key": [5, [], {"x": 1}],
    "limit": [-1, 0, 1.5, "x", True, []],
}


@pytest.mark.parametrize("name", WRONG_IN_SOURCE)
def test_a_source_that_was_edited(name, folder):
    (folder / "run/snapshot.safetensors").unlink()  # an unfinished run
    (folder / "run/model.diva").unlink()
    path = folder / "run/source.json"
    plain = json.loads(path.read_text())
    for value in WRONG_IN_SOURCE[name]:
        path.write_text(json.dumps(plain | {name: value}))
        result = run("resume", folder / "run", "--no-report")
        assert_said(result)
        assert "source.json' is damaged" in " ".join(result.stderr.split()), (value, result.output)


def test_a_source_that_is_something_else(folder):
    (folder / "run/snapshot.safetensors").unlink()
    for value in VALUES:
        (folder / "run/source.json").write_text(json.dumps(value))
        result = run("resume", folder / "run", "--no-report")
        assert_said(result)
        assert "source.json" in result.stderr


def test_a_snapshot_that_was_edited(folder):
    path = folder / "run" / SNAPSHOT
    _, document, arrays = read_arrays(path, kinds=(KIND,))
    for name, array in arrays.items():
        others = [
            {},
            *({name: other} for other in (array[:1], array[..., None], array[:0], np.array(array[0]))),
            *({name: array.astype(dtype)} for dtype in (np.float64, np.int64, np.uint8, bool)),
        ]
        others += [{name: -array - 1}] if array.dtype.kind in "fi" else []
        for other in others:
            write_archive(path, KIND, document, {n: a for n, a in arrays.items() if n != name} | other)
            assert_said(run("report", folder / "run"))


def test_results_that_were_edited(folder):
    path = folder / "run" / RESULTS
    plain = json.loads(path.read_text())
    for name in plain:
        for value in (None, 5, "x", [1], [[]], {"x": 1}):
            path.write_text(json.dumps(plain | {name: value}))
            assert_said(run("report", folder / "run"))
    for name in ("columns", "feature_names"):
        for value in VALUES:
            path.write_text(json.dumps(plain | {name: value}))
            assert_said(run("predict", folder / "run", folder / "rows.csv", "--out", folder / "p.csv"))


def test_a_report_does_not_write_through_a_link_in_the_folder(folder):
    (folder / "precious").write_text("precious")
    (folder / "run/report.html").unlink()
    (folder / "run/report.html").symlink_to(folder / "precious")
    assert run("report", folder / "run").exit_code == 0
    assert (folder / "precious").read_text() == "precious"
    assert "<html" in (folder / "run/report.html").read_text()


def test_a_link_that_was_asked_for_is_followed(folder):
    (folder / "page.html").write_text("")
    (folder / "link.html").symlink_to(folder / "page.html")
    assert run("report", folder / "run", "--out", folder / "link.html").exit_code == 0
    assert "<html" in (folder / "page.html").read_text()
    assert (folder / "link.html").is_symlink()


READ_BY = {"results.json": "report", "source.json": "resume", "config.json": "resume", "stream/stream.json": "stream"}


@pytest.mark.parametrize("end", ["a pipe", "an endless device", "too many brackets"])
@pytest.mark.parametrize("name", READ_BY)
def test_a_document_that_does_not_end(name, end, folder):
    path, command = folder / "run" / name, READ_BY[name]
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if end == "a pipe":
        os.mkfifo(path)
    elif end == "an endless device":
        path.symlink_to("/dev/zero")
    else:
        path.write_text("[" * 100_000)
    if command == "resume":
        (folder / "run/model.diva").unlink()  # it is not finished
    result = run(command, folder / "run", *([folder / "rows.csv"] if command == "stream" else []))
    assert_said(result)
    assert result.exit_code != 0
    assert path.name in result.stderr, result.output


@pytest.mark.parametrize("name", ["stream", "stream/events.jsonl", "stream/files.jsonl", "stream/model-000001.diva"])
def test_a_stream_does_not_write_through_a_link_in_the_folder(name, folder):
    precious = folder / "precious"
    precious.mkdir() if name == "stream" else precious.write_text("precious")
    (folder / "run/stream").mkdir(exist_ok=True)
    if name == "stream":
        (folder / "run/stream").rmdir()
    (folder / "run" / name).symlink_to(precious)
    result = run("stream", folder / "run", folder / "rows.csv")
    assert_said(result)
    assert precious.is_dir() or precious.read_text() == "precious"
    assert not precious.is_dir() or os.listdir(precious) == []
    assert name.endswith(".diva") == (result.exit_code == 0), result.output


def test_a_resumed_run_does_not_write_its_model_through_a_link_in_the_folder(folder):
    (folder / "run/snapshot.safetensors").unlink()
    (folder / "run/model.diva").unlink()
    (folder / "run/model.diva").symlink_to(folder / "precious")
    assert run("resume", folder / "run", "--no-report").exit_code == 0
    assert not (folder / "precious").exists()
    assert not (folder / "run/model.diva").is_symlink()


@pytest.mark.parametrize("seconds", [0.3, 0.8, 1.5])
def test_ctrl_c_while_the_command_line_is_put_together(seconds):
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "diva", "data", "list"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    assert process.stderr is not None
    for line in process.stderr:  # the first module of a command
        if "diva.version" in line or "rich" in line:
            break
    time.sleep(seconds / 10)
    process.send_signal(signal.SIGINT)
    said = process.stderr.read()
    process.wait(timeout=60)
    process.stderr.close()
    assert "Traceback" not in said
    assert process.returncode == 130
