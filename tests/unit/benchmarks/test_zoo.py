"""The zoo: cells are run once, and the page says what the rows say."""

import argparse
import json

import numpy as np
import pytest
from benchmarks import bench_zoo, zoo_page, zoo_pictures
from benchmarks import headline as headline_table
from benchmarks.bench_zoo import Cell, Choice, Problem, cells_of, forget, read_rows, run_cells, scores_of
from benchmarks.worker import TOO_SLOW, Outcome

from diva.exceptions import DatasetNotFoundError

SCIKIT_LEARN = [key for key, method in bench_zoo.METHODS.items() if method.package == "scikit-learn"]


def row(data, method, seed=0, ari=None, seconds=1.0, k=3):
    scores = (
        {"trouble": TOO_SLOW} if ari is None else {"ARI": ari, "one-to-one accuracy": ari, "NMI": ari, "K": k, "noise": 0.0}
    )
    known = {"n": 100, "columns": 2, "true K": 3, "seconds": seconds}
    facts = {"version": "diva 1", "commit": "abc", "date": "2026-01-01", "processor": "fast"}
    return {"data": data, "method": method, "seed": seed, **scores, **known, **facts}


@pytest.fixture
def problem(monkeypatch, tmp_path):
    """Two blobs, whichever data set is asked for."""
    y = np.repeat([0, 1], 20)
    blobs = Problem(np.random.default_rng(0).normal(size=(40, 2)) + 20 * y[:, None], y)
    monkeypatch.setattr(bench_zoo, "load_problem", lambda name: blobs)
    monkeypatch.setattr(zoo_pictures, "load_problem", lambda name: blobs)
    monkeypatch.setenv("DIVA_CACHE", str(tmp_path / "cache"))
    return blobs


class Recorder:
    """Stands in for the process: gives the classes, or trouble, and remembers what was asked."""

    def __init__(self, labels, trouble=()):
        self.labels, self.trouble, self.asked = labels, trouble, []

    def run(self, cell):
        self.asked.append(cell)
        return Outcome(9.0, trouble=TOO_SLOW) if cell.method in self.trouble else Outcome(0.5, self.labels)


# --- running


def test_deterministic_methods_have_one_seed():
    cells = cells_of(["a", "b"], ["HDBSCAN", "k-means"], 2)
    assert cells == [Cell(d, *rest) for d in "ab" for rest in (("HDBSCAN", 0), ("k-means", 0), ("k-means", 1))]


def test_finished_cells_are_not_run_again(problem, tmp_path):
    path = tmp_path / "rows.jsonl"
    cells = cells_of(["a", "b"], ["HDBSCAN", "k-means"], 2)
    first = Recorder(problem.y)
    run_cells(cells[:4], first, path)
    with path.open("a") as file:
        file.write('{"data": "b", "meth')  # interrupted here
    second = Recorder(problem.y)
    run_cells(cells, second, path)
    assert first.asked == cells[:4]
    assert second.asked == cells[4:]
    assert set(read_rows(path)) == set(cells)


def test_too_slow_is_recorded_and_not_tried_again(problem, tmp_path):
    path = tmp_path / "rows.jsonl"
    for _ in range(2):
        worker = Recorder(problem.y, trouble={"k-means"})
        run_cells(cells_of(["a"], ["HDBSCAN", "k-means"], 1), worker, path)
    assert not worker.asked
    rows = read_rows(path)
    assert rows["a", "k-means", 0]["trouble"] == TOO_SLOW
    assert rows["a", "HDBSCAN", 0]["ARI"] == 1.0
    assert rows["a", "HDBSCAN", 0]["K"] == 2


def test_again_forgets_a_method_on_the_chosen_data(tmp_path):
    path = tmp_path / "rows.jsonl"
    lines = [row(data, method, ari=0.5) for data in "ab" for method in ("HDBSCAN", "k-means")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    forget(["a"], ["k-means"], path)
    assert set(read_rows(path)) == {("a", "HDBSCAN", 0), ("b", "HDBSCAN", 0), ("b", "k-means", 0)}


def test_labels_of_flat_data_are_kept_for_pictures(problem, tmp_path):
    run_cells([Cell("a", "HDBSCAN", 0)], Recorder(problem.y), tmp_path / "rows.jsonl")
    np.testing.assert_array_equal(zoo_pictures.labels_of("a", "HDBSCAN"), problem.y)


def test_noise_is_one_cluster_in_scores_and_none_in_k():
    scores = scores_of(np.array([0, 0, 1, 1]), np.array([-1, -1, 4, 4]))
    assert scores == {"ARI": 1.0, "one-to-one accuracy": 1.0, "NMI": 1.0, "K": 1, "noise": 0.5}


@pytest.mark.parametrize("key", SCIKIT_LEARN)
@pytest.mark.filterwarnings("ignore")
def test_methods_label_every_sample(key, problem):
    assert bench_zoo.METHODS[key].labels(problem, 0).shape == (40,)


def test_methods_that_are_not_installed_are_left_out_with_a_note(monkeypatch, capsys):
    monkeypatch.setattr(bench_zoo.importlib.util, "find_spec", lambda name: None)
    assert Choice(methods=["HDBSCAN", "UMAP"]).method_keys() == ["HDBSCAN"]
    assert "umap-learn is not installed" in capsys.readouterr().out


def test_diva_runs_only_where_asked_for():
    assert "DIVA" not in bench_zoo.USUAL
    assert "DIVA" in Choice(methods=["DIVA"]).method_keys()
    assert "DIVA" in Choice(again=["DIVA"]).method_keys()


def test_options():
    parser = argparse.ArgumentParser()
    bench_zoo.add_options(parser)
    options = parser.parse_args(["--only", "a,b", "--methods", "DIVA", "--seeds", "1", "--limit", "5"])
    assert bench_zoo.choice_of(options) == Choice(["a", "b"], ["DIVA"], [], 1, 5.0)
    assert bench_zoo.choice_of(parser.parse_args([])) == Choice(again=[])
    with pytest.raises(SystemExit):
        parser.parse_args(["--methods", "guess"])


def test_it_says_what_is_unset(monkeypatch, tmp_path):
    monkeypatch.setenv("DIVA_CACHE", str(tmp_path))
    monkeypatch.delenv("DIVA_DATA", raising=False)
    with pytest.raises(DatasetNotFoundError, match="DIVA_DATA is not set"):
        bench_zoo.zoo_names()
    with pytest.raises(SystemExit, match="Set DIVA_DATA to the folder"):
        bench_zoo.run(bench_zoo.zoo_names)


# --- page


ROWS = [
    row("shape-a", "DPMixture", 0, ari=1.0, k=3),
    row("shape-a", "DPMixture", 1, ari=0.8, k=4),
    row("table-b", "DPMixture", 0, ari=0.5, seconds=3.0),
    row("table-b", "DPMixture", 1, ari=0.5),
    row("shape-a", "HDBSCAN", ari=0.89),
    row("table-b", "HDBSCAN", seconds=300.0),
]


def test_headline_means_seeds_then_data_sets_and_no_result_is_0():
    mine, other = zoo_page.headline(zoo_page.means_of(ROWS))
    assert (mine["method"], mine["data sets"], mine["seeds"]) == ("DPMixture()", 2, 2)
    assert mine["adjusted Rand index, all"] == "0.700"
    assert mine["adjusted Rand index, shapes"] == "0.900"
    assert mine["one-to-one accuracy, tables"] == "0.500"
    assert (mine["no result"], mine["seconds"]) == (0, "3")
    assert other["adjusted Rand index, all"] == "0.445"
    assert (other["no result"], other["seconds"]) == (1, "301")


def test_a_data_set_is_won_by_more_than_the_margin():
    mine, other = zoo_page.duels(zoo_page.means_of(ROWS))
    assert mine["HDBSCAN()"] == "1 / 0"  # shape-a is too close
    assert other["DPMixture()"] == "0 / 1"
    assert mine["DPMixture()"] == ""


def test_a_line_for_each_data_set():
    first, second = zoo_page.lines_of(ROWS, zoo_page.means_of(ROWS))
    assert (first["DPMixture()"], first["HDBSCAN()"], first["K of DPMixture"]) == ("**0.900**", "0.890", "3, 4")
    assert (second["HDBSCAN()"], second["K of DPMixture"], second["true K"]) == (TOO_SLOW, "3", 3)


def test_page_has_facts_tables_and_pictures():
    page = zoo_page.page([*ROWS, row("digits", "HDBSCAN", ari=0.5)], ["zoo-1.png"])
    assert "Measured 2026-01-01, commit abc, processor fast; diva 1." in page
    assert "Shapes: 1 data sets" in page
    assert "](images/zoo-1.png)" in page
    assert "## Larger data" in page
    assert "more than 300 seconds" in page


def test_page_names_commits_and_methods_that_are_incomplete():
    rows = [*ROWS, row("shape-a", "k-means", ari=0.5) | {"commit": "def"}]
    page = zoo_page.page(rows)
    assert "def (k-means, true K)" in page
    assert "Not every method has been run on every data set" in page


def test_page_without_rows():
    assert "Nothing has been measured yet" in zoo_page.page([])


# --- pictures


def test_clusters_have_the_numbers_of_the_classes_they_agree_with():
    truth = zoo_pictures.by_size(np.array([5, 5, 5, 7, 7, 9]))
    np.testing.assert_array_equal(truth, [0, 0, 0, 1, 1, 2])
    np.testing.assert_array_equal(zoo_pictures.like(truth, np.array([2, 2, 8, 0, 0, -1])), [0, 0, 3, 1, 1, -1])
    np.testing.assert_array_equal(zoo_pictures.like(truth, np.full(6, -1)), [-1] * 6)


def test_pictures_replace_those_before(problem, tmp_path):
    rows = {Cell("shape-a", "HDBSCAN", 0): row("shape-a", "HDBSCAN", ari=1.0)}
    bench_zoo.keep_labels(Cell("shape-a", "HDBSCAN", 0), problem.y)
    (tmp_path / "zoo-7.png").touch()
    assert zoo_pictures.draw(rows, tmp_path) == [tmp_path / "zoo-1.png"]
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["zoo-1.png"]


def test_the_table_of_the_readme_says_what_was_stopped_and_what_was_not_tried():
    assert headline_table.cell_of([]) == "not measured"
    assert headline_table.cell_of([row("a", "BGM", seconds=300.0)]) == "over 5 min"
    assert headline_table.cell_of([row("a", "BGM", ari=0.5), row("a", "BGM", seed=1, seconds=300.0)]) == ".500, 1 s"
