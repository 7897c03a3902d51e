"""Baselines without networks: what they find, what they get from their parents, and their files."""

import copy
import json

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

import diva
from diva.baselines import DPMM, GMM
from diva.baselines.dpmm import one_unit
from diva.exceptions import ModelFileError
from diva.metrics import acc_one_to_one
from diva.models.base import seed_of
from diva.runs.archive import read_archive, write_archive

from .helpers import CLASSES, gaussians

X, NEW = gaussians(1), gaussians(2)
DIGITS = load_digits().images[:300]
ASKED = ("predict", "predict_proba", "transform", "score_samples")
TAKES_FOR_CLASSIFIER = "it takes what has predict_proba for a classifier, and asks for as many columns as y has classes"
REASONS = {"check_estimator_sparse_array": TAKES_FOR_CLASSIFIER, "check_estimator_sparse_matrix": TAKES_FOR_CLASSIFIER}


@pytest.fixture(scope="module", params=[GMM, DPMM], ids=lambda kind: kind.__name__)
def fitted(request):
    return request.param(random_state=0).fit(X)


@parametrize_with_checks([GMM(n_clusters=3, random_state=0), DPMM(random_state=0)], expected_failed_checks=lambda _: REASONS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


# --- what they find


def test_answers_fit_together(fitted):
    said = fitted.assign(NEW)
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)
    np.testing.assert_array_equal(fitted.predict(NEW), fitted.cluster_ids_[said.probabilities.argmax(1)])
    np.testing.assert_allclose(said.probabilities.sum(1), 1.0, atol=1e-5)
    assert fitted.transform(NEW).shape == (len(NEW), 50)
    assert len(fitted.get_feature_names_out()) == 50
    assert fitted.assign(X + 100).novel.all()
    assert said.novel.mean() < 0.1
    (record,) = fitted.history_
    assert (record.phase, record.n_clusters) == ("fit", fitted.n_clusters_)
    assert record.bound == -record.loss == pytest.approx(fitted.score(X))
    assert not hasattr(fitted, "inverse_transform")


def test_the_mixture_is_that_of_scikit_learn():
    model = GMM(n_clusters=4, random_state=0).fit(X)
    rows = model.transform(X).astype(np.float64)
    literal = GaussianMixture(4, covariance_type="diag", max_iter=100, random_state=seed_of(0)).fit(rows)
    np.testing.assert_allclose(model.predict_proba(X), literal.predict_proba(rows), atol=1e-9)
    assert model.n_iter_ == literal.n_iter_


def test_the_prior_of_the_process_has_one_unit_for_all_features():
    rows = (gaussians(3) * np.logspace(-2, 0, 50)).astype(np.float32)
    standardization = one_unit(rows)
    assert len(torch.unique(standardization.scale)) == 1
    assert float(standardization.scale[0]) == pytest.approx(np.sqrt(rows.var(axis=0).mean()), rel=1e-5)
    model = DPMM(random_state=0).fit(rows)
    family = model.mixture_.state.family
    assert family.nu0 == 3
    assert len(torch.unique(family.beta0)) == 1
    assert model.mixture_.hierarchy is None


def test_the_prior_of_a_pixel_is_worth_few_images():
    model, heavy = (DPMM(degrees_of_freedom=freedom, random_state=0).fit(DIGITS) for freedom in (None, 66.0))
    assert heavy.n_clusters_ == 1  # each of 64 pixels has a prior worth 66 images
    assert model.n_clusters_ > 3
    assert DPMM(covariance_type="full", random_state=0).fit(X[:, :3]).mixture_.state.family.nu0 == 5


def test_images_are_flattened(fitted):
    model = clone(fitted).fit(DIGITS)
    assert model.transform(DIGITS[:3]).shape == (3, 64)
    np.testing.assert_array_equal(model.predict(DIGITS), model.labels_)


def test_the_same_seed_gives_the_same_model(fitted):
    again = clone(fitted).fit(X)
    for ask in ASKED:
        np.testing.assert_array_equal(getattr(again, ask)(NEW), getattr(fitted, ask)(NEW), err_msg=ask)


def test_held_out_samples_are_scored_and_not_learnt_from(fitted):
    model = clone(fitted).fit(X, validation=NEW)
    assert model.history_[0].validation_bound == pytest.approx(fitted.score(NEW))
    assert model.history_[0].bound == fitted.history_[0].bound


# --- going on


def test_the_process_goes_on_with_more_classes():
    first, later = CLASSES < 7, CLASSES >= 7
    model = DPMM(random_state=0).partial_fit(X[first])
    ids, before = model.cluster_ids_, model.predict(NEW[first])
    model.partial_fit(X[later])
    assert 10 <= model.n_clusters_ <= 12
    assert set(ids) < set(model.cluster_ids_)
    assert (model.predict(NEW[first]) == before).mean() > 0.99
    assert acc_one_to_one(CLASSES, model.predict(NEW)) >= 0.95
    np.testing.assert_array_equal(model.predict(X[later]), model.labels_)
    assert set(model.labels_).isdisjoint(ids)


def test_a_process_that_went_on_comes_back_from_its_file(tmp_path):
    model = DPMM(random_state=0).fit(X[CLASSES < 7]).partial_fit(X[CLASSES >= 7])
    model.save(tmp_path / "m.diva")
    loaded = diva.load(tmp_path / "m.diva")
    np.testing.assert_array_equal(loaded.labels_, model.labels_)
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))


# --- parameters, files, runs


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (GMM(n_clusters=0), "n_clusters should be a whole number"),
        (GMM(n_clusters=1000), "n_clusters=1000 needs as many samples, got 600"),
        (GMM(covariance_type="round"), "covariance_type should be one of"),
        (DPMM(covariance_scale=-1), "covariance_scale"),
        (DPMM(resume=True), "resume=True needs a run_dir"),
    ],
    ids=str,
)
def test_parameters_that_make_no_sense_are_named(model, said):
    with pytest.raises(ValueError, match=said):
        model.fit(X)
    assert not hasattr(model, "pipeline_")


@pytest.mark.parametrize("covariance_type", ["full", "tied", "spherical"])
def test_other_shapes_come_back_from_their_files(covariance_type, tmp_path):
    model = GMM(n_clusters=3, covariance_type=covariance_type, random_state=0).fit(X[:, :4])
    model.save(tmp_path / "m.diva")
    np.testing.assert_array_equal(diva.load(tmp_path / "m.diva").predict_proba(NEW[:, :4]), model.predict_proba(NEW[:, :4]))


def test_a_saved_model_comes_back(fitted, tmp_path):
    fitted.save(tmp_path / "m.diva")
    loaded = diva.load(tmp_path / "m.diva")
    assert type(loaded) is type(fitted)
    assert loaded.get_params() == fitted.get_params()
    assert (loaded.config_, loaded.history_) == (fitted.config_, fitted.history_)
    for ask in ASKED:
        np.testing.assert_array_equal(getattr(loaded, ask)(NEW), getattr(fitted, ask)(NEW), err_msg=ask)
    np.testing.assert_array_equal(loaded.labels_, fitted.labels_)
    np.testing.assert_array_equal(loaded.assign(NEW).novel, fitted.assign(NEW).novel)


BROKEN = {
    "no labels": lambda d, t: t.pop("labels"),
    "labels of clusters that do not exist": lambda d, t: t.update(labels=t["labels"] + 100),
    "no threshold": lambda d, t: d.pop("novelty_threshold"),
    "no means": lambda d, t: (t.pop("gmm.means_", None), t.pop("mixture.past.sum_z", None)),
    "other features": lambda d, t: t.update({n: v[..., :3] for n, v in t.items() if n.startswith(("gmm.", "mixture.frame"))}),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_refused(fitted, tmp_path, how):
    path, kind = tmp_path / "m.diva", type(fitted).__name__
    fitted.save(path)
    archive = read_archive(path, kinds=[kind])
    BROKEN[how](archive.document, archive.tensors)
    write_archive(path, kind, archive.document, archive.tensors)
    with pytest.raises(ModelFileError, match=r"m\.diva"):
        diva.load(path)


def test_a_run_keeps_model_history_and_parameters(fitted, tmp_path):
    seen = []
    model = clone(fitted).set_params(run_dir=tmp_path / "run", callbacks=[lambda m, r: seen.append((m.n_clusters_, r.phase))])
    model.fit(X)
    assert seen == [(model.n_clusters_, "fit")]
    assert json.loads((tmp_path / "run/config.json").read_text())["model"] == type(fitted).__name__
    assert len((tmp_path / "run/history.jsonl").read_text().splitlines()) == 1
    np.testing.assert_array_equal(diva.load(tmp_path / "run/model.diva").predict(NEW), fitted.predict(NEW))
    with pytest.raises(FileExistsError, match="already holds a run"):
        copy.copy(model).fit(X)
    again = clone(model).set_params(resume=True).fit(X)
    np.testing.assert_array_equal(again.labels_, fitted.labels_)
    with pytest.raises(ValueError, match="other data"):
        clone(model).set_params(resume=True).fit(X[:500])
