"""Files and objects of other libraries as sources of samples."""
