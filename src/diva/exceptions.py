"""Errors and warnings of diva, each with its own class."""


class DataChangedError(ValueError):
    """A batch source gave other rows than in the lap before."""


class BoundFellError(ArithmeticError):
    """The evidence lower bound fell by more than rounding explains."""


class ModelFileError(ValueError):
    """A saved model is damaged, of another version, or not a model at all."""


class ReportError(ValueError):
    """A folder does not hold what a report is made from."""


class ComponentLimitWarning(UserWarning):
    """A fit reached ``max_components`` and could not go on growing."""


class InterruptedFitWarning(UserWarning):
    """A fit was interrupted and kept what it had reached."""


class TrainingError(ArithmeticError):
    """A term of the loss is no longer finite."""
