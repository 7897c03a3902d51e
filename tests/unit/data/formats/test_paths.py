"""Files and folders as sources: what is read back is what was written, and what cannot be read says why."""

import errno
import gzip
import os
import struct
import tempfile
import time
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import sparse

from diva import DIVA
from diva.data import InputPipeline, Source, open_path
from diva.data.formats import files, images, npy, spool, tables
from diva.data.validate import open_samples
from diva.exceptions import DataError

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(23, 5)).round(3)
PIXELS = RNG.integers(0, 256, size=(11, 6, 4), dtype=np.uint8)
COLOURS = RNG.integers(0, 256, size=(7, 6, 4, 3), dtype=np.uint8)
WORDS = np.array(["even", "odd"])[np.arange(len(ROWS)) % 2]


def everything(source):
    return source.take(np.arange(len(source)))


def frame():
    return pd.DataFrame(ROWS, columns=list("abcde"))


def idx(values, code=0x08):
    return bytes([0, 0, code, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def folder_of(path, values, name="{:03d}.png", **options):
    for i, value in enumerate(values):
        file = path / name.format(i)
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(value).save(file, **options)
    return path


def list_table(values, kind):
    return pa.table({"v": pa.array(values.tolist(), type=kind)})


# --- round trips


def write_npy(path):
    np.save(path / "x.npy", ROWS)
    return path / "x.npy", ROWS


def write_npy_images(path):
    np.save(path / "x.npy", COLOURS)
    return path / "x.npy", COLOURS


def write_npy_fortran(path):
    np.save(path / "x.npy", np.asfortranarray(ROWS))
    return path / "x.npy", ROWS


def write_npz(path):
    np.savez(path / "x.npz", X=ROWS, other=PIXELS)
    return path / "x.npz", ROWS


def write_npz_packed(path):
    np.savez_compressed(path / "x.npz", PIXELS)
    return path / "x.npz", PIXELS


def write_npz_fortran(path):
    np.savez(path / "x.npz", X=np.asfortranarray(ROWS))
    return path / "x.npz", ROWS


def write_npz_fortran_images(path):
    np.savez_compressed(path / "x.npz", X=np.asfortranarray(COLOURS.astype(">f4")))
    return path / "x.npz", COLOURS.astype(np.float32)


def write_npz_only_one(path):
    np.savez(path / "x.npz", vectors=ROWS, word=np.array("hello"), y=WORDS)
    return path / "x.npz", ROWS


def write_sparse(path):
    sparse.save_npz(path / "x.npz", sparse.csr_array(ROWS * (ROWS > 0)))
    return path / "x.npz", ROWS * (ROWS > 0)


def write_sparse_columns(path):
    sparse.save_npz(path / "x.npz", sparse.csc_matrix(ROWS * (ROWS > 0)))
    return path / "x.npz", ROWS * (ROWS > 0)


def write_sparse_coordinates(path):
    sparse.save_npz(path / "x.npz", sparse.coo_array(ROWS * (ROWS > 0)))
    return path / "x.npz", ROWS * (ROWS > 0)


def write_sparse_parts(path):
    rows = sparse.csr_array((ROWS * (ROWS > 0)).astype(np.float32))
    np.savez_compressed(
        path / "x.npz",
        data=rows.data,
        indices=rows.indices.astype(np.uint16),
        indptr=rows.indptr,
        shape=np.array(rows.shape),
        y=WORDS,
    )
    return path / "x.npz", rows.toarray()


def write_sparse_blocks(path):
    sparse.save_npz(path / "x.npz", sparse.bsr_array(ROWS[:20, :4] * (ROWS[:20, :4] > 0), blocksize=(5, 2)))
    return path / "x.npz", ROWS[:20, :4] * (ROWS[:20, :4] > 0)


def write_sparse_diagonals(path):
    sparse.save_npz(path / "x.npz", sparse.dia_array(np.diag(ROWS[:, 0], 2)))
    return path / "x.npz", np.diag(ROWS[:, 0], 2)


def write_csv(path):
    frame().to_csv(path / "x.csv", index=False)
    return path / "x.csv", ROWS


def write_csv_with_index(path):
    frame().to_csv(path / "x.csv")
    return path / "x.csv", ROWS


def write_csv_plain(path):
    np.savetxt(path / "x.csv", ROWS, delimiter=",")
    return path / "x.csv", ROWS


def write_csv_numbered(path):
    pd.DataFrame(ROWS).to_csv(path / "x.csv", index=False)
    return path / "x.csv", ROWS


def write_csv_semicolon(path):
    frame().to_csv(path / "x.csv", index=False, sep=";")
    return path / "x.csv", ROWS


def write_csv_with_long_names(path):
    names = ['"a\nfirst"', '"b, and ""more"""', '"\n\nc"', "d", "e"]
    (path / "x.csv").write_text(",".join(names) + "\n" + frame().to_csv(index=False, header=False))
    return path / "x.csv", ROWS


def write_csv_packed(path):
    frame().to_csv(path / "x.csv.gz", index=False)
    return path / "x.csv.gz", ROWS


def write_tsv(path):
    frame().to_csv(path / "x.tsv", index=False, sep="\t")
    return path / "x.tsv", ROWS


def write_parquet(path):
    pq.write_table(pa.Table.from_pandas(frame()), path / "x.parquet", row_group_size=7)
    return path / "x.parquet", ROWS


def write_parquet_float32(path):
    pq.write_table(pa.Table.from_pandas(frame().astype(np.float32)), path / "x.parquet", row_group_size=7)
    return path / "x.parquet", ROWS.astype(np.float32)


def write_parquet_mixed(path):
    values = ROWS.round().astype(np.float64)
    columns = {
        "a": values[:, 0].astype(np.int8),
        "b": values[:, 1] > 0,
        "c": values[:, 2].astype(np.float16),
        "d": pa.array(values[:, 3].astype(int)).cast(pa.decimal128(20)),
    }
    pq.write_table(pa.table(columns), path / "x.parquet")
    return path / "x.parquet", np.column_stack([values[:, 0], values[:, 1] > 0, values[:, 2], values[:, 3]])


def write_parquet_parts(path):
    for i, part in enumerate(np.array_split(np.arange(len(ROWS)), 3)):
        pq.write_table(pa.Table.from_pandas(frame().iloc[part], preserve_index=False), path / f"part-{i}.parquet")
    return path, ROWS


def write_parquet_lists(path):
    pq.write_table(list_table(ROWS, pa.list_(pa.float64())), path / "x.parquet", row_group_size=7)
    return path / "x.parquet", ROWS


def write_parquet_fixed_lists(path):
    pq.write_table(list_table(ROWS, pa.list_(pa.float64(), 5)), path / "x.parquet", row_group_size=7)
    return path / "x.parquet", ROWS


def write_idx(path):
    (path / "digits.idx").write_bytes(idx(PIXELS))
    return path / "digits.idx", PIXELS


def write_idx_packed(path):
    (path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(PIXELS)))
    return path / "train-images-idx3-ubyte.gz", PIXELS


def write_idx_floats(path):
    (path / "rows.idx2-float").write_bytes(idx(ROWS.astype(">f8"), 0x0E))
    return path / "rows.idx2-float", ROWS


def write_grey_images(path):
    return folder_of(path, PIXELS), PIXELS


def write_colour_images(path):
    return folder_of(path, COLOURS, "{}.bmp"), COLOURS


def write_transparent_images(path):
    with_alpha = np.concatenate([COLOURS, np.full_like(COLOURS[..., :1], 255)], axis=3)
    return folder_of(path, with_alpha, "{}.png"), COLOURS


def write_deep_images(path):
    deep = PIXELS.astype(np.uint16) * 200
    return folder_of(path, deep, "{:02d}.tif"), deep.astype(np.float32)


WRITERS = [value for name, value in sorted(globals().items()) if name.startswith("write_")]


@pytest.mark.parametrize("write", WRITERS)
def test_what_was_written_is_read(write, tmp_path):
    path, expected = write(tmp_path)
    opened = open_path(path)
    assert isinstance(opened.source, Source)
    assert len(opened.source) == len(expected)
    assert opened.source.item_shape == expected.shape[1:]
    values = everything(opened.source)
    np.testing.assert_array_equal(values, expected)
    assert values.dtype.isnative
    assert opened.name


@pytest.mark.parametrize("write", WRITERS)
def test_samples_come_in_any_order(write, tmp_path, monkeypatch):
    path, expected = write(tmp_path)
    monkeypatch.setattr(spool, "MEMORY_BYTES", 1)
    monkeypatch.setattr(spool, "BLOCK_BYTES", 100)
    monkeypatch.setattr(tables, "BLOCK_BYTES", 300)
    monkeypatch.setattr(npy, "MEMORY_BYTES", 1)
    monkeypatch.setattr(images, "MEMORY_BYTES", 1)
    source = open_path(str(path)).source
    for _ in range(20):
        index = RNG.integers(len(expected), size=RNG.integers(0, 30))
        np.testing.assert_array_equal(source.take(index), expected[index])


@pytest.mark.parametrize(
    "write", [write_csv, write_parquet, write_idx_packed, write_npz_packed, write_npz_fortran, write_npz_fortran_images]
)
def test_many_rows_go_to_a_file_without_a_name(write, tmp_path, monkeypatch):
    path, expected = write(tmp_path)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(spool, "MEMORY_BYTES", 100)
    monkeypatch.setattr(npy, "MEMORY_BYTES", 100)
    source = open_path(path).source
    assert isinstance(source, spool.SpooledSource)
    assert not list((tmp_path / "temporary").iterdir())
    np.testing.assert_array_equal(everything(source), expected)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_a_spooled_source_is_indexed_like_an_array(data):
    shape = data.draw(st.sampled_from([(1,), (3,), (2, 5), (2, 2, 3)]))
    dtype = data.draw(st.sampled_from([np.uint8, np.float32, np.float64]))
    n = data.draw(st.integers(1, 40))
    values = (np.arange(n * np.prod(shape)) % 251).reshape(n, *shape).astype(dtype)
    source = spool.SpooledSource(shape, dtype)
    for block in np.array_split(values, data.draw(st.integers(1, 5))):
        source.append(block)
    index = np.array(data.draw(st.lists(st.integers(-n, n - 1), max_size=60)), dtype=np.int64)
    taken = source.take(index)
    assert taken.dtype == dtype
    np.testing.assert_array_equal(taken, values[index])
    with pytest.raises(IndexError, match="samples"):
        source.take(np.array([n]))


def test_neighbours_are_read_at_once(monkeypatch):
    monkeypatch.setattr(spool, "MEMORY_BYTES", 0)
    source = spool.spooled([ROWS], (5,), np.float64)
    lengths = []
    read = spool.SpooledSource.read_run
    monkeypatch.setattr(spool.SpooledSource, "read_run", lambda s, first, out: lengths.append(len(out)) or read(s, first, out))
    source.take(np.array([7, 3, 4, 5, 12, 4, 6]))
    assert lengths == [5, 1]


def test_small_tables_stay_in_memory(tmp_path):
    assert isinstance(everything(open_path(write_csv(tmp_path)[0]).source), np.ndarray)
    assert type(open_path(write_csv(tmp_path)[0]).source).__name__ == "ArraySource"


def test_npy_is_mapped(tmp_path):
    assert isinstance(open_path(write_npy(tmp_path)[0]).source.values, np.memmap)


def test_bytes_stay_bytes(tmp_path):
    pq.write_table(pa.table({"a": PIXELS[:, 0, 0], "b": PIXELS[:, 0, 1]}), tmp_path / "x.parquet")
    assert everything(open_path(tmp_path / "x.parquet").source).dtype == np.uint8


def test_large_whole_numbers_are_not_rounded(tmp_path):
    large = np.array([[10**9 + 1, 1.0], [10**9 + 2, 2.0]])
    pd.DataFrame(large, columns=["a", "b"]).to_csv(tmp_path / "x.csv", index=False)
    np.testing.assert_array_equal(everything(open_path(tmp_path / "x.csv").source), large)


def test_whole_numbers_may_be_followed_by_others(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "HEAD_BYTES", 64)
    values = np.r_[np.arange(40.0), 0.5]
    pd.DataFrame({"a": values, "b": values}).to_csv(tmp_path / "x.csv", index=False, float_format="%g")
    np.testing.assert_array_equal(everything(open_path(tmp_path / "x.csv").source)[:, 1], values)


def test_names_in_several_lines(tmp_path):
    path = write_csv_with_long_names(tmp_path)[0]
    assert open_path(path).feature_names == ("a\nfirst", 'b, and "more"', "c", "d", "e")
    path.write_text(path.read_text() + "1,2,three,4,5\n")
    with pytest.raises(DataError, match=r"'three' in line 28"):
        open_path(path)


def test_lines_longer_than_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "HEAD_BYTES", 1 << 12)
    wide = np.tile(ROWS[:2], 400)
    pd.DataFrame(wide).add_prefix("gene_").to_csv(tmp_path / "x.csv", index=False)
    np.testing.assert_array_equal(everything(open_path(tmp_path / "x.csv").source), wide)


def test_many_columns_are_counted_in_little_time():
    table = tables.Table("a table", pa.schema([(f"gene {i}", pa.float32()) for i in range(40_000)]), iter)
    start = time.process_time()
    assert len(tables.choose_columns(table, None, "gene 7")) == 39_999
    assert time.process_time() - start < 2


# --- labels and columns


@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_columns_and_labels(end, tmp_path):
    table = frame().assign(kind=WORDS)
    path = tmp_path / f"x.{end}"
    table.to_csv(path, index=False) if end == "csv" else table.to_parquet(path)
    opened = open_path(path, label_column="kind")
    np.testing.assert_array_equal(opened.labels, WORDS)
    assert opened.feature_names == tuple("abcde")
    opened = open_path(path, columns=["d", "a"], label_column="kind")
    np.testing.assert_array_equal(everything(opened.source), ROWS[:, [3, 0]])
    assert opened.feature_names == ("d", "a")
    np.testing.assert_array_equal(opened.labels, WORDS)
    assert open_path(path, columns=["b"]).labels is None


def test_a_column_of_lists_among_others(tmp_path):
    pq.write_table(list_table(ROWS, pa.list_(pa.float64())).append_column("w", pa.array(ROWS[:, 0])), tmp_path / "x.parquet")
    opened = open_path(tmp_path / "x.parquet")
    np.testing.assert_array_equal(everything(opened.source), np.column_stack([ROWS, ROWS[:, 0]]))
    assert opened.feature_names == ("v[0]", "v[1]", "v[2]", "v[3]", "v[4]", "w")


def test_labels_that_are_numbers(tmp_path):
    frame().assign(y=np.arange(len(ROWS))).to_csv(tmp_path / "x.csv", index=False)
    np.testing.assert_array_equal(open_path(tmp_path / "x.csv", label_column="y").labels, np.arange(len(ROWS)))


@pytest.mark.parametrize("packed", [False, True])
def test_labels_of_idx(packed, tmp_path):
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(PIXELS)))
    digits = np.arange(len(PIXELS), dtype=np.uint8)
    name = "t10k-labels-idx1-ubyte"
    (tmp_path / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(idx(digits)) if packed else idx(digits))
    np.testing.assert_array_equal(open_path(tmp_path / "t10k-images-idx3-ubyte.gz").labels, digits)


@pytest.mark.parametrize("name", ["y", "labels", "target"])
def test_labels_in_npz(name, tmp_path):
    np.savez(tmp_path / "x.npz", X=ROWS, **{name: WORDS[:, None]})
    np.testing.assert_array_equal(open_path(tmp_path / "x.npz").labels, WORDS)


def test_labels_of_a_sparse_matrix(tmp_path):
    np.testing.assert_array_equal(open_path(write_sparse_parts(tmp_path)[0]).labels, WORDS)


def test_a_chosen_array_brings_its_own_labels(tmp_path):
    np.savez(tmp_path / "x.npz", x_train=ROWS, y_train=WORDS, x_test=PIXELS, y_test=np.arange(11), y=np.arange(3))
    opened = open_path(tmp_path / "x.npz", key="x_test")
    np.testing.assert_array_equal(everything(opened.source), PIXELS)
    np.testing.assert_array_equal(opened.labels, np.arange(11))


# --- images


def test_names_of_folders_are_labels(tmp_path):
    folder_of(tmp_path / "cats" / "young", PIXELS[:3])
    folder_of(tmp_path / "dogs", PIXELS[3:])
    (tmp_path / "cats" / ".hidden.png").write_bytes(b"nothing")
    opened = open_path(tmp_path)
    np.testing.assert_array_equal(everything(opened.source), PIXELS)
    assert opened.labels.tolist() == ["cats"] * 3 + ["dogs"] * 8
    Image.fromarray(PIXELS[0]).save(tmp_path / "z.png")
    assert open_path(tmp_path).labels is None


def test_one_image_in_colour_makes_all_so(tmp_path):
    folder_of(tmp_path, PIXELS, "a{:02d}.png")
    Image.fromarray(COLOURS[0]).save(tmp_path / "b.png")
    source = open_path(tmp_path).source
    assert source.item_shape == (6, 4, 3)
    np.testing.assert_array_equal(source.take(np.array([0]))[0], np.repeat(PIXELS[0][..., None], 3, axis=2))
    np.testing.assert_array_equal(source.take(np.array([11]))[0], COLOURS[0])


def test_images_of_other_formats(tmp_path):
    flat = np.full((8, 8, 3), (200, 100, 50), np.uint8)
    for end in ("jpg", "jpeg", "gif", "webp", "tiff"):
        Image.fromarray(flat).save(tmp_path / f"x.{end}")
    Image.fromarray(flat).quantize().save(tmp_path / "palette.png", transparency=b"\x80" * 3)
    values = everything(open_path(tmp_path).source)
    assert values.shape == (6, 8, 8, 3)
    assert np.abs(values.astype(int) - flat).max() <= 6


def test_images_are_turned_as_the_camera_says(tmp_path):
    notes = Image.Exif()
    notes[0x0112] = 6
    Image.fromarray(PIXELS[0]).save(tmp_path / "a.png", exif=notes)
    source = open_path(tmp_path).source
    assert source.item_shape == (4, 6)
    np.testing.assert_array_equal(everything(source)[0], np.rot90(PIXELS[0], -1))


def test_images_are_resized(tmp_path):
    folder_of(tmp_path, [np.full((5, 9), 7, np.uint8), np.full((8, 4), 9, np.uint8)])
    opened = open_path(tmp_path, image_size=(8, 12))
    assert opened.source.item_shape == (8, 12)
    np.testing.assert_array_equal(everything(opened.source)[:, 0, 0], [7, 9])


def test_images_are_decoded_once_if_they_fit(tmp_path, monkeypatch):
    folder_of(tmp_path, PIXELS)
    decoded = []
    monkeypatch.setattr(
        images.ImageSource, "_decode", lambda self, i, real=images.ImageSource._decode: decoded.append(i) or real(self, i)
    )
    source = open_path(tmp_path).source
    assert decoded == []
    for _ in range(3):
        np.testing.assert_array_equal(source.take(np.array([4, 2, 4])), PIXELS[[4, 2, 4]])
    assert sorted(set(decoded)) == [2, 4]
    assert len(decoded) <= 3
    monkeypatch.setattr(images, "MEMORY_BYTES", 10)
    again = open_path(tmp_path).source
    np.testing.assert_array_equal(again.take(np.array([4, 2, 4])), PIXELS[[4, 2, 4]])


# --- what cannot be opened


def put(name, content):
    def write(path):
        (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return path / name

    return write


def saved(name, **arrays_):
    def write(path):
        np.savez(path / name, **arrays_)
        return path / name

    return write


def parquet(table):
    def write(path):
        pq.write_table(pa.table(table) if isinstance(table, dict) else table, path / "x.parquet")
        return path / "x.parquet"

    return write


def cut(write, keep):
    """Write a file, then only keep so much of it."""

    def write_and_cut(path):
        file, _ = write(path)
        content = file.read_bytes()
        file.write_bytes(content[: int(len(content) * keep)])
        return file

    return write_and_cut


def scratched(write, at):
    """Write a file, then spoil some bytes of it."""

    def write_and_spoil(path):
        file, _ = write(path)
        content = bytearray(file.read_bytes())
        start = int(len(content) * at)
        content[start : start + 40] = b"\xff" * 40
        file.write_bytes(content)
        return file

    return write_and_spoil


def object_npy(path):
    np.save(path / "x.npy", np.array([[1, "a"], [2, None]], dtype=object))
    return path / "x.npy"


def npy_of(values):
    def write(path):
        np.save(path / "x.npy", values)
        return path / "x.npy"

    return write


def images_of_two_sizes(path):
    folder_of(path, [PIXELS[0], PIXELS[0][:4]])
    return path


def damaged_image(path):
    folder_of(path, PIXELS)
    (path / "005.png").write_bytes(b"not an image")
    return path


def deep_and_flat(path):
    folder_of(path, [PIXELS[0].astype(np.uint16), PIXELS[0]])
    return path


def images_and_tables(path):
    write_parquet(path)
    return folder_of(path, PIXELS)


def other_parts(path):
    write_parquet_parts(path)
    pq.write_table(pa.table({"z": [1.0]}), path / "part-9.parquet")
    return path


def idx_with_few_labels(path):
    (path / "a-images-idx3-ubyte").write_bytes(idx(PIXELS))
    (path / "a-labels-idx1-ubyte").write_bytes(idx(np.arange(3, dtype=np.uint8)))
    return path / "a-images-idx3-ubyte"


def sparse_parts(**changes):
    """A matrix (2, 4) by rows, with parts that are not what they should be."""
    parts = {"data": np.ones(3), "indices": np.array([0, 3, 1]), "indptr": np.array([0, 1, 3]), "shape": np.array([2, 4])}
    return saved("x.npz", **parts | changes)


def sparse_places(**changes):
    """A matrix (2, 4) by coordinates."""
    parts = {"format": b"coo", "data": np.ones(2), "row": np.array([0, 1]), "col": np.array([3, 0]), "shape": np.array([2, 4])}
    return saved("x.npz", **parts | changes)


BAD = {
    "missing": (lambda path: write_csv(path)[0].with_suffix(".cvs"), ["no file or folder", "Did you mean", "x.csv"]),
    "missing folder": (lambda path: path / "nowhere" / "x.csv", ["folder", "does not exist"]),
    "nothing alike": (lambda path: path / "x.csv", ["no file or folder", "Check the path"]),
    "unknown ending": (put("x.docx", "text"), ["'.docx'", ".npy", ".parquet", "folders of images"]),
    "unknown packed": (put("x.tar.gz", "text"), ["'.tar.gz'", ".csv.gz"]),
    "no ending": (put("x", "text"), ["no known ending", ".npy"]),
    "one image": (put("x.png", "text"), ["folder of images"]),
    "empty folder": (lambda path: path, ["folder of images, of text or of Parquet", "nothing"]),
    "other folder": (lambda path: write_csv(path)[0].parent, ["holds x.csv"]),
    "images and tables": (images_and_tables, ["both"]),
    **{f"empty {end}": (put(f"x.{end}", ""), ["empty"]) for end in ("npy", "npz", "csv", "tsv", "parquet", "idx")},
    **{
        f"{end} of text": (put(f"x.{end}", "this is just text\n" * 20), ["x." + end, "anew"])
        for end in ("npy", "npz", "parquet", "idx", "idx.gz", "csv.gz")
    },
    "short npy": (cut(write_npy, 0.6), ["damaged", "anew"]),
    "short npz": (cut(write_npz, 0.6), ["damaged", "anew"]),
    "short parquet": (cut(write_parquet, 0.6), ["damaged", "anew"]),
    "short idx": (cut(write_idx, 0.6), ["cut short", "anew"]),
    "very short idx": (put("x.idx", b"\0\0\x08\x03\0\0"), ["cut short"]),
    "short idx.gz": (cut(write_idx_packed, 0.6), ["anew"]),
    "short csv.gz": (cut(write_csv_packed, 0.6), ["anew"]),
    "spoilt npz": (scratched(write_npz_packed, 0.4), ["damaged", "anew"]),
    "spoilt parquet": (scratched(write_parquet, 0.05), ["damaged", "anew"]),
    "spoilt idx.gz": (scratched(write_idx_packed, 0.4), ["anew"]),
    "long idx": (put("x.idx", idx(PIXELS) + b"more"), ["got more"]),
    "idx without samples": (put("x.idx", idx(PIXELS[:0])), ["empty"]),
    "idx of labels": (put("train-labels-idx1-ubyte", idx(PIXELS[:, 0, 0].copy())), ["labels", "Open the images"]),
    "idx with few labels": (idx_with_few_labels, ["11 samples", "3"]),
    "npy of objects": (object_npy, ["Python objects", "astype(float)"]),
    "npz of objects": (saved("x.npz", X=np.array([[1, "a"]], dtype=object)), ["Python objects"]),
    "npz with labels of objects": (saved("x.npz", X=ROWS, y=np.array([None] * 23)), ["'y'", "Python objects"]),
    "npy of text": (npy_of(np.array([["a", "b"]])), ["numbers", "<U1"]),
    "npy of complex numbers": (npy_of(ROWS + 1j), ["numbers", "complex128"]),
    "npy with one axis": (npy_of(np.arange(5)), ["2, 3 or 4 axes", "(5,)"]),
    "npy without rows": (npy_of(ROWS[:0]), ["empty array", "(0, 5)"]),
    "npz of many": (saved("x.npz", a=ROWS, b=PIXELS), ["'a' of shape (23, 5)", "--key"]),
    "npz of none": (saved("x.npz", word=np.array("a")), ["'word'", "--key"]),
    "npz with few labels": (saved("x.npz", X=ROWS, y=np.arange(3)), ["23 samples", "3 in 'y'"]),
    "sparse that does not fit": (sparse_parts(indices=np.array([0, 9, 1])), ["x.npz", "damaged"]),
    "sparse with a column far out": (sparse_parts(format=b"csr", indices=np.array([0, 10**9, 1])), ["x.npz", "damaged"]),
    "sparse with a row far out": (sparse_parts(format=b"csc", indices=np.array([0, 10**9, 1])), ["x.npz", "damaged"]),
    "sparse with a negative column": (sparse_parts(format=b"csr", indices=np.array([0, -1, 1])), ["x.npz", "damaged"]),
    "sparse with starts out of order": (sparse_parts(format=b"csr", indptr=np.array([0, 9, 3])), ["x.npz", "damaged"]),
    "sparse with negative starts": (sparse_parts(format=b"csr", indptr=np.array([0, -5, 3])), ["x.npz", "damaged"]),
    "sparse without starts": (sparse_parts(indptr=np.array([], int)), ["x.npz", "damaged"]),
    "sparse without a shape": (sparse_parts(shape=np.array([], int)), ["shape of a matrix", "x.npz"]),
    "sparse of a negative shape": (sparse_parts(shape=np.array([-2, 4])), ["shape of a matrix", "(-2, 4)"]),
    "sparse of a vast shape": (sparse_places(shape=np.array([10**12, 4])), ["x.npz", "DIVA_UNPACK_GB"]),
    "sparse with fractions": (sparse_parts(indices=np.array([0, 0.5, 1])), ["whole numbers", "'indices'", "x.npz"]),
    "sparse of an unknown kind": (sparse_parts(format=b"xyz"), ["'xyz'", "csr", "x.npz"]),
    "sparse of words": (sparse_parts(data=np.array(["a", "b", "c"])), ["numbers", "<U1", "x.npz"]),
    "sparse with a place far out": (sparse_places(row=np.array([0, 2**40])), ["x.npz", "damaged"]),
    "sparse with a negative place": (sparse_places(row=np.array([0, -1])), ["x.npz", "damaged"]),
    "ragged csv": (put("x.csv", "a,b\n1,2\n3\n5,6\n"), ["2 values", "got 1", "line 3"]),
    "text in a csv": (put("x.csv", "a,b\n1,2\n3,4\nfive,6\n"), ["'a'", "'five' in line 4", "--columns", "--label-column"]),
    "a column of text": (put("x.csv", "a,b\n1,x\n2,y\n"), ["column 'b'", "--label-column"]),
    "text late in a csv": (put("x.csv", "a,b\n" + "1,2\n" * 300_000 + "3,four\n"), ["'b'", "'four' in line 300002"]),
    "missing in a csv": (put("x.csv", "a,b\n1,2\n3,\n"), ["'b'", "line 3", "Drop or fill"]),
    "nan in a csv": (put("x.csv", "a,b\n1,2\n3,nan\n"), ["'b'", "line 3"]),
    "infinity in a csv": (put("x.csv", "a,b\n1,2\n3,inf\n"), ["'b'", "infinite", "line 3"]),
    "csv with a header only": (put("x.csv", "a,b\n"), ["without rows"]),
    "csv with names twice": (put("x.csv", "a,a\n1,2\n"), ["'a' more than once"]),
    "csv of bytes": (put("x.csv", b"\x00\x01\x02"), ["another kind"]),
    "csv with a long line": (put("x.csv", "a,b\n1,2\n1," + "2" * 3_000_000), ["too long for a table"]),
    "csv without line ends": (put("x.csv", "a,b\n1," + "2" * 3_000_000), ["too long for a table"]),
    "csv in another encoding": (put("x.csv", b"a,b\n1,\xe9t\xe9\n"), ["'b'"]),
    "parquet of text": (parquet({"a": [1.0], "b": ["x"], "c": [None]}), ["columns 'b', 'c'", "--columns"]),
    "parquet with a gap": (parquet({"a": [1.0, None]}), ["'a'", "row 1"]),
    "parquet with nan": (parquet({"a": [1.0, 2.0], "b": [1.0, np.nan]}), ["'b'", "no number in row 1"]),
    "parquet without rows": (parquet({"a": pa.array([], pa.float32())}), ["without rows"]),
    "parquet of ragged lists": (parquet({"v": [[1.0, 2.0], [3.0]]}), ["'v'", "2 numbers in row 0 and 1 in row 1"]),
    "parquet of lists with a gap": (parquet({"v": [[1.0, 2.0], [3.0, None]]}), ["'v'", "row 1"]),
    "parquet of empty lists": (parquet({"v": pa.array([[], []], pa.list_(pa.float32()))}), ["lists without any"]),
    "parts with other columns": (other_parts, ["part-9.parquet", "others than", "part-0.parquet"]),
    "images of two sizes": (images_of_two_sizes, ["000.png is 6 x 4", "001.png is 4 x 4", "--image-size"]),
    "a damaged image": (damaged_image, ["005.png", "damaged"]),
    "deep and flat images": (deep_and_flat, ["000.png has more than 256", "001.png"]),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_opened_says_why(case, tmp_path):
    write, words = BAD[case]
    with pytest.raises(DataError) as caught:
        open_path(write(tmp_path))
    message = str(caught.value)
    for word in words:
        assert word in message
    assert "\n" not in message
    assert message.endswith((".", "?"))


def test_an_image_cut_short_is_named_when_it_is_needed(tmp_path):
    noise = RNG.integers(0, 256, size=(3, 64, 64), dtype=np.uint8)
    folder_of(tmp_path, noise)
    content = (tmp_path / "001.png").read_bytes()
    (tmp_path / "001.png").write_bytes(content[: len(content) // 2])
    source = open_path(tmp_path).source
    np.testing.assert_array_equal(source.take(np.array([0, 2])), noise[[0, 2]])
    with pytest.raises(DataError, match=r"001\.png is damaged"):
        source.take(np.array([0, 1]))


@pytest.mark.parametrize(
    ("write", "options", "words"),
    [
        (write_csv, {"columns": ["a", "dd"]}, ["'dd'", "'a', 'b', 'c', 'd', 'e'", "Did you mean 'd'"]),
        (write_parquet, {"label_column": "kind"}, ["'kind'"]),
        (write_csv, {"columns": ["a", "a"]}, ["once"]),
        (write_csv, {"columns": []}, ["--columns"]),
        (write_npy, {"columns": ["a"]}, ["tables"]),
        (write_grey_images, {"label_column": "a"}, ["tables"]),
        (write_npz, {"key": "x"}, ["'x'", "'X' of shape (23, 5)"]),
        (write_grey_images, {"image_size": (0, 5)}, ["height and a width"]),
    ],
)
def test_options_that_do_not_fit(write, options, words, tmp_path):
    with pytest.raises(DataError) as caught:
        open_path(write(tmp_path)[0], **options)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_a_text_is_no_label(end, tmp_path):
    table = frame().assign(y=["x"] * (len(ROWS) - 1) + ["long" * 1000])
    path = tmp_path / f"x.{end}"
    table.to_csv(path, index=False) if end == "csv" else table.to_parquet(path)
    with pytest.raises(DataError, match=r"at most 1,000 characters in column 'y' of .*got one of 4,000"):
        open_path(path, label_column="y")


def test_a_missing_label_is_named(tmp_path):
    path = put("x.csv", "a,y\n1,x\n2,\n")(tmp_path)
    with pytest.raises(DataError, match=r"label in every row of column 'y'.*line 3"):
        open_path(path, label_column="y")


def test_labels_that_begin_with_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "HEAD_BYTES", 64)
    kinds = ["1"] * 40 + ["one"]
    pd.DataFrame({"a": np.arange(41.0), "y": kinds}).to_csv(tmp_path / "x.csv", index=False)
    assert open_path(tmp_path / "x.csv", label_column="y").labels.tolist() == kinds


def test_text_in_columns_that_are_not_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "HEAD_BYTES", 64)
    pd.DataFrame({"a": np.arange(41.0), "y": ["1"] * 40 + ["one"]}).to_csv(tmp_path / "x.csv", index=False)
    np.testing.assert_array_equal(everything(open_path(tmp_path / "x.csv", columns=["a"]).source)[:, 0], np.arange(41.0))


@pytest.mark.parametrize("path", ["", "x" * 5000 + ".csv", "a\0b.csv"])
def test_what_is_no_path(path):
    with pytest.raises(DataError, match="path"):
        open_path(path)


def test_names(tmp_path):
    for name, title in [("x.csv", "x"), ("y.csv.gz", "y")]:
        frame().to_csv(tmp_path / name, index=False)
        assert open_path(tmp_path / name).name == title
    assert open_path(write_idx_packed(tmp_path)[0]).name == "train-images-idx3-ubyte"
    assert open_path(write_parquet_parts(tmp_path)[0]).name == tmp_path.name


@pytest.mark.parametrize(("text", "names"), [("\n1;2\n3;4\n", ("column_1", "column_2")), ("\n\na;b\n\n1;2\n3;4\n", ("a", "b"))])
def test_empty_lines_are_no_names(text, names, tmp_path):
    (tmp_path / "x.csv").write_text(text)
    opened = open_path(tmp_path / "x.csv")
    assert opened.feature_names == names
    assert opened.source.take(np.arange(2)).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_names_that_are_not_utf8(tmp_path):
    folder_of(tmp_path / "cats", PIXELS[:2])
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(folder)
    os.replace(tmp_path / "cats", os.path.join(folder, os.fsdecode(b"\xe9t\xe9")))
    opened = open_path(folder)
    assert (opened.name, *opened.labels) == ("caf?", "?t?", "?t?")
    assert opened.sample_names == ("?t?/000.png", "?t?/001.png")


def test_labels_in_another_encoding(tmp_path):
    path = put("x.csv", b"a,y\n1,\xe9t\xe9\n")(tmp_path)
    with pytest.raises(DataError, match="UTF-8"):
        open_path(path, label_column="y")


ENDINGS = ("npy", "npz", "csv", "csv.gz", "parquet", "idx", "idx.gz", "png")


@pytest.mark.parametrize("end", ENDINGS)
def test_a_file_that_may_not_be_read(end, for_others):
    path = for_others(f"folder/x.{end}", b"content")
    with pytest.raises(DataError, match=rf"x\.{end} may not be read"):
        open_path(path.parent if end == "png" else path)


@pytest.mark.parametrize("end", ENDINGS)
def test_a_pipe_is_not_waited_for(end, tmp_path):
    os.mkfifo(tmp_path / f"x.{end}")
    with pytest.raises(DataError, match=rf"x\.{end} is a folder, a pipe or a device"):
        open_path(tmp_path if end == "png" else tmp_path / f"x.{end}")


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, ["is full", "TMPDIR"]), (errno.EACCES, ["no temporary file can be written", "TMPDIR"])],
)
def test_no_room_for_temporary_files(number, words, tmp_path, monkeypatch):
    class Full:
        def write(self, _):
            raise OSError(number, os.strerror(number))

        def close(self):
            pass

    monkeypatch.setattr(spool, "MEMORY_BYTES", 100)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(DataError) as caught:
        open_path(write_parquet(tmp_path)[0])
    for word in words:
        assert word in str(caught.value)


def test_how_much_a_file_may_unpack_to(tmp_path, monkeypatch):
    path, expected = write_csv_packed(tmp_path)
    monkeypatch.setattr(files, "UNPACKED_BYTES", 100)
    monkeypatch.setattr(files, "UNPACKED_RATIO", 1)
    with pytest.raises(DataError, match=r"at most 0 MB in .*x\.csv\.gz.*DIVA_UNPACK_GB=1 "):
        open_path(path)
    monkeypatch.setenv("DIVA_UNPACK_GB", "0.5")
    np.testing.assert_array_equal(everything(open_path(path).source), expected)
    monkeypatch.setenv("DIVA_UNPACK_GB", "much")
    with pytest.raises(DataError, match="number of gigabytes in DIVA_UNPACK_GB, got 'much'"):
        open_path(path)


def test_a_bomb_of_an_archive_is_not_unpacked_in_memory(tmp_path):
    """What a header promises is not made room for before it is there."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive, archive.open("X.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 10)})
        file.write(b"\0" * 80)
    with pytest.raises(DataError, match="damaged"):
        open_path(tmp_path / "x.npz")


# --- paths as data


class Model:
    """Stands for an estimator."""


@pytest.mark.parametrize("write", WRITERS)
def test_a_path_can_be_opened_as_samples(write, tmp_path):
    path, expected = write(tmp_path)
    model = Model()
    source = open_samples(model, path, reset=True)
    np.testing.assert_array_equal(everything(source), expected)
    assert model.n_features_in_ == np.prod(expected.shape[1:])
    assert not hasattr(model, "feature_names_in_")
    assert len(open_samples(model, str(path), reset=False)) == len(expected)


def test_images_in_a_file_are_checked_like_images_in_memory(tmp_path):
    with pytest.raises(ValueError, match="channels first"):
        open_samples(Model(), npy_of(np.zeros((4, 3, 32, 32)))(tmp_path), reset=True)
    with pytest.raises(ValueError, match=r"contains NaN \(sample 1, number 2\)"):
        InputPipeline.fit(Model(), npy_of(np.array([[0.0, 0, 0], [0, 0, np.nan]]))(tmp_path))


HOLES = np.array([[0.0, 0, 0], [0, 0, np.nan]])


@pytest.mark.parametrize(
    "write",
    [
        npy_of(HOLES),
        saved("x.npz", X=HOLES),
        saved("x.npz", X=np.asfortranarray(HOLES)),
        lambda path: sparse.save_npz(path / "x.npz", sparse.csr_array(HOLES)) or path / "x.npz",
        put("x.idx", idx(HOLES.astype(">f8"), 0x0E)),
    ],
    ids=["npy", "npz", "columns", "sparse", "idx"],
)
@pytest.mark.parametrize("in_memory", [True, False])
def test_the_file_with_a_hole_is_named(write, in_memory, tmp_path, monkeypatch):
    if not in_memory:
        monkeypatch.setattr(spool, "MEMORY_BYTES", 1)
        monkeypatch.setattr(npy, "MEMORY_BYTES", 1)
    data = open_path(write(tmp_path))
    for source in (data.source, data.first(2).source):
        with pytest.raises(ValueError, match=r"/x\.(npy|npz|idx) contains NaN \(sample 1, number 2\)"):
            InputPipeline.fit(Model(), source)
    with pytest.raises(ValueError, match=r"Found 1 samples in .*/x\.(npy|npz|idx) while a minimum of 2"):
        InputPipeline.fit(Model(), data.first(1).source)


def test_a_word_that_is_no_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="nowhere-to-be-found"):
        open_samples(Model(), "nowhere-to-be-found", reset=True)
    with pytest.raises(DataError, match="no file or folder"):
        open_samples(Model(), "nowhere.npy", reset=True)


@pytest.mark.parametrize("write", [write_csv, write_parquet, write_npy, write_npz])
def test_a_path_gives_the_same_model(write, tmp_path):
    tiny = {"latent_dim": 2, "hidden_sizes": (8,), "n_epochs": 2, "n_laps": 1, "n_views": 1, "random_state": 0}
    path, values = write(tmp_path)
    model, same = DIVA(**tiny).fit(path), DIVA(**tiny).fit(values)
    np.testing.assert_array_equal(model.labels_, same.labels_)
    np.testing.assert_array_equal(model.transform(str(path)), same.transform(values))
