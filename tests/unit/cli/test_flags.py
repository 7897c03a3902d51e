"""Flags: made from what the models declare, read as the values they mean."""

from typing import Annotated

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from diva.baselines import DEC
from diva.cli import _flags, app
from diva.cli._errors import UsageError
from diva.cli._flags import (
    COMMON_PANEL,
    ModelCommand,
    _foreign_flag,
    from_text,
    given_params,
    make_model,
    parameters_of,
    suitable,
)
from diva.cli._learn import suggestions
from diva.data import ArraySource, LoadedData
from diva.models.diva import DIVA
from diva.runs.load import MODELS


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("image_shape", "28,28", (28, 28)),
        ("hidden_sizes", "500", (500,)),
        ("hidden_sizes", "(500, 2000)", (500, 2000)),
        ("kl_weight", "auto", "auto"),
        ("kl_weight", "1e-4", 1e-4),
        ("grouping", "None", None),
        ("tfidf", "true", True),
        ("adapt", "FALSE", False),
        ("pca", " 8 ", 8),
        ("random_state", "none", None),
    ],
)
def test_what_a_text_means(name, text, value):
    meant = from_text(parameters_of("diva")[name], text)
    assert meant == value
    assert type(meant) is type(value)


def test_what_no_text_can_say_is_no_flag():
    declared = DIVA.declared_parameters.keys()
    in_python = {"run_dir", "resume", "verbose", "callbacks", "encoder", "decoder"}
    of_data = {"columns", "missing"}  # flags about reading the data
    assert declared - parameters_of("diva").keys() == in_python | of_data


def test_flags_come_before_the_file(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text("[diva]\nn_views = 2\n[dec]\nlatent_dim = 4\nn_clusters = 7\nhidden_sizes = [8]\n")
    params = given_params("dec", {"latent_dim": "3", "n_laps": None}, path)
    assert params == {"latent_dim": 3, "n_clusters": 7, "hidden_sizes": (8,)}
    assert given_params("diva", {}, path) == {"n_views": 2}


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        ("diva", {"dropout": "0.3"}, "--dropout is no parameter of the model diva. Leave it out, or pass --model dec"),
        ("dec", {"n_laps": "3"}, "--n-laps is no parameter of the model dec. Leave it out, or pass --model diva."),
        ("dec", {"sharpening": "0"}, "--sharpening is called --self-training now."),
        ("diva", {"n_epochs": "0"}, "--n-epochs should be a whole number from 1"),
        ("diva", {"warmup": "0.9", "self_training": "0.5"}, "--warmup and self_training should add up"),
    ],
)
def test_what_makes_no_sense_is_said_by_its_flag(model, given, said):
    with pytest.raises(UsageError) as error:
        given_params(model, given, None)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("stl10", {"preset": "paper"}, {"learning_rate": 2.5e-5}),
        ("stl10", {}, {"pca": 8}),
        ("mnist", {"preset": "paper"}, {}),
        ("stl10", {"preset": "features"}, {}),
    ],
)
def test_what_suits_a_data_set(name, given, expected):
    assert suggestions(LoadedData(ArraySource(np.zeros((2, 3))), name=name, suggested={"pca": 8}), given) == expected


def shown(monkeypatch, *model):
    monkeypatch.setenv("COLUMNS", "200")
    app = typer.Typer(rich_markup_mode="rich")

    @app.command(cls=ModelCommand)
    def fit(ctx: typer.Context, model: Annotated[str, typer.Option(is_eager=True)] = "auto") -> None:
        print({name: text for name, text in ctx.meta["flags"].items() if text is not None})

    result = CliRunner().invoke(app, [*model, "--help"])
    assert result.exit_code == 0, result.output
    assert CliRunner().invoke(app, ["--latent-dim", "3"]).stdout.strip() == "{'latent_dim': '3'}"
    return [line.strip("│╭╮─ ") for line in result.stdout.splitlines()]


def test_a_flag_of_another_model_is_said_to_be_so():
    result = CliRunner().invoke(app, ["fit", "digits", "--n-views", "3", "--model", "dec"])
    assert result.exit_code == 2
    assert "--n-views is no parameter of the model dec. Leave it out, or pass --model diva." in result.output
    result = CliRunner().invoke(app, ["fit", "digits", "--n-viws", "3"])
    assert result.exit_code == 2
    assert "--n-views" in result.output


HEADINGS = ["Data", "Networks and optimizer", "Learning", "Deep embedded clustering"]


def test_flags_are_grouped_and_show_their_defaults(monkeypatch):
    lines = shown(monkeypatch, "--model", "dec")
    assert [line for line in lines if line in HEADINGS] == ["Data", "Networks and optimizer", "Deep embedded clustering"]
    by_flag = {line.split()[0]: line for line in lines if line.startswith("--")}
    assert by_flag["--n-clusters"].endswith("[default: (10)]")
    assert by_flag["--batch-size"].endswith("[default: (256)]")
    assert "--n-views" not in by_flag


@pytest.mark.parametrize("model", [[], ["--model", "diva"], ["--model", "kmeans"]], ids=["none", "diva", "unknown"])
def test_help_is_about_diva_unless_another_model_is_asked_for(monkeypatch, model):
    lines = shown(monkeypatch, *model)
    assert [line for line in lines if line in HEADINGS] == ["Data", "Networks and optimizer", "Learning"]
    by_flag = {line.split()[0]: line for line in lines if line.startswith("--")}
    assert by_flag["--batch-size"].endswith("[default: (128)]")
    assert by_flag["--latent-dim"].endswith("[default: (16, of rows 10)]")
    assert by_flag["--pca"].split()[1] == "INT|none"
    assert lines.index(COMMON_PANEL) < lines.index("Data")
    assert lines.index(COMMON_PANEL) < lines.index(by_flag["--random-state"]) < lines.index("Data")
    assert by_flag["--random-state"].split()[1] == "INT|none"
    assert by_flag["--replay"].split()[1] == "draws|reservoir|none"
    assert by_flag["--tfidf"].split()[1] == "true|false"
    assert by_flag["--n-views"].endswith("[default: (4)]")


def test_a_new_model_is_one_line(monkeypatch):
    class Another(DEC):
        declared_parameters = {"margin": DEC.declared_parameters["dropout"]} | DEC.declared_parameters

        def __init__(self, margin=0.2, **others):
            super().__init__(**others)
            self.margin = margin

    monkeypatch.setitem(MODELS, "another", Another)
    assert any(line.startswith("--margin") for line in shown(monkeypatch, "--model", "another"))
    assert make_model("another", {"margin": 0.5}).margin == 0.5
    with pytest.raises(UsageError, match="--model another"):
        given_params("dec", {"margin": "0.5"}, None)
    assert _foreign_flag("n_clusters", "diva").endswith(" or another.")
    assert _flags.MODELS is MODELS


def test_what_suits_some_data_is_for_models_that_have_it():
    assert suitable("diva", {"augmentation": "photo"}) == {"augmentation": "photo"}
    assert suitable("dec", {"augmentation": "photo", "pca": 50}) == {"pca": 50}
