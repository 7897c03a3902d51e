"""Write ``release/sbom.cdx.json``: what is installed with diva, as CycloneDX. It is part of the wheel (PEP 770).

    python release/make_sbom.py

Names come from the dependencies in ``pyproject.toml`` and from what those require, as the packages installed here say; versions
are those of ``constraints.txt``, with which a release is tested. Equal input gives an equal file: it has no date.
"""

from __future__ import annotations

import json
import re
import tomllib
import uuid
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SBOM = ROOT / "release" / "sbom.cdx.json"


def canonical(name: str) -> str:
    """A name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """Versions of ``constraints.txt``."""
    lines = (line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    return {canonical(name): version for name, version in (line.split("==") for line in lines if line)}


def needed_by(requirements: list[str]) -> set[str]:
    """Packages that requirements ask for here, without extras."""
    wanted = map(Requirement, requirements)
    return {canonical(r.name) for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})}


def closure(first: set[str]) -> dict[str, set[str]]:
    """What each package needs, from the first ones on."""
    found: dict[str, set[str]] = {}
    waiting = sorted(first)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = needed_by(requires(name) or [])
            waiting += sorted(found[name])
    return found


def licence(name: str) -> list[dict[str, Any]]:
    """What a package says about its licence, if it says it in the language of SPDX."""
    try:
        said = metadata(name).get("License-Expression")
    except PackageNotFoundError:
        said = None
    return [{"expression": said}] if said else []


def make_sbom() -> dict[str, Any]:
    """The whole document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.search(r'__version__ = "(.+)"', (ROOT / "src" / "diva" / "version.py").read_text())
    assert version is not None
    first, pinned = needed_by(project["dependencies"]), pins()
    needs = {name: of for name, of in closure(first).items() if name in pinned}
    purl = {name: f"pkg:pypi/{name}@{pinned[name]}" for name in needs}
    components = [
        {"type": "library", "name": name, "version": pinned[name], "bom-ref": purl[name], "purl": purl[name]}
        | ({"licenses": said} if (said := licence(name)) else {})
        for name in sorted(needs)
    ]
    own = f"pkg:pypi/{project['name']}@{version[1]}"
    dependencies = [{"ref": own, "dependsOn": sorted(purl[name] for name in first)}]
    dependencies += [
        {"ref": purl[name], "dependsOn": sorted(purl[n] for n in needs[name] & needs.keys())} for name in sorted(needs)
    ]
    subject = {"type": "library", "name": project["name"], "version": version[1], "bom-ref": own, "purl": own}
    subject |= {"licenses": [{"license": {"id": project["license"]}}]}
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([own, components, dependencies]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": subject},
        "components": components,
        "dependencies": dependencies,
    }


if __name__ == "__main__":
    SBOM.write_text(json.dumps(make_sbom(), indent=1) + "\n")
