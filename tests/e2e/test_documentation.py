"""Every Python and console block in README and docs runs, and every local link leads somewhere.

The blocks of a page run from top to bottom in one folder and share their names, so that a page may write a file in Python and
fit it on the command line. Fits are kept short: wherever a page leaves the number of epochs to DIVA, it is 3 here, and the
digits are fewer. A console block after ``<!-- fails -->`` must fail, and say what the page says.
"""

import doctest
import importlib.util
import re
import shlex
import warnings
from pathlib import Path

import pytest
from sklearn.datasets import load_digits
from sklearn.utils import Bunch
from typer.testing import CliRunner

import diva.data.datasets.load
import diva.metrics
import diva.mixture.estimator
import diva.mixture.process
import diva.models.config
import diva.models.diva
import diva.partition.hierarchy
import diva.partition.walk
from diva.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("**/*.md")])
BLOCK = re.compile(r"(<!-- fails -->\n+)?^([ ]*)```(python|console|shell)\n(.*?)^[ ]*```", re.DOTALL | re.MULTILINE)
NOT_RUN = ("cd", "export", "git", "pip", "scp", "python")  # they would change more than a folder of the test
HOME = "/home/me"  # stands for wherever the reader is


@pytest.fixture
def short_fits(monkeypatch):
    digits = load_digits()
    few = Bunch(images=digits.images[:300], target=digits.target[:300])
    monkeypatch.setattr(diva.models.config, "MIN_EPOCHS", 3)
    monkeypatch.setattr(diva.models.config, "MIN_STEPS", 1)
    monkeypatch.setattr(diva.data.datasets.load, "load_digits", lambda: few)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
@pytest.mark.usefixtures("short_fits")
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for fails, indent, kind, block in BLOCK.findall(page.read_text()):
        if kind == "python":
            text = "\n".join(line.removeprefix(indent) for line in block.splitlines())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a short fit may not have converged
                exec(compile(text, str(page), "exec"), names)
        else:
            run_console(block, fails=bool(fails), home=tmp_path)


def run_console(block, *, fails, home):
    """Run the commands of a block: lines after ``$``, or all of them if none is marked."""
    lines = [line.strip() for line in block.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith("$ ")]
    commands = [line.removeprefix("$ ") for line in (marked or lines)]
    output = ""
    for command in commands:
        first, *arguments = shlex.split(command, comments=True)
        if first == "diva":
            result = CliRunner().invoke(app, arguments)
            output += result.output
            assert (result.exit_code != 0) == fails, f"{command}: {result.output}"
            assert isinstance(result.exception, SystemExit | None), command
        elif first == "make":
            assert all(re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) for target in arguments), (
                command
            )
        else:
            assert Path(first).name in NOT_RUN, f"{command} is neither run nor known"
    if fails:
        said = " ".join(line for line in lines if not line.startswith("$ "))
        assert said.replace(HOME, str(home)) in " ".join(output.split()), output


def test_every_block_has_a_language():
    for page in PAGES:
        opened = re.findall(r"^[ ]*```(\w*)$", page.read_text(), re.MULTILINE)[::2]
        assert set(opened) <= {"python", "console", "bash", "text", "toml", "bibtex"}, page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_local_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("name", ["make_commands", "make_parameters", "make_reproduction"])
def test_pages_made_from_the_code_are_up_to_date(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text() == script.page(), f"run python docs/{name}.py"


@pytest.mark.parametrize(
    "module",
    [
        diva.models.diva,
        diva.mixture.estimator,
        diva.mixture.process,
        diva.metrics,
        diva.partition.hierarchy,
        diva.partition.walk,
    ],
    ids=lambda m: m.__name__,
)
def test_docstring_examples(module):
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0


DEPARTURES = [
    "delete",
    "K = 1",
    "order of mass",
    "minimum atoms",
    "share of the variance",
    "mean variance of 1",
    "by the mean of q(z",
    "not one Wishart for all",
    "rests until",
    "one batch up to 10,000",
    "acc_majority",
]


def test_every_departure_that_is_left_is_listed():
    page = (ROOT / "docs/departures.md").read_text()
    assert [what for what in DEPARTURES if what not in page] == []
    named = set(re.findall(r"`(\w+)=", page))
    assert named <= set(diva.models.diva.DIVA().get_params())


def test_no_page_promises_the_paper_to_the_letter():
    assert [page.name for page in (*PAGES, ROOT / "CHANGELOG.md") if "to the letter" in page.read_text()] == []
