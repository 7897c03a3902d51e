"""Every promise of docs/promises.md names tests, and they exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "test"), NAMED, ids=[test for _, test in NAMED])
def test_a_test_that_holds_a_promise_exists(file, test):
    tree = ast.parse((ROOT / file).read_text())
    assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_promise_has_a_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and not re.match(r"\|(---|.* held by \|)", line)]
    assert len(rows) > 15
    assert [row for row in rows if "::test_" not in row] == []
