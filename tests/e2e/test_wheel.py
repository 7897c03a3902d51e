"""The wheel alone, in an environment that has its dependencies and nothing of the repository: fit, predict, report."""

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from hatch_build import with_absolute_links

ROOT = Path(__file__).parents[2]


def run(*command, cwd, **env):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    done = subprocess.run(command, cwd=cwd, env=clean | env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    run(*pip, "--wheel-dir", folder, ROOT, cwd=folder)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def env(wheel) -> Path:
    """A virtual environment with the wheel; dependencies are found where they are, the editable install is not."""
    folder = wheel.parent / "env"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=wheel.parent)
    python = folder / "bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")  # a path: no .pth files in it are read
    return folder


@pytest.mark.slow
def test_the_wheel_alone(env, tmp_path):
    diva = env / "bin/diva"
    assert run(diva, "--version", cwd=tmp_path).startswith("diva ")
    where = run(env / "bin/python", "-c", "import diva; print(diva.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(env)
    run(diva, "fit", "digits", "--limit", "300", "--n-epochs", "2", "--out", "run", cwd=tmp_path)
    run(diva, "fit", "digits", "--limit", "300", "--model", "mixture", "--pca", "5", "--out", "mixture", cwd=tmp_path)
    for name in ("run", "mixture"):
        run(diva, "predict", name, "digits", "--out", f"{name}.csv", cwd=tmp_path)
        run(diva, "report", name, "--out", f"{name}.html", cwd=tmp_path)
        assert len((tmp_path / f"{name}.csv").read_text().splitlines()) == 1798
        assert "<html" in (tmp_path / f"{name}.html").read_text()


@pytest.mark.slow
def test_what_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        about = Parser().parsestr(file.read(next(n for n in names if n.endswith("METADATA"))).decode())
    assert {"diva/py.typed", "diva/report/page.html", "diva/report/page.css", "diva/report/page.js"} <= set(names)
    assert not [name for name in names if not name.startswith(("diva/", "diva_clustering-"))]
    assert about["Name"] == "diva-clustering"
    assert wheel.name.endswith("-py3-none-any.whl")  # nothing is compiled
    assert "Finds groups in data" in about.get_payload()
    assert not re.findall(r"\]\((?!https?:)", about.get_payload())


def test_links_of_the_package_page():
    text = "[a](docs/a.md), ![b](docs/b.png) and [c](https://c.org)"
    assert with_absolute_links(text, None) == "a,  and [c](https://c.org)"
    here = "https://example.org/diva"
    assert (
        with_absolute_links(text, here)
        == f"[a]({here}/blob/main/docs/a.md), ![b]({here}/raw/main/docs/b.png) and [c](https://c.org)"
    )
