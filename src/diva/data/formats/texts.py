"""Text: a file with a document a line, or a folder with a document a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from diva.data.columns import ColumnOptions, TableSchema
from diva.data.formats.files import check_file
from diva.data.formats.messages import readable
from diva.data.formats.tables import Table
from diva.data.sources import LoadedData
from diva.data.typed import TEXT_COLUMN, read_typed
from diva.exceptions import DataError

LINES_AT_ONCE = 1 << 12
LONGEST_DOCUMENT = 1 << 24  # bytes
SCHEMA = pa.schema([(TEXT_COLUMN, pa.string())])


def lines_table(path: Path) -> Table:
    """A file with a document in each line; empty lines are not counted. Raises DataError if it is no text."""
    check_file(path)

    def batches(_: list[str]) -> Iterator[Any]:
        gathered: list[str] = []
        try:
            with path.open(encoding="utf-8-sig") as file:
                while line := file.readline(LONGEST_DOCUMENT):
                    if "\0" in line:
                        raise DataError(f"Expected text in {path}, a document a line, but it is of another kind.")
                    if line.strip():
                        gathered.append(line.strip())
                    if len(gathered) == LINES_AT_ONCE:
                        yield _batch(gathered)
                        gathered = []
        except UnicodeDecodeError as error:
            raise DataError(f"Expected text in UTF-8, got another encoding in {path}. Save it as UTF-8.") from error
        if gathered:
            yield _batch(gathered)

    return Table(str(path), SCHEMA, batches, "document {}".format)


def read_documents(table: Table, schema: TableSchema | None = None) -> LoadedData:
    """Documents as numbers, by a new vocabulary or by that of a model."""
    return read_typed(table, ColumnOptions(text=(TEXT_COLUMN,)), schema)


def open_text_folder(folder: Path, files: Sequence[Path], schema: TableSchema | None = None) -> LoadedData:
    """Documents in a folder, each a file; names of sub-folders are labels if every file is in one."""

    def batches(_: list[str]) -> Iterator[Any]:
        for first in range(0, len(files), LINES_AT_ONCE):
            yield _batch([_read(file) for file in files[first : first + LINES_AT_ONCE]])

    loaded = read_documents(Table(str(folder), SCHEMA, batches, lambda row: str(files[row])), schema)
    places = [file.relative_to(folder) for file in files]
    labels = np.array([readable(place.parts[0]) for place in places]) if all(len(place.parts) > 1 for place in places) else None
    return replace(loaded, labels=labels, sample_names=tuple(readable(str(place)) for place in places))


def _read(file: Path) -> str:
    check_file(file)
    with file.open("rb") as content:
        raw = content.read(LONGEST_DOCUMENT)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"Expected text in UTF-8, got another encoding in {file}. Save it as UTF-8.") from error


def _batch(texts: list[str]) -> Any:
    return pa.record_batch([pa.array(texts, pa.string())], schema=SCHEMA)
