"""Which cells there are, and with which parameters each is run."""

import pytest

from diva.experiments import data as data_room
from diva.experiments.data import DATA, find_data
from diva.experiments.spec import (
    EXPERIMENTS,
    PROFILES,
    SYSTEMS,
    TABLE1_SYSTEMS,
    Cell,
    cells_of,
    configure,
    incremental_cell,
    parameters_of,
)
from diva.runs.load import MODELS

SMOKE, QUICK, FULL = (PROFILES[name] for name in ("smoke", "quick", "full"))


def test_full_is_the_papers_evaluation():
    table1 = list(EXPERIMENTS["table1"].cells(FULL))
    assert len(table1) == 6 * len(TABLE1_SYSTEMS) * 5
    assert {cell.seed for cell in table1} == {1, 2, 3, 4, 5}
    assert {SYSTEMS[s].published for s in TABLE1_SYSTEMS} - {""} == {
        *("GMM", "DEC", "GMVAE", "DPMM+memoVB", "VSB-DVM", "DDPM", "DeepDPM", "DIVA")
    }
    dynamic = list(EXPERIMENTS["dynamic"].cells(FULL))
    assert all(cell.stages == (3, 5, 7, 10) for cell in dynamic)
    assert parameters_of(Cell("mnist", "diva", 1, (3, 5, 7, 10), "stages"), FULL, "mnist")["further_epochs"] == 30
    assert parameters_of(Cell("mnist", "diva", 1, (3,), "stages"), FULL, "mnist")["n_epochs"] == 120


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_parameters_are_those_of_the_models(profile):
    for cell in cells_of(EXPERIMENTS, profile):
        model = MODELS[SYSTEMS[cell.system].model](**parameters_of(cell, profile, "mnist"))
        model.validate_parameters()


def test_jobs_have_names_of_their_own():
    jobs = [configure(cell, SMOKE) for cell in cells_of(EXPERIMENTS, SMOKE)]
    assert len({job.name for job in jobs}) == len(jobs)
    assert jobs[0].name == configure(jobs[0].cell, SMOKE).name


def test_experiments_share_cells():
    assert incremental_cell("mnist", "gmm10", 10, 1) in EXPERIMENTS["table1"].cells(QUICK)
    assert incremental_cell("mnist", "gmm10", 7, 1) not in EXPERIMENTS["table1"].cells(QUICK)
    assert set(EXPERIMENTS["tsne"].cells(QUICK)) & set(EXPERIMENTS["table1"].cells(QUICK))


def test_stl10_has_the_papers_learning_rate_and_its_substitute_does_not():
    assert parameters_of(Cell("stl10", "diva", 1), FULL, "stl10")["learning_rate"] == 2.5e-5
    assert "learning_rate" not in parameters_of(Cell("stl10", "diva", 1), FULL, "imagenette")
    assert "learning_rate" not in parameters_of(Cell("stl10", "diva_default", 1), FULL, "stl10")


def test_the_default_is_what_diva_fit_does_on_data_by_name():
    assert parameters_of(Cell("fashion_mnist", "diva_default", 1), FULL, "fashion_mnist") == {"augmentation": "photo"}
    assert "augmentation" not in parameters_of(Cell("fashion_mnist", "diva", 1), FULL, "fashion_mnist")


def test_data_that_are_not_here_have_no_job(monkeypatch, tmp_path):
    monkeypatch.setenv("DIVA_DATA", str(tmp_path))
    monkeypatch.setenv("DIVA_CACHE", str(tmp_path / "cache"))
    assert configure(Cell("reuters10k", "gmm", 1), QUICK) is None
    found = find_data(DATA["reuters10k"])
    assert found.name is None
    assert "reuters10k.mat" in found.missing


def test_a_substitute_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("DIVA_DATA", str(tmp_path))
    monkeypatch.setenv("DIVA_CACHE", str(tmp_path / "cache"))
    for folder, file in (("har_recomputed", "har_recomputed.npz"), ("hhar", "HAR.mat")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).touch()
        found = find_data(DATA["hhar"])
        assert (found.name, found.substitute) == {
            "har_recomputed": ("har", "HAR, recomputed features"),
            "hhar": ("hhar", ""),  # HAR.mat of the VaDE project is what the paper used
        }[folder]


def test_stand_ins_have_as_many_classes():
    for paper in DATA.values():
        name = data_room.stand_in(paper).name
        assert len(set(data_room.load_labelled(name, 1000).y)) == paper.n_classes
