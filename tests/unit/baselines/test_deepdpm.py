"""DeepDPM: its formulas, its moves, and what every clusterer can do."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import gammaln
from scipy.stats import multivariate_normal, multivariate_t
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks

import diva
from diva.baselines import DeepDPM
from diva.baselines.deepdpm import DeepDPMConfig, DeepDPMNetwork, SplitsAndMerges
from diva.data import ArraySource, LoadedData, Samples
from diva.data.scaling import scaling_for
from diva.exceptions import ModelFileError
from diva.metrics import Agreement
from diva.report import write_report
from diva.runs.archive import read_archive, write_archive
from diva.runs.summarize import summarize
from diva.training.state import TrainState

torch.set_num_threads(1)

DIGITS = load_digits().images[:200].astype(np.float32)
NEW = load_digits().images[200:230].astype(np.float32)
SMALL = {"latent_dim": 3, "hidden_sizes": (16, 8), "n_epochs": 40, "batch_size": 32, "random_state": 0}
SMALL |= {"n_alternations": 2, "move_every": 4, "n_hidden": 16, "cluster_learning_rate": 0.03, "n_clusters": 2}
CONFIG = DeepDPMConfig(features="given", latent_dim=2, n_epochs=30, n_hidden=8, move_every=6)


@pytest.fixture(scope="module")
def fitted():
    return DeepDPM(**SMALL).fit(DIGITS)


def gaussians(n_samples, seed=0):
    """Ten well separated ones in 50 dimensions."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_samples) % 10
    return rng.normal(0, 3, size=(10, 50))[y] + rng.normal(size=(n_samples, 50)), y


def blobs(*centres, n=60):
    rng = np.random.default_rng(0)
    return np.concatenate([centre + 0.1 * rng.normal(size=(n, 2)) for centre in centres]).astype(np.float32)


def clustering(data, n_clusters=1, config=CONFIG):
    """An objective, and a state where clusters begin to be learnt from given codes."""
    source = ArraySource(data)
    torch.manual_seed(0)
    network = DeepDPMNetwork((2,), replace(config, n_clusters=n_clusters))
    state = TrainState(
        network, torch.optim.Adam(network.parameters()), torch.Generator().manual_seed(0), np.random.default_rng(0), 0
    )
    objective = SplitsAndMerges(
        replace(config, n_clusters=n_clusters), Samples(source, scaling_for(source, None)), torch.device("cpu")
    )
    objective.before_epoch(state)
    return objective, state


# --- formulas of the paper


def literal_log_evidence(z, kappa0, nu0, psi0):
    """Density of codes one after another, each given those before: Student t."""
    dim, total = z.shape[1], 0.0
    for i, x in enumerate(z):
        past, kappa, nu = z[:i], kappa0 + i, nu0 + i
        mean = past.sum(0) / kappa
        psi = psi0 + past.T @ past - kappa * np.outer(mean, mean)
        total += multivariate_t.logpdf(x, mean, psi * (kappa + 1) / (kappa * (nu - dim + 1)), df=nu - dim + 1)
    return total


def test_hastings_ratio_is_that_of_the_paper():
    objective, state = clustering(blobs([0, 0], [2, 1], n=8))
    components, z = state.network.components, state.buffers["codes"].double()
    a, b = (components.summarize(part, torch.zeros(8, dtype=torch.long), 1) for part in (z[:8], z[8:]))

    def log_f(part):
        return literal_log_evidence(part.numpy(), 1e-4, 4.0, 0.005 * 2 * np.eye(2))

    expected = np.log(10) + gammaln(8) + log_f(z[:8]) + gammaln(8) + log_f(z[8:]) - gammaln(16) - log_f(z)
    assert float(objective.log_hastings(a, b, components)) == pytest.approx(expected, rel=1e-8)


def test_the_net_learns_the_e_step():
    _, state = clustering(blobs([0, 0], [2, 1]), n_clusters=2)
    z, labels = state.buffers["codes"].double().numpy(), state.buffers["labels"].numpy()
    joint = []
    for k in range(2):
        mine = z[labels == k]
        kappa, nu, mean = 1e-4 + len(mine), 4.0 + len(mine), mine.sum(0) / (1e-4 + len(mine))
        psi = 0.01 * np.eye(2) + mine.T @ mine - kappa * np.outer(mean, mean)
        joint.append(np.log(len(mine) + 0.1) + multivariate_normal.logpdf(z, mean, psi / nu))
    joint = np.stack(joint, 1)
    expected = joint - np.logaddexp.reduce(joint, axis=1, keepdims=True)
    np.testing.assert_allclose(state.buffers["target"].numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("log_ratio", "share"), [(5.0, 1.0), (np.log(0.3), 0.3), (-50.0, 0.0)])
def test_moves_are_accepted_with_the_probability_of_their_ratio(log_ratio, share):
    objective, state = clustering(blobs([0, 0]))
    accepted = objective.accept(torch.full((4000,), log_ratio), state).double().mean()
    assert float(accepted) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 4000))


# --- moves


def test_two_groups_in_one_cluster_are_split():
    objective, state = clustering(blobs([0, 0], [3, 3]))
    for _ in range(150):
        loss = objective.loss(next(iter(objective.batches(state))), state)
        state.optimizer.zero_grad()
        loss.total.backward()
        state.optimizer.step()
    moved = objective.move(state, splits=True)
    assert (moved, len(state.network.components)) == ({"births": 1, "deletes": 0}, 2)
    labels = state.buffers["labels"].numpy()
    assert Agreement(np.repeat([0, 1], 60), labels).acc_one_to_one == 1.0
    assert [tuple(value.shape[:1]) for value in state.network.head.parameters()] == [(2,)] * 3
    np.testing.assert_allclose(state.network.components.counts, [60, 60])


def test_two_halves_of_a_group_are_merged_and_others_are_not():
    objective, state = clustering(blobs([0, 0], [3, 3], n=100))
    state.buffers["labels"] = torch.tensor([0, 1] * 50 + [3] * 100)  # 2 is empty
    state.network.head.select(torch.zeros(4, dtype=torch.long))
    state.network.components.hold(state.network.components.summarize(state.buffers["codes"], state.buffers["labels"], 4))
    moved = objective.move(state, splits=False)
    assert moved == {"merges": 1, "deletes": 1}
    np.testing.assert_array_equal(state.buffers["labels"], np.repeat([0, 1], 100))
    np.testing.assert_allclose(state.network.components.counts, [100, 100])


def test_turns_follow_one_another():
    objective = SplitsAndMerges(DeepDPMConfig(n_epochs=100, feature_share=0.25), [None] * 5, torch.device("cpu"))
    phases = [objective.phase(position) for position in range(100)]
    changes = [phase for phase, before in zip(phases, [None, *phases], strict=False) if phase != before]
    assert changes == ["layers", "auto-encoder", *["clustering", "features"] * 2, "clustering"]
    assert phases.count("features") == pytest.approx(0.25 * 82, abs=1)


@pytest.mark.parametrize("n_epochs", [1, 2, 3, 7])
def test_few_epochs_end_with_clusters(n_epochs):
    model = DeepDPM(**SMALL | {"n_epochs": n_epochs}).fit(DIGITS)
    assert model.history_[-1].phase == "clustering"
    assert 1 <= model.n_clusters_ <= model.history_[-1].n_clusters == 2


# --- quality


@pytest.mark.parametrize("n_alternations", [1, 2])
def test_ten_gaussians_are_found(n_alternations):
    X, y = gaussians(1000)
    params = {"n_epochs": 200, "hidden_sizes": (64,), "move_every": 8, "layer_share": 0.1, "whole_share": 0.2}
    model = DeepDPM(**params, n_alternations=n_alternations, cluster_learning_rate=0.005, random_state=0).fit(X[:800])
    found = Agreement(y[800:], model.predict(X[800:]))
    assert found.acc_one_to_one >= 0.95
    assert abs(model.n_clusters_ - 10) <= 2


def test_given_codes_are_clustered_as_they_are():
    X = blobs([0, 0], [3, 3], [0, 4])
    model = DeepDPM(features="given", n_epochs=60, move_every=6, cluster_learning_rate=0.01, random_state=0).fit(X)
    assert Agreement(np.repeat(range(3), 60), model.labels_).acc_one_to_one >= 0.95
    assert model.transform(X).shape == X.shape
    np.testing.assert_allclose(model.reconstruct(X), X, atol=1e-5)


# --- what every clusterer can do


CHECKED = {"latent_dim": 2, "hidden_sizes": (8,), "n_hidden": 16, "n_epochs": 20, "n_alternations": 1, "move_every": 12}
CHECKED |= {"batch_size": 16, "cluster_learning_rate": 0.05, "random_state": 0}


@parametrize_with_checks(
    [DeepDPM(**CHECKED)],
    expected_failed_checks=lambda _: {
        "check_estimator_sparse_array": "it takes what has predict_proba for a classifier",
        "check_estimator_sparse_matrix": "it takes what has predict_proba for a classifier",
        "check_methods_subset_invariance": "a float32 network rounds rows that share a batch otherwise than rows alone",
    },
)
def test_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    if check.func.__name__ == "check_methods_sample_order_invariance":
        pytest.skip("a float32 network rounds rows in another order otherwise, by 1e-7 on some machines")
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


def test_the_same_seed_gives_the_same_model(fitted):
    assert_same(DeepDPM(**SMALL).fit(DIGITS), fitted)


def test_a_saved_model_comes_back(fitted, tmp_path):
    fitted.save(tmp_path / "model.diva")
    assert_same(diva.load(tmp_path / "model.diva"), fitted)


@pytest.mark.parametrize("name", ["network.head.output", "network.components.counts", "labels"])
def test_a_file_whose_parts_do_not_fit_is_refused(fitted, tmp_path, name):
    path = tmp_path / "model.diva"
    fitted.save(path)
    archive = read_archive(path, kinds=["DeepDPM"])
    archive.tensors[name] = archive.tensors[name][:1] if name != "labels" else archive.tensors[name] + 100
    write_archive(path, "DeepDPM", archive.document, archive.tensors)
    with pytest.raises(ModelFileError, match=r"model\.diva"):
        diva.load(path)


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("last", [1, 5, 9, 18, 27, 37], ids=str)
def test_a_run_that_failed_goes_on_as_if_nothing_had_been(tmp_path, fitted, last):
    def fail(_, record):
        if record.epoch == last:
            raise StoppedError

    with pytest.raises(StoppedError):
        DeepDPM(**SMALL, run_dir=tmp_path / "run", callbacks=[fail]).fit(DIGITS)
    assert_same(DeepDPM(**SMALL, run_dir=tmp_path / "run", resume=True).fit(DIGITS), fitted)


def test_callbacks_may_ask_at_any_time():
    counts = []
    DeepDPM(**SMALL, callbacks=[lambda model, _: counts.append(len(set(model.predict(NEW))))]).fit(DIGITS)
    assert len(counts) == 40


def test_a_run_has_a_report(tmp_path):
    data = LoadedData(ArraySource(DIGITS), load_digits().target[:200])
    summarize(DeepDPM(**SMALL, run_dir=tmp_path).fit(data.source), data).save(tmp_path)
    assert "DeepDPM" in write_report(tmp_path).read_text()
