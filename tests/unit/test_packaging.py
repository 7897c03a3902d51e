"""What a stranger needs to install diva: pinned versions that the public index has."""

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pins():
    lines = (line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    return dict(line.split("==") for line in lines if line)


def test_constraints_are_public_versions():
    for name, version in pins().items():
        assert re.fullmatch(r"\d+(\.\d+)*(\.post\d+)?", version), f"{name}: {version} is not a release on PyPI"


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    names = {re.match(r"[\w-]+", requirement)[0].lower() for requirement in wanted} - {"diva-clustering"}
    assert names <= {name.lower() for name in pins()}


def test_the_readme_names_the_pinned_torch():
    assert f"torch=={pins()['torch']} --index-url" in (ROOT / "README.md").read_text()


def imported_at_once(path):
    """Packages that a module imports when it is imported itself."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


def test_every_package_that_is_imported_is_a_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.match(r"[\w-]+", requirement)[0].lower() for requirement in project["dependencies"]}
    found = {name for path in (ROOT / "src/diva").rglob("*.py") for name in imported_at_once(path)}
    packages = metadata.packages_distributions()
    others = found - set(sys.stdlib_module_names) - {"diva"}
    assert {name for name in others if not {p.lower() for p in packages[name]} & declared} == set()
