"""SOURCE on the command line: the name of a data set, or a path."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from diva.atomic import write_atomically
from diva.cli._errors import UsageError
from diva.cli._options import columns_of, image_size_of, one_of
from diva.data import LoadedData, ReadOptions, TableSchema, cut_windows, load_dataset, open_with
from diva.data.columns import Missing
from diva.data.datasets.registry import is_name
from diva.data.formats.labels import read_labels
from diva.data.formats.paths import is_table
from diva.runs.records import read_json

SOURCE_FILE = "source.json"


@dataclass(frozen=True)
class SourceSpec:
    """How the data of a run were named, so that they can be opened again."""

    source: str  # name of a data set, or an absolute path
    split: str = "train"  # {"train", "test"}: part of a data set that has both
    columns: tuple[str, ...] | None = None  # columns of a table that are features; all numeric ones by default
    label_column: str | None = None  # column with the true classes
    labels: str | None = None  # file with the true classes
    image_size: tuple[int, int] | None = None
    key: str | None = None  # array in an .npz file
    limit: int | None = None  # only the first so many samples
    exclude: tuple[str, ...] = ()  # columns of a table that are not learnt from
    id_column: str | None = None  # column that names the rows
    missing: str | None = None  # what happens to rows with gaps
    window: int | None = None  # steps that a recording is cut into, and from one window to the next
    step: int | None = None
    skip_broken: bool = False  # whether broken images are left out
    typed: bool = False  # whether columns are used as what they hold; before, all had to be numbers

    def write(self, run: Path) -> None:
        """Note it in the folder of a run."""
        write_atomically(run / SOURCE_FILE, (json.dumps(asdict(self), indent=2) + "\n").encode())

    def checked(self) -> SourceSpec:
        """The same; raises TypeError if something in it is of another type."""
        names, sizes = (*(self.columns or ()), *self.exclude), self.image_size or ()
        words = (self.label_column, self.labels, self.key, self.id_column, self.missing)
        texts = [self.source, self.split, *names, *(word for word in words if word is not None)]
        numbers = [*sizes, *(n for n in (self.limit, self.window, self.step) if n is not None)]
        if not all(isinstance(text, str) for text in texts) or not all(type(n) is int and n > 0 for n in numbers):
            raise TypeError("names should be text, and numbers whole")
        if type(self.typed) is not bool or type(self.skip_broken) is not bool or self.missing not in (None, *get_args(Missing)):
            raise ValueError("flags should be true or false, and what happens to gaps impute, drop or error")
        return self

    @classmethod
    def read(cls, run: Path) -> SourceSpec:
        """Read it back; raises UsageError if the folder was not made by ``diva fit``."""
        try:
            plain = read_json(run / SOURCE_FILE)
            for name in ("columns", "image_size"):
                plain[name] = None if plain[name] is None else tuple(plain[name])
            plain["exclude"] = tuple(plain.get("exclude", ()))
            return cls(**plain).checked()
        except FileNotFoundError:
            raise UsageError(f"{str(run)!r} is no run of `diva fit`: it holds no {SOURCE_FILE}.") from None
        except (OSError, AttributeError, ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{str(run / SOURCE_FILE)!r} is damaged ({error}). Start the run again with `diva fit`.") from None


def specify(
    source: str, split: str = "train", columns: str | None = None, image_size: str | None = None, **given: Any
) -> SourceSpec:
    """A specification of what the options of a command say, whose paths do not depend on the current folder."""
    if source in ("", "-"):
        raise UsageError("SOURCE should be the name of a data set or a path; standard input is not read.")
    absolute = source if is_name(source) else os.path.abspath(os.path.expanduser(source))
    if given.get("labels") is not None and given.get("label_column") is not None:
        raise UsageError("Give --labels or --label-column, not both.")
    if given.get("labels") is not None:
        given["labels"] = os.path.abspath(given["labels"])
    one_of("--split", split, ("train", "test"))
    if given.get("missing") is not None:
        one_of("--missing", given["missing"], get_args(Missing))
    given["exclude"] = columns_of(given.get("exclude")) or ()
    return SourceSpec(absolute, split, columns_of(columns), image_size=image_size_of(image_size), typed=True, **given)


def open_spec(spec: SourceSpec, schema: TableSchema | None = None, *, keep_columns: bool = False) -> LoadedData:
    """Open what a specification names; raises DataError or UsageError if there is no such thing, or it cannot be read.

    Parameters
    ----------
    spec : SourceSpec
    schema : TableSchema, optional
        Of a model that is asked: what it uses columns as.
    keep_columns : bool, default=False
        Whether to keep all columns of a table beside the samples.
    """
    data = _open_named(spec) if is_name(spec.source) else _open_file(spec, schema, keep_columns)
    if spec.labels is not None:
        data = replace(data, labels=read_labels(spec.labels))
    if data.labels is not None and len(data.labels) != len(data.source):
        raise UsageError(
            f"There are {len(data.source):,} samples but {len(data.labels):,} labels in {spec.labels or spec.source}. Pass one "
            "label for each sample."
        )
    return _cut(data, spec).first(spec.limit)


def _cut(data: LoadedData, spec: SourceSpec) -> LoadedData:
    """Windows of a recording, if they are asked for; each has the label and the id of the row in its middle."""
    if spec.window is None:
        if spec.step is not None:
            raise UsageError("--step is the distance of windows, so it needs --window.")
        return data
    source = cut_windows(data.source, spec.window, spec.step)
    names = data.feature_names or [f"channel {i}" for i in range(source.item_shape[1])]
    return replace(
        data,
        source=source,
        labels=None if data.labels is None else data.labels[source.middles],
        feature_names=tuple(f"{name} at {i}" for i in range(spec.window) for name in names),
        beside=None if data.beside is None else data.beside.take(source.middles),
    )


def _open_named(spec: SourceSpec) -> LoadedData:
    for name in ("columns", "label_column", "image_size", "key", "exclude", "id_column", "missing"):
        if getattr(spec, name) not in (None, ()):
            raise UsageError(f"--{name.replace('_', '-')} is for files, but {spec.source!r} is a data set. Leave it out.")
    data = load_dataset(spec.source)
    if spec.split == "test":
        if data.test_source is None:
            raise UsageError(f"The data set {spec.source!r} has no test part. Leave --split out.")
        data = replace(data, source=data.test_source, labels=data.test_labels)
    return replace(data, labels=data.named_labels)


def _open_file(spec: SourceSpec, schema: TableSchema | None, keep_columns: bool) -> LoadedData:
    if spec.split == "test":
        raise UsageError(f"--split is for data sets that have a test part, not for {spec.source}; name the file you mean.")
    if spec.key is not None and not spec.source.endswith(".npz"):
        raise UsageError(f"--key names an array of an .npz file, which {spec.source} is not. Leave it out.")
    if spec.image_size is not None and (not Path(spec.source).is_dir() or is_table(spec.source)):
        raise UsageError(f"--image-size is for folders of images, which {spec.source} is not. Resize arrays yourself.")
    if spec.label_column is not None and spec.label_column in (spec.columns or ()):
        raise UsageError(f"{spec.label_column!r} is the label column, so it cannot be learnt from. Leave it out of --columns.")
    names = ("columns", "label_column", "image_size", "key", "exclude", "id_column", "missing", "typed", "skip_broken")
    given = {name: getattr(spec, name) for name in names}
    return open_with(spec.source, ReadOptions(**given, schema=schema, keep_columns=keep_columns))
