"""What columns of a table are used as, and the numbers that they become."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from diva.data import ColumnOptions, TableSchema, open_path
from diva.data.encoders import MOST_WORDS, SPLIT, CategoryEncoder, NumberEncoder, TextEncoder
from diva.data.typed import as_table, read_typed
from diva.exceptions import DataError

N = 40
RNG = np.random.default_rng(0)
TEXTS = [f"{a} {b} the {c} again" for a, b, c in RNG.choice(["ice", "snow", "wind", "sea", "fish", "rock"], (N, 3))]


def column(cells, **given):
    """The schema's only column, of cells that are beside numbers."""
    frame = pd.DataFrame({"cells": cells, "x": RNG.normal(size=len(cells))})
    schema = TableSchema.fit(as_table(frame), ColumnOptions(**given))
    return next(each for each in schema.columns if each.name == "cells")


USES = {
    "numbers": (RNG.normal(size=N), "number"),
    "whole numbers": (2007 + RNG.integers(3, size=N), "number"),
    "numbers as text": ([f" {x:+.2f} " for x in RNG.normal(size=N)], "number"),
    "numbers with gaps": (np.where(np.arange(N) % 5 == 0, np.nan, RNG.normal(size=N)), "number"),
    "numbers and one word": (["unknown", *(str(x) for x in RNG.normal(size=N - 1))], "number"),
    "words": (RNG.choice(["a", "b", "c"], N), "category"),
    "truth": (RNG.random(N) < 0.5, "category"),
    "categories of pandas": (pd.Categorical(RNG.choice(["a", "b"], N)), "category"),
    "row numbers": (np.arange(1, N + 1), "id"),
    "different names": ([f"N{i}A{i}" for i in range(N)], "id"),
    "dates": (pd.date_range("2007-01-01", periods=N), "date"),
    "dates as text": ([f"{i % 28 + 1}/11/2007" for i in range(N)], "date"),
    "times as text": ([f"2007-11-{i % 28 + 1:02d} 08:{i % 60:02d} UTC" for i in range(N)], "date"),
    "text": (TEXTS, "text"),
    "vectors": ([[float(i), 1.0, -i] for i in range(N)], "vector"),
    "nothing": ([None] * N, "left out"),
    "hardly anything": ([1.0, 2.0, 3.0] + [None] * (N - 3), "left out"),
    "always the same": (["penguin"] * N, "left out"),
    "always the same number": (np.full(N, 7.0), "left out"),
    "many names": ([f"name {i // 2}" for i in range(4 * N)], "left out"),
}


@pytest.mark.parametrize("case", USES)
def test_cells_decide_what_a_column_is_used_as(case):
    cells, use = USES[case]
    assert column(cells).use == use


def test_names_tell_ids_from_whole_numbers():
    scattered = RNG.permutation(1000)[:N]
    for name in ("id", "customer_id", "PassengerId", "penguin ID", "Unnamed: 0"):
        frame = pd.DataFrame({name: scattered, "x": RNG.normal(size=N)})
        assert TableSchema.fit(as_table(frame)).named("id") == name
    assert TableSchema.fit(as_table(pd.DataFrame({"width": scattered, "x": scattered / 3}))).named("id") is None


def test_what_is_asked_for_goes_before_what_is_found():
    assert column(np.arange(N), columns=["cells", "x"]).use == "number"
    assert column(RNG.normal(size=N), columns=["x"]).note == "not asked for"
    assert column(RNG.normal(size=N), exclude=["cells"]).note == "excluded"
    assert column(RNG.choice(["a", "b"], N), label_column="cells").use == "label"
    assert column(RNG.normal(size=N), id_column="cells").use == "id"
    assert column(["short text"] * N, text=["cells"]).use in ("text", "left out")
    with pytest.raises(DataError, match=r"'cells'.*got date"):
        column(pd.date_range("2007-01-01", periods=N), columns=["cells"])
    with pytest.raises(DataError, match=r"'cell'.*Did you mean 'cells'"):
        column(RNG.normal(size=N), exclude=["cell"])


def test_gaps_are_filled_with_what_says_nothing():
    numbers = np.where(np.arange(N) % 4 == 0, np.nan, RNG.normal(3.0, size=N))
    words = np.where(np.arange(N) % 3 == 0, None, np.where(np.arange(N) % 2, "a", "b"))
    frame = pd.DataFrame({"x": numbers, "w": words, "v": RNG.choice(["p", "q", "r"], N)})
    loaded = read_typed(as_table(frame))
    rows = loaded.source.take(np.arange(N))
    assert loaded.feature_names == ("x", "w=b", "v=p", "v=q", "v=r")
    np.testing.assert_allclose(rows[np.isnan(numbers), 0], np.nanmean(numbers))
    share = (words == "b").sum() / (words != None).sum()  # noqa: E711  # of numpy
    np.testing.assert_allclose(rows[words == None, 1], share)  # noqa: E711
    np.testing.assert_array_equal(rows[:, 2:].sum(axis=1), 1.0)
    assert loaded.facts["rows_filled"] == (np.isnan(numbers) | (words == None)).sum()  # noqa: E711


def test_rows_with_gaps_are_dropped_with_their_labels_and_ids():
    frame = pd.DataFrame({"id": [f"p{i}" for i in range(N)], "x": RNG.normal(size=N), "y": RNG.normal(size=N)})
    frame["kind"] = np.where(frame.x > 0, "up", "down")
    frame.loc[[3, 7], "x"] = np.nan
    loaded = read_typed(as_table(frame), ColumnOptions(label_column="kind", missing="drop"))
    kept = frame.dropna()
    assert len(loaded.source) == N - 2
    assert loaded.facts["rows_dropped"] == 2
    assert loaded.labels.tolist() == kept.kind.tolist()
    assert loaded.beside.column("id").to_pylist() == kept.id.tolist()
    with pytest.raises(DataError, match=r"'x'.*row 3"):
        read_typed(as_table(frame), ColumnOptions(missing="error"))
    odd = np.arange(N) % 2 == 1
    halves = pd.DataFrame({"x": np.where(odd, np.nan, RNG.normal(size=N)), "y": np.where(odd, RNG.normal(size=N), np.nan)})
    with pytest.raises(DataError, match="Every row"):
        read_typed(as_table(halves), ColumnOptions(missing="drop"))


def test_every_column_counts_alike():
    frame = pd.DataFrame({"big": 1e6 * RNG.normal(size=N), "small": 1e-3 * RNG.normal(size=N), "w": RNG.choice(list("abc"), N)})
    loaded = read_typed(as_table(frame))
    schema = loaded.source.schema
    variances = (loaded.source.take(np.arange(N)) / schema.units).var(axis=0)
    np.testing.assert_allclose([variances[0], variances[1], variances[2:].sum()], 1.0)


@pytest.mark.parametrize(
    ("values", "is_one"),
    [
        pytest.param(RNG.random((N, 3)), True, id="shares"),
        pytest.param(RNG.integers(256, size=(N, 64)), True, id="pixels"),
        pytest.param(RNG.poisson(0.2, (N, 5)), True, id="counts"),
        pytest.param(RNG.integers(20, 90, size=(N, 3)), False, id="ages"),
        pytest.param(RNG.normal(size=(N, 3)) * [1, 10, 100], False, id="units"),
    ],
)
def test_columns_in_one_unit_keep_their_sizes(values, is_one):
    schema = TableSchema.fit(as_table(pd.DataFrame(values).rename(columns=str)))
    assert (schema.units is None) == is_one


def test_text_is_what_scikit_learn_makes_of_it():
    encoder = TextEncoder.fit(TEXTS)
    expected = TfidfVectorizer(sublinear_tf=True, token_pattern=SPLIT, min_df=2, max_df=0.5, max_features=MOST_WORDS)
    np.testing.assert_allclose(encoder.encode(pa.array(TEXTS)), expected.fit_transform(TEXTS).toarray())
    assert "again" not in encoder.words  # in every text
    assert encoder.encode(pa.array(["unseen words", None]))[0].sum() == 0
    assert TextEncoder.fit(["one", "two"]) is None


def test_a_schema_survives_json():
    frame = pd.DataFrame({case.replace(" ", "_"): cells for case, (cells, _) in USES.items() if len(cells) == N})
    schema = TableSchema.fit(as_table(frame), ColumnOptions(missing="drop"))
    again = TableSchema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    assert again.feature_names == schema.feature_names


BROKEN = {
    "no columns": lambda plain: plain | {"columns": []},
    "other gaps": lambda plain: plain | {"missing": "guess"},
    "no flag": lambda plain: plain | {"in_one_unit": 1},
    "no object": lambda _: [],
    "use": lambda plain: plain | {"columns": [plain["columns"][0] | {"use": "magic"}]},
    "encoder": lambda plain: plain | {"columns": [plain["columns"][0] | {"encoder": {"mean": "a", "sd": 1.0}}]},
    "nan": lambda plain: plain | {"columns": [plain["columns"][0] | {"encoder": {"mean": float("nan"), "sd": 1.0}}]},
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_damaged_schema_is_refused(case):
    plain = TableSchema.fit(as_table(pd.DataFrame({"x": RNG.normal(size=N)}))).to_dict()
    with pytest.raises((KeyError, TypeError, ValueError)):
        TableSchema.from_dict(BROKEN[case](plain))


def test_later_tables_go_through_the_same():
    frame = pd.DataFrame({"x": RNG.normal(size=N), "w": RNG.choice(["a", "b", "c"], N)})
    schema = TableSchema.fit(as_table(frame))
    later = pd.DataFrame({"w": ["a", "never seen", None], "other": 1, "x": ["1.5", None, "word"]})
    rows = schema.apply(as_table(later)).source.take(np.arange(3))
    np.testing.assert_array_equal(rows[0], [1.5, 1, 0, 0])
    np.testing.assert_allclose(rows[1, 1:], schema.used[1].encoder.fill)
    np.testing.assert_allclose(rows[2, 0], frame.x.mean())
    with pytest.raises(DataError, match=r"Expected a column 'x'.*Did you mean 'xs'"):
        schema.apply(as_table(later.rename(columns={"x": "xs"})))


def test_frames_of_all_libraries_are_one():
    frame = pd.DataFrame({"x": RNG.normal(size=N), "w": RNG.choice(["a", "b", None], N), "t": TEXTS})
    expected = read_typed(as_table(frame))
    for other in (pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        found = read_typed(as_table(other))
        assert found.source.schema == expected.source.schema
        np.testing.assert_array_equal(found.source.take(np.arange(N)), expected.source.take(np.arange(N)))


def test_a_table_without_use_says_why(tmp_path):
    with pytest.raises(DataError, match=r"'when' \(date, left out\), 'who' \(a different one in every row\)"):
        TableSchema.fit(as_table(pd.DataFrame({"when": pd.date_range("2007-01-01", periods=5), "who": list("abcde")})))
    (tmp_path / "empty.csv").write_text("a,b\n")
    with pytest.raises(DataError, match="without rows"):
        open_path(tmp_path / "empty.csv", columns="auto")


def test_csv_files_are_read_as_they_are(tmp_path):
    (tmp_path / "t.csv").write_text(
        'name;mass;kind;note\n"A;1";3,5\n'.replace('"A;1";3,5\n', "")
        + "".join(f'p{i};{"?" if i == 4 else i / 7};{"ab"[i % 2]};"{TEXTS[i]}\nmore"\n' for i in range(N))
    )
    loaded = open_path(tmp_path / "t.csv", columns="auto")
    assert [c["used as"] for c in loaded.facts["columns"]] == [
        "id, not learnt",
        "number",
        "category (two values)",
        "text (tf-idf)",
    ]
    assert loaded.facts["columns"][1]["missing"] == 1
    assert len(loaded.source) == N
    assert loaded.beside.column("name").to_pylist() == [f"p{i}" for i in range(N)]


def test_encoders_know_their_unit():
    assert NumberEncoder(5.0, 2.0).unit == 2.0
    assert NumberEncoder(5.0, 0.0).unit == 1.0
    assert CategoryEncoder(("a", "b"), (0.5, 0.5)).unit == 0.5
