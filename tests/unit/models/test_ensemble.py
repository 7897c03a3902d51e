from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from diva import DPMixture
from diva.data import ArraySource, Samples
from diva.data.scaling import scaling_for
from diva.models import ensemble, view_codes
from diva.models.config import DIVAConfig, OwnNetworks
from diva.models.ensemble import base_clusterings, cluster_of_component, fit_ensemble
from diva.models.networks import make_vae
from diva.models.state import DIVAState, Task
from diva.models.view_codes import ViewCodes, flow_between, shared_responsibilities, walk_of
from diva.training.pseudo_labels import PseudoLabelHead


@pytest.fixture
def any_codes(monkeypatch):
    """However few and plain the codes."""
    monkeypatch.setattr(ensemble, "MIN_CODES", 0)
    monkeypatch.setattr(ensemble, "MIN_SHARE_OF_GAIN", -np.inf)
    monkeypatch.setattr(ensemble, "N_CENTRES", 20)  # is enough for three classes


def state_and_task(x, resolution="auto"):
    source = ArraySource(x)
    samples = Samples(source, scaling_for(source, None))
    task = Task(DIVAConfig(latent_dim=10, resolution=resolution), samples, torch.device("cpu"))
    network = make_vae(task.config, samples.scaling.input_shape, OwnNetworks())
    optimizer = torch.optim.Adam(network.parameters())
    return DIVAState(network, optimizer, torch.Generator().manual_seed(0), np.random.default_rng(0), seed=0), task


def codes_of_views():
    """Three classes of codes, two views of each, in no order."""
    rng = np.random.default_rng(0)
    classes = rng.integers(3, size=600)
    views = [4.0 * classes[:, None] + rng.normal(0, 0.6, size=(600, 2)) for _ in range(3)]
    clean, *moved = (torch.from_numpy(v.astype(np.float32)) for v in views)
    return ViewCodes(clean, tuple(moved)), classes


def head_of(classes, codes):
    proba = torch.nn.functional.one_hot(torch.from_numpy(classes)).double()
    return PseudoLabelHead.choose(proba, codes.clean, 1e-3, torch.device("cpu"))


@pytest.mark.usefixtures("any_codes")
def test_mixtures_have_equal_shares_of_a_sample():
    codes, _ = codes_of_views()
    state, task = state_and_task(codes.clean.numpy())
    mixtures = base_clusterings(codes, state, task)
    resp = shared_responsibilities(mixtures, codes.clean)
    assert resp.shape == (600, sum(m.n_components for m in mixtures))
    np.testing.assert_allclose(resp[:, : mixtures[0].n_components].sum(1), 1 / len(mixtures), rtol=1e-6)
    np.testing.assert_allclose(resp.sum(1), 1.0, rtol=1e-6)


@pytest.mark.usefixtures("any_codes")
def test_flow_is_gathered_a_part_at_a_time(monkeypatch):
    codes, _ = codes_of_views()
    state, task = state_and_task(codes.clean.numpy())
    mixtures = base_clusterings(codes, state, task)[:2]
    whole = walk_of(codes, mixtures, state.rng).flow
    monkeypatch.setattr(view_codes, "CHUNK_ROWS", 70)
    flow = flow_between(mixtures, codes, state.rng)
    np.testing.assert_allclose(flow / flow.sum(), whole, atol=1e-7)


@pytest.mark.usefixtures("any_codes")
def test_base_clusterings_have_starts_of_their_own():
    codes, _ = codes_of_views()
    state, task = state_and_task(codes.clean.numpy())
    mixtures = base_clusterings(codes, state, task)
    assert len(mixtures) > 2
    assert all(1 < mixture.n_components <= ensemble.N_CENTRES for mixture in mixtures)
    assert len({mixture.elbo for mixture in mixtures}) > 1


@pytest.mark.usefixtures("any_codes")
def test_base_clusterings_have_no_more_components_than_allowed():
    codes, _ = codes_of_views()
    state, task = state_and_task(codes.clean.numpy())
    task = replace(task, config=replace(task.config, max_components=5))
    assert max(mixture.n_components for mixture in base_clusterings(codes, state, task)) <= 5


@pytest.mark.usefixtures("any_codes")
def test_copies_of_one_sample_are_one_cluster():
    clean = torch.ones(200, 2)
    codes = ViewCodes(clean, (clean, clean))
    state, task = state_and_task(clean.numpy())
    assert fit_ensemble(codes, state, task).predict_proba(codes).shape == (200, 1)


@pytest.mark.usefixtures("any_codes")
def test_few_and_very_many_codes_have_no_ensemble(monkeypatch):
    codes, _ = codes_of_views()
    state, task = state_and_task(codes.clean.numpy())
    for fewest, most in ((1_801, 60_000), (0, 1_799)):
        monkeypatch.setattr(ensemble, "MIN_CODES", fewest)
        monkeypatch.setattr(ensemble, "MAX_CODES", most)
        assert fit_ensemble(codes, state, task) is None
    monkeypatch.setattr(ensemble, "MIN_CODES", 1_800)
    monkeypatch.setattr(ensemble, "MAX_CODES", 1_800)
    assert fit_ensemble(codes, state, task) is not None


@pytest.mark.parametrize("n_classes", [1, 3])
def test_plain_gaussians_are_not_cut_up(n_classes):
    rng = np.random.default_rng(1)
    where = rng.normal(0, 1.5, size=(n_classes, 6))[rng.integers(n_classes, size=2_000)]
    views = [torch.from_numpy((where + rng.normal(size=where.shape)).astype(np.float32)) for _ in range(3)]
    codes = ViewCodes(views[0], tuple(views[1:]))
    state, task = state_and_task(codes.clean.numpy())
    assert base_clusterings(codes, state, task) == []


@pytest.mark.usefixtures("any_codes")
def test_components_of_different_mixtures_that_hold_the_same_samples_are_one_cluster():
    codes, classes = codes_of_views()
    state, task = state_and_task(codes.clean.numpy())
    proba = fit_ensemble(codes, state, task).predict_proba(codes)
    assert proba.shape == (600, 3)
    torch.testing.assert_close(proba.sum(1), torch.ones(600, dtype=torch.float64))
    assert len(set(zip(classes.tolist(), proba.argmax(1).tolist(), strict=True))) == 3
    assert (proba.amax(1) > 0.9).double().mean() > 0.95


@pytest.mark.usefixtures("any_codes")
def test_small_parts_of_pseudo_labels_stay():
    codes, classes = codes_of_views()
    state, task = state_and_task(codes.clean.numpy(), resolution=50.0)
    assert fit_ensemble(codes, state, task).predict_proba(codes).shape[1] > 3  # components of different mixtures are apart
    state.head = head_of(classes, codes)
    assert adjusted_rand_score(classes, fit_ensemble(codes, state, task).predict_proba(codes).argmax(1).numpy()) > 0.99


def test_components_are_in_the_cluster_the_head_sees_their_samples_in():
    codes, classes = codes_of_views()
    model = DPMixture(random_state=0).fit(codes.clean.numpy())
    found = cluster_of_component([model.mixture_] * 2, codes, head_of(classes, codes))
    assert found.shape == (2 * model.n_components_,)
    assert (found[model.component_labels_] == classes).all()
