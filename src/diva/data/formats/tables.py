"""Tables of named columns: Parquet, CSV and Arrow, a batch of rows at a time."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from diva.data.formats.files import check_file, check_unpacked
from diva.data.formats.messages import did_you_mean, listed
from diva.data.formats.spool import BLOCK_BYTES, spooled
from diva.data.sources import LoadedData, Source
from diva.exceptions import DataError, NoSamplesError

HEAD_BYTES = 1 << 20  # of a CSV file, to see what its columns are
WIDEST_BYTES = 1 << 25  # of the first two lines, if those are longer
MOST_COLUMNS = 1_000_000
LABEL_LENGTH = 1000  # characters of a label
MISSING = ("", "NA", "N/A", "null", "NULL")
GAPS = [
    "",
    "NA",
    "na",
    "N/A",
    "n/a",
    "NaN",
    "nan",
    "NAN",
    "NULL",
    "null",
    "Null",
    "None",
    "none",
    "#N/A",
    "<NA>",
    "?",
    "-",
    "--",
    ".",
]
READ_BUFFER = 1 << 16
SMALL = ("bool", "int8", "uint8", "int16", "uint16", "float16", "float32")  # what float32 holds without rounding
INDEX_NAME = re.compile(r"(__index_level_\d+__)?")  # of a column with the numbers or names that pandas or R give to rows


@dataclass(frozen=True)
class Table:
    """A table that can be read once, batch by batch."""

    name: str  # as people know it, for messages
    schema: Any
    batches: Callable[[list[str]], Iterator[Any]]  # ``batches(names)`` iterates over record batches with these columns
    where: Callable[[int], str] = "row {}".format  # ``where(row)`` says where a row is, as "row 3" or "line 5"


def read_table(table: Table, columns: Sequence[str] | None = None, label_column: str | None = None) -> LoadedData:
    """Numeric columns of a table as rows, in bounded memory; by default all columns but that of the labels."""
    names = choose_columns(table, columns, label_column)
    kinds = dict(zip(table.schema.names, table.schema.types, strict=True))
    types = [kinds[name] for name in names]
    _check_numeric(table, names, types)
    dtype = common_dtype([_numpy_dtype(kind) for kind in types])
    wanted = names if label_column is None or label_column in names else [*names, label_column]
    batches = (batch for batch in table.batches(wanted) if batch.num_rows)
    head = next(batches, None)
    if head is None:
        raise table_without_rows(table.name)
    first = _by_name(head)
    widths = [_width(first[name]) for name in names]
    if sum(widths) == 0:
        raise DataError(f"Expected numbers in {table.name}, got lists without any.")
    labels: list[NDArray[Any]] = []

    def blocks() -> Iterator[NDArray[Any]]:
        n_rows = 0
        for batch in chain([head], batches):
            there = _by_name(batch)
            block = _block(table, names, [there[name] for name in names], widths, dtype, n_rows)
            if label_column is not None:
                labels.append(_labels(table, there[label_column], label_column, n_rows))
            n_rows += batch.num_rows
            yield block

    source = spooled(blocks(), (sum(widths),), dtype, table.name)
    pa.default_memory_pool().release_unused()  # it would keep what it needed for reading
    feature_names = tuple(
        name if width == 1 else f"{name}[{i}]" for name, width in zip(names, widths, strict=True) for i in range(width)
    )
    found = np.concatenate(labels) if labels else None
    return LoadedData(source, found, feature_names=feature_names, columns=tuple(names))


def _by_name(batch: Any) -> dict[str, Any]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def choose_columns(table: Table, columns: Sequence[str] | None, label_column: str | None) -> list[str]:
    """Names of the columns to learn from."""
    if isinstance(columns, str):
        columns = [columns]
    check_columns(table, [*(columns or ()), *([] if label_column is None else [label_column])])
    if columns is None:
        columns = [name for name in table.schema.names if name != label_column and not INDEX_NAME.fullmatch(name)]
    if not columns:
        raise DataError(f"Expected columns of numbers in {table.name}, got none. Choose some with --columns.")
    if len(set(columns)) < len(columns):
        raise DataError(f"Expected every column once, got {listed(columns)}. Leave out what comes again.")
    return list(columns)


def check_columns(table: Table, wanted: Sequence[str]) -> None:
    """Raise DataError if two columns of a table have one name, or one that is wanted is not there."""
    there = list(dict.fromkeys(table.schema.names))
    if len(there) < len(table.schema.names):
        twice = Counter(table.schema.names).most_common(1)[0][0]
        raise DataError(f"Expected columns with different names in {table.name}, got {twice!r} more than once. Rename one.")
    for name in wanted:
        if name not in there:
            raise DataError(
                f"Expected a column {name!r} in {table.name}, which has {listed(there)}.{did_you_mean(name, there)}"
            )


def common_dtype(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """The smallest of uint8, float32 and float64 that holds columns of these kinds."""
    names = {dtype.name for dtype in dtypes}
    if names <= {"bool", "uint8"}:
        return np.dtype(np.uint8)
    return np.dtype(np.float32) if names <= set(SMALL) else np.dtype(np.float64)


# --- Parquet


def parquet_table(path: Path, parts: Sequence[Path]) -> Table:
    """One Parquet file, or a folder of parts; raises DataError if one cannot be read or has other columns than the first."""
    schema = None
    for part in parts:
        with _parquet_file(part) as file:
            if schema is None:
                schema = file.schema_arrow
            elif not schema.equals(file.schema_arrow):
                raise DataError(f"Expected parts with the same columns, but {part} has others than {parts[0]}.")
    assert schema is not None

    kinds = dict(zip(schema.names, schema.types, strict=True))

    def batches(names: list[str]) -> Iterator[Any]:
        of_text = [name for name in names if pa.types.is_string(kinds[name]) or pa.types.is_large_string(kinds[name])]
        for part in parts:
            with _parquet_file(part, of_text) as file:
                numbers = _count_numbers(file.metadata, {name: kinds[name] for name in names})
                unpacked = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
                check_unpacked(part, max(unpacked, numbers * _item_bytes([kinds[name] for name in names])))
                rows = max(1, BLOCK_BYTES * file.metadata.num_rows // (8 * max(1, numbers)))
                try:
                    yield from file.iter_batches(batch_size=rows, columns=names, use_threads=False)
                except (pa.ArrowException, OSError) as error:
                    raise DataError(f"{part} is damaged: a part of it cannot be read. Copy or write it anew.") from error

    return Table(str(path), schema, batches)


def _parquet_file(path: Path, of_text: Sequence[str] = ()) -> Any:
    """A file; columns of text come as the words they are made of and their numbers."""
    check_file(path)
    try:
        return pyarrow.parquet.ParquetFile(path, buffer_size=READ_BUFFER, pre_buffer=False, read_dictionary=list(of_text))
    except PermissionError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # of the names of columns
        raise DataError(f"Expected a Parquet file, but {path} is damaged or of another kind. Copy or write it anew.") from error


def _count_numbers(metadata: Any, kinds: dict[str, Any]) -> int:
    """Numbers in some columns of a file, as it says itself; a column of lists may hold any number a row."""
    lists = {name for name, kind in kinds.items() if is_list(kind)}
    total = int(metadata.num_rows) * (len(kinds) - len(lists))
    if not lists:
        return total
    paths = [metadata.schema.column(j).path.split(".")[0] for j in range(metadata.num_columns)]
    chosen = [j for j, path in enumerate(paths) if path in lists]
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    return total + sum(int(group.column(j).num_values) for group in groups for j in chosen)


def _item_bytes(kinds: Sequence[Any]) -> int:
    """Of a number of these columns in memory."""
    return common_dtype([_numpy_dtype(kind) for kind in kinds if is_numeric(kind)]).itemsize


# --- CSV


def csv_table(path: Path, label_column: str | None = None, *, as_text: bool = False) -> Table:
    """A CSV or TSV file, compressed or not, with names of the columns in the first line or without; DataError if it is none.

    As text, cells are given as they are written, so that all of a column decides what it is; otherwise its beginning does.
    """
    check_file(path)
    head = _head_of(path)
    delimiter = "\t" if ".tsv" in path.name.lower() else _delimiter(head)
    lines = csv.reader(_lines(path, head, delimiter), delimiter=delimiter)
    try:
        first = next(filter(None, lines), [])  # lines may be empty
        n_lines = lines.line_num  # a name may go over several
        second = next(filter(None, lines), [])
    except csv.Error as error:
        raise DataError(_endless(path)) from error
    n_skipped = n_lines if _is_header(first, second) else 0
    names = [name.strip() for name in first] if n_skipped else [f"column_{i + 1}" for i in range(len(first))]
    if any("\ufffd" in name for name in names):
        raise DataError(f"The names of the columns in {path} are not UTF-8. Save the file as UTF-8.")
    block_size = HEAD_BYTES if len(head) <= HEAD_BYTES else 2 * len(head)
    read_options = pyarrow.csv.ReadOptions(use_threads=False, block_size=block_size, column_names=names, skip_rows=n_skipped)
    parse_options = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=as_text)

    def where(row: int) -> str:
        return f"line {row + 1 + n_skipped}"

    def open_csv(types: dict[str, Any], wanted: list[str] | None = None) -> Any:
        convert_options = pyarrow.csv.ConvertOptions(
            column_types=types,
            strings_can_be_null=True,
            include_columns=wanted or names,
            **({"null_values": GAPS} if as_text else {}),
        )
        return pyarrow.csv.open_csv(_unpacked(path), read_options, parse_options, convert_options)

    if len(set(names)) < len(names):
        return Table(str(path), pa.schema([(name, pa.float64()) for name in names]), lambda _: iter(()), where)
    if as_text:
        types: dict[str, Any] = dict.fromkeys(names, pa.string())
        fields = [pa.field(*column) for column in types.items()]
    else:
        with _told(path, names):
            seen = open_csv({}).read_next_batch()
        types = {field.name: _csv_type(field.type, field.name == label_column) for field in seen.schema}
        columns = zip(types.items(), seen.columns, strict=True)
        fields = [_csv_field(name, kind, cells, name == label_column, where) for (name, kind), cells in columns]

    def batches(wanted: list[str]) -> Iterator[Any]:
        with _told(path, names):
            yield from open_csv(types, wanted)

    return Table(str(path), pa.schema(fields), batches, where)


def _csv_field(name: str, kind: Any, cells: Any, is_label: bool, where: Callable[[int], str]) -> Any:
    """A column; text among numbers makes text of all of it, so that is noted."""
    if not pa.types.is_string(kind) or is_label:
        return pa.field(name, kind)
    values = cells.cast(pa.string()).to_pylist()
    bad = [row for row, value in enumerate(values) if value is not None and not _is_number(value)]
    is_mixed = bad and len(bad) < len(values)
    return pa.field(name, kind, metadata={"found": f"{values[bad[0]]!r} in {where(bad[0])}"} if is_mixed else None)


def _unpacked(path: Path) -> Any:
    """What a reader of CSV takes: the path, or of a packed file its content, as much as fits its size."""
    return _Unpacked(path) if path.suffix.lower() == ".gz" else path


class _Unpacked(io.RawIOBase):
    """The content of a packed file, which ends with DataError when it is too much."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = pa.input_stream(str(path), compression="gzip")
        self._n_bytes = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._file.read(size)
        self._n_bytes += len(content)
        check_unpacked(self._path, self._n_bytes)
        return content


def _csv_type(kind: Any, is_label: bool) -> Any:
    """Whole numbers in the first lines may be followed by others."""
    if is_label:
        return pa.string()
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        return pa.float64()
    return kind


def _head_of(path: Path) -> str:
    """The beginning of a file, at least two lines."""
    try:
        with pa.input_stream(str(path)) as file:
            head = file.read(HEAD_BYTES)
            while head.count(b"\n") < 2 and len(head) < WIDEST_BYTES and (more := file.read(len(head))):
                head += more
    except PermissionError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged and cannot be unpacked. Copy or download it anew.") from error
    text: str = head.decode("utf-8-sig", errors="replace")
    if not text.strip():
        raise DataError(f"Expected a table, but {path} is empty.")
    if "\0" in text:
        raise DataError(f"Expected a table as text, but {path} is of another kind.")
    return text


def _lines(path: Path, head: str, delimiter: str) -> Iterator[str]:
    """Lines of two rows, as long as they have a number of cells that can be columns."""
    n_cells = 0
    for line in io.StringIO(head, newline=""):
        n_cells += line.count(delimiter) + 1
        if n_cells > 2 * MOST_COLUMNS:
            raise DataError(f"Expected at most {MOST_COLUMNS:,} columns in {path}, got more. Check its line ends and quotes.")
        yield line


def _delimiter(head: str) -> str:
    line = head.lstrip().splitlines()[0]
    return max(",;\t|", key=lambda sign: (line.count(sign), sign == ","))


def _is_header(first: list[str], second: list[str]) -> bool:
    """Whether the first line has names rather than a sample."""
    numbers = [_is_number(cell) for cell in first]
    if all(numbers):
        return len(first) > 2 and first == [str(i) for i in range(len(first))]  # names that pandas gives
    if not any(numbers):
        return True
    pairs = enumerate(zip(first, second, strict=False))
    return any(not _is_number(name) and _is_number(cell) for i, (name, cell) in pairs if i == 0 or name not in MISSING)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


@contextmanager
def _told(path: Path, names: list[str]) -> Iterator[None]:
    """Turn what a reader of CSV complains about into words for people."""
    try:
        yield
    except StopIteration as error:
        raise table_without_rows(path) from error
    except (pa.ArrowException, OSError) as error:
        raise (table_without_rows(path) if "Empty" in str(error) else DataError(_in_words(str(error), path, names))) from error


def _in_words(said: str, path: Path, names: list[str]) -> str:
    line = re.search(r"Row #(\d+)", said)
    place = f"line {line.group(1)} of {path}" if line else str(path)
    if found := re.search(r"Expected (\d+) columns, got (\d+)", said):
        return f"Expected {found.group(1)} values in every line, as in the first, got {found.group(2)} in {place}."
    if found := re.search(r"CSV column #(\d+).*CSV conversion error to (\w+): invalid value '(.*)'", said, re.DOTALL):
        number, kind, value = int(found.group(1)), found.group(2), found.group(3)
        name = names[number] if number < len(names) else f"number {number + 1}"
        expected = "true or false" if kind == "bool" else "numbers"
        return (
            f"Expected {expected} in column {name!r}, got {value!r} in {place}. Correct it, or choose other columns "
            "with --columns, or --label-column if these are labels."
        )
    if "UTF8" in said or "UTF-8" in said:
        return f"Expected text in UTF-8, got another encoding in {path}. Save it as UTF-8."
    if "straddling object" in said:
        return _endless(path)
    return f"{path} is damaged or not a table: it cannot be read to its end. Copy or write it anew."


def table_without_rows(name: str | Path) -> NoSamplesError:
    """What to raise if there is nothing below the names of the columns."""
    return NoSamplesError(f"Expected samples in {name}, got a table without rows.")


def _endless(path: Path) -> str:
    return f"{path} has lines or cells too long for a table. Check its line ends and quotes."


# --- columns


def is_list(kind: Any) -> bool:
    """Whether cells of an Arrow type are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_numeric(kind: Any) -> bool:
    """Whether cells of an Arrow type are numbers, truth values or lists of such."""
    inner = kind.value_type if is_list(kind) else kind
    return bool(
        pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_boolean(inner) or pa.types.is_decimal(inner)
    )


def _check_numeric(table: Table, names: list[str], types: list[Any]) -> None:
    wrong = [name for name, kind in zip(names, types, strict=True) if not is_numeric(kind)]
    if not wrong:
        return
    notes = (table.schema.field(name).metadata or {} for name in wrong)
    found = next((f", for example {note[b'found'].decode()}" for note in notes if b"found" in note), "")
    what = "column" if len(wrong) == 1 else "columns"
    raise DataError(
        f"Expected numbers in {table.name}, got text or dates in {what} {listed(wrong)}{found}. Choose columns of numbers "
        "with --columns, or name the one with labels with --label-column."
    )


def _numpy_dtype(kind: Any) -> np.dtype[Any]:
    inner = kind.value_type if is_list(kind) else kind
    return np.dtype(np.float64) if pa.types.is_decimal(inner) else np.dtype(inner.to_pandas_dtype())


def _width(column: Any) -> int:
    if not is_list(column.type):
        return 1
    if pa.types.is_fixed_size_list(column.type):
        return int(column.type.list_size)
    return int(pc.list_value_length(column)[0].as_py() or 0)


def _block(
    table: Table, names: list[str], columns: list[Any], widths: list[int], dtype: np.dtype[Any], first: int
) -> NDArray[Any]:
    """Columns of a batch side by side, (rows, features)."""
    out = np.empty((sum(widths), len(columns[0])), dtype=dtype)  # columns are written whole, then turned
    start = 0
    for name, column, width in zip(names, columns, widths, strict=True):
        values = _numbers(table, name, column, width, first)
        with np.errstate(over="ignore"):
            out[start : start + width] = values.T
        start += width
    if dtype.kind == "f" and not np.isfinite(out.sum(dtype=np.float64)) and not (good := np.isfinite(out)).all():
        row = int(np.argmin(good.all(0)))
        feature = int(np.argmin(good[:, row]))
        name = names[int(np.searchsorted(np.cumsum(widths), feature, side="right"))]
        what = "no number" if np.isnan(out[feature, row]) else "an infinite number"
        raise DataError(_missing(table, name, what, first + row))
    return np.ascontiguousarray(out.T)


def _numbers(table: Table, name: str, column: Any, width: int, first: int) -> NDArray[Any]:
    """One column as numbers, (rows, width)."""
    n = len(column)
    if column.null_count:
        raise DataError(_missing(table, name, "no value", first + _first_null(column)))
    if is_list(column.type):
        lengths = np.full(n, width) if pa.types.is_fixed_size_list(column.type) else pc.list_value_length(column).to_numpy()
        if (lengths != width).any():
            row = int(np.argmax(lengths != width))
            raise DataError(
                f"Expected lists of one length in column {name!r} of {table.name}, got {width} numbers in {table.where(0)} and "
                f"{lengths[row]} in {table.where(first + row)}."
            )
        column = column.flatten()
        if column.null_count:
            raise DataError(_missing(table, name, "no value", first + _first_null(column) // width))
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.reshape(n, width)


def _missing(table: Table, name: str, what: str, row: int) -> str:
    return (
        f"Expected a number in every row of column {name!r} of {table.name}, got {what} in {table.where(row)}. Drop or fill "
        "such rows first, or choose other columns with --columns."
    )


def _first_null(column: Any) -> int:
    return int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))


def _labels(table: Table, column: Any, name: str, first: int) -> NDArray[Any]:
    if column.null_count:
        where = table.where(first + _first_null(column))
        raise DataError(f"Expected a label in every row of column {name!r} of {table.name}, got none in {where}.")
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return values
    words, numbers = column, None
    if pa.types.is_dictionary(column.type):
        words, numbers = column.dictionary, column.indices.to_numpy(zero_copy_only=False)
    labels = [str(word) for word in words.to_pylist()]
    longest = max(map(len, labels), default=0)
    if longest > LABEL_LENGTH:
        raise DataError(
            f"Expected labels of at most {LABEL_LENGTH:,} characters in column {name!r} of {table.name}, got one of "
            f"{longest:,}. Choose another column with --label-column."
        )
    return np.array(labels) if numbers is None else np.array(labels)[numbers]


def arrow_source(data: Any) -> Source:
    """Rows of a pyarrow Table."""
    table = Table("the table", data.schema, lambda names: iter(data.select(names).to_batches(max_chunksize=1 << 14)))
    return read_table(table).source
