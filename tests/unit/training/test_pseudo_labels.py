import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import nn
from torch.nn import functional

from diva.training.pseudo_labels import CONFIDENT, PseudoLabelHead, linear_discriminant


def labelled_codes(n=3000, n_clusters=4, dim=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    centers = 1.5 * torch.randn(n_clusters, dim, generator=generator)
    shares = torch.tensor([0.4, 0.3, 0.2, 0.1])[:n_clusters]
    labels = torch.multinomial(shares, n, replacement=True, generator=generator)
    mix = torch.eye(dim) + 0.15 * torch.randn(dim, dim, generator=generator)
    return centers[labels] + torch.randn(n, dim, generator=generator) @ mix, labels


def head_of(labels, linear):
    return PseudoLabelHead(torch.as_tensor(labels), linear, torch.optim.Adam(linear.parameters()))


@pytest.mark.parametrize("n_clusters", [2, 4])
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_linear_discriminant_is_that_of_scikit_learn(n_clusters, offset):
    z, labels = labelled_codes(n_clusters=n_clusters)
    z = z + offset
    linear = linear_discriminant(z, labels, n_clusters)
    reference = LinearDiscriminantAnalysis(solver="lsqr").fit(z.double().numpy(), labels.numpy())
    found = functional.softmax(linear(z), dim=1).detach().numpy()
    np.testing.assert_allclose(found, reference.predict_proba(z.double().numpy()), atol=0.02)
    assert (found.argmax(1) == reference.predict(z.double().numpy())).mean() > 0.995
    contrasts = (linear.weight - linear.weight[:1]).detach().numpy()[1:]
    expected = reference.coef_ if n_clusters == 2 else reference.coef_[1:] - reference.coef_[:1]
    np.testing.assert_allclose(contrasts, expected, atol=0.03 * np.abs(expected).max())


def test_linear_discriminant_does_not_look_at_unsure_samples():
    z, labels = labelled_codes(n=200)
    known = linear_discriminant(z, labels, 4)
    with_others = linear_discriminant(torch.cat([z, 1e3 + z]), torch.cat([labels, torch.full_like(labels, -1)]), 4)
    torch.testing.assert_close(with_others.state_dict(), known.state_dict())


def test_a_cluster_without_a_confident_sample_starts_in_the_middle():
    z, labels = labelled_codes(n=400)
    z = z - z.mean(0)
    linear = linear_discriminant(z, labels, 5)
    assert linear.weight.shape == (5, 5)
    assert all(bool(torch.isfinite(p).all()) for p in linear.parameters())
    weight = linear.weight.detach().abs()
    assert float(weight[4].max()) < 1e-3 * float(weight.max())
    assert int((linear(z).argmax(1) == 4).sum()) == 0


@pytest.mark.parametrize("n_known", [0, 1])
def test_hardly_any_confident_sample(n_known):
    z, labels = labelled_codes(n=20)
    labels[n_known:] = -1
    linear = linear_discriminant(z, labels, 4)
    assert all(bool(torch.isfinite(p).all()) for p in linear.parameters())
    assert linear.weight.dtype == torch.float32


def test_constant_codes():
    linear = linear_discriminant(torch.ones(10, 3), torch.arange(10) % 2, 2)
    assert all(bool(torch.isfinite(p).all()) for p in linear.parameters())
    torch.testing.assert_close(functional.softmax(linear(torch.ones(1, 3)), 1), torch.full((1, 2), 0.5), rtol=0.0, atol=1e-3)


def test_the_users_generator_is_left_alone():
    z, labels = labelled_codes(n=50)
    before = torch.random.get_rng_state()
    linear_discriminant(z, labels, 4)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_confident_samples_become_labels():
    proba = torch.tensor(
        [[0.95, 0.05, 0.0], [0.5, 0.3, 0.2], [0.02, 0.03, 0.95], [CONFIDENT - 1e-3, 0.05, 0.05], [0.0, 1.0, 0.0]]
    )
    z = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    head = PseudoLabelHead.choose(proba, z, 0.02, torch.device("cpu"))
    assert head.labels.tolist() == [0, -1, 2, -1, 1]
    assert head.labels.dtype == torch.int64
    assert (head.linear.in_features, head.linear.out_features) == (2, 3)
    assert head.optimizer.param_groups[0]["lr"] == 0.02
    assert {id(p) for group in head.optimizer.param_groups for p in group["params"]} == {
        id(p) for p in head.linear.parameters()
    }


def test_loss_ignores_unsure_samples():
    z = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    head = head_of([-1, 0, 1, -1, 1, 0, 1, -1], nn.Linear(3, 2))
    index = torch.tensor([7, 4, 0, 1, 2, 5])
    expected = functional.cross_entropy(head.linear(z[[1, 3, 4, 5]]), torch.tensor([1, 0, 1, 0]))
    torch.testing.assert_close(head.loss(index, z), expected)
    z = z.requires_grad_()
    head.loss(index, z).backward()
    assert torch.equal(z.grad[[0, 2]], torch.zeros(2, 3))
    assert bool((z.grad[[1, 3, 4, 5]].abs().sum(1) > 0).all())


def test_labels_are_repeated_for_views():
    z = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))  # four samples, then a view of each
    head = head_of([0, -1, 1, 1, 0, 0], nn.Linear(3, 2))
    index = torch.tensor([3, 1, 0, 2])
    known = [0, 2, 3, 4, 6, 7]
    expected = functional.cross_entropy(head.linear(z[known]), torch.tensor([1, 0, 1, 1, 0, 1]))
    torch.testing.assert_close(head.loss(index, z), expected)


@pytest.mark.parametrize("n_rows", [3, 6])
def test_no_confident_sample_no_loss(n_rows):
    z = torch.randn(n_rows, 3).requires_grad_()
    head = head_of([-1, -1, -1], nn.Linear(3, 2))
    loss = head.loss(torch.arange(3), z)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert torch.equal(z.grad, torch.zeros_like(z))
    assert torch.equal(head.linear.weight.grad, torch.zeros(2, 3))


def test_the_head_learns():
    z, labels = labelled_codes(n=300)
    head = PseudoLabelHead.choose(functional.one_hot(labels, 4).double(), torch.zeros(300, 5), 0.1, torch.device("cpu"))
    before = float(head.loss(torch.arange(300), z).detach())
    for _ in range(30):
        head.optimizer.zero_grad()
        head.loss(torch.arange(300), z).backward()
        head.optimizer.step()
    assert float(head.loss(torch.arange(300), z).detach()) < 0.7 * before
