"""Tables and text as people have them, from the raw file to the report, by command line and in Python."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import diva
from diva import DIVA, DPMixture
from diva.cli import app
from diva.exceptions import DataError, ScaleWarning

TINY = ["--n-epochs", "2", "--latent-dim", "2", "--hidden-sizes", "16", "--n-views", "1"]
SMALL = {"n_epochs": 2, "latent_dim": 2, "hidden_sizes": (16,), "n_views": 1, "random_state": 0}
N = 120


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*args: Any, **more: Any) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="diva", **more)


def penguins() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kind = np.arange(N) % 3
    frame = pd.DataFrame(
        {
            "rowid": np.arange(1, N + 1),
            "species": np.array(["Adelie", "Chinstrap", "Gentoo"])[kind],
            "island": np.array(["Torgersen", "Dream", "Biscoe"])[np.where(rng.random(N) < 0.8, kind, 2)],
            "bill_length_mm": (39 + 5 * kind + rng.normal(size=N)).round(1),
            "body_mass_g": (3700 + 700 * kind + 200 * rng.normal(size=N)).round(),
            "sex": rng.choice(["male", "female"], N),
            "year": 2007 + rng.integers(3, size=N),
            "date_egg": [f"2007-11-{day:02d}" for day in rng.integers(1, 30, N)],
        }
    )
    frame.loc[[3, 11], ["bill_length_mm", "body_mass_g"]] = np.nan
    frame.loc[5:9, "sex"] = None
    return frame


USED = {
    "rowid": "id, not learnt",
    "species": "label, not learnt",
    "island": "category (one-hot)",
    "bill_length_mm": "number",
    "body_mass_g": "number",
    "sex": "category (two values)",
    "year": "number",
    "date_egg": "date, left out",
}


@pytest.fixture
def table() -> Path:
    penguins().to_csv("penguins.csv", index=False, na_rep="NA")
    return Path("penguins.csv")


def test_penguins_by_command_line(table):
    fitted = run("fit", table, "--label-column", "species", *TINY)
    assert fitted.exit_code == 0, fitted.output
    for name, use in USED.items():
        assert any(name in line and use in line for line in fitted.stdout.splitlines()), name
    assert "7 rows with gaps filled" in fitted.stdout
    facts = json.loads(Path("runs/penguins/results.json").read_text())
    assert {row["column"]: row["used as"] for row in facts["data"]["columns"]} == USED
    assert facts["feature_names"] == [
        *("island=Biscoe", "island=Dream", "island=Torgersen", "bill_length_mm", "body_mass_g", "sex=male", "year")
    ]
    page = Path("runs/penguins/report.html").read_text()
    assert "Columns and what they are used as" in page
    assert "category (one-hot)" in page
    shuffled = penguins()[["sex", "year", "body_mass_g", "rowid", "bill_length_mm", "island"]]
    shuffled.to_parquet("new.parquet")
    assert run("predict", "runs/penguins", "new.parquet", "--out", "p.parquet").exit_code == 0
    found = pyarrow.parquet.read_table("p.parquet").to_pandas()
    assert found["rowid"].tolist() == list(range(1, N + 1))
    assert list(found)[:3] == ["sample", "rowid", "cluster"]
    model = diva.load("runs/penguins/model.diva")
    np.testing.assert_array_equal(found["cluster"], model.predict(shuffled))
    np.testing.assert_array_equal(found["cluster"], model.labels_)


def test_what_is_asked_for_is_done_and_remembered(table):
    asked = ["--exclude", "species,year", "--id-column", "date_egg", "--missing", "drop"]
    fitted = run("fit", table, *asked, "--out", "run", "--json", "--no-report", *TINY)
    assert fitted.exit_code == 0, fitted.output
    said = json.loads(fitted.stdout)
    assert said["n_samples"] == N - 7
    assert said["data"]["rows_dropped"] == 7
    uses = {row["column"]: row["used as"] for row in said["data"]["columns"]}
    assert uses["species"] == uses["year"] == "left out"
    assert uses["date_egg"] == "id, not learnt"
    assert run("predict", "run", table, "--out", "p.csv").exit_code == 0
    assert len(pd.read_csv("p.csv")) == N  # predictions are for every row
    assert list(pd.read_csv("p.csv"))[1] == "date_egg"


def test_gaps_are_refused_if_asked(table):
    refused = run("fit", table, "--missing", "error", "--out", "run", *TINY)
    assert refused.exit_code == 1
    assert "'bill_length_mm'" in refused.stderr
    assert "line 5" in refused.stderr
    wrong = run("fit", table, "--missing", "guess", "--out", "run", *TINY)
    assert wrong.exit_code == 2
    assert "impute, drop or error" in wrong.stderr


def test_predictions_keep_columns_and_go_to_standard_output(table):
    assert run("fit", table, "--out", "run", "--no-report", *TINY).exit_code == 0
    written = run("predict", "run", table, "--out", "-", "--keep-columns")
    assert written.exit_code == 0, written.output
    rows = list(csv.DictReader(written.stdout.splitlines()))
    before = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["date_egg"] for row in rows] == [row["date_egg"] for row in before]
    assert [row["year"] for row in rows] == [row["year"] for row in before]
    assert rows[3]["bill_length_mm"] == ""
    assert {"cluster", "probability", "novel"} <= set(rows[0])
    assert all(0 <= float(row["probability"]) <= 1 for row in rows)
    both = run("predict", "run", table, "--out", "-", "--json")
    assert both.exit_code == 2
    pd.read_csv(table).rename(columns={"year": "cluster"}).assign(year=2007).to_csv("named.csv", index=False)
    assert run("predict", "run", "named.csv", "--out", "p.csv", "--keep-columns").exit_code == 0
    assert {"cluster", "cluster of diva"} <= set(pd.read_csv("p.csv"))


def test_a_stream_goes_through_the_columns_of_the_fit(table):
    assert run("fit", table, "--exclude", "species", "--out", "run", "--no-report", *TINY).exit_code == 0
    assert run("predict", "run", table, "--out", "p.csv").exit_code == 0
    lines = penguins().to_json(orient="records", lines=True)
    streamed = run("stream", "run", "-", "--predict-only", "--predictions", "s.jsonl", "--json", input=lines)
    assert streamed.exit_code == 0, streamed.output
    found = [json.loads(line)["cluster"] for line in Path("s.jsonl").read_text().splitlines()]
    assert found == pd.read_csv("p.csv")["cluster"].tolist()
    Path("parts").mkdir()
    penguins().iloc[:60].to_parquet("parts/0.parquet")
    penguins().iloc[60:].to_csv("parts/1.csv", index=False)
    learnt = run("stream", "run", "parts", "--json")
    assert learnt.exit_code == 0, learnt.output
    assert json.loads(learnt.stdout)["new_samples"] == N


def test_an_interrupted_run_goes_on_with_the_same_columns(table):
    assert run("fit", table, "--out", "whole", "--no-report", *TINY).exit_code == 0
    assert run("fit", table, "--out", "cut", "--no-report", *TINY).exit_code == 0
    Path("cut/model.diva").unlink()
    resumed = run("resume", "cut", "--no-report")
    assert resumed.exit_code == 0, resumed.output
    whole, again = (diva.load(f"{name}/model.diva") for name in ("whole", "cut"))
    np.testing.assert_array_equal(whole.labels_, again.labels_)
    assert whole.pipeline_.schema == again.pipeline_.schema


@pytest.mark.parametrize("make", [lambda **given: DIVA(**SMALL, **given), lambda **given: DPMixture(random_state=0, **given)])
def test_penguins_in_python(make, table):
    frame = penguins().drop(columns="species")
    model = make(columns="auto").fit(frame)
    assert len(model.labels_) == N
    assert "island=Dream" in model.feature_names_in_
    assert "rowid" not in model.feature_names_in_
    np.testing.assert_array_equal(model.predict(frame.sample(frac=1, random_state=0).sort_index()), model.labels_)
    probabilities = model.predict_proba(frame)
    assert probabilities.max() <= 1.0
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    model.save("model.diva")
    again = diva.load("model.diva")
    np.testing.assert_array_equal(again.predict(frame), model.labels_)
    np.testing.assert_array_equal(again.predict(table), model.labels_)  # the file has one column more
    assert again.get_params()["columns"] == "auto"
    drawn = again.sample(20, random_state=0)[0]
    assert 2000 < drawn[:, model.feature_names_in_.tolist().index("body_mass_g")].mean() < 7000  # in the units of the table
    page = model.report(frame, "penguins.html", projection="pca").read_text()
    assert "island=Dream" in page
    fewer = make(columns=["island", "body_mass_g"], missing="drop").fit(frame)
    assert len(fewer.labels_) == N - 2
    assert len(fewer.predict(frame)) == N


@pytest.mark.parametrize("make", [lambda **given: DIVA(**SMALL, **given), lambda **given: DPMixture(**given)])
def test_what_is_not_asked_for_stays_refused(make):
    with pytest.raises(DataError, match=r"'species', 'island', 'sex', 'date_egg'.*columns='auto'"):
        make().fit(penguins())
    with pytest.raises(ValueError, match=r"missing='drop' is about columns of a table"):
        make(missing="drop").fit(penguins()[["year"]])
    with pytest.raises(ValueError, match="columns should be"):
        make(columns="all").fit(penguins())


def test_a_column_that_hides_the_others_is_told():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"mass": rng.normal(4000, 700, N), "bill": rng.normal(40, 4, N), "depth": rng.normal(17, 2, N)})
    with pytest.warns(ScaleWarning, match=r"'mass' holds 100\.0% of the variance"):
        DIVA(**SMALL, scale="one").fit(frame)
    DIVA(**SMALL).fit(frame)  # warnings are errors here
    DIVA(**SMALL, columns="auto").fit(frame)
    np.save("rows.npy", frame.to_numpy())
    said = run("fit", "rows.npy", "--out", "run", "--json", "--no-report", "--scale", "one", *TINY)
    assert "number 0 holds" in json.loads(said.stdout)["warnings"][0]


# --- text

TOPICS = (
    "the striker scored a late goal and the keeper missed the ball in the second half of the match",
    "the central bank raised interest rates while the market and the shares of the company fell again",
    "heavy rain and strong wind reached the coast as the storm moved north and clouds covered the sky",
)


def documents() -> tuple[list[str], list[int]]:
    rng = np.random.default_rng(0)
    kinds = (np.arange(90) % 3).tolist()
    return [" ".join(rng.choice(TOPICS[kind].split(), 14)) for kind in kinds], kinds


def lines() -> str:
    Path("news.txt").write_text("\n\n".join(documents()[0]))
    return "news.txt"


def folder() -> str:
    for i, (text, kind) in enumerate(zip(*documents(), strict=True)):
        place = Path("news") / "abc"[kind]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i:03d}.txt").write_text(text)
    return "news"


def text_column() -> str:
    texts, _ = documents()
    pd.DataFrame({"id": [f"n{i}" for i in range(len(texts))], "body": texts}).to_csv("news.csv", index=False)
    return "news.csv"


@pytest.mark.parametrize("make", [lines, folder, text_column])
def test_text_by_command_line(make):
    source = make()
    quick = ["--n-epochs", "2", "--hidden-sizes", "16", "--n-views", "1"]  # codes are the features, where they are better
    fitted = run("fit", source, "--out", "run", "--json", *quick, *([] if make is lines else ["--no-report"]))
    assert fitted.exit_code == 0, fitted.output
    said = json.loads(fitted.stdout)
    assert said["n_samples"] == 90
    assert said["data"]["kind"] == "text"
    assert len(said["data"]["words"]) == said["n_clusters"]
    words = set().union(*said["data"]["words"])
    assert words & {"goal", "rates", "rain", "storm", "market", "striker"}
    if make is lines:
        page = Path("run/report.html").read_text()
        assert "Words that tell clusters apart" in page
        assert "texts of" in page
        assert documents()[0][0] in page  # on the map
    assert run("predict", "run", source, "--out", "p.csv").exit_code == 0
    assert len(pd.read_csv("p.csv")) == 90


@pytest.mark.parametrize("make", [lambda: DIVA(**SMALL, columns="auto"), lambda: DPMixture(random_state=0, columns="auto")])
def test_text_in_python(make):
    texts, _ = documents()
    model = make().fit(texts)
    assert "goal" in model.feature_names_in_
    model.save("model.diva")
    again = diva.load("model.diva")
    np.testing.assert_array_equal(again.predict(texts), model.labels_)
    np.testing.assert_array_equal(again.predict(pd.DataFrame({"text": texts})), model.labels_)
    told = model.describe(texts)
    assert sum(told["size"]) == len(texts)
    words = {word for name in told["name"] for word in name.split(", ") if word}
    assert words <= set(model.feature_names_in_)  # and nothing else
    assert texts[1] in model.report(texts, "texts.html", projection="pca").read_text()
    with pytest.raises(ValueError, match="columns='auto'"):
        make().set_params(columns=None).fit(texts)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"\xff\xfe\x00", "UTF-8", id="encoding"),
        pytest.param(b"a\0b\nc", "another kind", id="bytes"),
        pytest.param(b"\n\n\n", "without rows", id="empty"),
        pytest.param(b"one\ntwo\nthree\n", "words that come again", id="no words"),
    ],
)
def test_what_is_no_text_says_why(content, words):
    Path("t.txt").write_bytes(content)
    failed = run("fit", "t.txt", "--out", "run", *TINY)
    assert failed.exit_code == 1
    assert words in " ".join(failed.stderr.split())
