import numpy as np
import pytest
from scipy.cluster.hierarchy import is_valid_linkage
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

import diva
from diva import DPMixture
from diva.mixture.fitting import fit_within_clusters, joined_without_valley, start_on
from diva.mixture.options import MixtureOptions
from diva.partition.walk import Walk, neighbour_walk

BOTH = pytest.mark.parametrize("covariance_type", ["diag", "full"])
CENTERS = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 6.0], [0.0, -6.0]])
SIZES = (60, 60, 80, 40)
KINDS = np.array([1, 1, 2, 0])  # the first two blobs are one cluster


def blobs():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, 0.4, (n, 2)) for c, n in zip(CENTERS, SIZES, strict=True)])
    order = rng.permutation(len(X))
    return X[order], np.repeat(KINDS, SIZES)[order]


def fitted(covariance_type="full", **params):
    X, labels = blobs()
    return DPMixture(covariance_type=covariance_type, random_state=0, **params).fit_clusters(X, labels), X, labels


def walk_of(model, X):
    return neighbour_walk(X, model.predict_proba(X, level="component"))


def assert_valid(model, X):
    """Everything a fitted mixture says about itself fits together."""
    tree = model.hierarchy_
    assert tree.n_components == model.n_components_ == len(model.means_) == len(model.weights_) == len(model.component_ids_)
    assert tree.n_groups == model.n_clusters_
    np.testing.assert_array_equal(tree.cut(model.n_clusters_), tree.labels)
    assert len(set(model.component_ids_.tolist())) == model.n_components_
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.predict(X, level="component"), model.component_labels_)
    np.testing.assert_array_equal(model.cluster_ids_[tree.labels[model.component_labels_]], model.labels_)
    proba = model.predict_proba(X)
    assert proba.shape == (len(X), model.n_clusters_)
    np.testing.assert_allclose(proba.sum(1), 1.0)
    fine = model.predict_proba(X, level="component")
    np.testing.assert_allclose(proba, fine @ np.eye(model.n_clusters_)[tree.labels], atol=1e-12)
    assert model.weights_.sum() == pytest.approx(1.0)
    assert np.isfinite(model.score(X))
    assert np.isfinite(model.elbo_)


# --- fit_clusters


@BOTH
def test_clusters_are_the_given_ones(covariance_type):
    model, X, labels = fitted(covariance_type)
    assert_valid(model, X)
    assert model.n_clusters_ == 3
    assert model.n_components_ == 4
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    np.testing.assert_array_equal(model.labels_, np.array([2, 0, 1])[labels])  # by falling size: 120, 80, 40
    assert len(set(model.predict(CENTERS, level="component"))) == 4


@BOTH
def test_components_are_those_of_their_cluster_alone(covariance_type):
    model, X, _ = fitted(covariance_type)
    for cluster in range(3):
        members = X[model.labels_ == cluster]
        in_cluster = model.hierarchy_.labels == cluster
        share = model.weights_[in_cluster]
        np.testing.assert_allclose(share @ model.means_[in_cluster] / share.sum(), members.mean(0), atol=0.05)
        assert share.sum() == pytest.approx(len(members) / len(X), abs=0.03)


@BOTH
def test_statistics_are_those_of_the_data(covariance_type):
    model, X, _ = fitted(covariance_type)
    total = model.mixture_.state.total
    assert float(total.counts.sum()) == pytest.approx(len(X))
    inside = (X - model.mixture_.standardization.mean.numpy()) / model.mixture_.standardization.scale.numpy()
    np.testing.assert_allclose(total.sum_z.sum(0).numpy(), inside.sum(0), atol=1e-6 * len(X))
    assert model.mixture_.state.memo == ()


@BOTH
def test_components_are_in_the_order_of_any_other_fit(covariance_type):
    model, _, _ = fitted(covariance_type)
    assert model.mixture_.state.elbo == pytest.approx(model.mixture_.state.in_canonical_order().elbo)
    assert (np.diff(model.weights_) <= 0.01).all()  # heaviest first, where the bound is highest


def test_no_component_straddles_clusters_that_touch():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    labels = (X[:, 0] > 0).astype(int)  # one Gaussian, cut in two
    model = DPMixture(random_state=0).fit_clusters(X, labels)
    assert_valid(model, X)
    assert model.n_clusters_ == 2
    assert max(np.mean(model.labels_ == labels), np.mean(model.labels_ != labels)) > 0.85
    assert DPMixture(random_state=0).fit(X).n_components_ == 1


@pytest.mark.parametrize("names", [(10, -3, 7), ("b", "a", "c"), (1.5, 0.5, 2.5)])
def test_names_of_clusters_do_not_matter(names):
    X, labels = blobs()
    model = DPMixture(random_state=0).fit_clusters(X, np.array(names)[labels])
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    np.testing.assert_array_equal(model.labels_, np.array([2, 0, 1])[labels])


def test_lists_will_do():
    X, labels = blobs()
    model = DPMixture(random_state=0).fit_clusters(X.tolist(), labels.tolist())
    np.testing.assert_array_equal(model.labels_, fitted()[0].labels_)


def test_same_seed_same_mixture():
    first, again = fitted()[0], fitted()[0]
    np.testing.assert_array_equal(first.means_, again.means_)
    np.testing.assert_array_equal(first.component_ids_, again.component_ids_)
    assert first.lineage_ == again.lineage_
    assert first.history_ == again.history_
    assert first.elbo_ == again.elbo_


@pytest.mark.parametrize("n_clusters", [1, 240])
def test_one_cluster_and_one_for_every_sample(n_clusters):
    X, _ = blobs()
    X = X if n_clusters == 1 else X[:12]
    labels = np.arange(len(X)) % n_clusters
    model = DPMixture(random_state=0).fit_clusters(X, labels)
    assert_valid(model, X)
    assert model.n_clusters_ == min(n_clusters, len(X))
    assert model.n_components_ >= model.n_clusters_


def test_a_cluster_of_a_single_sample():
    X, labels = blobs()
    X, labels = np.concatenate([X, [[40.0, 40.0]]]), np.append(labels, 9)
    model = DPMixture(random_state=0).fit_clusters(X, labels)
    assert_valid(model, X)
    assert model.n_clusters_ == 4
    assert model.labels_[-1] == 3
    assert (model.labels_ == 3).sum() == 1


def test_float32_and_far_away():
    X, labels = blobs()
    X = (1e3 * X + 1e5).astype(np.float32)
    model = DPMixture(random_state=0).fit_clusters(X, labels)
    assert_valid(model, X)
    np.testing.assert_array_equal(model.labels_, fitted()[0].labels_)


@pytest.mark.parametrize("grouping", [None, "valleys"])
def test_known_clusters_stand_above_the_grouping(grouping):
    model, X, labels = fitted(grouping=grouping)
    assert_valid(model, X)
    assert adjusted_rand_score(labels, model.labels_) == 1.0


def test_the_tree_can_be_cut():
    model, X, labels = fitted()
    assert (model.predict(X, level=1) == 0).all()
    assert adjusted_rand_score(labels, model.predict(X, level=3)) == 1.0
    assert len(set(model.predict(X, level=4))) == 4
    assert is_valid_linkage(model.hierarchy_.linkage()[:, [0, 1, 2, 3]])
    with pytest.raises(ValueError, match="level should be from 1 to 4"):
        model.predict(X, level=5)


@BOTH
@pytest.mark.parametrize("first_id", [0, 17])
def test_lineage_accounts_for_every_component(covariance_type, first_id):
    X, labels = blobs()
    base = start_on(X, MixtureOptions(covariance_type=covariance_type)).with_next_id(first_id)
    model = fit_within_clusters(base, {}, X, labels, None, np.random.default_rng(0)).model
    assert model.component_ids.min() >= first_id
    born = {c for record in model.lineage for c in set(record.children) - set(record.parents)}
    parents = {p for record in model.lineage for p in record.parents}
    roots = (parents | set(model.component_ids.tolist())) - born
    assert len(roots) == 3  # one for each cluster
    assert first_id in roots
    known = set(roots)
    for record in model.lineage:
        assert record.accepted
        assert set(record.parents) <= known
        known |= set(record.children)
        known -= set(record.parents) - set(record.children)
    assert known == set(model.component_ids.tolist())
    assert [record.lap for record in model.history] == list(range(len(model.history)))
    assert [r.lap for r in model.lineage] == sorted(r.lap for r in model.lineage)
    assert model.state.next_id > max(known)


def test_lineages_stay_inside_their_cluster():
    model, _, _ = fitted()
    cluster_of = dict(zip(model.component_ids_.tolist(), model.hierarchy_.labels.tolist(), strict=True))
    for record in reversed(model.lineage_):
        clusters = {cluster_of[c] for c in record.children if c in cluster_of}
        assert len(clusters) == 1
        cluster_of |= dict.fromkeys(record.parents, clusters.pop())


@BOTH
def test_saved_and_loaded(tmp_path, covariance_type):
    model, X, _ = fitted(covariance_type)
    model.save(tmp_path / "model.diva")
    loaded = diva.load(tmp_path / "model.diva")
    assert_valid(loaded, X)
    np.testing.assert_array_equal(loaded.labels_, model.labels_)
    np.testing.assert_array_equal(loaded.component_ids_, model.component_ids_)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.hierarchy_.to_dict() == model.hierarchy_.to_dict()
    assert loaded.lineage_ == model.lineage_
    assert loaded.elbo_ == model.elbo_


def test_new_data_go_on_from_known_clusters():
    model, X, _ = fitted(grouping="valleys")
    ids = set(model.component_ids_.tolist())
    far = np.random.default_rng(1).normal([30.0, 30.0], 0.4, (60, 2))
    model.partial_fit(far)
    assert_valid(model, far)
    assert ids <= set(model.component_ids_.tolist())
    assert not set(model.predict(far)) & set(model.predict(X))


def test_a_later_fit_forgets_known_clusters():
    model, X, _ = fitted(grouping=None)
    model.fit(X)
    assert model.hierarchy_ is None
    assert model.n_clusters_ == model.n_components_ == 4


@pytest.mark.parametrize("shape", [(239,), (240, 1), (2, 120), ()])
def test_labels_of_another_shape(shape):
    X, _ = blobs()
    with pytest.raises(ValueError, match=r"labels should have shape \(240,\), one cluster for each sample, got"):
        DPMixture().fit_clusters(X, np.zeros(shape, dtype=int))


def test_labels_that_are_missing():
    X, labels = blobs()
    labels = labels.astype(float)
    labels[5] = np.nan
    with pytest.raises(ValueError, match="labels"):
        DPMixture(random_state=0).fit_clusters(X, labels)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_samples_that_are_not_finite(value):
    X, labels = blobs()
    X[3, 1] = value
    with pytest.raises(ValueError, match="contains"):
        DPMixture().fit_clusters(X, labels)


def test_parameters_are_checked():
    X, labels = blobs()
    with pytest.raises(ValueError, match="concentration should be"):
        DPMixture(concentration=-1.0).fit_clusters(X, labels)


# --- regroup


def test_regroup_by_another_walk():
    X, _ = blobs()
    model = DPMixture(random_state=0).fit(X)
    assert model.n_clusters_ == 4
    means, ids, elbo = model.means_, model.component_ids_, model.elbo_
    order = np.argsort(model.predict(CENTERS))  # which blob each component is
    step = 0.999 * np.eye(4)[:, [1, 0, 2, 3]] * (np.arange(4) < 2) + np.eye(4) * np.where(np.arange(4) < 2, 0.001, 1.0)
    step = (step + np.eye(4)) / 2  # from the first blob to the second and back
    assert model.regroup(Walk(np.eye(4), step[np.ix_(order, order)])) is model
    assert_valid(model, X)
    assert model.n_clusters_ == 3
    first, second, *others = model.predict(CENTERS)
    assert first == second
    assert len({first, *others}) == 3
    np.testing.assert_array_equal(model.means_, means)
    np.testing.assert_array_equal(model.component_ids_, ids)
    assert model.elbo_ == elbo


def test_regroup_again_gives_the_same():
    model, X, _ = fitted()
    walk = walk_of(model, X)
    first = model.regroup(walk).hierarchy_.to_dict()
    assert model.regroup(walk).hierarchy_.to_dict() == first
    assert_valid(model, X)


@pytest.mark.parametrize("resolution", [1e-4, 1e6])
def test_regroup_uses_the_resolution(resolution):
    model, X, _ = fitted(resolution=resolution)
    walk = Walk(np.full((4, 4), 0.25) + np.eye(4), np.full((4, 4), 0.25) + np.eye(4))
    assert model.regroup(walk).n_clusters_ == (1 if resolution < 1 else 4)
    assert_valid(model, X)


def test_regroup_can_keep_clusters():
    model, X, _ = fitted()
    before = model.labels_
    everywhere = Walk(np.full((10, 4), 0.25), np.full((10, 4), 0.25))
    model.regroup(everywhere, keep_clusters=True)
    assert_valid(model, X)
    assert adjusted_rand_score(before, model.labels_) == 1.0
    model.regroup(walk_of(model, X), keep_clusters=True)
    np.testing.assert_array_equal(model.labels_, before)
    assert model.regroup(everywhere).n_clusters_ == 1


def test_regroup_keeps_components_that_were_never_grouped():
    X, _ = blobs()
    model = DPMixture(random_state=0).fit(X)
    model.regroup(walk_of(model, X), keep_clusters=True)
    assert_valid(model, X)
    assert model.n_clusters_ == model.n_components_ == 4


def test_regrouped_and_saved(tmp_path):
    model, X, _ = fitted()
    model.regroup(walk_of(model, X), keep_clusters=True).save(tmp_path / "model.diva")
    loaded = diva.load(tmp_path / "model.diva")
    assert_valid(loaded, X)
    assert loaded.hierarchy_.to_dict() == model.hierarchy_.to_dict()


@pytest.mark.parametrize("keep_clusters", [True, False])
def test_regroup_by_a_walk_between_others(keep_clusters):
    model, _, _ = fitted()
    before = model.hierarchy_
    with pytest.raises(ValueError, match="The walk is between 3 components, the mixture has 4"):
        model.regroup(Walk(np.eye(3), np.eye(3)), keep_clusters=keep_clusters)
    assert model.hierarchy_ is before


def test_regroup_before_fit():
    with pytest.raises(NotFittedError):
        DPMixture().regroup(Walk(np.eye(2), np.eye(2)))


@BOTH
@pytest.mark.parametrize("dim", [1, 2, 20])
def test_cuts_through_one_cloud_are_joined(covariance_type, dim):
    rng = np.random.default_rng(0)
    cloud = rng.standard_normal((600, dim))
    slices = np.digitize(cloud[:, 0], [-0.7, 0.7])
    apart = cloud + np.outer([0.0, 0.0, 4.0], np.eye(dim)[0])[slices]  # one of two walls is real
    for X, expected in ((cloud, np.zeros(600)), (apart, slices == 2)):
        base = start_on(X, MixtureOptions(covariance_type=covariance_type, seed=0))
        assert adjusted_rand_score(expected, joined_without_valley(base, X, slices, rng)) == 1.0


def test_one_cluster_stays_one():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(50, 2))
    base = start_on(X, MixtureOptions(seed=0))
    assert not joined_without_valley(base, X, np.full(50, 7), rng).any()
