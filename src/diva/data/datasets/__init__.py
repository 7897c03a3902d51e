"""Data sets by name."""

from diva.data.datasets.download import get_dataset
from diva.data.datasets.info import AS_PUBLISHED, DatasetInfo, RemoteFile
from diva.data.datasets.load import load_dataset
from diva.data.datasets.registry import dataset_info, is_name
from diva.data.datasets.status import DatasetStatus, FileCheck, check_dataset, list_datasets
from diva.data.datasets.synthetic import GaussianMixtureTruth, make_gaussian_mixture

__all__ = [
    "AS_PUBLISHED",
    "DatasetInfo",
    "DatasetStatus",
    "FileCheck",
    "GaussianMixtureTruth",
    "RemoteFile",
    "check_dataset",
    "dataset_info",
    "get_dataset",
    "is_name",
    "list_datasets",
    "load_dataset",
    "make_gaussian_mixture",
]
