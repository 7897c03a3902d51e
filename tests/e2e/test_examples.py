"""Every script of the gallery runs, and finds what it says it finds. Fits of networks are kept short."""

import runpy
import sys
from pathlib import Path

import pytest
from sklearn import datasets
from sklearn.utils import Bunch

import diva.models.config

EXAMPLES = Path(__file__).parents[2] / "examples"
# clusters, at least and at most; short fits of networks are not judged
FOUND = {
    "table": (3, 3),
    "images": (1, 99),
    "text": (3, 60),
    "vectors": (6, 6),
    "cells": (4, 4),
    "sensors": (1, 99),
    "stream": (3, 3),
    "mixture": (2, 2),
}


def test_every_script_is_here_and_listed():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == FOUND.keys()
    page = (EXAMPLES / "README.md").read_text()
    assert all(f"[{name}.py]({name}.py)" in page for name in FOUND)


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_example_finds_what_it_says(name, tmp_path, monkeypatch, capsys):
    digits = datasets.load_digits()
    few = Bunch(images=digits.images[:200], target=digits.target[:200])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(diva.models.config, "MIN_EPOCHS", 3)
    monkeypatch.setattr(diva.models.config, "MIN_STEPS", 1)
    monkeypatch.setattr(datasets, "load_digits", lambda: few)
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    model = runpy.run_path(str(EXAMPLES / f"{name}.py"))["model"]
    least, most = FOUND[name]
    assert least <= model.n_clusters_ <= most
    assert capsys.readouterr().out.count("\n") >= 3
    assert not list(tmp_path.iterdir())
