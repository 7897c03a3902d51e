"""Samples in, from wherever they are kept; no model."""

from diva.data.batches import ArrayBatches, ReiterableBatches, Rows, ShardBatches, is_batch_source, to_numpy
from diva.data.columns import ColumnOptions, TableSchema
from diva.data.datasets.download import get_dataset
from diva.data.datasets.load import DatasetStatus, FileCheck, check_dataset, list_datasets, load_dataset
from diva.data.datasets.registry import DataFile, DatasetInfo, dataset_info
from diva.data.datasets.synthetic import GaussianMixtureTruth, make_gaussian_mixture
from diva.data.formats.objects import SparseSource
from diva.data.formats.paths import ReadOptions, open_path, open_with
from diva.data.pipeline import InputPipeline
from diva.data.scaling import Samples, Scaling
from diva.data.schedules import ClassSchedule, FeatureDrift, Imbalance, MixtureDrift, Stage
from diva.data.sources import ArraySource, DatasetSource, JoinedSource, LoadedData, PartOfSource, Source, SourceBatches
from diva.data.streams import FileStream, Following, LineStream, Offset, Part, StreamBatch
from diva.data.validate import open_columns
from diva.data.windows import WindowSource, cut_windows

__all__ = [
    "ArrayBatches",
    "ArraySource",
    "ClassSchedule",
    "ColumnOptions",
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
    "SourceBatches",
    "SparseSource",
    "Stage",
    "StreamBatch",
    "TableSchema",
    "WindowSource",
    "check_dataset",
    "cut_windows",
    "dataset_info",
    "get_dataset",
    "is_batch_source",
    "list_datasets",
    "load_dataset",
    "make_gaussian_mixture",
    "open_columns",
    "open_path",
    "open_with",
    "to_numpy",
]
