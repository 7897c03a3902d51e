"""Data sets by name: where their files are, and how they are loaded.

Files are looked for below ``$DIVA_DATA``, if that is set, and below the cache: ``$DIVA_CACHE``, or else ``diva`` in
``$XDG_CACHE_HOME`` or in ``~/.cache``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from sklearn.datasets import load_digits

from diva.data.datasets.info import DatasetInfo, Layout
from diva.data.datasets.readers import to_labels
from diva.data.datasets.registry import dataset_info
from diva.data.datasets.synthetic import load_gaussians
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
    """The layout that is here, and its folder; the nearest to the published one wins."""
    for layout in info.layouts:
        for root in data_folders():
            if layout.is_in(root):
                return layout, root / layout.folder
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
    return read_layout(info, *found)


def read_layout(info: DatasetInfo, layout: Layout, folder: Path) -> LoadedData:
    """Read a data set from a folder; raises DataError if a file is damaged."""
    try:
        return _named(info, layout.read(folder), layout.fidelity)
    except Exception as error:  # a damaged file makes its reader fail in any way
        reason = str(error.args[0] if isinstance(error, KeyError) and error.args else error).rstrip(".")
        raise DataError(
            f"The files of {info.name} in {folder} cannot be read: {reason or type(error).__name__}. "
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
    root = data_folders()[0]
    layout = info.layouts[0]
    files = " and ".join(str(root / layout.folder / name) for name in layout.files)
    if info.files:
        return f"The data set {info.name} is not here. Get it with `diva data get {info.name}`, or put its files at {files}."
    return f"The data set {info.name} is not here and cannot be downloaded automatically. {info.note} Put it at {files}."


def _made(info: DatasetInfo) -> LoadedData:
    """A data set that needs no files."""
    if info.name != "digits":
        return load_gaussians(info.name)
    digits = load_digits()
    return LoadedData(ArraySource(digits.images), to_labels(digits.target))
