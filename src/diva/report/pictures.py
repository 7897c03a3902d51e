"""Samples as pictures: of bytes, small enough for a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

from diva.runs.summary import ImageFormat

GALLERY_PIXELS = 96  # larger pictures are made smaller for the gallery
HOVER_PIXELS = 32  # and for the map
SHEET_BYTES = 2_200_000  # most that all pictures of the map may take


def to_pictures(values: NDArray[Any], image: ImageFormat) -> NDArray[np.uint8]:
    """Images as bytes of shape (n, height, width) or (n, height, width, 3), whatever shape and range they came in."""
    channels, height, width = image.shape
    low, high = image.value_range
    shape = (height, width, channels) if image.channels_last else (channels, height, width)
    pictures = values.reshape(len(values), *shape).astype(np.float32)
    if not image.channels_last:
        pictures = pictures.transpose(0, 2, 3, 1)
    pictures = pictures[..., :3] if channels >= 3 else pictures.mean(axis=-1)
    in_bytes: NDArray[np.uint8] = (np.clip((pictures - low) / max(high - low, 1e-12), 0, 1) * 255).round().astype(np.uint8)
    return in_bytes


def png_uri(picture: NDArray[np.uint8]) -> str:
    """One picture inside a page."""
    return _data_uri(_encoded(_shrunk(Image.fromarray(picture), GALLERY_PIXELS), "PNG", optimize=True), "PNG")


@dataclass(frozen=True)
class Sheet:
    """Many pictures as one, row by row."""

    uri: str
    width: int  # of one picture
    height: int
    columns: int
    rows: int


def make_sheet(pictures: NDArray[np.uint8], most_bytes: int = SHEET_BYTES) -> Sheet:
    """Put pictures on one sheet, as good as they can be within so many bytes."""
    size = HOVER_PIXELS
    while True:
        small = pictures
        if max(pictures.shape[1:3]) > size:
            small = np.stack([np.asarray(_shrunk(Image.fromarray(picture), size)) for picture in pictures])
        n, height, width = small.shape[:3]
        columns = ceil(sqrt(n * height / width))
        image = Image.fromarray(_tiled(small, columns))
        for content, form in _encodings(image):
            if len(content) * 4 / 3 <= most_bytes or size <= 8:
                return Sheet(_data_uri(content, form), width, height, columns, ceil(n / columns))
        size = size * 3 // 4


def contact_sheet(pictures: NDArray[np.uint8], least: int = GALLERY_PIXELS) -> Image.Image:
    """Pictures side by side in about a square, thin white lines between them, each enlarged to about so many pixels."""
    padding = ((0, 0), (0, 1), (0, 1), (0, 0))[: pictures.ndim]
    grid = _tiled(np.pad(pictures, padding, constant_values=255), ceil(sqrt(len(pictures))), blank=255)[:-1, :-1]
    scale = max(1, least // max(pictures.shape[1:3]))
    return Image.fromarray(np.ascontiguousarray(grid.repeat(scale, axis=0).repeat(scale, axis=1)))


def _tiled(pictures: NDArray[np.uint8], columns: int, blank: int = 0) -> NDArray[np.uint8]:
    """Pictures row by row in one array."""
    n, height, width = pictures.shape[:3]
    rows = ceil(n / columns)
    cells = np.full((rows * columns, *pictures.shape[1:]), blank, dtype=np.uint8)
    cells[:n] = pictures
    grid = cells.reshape(rows, columns, *pictures.shape[1:]).swapaxes(1, 2)
    return np.ascontiguousarray(grid.reshape(rows * height, columns * width, *pictures.shape[3:]))


def _encodings(image: Image.Image) -> Iterator[tuple[bytes, str]]:
    """The picture as a file, from the best to the smallest."""
    if features.check("webp") and max(image.size) < 16_384:
        for options in ({"lossless": True, "quality": 50, "method": 2}, {"quality": 75}, {"quality": 45}):
            yield _encoded(image, "WEBP", **options), "WEBP"
    else:
        yield _encoded(image, "PNG", optimize=True), "PNG"


def _encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def _data_uri(content: bytes, form: str) -> str:
    """A file inside a page."""
    return f"data:image/{form.lower()};base64,{base64.b64encode(content).decode()}"


def _shrunk(image: Image.Image, most: int) -> Image.Image:
    scale = most / max(image.size)
    if scale >= 1:
        return image
    width, height = (max(1, round(side * scale)) for side in image.size)
    return image.resize((width, height), Image.Resampling.BOX)
