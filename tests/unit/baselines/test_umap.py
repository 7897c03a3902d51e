"""UMAP and then a mixture, or HDBSCAN."""

import copy
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import diva
from diva.baselines import UMAPHDBSCAN, UMAPMixture
from diva.exceptions import ModelFileError
from diva.metrics import acc_one_to_one
from diva.runs.archive import read_archive, write_archive

from .helpers import CLASSES, gaussians

pytestmark = pytest.mark.filterwarnings("ignore")  # of umap and numba
X, NEW = gaussians(1), gaussians(2)


def assert_same(first, second):
    ours, theirs = first.assign(NEW), second.assign(NEW)  # placing samples takes seconds: all that a model says at once
    for name, value in vars(ours).items():
        np.testing.assert_array_equal(value, getattr(theirs, name), err_msg=name)


def test_without_umap_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ImportError, match=r"UMAPHDBSCAN needs the package umap-learn.*diva-clustering\[umap\]"):
        UMAPHDBSCAN().fit(X)


@pytest.fixture(scope="module", params=[UMAPMixture, UMAPHDBSCAN], ids=lambda kind: kind.__name__)
def fitted(request):
    pytest.importorskip("umap")
    return request.param(random_state=0).fit(X)


@pytest.mark.quality
def test_gaussians_are_found(fitted):
    assert abs(fitted.n_clusters_ - 10) <= 2
    assert acc_one_to_one(CLASSES, fitted.labels_) >= 0.95
    assert acc_one_to_one(CLASSES, fitted.predict(NEW)) >= 0.95


def test_answers_fit_together(fitted):
    said = fitted.assign(NEW)
    assert said.codes.shape == (len(NEW), 10)
    assert len(fitted.get_feature_names_out()) == 10
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)
    np.testing.assert_allclose(said.probabilities.sum(1), 1.0, atol=1e-5)
    assert fitted.history_[0].n_clusters == fitted.n_clusters_


def test_the_same_seed_gives_the_same_model(fitted):
    again = clone(fitted).fit(X)
    assert_same(again, fitted)


def test_a_saved_model_comes_back(fitted, tmp_path):
    fitted.save(tmp_path / "m.diva")
    loaded = diva.load(tmp_path / "m.diva")
    assert_same(loaded, fitted)
    np.testing.assert_array_equal(loaded.labels_, fitted.labels_)
    np.testing.assert_array_equal(loaded.predict(X), fitted.labels_)


BROKEN = {
    "no rows": lambda t: t.pop("umap.rows"),
    "fewer codes": lambda t: t.update({"umap.codes": t["umap.codes"][:50]}),
    "no clusters": lambda t: (t.pop("hdbscan.found", None), t.pop("mixture.past.counts", None)),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_refused(fitted, tmp_path, how):
    path, kind = tmp_path / "m.diva", type(fitted).__name__
    fitted.save(path)
    archive = read_archive(path, kinds=[kind])
    BROKEN[how](archive.tensors)
    write_archive(path, kind, archive.document, archive.tensors)
    with pytest.raises(ModelFileError, match=r"m\.diva"):
        diva.load(path)


def test_too_few_samples_are_refused():
    pytest.importorskip("umap")
    with pytest.raises(ValueError, match="at least 4 samples, got n_samples = 3"):
        UMAPMixture().fit(X[:3])


def test_few_samples_do():
    pytest.importorskip("umap")
    model = UMAPHDBSCAN(random_state=0).fit(X[:8])
    assert model.predict(NEW[:3]).shape == (3,)


def test_noise_is_novel_and_in_the_cluster_of_its_neighbours(fitted):
    if not isinstance(fitted, UMAPHDBSCAN):
        pytest.skip("a mixture knows no noise")
    model, found = copy.copy(fitted), fitted.found_.copy()
    found[::60] = -1
    model._set_found(found)
    said = model.assign(X)
    assert said.novel[::60].all()
    np.testing.assert_array_equal(said.positions, fitted.labels_)
    model._set_found(np.full(len(X), -1))
    assert set(model.assign(X).positions) == {0}


TAKES_FOR_CLASSIFIER = "it takes what has predict_proba for a classifier, and asks for as many columns as y has classes"
PLACED_TOGETHER = "UMAP places new samples together: a code depends a little on who else is placed"
REASONS = {
    "check_estimator_sparse_array": TAKES_FOR_CLASSIFIER,
    "check_estimator_sparse_matrix": TAKES_FOR_CLASSIFIER,
    "check_methods_subset_invariance": PLACED_TOGETHER,
    "check_methods_sample_order_invariance": PLACED_TOGETHER,
}


@pytest.mark.slow
@parametrize_with_checks(
    [UMAPMixture(latent_dim=2, random_state=0), UMAPHDBSCAN(latent_dim=2, random_state=0)],
    expected_failed_checks=lambda _: REASONS,
)
def test_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    pytest.importorskip("umap")
    check(estimator)
