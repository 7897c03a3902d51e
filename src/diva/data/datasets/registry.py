"""The data sets that are known by name, with their files, licences and sources: to add one, add it here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from diva.data.datasets import readers
from diva.data.datasets.synthetic import GAUSSIANS, GAUSSIANS_PER_COMPONENT, gaussians_size
from diva.data.formats.messages import did_you_mean
from diva.data.sources import LoadedData
from diva.exceptions import UnknownDatasetError

DIGITS = tuple("0123456789")
CLOTHES = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ACTIVITIES = ("walking", "upstairs", "downstairs", "sitting", "standing", "laying")
IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
AS_PUBLISHED = "as published"
RESEARCH_USE = "research use"
REUTERS_21578 = "D. Lewis: Reuters-21578; split of A. Cardoso-Cachopo, 2007"
NOT_REUTERS10K = "Reuters-21578, tf-idf of 2,000 words computed anew; not Reuters-10k"
DEEPDPM_STL10 = "MoCo features of the DeepDPM project, not ResNet-50"
VADE_HHAR = "HAR.mat of the VaDE project, which is UCI HAR"
OWN_FEATURES = "features made with `diva data features`; results depend on the encoder chosen"


@dataclass(frozen=True)
class DataFile:
    """A file of a data set."""

    filename: str
    url: str = ""  # where it can be fetched
    sha256: str | None = None  # checksums, where they are published
    md5: str | None = None
    size: int | None = None  # bytes, where known

    @property
    def has_checksum(self) -> bool:
        """Whether a copy can be proved to be the published file."""
        return self.sha256 is not None or self.md5 is not None

    def difference(self, path: Path) -> str | None:
        """How the file at this path differs from the published one; None where it does not, as far as is known."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"expected {self.size:,} bytes, got {size:,}"
        for algorithm, expected in (("sha256", self.sha256), ("md5", self.md5)):
            if expected is not None:
                with path.open("rb") as file:
                    got = hashlib.file_digest(file, partial(hashlib.new, algorithm, usedforsecurity=False)).hexdigest()
                return None if got == expected else f"expected {algorithm} {expected}, got {got}"
        return None


@dataclass(frozen=True)
class Layout:
    """One way in which a data set can lie in a folder."""

    folder: str  # name of the folder, below the folder of all data
    files: tuple[DataFile, ...]  # all must be there
    read: Callable[..., LoadedData]  # from the paths of these files to the samples and labels
    fidelity: str = AS_PUBLISHED  # how this copy differs from the published one

    def paths(self, root: Path) -> list[Path]:
        """Where its files belong, below the folder of all data."""
        return [root / self.folder / file.filename for file in self.files]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set without having it."""

    name: str
    title: str
    shape: str
    n_classes: int
    licence: str
    citation: str
    # the ways its files can lie in a folder, the published one first; none where it is made on the spot
    layouts: tuple[Layout, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)  # DIVA parameters that suit it, where the defaults do not
    class_names: tuple[str, ...] | None = None
    note: str = ""  # where its files come from, if they cannot be fetched
    fidelity: str = AS_PUBLISHED  # of one that is made on the spot, how it differs from the published one

    @property
    def is_downloadable(self) -> bool:
        """Whether ``get_dataset`` can fetch it."""
        return bool(self.layouts) and all(file.url for file in self.layouts[0].files)


def _idx_files(base: str, known: tuple[tuple[str, int], ...]) -> tuple[DataFile, ...]:
    """Files of MNIST and its relatives, each with sha256 and bytes."""
    return tuple(
        DataFile(name, f"{base}/{name}", sha256, size=size) for name, (sha256, size) in zip(IDX_FILES, known, strict=True)
    )


MNIST_FILES = _idx_files(
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    (
        ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
    ),
)
FASHION_MNIST_FILES = _idx_files(
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    (
        ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
        ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
        ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
        ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
    ),
)
CIFAR10_FILE = DataFile(
    "cifar-10-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    size=170052171,
)
CIFAR10_JPEG_FILES = (
    DataFile("cifar10_train_jpeg.npz", sha256="257652aa70e3786b582075a826126f8b398bac62aa5163a4003c0402115067f2"),
    DataFile("cifar10_test_jpeg.npz", sha256="9ceae94ca2e60b9dff40531ea643d1d618776d53dfbd375a8f530797f1c70fe6"),
)
# over plain http: the university does not say that it serves them otherwise; their checksums prove them
SVHN = "http://ufldl.stanford.edu/housenumbers"
SVHN_FILES = (
    DataFile("train_32x32.mat", f"{SVHN}/train_32x32.mat", md5="e26dedcc434d2e4c54c9b2d4a06d8373"),
    DataFile("test_32x32.mat", f"{SVHN}/test_32x32.mat", md5="eb5a983be6a315427106f1b164d9cef3"),
)
SVHN_SUBSET_FILE = DataFile("svhn_subset.npz", sha256="c134d37219cc2a4f5d42287ac3b55bc4e9bea095ad31cc2de95f550b19b47b87")
HAR = "https://archive.ics.uci.edu/ml/machine-learning-databases/00240"
HAR_FILE = DataFile("UCI HAR Dataset.zip", f"{HAR}/UCI%20HAR%20Dataset.zip")
HAR_RECOMPUTED_FILE = DataFile("har_recomputed.npz", sha256="f63b0fbf800a1aa673ed176e9067050ef4b54be939ee21e7448866e6b16c5a5b")
IMAGENET50_TEST_FILE = DataFile(
    "imagenet50_moco_test.npz", sha256="badf938237f076783f4161953959e20f185725f289c2705fa834eeca3b5f4b5d"
)


REUTERS10K_REDRAWN_FILE = DataFile(
    "reuters10k_rcv1.npz", sha256="a6516e213cc967c9787080324fac85c7082ef4431de0559ceaa5bee72e664998"
)
IMAGENETTE_FILE = DataFile("imagenette_lite0.npz", sha256="7bb0f1dea0c13d9af37fc16f04f7dd912a179336b39735fe55ae7468109954b1")


def _tensors(folder: str, data: str, fidelity: str = AS_PUBLISHED) -> Layout:
    """Saved tensors of the DeepDPM project: train_data.pt or train_codes.pt, and for testing those called test or val."""
    return Layout(folder, (DataFile(f"train_{data}.pt"), DataFile("train_labels.pt")), readers.read_tensors, fidelity)


def _text(
    name: str, title: str, shape: str, n_classes: int, citation: str, filename: str, sha256: str, fidelity: str
) -> DatasetInfo:
    """A data set of tf-idf rows in a single file."""
    layout = Layout(name, (DataFile(filename, sha256=sha256),), readers.read_sparse, fidelity)
    note = f"{filename} holds tf-idf rows: data, indices, indptr and shape of a sparse matrix, and y."
    return DatasetInfo(name, title, shape, n_classes, RESEARCH_USE, citation, (layout,), note=note)


REGISTRY = {
    info.name: info
    for info in (
        DatasetInfo(
            "mnist",
            "MNIST, handwritten digits",
            "60,000 + 10,000 x 28 x 28",
            10,
            "CC BY-SA 3.0",
            "Y. LeCun, C. Cortes, C. Burges: The MNIST database of handwritten digits, 1998",
            (Layout("mnist", MNIST_FILES, readers.read_idx),),
            class_names=DIGITS,
        ),
        DatasetInfo(
            "fashion_mnist",
            "Fashion-MNIST, clothes",
            "60,000 + 10,000 x 28 x 28",
            10,
            "MIT",
            "H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST, arXiv:1708.07747, 2017",
            (Layout("fashion_mnist", FASHION_MNIST_FILES, readers.read_idx),),
            {"augmentation": "photo"},
            CLOTHES,
        ),
        DatasetInfo(
            "reuters10k",
            "Reuters-10k, news of four topics, tf-idf",
            "8,000 + 2,000 x 2,000",
            4,
            RESEARCH_USE,
            "D. Lewis et al.: RCV1, JMLR 5, 2004; subset of J. Xie et al.: DEC, ICML 2016",
            (
                Layout(
                    "reuters10k", (DataFile("reuters10k.mat"),), partial(readers.read_mat_rows, train=readers.first_80_percent)
                ),
                Layout(
                    "reuters10k",
                    (DataFile("x10k.npy"), DataFile("y10k.npy")),
                    partial(readers.read_npy_rows, train=readers.first_80_percent),
                ),
                Layout(
                    "reuters10k_redrawn",
                    (REUTERS10K_REDRAWN_FILE,),
                    partial(readers.read_sparse, train=readers.first_80_percent),
                    "redrawn: the same corpus, topics, size and weighting, but not the same documents",
                ),
            ),
            note="NIST gives out RCV1 on request. "
            "Use reuters10k.mat with rows in X and labels in Y, or x10k.npy and y10k.npy of the VaDE project.",
        ),
        DatasetInfo(
            "hhar",
            "HHAR, activities from phone sensors",
            "7,352 + 2,947 x 561",
            6,
            "CC BY 4.0",
            "A. Stisen et al.: Smart Devices are Different, SenSys 2015; rows as used by Z. Jiang et al.: VaDE, IJCAI 2017",
            tuple(
                Layout("hhar", (DataFile(name),), partial(readers.read_mat_rows, train=readers.har_train), fidelity)
                for name, fidelity in (("HAR.mat", VADE_HHAR), ("HHAR.mat", AS_PUBLISHED), ("hhar.mat", AS_PUBLISHED))
            ),
            note="Use HAR.mat of the VaDE project, which is UCI HAR and the HHAR of the paper; or an HHAR.mat with rows in "
            "X and labels in Y.",
        ),
        DatasetInfo(
            "stl10",
            "STL-10, ResNet-50 features",
            "5,000 + 8,000 x 2,048",
            10,
            "none stated; the images come from ImageNet",
            "A. Coates, H. Lee, A. Ng: An Analysis of Single-Layer Networks, AISTATS 2011",
            (
                Layout("stl10", (DataFile("features.npz"),), readers.read_features, OWN_FEATURES),
                *(_tensors("stl10", data, DEEPDPM_STL10) for data in ("data", "codes")),
            ),
            note="Make the features from the images with `diva data features TRAIN --test TEST --encoder module:function`, or "
            "copy train_codes.pt, train_labels.pt, test_codes.pt and test_labels.pt of the DeepDPM project.",
        ),
        DatasetInfo(
            "imagenet50",
            "ImageNet-50, MoCo features",
            "64,274 + 2,500 x 128",
            50,
            "ImageNet terms: non-commercial research",
            "M. Ronen, S. Finder, O. Freifeld: DeepDPM, CVPR 2022; features as K. He et al.: MoCo, CVPR 2020",
            (
                *(_tensors("imagenet50", data) for data in ("data", "codes")),
                Layout("imagenet50", (DataFile("features.npz"),), readers.read_features, OWN_FEATURES),
                Layout(
                    "imagenet50_moco",
                    (IMAGENET50_TEST_FILE,),
                    readers.read_features,
                    "the 2,500 validation images only, not the 64,274 for training",
                ),
            ),
            note="Copy the files of pretrained_embeddings/MOCO/IMAGENET_50 from https://github.com/BGU-CS-VIL/DeepDPM.",
        ),
        DatasetInfo(
            "imagenette",
            "Imagenette, EfficientNet-Lite0 features",
            "9,469 + 3,925 x 1,280",
            10,
            "ImageNet terms: non-commercial research",
            "J. Howard: Imagenette, 2019; features of M. Tan, Q. Le: EfficientNet, ICML 2019 (Lite0)",
            (Layout("imagenette_lite0", (IMAGENETTE_FILE,), readers.read_features, OWN_FEATURES),),
            note="imagenette_lite0.npz holds features X, labels y and is_train; `diva data features` makes such features.",
        ),
        DatasetInfo(
            "cifar10",
            "CIFAR-10, small photographs",
            "50,000 + 10,000 x 32 x 32 x 3",
            10,
            "none stated; cite the report",
            "A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
            (
                Layout("cifar10", (CIFAR10_FILE,), readers.read_cifar10),
                Layout(
                    "cifar10_jpeg",
                    CIFAR10_JPEG_FILES,
                    readers.read_cifar10_jpeg,
                    "went through JPEG once (quality 75), in another order; pixels differ slightly",
                ),
            ),
            {"augmentation": "affine+flip"},
            OBJECTS,
        ),
        DatasetInfo(
            "svhn",
            "SVHN, house numbers",
            "73,257 + 26,032 x 32 x 32 x 3",
            10,
            "non-commercial use only",
            "Y. Netzer et al.: Reading Digits in Natural Images, NIPS workshop 2011",
            (
                Layout("svhn", SVHN_FILES, readers.read_svhn),
                Layout(
                    "svhn_subset",
                    (SVHN_SUBSET_FILE,),
                    partial(readers.read_features, names=("X_train", "y_train", "X_test", "y_test")),
                    "10,000 + 2,000 digits drawn at random and cropped anew; pixels differ",
                ),
            ),
            class_names=DIGITS,
        ),
        DatasetInfo(
            "digits",
            "Digits, comes with scikit-learn",
            "1,797 x 8 x 8",
            10,
            "CC BY 4.0",
            "E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI, 1998",
            class_names=DIGITS,
        ),
        DatasetInfo(
            "har",
            "HAR, activities from a phone at the waist",
            "7,352 + 2,947 x 561",
            6,
            "CC BY 4.0",
            "D. Anguita et al.: A Public Domain Dataset for Human Activity Recognition Using Smartphones, ESANN 2013",
            (
                Layout("har", (HAR_FILE,), readers.read_har),
                Layout("har", (DataFile("HAR.mat"),), partial(readers.read_mat_rows, train=readers.har_train)),
                Layout(
                    "har_recomputed",
                    (HAR_RECOMPUTED_FILE,),
                    readers.read_features,
                    "recomputed features, not the published file: 10,411 rows",
                ),
            ),
            class_names=ACTIVITIES,
        ),
        _text(
            "reuters_r8",
            "Reuters R8, news of eight topics, tf-idf",
            "7,674 x 2,000",
            8,
            REUTERS_21578,
            "reuters_r8_tfidf2000.npz",
            "85217401a3783fcd1e026f31a105ca025a9d1e6eab4bc6e000ad040db3afabc0",
            NOT_REUTERS10K,
        ),
        _text(
            "reuters_r52",
            "Reuters R52, news of 52 topics, tf-idf",
            "9,100 x 2,000",
            52,
            REUTERS_21578,
            "reuters_r52_tfidf2000.npz",
            "05c78876fdff8f407de16c986e99bf91237eb1534b23cc626738f891197e9ef2",
            NOT_REUTERS10K,
        ),
        _text(
            "reuters1200",
            "Reuters-1200, news of six topics, tf-idf",
            "1,200 x 2,000",
            6,
            "C. Grimal: sample of RCV1/RCV2 multilingual, English view",
            "reuters1200_en_tfidf2000.npz",
            "2bf7a71512b4e3e43dec2786fcc7c2afc873b8ecc11941dccc22dd532527075f",
            AS_PUBLISHED,
        ),
    )
}


def is_name(text: str) -> bool:
    """Whether a text names a data set rather than a file: a plain word, and nothing of that name is here.

    >>> is_name("mnist"), is_name("mnist.csv")
    (True, False)
    """
    return re.fullmatch(r"[\w-]{1,100}", text) is not None and not Path(text).exists()


def dataset_info(name: str) -> DatasetInfo:
    """What is known of a data set, whether it is here or not; raises UnknownDatasetError if there is none of this name."""
    if name in REGISTRY:
        return REGISTRY[name]
    if GAUSSIANS.fullmatch(str(name)):
        return _gaussians_info(name)
    hint = did_you_mean(str(name).lower().replace("-", "_"), [*REGISTRY, "gaussians-10"])
    raise UnknownDatasetError(
        f"There is no data set named {name!r}.{hint} Known are {', '.join(REGISTRY)}, and gaussians-K or gaussians-K-D "
        "for K Gaussians in D dimensions."
    )


def _gaussians_info(name: str) -> DatasetInfo:
    n_components, n_features = gaussians_size(name)
    n_samples = GAUSSIANS_PER_COMPONENT * n_components
    return DatasetInfo(
        name,
        f"{n_components} Gaussians, simulated" + (" (gaussians-K-D for any number)" if name == "gaussians-10" else ""),
        f"{n_samples:,} + {n_samples // 5:,} x {n_features:,}",
        n_components,
        "none needed",
        "simulated",
        fidelity="simulated",
    )
