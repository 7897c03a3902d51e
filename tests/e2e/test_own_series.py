"""Windows of sensors, cells and photographs as people have them, by command line and in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

import diva
from diva import DIVA
from diva.cli import app
from diva.data import cut_windows
from diva.exceptions import DataError, DataKindWarning

TINY = ["--n-epochs", "2", "--latent-dim", "2", "--hidden-sizes", "16", "--n-views", "1"]
SMALL = {"n_epochs": 2, "latent_dim": 2, "hidden_sizes": (16,), "n_views": 1, "random_state": 0}
N, STEPS, CHANNELS = 60, 32, 3


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*args: Any) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="diva")


def windows() -> np.ndarray:
    rng = np.random.default_rng(0)
    time = np.linspace(0, 2 * np.pi, STEPS)[None, :, None]
    pace = np.array([1, 3])[np.arange(N) % 2][:, None, None]
    return np.sin(pace * time + rng.uniform(0, 6, (N, 1, CHANNELS))) * [1, 10, 1000] + rng.normal(0, 0.1, (N, STEPS, CHANNELS))


def test_windows_by_command_line():
    np.save("windows.npy", windows())
    fitted = run("fit", "windows.npy", "--out", "run", "--json", *TINY)
    assert fitted.exit_code == 0, fitted.output
    said = json.loads(fitted.stdout)
    assert said["data"] == {"kind": "series", "steps": STEPS, "channels": CHANNELS}
    assert "32 steps of 3 channels" in said["warnings"][0]
    facts = json.loads(Path("run/results.json").read_text())
    assert facts["config"]["augmentation"] == "series"
    assert facts["image"] is None
    assert facts["feature_names"][CHANNELS] == "channel 0 at 1"
    assert Path("run/report.html").exists()
    assert run("predict", "run", "windows.npy", "--out", "p.csv").exit_code == 0
    assert len(pd.read_csv("p.csv")) == N
    quiet = run("fit", "windows.npy", "--kind", "series", "--out", "again", "--json", "--no-report", *TINY)
    assert json.loads(quiet.stdout)["warnings"] == []


def test_a_recording_is_cut_by_command_line():
    recording = pd.DataFrame(windows().reshape(-1, CHANNELS), columns=["x", "y", "z"])
    recording.insert(0, "step", np.arange(len(recording)))
    recording["activity"] = np.repeat(["still", "walk"], len(recording) // 2)
    recording.to_csv("recording.csv", index=False)
    asked = ["--window", STEPS, "--step", STEPS, "--kind", "series", "--label-column", "activity"]
    fitted = run("fit", "recording.csv", *asked, "--out", "run", "--json", "--no-report", *TINY)
    assert fitted.exit_code == 0, fitted.output
    assert json.loads(fitted.stdout)["n_samples"] == N
    predicted = run("predict", "run", "recording.csv", "--out", "p.csv", "--json")
    assert predicted.exit_code == 0, predicted.output
    np.testing.assert_array_equal(pd.read_csv("p.csv")["cluster"], diva.load("run/model.diva").labels_)
    assert run("fit", "recording.csv", "--step", 2, "--out", "other").exit_code == 2


def test_windows_in_python():
    X = windows()
    with pytest.warns(DataKindWarning, match="32 steps of 3 channels"):
        by_shape = DIVA(**SMALL).fit(X)
    model = DIVA(**SMALL, kind="series").fit(X)
    np.testing.assert_array_equal(model.labels_, by_shape.labels_)
    assert model.config_.augmentation == "series"
    x = model.pipeline_.scaling.to_input(X).reshape(N, STEPS, CHANNELS)
    np.testing.assert_allclose(x.std(dim=(0, 1), correction=0), 1.0, rtol=1e-5)  # channels are on one scale
    model.save("model.diva")
    again = diva.load("model.diva")
    np.testing.assert_array_equal(again.predict(X), model.labels_)
    assert again.sample(2)[0].shape == (2, STEPS, CHANNELS)
    again.partial_fit(X[:20])
    cut = DIVA(**SMALL, kind="series").fit(cut_windows(X.reshape(-1, CHANNELS), window=STEPS, step=STEPS))
    np.testing.assert_array_equal(cut.labels_, model.labels_)
    assert "channel 2 at 31" in model.report(X, "windows.html", projection="pca").read_text()
    with pytest.raises(ValueError, match="is for windows of shape"):
        DIVA(**SMALL, kind="series").fit(X[:, :, 0])
    with pytest.raises(ValueError, match="Images should have a height and width divisible by 4"):
        DIVA(**SMALL, kind="images").fit(X)


def test_recordings_that_cannot_be_cut_say_why():
    for recording, words in ((np.zeros((10, 2)), "at least 32 steps"), (np.zeros((99, 2, 2)), r"got \(99, 2, 2\)")):
        with pytest.raises(DataError, match=words):
            cut_windows(recording, window=32)
    with pytest.raises(DataError, match="at least 2 steps"):
        cut_windows(np.zeros((10, 2)), window=1)
    assert cut_windows(np.zeros(100), window=10).take(np.arange(3)).shape == (3, 10, 1)


def cells() -> Any:
    anndata = pytest.importorskip("anndata", reason="needs the extra anndata")
    rng = np.random.default_rng(0)
    kind = np.arange(N) % 2

    def names(sign: str, n: int) -> pd.Index:
        return pd.Index([f"{sign}{i}" for i in range(n)], dtype=object)  # anndata writes no text of Arrow

    types = pd.Categorical.from_codes(kind, pd.Index(["B", "T"], dtype=object))
    obs = pd.DataFrame({"cell_type": types, "donor": names("d", N).to_numpy()}, index=names("AAC-", N)).astype(
        {"donor": object}
    )
    genes = pd.DataFrame(index=names("g", 6))
    return anndata.AnnData(rng.normal(3.0 * kind[:, None], 1.0, (N, 6)).astype(np.float32), obs=obs, var=genes)


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")  # anndata asks pandas for it
def test_cells_keep_their_names():
    table = cells()
    table.write_h5ad("cells.h5ad")
    obs = table.obs
    fitted = run("fit", "cells.h5ad", "--label-column", "cell_type", "--out", "run", "--json", *TINY)
    assert fitted.exit_code == 0, fitted.output
    assert "metrics" in json.loads(fitted.stdout)
    assert "<html" in Path("run/report.html").read_text()
    assert run("predict", "run", "cells.h5ad", "--out", "p.csv").exit_code == 0
    assert pd.read_csv("p.csv")["cell"].tolist() == obs.index.tolist()
    assert run("predict", "run", "cells.h5ad", "--out", "p.csv", "--id-column", "donor").exit_code == 0
    assert pd.read_csv("p.csv")["donor"].tolist() == obs.donor.tolist()
    assert run("predict", "run", "cells.h5ad", "--out", "p.csv", "--keep-columns").exit_code == 0
    assert {"cell", "cell_type", "donor", "cluster"} <= set(pd.read_csv("p.csv"))
    wrong = run("fit", "cells.h5ad", "--label-column", "celltype", "--out", "other", *TINY)
    assert wrong.exit_code == 1
    assert "Did you mean 'cell_type'" in " ".join(wrong.stderr.split())


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")  # anndata asks pandas for it
def test_cells_in_python():
    table = cells()
    table.write_h5ad("cells.h5ad")
    model = DIVA(**SMALL).fit(table)
    np.testing.assert_array_equal(model.predict("cells.h5ad"), model.labels_)
    classes = table.obs["cell_type"].astype(str).to_numpy()
    assert "<html" in model.report(table, "cells.html", y=classes, projection="pca").read_text()


def photos() -> str:
    Path("photos").mkdir()
    rng = np.random.default_rng(0)
    for i in range(20):
        Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(f"photos/{i:02d}.png")
    return "photos"


def test_photographs_in_python():
    folder = photos()
    model = DIVA(**SMALL).fit(folder)
    assert model.config_.augmentation != "series"
    np.testing.assert_array_equal(model.predict(folder), model.labels_)
    model.save("model.diva")
    np.testing.assert_array_equal(diva.load("model.diva").predict(folder), model.labels_)
    assert "data:image" in model.report(folder, "photos.html", projection="pca").read_text()


def test_broken_images_are_skipped_if_asked_and_listed():
    photos()
    content = Path("photos/03.png").read_bytes()
    Path("photos/03.png").write_bytes(content[: len(content) // 2])  # its header is whole
    Path("photos/07.png").write_bytes(b"no image")
    refused = run("fit", "photos", "--out", "run", *TINY)
    assert refused.exit_code == 1
    assert "--skip-broken" in " ".join(refused.stderr.split())
    fitted = run("fit", "photos", "--skip-broken", "--out", "run", "--json", "--no-report", *TINY)
    assert fitted.exit_code == 0, fitted.output
    said = json.loads(fitted.stdout)
    assert said["n_samples"] == 18
    assert said["data"]["broken"] == ["03.png", "07.png"]
    predicted = run("predict", "run", "photos", "--skip-broken", "--out", "p.csv")
    assert predicted.exit_code == 0, predicted.output
    assert "2 broken images left out: 03.png, 07.png" in predicted.stdout
    assert "03.png" not in pd.read_csv("p.csv")["sample"].tolist()
