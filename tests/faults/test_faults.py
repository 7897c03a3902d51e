"""Whatever write fails, the folder stays of use, and the next try ends with the numbers of an undisturbed run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from diva import DPMixture
from diva.cli import app
from diva.cli._tables import TableWriter
from diva.runs.folder import RunFolder
from diva.runs.load import load

from .faults import KILLED, Disk, Kind, in_a_process

ROWS = np.concatenate([np.random.default_rng(c).normal(3 * c, 0.3, size=(20, 3)) for c in range(3)])
TINY = ["--n-epochs", "2", "--latent-dim", "2", "--hidden-sizes", "4", "--n-views", "1", "--n-laps", "1"]
TINY += ["--max-components", "3"]
FIT = ["fit", "rows.npy", "--out", "run", *TINY, "--no-report"]
RESUME = ["resume", "run", "--no-report"]
STREAM = ["stream", "run", "parts", "--batch-size", "16", "--predictions", "p.jsonl"]


def run(*args: Any) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="diva")


def done(*args: Any) -> None:
    result = run(*args)
    assert result.exit_code == 0, result.output


def answers(path: str = "run/model.diva") -> list[Any]:
    model = load(path)
    return [model.transform(ROWS).tolist(), model.predict(ROWS).tolist(), model.labels_.tolist()]


# --- what is disturbed: how to get there, what is done, how to go on, and what must be the same in the end


def try_again() -> None:
    """What a user does who reads the messages."""
    result = run(*FIT)
    if result.exit_code == 2 and "Go on with `diva resume run`" in " ".join(result.stderr.split()):
        done(*RESUME)
    elif result.exit_code == 2:
        assert "already holds a run. Choose another folder" in " ".join(result.stderr.split()), result.stderr
    else:
        assert result.exit_code == 0, result.output


def resume_again() -> None:
    result = run(*RESUME)
    assert result.exit_code == 0 or "is complete" in result.stderr, result.output


def unfinished() -> None:
    """A run that died after its first epoch."""

    def die(self: RunFolder, *args: Any) -> None:
        write(self, *args)
        os._exit(KILLED)

    write = RunFolder.write_checkpoint

    def work() -> None:
        RunFolder.write_checkpoint = die  # type: ignore[method-assign]
        run(*FIT)

    assert in_a_process(work) is None


def with_parts() -> None:
    done(*FIT)
    Path("parts").mkdir()
    for i in range(3):
        np.save(f"parts/{i}.npy", ROWS[i::3][:16] + 0.1)


def streamed() -> list[Any]:
    (model,) = Path("run/stream").glob("*.diva")
    return [Path("p.jsonl").read_text(), Path("run/stream/events.jsonl").read_text(), answers(str(model))]


def old_run() -> None:
    done(*FIT, "--random-state", 1)


def old_or_new() -> None:
    """Before another try, the folder holds the old run, or the new one as far as it has come."""
    result = run("predict", "run", "rows.npy", "--out", "between.csv")
    if result.exit_code:
        assert "Go on with `diva resume run`" in " ".join(result.stderr.split()), result.output
    done(*FIT, "--overwrite")


def table() -> str:
    return Path("p.csv").read_text()


def predict_again() -> None:
    assert not Path("p.csv").exists() or Path("p.csv").read_text().count("\n") == 61
    done("predict", "run", "rows.npy", "--out", "p.csv")


def report_again() -> None:
    done("report", "run")


def page() -> bool:
    return Path("run/report.html").read_text().rstrip().endswith("</html>")


def mixture() -> None:
    DPMixture(random_state=0).fit(ROWS[:40]).save("mixture.diva")


def save() -> Any:
    try:
        DPMixture(random_state=0).fit(ROWS).save("mixture.diva")
    except OSError as error:
        assert "Could not write 'mixture.diva'" in str(error)  # noqa: PT017
        return 1
    return 0


def save_again() -> None:
    assert len(load("mixture.diva").labels_) in (40, 60)
    save()


@dataclass(frozen=True)
class Case:
    prepare: Callable[[], None]
    work: Callable[[], Any]  # returns an exit code
    again: Callable[[], None]
    outcome: Callable[[], Any]


def command(*args: str) -> Callable[[], Any]:
    def work() -> Any:
        result = run(*args)
        known = result.exception is None or isinstance(result.exception, SystemExit)
        return result.exit_code if known else repr(result.exception)

    return work


CASES = {
    "fit": Case(lambda: None, command(*FIT), try_again, answers),
    "overwrite": Case(old_run, command(*FIT, "--overwrite"), old_or_new, answers),
    "resume": Case(unfinished, command(*RESUME), resume_again, answers),
    "stream": Case(with_parts, command(*STREAM), lambda: done(*STREAM), streamed),
    "predict": Case(lambda: done(*FIT), command("predict", "run", "rows.npy", "--out", "p.csv"), predict_again, table),
    "report": Case(lambda: done(*FIT), command("report", "run"), report_again, page),
    "save": Case(mixture, save, save_again, lambda: load("mixture.diva").score_samples(ROWS).tolist()),
}


@dataclass(frozen=True)
class Prepared:
    folder: Path
    n_writes: int
    outcome: Any
    files: set[str]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Callable[[str], Prepared]:
    """Folder in which a case begins, and how it ends undisturbed, found once."""
    found: dict[str, Prepared] = {}

    def prepare(name: str) -> Prepared:
        if name not in found:
            folder = tmp_path_factory.mktemp(name) / "begin"
            folder.mkdir()
            with inside(folder):
                np.save("rows.npy", ROWS)
                CASES[name].prepare()
            whole = folder.parent / "whole"
            shutil.copytree(folder, whole)
            with inside(whole), Disk(whole).mounted() as disk:
                assert CASES[name].work() == 0
            with inside(whole):
                found[name] = Prepared(folder, len(disk.done), CASES[name].outcome(), files_in(whole))
            shutil.rmtree(whole)
        return found[name]

    return prepare


def files_in(folder: Path) -> set[str]:
    """Files of use; a process that dies may leave a temporary one."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in paths if path.suffix != ".tmp" and path.name != "between.csv"}


class inside:  # noqa: N801  # as contextlib.chdir
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        self.before = os.getcwd()
        os.chdir(self.folder)

    def __exit__(self, *_: object) -> None:
        os.chdir(self.before)


def disturb(name: str, kind: Kind, n: int, prepared: Prepared, place: Path) -> None:
    """Let the n-th write of a case fail in a process of its own, then go on."""
    case = CASES[name]
    shutil.copytree(prepared.folder, place)
    disk = Disk(place, kind, n)

    def work() -> Any:
        with disk.mounted():
            return case.work()

    with inside(place):
        code = in_a_process(work)
        assert code in ((None,) if kind == "kill" else (0, 1)), code
        case.again()
        assert case.outcome() == prepared.outcome
        assert files_in(place) == prepared.files


@pytest.mark.parametrize("kind", ["full", "broken", "kill"])
@pytest.mark.parametrize("name", CASES)
def test_some_writes_fail(name, kind, prepared, tmp_path):
    begin = prepared(name)
    shares = {"full": (0.7,), "broken": (0.45,), "kill": (0.2, 0.9)}[kind]  # how far it comes
    for n in {int(share * begin.n_writes) for share in shares}:
        disturb(name, kind, n, begin, tmp_path / str(n))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "broken", "kill"])
@pytest.mark.parametrize("name", CASES)
def test_every_write_fails(name, kind, prepared, tmp_path):
    begin = prepared(name)
    for n in range(begin.n_writes):
        disturb(name, kind, n, begin, tmp_path / str(n))
        shutil.rmtree(tmp_path / str(n))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_of_many_writes_takes_its_place_when_it_is_whole(suffix, tmp_path):
    path = tmp_path / f"p.{suffix}"

    def write() -> None:
        with TableWriter(path) as table:
            for part in range(3):
                table.write({"a": np.arange(part, 2000)})

    with Disk(tmp_path).mounted() as disk:
        write()
    before = path.read_bytes()
    for n in range(len(disk.done)):
        with Disk(tmp_path, "full", n).mounted(), pytest.raises(OSError, match=f"Could not write .*p.{suffix}.*space"):
            write()
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == [path.name]
