"""SB-VAE: its bound, and why its largest segments are no clusters."""

import numpy as np
import pytest
import torch
from scipy.special import beta
from sklearn.cluster import KMeans

from diva.baselines import SBVAE
from diva.baselines.sbvae import SBVAEConfig, SBVAENetwork
from diva.metrics import Agreement
from diva.networks import kumaraswamy

from .helpers import labelled_gaussians

torch.set_num_threads(1)

CONFIG = SBVAEConfig(latent_dim=4, hidden_sizes=(6,), concentration=2.0)


def case():
    torch.manual_seed(0)
    network, x = SBVAENetwork((7,), CONFIG).double(), torch.randn(5, 7).double()
    with torch.no_grad():
        a, b = (values.numpy() for values in network.posterior(x))
    return network, x, a, b


def segments(v):
    """One stick after the other; the last takes the rest."""
    left, pieces = 1.0, []
    for share in (*v, 1.0):
        pieces.append(left * share)
        left -= pieces[-1]
    return pieces


def test_codes_are_expected_segments():
    network, x, a, b = case()
    v = b * beta(1 + 1 / a, b)
    with torch.no_grad():
        found = network.encode(x).numpy()
    np.testing.assert_allclose(found, [segments(row) for row in v], rtol=1e-6)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-6)


def test_the_bound_is_that_of_the_paper():
    network, x, a, b = case()
    sticks = kumaraswamy.draw(torch.from_numpy(a), torch.from_numpy(b), torch.Generator().manual_seed(1)).numpy()
    with torch.no_grad():
        found = network.bound_terms(x, torch.Generator().manual_seed(1))
        pi = torch.tensor([segments(row) for row in sticks])
        expected = network.likelihood(network.decode(pi), x)
        kl = kumaraswamy.kl_to_beta(torch.from_numpy(a), torch.from_numpy(b), 1.0, 2.0)
    np.testing.assert_allclose(found.reconstruction, expected, rtol=1e-6)
    np.testing.assert_allclose(found.kl, kl.sum(1), rtol=1e-6)
    np.testing.assert_allclose(found.log_proba.exp(), pi, rtol=1e-5)


def test_a_sample_belongs_to_its_largest_segment():
    model = SBVAE(latent_dim=5, hidden_sizes=(8,), n_epochs=2, random_state=0).fit(labelled_gaussians(60)[0])
    codes = model.transform(labelled_gaussians(60)[0])
    used = np.flatnonzero(model.network_.in_use.numpy())
    np.testing.assert_array_equal(used[model.labels_], codes.argmax(1))


@pytest.mark.quality
def test_codes_of_ten_gaussians_are_apart_but_largest_segments_are_shared():
    X, truth = labelled_gaussians()
    model = SBVAE(n_epochs=40, hidden_sizes=(64,), batch_size=50, learning_rate=3e-3, random_state=0).fit(X)
    codes = model.transform(X)
    near = KMeans(10, n_init=10, random_state=0).fit_predict(codes)
    assert Agreement(truth, near).acc_one_to_one >= 0.95  # the codes know the class
    found = Agreement(truth, model.labels_)
    assert 0.6 < found.acc_majority < 0.95  # a largest segment less so: most of a code lies elsewhere
    assert codes.max(1).mean() == pytest.approx(0.38, abs=0.1)


def test_the_weight_of_the_divergence_rises():
    X = labelled_gaussians(60)[0]
    history = SBVAE(latent_dim=5, hidden_sizes=(8,), n_epochs=8, random_state=0).fit(X).history_
    weights = [(record.loss - record.reconstruction) / record.kl for record in history]
    np.testing.assert_allclose(weights, [0.25, 0.5, 0.75, 1, 1, 1, 1, 1], rtol=1e-4)
    assert all(record.bound == pytest.approx(-record.reconstruction - record.kl) for record in history)
