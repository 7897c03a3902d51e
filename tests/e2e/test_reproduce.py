"""`diva reproduce` as a user meets it: cells are run once, share a folder, survive a kill, and end in tables and figures."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from diva.cli import app
from diva.experiments import run
from diva.experiments.page import collect
from diva.experiments.run import Workspace
from diva.experiments.spec import EXPERIMENTS, PROFILES, cells_of, configure

SMOKE = PROFILES["smoke"]


def reproduce(*arguments):
    result = CliRunner().invoke(app, ["reproduce", *map(str, arguments)])
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def stamps(folder):
    return {path: (path.stat().st_mtime_ns, path.read_text()) for path in folder.glob("cells/*/row.json")}


def test_one_table_and_one_figure(tmp_path):
    """Two cells; started again, it repeats nothing."""
    out = tmp_path / "reproduction"
    result = reproduce("shuffle", "--profile", "smoke", "--out", out)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    assert [row["system"] for row in rows] == ["diva", "diva_unshuffled"]
    for row in rows:
        assert 0 <= row["one-to-one accuracy"] <= row["three-to-one accuracy"] <= row["majority accuracy"] <= 1
        assert (row["epochs"], len(row["curve"]), row["seed"]) == (2, 2, 1)
        assert row["curve"][-1]["majority accuracy"] == row["majority accuracy"]
        assert row["peak memory in MB"] > 50
        assert {"NMI", "ARI", "AMI", "K", "seconds", "commit", "processor", "torch", "params"} <= row.keys()
    assert (out / "figures" / "shuffle.png").stat().st_size > 5000
    assert (out / "figures" / "dp_draw.pdf").read_bytes().startswith(b"%PDF")
    page = (out / "reproduction.md").read_text()
    assert "| with | " in page
    assert "(figures/shuffle.png)" in page
    assert "data:image/png;base64," in (out / "reproduction.html").read_text()

    before = stamps(out)
    assert reproduce("shuffle", "--profile", "smoke", "--out", out).exit_code == 0
    assert stamps(out) == before
    status = reproduce("status", "--out", out).stdout
    assert "shuffle\t2\t2\t0\t0\t0\t0\t0" in status
    assert "trace\t1\t0\t0\t0\t0\t1\t0" in status
    assert (out / "reproduction.md").read_text() == page


def test_a_cell_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_run_apart", lambda job, _: "" if "unshuffled" in job.name else "ValueError: no luck")
    monkeypatch.setattr(Workspace, "row", lambda *_: None)
    said = []
    jobs = [configure(cell, SMOKE) for cell in EXPERIMENTS["shuffle"].cells(SMOKE)]
    run.run_jobs(jobs, Workspace(tmp_path), lambda event, job, found: said.append((event, job.cell.system, found)))
    assert said[1] == ("failed", "diva", "ValueError: no luck")
    assert said[3] == ("done", "diva_unshuffled", None)
    assert Workspace(tmp_path).state(jobs[0]) == "failed"
    assert Workspace(tmp_path).trouble(jobs[0]) == "ValueError: no luck"


def test_list_and_what_makes_no_sense(tmp_path):
    listed = reproduce("list").stdout
    assert all(name in listed for name in EXPERIMENTS)
    assert reproduce("table2", "--out", tmp_path).exit_code == 2
    assert reproduce("table1").exit_code == 2
    assert reproduce("table1", "--profile", "fast", "--out", tmp_path).exit_code == 2
    assert reproduce("status", "--out", tmp_path / "none").exit_code == 1


@pytest.mark.slow
def test_everything_killed_and_started_again_repeats_nothing(tmp_path):
    """All cells of the smoke profile: kill -9 in the middle, then two processes that share what is left."""
    out = tmp_path / "reproduction"
    command = [sys.executable, "-m", "diva", "reproduce", "all", "--profile", "smoke", "--out", str(out)]
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while len(stamps(out)) < 5:
        assert first.poll() is None
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    time.sleep(2)  # the cell it was at ends with it
    before = stamps(out)
    assert not (out / "rows.jsonl").exists()

    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        said = [process.communicate()[1] for process in both]
    finally:
        for process in both:
            process.kill()
            process.wait()
    assert [process.returncode for process in both] == [0, 0], said
    assert all("failed" not in text for text in said)
    after = stamps(out)
    assert {path: after[path] for path in before} == before
    jobs = [configure(cell, SMOKE) for cell in cells_of(EXPERIMENTS, SMOKE)]
    assert len(after) == len(jobs)
    ran = [sum(line.startswith("[") for line in text.splitlines()) for text in said]
    assert min(ran) > 0
    assert sum(ran) == len(jobs) - len(before)  # none was run by both

    assert reproduce("page", "--out", out).exit_code == 0
    results, folders = collect(Workspace(out), SMOKE)
    assert len(results.rows) == len(folders) == len(jobs)
    figures = {path.stem for path in (out / "figures").glob("*.png")}
    expected = {"table1", "incremental", "dynamic", "dynamic_tsne", "tsne", "moves", "trace", "shuffle", "dp_draw"}
    assert figures == expected | {f"generate_{name}" for name in ("mnist", "fashion_mnist", "cifar10", "svhn")}
    page = (out / "reproduction.md").read_text()
    assert all(f"## {experiment.title}" in page for experiment in EXPERIMENTS.values())
