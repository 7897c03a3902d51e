"""Tables written piece by piece: a file is there when all of it is."""

from __future__ import annotations

import io
import os
import sys
import uuid
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyarrow import csv, parquet


class TableWriter:
    """Rows in, a .parquet or .csv file out, or CSV on standard output; no file is left if something fails on the way."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.parent / f".diva-{uuid.uuid4().hex}.tmp"
        self._writer: Any = None
        self._has_header = False  # on standard output

    def __enter__(self) -> Self:
        if not self._path.parent.is_dir():
            raise FileNotFoundError(2, f"Could not write {str(self._path)!r}: its folder does not exist. Create it first.")
        return self

    def write(self, rows: dict[str, Any]) -> None:
        """Add rows, given as columns."""
        table = pa.table(rows)
        if str(self._path) == "-":
            self._write_out(table)
            return
        if self._writer is None:
            kind = parquet.ParquetWriter if self._path.suffix == ".parquet" else csv.CSVWriter
            try:
                self._writer = kind(str(self._temporary), table.schema)
            except OSError as error:
                problem = f"Could not write {str(self._path)!r}: {os.strerror(error.errno or 5)}. Choose another folder."
                raise OSError(error.errno, problem) from error
        self._writer.write_table(table)

    def _write_out(self, table: Any) -> None:
        content = io.BytesIO()
        csv.write_csv(table, content, csv.WriteOptions(include_header=not self._has_header))
        self._has_header = True
        sys.stdout.write(content.getvalue().decode())
        sys.stdout.flush()

    def __exit__(self, failed: Any, *_: object) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
                if failed is None:
                    self._temporary.replace(self._path)
        finally:
            self._temporary.unlink(missing_ok=True)
