"""Errors and warnings of diva, each with its own class."""


class DataError(ValueError):
    """Data cannot be read or used."""


class NoSamplesError(DataError):
    """A file is whole, but holds no samples."""


class UnknownDatasetError(DataError):
    """No data set has this name."""


class DatasetNotFoundError(DataError, FileNotFoundError):
    """The files of a data set are not here."""


class DownloadError(DataError):
    """A file could not be fetched, or is not the published one."""


class DataChangedError(ValueError):
    """A batch source gave other rows than in the lap before."""


class BoundFellError(ArithmeticError):
    """The evidence lower bound fell by more than rounding explains."""


class ModelFileError(ValueError):
    """A saved model is damaged, of another version, or not a model at all."""


class StreamStateError(ValueError):
    """What a stream wrote about how far it has come is damaged or was changed."""


class ReportError(ValueError):
    """A folder does not hold what a report is made from."""


class ComponentLimitWarning(UserWarning):
    """A fit reached ``max_components`` and could not go on growing."""


class ScaleWarning(UserWarning):
    """One feature holds nearly all of the variance, and hides the others."""


class DataKindWarning(UserWarning):
    """The shape of samples says what they are, and nobody else did."""


class InterruptedFitWarning(UserWarning):
    """A fit was interrupted and kept what it had reached."""


class NotCompiledWarning(UserWarning):
    """Networks cannot be compiled here, and run as they are."""


class TrainingError(ArithmeticError):
    """A term of the loss is no longer finite."""


class RunBusyError(RuntimeError):
    """Another process works in the folder of a run."""


class FewerClustersWarning(UserWarning):
    """More clusters were wished for than there are components."""


class DistributedError(RuntimeError):
    """Processes that work together have lost one another."""
