"""Every baseline from the command line: fit, report, predict, resume, and flags of others."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from diva.baselines import BASELINES, load_baseline
from diva.cli import app
from diva.runs.load import load

CLASSES = np.arange(90) % 3
ROWS = (np.random.default_rng(0).normal(size=(90, 4)) + 8 * CLASSES[:, None]).astype(np.float32)
SMALL = {"n_clusters": 3, "n_epochs": 6, "latent_dim": 2, "hidden_sizes": 16, "n_neighbors": 10}
NEEDS_UMAP = pytest.mark.skipif(find_spec("umap") is None, reason="needs umap-learn")
pytestmark = pytest.mark.filterwarnings("ignore")  # of umap and numba


def run(*args):
    return CliRunner().invoke(app, [str(a) for a in args])


def flags(name):
    """Small sizes, for the parameters that a model has."""
    declared = load_baseline(name).declared_parameters
    given = [(f"--{n.replace('_', '-')}", value) for n, value in SMALL.items() if n in declared]
    return ["--model", name, *(part for pair in given for part in pair)]


@pytest.fixture(scope="module", params=[pytest.param(n, marks=NEEDS_UMAP if "umap" in n else ()) for n in BASELINES])
def finished(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    np.save(folder / "rows.npy", ROWS)
    np.save(folder / "classes.npy", CLASSES)
    given = ["fit", folder / "rows.npy", "--labels", folder / "classes.npy", "--out", folder / "run", *flags(request.param)]
    result = run(*given, "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["model"] == load_baseline(request.param).__name__
    assert said["n_samples"] == 90
    assert 0 < said["metrics"]["clusters"]["acc_one_to_one"] <= 1
    return folder, given


def test_what_was_fitted_predicts_and_reports(finished, tmp_path):
    folder, _ = finished
    assert run("predict", folder / "run", folder / "rows.npy", "--out", tmp_path / "p.parquet").exit_code == 0
    table = pyarrow.parquet.read_table(tmp_path / "p.parquet")
    model = load(folder / "run/model.diva")
    assert table["cluster"].to_pylist() == model.predict(ROWS).tolist() == model.labels_.tolist()
    assert run("report", folder / "run", "--out", tmp_path / "page.html").exit_code == 0
    said = " by " + type(model).__name__ if "n_clusters" in model.get_params() else "Nobody said how many there are"
    assert said in Path(tmp_path / "page.html").read_text()


def test_a_run_is_replaced_only_when_asked(finished):
    folder, given = finished
    assert run("resume", folder / "run").exit_code == 2
    assert run(*given).exit_code == 2
    before = load(folder / "run/model.diva")
    result = run(*given, "--overwrite", "--random-state", 0)
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(load(folder / "run/model.diva").labels_, before.labels_)
    assert not (folder / "run/.replaced").exists()


def test_a_run_without_its_summary_is_resumed(finished):
    folder, _ = finished
    before = load(folder / "run/model.diva")
    for name in ("model.diva", "results.json", "snapshot.safetensors"):
        (folder / "run" / name).unlink(missing_ok=True)
    result = run("resume", folder / "run")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(load(folder / "run/model.diva").predict(ROWS), before.predict(ROWS))


@pytest.mark.parametrize("name", BASELINES)
def test_flags_of_other_models_are_refused(name, tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    result = run("fit", tmp_path / "rows.npy", "--model", name, "--n-views", 2)
    assert result.exit_code == 2
    assert re.search(f"--n-views is no parameter of the model {name}", " ".join(result.stderr.split()))
