"""Local and global steps against scikit-learn's, where the models coincide: full covariance, or one dimension.

(In more dimensions scikit-learn's diagonal local step keeps the expectation of a Wishart, a small real difference.)
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.mixture import BayesianGaussianMixture

from diva.mixture.gaussian import NormalGamma
from diva.mixture.local import summarize
from diva.mixture.state import MixtureState
from diva.mixture.sticks import stick_posterior

from ..properties.strategies import assigned, concentrations, families

same_model = st.one_of(
    families(covariance_types=st.just("full")),
    families(dims=st.just(1), covariance_types=st.just("diag")),
)


@st.composite
def cases(draw):
    family, alpha = draw(same_model), draw(concentrations)
    z, resp, _ = draw(assigned(family.dim, draw(st.integers(1, 4)), n_rows=st.integers(2, 40)))
    return family, alpha, z, resp


def both(family, alpha, z, resp):
    """Our state and scikit-learn's mixture after a global step on the same responsibilities."""
    total = summarize(family, z, resp)
    ids = tuple(range(len(total)))
    ours = MixtureState(family, alpha, family.empty(len(ids)), (total,), total, ids, len(ids))
    diagonal = isinstance(family, NormalGamma)
    theirs = BayesianGaussianMixture(
        n_components=len(ids),
        covariance_type="diag" if diagonal else "full",
        reg_covar=0.0,
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=alpha,
        mean_precision_prior=family.kappa0,
        mean_prior=family.m0.numpy(),
        degrees_of_freedom_prior=family.nu0,
        covariance_prior=(family.beta0 if diagonal else family.psi0).numpy(),
    )
    theirs._check_parameters(z.numpy())
    with np.errstate(divide="ignore"):
        theirs._m_step(z.numpy(), np.log(resp.numpy()))
    return ours, theirs


@given(cases())
def test_global_step(case):
    ours, theirs = both(*case)
    family, total = ours.family, ours.total
    np.testing.assert_allclose(family.means(total).numpy(), theirs.means_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(family.covariances(total).numpy(), theirs.covariances_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(stick_posterior(total.counts, ours.alpha)[0].numpy(), theirs.weight_concentration_[0])
    np.testing.assert_allclose(stick_posterior(total.counts, ours.alpha)[1].numpy(), theirs.weight_concentration_[1])


@given(cases())
def test_local_step(case):
    _, _, z, _ = case
    ours, theirs = both(*case)
    _, log_resp = theirs._estimate_log_prob_resp(z.numpy())
    np.testing.assert_allclose(ours.posterior.responsibilities(z).numpy(), np.exp(log_resp), atol=1e-8)


@settings(max_examples=15)
@given(cases())
def test_many_steps(case):
    family, alpha, z, resp = case
    theirs_resp = resp
    for _ in range(10):
        ours, _ = both(family, alpha, z, resp)
        _, theirs = both(family, alpha, z, theirs_resp)
        resp = ours.posterior.responsibilities(z)
        theirs_resp = resp.new_tensor(np.exp(theirs._estimate_log_prob_resp(z.numpy())[1]))
    np.testing.assert_allclose(resp.numpy(), theirs_resp.numpy(), atol=1e-5)
