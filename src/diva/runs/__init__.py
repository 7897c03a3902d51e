"""Everything on disk: archives, run folders, what a run keeps of its data, the log of a stream."""
