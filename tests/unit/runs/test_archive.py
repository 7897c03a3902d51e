import errno
import io
import json
import os
import pickle
import stat
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from diva.exceptions import ModelFileError
from diva.runs.archive import READABLE, SCHEMA, Archive, _checksum, read_archive, write_archive

DOCUMENT = {"concentration": 1.5, "name": "æ \u2028 \x1f \x7f", "sizes": [1, 2], "nested": {"none": None, "yes": True}}
TENSORS = {"mean": torch.tensor([[1.0, -2.5], [0.0, 3e-300]], dtype=torch.float64), "step": torch.tensor(7)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.diva"


@pytest.fixture
def saved(path: Path) -> Path:
    write_archive(path, "mixture", DOCUMENT, TENSORS)
    return path


def read(path: str | os.PathLike[str]) -> Archive:
    return read_archive(path, kinds={"mixture", "diva"})


def pack(text: str = "{}", tensors: dict[str, torch.Tensor] | None = None, **changes: str | None) -> bytes:
    """Make a file with a valid checksum, as a malicious writer would; a change to None leaves that key out."""
    tensors = TENSORS if tensors is None else tensors
    kind = changes.get("kind") or "mixture"
    metadata = {"format": "diva", "schema": SCHEMA, "kind": kind, "document": text}
    metadata["sha256"] = _checksum(kind, text, {name: np.asarray(tensor) for name, tensor in tensors.items()})
    return save(tensors, {key: value for key, value in (metadata | changes).items() if value is not None})


def frame(header: bytes, data: bytes = b"") -> bytes:
    return len(header).to_bytes(8, "little") + header + data


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("mean.npy", bytes(100))
    return buffer.getvalue()


def assert_same(archive: Archive, kind: str, document: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    assert archive.kind == kind
    assert archive.document == document
    assert archive.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(archive.tensors[name], tensor.detach(), rtol=0, atol=0)


# Round trips


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (2, 3), (2, 1, 3)])
def test_round_trip_keeps_dtype_and_shape(path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensors = {"x": torch.ones(shape, dtype=dtype), "other": torch.zeros(shape)}
    write_archive(path, "mixture", DOCUMENT, tensors)
    assert_same(read(path), "mixture", DOCUMENT, tensors)


def test_round_trip_of_nothing(path: Path) -> None:
    write_archive(path, "diva", {}, {})
    assert_same(read(path), "diva", {}, {})


def test_path_may_be_a_string(path: Path) -> None:
    write_archive(str(path), "mixture", DOCUMENT, TENSORS)
    assert_same(read(str(path)), "mixture", DOCUMENT, TENSORS)


def test_round_trip_of_extreme_numbers(path: Path) -> None:
    tensors = {"x": torch.tensor([5e-324, -0.0, 1.7976931348623157e308], dtype=torch.float64)}
    document = {"x": [5e-324, 0.1 + 0.2, -1.7976931348623157e308, 2**63]}
    write_archive(path, "mixture", document, tensors)
    archive = read(path)
    assert_same(archive, "mixture", document, tensors)
    assert archive.tensors["x"][1].signbit()


def test_views_shared_memory_and_gradients_are_stored_by_value(path: Path) -> None:
    base = torch.arange(6.0).reshape(2, 3)
    weight = torch.nn.Parameter(base.clone())
    tensors = {"base": base, "same": base, "transposed": base.T, "row": base[1], "wide": base[:, :1].expand(2, 4)}
    write_archive(path, "mixture", {}, tensors | {"weight": weight})
    assert_same(read(path), "mixture", {}, tensors | {"weight": weight})


def test_read_tensors_do_not_depend_on_the_file(path: Path) -> None:
    write_archive(path, "mixture", {}, {"x": torch.ones(10_000)})
    x = read(path).tensors["x"]
    with open(path, "r+b") as file:
        file.seek(-20_000, os.SEEK_END)
        file.write(bytes(20_000))
    assert x.sum() == 10_000
    x.zero_()


def test_concurrent_reads_agree(saved: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        for archive in pool.map(read, [saved] * 20):
            assert_same(archive, "mixture", DOCUMENT, TENSORS)


def test_file_is_plain_safetensors(saved: Path) -> None:
    assert load(saved.read_bytes()).keys() == TENSORS.keys()


# Files to refuse

DEEP = 200_000
REFUSED = {
    "empty": (b"", "safetensors"),
    "random bytes": (bytes(range(256)), "safetensors"),
    "pickle": (pickle.dumps({"weights": [1.0] * 50}), "safetensors"),
    "zip": (zipped(), "safetensors"),
    "text": (b"mean,variance\n1.0,2.0\n" * 20, "safetensors"),
    "zeros": (bytes(1000), "safetensors"),
    "huge header announced": ((2**40).to_bytes(8, "little") + b"{}", "safetensors"),
    "largest header announced": (b"\xff" * 8 + b"{}", "safetensors"),
    "deeply nested header": (frame(b'{"__metadata__":' * DEEP), "safetensors"),
    "shape beyond torch": (
        frame(
            b'{"__metadata__":{"format":"diva","schema":"1","kind":"mixture","document":"{}","sha256":""},'
            b'"x":{"dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[0,0]}}'
        ),
        "safetensors",
    ),
    "many axes, NaN": (pack(tensors={"x": torch.full((1,) * 40, torch.nan)}), "'x' has NaN or infinite values"),
    "bytes after the end": (pack() + b"\0", "safetensors"),
    "no metadata": (save(TENSORS), "format is None"),
    "metadata of others": (save(TENSORS, {"format": "pt"}), "format is 'pt'"),
    "no schema": (pack(schema=None), "schemas ('1', '2', '4'), which this diva reads, but it has schema None"),
    "newer schema": (pack(schema="5"), "schemas ('1', '2', '4'), which this diva reads, but it has schema '5'"),
    "unknown schema": (pack(schema="one"), "it has schema 'one'"),
    "no kind": (pack(kind=None), "it holds None"),
    "unknown kind": (pack(kind="os.system"), "['diva', 'mixture'], but it holds 'os.system'"),
    "long kind": (pack(kind="k" * 10**6), "it holds 'kkk"),
    "no document": (pack(document=None), "lacks ['document']"),
    "no checksum": (pack(sha256=None), "lacks ['sha256']"),
    "other checksum": (pack(sha256="0" * 64), "checksum"),
    "other document": (pack(document='{"concentration": 2}'), "checksum"),
    "invalid JSON": (pack("{'concentration': 1}"), "valid JSON"),
    "empty document": (pack(""), "valid JSON"),
    "deep list": (pack('{"a":' + "[" * DEEP + "]" * DEEP + "}"), "valid JSON"),
    "deep object": (pack('{"a":' * DEEP + "1" + "}" * DEEP), "valid JSON"),
    "long integer": (pack('{"a": ' + "1" * 10_000 + "}"), "valid JSON"),
    "NaN in JSON": (pack('{"a": NaN}'), "'NaN' is not a finite number"),
    "infinity in JSON": (pack('{"a": -Infinity}'), "'-Infinity' is not a finite number"),
    "overflow in JSON": (pack('{"a": 1e999}'), "'1e999' is not a finite number"),
    "list for document": (pack("[]"), "a list"),
    "text for document": (pack('"{}"'), "a str"),
    "null for document": (pack("null"), "a NoneType"),
    "NaN tensor": (pack(tensors={"x": torch.tensor([1.0, torch.nan])}), "'x' has NaN or infinite values"),
    "infinite tensor": (pack(tensors={"x": torch.tensor(-torch.inf)}), "'x' has NaN or infinite values"),
    "unsupported dtype": (pack(tensors={"x": torch.ones(2, dtype=torch.float16)}), "'x' is of float16"),
    "unprintable name": (pack(tensors={"x\n": torch.ones(2)}), "has 'x\\n'"),
}


def test_older_schemas_are_read(path: Path) -> None:
    for schema in READABLE:
        path.write_bytes(pack('{"a": 1}', schema=schema))
        assert read(path).document == {"a": 1}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(path: Path, case: str) -> None:
    content, reason = REFUSED[case]
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        read(path)
    message = str(caught.value)
    assert repr(str(path)) in message
    assert "should" in message
    assert "but" in message
    assert reason in message
    assert len(message) < 1000


def test_accepts_what_the_refused_files_are_made_from(path: Path) -> None:
    path.write_bytes(pack())
    assert_same(read(path), "mixture", {}, TENSORS)


def test_refuses_a_huge_header(path: Path) -> None:
    size = 2**30
    with open(path, "wb") as file:
        file.write(size.to_bytes(8, "little") + b'{"__metadata__":{"format":"diva"}}')
        file.truncate(8 + size)  # a sparse file: as long as it says, and no work to write
    with pytest.raises(ModelFileError, match=r"model\.diva.*(header too large|HeaderTooLarge)"):
        read(path)


def test_refuses_a_truncated_file_at_every_length(saved: Path) -> None:
    content = saved.read_bytes()
    for length in range(len(content)):
        saved.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match=r"model\.diva"):
            read(saved)


def test_refuses_every_flipped_bit(saved: Path) -> None:
    content = saved.read_bytes()
    damaged = bytearray(content)
    for position in range(len(content)):
        for bit in range(8):
            damaged[position] = content[position] ^ 1 << bit
            saved.write_bytes(damaged)
            with pytest.raises(ModelFileError, match=r"model\.diva"):
                read(saved)
        damaged[position] = content[position]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"F64"', b'"I64"'),
        (b"[2,2]", b"[1,4]"),
        (b'"mean":', b'"mode":'),
        (b'"kind":"mixture"', b'"kind":"network"'),
        (b"1.5", b"2.5"),
    ],
)
def test_checksum_covers_every_part(saved: Path, old: bytes, new: bytes) -> None:
    content = saved.read_bytes()
    assert content.count(old) == 1
    saved.write_bytes(content.replace(old, new))
    with pytest.raises(ModelFileError, match=r"model\.diva.*should match its checksum"):
        read_archive(saved, kinds={"mixture", "network"})


@pytest.mark.parametrize("space", [b"\t", b"\n", b"\r"])
def test_refuses_other_padding(path: Path, space: bytes) -> None:
    # JSON allows these in place of the spaces that fill up a header, so safetensors reads the file.
    content = next(c for n in range(8) if b"}} " in (c := pack('{"a": "' + "x" * n + '"}')))
    path.write_bytes(content)
    read(path)
    path.write_bytes(content.replace(b"}} ", b"}}" + space))
    load(path.read_bytes())
    with pytest.raises(ModelFileError, match=r"model\.diva"):
        read(path)


class Hostile:
    """Touches a file when unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (os.mkdir, (str(self.target),))


def test_a_hostile_pickle_is_refused_and_not_run(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "touched"
    plain = pickle.dumps(Hostile(target))
    buffer = io.BytesIO()
    torch.save(Hostile(target), buffer)
    text = json.dumps({"py/object": "os.mkdir", "payload": plain.decode("latin-1")})
    for content in (plain, buffer.getvalue()):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"model\.diva"):
            read(path)
    path.write_bytes(pack(text, {"payload": torch.frombuffer(bytearray(plain), dtype=torch.uint8)}))
    read(path)
    assert not target.exists()
    pickle.loads(plain)
    assert target.exists()  # the pickle does bite


def test_refuses_a_missing_file(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.diva"):
        read(path)


def test_refuses_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="should be a file, but it is a folder"):
        read(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_refuses_a_pipe_without_waiting_for_it(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(ModelFileError, match="pipe"):
        read(path)
    with pytest.raises(ModelFileError, match="pipe"):
        write_archive(path, "mixture", DOCUMENT, TENSORS)
    assert stat.S_ISFIFO(path.stat().st_mode)


# Writes that fail

UNSTORABLE: dict[str, tuple[dict[str, Any], dict[str, torch.Tensor], str]] = {
    "NaN": ({"a": float("nan")}, {}, "document"),
    "infinity": ({"a": [float("inf")]}, {}, "document"),
    "object": ({"a": object()}, {}, "document"),
    "tensor in the document": ({"a": torch.ones(2)}, {}, "document"),
    "long integer": ({"a": 10**10_000}, {}, "document"),
    "NaN tensor": ({}, {"x": torch.tensor(torch.nan)}, "'x' has NaN"),
    "infinite tensor": ({}, {"x": torch.tensor([torch.inf])}, "'x' has NaN or infinite"),
    "half tensor": ({}, {"x": torch.ones(2, dtype=torch.float16)}, "'x' is of float16"),
    "complex tensor": ({}, {"x": torch.ones(2, dtype=torch.complex64)}, "'x' is of complex64"),
    "unprintable name": ({}, {"x\0": torch.ones(2)}, "printable"),
    "reserved name": ({}, {"__metadata__": torch.ones(2)}, "__metadata__"),
}


@pytest.mark.parametrize("case", UNSTORABLE)
def test_write_refuses_and_keeps_the_old_file(saved: Path, case: str) -> None:
    document, tensors, reason = UNSTORABLE[case]
    with pytest.raises(ModelFileError, match=r"model\.diva.*Nothing was written") as caught:
        write_archive(saved, "mixture", document, tensors)
    assert reason in str(caught.value)
    assert_untouched(saved)


def test_write_refuses_a_document_that_is_too_deep_or_holds_itself(saved: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(DEEP):
        deep = {"a": deep}
    circle: dict[str, Any] = {}
    circle["a"] = circle
    for document in (deep, circle):
        with pytest.raises(ModelFileError, match="Nothing was written"):
            write_archive(saved, "mixture", document, {})
    while deep:  # taken apart level by level
        deep = deep["a"]
    assert_untouched(saved)


@pytest.mark.slow
def test_write_refuses_a_huge_document(saved: Path) -> None:
    with pytest.raises(ModelFileError, match="below 100 MB"):
        write_archive(saved, "mixture", {"a": "x" * 100_000_000}, {})
    assert_untouched(saved)


def assert_untouched(path: Path) -> None:
    assert os.listdir(path.parent) == [path.name]
    assert_same(read(path), "mixture", DOCUMENT, TENSORS)


@pytest.mark.parametrize("function", ["replace", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
def test_a_failing_disk_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch, function: str, code: int) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(OSError, match=r"Could not write .*model\.diva.*unchanged") as caught:
            write_archive(saved, "diva", {}, {})
    assert caught.value.errno == code
    assert os.strerror(code) in str(caught.value)
    assert_untouched(saved)


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_an_interruption_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, function, interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_archive(saved, "diva", {}, {})
    assert_untouched(saved)


def test_a_write_that_stops_halfway_leaves_the_old_file(saved: Path) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"Could not write .*model\.diva.*unchanged") as caught:
            write_archive(saved, "diva", {}, {"x": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert_untouched(saved)


def test_a_folder_that_cannot_be_synced_is_no_failure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        write_archive(path, "mixture", DOCUMENT, TENSORS)
    assert_untouched(path)


def test_file_and_folder_reach_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode)))
        write_archive(path, "mixture", DOCUMENT, TENSORS)
    assert synced == [False, True]


def test_write_replaces_the_old_file(saved: Path) -> None:
    write_archive(saved, "diva", {"new": 1}, {})
    assert_same(read(saved), "diva", {"new": 1}, {})
    assert os.listdir(saved.parent) == [saved.name]


def test_write_goes_through_a_link(saved: Path) -> None:
    link = saved.with_name("link.diva")
    link.symlink_to(saved.name)
    write_archive(link, "diva", {"new": 1}, {})
    assert link.is_symlink()
    assert_same(read(saved), "diva", {"new": 1}, {})


def test_write_replaces_a_link_if_asked_to(saved: Path) -> None:
    before = saved.read_bytes()
    link = saved.parent / "link"
    link.symlink_to(saved)
    write_archive(link, "thing", {"new": 1}, {}, follow_links=False)
    assert not link.is_symlink()
    assert saved.read_bytes() == before


def test_write_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing/model\.diva.*Create the folder"):
        write_archive(tmp_path / "missing" / "model.diva", "mixture", DOCUMENT, TENSORS)
    assert os.listdir(tmp_path) == []


def test_write_below_a_file(saved: Path) -> None:
    with pytest.raises(OSError, match=r"model\.diva/below\.diva"):
        write_archive(saved / "below.diva", "mixture", DOCUMENT, TENSORS)
    assert_untouched(saved)


def test_write_onto_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="should be a file, but it is a folder"):
        write_archive(tmp_path, "mixture", DOCUMENT, TENSORS)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_written_file_has_the_usual_permissions(saved: Path) -> None:
    plain = saved.with_name("plain")
    plain.touch()
    assert saved.stat().st_mode == plain.stat().st_mode
