"""Baselines by name."""

import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import diva.baselines
from diva.baselines import BASELINES, load_baseline
from diva.cli import app
from diva.models.base import Clusterer
from diva.runs.load import ESTIMATORS, MODELS

PAGE = Path(__file__).parents[3] / "docs/baselines.md"


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_found_by_its_name(name):
    kind = load_baseline(name)
    assert issubclass(kind, Clusterer)
    assert getattr(diva.baselines, kind.__name__) is kind
    assert kind.__name__ in dir(diva.baselines)
    assert MODELS[name] is ESTIMATORS[kind.__name__] is kind
    assert kind.config_class.__name__.startswith(kind.__name__) or kind.__name__.startswith("UMAP")
    assert f"| `{kind.__name__}` | `{name}` |" in PAGE.read_text()


@pytest.mark.parametrize("name", BASELINES)
def test_a_configuration_holds_what_the_parameters_say(name):
    kind = load_baseline(name)
    config = kind()._resolve(False, 100)
    assert type(config) is kind.config_class
    assert kind.config_class.from_plain(config.to_plain()) == config


def test_another_name_is_no_baseline():
    with pytest.raises(AttributeError, match="has no attribute 'KMeans'"):
        diva.baselines.KMeans  # noqa: B018


def test_the_command_line_says_what_to_install(tmp_path, monkeypatch):
    np.save(tmp_path / "rows.npy", np.zeros((10, 2)))
    monkeypatch.setitem(sys.modules, "umap", None)
    result = CliRunner().invoke(
        app, ["fit", str(tmp_path / "rows.npy"), "--model", "umap-hdbscan", "--out", str(tmp_path / "run")]
    )
    assert result.exit_code == 1
    assert "pip install 'diva-clustering[umap]'" in " ".join(result.stderr.split())
    assert not (tmp_path / "run").exists()
