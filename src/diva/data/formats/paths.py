"""Whatever lies under a path, as a source of samples."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from diva.data.columns import ColumnOptions, Missing, TableSchema, labels_of
from diva.data.formats.files import check_file, may_not_be_read
from diva.data.formats.idx import is_idx, open_idx
from diva.data.formats.images import IMAGE_SUFFIXES, open_image_folder
from diva.data.formats.labels import whole_numbers
from diva.data.formats.messages import did_you_mean, readable
from diva.data.formats.npy import open_npy, open_npz
from diva.data.formats.objects import source_from_object
from diva.data.formats.tables import check_columns, csv_table, parquet_table, read_table
from diva.data.formats.texts import lines_table, open_text_folder, read_documents
from diva.data.sources import LoadedData
from diva.data.typed import arrow_table, columns_of, from_pandas, read_typed
from diva.exceptions import DataError

CSV_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_SUFFIXES = (".parquet", ".pq")
TEXT_SUFFIXES = (".txt", ".text", ".md")
SUPPORTED = (
    "What can be opened: arrays (.npy, .npz), tables (.csv, .tsv, .csv.gz, .parquet), text (.txt, a document a line), IDX "
    "(.idx, .idx.gz, or names like train-images-idx3-ubyte), AnnData (.h5ad), folders of images, of text files or of Parquet "
    "files."
)


@dataclass(frozen=True)
class ReadOptions:
    """What to take of a file or folder: the keywords of ``open_path`` as one value."""

    columns: Sequence[str] | None = None
    label_column: str | None = None
    image_size: tuple[int, int] | None = None
    key: str | None = None
    exclude: Sequence[str] = ()
    id_column: str | None = None
    missing: Missing | None = None
    typed: bool = False  # whether columns of a table are used as what they hold; otherwise all should be numbers
    schema: TableSchema | None = None  # of a model: how columns are used
    keep_columns: bool = False  # whether to keep all columns of a table beside
    skip_broken: bool = False  # whether broken images of a folder are left out
    is_shard: bool = False  # whether other processes have other rows of a table

    @property
    def choose_columns(self) -> bool:
        """Whether they only make sense for a table."""
        asked = (self.columns, self.label_column, self.id_column)
        return any(name is not None for name in asked) or bool(self.exclude) or self.keep_columns

    @property
    def of_columns(self) -> ColumnOptions:
        """What they say about columns that are used as what they hold."""
        missing = self.missing or "impute"
        return ColumnOptions(self.columns, self.exclude, self.id_column, self.label_column, missing, is_shard=self.is_shard)


def open_path(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | Literal["auto"] | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    exclude: Sequence[str] = (),
    missing: Missing | None = None,
    image_size: tuple[int, int] | None = None,
    key: str | None = None,
) -> LoadedData:
    """Open a file or folder of samples; what is larger than memory stays on disk where the format allows.

    Parameters
    ----------
    path : str or path-like
        .npy, .npz, .csv, .tsv, .parquet, .txt, IDX, .h5ad, or a folder of images, text or Parquet files.
    columns : sequence of str or "auto", optional
        Of a table, which to take and in what order; all but the labels by default, and all should be numbers. "auto" uses
        each as what it holds: numbers, categories, text; ids and dates are not learnt from.
    label_column, id_column : str, optional
        Of a table.
    exclude : sequence of str
        Columns that are not used. This and what follows make columns be used as what they hold.
    missing : {"impute", "drop", "error"}, optional
        What happens to rows with gaps.
    image_size : (height, width), optional
        Resize images to this.
    key : str, optional
        Name of the array in a .npz file.

    Raises
    ------
    DataError
        If there is nothing, or nothing that can be read as samples.
    """
    is_auto = isinstance(columns, str) and columns == "auto"
    typed = is_auto or id_column is not None or bool(exclude) or missing is not None
    chosen = None if is_auto else columns
    return open_with(
        path,
        ReadOptions(chosen, label_column, image_size, key, exclude=exclude, id_column=id_column, missing=missing, typed=typed),
    )


def open_with(path: str | os.PathLike[str], options: ReadOptions) -> LoadedData:
    """Open a file or folder as ``open_path`` does, with its keywords as one value."""
    if not os.fspath(path):
        raise DataError(f"Expected a path, got nothing. {SUPPORTED}")
    place = Path(path).expanduser()
    try:
        if not place.exists():
            raise DataError(_missing(place))
        if not place.is_dir():
            check_file(place)
        loaded = _open_folder(place, options) if place.is_dir() else _open_file(place, options)
    except PermissionError as error:
        raise DataError(may_not_be_read(error.filename or place)) from error
    except OSError as error:
        raise DataError(f"{error.filename or place} cannot be read: {error.strerror}. Check the path.") from error
    return replace(loaded, name=readable(_title(place)))


def _title(path: Path) -> str:
    """Name of a file without what says its kind."""
    return re.sub(r"\.(npy|npz|csv|tsv|parquet|pq|txt|h5ad|idx)$", "", path.name.removesuffix(".gz")) or path.resolve().name


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to rows with named columns."""
    place = Path(path)
    if place.is_dir():
        return any(file.name.lower().endswith(PARQUET_SUFFIXES) for file in visible_files(place))
    return place.name.lower().endswith(CSV_SUFFIXES + PARQUET_SUFFIXES)


def _open_file(path: Path, options: ReadOptions) -> LoadedData:
    name = path.name.lower()
    if name.endswith(".h5ad"):
        return _open_h5ad(path, options)
    if options.choose_columns and not is_table(path):
        raise DataError(f"Columns can be chosen in tables, .csv or .parquet, and {path} is none. Leave the choice out.")
    if name.endswith(CSV_SUFFIXES + PARQUET_SUFFIXES):
        return _open_table(path, [path], options)
    if name.endswith(TEXT_SUFFIXES):
        return read_documents(lines_table(path), options.schema)
    if name.endswith(".npy"):
        return open_npy(path)
    if name.endswith(".npz"):
        return open_npz(path, options.key)
    if is_idx(path):
        return open_idx(path)
    if name.endswith(IMAGE_SUFFIXES):
        raise DataError(f"Expected a folder of images, got the single image {path}. Pass the folder it is in.")
    kind = "".join(path.suffixes[-2:]) if name.endswith(".gz") else path.suffix
    problem = f"Files that end with {kind!r} cannot be opened, got {path}." if kind else f"{path} has no known ending."
    raise DataError(f"{problem} {SUPPORTED}")


def _open_table(path: Path, parts: Sequence[Path], options: ReadOptions) -> LoadedData:
    is_csv = path.name.lower().endswith(CSV_SUFFIXES)
    typed = options.typed or options.schema is not None
    table = csv_table(path, options.label_column, as_text=typed) if is_csv else parquet_table(path, parts)
    if typed:
        return read_typed(table, options.of_columns, options.schema, keep_columns=options.keep_columns)
    loaded = read_table(table, options.columns, options.label_column)
    return replace(loaded, labels=whole_numbers(loaded.labels)) if is_csv and loaded.labels is not None else loaded


def _open_folder(folder: Path, options: ReadOptions) -> LoadedData:
    files = sorted(visible_files(folder))
    tables, images, texts = (
        [file for file in files if file.name.lower().endswith(suffixes)]
        for suffixes in (PARQUET_SUFFIXES, IMAGE_SUFFIXES, TEXT_SUFFIXES)
    )
    if tables and images:
        raise DataError(
            f"Expected a folder of images or of Parquet files, but {folder} has both. Put them in folders of their own."
        )
    if tables:
        return _open_table(folder, tables, options)
    if texts and not images:
        if options.choose_columns:
            raise DataError(f"Columns can be chosen in tables, but {folder} is a folder of text. Leave the choice out.")
        return open_text_folder(folder, texts, options.schema)
    if not images:
        shown = ", ".join(str(file.relative_to(folder)) for file in files[:3]) or "nothing"
        more = " and more" if len(files) > 3 else ""
        raise DataError(
            f"Expected a folder of images, of text or of Parquet files, but {folder} holds {shown}{more}. {SUPPORTED}"
        )
    if options.choose_columns:
        raise DataError(f"Columns can be chosen in tables, but {folder} is a folder of images. Leave the choice out.")
    return open_image_folder(folder, images, options.image_size, skip_broken=options.skip_broken)


def visible_files(folder: Path) -> list[Path]:
    """All files below a folder but hidden ones and what archives of macOS leave behind."""
    found: list[Path] = []
    visited = {os.path.realpath(folder)}
    for place, folders, names in os.walk(folder, followlinks=True):
        shown = [name for name in folders if not name.startswith((".", "_"))]
        folders[:] = [name for name in shown if os.path.realpath(os.path.join(place, name)) not in visited]  # links in a circle
        visited |= {os.path.realpath(os.path.join(place, name)) for name in folders}
        found += [Path(place, name) for name in names if not name.startswith((".", "_"))]
    return found


def _open_h5ad(path: Path, options: ReadOptions) -> LoadedData:
    if options.columns is not None or options.exclude:
        raise DataError(f"Columns can be chosen in tables, but {path} holds cells and genes. Leave the choice out.")
    try:
        import anndata
    except ImportError as error:
        raise DataError(f"{path} needs anndata to be read. Install it: pip install 'diva-clustering[anndata]'.") from error
    try:
        data = anndata.read_h5ad(path, backed="r")
    except PermissionError:
        raise
    except Exception as error:  # h5py raises all kinds
        raise DataError(f"Expected AnnData in {path}, but it is damaged or of another kind. Copy or write it anew.") from error
    source = source_from_object(data)
    assert source is not None
    if not len(source):
        raise DataError(f"Expected samples in {path}, got AnnData without cells.")
    obs = arrow_table(from_pandas(data.obs.reset_index(names=[data.obs.index.name or "cell"])), f"obs of {path}")
    ids = options.id_column or obs.schema.names[0]
    wanted = [ids, *([] if options.label_column is None else [options.label_column])]
    check_columns(obs, wanted)
    kept = columns_of(obs, obs.schema.names if options.keep_columns else wanted)
    labels = None if options.label_column is None else labels_of(kept.column(options.label_column).combine_chunks())
    return LoadedData(
        source,
        labels,
        feature_names=tuple(map(str, data.var_names)),
        beside=kept if options.keep_columns else kept.select([ids]),
    )


def _missing(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"There is no file {path}: the folder {folder} does not exist. Check the path."
    try:
        there = sorted(os.listdir(folder))
    except OSError:
        there = []
    return f"There is no file or folder {path}.{did_you_mean(path.name, there) or ' Check the path.'}"
