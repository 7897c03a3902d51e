"""Which data sets are here, and whether their files are as they should be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diva.data.datasets.info import DatasetInfo, Layout, RemoteFile
from diva.data.datasets.load import data_folders, find_layout, load_dataset, read_layout
from diva.data.datasets.registry import REGISTRY, dataset_info
from diva.data.sources import LoadedData
from diva.exceptions import DataError


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
    is_here = found is not None or not info.layouts
    known = (info.name, info.title, info.shape, info.n_classes, info.licence)
    fidelity = (found[0].fidelity if found else info.fidelity) if is_here else None
    return DatasetStatus(*known, is_here, found[1] if found else None, fidelity, bool(info.files))


def check_dataset(name: str) -> list[FileCheck]:
    """Check the files of a data set: whether all are here, are those that were published, and can be read."""
    info = dataset_info(name)
    if not info.layouts:
        return [FileCheck(name, None, True, f"needs no files; {_summary(load_dataset(name))}")]
    layout, folder = find_layout(info) or _nearest(info)
    published = {remote.filename: remote for remote in info.files} if layout is info.layouts[0] else {}
    checks = [_check_file(folder / name, published.get(name), layout.sha256.get(name)) for name in layout.files]
    if any(check.message == "missing" for check in checks):
        return checks
    try:
        summary, is_good = _summary(read_layout(info, layout, folder)), True
    except DataError as error:
        summary, is_good = str(error), False
    return [*checks, FileCheck(layout.folder, folder, is_good, summary)]


def _nearest(info: DatasetInfo) -> tuple[Layout, Path]:
    """The layout of which the most files are here, though not all are."""
    places = [(layout, root / layout.folder) for layout in info.layouts for root in data_folders()]
    return max(places, key=lambda place: sum((place[1] / name).is_file() for name in place[0].files))


def _check_file(path: Path, remote: RemoteFile | None, sha256: str | None) -> FileCheck:
    if not path.is_file():
        return FileCheck(path.name, path, False, "missing")
    if remote is None and sha256 is not None:
        remote = RemoteFile("", path.name, sha256)
    if remote is None:
        return FileCheck(path.name, path, True, "no checksum is known")
    difference = remote.difference(path)
    if difference is not None:
        return FileCheck(path.name, path, False, difference)
    return FileCheck(path.name, path, True, "checksum is right" if remote.has_checksum else "no checksum is known")


def _summary(dataset: LoadedData) -> str:
    shape = " x ".join(str(n) for n in dataset.source.item_shape)
    n_classes = 0 if dataset.labels is None else len(np.unique(dataset.labels))
    rows = f"{len(dataset.source):,}" + (f" + {len(dataset.test_source):,}" if dataset.test_source is not None else "")
    return f"can be read: {rows} x {shape}, {n_classes} classes; {dataset.fidelity}"
