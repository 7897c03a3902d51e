"""The closed-form bound against its definition, and against the exact evidence."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from torch.distributions import Beta, kl_divergence

from diva.mixture.bound import elbo
from diva.mixture.gaussian import make_family
from diva.mixture.laps import fit_mixture
from diva.mixture.local import summarize
from diva.mixture.state import MixtureState

from ..properties.helpers import MemoryBlock
from ..properties.strategies import assigned, concentrations, covariance_types, families
from .literal import independent_parts, stick_parameters


@st.composite
def assigned_codes(draw):
    family = draw(families())
    return family, draw(assigned(family.dim, draw(st.integers(1, 5))))


def bound_by_terms(family, alpha, z, resp, weights):
    """E[log p(z | c)] + E[log p(c | v)] + H[c] - KL[v] - KL[mu, Lambda], term by term."""
    z, resp = z.numpy(), resp.numpy()
    w = np.ones(len(z)) if weights is None else weights.numpy()
    data = assignment = kl_components = kl_sticks = 0.0
    for part, prior in independent_parts(family):
        for k in range(resp.shape[1]):
            q = prior.given(z[:, part], w * resp[:, k])
            data += (w * resp[:, k]) @ q.e_log_likelihood(z[:, part])
            kl_components += q.kl(prior)
    e_log_passed = 0.0
    for k, (eta1, eta0) in enumerate(stick_parameters(w @ resp, alpha)):
        e_log_v, e_log_rest = special.digamma([eta1, eta0]) - special.digamma(eta1 + eta0)
        assignment += (w @ resp[:, k]) * (e_log_v + e_log_passed)
        e_log_passed += e_log_rest
        q, p = Beta(torch.tensor(eta1), torch.tensor(eta0)), Beta(torch.tensor(1.0).double(), torch.tensor(alpha).double())
        kl_sticks += float(kl_divergence(q, p))
    entropy = w @ special.entr(resp).sum(1)
    return data + assignment + entropy - kl_sticks - kl_components


@settings(max_examples=60)
@given(assigned_codes(), concentrations)
def test_closed_form_is_the_sum_of_its_terms(codes, alpha):
    family, (z, resp, weights) = codes
    closed = float(elbo(family, alpha, summarize(family, z, resp, weights)))
    np.testing.assert_allclose(closed, bound_by_terms(family, alpha, z, resp, weights), rtol=1e-8, atol=1e-7)


# --- seven points have 877 partitions, so their evidence can be summed


def partitions(items):
    """All ways to split a tuple into groups."""
    if not items:
        yield ()
        return
    first, rest = items[0], items[1:]
    for smaller in partitions(rest):
        yield ((first,), *smaller)
        for i, group in enumerate(smaller):
            yield (*smaller[:i], (first, *group), *smaller[i + 1 :])


def log_evidence(family, alpha, z):
    """Log of the sum over partitions of the Chinese restaurant's probability times each group's marginal likelihood."""
    z = z.numpy()

    @cache
    def log_marginal(group):
        """Chain of predictive densities: each point given those before it."""
        if not group:
            return 0.0
        *before, last = group
        weights = np.ones(len(before))
        density = sum(
            float(prior.given(z[before, part], weights).log_predictive(z[[last], part])[0])
            for part, prior in independent_parts(family)
        )
        return log_marginal(tuple(before)) + density

    def log_joint(partition):
        seating = sum(np.log(alpha) + special.gammaln(len(group)) for group in partition)
        return seating + sum(log_marginal(tuple(sorted(group))) for group in partition)

    n = len(z)
    return (
        special.logsumexp([log_joint(p) for p in partitions(tuple(range(n)))])
        - special.gammaln(alpha + n)
        + special.gammaln(alpha)
    )


@st.composite
def seven_points(draw):
    family = draw(families(dims=st.integers(1, 2)))
    k = draw(st.integers(1, 4))
    return family, *draw(assigned(family.dim, k, n_rows=st.just(7)))[:2]


def test_seven_points_have_877_partitions():
    found = {frozenset(map(frozenset, p)) for p in partitions(tuple(range(7)))}
    assert len(found) == 877


@given(seven_points(), concentrations)
def test_bound_stays_below_the_exact_evidence(points, alpha):
    family, z, resp = points
    evidence = log_evidence(family, alpha, z)
    assert float(elbo(family, alpha, summarize(family, z, resp))) < evidence
    fitted = fit_mixture([MemoryBlock(z)], MixtureState.start(family, alpha), np.random.default_rng(0), tol=0.0)
    assert fitted.state.elbo < evidence


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_bound_is_the_evidence_where_all_must_be_together(covariance_type):
    z = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 2)))
    family = make_family(covariance_type, torch.zeros(2).double(), torch.full((2,), 0.5).double())
    together = summarize(family, z, torch.ones(7, 1))
    np.testing.assert_allclose(float(elbo(family, 1e-9, together)), log_evidence(family, 1e-9, z), atol=1e-6)


@settings(max_examples=10)
@given(covariance_types, st.integers(0, 1000))
def test_a_fit_comes_close_to_the_evidence(covariance_type, seed):
    """Two far groups of points leave little doubt, so little is lost: the labels' symmetry and the weights."""
    rng = np.random.default_rng(seed)
    z = torch.from_numpy(np.concatenate([rng.normal(-5, 0.1, (4, 1)), rng.normal(5, 0.1, (3, 1))]))
    family = make_family(covariance_type, torch.zeros(1).double(), torch.full((1,), 0.1).double())
    fitted = fit_mixture([MemoryBlock(z)], MixtureState.start(family, 1.0), np.random.default_rng(0))
    assert fitted.state.n_components == 2
    assert 0 < log_evidence(family, 1.0, z) - fitted.state.elbo < 3
