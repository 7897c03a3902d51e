"""Verdicts and tables from rows that were made up, so that what they should say is known."""

import pytest

from diva.experiments.data import DATA, Availability
from diva.experiments.page import as_html, as_text, sections_of
from diva.experiments.paper import Value, published, value_of
from diva.experiments.spec import PROFILES
from diva.experiments.tables import Results, as_markdown, counted, estimate, incremental, judge, overview, table1

HERE = Availability("mnist")


def row(data="mnist", system="diva", seed=1, majority=0.9, **more):
    scores = {"one-to-one accuracy": 0.5, "three-to-one accuracy": 0.6, "NMI": 0.4, "ARI": 0.3, "AMI": 0.4, "K": 20}
    facts = {"test samples": 10, "training samples": 10, "has test split": True, "fidelity": "as published", "seconds": 3.0}
    about = {"commit": "abc", "processor": "one", "device": "cpu", "torch": "2", "date": "2026-01-01", "source": data}
    cell = {"data": data, "system": system, "seed": seed, "stages": [], "curve kind": "", "substitute": ""}
    return {
        **cell,
        "majority accuracy": majority,
        **scores,
        **facts,
        **about,
        "peak memory in MB": 400.0,
        "CPU seconds": None,
        **more,
    }


def results(rows, profile="full", **here):
    data = {key: Availability(key) for key in DATA} | here
    return Results(PROFILES[profile], rows, data)


@pytest.mark.parametrize(
    ("ours", "std", "kind"),
    [
        (0.94, 0.01, "reproduced"),
        (0.921, 0.01, "reproduced"),
        (0.92, 0.0, "reproduced"),  # .02 at least
        (0.919, 0.01, "worse"),
        (0.87, 0.04, "reproduced"),  # two standard deviations, if they are more
        (0.85, 0.04, "worse"),
        (0.97, 0.01, "better"),
    ],
)
def test_within_two_standard_deviations_or_two_points(ours, std, kind):
    assert judge([row(majority=ours)], Value(0.94, std, "Table 1"), HERE).kind == kind


def test_the_mean_over_seeds_is_judged():
    rows = [row(seed=s, majority=m) for s, m in ((1, 0.90), (2, 0.98))]
    assert judge(rows, Value(0.94, 0.01, ""), HERE).kind == "reproduced"
    assert str(estimate(rows, "majority accuracy")) == ".94 ± .06"


def test_what_cannot_be_judged_is_said():
    value = Value(0.94, 0.01, "")
    assert judge([], value, HERE).kind == "not run"
    assert judge([], value, Availability(None, missing="put it there")).kind == "data not obtainable"
    verdict = judge([row()], value, Availability("har", "HAR, recomputed features"))
    assert str(verdict) == "substitute: HAR, recomputed features"


def test_published_values():
    assert len([key for key in published() if key[2] == "majority accuracy" and key[3] is None]) == 48
    assert len([key for key in published() if key[3] is not None]) == 96
    assert str(value_of("mnist", "DIVA")) == ".94 ± .01"
    assert value_of("stl10", "DIVA").mean == 0.88  # Table 1; the supplement has .72
    assert value_of("stl10", "DIVA").where == "Table 1"
    assert value_of("imagenet50", "DIVA", "NMI").mean == 0.97
    assert value_of("mnist", "DEC", "NMI") is None  # not given
    assert value_of("mnist", "DPMM+memoVB", n_classes=3).mean == 0.85


def test_overview_has_ours_beside_the_papers():
    table = overview(results([row(majority=0.95), row("hhar", majority=0.5)], hhar=Availability("har", "another")))
    line = next(line for line in table.lines if line[0].startswith("DIVA, preset"))
    assert line[1:5] == (".95 / .94 ± .01 =", "· / .72 ± .01", "· / .83 ± .01", ".50 / .83 ± .01 ~")


def test_a_table_of_every_metric():
    table = next(t for t in table1(results([row(majority=0.95)])) if t.title == "MNIST")
    line = next(dict(zip(table.columns, line, strict=True)) for line in table.lines if line[0].startswith("DIVA, preset"))
    assert line["verdict"] == "reproduced"
    assert (line["NMI"], line["NMI (paper)"], line["K"]) == (".40", ".80 ± .04", "20")
    assert (line["seconds"], line["CPU seconds"], line["memory, MB"]) == ("3", "·", "400")
    assert as_markdown(table)[0].startswith("| system | paper's accuracy | majority accuracy | verdict |")


def test_all_classes_are_those_of_table_1():
    rows = [row(system="gmm", majority=0.6), row(system="gmm10", majority=0.7, stages=[7])]
    mnist = next(incremental(results(rows)))
    line = next(line for line in mnist.lines if line[0] == "GMM, K = 10")
    assert line[3:] == (".70 / .64 ± .01 +", ".60 / .60 ± .01 =")


def test_every_published_accuracy_has_a_verdict():
    table = counted(results([row(majority=0.95)], stl10=Availability(None, missing="put it there")))
    assert [sum(map(int, line[1:])) for line in table.lines] == [54, 96]  # VSB-DVM has two rows
    of_table1 = dict(zip(table.columns, table.lines[0], strict=True))
    assert (of_table1["reproduced"], of_table1["data not obtainable"]) == ("1", "9")


def test_pages_say_what_is_missing_and_escape_it():
    found = results([row()], "quick", stl10=Availability(None, missing="put <it> there"))
    sections = sections_of(found, {})
    assert "STL-10: put <it> there" in as_text(sections, None)
    page = as_html(sections)
    assert "put &lt;it&gt; there" in page
    assert "quick profile" in page
    assert "http" not in page
    assert ".72 in the supplement" in page
