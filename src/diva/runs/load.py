"""Reading saved models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import nn

from diva.baselines import BASELINES, load_baseline
from diva.exceptions import ModelFileError
from diva.mixture.estimator import DPMixture
from diva.models.base import Clusterer
from diva.models.diva import DIVA
from diva.runs.archive import read_archive

# what `diva fit` can fit, by names on the command line
MODELS: dict[str, type[Clusterer]] = {"diva": DIVA} | {name: load_baseline(name) for name in BASELINES}
ESTIMATORS: dict[str, Any] = {"DPMixture": DPMixture} | {model.__name__: model for model in MODELS.values()}
CHECKPOINTS = tuple(f"{name} checkpoint" for name in ESTIMATORS)


def load(path: str | os.PathLike[str], *, encoder: nn.Module | None = None, decoder: nn.Module | None = None) -> Any:
    """Read a model that ``save`` wrote.

    Nothing in the file is executed. A damaged file, one of a later version, or one that is no model at all is rejected with a
    ``ModelFileError`` that names it.

    Parameters
    ----------
    path : str or path-like
    encoder, decoder : nn.Module, optional
        Networks of your own, if the model was fitted with them: the file holds their weights, not their code.

    Returns
    -------
    DIVA, DPMixture or a baseline
        Whatever was saved.
    """
    archive = read_archive(path, kinds=(*ESTIMATORS, *CHECKPOINTS))
    if archive.kind in CHECKPOINTS:
        raise ModelFileError(
            f"{Path(path)} is a checkpoint of a run, not a model. Go on with it: set run_dir to its folder and resume=True, "
            "and fit the same data."
        )
    own = {name: network for name, network in (("encoder", encoder), ("decoder", decoder)) if network is not None}
    if own and archive.kind != "DIVA":
        raise ModelFileError(
            f"{Path(path)} is a {archive.kind}, which takes no networks of yours: load it without encoder and decoder."
        )
    try:
        return ESTIMATORS[archive.kind].from_archive(archive, **own)
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise ModelFileError(
            f"{Path(path)} is not a model this version of diva can read: its parts do not fit together "
            f"({type(error).__name__}: {error}). Save the model again, or ask where the file came from."
        ) from error
