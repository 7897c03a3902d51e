"""Hyper-parameters are declared once; signature, checks, docstring and values follow."""

import inspect
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, clone

from diva import DIVA, DPMixture
from diva.baselines import BASELINES, load_baseline
from diva.models.config import PRESETS, DIVAConfig
from diva.parameters import (
    Flag,
    Folder,
    Holds,
    Number,
    OneOf,
    Seed,
    Sizes,
    Whole,
    check_parameters,
    declared_in,
    parameter,
    plain,
    takes,
    values_of,
)


@dataclass(frozen=True)
class Common:
    """Common things."""

    size: int = parameter(3, Whole(1, 9), help="How many.")
    rate: float = parameter(0.5, Number(0, 1), OneOf("auto"), unset=None, help="How fast; None asks the preset.")


@dataclass(frozen=True)
class Special(Common):
    """Special things."""

    mode: str = parameter("soft", OneOf("soft", "hard"), help="Which way.")
    secret: int = parameter(7, Whole(), public=False, help="Presets alone set it.")


@takes(Special)
class Toy(BaseEstimator):
    """A toy.

    It does nothing.

    Attributes
    ----------
    toys_ : int

    Examples
    --------
    >>> 1
    1
    """


# --- one declaration


def test_the_signature_is_the_declaration():
    listed = inspect.signature(Toy).parameters
    assert {name: p.default for name, p in listed.items()} == {"size": 3, "rate": None, "mode": "soft"}
    assert [p.kind.name for p in listed.values()] == ["POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY", "KEYWORD_ONLY"]


def test_an_estimator_stores_what_it_is_given_and_checks_nothing():
    toy = Toy("nine", rate=np.nan)
    assert toy.get_params() == {"size": "nine", "rate": toy.rate, "mode": "soft"}
    assert math.isnan(toy.rate)


@pytest.mark.parametrize("given", [{"colour": 1}, {"secret": 8}])
def test_other_names_are_a_type_error(given):
    with pytest.raises(TypeError, match=next(iter(given))):
        Toy(**given)
    with pytest.raises(TypeError):
        Toy(1, 2)


def test_scikit_learn_knows_the_parameters():
    toy = Toy(5, mode="hard")
    assert clone(toy).get_params() == toy.get_params()
    assert toy.set_params(size=2).size == 2
    assert repr(toy) == "Toy(mode='hard', size=2)"


def test_the_docstring_lists_the_parameters_before_the_attributes():
    text = inspect.getdoc(Toy)
    assert "size : a whole number from 1 to 9, default=3\n    How many." in text
    assert 'rate : a number from 0 to 1 or "auto", default=None' in text
    assert "secret" not in text
    sections = [text.index(f"\n{name}\n---") for name in ("Parameters", "Attributes", "Examples")]
    assert sections == sorted(sections)
    assert text.startswith("A toy.\n\nIt does nothing.\n\nParameters\n")


def test_a_docstring_without_sections_gets_one():
    @takes(Common)
    class Plain:
        """Plain."""

    assert inspect.getdoc(Plain).startswith("Plain.\n\nParameters\n----------\nsize : ")


def test_a_parameter_is_about_what_the_class_says_that_declares_it():
    groups = {name: p.group for name, p in declared_in(Special).items()}
    assert groups == {"size": "Common things", "rate": "Common things", "mode": "Special things", "secret": "Special things"}


# --- checks


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 0}, "size should be a whole number from 1 to 9, got 0."),
        ({"size": 2.0}, "size should be a whole number from 1 to 9, got 2.0."),
        ({"size": True}, "size should be a whole number from 1 to 9, got True."),
        ({"rate": "fast"}, "rate should be a number from 0 to 1 or \"auto\", got 'fast'."),
        ({"mode": None}, 'mode should be one of "soft", "hard", got None.'),
    ],
    ids=str,
)
def test_a_wrong_value_is_named_with_what_was_expected(given, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        check_parameters(Toy(**given))
    assert str(caught.value) == message


@pytest.mark.parametrize("given", [{}, {"rate": None}, {"rate": "auto"}, {"size": np.int8(9), "rate": np.float32(1)}], ids=str)
def test_right_values_pass(given):
    check_parameters(Toy(**given))


def holds_even(value):
    return isinstance(value, int) and value % 2 == 0


@pytest.mark.parametrize(
    ("allowed", "right", "wrong"),
    [
        (Whole(2, 5), [2, 5, np.uint8(3)], [1, 6, 3.0, True, "3", None, [3], np.array([3])]),
        (Number(0, 1), [0, 1, 0.5, np.float16(0.5)], [-1e-9, 1.1, np.nan, np.inf, -np.inf, True, "0.5", None, 10**400, 1j]),
        (OneOf("a", None, True), ["a", None, True], ["b", False, 1, 0, "None", ["a"], np.array(["a"])]),
        (Flag(), [True, False, np.True_, 0, 1], ["true", None, 1.0, []]),
        (Sizes(range(1, 3), 10, "one or two sizes", "INT"), [(1,), [10, 2]], [(), (1, 2, 3), (11,), (0,), (1.0,), 3, "12"]),
        (Folder(), ["run", Path("run")], ["", "a\0b", b"run", 3, None]),
        (Seed(), [0, 2**32 - 1, np.int64(3), np.random.RandomState(0), None], [-1, 2**32, "0", 1.5, [1]]),
        (Holds(holds_even, "an even number"), [2, 0], [3, "2", None]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_allowed_values(allowed, right, wrong):
    assert [value for value in right if not allowed.accepts(value)] == []
    assert [value for value in wrong if allowed.accepts(value)] == []
    assert str(allowed)


# --- values


def test_values_of_an_estimator_are_those_that_were_given_and_the_fields_defaults():
    assert values_of(Toy(4), Special) == Special(size=4, rate=0.5, mode="soft", secret=7)
    assert values_of(Toy(4, mode="hard"), Common) == Common(4)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.False_, False),
        ((1, np.int8(2)), [1, 2]),
        (Path("run"), "run"),
        (torch.device("cpu"), "cpu"),
        ("auto", "auto"),
        (None, None),
        (torch.nn.Linear(1, 1), None),
        (np.random.RandomState(0), None),
        (len, None),
    ],
    ids=str,
)
def test_plain_values_go_into_json(value, expected):
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)
    json.dumps(plain(value))


# --- the estimators


ESTIMATORS = [DIVA, DPMixture, *map(load_baseline, BASELINES)]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_parameter_of_an_estimator_is_declared(estimator):
    assert list(inspect.signature(estimator).parameters) == list(estimator.declared_parameters)
    assert set(estimator().get_params(deep=False)) == set(estimator.declared_parameters)
    for name, declaration in estimator.declared_parameters.items():
        assert declaration.help.endswith("."), name
        assert declaration.expected, name
        assert f"\n{name} : " in inspect.getdoc(estimator)
    check_parameters(estimator())


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_defaults_in_the_signature_are_allowed_or_stand_for_a_preset(estimator):
    for name, declaration in estimator.declared_parameters.items():
        standing = declaration.default is None or declaration.default == "auto" or declaration.default == ()
        assert standing or any(option.accepts(declaration.default) for option in declaration.allowed), name


def test_presets_are_allowed():
    declared = declared_in(DIVAConfig)
    for settings in PRESETS.values():
        for name, value in settings.items():
            declared[name].check(name, value)


def test_declarations_do_not_need_torch():
    program = "import sys, diva.parameters; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ)
