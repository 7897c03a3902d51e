import json
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from diva import DIVA
from diva.data import ArraySource, LoadedData
from diva.exceptions import ModelFileError, ReportError
from diva.report import write_figures, write_report
from diva.report.draw_plotly import to_plotly
from diva.report.findings import read_findings
from diva.report.lineage import survivors, trace
from diva.report.marks import Area, Axis, Bars, Line, Plot, Points
from diva.report.page import to_json
from diva.report.palette import COLOURS, colour_of, symbol_of, text_on
from diva.report.panels import _image_card, _table_card
from diva.report.pictures import make_sheet, to_pictures
from diva.report.projection import PROJECTION, project, project_run
from diva.report.words import count, duration, number, percent
from diva.runs.records import EpochRecord
from diva.runs.snapshot import Snapshot
from diva.runs.summarize import summarize
from diva.runs.summary import ImageFormat, Move, Summary

NASTY = '</script><img src=x onerror="alert(1)">&$x$'


def make_run(folder, X, labels=None, feature_names=None, name="things", **params):
    params = {"latent_dim": 2, "n_epochs": 2, "hidden_sizes": (16,), "random_state": 0} | params
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DIVA(run_dir=folder, **params).fit(X)
    summarize(model, LoadedData(ArraySource(X), labels, name=name, feature_names=feature_names)).save(folder)
    return folder


def blobs(n=60, d=5, seed=0):
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % 3
    return (rng.standard_normal((n, d)) * 0.3 + 4 * classes[:, None]).astype(np.float32), classes


def images(*shape, n=60):
    return np.random.default_rng(0).integers(0, 256, (n, *shape), dtype=np.uint8)


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    X, classes = blobs()
    names = [NASTY, "b", "c" * 80, "d", "e"]
    labels = np.array([NASTY, "second", "third"])[classes]
    return make_run(tmp_path_factory.mktemp("table"), X, labels, names, name=NASTY)


@pytest.fixture(scope="module")
def image_run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("images"), images(12, 8, 3), latent_dim=3)


@pytest.fixture(scope="module", params=["table_run", "image_run"])
def bare_run(request, tmp_path_factory):
    """A run as of a model with neither mixture, nor density, nor decoder, that was told the number of clusters."""
    summary = Summary.read(request.getfixturevalue(request.param))
    nothing = dict.fromkeys(
        ("components", "log_density", "draws", "draw_clusters", "reconstructed", "reconstructions", "feature_errors")
    )
    bare = replace(
        summary,
        model="DEC",
        components=None,
        tree=None,
        lineage=(),
        epochs=[EpochRecord(epoch=i, phase="clustering", loss=1 / (i + 1)) for i in range(3)],
        metrics=summary.metrics and {"clusters": summary.metrics["clusters"]},
        params={"n_clusters": summary.n_clusters},
        snapshot=replace(summary.snapshot, **nothing),
    )
    run = tmp_path_factory.mktemp("bare")
    bare.save(run)
    return run


class Outline(HTMLParser):
    """Ids, tags that are open, and anything that would be fetched."""

    VOID = ("meta", "link", "img", "br", "input", "polygon", "polyline")

    def __init__(self):
        super().__init__()
        self.ids, self.open, self.fetched = [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        for name in ("src", "href"):
            if not (attrs.get(name) or "#").startswith(("#", "data:")):
                self.fetched.append(attrs[name])
        assert not any(name.startswith("on") for name in attrs), attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def outline(page):
    parser = Outline()
    parser.feed(page)
    assert parser.open == []
    assert parser.fetched == []
    assert len(parser.ids) == len(set(parser.ids))
    return parser.ids


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def panels_of(page):
    return re.findall(r'<section id="([^"]+)"', page)


def report_of(run):
    page = write_report(run).read_text(encoding="utf-8")
    ids = outline(page)
    assert set(data_of(page)["plots"]) <= set(ids)
    return page


def test_table_with_labels_shows_everything(table_run):
    page = report_of(table_run)
    assert panels_of(page)[:4] == ["map-of-codes", "gallery", "sizes", "agreement"]
    assert {"epochs", "reconstruction", "settings"} <= set(panels_of(page))
    assert "One-to-one accuracy" in page
    data = data_of(page)
    assert list(data["map"]["levels"])[:3] == ["cluster", "component", "class"]  # then layers of the tree
    assert data["map"]["sheet"] is None
    assert len(data["map"]["rows"]["which"]) == 60


def test_texts_of_the_user_are_escaped(table_run):
    page = report_of(table_run)
    assert NASTY not in page
    assert "<img src=x" not in page
    assert data_of(page)["map"]["levels"]["class"]["names"][0] == NASTY  # text nodes only: the script never parses it
    for plot in data_of(page)["plots"].values():
        assert "<img" not in json.dumps(plot)


def test_json_cannot_end_its_script():
    text = to_json({"a": "</script>&\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script>&\u2028"}


def test_a_report_needs_neither_torch_nor_a_model(table_run, tmp_path):
    script = (
        "import sys\n"
        "from diva.report import write_figures, write_report\n"
        "write_report(sys.argv[1], sys.argv[2] + '/report.html')\n"
        "write_figures(sys.argv[1], sys.argv[2], ('svg',))\n"
        "assert 'torch' not in sys.modules"
    )
    run = tmp_path / "run"
    run.mkdir()
    for name in ("results.json", "snapshot.safetensors"):
        shutil.copy(table_run / name, run)
    subprocess.run([sys.executable, "-c", script, run, tmp_path], check=True)


def test_what_a_model_does_not_have_is_left_out(bare_run, tmp_path):
    page = report_of(bare_run)
    assert not {"tree", "lineage", "reconstruction"} & set(panels_of(page))
    assert {"map-of-codes", "gallery", "sizes", "epochs", "settings"} <= set(panels_of(page))
    assert "found in 60" in page
    assert "by DEC." in page
    assert "Nobody said how many" not in page
    assert "The loss over the epochs" in page
    assert "ade by the model</h4>" not in page
    assert "ade by the model</th>" not in page
    assert "component" not in data_of(page)["map"]["levels"]
    names = {path.stem for path in write_figures(bare_run, tmp_path, ("svg",))}
    assert {"map-cluster", "gallery", "sizes", "epochs"} <= names
    assert not {"map-component", "tree", "lineage", "reconstruction"} & names


def test_one_description_is_drawn_by_both(table_run):
    matplotlib = pytest.importorskip("matplotlib")
    from diva.report.draw_matplotlib import STYLE, to_matplotlib

    curve = Line([1, 2, 3], [1.0, None, 3.0], "#ff0000", "a <b>", dots=True)
    points = Points([2.0], [0.5], "#00ff00", "diamond", 10, ["here\nand there"])
    upper = Area([curve, points], Axis("x", (0, 4), whole=True), Axis("K", (0, 5)))
    bars = Area([Bars([1.0, 2.0], ["#0000ff"] * 2, ["one", "two"])], Axis("x"), Axis(ticks=[(0, "p"), (1, "q")]))
    page = to_plotly(Plot([upper, bars], height=280, shares=(3, 1), legend=True))
    assert [trace["type"] for trace in page["data"]] == ["scatter", "scatter", "bar"]
    assert page["data"][1]["customdata"] == ["here<br>and there"]
    assert page["layout"]["yaxis"]["domain"][0] > page["layout"]["yaxis2"]["domain"][1]
    assert page["layout"]["yaxis2"]["ticktext"] == ["p", "q"]
    with matplotlib.rc_context(STYLE):
        figure = to_matplotlib(Plot([upper, bars], height=280, shares=(3, 1), legend=True))
    first, second = figure.axes
    assert first.get_ylim() == (0, 5)
    assert len(first.lines) == len(first.collections) == 1
    assert [bar.get_width() for bar in second.patches] == [1.0, 2.0]
    assert [text.get_text() for text in second.texts] == ["one", "two"]
    assert figure.get_size_inches().tolist() == [5.0, 2.0]


def test_colour_images_that_are_not_square(image_run):
    page = report_of(image_run)
    sheet = data_of(page)["map"]["sheet"]
    assert (sheet["width"], sheet["height"]) == (8, 12)
    assert sheet["columns"] * sheet["rows"] >= 60
    assert "agreement" not in panels_of(page)
    assert "colour images of 12 \u00d7 8 pixels" in page
    assert page.count('class="strip"') >= 3


def test_projection_is_kept_and_damage_is_repaired(image_run):
    path = image_run / PROJECTION
    report_of(image_run)
    before = path.read_bytes()
    codes = Snapshot.read(image_run / "snapshot.safetensors").codes
    first = project_run(image_run, codes)
    assert path.read_bytes() == before
    path.write_bytes(before[:100])
    np.testing.assert_array_equal(project_run(image_run, codes).points, first.points)
    assert project_run(image_run, codes, "pca").method == "pca"
    assert project_run(image_run, codes).method == first.method


@pytest.mark.parametrize("shape", [(1, 5), (2, 5), (50, 1), (50, 2)])
def test_projection_of_few_or_short_codes(shape):
    points = project(np.random.default_rng(0).standard_normal(shape).astype(np.float32)).points
    assert points.shape == (shape[0], 2)


def test_projection_of_equal_codes_is_finite():
    assert np.isfinite(project(np.ones((20, 4), np.float32)).points).all()
    with pytest.raises(ValueError, match="projection should be one of"):
        project(np.ones((20, 4), np.float32), "isomap")


def test_one_cluster_one_epoch_no_labels(tmp_path):
    X = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
    run = make_run(tmp_path, X, n_epochs=1, max_components=1)
    found = read_findings(run).summary
    assert found.n_clusters == found.n_components == 1
    page = report_of(run)
    assert not {"agreement", "tree", "lineage"} & set(panels_of(page))
    assert "1 cluster found" in page
    assert len(write_figures(run, tmp_path / "figures", ("svg",))) >= 5


@pytest.mark.parametrize(
    ("X", "params"),
    [
        (blobs()[0], {"preset": "paper"}),
        (blobs()[0], {"grouping": None}),
        (blobs(d=2000)[0], {}),
        (blobs(d=1)[0], {}),
        (images(8, 12), {}),
        (images(64).reshape(60, 64), {"image_shape": (8, 8)}),
        (images(8, 8, 3).astype(np.float32) / 255, {}),
        (blobs(n=5)[0], {}),
    ],
    ids=["paper", "not-grouped", "wide", "one-feature", "grey", "flat", "floats", "few"],
)
def test_any_run_has_a_report(X, params, tmp_path):
    page = report_of(make_run(tmp_path, X, **params))
    assert "settings" in panels_of(page)


def test_figures(table_run, image_run, tmp_path):
    for run, n in ((table_run, 6), (image_run, 5)):
        paths = write_figures(run, tmp_path / run.name, ("png", "svg"))
        assert len(paths) >= 2 * n
        for path in paths:
            if path.suffix == ".svg":
                ElementTree.parse(path)
            else:
                assert path.read_bytes().startswith(b"\x89PNG")
    first, again = (write_figures(table_run, tmp_path / name, ("svg",)) for name in ("first", "again"))
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
    for formats in ("png", ("gif",)):
        with pytest.raises(ValueError, match="formats should be"):
            write_figures(table_run, tmp_path, formats)


def test_report_is_the_same_each_time(table_run, tmp_path):
    first, second = (write_report(table_run, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second


def test_what_is_missing_is_named(table_run, tmp_path):
    with pytest.raises(ReportError, match="There is no folder"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(ReportError, match=r"holds no snapshot\.safetensors: it is no run"):
        write_report(tmp_path)
    run = tmp_path / "run"
    shutil.copytree(table_run, run)
    for damaged in (b"nonsense", b"[]", b'{"schema": 2}', b'{"schema": 1}'):
        (run / "results.json").write_bytes(damaged)
        with pytest.raises(ModelFileError, match=r"results\.json"):
            write_report(run)
    (run / "results.json").unlink()
    with pytest.raises(ReportError, match=r"an old run. Make it with: diva report"):
        write_report(run)
    shutil.copy(table_run / "results.json", run)
    (run / "snapshot.safetensors").write_bytes((table_run / "snapshot.safetensors").read_bytes()[:-5])
    with pytest.raises(ModelFileError, match="snapshot"):
        write_report(run)


def test_snapshot_of_another_run_is_refused(table_run, image_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(table_run, run)
    shutil.copy(image_run / "snapshot.safetensors", run)
    with pytest.raises(ModelFileError, match="not of this run"):
        write_report(run)


def test_clusters_nobody_is_in_are_said_to_be_empty(image_run, table_run):
    for run, card in ((image_run, _image_card), (table_run, _table_card)):
        findings = read_findings(run)
        nobody = np.array([], dtype=np.int64)
        empty = replace(findings.clusters[0], size=0, nearest=nobody, least=nobody, drawn=np.empty(0), differences=())
        assert "No sample is in this cluster" in card(findings, empty)


def test_pictures_in_any_layout():
    values = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    first = to_pictures(values, ImageFormat((3, 4, 5), False, (0, 119)))
    last = to_pictures(values.transpose(0, 2, 3, 1), ImageFormat((3, 4, 5), True, (0, 119)))
    np.testing.assert_array_equal(first, last)
    assert first.shape == (2, 4, 5, 3)
    assert to_pictures(values[:, :1], ImageFormat((1, 4, 5), False, (0, 119))).shape == (2, 4, 5)
    assert first.min() == 0
    assert first.max() == 255


def test_a_sheet_stays_within_its_bytes():
    noise = images(64, 64, 3, n=400)
    sheet = make_sheet(noise, most_bytes=60_000)
    assert len(sheet.uri) < 61_000 or sheet.width <= 8
    assert sheet.columns * sheet.rows >= 400


def birth(parent, *children, masses, epoch=0):
    return Move("birth", (parent,), (parent, *children), 1.0, masses, 1, epoch)


def test_lineage_leaves_out_what_led_nowhere():
    records = [
        birth(0, 1, 2, masses=(50.0, 30.0, 20.0)),
        birth(1, 3, masses=(20.0, 10.0), epoch=1),
        Move("merge", (1, 3), (1,), 1.0, (30.0,), 1, 2),
        birth(0, 4, masses=(25.0, 25.0), epoch=3),
        Move("delete", (2,), (0, 1), 1.0, (35.0, 40.0), 1, 4),
    ]
    ends = survivors(records)
    assert ends == {0: 35.0, 1: 40.0, 4: 25.0}
    flow = trace(records, ends)
    assert flow.n_moves == 5
    assert flow.n_shown == 2  # 3 vanished again, and so did 2
    assert {node.component for node in flow.nodes} == {0, 1, 4}
    assert sorted(node.component for node in flow.ends) == [0, 1, 4]
    root = next(node for node in flow.nodes if node.time == 0)
    assert root.value == pytest.approx(100)
    for node in flow.nodes:
        assert -1e-9 <= node.y - node.height / 2 <= node.y + node.height / 2 <= 1 + 1e-9
    for node in flow.nodes:
        into = [link for link in flow.links if link.target is node]
        if into:
            assert sum(link.value for link in into) == pytest.approx(node.value)


def test_lineage_stays_legible_with_hundreds_of_moves():
    records = [birth(0, k, masses=(1000.0 - k, float(k)), epoch=k) for k in range(1, 300)]
    flow = trace(records, survivors(records))
    assert len(flow.ends) == 40
    assert flow.n_light == 260
    assert flow.n_unmoved == 0


def test_groups_beyond_the_colours_differ_in_shape():
    looks = [(colour_of(i), symbol_of(i)) for i in range(8 * len(COLOURS))]
    assert len(set(looks)) == len(looks)
    assert {text_on(colour) for colour in COLOURS} == {"#000000", "#ffffff"}


def test_words():
    assert (count(1, "epoch"), count(2, "epoch")) == ("1 epoch", "2 epochs")
    assert [percent(s) for s in (0, 0.5, 0.99999, 1)] == ["0 %", "50 %", "over 99.9 %", "100 %"]
    assert [duration(s) for s in (0.04, 59.99, 3600)] == ["0.0 s", "1 min 00 s", "1 h 00 min"]
    assert [number(v, 2) for v in (-1e-9, 1234.5, 1e12)] == ["0.00", "1,234.50", "1e+12"]
