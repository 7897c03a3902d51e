"""Arrays and streams in; no model."""

from diva.data.batches import ArrayBatches, Rows, StreamBatches, is_batch_source, to_numpy
from diva.data.files import open_path
from diva.data.objects import SparseSource
from diva.data.samples import ArraySource, DatasetSource, Opened, PartOfSource, Samples, Scaling, Source
from diva.data.synthetic import GaussianMixtureTruth, make_gaussian_mixture

__all__ = [
    "ArrayBatches",
    "ArraySource",
    "DatasetSource",
    "GaussianMixtureTruth",
    "Opened",
    "PartOfSource",
    "Rows",
    "Samples",
    "Scaling",
    "Source",
    "SparseSource",
    "StreamBatches",
    "is_batch_source",
    "make_gaussian_mixture",
    "open_path",
    "to_numpy",
]
