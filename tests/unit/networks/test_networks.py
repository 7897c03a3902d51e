import math

import pytest
import torch
from torch import nn

from diva.networks import BernoulliNLL, ConvDecoder, ConvEncoder, GaussianNLL, MLPDecoder, MLPEncoder, SquaredError, normal
from diva.networks.vae import LOG_VAR_LIMIT, VAE

SHAPES = pytest.mark.parametrize("shape", [(1, 28, 28), (1, 8, 8), (3, 32, 32), (2, 12, 20)])


def described(layer):
    """Kind and sizes of a layer, as the paper's figures write them."""
    match layer:
        case nn.Conv2d() | nn.ConvTranspose2d():
            sizes = (layer.kernel_size, layer.stride, layer.padding)
            return type(layer).__name__, layer.in_channels, layer.out_channels, *(pair[0] for pair in sizes)
        case nn.Linear():
            return "Linear", layer.in_features, layer.out_features
        case nn.BatchNorm2d():
            return "BatchNorm2d", layer.num_features
        case nn.Unflatten():
            return "Unflatten", *layer.unflattened_size
    return (type(layer).__name__,)


def n_parameters(module):
    return sum(p.numel() for p in module.parameters())


@SHAPES
def test_layers_of_the_convolutional_encoder(shape):
    channels, height, width = shape
    encoder = ConvEncoder(shape, 16)
    assert [described(layer) for layer in encoder.body] == [
        ("Conv2d", channels, 32, 4, 2, 1),
        ("BatchNorm2d", 32),
        ("LeakyReLU",),
        ("Conv2d", 32, 64, 4, 2, 1),
        ("BatchNorm2d", 64),
        ("LeakyReLU",),
        ("Flatten",),
    ]
    assert described(encoder.mean) == described(encoder.log_var) == ("Linear", 4 * height * width, 16)  # 64 h/4 w/4


@SHAPES
def test_layers_of_the_convolutional_decoder(shape):
    channels, height, width = shape
    assert [described(layer) for layer in ConvDecoder(shape, 16).body] == [
        ("Linear", 16, 4 * height * width),
        ("Unflatten", 64, height // 4, width // 4),
        ("ConvTranspose2d", 64, 64, 4, 2, 1),
        ("BatchNorm2d", 64),
        ("LeakyReLU",),
        ("ConvTranspose2d", 64, 32, 4, 2, 1),
        ("BatchNorm2d", 32),
        ("LeakyReLU",),
        ("ConvTranspose2d", 32, channels, 3, 1, 1),
        ("Tanh",),
    ]


def test_sizes_of_the_papers_figure():
    encoder, decoder = ConvEncoder((1, 28, 28), 16), ConvDecoder((1, 28, 28), 16)
    assert described(encoder.mean) == ("Linear", 64 * 7 * 7, 16)
    assert n_parameters(encoder) == 544 + 64 + 32_832 + 128 + 2 * 50_192
    assert n_parameters(decoder) == 53_312 + 65_600 + 128 + 32_800 + 64 + 289


@SHAPES
@pytest.mark.parametrize("latent_dim", [1, 16])
def test_shapes_of_images_and_codes(shape, latent_dim):
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    mean, log_var = ConvEncoder(shape, latent_dim)(x)
    assert mean.shape == log_var.shape == (3, latent_dim)
    assert not torch.equal(mean, log_var)
    assert ConvDecoder(shape, latent_dim)(mean).shape == x.shape


@SHAPES
def test_decoded_images_are_between_minus_one_and_one(shape):
    images = ConvDecoder(shape, 4)(1e3 * torch.randn(5, 4, generator=torch.Generator().manual_seed(0))).detach()
    assert float(images.min()) >= -1.0
    assert float(images.max()) <= 1.0


def test_a_code_does_not_depend_on_the_batch_at_rest():
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    encoder = ConvEncoder((1, 8, 8), 4)
    encoder(x)
    torch.testing.assert_close(encoder.eval()(x)[0][:2], encoder(x[:2])[0])


@pytest.mark.parametrize("network", [ConvEncoder, ConvDecoder])
@pytest.mark.parametrize("shape", [(1, 10, 8), (1, 8, 30), (3, 7, 7), (1, 2, 4), (1, 0, 8), (0, 8, 8), (3, 3, 32)])
def test_sizes_that_cannot_be_halved_twice(network, shape):
    with pytest.raises(ValueError, match=rf"divisible by 4, got {shape[1]} x {shape[2]}\. Crop, pad or resize"):
        network(shape, 4)


@pytest.mark.parametrize(("n_features", "latent_dim"), [(2000, 100), (561, 10), (1, 1)])
def test_layers_of_the_fully_connected_networks(n_features, latent_dim):
    encoder, decoder = MLPEncoder(n_features, latent_dim), MLPDecoder(n_features, latent_dim)
    relu = ("ReLU",)
    assert [described(layer) for layer in encoder.body] == [
        *(("Linear", n_features, 500), relu),
        *(("Linear", 500, 500), relu),
        *(("Linear", 500, 2000), relu),
    ]
    assert described(encoder.mean) == described(encoder.log_var) == ("Linear", 2000, latent_dim)
    assert [described(layer) for layer in decoder.body] == [
        *(("Linear", latent_dim, 2000), relu),
        *(("Linear", 2000, 500), relu),
        *(("Linear", 500, 500), relu),
        ("Linear", 500, n_features),  # linear output
    ]
    hidden = 500 * 500 + 500 + 500 * 2000 + 2000
    assert n_parameters(encoder) == 500 * n_features + 500 + hidden + 2 * (2000 * latent_dim + latent_dim)
    back = 2000 * latent_dim + 2000 + 2000 * 500 + 500 + 500 * 500 + 500
    assert n_parameters(decoder) == back + 500 * n_features + n_features


@pytest.mark.parametrize("hidden_sizes", [(8,), (8, 6, 4, 2)])
def test_other_hidden_sizes(hidden_sizes):
    encoder, decoder = MLPEncoder(5, 3, hidden_sizes), MLPDecoder(5, 3, hidden_sizes)
    sizes = [layer.out_features for layer in encoder.body if isinstance(layer, nn.Linear)]
    assert sizes == list(hidden_sizes)
    assert [layer.in_features for layer in decoder.body if isinstance(layer, nn.Linear)] == [3, *reversed(hidden_sizes)]
    mean, log_var = encoder(torch.randn(7, 5))
    assert mean.shape == log_var.shape == (7, 3)
    assert decoder(mean).shape == (7, 5)


def test_rows_are_not_bounded():
    decoder = MLPDecoder(5, 3, (8,))
    assert float(decoder(1e4 * torch.ones(1, 3)).detach().abs().max()) > 1.0


class Fixed(nn.Module):
    """An encoder whose log variance is its input."""

    def forward(self, x):
        return torch.zeros_like(x), x


@pytest.mark.parametrize("size", [1e1, 1e3, 1e30])
def test_log_variances_are_bounded(size):
    _, log_var = VAE(Fixed(), nn.Identity()).encode(torch.tensor([[-size, size]]))
    assert bool(torch.isfinite(log_var).all())
    assert float(log_var.abs().max()) <= LOG_VAR_LIMIT
    assert float(log_var[0, 0]) < -7 < 7 < float(log_var[0, 1])


def test_log_variances_far_from_the_bound_stay():
    raw = torch.linspace(-1, 1, 21).unsqueeze(0)
    _, log_var = VAE(Fixed(), nn.Identity()).encode(raw)
    torch.testing.assert_close(log_var, raw, rtol=0.0, atol=0.004)
    assert bool((log_var.diff() > 0).all())


@pytest.mark.parametrize("likelihood", [SquaredError(), GaussianNLL()])
def test_likelihoods_give_one_number_per_sample(likelihood):
    x, y = torch.randn(2, 4, 3, 8, 8)
    assert likelihood(x, y).shape == (4,)
    assert likelihood(x[:, 0, 0], y[:, 0, 0]).shape == (4,)


@pytest.mark.parametrize("size", [-1e4, 1e4])
def test_the_learnt_variance_is_bounded(size):
    likelihood = GaussianNLL()
    nn.init.constant_(likelihood.log_variance, size)
    nll = likelihood(torch.zeros(1, 2), torch.ones(1, 2))
    expected = 2 / math.exp(math.copysign(15, size)) + 2 * (math.copysign(15, size) + math.log(2 * math.pi))
    assert float(nll.detach()) == pytest.approx(0.5 * expected, rel=1e-5)


def test_default_likelihood_has_nothing_to_learn():
    vae = VAE(nn.Identity(), nn.Identity())
    assert isinstance(vae.likelihood, SquaredError)
    assert n_parameters(vae) == 0


def test_pixels_are_worth_their_cross_entropy():
    x, shown = torch.rand(2, 3, 1, 4, 4)
    expected = -(x * shown.log() + (1 - x) * (1 - shown).log()).flatten(1).sum(1)
    torch.testing.assert_close(BernoulliNLL()(2 * shown - 1, 2 * x - 1), expected)
    assert bool(BernoulliNLL()(torch.ones(1, 1, 2, 2), -torch.ones(1, 1, 2, 2)).isfinite().all())


def test_batch_norm_is_put_between_layers_where_it_is_wanted():
    encoder = MLPEncoder(7, 2, (5, 4), batch_norm=True)
    assert [type(layer).__name__ for layer in encoder.body] == ["Linear", "BatchNorm1d", "ReLU"] * 2


def test_densities_of_codes_under_components():
    z, z_log_var, mean, log_var = (torch.randn(n, 3, dtype=torch.float64) for n in (5, 5, 4, 4))
    expected = torch.distributions.Normal(mean, (log_var / 2).exp()).log_prob(z.unsqueeze(1)).sum(2)
    torch.testing.assert_close(normal.log_density(z, mean, log_var), expected)
    torch.testing.assert_close(normal.log_density(z, mean.expand(5, 4, 3), log_var.expand(5, 4, 3)), expected)
    q = torch.distributions.Normal(z, (z_log_var / 2).exp())
    torch.testing.assert_close(normal.entropy(z_log_var), q.entropy().sum(1))
    p = torch.distributions.Normal(mean[0], (log_var[0] / 2).exp())
    cross_entropy = -normal.log_density(z, mean[:1], log_var[:1], z_log_var)[:, 0]
    torch.testing.assert_close(cross_entropy - normal.entropy(z_log_var), torch.distributions.kl_divergence(q, p).sum(1))
