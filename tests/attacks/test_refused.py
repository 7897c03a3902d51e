"""Forged files are refused with a message that names them, in little memory, and the process lives on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.attacks.forge import ATTACKS

MOST_MEGABYTES = 500  # above what the process has when diva is imported


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What a process says that opens all of them, in turn."""
    forged = []
    for name, forge in ATTACKS.items():
        place = forge(tmp_path_factory.mktemp(name))
        place, options = place if isinstance(place, tuple) else (place, {})
        forged.append([name, str(place), options])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("reader.py"))],
        input=json.dumps(forged),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    found = {name: (outcome, megabytes) for name, outcome, megabytes in map(json.loads, done.stdout.splitlines())}
    return found, f"exit code {done.returncode} {done.stderr[-500:]}"


@pytest.mark.parametrize("name", ATTACKS)
def test_a_forged_file_is_refused(name, outcomes):
    found, end = outcomes
    assert name in found, f"the process died: {end}"
    outcome, megabytes = found[name]
    assert outcome.startswith("refused: ")
    assert "/x." in outcome, "the message names the file"
    assert "\n" not in outcome
    assert megabytes < MOST_MEGABYTES
