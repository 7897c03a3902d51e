"""SOURCE on the command line: the name of a data set, or a path."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diva.cli.errors import UsageError
from diva.data import PartOfSource, Source
from diva.data.catalog import dataset_info, is_name, load_dataset
from diva.data.files import is_table, open_path
from diva.exceptions import DataError
from diva.runs.archive import write_atomically

SOURCE_FILE = "source.json"


@dataclass(frozen=True)
class SourceSpec:
    """How the data of a run were named, so that they can be opened again.

    Attributes
    ----------
    source : str
        Name of a data set, or an absolute path.
    split : {"train", "test"}
        Part of a data set that has both.
    columns : tuple of str, or None
        Columns of a table that are features; all numeric ones by default.
    label_column : str or None
        Column with the true classes.
    labels : str or None
        File with the true classes.
    image_size : (height, width) or None
    key : str or None
        Array in an .npz file.
    limit : int or None
        Only the first so many samples.
    """

    source: str
    split: str = "train"
    columns: tuple[str, ...] | None = None
    label_column: str | None = None
    labels: str | None = None
    image_size: tuple[int, int] | None = None
    key: str | None = None
    limit: int | None = None

    def write(self, run: Path) -> None:
        """Note it in the folder of a run."""
        write_atomically(run / SOURCE_FILE, (json.dumps(asdict(self), indent=2) + "\n").encode())

    @classmethod
    def read(cls, run: Path) -> SourceSpec:
        """Read it back.

        Raises
        ------
        UsageError
            If the folder was not made by ``diva fit``.
        """
        try:
            plain = json.loads((run / SOURCE_FILE).read_text())
            for name in ("columns", "image_size"):
                plain[name] = None if plain[name] is None else tuple(plain[name])
            return cls(**plain)
        except FileNotFoundError:
            raise UsageError(f"{str(run)!r} is no run of `diva fit`: it holds no {SOURCE_FILE}.") from None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{str(run / SOURCE_FILE)!r} is damaged ({error}). Start the run again with `diva fit`.") from None


@dataclass(frozen=True)
class OpenedData:
    """Samples and what is known about them.

    Attributes
    ----------
    source : Source
    name : str
    labels : array of shape (n_samples,), or None
    feature_names, sample_names, columns : list of str, or None
    suggested : dict
        Parameters that suit a named data set.
    fidelity : str
        How this copy of a named data set differs from the published one.
    """

    source: Source
    name: str
    labels: NDArray[Any] | None = None
    feature_names: list[str] | None = None
    sample_names: list[str] | None = None
    columns: list[str] | None = None
    suggested: dict[str, Any] | None = None
    fidelity: str = ""

    def first(self, n: int | None) -> OpenedData:
        """Only the first n samples."""
        if n is None or n >= len(self.source):
            return self
        index = np.arange(n)
        return replace(
            self,
            source=PartOfSource(self.source, index),
            labels=None if self.labels is None else self.labels[:n],
            sample_names=None if self.sample_names is None else self.sample_names[:n],
        )


def specify(source: str, **given: Any) -> SourceSpec:
    """A specification whose paths do not depend on the current folder."""
    if source in ("", "-"):
        raise UsageError("SOURCE should be the name of a data set or a path; standard input is not read.")
    absolute = source if is_name(source) else os.path.abspath(os.path.expanduser(source))
    if given.get("labels") is not None and given.get("label_column") is not None:
        raise UsageError("Give --labels or --label-column, not both.")
    if given.get("labels") is not None:
        given["labels"] = os.path.abspath(given["labels"])
    return SourceSpec(absolute, **given)


def open_spec(spec: SourceSpec) -> OpenedData:
    """Open what a specification names.

    Raises
    ------
    DataError, UsageError
        If there is nothing of that name, or it cannot be read.
    """
    data = _open_named(spec) if is_name(spec.source) else _open_file(spec)
    if spec.labels is not None:
        data = replace(data, labels=read_labels(spec.labels))
    if data.labels is not None and len(data.labels) != len(data.source):
        raise UsageError(
            f"There are {len(data.source):,} samples but {len(data.labels):,} labels. Pass one label for each sample."
        )
    return data.first(spec.limit)


def _open_named(spec: SourceSpec) -> OpenedData:
    for name in ("columns", "label_column", "image_size", "key"):
        if getattr(spec, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} is for files, but {spec.source!r} is a data set. Leave it out.")
    named = load_dataset(spec.source)
    source: Source = named.source
    labels: NDArray[Any] | None = named.labels
    if spec.split == "test":
        if named.test_source is None:
            raise UsageError(f"The data set {spec.source!r} has no test part. Leave --split out.")
        source, labels = named.test_source, named.test_labels
    if labels is not None and named.class_names is not None:
        labels = np.asarray(named.class_names)[labels]
    names = None if named.feature_names is None else list(named.feature_names)
    suggested = dict(dataset_info(spec.source).parameters)
    return OpenedData(source, spec.source, labels, names, suggested=suggested, fidelity=named.fidelity)


def _open_file(spec: SourceSpec) -> OpenedData:
    if spec.split == "test":
        raise UsageError("--split is for data sets that have a test part; name the file you mean instead.")
    if spec.key is not None and not spec.source.endswith(".npz"):
        raise UsageError("--key names an array of an .npz file, which this is not. Leave it out.")
    if spec.image_size is not None and (not Path(spec.source).is_dir() or is_table(spec.source)):
        raise UsageError("--image-size is for folders of images, which this is not. Resize arrays of images yourself.")
    if spec.label_column is not None and spec.label_column in (spec.columns or ()):
        raise UsageError(f"{spec.label_column!r} is the label column, so it cannot be learnt from. Leave it out of --columns.")
    opened = open_path(
        spec.source, columns=spec.columns, label_column=spec.label_column, image_size=spec.image_size, key=spec.key
    )
    return OpenedData(opened.source, opened.name, opened.labels, opened.feature_names, opened.sample_names, opened.columns)


def read_labels(path: str) -> NDArray[Any]:
    """True classes in a file: an .npy array, or text with one class a line.

    Raises
    ------
    DataError
        If there is no such file, or it holds something else.
    """
    labels: NDArray[Any]
    try:
        if path.endswith(".npy"):
            labels = np.load(path, allow_pickle=False)
        else:
            labels = np.array([line.strip() for line in Path(path).read_text(encoding="utf-8-sig").rstrip().split("\n")])
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read as labels: {error}. Expected .npy, or text with one label a line.") from error
    missing = np.flatnonzero(labels == "" if labels.dtype.kind == "U" else labels != labels)
    if missing.size:
        raise DataError(f"Label {missing[0] + 1} in {path} is missing. Pass one for each sample, or none.")
    if labels.ndim != 1:
        raise DataError(f"Expected one label for each sample in {path}, got an array of shape {labels.shape}.")
    return labels
