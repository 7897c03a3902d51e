"""Samples in, from wherever they are kept; no model."""

from diva.data.batches import ArrayBatches, ReiterableBatches, Rows, ShardBatches, is_batch_source, to_numpy
from diva.data.datasets.download import get_dataset
from diva.data.datasets.load import DatasetStatus, FileCheck, check_dataset, list_datasets, load_dataset
from diva.data.datasets.registry import DataFile, DatasetInfo, dataset_info
from diva.data.datasets.synthetic import GaussianMixtureTruth, make_gaussian_mixture
from diva.data.formats.objects import SparseSource
from diva.data.formats.paths import ReadOptions, open_path
from diva.data.pipeline import InputPipeline
from diva.data.scaling import Samples, Scaling
from diva.data.schedules import ClassSchedule, FeatureDrift, Imbalance, MixtureDrift, Stage
from diva.data.sources import ArraySource, DatasetSource, JoinedSource, LoadedData, PartOfSource, Source
from diva.data.streams import FileStream, Following, LineStream, Offset, Part, StreamBatch

__all__ = [
    "ArrayBatches",
    "ArraySource",
    "ClassSchedule",
    "DataFile",
    "DatasetInfo",
    "DatasetSource",
    "DatasetStatus",
    "FeatureDrift",
    "FileCheck",
    "FileStream",
    "Following",
    "GaussianMixtureTruth",
    "Imbalance",
    "InputPipeline",
    "JoinedSource",
    "LineStream",
    "LoadedData",
    "MixtureDrift",
    "Offset",
    "Part",
    "PartOfSource",
    "ReadOptions",
    "ReiterableBatches",
    "Rows",
    "Samples",
    "Scaling",
    "ShardBatches",
    "Source",
    "SparseSource",
    "Stage",
    "StreamBatch",
    "check_dataset",
    "dataset_info",
    "get_dataset",
    "is_batch_source",
    "list_datasets",
    "load_dataset",
    "make_gaussian_mixture",
    "open_path",
    "to_numpy",
]
