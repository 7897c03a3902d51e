"""What a stranger needs to install diva: pinned versions that the public index has."""

import re
import tomllib
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
