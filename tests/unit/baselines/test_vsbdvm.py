"""VSB-DVM: its loss against plain numpy, its moving averages, and clusters that it finds."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from scipy.stats import entropy, norm
from torch.distributions import Beta, kl_divergence

from diva.baselines import VSBDVM
from diva.baselines.vsbdvm import FallingRates, VSBDVMConfig, VSBDVMNetwork
from diva.metrics import Agreement
from diva.networks import kumaraswamy, normal

from .helpers import labelled_gaussians

torch.set_num_threads(1)

CONFIG = VSBDVMConfig(max_clusters=3, latent_dim=2, hidden_sizes=(6,), stick_size=5, stick_weight=0.0)


def case(**given):
    torch.manual_seed(0)
    network, x = VSBDVMNetwork((7,), VSBDVMConfig(**vars(CONFIG) | given)).double(), torch.randn(5, 7).double()
    return network, x, torch.Generator().manual_seed(1)


@torch.no_grad()
def drawn(network, x):
    """Codes and gamma as a step draws them."""
    noise = torch.Generator().manual_seed(1)
    mean, log_var, b = network.posterior(x)
    z = normal.draw(mean, log_var, noise)
    v = kumaraswamy.draw(torch.ones_like(b), b, noise)
    return [values.numpy() for values in (mean, (log_var / 2).exp(), z, kumaraswamy.log_segments(v).softmax(1))]


def test_the_loss_is_that_of_the_paper():
    network, x, noise = case(component_rate=0.0)
    mean, deviation, z, gamma = drawn(network, x)
    mu, sigma = network.means.numpy(), network.variances.sqrt().numpy()
    expected = []
    for m, s, code, g in zip(mean, deviation, z, gamma, strict=True):
        log_p = log_softmax([norm.logpdf(code, mu[k], sigma[k]).sum() for k in range(3)])
        cross = [0.5 * (np.log(2 * np.pi * sigma[k] ** 2) + (s**2 + (m - mu[k]) ** 2) / sigma[k] ** 2).sum() for k in range(3)]
        q_entropy = norm.entropy(scale=s).sum()
        expected.append(g @ cross - q_entropy + entropy(g, np.exp(log_p)))
    found = network.bound_terms(x, noise)
    np.testing.assert_allclose(found.kl.detach().numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(found.log_proba.exp().detach().numpy(), gamma, rtol=1e-6)


def test_sticks_pay_for_their_distance_from_the_prior():
    without, x, noise = case(component_rate=0.0)
    kl = without.bound_terms(x, noise).kl
    network, x, noise = case(component_rate=0.0, stick_weight=1.0, concentration=4.0)
    with torch.no_grad():
        paid, b = network.bound_terms(x, noise).kl - kl, network.posterior(x)[2]
    expected = kl_divergence(Beta(torch.ones_like(b), b), Beta(torch.ones_like(b), torch.full_like(b, 4.0)))
    torch.testing.assert_close(paid.detach(), expected.sum(1))


def test_a_step_moves_components_towards_the_codes_they_have():
    network, x, noise = case(component_rate=0.1)
    before = network.means.numpy().copy()
    _, _, z, gamma = drawn(network, x)
    network.bound_terms(x, noise)
    means = np.array([np.average(z, axis=0, weights=gamma[:, k]) for k in range(3)])
    spread = np.array([np.average((z - means[k]) ** 2, axis=0, weights=gamma[:, k]) for k in range(3)])
    np.testing.assert_allclose(network.means.numpy(), 0.9 * before + 0.1 * means, rtol=1e-6)
    np.testing.assert_allclose(network.variances.numpy(), 0.9 + 0.1 * spread, rtol=1e-6)


def test_segments_are_equal_at_the_start():
    network, _, _ = case(max_clusters=8)
    network.stick_head[2].weight.data.zero_()
    with torch.no_grad():
        gamma = network.encode(torch.zeros(1, 7).double())[:, 2:].exp()
    np.testing.assert_allclose(gamma.numpy(), 1 / 8, rtol=0.1)


def test_rates_fall():
    model = VSBDVM(**vars(CONFIG) | {"n_epochs": 3, "hidden_sizes": (4,)}, random_state=0)
    X = labelled_gaussians(40)[0]
    model.fit(X)
    state = model._fresh_state(0)
    state.position = 80
    FallingRates(model.config_, None, torch.device("cpu")).before_epoch(state)
    assert state.optimizer.param_groups[0]["lr"] == pytest.approx(0.81 * 2e-3)
    assert state.network.component_rate == pytest.approx(0.81 * 0.02)


@pytest.mark.quality
@pytest.mark.slow
def test_ten_gaussians_are_found_among_fifty_components():
    X, truth = labelled_gaussians(1200)
    params = {"n_epochs": 120, "batch_size": 50, "learning_rate": 5e-3, "component_rate": 0.05}
    model = VSBDVM(**params, hidden_sizes=(64,), stick_size=32, random_state=0).fit(X[:1000])
    assert Agreement(truth[:1000], model.labels_).acc_one_to_one >= 0.95
    assert Agreement(truth[1000:], model.predict(X[1000:])).acc_one_to_one >= 0.95
    assert abs(int((np.bincount(model.labels_) >= 10).sum()) - 10) <= 2  # a few single samples stay on their own


@pytest.mark.quality
def test_with_no_component_to_spare_classes_are_merged():
    X, truth = labelled_gaussians()
    params = {"n_epochs": 60, "hidden_sizes": (64,), "stick_size": 32, "batch_size": 50}
    model = VSBDVM(**params, max_clusters=10, random_state=0).fit(X)
    found = Agreement(truth, model.labels_)
    assert 5 <= model.n_clusters_ < 10
    assert 0.6 <= found.acc_majority < 0.95
    assert found.nmi >= 0.8
