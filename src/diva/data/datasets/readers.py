"""The files data sets come in, and how each is read: nothing here runs code that a file brings along."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import sparse
from scipy.io import loadmat

from diva.data.formats.files import check_unpacked
from diva.data.formats.idx import open_idx
from diva.data.formats.npy import open_archive, open_npz
from diva.data.formats.objects import SparseSource
from diva.data.sources import ArraySource, LoadedData, PartOfSource, Source
from diva.exceptions import DataError

HAR_TRAIN, HAR_TEST = 7_352, 2_947  # rows, split by persons
CountTrain = Callable[[int], int]  # from the number of rows to how many of them, the first, are for training

# --- images

CIFAR10_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
CIFAR10_RECORD = 1 + 3 * 32 * 32  # label, then the red, green and blue plane


def read_idx(*paths: Path) -> LoadedData:
    """The four files of MNIST and its relatives, labels after the images they belong to."""
    train, test = open_idx(paths[0]), open_idx(paths[2])
    return LoadedData(train.source, to_labels(train.labels), test.source, to_labels(test.labels))


def read_cifar10(path: Path) -> LoadedData:
    """The binary version of CIFAR-10, read from its archive without unpacking it."""
    raw: dict[str, bytes] = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = Path(member.name).name
            if member.isfile() and name in (*CIFAR10_BATCHES, "test_batch.bin"):
                file = archive.extractfile(member)
                raw[name] = b"" if file is None else file.read()
    missing = [name for name in (*CIFAR10_BATCHES, "test_batch.bin") if name not in raw]
    if missing:
        raise DataError(f"Expected {path.name} to hold {', '.join(missing)}.")
    for content in raw.values():
        if len(content) % CIFAR10_RECORD:
            raise DataError(f"Expected records of {CIFAR10_RECORD} bytes in {path.name}, got {len(content):,} bytes.")
    train = _cifar10_records([raw.pop(name) for name in CIFAR10_BATCHES])
    return _from_arrays(*train, *_cifar10_records([raw.pop("test_batch.bin")]))


def _cifar10_records(batches: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    records = [np.frombuffer(batch, np.uint8).reshape(-1, CIFAR10_RECORD) for batch in batches]
    labels = np.concatenate([part[:, 0] for part in records])
    images = np.empty((len(labels), 32, 32, 3), np.uint8)
    np.concatenate([part[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for part in records], out=images)
    return images, labels


def read_cifar10_jpeg(train: Path, test: Path) -> LoadedData:
    """Images as JPEG, end to end in one array; decoded once."""
    return _from_arrays(*_jpegs(train), *_jpegs(test))


def _jpegs(path: Path) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    arrays = read_npz(path, "jpeg", "offsets", "y")
    jpeg, offsets = arrays["jpeg"].tobytes(), arrays["offsets"].tolist()
    images = np.empty((len(offsets) - 1, 32, 32, 3), np.uint8)
    for i, (start, stop) in enumerate(pairwise(offsets)):
        with Image.open(io.BytesIO(jpeg[start:stop]), formats=["JPEG"]) as image:
            images[i] = np.asarray(image.convert("RGB"))
    return images, arrays["y"]


def read_svhn(train: Path, test: Path) -> LoadedData:
    """The cropped digits of SVHN."""
    return _from_arrays(*_svhn_digits(train), *_svhn_digits(test))


def _svhn_digits(path: Path) -> tuple[NDArray[Any], NDArray[np.int64]]:
    arrays = read_mat(path, "X", "y")
    if arrays["X"].ndim != 4:
        raise DataError(f"Expected X of {path.name} to have 4 axes, got shape {arrays['X'].shape}.")
    # a view: in Matlab's order of numbers every image already lies in one piece; the label of the digit 0 is 10
    return np.moveaxis(arrays["X"], 3, 0), to_labels(arrays["y"]) % 10


# --- rows of numbers


def read_features(path: Path, names: tuple[str, str, str, str] = ("X", "y", "X_test", "y_test")) -> LoadedData:
    """An npz file with samples and labels, and optionally those for testing, or ``is_train``, and ``class_names``."""
    arrays = read_npz(path, *names[:2])
    found = [arrays[name] for name in (names if set(names) <= set(arrays) else names[:2])]
    if len(found) == 2 and "is_train" in arrays:
        train = arrays["is_train"].astype(bool)
        found = [values[chosen] for chosen in (train, ~train) for values in found]
    return _from_arrays(*found, class_names=to_names(arrays.get("class_names")))


def read_sparse(path: Path, train: CountTrain | None = None) -> LoadedData:
    """The parts of a sparse matrix by rows and ``y`` in an npz file, and optionally ``class_names`` and ``vocab``."""
    arrays = read_npz(path, "data", "indices", "indptr", "shape", "y")
    names: dict[str, Any] = {"class_names": to_names(arrays.get("class_names")), "feature_names": to_names(arrays.get("vocab"))}
    source, labels = open_npz(path).source, to_labels(arrays["y"])
    if train is None or len(source) != len(labels):
        return LoadedData(source, labels, **names)
    first, rest = np.split(np.arange(len(labels)), [train(len(labels))])
    return LoadedData(PartOfSource(source, first), labels[first], PartOfSource(source, rest), labels[rest], **names)


def read_mat_rows(path: Path, train: CountTrain | None = None) -> LoadedData:
    """A Matlab file with samples in X and labels in Y, which there count from 1; ``train`` says how many are for training."""
    arrays = read_mat(path, "X", "Y")
    labels = to_labels(arrays["Y"])
    if not len(labels):
        raise DataError(f"Expected labels in Y of {path.name}, it is empty.")
    return split_rows(arrays["X"], labels - labels.min(), train)


def read_npy_rows(x: Path, y: Path, train: CountTrain | None = None) -> LoadedData:
    """Samples and labels in one npy file each; ``train`` says how many are for training."""
    return split_rows(np.load(x, allow_pickle=False), to_labels(np.load(y, allow_pickle=False)), train)


def split_rows(x: Any, y: NDArray[np.int64], train: CountTrain | None) -> LoadedData:
    """Rows of which the first are for training, the rest for testing; all for training if ``train`` counts all of them."""
    if x.shape[0] != len(y):
        raise DataError(f"Expected as many labels as samples, got {len(y):,} labels for {x.shape[0]:,} samples.")
    n = len(y) if train is None else train(len(y))
    if n == len(y):
        return LoadedData(_rows(x), y)
    return LoadedData(_rows(x[:n]), y[:n], _rows(x[n:]), y[n:])


def first_80_percent(n: int) -> int:
    """Training rows of Reuters-10k, as in the paper."""
    return n * 4 // 5


def har_train(n: int) -> int:
    """Training rows of the published HAR, which come first; of another set all rows."""
    return HAR_TRAIN if n == HAR_TRAIN + HAR_TEST else n


def _rows(values: Any) -> Source:
    if sparse.issparse(values):
        return SparseSource(sparse.csr_matrix(values, dtype=np.float32))
    return ArraySource(single_precision(values))


def read_tensors(x: Path, y: Path) -> LoadedData:
    """Samples and labels as saved torch tensors; those for testing, called test or val, lie beside them or not."""
    for part in ("test", "val"):
        samples = [x.with_name(f"{part}_{data}.pt") for data in ("data", "codes")]
        labels = x.with_name(f"{part}_labels.pt")
        if labels.is_file() and (there := [path for path in samples if path.is_file()]):
            return _from_arrays(*map(_tensor, (x, y, there[0], labels)))
    return _from_arrays(_tensor(x), _tensor(y))


def _tensor(path: Path) -> NDArray[Any]:
    values = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(values, torch.Tensor):
        raise DataError(f"Expected {path.name} to hold a tensor, got {type(values).__name__}.")
    array: NDArray[Any] = values.detach().numpy()
    return array


def read_har(path: Path) -> LoadedData:
    """The published features of HAR, split as published."""
    with zipfile.ZipFile(path) as archive:

        def table(name: str, dtype: Any) -> NDArray[Any]:
            member = archive.getinfo(f"UCI HAR Dataset/{name}")
            check_unpacked(path, member.file_size)
            with archive.open(member) as file:
                return np.loadtxt(file, dtype=dtype, ndmin=1)

        x, x_test = (table(f"{part}/X_{part}.txt", np.float32) for part in ("train", "test"))
        y, y_test = (table(f"{part}/y_{part}.txt", np.int64) - 1 for part in ("train", "test"))
        names = archive.read("UCI HAR Dataset/features.txt").decode().splitlines()
    feature_names = tuple(line.split(maxsplit=1)[1] for line in names if line.strip())
    return LoadedData(ArraySource(x), y, ArraySource(x_test), y_test, feature_names=feature_names)


# --- pieces


def _from_arrays(
    x: Any, y: Any, x_test: Any = None, y_test: Any = None, *, class_names: tuple[str, ...] | None = None
) -> LoadedData:
    test_source = None if x_test is None else ArraySource(single_precision(x_test))
    test_labels = None if y_test is None else to_labels(y_test)
    return LoadedData(ArraySource(single_precision(x)), to_labels(y), test_source, test_labels, class_names=class_names)


def read_npz(path: Path, *required: str) -> dict[str, NDArray[Any]]:
    """Arrays of an npz file, of which some must be there."""
    with open_archive(path) as archive:
        _require(path, list(archive.heads), required)
        return {name: archive.read(name) for name in archive.heads}


def read_mat(path: Path, *names: str) -> dict[str, Any]:
    """Arrays of a Matlab file."""
    arrays = loadmat(path, variable_names=list(names))
    _require(path, [name for name in arrays if not name.startswith("__")], names)
    return {name: arrays[name] for name in names}


def _require(path: Path, found: list[str], required: tuple[str, ...]) -> None:
    missing = [name for name in required if name not in found]
    if missing:
        raise DataError(f"Expected {path.name} to hold {', '.join(required)}, got {', '.join(found) or 'nothing of it'}.")


def single_precision(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers as float32, pixels as they are."""
    values = np.asarray(values)
    return values if values.dtype == np.uint8 else values.astype(np.float32, copy=False)


def to_labels(values: Any) -> NDArray[np.int64]:
    """Class numbers in one row."""
    return np.asarray(values).reshape(-1).astype(np.int64)


def to_names(values: NDArray[Any] | None) -> tuple[str, ...] | None:
    """Texts as a tuple."""
    return None if values is None else tuple(str(value) for value in values.reshape(-1))
