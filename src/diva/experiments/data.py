"""The data of the paper's evaluation: which data set by name stands for which of the paper's, and the part a cell takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diva.data import Source, dataset_info, load_dataset
from diva.data.datasets.load import find_layout, where_to_put
from diva.data.datasets.registry import AS_PUBLISHED, VADE_HHAR


@dataclass(frozen=True)
class PaperData:
    """A data set of the paper."""

    key: str
    title: str  # as the published tables have it
    n_classes: int
    is_image: bool
    names: tuple[str, ...]  # in `diva data list`: the published one first, then what may stand for it
    stands_for: str = ""  # what is said where another one stands for it, or a copy that differs
    is_same: tuple[str, ...] = ()  # names among them that hold the same samples, though other files


DATA = {
    data.key: data
    for data in (
        PaperData("mnist", "MNIST", 10, True, ("mnist",)),
        PaperData("fashion_mnist", "Fashion-MNIST", 10, True, ("fashion_mnist",)),
        PaperData("reuters10k", "Reuters10k", 4, False, ("reuters10k",), "Reuters-10k redrawn"),
        PaperData("hhar", "HHAR", 6, False, ("hhar", "har"), "HAR, recomputed features", ("har",)),
        PaperData("stl10", "STL-10", 10, False, ("stl10", "imagenette"), "Imagenette features for STL-10"),
        PaperData("imagenet50", "ImageNet-50", 50, False, ("imagenet50",), "validation part of ImageNet-50"),
        PaperData("cifar10", "CIFAR-10", 10, True, ("cifar10",), "copy that went through JPEG"),
        PaperData("svhn", "SVHN", 10, True, ("svhn",), "subset of SVHN, cropped anew"),
    )
}


# Data that need no files, for the smoke profile: images of digits, or simulated rows with as many classes.
STAND_IN = "a stand-in that needs no files, for tests"


def stand_in(data: PaperData) -> Availability:
    """A small data set in the place of one of the paper's, with as many classes."""
    return Availability("digits" if data.is_image else f"gaussians-{data.n_classes}-20", STAND_IN)


@dataclass(frozen=True)
class Availability:
    """Whether a data set of the paper is here, and as what."""

    name: str | None  # the one to load; None if none of them is here
    substitute: str = ""  # what it is, if not what was published
    missing: str = ""  # which file to put where, if none is here


def find_data(data: PaperData) -> Availability:
    """The copy of a data set that is nearest to the published one."""
    for name in data.names:
        found = find_layout(dataset_info(name))
        if found is not None:
            same = found[0].fidelity == AS_PUBLISHED and (name == data.names[0] or name in data.is_same)
            same = same or found[0].fidelity == VADE_HHAR  # the paper's HHAR in effect
            return Availability(name, "" if same else data.stands_for)
    return Availability(None, missing=where_to_put(dataset_info(data.names[0])))


@dataclass(frozen=True)
class Labelled:
    """Training and test samples; the labels are for scoring only. Without a split, both are all of the data."""

    x: NDArray[Any]
    y: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    fidelity: str = AS_PUBLISHED
    has_split: bool = True

    def first(self, n: int) -> Labelled:
        """Only the first n training samples."""
        return replace(self, x=self.x[:n], y=self.y[:n])

    def with_classes(self, n_classes: int) -> Labelled:
        """Only samples of the first so many classes."""
        train, test = self.y < n_classes, self.y_test < n_classes
        return replace(self, x=self.x[train], y=self.y[train], x_test=self.x_test[test], y_test=self.y_test[test])

    def as_rows(self) -> Labelled:
        """Images as rows of numbers."""
        return replace(self, x=self.x.reshape(len(self.x), -1), x_test=self.x_test.reshape(len(self.x_test), -1))


def load_labelled(name: str, n_train: int | None = None, n_test: int | None = None, seed: int = 0) -> Labelled:
    """A data set in memory, dense; or so many samples of it, drawn at random with the shares that classes have.

    Parameters
    ----------
    name : str
        As in `diva data list`.
    n_train, n_test : int, optional
        Samples to take; all by default, and of a data set without a split the same samples for both.
    seed : int, default=0
        Of the draw.
    """
    data = load_dataset(name)
    if data.labels is None:
        raise ValueError(f"Expected a data set with labels to score by, {name} has none.")
    rng = np.random.default_rng(seed)
    x, y = taken(data.source, data.labels, n_train, rng)
    if data.test_source is None or data.test_labels is None:
        return Labelled(x, y, x, y, data.fidelity, has_split=False)
    return Labelled(x, y, *taken(data.test_source, data.test_labels, n_test, rng), data.fidelity)


def taken(source: Source, labels: NDArray[Any], n: int | None, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Samples and labels: all, or n in random order, of every class as large a share as it has."""
    if n is None or n >= len(labels):
        index = np.arange(len(labels))
    else:
        order = rng.permutation(len(labels))
        by_class = order[np.argsort(labels[order], kind="stable")]
        index = rng.permutation(by_class[np.linspace(0, len(labels), n, endpoint=False).astype(np.int64)])
    return source.take(index), labels[index]
