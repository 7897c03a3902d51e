"""A run that is killed goes on from its checkpoint and ends with the numbers of an undisturbed one, bit for bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import diva
from diva import DIVA
from diva.exceptions import InterruptedFitWarning, ModelFileError
from diva.models.ensemble import ConsensusEnsemble

torch.set_num_threads(1)

ROWS = {"latent_dim": 2, "hidden_sizes": (8,), "n_laps": 1, "n_views": 1, "random_state": 0, "learning_rate": 0.01}
FILES = [".lock", "checkpoint.safetensors", "config.json", "history.jsonl", "model.diva"]


def make_rows():
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(c, 1, size=(12, 4)) for c in ([0, 0, 0, 0], [8, 0, 0, 8], [0, 8, 8, 0])])


X = make_rows()
IMAGES = np.random.default_rng(0).random((16, 4, 4))

HERE = str(Path(__file__).parent)
SCRIPT = """
import importlib.util, json, os, sys, time
import torch
from sudden_death import die_at
torch.set_num_threads(1)
spec = importlib.util.spec_from_file_location("resume_tests", sys.argv[1])
tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tests)


def fit(run_dir, n_epochs, pause, die):
    if die:
        how, number = die.split(":")
        die_at(how, int(number))
    callbacks = [lambda *_: time.sleep(pause)]
    tests.DIVA(**tests.ROWS, n_epochs=n_epochs, run_dir=run_dir, resume=True, callbacks=callbacks).fit(tests.X)


for line in sys.stdin:
    pid = os.fork()
    if not pid:
        fit(*json.loads(line))
        os._exit(0)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Nursery:
    """A process that has imported everything and forks a child for every run: faster than new processes."""

    def __enter__(self):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": HERE}  # for sudden_death
        command = [sys.executable, "-c", SCRIPT, __file__]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()

    def start(self, run_dir, n_epochs, pause=0.0, die=""):
        """Begin to fit ROWS on X in a process of its own; returns its id."""
        print(json.dumps([str(run_dir), n_epochs, pause, die]), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def end(self):
        """Wait for the run to end; returns its exit code."""
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


def without_times(records):
    return [{k: v for k, v in vars(r).items() if "seconds" not in k} for r in records]


def assert_same(model, undisturbed, data=X):
    for name in ("labels_", "component_labels_", "component_ids_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(undisturbed, name), err_msg=name)
    for method in ("transform", "predict_proba", "score_samples", "reconstruct"):
        np.testing.assert_array_equal(getattr(model, method)(data), getattr(undisturbed, method)(data), err_msg=method)
    np.testing.assert_array_equal(model.sample(5, random_state=0)[0], undisturbed.sample(5, random_state=0)[0])
    assert without_times(model.history_) == without_times(undisturbed.history_)
    assert model.lineage_ == undisturbed.lineage_


def assert_folder_is_whole(run_dir, n_epochs):
    assert sorted(os.listdir(run_dir)) == FILES
    lines = (run_dir / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(n_epochs))


@pytest.fixture(scope="module")
def undisturbed():
    """Models of runs that nobody disturbed, by their number of epochs."""
    found = {}

    def fitted(n_epochs):
        if n_epochs not in found:
            found[n_epochs] = DIVA(**ROWS, n_epochs=n_epochs).fit(X)
        return found[n_epochs]

    return fitted


# --- kill -9


@pytest.mark.parametrize("n_kills", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_run_killed_again_and_again_ends_as_if_undisturbed(n_kills, tmp_path, undisturbed, nursery):
    run_dir, chance, n_epochs = tmp_path / "run", np.random.default_rng(n_kills), 6 * n_kills
    for _ in range(n_kills):
        before = n_lines(run_dir / "history.jsonl")
        pid = nursery.start(run_dir, n_epochs, pause=0.05)
        while n_lines(run_dir / "history.jsonl") <= before and is_running(pid):
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.15))
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)
        assert nursery.end() == -signal.SIGKILL, "the run ended by itself"
    assert n_lines(run_dir / "history.jsonl") < n_epochs, "it was finished before it was killed for the last time"
    model = DIVA(**ROWS, n_epochs=n_epochs, run_dir=str(run_dir), resume=True).fit(X)
    assert_same(model, undisturbed(n_epochs))
    assert_same(diva.load(run_dir / "model.diva"), undisturbed(n_epochs))
    assert_folder_is_whole(run_dir, n_epochs)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def n_lines(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.parametrize(
    "die",
    [
        # replacements: 1 config; then checkpoint, history of every epoch; the model at last
        pytest.param("before:2", id="before-the-first-checkpoint"),
        pytest.param("before:6", id="before-a-checkpoint"),
        pytest.param("after:8", id="between-checkpoint-and-history"),
        pytest.param("after:10", id="between-the-last-checkpoint-and-its-history"),
        pytest.param("before:12", id="before-the-model"),
        pytest.param("torn:7", id="half-a-checkpoint"),
    ],
)
def test_a_run_killed_while_it_writes_goes_on(die, tmp_path, undisturbed, nursery):
    run_dir = tmp_path / "run"
    nursery.start(run_dir, 5, die=die)
    assert nursery.end() == -signal.SIGKILL
    model = DIVA(**ROWS, n_epochs=5, run_dir=run_dir, resume=True).fit(X)
    assert_same(model, undisturbed(5))
    assert_folder_is_whole(run_dir, 5)


# --- other ends: an exception after any epoch, any way to learn


class Stopped(Exception):  # noqa: N818
    pass


def failing_at(epoch, error=Stopped):
    def callback(model, record):
        if record.epoch == epoch:
            raise error

    return [callback]


class Encoder(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout))
        self.mean, self.log_var, self.unused = nn.Linear(8, 2), nn.Linear(8, 2), nn.Linear(8, 8)

    def forward(self, x):
        hidden = self.body(x)
        return self.mean(hidden), self.log_var(hidden)


@pytest.mark.parametrize(
    ("data", "params"),
    [
        pytest.param(X, {}, id="rows"),
        pytest.param(X, {"checkpoint_every": 2}, id="every-other-epoch"),
        pytest.param(X, {"checkpoint_every": 100}, id="one-checkpoint-at-the-end"),
        pytest.param(X, {"preset": "paper"}, id="paper"),
        pytest.param(X, {"reconstruction": "nll", "assignment": "hard"}, id="nll-hard"),
        pytest.param(X, {"grouping": None, "augmentation": None}, id="plain"),
        pytest.param(X, {"self_training": 0.6, "warmup": 0.2, "weight_decay": 0.1}, id="long-self-training"),
        pytest.param(X, {"early_stopping": 1, "learning_rate": 1e-9, "n_epochs": 8}, id="early-stopping"),
        pytest.param(X, {"encoder": Encoder(), "decoder": nn.Linear(2, 4)}, id="own-networks"),
        pytest.param(IMAGES, {}, id="images"),
        pytest.param(IMAGES, {"preset": "paper", "reconstruction": "nll"}, id="images-paper"),
    ],
)
def test_a_run_that_fails_after_any_epoch_goes_on(data, params, tmp_path):
    params = ROWS | {"n_epochs": 5} | params
    validation = data[:3] if "early_stopping" in params else None
    whole = DIVA(**params).fit(data, validation=validation)
    for epoch in (0, 2, 4) if params == ROWS | {"n_epochs": 5} else (2,):
        folder = tmp_path / str(epoch)
        if epoch < len(whole.history_):
            with pytest.raises(Stopped):
                DIVA(**params, run_dir=folder, callbacks=failing_at(epoch)).fit(data, validation=validation)
        model = DIVA(**params, run_dir=folder, resume=True).fit(data, validation=validation)
        assert_same(model, whole, data)
        assert_folder_is_whole(folder, len(whole.history_))


def test_dropout_in_an_encoder_of_ones_own_goes_on_as_well(tmp_path):
    networks = {"encoder": Encoder(dropout=0.5), "decoder": nn.Linear(2, 4)}
    params = ROWS | {"n_epochs": 4} | networks
    torch.manual_seed(0)
    whole = DIVA(**params).fit(X)
    torch.manual_seed(0)
    with pytest.raises(Stopped):
        DIVA(**params, run_dir=tmp_path / "run", callbacks=failing_at(1)).fit(X)
    torch.manual_seed(0)  # a new process
    assert_same(DIVA(**params, run_dir=tmp_path / "run", resume=True).fit(X), whole)


DIGITS = load_digits().data[:570]  # with 35 views of each, just enough codes for an ensemble
WITH_ENSEMBLE = ROWS | {"hidden_sizes": (32,), "latent_dim": 4, "batch_size": 32, "n_epochs": 8, "self_training": 0.5}
WITH_ENSEMBLE |= {"n_views": 35, "max_components": 12, "resolution": 2.0}


@pytest.fixture(scope="module")
def undisturbed_with_ensemble():
    asked, predict_proba = [], ConsensusEnsemble.predict_proba
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsensusEnsemble, "predict_proba", lambda *given: asked.append(1) or predict_proba(*given))
        model = DIVA(**WITH_ENSEMBLE).fit(DIGITS)
    assert len(asked) == 3  # pseudo-labels twice, and the final clusters
    return model


@pytest.mark.filterwarnings("ignore::diva.exceptions.ComponentLimitWarning")  # 12 components, to be quick
@pytest.mark.parametrize(
    "last", [pytest.param(5, id="after-the-first-refresh", marks=pytest.mark.slow), pytest.param(7, id="after-the-second")]
)
def test_a_run_with_an_ensemble_goes_on(tmp_path, last, undisturbed_with_ensemble):
    with pytest.raises(Stopped):
        DIVA(**WITH_ENSEMBLE, run_dir=tmp_path / "run", callbacks=failing_at(last)).fit(DIGITS)
    assert_same(DIVA(**WITH_ENSEMBLE, run_dir=tmp_path / "run", resume=True).fit(DIGITS), undisturbed_with_ensemble, DIGITS)


def test_an_interrupted_run_says_how_to_go_on_and_goes_on(tmp_path, undisturbed):
    run_dir = tmp_path / "run"
    with pytest.warns(InterruptedFitWarning, match=r"after 3 epochs.*resume=True.*checkpoint"):
        kept = DIVA(**ROWS, n_epochs=5, run_dir=run_dir, callbacks=failing_at(2, KeyboardInterrupt)).fit(X)
    assert len(kept.history_) == 3
    assert_same(diva.load(run_dir / "model.diva"), kept)
    assert_same(DIVA(**ROWS, n_epochs=5, run_dir=run_dir, resume=True).fit(X), undisturbed(5))


def test_resuming_without_a_checkpoint_is_starting(tmp_path, undisturbed):
    assert_same(DIVA(**ROWS, n_epochs=5, run_dir=tmp_path / "a" / "b", resume=True).fit(X), undisturbed(5))
    assert_folder_is_whole(tmp_path / "a" / "b", 5)


def test_resuming_a_finished_run_gives_the_same_model_again(finished, undisturbed):
    epochs = []
    callbacks = [lambda model, record: epochs.append(record)]
    model = DIVA(**ROWS, n_epochs=5, run_dir=str(finished), resume=True, callbacks=callbacks).fit(X)
    assert epochs == []
    assert_same(model, undisturbed(5))
    (finished / "model.diva").unlink()
    DIVA(**ROWS, n_epochs=5, run_dir=str(finished), resume=True).fit(X)
    assert_same(diva.load(finished / "model.diva"), undisturbed(5))


def test_how_a_run_is_watched_may_change(tmp_path, undisturbed, capsys):
    run_dir = tmp_path / "run"
    with pytest.raises(Stopped):
        DIVA(**ROWS, n_epochs=5, run_dir=run_dir, callbacks=failing_at(2)).fit(X)
    moved = run_dir.rename(tmp_path / "elsewhere")
    params = {"run_dir": str(moved), "resume": True, "verbose": True, "checkpoint_every": 3, "device": "cpu"}
    assert_same(DIVA(**ROWS, n_epochs=5, **params).fit(X), undisturbed(5))
    assert len(capsys.readouterr().out.splitlines()) == 2


# --- refusals


@pytest.fixture(scope="module")
def one_run(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    DIVA(**ROWS, n_epochs=5, run_dir=run_dir).fit(X)
    return {name: (run_dir / name).read_bytes() for name in FILES}


@pytest.fixture
def finished(one_run, tmp_path):
    """The folder of a finished run of five epochs."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    for name, content in one_run.items():
        (run_dir / name).write_bytes(content)
    return run_dir


@pytest.fixture
def untouched(finished):
    """Whatever is refused leaves the files of the run as they were."""
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    yield
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


@pytest.mark.usefixtures("untouched")
def test_a_run_that_exists_is_not_overwritten(finished):
    with pytest.raises(FileExistsError, match=r"already holds a run.*resume=True"):
        DIVA(**ROWS, n_epochs=5, run_dir=finished).fit(X)


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_epochs", 6),
        ("latent_dim", 3),
        ("hidden_sizes", (9,)),
        ("learning_rate", 0.02),
        ("random_state", 1),
        ("augmentation", None),
        ("reconstruction", "nll"),
        ("early_stopping", 1),
        ("grouping", None),
        ("max_components", 7),
    ],
)
def test_other_parameters_are_refused(name, value, finished):
    params = ROWS | {"n_epochs": 5}
    with pytest.raises(ValueError, match="was started with") as caught:
        DIVA(**(params | {name: value}), run_dir=finished, resume=True).fit(X)
    message = str(caught.value)
    before = params.get(name, getattr(DIVA(), name))
    for word in (name, str(before).strip("(,)"), str(value).strip("(,)"), "another run_dir"):
        assert word in message


@pytest.mark.usefixtures("untouched")
def test_only_the_parameters_that_changed_are_named(finished):
    with pytest.raises(ValueError, match="was started with") as caught:
        DIVA(**(ROWS | {"learning_rate": 0.02}), n_epochs=5, run_dir=finished, resume=True).fit(X)
    assert "batch_size" not in str(caught.value), "it names what has not changed, too"
    assert len(str(caught.value)) < 400


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"augmentation": lambda x, generator: x}, id="views-of-ones-own"),
        pytest.param({"encoder": Encoder(), "decoder": nn.Linear(2, 4)}, id="networks-of-ones-own"),
    ],
)
def test_things_of_ones_own_are_not_taken_for_those_of_the_run(change, finished):
    with pytest.raises((ValueError, ModelFileError), match="another run_dir"):
        DIVA(**ROWS, n_epochs=5, **change, run_dir=finished, resume=True).fit(X)


def test_views_of_ones_own_are_not_no_views(tmp_path):
    params = ROWS | {"n_epochs": 2, "run_dir": tmp_path / "run"}
    DIVA(**params, augmentation=None).fit(X)
    with pytest.raises(ValueError, match="augmentation"):
        DIVA(**params, augmentation=lambda x, generator: x * 0, resume=True).fit(X)


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(X + 1e-3 * np.arange(4), id="other-numbers"),
        pytest.param(X[:-1], id="one-fewer"),
        pytest.param(X[::-1], id="reversed"),
        pytest.param(X[:, :3], id="fewer-features"),
        pytest.param(IMAGES, id="images"),
        pytest.param(X * 2, id="in-other-units"),
        pytest.param(X + 5, id="elsewhere"),
    ],
)
def test_other_data_are_refused(data, finished):
    with pytest.raises(ValueError, match=r"other data|was started with"):
        DIVA(**ROWS, n_epochs=5, run_dir=finished, resume=True).fit(data)


def test_other_labels_of_a_sample_in_between_are_refused(tmp_path):
    """Data sets that differ in a single sample, which may not be among those that are looked at."""
    many = np.random.default_rng(0).normal(size=(200, 4))
    params = ROWS | {"n_epochs": 2, "preset": "paper", "run_dir": tmp_path / "run"}
    DIVA(**params).fit(many)
    other = many.copy()
    other[[1, 2]] = other[[2, 1]]  # the same mean, the same spread
    with pytest.raises(ValueError, match="other data"):
        DIVA(**params, resume=True).fit(other)


def test_other_validation_data_are_refused(tmp_path):
    params = ROWS | {"n_epochs": 3, "early_stopping": 1, "run_dir": tmp_path / "run"}
    with pytest.raises(Stopped):
        DIVA(**params, callbacks=failing_at(0)).fit(X, validation=X[:5])
    with pytest.raises(ValueError, match="validation"):
        DIVA(**params, resume=True).fit(X)


@pytest.mark.parametrize("how", ["empty", "half", "first-half-of-header", "longer", "flipped", "junk", "a-model"])
def test_a_damaged_checkpoint_is_refused(how, finished):
    path = finished / "checkpoint.safetensors"
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 4
    damaged = {
        "empty": b"",
        "half": content[: len(content) // 2],
        "first-half-of-header": content[:100],
        "longer": content + b"\0",
        "flipped": bytes(flipped),
        "junk": b"junk" * 1000,
        "a-model": (finished / "model.diva").read_bytes(),
    }[how]
    path.write_bytes(damaged)
    with pytest.raises(ModelFileError, match=r"checkpoint\.safetensors"):
        DIVA(**ROWS, n_epochs=5, run_dir=finished, resume=True).fit(X)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(("options", "part"), [({}, "head.weight"), ({"grouping": None}, "prior.past.counts")])
def test_a_checkpoint_with_a_right_checksum_and_wrong_contents_is_refused(options, part, tmp_path):
    """While pseudo-labels are learnt, and while a mixture is the prior."""
    from diva.runs.archive import read_archive, write_archive

    finished = tmp_path / "run"
    DIVA(**ROWS, **options, n_epochs=5, run_dir=finished).fit(X)
    path = finished / "checkpoint.safetensors"
    archive = read_archive(path, kinds=("DIVA checkpoint",))
    documents = [{k: v for k, v in archive.document.items() if k != name} for name in archive.document]
    documents += [
        archive.document | change
        for change in (
            {"epoch": "junk"},
            {"position": None},
            {"variance": "junk"},
            {"history": 3},
            {"history": [{"junk": 1}]},
            {"rng": {}},
            {"rng": None},
            {"prior": []},
            {"prior": "junk"},
            {"best_bound": "junk"},
            {"best_epoch": "junk"},
            {"lineage": None},
        )
    ]
    cases = [(document, archive.tensors) for document in documents]
    for name in ("network.encoder.mean.weight", "optimizer.0.exp_avg", "generator", part):
        cases.append((archive.document, {k: v for k, v in archive.tensors.items() if k != name}))
        cases.append((archive.document, archive.tensors | {name: archive.tensors[name][:-1]}))
    accepted = []
    for document, tensors in cases:
        write_archive(path, "DIVA checkpoint", document, tensors)
        try:
            DIVA(**ROWS, **options, n_epochs=5, run_dir=finished, resume=True).fit(X)
        except ModelFileError as error:
            assert "checkpoint.safetensors" in str(error)  # noqa: PT017
        except Exception as error:
            accepted.append((_difference(archive, document, tensors), repr(error)[:100]))
        else:
            accepted.append((_difference(archive, document, tensors), "accepted"))
    assert accepted == []


def _difference(archive, document, tensors):
    changed = [k for k in archive.document if document.get(k) != archive.document[k]]
    changed += [k for k, v in archive.tensors.items() if k not in tensors or tensors[k].shape != v.shape]
    return ", ".join(changed)


# --- folders


def test_a_run_dir_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    for run_dir in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(OSError, match=r"file") as caught:
            DIVA(**ROWS, n_epochs=2, run_dir=run_dir).fit(X)
        assert "run_dir" in str(caught.value) or "folder" in str(caught.value)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_run_dir_without_permission(tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    for run_dir in (locked, locked / "run"):
        with pytest.raises(OSError, match="locked"):
            DIVA(**ROWS, n_epochs=2, run_dir=run_dir).fit(X)


def test_a_disk_that_is_full_ends_the_run_with_a_message_and_it_can_go_on(tmp_path, monkeypatch, undisturbed):
    run_dir, calls, replace = tmp_path / "run", [], os.replace

    def full(*paths):
        calls.append(paths)
        if len(calls) == 6:
            raise OSError(28, "No space left on device")
        replace(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match=r"checkpoint\.safetensors.*No space left"):
            DIVA(**ROWS, n_epochs=5, run_dir=run_dir).fit(X)
    assert not list(run_dir.glob(".diva-*"))
    assert_same(DIVA(**ROWS, n_epochs=5, run_dir=run_dir, resume=True).fit(X), undisturbed(5))


def test_files_of_others_in_the_folder_stay(tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    for name in ("notes.txt", ".hidden", "x.tmp"):
        (run_dir / name).write_text("mine")
    DIVA(**ROWS, n_epochs=2, run_dir=run_dir).fit(X)
    DIVA(**ROWS, n_epochs=2, run_dir=run_dir, resume=True).fit(X)
    assert sorted(os.listdir(run_dir)) == sorted([*FILES, "notes.txt", ".hidden", "x.tmp"])


def test_parameters_of_numpy_can_be_run_and_resumed(tmp_path, undisturbed):
    params = ROWS | {"n_epochs": np.int64(5), "latent_dim": np.int32(2), "learning_rate": np.float64(0.01)}
    model = DIVA(**params, run_dir=tmp_path / "run").fit(X)
    assert_same(model, undisturbed(5))
    assert_same(DIVA(**params, run_dir=tmp_path / "run", resume=True).fit(X), undisturbed(5))
