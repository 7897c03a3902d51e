"""From an estimator's parameters to what a run needs: recipe, views, networks, learner."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import nn

from diva.checks import plain_param
from diva.data import Samples
from diva.models.recipes import PRESETS, Recipe
from diva.networks import ConvDecoder, ConvEncoder, GaussianNLL, MLPDecoder, MLPEncoder, SquaredError
from diva.networks.vae import VAE
from diva.threads import one_thread_if_small
from diva.training.augmentation import AffineViews, MaskedViews, PhotoViews, Views
from diva.training.loop import FIRST_VARIANCE, Course, Learner

if TYPE_CHECKING:
    from diva.models.diva import DIVA

PAPER_ROW_LATENTS = 100  # D of the paper's fully connected networks
RECIPE_PARAMETERS = (
    "n_epochs",
    "warmup",
    "sharpening",
    "batch_size",
    "learning_rate",
    "weight_decay",
    "latent_dim",
    "hidden_sizes",
    "reconstruction",
    "kl_weight",
    "assignment",
    "concentration",
    "covariance_scale",
    "n_laps",
    "max_components",
    "n_views",
    "resolution",
)


def make_recipe(model: DIVA, is_image: bool) -> Recipe:
    """The preset, with the parameters that were given."""
    preset = model.preset
    if preset == "auto":
        preset = "images" if is_image else "features"
    recipe = PRESETS[preset]
    if not is_image and recipe.views == "affine":
        raise ValueError(f'preset="{preset}" is for images, but the samples are rows. Pass image_shape, or choose "features".')
    given = {name: getattr(model, name) for name in RECIPE_PARAMETERS if getattr(model, name) is not None}
    if model.covariance_type is not None:
        given["final_covariance_type"] = model.covariance_type
        if not recipe.final_refit:
            given["covariance_type"] = model.covariance_type
    if model.grouping != "auto":
        given["grouping"] = model.grouping
    if preset == "paper" and not is_image:
        given.setdefault("latent_dim", PAPER_ROW_LATENTS)
    given = {name: plain_param(value) for name, value in given.items()}  # numbers of numpy cannot be written as JSON
    if "hidden_sizes" in given:
        given["hidden_sizes"] = tuple(given["hidden_sizes"])
    return replace(recipe, **given)


def make_views(model: DIVA, recipe: Recipe, samples: Samples) -> Views | None:
    """How samples are moved; a function of the user is tried out first."""
    if callable(model.augmentation):
        _check_own_views(model.augmentation, samples)
        return model.augmentation
    name = recipe.views if model.augmentation == "auto" else model.augmentation
    if name in ("affine", "affine+flip", "photo") and not samples.scaling.is_image:
        raise ValueError(f'augmentation="{name}" is for images, but the samples are rows. Pass image_shape, or use "mask".')
    views: dict[str | None, Views | None] = {
        "affine": AffineViews(),
        "affine+flip": AffineViews(flip=True),
        "photo": PhotoViews(),
        "mask": MaskedViews(),
        None: None,
    }
    return views[name]


def _check_own_views(views: Views, samples: Samples) -> None:
    """Raise ValueError unless a function of the user returns what it was given, moved."""
    x = samples.take(torch.arange(min(8, len(samples))))
    expected = f"augmentation should return a float32 tensor of shape {tuple(x.shape)}, as it was given"
    try:
        moved = views(x.clone(), torch.Generator().manual_seed(0))
    except Exception as error:
        raise ValueError(f"{expected}, but it failed: {error}. It takes a batch and a torch.Generator.") from error
    if not isinstance(moved, torch.Tensor) or moved.shape != x.shape or moved.dtype != x.dtype:
        got = f"{moved.dtype} of {tuple(moved.shape)}" if isinstance(moved, torch.Tensor) else type(moved).__name__
        raise ValueError(f"{expected}, got {got}.")
    if not bool(torch.isfinite(moved).all()):
        raise ValueError(f"{expected}, got numbers that are not finite.")


def make_vae(model: DIVA, recipe: Recipe, input_shape: tuple[int, ...]) -> VAE:
    """Networks for input of a shape, with fresh weights; the user's own are copied, so that a fit leaves them as they were."""
    likelihood = GaussianNLL() if recipe.reconstruction == "nll" else SquaredError()
    encoder: nn.Module
    decoder: nn.Module
    if model.encoder is not None and model.decoder is not None:
        encoder, decoder = copy.deepcopy(model.encoder), copy.deepcopy(model.decoder)
    elif len(input_shape) == 3:
        channels, height, width = input_shape
        encoder = ConvEncoder((channels, height, width), recipe.latent_dim)
        decoder = ConvDecoder((channels, height, width), recipe.latent_dim)
    else:
        encoder = MLPEncoder(input_shape[0], recipe.latent_dim, recipe.hidden_sizes)
        decoder = MLPDecoder(input_shape[0], recipe.latent_dim, recipe.hidden_sizes)
    vae = VAE(encoder, decoder, likelihood)
    vae.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # convolutions are faster so
    return vae


def seed_of(model: DIVA, batch: int = 0) -> int:
    """What sets all chance of a fit, or of a later batch."""
    seed = int(check_random_state(model.random_state).randint(2**31))
    return int(np.random.default_rng([seed, batch]).integers(2**31)) if batch else seed


def make_learner(model: DIVA, course: Course, batch: int = 0) -> Learner:
    """Networks with fresh weights, and all chance set by ``random_state``."""
    seed = seed_of(model, batch)
    with torch.random.fork_rng(devices=[]):  # weights draw on torch's own generator, which belongs to the user
        torch.manual_seed(seed)
        vae = make_vae(model, course.recipe, course.samples.scaling.input_shape).to(course.device)
    if model.encoder is not None:
        _check_own_networks(vae, course)
    if not any(p.requires_grad for p in vae.parameters()):
        raise ValueError("encoder and decoder are frozen: at least one parameter should require a gradient.")
    optimizer = torch.optim.Adam(vae.parameters(), lr=course.recipe.learning_rate, weight_decay=course.recipe.weight_decay)
    index = torch.arange(min(2048, len(course.samples)))
    spread = float(course.samples.take(index).flatten(1).var(0, correction=0).mean())
    return Learner(
        vae,
        optimizer,
        torch.Generator().manual_seed(seed),
        np.random.default_rng(seed),
        seed,
        variance=max(FIRST_VARIANCE * spread, 1e-6),
    )


def _check_own_networks(vae: VAE, course: Course) -> None:
    """Raise ValueError unless the user's networks fit the data and each other."""
    x = course.samples.take(torch.arange(2)).to(course.device)
    try:
        with torch.no_grad():
            mean, log_var = vae.eval().encode(x)
            back = vae.decode(mean)
    except Exception as error:
        raise ValueError(
            f"encoder and decoder cannot be used on input of shape {tuple(x.shape)}: {error}. The encoder should return "
            "(mean, log_var), and the decoder take codes like the mean."
        ) from error
    latent = (2, course.recipe.latent_dim)
    if tuple(mean.shape) != latent or tuple(log_var.shape) != latent:
        raise ValueError(
            f"The encoder should return mean and log_var of shape (n, {latent[1]}), got {tuple(mean.shape)} and "
            f"{tuple(log_var.shape)}. Set latent_dim to the length of its codes."
        )
    if back.shape != x.shape:
        raise ValueError(f"The decoder should return shape {tuple(x.shape)}, the input's, got {tuple(back.shape)}.")


@contextmanager
def learning_from(samples: Samples) -> Iterator[None]:
    """Denormals are flushed, torch's own generator is left as it was, and little data have one thread."""
    n_numbers = len(samples) * samples.scaling.n_numbers
    with flushed_denormals(), torch.random.fork_rng(devices=[]), one_thread_if_small(n_numbers):
        yield


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Treat denormal numbers as 0 while networks work: a trained one has many, and they make it 30 to 90 times slower."""
    tiny = torch.tensor([1e-40])
    before = bool((tiny * 1.0 == 0).item())  # torch has no way to ask
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
