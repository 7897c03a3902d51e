"""Files that an enemy could send: each function writes one, and returns what to open and how. All must be refused.

To add one, write a function here; its name says what is wrong with the file, the first word of what kind it is.
"""

import gzip
import io
import json
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.fuzz.readers import example_run

from diva.runs.archive import read_archive, write_archive

MEGABYTE = 1 << 20
BOMB = 300  # megabytes, more than any small file may unpack to
ROWS = np.arange(12.0).reshape(3, 4)
PARTS = {"data": np.ones(3), "indices": np.array([0, 3, 1]), "indptr": np.array([0, 1, 3]), "shape": np.array([2, 4])}


def npz(path: Path, **arrays: object) -> Path:
    np.savez(path / "x.npz", **arrays)
    return path / "x.npz"


def header(descr="<f8", shape="(3, 4)", order="False", version=(1, 0)) -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text


def raw(text: bytes) -> bytes:
    """A header of any text."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def archive(path: Path, *, method: int = zipfile.ZIP_DEFLATED, **members: bytes) -> Path:
    with zipfile.ZipFile(path / "x.npz", "w", method) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path / "x.npz"


def bomb(path: Path, name: str, start: bytes, **members: bytes) -> Path:
    """An archive with one member that begins with ``start`` and goes on with zeros."""
    place = archive(path, **members)
    with zipfile.ZipFile(place, "a", zipfile.ZIP_DEFLATED) as file, file.open(f"{name}.npy", "w") as member:
        member.write(start)
        for _ in range(BOMB):
            member.write(bytes(MEGABYTE))
    return place


def written(path: Path, name: str, content: bytes) -> Path:
    (path / name).write_bytes(content)
    return path / name


# --- sparse matrices in .npz


def npz_sparse_column_far_out(path):
    return npz(path, **PARTS | {"format": b"csr", "indices": np.array([0, 10**9, 2])})


def npz_sparse_row_far_out(path):
    return npz(path, **PARTS | {"format": b"csc", "indices": np.array([0, 10**9, 2])})


def npz_sparse_negative_column(path):
    return npz(path, **PARTS | {"format": b"csr", "indices": np.array([0, -1, 2])})


def npz_sparse_no_starts(path):
    return npz(path, **PARTS | {"indptr": np.array([], int)})


def npz_sparse_starts_too_far(path):
    return npz(path, **PARTS | {"format": b"csr", "indptr": np.array([0, 1, 10**9])})


def npz_sparse_starts_fall(path):
    return npz(path, **PARTS | {"format": b"csr", "indptr": np.array([0, 10**6, 3])})


def npz_sparse_vast_shape(path):
    return npz(path, format=b"coo", data=np.ones(1), row=np.array([0]), col=np.array([0]), shape=np.array([10**13, 4]))


def npz_sparse_vast_rows(path):
    return npz(path, **PARTS | {"shape": np.array([2, 10**13])})


def npz_sparse_negative_place(path):
    return npz(path, format=b"coo", data=np.ones(1), row=np.array([-1]), col=np.array([0]), shape=np.array([2, 4]))


def npz_sparse_places_overflow(path):
    row = np.array([2**63], np.uint64)
    return npz(path, format=b"coo", data=np.ones(1), row=row, col=np.array([0]), shape=np.array([2, 4]))


def npz_sparse_diagonal_far_out(path):
    return npz(path, format=b"dia", data=np.ones((1, 4)), offsets=np.array([-(2**62)]), shape=np.array([2, 4]))


def npz_sparse_blocks_far_out(path):
    blocks = {"data": np.ones((1, 2, 2)), "indices": np.array([10**6]), "indptr": np.array([0, 1])}
    return npz(path, format=b"bsr", shape=np.array([2, 4]), **blocks)


# --- other .npz and .npy


def npz_bomb(path):
    return bomb(path, "X", header("|u1", f"({BOMB}, {MEGABYTE})"))


def npz_bomb_of_columns(path):
    return bomb(path, "X", header("|u1", f"({BOMB}, {MEGABYTE})", "True"))


def npz_bomb_of_labels(path):
    return bomb(path, "y", header(f"|S{BOMB * MEGABYTE // 3}", "(3,)"), X=header() + ROWS.tobytes())


def npz_bomb_of_a_header(path):
    return bomb(path, "X", b"\x93NUMPY\x02\x00" + struct.pack("<I", BOMB * MEGABYTE))


def npz_bomb_of_a_sparse_matrix(path):
    with io.BytesIO() as start:
        np.save(start, np.array([BOMB, MEGABYTE]))
        return bomb(
            path, "data", header("|u1", f"({BOMB * MEGABYTE},)"), shape=start.getvalue(), format=header("|S3", "()") + b"csr"
        )


def npz_says_more_than_it_has(path):
    return archive(path, X=header(shape="(1000000000000, 10)") + bytes(80))


def npz_says_less_than_it_has(path):
    return archive(path, X=header(shape="(1, 4)") + bytes(960))


def npz_negative_shape(path):
    return archive(path, X=header(shape="(-3, -4)") + bytes(96))


def npz_shape_overflows(path):
    return archive(path, X=header(shape="(4611686018427387904, 8)") + bytes(80))


def npz_wide_words(path):
    return archive(path, X=header() + ROWS.tobytes(), y=header("<U2147483647", "(3,)"))


def npz_objects(path):
    return npz(path, X=np.array([[1, "a"]], dtype=object))


def npz_encrypted(path):
    content = bytearray(npz(path, X=ROWS).read_bytes())
    for sign, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(sign) + place] |= 1
    return written(path, "x.npz", bytes(content))


def npz_unknown_packing(path):
    content = bytearray(npz(path, X=ROWS).read_bytes())
    for sign, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        content[content.index(sign) + place] = 77
    return written(path, "x.npz", bytes(content))


def npz_damaged_lzma(path):
    content = bytearray(archive(path, method=zipfile.ZIP_LZMA, X=header() + ROWS.tobytes()).read_bytes())
    content[60:80] = b"\xff" * 20
    return written(path, "x.npz", bytes(content))


def npz_header_of_brackets(path):
    return archive(path, X=raw(b"(" * 9000))


def npz_header_of_minus_signs(path):
    return archive(path, X=raw(b"-" * 9000 + b"1\n"))


def npz_header_of_a_program(path):
    return archive(path, X=raw(b"__import__('os').getpid()\n"))


def npy_header_without_an_end(path):
    return written(path, "x.npy", raw(b"{'descr': '''\n"))


def npy_says_more_than_it_has(path):
    return written(path, "x.npy", header(shape="(1000000000000, 10)") + bytes(80))


def npy_shape_overflows(path):
    return written(path, "x.npy", header(shape="(4611686018427387904, 8)") + bytes(80))


def npy_negative_shape(path):
    return written(path, "x.npy", header(shape="(-3, 4)") + bytes(96))


def npy_objects(path):
    np.save(path / "x.npy", np.array([[1, "a"]], dtype=object))
    return path / "x.npy"


# --- tables


def packed(path: Path, name: str, start: bytes, block: bytes, end: bytes = b"") -> Path:
    """A file of the block again and again; parts that are packed each by itself are one file."""
    times = BOMB * MEGABYTE // len(block)
    return written(path, name, gzip.compress(start) + times * gzip.compress(block) + gzip.compress(end))


def csv_bomb(path):
    return packed(path, "x.csv.gz", b"a,b\n", (b"0" * 60 + b"1,2\n") * 10_000)


def csv_bomb_of_empty_lines(path):
    return packed(path, "x.csv.gz", b"a,b\n1,2\n", b"\n" * 400_000, b"3,4\n")


def csv_bomb_of_one_line(path):
    return packed(path, "x.csv.gz", b"a,b\n", b"0," * 200_000)


def csv_bomb_of_one_cell(path):
    return packed(path, "x.csv.gz", b"a,b\n", b"0" * 400_000)


def csv_bomb_of_a_quote(path):
    return packed(path, "x.csv.gz", b'a,b\n1,"', b"x\n" * 200_000)


def csv_many_columns(path):
    return written(path, "x.csv", b"0," * 3_000_000 + b"0\n")


def csv_many_columns_in_quotes(path):
    return written(path, "x.csv", b'"a\n",' * 3_000_000 + b"0\n1,2\n")


def csv_null_bytes(path):
    return written(path, "x.csv", b"a,b\n" + bytes(1000))


def csv_of_no_packing(path):
    return written(path, "x.csv.gz", b"a,b\n1,2\n")


def csv_cut_short(path):
    return written(path, "x.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 1000)[:-20])


def csv_long_label(path):
    return written(path, "x.csv", b"a,y\n" + b"1,x\n" * 50_000 + b"2," + b"x" * 500_000 + b"\n"), {"label_column": "y"}


def parquet(path: Path, table: pa.Table, times: int = 1) -> Path:
    with pq.ParquetWriter(path / "x.parquet", table.schema, compression="zstd", store_schema=False) as writer:
        for _ in range(times):
            writer.write_table(table)
    return path / "x.parquet"


def parquet_bomb(path):
    return parquet(path, pa.table({"a": np.zeros(1_000_000)}), BOMB // 7)


def parquet_bomb_of_lists(path):
    return parquet(path, pa.table({"v": pa.array([np.zeros(2_000_000, np.float32)])}), BOMB // 7)


def parquet_bomb_of_labels(path):
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 50_000), pa.array(["x" * MEGABYTE])).cast(
        pa.dictionary(pa.int32(), pa.string())
    )
    table = pa.table({"a": np.zeros(50_000), "y": words})
    return parquet(path, table), {"label_column": "y"}


def parquet_long_footer(path):
    content = parquet(path, pa.table({"a": [1.0]})).read_bytes()
    return written(path, "x.parquet", content[:-8] + struct.pack("<I", 2**31 - 1) + b"PAR1")


def parquet_spoilt_footer(path):
    content = bytearray(parquet(path, pa.table({"a": [1.0]})).read_bytes())
    content[-60:-20] = b"\xff" * 40
    return written(path, "x.parquet", bytes(content))


def parquet_without_content(path):
    return written(path, "x.parquet", b"PAR1" + bytes(100) + b"PAR1")


# --- IDX


def idx(shape: tuple[int, ...], kind: int = 8) -> bytes:
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


def idx_says_more_than_it_has(path):
    return written(path, "x.idx", idx((2**32 - 1,) * 4, 0x0E) + bytes(100))


def idx_one_vast_sample(path):
    return written(path, "x.idx", idx((1, 2**31, 2**31)) + bytes(100))


def idx_packed_says_more_than_it_has(path):
    return written(path, "x.idx.gz", gzip.compress(idx((1, 2**31, 2**31)) + bytes(100)))


def idx_bomb(path):
    return packed(path, "x.idx.gz", idx((BOMB, MEGABYTE)), bytes(MEGABYTE))


def idx_unknown_kind(path):
    return written(path, "x.idx", idx((2, 2), 0x77) + bytes(4))


# --- images


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, colour: int, rows: int = 0) -> bytes:
    """An image that says its size, with so many rows of zeros."""
    packer, packed_rows = zlib.compressobj(9), []
    line = bytes(1 + width * {0: 1, 2: 3}[colour])
    for _ in range(rows):
        packed_rows.append(packer.compress(line))
    content = b"".join(packed_rows) + packer.flush()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", content) + chunk(b"IEND", b"")


def image(path: Path, content: bytes, name: str = "x.png") -> Path:
    (path / "folder").mkdir()
    written(path / "folder", name, content)
    return path / "folder"


def image_bomb(path):
    return image(path, png(10_500, 10_500, 2, 10_500))


def image_of_vast_size(path):
    return image(path, png(2**31 - 1, 2**31 - 1, 0))


def image_without_pixels(path):
    return image(path, png(1000, 1000, 2))


def image_that_is_a_program(path):
    """PIL would give it to Ghostscript, whatever its name."""
    text = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(x) print\n%%EOF\n"
    return image(path, text)


def image_cut_short(path):
    return image(path, png(64, 64, 0, 64)[:60])


# --- models


def tensors_only(path: Path, header: object, content: bytes = b"") -> Path:
    """A safetensors file of any header."""
    text = json.dumps(header).encode()
    return written(path, "x.diva", struct.pack("<Q", len(text)) + text + content)


def edited(path: Path, model: str, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """A model with another document or other tensors, and a checksum that fits."""
    whole = read_archive(example_run() / model, kinds=("DIVA", "DPMixture"))
    change(whole.document, whole.tensors)
    write_archive(path / "x.diva", whole.kind, whole.document, whole.tensors)
    return path / "x.diva"


def model_that_is_a_program(path):
    return written(path, "x.diva", b"cos\nsystem\n(S'echo'\ntR.")


def model_longer_header_than_file(path):
    return written(path, "x.diva", struct.pack("<Q", 1 << 60) + b"{}")


def model_vast_tensor(path):
    return tensors_only(path, {"a": {"dtype": "F64", "shape": [10**12], "data_offsets": [0, 8 * 10**12]}})


def model_overflowing_tensor(path):
    return tensors_only(path, {"a": {"dtype": "F64", "shape": [1 << 62, 8], "data_offsets": [0, 0]}})


def model_tensors_of_the_same_bytes(path):
    tensor = {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}
    return tensors_only(path, {"a": tensor, "b": tensor}, bytes(8))


def model_of_brackets(path):
    return written(path, "x.diva", struct.pack("<Q", 1 << 20) + b"[" * (1 << 20))


def model_of_another_kind(path):
    write_archive(path / "x.diva", "Enemy", {}, {"a": np.zeros(1)})
    return path / "x.diva"


def model_of_vast_layers(path):
    return edited(path, "model.diva", lambda document, _: document["config"].update(hidden_sizes=[10**6, 10**6]))


def model_of_vast_codes(path):
    return edited(path, "model.diva", lambda document, _: document["config"].update(latent_dim=10**9))


def model_of_negative_counts(path):
    return edited(path, "mixture.diva", lambda _, tensors: tensors["past.counts"].neg_())


def model_without_tensors(path):
    return edited(path, "mixture.diva", lambda _, tensors: tensors.clear())


def model_without_a_document(path):
    return edited(path, "model.diva", lambda document, _: document.clear())


def model_with_labels_of_no_component(path):
    return edited(path, "mixture.diva", lambda _, tensors: tensors["component_labels"].add_(10**9))


# --- folders of runs


def copied(path: Path, name: str, content: bytes) -> Path:
    """A run with another file in the place of its own, in a folder whose name is in the message."""
    folder = path / "x.run"
    shutil.copytree(example_run(), folder)
    (folder / name).write_bytes(content)
    return folder


def results_with(path: Path, **facts: object) -> Path:
    known = json.loads((example_run() / "results.json").read_text())
    return copied(path, "results.json", json.dumps(known | facts).encode())


def run_of_brackets(path):
    return copied(path, "results.json", b"[" * MEGABYTE)


def run_of_very_many_clusters(path):
    return results_with(path, n_clusters=10**12, cluster_ids=None)


def run_of_very_many_samples(path):
    return results_with(path, n_samples=10**15)


def run_of_very_wide_samples(path):
    return results_with(path, n_features=10**12)


def run_of_an_endless_summary(path):
    folder = copied(path, "results.json", b"")
    (folder / "results.json").unlink()
    (folder / "results.json").symlink_to("/dev/zero")
    return folder


def run_of_an_endless_snapshot(path):
    folder = copied(path, "snapshot.safetensors", b"")
    (folder / "snapshot.safetensors").unlink()
    (folder / "snapshot.safetensors").symlink_to("/dev/zero")
    return folder


def run_of_another_snapshot(path):
    return copied(path, "snapshot.safetensors", (example_run() / "model.diva").read_bytes())


ATTACKS = {
    name: value
    for name, value in globals().items()
    if name.split("_")[0] in ("npz", "npy", "csv", "parquet", "idx", "image", "model", "run") and "_" in name
}
