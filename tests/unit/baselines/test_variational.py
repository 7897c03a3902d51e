"""What baselines that are variational auto-encoders get from their base: data, files, runs and the scikit-learn contract."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks
from typer.testing import CliRunner

import diva
from diva.baselines import GMVAE, SBVAE, VSBDVM
from diva.cli.app import app
from diva.exceptions import ModelFileError
from diva.runs.archive import read_archive, write_archive

torch.set_num_threads(1)

DIGITS = load_digits().images[:120].astype(np.float32)
NEW = load_digits().images[200:220].astype(np.float32)
TINY = {"latent_dim": 3, "hidden_sizes": (16, 8), "n_epochs": 4, "batch_size": 32, "random_state": 0}
MODELS = {
    "GMVAE": GMVAE(**TINY, n_clusters=4, style_dim=2, prior_size=8),
    "SBVAE": SBVAE(**TINY),
    "VSBDVM": VSBDVM(**TINY, max_clusters=4, stick_size=8),
}
REASONS = {
    "check_estimator_sparse_array": "it takes what has predict_proba for a classifier",
    "check_estimator_sparse_matrix": "it takes what has predict_proba for a classifier",
    "check_clustering": "four epochs find no clusters; the tests of each baseline judge what it finds",
    "check_clustering(readonly_memmap=True)": "the same",
}


ROUNDING = ("check_methods_subset_invariance", "check_methods_sample_order_invariance")


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    return clone(MODELS[request.param]).fit(DIGITS)


@parametrize_with_checks(list(MODELS.values()), expected_failed_checks=lambda _: REASONS)
def test_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    if check.func.__name__ in ROUNDING:
        pytest.skip("a float32 network rounds rows that share a batch otherwise than rows alone, by 1e-7 on some machines")
    check(estimator)


def test_images_are_answered_about(fitted):
    proba, n_clusters = fitted.predict_proba(NEW), fitted.n_clusters_
    assert proba.shape == (20, n_clusters)
    np.testing.assert_allclose(proba.sum(1), 1)
    np.testing.assert_array_equal(fitted.predict(NEW), proba.argmax(1))
    np.testing.assert_array_equal(fitted.predict(DIGITS), fitted.labels_)
    assert fitted.transform(NEW).shape == (20, 3)
    assert fitted.reconstruct(NEW).shape == NEW.shape
    np.testing.assert_allclose(fitted.inverse_transform(fitted.transform(NEW)), fitted.reconstruct(NEW), rtol=1e-5, atol=1e-5)
    assert 0 <= fitted.reconstruct(NEW).min() <= fitted.reconstruct(NEW).max() <= 16
    np.testing.assert_array_equal(fitted.assign(NEW).codes, fitted.transform(NEW))
    assert fitted.assign(DIGITS).novel.mean() == pytest.approx(0.01, abs=0.01)


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_answered_about(name):
    rows = 100 * DIGITS.reshape(-1, 64) + 7
    model = clone(MODELS[name]).fit(rows)
    assert model.predict(rows[:5]).shape == (5,)
    assert model.reconstruct(rows).shape == rows.shape
    assert np.isfinite(model.score_samples(rows)).all()


def test_clusters_are_those_that_have_samples(fitted):
    np.testing.assert_array_equal(np.unique(fitted.labels_), range(fitted.n_clusters_))
    assert int(fitted.network_.in_use.sum()) == fitted.n_clusters_


def test_the_bound_rises_and_is_the_negative_loss(fitted):
    first, *_, last = fitted.history_
    assert last.bound > first.bound
    assert last.loss == pytest.approx(last.reconstruction + last.kl, rel=1e-5)
    assert last.bound == pytest.approx(-last.loss)


@pytest.mark.parametrize("name", MODELS)
def test_early_stopping_ends_training(name):
    model = clone(MODELS[name]).set_params(n_epochs=50, learning_rate=1e-12, early_stopping=2).fit(DIGITS)
    assert len(model.history_) < 50


def test_the_same_seed_gives_the_same_model(fitted):
    again, other = clone(fitted).fit(DIGITS), clone(fitted).set_params(random_state=1).fit(DIGITS)
    np.testing.assert_array_equal(again.transform(NEW), fitted.transform(NEW))
    np.testing.assert_array_equal(again.predict_proba(NEW), fitted.predict_proba(NEW))
    assert not np.array_equal(other.transform(NEW), fitted.transform(NEW))


def test_a_saved_model_comes_back(fitted, tmp_path):
    fitted.save(tmp_path / "model.diva")
    loaded = diva.load(tmp_path / "model.diva")
    assert type(loaded) is type(fitted)
    assert loaded.config_ == fitted.config_
    for ask in ("predict", "predict_proba", "transform", "score_samples", "reconstruct"):
        np.testing.assert_array_equal(getattr(loaded, ask)(NEW), getattr(fitted, ask)(NEW), err_msg=ask)
    np.testing.assert_array_equal(loaded.labels_, fitted.labels_)


def test_a_file_without_clusters_in_use_is_refused(fitted, tmp_path):
    path, kind = tmp_path / "model.diva", type(fitted).__name__
    fitted.save(path)
    archive = read_archive(path, kinds=[kind])
    del archive.tensors["network.in_use"]
    write_archive(path, kind, archive.document, archive.tensors)
    with pytest.raises(ModelFileError, match=r"model\.diva"):
        diva.load(path)


class StoppedError(Exception):
    pass


def stop(_, record):
    if record.epoch == 1:
        raise StoppedError


def test_a_run_that_failed_goes_on_as_if_nothing_had_been(fitted, tmp_path):
    model = clone(fitted).set_params(run_dir=tmp_path / "run")
    with pytest.raises(StoppedError):
        clone(model).set_params(callbacks=[stop]).fit(DIGITS)
    resumed = model.set_params(resume=True).fit(DIGITS)
    times = [[replace(record, seconds=0.0) for record in m.history_] for m in (resumed, fitted)]
    assert times[0] == times[1]
    for (name, value), other in zip(fitted.network_.state_dict().items(), resumed.network_.state_dict().values(), strict=True):
        assert torch.equal(value, other), name
    summary = json.loads((tmp_path / "run" / "config.json").read_text())
    assert summary["model"] == type(fitted).__name__


@pytest.mark.parametrize("name", MODELS)
def test_the_command_line_fits_and_reports(name, tmp_path):
    np.savez(tmp_path / "digits.npz", X=DIGITS)
    command = ["fit", tmp_path / "digits.npz", "--model", name.lower(), "--n-epochs", 2, "--hidden-sizes", 8]
    result = CliRunner().invoke(app, [*map(str, command), "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "run" / "results.json").read_text())["model"] == name
    assert "</html>" in (tmp_path / "run" / "report.html").read_text()


def test_callbacks_can_ask_and_leave_the_run_as_it_was(fitted):
    said = []
    model = clone(fitted).set_params(callbacks=[lambda m, _: said.append(m.predict(NEW))]).fit(DIGITS)
    np.testing.assert_array_equal(said[-1], fitted.predict(NEW))
    np.testing.assert_array_equal(model.transform(NEW), fitted.transform(NEW))


def test_a_copy_answers_alike(fitted):
    np.testing.assert_array_equal(copy.deepcopy(fitted).predict_proba(NEW), fitted.predict_proba(NEW))
