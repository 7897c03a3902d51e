"""Data that keep coming: batches of one size, each with the offset to go on from. No model, and nothing is written.

A stream is cut into batches by the order of its samples alone, not by files or by when they came. Reading it from the offset
of a batch gives the batches that would have come next, so that whoever notes the offset uses every sample once.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from diva.data.columns import TableSchema
from diva.data.formats.images import IMAGE_SUFFIXES, ImageSource, Pictures, checked
from diva.data.formats.messages import did_you_mean
from diva.data.formats.paths import CSV_SUFFIXES, PARQUET_SUFFIXES, ReadOptions, is_table, open_with, visible_files
from diva.data.sources import ArraySource, Source
from diva.data.typed import record_table
from diva.exceptions import DataError, NoSamplesError

PART_SUFFIXES = (".npy", ".npz", *CSV_SUFFIXES, *PARQUET_SUFFIXES, *IMAGE_SUFFIXES)
BEING_WRITTEN = (".tmp", ".part", ".partial", "~")  # endings of files that are not whole yet

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Offset:
    """How much of a source was used.

    Attributes
    ----------
    samples : int
    part : str or None
        File of which some samples were used and others not.
    rows, n_bytes : int
        Samples used of that file, and its size.
    digest : str
        Of the lines used, to know them again; files are known by name and size.
    """

    samples: int = 0
    part: str | None = None
    rows: int = 0
    n_bytes: int = 0
    digest: str = ""

    def to_plain(self) -> dict[str, Any]:
        """For JSON; what says nothing is left out."""
        return {name: value for name, value in asdict(self).items() if name == "samples" or value}

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """Read it back; raises TypeError or ValueError if it is none."""
        offset = cls(**plain)
        numbers = (offset.samples, offset.rows, offset.n_bytes)
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("an offset should count with whole numbers")
        if not isinstance(offset.part, str | None) or not isinstance(offset.digest, str):
            raise TypeError("an offset should name its file and its digest as text")
        return offset


@dataclass(frozen=True)
class Part:
    """A file all of whose samples were used; its size tells whether it is still the same."""

    name: str
    n_bytes: int


@dataclass(frozen=True, eq=False)
class StreamBatch:
    """Samples that come next.

    Attributes
    ----------
    samples : array of shape (n, ...)
    offset : Offset
        After them.
    finished : tuple of Part
        Files that these samples used up.
    """

    samples: NDArray[Any]
    offset: Offset
    finished: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Following:
    """How to wait for more."""

    poll: float = 1.0  # seconds between two looks
    idle_timeout: float | None = None  # seconds without anything new after which the stream has ended


class FileStream:
    """Samples of the files in a folder, which may grow, or of one file; in the order of names.

    A file has to be whole when it gets its name, and new files have names that sort after those there are: then the order does
    not depend on when somebody looks. What breaks this is refused, as samples could be lost. Names that begin with ``.`` or
    ``_``, or end with ``.tmp``, ``.part``, ``.partial`` or ``~``, are left alone, and so are files of other kinds.

    Parameters
    ----------
    path : path-like
        Folder of .npy, .npz, .csv, .tsv or .parquet files or of images, sub-folders included; or a single file.
    batch_size : int
        Samples in every batch but the last.
    shapes : sequence of tuples, optional
        Shapes that samples may have; they are given the first. By default all have that of the first sample.
    offset : Offset, optional
        Where to go on.
    used : iterable of Part, optional
        Files used up before.
    options : ReadOptions, optional
        What to take of the files.
    following : Following, optional
        Whether and how to wait for more files; by default the stream ends with those there are.
    """

    def __init__(
        self,
        path: Path,
        *,
        batch_size: int,
        shapes: Sequence[Shape] = (),
        offset: Offset | None = None,
        used: Iterable[Part] = (),
        options: ReadOptions | None = None,
        following: Following | None = None,
    ) -> None:
        if not path.exists():
            raise DataError(f"There is no file or folder {path}. Check the path.")
        self._folder = path if path.is_dir() else path.parent
        self._single = None if path.is_dir() else path.name
        self._batch_size = batch_size
        self._shapes = list(shapes)
        self._offset = offset or Offset()
        self._used = {part.name: part.n_bytes for part in used}
        self._last = self._offset.part or max(self._used, key=_order, default=None)
        self._options = options or ReadOptions()
        self._following = following
        self.n_others = 0  # files of other kinds, at the last look

    def batches(self) -> Iterator[StreamBatch]:
        """From the offset on.

        Raises
        ------
        DataError
            If a file cannot be read, does not fit, has changed since it was used, or comes too late.
        """
        self._check_used()
        gathered: list[NDArray[Any]] = []
        finished: list[Part] = []
        offset, missing = self._offset, self._batch_size
        for part, source in self._parts():
            row, n_rows = (offset.rows if part.name == offset.part else 0), len(source)
            if not n_rows:
                finished.append(part)
            while row < n_rows:
                n = min(missing, n_rows - row)
                gathered.append(self._take(source, part.name, row, n))
                row, missing = row + n, missing - n
                if row == n_rows:
                    finished.append(part)
                    offset = Offset(offset.samples + n)
                else:
                    offset = Offset(offset.samples + n, part.name, row, part.n_bytes)
                if not missing:
                    yield StreamBatch(np.concatenate(gathered), offset, tuple(finished))
                    gathered, finished, missing = [], [], self._batch_size
        if gathered:
            yield StreamBatch(np.concatenate(gathered), offset, tuple(finished))

    def _parts(self) -> Iterator[tuple[Part, Source]]:
        """Files that are not used up, opened one after the other; waits for more if it should."""
        news = time.monotonic()
        while True:
            unused = self._unused()
            for name in unused:
                part = Part(name, self._size(name))
                self._last = name
                yield part, self._open(name)
                self._used[name] = part.n_bytes
            if unused:
                news = time.monotonic()
            elif self._following is None or _has_waited(self._following, news):
                return
            else:
                time.sleep(self._following.poll)

    def _unused(self) -> list[str]:
        """Names of files that come next."""
        found = (
            [self._single] if self._single else [f.relative_to(self._folder).as_posix() for f in visible_files(self._folder)]
        )
        whole = [name for name in found if not name.endswith(BEING_WRITTEN)]
        parts = whole if self._single else [name for name in whole if name.lower().endswith(PART_SUFFIXES)]
        self.n_others = len(whole) - len(parts)
        if self._last in self._used:
            self._check_size(self._last, self._used[self._last])
        unused = sorted((name for name in parts if name not in self._used), key=_order)
        if unused and self._last is not None and _order(unused[0]) < _order(self._last):
            raise DataError(
                f"Samples come in the order of file names, and {self._folder / unused[0]} sorts before {self._last}, which was "
                "used already. Give it a name that sorts after all that are there, or remove it."
            )
        return unused

    def _check_used(self) -> None:
        """Raise DataError if files that were used are not what they were; those used up may be gone."""
        for name, n_bytes in self._used.items():
            self._check_size(name, n_bytes)
        if (part := self._offset.part) is None:
            return
        if not (self._folder / part).is_file():
            raise DataError(
                f"{self._folder / part} is gone, but only {self._offset.rows:,} of its samples were used. Put it back."
            )
        self._check_size(part, self._offset.n_bytes)

    def _check_size(self, name: str, n_bytes: int) -> None:
        if (self._folder / name).is_file() and (size := self._size(name)) != n_bytes:
            raise DataError(
                f"{self._folder / name} had {n_bytes:,} bytes when its samples were used, and has {size:,} now. Put it back as "
                "it was, and new samples in a file of their own."
            )

    def _size(self, name: str) -> int:
        try:
            return (self._folder / name).stat().st_size
        except OSError as error:
            raise DataError(f"{self._folder / name} cannot be read: {error.strerror}. Put it back, or start again.") from error

    def _open(self, name: str) -> Source:
        path = self._folder / name
        if name.lower().endswith(IMAGE_SUFFIXES):
            return ImageSource(Pictures([str(path)], lambda _: checked(path)), self._options.image_size)
        columns, schema = (self._options.columns, self._options.schema) if is_table(path) else (None, None)
        key = self._options.key if name.lower().endswith(".npz") else None
        try:
            return open_with(path, ReadOptions(None if schema else columns, key=key, schema=schema)).source
        except NoSamplesError:
            return ArraySource(np.empty((0, 1)))

    def _take(self, source: Source, name: str, first: int, n: int) -> NDArray[Any]:
        """Samples from a row on, all of one shape and finite."""
        samples = source.take(np.arange(first, first + n))
        if not self._shapes:
            self._shapes = [source.item_shape]
        if samples.dtype.kind == "f" and not np.isfinite(samples).all():
            row = int(np.argmin(np.isfinite(samples.reshape(n, -1)).all(1)))
            raise DataError(
                f"Expected numbers in {self._folder / name}, got NaN or infinity in sample {first + row}. Correct the file."
            )
        return _shaped(samples, self._shapes, str(self._folder / name))


def _order(name: str) -> tuple[str, ...]:
    """Sort by folder, then by name."""
    return tuple(name.split("/"))


def _has_waited(following: Following, since: float) -> bool:
    return following.idle_timeout is not None and time.monotonic() - since >= following.idle_timeout


def _shaped(samples: NDArray[Any], shapes: Sequence[Shape], name: str) -> NDArray[Any]:
    """Samples in the first of the shapes they may have."""
    shape, wanted = samples.shape[1:], shapes[0]
    if shape == wanted:
        return samples
    if shape in shapes and math.prod(shape) == math.prod(wanted):
        return samples.reshape(-1, *wanted)
    if wanted == (*shape, 3):  # a grey image among coloured ones
        return np.repeat(samples[..., None], 3, axis=-1)
    raise DataError(f"Expected samples of shape {wanted}, got {shape} in {name}. Correct it, or take it out of the stream.")


class LineStream:
    """Samples in lines of JSON, such as standard input: each an array of numbers, or an object with a field for each column.

    Empty lines do not count. A line that is none of these is refused, with its number.

    Parameters
    ----------
    lines : iterable of bytes
    batch_size : int
        Samples in every batch but the last.
    shapes : sequence of tuples, optional
        Shapes that samples may have; they are given the first. By default all have that of the first sample.
    offset : Offset, optional
        Where to go on.
    columns : sequence of str, optional
        Fields of objects, in the order of the features; others are not looked at.
    schema : TableSchema, optional
        Of a model that was fitted on a table: what it uses the fields of objects as.
    continues : bool, default=False
        Whether the lines begin at the offset. By default they begin at the first sample, and those used are skipped; they have
        to be the same.
    """

    def __init__(
        self,
        lines: Iterable[bytes],
        *,
        batch_size: int,
        shapes: Sequence[Shape] = (),
        offset: Offset | None = None,
        columns: Sequence[str] | None = None,
        schema: TableSchema | None = None,
        continues: bool = False,
    ) -> None:
        self._lines = lines
        self._batch_size = batch_size
        self._shapes = list(shapes)
        self._offset = offset or Offset()
        self._columns = columns
        self._schema = schema
        self._continues = continues

    def batches(self) -> Iterator[StreamBatch]:
        """From the offset on.

        Raises
        ------
        DataError
            If a line is not a sample, or lines to be skipped are not those that were used.
        """
        samples = self._samples()
        offset = self._offset
        if not self._continues:
            self._skip(samples)
        gathered: list[NDArray[np.float64]] = []
        for sample in samples:
            gathered.append(sample)
            offset = Offset(offset.samples + 1, digest=_digest(offset.digest, sample))
            if len(gathered) == self._batch_size:
                yield StreamBatch(np.stack(gathered), offset)
                gathered = []
        if gathered:
            yield StreamBatch(np.stack(gathered), offset)

    def _skip(self, samples: Iterator[NDArray[np.float64]]) -> None:
        """Pass over what was used."""
        digest, n_used = "", self._offset.samples
        for n_skipped in range(n_used):
            sample = next(samples, None)
            if sample is None:
                raise DataError(
                    f"Expected the stream from its first sample, of which {n_used:,} were used, but it ends after "
                    f"{n_skipped:,}. Send all of it, or only what comes next together with --from-offset."
                )
            digest = _digest(digest, sample)
        if digest != self._offset.digest:
            raise DataError(
                f"Expected the stream from its first sample, but its first {n_used:,} are not those that were used. Send all "
                "of it, or only what comes next together with --from-offset."
            )

    def _samples(self) -> Iterator[NDArray[np.float64]]:
        for number, line in enumerate(self._lines, 1):
            if line.strip():
                yield self._parse(line, f"line {number}")

    def _parse(self, line: bytes, where: str) -> NDArray[np.float64]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:  # text that is no UTF-8, too
            raise DataError(f"Expected JSON, an array of numbers or an object, but {where} is not ({error}).") from error
        if isinstance(value, dict):
            sample = self._fields(value, where)
        elif isinstance(value, list):
            sample = _numbers(value, where)
        else:
            raise DataError(f"Expected an array of numbers or an object, got {json.dumps(value)[:40]} in {where}.")
        if not self._shapes:
            self._shapes = [sample.shape]
        shaped: NDArray[np.float64] = _shaped(sample[None], self._shapes, where)[0]
        return shaped

    def _fields(self, value: dict[str, Any], where: str) -> NDArray[np.float64]:
        if self._schema is not None:
            _check_fields(value, [column.name for column in self._schema.used], where)
            row: NDArray[np.float64] = self._schema.apply(record_table(value, where)).source.take(np.arange(1))[0]
            return row.astype(np.float64)
        if self._columns is None:
            raise DataError(
                f"Expected an array of numbers, got an object in {where}: no columns are known that would say the order of its "
                "fields. Send arrays, or name the fields with --columns."
            )
        _check_fields(value, self._columns, where)
        parts = [_numbers(value[name], f"field {name!r} of {where}").reshape(-1) for name in self._columns]
        return np.concatenate(parts)


def _numbers(value: Any, where: str) -> NDArray[np.float64]:
    try:
        numbers = np.array(value)
    except ValueError as error:
        raise DataError(f"Expected lists of one length, got different ones in {where}.") from error
    if numbers.dtype.kind not in "fiub":
        raise DataError(f"Expected numbers, got {json.dumps(value)[:40]} in {where}.")
    if not np.isfinite(numbers).all():
        raise DataError(f"Expected finite numbers, got NaN or infinity in {where}.")
    return numbers.astype(np.float64)


def _digest(before: str, sample: NDArray[np.float64]) -> str:
    return hashlib.sha256(before.encode() + sample.tobytes()).hexdigest()


def _check_fields(value: dict[str, Any], names: Sequence[str], where: str) -> None:
    for name in names:
        if name not in value:
            raise DataError(f"Expected a field {name!r} in {where}, which lacks it.{did_you_mean(name, list(value))}")
