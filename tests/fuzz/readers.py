"""Fuzz all that reads files: whatever is in them, they are read, or refused by an error of diva that names the file.

    python -m tests.fuzz.readers --kind npz                        # until stopped; guided by coverage: pip install atheris
    python -m tests.fuzz.readers --mutations 5000                  # seeded changes to whole files of all kinds, without atheris
    python -m tests.fuzz.readers --kind npz --file crash-...       # one file, with its traceback

What it finds is kept as a function of ``tests/attacks/forge.py``, or as a seed in ``found_files.txt``, which the tests replay.
"""

from __future__ import annotations

import argparse
import atexit
import inspect
import io
import json
import shutil
import struct
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse
from numpy.random import Generator
from PIL import Image
from tests.kills.scenes import FIT, ROWS, STREAM, run

from diva import DPMixture, load
from diva.data import open_path
from diva.exceptions import DataError, ModelFileError, ReportError, StreamStateError
from diva.report import write_report
from diva.runs.archive import read_archive, write_archive
from diva.runs.stream_log import read_commit
from diva.runs.summary import Summary

REFUSED = (DataError, ModelFileError, ReportError, StreamStateError)


@dataclass(frozen=True)
class Target:
    """One kind of file."""

    name: str  # of the file, in a folder of its own
    whole: Callable[[], bytes]  # a small file that can be read
    read: Callable[[Path], Any]


def samples(path: Path) -> None:
    """As a fit reads them: all of them, at least once."""
    source = open_path(path).source
    for first in range(0, min(len(source), 500), 50):
        source.take(np.arange(first, min(first + 50, len(source))))


def written(save: Callable[[Any], Any]) -> Callable[[], bytes]:
    """What a function writes to a file."""

    def content() -> bytes:
        with io.BytesIO() as file:
            save(file)
            return file.getvalue()

    return content


def table() -> pa.Table:
    """Two columns of numbers."""
    return pa.table({"a": [1.0, 2.0, 3.0], "b": [1, 2, 3]})


def picture() -> Image.Image:
    """A few pixels."""
    return Image.fromarray(np.arange(75, dtype=np.uint8).reshape(5, 5, 3))


# --- models and runs


@cache
def example_run() -> Path:
    """A small run with a stream, made once."""
    folder = Path(tempfile.mkdtemp(prefix="diva-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with chdir(folder):
        np.save("rows.npy", ROWS)
        Path("parts").mkdir()
        np.save("parts/0.npy", ROWS[:20] + 0.1)
        assert run(*FIT).exit_code == 0
        assert run(*STREAM).exit_code == 0
        DPMixture(random_state=0, max_laps=3).fit(ROWS).save("run/mixture.diva")
    return folder / "run"


def of_run(name: str) -> Callable[[], bytes]:
    """A file of the run."""
    return lambda: (example_run() / name).read_bytes()


def in_run(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Read the run with one file in the place of its own."""

    def with_run(path: Path) -> None:
        copied = path.parent / "run"
        shutil.copytree(example_run(), copied)
        shutil.copy(path, copied / path.name)
        read(copied)

    return with_run


def document(model: str) -> Callable[[], bytes]:
    """What a model file says beside its tensors."""
    return lambda: json.dumps(read_archive(example_run() / model, kinds=("DIVA", "DPMixture")).document).encode()


def forged(model: str) -> Callable[[Path], Any]:
    """A model file with another document, and a checksum that fits: as an enemy would write it."""

    def read(path: Path) -> None:
        try:
            said = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            return
        if isinstance(said, dict):
            whole = read_archive(example_run() / model, kinds=("DIVA", "DPMixture"))
            write_archive(path, whole.kind, said, whole.tensors)
            load(path)

    return read


TARGETS = {
    "npy": Target("x.npy", written(lambda file: np.save(file, ROWS[:5])), samples),
    "npz": Target("x.npz", written(lambda file: np.savez(file, X=ROWS[:5], y=np.arange(5))), samples),
    "sparse": Target("x.npz", written(lambda file: scipy.sparse.save_npz(file, scipy.sparse.csr_array(ROWS[:5]))), samples),
    "csv": Target("x.csv", lambda: b'a,"b ""x""\n",c\n1,2.5,3\n-4e3,5,6\n"7",8,9\n', samples),
    "parquet": Target("x.parquet", written(lambda file: pq.write_table(table(), file)), samples),
    "idx": Target("x.idx", lambda: bytes([0, 0, 8, 3]) + struct.pack(">3I", 4, 3, 3) + bytes(range(36)), samples),
    "png": Target("images/x.png", written(lambda file: picture().save(file, "png")), lambda path: samples(path.parent)),
    "jpeg": Target("images/x.jpg", written(lambda file: picture().save(file, "jpeg")), lambda path: samples(path.parent)),
    "model": Target("x.diva", of_run("model.diva"), load),
    "mixture": Target("x.diva", document("mixture.diva"), forged("mixture.diva")),
    "diva": Target("x.diva", document("model.diva"), forged("model.diva")),
    "results": Target("results.json", of_run("results.json"), in_run(lambda folder: write_report(folder, projection="codes"))),
    "snapshot": Target("snapshot.safetensors", of_run("snapshot.safetensors"), in_run(Summary.read)),
    "stream": Target("stream.json", of_run("stream/stream.json"), lambda path: read_commit(path.parent)),
}


def outcome(kind: str, content: bytes) -> str:
    """``read`` or ``refused``; raises whatever else comes of a file."""
    target = TARGETS[kind]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        path = Path(folder, target.name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        try:
            target.read(path)
        except REFUSED as error:
            if folder not in str(error):
                raise AssertionError(f"the message does not name the file: {error}") from error
            return "refused"
    return "read"


# --- seeded changes


def mutated(chance: Generator, content: bytes) -> bytes:
    """A file with one to four places changed: bits, numbers, spans lost, doubled or swapped, or an end cut off."""
    changed = bytearray(content)
    for _ in range(int(chance.integers(1, 5))):
        if not changed:
            break
        first = int(chance.integers(len(changed)))
        span = slice(first, first + int(chance.integers(1, 9)))
        match int(chance.integers(7)):
            case 0:
                changed[first] ^= 1 << int(chance.integers(8))
            case 1:
                changed[span] = chance.choice(NUMBERS)
            case 2:
                del changed[span]
            case 3:
                changed[first:first] = changed[span] * int(chance.integers(1, 40))
            case 4:
                del changed[first:]
            case 5:
                changed[span] = bytes(chance.integers(0, 256, size=4, dtype=np.uint8))
            case _:
                other = int(chance.integers(len(changed)))
                changed[first], changed[other] = changed[other], changed[first]
    return bytes(changed)


NUMBERS = [b"-1", b"0", b"1e999", b"NaN", b"null", b"[]", b"{}", b'""', b"true", b"99999999999999999999", b"\xff" * 8, bytes(8)]


def try_mutations(kind: str, n_mutations: int, seed: int) -> list[str]:
    """Failures of so many seeded changes, as lines to keep."""
    whole, failures = TARGETS[kind].whole(), []
    assert outcome(kind, whole) == "read"
    for number in range(n_mutations):
        try:
            outcome(kind, mutated(np.random.default_rng([seed, number]), whole))
        except Exception as error:
            failures.append(f"{kind} {seed} {number}  # {type(error).__name__}: {' '.join(str(error).split())[:200]}")
    return failures


def instrument(change: Callable[[Any], Any]) -> None:
    """Let the functions that read files tell where they have been; they are imported already."""
    for module in [
        module for name, module in sys.modules.items() if name.startswith(("diva.data", "diva.runs", "diva.report"))
    ]:
        members = [*vars(module).values()]
        members += [member for kind in members if inspect.isclass(kind) for member in vars(kind).values()]
        for function in members:
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                change(function)


def main() -> int:
    """Fuzz one kind of file."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.readers", description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=list(TARGETS), help="of file; seeded changes are made to all kinds by default")
    parser.add_argument("--mutations", type=int, help="seeded changes to a whole file, instead of those that coverage guides")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--file", type=Path, help="read this one alone")
    options, others = parser.parse_known_args()
    if options.mutations is not None:
        failures: list[str] = []
        for kind in [options.kind] if options.kind else list(TARGETS):
            found = try_mutations(kind, options.mutations, options.seed)
            print(f"{kind}: {options.mutations} files, {len(found)} neither read nor refused", *found, sep="\n", flush=True)
            failures += found
        return int(bool(failures))
    if options.kind is None:
        parser.error(f"choose what to fuzz: --kind {'|'.join(TARGETS)}, or --mutations N for all of them")
    if options.file is not None:
        print(outcome(options.kind, options.file.read_bytes()))
        return 0
    try:
        import atheris
    except ImportError:
        print("This needs atheris: pip install 'diva-clustering[fuzz]'. Without it: --mutations 5000.", file=sys.stderr)
        return 2
    instrument(atheris.instrument_func)
    corpus = Path("build", "fuzz", "corpus", options.kind)
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "whole").write_bytes(TARGETS[options.kind].whole())
    atheris.Setup([sys.argv[0], str(corpus), *others], lambda content: outcome(options.kind, content) and None)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
