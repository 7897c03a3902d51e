from dataclasses import replace

import numpy as np
import pytest
import torch
from diva.models.building import make_learner
from diva.models.recipes import PRESETS
from diva.training.clustering import refresh_pseudo_labels
from diva.training.ensemble import base_clusterings, cluster_of_component, fit_ensemble
from diva.training.view_codes import ViewCodes, flow_between, shared_responsibilities, walk_of
from sklearn.metrics import adjusted_rand_score

from diva import DIVA, DPMixture
from diva.data import ArraySource, Samples
from diva.data.scaling import scaling_for
from diva.training import ensemble, view_codes
from diva.training.loop import Course
from diva.training.pseudo_labels import Teacher


def codes_and_mixture():
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(c, 0.1, size=(100, 2)) for c in (-2, 0, 2)]).astype(np.float32)
    return torch.from_numpy(z), DPMixture(random_state=0).fit(z).mixture_


def test_a_single_view_is_reached_from_the_clean_sample():
    z, mixture = codes_and_mixture()
    swapped = torch.cat([z[200:], z[100:200], z[:100]])  # the first kind is seen as the last, and back
    flow = walk_of(ViewCodes(z, (swapped,)), [mixture], np.random.default_rng(0)).flow
    first, middle, last = mixture.predict(np.array([[-2, -2], [0, 0], [2, 2]]))
    assert flow[first, last] > 0.3
    assert flow[first, first] < 1e-3
    assert flow[middle, middle] > 0.3


def test_walks_go_from_view_to_view():
    z, mixture = codes_and_mixture()
    elsewhere = torch.zeros_like(z) + 2.0
    flow = walk_of(ViewCodes(z, (elsewhere, elsewhere)), [mixture], np.random.default_rng(0)).flow
    last = mixture.predict(np.array([[2.0, 2.0]]))[0]
    assert flow[last, last] > 0.99  # where the clean samples are does not matter


@pytest.fixture
def any_codes(monkeypatch):
    """However few and plain the codes."""
    monkeypatch.setattr(ensemble, "MIN_CODES", 0)
    monkeypatch.setattr(ensemble, "MIN_SHARE_OF_GAIN", -np.inf)
    monkeypatch.setattr(ensemble, "N_CENTRES", 20)  # is enough for three kinds


def learner_and_course(x, resolution="auto"):
    source = ArraySource(x)
    course = Course(
        PRESETS["features"],
        Samples(source, scaling_for(source, None)),
        None,
        None,
        torch.device("cpu"),
        None,
        refresh_pseudo_labels,
    )
    course = with_resolution(course, resolution)
    return make_learner(DIVA(random_state=0), course), course


def seen_codes():
    """Three kinds of codes, two views of each, in no order."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(3, size=600)
    views = [4.0 * kinds[:, None] + rng.normal(0, 0.6, size=(600, 2)) for _ in range(3)]
    clean, *moved = (torch.from_numpy(v.astype(np.float32)) for v in views)
    return ViewCodes(clean, tuple(moved)), kinds


def teacher_of(kinds, codes):
    proba = torch.nn.functional.one_hot(torch.from_numpy(kinds)).double()
    return Teacher.of(proba, codes.clean, 1e-3, torch.device("cpu"))


@pytest.mark.usefixtures("any_codes")
def test_mixtures_have_equal_shares_of_a_sample():
    codes, _ = seen_codes()
    learner, course = learner_and_course(codes.clean.numpy())
    mixtures = base_clusterings(codes, learner, course)
    resp = shared_responsibilities(mixtures, codes.clean)
    assert resp.shape == (600, sum(m.n_components for m in mixtures))
    np.testing.assert_allclose(resp[:, : mixtures[0].n_components].sum(1), 1 / len(mixtures), rtol=1e-6)
    np.testing.assert_allclose(resp.sum(1), 1.0, rtol=1e-6)


@pytest.mark.usefixtures("any_codes")
def test_flow_is_gathered_a_part_at_a_time(monkeypatch):
    codes, _ = seen_codes()
    learner, course = learner_and_course(codes.clean.numpy())
    mixtures = base_clusterings(codes, learner, course)[:2]
    whole = walk_of(codes, mixtures, learner.rng).flow
    monkeypatch.setattr(view_codes, "CHUNK_ROWS", 70)
    flow = flow_between(mixtures, codes, learner.rng)
    np.testing.assert_allclose(flow / flow.sum(), whole, atol=1e-7)


@pytest.mark.usefixtures("any_codes")
def test_base_clusterings_have_starts_of_their_own():
    codes, _ = seen_codes()
    learner, course = learner_and_course(codes.clean.numpy())
    mixtures = base_clusterings(codes, learner, course)
    assert len(mixtures) > 2
    assert all(1 < mixture.n_components <= ensemble.N_CENTRES for mixture in mixtures)
    assert len({mixture.elbo for mixture in mixtures}) > 1


@pytest.mark.usefixtures("any_codes")
def test_base_clusterings_have_no_more_components_than_allowed():
    codes, _ = seen_codes()
    learner, course = learner_and_course(codes.clean.numpy())
    course = replace(course, recipe=replace(course.recipe, max_components=5))
    assert max(mixture.n_components for mixture in base_clusterings(codes, learner, course)) <= 5


@pytest.mark.usefixtures("any_codes")
def test_copies_of_one_sample_are_one_cluster():
    clean = torch.ones(200, 2)
    codes = ViewCodes(clean, (clean, clean))
    learner, course = learner_and_course(clean.numpy())
    assert fit_ensemble(codes, learner, course).predict_proba(codes).shape == (200, 1)


@pytest.mark.usefixtures("any_codes")
def test_few_and_very_many_codes_have_no_ensemble(monkeypatch):
    codes, _ = seen_codes()
    learner, course = learner_and_course(codes.clean.numpy())
    for fewest, most in ((1_801, 60_000), (0, 1_799)):
        monkeypatch.setattr(ensemble, "MIN_CODES", fewest)
        monkeypatch.setattr(ensemble, "MAX_CODES", most)
        assert fit_ensemble(codes, learner, course) is None
    monkeypatch.setattr(ensemble, "MIN_CODES", 1_800)
    monkeypatch.setattr(ensemble, "MAX_CODES", 1_800)
    assert fit_ensemble(codes, learner, course) is not None


@pytest.mark.parametrize("n_kinds", [1, 3])
def test_plain_gaussians_are_not_cut_up(n_kinds):
    rng = np.random.default_rng(1)
    where = rng.normal(0, 1.5, size=(n_kinds, 6))[rng.integers(n_kinds, size=2_000)]
    views = [torch.from_numpy((where + rng.normal(size=where.shape)).astype(np.float32)) for _ in range(3)]
    codes = ViewCodes(views[0], tuple(views[1:]))
    learner, course = learner_and_course(codes.clean.numpy())
    assert base_clusterings(codes, learner, course) == []


@pytest.mark.usefixtures("any_codes")
def test_components_of_different_mixtures_that_hold_the_same_samples_are_one_cluster():
    codes, kinds = seen_codes()
    learner, course = learner_and_course(codes.clean.numpy())
    proba = fit_ensemble(codes, learner, course).predict_proba(codes)
    assert proba.shape == (600, 3)
    torch.testing.assert_close(proba.sum(1), torch.ones(600, dtype=torch.float64))
    assert len(set(zip(kinds.tolist(), proba.argmax(1).tolist(), strict=True))) == 3
    assert (proba.amax(1) > 0.9).double().mean() > 0.95


@pytest.mark.usefixtures("any_codes")
def test_small_parts_of_pseudo_labels_stay():
    codes, kinds = seen_codes()
    learner, course = learner_and_course(codes.clean.numpy(), resolution=50.0)
    assert fit_ensemble(codes, learner, course).predict_proba(codes).shape[1] > 3  # components of different mixtures are apart
    learner.teacher = teacher_of(kinds, codes)
    assert adjusted_rand_score(kinds, fit_ensemble(codes, learner, course).predict_proba(codes).argmax(1).numpy()) > 0.99


def test_components_are_in_the_cluster_the_head_sees_their_samples_in():
    codes, kinds = seen_codes()
    model = DPMixture(random_state=0).fit(codes.clean.numpy())
    found = cluster_of_component([model.mixture_] * 2, codes, teacher_of(kinds, codes), torch.device("cpu"))
    assert found.shape == (2 * model.n_components_,)
    assert (found[model.component_labels_] == kinds).all()


def with_resolution(course, resolution):
    return replace(course, recipe=replace(course.recipe, resolution=resolution))
