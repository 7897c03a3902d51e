"""Augmentation: samples changed a little, so that they keep their class.

The encoder is trained on augmented views, and they show which components samples pass between. Anything that takes a batch and
a torch.Generator and returns a batch of the same shape can stand in for these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from diva.data import Samples

Augmentation: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]

COMPARED = 1000  # samples among which a view should find its own
FINEST = 1 / 64  # difference of shares that matters


@dataclass(frozen=True)
class Affine:
    """Images rotated, sheared, scaled and shifted at random; the border is repeated where they leave the frame.

    Attributes
    ----------
    rotate : float
        Degrees at most, either way.
    shear, scale, shift : float
        At most: shear as a slope, scale as a share of the size, shift as a share of width and height.
    flip : bool
        Whether to mirror every other image left to right.
    """

    rotate: float = 20.0
    shear: float = 0.2
    scale: float = 0.15
    shift: float = 0.1
    flip: bool = False

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Move images (n, C, H, W), each in its own way."""
        n, device = len(x), x.device
        u = (torch.rand(7, n, generator=generator, device=generator.device) * 2 - 1).to(device)
        angle = u[0] * math.radians(self.rotate)
        cos, sin = angle.cos(), angle.sin()
        zoom_x, zoom_y = 1 + self.scale * u[1], 1 + self.scale * u[2]
        if self.flip:
            zoom_x = zoom_x * torch.where(u[3] < 0, -1.0, 1.0)
        slope = self.shear * u[4]
        tall = x.shape[2] / x.shape[3]  # torch measures each axis by its own length; angles need one length for both
        # rotation after shear after scaling; columns are where the unit vectors go
        first = torch.stack([cos * zoom_x, (cos * slope - sin) * zoom_y * tall, 2 * self.shift * u[5]], dim=1)
        second = torch.stack([sin * zoom_x / tall, (sin * slope + cos) * zoom_y, 2 * self.shift * u[6]], dim=1)
        grid = functional.affine_grid(torch.stack([first, second], dim=1), list(x.shape), align_corners=False)
        return functional.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)


@dataclass(frozen=True)
class Toned:
    """Images in another light: what is between black and white becomes darker or brighter at random, black and white stay.

    Attributes
    ----------
    gamma : float
        Largest exponent of brightness, counted from 0 to 1; the smallest is its inverse.
    """

    gamma: float = 2.0

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Change the light on images (n, C, H, W) between -1 and 1, each in its own way."""
        u = torch.rand(len(x), 1, 1, 1, generator=generator, device=generator.device).to(x.device) * 2 - 1
        return ((x.clamp(-1.0, 1.0) + 1) / 2).pow(self.gamma**u) * 2 - 1


@dataclass(frozen=True)
class Photo:
    """Photographs of things that stand upright in the middle: mirrored, in another light, and moved a little.

    Their light says little about their class, and details that tell them apart are blurred by strong turns and shears.

    Attributes
    ----------
    tone : Toned
        Changes the light, first.
    move : Affine
        Mirrors and moves, less far than for images that may be turned at will.
    """

    tone: Toned = Toned()
    move: Affine = Affine(rotate=15.0, shear=0.15, scale=0.12, shift=0.075, flip=True)

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Move images (n, C, H, W) between -1 and 1, each in its own way."""
        return self.move(self.tone(x, generator), generator)


@dataclass(frozen=True)
class Masked:
    """Rows with features left out, some with few and some with many: for data nobody knows how to augment.

    Each sample draws its own rate, so that views range from nearly whole to nearly empty; with one weak rate samples hardly
    pass between components, and one strong rate shows nothing whole. How many may be left out is measured (`recognisable`):
    of hundreds of features nearly all, of a handful hardly any.

    Attributes
    ----------
    highest : float
        Largest share of the features that are set to 0, their mean.
    """

    highest: float = 1.0

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Leave features out of rows (n, ...)."""
        rate = self.highest * torch.rand(len(x), *[1] * (x.ndim - 1), generator=generator, device=generator.device)
        kept = torch.rand(x.shape, generator=generator, device=generator.device) >= rate
        return x * kept.to(x.device)


@dataclass(frozen=True)
class Series:
    """Windows of sensors: a little noise, each channel louder or weaker, time that runs faster and slower, a channel left out.

    Attributes
    ----------
    shape : (int, int)
        Steps and channels of a window; it comes as a row.
    jitter : float
        Standard deviation of the noise, in that of a channel.
    scale : float
        Largest factor of a channel; the smallest is its inverse.
    warp, shift : float
        How much faster or slower time may run, and how far a window may move, as shares of it.
    dropout : float
        Probability that a channel is left out; one always stays.
    """

    shape: tuple[int, int] = (1, 1)
    jitter: float = 0.1
    scale: float = 1.25
    warp: float = 0.2
    shift: float = 0.1
    dropout: float = 0.1

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Change windows (n, steps * channels), each in its own way."""
        n, (steps, channels) = len(x), self.shape

        def uniform(*size: int) -> Tensor:
            return (torch.rand(*size, generator=generator, device=generator.device) * 2 - 1).to(x.device)

        moved = self._warped(x.reshape(n, steps, channels), *uniform(3, n, 1))
        moved = moved * self.scale ** uniform(n, 1, channels)
        noise = torch.randn(n, steps, channels, generator=generator, device=generator.device).to(x.device)
        rank = uniform(n, 1, channels)
        kept = ((rank + 1) / 2 >= self.dropout) | (rank == rank.amax(dim=2, keepdim=True))
        return ((moved + self.jitter * noise) * kept).reshape(x.shape)

    def _warped(self, windows: Tensor, speed: Tensor, bend: Tensor, start: Tensor) -> Tensor:
        """Windows read at other times: between two steps in proportion, before the first and after the last the same."""
        steps = windows.shape[1]
        time = torch.linspace(-1.0, 1.0, steps, device=windows.device)[None]
        warped = time * (1 + self.warp * speed) + 0.5 * self.warp * bend * (1 - time**2) + 2 * self.shift * start
        place = ((warped + 1) / 2 * (steps - 1)).clamp(0, steps - 1)
        before = place.floor().long().clamp(max=max(steps - 2, 0))
        share = (place - before)[..., None]
        after = (before + 1).clamp(max=steps - 1)
        first, second = (torch.take_along_dim(windows, index[..., None], dim=1) for index in (before, after))
        return first * (1 - share) + second * share


FOR_IMAGES: dict[str, Augmentation] = {"affine": Affine(), "affine+flip": Affine(flip=True), "photo": Photo()}
FOR_ANY: dict[str, Augmentation] = {"mask": Masked()}
AUGMENTATIONS = FOR_IMAGES | FOR_ANY | {"series": Series()}


def make_augmentation(
    name: str | None, *, is_image: bool, windows: tuple[int, int] | None = None, mask_share: float = 1.0
) -> Augmentation | None:
    """The augmentation of a name; for windows of sensors, of their steps and channels; of rows with a share left out."""
    if name is None:
        return None
    if name == "series":
        if windows is None:
            raise ValueError(
                'augmentation="series" is for windows of shape (n, steps, channels). Set kind="series", or use "mask".'
            )
        return Series(windows)
    if name in FOR_IMAGES and not is_image:
        raise ValueError(f'augmentation="{name}" is for images, but the samples are rows. Pass image_shape, or use "mask".')
    return Masked(mask_share) if name == "mask" else AUGMENTATIONS[name]


def recognisable(samples: Samples) -> float:
    """Largest share of features to leave out so that half of the views are still nearest to their own sample, of a thousand.

    What is left of a view that looks more like another sample teaches the encoder to take the two for one.
    """
    rows = np.linspace(0, len(samples), min(COMPARED, len(samples)), endpoint=False).astype(np.int64)
    x = samples.take(rows).flatten(1)

    def recognised(share: float) -> bool:
        distance = torch.cdist(Masked(share)(x, torch.Generator().manual_seed(0)), x)
        nearest = (distance >= distance.diagonal().unsqueeze(1)).all(1)
        return float(nearest.float().mean()) >= 0.5

    if recognised(1.0):
        return 1.0
    low, high = 0.0, 1.0
    while high - low > FINEST:
        middle = (low + high) / 2
        low, high = (middle, high) if recognised(middle) else (low, middle)
    return low


def check_own_augmentation(augmentation: Augmentation, samples: Samples) -> None:
    """Raise ValueError unless a function of the user returns what it was given, changed."""
    x = samples.take(torch.arange(min(8, len(samples))))
    expected = f"augmentation should return a float32 tensor of shape {tuple(x.shape)}, as it was given"
    try:
        moved = augmentation(x.clone(), torch.Generator().manual_seed(0))
    except Exception as error:
        raise ValueError(f"{expected}, but it failed: {error}. It takes a batch and a torch.Generator.") from error
    if not isinstance(moved, torch.Tensor) or moved.shape != x.shape or moved.dtype != x.dtype:
        got = f"{moved.dtype} of {tuple(moved.shape)}" if isinstance(moved, torch.Tensor) else type(moved).__name__
        raise ValueError(f"{expected}, got {got}.")
    if not bool(torch.isfinite(moved).all()):
        raise ValueError(f"{expected}, got numbers that are not finite.")
