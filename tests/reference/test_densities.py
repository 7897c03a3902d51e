"""Densities, expectations and weights against scipy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from diva import DPMixture
from diva.mixture.gaussian import make_family
from diva.mixture.local import summarize
from diva.mixture.sticks import expected_log_weights, expected_weights, stick_bound, stick_posterior

from ..properties.strategies import assigned, clumps, concentrations, families, seeds
from .literal import NormalWishart, independent_parts, stick_parameters


@st.composite
def components_and_points(draw):
    """A family, statistics of some components, the literal posterior of each, and points to look at."""
    family = draw(families())
    z, resp, weights = draw(assigned(family.dim, draw(st.integers(1, 4))))
    mass = resp if weights is None else resp * weights.unsqueeze(1)
    parts = [
        [(part, prior.given(z[:, part].numpy(), mass[:, k].numpy())) for part, prior in independent_parts(family)]
        for k in range(resp.shape[1])
    ]
    return family, summarize(family, z, resp, weights), parts, draw(clumps(family.dim))


@given(components_and_points())
def test_predictive_density_is_students(case):
    family, total, components, x = case
    expected = [sum(q.log_predictive(x[:, part]) for part, q in component) for component in components]
    np.testing.assert_allclose(family.log_predictive(total, torch.from_numpy(x)).numpy().T, expected, rtol=1e-7, atol=1e-7)


@given(components_and_points())
def test_expected_log_likelihood_is_linear_in_the_features(case):
    family, total, components, x = case
    coef, offset = family.expected_log_likelihood(total)
    scores = (family.features(torch.from_numpy(x)) @ coef + offset).numpy().T
    expected = np.array([sum(q.e_log_likelihood(x[:, part]) for part, q in component) for component in components])
    np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@given(components_and_points())
def test_means_and_covariances_are_those_of_the_posterior(case):
    family, total, components, _ = case
    means = [np.concatenate([q.m for _, q in component]) for component in components]
    np.testing.assert_allclose(family.means(total).numpy(), means, rtol=1e-8, atol=1e-10)
    covariances = np.array([np.squeeze([q.psi / q.nu for _, q in component]) for component in components])
    np.testing.assert_allclose(family.covariances(total).numpy(), covariances.reshape(total.sum_zz.shape), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_expected_log_likelihood_is_the_mean_over_draws(covariance_type):
    rng = np.random.default_rng(0)
    z = torch.from_numpy(rng.normal(size=(30, 2)) @ [[1.0, 0.6], [0.0, 0.5]])
    family = make_family(covariance_type, torch.zeros(2).double(), torch.ones(2).double(), kappa0=0.5)
    coef, offset = family.expected_log_likelihood(summarize(family, z, torch.ones(30, 1)))
    x = np.array([[0.5, -1.0], [0.0, 0.3]])
    draws = np.zeros((len(x), 20_000))
    for part, prior in independent_parts(family):
        q = prior.given(z[:, part].numpy(), np.ones(30))
        precisions = np.reshape(
            stats.wishart(q.nu, np.linalg.inv(q.psi)).rvs(draws.shape[1], random_state=rng), (-1, q.dim, q.dim)
        )
        factors = np.linalg.cholesky(np.linalg.inv(q.kappa * precisions))
        means = q.m + np.einsum("sij,sj->si", factors, rng.normal(size=(draws.shape[1], q.dim)))
        apart = x[:, None, part] - means
        distance = np.einsum("nsi,sij,nsj->ns", apart, precisions, apart)
        draws += 0.5 * (np.linalg.slogdet(precisions)[1] - q.dim * np.log(2 * np.pi) - distance)
    scores = (family.features(torch.from_numpy(x)) @ coef + offset).squeeze(1).numpy()
    standard_error = draws.std(1) / np.sqrt(draws.shape[1])
    assert (np.abs(draws.mean(1) - scores) < 4 * standard_error).all()


masses = st.lists(st.floats(0.0, 1e4), min_size=1, max_size=8).map(np.array)


@given(masses, concentrations)
def test_sticks_are_beta_distributed(counts, alpha):
    eta1, eta0 = stick_posterior(torch.from_numpy(counts), alpha)
    expected = np.array(stick_parameters(counts, alpha)).T
    np.testing.assert_allclose(torch.stack([eta1, eta0]).numpy(), expected, rtol=1e-9)
    np.testing.assert_allclose(
        float(stick_bound(torch.from_numpy(counts), alpha)),
        (special.betaln(*expected) - special.betaln(1.0, alpha)).sum(),
        rtol=1e-8,
        atol=1e-8,
    )


@given(masses, concentrations)
def test_expected_weights_are_those_of_broken_sticks(counts, alpha):
    sticks = stats.beta(*np.array(stick_parameters(counts, alpha)).T)
    broken = np.concatenate([[1.0], np.cumprod(1 - sticks.mean())])
    weights = expected_weights(*stick_posterior(torch.from_numpy(counts), alpha)).numpy()
    np.testing.assert_allclose(weights, np.append(sticks.mean(), 1.0) * broken, rtol=1e-9)
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-12)


@given(masses, concentrations)
def test_expected_log_weights_are_digammas(counts, alpha):
    expected, passed = [], 0.0
    for eta1, eta0 in stick_parameters(counts, alpha):
        both = special.digamma(eta1 + eta0)
        expected.append(special.digamma(eta1) - both + passed)
        passed += special.digamma(eta0) - both
    e_log_pi = expected_log_weights(*stick_posterior(torch.from_numpy(counts), alpha))
    np.testing.assert_allclose(e_log_pi.numpy(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_score_samples_is_a_mixture_of_students_in_the_units_of_the_data(covariance_type):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, [0.3, 0.01], (50, 2)) for c in ([0, 0], [4, 0], [0, 3])]) * [100.0, 1.0] + [1e3, 5.0]
    model = DPMixture(covariance_type=covariance_type, random_state=0).fit(X)
    x = np.concatenate([X[::20], rng.uniform(-3e3, 3e3, (5, 2))])  # near and far
    total, standardization = model.mixture_.state.total, model.mixture_.standardization
    origin, unit = standardization.mean.numpy(), standardization.scale.numpy()
    weights = expected_weights(*stick_posterior(total.counts, 5.0)).numpy()
    density = np.zeros(len(x))
    for k, weight in enumerate(weights):
        log_component = 0.0
        for part, prior in independent_parts(model.mixture_.state.family):
            q = prior
            if k < len(total):  # the last weight is the prior's
                counts, sum_z = float(total.counts[k]), total.sum_z[k, part].numpy()
                sum_zz = total.sum_zz[k].numpy()
                sum_zz = sum_zz if covariance_type == "full" else sum_zz[part, None]
                m = (prior.kappa * prior.m + sum_z) / (prior.kappa + counts)
                psi = prior.psi + sum_zz - (prior.kappa + counts) * np.outer(m, m)
                q = NormalWishart(m, prior.kappa + counts, prior.nu + counts, psi)
            # the same component in the data's own units
            q = NormalWishart(q.m * unit[part] + origin[part], q.kappa, q.nu, q.psi * np.outer(unit[part], unit[part]))
            log_component = log_component + q.log_predictive(x[:, part])
        density += weight * np.exp(log_component)
    assert len(total) == 3
    np.testing.assert_allclose(model.score_samples(x), np.log(density), rtol=1e-6)
    np.testing.assert_allclose(model.score(x), np.log(density).mean(), rtol=1e-6)


@given(seeds)
def test_density_integrates_to_one(seed):
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.normal(c, s, (30, 1)) for c, s in zip(rng.normal(0, 5, 2), rng.uniform(0.1, 2, 2), strict=True)])
    model = DPMixture(random_state=0).fit(X)
    grid = np.sinh(np.linspace(-25, 25, 40_001)) * X.std() * 1e-3 + X.mean()  # fine in the middle, tails far out
    np.testing.assert_allclose(np.trapezoid(np.exp(model.score_samples(grid[:, None])), grid), 1.0, atol=2e-3)
