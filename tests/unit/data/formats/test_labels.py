import os

import numpy as np
import pytest

from diva.data.formats.labels import number_classes, read_labels, whole_numbers
from diva.exceptions import DataError


@pytest.mark.parametrize("labels", [np.array([3, 1, 2]), np.array([[3], [1], [2]]), np.array(["c", "a", "b"])])
def test_an_array(tmp_path, labels):
    np.save(tmp_path / "y.npy", labels)
    assert read_labels(tmp_path / "y.npy").tolist() == labels.reshape(-1).tolist()


def test_a_line_for_each(tmp_path):
    (tmp_path / "y.txt").write_text("cat\n dog\ncat\n\n")
    assert read_labels(str(tmp_path / "y.txt")).tolist() == ["cat", "dog", "cat"]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros((3, 2)), "one label for each sample"),
        (np.array([0.0, np.nan]), "Label 2 in .* is missing"),
        (np.array(["a", ""]), "Label 2 in .* is missing"),
        (np.array([{}], dtype=object), "cannot be read as labels"),
    ],
)
def test_what_is_refused(tmp_path, labels, message):
    np.save(tmp_path / "y.npy", labels)
    with pytest.raises(DataError, match=message):
        read_labels(tmp_path / "y.npy")


def test_no_file(tmp_path):
    with pytest.raises(DataError, match=r"none\.txt cannot be read as labels"):
        read_labels(tmp_path / "none.txt")


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "pipe", "."])
def test_what_is_no_file(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="is a folder, a pipe or a device"):
        read_labels(tmp_path / name)


def test_a_file_for_others(for_others):
    path = for_others("y.txt", b"cat\ndog\n")
    with pytest.raises(DataError, match=r"y\.txt may not be read"):
        read_labels(path)


def test_an_array_smaller_than_it_says(tmp_path):
    with (tmp_path / "y.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (10**14,)})
    with pytest.raises(DataError, match=r"y\.npy cannot be read as labels"):
        read_labels(tmp_path / "y.npy")


def test_a_text_is_no_label(tmp_path):
    (tmp_path / "y.txt").write_text("cat\n" + "dog" * 1000)
    with pytest.raises(DataError, match="a line has 3,000 characters"):
        read_labels(tmp_path / "y.txt")


def test_whole_numbers_and_words():
    assert whole_numbers(np.array(["1", "-2", "0"])).tolist() == [1, -2, 0]
    assert whole_numbers(np.array(["1", "02"])).tolist() == ["1", "02"]


@pytest.mark.parametrize(
    ("labels", "numbers", "names"),
    [
        (np.array([2.0, 0.0]), [2, 0], None),
        (np.array(["7", "5"]), [7, 5], None),
        (np.array(["dog", "cat", "dog"]), [1, 0, 1], ("cat", "dog")),
    ],
)
def test_classes_are_numbered(labels, numbers, names):
    found, found_names = number_classes(labels)
    assert (found.tolist(), found_names) == (numbers, names)
    assert found.dtype == np.int64
