import gzip
import io
import os
import tarfile
import zipfile
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import sparse
from scipy.io import savemat
from sklearn.base import BaseEstimator

from diva.data import SparseSource, check_dataset, dataset_info, get_dataset, list_datasets, load_dataset
from diva.data.datasets.load import cache_folder, data_folders
from diva.data.datasets.readers import CIFAR10_RECORD
from diva.data.datasets.registry import IDX_FILES, REGISTRY
from diva.data.validate import open_samples
from diva.exceptions import DataError, DatasetNotFoundError, DownloadError, UnknownDatasetError

PAPER = ("mnist", "fashion_mnist", "reuters10k", "hhar", "stl10", "imagenet50", "cifar10", "svhn")
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVA_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DIVA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


def everything(source):
    return source.take(np.arange(len(source)))


# --- tiny copies in the published formats


def idx(values):
    return b"\x00\x00\x08" + bytes([values.ndim]) + np.array(values.shape, ">i4").tobytes() + values.tobytes()


def write_idx(folder, n=(6, 4)):
    folder.mkdir(parents=True)
    arrays = []
    for size in n:
        arrays += [RNG.integers(0, 256, (size, 28, 28), dtype=np.uint8), RNG.integers(0, 10, size, dtype=np.uint8)]
    for name, values in zip(IDX_FILES, arrays, strict=True):
        (folder / name).write_bytes(gzip.compress(idx(values)))
    return arrays


def write_cifar10(folder):
    folder.mkdir(parents=True)
    images = RNG.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(12, dtype=np.uint8) % 10
    records = np.concatenate([labels[:, None], images.transpose(0, 3, 1, 2).reshape(12, -1)], axis=1)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for i in (5, 3, 0, 1, 2, 4):  # in an archive, the order of files is any
            raw = records[2 * i : 2 * i + 2].tobytes()
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{names[i]}")
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    return images, labels


def write_jpegs(path, n):
    chunks = []
    for value in range(n):
        buffer = io.BytesIO()
        Image.new("RGB", (32, 32), (10 * value, 0, 0)).save(buffer, "JPEG")
        chunks.append(buffer.getvalue())
    path.parent.mkdir(parents=True, exist_ok=True)
    offsets = np.cumsum([0, *map(len, chunks)])
    np.savez(path, jpeg=np.frombuffer(b"".join(chunks), np.uint8), offsets=offsets, y=np.arange(n, dtype=np.uint8))


def write_sparse(path, **more):
    matrix = sparse.random(5, 7, 0.4, "csr", np.float32, random_state=0)
    path.parent.mkdir(parents=True)
    parts = {"data": matrix.data, "indices": matrix.indices.astype(np.uint16), "indptr": matrix.indptr, "shape": matrix.shape}
    np.savez(path, **parts, y=np.array([0, 1, 0, 1, 1], np.uint8), **more)
    return matrix.toarray()


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_idx(root, name):
    x, y, x_test, y_test = write_idx(root / name)
    data = load_dataset(name)
    assert data.source.item_shape == (28, 28)
    assert everything(data.source).dtype == np.uint8
    np.testing.assert_array_equal(everything(data.source), x)
    np.testing.assert_array_equal(data.labels, y)
    np.testing.assert_array_equal(everything(data.test_source), x_test)
    np.testing.assert_array_equal(data.test_labels, y_test)
    assert data.labels.dtype == np.int64
    assert len(data.class_names) == 10
    assert data.fidelity == "as published"


def test_cifar10_binary_archive(root):
    images, labels = write_cifar10(root / "cifar10")
    data = load_dataset("cifar10")
    np.testing.assert_array_equal(everything(data.source), images[:10])
    np.testing.assert_array_equal(data.labels, labels[:10])
    np.testing.assert_array_equal(everything(data.test_source), images[10:])
    assert data.class_names[0] == "airplane"


def test_cifar10_as_jpeg_says_so(root):
    write_jpegs(root / "cifar10_jpeg" / "cifar10_train_jpeg.npz", 4)
    write_jpegs(root / "cifar10_jpeg" / "cifar10_test_jpeg.npz", 2)
    data = load_dataset("cifar10")
    assert everything(data.source)[:, 0, 0, 0].tolist() == pytest.approx([0, 10, 20, 30], abs=3)
    assert len(data.test_source) == 2
    assert "JPEG" in data.fidelity


def test_published_files_are_preferred(root, tmp_path):
    write_jpegs(root / "cifar10_jpeg" / "cifar10_train_jpeg.npz", 4)
    write_jpegs(root / "cifar10_jpeg" / "cifar10_test_jpeg.npz", 2)
    write_cifar10(tmp_path / "cache" / "cifar10")
    assert load_dataset("cifar10").fidelity == "as published"


def test_svhn_published(root):
    (root / "svhn").mkdir(parents=True)
    images = RNG.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    for name in ("train_32x32.mat", "test_32x32.mat"):
        savemat(root / "svhn" / name, {"X": images.transpose(1, 2, 3, 0), "y": np.array([[10], [1], [9]], np.uint8)})
    data = load_dataset("svhn")
    np.testing.assert_array_equal(data.source.take(np.array([2, 0])), images[[2, 0]])
    assert data.labels.tolist() == [0, 1, 9]


def test_svhn_subset(root):
    (root / "svhn_subset").mkdir(parents=True)
    x = RNG.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    y = np.array([0, 1, 2], np.uint8)
    np.savez(root / "svhn_subset" / "svhn_subset.npz", X_train=x, y_train=y, X_test=x[:1], y_test=y[:1], index_train=y)
    data = load_dataset("svhn")
    np.testing.assert_array_equal(everything(data.source), x)
    assert len(data.test_source) == 1
    assert "cropped anew" in data.fidelity


@pytest.mark.parametrize("name", ["stl10", "imagenet50"])
@pytest.mark.parametrize("part", ["test", "val"])
@pytest.mark.parametrize("data", ["data", "codes"])
def test_tensors_of_deepdpm(root, name, part, data):
    folder = root / name
    folder.mkdir(parents=True)
    x = torch.randn(4, 8, dtype=torch.float64)
    torch.save(x, folder / f"train_{data}.pt")
    torch.save(torch.tensor([0.0, 1.0, 2.0, 2.0]), folder / "train_labels.pt")
    assert load_dataset(name).test_source is None
    torch.save(x[:2], folder / f"{part}_{data}.pt")
    torch.save(torch.tensor([0, 1]), folder / f"{part}_labels.pt")
    loaded = load_dataset(name)
    assert everything(loaded.source).dtype == np.float32
    np.testing.assert_allclose(everything(loaded.source), x.numpy().astype(np.float32))
    assert loaded.labels.tolist() == [0, 1, 2, 2]
    np.testing.assert_allclose(everything(loaded.test_source), x[:2].numpy().astype(np.float32))
    assert loaded.test_labels.tolist() == [0, 1]


@pytest.mark.parametrize(("train", "test"), [("data", "codes"), ("codes", "data")])
def test_stl10_as_named_in_two_ways(root, train, test):
    (root / "stl10").mkdir(parents=True)
    for file, n in ((f"train_{train}", 5), ("train_labels", 5), (f"test_{test}", 8), ("test_labels", 8)):
        torch.save(torch.zeros(n) if "labels" in file else torch.zeros(n, 3), root / "stl10" / f"{file}.pt")
    data = load_dataset("stl10")
    assert (len(data.source), len(data.test_source)) == (5, 8)


class Danger:
    def __reduce__(self):
        return os.mkdir, ("should_not_be_made",)


def test_files_that_bring_code_are_refused(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (root / "imagenet50").mkdir(parents=True)
    (root / "reuters10k").mkdir(parents=True)
    (root / "stl10").mkdir(parents=True)
    for name, file in product(("imagenet50", "stl10"), ("train_data.pt", "train_labels.pt")):
        torch.save(Danger(), root / name / file)
    for name in ("x10k.npy", "y10k.npy"):
        np.save(root / "reuters10k" / name, np.array([Danger()], object), allow_pickle=True)
    for name in ("imagenet50", "stl10", "reuters10k"):
        with pytest.raises(DataError, match="cannot be read"):
            load_dataset(name)
    assert not (tmp_path / "should_not_be_made").exists()


@pytest.mark.parametrize("name", ["stl10", "imagenet50"])
def test_own_features(root, name):
    (root / name).mkdir(parents=True)
    np.savez(root / name / "features.npz", X=np.ones((3, 5)), y=np.array([0, 1, 1]), class_names=np.array(["cat", "dog"]))
    data = load_dataset(name)
    assert data.source.item_shape == (5,)
    assert data.class_names == ("cat", "dog")
    assert "diva data features" in data.fidelity


def test_validation_part_of_imagenet50(root):
    (root / "imagenet50_moco").mkdir(parents=True)
    np.savez(root / "imagenet50_moco" / "imagenet50_moco_test.npz", X=np.ones((3, 5), np.float32), y=np.array([0, 1, 1]))
    assert "validation" in load_dataset("imagenet50").fidelity


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    ("name", "filename", "n_test"),
    [("reuters10k", "reuters10k.mat", 1), ("hhar", "HAR.mat", 0), ("hhar", "HHAR.mat", 0), ("har", "HAR.mat", 0)],
)
def test_matlab_rows(root, name, filename, n_test, make):
    (root / name).mkdir(parents=True)
    x = RNG.random((5, 6))
    savemat(root / name / filename, {"X": make(x), "Y": np.array([[1, 2, 2, 1, 3]])})
    data = load_dataset(name)
    n = 5 - n_test
    np.testing.assert_allclose(everything(data.source), x[:n].astype(np.float32))
    assert data.labels.tolist() == [0, 1, 1, 0, 2][:n]
    if n_test:
        np.testing.assert_allclose(everything(data.test_source), x[n:].astype(np.float32))
        assert data.test_labels.tolist() == [2]
    else:
        assert data.test_source is None


@pytest.mark.parametrize("name", ["har", "hhar"])
def test_har_of_vade_is_split_as_published(root, name):
    (root / name).mkdir(parents=True)
    x = np.arange(10_299.0)[:, None]
    savemat(root / name / "HAR.mat", {"X": x, "Y": 1 + x.T % 6})
    data = load_dataset(name)
    assert (len(data.source), len(data.test_source)) == (7_352, 2_947)
    assert data.test_source.take(np.array([0])).item() == 7_352
    assert data.test_labels[0] == 7_352 % 6
    assert ("VaDE" in data.fidelity) == (name == "hhar")


def test_labels_of_rows_that_do_not_fit(root):
    (root / "hhar").mkdir(parents=True)
    savemat(root / "hhar" / "HAR.mat", {"X": np.ones((3, 2)), "Y": np.ones((1, 4))})
    with pytest.raises(DataError, match="4 labels for 3 samples"):
        load_dataset("hhar")


def test_reuters10k_npy(root):
    """The first 80 % are for training."""
    (root / "reuters10k").mkdir(parents=True)
    np.save(root / "reuters10k" / "x10k.npy", np.arange(10.0)[:, None] * np.ones(6))
    np.save(root / "reuters10k" / "y10k.npy", np.array([3, 2, 1, 0, 3, 2, 1, 0, 3, 2]))
    data = load_dataset("reuters10k")
    assert data.source.item_shape == (6,)
    assert data.labels.tolist() == [3, 2, 1, 0, 3, 2, 1, 0]
    assert everything(data.test_source)[:, 0].tolist() == [8, 9]
    assert data.test_labels.tolist() == [3, 2]


def test_har_archive(root):
    """Split as published."""
    (root / "har").mkdir(parents=True)
    with zipfile.ZipFile(root / "har" / "UCI HAR Dataset.zip", "w") as archive:
        archive.writestr("UCI HAR Dataset/features.txt", "1 tBodyAcc-mean()-X\n2 tBodyAcc-mean()-Y\n")
        for part, rows in (("train", "0.5  -1.0e-001\n 1 0\n"), ("test", "0.25 0.125\n0 0\n")):
            archive.writestr(f"UCI HAR Dataset/{part}/X_{part}.txt", rows)
            archive.writestr(f"UCI HAR Dataset/{part}/y_{part}.txt", "1\n6\n")
    data = load_dataset("har")
    np.testing.assert_allclose(everything(data.source), [[0.5, -0.1], [1, 0]])
    np.testing.assert_allclose(everything(data.test_source), [[0.25, 0.125], [0, 0]])
    assert data.labels.tolist() == data.test_labels.tolist() == [0, 5]
    assert data.feature_names == ("tBodyAcc-mean()-X", "tBodyAcc-mean()-Y")
    assert data.class_names[5] == "laying"


def test_har_recomputed(root):
    (root / "har_recomputed").mkdir(parents=True)
    np.savez(
        root / "har_recomputed" / "har_recomputed.npz", X=np.ones((3, 4), np.float16), y=np.arange(3), subject=np.arange(3)
    )
    data = load_dataset("har")
    assert everything(data.source).dtype == np.float32
    assert "recomputed" in data.fidelity
    assert data.test_source is None


def test_reuters10k_redrawn(root):
    """Not the published draw, split as the published one."""
    dense = write_sparse(root / "reuters10k_redrawn" / "reuters10k_rcv1.npz")
    data = load_dataset("reuters10k")
    n = len(dense) * 4 // 5
    assert "redrawn" in data.fidelity
    np.testing.assert_array_equal(everything(data.source), dense[:n])
    np.testing.assert_array_equal(everything(data.test_source), dense[n:])
    assert len(data.test_labels) == len(dense) - n


def test_features_that_say_which_rows_are_for_training(root):
    (root / "imagenette_lite0").mkdir(parents=True)
    path = root / "imagenette_lite0" / "imagenette_lite0.npz"
    np.savez(path, X=np.arange(4.0)[:, None], y=np.array([0, 1, 0, 1]), is_train=np.array([True, False, True, False]))
    data = load_dataset("imagenette")
    assert everything(data.source).ravel().tolist() == [0, 2]
    assert everything(data.test_source).ravel().tolist() == [1, 3]
    assert (data.labels.tolist(), data.test_labels.tolist()) == ([0, 0], [1, 1])


@pytest.mark.parametrize("name", ["reuters_r8", "reuters_r52", "reuters1200"])
def test_text(root, name):
    more = {} if name == "reuters1200" else {"class_names": np.array(["acq", "earn"]), "vocab": np.array(list("abcdefg"))}
    dense = write_sparse(root / name / REGISTRY[name].layouts[0].files[0].filename, **more)
    data = load_dataset(name)
    assert isinstance(data.source, SparseSource)
    rows = data.source.take(np.array([4, 0, 4]))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, dense[[4, 0, 4]])
    assert data.feature_names == (tuple("abcdefg") if more else None)
    assert data.source.take(np.array([], np.int64)).shape == (0, 7)
    assert open_samples(BaseEstimator(), data.source, reset=True) is data.source


@pytest.mark.parametrize(
    ("name", "citation"),
    [
        ("reuters_r8", "D. Lewis: Reuters-21578; split of A. Cardoso-Cachopo, 2007"),
        ("reuters_r52", "D. Lewis: Reuters-21578; split of A. Cardoso-Cachopo, 2007"),
        ("reuters1200", "C. Grimal: sample of RCV1/RCV2 multilingual, English view"),
    ],
)
def test_texts_are_cited_as_their_entry_says(name, citation):
    assert dataset_info(name).citation == citation


# --- made on the spot


def test_digits():
    data = load_dataset("digits")
    assert (len(data.source), data.source.item_shape) == (1797, (8, 8))
    assert data.class_names == tuple("0123456789")


def test_gaussians_are_the_same_every_time():
    a, b = load_dataset("gaussians-3-4"), load_dataset("gaussians-3-4")
    np.testing.assert_array_equal(everything(a.source), everything(b.source))
    assert a.source.item_shape == (4,)
    assert set(a.labels) == {0, 1, 2}
    assert len(a.test_source) == len(a.test_labels) > 0
    assert load_dataset("gaussians-2").source.item_shape == (10,)


@pytest.mark.parametrize("name", ["gaussians-0", "gaussians-", "gaussians-3-0", "gaussians-9999-9999", "gaussians-3-4-5"])
def test_gaussians_that_cannot_be(name):
    with pytest.raises(UnknownDatasetError):
        load_dataset(name)


# --- names, places, damage


@pytest.mark.parametrize(("typed", "meant"), [("mnits", "mnist"), ("Fashion-MNIST", "fashion_mnist"), ("cifar-10", "cifar10")])
def test_unknown_name_suggests(typed, meant):
    with pytest.raises(UnknownDatasetError, match=f"Did you mean '{meant}'"):
        load_dataset(typed)


def test_missing_files_are_named(root):
    with pytest.raises(DatasetNotFoundError, match="diva data get mnist") as caught:
        load_dataset("mnist")
    assert str(root / "mnist" / IDX_FILES[0]) in str(caught.value)
    with pytest.raises(FileNotFoundError, match="NIST") as caught:
        load_dataset("reuters10k")
    assert str(root / "reuters10k" / "reuters10k.mat") in str(caught.value)


@pytest.mark.parametrize(
    "raw",
    [b"", b"not a gzip", gzip.compress(b"")[:-4], gzip.compress(b"\x00\x00\x08\x01\x00"), None],
    ids=["empty", "not gzip", "cut short", "half a header", "missing"],
)
def test_damaged_files_are_named(root, raw):
    write_idx(root / "mnist")
    path = root / "mnist" / IDX_FILES[0]
    path.write_bytes(path.read_bytes()[:-100] if raw is None else raw)
    with pytest.raises(DataError, match="diva data check mnist") as caught:
        load_dataset("mnist")
    assert str(root / "mnist") in str(caught.value)


def test_other_damage(root):
    (root / "cifar10").mkdir(parents=True)
    for content in (b"", b"x" * 600):
        (root / "cifar10" / "cifar-10-binary.tar.gz").write_bytes(content)
        with pytest.raises(DataError, match="cannot be read"):
            load_dataset("cifar10")
    (root / "har").mkdir()
    (root / "har" / "UCI HAR Dataset.zip").write_bytes(b"PK")
    (root / "hhar").mkdir()
    (root / "hhar" / "HHAR.mat").write_bytes(b"MATLAB")
    (root / "stl10").mkdir()
    np.savez(root / "stl10" / "features.npz", X=np.ones((2, 2)))
    for name in ("har", "hhar", "stl10"):
        with pytest.raises(DataError, match="cannot be read"):
            load_dataset(name)


def test_labels_that_do_not_fit(root):
    (root / "stl10").mkdir(parents=True)
    np.savez(root / "stl10" / "features.npz", X=np.ones((2, 2)), y=np.arange(3))
    with pytest.raises(DataError, match="3 labels for 2 samples"):
        load_dataset("stl10")


def test_cache_folder(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    assert data_folders() == [tmp_path / "data", tmp_path / "cache"]
    monkeypatch.delenv("DIVA_CACHE")
    monkeypatch.delenv("DIVA_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folders() == [tmp_path / "diva"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_folder() == tmp_path / ".cache" / "diva"


# --- list, check, get


def test_list(root):
    write_idx(root / "mnist")
    listed = {status.name: status for status in list_datasets()}
    assert set(PAPER) <= set(listed)
    assert listed["mnist"].is_here
    assert listed["mnist"].where == root / "mnist"
    assert listed["digits"].is_here
    assert listed["digits"].where is None
    assert not listed["svhn"].is_here
    assert listed["svhn"].is_downloadable
    assert listed["svhn"].fidelity is None


def test_every_entry_is_complete():
    for name, info in REGISTRY.items():
        assert info.name == name
        assert info.title
        assert info.licence
        assert info.citation
        assert info.n_classes > 1
        assert info.is_downloadable or info.note or not info.layouts
        assert len({bool(file.url) for layout in info.layouts[:1] for file in layout.files}) < 2
    assert dataset_info("fashion_mnist").parameters == {"augmentation": "photo"}


def test_check_finds_another_file(root):
    write_idx(root / "mnist")
    checks = check_dataset("mnist")
    assert [check.is_good for check in checks] == [False, False, False, False, True]
    assert "expected 9,912,422 bytes" in checks[0].message
    assert "6 + 4 x 28 x 28" in checks[-1].message


def test_check_names_missing_files(root):
    write_idx(root / "mnist")
    (root / "mnist" / IDX_FILES[1]).unlink()
    checks = check_dataset("mnist")
    assert [check.message == "missing" for check in checks] == [False, True, False, False]
    assert all(check.is_good for check in check_dataset("digits"))


def test_check_reports_what_cannot_be_read(root):
    (root / "hhar").mkdir(parents=True)
    (root / "hhar" / "HHAR.mat").write_bytes(b"nothing")
    first, last = check_dataset("hhar")
    assert first.message == "no checksum is known"
    assert not last.is_good
    assert "cannot be read" in last.message


def test_get_what_needs_no_download(root):
    assert get_dataset("digits") == []
    assert get_dataset("gaussians-3") == []
    with pytest.raises(DownloadError, match="cannot be downloaded automatically") as caught:
        get_dataset("hhar")
    assert str(root / "hhar" / "HAR.mat") in str(caught.value)
    write_sparse(root / "reuters_r8" / "reuters_r8_tfidf2000.npz")
    assert get_dataset("reuters_r8") == [root / "reuters_r8" / "reuters_r8_tfidf2000.npz"]


def test_record_size():
    assert CIFAR10_RECORD == 3073


# --- the real copies, where they are

REAL = {
    "mnist": (60_000, (28, 28), 10),
    "fashion_mnist": (60_000, (28, 28), 10),
    "har": (10_411, (561,), 6),
    "reuters_r8": (7_674, (2_000,), 8),
    "reuters_r52": (9_100, (2_000,), 52),
    "reuters1200": (1_200, (2_000,), 6),
    "imagenet50": (2_500, (128,), 50),
    "svhn": (10_000, (32, 32, 3), 10),
    "cifar10": (50_000, (32, 32, 3), 10),
}
REAL_FOLDER = os.environ.get("DIVA_DATA", "")


@pytest.mark.skipif(not REAL_FOLDER, reason="DIVA_DATA does not say where the real data sets are")
@pytest.mark.parametrize("name", [name if name != "cifar10" else pytest.param(name, marks=pytest.mark.slow) for name in REAL])
def test_real_copy(name, monkeypatch):
    monkeypatch.setenv("DIVA_DATA", REAL_FOLDER)
    if not any(status.is_here for status in list_datasets() if status.name == name):
        pytest.skip(f"{name} is not in DIVA_DATA")
    assert all(check.is_good for check in check_dataset(name))
    data = load_dataset(name)
    n_samples, item_shape, n_classes = REAL[name]
    if data.fidelity in {layout.fidelity for layout in REGISTRY[name].layouts[-1:]}:
        assert len(data.source) == n_samples
    assert data.source.item_shape == item_shape
    assert len(np.unique(data.labels)) == n_classes
    assert np.isfinite(data.source.take(np.arange(100))).all()
