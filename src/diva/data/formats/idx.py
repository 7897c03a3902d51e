"""IDX, the format MNIST comes in: two zeros, dtype, number of axes, sizes, then the numbers, all big-endian."""

from __future__ import annotations

import gzip
import math
import re
import struct
import zlib
from pathlib import Path

import numpy as np

from diva.data.formats.files import check_file, check_unpacked
from diva.data.formats.spool import spooled_bytes
from diva.data.sources import LoadedData, Source
from diva.exceptions import DataError

IDX_NAME = re.compile(r"(^|[.\-_])idx\d?([.\-_]|$)", re.IGNORECASE)
IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def is_idx(path: Path) -> bool:
    """Whether a file is named as IDX files are."""
    return IDX_NAME.search(path.name.lower().removesuffix(".gz")) is not None


def open_idx(path: Path) -> LoadedData:
    """Images or rows in IDX, with the labels in the file beside it."""
    source = _read(path)
    if not source.item_shape:
        raise DataError(f"Expected images or rows in {path}, got one number for each sample, as labels have. Open the images.")
    beside = _labels_beside(path)
    if beside is None:
        return LoadedData(source)
    labels = _read(beside)
    if len(labels) != len(source):
        raise DataError(f"Expected as many labels as samples, got {len(source)} samples in {path}, {len(labels)} in {beside}.")
    return LoadedData(source, labels.take(np.arange(len(labels))))


def _labels_beside(path: Path) -> Path | None:
    name = path.name.replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")
    if "labels" not in name or name == path.name:
        return None
    bare = name.removesuffix(".gz")
    return next((place for place in map(path.with_name, (name, bare, f"{bare}.gz")) if place.is_file()), None)


def _read(path: Path) -> Source:
    check_file(path)
    advice = "Copy or download it anew."
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            magic = file.read(4)
            if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in IDX_TYPES or not 1 <= magic[3] <= 4:
                raise DataError(f"Expected an IDX file, but {path} does not begin like one. {advice}")
            shape = struct.unpack(f">{magic[3]}I", file.read(4 * magic[3]))
            if 0 in shape:
                raise DataError(f"Expected samples in {path}, got an empty array of shape {shape}.")
            dtype = np.dtype(IDX_TYPES[magic[2]])
            n_bytes = math.prod(shape) * dtype.itemsize
            if path.suffix.lower() == ".gz":
                check_unpacked(path, n_bytes)
            elif n_bytes > path.stat().st_size:
                raise EOFError
            source = spooled_bytes(file.read, shape, dtype, str(path))
            if file.read(1):
                raise DataError(f"Expected {shape[0]} samples in {path}, as it says itself, got more. {advice}")
    except (DataError, PermissionError):
        raise
    except (EOFError, struct.error) as error:
        raise DataError(f"{path} is cut short: it holds less than it says itself. {advice}") from error
    except (OSError, zlib.error) as error:
        raise DataError(f"{path} is damaged and cannot be unpacked. {advice}") from error
    return source
