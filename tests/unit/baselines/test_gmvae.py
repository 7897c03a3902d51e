"""GMVAE: its bound against plain numpy, and clusters that it should find."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import norm

from diva.baselines import GMVAE
from diva.baselines.gmvae import GMVAEConfig, GMVAENetwork
from diva.metrics import Agreement
from diva.networks import normal

from .helpers import labelled_gaussians

torch.set_num_threads(1)

CONFIG = GMVAEConfig(n_clusters=3, latent_dim=2, style_dim=4, hidden_sizes=(6,), prior_size=5, min_information=0.0)


def case(config=CONFIG):
    """A network, a batch, and moments and draws of its codes."""
    torch.manual_seed(0)
    network, x = GMVAENetwork((7,), config).double(), torch.randn(5, 7).double()
    mean, log_var = network.encoder(x)
    log_var = normal.bounded(log_var)
    drawn = normal.draw(mean, log_var, torch.Generator().manual_seed(1))
    return network, x, [part.detach().numpy() for part in (mean, log_var, drawn)]


def components(network, w):
    """Means and standard deviations of the Gaussians for one w, (K, D)."""
    mean, log_var = network.components(torch.from_numpy(w)[None])
    return mean[0].detach().numpy(), np.exp(log_var[0].detach().numpy() / 2)


def literal_kl(m, s, mu, sigma):
    """KL(N(m, s^2) || N(mu, sigma^2)), number by number."""
    return sum(np.log(sigma[d] / s[d]) + (s[d] ** 2 + (m[d] - mu[d]) ** 2) / (2 * sigma[d] ** 2) - 0.5 for d in range(len(m)))


def literal_terms(network, mean, log_var, drawn):
    """The divergences of x and w, sample by sample, and information of z."""
    kl, information = [], []
    for m, s, draw in zip(mean, np.exp(log_var / 2), drawn, strict=True):
        mu, sigma = components(network, draw[2:])
        p = softmax([norm.logpdf(draw[:2], mu[k], sigma[k]).sum() for k in range(3)])
        expected = sum(p[k] * literal_kl(m[:2], s[:2], mu[k], sigma[k]) for k in range(3))
        kl.append(expected + literal_kl(m[2:], s[2:], np.zeros(4), np.ones(4)))
        information.append((p * np.log(p * 3)).sum())
    return np.array(kl), np.array(information)


def test_the_divergences_are_those_of_the_paper():
    network, x, (mean, log_var, drawn) = case()
    kl, information = literal_terms(network, mean, log_var, drawn)
    found = network.bound_terms(x, torch.Generator().manual_seed(1)).kl.detach().numpy()
    np.testing.assert_allclose(found, kl + information.mean(), rtol=1e-6)


@pytest.mark.parametrize("min_information", [0.0, 2.0])
def test_information_up_to_the_minimum_is_free(min_information):
    network, x, moments = case(GMVAEConfig(**vars(CONFIG) | {"min_information": min_information}))
    kl, information = literal_terms(network, *moments)
    found = network.bound_terms(x, torch.Generator().manual_seed(1)).kl.detach().numpy()
    np.testing.assert_allclose(found - kl, max(min_information, information.mean()), rtol=1e-6)  # log 3 nats at most


def test_new_samples_are_assigned_by_the_means_of_their_codes():
    network, x, (mean, *_) = case()
    with torch.no_grad():
        log_p, density = network.assign(network.encode(x))
    for i, m in enumerate(mean):
        mu, sigma = components(network, m[2:])
        joint = np.array([norm.logpdf(m[:2], mu[k], sigma[k]).sum() for k in range(3)]) - np.log(3)
        np.testing.assert_allclose(log_p[i].exp().numpy(), softmax(joint), rtol=1e-6)
        assert float(density[i]) == pytest.approx(np.log(np.exp(joint).sum()), rel=1e-6)


@pytest.mark.quality
def test_ten_gaussians_are_found_by_the_best_of_three_runs():
    X, truth = labelled_gaussians(1200)
    params = {"n_epochs": 40, "hidden_sizes": (64,), "prior_size": 32, "batch_size": 50}
    models = [GMVAE(**params, random_state=seed).fit(X[:1000]) for seed in range(3)]
    assert min(Agreement(truth[:1000], model.labels_).acc_majority for model in models) >= 0.75  # some merge two classes
    best = max(models, key=lambda model: model.history_[-1].bound)
    assert Agreement(truth[:1000], best.labels_).acc_one_to_one >= 0.95
    assert Agreement(truth[1000:], best.predict(X[1000:])).acc_one_to_one >= 0.95
    assert best.n_clusters_ == 10
