"""Parameters of DIVA: which values make sense, and how they are written to a file."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from torch import nn

from diva.checks import check_device, is_number, is_whole
from diva.models.recipes import PRESETS

_WHOLE = (
    "latent_dim",
    "n_epochs",
    "batch_size",
    "n_laps",
    "max_components",
    "n_views",
    "early_stopping",
    "pca",
    "further_epochs",
    "reservoir",
)
_POSITIVE = ("learning_rate", "concentration", "covariance_scale")
_CHOICES: dict[str, tuple[Any, ...]] = {
    "preset": ("auto", *PRESETS),
    "reconstruction": (None, "mse", "nll"),
    "assignment": (None, "soft", "hard"),
    "covariance_type": (None, "full", "diag"),
    "grouping": ("auto", "walk", None),
    "adapt": ("auto", True, False),
    "replay": ("draws", "reservoir", None),
}
LARGEST = 10**9  # of any count; more is a mistake
WIDEST = 10**6  # layer of a network
AUGMENTATIONS = ("auto", "affine", "affine+flip", "photo", "mask", None)


def check_params(model: Any) -> None:
    """Raise ValueError or TypeError, naming what was expected, at the first parameter that makes no sense."""
    for name in _WHOLE:
        value = getattr(model, name)
        if value is not None and not (is_whole(value) and 1 <= value <= LARGEST):
            raise ValueError(f"{name} should be a whole number from 1 to {LARGEST:,}, got {value!r}.")
    for name in ("further_epochs", "reservoir"):
        if getattr(model, name) is None:
            raise ValueError(f"{name} should be a whole number from 1 to {LARGEST:,}, got None.")
    for name in _POSITIVE:
        value = getattr(model, name)
        if value is not None and not (is_number(value) and 1e-12 <= value <= 1e12):
            raise ValueError(f"{name} should be a positive number from 1e-12 to 1e12, got {value!r}.")
    for name, choices in _CHOICES.items():
        value = getattr(model, name)
        if not any(value is c or (isinstance(value, str) and value == c) for c in choices):
            raise ValueError(f"{name} should be one of {choices}, got {value!r}.")
    for name in ("warmup", "sharpening"):
        value = getattr(model, name)
        if value is not None and not (is_number(value) and 0 <= value <= 1):
            raise ValueError(f"{name} should be a share of the epochs, from 0 to 1, got {value!r}.")
    if model.latent_dim is not None and model.latent_dim > WIDEST:
        raise ValueError(f"latent_dim should be at most {WIDEST:,}, got {model.latent_dim!r}.")
    if (model.warmup or 0) + (model.sharpening or 0) > 1:
        raise ValueError(f"warmup and sharpening should add up to 1 at most, got {model.warmup!r} and {model.sharpening!r}.")
    if model.weight_decay is not None and not (is_number(model.weight_decay) and 0 <= model.weight_decay <= 1e12):
        raise ValueError(f"weight_decay should be a number of at least 0, got {model.weight_decay!r}.")
    _check_kl_weight(model.kl_weight)
    resolution = model.resolution
    if not _is_default(resolution) and not (is_number(resolution) and resolution > 0):
        raise ValueError(f'resolution should be "auto" or a positive number, got {resolution!r}.')
    if not (is_whole(model.checkpoint_every) and model.checkpoint_every >= 1):
        raise ValueError(f"checkpoint_every should be a whole number of at least 1, got {model.checkpoint_every!r}.")
    for name in ("resume", "verbose", "tfidf", "warm_start"):
        if not isinstance(getattr(model, name), bool | np.bool_ | int):
            raise ValueError(f"{name} should be True or False, got {getattr(model, name)!r}.")
    if model.run_dir is not None and not (isinstance(model.run_dir, str | os.PathLike) and _is_path(model.run_dir)):
        raise ValueError(f"run_dir should be the path of a folder, got {model.run_dir!r}.")
    if model.resume and model.run_dir is None:
        raise ValueError("resume=True needs a run_dir that holds the checkpoint.")
    named = model.augmentation is None or (isinstance(model.augmentation, str) and model.augmentation in AUGMENTATIONS)
    if not callable(model.augmentation) and not named:
        raise ValueError(f"augmentation should be one of {AUGMENTATIONS} or a callable, got {model.augmentation!r}.")
    _check_networks(model)
    try:
        check_random_state(model.random_state)
    except ValueError:
        raise ValueError(
            f"random_state should be a seed, a whole number from 0 to 4294967295, got {model.random_state!r}."
        ) from None
    check_device(model.device)


def _is_path(value: str | os.PathLike[str]) -> bool:
    name = os.fspath(value)
    return isinstance(name, str) and name != "" and "\0" not in name


def _is_default(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value == "auto")


def _check_kl_weight(value: Any) -> None:
    if _is_default(value):
        return
    if not (is_number(value) and 0 <= value <= 1e12):
        raise ValueError(f'kl_weight should be "auto" or a number of at least 0, got {value!r}.')


def _check_networks(model: Any) -> None:
    sizes = model.hidden_sizes
    if sizes is not None and not (
        isinstance(sizes, tuple | list) and sizes and all(is_whole(s) and 1 <= s <= WIDEST for s in sizes)
    ):
        raise ValueError(f"hidden_sizes should be a tuple of whole numbers, such as (500, 500, 2000), got {sizes!r}.")
    shape = model.image_shape
    if shape is not None and not (
        isinstance(shape, tuple | list) and len(shape) in (2, 3) and all(is_whole(s) and s >= 1 for s in shape)
    ):
        raise ValueError(f"image_shape should be (height, width) or (height, width, channels), got {shape!r}.")
    if (model.encoder is None) != (model.decoder is None):
        raise ValueError("encoder and decoder should be given both or not at all.")
    for name in ("encoder", "decoder"):
        if getattr(model, name) is not None and not isinstance(getattr(model, name), nn.Module):
            raise TypeError(f"{name} should be a torch.nn.Module, got {type(getattr(model, name)).__name__}.")
    if not isinstance(model.callbacks, tuple | list) or not all(callable(c) for c in model.callbacks):
        raise TypeError("callbacks should be a list of callables that take the model and the record of an epoch.")
