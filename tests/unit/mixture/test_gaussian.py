from dataclasses import replace

import numpy as np
import pytest
import torch

from diva import DPMixture
from diva.mixture.gaussian import NormalGamma, NormalWishart, make_family
from diva.mixture.local import FLOAT32_AMPLIFICATION, summarize
from diva.mixture.stats import concat

BOTH = pytest.mark.parametrize("covariance_type", ["diag", "full"])


def family_of(covariance_type, dim=3, variance=0.1, **options):
    zeros = torch.zeros(dim, dtype=torch.float64)
    return make_family(covariance_type, zeros, zeros + variance, **options)


def stats_of(family, z, n_components=1):
    resp = torch.full((len(z), n_components), 1.0 / n_components, dtype=torch.float64)
    return summarize(family, torch.as_tensor(z), resp)


@BOTH
def test_shapes_and_dtypes(covariance_type):
    family = family_of(covariance_type)
    z = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    total = stats_of(family, z, n_components=4)
    full = covariance_type == "full"
    assert family.dim == 3
    assert family.n_features == (9 if full else 6)
    assert family.features(z).shape == (7, family.n_features)
    assert family.features(z).dtype == torch.float32  # as the codes
    assert total.sum_zz.shape == ((4, 3, 3) if full else (4, 3))
    assert family.covariances(total).shape == total.sum_zz.shape
    assert family.means(total).shape == (4, 3)
    assert family.log_normalizer(total).shape == (4,)
    assert family.log_predictive(total, z.double()).shape == (7, 4)
    assert family.expected_log_likelihood(total).coef.shape == (family.n_features, 4)
    assert all(t.dtype == torch.float64 for t in (*total.fields(), *family.expected_log_likelihood(total)))


def test_full_features_are_the_upper_triangle():
    z = torch.tensor([[2.0, 3.0, 5.0]])
    assert family_of("full").features(z).tolist() == [[2, 3, 5, 4, 6, 10, 9, 15, 25]]
    assert family_of("diag").features(z).tolist() == [[2, 3, 5, 4, 9, 25]]


def test_full_statistics_are_symmetric():
    z = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sum_zz = stats_of(family_of("full"), z).sum_zz[0]
    torch.testing.assert_close(sum_zz, z.T @ z)
    assert torch.equal(sum_zz, sum_zz.T)


@BOTH
def test_prior_expects_the_variance_asked_for(covariance_type):
    """E[1 / lambda] of a Gamma, E[Lambda^-1] of a Wishart."""
    family = family_of(covariance_type, variance=0.7, nu0=9.0)
    if isinstance(family, NormalGamma):
        expected = family.beta0 / (family.nu0 - 2)
    else:
        expected = family.psi0.diagonal() / (family.nu0 - family.dim - 1)
    torch.testing.assert_close(expected, torch.full((3,), 0.7, dtype=torch.float64))


@BOTH
def test_degrees_of_freedom_default_to_two_more_than_dimensions(covariance_type):
    assert family_of(covariance_type, dim=5).nu0 == 7.0


@BOTH
def test_an_empty_component_is_the_prior(covariance_type):
    family = family_of(covariance_type)
    empty = family.empty(2)
    assert torch.equal(family.means(empty), torch.zeros(2, 3, dtype=torch.float64))
    assert family.log_normalizer(empty)[0] == family.log_normalizer(empty)[1]


@BOTH
def test_much_data_outweigh_the_prior(covariance_type):
    rng = np.random.default_rng(0)
    z = rng.multivariate_normal([1.0, -2.0], [[1.0, 0.5], [0.5, 2.0]], 20_000)
    family = family_of(covariance_type, dim=2)
    total = stats_of(family, z)
    covariance = np.cov(z.T, bias=True)
    np.testing.assert_allclose(family.means(total)[0], z.mean(0), atol=1e-6)
    np.testing.assert_allclose(
        family.covariances(total)[0], covariance if covariance_type == "full" else np.diag(covariance), atol=2e-3
    )


# --- rounding


@BOTH
def test_rounding_cannot_make_a_component_narrower_than_its_prior(covariance_type):
    """The scatter is a difference of large numbers; here it comes out negative."""
    family = family_of(covariance_type)
    exact = stats_of(family, np.full((10, 3), 10.0))
    too_small = torch.full((3,), 0.5, dtype=torch.float64)
    rounded = replace(exact, sum_zz=exact.sum_zz - (too_small if covariance_type == "diag" else torch.diag(too_small)))
    spread = family.covariances(rounded)[0] * (family.nu0 + 10)
    if isinstance(family, NormalGamma):
        assert (spread >= family.beta0).all()
    else:
        assert (torch.linalg.eigvalsh(spread - family.psi0) > -1e-12).all()
    assert torch.isfinite(family.log_normalizer(rounded)).all()
    assert torch.isfinite(family.expected_log_likelihood(rounded).coef).all()


@BOTH
@pytest.mark.parametrize("n", [1, 1000])
def test_equal_points_far_out_make_a_usable_component(covariance_type, n):
    family = family_of(covariance_type, variance=1e-9)
    total = stats_of(family, np.full((n, 3), 1e4 / 3))
    assert torch.isfinite(family.log_normalizer(total)).all()
    covariance = family.covariances(total)[0]
    assert (covariance if covariance_type == "diag" else torch.linalg.eigvalsh(covariance)).min() > 0


def test_lifted_leaves_what_exceeds_the_prior_alone():
    family = family_of("full", dim=4)
    root = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    larger = (family.psi0 + root @ root.T).unsqueeze(0)
    torch.testing.assert_close(family._lifted(larger), larger)


def test_lifted_raises_what_is_below_the_prior_to_it():
    family = NormalWishart(torch.zeros(2).double(), 1.0, 4.0, torch.tensor([[2.0, 0.5], [0.5, 1.0]]).double())
    values, vectors = torch.linalg.eigh(family.psi0)
    broken = family.psi0 - 3.0 * values[1] * torch.outer(vectors[:, 1], vectors[:, 1])  # negative along one axis
    lifted = family._lifted(broken.unsqueeze(0))[0]
    assert (torch.linalg.eigvalsh(lifted - family.psi0) > -1e-12).all()
    torch.testing.assert_close(vectors[:, 0] @ lifted @ vectors[:, 0], values[0])  # along the other nothing changes


def test_a_broken_component_does_not_disturb_the_others():
    family = family_of("full", dim=2, variance=1e-9)
    good = stats_of(family, np.random.default_rng(0).normal(size=(50, 2)))
    broken = stats_of(family, np.full((1000, 2), 1e4 / 3))
    together = family.log_normalizer(concat([good, broken]))
    torch.testing.assert_close(together[0], family.log_normalizer(good)[0], rtol=1e-9, atol=0.0)


@BOTH
def test_amplification_tells_narrow_and_far_components(covariance_type):
    family = family_of(covariance_type, dim=2, variance=1e-8)
    noise = np.random.default_rng(0).normal(size=(500, 2))
    near_wide, far_narrow = (stats_of(family, centre + width * noise) for centre, width in ((0.0, 1.0), (3.0, 0.01)))
    assert family.amplification(near_wide) < 10
    assert family.amplification(far_narrow) > FLOAT32_AMPLIFICATION


@BOTH
@pytest.mark.parametrize("width", [0.1, 0.01, 0.003, 1e-4])
@pytest.mark.parametrize("n", [200, 2000])
def test_tight_far_clusters_in_float32_are_found_and_measured_as_in_float64(covariance_type, width, n):
    """Their second moments cancel to nothing in float32; products must then be float64."""
    cluster = np.arange(n) % 4
    centres = np.array([[-3.0, 2.0], [1.0, 1.0], [2.0, -3.0], [0.0, -1.0]])
    X = (centres[cluster] + width * np.random.default_rng(0).normal(size=(n, 2))).astype(np.float32)
    single, double = (
        DPMixture(covariance_type=covariance_type, covariance_scale=1e-9, random_state=0).fit(x)
        for x in (X, X.astype(np.float64))
    )
    assert single.n_components_ == 4
    assert len(set(zip(cluster, single.labels_, strict=True))) == 4
    order, expected = (np.lexsort(model.means_.T) for model in (single, double))
    np.testing.assert_allclose(single.means_[order], double.means_[expected], atol=1e-5)
    np.testing.assert_allclose(
        single.covariances_[order], double.covariances_[expected], rtol=0.01, atol=1e-3 * double.covariances_.max()
    )
