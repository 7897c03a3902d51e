"""Tables of all kinds through a schema: files, frames of other libraries, lists of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diva.data.columns import ColumnOptions, TableSchema
from diva.data.encoders import is_text, numbers_of
from diva.data.formats.labels import whole_numbers
from diva.data.formats.objects import is_documents, is_from
from diva.data.formats.tables import Table
from diva.data.sources import LoadedData
from diva.distributed import from_main, gather
from diva.exceptions import DataError

TEXT_COLUMN = "text"  # of documents that come without a table
ROWS_AT_ONCE = 1 << 14
LONGEST_EXCERPT = 160  # letters of a text that are kept to show it by


def read_typed(
    table: Table, options: ColumnOptions | None = None, schema: TableSchema | None = None, *, keep_columns: bool = False
) -> LoadedData:
    """Rows of a table as numbers, whatever its columns hold.

    Parameters
    ----------
    table : Table
    options : ColumnOptions, optional
        What to use columns as; their cells decide where it does not say.
    schema : TableSchema, optional
        That of a model, whose answers are wanted: then every row stays, and gaps are filled. By default a new one is measured.
    keep_columns : bool, default=False
        Whether to keep all columns beside the numbers, not the ids alone.
    """
    options = options or ColumnOptions()
    is_new, there = schema is None, table.schema.names
    if schema is None:
        schema = from_main(TableSchema.fit(_of_all(table), options)) if options.is_shard else TableSchema.fit(table, options)
    label, ids = (
        asked or (known if known in there else None)
        for asked, known in ((options.label_column, schema.named("label")), (options.id_column, schema.named("id")))
    )
    encoded = schema.apply(table, drop=is_new, label_column=label)
    beside = list(there) if keep_columns else [] if ids is None else [ids]
    facts = schema.facts() | {"rows_filled": encoded.n_filled, "rows_dropped": encoded.n_rows - len(encoded.kept)}
    return LoadedData(
        encoded.source,
        None if encoded.labels is None else whole_numbers(encoded.labels),
        feature_names=schema.feature_names,
        columns=tuple(column.name for column in schema.used),
        beside=columns_of(table, beside).take(pa.array(encoded.kept)) if beside else None,
        texts=excerpts_of(table, schema, encoded.kept),
        facts=facts,
    )


def excerpts_of(table: Table, schema: TableSchema, kept: Any = None) -> Any:
    """How the text of each row begins, as an Arrow array, of those kept (m,) or of all; None if no column is used as text."""
    name = next((column.name for column in schema.used if column.use == "text"), None)
    if name is None:
        return None
    cells = (pc.fill_null(batch.column(0).cast(pa.string()), "") for batch in table.batches([name]))
    begun = pa.chunked_array([pc.utf8_slice_codeunits(texts, 0, LONGEST_EXCERPT) for texts in cells], pa.string())
    return begun if kept is None else begun.take(pa.array(kept))


def _of_all(table: Table) -> Table:
    """The rows of all processes, where each has some: a batch of each at a time."""

    def batches(names: list[str]) -> Iterator[Any]:
        own = iter(table.batches(names))
        while everyone := [batch for batch in gather(next(own, None), "reading a table") if batch is not None]:
            yield from everyone

    return replace(table, batches=batches)


def columns_of(table: Table, names: Sequence[str]) -> Any:
    """Columns as they came; text that is all numbers, as in CSV files, as numbers."""
    batches = list(table.batches(list(names)))
    whole = pa.Table.from_batches(batches).combine_chunks()
    columns = {}
    for name in names:
        column = whole.column(name).combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        columns[name] = _as_numbers(column) if is_text(column.type) else column
    return pa.table(columns)


def _as_numbers(column: Any) -> Any:
    values = numbers_of(column)
    if (np.isnan(values) & column.is_valid().to_numpy(zero_copy_only=False)).any() or not len(values):
        return column
    numbers = pa.array(values, from_pandas=True)
    is_whole = bool((np.isnan(values) | ((values == np.round(values)) & (np.abs(values) < 2**53))).all())
    has_zeros_before = any(text and len(text) > 1 and text[0] == "0" and text[1].isdigit() for text in column.to_pylist())
    if has_zeros_before:  # a code such as 0042
        return column
    return numbers.cast(pa.int64()) if is_whole else numbers


# --- what is a table


def as_table(data: Any) -> Table | None:
    """A table if ``data`` is a frame, an Arrow table, a series or a list of text; None otherwise."""
    if is_from(data, "pyarrow") and hasattr(data, "to_batches") and hasattr(data, "schema"):
        return arrow_table(data)
    if is_from(data, "polars") and hasattr(data, "to_arrow"):
        made = data.to_arrow()
        return arrow_table(made if hasattr(made, "schema") else pa.table({data.name or TEXT_COLUMN: made}))
    if is_from(data, "pandas") and hasattr(data, "columns"):
        return arrow_table(from_pandas(data))
    if is_from(data, "pandas") and hasattr(data, "to_frame"):
        return as_table(data.to_frame(data.name if isinstance(data.name, str) else TEXT_COLUMN))
    if isinstance(data, np.ndarray) and data.ndim == 1 and data.dtype.kind in "OUT":
        data = data.tolist()
    if is_documents(data):
        return arrow_table(pa.table({TEXT_COLUMN: pa.array(list(data), pa.string())}), "the texts")
    return None


def arrow_table(data: Any, name: str = "the table") -> Table:
    """An Arrow table, to be read in batches."""
    return Table(name, data.schema, lambda names: iter(data.select(names).to_batches(max_chunksize=ROWS_AT_ONCE)))


def record_table(record: Mapping[str, Any], name: str) -> Table:
    """A single row, with a field for each column."""
    cells = {
        key: value if isinstance(value, list | bool | int | float | str | None) else str(value) for key, value in record.items()
    }
    return arrow_table(pa.table({key: pa.array([cell], from_pandas=True) for key, cell in cells.items()}), name)


def from_pandas(frame: Any) -> Any:
    """An Arrow table of a pandas frame; cells of several kinds in one column become text."""
    columns: dict[str, Any] = {}
    for i, name in enumerate(frame.columns):
        if str(name) in columns:
            raise DataError(f"Expected columns with different names, got {str(name)!r} more than once. Rename one.")
        cells = frame.iloc[:, i]
        try:
            columns[str(name)] = pa.array(cells, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError):  # cells of several kinds
            columns[str(name)] = pa.array([None if gap else str(cell) for cell, gap in zip(cells, cells.isna(), strict=True)])
    return pa.table({name: _one_chunk(column) for name, column in columns.items()})


def _one_chunk(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
