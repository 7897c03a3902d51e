"""The documentation builds without a warning, and its pages ask nothing of the network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_site(site):
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    assert pages <= {page.stem for page in site.glob("*.html")}


def test_pages_load_nothing_from_elsewhere(site):
    for page in site.glob("*.html"):
        loaded = re.findall(r"<(?:script|img|link)\b[^>]*?(?:src|href)=\"?(https?://[^\"\s>]+)", page.read_text())
        assert not loaded, f"{page.name} loads {loaded}"


def test_the_reference_has_the_public_names(site):
    documented = set(re.findall(r'<h3 id="?(diva[\w.]*)', (site / "api.html").read_text()))
    assert {"diva.DIVA", "diva.DPMixture", "diva.load", "diva.partition.hierarchy.Hierarchy"} <= documented
    assert {"diva.data.open_path", "diva.data.load_dataset", "diva.report.write_report"} <= documented
