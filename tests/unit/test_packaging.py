"""What a stranger needs to install diva: pinned versions of the public index, and a wheel that anybody can build again."""

import ast
import importlib.util
import json
import os
import re
import shutil
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

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


# --- the wheel


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Two, from copies of the sources that differ in their place, their times and who may write to them."""
    built = []
    for number in range(2):
        folder = tmp_path_factory.mktemp("sources") / f"copy-{number}"
        for name in ("src", "release"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, folder / name)
        for path in folder.rglob("*"):
            os.utime(path, (10**9 + number, 10**9 + 7 * number))
            path.chmod(0o755 if path.is_dir() else 0o644 if number else 0o664)
        (wheel,) = WheelBuilder(str(folder)).build(directory=str(folder / "dist"), versions=["standard"])
        built.append(Path(wheel))
    return built


def test_a_wheel_built_twice_is_the_same(wheels):
    one, other = wheels
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()


def test_the_wheel_says_what_it_needs(wheels):
    with zipfile.ZipFile(wheels[0]) as wheel:
        (name,) = (name for name in wheel.namelist() if "/sboms/" in name)
        sbom = json.loads(wheel.read(name))
        assert not [name for name in wheel.namelist() if not name.startswith(("diva/", "diva_clustering-"))]
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    assert {part["name"] for part in sbom["components"]} >= {"numpy", "torch", "safetensors", "scikit-learn"}


def test_the_bill_of_materials_is_of_the_pinned_versions():
    spec = importlib.util.spec_from_file_location("make_sbom", ROOT / "release" / "make_sbom.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    kept, now = json.loads(made.SBOM.read_text()), made.make_sbom()
    assert [part["purl"] for part in kept["components"]] == [part["purl"] for part in now["components"]], "run make sbom"
    assert kept["dependencies"] == now["dependencies"], "run make sbom"
    known = {part["bom-ref"] for part in kept["components"]}
    assert all(set(each["dependsOn"]) <= known for each in kept["dependencies"])
