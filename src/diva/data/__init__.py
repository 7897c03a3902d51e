"""Arrays and streams in; no model."""

from diva.data.batches import ArrayBatches, Rows, StreamBatches, is_batch_source, to_numpy
from diva.data.samples import ArraySource, DatasetSource, PartOfSource, Samples, Scaling, Source
from diva.data.synthetic import GaussianMixtureTruth, make_gaussian_mixture

__all__ = [
    "ArrayBatches",
    "ArraySource",
    "DatasetSource",
    "GaussianMixtureTruth",
    "PartOfSource",
    "Rows",
    "Samples",
    "Scaling",
    "Source",
    "StreamBatches",
    "is_batch_source",
    "make_gaussian_mixture",
    "to_numpy",
]
