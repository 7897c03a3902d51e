"""``diva stream``: killed at any moment and started again, it ends where an undisturbed one ends."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import diva
from diva.cli import _runs as runs
from diva.cli import app
from diva.models import base
from diva.runs.archive import read_archive
from diva.runs.folder import RunFolder
from diva.runs.stream_log import read_commit

torch.set_num_threads(1)

TINY = ["--codes", "learnt", "--n-epochs", "2", "--latent-dim", "2", "--hidden-sizes", "16", "--n-views", "1", "--no-report"]
DIGITS = load_digits()
KNOWN = DIGITS.data[DIGITS.target < 5][:200].astype(np.float32)
LATER = DIGITS.data[DIGITS.target >= 3][:190].astype(np.float32)
BATCHES = ["--batch-size", "20"]  # 9 of them and a rest of 10
ANSWER = {"sample", "cluster", "probability", "novel"}

HERE = str(Path(__file__).parent)
SCRIPT = """
import json, os, sys
import torch
sys.path.insert(0, sys.argv[1])
from sudden_death import die_at
torch.set_num_threads(1)
from diva.cli import app
import diva.cli.fit, diva.cli.stream  # else every child imports them anew

for line in sys.stdin:
    arguments, die = json.loads(line)
    pid = os.fork()
    if not pid:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if die:
            die_at(*die)
        app(arguments, prog_name="diva")
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Nursery:
    """A process that has imported everything and forks a child for every command: faster than new processes."""

    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, HERE],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()

    def start(self, *arguments, die=None):
        """Begin a command in a process of its own; returns its id."""
        print(json.dumps([[str(a) for a in arguments], die]), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def end(self):
        """Wait for it to end; returns its exit code."""
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A run that was fitted once, to be copied."""
    folder = tmp_path_factory.mktemp("fitted")
    np.save(folder / "known.npy", KNOWN)
    assert run("fit", folder / "known.npy", "--out", folder / "run", *TINY).exit_code == 0
    return folder / "run"


@pytest.fixture(scope="module")
def undisturbed(fitted, tmp_path_factory, nursery):
    """The stream from beginning to end."""
    folder = tmp_path_factory.mktemp("undisturbed")
    make(folder, fitted)
    nursery.start(*command(folder))
    assert nursery.end() == 0
    return folder


@pytest.fixture
def place(fitted, tmp_path, monkeypatch):
    """A folder with a run and files to stream."""
    make(tmp_path, fitted)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(folder, fitted):
    shutil.copytree(fitted, folder / "run")
    (folder / "incoming").mkdir()
    for number, part in enumerate(np.split(LATER, [15, 17, 90])):
        np.save(folder / "incoming" / f"part-{number}.npy", part)


def command(folder):
    return ["stream", folder / "run", folder / "incoming", *BATCHES, "--predictions", folder / "answers.jsonl"]


def run(*args: Any, **options: Any) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="diva", **options)


def said(result: Any) -> str:
    return " ".join(result.stderr.replace("│", " ").split())


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(folder: Path, kind: str = "batch") -> list[dict[str, Any]]:
    return [event for event in lines(folder / "events.jsonl") if event["event"] == kind]


def without_seconds(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: without_seconds(value) for key, value in plain.items() if not key.endswith("seconds")}
    return [without_seconds(value) for value in plain] if isinstance(plain, list) else plain


def assert_same_end(folder: Path, other: Path) -> None:
    """Events and answers are the same byte for byte, the models in everything but times."""
    assert (folder / "run/stream/events.jsonl").read_bytes() == (other / "run/stream/events.jsonl").read_bytes()
    assert (folder / "run/stream/files.jsonl").read_bytes() == (other / "run/stream/files.jsonl").read_bytes()
    assert (folder / "answers.jsonl").read_bytes() == (other / "answers.jsonl").read_bytes()
    one, two = (read_archive(runs.newest_model(place / "run"), kinds=("DIVA",)) for place in (folder, other))
    assert without_seconds(one.document) == without_seconds(two.document)
    assert one.tensors.keys() == two.tensors.keys()
    assert all(torch.equal(one.tensors[name], two.tensors[name]) for name in one.tensors)
    assert sorted(os.listdir(folder / "run/stream")) == sorted(os.listdir(other / "run/stream"))


# --- exactly once


def test_every_sample_is_used_once(undisturbed):
    folder = undisturbed / "run/stream"
    batches = events(folder)
    assert [(event["first"], event["last"]) for event in batches] == [(i, min(i + 19, 189)) for i in range(0, 190, 20)]
    assert sum(event["n_samples"] for event in batches) == len(LATER)
    assert [event["offset"]["samples"] for event in events(folder, "checkpoint")] == [*range(20, 190, 20), 190]
    answers = lines(undisturbed / "answers.jsonl")
    assert [answer["sample"] for answer in answers] == list(range(190))
    assert all(answer.keys() == ANSWER and 0 < answer["probability"] <= 1 for answer in answers)
    assert not re.search("second|time", (folder / "events.jsonl").read_text())
    assert sorted(os.listdir(folder)) == ["events.jsonl", "files.jsonl", "model-000010.diva", "stream.json"]


def test_killed_at_every_write(place, undisturbed, nursery):
    deaths = [("sync", n) for n in (*range(1, 14), 6, 6)] + [(how, n) for n in (1, 2, 3, 4) for how in ("before", "after")]
    for death in deaths:
        nursery.start(*command(place), die=death)
        assert nursery.end() == -signal.SIGKILL, death
    assert run(*command(place)).exit_code == 0
    assert_same_end(place, undisturbed)


def test_killed_at_random_moments(place, undisturbed, nursery):
    chance, log = random.Random(0), place / "run/stream/events.jsonl"
    killed = 0
    for _ in range(12):  # a thousand: `make kills`
        before = log.stat().st_size if log.exists() else 0
        pid = nursery.start(*command(place))
        for _ in range(2000):  # until it works, then a little
            if log.exists() and log.stat().st_size != before:
                break
            time.sleep(0.002)
        time.sleep(chance.random() * 0.1)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if nursery.end() == 0:
            break
        killed += 1
    assert killed >= 2
    assert run(*command(place)).exit_code == 0
    assert_same_end(place, undisturbed)


def test_killed_while_the_networks_learn(tmp_path, nursery):
    np.save(tmp_path / "known.npy", KNOWN)
    learning = ["--adapt", "true", "--further-epochs", "1"]  # in every batch
    assert run("fit", tmp_path / "known.npy", "--out", tmp_path / "run", *TINY, *learning).exit_code == 0
    one, other = tmp_path / "one", tmp_path / "other"
    for place in (one, other):
        make(place, tmp_path / "run")
    assert run(*command(one), "--batch-size", "40").exit_code == 0
    assert all(event["learnt"] for event in events(one / "run/stream"))
    for death in (("sync", 3), ("after", 3), ("sync", 8), ("before", 4), ("after", 2)):
        nursery.start(*command(other), "--batch-size", "40", die=death)
        assert nursery.end() == -signal.SIGKILL
    assert run(*command(other), "--batch-size", "40").exit_code == 0
    assert_same_end(one, other)


def test_started_again_it_finds_nothing_to_do(place, undisturbed):
    for _ in range(2):
        result = run(*command(place), "--json")
        assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["new_samples"] == 0
    assert_same_end(place, undisturbed)


def test_files_that_come_later_are_the_same_stream(place, undisturbed):
    names = sorted(os.listdir(place / "incoming"))
    (place / "aside").mkdir()
    for name in names[2:]:
        (place / "incoming" / name).rename(place / "aside" / name)
    (place / "incoming" / "part-2.npy.tmp").write_bytes(b"half")
    follow = subprocess.Popen(
        [sys.executable, "-m", "diva", *map(str, command(place)), "--follow", "--poll", "0.05", "--idle-timeout", "3"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    for name in names[2:]:
        time.sleep(0.5)
        (place / "aside" / name).rename(place / "incoming" / name)
    assert follow.wait(timeout=120) == 0
    assert_same_end(place, undisturbed)


def test_ctrl_c_stops_and_says_how_to_go_on(place, undisturbed):
    process = subprocess.Popen(
        [sys.executable, "-m", "diva", *map(str, command(place)), "--follow"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and json.loads(run("stream", "run", "--offset").stdout) < 180:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130, message
    assert "Stopped after 180 samples. Start the same command again" in " ".join(message.split())
    assert run(*command(place)).exit_code == 0
    assert_same_end(place, undisturbed)


def test_fewer_checkpoints_give_the_same_model(place, undisturbed):
    assert run(*command(place), "--checkpoint-every", 4).exit_code == 0
    assert [event["batch"] for event in events(Path("run/stream"), "checkpoint")] == [4, 8, 10]
    assert Path("answers.jsonl").read_bytes() == (undisturbed / "answers.jsonl").read_bytes()


@pytest.mark.parametrize("options", [[], ["--predict-only"]])
@pytest.mark.parametrize("answers", [[], ["--predictions", "answers.jsonl"]])
def test_a_batch_is_encoded_once(place, monkeypatch, options, answers):
    encoded, encode = [], base.encode

    def counted(network: Any, samples: Any, *others: Any) -> Any:
        encoded.append(len(samples))
        return encode(network, samples, *others)

    monkeypatch.setattr(base, "encode", counted)
    assert run("stream", "run", "incoming", *BATCHES, *options, *answers).exit_code == 0
    assert not any(event.get("learnt") for event in events(Path("run/stream-predictions" if options else "run/stream")))
    assert encoded == [20] * 9 + [10]


# --- lines


def sent(samples: Any) -> bytes:
    return "".join(json.dumps(sample.tolist()) + "\n" for sample in samples).encode()


def test_lines_on_standard_input(place):
    assert run("stream", "run", "-", *BATCHES, input=sent(LATER[:50])).exit_code == 0
    assert run("stream", "run", "--offset").stdout == "50\n"
    assert run("stream", "run", "-", *BATCHES, input=sent(LATER[:70])).exit_code == 0
    assert run("stream", "run", "-", *BATCHES, "--from-offset", input=sent(LATER[70:100])).exit_code == 0
    assert run("stream", "run", "-", *BATCHES, input=sent(LATER[:110])).exit_code == 0
    assert [event["n_samples"] for event in events(Path("run/stream"))] == [20, 20, 10, 20, 20, 10, 10]
    state = json.loads(run("stream", "run", "--offset", "--json").stdout)
    assert (state["samples"], state["offset"]["samples"], state["source"]) == (110, 110, "-")


def test_lines_that_cannot_be_used(place):
    result = run("stream", "run", "-", *BATCHES, input=sent(LATER[:30]) + b"[1, 2\n")
    assert result.exit_code == 1
    assert "line 31" in said(result)
    assert run("stream", "run", "--offset").stdout == "20\n"  # the batch before it counts
    result = run("stream", "run", "-", *BATCHES, input=sent(LATER[5:60]))
    assert result.exit_code == 1
    assert "--from-offset" in said(result)
    assert run("stream", "run", "-", *BATCHES, input=sent(LATER[:40])).exit_code == 0
    assert run("stream", "run", "--offset").stdout == "40\n"


def test_fields_are_taken_by_the_names_of_the_columns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(KNOWN[:, 18:22], columns=["a", "b", "c", "d"]).assign(species="k")
    table.to_csv("table.csv", index=False)
    assert run("fit", "table.csv", "--label-column", "species", "--out", "run", *TINY).exit_code == 0
    mixed = table[["c", "species", "a", "d", "b"]]
    text = mixed.to_json(orient="records", lines=True)
    result = run("stream", "run", "-", "--predict-only", "--predictions", "lines.jsonl", input=text)
    assert result.exit_code == 0, result.output
    mixed.to_csv("mixed.csv", index=False)
    result = run("stream", "run", "mixed.csv", "--other-source", "new", "--predict-only", "--predictions", "rows.jsonl")
    assert result.exit_code == 0, result.output
    one, other = ([line["cluster"] for line in lines(Path(name))] for name in ("lines.jsonl", "rows.jsonl"))
    assert one == other == diva.load("run/model.diva").predict(KNOWN[:, 18:22]).tolist()
    result = run("stream", "run", "-", "--other-source", "new", input=b'{"a": 1, "b": 2, "d": 3}\n')
    assert result.exit_code == 1
    assert "field 'c' in line 1" in said(result)


# --- only predicting, and what others see of a stream


def test_only_predicting_leaves_the_model(place):
    before = Path("run/model.diva").read_bytes()
    arguments = ["stream", "run", "incoming", *BATCHES, "--predict-only", "--predictions", "answers.jsonl"]
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["samples"], summary["batches"]) == (190, 10)
    assert sorted(os.listdir("run/stream-predictions")) == ["events.jsonl", "files.jsonl", "stream.json"]
    assert not Path("run/stream").exists()
    assert Path("run/model.diva").read_bytes() == before
    model = diva.load("run/model.diva")
    answers = lines(Path("answers.jsonl"))
    assert [answer["cluster"] for answer in answers] == model.predict(LATER).tolist()
    assert [answer["novel"] for answer in answers] == model.is_novel(LATER).tolist()
    assert json.loads(run(*arguments, "--json").stdout)["new_samples"] == 0
    assert run("stream", "run", "--offset", "--predict-only").stdout == "190\n"
    assert run("stream", "run", "--offset").stdout == "0\n"
    assert run("stream", "run", "incoming").exit_code == 0  # learning has an offset of its own
    assert run("stream", "run", "--offset").stdout == "190\n"


def test_other_commands_use_the_newest_model(place, monkeypatch):
    assert runs.newest_model(Path("run")) == Path("run/model.diva")
    assert run(*command(place)).exit_code == 0
    assert runs.newest_model(Path("run")) == Path("run/stream/model-000010.diva")
    streamed = runs.open_model(Path("run"))
    np.testing.assert_array_equal(streamed.transform(LATER), diva.load("run/stream/model-000010.diva").transform(LATER))
    assert run("predict", "run", "incoming/part-0.npy", "--out", "p.csv").exit_code == 0
    assert run("report", "run").exit_code == 0  # about the fit

    names = iter(Path(f"run/stream/model-{number:06d}.diva") for number in (9, 10, 10))
    monkeypatch.setattr(runs, "newest_model", lambda _: next(names))  # replaced between looking and loading
    assert runs.open_model(Path("run")).n_clusters_ == streamed.n_clusters_


def test_a_new_run_in_the_folder_has_no_stream(place):
    assert run(*command(place)).exit_code == 0
    np.save("known.npy", KNOWN)
    assert run("fit", "known.npy", "--out", "run", "--overwrite", *TINY).exit_code == 0
    assert not Path("run/stream").exists()
    assert run("stream", "run", "--offset").stdout == "0\n"


def test_another_source(place):
    assert run("stream", "run", "incoming", *BATCHES).exit_code == 0
    Path("incoming").rename("moved")
    np.save("moved/part-9.npy", LATER[:40])
    result = run("stream", "run", "moved", *BATCHES)
    assert result.exit_code == 2
    assert "--other-source moved" in said(result)
    assert json.loads(run("stream", "run", "moved", *BATCHES, "--other-source", "moved", "--json").stdout)["new_samples"] == 40
    np.save("one.npy", LATER[:50])
    summary = json.loads(run("stream", "run", "one.npy", *BATCHES, "--other-source", "new", "--json").stdout)
    assert (summary["samples"], summary["offset"]) == (280, {"samples": 50})
    assert [event["first"] for event in events(Path("run/stream"))][-3:] == [230, 250, 270]
    for again in ([], ["--other-source", "new"]):  # the same command goes on as well
        assert json.loads(run("stream", "run", "one.npy", *BATCHES, *again, "--json").stdout)["new_samples"] == 0


# --- what goes wrong


def damaged(text: str) -> Any:
    def make() -> None:
        assert run("stream", "run", "incoming", *BATCHES).exit_code == 0
        path = Path("run/stream/stream.json")
        path.write_text(text or path.read_text()[:50])

    return make


def nothing() -> None:
    pass


def streamed() -> None:
    assert run("stream", "run", "incoming", *BATCHES, "--predictions", "a.jsonl").exit_code == 0


def cut(name: str) -> Any:
    def make() -> None:
        streamed()
        os.truncate(name, 10)

    return make


def lost_model() -> None:
    streamed()
    Path("run/stream/model-000010.diva").unlink()


def too_late() -> None:
    streamed()
    np.save("incoming/part-1b.npy", LATER)


def not_numbers() -> None:
    np.save("incoming/part-9.npy", np.full((2, 64), np.nan, dtype=np.float32))


PLAIN = ["stream", "run", "incoming"]
BAD = {
    "no source": (nothing, ["stream", "run"], 2, "Expected a SOURCE"),
    "no run": (nothing, ["stream", "nothing", "incoming"], 2, "does not exist"),
    "a file as run": (nothing, ["stream", "run/model.diva", "incoming"], 2, "is a file"),
    "an empty folder as run": (nothing, ["stream", "incoming", "incoming"], 2, "holds no run"),
    "no such source": (nothing, ["stream", "run", "nowhere"], 2, "no file or folder"),
    "batches of nothing": (nothing, [*PLAIN, "--batch-size", "0"], 2, "batch-size"),
    "timeout without following": (nothing, [*PLAIN, "--idle-timeout", "1"], 2, "--follow"),
    "following standard input": (nothing, ["stream", "run", "-", "--follow"], 2, "Leave --follow out"),
    "files from an offset": (nothing, [*PLAIN, "--from-offset"], 2, "--from-offset is for lines"),
    "an odd kind of source": (nothing, [*PLAIN, "--other-source", "odd"], 2, "new or moved"),
    "moved standard input": (nothing, ["stream", "run", "-", "--other-source", "moved"], 2, "Only files"),
    "strange predictions": (nothing, [*PLAIN, "--predictions", "p.csv"], 2, r"\.jsonl"),
    "predictions nowhere": (nothing, [*PLAIN, "--predictions", "no/p.jsonl"], 2, "folder does not exist"),
    "predictions of others": (lambda: Path("p.jsonl").touch(), [*PLAIN, "--predictions", "p.jsonl"], 2, "exists"),
    "state cut short": (damaged(""), PLAIN, 1, r"stream\.json' is damaged .* begin anew"),
    "state of text": (damaged("no json"), PLAIN, 1, r"stream\.json' is damaged"),
    "state of a list": (damaged("[]"), PLAIN, 1, r"stream\.json' is damaged"),
    "state of another version": (damaged('{"schema": 99}'), PLAIN, 1, "another version"),
    "state of nonsense": (damaged('{"schema": 1, "source": "-", "offset": {}, "batches": -1}'), PLAIN, 1, "whole numbers"),
    "state that leads away": (damaged('{"schema": 1, "source": "-", "offset": {}, "model": "../m"}'), PLAIN, 1, "no model"),
    "predict with a damaged state": (damaged("no json"), ["predict", "run", "incoming/part-0.npy"], 1, "damaged"),
    "events cut short": (cut("run/stream/events.jsonl"), [*PLAIN, "--predictions", "a.jsonl"], 1, "events.jsonl' was changed"),
    "predictions cut short": (cut("a.jsonl"), [*PLAIN, "--predictions", "a.jsonl"], 1, "a.jsonl' was changed"),
    "model lost": (lost_model, PLAIN, 1, "no file '.*model-000010"),
    "file that comes too late": (too_late, PLAIN, 1, "part-1b.npy sorts before part-3.npy"),
    "not numbers": (not_numbers, [*PLAIN, "--batch-size", "500"], 1, r"part-9\.npy, got NaN"),
    "other features": (lambda: np.save("b.npy", LATER[:, :3]), ["stream", "run", "b.npy"], 1, r"shape \(64,\), got \(3,\)"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_in_a_paragraph(case, place):
    prepare, arguments, code, expected = BAD[case]
    prepare()
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert re.search(expected, said(result)), said(result)
    assert len(said(result)) < 900


def test_two_streams_at_once(place):
    with RunFolder(Path("run")).locked():
        result = run(*PLAIN)
    assert result.exit_code == 1
    assert "Another process" in said(result)


def test_a_batch_that_fails_says_which(place):
    np.save("far.npy", np.concatenate([LATER[:20], np.full((20, 64), 1e31, dtype=np.float32)]))
    result = run("stream", "run", "far.npy", *BATCHES)
    assert result.exit_code == 1
    assert "Batch 2 of the stream, samples 20 to 39" in said(result)
    assert read_commit(Path("run/stream")).samples == 20
