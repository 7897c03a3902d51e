"""The VAE's half of the paper, against torch.distributions, scipy and plain loops."""

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import nn
from torch.distributions import MultivariateNormal, Normal, kl_divergence
from torch.nn import functional

from diva import DIVA
from diva.data import ArraySource, Samples
from diva.data.scaling import scaling_for
from diva.mixture.gaussian import make_family
from diva.mixture.local import summarize
from diva.mixture.prior import MixturePrior
from diva.mixture.standardize import Standardization
from diva.mixture.state import MixtureState
from diva.models.algorithm1 import Algorithm1
from diva.models.config import DIVAConfig, resolve
from diva.models.state import DIVAState, Task
from diva.networks import ConvDecoder, ConvEncoder, GaussianNLL, SquaredError
from diva.networks.priors import StandardNormal
from diva.networks.vae import VAE
from diva.training.loop import Batch, run_epochs, shuffled_batches
from diva.training.objectives import KL_SHARE
from diva.training.pseudo_labels import PseudoLabelHead

from .literal import independent_parts, stick_parameters
from .literal_mixture import Atoms, LiteralMixture

BOTH = pytest.mark.parametrize("covariance_type", ["diag", "full"])
ASSIGNMENTS = pytest.mark.parametrize("assignment", ["soft", "hard"])


@dataclass
class Case:
    """A prior, and the posterior of each of its components written out."""

    prior: MixturePrior
    components: list  # for each component, its independent parts
    counts: np.ndarray

    @property
    def origin(self):
        return self.prior.standardization.mean.numpy()

    @property
    def unit(self):
        return self.prior.standardization.scale.numpy()

    def gaussians(self):
        """Mean and covariance of each component, in the units of the codes."""
        for component in self.components:
            mean, covariance = np.zeros(len(self.unit)), np.zeros((len(self.unit), len(self.unit)))
            for part, q in component:
                mean[part], covariance[part, part] = q.m, q.psi / q.nu
            yield mean * self.unit + self.origin, covariance * np.outer(self.unit, self.unit)

    def responsibilities(self, z):
        """E[log pi] + E[log N], normalized."""
        inside = (z - self.origin) / self.unit
        scores, passed = [], 0.0
        for (eta1, eta0), component in zip(
            stick_parameters(self.counts, self.prior.mixture.alpha), self.components, strict=True
        ):
            both = special.digamma(eta1 + eta0)
            e_log_pi = special.digamma(eta1) - both + passed
            passed += special.digamma(eta0) - both
            scores.append(e_log_pi + sum(q.e_log_likelihood(inside[:, part]) for part, q in component))
        return special.softmax(np.array(scores).T, axis=1)


def make_case(covariance_type, assignment="soft", dim=3, n_components=4):
    generator = torch.Generator().manual_seed(1)
    centers = 1.5 * torch.randn(n_components, dim, dtype=torch.float64, generator=generator)
    z = centers.repeat(15, 1) + 0.6 * torch.randn(15 * n_components, dim, dtype=torch.float64, generator=generator)
    resp = torch.softmax(3 * torch.randn(len(z), n_components, dtype=torch.float64, generator=generator), dim=1)
    resp = (resp + torch.eye(n_components).double().repeat(15, 1)) / 2
    family = make_family(covariance_type, torch.linspace(-0.5, 0.5, dim).double(), torch.full((dim,), 0.3).double(), kappa0=0.7)
    total = summarize(family, z, resp)
    state = MixtureState(family, 2.5, total, (), total, tuple(range(n_components)), n_components)
    standardization = Standardization(torch.linspace(-3, 4, dim).double(), torch.linspace(0.2, 5, dim).double())
    components = [
        [(part, prior.given(z[:, part].numpy(), resp[:, k].numpy())) for part, prior in independent_parts(family)]
        for k in range(n_components)
    ]
    return Case(MixturePrior(state, standardization, assignment), components, resp.sum(0).numpy())


def encoded(case, n=7, seed=2):
    """Means, log variances and samples of q(z|x), about where the components are."""
    generator = torch.Generator().manual_seed(seed)
    dim = len(case.unit)
    mean, log_var, noise = torch.randn(3, n, dim, dtype=torch.float64, generator=generator)
    mean = mean * torch.from_numpy(case.unit) + torch.from_numpy(case.origin)
    return mean, log_var, mean + noise * (log_var / 2).exp()


def literal_kl(case, q_mean, q_log_var):
    kl = torch.zeros(len(q_mean), len(case.components), dtype=torch.float64)
    for i, (mean, log_var) in enumerate(zip(q_mean, q_log_var, strict=True)):
        for k, (m, covariance) in enumerate(case.gaussians()):
            q = MultivariateNormal(mean, torch.diag(log_var.exp()))
            kl[i, k] = kl_divergence(q, MultivariateNormal(torch.from_numpy(m), torch.from_numpy(covariance)))
    return kl


# --- the prior


@BOTH
@pytest.mark.parametrize("dim", [1, 3])
def test_kl_of_components_is_that_of_two_gaussians(covariance_type, dim):
    case = make_case(covariance_type, dim=dim)
    q_mean, q_log_var, _ = encoded(case)
    torch.testing.assert_close(case.prior.kl_of_components(q_mean, q_log_var), literal_kl(case, q_mean, q_log_var))


@BOTH
def test_kl_in_float32_is_that_in_float64(covariance_type):
    case = make_case(covariance_type)
    q_mean, q_log_var, z = encoded(case)
    single = case.prior.kl(q_mean.float(), q_log_var.float(), z.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), case.prior.kl(q_mean, q_log_var, z), rtol=1e-4, atol=1e-4)


@BOTH
def test_kl_is_that_of_equation_8_written_out(covariance_type):
    case = make_case(covariance_type)
    q_mean, q_log_var, _ = encoded(case)
    found = case.prior.kl_of_components(q_mean, q_log_var).numpy()
    for i, k in product(range(len(found)), range(found.shape[1])):
        m, covariance = list(case.gaussians())[k]
        precision, variance, apart = np.linalg.inv(covariance), q_log_var[i].exp().numpy(), m - q_mean[i].numpy()
        log_ratio = np.log(np.linalg.det(covariance) / variance.prod())
        expected = 0.5 * (log_ratio - len(m) + np.trace(precision @ np.diag(variance)) + apart @ precision @ apart)
        assert found[i, k] == pytest.approx(expected)


@BOTH
def test_responsibilities_are_those_of_the_posterior(covariance_type):
    case = make_case(covariance_type)
    z = encoded(case, n=40)[2]
    expected = case.responsibilities(z.numpy())
    assert (expected.max(1) < 0.99).any()  # a case where soft and hard differ
    np.testing.assert_allclose(case.prior.responsibilities(z).numpy(), expected, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(torch.softmax(case.prior.log_scores(z), 1).numpy(), expected, rtol=1e-8, atol=1e-12)


@BOTH
def test_soft_kl_is_equation_9(covariance_type):
    case = make_case(covariance_type)
    q_mean, q_log_var, z = encoded(case, n=12)
    resp, kl = case.responsibilities(z.numpy()), literal_kl(case, q_mean, q_log_var)
    expected = [sum(resp[i, k] * float(kl[i, k]) for k in range(kl.shape[1])) for i in range(len(z))]
    np.testing.assert_allclose(case.prior.kl(q_mean, q_log_var, z).numpy(), expected, rtol=1e-7)


@BOTH
def test_hard_kl_is_equation_8_of_the_most_probable_component(covariance_type):
    case = make_case(covariance_type, "hard")
    q_mean, q_log_var, z = encoded(case, n=12)
    resp, kl = case.responsibilities(z.numpy()), literal_kl(case, q_mean, q_log_var)
    expected = [float(kl[i, resp[i].argmax()]) for i in range(len(z))]
    found = case.prior.kl(q_mean, q_log_var, z)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-7)
    assert not torch.allclose(found, replace(case.prior, assignment="soft").kl(q_mean, q_log_var, z))


@BOTH
@ASSIGNMENTS
def test_kl_of_codes_in_other_units_is_the_same(covariance_type, assignment):
    case = make_case(covariance_type, assignment)
    q_mean, q_log_var, z = encoded(case)
    unit = torch.tensor([3.0, 0.01, 7.0], dtype=torch.float64)
    standardization = Standardization((case.prior.standardization.mean + 5.0) * unit, case.prior.standardization.scale * unit)
    prior = replace(case.prior, standardization=standardization)
    moved = prior.kl((q_mean + 5.0) * unit, q_log_var + 2 * unit.log(), (z + 5.0) * unit)
    torch.testing.assert_close(moved, case.prior.kl(q_mean, q_log_var, z))


@BOTH
@ASSIGNMENTS
def test_gradients_of_the_kl(covariance_type, assignment):
    case = make_case(covariance_type, assignment)
    q_mean, q_log_var, z = encoded(case, n=4)
    inputs = (q_mean.requires_grad_(), q_log_var.requires_grad_())
    assert torch.autograd.gradcheck(lambda mean, log_var: case.prior.kl(mean, log_var, z), inputs)
    assert torch.autograd.gradcheck(case.prior.kl_of_components, inputs)


@BOTH
@ASSIGNMENTS
def test_assignments_are_fixed_while_the_networks_learn(covariance_type, assignment):
    case = make_case(covariance_type, assignment)
    q_mean, q_log_var, z = encoded(case)
    assert not case.prior.kl(q_mean, q_log_var, z.requires_grad_()).requires_grad


@BOTH
def test_log_scores_pass_gradients(covariance_type):
    case = make_case(covariance_type)
    assert torch.autograd.gradcheck(case.prior.log_scores, encoded(case, n=3)[2].requires_grad_())


@BOTH
def test_the_mixture_at_the_start_is_the_prior(covariance_type):
    zeros = torch.zeros(2, dtype=torch.float64)
    start = MixtureState.start(make_family(covariance_type, zeros, zeros + 1.0), 5.0)
    prior = MixturePrior(start, Standardization(zeros, zeros + 1.0))
    q_mean, q_log_var, z = torch.randn(3, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    # 4 degrees of freedom: an expected variance of 1 is an expected precision of 2 (diagonal) or 4 (full)
    variance = {"diag": 1 / 2, "full": 1 / 4}[covariance_type]
    expected = kl_divergence(Normal(q_mean, (q_log_var / 2).exp()), Normal(0.0, math.sqrt(variance))).sum(1)
    torch.testing.assert_close(prior.kl(q_mean, q_log_var, z), expected)


@BOTH
def test_codes_may_be_on_another_device(covariance_type):
    case = make_case(covariance_type)
    q_mean, q_log_var, z = (t.to("meta") for t in encoded(case))  # stands for any device: shapes without numbers
    assert case.prior.kl_of_components(q_mean, q_log_var).device.type == "meta"
    assert case.prior.kl(q_mean, q_log_var, z).device.type == "meta"


def test_standard_normal():
    q_mean, q_log_var, z = torch.randn(3, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = kl_divergence(Normal(q_mean, (q_log_var / 2).exp()), Normal(0.0, 1.0)).sum(1)
    torch.testing.assert_close(StandardNormal().kl(q_mean, q_log_var, z), expected)
    inputs = (q_mean.requires_grad_(), q_log_var.requires_grad_())
    assert torch.autograd.gradcheck(lambda mean, log_var: StandardNormal().kl(mean, log_var, z), inputs)


# --- what the prior takes from the family


@BOTH
@pytest.mark.parametrize("dim", [1, 2, 4])
def test_expected_features_are_means_of_features(covariance_type, dim):
    family = make_family(covariance_type, torch.zeros(dim).double(), torch.ones(dim).double())
    generator = torch.Generator().manual_seed(0)
    mean, variance = torch.randn(5, dim, generator=generator).double(), torch.rand(5, dim, generator=generator).double()
    # features are quadratic: points one deviation either way in every dimension have exactly their mean
    signs = [torch.tensor(s, dtype=torch.float64) for s in product((-1.0, 1.0), repeat=dim)]
    expected = torch.stack([family.features(mean + s * variance.sqrt()) for s in signs]).mean(0)
    torch.testing.assert_close(family.expected_features(mean, variance), expected)
    assert torch.equal(family.expected_features(mean, torch.zeros_like(mean)), family.features(mean))


@BOTH
def test_expected_features_are_means_over_draws(covariance_type):
    family = make_family(covariance_type, torch.zeros(2).double(), torch.ones(2).double())
    mean, variance = torch.tensor([[0.5, -2.0]]).double(), torch.tensor([[0.3, 4.0]]).double()
    noise = torch.randn(100_000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    draws = family.features(mean + noise * variance.sqrt())
    error = (draws.mean(0) - family.expected_features(mean, variance)[0]).abs()
    assert bool((error < 4 * draws.std(0) / math.sqrt(len(draws))).all())


@BOTH
@pytest.mark.parametrize("dim", [1, 3])
def test_plug_in_log_density_is_that_of_a_gaussian(covariance_type, dim):
    case = make_case(covariance_type, dim=dim)
    family, total = case.prior.mixture.family, case.prior.mixture.total
    coef, offset = family.plug_in_log_density(total)
    inside = replace(case.prior, standardization=Standardization(torch.zeros(dim).double(), torch.ones(dim).double()))
    z = torch.randn(9, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    found = (family.features(z) @ coef + offset).numpy()
    for k, (m, covariance) in enumerate(replace(case, prior=inside).gaussians()):
        np.testing.assert_allclose(found[:, k], stats.multivariate_normal(m, covariance).logpdf(z.numpy()), rtol=1e-8)


# --- the loss


@pytest.mark.parametrize("shape", [(5,), (2, 4, 4)])
@pytest.mark.parametrize("log_variance", [-3.0, 0.0, 1.5])
def test_gaussian_nll(shape, log_variance):
    x, y = torch.randn(2, 6, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    likelihood = GaussianNLL().double()
    nn.init.constant_(likelihood.log_variance, log_variance)
    deviation = math.exp(15 * math.tanh(log_variance / 15) / 2)
    torch.testing.assert_close(likelihood(y, x), -Normal(y, deviation).log_prob(x).flatten(1).sum(1))


def test_squared_error():
    x, y = torch.randn(2, 6, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([functional.mse_loss(b, a, reduction="sum") for a, b in zip(x, y, strict=True)])
    torch.testing.assert_close(SquaredError()(y, x), expected)


class Watched(nn.Module):
    """An encoder to two numbers that remembers what it saw."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(x)
        return x @ torch.tensor([[1.0, 0.5], [0.0, 2.0], [-1.0, 1.0]]), 0.1 * x[:, :2] - 1.0


class Recorder:
    """A prior that remembers what it was asked."""

    def kl(self, q_mean, q_log_var, at):
        self.asked = (q_mean, q_log_var, at)
        return q_mean.sum(1)


def watched_vae():
    decoder = nn.Linear(2, 3)
    with torch.no_grad():
        decoder.weight.copy_(torch.arange(6.0).reshape(3, 2) / 5)
        decoder.bias.copy_(torch.tensor([0.1, -0.2, 0.3]))
    return VAE(Watched(), decoder)


def test_loss_of_samples_as_they_are():
    vae, prior = watched_vae(), Recorder()
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    terms = vae.loss(x, prior, torch.Generator().manual_seed(7))
    mean, raw = Watched()(x)
    log_var = 10 * torch.tanh(raw / 10)
    z = mean + torch.randn(5, 2, generator=torch.Generator().manual_seed(7)) * (log_var / 2).exp()
    assert [len(seen) for seen in vae.encoder.seen] == [5]
    assert torch.equal(vae.encoder.seen[0], x)
    torch.testing.assert_close(terms.z, z)
    torch.testing.assert_close(terms.reconstruction, ((vae.decoder(z) - x) ** 2).sum(1))
    torch.testing.assert_close(terms.q_mean, mean)
    torch.testing.assert_close(terms.kl, mean.sum(1))
    for asked, expected in zip(prior.asked, (mean, log_var, z), strict=True):
        torch.testing.assert_close(asked, expected)
    assert not prior.asked[2].requires_grad
    assert prior.asked[0].requires_grad


def test_loss_of_views():
    vae, prior = watched_vae(), Recorder()
    x, view = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    terms = vae.loss(x, prior, torch.Generator().manual_seed(7), view)
    clean_mean, _ = Watched()(x)
    mean, raw = Watched()(view)
    log_var = 10 * torch.tanh(raw / 10)
    z = mean + torch.randn(5, 2, generator=torch.Generator().manual_seed(7)) * (log_var / 2).exp()
    assert [len(seen) for seen in vae.encoder.seen] == [10]  # both at once
    assert torch.equal(vae.encoder.seen[0], torch.cat([x, view]))
    torch.testing.assert_close(terms.z, z)
    torch.testing.assert_close(terms.reconstruction, ((vae.decoder(z) - x) ** 2).sum(1))  # the view's code, the sample itself
    torch.testing.assert_close(terms.q_mean, torch.cat([clean_mean, mean]))
    for asked, expected in zip(prior.asked, (mean, log_var, clean_mean), strict=True):
        torch.testing.assert_close(asked, expected)
    assert not prior.asked[2].requires_grad


@pytest.mark.parametrize("assignment", ["soft", "hard"])
def test_views_are_assigned_where_clean_samples_are(assignment):
    case = make_case("diag", assignment, dim=2)
    vae = watched_vae()
    x, view = 3 * torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    terms = vae.loss(x, case.prior, torch.Generator().manual_seed(7), view)
    (at, _), (mean, log_var) = vae.encode(x), vae.encode(view)
    kl = literal_kl(case, mean.double(), log_var.double()).numpy()
    resp = case.responsibilities(at.double().numpy())
    if assignment == "hard":
        resp = np.eye(resp.shape[1])[resp.argmax(1)]
    np.testing.assert_allclose(terms.kl.numpy(), (resp * kl).sum(1), rtol=1e-4)


PAPER = resolve(DIVA(preset="paper"), is_image=True)


def objective_of(config, X):
    source = ArraySource(X)
    return Algorithm1(Task(config, Samples(source, scaling_for(source, None)), torch.device("cpu")))


def state_of(vae, learning_rate=1e-3, variance=0.3, seed=0):
    optimizer = torch.optim.Adam(vae.parameters(), lr=learning_rate)
    return DIVAState(vae, optimizer, torch.Generator().manual_seed(seed), np.random.default_rng(seed), seed, variance=variance)


IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 8, 2), dtype=np.uint8)  # d = 64


def image_case(config, likelihood=None, head=None):
    """The loss of six images, the state it belongs to, and the images and terms it is made of."""
    torch.manual_seed(0)
    state, objective = (
        state_of(VAE(ConvEncoder((2, 4, 8), 3), ConvDecoder((2, 4, 8), 3), likelihood)),
        objective_of(config, IMAGES),
    )
    state.head = head
    x = objective.task.samples.take(torch.arange(6))
    terms = state.network.loss(x, StandardNormal(), torch.Generator().manual_seed(0))
    return objective.loss(Batch(torch.arange(6)), state), state, x, terms


def test_loss_is_the_papers():
    loss, state, x, terms = image_case(PAPER)
    expected = functional.mse_loss(state.network.decode(terms.z), x, reduction="mean") + 1e-4 * terms.kl.mean()
    torch.testing.assert_close(loss.total, expected)
    assert loss.terms.keys() == {"reconstruction", "kl"}
    torch.testing.assert_close(loss.terms["reconstruction"], terms.reconstruction.mean())
    torch.testing.assert_close(loss.terms["kl"], terms.kl.mean())


@pytest.mark.parametrize("weight", [0.0, 1e-4, 0.3])
def test_kl_weight_is_beside_the_mean_squared_error(weight):
    loss, state, x, terms = image_case(DIVAConfig(kl_weight=weight))
    torch.testing.assert_close(loss.total, functional.mse_loss(state.network.decode(terms.z), x) + weight * terms.kl.mean())


def test_automatic_kl_weight_is_a_share_of_that_of_a_gaussian_decoder():
    loss, state, x, terms = image_case(DIVAConfig())
    assert objective_of(DIVAConfig(), IMAGES).task.elbo.weight(0.3) == pytest.approx(2 * KL_SHARE * 0.3)
    nll = -Normal(state.network.decode(terms.z), math.sqrt(0.3)).log_prob(x).flatten(1).sum(1) - 32 * math.log(
        2 * math.pi * 0.3
    )
    expected = 2 * 0.3 * (nll + KL_SHARE * terms.kl).mean() / 64  # a bound, times twice the variance
    torch.testing.assert_close(loss.total, expected, rtol=1e-4, atol=1e-5)


def test_loss_beside_a_likelihood_is_a_bound():
    loss, _, _, terms = image_case(DIVAConfig(reconstruction="nll", kl_weight="auto"), GaussianNLL())
    torch.testing.assert_close(loss.total, (terms.reconstruction.mean() + terms.kl.mean()) / 64)


@pytest.mark.parametrize("weight", [0.0, 1e-4, 0.5])
def test_kl_weight_is_beside_the_mean_likelihood(weight):
    loss, _, _, terms = image_case(DIVAConfig(reconstruction="nll", kl_weight=weight), GaussianNLL())
    torch.testing.assert_close(loss.total, terms.reconstruction.mean() / 64 + weight * terms.kl.mean())


@pytest.mark.parametrize("variance", [0.3, 2.0])
def test_the_bound_is_that_of_a_gaussian_decoder(variance):
    elbo = objective_of(DIVAConfig(), IMAGES).task.elbo
    error = np.random.default_rng(0).normal(size=64)
    expected = stats.norm.logpdf(error, scale=math.sqrt(variance)).sum() - 7.0
    assert elbo.bound(float((error**2).sum()), 7.0, variance) == pytest.approx(expected)
    assert replace(elbo, reconstruction="nll").bound(50.0, 7.0, variance) == -57.0


def test_pseudo_labels_are_added_with_the_weight_of_the_kl():
    linear = nn.Linear(3, 2)
    head = PseudoLabelHead(torch.tensor([0, 1, 0, 1, -1, 0]), linear, torch.optim.Adam(linear.parameters()))
    plain, *_ = image_case(DIVAConfig())
    loss, _, _, terms = image_case(DIVAConfig(), head=head)
    known = [0, 1, 2, 3, 5]
    expected = functional.cross_entropy(linear(terms.q_mean[known]), head.labels[known])
    torch.testing.assert_close(loss.terms["self_training"], expected)
    torch.testing.assert_close(loss.total, plain.total + 2 * KL_SHARE * 0.3 * expected)


@pytest.mark.parametrize(("n", "size", "sizes"), [(10, 4, [4, 3, 3]), (8, 4, [4, 4]), (129, 128, [65, 64]), (3, 128, [3])])
def test_batches_are_nearly_equal(n, size, sizes):
    batches = shuffled_batches(n, size, torch.Generator().manual_seed(0))
    assert [len(b) for b in batches] == sizes
    assert torch.cat(tuple(batches)).tolist() == torch.randperm(n, generator=torch.Generator().manual_seed(0)).tolist()


# --- Algorithm 1


@dataclass(frozen=True)
class DoubleSamples(Samples):
    """In float64, where the gradients that batch norm takes away are 0 also for Adam."""

    def take(self, index):
        return super().take(index).double()


def images_of_three_classes(n=96):
    rng = np.random.default_rng(0)
    classes = np.zeros((3, 8, 8))
    classes[0, :4], classes[1, :, :4], classes[2] = 1.0, 1.0, np.eye(8)
    of = np.array([0, 0, 0, 1, 1, 2])[np.arange(n) % 6]  # of different size, so that their order is no accident
    return np.clip(classes[of] + 0.05 * rng.normal(size=(n, 8, 8)), 0.0, 1.0).astype(np.float32)


def small_vae():
    torch.manual_seed(3)
    vae = VAE(ConvEncoder((1, 8, 8), 4), ConvDecoder((1, 8, 8), 4)).double()
    nn.init.constant_(vae.encoder.log_var.bias, -3.0)  # little noise: there are components to find from the first epoch on
    return vae


FEW_ATOMS = replace(PAPER, min_new_atoms=8.0, min_target_atoms=12.0, min_retained_atoms=6.0)  # for few samples


def algorithm_1(vae, x, config, seed):
    """The paper's lines as they stand."""
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    optimizer = torch.optim.Adam(vae.parameters(), lr=config.learning_rate)
    atoms = Atoms(config.min_new_atoms, config.min_target_atoms, config.min_retained_atoms)
    mixture = LiteralMixture(config.latent_dim, atoms, judged=config.births == "collected")  # line 1
    origin = unit = None
    numbers = []
    vae.train()
    for _ in range(config.n_epochs):
        buffer = []
        order = torch.randperm(len(x), generator=generator)
        for start in range(0, len(x), config.batch_size):
            batch = x[order[start : start + config.batch_size]]  # line 3
            mean, raw = vae.encoder(batch)
            log_var = 10 * torch.tanh(raw / 10)
            z = mean + (log_var / 2).exp() * torch.randn(mean.shape, generator=generator)
            buffer.append(z.detach().numpy())  # line 4
            if origin is None:  # K = 1 and nothing seen: N(0, I)
                shares, places, variances = np.ones((len(batch), 1)), np.zeros((1, z.shape[1])), np.ones((1, z.shape[1]))
            else:
                inside = (z.detach().numpy() - origin) / unit
                shares = special.softmax(mixture.scores(inside, mixture.z, mixture.held), axis=1)  # line 5
                if config.assignment == "hard":
                    shares = np.eye(shares.shape[1])[shares.argmax(1)]
                found = [mixture.posterior(mixture.z, column) for column in mixture.held.T]
                places = np.array([m * unit + origin for _, _, m, _, _ in found])
                variances = np.array([b / nu * unit**2 for _, _, _, nu, b in found])
            kl = torch.zeros(len(batch), dtype=torch.float64)
            for share, m, s in zip(shares.T, *map(torch.from_numpy, (places, variances)), strict=True):
                of_component = (s.log() - log_var - 1 + log_var.exp() / s + (m - mean) ** 2 / s).sum(1) / 2
                kl = kl + torch.from_numpy(share.copy()) * of_component
            loss = functional.mse_loss(vae.decoder(z), batch) + config.kl_weight * kl.mean()  # line 6
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        codes = np.concatenate(buffer)
        if origin is None:
            origin, unit = codes.mean(0), codes.std(0)
        mixture.fit((codes - origin) / unit, config.n_laps, rng)  # lines 8 to 11
        numbers.append(len(mixture.ids))
    return mixture, numbers


@pytest.mark.parametrize("births", ["collected", "always"])
@pytest.mark.parametrize(
    ("weight", "assignment", "n_epochs", "n_laps"),
    [(1e-4, "soft", 1, 2), (1e-4, "soft", 2, 2), (0.1, "soft", 4, 2), (0.1, "hard", 4, 2), (0.1, "soft", 6, 1)],
)
def test_training_is_algorithm_1(weight, assignment, n_epochs, n_laps, births):
    config = replace(FEW_ATOMS, n_epochs=n_epochs, batch_size=24, latent_dim=4, kl_weight=weight, assignment=assignment)
    config = replace(config, births=births, n_laps=n_laps)
    source = ArraySource(images_of_three_classes())
    samples = DoubleSamples(source, scaling_for(source, None))
    trained = state_of(small_vae(), seed=5)
    run_epochs(trained, Algorithm1(Task(config, samples, torch.device("cpu"))))

    literal = small_vae()
    before = {name: value.clone() for name, value in literal.state_dict().items()}
    x = samples.take(torch.arange(len(samples)))
    torch.testing.assert_close(x, 2 * torch.from_numpy(source.values).double().unsqueeze(1) - 1)
    mixture, numbers = algorithm_1(literal, x, config, seed=5)
    assert n_epochs == 1 or max(numbers[:-1]) > 1  # the KL term had components to choose from
    assert [record.n_components for record in trained.history] == numbers
    for name, value in trained.network.state_dict().items():
        torch.testing.assert_close(value, literal.state_dict()[name], rtol=1e-6, atol=1e-8, msg=lambda m, n=name: f"{n}: {m}")
    moved = sum(
        float((value.double() - before[name].double()).abs().max()) > 1e-4 for name, value in literal.state_dict().items()
    )
    assert moved > 10
    assert list(trained.prior.mixture.ids) == mixture.ids
    assert trained.newborn == mixture.newborn
    sum_zz = torch.from_numpy(mixture.held.T @ mixture.z**2)
    torch.testing.assert_close(trained.prior.mixture.total.sum_zz, sum_zz, rtol=1e-5, atol=1e-6)


def test_algorithm_1_has_births_and_merges_to_be_compared():
    config = replace(FEW_ATOMS, n_epochs=4, batch_size=24, latent_dim=4, kl_weight=0.1)
    for births in ("collected", "always"):
        config = replace(config, births=births)
        source = ArraySource(images_of_three_classes())
        trained = state_of(small_vae(), seed=5)
        samples = DoubleSamples(source, scaling_for(source, None))
        run_epochs(trained, Algorithm1(Task(config, samples, torch.device("cpu"))))
        assert {record.move for record in trained.lineage} == {"birth", "merge"}


def test_the_kl_term_decides_where_algorithm_1_goes():
    ends = []
    for weight, assignment in ((0.1, "soft"), (0.1, "hard"), (0.0, "soft")):
        config = replace(FEW_ATOMS, n_epochs=3, batch_size=24, latent_dim=4, kl_weight=weight, assignment=assignment)
        source = ArraySource(images_of_three_classes())
        samples = DoubleSamples(source, scaling_for(source, None))
        trained = state_of(small_vae(), seed=5)
        run_epochs(trained, Algorithm1(Task(config, samples, torch.device("cpu"))))
        ends.append(trained.network.encoder.mean.weight.detach())
    assert float((ends[0] - ends[1]).abs().max()) > 1e-5
    assert float((ends[0] - ends[2]).abs().max()) > 1e-5
