"""The file of a saved model: one safetensors file whose metadata carries a JSON document.

Nothing that a file holds is ever executed: reading parses JSON and copies numbers, and refuses everything else.
"""

import hashlib
import json
import math
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short_repr  # a damaged file may hold a very long string
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from diva.atomic import write_atomically
from diva.exceptions import ModelFileError
from diva.runs.upgrade import upgraded

FORMAT = "diva"
SCHEMA = "2"
READABLE = ("1", SCHEMA)  # older ones are upgraded
DTYPES = (torch.float64, torch.float32, torch.int64, torch.uint8, torch.bool)

AnyPath: TypeAlias = str | os.PathLike[str]
Tensors: TypeAlias = dict[str, torch.Tensor]

_WHEN_READING = "Save the model again, or restore the file from a copy."
_WHEN_WRITING = "Nothing was written. Correct the model, then save it again."


@dataclass(frozen=True, slots=True)
class Archive:
    """What a model file holds."""

    kind: str
    document: dict[str, Any]
    tensors: Tensors


def write_archive(path: AnyPath, kind: str, document: dict[str, Any], tensors: Tensors) -> None:
    """Write a model file: all of it, or nothing.

    Parameters
    ----------
    path : str or path-like
        The file to write; its folder must exist. A file already there is replaced in one step.
    kind : str
        What the file holds, for the reader to recognize.
    document : dict
        Anything JSON can hold. Tuples come back as lists, and keys as strings.
    tensors : dict of str to Tensor
        Finite tensors of a dtype in ``DTYPES``, on any device; they come back on the CPU.

    Raises
    ------
    ModelFileError
        If the document or a tensor cannot be stored, or the path is a folder.
    OSError
        If the file cannot be written. A file already there is then unchanged.
    """
    target = Path(os.path.realpath(path))  # a symbolic link stays a link
    if not target.parent.is_dir():
        advice = f"Create the folder {str(target.parent)!r} first, or choose another."
        raise FileNotFoundError(f"Could not write {os.fspath(path)!r}: its folder does not exist. {advice}")
    if target.exists():
        _check_is_file(path)

    content = _serialize(path, kind, document, tensors)
    write_atomically(target, content, shown=path)


def read_archive(path: AnyPath, *, kinds: Collection[str]) -> Archive:
    """Read a model file, or refuse it.

    Parameters
    ----------
    path : str or path-like
        A file written by ``write_archive``.
    kinds : collection of str
        The kinds the caller can use.

    Returns
    -------
    Archive
        Its tensors are copies: they do not depend on the file any more.

    Raises
    ------
    ModelFileError
        If the file is damaged, incomplete, not a diva model, of another schema or of another kind.
    OSError
        If there is no such file, or it cannot be opened.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no file {os.fspath(path)!r}. Check the path, from {os.getcwd()!r}.")
    _check_is_file(path)
    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            _check_metadata(path, metadata, kinds)
            # Copies: safetensors returns views of the mapped file, which change or crash when it does.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, RuntimeError, TypeError) as error:  # the last two are torch's, for impossible shapes
        found = f"it cannot be read as one ({str(error)[:200]})"
        raise _refusal(path, "be a complete safetensors file", found) from error

    kind, text = metadata["kind"], metadata["document"]
    # The checksum detects damage, not malice: whoever edits a file can update it. So the structure is checked as well.
    if metadata["sha256"] != _checksum(kind, text, tensors) or not _is_padded_with_spaces(path):
        raise _refusal(path, "match its checksum", "its content has changed since it was written")
    _check_tensors(path, tensors, _WHEN_READING)
    document = _parse_document(path, text)
    if metadata["schema"] != SCHEMA:
        try:
            document, tensors = upgraded(kind, document, tensors)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _refusal(path, "be whole", f"parts of it are missing ({type(error).__name__}: {error})") from error
    return Archive(kind, document, tensors)


def parts_with(tensors: Tensors, prefix: str) -> Tensors:
    """Tensors whose name begins with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _serialize(path: AnyPath, kind: str, document: dict[str, Any], tensors: Tensors) -> bytes:
    # A copy each, as safetensors refuses tensors that share memory, such as tied weights.
    copies = {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
    _check_tensors(path, copies, _WHEN_WRITING)
    try:
        text = json.dumps(document, allow_nan=False)
        metadata = {"format": FORMAT, "schema": SCHEMA, "kind": kind, "document": text}
        return save(copies, metadata | {"sha256": _checksum(kind, text, copies)})
    except (TypeError, ValueError, RecursionError, SafetensorError) as error:
        expected = "carry a document of finite numbers, strings, lists and dicts, below 100 MB as JSON"
        raise _refusal(path, expected, f"it cannot be stored ({error})", _WHEN_WRITING) from error


def _checksum(kind: str, text: str, tensors: Tensors) -> str:
    ordered = sorted(tensors.items())
    layout = [(name, str(tensor.dtype), list(tensor.shape)) for name, tensor in ordered]
    digest = hashlib.sha256(json.dumps([kind, text, layout]).encode())
    for _, tensor in ordered:
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _check_is_file(path: AnyPath) -> None:
    if not os.path.isfile(path):
        found = "it is a folder" if os.path.isdir(path) else "it is a device or a pipe"
        raise _refusal(path, "be a file", found, "Give the path of a file.")


def _check_metadata(path: AnyPath, metadata: dict[str, str], kinds: Collection[str]) -> None:
    """Check all that can be known before the tensors are read."""
    form, schema, kind = (metadata.get(key) for key in ("format", "schema", "kind"))
    if form != FORMAT:
        expected = f"be a model saved by diva, of format {FORMAT!r}"
        raise _refusal(path, expected, f"its format is {short_repr(form)}", "Check the path.")
    if schema not in READABLE:
        expected = f"have one of the schemas {READABLE}, which this diva reads"
        advice = "Read it with the version of diva that wrote it, or save the model again with this one."
        raise _refusal(path, expected, f"it has schema {short_repr(schema)}", advice)
    if kind not in kinds:
        advice = "Load it with what saved it."
        raise _refusal(path, f"hold one of {sorted(kinds)}", f"it holds {short_repr(kind)}", advice)
    if missing := {"document", "sha256"} - metadata.keys():
        raise _refusal(path, "have a document and a checksum", f"it lacks {sorted(missing)}")


def _check_tensors(path: AnyPath, tensors: Tensors, advice: str) -> None:
    for name, tensor in tensors.items():
        if not name.isprintable() or name == "__metadata__":
            raise _refusal(path, "name its tensors in printable characters", f"has {short_repr(name)}", advice)
        if tensor.dtype not in DTYPES:
            expected = f"hold tensors of {', '.join(map(str, DTYPES))}"
            raise _refusal(path, expected, f"{short_repr(name)} is of {tensor.dtype}", advice)
        if not tensor.reshape(-1).isfinite().all():
            raise _refusal(path, "hold finite tensors", f"{short_repr(name)} has NaN or infinite values", advice)


def _parse_document(path: AnyPath, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text, parse_float=_finite_float, parse_constant=_finite_float)
    except (ValueError, RecursionError) as error:
        raise _refusal(path, "carry a valid JSON document", f"it cannot be parsed ({error})") from error
    if not isinstance(document, dict):
        raise _refusal(path, "carry a JSON object", f"it carries a {type(document).__name__}")
    return document


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{short_repr(text)} is not a finite number")
    return number


def _is_padded_with_spaces(path: AnyPath) -> bool:
    """Check the only bytes that neither safetensors nor the checksum covers: the spaces that fill up the header."""
    with open(path, "rb") as file:
        header = file.read(int.from_bytes(file.read(8), "little"))
    return header.rstrip(b" ").endswith(b"}")


def _refusal(path: AnyPath, expected: str, found: str, advice: str = _WHEN_READING) -> ModelFileError:
    return ModelFileError(f"{os.fspath(path)!r} should {expected}, but {found}. {advice}")
