"""Tables of README and quick start are what the recorded rows say, and say where nothing was recorded."""

import pytest
from benchmarks import bench_jobs, headline
from benchmarks.sections import with_section


@pytest.mark.parametrize(("made", "name"), [(headline, "headline"), (bench_jobs, "jobs")], ids=["headline", "jobs"])
def test_tables_are_up_to_date(made, name):
    text = made.PAGE.read_text()
    assert with_section(text, name, made.section()) == text, f"run python -m benchmarks {name}"


def test_a_cell_is_the_mean_over_data_sets_of_means_over_seeds():
    rows = [{"data": data, headline.ACCURACY: a, "seconds": 30} for data, a in (("x", 0.5), ("x", 0.7), ("y", 1.0))]
    assert headline.cell_of(rows) == ".800, 30 s"
    assert headline.cell_of([]) == "not measured"


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="should have the lines"):
        with_section("text", "jobs", [])


@pytest.mark.parametrize("job", bench_jobs.JOBS, ids=lambda job: job.who)
def test_the_file_that_a_command_names_is_made(job, tmp_path):
    job.make(tmp_path)
    named = job.typed[0].split()[2 if job.typed[0].startswith("diva") else 1]
    assert (tmp_path / named).exists()
