"""Folders of images, decoded when they are needed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from diva.data.formats.files import check_file, check_unpacked
from diva.data.formats.messages import readable
from diva.data.sources import LoadedData
from diva.exceptions import DataError

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
MEMORY_BYTES = 1 << 29  # up to here decoded images are kept
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")  # whatever the name says; others may start programs
GREY = ("1", "L", "LA", "La")
DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")  # more than 256 levels
ORIENTATION = 0x0112  # in the notes of a camera
SIDEWAYS = (5, 6, 7, 8)


@dataclass(frozen=True)
class Pictures:
    """Images that can be opened by their numbers."""

    names: Sequence[str]  # for messages
    open: Callable[[int], Any]  # ``open(number)`` returns what ``PIL.Image.open`` takes


class ImageSource:
    """Images of one size, grey (height, width) or in colour (height, width, 3); resized if an image size is given.

    Each is decoded when it is first asked for, and kept if all of them fit in 512 MB.
    """

    def __init__(self, pictures: Pictures, image_size: tuple[int, int] | None = None) -> None:
        self._pictures = pictures
        size, self._mode = _survey(pictures, image_size)
        self.item_shape: tuple[int, ...] = (*size, 3) if self._mode == "RGB" else size
        self._dtype = np.dtype(np.float32 if self._mode == "F" else np.uint8)
        shape = (len(pictures.names), *self.item_shape)
        keeps = int(np.prod(shape)) * self._dtype.itemsize <= MEMORY_BYTES
        self._memory = np.zeros(shape, dtype=self._dtype) if keeps else None
        self._is_decoded = np.zeros(len(pictures.names), dtype=bool)

    def __len__(self) -> int:
        return len(self._pictures.names)

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        index = np.asarray(index, dtype=np.int64)
        if self._memory is None:
            if not len(index):
                return np.empty((0, *self.item_shape), dtype=self._dtype)
            return np.stack([self._decode(number) for number in index.tolist()])
        for number in index[~self._is_decoded[index]].tolist():
            self._memory[number] = self._decode(number)
            self._is_decoded[number] = True
        values: NDArray[Any] = self._memory[index]
        return values

    def _decode(self, number: int) -> NDArray[Any]:
        height, width = self.item_shape[:2]
        with _opened(self._pictures, number) as image:
            upright = image if _orientation(image) == 1 else ImageOps.exif_transpose(image)
            image = _in_mode(upright, self._mode)
            if image.size != (width, height):
                image = image.resize((width, height), Image.Resampling.BILINEAR)
            return np.asarray(image)


def _in_mode(image: Any, mode: str) -> Any:
    if image.mode == mode:
        image.load()
        return image
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")  # a palette may have transparent colours
    elif mode == "F" and image.mode.startswith("I;16"):
        image = image.convert("I")
    return image.convert(mode)


@contextmanager
def _opened(pictures: Pictures, number: int) -> Iterator[Any]:
    """An image with its header read; whatever goes wrong names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of notes and metadata that nobody reads here
            file = pictures.open(number)
            with Image.open(file, formats=FORMATS) as image:
                if isinstance(file, Path):
                    check_unpacked(file, image.width * image.height * len(image.getbands()))
                yield image
    except (MemoryError, PermissionError, DataError):
        raise
    except Exception as error:  # decoders raise all kinds
        name = pictures.names[number]
        raise DataError(
            f"Expected an image, but {name} is damaged or of another kind. Remove it, copy it anew, or pass --skip-broken."
        ) from error


def _survey(pictures: Pictures, image_size: tuple[int, int] | None) -> tuple[tuple[int, int], str]:
    """Size (height, width) and mode for all, from the headers alone."""
    size: tuple[int, int] | None = None
    modes: dict[str, int] = {}
    for number in range(len(pictures.names)):
        with _opened(pictures, number) as image:
            width, height = image.size
            if _orientation(image) in SIDEWAYS:
                width, height = height, width
            kind = "L" if image.mode in GREY else "F" if image.mode in DEEP else "RGB"
        modes.setdefault(kind, number)
        if size is None:
            size = (height, width)
        elif size != (height, width) and image_size is None:
            first, other = pictures.names[0], pictures.names[number]
            raise DataError(
                f"Expected images of one size, but {first} is {size[0]} x {size[1]} and {other} is {height} x {width} "
                f"(height x width). Set an image size to resize all to, for example --image-size {_rounded(size)}."
            )
    if "F" in modes and len(modes) > 1:
        deep, flat = (pictures.names[modes[k]] for k in ("F", next(k for k in modes if k != "F")))
        raise DataError(f"Expected images of one kind, but {deep} has more than 256 levels of grey and {flat} has not.")
    assert size is not None
    return image_size or size, "RGB" if "RGB" in modes else next(iter(modes))


def _orientation(image: Any) -> int:
    if image.format == "PNG" and "exif" not in image.info:
        return 1  # the notes could be at the end, and looking for them would decode the image
    return int(image.getexif().get(ORIENTATION, 1))


def _rounded(size: tuple[int, int]) -> str:
    height, width = (min(max(4, 4 * round(side / 4)), 128) for side in size)
    return f"{height},{width}"


def checked(path: Path) -> Path:
    """A path that leads to a file with something in it; raises DataError if it does not."""
    check_file(path)
    return path


def open_image_folder(
    folder: Path, files: Sequence[Path], image_size: tuple[int, int] | None = None, *, skip_broken: bool = False
) -> LoadedData:
    """Images in a folder; names of sub-folders are labels if every image is in one.

    Broken images are skipped if asked for, and listed in the facts; all are decoded once to see which they are.
    """
    if image_size is not None and (len(image_size) != 2 or min(image_size) < 1):
        raise DataError(f"image_size should be a height and a width, got {image_size}.")
    broken = [file for file in files if not _is_whole(file)] if skip_broken else []
    files = [file for file in files if file not in set(broken)]
    if not files:
        raise DataError(f"Expected images in {folder}, but all {len(broken):,} are damaged. Copy them anew.")
    places = [file.relative_to(folder) for file in files]
    labels = np.array([readable(place.parts[0]) for place in places]) if all(len(place.parts) > 1 for place in places) else None
    pictures = Pictures([str(file) for file in files], lambda number: checked(files[number]))
    sample_names = tuple(readable(str(place)) for place in places)
    facts = {"broken": [readable(str(file.relative_to(folder))) for file in broken]} if broken else {}
    return LoadedData(ImageSource(pictures, image_size), labels, sample_names=sample_names, facts=facts)


def _is_whole(file: Path) -> bool:
    """Whether a file is an image that can be decoded to its end."""
    try:
        with _opened(Pictures([str(file)], lambda _: checked(file)), 0) as image:
            image.load()
    except DataError:
        return False
    return True
