"""VaDE: its bound against sums over draws, its training part by part, and what it gets from the base class."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

import diva
from diva.baselines import VaDE
from diva.baselines.vade import VaDEConfig, VaDENetwork, VariationalEmbedding
from diva.data import ArraySource, Samples
from diva.data.scaling import scaling_for
from diva.metrics import acc_one_to_one
from diva.training.encode import encode
from diva.training.loop import Batch, train_epoch
from diva.training.state import TrainState

from .helpers import CLASSES, gaussians

torch.set_num_threads(1)

DIGITS = load_digits().images[:200].astype(np.float32)
NEW = load_digits().images[200:230].astype(np.float32)
SMALL = {"n_clusters": 4, "latent_dim": 3, "hidden_sizes": (16, 8), "n_epochs": 10, "batch_size": 64, "random_state": 0}
CONFIG = VaDEConfig(n_clusters=4, latent_dim=3, hidden_sizes=(16, 8), n_epochs=10, batch_size=64)


@pytest.fixture(scope="module")
def fitted():
    return VaDE(**SMALL).fit(DIGITS)


def random_network(seed=0):
    """A network with a mixture of no particular shape, in double precision."""
    torch.manual_seed(seed)
    network = VaDENetwork((5,), CONFIG).double()
    for value in (network.logits, network.means, network.log_vars):
        value.data.normal_()
    return network


def case(config=CONFIG):
    """An objective, and a state where clusters begin to be learnt."""
    source = ArraySource(DIGITS)
    samples = Samples(source, scaling_for(source, None))
    torch.manual_seed(0)
    network = VaDENetwork(samples.scaling.input_shape, config)
    objective = VariationalEmbedding(config, samples, torch.device("cpu"))
    state = TrainState(
        network, torch.optim.Adam(network.parameters()), torch.Generator().manual_seed(0), np.random.default_rng(0), 0
    )
    state.position = objective.n_pretraining
    return objective, state


# --- formulas of the paper


def test_densities_are_those_of_the_mixture():
    network, z = random_network(), torch.randn(20, 3, dtype=torch.float64)
    parts = Independent(Normal(network.means, (network.log_vars / 2).exp()), 1)
    literal = MixtureSameFamily(Categorical(logits=network.logits), parts)
    torch.testing.assert_close(network.log_joint(z).logsumexp(1), literal.log_prob(z))
    torch.testing.assert_close(
        network.log_joint(z)[:, 2], parts.log_prob(z.unsqueeze(1))[:, 2] + network.logits.log_softmax(0)[2]
    )


@torch.no_grad()
def test_the_divergence_is_the_mean_over_draws():
    network = random_network()
    mean, log_var = torch.randn(1, 3, dtype=torch.float64), torch.randn(1, 3, dtype=torch.float64)
    gamma = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
    q = Independent(Normal(mean, (log_var / 2).exp()), 1)
    z = q.sample((200_000,)).squeeze(1)
    draws = q.log_prob(z.unsqueeze(1)) + ((gamma.log() - network.log_joint(z)) * gamma).sum(1, keepdim=True)
    error = float(draws.std() / len(draws) ** 0.5)
    assert float(network.kl(mean, log_var, gamma.log())) == pytest.approx(float(draws.mean()), abs=5 * error)


def test_the_divergence_of_one_cluster_is_that_of_two_gaussians():
    network = random_network()
    mean, log_var = torch.randn(7, 3, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64)
    log_gamma = torch.full((7, 4), -800.0, dtype=torch.float64)
    log_gamma[:, 1] = 0.0
    q, p = (Independent(Normal(m, (v / 2).exp()), 1) for m, v in ((mean, log_var), (network.means[1], network.log_vars[1])))
    expected = torch.distributions.kl_divergence(q, p) - network.logits.log_softmax(0)[1]
    torch.testing.assert_close(network.kl(mean, log_var, log_gamma), expected)


def test_the_loss_is_reconstruction_and_divergence():
    objective, state = case()
    objective.before_epoch(state)
    noise = torch.Generator().set_state(state.generator.get_state())
    index = torch.arange(40)
    loss = objective.loss(Batch(index), state)
    net, x = state.network, objective.samples.take(index)
    mean, log_var = net.encode(x)
    z = mean + torch.randn(mean.shape, generator=noise) * (log_var / 2).exp()
    error = 0.5 * ((net.decode(z) - x).flatten(1) / net.unit).square().sum(1).mean()
    divergence = net.kl(mean, log_var, net.log_joint(z).log_softmax(1)).mean()
    torch.testing.assert_close(loss.total, error + divergence)
    assert loss.terms.keys() == {"reconstruction", "kl"}


# --- training


def test_turned_codes_have_the_same_reconstructions():
    network, x = random_network(), torch.randn(9, 5, dtype=torch.float64)
    before, made = network.encode(x)[0], network.decode(network.encode(x)[0])
    by = torch.randn(3, 3, dtype=torch.float64)
    network.turn(by)
    torch.testing.assert_close(network.encode(x)[0], before @ by)
    torch.testing.assert_close(network.decode(network.encode(x)[0]), made)


def test_the_mixture_starts_where_clusters_are_round_and_q_is_narrow():
    objective, state = case()
    objective.before_epoch(state)
    codes = encode(state.network, objective.samples, objective.device)
    labels = state.network.log_joint(codes.mean).argmax(1)
    within = codes.mean - state.network.means.detach()[labels]
    np.testing.assert_allclose(np.cov(within.numpy().T), np.eye(3), atol=0.5)
    torch.testing.assert_close(codes.log_var.exp(), torch.full_like(codes.log_var, 0.1), atol=0.01, rtol=0)


def test_the_learning_rate_falls():
    objective, state = case(replace(CONFIG, n_epochs=40, decay_epochs=3, decay=0.5, cluster_learning_rate=0.1))
    rates = []
    for state.position in range(objective.n_pretraining, objective.n_pretraining + 7):
        objective.before_epoch(state)
        rates.append(state.optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(rates, [0.1] * 3 + [0.05] * 3 + [0.025])
    assert isinstance(state.optimizer, torch.optim.Adam)


def test_networks_and_mixture_are_learnt_together():
    objective, state = case()
    objective.before_epoch(state)
    before = {name: value.clone() for name, value in state.network.state_dict().items()}
    train_epoch(state, objective)
    same = {name for name, value in state.network.state_dict().items() if torch.equal(value, before[name])}
    assert same == {"unit"}


def test_phases_follow_one_another(fitted):
    assert [r.phase for r in fitted.history_] == ["layers"] * 2 + ["auto-encoder"] * 4 + ["clustering"] * 4
    assert all((r.kl is None) == (r.phase != "clustering") for r in fitted.history_)


# --- answers, files and runs


@pytest.mark.quality
def test_gaussians_are_found():
    found = [VaDE(n_epochs=40, hidden_sizes=(64, 64), batch_size=60, random_state=seed).fit(gaussians(1)) for seed in range(3)]
    assert np.median([acc_one_to_one(CLASSES, model.labels_) for model in found]) >= 0.95
    assert np.median([acc_one_to_one(CLASSES, model.predict(gaussians(2))) for model in found]) >= 0.95


def test_answers_fit_together(fitted):
    np.testing.assert_array_equal(fitted.predict(DIGITS), fitted.labels_)
    said = fitted.assign(NEW)
    assert said.codes.shape == (30, 3)
    np.testing.assert_allclose(said.probabilities.sum(1), 1.0)
    assert fitted.reconstruct(NEW).shape == NEW.shape
    assert fitted.n_clusters_ == 4


def test_the_same_seed_gives_the_same_model(fitted):
    again, other = clone(fitted).fit(DIGITS), clone(fitted).set_params(random_state=1).fit(DIGITS)
    np.testing.assert_array_equal(again.predict_proba(NEW), fitted.predict_proba(NEW))
    assert not np.array_equal(other.transform(NEW), fitted.transform(NEW))


def test_a_saved_model_comes_back(fitted, tmp_path):
    fitted.save(tmp_path / "m.diva")
    loaded = diva.load(tmp_path / "m.diva")
    assert (type(loaded), loaded.config_, loaded.history_) == (VaDE, fitted.config_, fitted.history_)
    for ask in ("predict", "predict_proba", "transform", "score_samples", "reconstruct"):
        np.testing.assert_array_equal(getattr(loaded, ask)(NEW), getattr(fitted, ask)(NEW), err_msg=ask)


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("last", [1, 4, 5, 8], ids=["layers", "before-clusters", "clusters", "late"])
def test_a_run_that_failed_goes_on_as_if_nothing_had_been(tmp_path, fitted, last):
    def fail(_, record):
        if record.epoch == last:
            raise StoppedError

    with pytest.raises(StoppedError):
        VaDE(**SMALL, run_dir=tmp_path / "run", callbacks=[fail]).fit(DIGITS)
    model = VaDE(**SMALL, run_dir=tmp_path / "run", resume=True).fit(DIGITS)
    for (name, value), other in zip(fitted.network_.state_dict().items(), model.network_.state_dict().values(), strict=True):
        assert torch.equal(value, other), name
    np.testing.assert_array_equal(diva.load(tmp_path / "run/model.diva").predict_proba(NEW), fitted.predict_proba(NEW))


def test_more_clusters_than_samples_are_refused():
    with pytest.raises(ValueError, match="n_clusters=201 needs as many samples, got 200"):
        VaDE(n_clusters=201).fit(DIGITS)


TAKES_FOR_CLASSIFIER = "it takes what has predict_proba for a classifier, and asks for as many columns as y has classes"
REASONS = {
    "check_estimator_sparse_array": TAKES_FOR_CLASSIFIER,
    "check_estimator_sparse_matrix": TAKES_FOR_CLASSIFIER,
    "check_methods_subset_invariance": "a float32 network rounds rows that share a batch otherwise than rows alone, by 1e-6",
}


@parametrize_with_checks(
    [VaDE(n_clusters=2, latent_dim=2, hidden_sizes=(8,), n_epochs=4, random_state=0)],
    expected_failed_checks=lambda _: REASONS,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
