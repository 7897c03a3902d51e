"""The file of a saved model: one safetensors file whose metadata carries a JSON document.

Nothing that a file holds is ever executed: reading parses JSON and copies numbers, and refuses everything else. Files are
read and written as numpy arrays, so that those who need no networks, such as reports, need no torch.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short_repr  # a damaged file may hold a very long string
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from diva.atomic import write_atomically
from diva.exceptions import ModelFileError
from diva.runs.upgrade import upgraded

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "diva"
SCHEMA = "4"  # more than a flipped bit away from the others
READABLE = ("1", "2", SCHEMA)  # older ones are upgraded
DTYPES = ("float64", "float32", "int64", "uint8", "bool")

AnyPath: TypeAlias = str | os.PathLike[str]
Value = TypeVar("Value")
Arrays: TypeAlias = dict[str, NDArray[Any]]
Tensors: TypeAlias = "Mapping[str, Tensor] | Mapping[str, NDArray[Any]]"

_WHEN_READING = "Save the model again, or restore the file from a copy."
_WHEN_WRITING = "Nothing was written. Correct the model, then save it again."


@dataclass(frozen=True, slots=True)
class Archive:
    """What a model file holds."""

    kind: str
    document: dict[str, Any]
    tensors: dict[str, Tensor]


def write_archive(path: AnyPath, kind: str, document: dict[str, Any], tensors: Tensors, *, follow_links: bool = True) -> None:
    """Write a model file: all of it, or nothing; a file already there, or the one that a link names, is replaced in one step.

    Tuples in the document come back as lists, and keys as strings; tensors, which may be on any device, on the CPU. Raises
    ModelFileError if the document is no JSON, or a tensor is not finite or of no dtype in ``DTYPES``, or the path is a folder.
    """
    target = Path(os.path.realpath(path) if follow_links else path)
    if not target.parent.is_dir():
        advice = f"Create the folder {str(target.parent)!r} first, or choose another."
        raise FileNotFoundError(f"Could not write {os.fspath(path)!r}: its folder does not exist. {advice}")
    if target.exists():
        _check_is_file(path)
    write_atomically(target, _serialize(path, kind, document, tensors), shown=path)


def read_archive(path: AnyPath, *, kinds: Collection[str]) -> Archive:
    """Read a model file, or refuse it, with tensors of torch; as ``read_arrays`` otherwise."""
    import torch

    kind, document, arrays = read_arrays(path, kinds=kinds)
    return Archive(kind, document, {name: torch.from_numpy(array) for name, array in arrays.items()})


def read_arrays(path: AnyPath, *, kinds: Collection[str]) -> tuple[str, dict[str, Any], Arrays]:
    """Kind, document and arrays of a model file.

    Raises ModelFileError if it is damaged, incomplete, not a diva model, of another schema or of none of the kinds.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no file {os.fspath(path)!r}. Check the path, from {os.getcwd()!r}.")
    _check_is_file(path)
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            metadata: dict[str, str] = file.metadata() or {}
            _check_metadata(path, metadata, kinds)
            # Copies: safetensors may return views of the mapped file, which change or crash when it does.
            arrays = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except ModelFileError:
        raise
    except (SafetensorError, AttributeError, OverflowError, TypeError, ValueError) as error:  # numpy's, of impossible shapes
        found = f"it cannot be read as one ({str(error)[:200]})"
        raise _refusal(path, "be a complete safetensors file", found) from error
    kind, text = metadata["kind"], metadata["document"]
    # The checksum detects damage, not malice: whoever edits a file can update it. So the structure is checked as well.
    if metadata["sha256"] != _checksum(kind, text, arrays) or not _is_padded_with_spaces(path):
        raise _refusal(path, "match its checksum", "its content has changed since it was written")
    _check_tensors(path, arrays, _WHEN_READING)
    document = _parse_document(path, text)
    if metadata["schema"] != SCHEMA:
        try:
            document, arrays = upgraded(metadata["schema"], kind, document, arrays)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _refusal(path, "be whole", f"parts of it are missing ({type(error).__name__}: {error})") from error
    return kind, document, arrays


def parts_with(tensors: Mapping[str, Value], prefix: str) -> dict[str, Value]:
    """Tensors whose name begins with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _serialize(path: AnyPath, kind: str, document: dict[str, Any], tensors: Tensors) -> bytes:
    for name, tensor in tensors.items():
        _check_dtype(path, name, tensor, _WHEN_WRITING)
    arrays = {name: np.ascontiguousarray(t if isinstance(t, np.ndarray) else t.detach().cpu()) for name, t in tensors.items()}
    arrays = {name: array.reshape(tensors[name].shape) for name, array in arrays.items()}  # a number stays a number
    _check_tensors(path, arrays, _WHEN_WRITING)
    try:
        text = json.dumps(document, allow_nan=False)
        metadata = {"format": FORMAT, "schema": SCHEMA, "kind": kind, "document": text}
        return save(arrays, metadata | {"sha256": _checksum(kind, text, arrays)})
    except (TypeError, ValueError, RecursionError, SafetensorError) as error:
        expected = "carry a document of finite numbers, strings, lists and dicts, below 100 MB as JSON"
        raise _refusal(path, expected, f"it cannot be stored ({error})", _WHEN_WRITING) from error


def _checksum(kind: str, text: str, arrays: Arrays) -> str:
    ordered = sorted(arrays.items())
    layout = [(name, f"torch.{array.dtype}", list(array.shape)) for name, array in ordered]
    digest = hashlib.sha256(json.dumps([kind, text, layout]).encode())
    for _, array in ordered:
        digest.update(array.reshape(-1).view(np.uint8).data)
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
        raise _refusal(path, f"hold one of {sorted(kinds)}", f"it holds {short_repr(kind)}", "Load it with what saved it.")
    if missing := {"document", "sha256"} - metadata.keys():
        raise _refusal(path, "have a document and a checksum", f"it lacks {sorted(missing)}")


def _check_tensors(path: AnyPath, arrays: Arrays, advice: str) -> None:
    for name, array in arrays.items():
        if not name.isprintable() or name == "__metadata__":
            raise _refusal(path, "name its tensors in printable characters", f"has {short_repr(name)}", advice)
        _check_dtype(path, name, array, advice)
        if not np.isfinite(array).all():
            raise _refusal(path, "hold finite tensors", f"{short_repr(name)} has NaN or infinite values", advice)


def _check_dtype(path: AnyPath, name: str, values: Tensor | NDArray[Any], advice: str) -> None:
    dtype = str(values.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise _refusal(path, f"hold tensors of {', '.join(DTYPES)}", f"{short_repr(name)} is of {dtype}", advice)


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
