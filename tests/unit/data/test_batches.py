import mmap
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from diva.data.batches import MAX_BATCHES, MIN_BATCH_ROWS, ArrayBatches, ReiterableBatches, Rows, is_batch_source

X = np.arange(14.0).reshape(7, 2)


def sizes(source):
    return [len(rows) for rows in source]


def stacked(source):
    return np.concatenate([rows.values for rows in source])


# --- Rows


def test_pieces_are_runs_of_at_most_so_many_rows():
    pieces = list(Rows(X, np.arange(7.0)).pieces(3))
    assert sizes(pieces) == [3, 3, 1]
    np.testing.assert_array_equal(stacked(pieces), X)
    np.testing.assert_array_equal(np.concatenate([p.weights for p in pieces]), np.arange(7.0))


def test_pieces_without_weights_have_none():
    assert [p.weights for p in Rows(X).pieces(4)] == [None, None]


def test_pieces_are_views():
    assert all(np.shares_memory(p.values, X) for p in Rows(X).pieces(3))


# --- ArrayBatches


@pytest.mark.parametrize(("batch_size", "expected"), [(None, [7]), (1, [1] * 7), (3, [3, 3, 1]), (7, [7]), (100, [7])])
def test_an_array_is_cut_into_batches(batch_size, expected):
    batches = ArrayBatches(X, batch_size=batch_size)
    assert sizes(batches) == expected
    assert sizes(batches) == expected  # again and again
    np.testing.assert_array_equal(stacked(batches), X)


def test_weights_go_with_their_rows():
    weights = np.arange(7.0)
    for rows in ArrayBatches(X, weights, batch_size=2):
        np.testing.assert_array_equal(rows.values[:, 0], 2 * rows.weights)


@pytest.mark.parametrize("n_rows", [1, MIN_BATCH_ROWS, MIN_BATCH_ROWS + 1, MIN_BATCH_ROWS * MAX_BATCHES + 1, 10**6 + 7])
def test_the_number_of_batches_does_not_grow_with_the_data(n_rows):
    found = sizes(ArrayBatches(np.zeros((n_rows, 1), dtype=np.float32)))
    assert sum(found) == n_rows
    assert len(found) <= MAX_BATCHES
    assert min(found) >= 1


# --- memory-mapped files


def mapped(path, mode, n_rows=250_000):
    """4 MB of numbers in a file."""
    if not path.exists():
        np.arange(2.0 * n_rows).tofile(path)
    return np.memmap(path, dtype=np.float64, mode=mode, shape=(n_rows, 2))


def resident_kb(path):
    """How much of a mapped file is in the resident memory of this process."""
    maps = Path("/proc/self/smaps").read_text()
    entry = maps[maps.index(str(path)) :]
    return int(re.search(r"Rss:\s+(\d+) kB", entry)[1])


needs_smaps = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/smaps")


@needs_smaps
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_pages_of_a_mapped_file_are_given_back(tmp_path, mode):
    path = tmp_path / "x.bin"
    values = mapped(path, mode)
    total = float(np.sum(values))
    assert resident_kb(path) > 3_000
    left = []
    for rows in ArrayBatches(values, batch_size=25_000):
        left.append(resident_kb(path))
        rows.values.sum()
    assert left[0] > 3_000
    assert set(left[1:]) == {0}  # each batch finds the memory of those before it released
    assert resident_kb(path) == 0
    assert float(np.sum(values)) == total


@needs_smaps
def test_pages_of_a_view_of_a_mapped_file_are_given_back(tmp_path):
    path = tmp_path / "x.bin"
    values = np.asarray(mapped(path, "r"))[1:]
    values.sum()
    sizes(ArrayBatches(values))
    assert resident_kb(path) == 0


def test_what_was_written_to_a_shared_mapping_stays(tmp_path):
    values = mapped(tmp_path / "x.bin", "r+")
    values[:] = 7.0
    sizes(ArrayBatches(values, batch_size=25_000))
    assert (values == 7.0).all()


@pytest.mark.parametrize("view", [lambda v: v, lambda v: v[1:], np.asarray, lambda v: np.asarray(v)[::2]], ids=range(4))
def test_what_was_written_to_a_private_mapping_stays(tmp_path, view):
    values = mapped(tmp_path / "x.bin", "c")
    values[:] = 7.0
    sizes(ArrayBatches(view(values), batch_size=25_000))
    assert (values == 7.0).all()


@pytest.mark.skipif(not hasattr(mmap, "MAP_PRIVATE"), reason="no private mappings")
def test_numbers_in_anonymous_memory_stay():
    memory = mmap.mmap(-1, X.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    values = np.ndarray(X.shape, buffer=memory)
    values[:] = X
    sizes(ArrayBatches(values))
    np.testing.assert_array_equal(values, X)


# --- ReiterableBatches


@pytest.mark.parametrize(
    "source",
    [
        pytest.param([X[:3], X[3:]], id="list"),
        pytest.param((X[:3], X[3:]), id="tuple"),
        pytest.param([X[:0], X[:3], X[:0], X[3:], X[:0]], id="with-empty-batches"),
        pytest.param([torch.from_numpy(X[:3]), torch.from_numpy(X[3:])], id="tensors"),
        pytest.param([pd.DataFrame(X[:3]), pd.DataFrame(X[3:])], id="frames"),
        pytest.param([X[:3].tolist(), X[3:].tolist()], id="lists-of-lists"),
        pytest.param([[X[:3]], [X[3:]]], id="lists-of-one-array"),
        pytest.param(DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=3), id="loader-of-lists"),
        pytest.param(DataLoader(torch.from_numpy(X), batch_size=3), id="loader-of-tensors"),
    ],
)
def test_a_stream_gives_the_rows_of_its_batches(source):
    batches = ReiterableBatches(source)
    for _ in range(2):
        np.testing.assert_array_equal(stacked(batches), X)
    assert all(rows.values.dtype == np.float64 and rows.weights is None for rows in batches)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(np.float32, np.float32), (np.float64, np.float64), (np.float16, np.float64), (int, np.float64), (bool, np.float64)],
)
def test_float32_stays_and_all_else_becomes_float64(dtype, expected):
    (rows,) = ReiterableBatches([X.astype(dtype)])
    assert rows.values.dtype == expected


@pytest.mark.parametrize(
    "source", [(x for x in [X]), map(np.abs, [X]), zip([X], strict=True), iter([X])], ids=lambda s: type(s).__name__
)
def test_a_one_shot_iterator_is_refused_and_not_consumed(source):
    with pytest.raises(TypeError, match=f"one-shot {type(source).__name__}"):
        ReiterableBatches(source)
    assert next(source) is not None


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([X, X[:, :1]], "batch 1 has 1, those before it have 2"),
        ([X[:0], X[:, :1]], "batch 1 has 1, those before it have 2"),
        ([X, X[0]], r"batch 1 to have shape \(n_samples, n_features\), got \(2,\).*reshape"),
        ([X[None]], r"batch 0 to have shape .* got \(1, 7, 2\)"),
        ([X, np.full((2, 2), "cat")], "batch 1 to be a numeric array.*cat"),
        ([np.array([[1.0, "cat"]], dtype=object)], "batch 0 to be a numeric array.*cat"),
        ([[X, X[:3]]], "batch 0 to be one array"),
    ],
)
def test_a_bad_batch_is_named(batches, message):
    with pytest.raises(ValueError, match=message):
        list(ReiterableBatches(batches))


# --- is_batch_source


class Reiterable:
    def __iter__(self):
        yield X


@pytest.mark.parametrize(
    "data",
    [[X], (X, X), [pd.DataFrame(X)], [torch.from_numpy(X)], DataLoader(torch.from_numpy(X)), Reiterable(), (x for x in [X])],
    ids=lambda d: type(d).__name__,
)
def test_collections_of_batches(data):
    assert is_batch_source(data)


@pytest.mark.parametrize(
    "data",
    [
        X,
        X.tolist(),
        [],
        (),
        [X[0], X[1]],
        torch.from_numpy(X),
        pd.DataFrame(X),
        pd.Series(X[0]),
        "text",
        b"bytes",
        {},
        {"a": X},
        None,
        5,
    ],
    ids=lambda d: type(d).__name__,
)
def test_tables_and_other_things(data):
    assert not is_batch_source(data)
