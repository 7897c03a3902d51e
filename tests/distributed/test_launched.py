"""The command line under torchrun: as a user starts it, with workers that are killed, and machines that are cut off."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from typer.testing import CliRunner

import diva
from diva.cli import app

from .conftest import free_port

FIT = ("-m", "diva", "fit", "digits", "--limit", "300", "--n-epochs", "6", "--no-report", "--out")


def launch(*arguments, restarts=0, cwd, **variables):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DIVA_TIMEOUT": "120"} | variables
    return subprocess.Popen(
        [*command, "--max-restarts", str(restarts), *arguments],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def results(run):
    model = diva.load(run / "model.diva")
    return model.labels_, [record.loss for record in model.history_]


def workers(launcher):
    try:
        children = psutil.Process(launcher.pid).children()
        return [child for child in children if "diva" in child.cmdline()]
    except psutil.NoSuchProcess:
        return []


def wait_for(condition, launcher, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert launcher.poll() is None, launcher.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_processes_fit_from_the_command_line(tmp_path):
    launcher = launch(*FIT, "run", "--json", cwd=tmp_path)
    out, err = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith("{")]  # one process speaks
    labels, losses = results(tmp_path / "run")
    assert json.loads(line)["n_clusters"] == len(np.unique(labels))
    assert len(losses) == 6
    launcher = launch("-m", "diva", "predict", "run", "digits", "--limit", "300", "--out", "labels.csv", cwd=tmp_path)
    out, err = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, err
    assert out.count("300 samples") == 1
    table = np.genfromtxt(tmp_path / "labels.csv", delimiter=",", names=True, dtype=None, encoding=None)
    np.testing.assert_array_equal(table["sample"], np.arange(300))
    np.testing.assert_array_equal(table["cluster"], labels)


@pytest.mark.slow
def test_two_processes_fit_a_mixture_to_a_table(tmp_path):
    rng = np.random.default_rng(0)
    colours = np.array(["red", "green", "blue"])[rng.integers(3, size=300)]
    table = pd.DataFrame({"size": rng.normal(size=300) + 8 * (colours == "red"), "colour": colours})
    table.to_csv(tmp_path / "things.csv", index=False)
    fit = ("-m", "diva", "fit", "things.csv", "--model", "mixture", "--no-report", "--json", "--out")
    launcher = launch(*fit, "run", cwd=tmp_path)
    out, err = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith("{")]
    model = diva.load(tmp_path / "run" / "model.diva")
    assert json.loads(line)["n_clusters"] == model.n_clusters_ == len(np.unique(model.labels_))
    subprocess.run([sys.executable, *fit, "alone"], cwd=tmp_path, check=True, capture_output=True)
    alone = diva.load(tmp_path / "alone" / "model.diva")
    assert alone.elbo_ == model.elbo_
    np.testing.assert_array_equal(alone.labels_, model.labels_)
    launcher = launch("-m", "diva", "predict", "run", "things.csv", "--keep-columns", "--out", "-", cwd=tmp_path)
    out, err = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, err
    said = pd.read_csv(io.StringIO(out))
    assert said["colour"].tolist() == colours.tolist()
    np.testing.assert_array_equal(said["cluster"], model.labels_)


@pytest.mark.slow
def test_two_processes_go_on_with_a_run_that_was_killed(tmp_path):
    launcher = launch(*FIT, "whole", cwd=tmp_path)
    _, err = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, err
    launcher = launch(*FIT, "killed", cwd=tmp_path)
    wait_for(lambda: (tmp_path / "killed" / "checkpoint.safetensors").exists(), launcher)
    for process in (*workers(launcher), launcher):
        os.kill(process.pid, signal.SIGKILL)
    launcher.communicate(timeout=60)
    launcher = launch("-m", "diva", "resume", "killed", "--no-report", cwd=tmp_path)
    _, err = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, err
    for found, expected in zip(results(tmp_path / "killed"), results(tmp_path / "whole"), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_other_commands_are_for_one_process(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = CliRunner().invoke(app, ["stream", "run", "folder"], prog_name="diva")
    assert result.exit_code == 2
    assert "`diva stream` works in one process" in " ".join(result.output.split())


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("delay", [0.0, 0.3, 0.6, 0.9, 1.2])
def test_a_killed_worker_is_started_anew_and_the_run_goes_on(tmp_path, victim, delay):
    """Killed at different moments of an epoch, or of the laps after it."""
    launcher = launch(*FIT, "whole", cwd=tmp_path)
    _, err = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, err
    launcher = launch(*FIT, "killed", restarts=3, cwd=tmp_path)
    wait_for(lambda: (tmp_path / "killed" / "checkpoint.safetensors").exists(), launcher)
    time.sleep(delay)
    running = workers(launcher)
    os.kill(running[victim].pid, signal.SIGKILL)
    _, err = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, err
    for found, expected in zip(results(tmp_path / "killed"), results(tmp_path / "whole"), strict=True):
        np.testing.assert_array_equal(found, expected)


LAPS = """
import os, sys
import numpy as np
from diva import DPMixture, distributed
distributed.PART_ROWS = 500
X = np.load("x.npy", mmap_mode="r")
laps = 0
class Source:
    def __iter__(self):
        global laps
        laps += 1
        for number, batch in enumerate(np.array_split(X, 4)):
            if distributed.rank() == 1 and distributed.n_restarts() == 0 and laps == int(sys.argv[2]) and number == 2:
                os.kill(os.getpid(), 9)
            yield batch
with distributed.join():
    model = DPMixture(random_state=0, covariance_type="diag", n_init=0).fit(Source())
    if distributed.is_main():
        model.save(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("lap", [4, 5, 6, 7, 8])
def test_a_worker_killed_in_a_lap_of_the_mixture_is_started_anew(tmp_path, lap):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", (rng.normal(size=(8000, 3)) + 6 * rng.integers(3, size=(8000, 1))).astype(np.float32))
    (tmp_path / "fit.py").write_text(LAPS)
    for name, when in (("whole.diva", 10**6), ("killed.diva", lap)):
        launcher = launch("fit.py", name, str(when), restarts=1, cwd=tmp_path)
        _, err = launcher.communicate(timeout=600)
        assert launcher.returncode == 0, err
    whole, killed = (diva.load(tmp_path / f"{name}.diva") for name in ("whole", "killed"))
    assert killed.elbo_ == whole.elbo_
    np.testing.assert_array_equal(killed.labels_, whole.labels_)


# --- machines: processes in network namespaces of their own, with a cable between them

MACHINES = """
import sys, time
import numpy as np
from diva import DPMixture, distributed
rng = np.random.default_rng(0)
distributed.PART_ROWS = 200
X = (rng.normal(size=(4000, 3)) + 6 * rng.integers(3, size=(4000, 1))).astype(np.float32)
class Slow:
    def __iter__(self):
        for batch in np.array_split(X, 4):
            time.sleep(float(sys.argv[1]))
            open(sys.argv[2], "a").write("x")
            yield batch
with distributed.join():
    model = DPMixture(random_state=0, covariance_type="diag", n_init=0, max_laps=20).fit(Slow())
    print("bound", repr(model.elbo_))
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def cable():
    """Two namespaces, 10.77.0.1 and 10.77.0.2."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs iproute2 and the right to make network namespaces")
    names = [f"diva{os.getpid()}{side}" for side in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "veth0", "netns", names[0], "type", "veth", "peer", "name", "veth0", "netns", names[1])
        for number, name in enumerate(names, 1):
            for device in ("lo", "veth0"):
                ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "veth0")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
    yield names
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def on_machines(names, script, pause, beats, timeout="20"):
    """One process on each of two machines."""
    settings = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    settings |= {"GLOO_SOCKET_IFNAME": "veth0", "DIVA_TIMEOUT": timeout}
    return [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, str(script), str(pause), str(beats)],
            env=os.environ | settings | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, name in enumerate(names)
    ]


@pytest.mark.slow
def test_a_machine_that_is_cut_off_ends_the_fit_and_can_come_back(tmp_path, cable):
    script, beats = tmp_path / "fit.py", tmp_path / "beats"
    script.write_text(MACHINES)
    processes = on_machines(cable, script, 0.2, beats)
    while not beats.exists() or beats.stat().st_size < 24:  # in the middle of a lap
        assert all(process.poll() is None for process in processes), [p.communicate() for p in processes]
        time.sleep(0.05)
    ip("-n", cable[1], "link", "set", "veth0", "down")
    cut = time.monotonic()
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode != 0
        assert "DistributedError" in err
    assert time.monotonic() - cut < 60
    ip("-n", cable[1], "link", "set", "veth0", "up")
    again = on_machines(cable, script, 0.0, Path(os.devnull), timeout="120")
    said = [process.communicate(timeout=300) for process in again]
    assert all(process.returncode == 0 for process in again), said
    alone = subprocess.run(
        [sys.executable, str(script), "0", os.devnull], capture_output=True, text=True, check=True, env=os.environ
    )
    assert [out for out, _ in said] == [alone.stdout] * 2
