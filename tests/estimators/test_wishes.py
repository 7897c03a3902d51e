"""Wishes about clusters, principal components, outliers: what people ask of a mixture, and of DIVA."""

import numpy as np
import pytest

from diva import DIVA, DPMixture, load
from diva.exceptions import FewerClustersWarning

RNG = np.random.default_rng(0)
CENTRES = (-4.0, -2.0, 0.0, 2.0)
BLOBS = np.concatenate([RNG.normal(c, 0.3, size=(60, 4)) for c in CENTRES])
FEW = RNG.normal(9.0, 0.2, size=(8, 4))
ROWS = np.concatenate([BLOBS, FEW])


def fitted(**wishes):
    return DPMixture(random_state=0, **wishes).fit(ROWS)


@pytest.fixture(scope="module")
def free():
    return fitted()


def test_n_clusters_is_a_cut_of_the_tree(free):
    model = fitted(n_clusters=2)
    assert model.n_components_ == free.n_components_
    assert model.n_clusters_ == 2
    assert model.predict_proba(ROWS).shape == (len(ROWS), 2)
    np.testing.assert_array_equal(model.labels_, free.predict(ROWS, level=2))
    np.testing.assert_array_equal(model.labels_, model.predict(ROWS))


def test_max_clusters_only_ever_takes_away(free):
    assert fitted(max_clusters=3).n_clusters_ == 3
    np.testing.assert_array_equal(fitted(max_clusters=50).labels_, free.labels_)


def test_more_clusters_than_components_are_said():
    with pytest.warns(FewerClustersWarning, match="n_clusters=90 is more than the 5 components"):
        assert fitted(n_clusters=90).n_clusters_ == 5


def test_small_clusters_join_their_neighbour(free):
    assert np.bincount(free.labels_).min() == len(FEW)
    model = fitted(min_cluster_size=20)
    assert np.bincount(model.labels_).min() >= 20
    assert model.n_clusters_ == free.n_clusters_ - 1
    assert len(set(model.labels_[-len(FEW) :]) | set(model.labels_[180:240])) == 1  # the blob at 2 is the nearest
    assert fitted(min_cluster_size=10**6).n_clusters_ == 1


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({"n_clusters": 2, "max_clusters": 3}, "should not be given both"),
        ({"n_clusters": 2, "grouping": None}, "cut a tree"),
        ({"n_clusters": 0}, "n_clusters should be a whole number"),
        ({"min_cluster_size": 1.5}, "min_cluster_size should be a whole number"),
        ({"pca": 5}, "pca=5 is more than 248 samples of 4 features"),
    ],
)
def test_wishes_that_make_no_sense(wishes, said):
    with pytest.raises(ValueError, match=said):
        fitted(**wishes)


def test_wishes_last_through_files_and_new_data(tmp_path):
    model = fitted(max_clusters=3)
    model.save(tmp_path / "m.diva")
    again = load(tmp_path / "m.diva")
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert again.partial_fit(RNG.normal(-20, 0.3, size=(100, 4))).n_clusters_ == 3


def test_outliers_are_nothing_on_request(tmp_path, free):
    far = np.array([[40.0] * 4, [-60.0] * 4])
    assert free.is_novel(far).all()
    assert free.is_novel(ROWS).mean() < 0.02
    np.testing.assert_array_equal(free.predict(far, reject=True), [-1, -1])
    assert (free.predict(far) >= 0).all()
    alone = np.concatenate([BLOBS, [[2.0, -2.0, 2.0, -2.0]]])
    model = DPMixture(max_components=4, reject=True, random_state=0)
    with pytest.warns(match="max_components"):
        labels = model.fit_predict(alone)
    assert labels[-1] == -1
    assert (labels[:-1] >= 0).mean() > 0.98
    np.testing.assert_array_equal(model.predict(alone), labels)
    assert (model.predict(alone, reject=False) >= 0).all()
    model.save(tmp_path / "m.diva")
    np.testing.assert_array_equal(load(tmp_path / "m.diva").labels_, labels)


def test_principal_components_of_a_mixture(tmp_path):
    wide = np.concatenate([ROWS, RNG.normal(0, 0.01, size=(len(ROWS), 3))], axis=1)
    model = DPMixture(pca=2, random_state=0).fit(wide)
    assert model.n_clusters_ == 5
    assert model.means_.shape == (model.n_components_, 7)
    assert model.covariances_.shape[1:] in ((2,), (2, 2))
    np.testing.assert_allclose(np.sort(model.means_[:, 0])[:4], CENTRES, atol=0.2)
    assert model.sample(3)[0].shape == (3, 7)
    model.save(tmp_path / "m.diva")
    again = load(tmp_path / "m.diva")
    np.testing.assert_array_equal(again.predict(wide), model.labels_)
    np.testing.assert_array_equal(again.partial_fit(wide).labels_, model.labels_)
    weighted = DPMixture(pca=2, random_state=0).fit(wide, sample_weight=np.where(np.arange(len(wide)) < 120, 1.0, 0.0))
    assert weighted.n_clusters_ == 2


def test_batches_and_files_are_fitted_as_the_array(tmp_path, free):
    np.save(tmp_path / "rows.npy", ROWS)
    np.testing.assert_array_equal(DPMixture(random_state=0).fit(tmp_path / "rows.npy").labels_, free.labels_)
    wide = DPMixture(pca=2, random_state=0).fit([ROWS[:100], ROWS[100:]])
    assert wide.n_clusters_ == free.n_clusters_


def test_what_is_said_at_once(free):
    said = free.assign(ROWS)
    np.testing.assert_array_equal(free.cluster_ids_[said.positions], free.labels_)
    np.testing.assert_array_equal(said.novel, free.is_novel(ROWS))
    np.testing.assert_allclose(said.scores, free.score_samples(ROWS))
    model = DPMixture(random_state=0).fit(BLOBS)
    said = model.partial_fit_assign(FEW)
    assert said.novel.all()  # by the model before
    assert len(said.positions) == len(FEW)


@pytest.mark.parametrize("codes", ["learnt", "features"])
def test_wishes_of_diva(codes):
    model = DIVA(codes=codes, n_clusters=2, n_epochs=3, hidden_sizes=(16,), random_state=0).fit(BLOBS)
    assert model.n_clusters_ == min(2, model.n_components_) == len(np.unique(model.labels_))
    np.testing.assert_array_equal(model.predict(BLOBS), model.labels_)
    model.partial_fit(RNG.normal(6, 0.3, size=(60, 4)))
    assert model.n_clusters_ == 2


def test_wishes_of_diva_that_make_no_sense():
    with pytest.raises(ValueError, match="cut a tree"):
        DIVA(preset="paper", n_clusters=2).fit(BLOBS)
    with pytest.raises(ValueError, match="should not be given both"):
        DIVA(max_clusters=4, n_clusters=2).fit(BLOBS)
