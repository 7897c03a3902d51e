"""Files that earlier versions wrote: they load, say what they said, and go on. docs/promises.md is what is promised."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
import torch
from sklearn.base import clone
from typer.testing import CliRunner

import diva
from diva.cli import app

torch.set_num_threads(1)

VERSIONS = sorted(path for path in (Path(__file__).parents[1] / "old_files").iterdir() if (path / "expected.json").exists())
MODELS = {
    "mixture.diva": "mixture.diva",
    "model.diva": "model.diva",
    "renamed.diva": "renamed.diva",
    "finished": "finished/model.diva",
    "stream": "finished/stream/model-000002.diva",
}


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def old(request, tmp_path, monkeypatch):
    """A copy of what a version wrote; the originals are never opened for writing."""
    folder = tmp_path / "old"
    shutil.copytree(request.param, folder)
    monkeypatch.chdir(folder)
    return folder


def expected_of(name):
    return json.loads(Path("expected.json").read_text())[name]


def run(*args):
    result = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="diva")
    assert result.exit_code == 0, result.output
    return result


def assert_says(model, expected):
    """Names to the letter; numbers within what another processor's rounding does to single precision."""
    X = np.load("asked.npy")
    np.testing.assert_array_equal(model.predict(X), expected["labels"])
    np.testing.assert_array_equal(model.predict(X, level="component"), expected["components"])
    np.testing.assert_allclose(model.predict_proba(X), expected["probabilities"], atol=1e-3)
    np.testing.assert_allclose(model.score_samples(X), expected["scores"], atol=1e-2)
    np.testing.assert_array_equal(model.cluster_ids_, expected["cluster_ids"])
    np.testing.assert_array_equal(model.component_ids_, expected["component_ids"])
    assert len(model.lineage_) == expected["n_moves"]


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_says_what_it_said(name):
    assert_says(diva.load(MODELS[name]), expected_of(name))


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_saved_again_in_the_form_of_today(name):
    diva.load(MODELS[name]).save("again.diva")
    assert_says(diva.load("again.diva"), expected_of(name))


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_on(name):
    model, rows = diva.load(MODELS[name]), np.load("rows.npy")
    n_moves = len(model.lineage_)
    model.partial_fit(rows[:50])
    assert len(model.labels_) == 50
    assert len(model.lineage_) >= n_moves
    assert np.isfinite(model.score_samples(rows)).all()
    assert set(model.predict(rows)) <= set(model.cluster_ids_)


@pytest.mark.usefixtures("old")
def test_networks_learn_on_without_the_old_data():
    rows = np.load("rows.npy")
    for name in ("model.diva", "finished"):  # real samples, statistics
        model = diva.load(MODELS[name]).set_params(adapt=True, further_epochs=1)
        model.partial_fit(rows[:60] + 5)
        assert model.batches_[-1].learnt
        assert np.isfinite(model.score_samples(rows)).all()


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("name", MODELS)
def test_parameters_under_their_names_of_today(name):
    """Those of an old file can be used for a new fit, whatever they were called."""
    model = clone(diva.load(MODELS[name]))
    if "n_epochs" in model.get_params():
        model.set_params(n_epochs=2, run_dir=None)
    assert model.fit(np.load("rows.npy")).n_clusters_ >= 1


# --- run folders


@pytest.mark.usefixtures("old")
def test_a_finished_run_predicts():
    run("predict", "finished", "asked.npy", "--out", "found.csv")
    assert pyarrow.csv.read_csv("found.csv")["cluster"].to_pylist() == expected_of("stream")["labels"]
    shutil.rmtree("finished/stream")
    run("predict", "finished", "asked.npy", "--out", "found.csv")
    assert pyarrow.csv.read_csv("found.csv")["cluster"].to_pylist() == expected_of("finished")["labels"]


@pytest.mark.usefixtures("old")
def test_a_finished_run_draws_and_reports():
    run("sample", "finished", "-n", 3, "--out", "drawn.npy")
    assert np.load("drawn.npy").shape == (3, 6)
    run("report", "finished")
    assert Path("finished/report.html").read_text().startswith("<!doctype html>")


@pytest.mark.usefixtures("old")
def test_a_finished_run_streams_on_where_it_stopped():
    assert run("stream", "finished", "--offset").stdout == "160\n"
    command = ["stream", "finished", "parts", "--batch-size", 80, "--other-source", "moved", "--json"]
    assert json.loads(run(*command).stdout)["new_samples"] == 0
    np.save("parts/2.npy", np.load("rows.npy")[:80])
    summary = json.loads(run(*command).stdout)
    assert (summary["new_samples"], summary["samples"]) == (80, 240)
    events = [json.loads(line) for line in Path("finished/stream/events.jsonl").read_text().splitlines()]
    assert [event["first"] for event in events if event["event"] == "batch"] == [0, 80, 160]
    run("predict", "finished", "asked.npy")


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("name", ["interrupted", "interrupted-renamed"])
def test_an_interrupted_run_is_resumed_to_its_end(name):
    before = Path(name, "history.jsonl").read_text().splitlines()
    run("resume", name, "--source", "rows.npy", "--no-report")
    after = Path(name, "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in after] == list(range(8))
    assert [json.loads(line)["loss"] for line in after[:5]] == [json.loads(line)["loss"] for line in before]
    model = diva.load(f"{name}/model.diva")
    assert len(model.history_) == 8
    assert np.isfinite(model.score_samples(np.load("asked.npy"))).all()
    run("predict", name, "asked.npy")
