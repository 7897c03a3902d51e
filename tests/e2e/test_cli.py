"""The command line, end to end: every kind of source, what can be asked of a run, and what goes wrong."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from PIL import Image
from scipy import sparse
from typer.testing import CliRunner

from diva.cli import app
from diva.cli._flags import parameters_of
from diva.runs.folder import RunFolder
from diva.runs.load import MODELS, load
from diva.runs.snapshot import SNAPSHOT

TINY = ["--n-epochs", "2", "--latent-dim", "2", "--hidden-sizes", "16", "--n-views", "1"]
RNG = np.random.default_rng(0)
ROWS = np.concatenate([RNG.normal(c, 0.3, size=(40, 6)) for c in (-3, 0, 3)]).astype(np.float32)
CLASSES = np.repeat([0, 1, 2], 40)
IMAGES = np.clip(RNG.normal(60, 20, size=(60, 8, 8)) + 120 * (np.arange(60) % 2)[:, None, None], 0, 255).astype(np.uint8)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*args: Any) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="diva")


# --- ten kinds of sources and more


def npy(folder: Path) -> Path:
    np.save(folder / "rows.npy", ROWS)
    return folder / "rows.npy"


def npz(folder: Path) -> Path:
    np.savez(folder / "rows.npz", X=ROWS, y=CLASSES)
    return folder / "rows.npz"


def sparse_npz(folder: Path) -> Path:
    sparse.save_npz(folder / "sparse.npz", sparse.csr_matrix(np.maximum(ROWS, 0)))
    return folder / "sparse.npz"


def table() -> pa.Table:
    return pa.table({f"f{i}": ROWS[:, i] for i in range(6)} | {"species": [f"k{c}" for c in CLASSES]})


def csv(folder: Path) -> Path:
    pyarrow.csv.write_csv(table().drop(["species"]), folder / "rows.csv")
    return folder / "rows.csv"


def csv_gz(folder: Path) -> Path:
    (folder / "rows.csv.gz").write_bytes(gzip.compress(csv(folder).read_bytes()))
    return folder / "rows.csv.gz"


def tsv(folder: Path) -> Path:
    (folder / "rows.tsv").write_text(csv(folder).read_text().replace(",", "\t"))
    return folder / "rows.tsv"


def parquet(folder: Path) -> Path:
    pyarrow.parquet.write_table(table().drop(["species"]), folder / "rows.parquet", row_group_size=50)
    return folder / "rows.parquet"


def parquet_parts(folder: Path) -> Path:
    parts = folder / "parts"
    parts.mkdir()
    for i in range(3):
        pyarrow.parquet.write_table(table().drop(["species"]).slice(40 * i, 40), parts / f"part-{i}.parquet")
    return parts


def idx(folder: Path) -> Path:
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, *IMAGES.shape) + IMAGES.tobytes()))
    return path


def image_folder(folder: Path) -> Path:
    for i, image in enumerate(IMAGES):
        place = folder / "pictures" / ("odd" if i % 2 else "even")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{i:03d}.png")
    return folder / "pictures"


def image_array(folder: Path) -> Path:
    np.save(folder / "images.npy", IMAGES)
    return folder / "images.npy"


def named(folder: Path) -> str:
    return "gaussians-3-5"


SOURCES = [npy, npz, sparse_npz, csv, csv_gz, tsv, parquet, parquet_parts, idx, image_folder, image_array, named]


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_every_kind_of_source_is_fitted_reported_and_predicted(make: Callable[[Path], Path | str], tmp_path):
    source = make(tmp_path)
    fitted = run("fit", source, "--out", "run", "--json", "--limit", "120", *TINY)
    assert fitted.exit_code == 0, fitted.output
    said = json.loads(fitted.stdout)
    assert said["n_clusters"] == len(said["clusters"]) >= 1
    assert sum(row["size"] for row in said["clusters"]) == said["n_samples"]
    assert {"model.diva", "report.html", SNAPSHOT, "config.json", "source.json", "history.jsonl"} <= set(os.listdir("run"))
    predicted = run("predict", "run", source, "--out", "p.parquet", "--limit", "120")
    assert predicted.exit_code == 0, predicted.output
    rows = pyarrow.parquet.read_table("p.parquet")
    assert rows.column_names == ["sample", "cluster", "component", "probability", "log_density", "novel"]
    assert len(rows) == said["n_samples"]
    # what the command writes is what the model says, and what the summary counted
    found = np.bincount(rows["cluster"].to_numpy(), minlength=len(said["clusters"]))
    assert found.tolist() == [row["size"] for row in said["clusters"]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished run on rows with names and classes."""
    folder = tmp_path_factory.mktemp("finished")
    pyarrow.parquet.write_table(table(), folder / "rows.parquet")
    before = os.getcwd()
    os.chdir(folder)
    try:
        result = run("fit", "rows.parquet", "--label-column", "species", "--out", "run", *TINY)
    finally:
        os.chdir(before)
    assert result.exit_code == 0, result.output
    assert "one-to-one accuracy" in result.output
    assert "report.html" in result.output
    return folder / "run"


@pytest.fixture(scope="module")
def finished_images(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    np.save(folder / "images.npy", IMAGES)
    assert run("fit", folder / "images.npy", "--out", folder / "run", "--no-report", *TINY).exit_code == 0
    return folder / "run"


# --- what can be asked of a run


def test_predictions_as_csv_carry_names_of_files(finished_images, tmp_path):
    result = run("predict", finished_images, image_folder(tmp_path), "--out", "p.csv", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["n_samples"] == 60
    assert "metrics" in said  # folders are classes
    rows = pyarrow.csv.read_csv("p.csv").to_pydict()
    assert rows["sample"][0] == os.path.join("even", "000.png")
    assert {str(k): rows["cluster"].count(k) for k in range(len(said["sizes"]))} == said["sizes"]
    assert all(0 < p <= 1 for p in rows["probability"])


@pytest.mark.quality
def test_what_is_far_away_is_called_novel(finished, tmp_path):
    far = pa.table({f"f{i}": np.full(20, 40.0 * (-1) ** i) for i in range(6)})
    pyarrow.parquet.write_table(far, "far.parquet")
    said = json.loads(run("predict", finished, "far.parquet", "--json").stdout)
    assert said["n_novel"] >= 18


def test_columns_may_come_in_another_order(finished, tmp_path):
    plain = table().drop(["species"])
    pyarrow.parquet.write_table(plain, "a.parquet")
    pyarrow.parquet.write_table(plain.select(plain.column_names[::-1]), "b.parquet")
    assert run("predict", finished, "a.parquet", "--out", "a.csv").exit_code == 0
    assert run("predict", finished, "b.parquet", "--out", "b.csv").exit_code == 0
    assert Path("a.csv").read_text() == Path("b.csv").read_text()


def test_columns_of_vectors_are_found_again(tmp_path):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(ROWS.reshape(-1)), 6)
    pyarrow.parquet.write_table(pa.table({"v": vectors}), "v.parquet")
    assert run("fit", "v.parquet", "--out", "run", "--no-report", *TINY).exit_code == 0
    result = run("predict", "run", "v.parquet")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", ["s.npy", "s.csv"])
def test_samples_of_rows(finished, name):
    assert run("sample", finished, "-n", 5, "--out", name).exit_code == 0
    if name.endswith(".npy"):
        assert np.load(name).shape == (5, 6)
    else:
        assert pyarrow.csv.read_csv(name).column_names == ["cluster", *(f"f{i}" for i in range(6))]


def test_samples_of_images_are_a_picture(finished_images):
    assert run("sample", finished_images, "-n", 9, "--cluster", 0, "--out", "s.png").exit_code == 0
    with Image.open("s.png") as picture:
        assert picture.width == picture.height


def test_report_and_figures(finished):
    result = run("report", finished, "--out", "page.html", "--figures", "figures")
    assert result.exit_code == 0, result.output
    assert Path("page.html").read_text().startswith("<!doctype html>")
    assert {".png", ".svg"} <= {path.suffix for path in Path("figures").iterdir()}


def test_parameters_come_from_flags_before_toml(tmp_path):
    npy(tmp_path)
    Path("p.toml").write_text('[diva]\nn_epochs = 1\nlatent_dim = 3\nhidden_sizes = [8]\ngrouping = "walk"\n')
    assert run("fit", "rows.npy", "--config", "p.toml", "--latent_dim", 2, "--out", "run", "--no-report").exit_code == 0
    config = json.loads(Path("run/config.json").read_text())
    assert config["config"]["latent_dim"] == 2
    assert config["config"]["n_epochs"] == 1
    assert config["config"]["hidden_sizes"] == [8]


def test_runs_are_numbered_where_no_folder_is_given(tmp_path):
    npy(tmp_path)
    for _ in range(2):
        assert run("fit", "rows.npy", "--no-report", *TINY).exit_code == 0
    assert sorted(os.listdir("runs")) == ["rows", "rows-2"]


@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_of_a_model_is_a_flag(model):
    shown = run("fit", "--model", model, "--help").output
    assert len(parameters_of(model)) > 5
    for name in parameters_of(model):
        assert f"--{name.replace('_', '-')[:18]}" in shown.replace("\n", ""), name
    assert "--sharpening" not in shown


@pytest.mark.parametrize("command", [[], ["fit"], ["resume"], ["predict"], ["sample"], ["report"], ["data"], ["data", "list"]])
def test_help_has_examples(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "diva " in result.output


# --- a baseline, with the same commands

DEC = ["--model", "dec", "--n-clusters", "3", "--n-epochs", "6", "--latent-dim", "2", "--hidden-sizes", "16"]


@pytest.fixture(scope="module")
def finished_dec(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dec")
    np.savez(folder / "rows.npz", X=ROWS, y=CLASSES)
    result = run("fit", folder / "rows.npz", "--out", folder / "run", "--json", *DEC)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["model"], said["n_clusters"]) == ("DEC", 3)
    assert not {"n_components", "components_per_epoch"} & said.keys()
    assert said["metrics"].keys() == {"clusters"}
    return folder / "run"


def test_a_baseline_predicts_and_reports(finished_dec):
    result = run("predict", finished_dec, finished_dec.parent / "rows.npz", "--out", "p.parquet")
    assert result.exit_code == 0, result.output
    assert "one-to-one accuracy" in result.output
    rows = pyarrow.parquet.read_table("p.parquet")
    assert rows.column_names == ["sample", "cluster", "probability", "score", "novel"]
    model = load(finished_dec / "model.diva")
    assert rows["cluster"].to_pylist() == model.predict(ROWS).tolist()
    assert rows["score"].to_pylist() == model.score_samples(ROWS).tolist()
    assert run("report", finished_dec, "--out", "page.html").exit_code == 0
    assert "DEC" in Path("page.html").read_text()


def test_a_baseline_says_what_it_cannot_do(finished_dec):
    for command in (["sample", finished_dec], ["stream", finished_dec, finished_dec.parent / "rows.npz"]):
        result = run(*command)
        assert result.exit_code == 2, result.output
        assert re.search("DEC,? (which )?cannot (draw|go on)", " ".join(result.stderr.split()))
    assert not (finished_dec / "stream").exists()
    np.save("rows.npy", ROWS)
    result = run("stream", finished_dec, "rows.npy", "--predict-only", "--predictions", "p.jsonl", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["samples"], said["n_clusters"]) == (120, 3)
    assert "n_components" not in said
    answers = [json.loads(line)["cluster"] for line in Path("p.jsonl").read_text().splitlines()]
    assert answers == load(finished_dec / "model.diva").predict(ROWS).tolist()


def test_a_baseline_is_resumed(finished_dec):
    command = ["fit", str(finished_dec.parent / "rows.npz"), "--out", "run", "--no-report", *DEC]
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from sudden_death import die_at; die_at('after', 9); "
        f"from diva.cli import app; app({command!r}, prog_name='diva')"
    )
    killed = subprocess.run([sys.executable, "-c", program], env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert 0 < len(Path("run/history.jsonl").read_text().splitlines()) < 6
    result = run("resume", "run", "--no-report")
    assert result.exit_code == 0, result.output
    resumed, whole = load("run/model.diva"), load(finished_dec / "model.diva")
    np.testing.assert_array_equal(resumed.transform(ROWS), whole.transform(ROWS))
    np.testing.assert_array_equal(resumed.labels_, whole.labels_)


# --- interruption


def start(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "diva", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    long = ["--n-epochs", "60", "--latent-dim", "2", "--hidden-sizes", "16", "--no-report"]
    npy(tmp_path)
    process = start("fit", "rows.npy", "--out", "run", *long)
    deadline = time.monotonic() + 120
    while not Path("run/checkpoint.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "diva resume run" in errors
    assert "Traceback" not in errors
    undisturbed = run("fit", "rows.npy", "--out", "whole", "--json", *long)
    resumed = run("resume", "run", "--no-report", "--json")
    assert resumed.exit_code == 0, resumed.output
    first, second = (json.loads(result.stdout) for result in (undisturbed, resumed))
    assert first["clusters"] == second["clusters"]
    assert first["components_per_epoch"] == second["components_per_epoch"]


def test_two_processes_do_not_share_a_run(tmp_path):
    npy(tmp_path)
    with RunFolder(Path("run")).locked():
        result = subprocess.run(
            [sys.executable, "-m", "diva", "fit", "rows.npy", "--out", "run", *TINY],
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    assert "Another process" in result.stderr
    assert "Traceback" not in result.stderr


# --- what goes wrong: a paragraph, an exit code, nothing half-written


def write(name: str, content: bytes | str) -> Callable[[], None]:
    def make() -> None:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return make


def damaged(make: Callable[[Path], Path], keep: float = 0.5) -> Callable[[], None]:
    def damage() -> None:
        path = make(Path())
        path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])

    return damage


def truncated_picture() -> None:
    image_folder(Path())
    path = Path("pictures/even/000.png")
    path.write_bytes(path.read_bytes()[:40])


def two_sizes() -> None:
    image_folder(Path())
    Image.fromarray(IMAGES[0]).resize((12, 12)).save("pictures/even/big.png")


def object_array() -> None:
    np.save("objects.npy", np.array([{"a": 1}, None], dtype=object), allow_pickle=True)


def nan_rows() -> None:
    values = ROWS.copy()
    values[7, 2] = np.nan
    np.save("nan.npy", values)


def short_labels() -> None:
    npy(Path())
    np.save("labels.npy", CLASSES[:5])


def damaged_model() -> None:
    npy(Path())
    run("fit", "rows.npy", "--out", "run", "--no-report", *TINY)
    path = Path("run/model.diva")
    path.write_bytes(path.read_bytes()[:1000])


def finished_run() -> None:
    npy(Path())
    assert run("fit", "rows.npy", "--out", "run", "--no-report", *TINY).exit_code == 0


def nothing() -> None:
    pass


def rows() -> None:
    npy(Path())


def rows_and(name: str, text: str) -> Callable[[], None]:
    return lambda: (rows(), write(name, text)())[1]


def other_features() -> None:
    finished_run()
    np.save("b.npy", ROWS[:, :3])


def csv_run() -> None:
    csv(Path())
    assert run("fit", "rows.csv", "--out", "run", "--no-report", *TINY).exit_code == 0


def channels_first() -> None:
    np.save("first.npy", np.zeros((20, 3, 8, 8), np.uint8))


def other_units() -> None:
    np.save("deep.npy", (IMAGES.astype(np.uint16) * 257))
    assert run("fit", "deep.npy", "--out", "run", "--no-report", *TINY).exit_code == 0
    np.save("dark.npy", IMAGES)


def moved_data() -> None:
    finished_run()
    for name in ("model.diva", SNAPSHOT):
        Path("run", name).unlink()
    Path("rows.npy").rename("elsewhere.npy")


BAD: dict[str, tuple[Callable[[], Any], list[str], int, str]] = {
    "missing file": (rows, ["fit", "rowz.npy"], 1, "Did you mean"),
    "missing folder": (nothing, ["fit", "nowhere/x.npy"], 1, "does not exist"),
    "wrong extension": (write("a.docx", "x"), ["fit", "a.docx"], 1, "What can be opened"),
    "unknown data set": (nothing, ["fit", "mnits"], 2, "mnist"),
    "unknown data set to get": (nothing, ["data", "get", "mnits"], 2, "mnist"),
    "ragged csv": (write("a.csv", "a,b\n1,2\n3\n4,5\n"), ["fit", "a.csv"], 1, "a.csv"),
    "text in numbers": (write("a.csv", "a,b\n1,2\n3,x\n4,5\n"), ["fit", "a.csv", "--columns", "a,b"], 1, "'b'"),
    "missing value in csv": (write("a.csv", "a,b\n1,2\n3,\n4,5\n"), ["fit", "a.csv", "--missing", "error"], 1, "line 3"),
    "empty csv": (write("a.csv", ""), ["fit", "a.csv"], 1, "a.csv"),
    "csv with a header only": (write("a.csv", "a,b\n"), ["fit", "a.csv"], 1, "a.csv"),
    "no such column": (csv_here := lambda: csv(Path()), ["fit", "rows.csv", "--columns", "f0,g1"], 1, "g1"),
    "no such label column": (csv_here, ["fit", "rows.csv", "--label-column", "kin"], 1, "kin"),
    "truncated gz": (damaged(idx), ["fit", "train-images-idx3-ubyte.gz"], 1, "train-images"),
    "truncated csv.gz": (damaged(csv_gz), ["fit", "rows.csv.gz"], 1, "rows.csv.gz"),
    "truncated npz": (damaged(npz), ["fit", "rows.npz"], 1, "rows.npz"),
    "truncated npy": (damaged(npy), ["fit", "rows.npy"], 1, "rows.npy"),
    "truncated parquet": (damaged(parquet), ["fit", "rows.parquet"], 1, "rows.parquet"),
    "truncated png": (truncated_picture, ["fit", "pictures"], 1, "000.png"),
    "images of two sizes": (two_sizes, ["fit", "pictures"], 1, "image-size|image_size|size"),
    "pickled objects": (object_array, ["fit", "objects.npy"], 1, "objects.npy"),
    "NaN": (nan_rows, ["fit", "nan.npy"], 1, "NaN"),
    "empty folder": (lambda: Path("empty").mkdir(), ["fit", "empty"], 1, "empty"),
    "labels of another length": (short_labels, ["fit", "rows.npy", "--labels", "labels.npy"], 2, "one label for each"),
    "no such labels": (rows, ["fit", "rows.npy", "--labels", "none.npy"], 1, "none.npy"),
    "out is a file": (rows, ["fit", "rows.npy", "--out", "rows.npy"], 2, "is a file"),
    "out below a file": (rows, ["fit", "rows.npy", "--out", "rows.npy/run"], 1, "rows.npy"),
    "unwritable out": (rows, ["fit", "rows.npy", "--out", "/proc/run"], 1, "/proc/run"),
    "run there already": (finished_run, ["fit", "rows.npy", "--out", "run"], 2, "--overwrite"),
    "complete run resumed": (finished_run, ["resume", "run"], 2, "complete"),
    "resume without a run": (nothing, ["resume", "run"], 2, "no run folder"),
    "resume of another folder": (lambda: Path("d").mkdir(), ["resume", "d"], 2, "source.json"),
    "unknown option": (rows, ["fit", "rows.npy", "--n-epoch", "3"], 2, "--n-epochs"),
    "unknown command": (nothing, ["fitt", "rows.npy"], 2, "fit"),
    "no source": (nothing, ["fit"], 2, "(?i)source"),
    "parameter out of range": (rows, ["fit", "rows.npy", "--n-epochs", "0"], 2, "--n-epochs should be"),
    "parameter of the wrong type": (rows, ["fit", "rows.npy", "--learning-rate", "fast"], 2, "--learning-rate should be"),
    "unknown model": (rows, ["fit", "rows.npy", "--model", "kmeans"], 2, "--model should be auto, diva"),
    "flag of another model": (rows, ["fit", "rows.npy", "--n-init", "3"], 2, "the model diva. .* --model mixture"),
    "flag that dec does not take": (rows, ["fit", "rows.npy", "--model", "dec", "--n-laps", "3"], 2, "the model dec"),
    "flag of an earlier version": (rows, ["fit", "rows.npy", "--sharpening", "0"], 2, "called --self-training now"),
    "config of an earlier version": (
        rows_and("p.toml", "sharpening = 0.1"),
        ["fit", "rows.npy", "-c", "p.toml"],
        2,
        "self_training",
    ),
    "unknown preset": (rows, ["fit", "rows.npy", "--preset", "pictures"], 2, "images"),
    "images preset for rows": (rows, ["fit", "rows.npy", "--preset", "images"], 1, "rows"),
    "image size not divisible by 4": (rows, ["fit", "rows.npy", "--image-size", "30,30"], 2, "divisible by 4"),
    "config not there": (rows, ["fit", "rows.npy", "--config", "p.toml"], 2, "p.toml"),
    "config is no TOML": (rows_and("p.toml", "a = = 1"), ["fit", "rows.npy", "-c", "p.toml"], 2, "TOML"),
    "config with a typo": (
        lambda: (rows(), write("p.toml", "n_epoch = 1")()),
        ["fit", "rows.npy", "-c", "p.toml"],
        2,
        "n_epochs",
    ),
    "config of the wrong kind": (rows_and("p.toml", "diva = 3"), ["fit", "rows.npy", "-c", "p.toml"], 2, "p.toml"),
    "codes too long": (rows, ["fit", "rows.npy", "--latent-dim", "1000000"], 2, "--latent-dim should be"),
    "seed below 0": (rows, ["fit", "rows.npy", "--random-state", "-1"], 2, "--random-state should be"),
    "standard input": (nothing, ["fit", "-"], 2, "standard input"),
    "out without a name": (rows, ["fit", "rows.npy", "--out", ""], 2, "--out"),
    "key of no npz": (rows, ["fit", "rows.npy", "--key", "x"], 2, "rows.npy is not"),
    "image size of rows": (rows, ["fit", "rows.npy", "--image-size", "8,8"], 2, "rows.npy is not"),
    "labels given twice": (csv_here, ["fit", "rows.csv", "--labels", "a.npy", "--label-column", "f0"], 2, "not both"),
    "labels to learn from": (csv_here, ["fit", "rows.csv", "--columns", "f0,f1", "--label-column", "f1"], 2, "label column"),
    "a label is missing": (rows_and("l.txt", "a\n\nb\n"), ["fit", "rows.npy", "--labels", "l.txt"], 1, "Label 2"),
    "names not in UTF-8": (write("a.csv", "gr\u00f6\u00dfe,b\n1,2\n3,4\n".encode("latin-1")), ["fit", "a.csv"], 1, "UTF-8"),
    "channels first": (channels_first, ["fit", "first.npy"], 1, "channels first"),
    "images in other units": (other_units, ["predict", "run", "dark.npy"], 1, "from 0 to 61680"),
    "predict over the data": (csv_run, ["predict", "run", "rows.csv", "--out", "rows.csv"], 2, "the data themselves"),
    "a file of the user in the way": (rows_and("run/config.json", "{}"), ["fit", "rows.npy", "--out", "run"], 2, "config.json"),
    "report into no folder": (finished_run, ["report", "run", "--out", "no/page.html"], 1, "folder does not exist"),
    "data of a run are gone": (moved_data, ["resume", "run"], 2, "--source"),
    "predict without a run": (rows, ["predict", "run", "rows.npy"], 2, "no run folder"),
    "predict from a damaged model": (damaged_model, ["predict", "run", "rows.npy"], 1, "model.diva"),
    "predict to a strange file": (finished_run, ["predict", "run", "rows.npy", "--out", "p.xlsx"], 2, r"\.parquet or \.csv"),
    "predict to nowhere": (finished_run, ["predict", "run", "rows.npy", "--out", "no/p.csv"], 1, "folder does not exist"),
    "predict on other features": (
        lambda: (finished_run(), np.save("b.npy", ROWS[:, :3])),
        ["predict", "run", "b.npy"],
        1,
        "3 features",
    ),
    "sample of no cluster": (finished_run, ["sample", "run", "--cluster", "99"], 2, "one of 0"),
    "sample of rows as a picture": (finished_run, ["sample", "run", "--out", "a.png"], 2, r"\.npy or \.csv"),
    "report without a run": (nothing, ["report", "run"], 2, "no run folder"),
    "test part of a file": (rows, ["fit", "rows.npy", "--split", "test"], 2, "rows.npy;"),
    "columns of a data set": (nothing, ["fit", "digits", "--columns", "a"], 2, "--columns"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_in_a_paragraph(case):
    make, args, code, said = BAD[case]
    make()
    before = set(Path().rglob("*"))
    result = run(*args)
    message = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    assert re.search(said, message), message
    assert len(message) < 900
    after = set(Path().rglob("*"))
    assert after == before, f"left {after - before}"


def test_an_old_run_survives_until_the_new_one_has_begun():
    finished_run()
    before = {path.name: path.read_bytes() for path in Path("run").iterdir()}
    np.save("one.npy", ROWS[:1])
    assert run("fit", "one.npy", "--out", "run", "--overwrite", *TINY).exit_code == 1
    assert {path.name: path.read_bytes() for path in Path("run").iterdir()} == before
    assert run("fit", "rows.npy", "--out", "run", "--overwrite", "--no-report", *TINY, "--random-state", 1).exit_code == 0
    assert set(os.listdir("run")) == set(before)
    assert Path("run/model.diva").read_bytes() != before["model.diva"]


def test_an_old_run_that_was_put_aside_by_a_killed_process_comes_back():
    finished_run()
    before = set(os.listdir("run"))
    Path("run/.replaced").mkdir()
    for name in before - {".lock"}:
        Path("run", name).rename(Path("run/.replaced", name))
    np.save("one.npy", ROWS[:1])
    assert run("fit", "one.npy", "--out", "run", "--overwrite", *TINY).exit_code == 1
    assert set(os.listdir("run")) == before


def test_data_that_were_moved_are_found_with_source():
    moved_data()
    result = run("resume", "run", "--source", "elsewhere.npy", "--no-report")
    assert result.exit_code == 0, result.output


def test_links_in_a_circle_count_once(tmp_path):
    pictures = image_folder(tmp_path)
    (pictures / "even" / "again").symlink_to(pictures)
    said = json.loads(run("fit", pictures, "--out", "run", "--json", "--no-report", *TINY).stdout)
    assert said["n_samples"] == 60


def test_a_feature_may_be_called_cluster():
    Path("a.csv").write_text("cluster,b\n" + "\n".join(f"{a},{b}" for a, b in ROWS[:, :2]))
    assert run("fit", "a.csv", "--out", "run", "--no-report", *TINY).exit_code == 0
    assert run("sample", "run", "--out", "s.csv").exit_code == 0
    assert pyarrow.csv.read_csv("s.csv").column_names == ["cluster of diva", "cluster", "b"]


def test_names_in_brackets_are_names(tmp_path):
    Path("a.csv").write_text("x[0],b\n" + "\n".join(f"{a},{b}" for a, b in ROWS[:, :2]))
    assert run("fit", "a.csv", "--out", "run", "--no-report", *TINY).exit_code == 0
    assert run("predict", "run", "a.csv").exit_code == 0


def test_images_are_resized_as_for_the_fit(tmp_path):
    pictures = image_folder(tmp_path)
    assert run("fit", pictures, "--image-size", "12,12", "--out", "run", "--no-report", *TINY).exit_code == 0
    assert run("predict", "run", pictures).exit_code == 0


def test_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch):
    npy(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("diva.runs.archive.os.fsync", full)
    result = run("fit", "rows.npy", "--out", "run", *TINY)
    assert result.exit_code == 1
    assert "disk is full" in " ".join(result.stderr.split())
    assert not Path("run").exists()


def test_wrong_checksum_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVA_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / "mnist" / f"{name}-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\0"))
    result = run("data", "check", "mnist")
    assert result.exit_code == 1
    assert "bad" in result.output


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_names_that_are_not_utf8(errors, tmp_path):
    """Run as a process: bytes reach it as they are, and standard output is strict in most languages, but not in that of C."""
    np.save(tmp_path / "rows.npy", ROWS)
    source = os.fsencode(tmp_path) + b"/caf\xe9.npy"
    os.replace(tmp_path / "rows.npy", source)
    out = os.fsencode(tmp_path) + b"/\xe9t\xe9"
    diva = [sys.executable, "-c", "from diva.cli import main; main()"]
    for command in (["fit", source, "--out", out, *TINY], ["predict", out, source], ["report", out]):
        environment = os.environ | {"PYTHONIOENCODING": f"utf-8:{errors}"}
        done = subprocess.run([*diva, *command], capture_output=True, cwd=tmp_path, env=environment, check=False)
        assert done.returncode == 0, done.stderr
    assert "caf?" in Path(os.fsdecode(out), "report.html").read_text()
    assert len(load(Path(os.fsdecode(out), "model.diva")).predict(ROWS)) == len(ROWS)


def fashion_mnist(folder: Path) -> None:
    """A few images under the name of a data set for which an augmentation is suggested."""
    (folder / "fashion_mnist").mkdir(parents=True)
    labels = struct.pack(">4B1I", 0, 0, 8, 1, len(IMAGES)) + bytes(np.arange(len(IMAGES), dtype=np.uint8) % 2)
    for part in ("t10k", "train"):
        idx(folder / "fashion_mnist").rename(folder / f"fashion_mnist/{part}-images-idx3-ubyte.gz")
        (folder / f"fashion_mnist/{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


@pytest.mark.parametrize(
    ("given", "augmentation"),
    [
        ([], "photo"),
        (["--preset", "auto"], "photo"),
        (["--preset", "paper"], None),
        (["--preset", "images"], "affine"),
        (["--preset", "paper", "--augmentation", "affine"], "affine"),
    ],
)
def test_a_preset_comes_before_what_suits_a_data_set(tmp_path, monkeypatch, given, augmentation):
    monkeypatch.setenv("DIVA_DATA", str(tmp_path / "data"))
    fashion_mnist(tmp_path / "data")
    result = run("fit", "fashion_mnist", "--out", "run", "--no-report", *TINY, *given)
    assert result.exit_code == 0, result.output
    assert json.loads(Path("run/config.json").read_text())["config"]["augmentation"] == augmentation


def test_features_as_they_are(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    result = run("fit", str(tmp_path / "rows.npy"), "--codes", "features", "--out", "run")
    assert result.exit_code == 0, result.output
    assert json.loads(Path("run/results.json").read_text())["config"]["codes"] == "features"
    assert run("predict", "run", str(tmp_path / "rows.npy")).exit_code == 0


def test_says_what_clusters_are_of(tmp_path):
    rng = np.random.default_rng(0)
    rows = np.repeat([[0.0, 0.0, 0.0], [30.0, 0.03, 1.0], [-30.0, 0.03, -1.0]], 40, axis=0)
    np.save(tmp_path / "rows.npy", rows + rng.normal(size=(120, 3)) * [1.0, 0.001, 1000.0])
    result = run("fit", str(tmp_path / "rows.npy"), "--out", "run", "--n-epochs", "2", "--hidden-sizes", "8")
    assert result.exit_code == 0, result.output
    found = json.loads(Path("run/results.json").read_text())
    assert set(found["agreement"]) == {"learnt", "features"}
    if found["config"]["codes"] == "features":
        assert "features as they are" in result.output
    assert "nats" in Path("run/report.html").read_text()
