import json
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

from diva import DPMixture
from diva.mixture.fitting import continue_fit, fit_codes, fit_within_clusters, start_on
from diva.mixture.model import MixtureModel
from diva.mixture.options import MixtureOptions
from diva.mixture.warm_start import WarmStart
from diva.partition.hierarchy import group_as
from diva.partition.walk import Walk

CENTRES = np.array([[-3.0, 0.0], [0.0, 0.0], [3.0, 0.0]])
OPTIONS = MixtureOptions(seed=0)


def blobs(n_each=80, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(c, 0.2, size=(n_each, 2)) for c in CENTRES])


@pytest.fixture(scope="module")
def model():
    X = blobs()
    return fit_codes(start_on(X, OPTIONS), X)


def in_pairs(model, clusters):
    """The same mixture with the given cluster of each centre."""
    positions = model.predict(CENTRES, level="component")
    labels = np.empty(3, dtype=np.int64)
    labels[positions] = clusters
    return model.with_hierarchy(group_as(Walk(np.eye(3), np.eye(3)), labels))


def test_it_is_what_the_estimator_fits(model):
    X = blobs()
    fitted = DPMixture(random_state=0).fit(X)
    np.testing.assert_array_equal(fitted.means_, fitted.mixture_.means)
    np.testing.assert_array_equal(fitted.predict_proba(X), fitted.mixture_.calibrated_proba(X))
    assert tuple(fitted.lineage_) == fitted.mixture_.lineage
    assert fitted.elbo_ == fitted.mixture_.elbo > model.elbo  # a prior that suits the data
    np.testing.assert_allclose(np.sort(fitted.means_, 0), np.sort(model.means, 0), atol=0.01)


def test_options_are_the_parameters_of_the_estimator():
    params = DPMixture().get_params()
    assert MixtureOptions().to_plain().items() <= params.items()
    of_the_estimator = {"random_state", "warm_start", "verbose", "reject", "pca", "columns", "missing"}
    of_the_estimator |= {"n_clusters", "max_clusters", "min_cluster_size"}
    assert {field.name for field in fields(MixtureOptions)} == set(params) - of_the_estimator | {"seed"}


def test_it_cannot_be_changed(model):
    with pytest.raises(FrozenInstanceError):
        model.naming = None


def test_clusters_follow_the_hierarchy(model):
    grouped = in_pairs(model, [0, 0, 1])
    assert (grouped.n_components, grouped.n_clusters) == (3, 2)
    first, second, third = grouped.predict(CENTRES)
    assert first == second != third
    assert model.n_clusters == 3  # the one before is as it was
    np.testing.assert_allclose(grouped.predict_proba(CENTRES).sum(1), 1.0)


def test_names_live_on_where_samples_are(model):
    before = replace(model, naming=replace(model.naming, ids=(7, 8, 9), next_id=10))
    merged = in_pairs(before, [0, 0, 1]).named_after(before, np.random.default_rng(0))
    assert [record.event for record in merged.cluster_lineage] == ["merged"]
    assert set(merged.cluster_ids.tolist()) < {7, 8, 9}
    again = merged.named_after(merged, np.random.default_rng(0))
    assert again.naming.ids == merged.naming.ids
    assert again.naming.batch == merged.naming.batch + 1


def test_draws_are_of_their_components(model):
    draws = model.draw_each(50, np.random.default_rng(0))
    assert (model.predict(draws.codes, level="component") == draws.components).all()
    assert draws.weights.sum() == pytest.approx(model.masses.sum())


def test_an_archive_brings_it_back(model):
    grouped = in_pairs(model, [0, 0, 1])
    document, tensors = grouped.to_archive()
    again = MixtureModel.from_archive(json.loads(json.dumps(document)), tensors)
    assert (again.options, again.naming, again.lineage, again.history) == (
        grouped.options,
        grouped.naming,
        grouped.lineage,
        grouped.history,
    )
    np.testing.assert_array_equal(again.score_samples(CENTRES), grouped.score_samples(CENTRES))
    np.testing.assert_array_equal(again.cluster_of_component(), grouped.cluster_of_component())


def test_a_continued_fit_keeps_every_cluster_and_the_options(model):
    grouped = in_pairs(model, [0, 1, 2])
    further = continue_fit(grouped, blobs(20, seed=1), births=False)
    assert further.options == grouped.options
    assert further.masses.sum() == pytest.approx(300)
    assert set(further.component_ids.tolist()) == set(grouped.component_ids.tolist())


@pytest.fixture
def warm_start():
    """Six components, two to a blob, one without codes."""
    X = blobs()
    components = np.arange(len(X)) // 80 * 2 + np.arange(len(X)) % 2
    return WarmStart(X, components, np.ones(len(X)), (10, 11, 12, 13, 14, 15, 16), 20)


def test_a_warm_start_puts_components_where_their_codes_are(warm_start):
    start = warm_start.applied_to(start_on(blobs(), OPTIONS))
    assert start.state.ids == warm_start.ids
    assert start.state.next_id == 20
    assert float(start.state.past.counts.sum()) == 0.0  # it has seen nothing of them
    np.testing.assert_allclose(start.means[:6], CENTRES.repeat(2, axis=0), atol=0.1)


def test_a_warm_start_inside_clusters(warm_start):
    X, labels = blobs(), np.repeat([0, 1, 1], 80)
    np.testing.assert_array_equal(warm_start.cluster_of_component(labels), [0, 0, 1, 1, 1, 1, -1])
    base = start_on(X, OPTIONS).with_next_id(20)
    starts = warm_start.within_clusters(base, labels, np.unique(labels))
    assert {cluster: state.ids for cluster, state in starts.items()} == {0: (10, 11), 1: (12, 13, 14, 15)}
    fitted = fit_within_clusters(base, starts, X, labels, None, np.random.default_rng(0))
    assert fitted.model.masses.sum() == pytest.approx(len(X))
    assert fitted.model.n_clusters == 2
    assert set(fitted.model.component_ids.tolist()) <= set(warm_start.ids[:6])
    assert len(set(zip(labels.tolist(), fitted.model.predict(X).tolist(), strict=True))) == 2


def test_codes_are_looked_at_in_other_pieces_than_the_batches_of_the_memo(model):
    small = replace(model, options=replace(OPTIONS, batch_size=1))
    looks = [len(seen.found[0]) for seen in small.look_at(np.zeros((1000, 2)), lambda chunk: (chunk.z.numpy(),))]
    assert sum(looks) == 1000
    assert len(looks) < 10


def test_clusters_whose_neighbours_are_mixed_are_less_sure():
    X = np.random.default_rng(0).normal(size=(300, 16))
    labels = np.arange(300) % 2
    X[:, 0] += 7.0 * labels  # one feature says it all, and counts little among sixteen
    fitted = DPMixture(random_state=0).fit_clusters(X, labels)
    assert fitted.mixture_.temperature == 1.0
    calibrated = fitted.mixture_.calibrated(X)
    assert calibrated.temperature > 1.5
    sure, less = fitted.mixture_.calibrated_proba(X), calibrated.calibrated_proba(X)
    assert less.max(axis=1).mean() < sure.max(axis=1).mean()
    np.testing.assert_array_equal(less.argmax(axis=1), sure.argmax(axis=1))
    np.testing.assert_array_equal(calibrated.predict_proba(X), fitted.mixture_.predict_proba(X))  # what it learns by stays
    again = MixtureModel.from_archive(*calibrated.to_archive())
    np.testing.assert_array_equal(again.calibrated_proba(X), less)
    document, tensors = calibrated.to_archive()
    for forged in (0.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="temperature"):
            MixtureModel.from_archive(document | {"temperature": forged}, tensors)


def test_whole_numbers_of_next_to_no_weight_leave_probabilities_finite():
    """Their step, in units of a scale of next to nothing, would be infinite in single precision."""
    rng = np.random.default_rng(0)
    x = rng.poisson(2, size=(2, 27)).astype(np.float32)
    model = DPMixture(covariance_type="diag", random_state=0).fit(x, sample_weight=[3.6e4, 1.5e-28])
    assert np.isfinite(model.predict_proba(x)).all()
    assert np.isfinite(model.score_samples(x)).all()
