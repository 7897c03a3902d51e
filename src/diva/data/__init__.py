"""Arrays and streams in; no model."""

from diva.data.batches import ArrayBatches, Rows, StreamBatches, is_batch_source, to_numpy
from diva.data.catalog import (
    DatasetStatus,
    FileCheck,
    NamedDataset,
    check_dataset,
    dataset_info,
    get_dataset,
    list_datasets,
    load_dataset,
)
from diva.data.download import RemoteFile
from diva.data.files import open_path
from diva.data.known import DatasetInfo
from diva.data.objects import SparseSource
from diva.data.samples import ArraySource, DatasetSource, JoinedSource, Opened, PartOfSource, Samples, Scaling, Source
from diva.data.schedules import ClassSchedule, FeatureDrift, Imbalance, MixtureDrift, Schedule, Stage
from diva.data.streams import FileStream, Following, LineStream, Offset, Part, StreamBatch
from diva.data.synthetic import GaussianMixtureTruth, make_gaussian_mixture

__all__ = [
    "ArrayBatches",
    "ArraySource",
    "ClassSchedule",
    "DatasetInfo",
    "DatasetSource",
    "DatasetStatus",
    "FeatureDrift",
    "FileCheck",
    "FileStream",
    "Following",
    "GaussianMixtureTruth",
    "Imbalance",
    "JoinedSource",
    "LineStream",
    "MixtureDrift",
    "NamedDataset",
    "Offset",
    "Opened",
    "Part",
    "PartOfSource",
    "RemoteFile",
    "Rows",
    "Samples",
    "Scaling",
    "Schedule",
    "Source",
    "SparseSource",
    "Stage",
    "StreamBatch",
    "StreamBatches",
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
