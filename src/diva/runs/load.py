"""Reading saved models."""

from __future__ import annotations

import os
from pathlib import Path

from torch import nn

from diva.exceptions import ModelFileError
from diva.mixture.estimator import DPMixture
from diva.models.diva import DIVA
from diva.runs.archive import read_archive
from diva.runs.folder import KIND as CHECKPOINT_KIND

KINDS = {"DIVA": DIVA, "DPMixture": DPMixture}


def load(
    path: str | os.PathLike[str], *, encoder: nn.Module | None = None, decoder: nn.Module | None = None
) -> DIVA | DPMixture:
    """Read a model that ``save`` wrote.

    Nothing in the file is executed. A damaged file, one of another version, or one that is no model at all is rejected with a
    ``ModelFileError`` that names it.

    Parameters
    ----------
    path : str or path-like
    encoder, decoder : nn.Module, optional
        Networks of your own, if the model was fitted with them: the file holds their weights, not their code.
    """
    archive = read_archive(path, kinds=(*KINDS, CHECKPOINT_KIND))
    if archive.kind == CHECKPOINT_KIND:
        raise ModelFileError(
            f"{Path(path)} is a checkpoint of a run, not a model. Go on with it: set run_dir to its folder and resume=True in "
            "DIVA, and fit the same data."
        )
    try:
        if archive.kind == "DIVA":
            return DIVA._from_archive(archive, encoder, decoder)
        return DPMixture.from_archive(archive)
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise ModelFileError(
            f"{Path(path)} is not a model this version of diva can read: its parts do not fit together "
            f"({type(error).__name__}: {error}). Save the model again, or ask where the file came from."
        ) from error
