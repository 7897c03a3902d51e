"""Reading saved models."""

from __future__ import annotations

import os
from pathlib import Path

from diva.archive import read_archive
from diva.exceptions import ModelFileError
from diva.mixture.estimator import DPMixture

KINDS = {"DPMixture": DPMixture}


def load(path: str | os.PathLike[str]) -> DPMixture:
    """Read a model that ``save`` wrote.

    Nothing in the file is executed. A damaged file, one of another version, or one that is no model at all is rejected with a
    :class:`~diva.exceptions.ModelFileError` that names it.
    """
    archive = read_archive(path, kinds=KINDS)
    try:
        return KINDS[archive.kind]._from_archive(archive)
    except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise ModelFileError(
            f"{Path(path)} is not a model this version of diva can read: its parts do not fit together "
            f"({type(error).__name__}: {error}). Save the model again, or ask where the file came from."
        ) from error
