import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from diva.cli.data import _print_rows, _progress, data_app
from diva.data import load_dataset
from diva.data.datasets.features import Features, extract_features, open_images, write_features
from diva.data.datasets.registry import REGISTRY
from diva.exceptions import DataError

ENCODERS = """
import torch

def mean_colour():
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())

def nothing():
    return 3

def flat():
    class Flat(torch.nn.Module):
        def forward(self, x):
            return x.sum()
    return Flat()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVA_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DIVA_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path), *__import__("sys").path])
    (tmp_path / "tiny_encoders.py").write_text(ENCODERS)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(data_app, [str(argument) for argument in arguments])


def test_list_is_plain_when_piped():
    result = run("list")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split("\t")[0] == "name"
    assert all(line.count("\t") == lines[0].count("\t") for line in lines)
    assert "\x1b" not in result.stdout
    assert any(line.startswith("digits\t") and "built in" in line for line in lines)


def test_list_json():
    listed = {entry["name"]: entry for entry in json.loads(run("list", "--json").stdout)}
    assert listed["digits"]["is_here"] is True
    assert listed["mnist"]["is_here"] is False
    assert listed["mnist"]["where"] is None


def test_table_on_a_terminal():
    console = Console(file=io.StringIO(), force_terminal=True, width=60)
    _print_rows(["name", "here"], [["mnist", "/data[bold]/mnist"]], console)
    assert "/data[bold]/mnist" in console.file.getvalue()


def test_get_needs_no_files():
    assert run("get", "digits").stdout == "digits needs no files.\n"
    assert json.loads(run("get", "digits", "--json").stdout)["files"] == []


def test_network_failure_is_one_line(place, monkeypatch):
    info = REGISTRY["svhn"]
    files = tuple(replace(file, url=f"http://127.0.0.1:9/{file.filename}") for file in info.layouts[0].files)
    monkeypatch.setitem(REGISTRY, "svhn", replace(info, layouts=(replace(info.layouts[0], files=files),)))
    result = run("get", "svhn")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: train_32x32.mat could not be fetched")
    assert f"as {place / 'cache' / 'svhn' / 'train_32x32.mat'}." in result.stderr
    assert result.stderr.count("\n") == 1


def test_progress_on_a_terminal(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=60)
    monkeypatch.setattr("diva.cli.data.Console", lambda **options: console)
    with _progress("mnist", (), quiet=False) as tell:
        tell(1, 2)
    assert "mnist" in console.file.getvalue()
    with _progress("mnist", (), quiet=True) as tell:
        assert tell is None


def test_get_what_cannot_be_downloaded(place):
    result = run("get", "hhar")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert str(place / "data" / "hhar" / "HAR.mat") in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["get", "check"])
def test_unknown_name_is_wrong_usage(command):
    result = run(command, "mnits")
    assert result.exit_code == 2
    assert "Did you mean 'mnist'?" in result.stderr
    assert "Traceback" not in result.stderr


def test_check():
    result = run("check", "digits")
    assert result.exit_code == 0
    assert "good" in result.stdout
    assert run("check").exit_code == 0
    assert json.loads(run("check", "digits", "--json").stdout)[0]["is_good"] is True


def test_check_what_is_missing(place):
    result = run("check", "mnist")
    assert result.exit_code == 1
    assert "missing" in result.stdout
    assert "diva data get mnist" in result.stderr
    result = run("check", "mnist", "--json")
    assert result.exit_code == 1
    assert not any(entry["is_good"] for entry in json.loads(result.stdout))


def test_help_has_examples():
    for command in ("list", "get", "check", "features"):
        result = run(command, "--help")
        assert result.exit_code == 0
        assert f"diva data {command}" in result.stdout


# --- features


def save_images(folder, colours):
    folder.mkdir(parents=True)
    for i, colour in enumerate(colours):
        Image.new("RGB", (12, 8), colour).save(folder / f"{i}.png")


def test_features_of_folders_are_a_data_set(place):
    save_images(place / "images" / "cat", [(255, 0, 0)] * 3)
    save_images(place / "images" / "dog", [(0, 0, 255)] * 2)
    out = place / "data" / "stl10" / "features.npz"
    result = run(
        "features", "images", "--encoder", "tiny_encoders:mean_colour", "--out", out, "--batch-size", 2, "--image-size", 4
    )
    assert result.exit_code == 0, result.stderr
    assert "5 x 3 features, 2 classes" in result.stdout
    assert [path.name for path in out.parent.iterdir()] == ["features.npz"]
    data = load_dataset("stl10")
    np.testing.assert_allclose(data.source.take(np.array([0, 4])), [[1, 0, 0], [0, 0, 1]])
    assert data.labels.tolist() == [0, 0, 0, 1, 1]
    assert data.class_names == ("cat", "dog")


def test_features_with_a_part_for_testing(place):
    save_images(place / "train" / "cat", [(255, 0, 0)] * 3)
    save_images(place / "train" / "dog", [(0, 0, 255)] * 2)
    save_images(place / "test" / "dog", [(0, 0, 255)])
    out = place / "data" / "stl10" / "features.npz"
    arguments = ("--encoder", "tiny_encoders:mean_colour", "--out", out, "--image-size", 4)
    result = run("features", "train", "--test", "test", *arguments)
    assert result.exit_code == 0, result.stderr
    assert "5 + 1 x 3 features, 2 classes" in result.stdout
    data = load_dataset("stl10")
    np.testing.assert_allclose(data.test_source.take(np.array([0])), [[0, 0, 1]])
    assert data.test_labels.tolist() == [1]  # the number that dogs have in training
    (place / "y.txt").write_text("dog\n")
    assert json.loads(run("features", "train", "--test", "test", *arguments, "--test-labels", "y.txt", "--json").stdout) == {
        "file": str(out),
        "shape": [5, 3],
        "test_shape": [1, 3],
        "n_classes": 2,
    }
    assert load_dataset("stl10").test_labels.tolist() == [1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--test-labels", "y.txt"), "--test, which is missing"),
        (("--test", "birds"), "got 'bird' as well"),
        (("--test", "flat"), "or of neither"),
        (("--test", "flat", "--test-labels", "numbers.txt"), "as words, or as numbers"),
        (("--test", "flat", "--test-labels", "y.txt"), "one label for each of 2 images, y.txt has 1"),
    ],
)
def test_a_part_for_testing_that_does_not_fit(place, options, expected):
    save_images(place / "train" / "cat", [(255, 0, 0)] * 3)
    save_images(place / "birds" / "bird", [(255, 0, 0)])
    save_images(place / "flat", [(255, 0, 0)] * 2)
    (place / "y.txt").write_text("cat\n")
    (place / "numbers.txt").write_text("0\n0\n")
    result = run("features", "train", *options, "--encoder", "tiny_encoders:mean_colour", "--out", "f.npz", "--image-size", 4)
    assert result.exit_code == 1
    assert expected in result.stderr
    assert not (place / "f.npz").exists()


def test_features_of_an_array(place):
    np.save(place / "x.npy", np.full((3, 6, 6), 51, np.uint8))
    np.save(place / "y.npy", np.array([0, 1, 1]))
    arguments = ("features", "x.npy", "--encoder", "tiny_encoders:mean_colour", "--out", "f.npz", "--image-size", 4, "--json")
    result = run(*arguments)
    assert json.loads(result.stdout) == {"file": "f.npz", "shape": [3, 3], "test_shape": None, "n_classes": None}
    result = run(*arguments, "--labels", "y.npy")
    assert json.loads(result.stdout)["n_classes"] == 2
    with np.load(place / "f.npz") as file:
        np.testing.assert_allclose(file["X"], np.full((3, 3), 0.2), rtol=1e-6)
        assert file["X"].dtype == np.float32
        assert file["y"].tolist() == [0, 1, 1]
    (place / "y.txt").write_text("dog\ncat\ndog\n")
    assert run(*arguments, "--labels", "y.txt").exit_code == 0
    with np.load(place / "f.npz") as file:
        assert file["y"].tolist() == [1, 0, 1]
        assert file["class_names"].tolist() == ["cat", "dog"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"--encoder": "tiny_encoders"}, "module:function"),
        ({"--encoder": "no_such_module:f"}, "cannot be imported"),
        ({"--encoder": "tiny_encoders:absent"}, "no function 'absent'"),
        ({"--encoder": "tiny_encoders:nothing"}, "torch.nn.Module, got int"),
        ({"--encoder": "tiny_encoders:flat"}, "3 rows"),
        ({"--out": "f.txt"}, ".npz"),
        ({"images": "absent"}, "does not exist"),
        ({"images": "empty"}, "found none"),
        ({"images": "f.txt"}, "got f.txt"),
        ({"images": "wide.npy"}, "Convert them first"),
        ({"images": "broken"}, "cannot be read as an image"),
        ({"images": "mixed"}, "one of the two ways"),
        ({"--labels": "wide.npy"}, "one label for each sample"),
        ({"--labels": "few.txt"}, "one label for each of 3 images"),
        ({"--labels": "absent.npy"}, "absent.npy"),
    ],
)
def test_features_that_cannot_be(place, changes, expected):
    np.save(place / "x.npy", np.zeros((3, 6, 6), np.uint8))
    np.save(place / "wide.npy", np.zeros((3, 6)))
    (place / "empty").mkdir()
    (place / "f.txt").write_text("text")
    (place / "few.txt").write_text("cat\ndog")
    (place / "broken").mkdir()
    (place / "broken" / "a.png").write_text("text")
    save_images(place / "mixed" / "cat", [(0, 0, 0)])
    Image.new("RGB", (3, 3)).save(place / "mixed" / "a.png")
    options = {"images": "x.npy", "--encoder": "tiny_encoders:mean_colour", "--out": "out.npz"} | changes
    images = options.pop("images")
    result = run("features", images, *(part for pair in options.items() for part in pair))
    assert result.exit_code == 1
    assert expected in result.stderr
    assert "Traceback" not in result.stderr
    assert not (place / "out.npz").exists()


def test_images_are_cut_to_their_middle(place):
    (place / "images").mkdir()
    picture = np.zeros((4, 12, 3), np.uint8)
    picture[:, 4:8] = 255
    Image.fromarray(picture).save(place / "images" / "a.png")
    features = extract_features(open_images(place / "images"), torch.nn.Identity(), image_size=4)
    assert features.shape == (1, 48)
    assert (features == 1).all()


def test_failed_write_leaves_nothing(place):
    class Unwritable:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("no array")

    with pytest.raises(RuntimeError):
        write_features(place / "new" / "f.npz", Features(Unwritable()))
    assert list((place / "new").iterdir()) == []


def test_not_finite(place):
    class Infinite(torch.nn.Module):
        def forward(self, x):
            return x.flatten(1) / 0

    np.save(place / "x.npy", np.ones((2, 4, 4), np.uint8))
    with pytest.raises(DataError, match="not finite for images 0 to 1"):
        extract_features(open_images(place / "x.npy"), Infinite(), image_size=4)
