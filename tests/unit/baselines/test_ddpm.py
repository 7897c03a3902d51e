"""DDPM: its flow, Gibbs sampling, Monte Carlo EM, and what every clusterer can do."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks

import diva
from diva.baselines import DDPM
from diva.baselines.ddpm import DDPMConfig, DDPMNetwork, MonteCarloEM
from diva.data import ArraySource, LoadedData, Samples
from diva.data.scaling import scaling_for
from diva.exceptions import ModelFileError
from diva.metrics import Agreement
from diva.networks.flow import RealNVP
from diva.report import write_report
from diva.runs.archive import read_archive, write_archive
from diva.runs.summarize import summarize
from diva.training.loop import Batch
from diva.training.state import TrainState

torch.set_num_threads(1)

DIGITS = load_digits().images[:200].astype(np.float32)
NEW = load_digits().images[200:230].astype(np.float32)
SMALL = {"latent_dim": 3, "hidden_sizes": (16, 8), "n_epochs": 10, "batch_size": 64, "random_state": 0}
SMALL |= {"n_hidden": 8, "n_couplings": 2, "n_blocks": 10, "layer_share": 0.3, "whole_share": 0.3}


@pytest.fixture(scope="module")
def fitted():
    return DDPM(**SMALL).fit(DIGITS)


def gaussians(n_samples, seed=0):
    """Ten well separated ones in 50 dimensions."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_samples) % 10
    return rng.normal(0, 3, size=(10, 50))[y] + rng.normal(size=(n_samples, 50)), y


def case(data, **settings):
    """An objective on given features, and a state before its first E-step."""
    config = DDPMConfig(features="given", latent_dim=data.shape[1], n_hidden=8, n_couplings=2, n_blocks=10**6, **settings)
    source = ArraySource(data)
    torch.manual_seed(0)
    network = DDPMNetwork((data.shape[1],), config)
    state = TrainState(network, torch.optim.Adam(network.parameters()), torch.Generator(), np.random.default_rng(0), 0)
    state.buffers["features"] = torch.from_numpy(data)
    return MonteCarloEM(config, Samples(source, scaling_for(source, None)), torch.device("cpu")), state


def disturbed(flow):
    """The same flow with weights that are not those of the identity."""
    generator = torch.Generator().manual_seed(0)
    for value in flow.parameters():
        value.data = 0.5 * torch.randn(value.shape, generator=generator)
    return flow.double()


# --- the flow


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_flow_is_inverted(dim):
    flow, x = disturbed(RealNVP(dim, 4, 8)), torch.randn(20, dim, dtype=torch.float64)
    z = flow(x)[0].detach()
    assert float((z - x).abs().max()) > 0.1
    torch.testing.assert_close(flow.inverse(z).detach(), x)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_determinant_is_that_of_the_jacobian(dim):
    flow, x = disturbed(RealNVP(dim, 4, 8)), torch.randn(6, dim, dtype=torch.float64)
    log_det = flow(x)[1].detach()
    for i in range(6):
        jacobian = torch.autograd.functional.jacobian(lambda row: flow(row.unsqueeze(0))[0].squeeze(0), x[i])
        assert float(jacobian.det().abs().log()) == pytest.approx(float(log_det[i]), abs=1e-9)


def test_the_flow_begins_as_the_identity():
    x = torch.randn(20, 5)
    z, log_det = RealNVP(5, 4, 8)(x)
    torch.testing.assert_close(z, x)
    assert not log_det.any()


# --- Monte Carlo EM


def partitions(n):
    """Every way to put n samples into clusters, by labels in order of appearance."""
    found = [[0]]
    for _ in range(n - 1):
        found = [[*labels, k] for labels in found for k in range(max(labels) + 2)]
    return found


def test_gibbs_sampling_draws_from_the_posterior_of_partitions():
    """By all 15 partitions of four samples: how often two are in one cluster."""
    x = np.array([[-1.2], [-0.9], [0.3], [0.9]], dtype=np.float32)
    objective, state = case(x, concentration=1.5, covariance_scale=0.3)
    components, z, log_posterior = state.network.components, torch.from_numpy(x).double(), []
    for labels in partitions(4):
        stats = components.summarize(z, torch.tensor(labels), max(labels) + 1)
        tables = np.log(1.5) * len(stats) + float(torch.lgamma(stats.counts).sum())  # Chinese restaurant process
        log_posterior.append(tables + float(components.log_evidence(stats).sum()))
    together = np.equal(np.array(partitions(4))[:, :, None], np.array(partitions(4))[:, None, :])
    expected = np.tensordot(np.exp(log_posterior - np.logaddexp.reduce(log_posterior)), together, 1)
    found, n_sweeps = np.zeros((4, 4)), 700
    with torch.no_grad():
        for _ in range(n_sweeps):
            objective.sweep(state)
            labels = state.buffers["labels"].numpy()
            found += (labels[:, None] == labels) / n_sweeps
    assert expected.min() < 0.35 < 0.65 < np.sort(expected[np.triu_indices(4, 1)])[-1]
    np.testing.assert_allclose(found, expected, atol=0.08)  # four standard errors


def test_the_loss_is_the_likelihood_of_the_components_that_were_drawn():
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    objective, state = case(x, covariance_scale=0.3)
    disturbed(state.network.flow).float()
    state.network.components.hold(state.network.components.summarize(objective.codes(state), torch.arange(40) % 2, 2))
    state.buffers["labels"] = torch.arange(40) % 2
    z, log_det = state.network.flow(torch.from_numpy(x))
    z, log_det, total = z.detach().double().numpy(), log_det.detach().double().numpy(), 0.0
    for k in range(2):
        mine = z[k::2]
        kappa, nu = 0.3 + 20, 4 + 20
        mean = mine.sum(0) / kappa
        psi = 0.3 * np.eye(2) + mine.T @ mine - kappa * np.outer(mean, mean)
        total += multivariate_normal.logpdf(mine, mean, psi / nu).sum() + log_det[k::2].sum()
    loss = objective.loss(Batch(torch.arange(40)), state)
    assert float(loss.total.detach()) == pytest.approx(-total / 40 / 2, rel=1e-5)


def test_blocks_hold_every_sample_once():
    objective, _ = case(np.zeros((300, 2), dtype=np.float32))
    objective.config = replace(objective.config, n_blocks=10)
    order = torch.randperm(300)
    assert torch.equal(torch.cat(list(objective.blocks(order, 300))), order)
    assert {len(block) for block in objective.blocks(order, 300)} == {30}
    first = list(objective.blocks(order, 1))  # the first sample has its component already
    assert torch.equal(torch.cat(first), order[1:])
    assert len(first[0]) == 1 < len(first[-1])


def test_the_flow_makes_a_cluster_that_is_not_gaussian_more_likely():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, np.pi, 300)
    X = np.stack([np.cos(angle), np.sin(angle)], 1) + 0.05 * rng.normal(size=(300, 2))
    model = DDPM(
        features="given", n_epochs=20, covariance_scale=1.0, concentration=1e-6, flow_learning_rate=5e-3, random_state=0
    )
    losses = [record.loss for record in model.fit(X).history_]
    assert losses[-1] < losses[0] - 0.2


# --- quality


@pytest.mark.parametrize("params", [{"pca": 10, "features": "given", "n_epochs": 5}, {"hidden_sizes": (64,), "n_epochs": 60}])
def test_ten_gaussians_are_found(params):
    X, y = gaussians(800)
    model = DDPM(**params, layer_share=0.3, whole_share=0.6, random_state=0).fit(X[:600])
    assert Agreement(y[600:], model.predict(X[600:])).acc_one_to_one >= 0.95
    assert abs(model.n_clusters_ - 10) <= 2


# --- what every clusterer can do


@parametrize_with_checks(
    [DDPM(latent_dim=2, hidden_sizes=(8,), n_epochs=3, n_hidden=4, n_couplings=2, n_blocks=5, random_state=0)],
    expected_failed_checks=lambda _: {
        "check_estimator_sparse_array": "it takes what has predict_proba for a classifier",
        "check_estimator_sparse_matrix": "it takes what has predict_proba for a classifier",
        "check_methods_subset_invariance": "a float32 network rounds rows that share a batch otherwise than rows alone",
    },
)
def test_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def assert_same(first, second):
    for ask in ("predict", "predict_proba", "transform", "score_samples", "reconstruct"):
        np.testing.assert_array_equal(getattr(first, ask)(NEW), getattr(second, ask)(NEW), err_msg=ask)
    np.testing.assert_array_equal(first.labels_, second.labels_)
    assert [replace(r, seconds=0.0) for r in first.history_] == [replace(r, seconds=0.0) for r in second.history_]


def test_images_are_clustered(fitted):
    assert fitted.n_clusters_ > 1
    np.testing.assert_array_equal(np.unique(fitted.labels_), range(fitted.n_clusters_))
    assert fitted.transform(NEW).shape == (30, 3)
    assert fitted.reconstruct(NEW).shape == NEW.shape
    np.testing.assert_array_equal(fitted.predict(DIGITS), fitted.labels_)
    np.testing.assert_allclose(fitted.predict_proba(NEW).sum(1), 1.0)


def test_codes_are_taken_back_to_samples():
    X = gaussians(100)[0]
    model = DDPM(features="given", pca=4, n_epochs=3, n_blocks=10, random_state=0).fit(X)
    np.testing.assert_allclose(model.transform(model.reconstruct(X)), model.transform(X), atol=1e-3)


def test_the_same_seed_gives_the_same_model(fitted):
    assert_same(DDPM(**SMALL).fit(DIGITS), fitted)


def test_a_saved_model_comes_back(fitted, tmp_path):
    fitted.save(tmp_path / "model.diva")
    assert_same(diva.load(tmp_path / "model.diva"), fitted)


@pytest.mark.parametrize("names", [["counts"], ["counts", "sum_z", "sum_zz"]], ids=["one", "all"])
def test_a_file_whose_parts_do_not_fit_is_refused(fitted, tmp_path, names):
    path = tmp_path / "model.diva"
    fitted.save(path)
    archive = read_archive(path, kinds=["DDPM"])
    for name in names:
        archive.tensors[f"network.components.{name}"] = archive.tensors[f"network.components.{name}"][:1]
    write_archive(path, "DDPM", archive.document, archive.tensors)
    with pytest.raises(ModelFileError, match=r"model\.diva"):
        diva.load(path)


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("last", [1, 4, 5, 6, 8], ids=str)
def test_a_run_that_failed_goes_on_as_if_nothing_had_been(tmp_path, fitted, last):
    def fail(_, record):
        if record.epoch == last:
            raise StoppedError

    with pytest.raises(StoppedError):
        DDPM(**SMALL, run_dir=tmp_path / "run", callbacks=[fail]).fit(DIGITS)
    assert_same(DDPM(**SMALL, run_dir=tmp_path / "run", resume=True).fit(DIGITS), fitted)


def test_callbacks_may_ask_at_any_time():
    counts = []
    DDPM(**SMALL, callbacks=[lambda model, _: counts.append(len(set(model.predict(NEW))))]).fit(DIGITS)
    assert len(counts) == 10


def test_a_run_has_a_report(tmp_path):
    data = LoadedData(ArraySource(DIGITS), load_digits().target[:200])
    summarize(DDPM(**SMALL, run_dir=tmp_path).fit(data.source), data).save(tmp_path)
    assert "DDPM" in write_report(tmp_path).read_text()
