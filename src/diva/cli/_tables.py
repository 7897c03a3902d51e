"""Tables written piece by piece: a file is there when all of it is."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

import pyarrow as pa
from pyarrow import csv, parquet

from diva.atomic import naming, sync, sync_folder, temporary_for


class TableWriter:
    """Rows in, a .parquet or .csv file out, or CSV on standard output; no file is left if something fails on the way."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = temporary_for(path, path)
        self._file: IO[bytes] | None = None
        self._writer: Any = None
        self._has_header = False  # on standard output

    def __enter__(self) -> Self:
        return self

    def write(self, rows: dict[str, Any]) -> None:
        """Add rows, given as columns."""
        table = pa.table(rows)
        if str(self._path) == "-":
            self._write_out(table)
            return
        with naming(self._path):
            if self._file is None:
                kind = parquet.ParquetWriter if self._path.suffix == ".parquet" else csv.CSVWriter
                self._file = open(self._temporary, "xb")  # noqa: SIM115  # open as long as there are rows
                self._writer = kind(self._file, table.schema)
            self._writer.write_table(table)

    def _write_out(self, table: Any) -> None:
        content = io.BytesIO()
        csv.write_csv(table, content, csv.WriteOptions(include_header=not self._has_header))
        self._has_header = True
        sys.stdout.write(content.getvalue().decode())
        sys.stdout.flush()

    def __exit__(self, failed: Any, *_: object) -> None:
        if self._file is None:
            return
        try:
            if failed is None:
                with naming(self._path):
                    self._writer.close()
                    sync(self._file)
                    os.replace(self._temporary, self._path)
        finally:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self._temporary.unlink()
        with suppress(OSError):
            sync_folder(self._path.parent)
