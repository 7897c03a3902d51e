"""What a run keeps: made from a fitted model, and read back without it."""

import shutil
import warnings
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from diva import DIVA, load
from diva.data import ArraySource, LoadedData
from diva.exceptions import ModelFileError
from diva.report import write_report
from diva.runs.archive import read_arrays, write_archive
from diva.runs.snapshot import KIND, SNAPSHOT, Snapshot
from diva.runs.summarize import summarize, summarize_old_run
from diva.runs.summary import RESULTS, Summary, read_facts

OLD_RUN = Path(__file__).parents[2] / "old_files/0.1.0.dev0/finished"


def fitted(X, **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DIVA(**{"latent_dim": 2, "n_epochs": 2, "hidden_sizes": (16,), "random_state": 0} | params).fit(X)


@pytest.fixture(scope="module")
def rows():
    classes = np.arange(90) % 3
    return (np.random.default_rng(0).standard_normal((90, 4)) * 0.3 + 4 * classes[:, None]).astype(np.float32), classes


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (40, 8, 4), dtype=np.uint8)


@pytest.fixture(scope="module")
def model(rows):
    return fitted(rows[0])


@pytest.fixture(scope="module")
def summary(rows, model):
    names = ["one", "two", "three", "four"]
    return summarize(model, LoadedData(ArraySource(rows[0]), rows[1], name="rows", feature_names=names, columns=names[:2]))


def test_a_summary_says_what_the_model_says(summary, model, rows):
    found = summary.snapshot
    assert (summary.n_samples, summary.n_features, summary.model) == (90, 4, "DIVA")
    assert summary.n_clusters == model.n_clusters_
    assert list(summary.components.ids) == model.component_ids_.tolist()
    assert sum(summary.components.sizes) == 90
    np.testing.assert_array_equal(model.cluster_ids_[found.clusters], model.labels_)
    np.testing.assert_array_equal(found.components, model.component_labels_)
    np.testing.assert_array_equal(found.codes, model.transform(rows[0]))
    np.testing.assert_array_equal(found.log_density, model.score_samples(rows[0]))
    proba = model.predict_proba(rows[0])
    np.testing.assert_array_equal(found.confidence, proba[np.arange(90), found.clusters])
    assert found.draws.shape == (10 * model.n_clusters_, 4)
    assert np.bincount(found.draw_clusters).tolist() == [10] * model.n_clusters_
    assert found.feature_errors.shape == (4,)
    assert found.table.sum() == 90
    assert summary.image is None
    assert [epoch.bound for epoch in summary.epochs] == [record.bound for record in model.history_]
    assert len(summary.lineage) == len(model.lineage_)
    assert summary.params == {"latent_dim": 2, "n_epochs": 2, "hidden_sizes": [16], "random_state": 0}
    assert set(summary.metrics) == {"clusters", "components"}


def test_a_summary_of_images_keeps_pairs_of_them(images):
    model = fitted(images)
    summary = summarize(model, LoadedData(ArraySource(images)))
    found = summary.snapshot
    assert list(summary.image.shape) == [1, 8, 4]
    assert list(summary.image.value_range) == [0.0, 255.0]
    made = model.inverse_transform(found.codes[found.reconstructed])
    np.testing.assert_array_equal(found.reconstructions, made)
    assert found.feature_errors is None
    assert summary.metrics is None


def test_both_files_come_back(summary, tmp_path):
    summary.save(tmp_path)
    again = Summary.read(tmp_path)
    first = (tmp_path / RESULTS).read_bytes()
    again.save(tmp_path)
    assert (tmp_path / RESULTS).read_bytes() == first
    for field in fields(Snapshot):
        np.testing.assert_array_equal(getattr(again.snapshot, field.name), getattr(summary.snapshot, field.name))
    assert read_facts(tmp_path)["columns"] == ["one", "two"]


def test_damage_is_refused(summary, tmp_path):
    summary.save(tmp_path)
    content = (tmp_path / RESULTS).read_text()
    for old, new in (('"schema": 1', '"schema": 9'), ('"epochs"', '"epoch"'), ('"bound"', '"band"'), ("{", "[")):
        (tmp_path / RESULTS).write_text(content.replace(old, new, 1))
        with pytest.raises(ModelFileError, match=r"results\.json.*Fit again"):
            Summary.read(tmp_path)
    (tmp_path / RESULTS).write_text(content.replace('"n_samples": 90', '"n_samples": 91'))
    with pytest.raises(ModelFileError, match="not of this run"):
        Summary.read(tmp_path)
    _, _, arrays = read_arrays(tmp_path / SNAPSHOT, kinds=(KIND,))
    for name, value in (("codes", arrays["codes"][:-1]), ("clusters", arrays["clusters"] + 99), ("more", arrays["codes"])):
        write_archive(tmp_path / SNAPSHOT, KIND, {}, arrays | {name: value})
        with pytest.raises(ModelFileError, match="not a whole snapshot"):
            Snapshot.read(tmp_path / SNAPSHOT)


def shaken(x, generator):
    return x


@pytest.mark.parametrize(("given", "used"), [("auto", "affine"), ("photo", "photo"), (None, "none"), (shaken, "own")])
def test_the_augmentation_that_was_used_is_shown(given, used, images, tmp_path):
    model = fitted(images, augmentation=given)
    summary = summarize(model, LoadedData(ArraySource(images)))
    summary.save(tmp_path)
    page = write_report(tmp_path, projection="pca").read_text(encoding="utf-8")
    came_to = page.split("What the parameters came to")[1]
    assert f'<th scope="row">augmentation</th><td>{used}</td>' in came_to
    assert summary.params.get("augmentation", "auto") == ("shaken" if used == "own" else given)


def test_an_old_run_gets_its_summary_from_its_model(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(OLD_RUN, run)
    facts = read_facts(run)
    summarize_old_run(load(run / "model.diva"), run).save(run)
    summary, model = Summary.read(run), load(run / "model.diva")
    assert (summary.source, summary.finished) == (facts["source"], facts["finished"])
    assert summary.n_clusters == model.n_clusters_
    assert summary.snapshot.draws is not None
    np.testing.assert_array_equal(model.cluster_ids_[summary.snapshot.clusters], model.labels_[summary.snapshot.index])
    assert 'id="lineage"' in write_report(run).read_text(encoding="utf-8")
