"""The data sets that are known by name, with their files, licences and sources: to add one, add it here."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from diva.data.datasets import readers
from diva.data.datasets.info import AS_PUBLISHED, DatasetInfo, Layout, RemoteFile
from diva.data.datasets.synthetic import GAUSSIANS, GAUSSIANS_PER_COMPONENT, gaussians_size
from diva.data.formats.messages import did_you_mean
from diva.data.sources import LoadedData
from diva.exceptions import UnknownDatasetError

DIGITS = tuple("0123456789")
CLOTHES = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ACTIVITIES = ("walking", "upstairs", "downstairs", "sitting", "standing", "laying")
RESEARCH_USE = "research use"
REUTERS_21578 = "D. Lewis: Reuters-21578; split of A. Cardoso-Cachopo, 2007"
NOT_REUTERS10K = "Reuters-21578, tf-idf of 2,000 words computed anew; not Reuters-10k"
DEEPDPM_STL10 = "MoCo features of the DeepDPM project, not ResNet-50"
OWN_FEATURES = "features made with `diva data features`; results depend on the encoder chosen"


def _idx_files(base: str, known: tuple[tuple[str, str, int], ...]) -> tuple[RemoteFile, ...]:
    """Files of MNIST and its relatives, each with sha256, md5 and bytes."""
    return tuple(RemoteFile(f"{base}/{name}", name, *proof) for name, proof in zip(readers.IDX_FILES, known, strict=True))


MNIST_FILES = _idx_files(
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    (
        ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9912422),
        ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", "d53e105ee54ea40749a09fcbcd1e9432", 28881),
        ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", "9fb629c4189551a2d022fa330f9573f3", 1648877),
        ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", "ec29112dd5afa0611ce80d1b7f02629c", 4542),
    ),
)
FASHION_MNIST_FILES = _idx_files(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    (
        ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26421880),
        ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", "25c81989df183df01b3e8a0aad5dffbe", 29515),
        ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", "bef4ecab320f06d8554ea6380940ec79", 4422102),
        ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", "bb300cfdad3c16e7a12a480ee83cd310", 5148),
    ),
)


def _one_file(
    folder: str, filename: str, read: Callable[[Path], LoadedData], fidelity: str = AS_PUBLISHED, sha256: str | None = None
) -> Layout:
    """A layout of a single file, whose reader takes its path."""
    known = {} if sha256 is None else {filename: sha256}
    return Layout(folder, (filename,), lambda place: read(place / filename), fidelity, known)


def _tensors(folder: str, x: str, x_test: str, y_test: str, fidelity: str = AS_PUBLISHED) -> Layout:
    names = (x, "train_labels.pt")
    read = partial(readers.read_tensors, x=x, y="train_labels.pt", x_test=x_test, y_test=y_test)
    return Layout(folder, names, read, fidelity)


def _text(
    name: str, title: str, shape: str, n_classes: int, citation: str, filename: str, sha256: str, fidelity: str
) -> DatasetInfo:
    """A data set of tf-idf rows in a single file."""
    layout = _one_file(name, filename, readers.read_sparse, fidelity, sha256)
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
            (Layout("mnist", readers.IDX_FILES, readers.read_idx_folder),),
            MNIST_FILES,
            class_names=DIGITS,
        ),
        DatasetInfo(
            "fashion_mnist",
            "Fashion-MNIST, clothes",
            "60,000 + 10,000 x 28 x 28",
            10,
            "MIT",
            "H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST, arXiv:1708.07747, 2017",
            (Layout("fashion_mnist", readers.IDX_FILES, readers.read_idx_folder),),
            FASHION_MNIST_FILES,
            {"augmentation": "photo"},
            CLOTHES,
        ),
        DatasetInfo(
            "reuters10k",
            "Reuters-10k, news of four topics, tf-idf",
            "10,000 x 2,000",
            4,
            RESEARCH_USE,
            "D. Lewis et al.: RCV1, JMLR 5, 2004; subset of J. Xie et al.: DEC, ICML 2016",
            (
                _one_file("reuters10k", "reuters10k.mat", readers.read_mat_rows),
                Layout(
                    "reuters10k",
                    ("x10k.npy", "y10k.npy"),
                    lambda place: readers.read_npy_rows(place / "x10k.npy", place / "y10k.npy"),
                ),
            ),
            note="NIST gives out RCV1 on request. "
            "Use reuters10k.mat with rows in X and labels in Y, or x10k.npy and y10k.npy of the VaDE project.",
        ),
        DatasetInfo(
            "hhar",
            "HHAR, activities from phone sensors",
            "10,200 x 561",
            6,
            "CC BY 4.0",
            "A. Stisen et al.: Smart Devices are Different, SenSys 2015; rows as used by Z. Jiang et al.: VaDE, IJCAI 2017",
            tuple(_one_file("hhar", name, readers.read_mat_rows) for name in ("HHAR.mat", "hhar.mat")),
            note="Use an HHAR.mat with rows in X and labels in Y. What the VaDE project calls HHAR are the first "
            "10,200 rows of its HAR.mat.",
        ),
        DatasetInfo(
            "stl10",
            "STL-10, ResNet-50 features",
            "13,000 x 2,048",
            10,
            "none stated; the images come from ImageNet",
            "A. Coates, H. Lee, A. Ng: An Analysis of Single-Layer Networks, AISTATS 2011",
            (
                _one_file("stl10", "features.npz", readers.read_features, OWN_FEATURES),
                _tensors("stl10", "train_codes.pt", "val_codes.pt", "val_labels.pt", DEEPDPM_STL10),
            ),
            note="Make the features from the images with `diva data features IMAGES --encoder module:function`.",
        ),
        DatasetInfo(
            "imagenet50",
            "ImageNet-50, MoCo features",
            "64,274 + 2,500 x 128",
            50,
            "ImageNet terms: non-commercial research",
            "M. Ronen, S. Finder, O. Freifeld: DeepDPM, CVPR 2022; features as K. He et al.: MoCo, CVPR 2020",
            (
                _tensors("imagenet50", "train_data.pt", "test_data.pt", "test_labels.pt"),
                _tensors("imagenet50", "train_codes.pt", "val_codes.pt", "val_labels.pt"),
                _one_file("imagenet50", "features.npz", readers.read_features, OWN_FEATURES),
                _one_file(
                    "imagenet50_moco",
                    "imagenet50_moco_test.npz",
                    readers.read_features,
                    "the 2,500 validation images only, not the 64,274 for training",
                    "badf938237f076783f4161953959e20f185725f289c2705fa834eeca3b5f4b5d",
                ),
            ),
            note="Copy the files of pretrained_embeddings/MOCO/IMAGENET_50 from https://github.com/BGU-CS-VIL/DeepDPM.",
        ),
        DatasetInfo(
            "cifar10",
            "CIFAR-10, small photographs",
            "50,000 + 10,000 x 32 x 32 x 3",
            10,
            "none stated; cite the report",
            "A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
            (
                Layout("cifar10", (readers.CIFAR10_ARCHIVE,), readers.read_cifar10),
                Layout(
                    "cifar10_jpeg",
                    ("cifar10_train_jpeg.npz", "cifar10_test_jpeg.npz"),
                    readers.read_cifar10_jpeg,
                    "went through JPEG once (quality 75), in another order; pixels differ slightly",
                    {
                        "cifar10_train_jpeg.npz": "257652aa70e3786b582075a826126f8b398bac62aa5163a4003c0402115067f2",
                        "cifar10_test_jpeg.npz": "9ceae94ca2e60b9dff40531ea643d1d618776d53dfbd375a8f530797f1c70fe6",
                    },
                ),
            ),
            (
                RemoteFile(
                    f"https://www.cs.toronto.edu/~kriz/{readers.CIFAR10_ARCHIVE}",
                    readers.CIFAR10_ARCHIVE,
                    md5="c32a1d4ab5d03f1284b67883e8d87530",
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
                Layout("svhn", ("train_32x32.mat", "test_32x32.mat"), readers.read_svhn),
                Layout(
                    "svhn_subset",
                    ("svhn_subset.npz",),
                    readers.read_svhn_subset,
                    "10,000 + 2,000 digits drawn at random and cropped anew; pixels differ",
                    {"svhn_subset.npz": "c134d37219cc2a4f5d42287ac3b55bc4e9bea095ad31cc2de95f550b19b47b87"},
                ),
            ),
            tuple(
                RemoteFile(f"http://ufldl.stanford.edu/housenumbers/{name}", name, md5=md5)
                for name, md5 in (
                    ("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
                    ("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
                )
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
            "10,299 x 561",
            6,
            "CC BY 4.0",
            "D. Anguita et al.: A Public Domain Dataset for Human Activity Recognition Using Smartphones, ESANN 2013",
            (
                Layout("har", (readers.HAR_ARCHIVE,), readers.read_har),
                _one_file("har", "HAR.mat", readers.read_mat_rows),
                _one_file(
                    "har_recomputed",
                    "har_recomputed.npz",
                    readers.read_features,
                    "recomputed features, not the published file: 10,411 rows",
                    "f63b0fbf800a1aa673ed176e9067050ef4b54be939ee21e7448866e6b16c5a5b",
                ),
            ),
            (
                RemoteFile(
                    "https://archive.ics.uci.edu/ml/machine-learning-databases/00240/UCI%20HAR%20Dataset.zip",
                    readers.HAR_ARCHIVE,
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
    """What is known of a data set, whether it is here or not.

    Raises
    ------
    UnknownDatasetError
        If there is none of this name.
    """
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
