"""Networks of DIVA: convolutional for images, fully connected for rows, none at all, or the user's own."""

from __future__ import annotations

import copy

import torch
from torch import nn

from diva.models.config import DIVAConfig, OwnNetworks
from diva.models.state import Task
from diva.networks import (
    ConvDecoder,
    ConvEncoder,
    FeatureDecoder,
    FeatureEncoder,
    GaussianNLL,
    MLPDecoder,
    MLPEncoder,
    SquaredError,
)
from diva.networks.vae import VAE


def make_vae(config: DIVAConfig, input_shape: tuple[int, ...], own: OwnNetworks) -> VAE:
    """Networks for input of a shape, with fresh weights; the user's own are copied, so that a fit leaves them as they were."""
    likelihood = GaussianNLL() if config.reconstruction == "nll" else SquaredError()
    encoder: nn.Module
    decoder: nn.Module
    if own.encoder is not None and own.decoder is not None:
        encoder, decoder = copy.deepcopy(own.encoder), copy.deepcopy(own.decoder)
    elif config.codes == "features":
        encoder, decoder = FeatureEncoder(), FeatureDecoder(input_shape)
    elif len(input_shape) == 3:
        channels, height, width = input_shape
        encoder = ConvEncoder((channels, height, width), config.latent_dim)
        decoder = ConvDecoder((channels, height, width), config.latent_dim)
    else:
        encoder = MLPEncoder(input_shape[0], config.latent_dim, config.hidden_sizes)
        decoder = MLPDecoder(input_shape[0], config.latent_dim, config.hidden_sizes)
    vae = VAE(encoder, decoder, likelihood)
    vae.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # convolutions are faster so
    return vae


def check_own_networks(vae: VAE, task: Task) -> None:
    """Raise ValueError unless the user's networks can learn, and fit the data and each other."""
    if not any(p.requires_grad for p in vae.parameters()):
        raise ValueError("encoder and decoder are frozen: at least one parameter should require a gradient.")
    x = task.samples.take(torch.arange(2)).to(task.device)
    try:
        with torch.no_grad():
            mean, log_var = vae.eval().encode(x)
            back = vae.decode(mean)
    except Exception as error:
        raise ValueError(
            f"encoder and decoder cannot be used on input of shape {tuple(x.shape)}: {error}. The encoder should return "
            "(mean, log_var), and the decoder take codes like the mean."
        ) from error
    latent = (2, task.config.latent_dim)
    if tuple(mean.shape) != latent or tuple(log_var.shape) != latent:
        raise ValueError(
            f"The encoder should return mean and log_var of shape (n, {latent[1]}), got {tuple(mean.shape)} and "
            f"{tuple(log_var.shape)}. Set latent_dim to the length of its codes."
        )
    if back.shape != x.shape:
        raise ValueError(f"The decoder should return shape {tuple(x.shape)}, the input's, got {tuple(back.shape)}.")
