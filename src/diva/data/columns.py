"""Tables as people have them: what each column is used as, and the numbers that rows become.

A `TableSchema` is measured once, on the table of the first fit, and saved with the model; later tables go through the same one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from diva.data.encoders import (
    NUMBER,
    CategoryEncoder,
    Encoder,
    NumberEncoder,
    TextEncoder,
    VectorEncoder,
    categories_of,
    encoder_from_dict,
    encoder_to_dict,
    is_text,
    numbers_of,
    texts_of,
    vectors_of,
)
from diva.data.formats.messages import did_you_mean, listed
from diva.data.formats.spool import spooled
from diva.data.formats.tables import INDEX_NAME, LABEL_LENGTH, Table, check_columns, is_list, is_numeric, table_without_rows
from diva.data.sources import Source, name_of
from diva.exceptions import DataError

Use = Literal["number", "category", "text", "vector", "id", "label", "date", "left out"]
Missing = Literal["impute", "drop", "error"]

MOST_CATEGORIES = 50  # different values; more are names, which say little about a cluster
FEWEST_WORDS = 3  # of a cell, in the mean, that is text rather than a name
NEARLY_ALL = 0.95  # of the cells: a few others, such as "unknown" among numbers, are gaps
MOST_TRACKED = 100_000  # different texts of a column that are counted
TEXT_AXES = 50  # principal axes that words are reduced to
DATE = (
    r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4})"
    r"([ T]\d{1,2}:\d{2}.*)?$"
    r"|^\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?$"
)
ID_NAME = re.compile(
    r"(?i:(^|.*[\W_])(id|ids|uuid|guid|index|idx|rownames)|row_?(id|names?|numbers?|nr))|.*[a-z](Id|ID)|Unnamed: \d+"
)
RANGES = ((0.0, 1.0), (-1.0, 1.0))  # where all columns are in one of them, they are in one unit
FEWEST_PIXELS = 16  # columns of whole numbers from 0 to 255, at least so many, are an image
NO_LABEL = "(none)"  # class of a row without one


@dataclass(frozen=True)
class ColumnOptions:
    """What is asked of the columns of a table."""

    columns: Sequence[str] | None = None  # those to use; all by default
    exclude: Sequence[str] = ()
    id_column: str | None = None
    label_column: str | None = None
    missing: Missing = "impute"
    text: Sequence[str] = ()  # columns that are text, however short
    is_shard: bool = False  # whether other processes have other rows of the table


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    use: Use
    n_missing: int = 0
    note: str = ""  # why it is left out, or what is unusual
    encoder: Encoder | None = None  # where numbers are made of it

    @property
    def n_features(self) -> int:
        """Numbers for each cell."""
        return 0 if self.encoder is None else self.encoder.n_features

    @property
    def shown_use(self) -> str:
        """What it is used as, for people."""
        if self.use == "category":
            return "category (one-hot)" if self.n_features > 1 else "category (two values)"
        return {"text": "text (tf-idf)", "date": "date, left out", "id": "id, not learnt", "label": "label, not learnt"}.get(
            self.use, self.use
        )


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """Rows of a table as numbers, and what belongs to them."""

    source: TableSource
    labels: NDArray[Any] | None
    kept: NDArray[np.int64]  # numbers of the rows that are there; others were dropped
    n_rows: int  # of the table
    n_filled: int  # rows with at least one gap that was filled


@dataclass(frozen=True)
class TableSchema:
    """What the columns of a table are used as; fixed at the first fit and saved with the model."""

    columns: tuple[Column, ...]
    missing: Missing = "impute"
    in_one_unit: bool = False  # whether columns keep their sizes relative to each other

    # --- measuring

    @classmethod
    def fit(cls, table: Table, options: ColumnOptions | None = None) -> Self:
        """Look at a table in one pass, and once more at its text; raises DataError if nothing can be learnt from it."""
        options = options or ColumnOptions()
        names = _asked_columns(table, options)
        profiles = {name: Profile(name, kind) for name, kind in zip(table.schema.names, table.schema.types, strict=True)}
        n_rows = 0
        for batch in table.batches(list(profiles)):
            for name, cells in zip(batch.schema.names, batch.columns, strict=True):
                profiles[name].see(cells, table.name)
            n_rows += batch.num_rows
        if not n_rows:
            raise table_without_rows(table.name)
        columns = [_decide(profiles[name], options, name in names) for name in profiles]
        columns = [_with_vocabulary(column, table) if column.use == "text" else column for column in columns]
        for column in columns:
            if options.columns is not None and column.name in names and column.encoder is None:
                raise DataError(
                    f"Expected numbers, categories or text in column {column.name!r} of {table.name}, got "
                    f"{column.note or column.use}. Leave it out of --columns."
                )
        if not any(column.encoder for column in columns):
            reasons = ", ".join(f"{column.name!r} ({column.note or column.shown_use})" for column in columns[:8])
            raise DataError(f"Expected columns to learn from in {table.name}, got {reasons}. Name some with --columns.")
        return cls(tuple(columns), options.missing, _are_in_one_unit(columns, profiles))

    # --- what it knows

    @cached_property
    def used(self) -> tuple[Column, ...]:
        """Columns that are learnt from."""
        return tuple(column for column in self.columns if column.encoder is not None)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """One for each number of a row; a word that is a column's name as well gets its column before it."""
        pairs = [(c.name, name) for c in self.used for name in (c.encoder.feature_names(c.name) if c.encoder else ())]
        twice = {name for name, n in Counter(name for _, name in pairs).items() if n > 1}
        return tuple(f"{column}: {name}" if name in twice else name for column, name in pairs)

    @property
    def n_features(self) -> int:
        """Numbers of a row."""
        return sum(column.n_features for column in self.used)

    @property
    def units(self) -> NDArray[np.float64] | None:
        """What each number is divided by so that columns count alike; None if they are in one unit already."""
        if self.in_one_unit or len(self.used) == 1:
            return None
        return np.concatenate([np.full(column.n_features, column.encoder.unit) for column in self.used if column.encoder])

    @property
    def n_axes(self) -> int | None:
        """Principal axes that suit the columns; None without text."""
        return TEXT_AXES if any(column.use == "text" for column in self.used) else None

    def named(self, use: Use) -> str | None:
        """Name of the first column of a use, such as the id."""
        return next((column.name for column in self.columns if column.use == use), None)

    def described(self) -> list[dict[str, Any]]:
        """A row for each column, for people."""
        return [
            {"column": c.name, "used as": c.shown_use, "features": c.n_features, "missing": c.n_missing, "note": c.note}
            for c in self.columns
        ]

    def facts(self) -> dict[str, Any]:
        """What a summary says of it, as plain values."""
        return {
            "kind": "text" if {column.use for column in self.used} == {"text"} else "table",
            "columns": self.described(),
            "missing": self.missing,
            "on_one_scale": self.units is not None,
        }

    # --- applying

    def apply(self, table: Table, *, drop: bool = False, label_column: str | None = None) -> EncodedTable:
        """Rows of a table as numbers, in bounded memory.

        Parameters
        ----------
        table : Table
            Has the columns of the fit, in any order; others are not looked at.
        drop : bool, default=False
            Whether rows with gaps are left out, if the schema says so; otherwise they are filled.
        label_column : str, optional
            Holds true classes.
        """
        wanted = [column.name for column in self.used if column.name != label_column]
        wanted += [] if label_column is None else [label_column]
        self._check_there(table, wanted)
        drop = drop and self.missing == "drop"
        labels: list[NDArray[Any]] = []
        kept: list[NDArray[np.int64]] = []
        n_rows = n_filled = 0

        def blocks() -> Iterator[NDArray[Any]]:
            nonlocal n_rows, n_filled
            for batch in table.batches(wanted):
                cells = dict(zip(batch.schema.names, batch.columns, strict=True))
                block, gaps = self._encode(cells, table, n_rows)
                stay = np.flatnonzero(~gaps) if drop else np.arange(len(block))
                if label_column is not None:
                    labels.append(labels_of(cells[label_column])[stay])
                kept.append(stay + n_rows)
                n_filled += int(gaps[stay].sum())
                n_rows += batch.num_rows
                yield block[stay]

        dtype = np.float32 if all(column.use in ("text", "category") for column in self.used) else np.float64
        rows = spooled(blocks(), (self.n_features,), dtype, table.name)
        if not n_rows:
            raise table_without_rows(table.name)
        if not len(rows):
            raise DataError(
                f"Every row of {table.name} has a gap, so none is left with --missing drop. Pass --missing impute, or leave "
                "columns with many gaps out with --exclude."
            )
        found = np.concatenate(labels) if labels else None
        return EncodedTable(TableSource(rows, self), found, np.concatenate(kept), n_rows, n_filled)

    def _encode(self, cells: Mapping[str, Any], table: Table, first: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Numbers of a batch, gaps filled, and which rows had any."""
        parts = []
        gaps = np.zeros(len(next(iter(cells.values()))), dtype=bool)
        for column in self.used:
            assert column.encoder is not None
            try:
                block = column.encoder.encode(cells[column.name])
            except (pa.ArrowException, ValueError) as error:
                problem = f"Expected {column.use}s in column {column.name!r} of {table.name}, as in the table of the fit"
                raise DataError(f"{problem}: {error}.") from error
            empty = np.isnan(block[:, 0])
            if self.missing == "error" and empty.any():
                raise DataError(
                    f"Expected a value in every row of column {column.name!r} of {table.name}, got none that is known in "
                    f"{table.where(first + int(np.argmax(empty)))}. Fill it, or pass --missing impute or drop."
                )
            block[empty] = column.encoder.fill
            gaps |= empty
            parts.append(block)
        return np.concatenate(parts, axis=1), gaps

    def _check_there(self, table: Table, wanted: Sequence[str]) -> None:
        there = list(table.schema.names)
        for name in wanted:
            if name not in there:
                raise DataError(
                    f"Expected a column {name!r} in {table.name}, as in the table of the fit; it has {listed(there)}."
                    f"{did_you_mean(name, there)}"
                )

    # --- files

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        columns = [
            {"name": c.name, "use": c.use, "n_missing": c.n_missing, "note": c.note}
            | ({} if c.encoder is None else {"encoder": encoder_to_dict(c.encoder)})
            for c in self.columns
        ]
        return {"columns": columns, "missing": self.missing, "in_one_unit": self.in_one_unit}

    @classmethod
    def from_dict(cls, plain: Any) -> Self:
        """Read it back; raises KeyError, TypeError or ValueError if it is none."""
        if not isinstance(plain, dict) or not isinstance(plain["columns"], list) or type(plain["in_one_unit"]) is not bool:
            raise TypeError("a schema should be an object with a list of columns")
        columns = tuple(_column_from_dict(each) for each in plain["columns"])
        if plain["missing"] not in get_args(Missing) or not any(column.encoder for column in columns):
            raise ValueError("a schema should have columns to learn from, and say what happens to gaps")
        return cls(columns, plain["missing"], plain["in_one_unit"])


def labels_of(cells: Any) -> NDArray[Any]:
    """True classes as words, all of them."""
    words = texts_of(cells).fill_null(NO_LABEL).to_pylist()
    if (longest := max(map(len, words), default=0)) > LABEL_LENGTH:  # in an array, each takes as much as the longest
        raise DataError(f"Expected labels of at most {LABEL_LENGTH:,} characters, got one of {longest:,}. Name another column.")
    return np.array(words, dtype=str)


def _column_from_dict(plain: Any) -> Column:
    name, use, n_missing, note = (plain[key] for key in ("name", "use", "n_missing", "note"))
    if not (isinstance(name, str) and use in get_args(Use) and type(n_missing) is int and isinstance(note, str)):
        raise TypeError("a column should have a name, a use, a number of gaps and a note")
    encoder = plain.get("encoder")
    return Column(name, use, n_missing, note, None if encoder is None else encoder_from_dict(use, encoder))


@dataclass(frozen=True)
class TableSource:
    """Rows of a table as numbers, with the schema that they went through."""

    rows: Source
    schema: TableSchema

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def name(self) -> str:
        """Of the file, for messages."""
        return name_of(self.rows)

    @property
    def item_shape(self) -> tuple[int, ...]:  # noqa: D102
        return self.rows.item_shape

    def take(self, index: NDArray[np.int64]) -> NDArray[Any]:  # noqa: D102
        return self.rows.take(index)


def schema_of(source: Any) -> TableSchema | None:
    """The schema that samples went through, if they are rows of a table or some of them."""
    while hasattr(source, "whole"):
        source = source.whole
    return source.schema if isinstance(source, TableSource) else None


# --- looking at columns


@dataclass
class Profile:
    """What a column holds, as its cells come by."""

    name: str
    kind: Any
    n_rows: int = 0
    n_missing: int = 0
    n_numbers: int = 0
    n_dates: int = 0
    n_words: int = 0
    texts: Counter[str] = field(default_factory=Counter)
    has_many: bool = False  # more different texts than are counted
    mean: Any = 0.0  # of numbers: mean and sum of squared deviations, of a vector for each number
    squares: Any = 0.0
    lowest: float = np.inf
    highest: float = -np.inf
    n_zeros: int = 0
    is_whole: bool = True
    counts_rows: bool = True  # each number is one more than the one before
    last: float | None = None
    example: str = ""  # text among numbers

    @property
    def n_there(self) -> int:
        """Cells that are not missing."""
        return self.n_rows - self.n_missing

    @property
    def is_words(self) -> bool:
        """Whether cells are text, categories or truth values rather than numbers, dates or lists."""
        return is_text(self.kind) or pa.types.is_dictionary(self.kind) or pa.types.is_boolean(self.kind)

    @property
    def is_date(self) -> bool:
        """Whether cells are dates or times."""
        return bool(pa.types.is_temporal(self.kind)) or self.n_dates >= NEARLY_ALL * max(self.n_there, 1)

    @property
    def is_number(self) -> bool:
        """Whether cells are numbers, but for a few."""
        return self.n_numbers >= NEARLY_ALL * max(self.n_there, 1)

    def see(self, cells: Any, where: str) -> None:
        """Look at the next cells."""
        self.n_rows += len(cells)
        if is_list(self.kind):
            self._see_vectors(cells, where)
        elif self.is_words:
            self._see_words(cells)
        elif pa.types.is_temporal(self.kind) or not is_numeric(self.kind):
            self.n_missing += cells.null_count
        else:
            values = numbers_of(cells)
            self.n_missing += int(np.isnan(values).sum())
            self._see_numbers(values)

    def _see_words(self, cells: Any) -> None:
        texts = categories_of(cells)
        self.n_missing += texts.null_count
        found = texts.drop_null()
        if not len(found):
            return
        is_number = pc.match_substring_regex(pc.utf8_ltrim(found, "+"), NUMBER)
        n_numbers = int(pc.sum(is_number).as_py() or 0)
        if n_numbers:
            self._see_numbers(numbers_of(texts))
            if n_numbers < len(found) and not self.example:
                self.example = pc.filter(found, pc.invert(is_number))[0].as_py()
        self.n_dates += int(pc.sum(pc.match_substring_regex(found, DATE)).as_py() or 0)
        self.n_words += int(pc.sum(pc.count_substring_regex(found, r"\S+")).as_py() or 0)
        if not self.has_many:
            counted = pc.value_counts(found)
            self.texts.update(dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True)))
            if len(self.texts) > MOST_TRACKED:
                self.has_many, self.texts = True, Counter()

    def _see_numbers(self, values: NDArray[np.float64]) -> None:
        found = values[~np.isnan(values)]
        if not len(found):
            return
        self._add_moments(found)
        self.lowest, self.highest = min(self.lowest, float(found.min())), max(self.highest, float(found.max()))
        self.n_zeros += int((found == 0).sum())
        self.is_whole = self.is_whole and bool((found == np.round(found)).all())
        steps = np.diff(found, prepend=found[0] - 1 if self.last is None else self.last)
        self.counts_rows = self.counts_rows and len(found) == len(values) and bool((steps == 1).all())
        self.last = float(found[-1])

    def _see_vectors(self, cells: Any, where: str) -> None:
        self.n_missing += cells.null_count
        found = cells.drop_null()
        if not len(found) or not is_numeric(self.kind):
            return
        width = len(self.mean) if self.n_numbers else int(pc.list_value_length(found)[0].as_py())
        try:
            rows = vectors_of(found, width)
        except ValueError as error:
            raise DataError(f"Expected in column {self.name!r} of {where} {error}.") from error
        good = rows[~np.isnan(rows).any(axis=1)]
        self.n_missing += len(rows) - len(good)
        if len(good) and width:
            self._add_moments(good)

    def _add_moments(self, values: NDArray[np.float64]) -> None:
        """Chan's update of mean and squared deviations, of all values or of each column of them."""
        n, mean = len(values), values.mean(axis=0)
        step, total = mean - self.mean, self.n_numbers + len(values)
        self.squares = self.squares + ((values - mean) ** 2).sum(axis=0) + step**2 * (self.n_numbers * n / total)
        self.mean = self.mean + step * (n / total)
        self.n_numbers = total


def _decide(found: Profile, options: ColumnOptions, asked: bool) -> Column:
    """What a column is used as."""
    name = found.name
    if name == options.label_column:
        return Column(name, "label", found.n_missing)
    if name == options.id_column:
        return Column(name, "id", found.n_missing)
    if not asked:
        note = "excluded" if name in options.exclude else "not asked for"
        return Column(name, "left out", found.n_missing, note)
    if name in options.text:
        return Column(name, "text", found.n_missing)
    named = options.columns is not None  # by the user: then it is used if at all possible
    if not named and (reason := _why_left_out(found)):
        return Column(name, "left out", found.n_missing, reason)
    if not named and _is_id(found):
        use: Use = "id" if options.id_column is None else "left out"
        return Column(name, use, found.n_missing, "numbers of rows" if found.is_number else "a different one in every row")
    return _as_numbers(found)


def _why_left_out(found: Profile) -> str:
    if not found.n_there:
        return "empty"
    if found.n_missing > found.n_rows / 2:
        return f"{found.n_missing / found.n_rows:.0%} missing"
    if found.is_words and len(found.texts) == 1 and not found.has_many:
        return "the same in every row"
    if not found.is_words and found.lowest == found.highest:
        return "the same in every row"
    return ""


def _is_id(found: Profile) -> bool:
    """Whether a column names rows rather than saying something about them."""
    if is_list(found.kind) or INDEX_NAME.fullmatch(found.name):
        return not is_list(found.kind)
    n_different = MOST_TRACKED + 1 if found.has_many else len(found.texts)
    if found.is_words and not found.is_number:
        is_distinct = found.has_many or n_different == found.n_there
        return is_distinct and found.n_there > 2 and found.n_words < FEWEST_WORDS * found.n_there and not found.is_date
    if not found.is_whole or not found.is_number:
        return False
    spans_rows = found.highest - found.lowest + 1 >= found.n_there
    return (found.counts_rows and found.n_rows > 2) or (spans_rows and ID_NAME.fullmatch(found.name) is not None)


def _as_numbers(found: Profile) -> Column:
    """A column as what its cells are."""
    name, n_missing = found.name, found.n_missing
    if is_list(found.kind):
        if not found.n_numbers:
            return Column(name, "left out", n_missing, "lists without numbers")
        means, sd = tuple(np.asarray(found.mean).tolist()), float(np.sqrt(np.mean(found.squares) / found.n_numbers))
        return Column(name, "vector", n_missing, encoder=VectorEncoder(means, sd))
    if found.is_number and found.n_numbers:
        others = found.n_rows - n_missing - found.n_numbers
        note = f"{others} cells such as {found.example!r} taken as missing" if others else ""
        encoder = NumberEncoder(float(found.mean), float(np.sqrt(found.squares / found.n_numbers)))
        return Column(name, "number", n_missing + others, note, encoder)
    if found.is_date:
        return Column(name, "date", n_missing)
    if not found.is_words:
        return Column(name, "left out", n_missing, f"cells of type {found.kind}")
    return _as_words(found)


def _as_words(found: Profile) -> Column:
    n_different = MOST_TRACKED + 1 if found.has_many else len(found.texts)
    if 2 <= n_different <= min(MOST_CATEGORIES, max(2, found.n_there // 2)):
        values = sorted(found.texts)
        shares = tuple(found.texts[value] / found.n_there for value in values)
        return Column(found.name, "category", found.n_missing, encoder=CategoryEncoder(tuple(values), shares))
    if found.n_words >= FEWEST_WORDS * found.n_there:
        return Column(found.name, "text", found.n_missing)
    several = f"over {MOST_TRACKED:,}" if found.has_many else f"{n_different:,}"
    return Column(found.name, "left out", found.n_missing, f"names: {several} different values")


def _with_vocabulary(column: Column, table: Table) -> Column:
    def documents() -> Iterator[str]:
        for batch in table.batches([column.name]):
            yield from (text for text in texts_of(batch.columns[0]).to_pylist() if text is not None)

    encoder = TextEncoder.fit(documents())
    if encoder is None:
        return Column(column.name, "left out", column.n_missing, "text without words that come again")
    return Column(column.name, "text", column.n_missing, f"{len(encoder.words):,} words", encoder)


def _are_in_one_unit(columns: Sequence[Column], profiles: Mapping[str, Profile]) -> bool:
    """Whether all columns are numbers that can be compared as they are: pixels, shares, or counts that are mostly 0."""
    used = [column for column in columns if column.encoder is not None]
    if not all(column.use == "number" for column in used):
        return False
    found = [profiles[column.name] for column in used]
    if any(all(low <= p.lowest and p.highest <= high for p in found) for low, high in RANGES):
        return True
    if not all(p.is_whole and p.lowest >= 0 for p in found):
        return False
    n_zeros, n_numbers = sum(p.n_zeros for p in found), sum(p.n_numbers for p in found)
    return n_zeros > n_numbers / 2 or (len(found) >= FEWEST_PIXELS and max(p.highest for p in found) <= 255)


def _asked_columns(table: Table, options: ColumnOptions) -> set[str]:
    """Names of the columns that may be used; raises DataError if one that was named is not there."""
    asked = [options.columns] if isinstance(options.columns, str) else options.columns
    special = [name for name in (options.id_column, options.label_column) if name is not None]
    check_columns(table, [*(asked or ()), *options.exclude, *special])
    return set(table.schema.names if asked is None else asked) - set(options.exclude) - set(special)
