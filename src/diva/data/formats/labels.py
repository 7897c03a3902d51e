"""True classes in a file of their own, or as text."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diva.data.formats.files import check_file, may_not_be_read
from diva.data.formats.npy import DAMAGED
from diva.data.formats.tables import LABEL_LENGTH
from diva.exceptions import DataError


def read_labels(path: str | os.PathLike[str]) -> NDArray[Any]:
    """True classes in a file, an .npy array or text with one class a line; raises DataError if it holds something else."""
    labels: NDArray[Any]
    try:
        check_file(Path(path))
        if os.fspath(path).endswith(".npy"):
            labels = np.load(path, mmap_mode="r", allow_pickle=False)  # mapped, it is as large as it says
        else:
            lines = [line.strip() for line in Path(path).read_text(encoding="utf-8-sig").rstrip().split("\n")]
            if (longest := max(map(len, lines))) > LABEL_LENGTH:  # in an array, each takes as much as the longest
                raise ValueError(f"a line has {longest:,} characters")
            labels = np.array(lines)
    except DataError:
        raise
    except PermissionError as error:
        raise DataError(may_not_be_read(path)) from error
    except DAMAGED as error:
        raise DataError(f"{path} cannot be read as labels: {error}. Expected .npy, or text with one label a line.") from error
    if not isinstance(labels, np.ndarray):
        raise DataError(f"Expected one array of labels in {path}, got several. Save them with numpy.save.")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise DataError(f"Expected one label for each sample in {path}, got an array of shape {labels.shape}.")
    missing = np.flatnonzero(labels == "" if labels.dtype.kind == "U" else labels != labels)
    if missing.size:
        raise DataError(f"Label {missing[0] + 1} in {path} is missing. Pass one for each sample, or none.")
    return np.array(labels)


def whole_numbers(labels: NDArray[Any]) -> NDArray[Any]:
    """Words as numbers if all of them are whole numbers, written as people do."""
    if not all(re.fullmatch(r"0|-?[1-9]\d{0,17}", label) for label in np.unique(labels).tolist()):
        return labels
    return labels.astype(np.int64)


def number_classes(labels: NDArray[Any]) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Labels as whole numbers; words are numbered in the order of the alphabet, and then come second."""
    labels = whole_numbers(labels) if labels.dtype.kind == "U" else labels
    if labels.dtype.kind != "U":
        return labels.astype(np.int64), None
    names, numbers = np.unique(labels, return_inverse=True)
    return numbers.astype(np.int64), tuple(names.tolist())
