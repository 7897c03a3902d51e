"""A fitted model says what it found: describe, report, plot, and a word in notebooks."""

import json
import re
import sys
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine

import diva.explain
from diva import DIVA, DPMixture
from diva.baselines import DEC
from diva.progress import Lines, NotebookBar, Progress, TerminalBar, progress_of

WINE = load_wine(as_frame=True)
DIGITS = load_digits().images[:120].astype(np.uint8)


@pytest.fixture(scope="module")
def mixture():
    return DPMixture(random_state=0).fit(WINE.data)


@pytest.fixture(scope="module")
def images():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DIVA(n_epochs=2, latent_dim=4, random_state=0).fit(DIGITS)


def test_a_mixture_describes_its_clusters_by_features(mixture):
    table = mixture.describe(WINE.data, y=WINE.target)
    assert table.index.tolist() == sorted(mixture.cluster_ids_, key=lambda k: -np.sum(mixture.labels_ == k))
    assert table["size"].sum() == len(WINE.data)
    assert (table["purity"] > 0.9).all()
    assert (table["separation"] > 0).all()
    for cluster, row in table.iterrows():
        assert (mixture.predict(WINE.data)[row["examples"]] == cluster).all()
        mean, overall = WINE.data[mixture.labels_ == cluster].mean(), WINE.data.mean()
        by = ((mean - overall) / WINE.data.std()).abs()
        assert row["apart"].startswith(by.idxmax())
        assert row["neighbour"] in set(table.index) - {cluster}
        assert row["name"].split()[0] in ("high", "low")


def test_without_samples_it_describes_itself_by_draws(mixture):
    with_samples, alone = mixture.describe(WINE.data), mixture.describe()
    assert "examples" not in alone
    assert alone["size"].tolist() == with_samples["size"].tolist()
    assert alone["name"].tolist() == with_samples["name"].tolist()


def test_images_are_described_alike(images):
    table = images.describe(DIGITS)
    assert table["size"].sum() == len(DIGITS)
    assert "apart" not in table
    assert images.describe().index.tolist() == table.index.tolist()


def test_pandas_is_not_needed(mixture, monkeypatch):
    monkeypatch.setattr(diva.explain, "find_spec", lambda name: None)
    rows = mixture.describe()
    assert [row["cluster"] for row in rows] == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::diva.exceptions.ScaleWarning")  # proline, in units of its own
def test_a_model_that_draws_nothing_asks_for_samples():
    X = WINE.data.to_numpy()
    model = DEC(n_clusters=2, n_epochs=1, hidden_sizes=(8,), latent_dim=2, random_state=0).fit(X)
    assert model.describe(X)["size"].sum() == len(X)
    with pytest.raises(ValueError, match="pass those of the fit"):
        model.describe()


@pytest.mark.parametrize("y", [np.zeros(3), np.zeros((178, 2))])
def test_classes_must_be_one_for_each_sample(mixture, y):
    with pytest.raises(ValueError, match=r"y should have shape \(178,\)"):
        mixture.describe(WINE.data, y=y)


def test_a_report_of_a_mixture(mixture, tmp_path):
    path = mixture.report(WINE.data, tmp_path / "wine.html", y=WINE.target, name="wine & more", projection="pca")
    page = path.read_text(encoding="utf-8")
    assert "<h1>wine &amp; more</h1>" in page
    assert {"map-of-codes", "gallery", "tree", "agreement"} <= set(re.findall(r'<section id="([^"]+)"', page))
    assert " laps" in page
    assert " epoch" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert "of training" not in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
    assert data["map"]["levels"]["cluster"]["names"] == ["0", "1", "2"]
    with pytest.raises(IsADirectoryError, match="is a folder"):
        mixture.report(WINE.data, tmp_path)


def test_a_report_of_other_samples_counts_those(mixture, tmp_path):
    some = WINE.data.iloc[:40]
    assert "in 40 rows" in mixture.report(some, tmp_path / "some.html", projection="pca").read_text(encoding="utf-8")


@pytest.mark.parametrize("backend", ["matplotlib", "plotly"])
def test_plots(mixture, images, backend):
    if backend == "matplotlib":
        pytest.importorskip("matplotlib")
    for kind in ("sizes", "tree", "history", "lineage", "features"):
        assert type(mixture.plot(kind=kind, backend=backend)).__module__.split(".")[0] == backend
    assert mixture.plot(backend=backend) is not None
    mixture.plot(WINE.data, y=WINE.target, level="class", projection="pca", backend=backend)
    if backend == "matplotlib":  # pictures are for paper; the page has strips of them
        images.plot(DIGITS, "gallery", backend=backend)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"kind": "pie"}, "kind should be one of"),
        ({"X": "tree"}, r"plot\(kind='tree'\)"),
        ({"kind": "map"}, "the model keeps none: pass them"),
        ({"backend": "gnuplot"}, "backend should be one of"),
        ({"X": WINE.data, "level": "class", "projection": "pca"}, "level should be one of 'cluster', 'component' here"),
        ({"kind": "features", "X": WINE.data, "projection": "cube"}, None),
        ({"kind": "gallery", "X": WINE.data}, "tables have features"),
    ],
)
def test_plots_that_make_no_sense(mixture, args, message):
    if message is None:  # a projection is only looked at for a map
        mixture.plot(**args)
        return
    with pytest.raises(ValueError, match=message):
        mixture.plot(**args)


def test_notebooks_say_what_was_found(mixture):
    assert "3 clusters</b> of 3 components found in 178 samples" in mixture._repr_html_()
    assert "found in" not in DPMixture()._repr_html_()
    assert "found in" in mixture._repr_mimebundle_()["text/html"]
    assert repr(mixture) == "DPMixture(random_state=0)"


class Terminal:
    """What a terminal answers."""

    def __init__(self):
        self.written = []

    def isatty(self):
        return True

    def write(self, text):
        self.written.append(text)

    def flush(self):
        pass


def test_progress_is_a_bar_where_somebody_watches(monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    DPMixture(random_state=0, verbose=True).fit(WINE.data)
    assert any("lap" in text for text in terminal.written)
    assert capsys.readouterr().out == ""
    with progress_of(True) as progress:
        assert isinstance(progress, TerminalBar)
        progress.move(0.5)
    with progress_of(False) as progress:
        assert type(progress) is Progress


def test_progress_is_lines_in_a_pipe(capsys):
    with progress_of(True) as progress:
        assert isinstance(progress, Lines)
        progress.say("lap 1")
        progress.move(0.5)
    assert capsys.readouterr().out == "lap 1\n"


def test_progress_in_a_notebook():
    shown = []

    class Handle:
        def update(self, html):
            shown.append(html)

    bar = NotebookBar(Handle(), str)
    bar.say("epoch 1 <b>", 0.1)
    bar.move(0.101)
    bar.move(0.2)
    assert shown == [
        "<progress max='1' value='0.100'></progress> <code>epoch 1 &lt;b&gt;</code>",
        "<progress max='1' value='0.200'></progress> <code>epoch 1 &lt;b&gt;</code>",
    ]


def test_clusters_that_are_there_come_again():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (150, 2)), rng.normal(20, 1, (60, 2))])
    model = DPMixture(random_state=0).fit(X)
    again = model.repeatability(X, n_fits=3)
    assert again == pytest.approx({0: 1.0, 1: 1.0})
    assert model.repeatability(X, n_fits=3) == again  # the model's seed decides
    table = model.describe(X, n_fits=2)
    assert table["repeatability"].tolist() == [1.0, 1.0]
    assert "repeatability" not in model.describe(X)
    with pytest.raises(ValueError, match="n_fits should be a whole number"):
        model.repeatability(X, n_fits=0)
    with pytest.raises(ValueError, match="load it first"):
        model.repeatability("rows.npy")


@pytest.mark.filterwarnings("ignore")
def test_fits_that_repeat_leave_no_files(tmp_path):
    called = []
    model = DIVA(n_epochs=1, latent_dim=2, random_state=0, run_dir=str(tmp_path), callbacks=[lambda *told: called.append(told)])
    model.fit(DIGITS)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    found = model.repeatability(DIGITS, n_fits=1)
    assert set(found) == set(model.predict(DIGITS).tolist())
    assert all(0 < share <= 1 for share in found.values())
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert len(called) == 1
