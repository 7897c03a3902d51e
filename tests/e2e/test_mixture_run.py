"""The mixture on the command line: fit, report, predict, sample, stream and resume, as any other model."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from diva import DPMixture, load
from diva.cli import app

RNG = np.random.default_rng(0)
ROWS = np.concatenate([RNG.normal(c, 0.3, size=(100, 3)) for c in (-4.0, 0.0, 4.0)])
CLASSES = np.repeat(["a", "b", "c"], 100)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write_table(path: Path, rows=ROWS) -> Path:
    lines = ["x,y,z,species", *(f"{x},{y},{z},{c}" for (x, y, z), c in zip(rows.tolist(), CLASSES, strict=False))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mixture")
    table = write_table(folder / "table.csv")
    result = run("fit", table, "--model", "mixture", "--label-column", "species", "--out", folder / "run", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["model"], found["n_clusters"], found["laps"] > 0) == ("DPMixture", 3, True)
    assert found["metrics"]["clusters"]["acc_one_to_one"] == 1.0
    return folder / "run"


def test_the_model_is_that_of_python(finished):
    model = load(finished / "model.diva")
    assert isinstance(model, DPMixture)
    np.testing.assert_array_equal(model.labels_, DPMixture(random_state=0).fit(ROWS).labels_)
    assert json.loads((finished / "config.json").read_text())["model"] == "DPMixture"
    assert json.loads((finished / "results.json").read_text())["n_clusters"] == 3
    assert "<html" in (finished / "report.html").read_text()


def test_predict_and_sample(finished, tmp_path):
    table = write_table(tmp_path / "new.csv", ROWS[::-1])
    assert run("predict", finished, table, "--out", tmp_path / "labels.csv").exit_code == 0
    lines = (tmp_path / "labels.csv").read_text().splitlines()
    assert lines[0] == '"sample","cluster","component","probability","log_density","novel"'
    assert [int(line.split(",")[1]) for line in lines[1:]] == load(finished / "model.diva").predict(ROWS[::-1]).tolist()
    assert run("sample", finished, "-n", 4, "--cluster", 1, "--out", tmp_path / "drawn.csv").exit_code == 0
    assert (tmp_path / "drawn.csv").read_text().startswith('"cluster","x","y","z"')
    assert run("report", finished, "--out", tmp_path / "page.html").exit_code == 0


def test_a_stream_finds_what_is_new_once(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    np.save(tmp_path / "new.npy", np.concatenate([ROWS[:50], RNG.normal(12.0, 0.3, size=(100, 3))]))
    command = ("stream", tmp_path / "run", tmp_path / "new.npy", "--batch-size", 150, "--json")
    said = json.loads(run(*command).stdout)
    assert (said["new_samples"], said["n_clusters"]) == (150, 4)
    assert said["new_novel"] >= 100
    events = [json.loads(line) for line in (tmp_path / "run/stream/events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["batch", "born", "checkpoint"]
    assert events[0]["births"] >= 1
    assert json.loads(run(*command).stdout)["new_samples"] == 0
    predicted = run("predict", tmp_path / "run", tmp_path / "new.npy", "--out", tmp_path / "p.csv", "--json")
    assert json.loads(predicted.stdout)["sizes"]["3"] == 100


def test_a_run_that_ended_early_is_resumed_to_the_same_numbers(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    for name in ("model.diva", "snapshot.safetensors", "results.json", "checkpoint.safetensors"):
        (tmp_path / "run" / name).unlink()
    result = run("resume", tmp_path / "run", "--json", "--no-report")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(load(tmp_path / "run/model.diva").labels_, load(finished / "model.diva").labels_)
    assert run("resume", tmp_path / "run").exit_code == 2


def test_wishes_and_flags(finished, tmp_path):
    table = finished.parent / "table.csv"
    common = ("--columns", "x,y,z", "--no-report", "--json", "--out")
    result = run("fit", table, "--model", "mixture", "--max-clusters", 2, "--pca", 2, *common, tmp_path / "a")
    assert json.loads(result.stdout)["n_clusters"] == 2
    result = run("fit", table, "--model", "mixture", "--n-epochs", 3, *common, tmp_path / "b")
    assert result.exit_code == 2
    assert "--n-epochs is no parameter of the model mixture. Leave it out, or pass --model diva" in result.output
    result = run("fit", table, "--model", "mixtur", *common, tmp_path / "b")
    assert result.exit_code == 2
    assert "--model should be auto, diva, mixture" in result.output
    np.save(tmp_path / "gaps.npy", np.where(ROWS > 4.5, np.nan, ROWS))
    result = run("fit", tmp_path / "gaps.npy", "--model", "mixture", "--out", tmp_path / "b")
    assert result.exit_code == 1
    assert "contains NaN" in result.output
    assert not (tmp_path / "b").exists()
    np.save(tmp_path / "few.npy", ROWS[:60])
    result = run("fit", tmp_path / "few.npy", "--model", "mixture", "--n-clusters", 50, *common[2:], tmp_path / "b")
    assert "n_clusters=50 is more than" in json.loads(result.stdout)["warnings"][0]
