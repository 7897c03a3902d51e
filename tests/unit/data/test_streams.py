"""Streams: however files are cut and wherever one goes on, every sample comes once and in order."""

import io
import json
import threading
import time
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from diva.data import FileStream, Following, LineStream, Offset, Part, ReadOptions
from diva.exceptions import DataError

ROWS = np.arange(46, dtype=np.float64).reshape(23, 2)
PIXELS = np.random.default_rng(0).integers(0, 256, size=(5, 4, 4), dtype=np.uint8)


def parts(folder, cuts, suffix=".npy"):
    """The rows in several files."""
    edges = [0, *cuts, len(ROWS)]
    for number, (start, end) in enumerate(pairwise(edges)):
        write(folder / f"part-{number:03d}{suffix}", ROWS[start:end])


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows, columns=["a", "b"])
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".npz":
        np.savez(path, X=rows)
    elif path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)


def read(stream):
    return list(stream.batches())


def lines(rows=ROWS):
    return [json.dumps(row.tolist()).encode() + b"\n" for row in rows]


# --- files


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
def test_batches_do_not_depend_on_files(tmp_path, suffix):
    parts(tmp_path, [3, 4, 17], suffix)
    batches = read(FileStream(tmp_path, batch_size=5))
    assert [len(batch.samples) for batch in batches] == [5, 5, 5, 5, 3]
    np.testing.assert_array_equal(np.concatenate([batch.samples for batch in batches]), ROWS)
    assert [batch.offset.samples for batch in batches] == [5, 10, 15, 20, 23]
    names = [part.name for batch in batches for part in batch.finished]
    assert names == [f"part-{i:03d}{suffix}" for i in range(4)]


@given(cuts=st.lists(st.integers(0, len(ROWS)), max_size=6).map(sorted), batch_size=st.integers(1, 30), stop=st.integers(0, 30))
def test_it_goes_on_from_any_offset(tmp_path_factory, cuts, batch_size, stop):
    folder = tmp_path_factory.mktemp("parts")
    parts(folder, cuts)
    batches = read(FileStream(folder, batch_size=batch_size))
    before, after = batches[:stop], batches[stop:]
    offset = before[-1].offset if before else None
    plain = json.loads(json.dumps((offset or Offset()).to_plain()))
    used = [part for batch in before for part in batch.finished]
    for part in used:
        (folder / part.name).unlink()  # what was used up is not needed any more
    again = read(FileStream(folder, batch_size=batch_size, offset=Offset.from_plain(plain), used=used))
    assert [batch.offset for batch in again] == [batch.offset for batch in after]
    for one, other in zip(again, after, strict=True):
        np.testing.assert_array_equal(one.samples, other.samples)


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".parquet"])
def test_a_single_file(tmp_path, suffix):
    write(tmp_path / f"rows{suffix}", ROWS)
    write(tmp_path / f"others{suffix}", ROWS)
    batches = read(FileStream(tmp_path / f"rows{suffix}", batch_size=20))
    assert [len(batch.samples) for batch in batches] == [20, 3]
    offset = batches[0].offset
    assert offset == Offset(20, f"rows{suffix}", 20, (tmp_path / f"rows{suffix}").stat().st_size)


def test_subfolders_are_taken_in_order(tmp_path):
    write(tmp_path / "day-2" / "a.npy", ROWS[12:])
    write(tmp_path / "day-1" / "b.npy", ROWS[4:12])
    write(tmp_path / "day-1" / "a.npy", ROWS[:4])
    write(tmp_path / ".hidden" / "a.npy", ROWS)
    batches = read(FileStream(tmp_path, batch_size=100))
    np.testing.assert_array_equal(batches[0].samples, ROWS)
    assert [part.name for part in batches[0].finished] == ["day-1/a.npy", "day-1/b.npy", "day-2/a.npy"]


def test_files_that_are_being_written_are_left_alone(tmp_path):
    for name in (".a.npy", "_b.npy", "c.npy.tmp", "d.npy.part", "e.npy~", "notes.txt"):
        (tmp_path / name).write_bytes(b"half")
    write(tmp_path / "f.npy", ROWS)
    stream = FileStream(tmp_path, batch_size=100)
    assert len(read(stream)[0].samples) == len(ROWS)
    assert stream.n_others == 1


def test_images_are_files_of_one_sample(tmp_path):
    for number, image in enumerate(PIXELS):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    batches = read(FileStream(tmp_path, batch_size=3))
    np.testing.assert_array_equal(np.concatenate([batch.samples for batch in batches]), PIXELS)
    coloured = read(FileStream(tmp_path, batch_size=5, shapes=[(4, 4, 3), (48,)]))[0].samples
    np.testing.assert_array_equal(coloured, np.stack([PIXELS] * 3, axis=-1))
    assert read(FileStream(tmp_path, batch_size=5, options=ReadOptions(image_size=(8, 8))))[0].samples.shape == (5, 8, 8)


def test_columns_may_come_in_another_order(tmp_path):
    pd.DataFrame({"b": ROWS[:, 1], "other": "text", "a": ROWS[:, 0]}).to_csv(tmp_path / "a.csv")
    np.testing.assert_array_equal(read(FileStream(tmp_path, batch_size=100, options=ReadOptions(["a", "b"])))[0].samples, ROWS)


def test_parts_without_rows_count_as_used(tmp_path):
    write(tmp_path / "a.parquet", ROWS[:0])
    write(tmp_path / "b.csv", ROWS[:0])
    write(tmp_path / "c.npy", ROWS[:0])
    assert read(FileStream(tmp_path, batch_size=10)) == []
    write(tmp_path / "d.npy", ROWS[:3])
    (batch,) = read(FileStream(tmp_path, batch_size=10))
    assert [part.name for part in batch.finished] == ["a.parquet", "b.csv", "c.npy", "d.npy"]


def test_samples_may_be_flat(tmp_path):
    np.save(tmp_path / "a.npy", PIXELS.reshape(5, 16))
    np.save(tmp_path / "b.npy", PIXELS)
    samples = read(FileStream(tmp_path, batch_size=100, shapes=[(4, 4), (16,)]))[0].samples
    np.testing.assert_array_equal(samples, np.concatenate([PIXELS, PIXELS]))


def test_it_waits_for_more(tmp_path):
    parts(tmp_path, [7])
    following = Following(poll=0.01, idle_timeout=0.5)
    late = threading.Timer(0.1, lambda: write(tmp_path / "part-999.npy", ROWS[:4]))
    late.start()
    began = time.monotonic()
    batches = read(FileStream(tmp_path, batch_size=9, following=following))
    late.join()
    assert [len(batch.samples) for batch in batches] == [9, 9, 9]  # the rest waits until the batch is full
    assert time.monotonic() - began >= 0.5


def bad_numbers(folder):
    write(folder / "a.npy", np.where(ROWS == 10, np.nan, ROWS))
    return {}


def other_shape(folder):
    np.save(folder / "a.npy", ROWS)
    np.save(folder / "b.npy", np.ones((3, 5)))
    return {}


def nothing_in_it(folder):
    (folder / "a.npy").touch()
    return {}


def no_such_column(folder):
    write(folder / "a.csv", ROWS)
    return {"options": ReadOptions(["a", "c"])}


def came_late(folder):
    write(folder / "a.npy", ROWS)
    write(folder / "b.npy", ROWS)
    return {"used": [Part("b.npy", (folder / "b.npy").stat().st_size)], "offset": Offset(23)}


def came_before_the_current(folder):
    write(folder / "a.npy", ROWS)
    write(folder / "b.npy", ROWS)
    return {"offset": Offset(3, "b.npy", 3, (folder / "b.npy").stat().st_size)}


def has_grown(folder):
    write(folder / "a.npy", ROWS)
    return {"used": [Part("a.npy", 200)], "offset": Offset(3)}


def has_grown_in_use(folder):
    write(folder / "a.csv", ROWS)
    return {"offset": Offset(3, "a.csv", 3, 20)}


def is_gone(folder):
    write(folder / "b.npy", ROWS)
    return {"offset": Offset(3, "a.npy", 3, 20)}


BAD_FILES = {
    bad_numbers: r"a\.npy, got NaN or infinity in sample 5",
    other_shape: r"shape \(2,\), got \(5,\) in .*b\.npy",
    nothing_in_it: r"a\.npy, but the file is empty",
    no_such_column: "Expected a column 'c'",
    came_late: r"a\.npy sorts before b\.npy",
    came_before_the_current: r"a\.npy sorts before b\.npy",
    has_grown: r"a\.npy had 200 bytes .* file of their own",
    has_grown_in_use: r"a\.csv had 20 bytes",
    is_gone: r"a\.npy is gone, but only 3",
}


@pytest.mark.parametrize("make", BAD_FILES, ids=lambda make: make.__name__)
def test_bad_files_are_refused(tmp_path, make):
    options = make(tmp_path)
    with pytest.raises(DataError, match=BAD_FILES[make]):
        read(FileStream(tmp_path, batch_size=100, **options))


def test_a_file_that_grows_while_it_is_followed(tmp_path):
    write(tmp_path / "a.csv", ROWS)
    stream = FileStream(tmp_path / "a.csv", batch_size=23, following=Following(0.01, 5.0)).batches()
    assert len(next(stream).samples) == 23
    write(tmp_path / "a.csv", np.concatenate([ROWS, ROWS]))
    with pytest.raises(DataError, match="file of their own"):
        next(stream)


def test_a_file_that_goes_before_its_turn(tmp_path):
    parts(tmp_path, [10])
    stream = FileStream(tmp_path, batch_size=5).batches()
    next(stream)
    (tmp_path / "part-001.npy").unlink()
    next(stream)
    with pytest.raises(DataError, match=r"part-001\.npy cannot be read"):
        next(stream)


def test_no_such_folder(tmp_path):
    with pytest.raises(DataError, match="There is no file or folder"):
        FileStream(tmp_path / "none", batch_size=1)


# --- lines


def test_lines_of_arrays():
    batches = read(LineStream(lines(), batch_size=10))
    assert [batch.offset.samples for batch in batches] == [10, 20, 23]
    np.testing.assert_array_equal(np.concatenate([batch.samples for batch in batches]), ROWS)


def test_lines_of_objects():
    objects = [json.dumps({"b": b, "other": None, "a": [a, a]}).encode() for a, b in ROWS]
    (batch,) = read(LineStream(objects, batch_size=100, columns=["a", "b"]))
    np.testing.assert_array_equal(batch.samples, ROWS[:, [0, 0, 1]])


def test_images_are_nested_arrays_or_flat():
    text = b"\n".join([json.dumps(PIXELS[0].tolist()).encode(), b"", json.dumps(PIXELS[1].ravel().tolist()).encode()])
    (batch,) = read(LineStream(io.BytesIO(text), batch_size=100, shapes=[(4, 4), (16,)]))
    np.testing.assert_array_equal(batch.samples, PIXELS[:2])


@given(batch_size=st.integers(1, 30), stop=st.integers(1, 30))
def test_lines_go_on_from_any_offset(batch_size, stop):
    batches = read(LineStream(lines(), batch_size=batch_size))
    before, after = batches[:stop], batches[stop:]
    offset = before[-1].offset
    for sent, continues in ((lines(), False), (lines(ROWS[offset.samples :]), True)):
        again = read(LineStream([b" \n", *sent], batch_size=batch_size, offset=offset, continues=continues))
        assert [batch.offset for batch in again] == [batch.offset for batch in after]
        for one, other in zip(again, after, strict=True):
            np.testing.assert_array_equal(one.samples, other.samples)


BAD_LINES = {
    b"[1, 2": "line 2 is not",
    b"\xff": "line 2 is not",
    b"[" * 100_000: "line 2 is not",
    b"[1, 2, 3]": r"shape \(2,\), got \(3,\) in line 2",
    b"[1, [2]]": "different ones in line 2",
    b"[1, NaN]": "NaN or infinity in line 2",
    b"[1, 1e999]": "NaN or infinity in line 2",
    b'[1, "2"]': "numbers, got .* in line 2",
    b"[1, null]": "numbers, got .* in line 2",
    b"[]": r"got \(0,\) in line 2",
    b"3": "got 3 in line 2",
    b'{"a": 1}': "field 'b' in line 2",
    b'{"a": 1, "B": 2}': "field 'b' in line 2",
    b'{"a": 1, "b": "x"}': "field 'b' of line 2",
    b'{"a": 1, "b": null}': "field 'b' of line 2",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:20].decode(errors="replace"))
def test_bad_lines_are_refused(line):
    with pytest.raises(DataError, match=BAD_LINES[line]):
        read(LineStream([b"[1, 2]", line], batch_size=2, columns=["a", "b"]))


def test_objects_need_columns():
    with pytest.raises(DataError, match=r"line 1.*--columns"):
        read(LineStream([b'{"a": 1}'], batch_size=2))


def test_other_lines_than_before_are_refused():
    offset = read(LineStream(lines(), batch_size=10))[0].offset
    with pytest.raises(DataError, match=r"10 were used, but it ends after 4\..*--from-offset"):
        read(LineStream(lines(ROWS[:4]), batch_size=10, offset=offset))
    with pytest.raises(DataError, match=r"first 10 are not those.*--from-offset"):
        read(LineStream(lines(ROWS[1:]), batch_size=10, offset=offset))


@pytest.mark.parametrize("plain", [{}, {"samples": 3, "part": "a", "rows": 2, "n_bytes": 5}, {"samples": 3, "digest": "ab"}])
def test_offsets_are_plain(plain):
    assert Offset.from_plain(plain).to_plain() == {"samples": 0} | plain


@pytest.mark.parametrize("plain", [None, 3, {"samples": -1}, {"samples": True}, {"part": 3}, {"other": 1}, {"digest": None}])
def test_what_is_no_offset(plain):
    with pytest.raises((TypeError, ValueError)):
        Offset.from_plain(plain)
