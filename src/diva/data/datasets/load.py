"""Data sets by name: which are here, whether their files are as they should be, and how they are loaded.

Files are looked for below ``$DIVA_DATA``, if that is set, and below the cache: ``$DIVA_CACHE``, or else ``diva`` in
``$XDG_CACHE_HOME`` or in ``~/.cache``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from diva.data.datasets.readers import to_labels
from diva.data.datasets.registry import REGISTRY, DataFile, DatasetInfo, Layout, dataset_info
from diva.data.datasets.synthetic import load_gaussians
from diva.data.formats.files import may_not_be_read
from diva.data.sources import ArraySource, LoadedData
from diva.exceptions import DataError, DatasetNotFoundError


def cache_folder() -> Path:
    """Folder into which ``get_dataset`` downloads."""
    if own := os.environ.get("DIVA_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared and Path(shared).is_absolute() else Path.home() / ".cache") / "diva"


def data_folders() -> list[Path]:
    """Folders in which data sets are looked for, in this order."""
    own = os.environ.get("DIVA_DATA")
    return [*([Path(own).expanduser()] if own else []), cache_folder()]


def find_layout(info: DatasetInfo) -> tuple[Layout, Path] | None:
    """The layout that is here, and the folder it is below; the nearest to the published one wins."""
    for layout in info.layouts:
        for root in data_folders():
            if all(path.is_file() for path in layout.paths(root)):
                return layout, root
    return None


def load_dataset(name: str) -> LoadedData:
    """Load a data set.

    Parameters
    ----------
    name : str
        One of ``list_datasets()``, or "gaussians-K" or "gaussians-K-D" for K simulated Gaussians in D dimensions.

    Returns
    -------
    LoadedData

    Raises
    ------
    UnknownDatasetError
        If there is none of this name.
    DatasetNotFoundError
        If its files are not here; the message says which belong where.
    DataError
        If a file is damaged.

    Examples
    --------
    >>> from diva.data import load_dataset
    >>> digits = load_dataset("digits")
    >>> len(digits.source), digits.source.item_shape
    (1797, (8, 8))
    """
    info = dataset_info(name)
    if not info.layouts:
        return _named(info, _made(info), info.fidelity)
    found = find_layout(info)
    if found is None:
        raise DatasetNotFoundError(where_to_put(info))
    return _read_layout(info, *found)


def _read_layout(info: DatasetInfo, layout: Layout, root: Path) -> LoadedData:
    """Read a data set below a folder; raises DataError if a file is damaged."""
    try:
        return _named(info, layout.read(*layout.paths(root)), layout.fidelity)
    except PermissionError as error:
        raise DataError(may_not_be_read(error.filename or root / layout.folder)) from error
    except Exception as error:  # a damaged file makes its reader fail in any way
        reason = str(error.args[0] if isinstance(error, KeyError) and error.args else error).rstrip(".")
        raise DataError(
            f"The files of {info.name} in {root / layout.folder} cannot be read: {reason or type(error).__name__}. "
            f"`diva data check {info.name}` says which are damaged; delete those and put them there again."
        ) from error


def _named(info: DatasetInfo, data: LoadedData, fidelity: str) -> LoadedData:
    """With what is known of the data set; raises DataError if there are not as many labels as samples."""
    pairs = (("samples", data.source, data.labels), ("test samples", data.test_source, data.test_labels))
    for what, source, labels in pairs:
        if source is not None and labels is not None and len(source) != len(labels):
            raise DataError(f"Expected as many labels as {what}, got {len(labels):,} labels for {len(source):,} {what}.")
    class_names = data.class_names or info.class_names
    return replace(data, name=info.name, class_names=class_names, fidelity=fidelity, suggested=dict(info.parameters))


def where_to_put(info: DatasetInfo) -> str:
    """What to do about a data set that is not here."""
    files = " and ".join(map(str, info.layouts[0].paths(data_folders()[0])))
    if info.is_downloadable:
        return f"The data set {info.name} is not here. Get it with `diva data get {info.name}`, or put its files at {files}."
    return f"The data set {info.name} is not here and cannot be downloaded automatically. {info.note} Put it at {files}."


def _made(info: DatasetInfo) -> LoadedData:
    """A data set that needs no files."""
    if info.name != "digits":
        return load_gaussians(info.name)
    digits = load_digits()
    return LoadedData(ArraySource(digits.images), to_labels(digits.target))


# --- what is here


@dataclass(frozen=True)
class DatasetStatus:
    """A line of the list: what a data set is, and whether and where it is here."""

    name: str
    title: str
    shape: str
    n_classes: int
    licence: str
    is_here: bool
    where: Path | None
    fidelity: str | None
    is_downloadable: bool


@dataclass(frozen=True)
class FileCheck:
    """Whether a file is as it should be, and what was found."""

    filename: str
    path: Path | None
    is_good: bool
    message: str


def list_datasets() -> list[DatasetStatus]:
    """All data sets, and whether and where each is here."""
    return [_status(info) for info in (*REGISTRY.values(), dataset_info("gaussians-10"))]


def _status(info: DatasetInfo) -> DatasetStatus:
    found = find_layout(info)
    known = (info.name, info.title, info.shape, info.n_classes, info.licence)
    if found is not None:
        layout, root = found
        return DatasetStatus(*known, True, root / layout.folder, layout.fidelity, info.is_downloadable)
    return DatasetStatus(*known, not info.layouts, None, None if info.layouts else info.fidelity, info.is_downloadable)


def check_dataset(name: str) -> list[FileCheck]:
    """Check the files of a data set: whether all are here, are those that were published, and can be read."""
    info = dataset_info(name)
    if not info.layouts:
        return [FileCheck(name, None, True, f"needs no files; {_summary(load_dataset(name))}")]
    layout, root = find_layout(info) or _nearest(info)
    checks = [_check_file(path, file) for path, file in zip(layout.paths(root), layout.files, strict=True)]
    if any(check.message == "missing" for check in checks):
        return checks
    try:
        summary, is_good = _summary(_read_layout(info, layout, root)), True
    except DataError as error:
        summary, is_good = str(error), False
    return [*checks, FileCheck(layout.folder, root / layout.folder, is_good, summary)]


def _nearest(info: DatasetInfo) -> tuple[Layout, Path]:
    """The layout of which the most files are here, though not all are."""
    places = [(layout, root) for layout in info.layouts for root in data_folders()]
    return max(places, key=lambda place: sum(path.is_file() for path in place[0].paths(place[1])))


def _check_file(path: Path, file: DataFile) -> FileCheck:
    if not path.is_file():
        return FileCheck(path.name, path, False, "missing")
    difference = file.difference(path)
    known = "checksum is right" if file.has_checksum else "no checksum is known"
    return FileCheck(path.name, path, difference is None, difference or known)


def _summary(dataset: LoadedData) -> str:
    shape = " x ".join(str(n) for n in dataset.source.item_shape)
    n_classes = 0 if dataset.labels is None else len(np.unique(dataset.labels))
    rows = f"{len(dataset.source):,}" + (f" + {len(dataset.test_source):,}" if dataset.test_source is not None else "")
    return f"can be read: {rows} x {shape}, {n_classes} classes; {dataset.fidelity}"
