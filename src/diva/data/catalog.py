"""Data sets by name: what they are, where their files belong, and how to get, check and load them.

Files are looked for below ``$DIVA_DATA``, if that is set, and below the cache: ``$DIVA_CACHE``, or else ``diva`` in
``$XDG_CACHE_HOME`` or in ``~/.cache``.
"""

from __future__ import annotations

import difflib
import os
import re
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from diva.data import layouts
from diva.data.download import Progress, RemoteFile, download_file
from diva.data.known import CATALOG, DatasetInfo
from diva.data.layouts import Contents, Layout
from diva.data.samples import ArraySource, Source
from diva.data.synthetic import make_gaussian_mixture
from diva.exceptions import DataError, DatasetNotFoundError, DownloadError, UnknownDatasetError

GAUSSIANS = re.compile(r"gaussians-([1-9]\d{0,3})(?:-([1-9]\d{0,3}))?")
GAUSSIANS_FEATURES = 10  # where the name does not say
GAUSSIANS_PER_COMPONENT = 500
GAUSSIANS_NUMBERS = 200_000  # components x features: 400 MB of samples


@dataclass(frozen=True)
class NamedDataset:
    """A data set that was loaded. Labels are for scoring only.

    Attributes
    ----------
    name : str
    source, test_source : Source
        Samples; ``test_source`` is None where none are set apart.
    labels, test_labels : ndarray of int64
    class_names, feature_names : tuple of str or None
    fidelity : str
        How this copy differs from the published one.
    """

    name: str
    source: Source
    labels: NDArray[np.int64]
    test_source: Source | None
    test_labels: NDArray[np.int64] | None
    class_names: tuple[str, ...] | None
    feature_names: tuple[str, ...] | None
    fidelity: str


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


# --- where files are


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


# --- what can be done with a name


def is_name(text: str) -> bool:
    """Whether a text names a data set rather than a file: a plain word, and nothing of that name is here.

    >>> is_name("mnist"), is_name("mnist.csv")
    (True, False)
    """
    return re.fullmatch(r"[\w-]{1,100}", text) is not None and not Path(text).exists()


def dataset_info(name: str) -> DatasetInfo:
    """What is known of a data set, whether it is here or not.

    Raises
    ------
    UnknownDatasetError
        If there is none of this name.
    """
    if name in CATALOG:
        return CATALOG[name]
    if GAUSSIANS.fullmatch(str(name)):
        return _gaussians_info(name)
    names = [*CATALOG, "gaussians-10"]
    near = difflib.get_close_matches(str(name).lower().replace("-", "_"), names, n=1, cutoff=0.5)
    advice = f"Did you mean {near[0]!r}? " if near else ""
    raise UnknownDatasetError(
        f"There is no data set named {name!r}. {advice}Known are {', '.join(CATALOG)}, and gaussians-K or gaussians-K-D "
        "for K Gaussians in D dimensions."
    )


def load_dataset(name: str) -> NamedDataset:
    """Load a data set.

    Parameters
    ----------
    name : str
        One of ``list_datasets()``, or "gaussians-K" or "gaussians-K-D" for K simulated Gaussians in D dimensions.

    Returns
    -------
    NamedDataset

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
        return _named(info, _made(info), "simulated" if GAUSSIANS.fullmatch(name) else layouts.AS_PUBLISHED)
    found = find_layout(info)
    if found is None:
        raise DatasetNotFoundError(_where_to_put(info))
    return _read(info, *found)


def _read(info: DatasetInfo, layout: Layout, folder: Path) -> NamedDataset:
    try:
        return _named(info, layout.read(folder), layout.fidelity)
    except Exception as error:  # a damaged file makes its reader fail in any way
        reason = str(error.args[0] if isinstance(error, KeyError) and error.args else error).rstrip(".")
        raise DataError(
            f"The files of {info.name} in {folder} cannot be read: {reason or type(error).__name__}. "
            f"`diva data check {info.name}` says which are damaged; delete those and put them there again."
        ) from error


def _named(info: DatasetInfo, contents: Contents, fidelity: str) -> NamedDataset:
    pairs = [("samples", contents.source, contents.labels)]
    if contents.test_source is not None and contents.test_labels is not None:
        pairs.append(("test samples", contents.test_source, contents.test_labels))
    for kind, source, labels in pairs:
        if len(source) != len(labels):
            raise DataError(f"Expected as many labels as {kind}, got {len(labels):,} labels for {len(source):,} {kind}.")
    return NamedDataset(
        info.name,
        contents.source,
        contents.labels,
        contents.test_source,
        contents.test_labels,
        contents.class_names or info.class_names,
        contents.feature_names,
        fidelity,
    )


def _where_to_put(info: DatasetInfo) -> str:
    root = data_folders()[0]
    layout = info.layouts[0]
    files = " and ".join(str(root / layout.folder / name) for name in layout.files)
    if info.files:
        return f"The data set {info.name} is not here. Get it with `diva data get {info.name}`, or put its files at {files}."
    return f"The data set {info.name} is not here and cannot be downloaded automatically. {info.note} Put it at {files}."


def list_datasets() -> list[DatasetStatus]:
    """All data sets, and whether and where each is here."""
    return [_status(info) for info in (*CATALOG.values(), _gaussians_info("gaussians-10"))]


def _status(info: DatasetInfo) -> DatasetStatus:
    found = find_layout(info)
    made = not info.layouts
    fidelity = found[0].fidelity if found else ("simulated" if GAUSSIANS.fullmatch(info.name) else layouts.AS_PUBLISHED)
    return DatasetStatus(
        info.name,
        info.title,
        info.shape,
        info.n_classes,
        info.licence,
        made or found is not None,
        found[1] if found else None,
        fidelity if made or found else None,
        bool(info.files),
    )


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
        summary, is_good = _summary(_read(info, layout, folder)), True
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


def _summary(dataset: NamedDataset) -> str:
    shape = " x ".join(str(n) for n in dataset.source.item_shape)
    rows = f"{len(dataset.source):,}" + (f" + {len(dataset.test_source):,}" if dataset.test_source is not None else "")
    return f"can be read: {rows} x {shape}, {len(np.unique(dataset.labels))} classes; {dataset.fidelity}"


def get_dataset(
    name: str,
    *,
    on_progress: Progress | None = None,
    opener: urllib.request.OpenerDirector | None = None,
) -> list[Path]:
    """Download a data set, unless it is here already.

    Parameters
    ----------
    name : str
    on_progress : callable, optional
        Called with the bytes of the data set that have arrived and, where known, those expected.
    opener : urllib.request.OpenerDirector, optional
        How addresses are opened, for proxies or passwords.

    Returns
    -------
    list of Path
        Its files; none where it needs none.

    Raises
    ------
    UnknownDatasetError
        If there is none of this name.
    DownloadError
        If it cannot be downloaded; the message says how to fetch it by hand.
    """
    info = dataset_info(name)
    if not info.layouts:
        return []
    for root in data_folders():
        paths = [root / info.layouts[0].folder / remote.filename for remote in info.files]
        if paths and all(_is_good(path, remote) for path, remote in zip(paths, info.files, strict=True)):
            return paths
    if not info.files:
        found = find_layout(info)
        if found is not None:
            return [found[1] / filename for filename in found[0].files]
        raise DownloadError(_where_to_put(info))
    folder, done, paths = cache_folder() / info.layouts[0].folder, 0, []
    for number, remote in enumerate(info.files):
        path = folder / remote.filename
        if not _is_good(path, remote):
            rest = [later.size for later in info.files[number + 1 :]]
            download_file(remote, path, on_progress=_within(on_progress, done, rest), opener=opener)
        done += path.stat().st_size
        paths.append(path)
    return paths


def _is_good(path: Path, remote: RemoteFile) -> bool:
    return path.is_file() and remote.difference(path) is None


def _within(on_progress: Progress | None, before: int, rest: list[int | None]) -> Progress | None:
    """Progress of one file as that of the whole data set."""
    if on_progress is None:
        return None
    known = [size for size in rest if size is not None]

    def tell(done: int, total: int | None) -> None:
        all_known = total is not None and len(known) == len(rest)
        on_progress(before + done, before + total + sum(known) if total is not None and all_known else None)

    return tell


# --- data sets that are made on the spot


def _gaussians(name: str) -> tuple[int, int]:
    match = GAUSSIANS.fullmatch(name)
    if match is None:
        raise UnknownDatasetError(f"Expected gaussians-K or gaussians-K-D, got {name!r}.")
    n_components, n_features = int(match[1]), int(match[2] or GAUSSIANS_FEATURES)
    if n_components * n_features > GAUSSIANS_NUMBERS:
        raise UnknownDatasetError(f"{name} is too large: K times D should be at most {GAUSSIANS_NUMBERS:,}.")
    return n_components, n_features


def _gaussians_info(name: str) -> DatasetInfo:
    n_components, n_features = _gaussians(name)
    n_samples = GAUSSIANS_PER_COMPONENT * n_components
    return DatasetInfo(
        name,
        f"{n_components} Gaussians, simulated" + (" (gaussians-K-D for any number)" if name == "gaussians-10" else ""),
        f"{n_samples:,} + {n_samples // 5:,} x {n_features:,}",
        n_components,
        "none needed",
        "simulated",
    )


def _made(info: DatasetInfo) -> Contents:
    if info.name == "digits":
        digits = load_digits()
        return Contents(ArraySource(digits.images), layouts.to_labels(digits.target))
    n_components, n_features = _gaussians(info.name)
    rng = np.random.default_rng([n_components, n_features])  # the same name is always the same data
    truth = make_gaussian_mixture(n_components, n_features, rng)
    n_samples = GAUSSIANS_PER_COMPONENT * n_components
    (x, y), (x_test, y_test) = truth.sample(n_samples, rng), truth.sample(n_samples // 5, rng)
    return Contents(ArraySource(x), y, ArraySource(x_test), y_test)
