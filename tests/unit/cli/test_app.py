"""The command line before any command runs: quick, and true to the commands."""

import inspect
import os
import subprocess
import sys

import pytest

from diva.cli.app import COMMANDS, load_command
from diva.models.config import AUGMENTATIONS, PRESETS
from diva.networks.mlp import HIDDEN_SIZES
from diva.training import augmentation

HEAVY = ("torch", "sklearn", "scipy", "pyarrow", "plotly")


def loaded_by(*command, **env):
    code = f"import sys; sys.argv[1:] = {list(command)!r}; from diva.__main__ import main\ntry:\n    main()\nfinally:\n"
    code += f"    print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True, check=False)
    return done, done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "command", [["--help"], ["--version"], ["fit", "--help"], ["fit", "--model", "mixture", "--help"]], ids=" ".join
)
def test_help_imports_nothing_that_takes_seconds(command):
    done, heavy = loaded_by(*command)
    assert done.returncode == 0, done.stderr
    assert heavy == "[]"


def test_importing_diva_imports_nothing_that_takes_seconds():
    code = f"import sys, diva, diva.runs.load; print([name for name in {HEAVY} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_they_say(name):
    first = inspect.cleandoc(load_command(name).help).splitlines()[0]
    assert first == COMMANDS[name]


@pytest.mark.parametrize(("typed", "offered"), [("diva re", "resume"), ("diva fit --max-c", "--max-components")])
def test_the_shell_completes(typed, offered):
    env = {"_DIVA_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done, heavy = loaded_by(**env)
    assert offered in done.stdout.split()
    assert heavy == "[]"


def test_names_that_are_declared_without_torch_are_those_of_the_parts():
    assert tuple(augmentation.AUGMENTATIONS) == AUGMENTATIONS
    assert PRESETS["paper"]["hidden_sizes"] == HIDDEN_SIZES
