"""Features of images from a frozen network, and the file they are kept in.

The file is an npz with ``X`` (n, features) in float32 and, where labels are known, ``y`` and ``class_names``; with images for
testing, also ``X_test`` and ``y_test``. It is read as ``features.npz`` in the folder ``stl10`` or ``imagenet50``.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from diva.atomic import write_atomically
from diva.data.formats.images import FORMATS, IMAGE_SUFFIXES
from diva.data.formats.messages import listed, readable
from diva.data.formats.npy import read_npy
from diva.exceptions import DataError


@dataclass(frozen=True)
class ImageSet:
    """Images of any size, with the classes of those that lie in a folder for each class."""

    items: Sequence[Any]
    labels: NDArray[np.int64] | None = None  # (n,)
    class_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.items)

    def picture(self, number: int) -> Image.Image:
        """Image with this number, in colour."""
        item = self.items[number]
        if not isinstance(item, Path):
            return Image.fromarray(np.ascontiguousarray(item)).convert("RGB")
        try:
            with Image.open(item, formats=FORMATS) as image:
                return ImageOps.exif_transpose(image).convert("RGB")
        except (OSError, UnidentifiedImageError) as error:
            raise DataError(f"{item} cannot be read as an image: {error}. Repair or remove it.") from error


def open_images(path: Path) -> ImageSet:
    """Images from a folder or an npy file (n, height, width) or (n, height, width, 3) of bytes; DataError if there are none."""
    if path.is_dir():
        return _open_folder(path)
    if not path.is_file():
        raise DataError(f"Expected a folder of images or an npy file, {path} does not exist.")
    if path.suffix != ".npy":
        raise DataError(f"Expected a folder of images or an npy file, got {path.name}.")
    values = read_npy(path)
    if values.dtype != np.uint8 or not (values.ndim == 3 or (values.ndim == 4 and values.shape[3] == 3)):
        raise DataError(
            f"Expected images as uint8 of shape (n, height, width) or (n, height, width, 3), got {values.dtype} of shape "
            f"{values.shape} in {path.name}. Convert them first."
        )
    return ImageSet(list(values))


def _open_folder(folder: Path) -> ImageSet:
    classes = {p.name: _images_in(p) for p in sorted(folder.iterdir()) if p.is_dir() and not p.name.startswith(".")}
    classes = {name: paths for name, paths in classes.items() if paths}
    flat = _images_in(folder)
    if flat and classes:
        raise DataError(f"{folder} holds images both itself and in folders below it. Keep them in one of the two ways.")
    if flat:
        return ImageSet(flat)
    if not classes:
        raise DataError(f"Expected images ({', '.join(IMAGE_SUFFIXES)}) in {folder} or in folders below it, found none.")
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(paths) for paths in classes.values()])
    return ImageSet([path for paths in classes.values() for path in paths], labels, tuple(map(readable, classes)))


def _images_in(folder: Path) -> list[Path]:
    return sorted(
        p for p in folder.iterdir() if p.is_file() and p.suffix.lower() in IMAGE_SUFFIXES and not p.name.startswith(".")
    )


def load_encoder(name: str) -> torch.nn.Module:
    """Call the function that ``module:function`` names, and give the network that it returns, ready to be used.

    Modules are also looked for in the current folder.
    """
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise DataError(f"Expected an encoder as module:function, for example my_encoders:resnet50, got {name!r}.")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except ImportError as error:
        raise DataError(f"The module {module_name!r} cannot be imported: {error}.") from error
    except AttributeError as error:
        raise DataError(f"The module {module_name!r} has no function {function_name!r}.") from error
    encoder = function if isinstance(function, torch.nn.Module) else function()
    if not isinstance(encoder, torch.nn.Module):
        raise DataError(f"Expected {name} to return a torch.nn.Module, got {type(encoder).__name__}.")
    return encoder.eval().requires_grad_(False)


def extract_features(
    images: ImageSet,
    encoder: torch.nn.Module,
    *,
    batch_size: int = 64,
    image_size: int = 224,
    on_progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.float32]:
    """Features (n, features) of images, sent through a network.

    The network is given float32 (n, 3, image_size, image_size) from 0 to 1: the middle square of each image, resized. If it
    was trained on numbers in another range, let it convert them itself.
    """
    parts: list[NDArray[np.float32]] = []
    for first in range(0, len(images), batch_size):
        numbers = range(first, min(first + batch_size, len(images)))
        pixels = np.stack([_square(images.picture(i), image_size) for i in numbers])
        batch = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
        with torch.inference_mode():
            output = encoder(batch)
        if not isinstance(output, torch.Tensor) or output.ndim < 2 or len(output) != len(batch):
            got = f"shape {tuple(output.shape)}" if isinstance(output, torch.Tensor) else type(output).__name__
            raise DataError(f"Expected the encoder to return a tensor with {len(batch)} rows, got {got}.")
        parts.append(output.reshape(len(batch), -1).float().cpu().numpy())
        if not np.isfinite(parts[-1]).all():
            raise DataError(f"The encoder returned numbers that are not finite for images {first} to {numbers[-1]}.")
        if on_progress is not None:
            on_progress(numbers.stop, len(images))
    return np.concatenate(parts)


def _square(picture: Image.Image, size: int) -> NDArray[np.uint8]:
    """The middle square of an image, resized."""
    edge = min(picture.size)
    left, top = (picture.width - edge) / 2, (picture.height - edge) / 2
    box = (left, top, left + edge, top + edge)
    return np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR, box=box))


@dataclass(frozen=True)
class Features:
    """Features of images, with their classes where these are known."""

    x: NDArray[np.float32]  # (n, features)
    labels: NDArray[np.int64] | None = None  # (n,)
    class_names: tuple[str, ...] | None = None


def write_features(path: Path, train: Features, test: Features | None = None) -> None:
    """Write features to an npz file, which appears only when it is whole; DataError if test and training do not fit."""
    found: dict[str, Any] = {"X": train.x, "y": train.labels, "class_names": train.class_names}
    if test is not None:
        if test.x.shape[1:] != train.x.shape[1:]:
            raise DataError(f"Expected {train.x.shape[1]:,} features for testing, as for training, got {test.x.shape[1]:,}.")
        found |= {"X_test": test.x, "y_test": _numbered_alike(train, test)}
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {name: np.asarray(values) for name, values in found.items() if values is not None}
    np.savez(buffer, **arrays)
    write_atomically(path, buffer.getvalue())


def _numbered_alike(train: Features, test: Features) -> NDArray[np.int64] | None:
    """Labels for testing, with the numbers that the classes have in training."""
    if (train.labels is None) != (test.labels is None):
        raise DataError("Expected classes of the images for training and for testing, or of neither. Give or leave out both.")
    if test.labels is None or test.class_names == train.class_names:
        return test.labels
    if train.class_names is None or test.class_names is None:
        raise DataError("Expected classes as words, or as numbers, both for training and for testing. Name them alike.")
    unknown = [name for name in test.class_names if name not in train.class_names]
    if unknown:
        raise DataError(f"Expected for testing the classes of the images for training, got {listed(unknown)} as well.")
    return np.array([train.class_names.index(name) for name in test.class_names])[test.labels]
