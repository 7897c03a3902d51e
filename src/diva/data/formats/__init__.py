"""Files and objects of other libraries as sources of samples."""

from diva.data.formats.labels import read_labels
from diva.data.formats.objects import check_frame, source_from_object
from diva.data.formats.paths import ReadOptions, is_table, open_path
from diva.data.formats.sparse import SparseSource

__all__ = ["ReadOptions", "SparseSource", "check_frame", "is_table", "open_path", "read_labels", "source_from_object"]
