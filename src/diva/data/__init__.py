"""Arrays and streams in; no model."""

from diva.data.batches import ArrayBatches, Rows, StreamBatches, is_batch_source

__all__ = ["ArrayBatches", "Rows", "StreamBatches", "is_batch_source"]
