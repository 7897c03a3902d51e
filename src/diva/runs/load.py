"""Reading saved models."""

from __future__ import annotations

import os
from collections import UserDict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diva.baselines import BASELINES
from diva.exceptions import ModelFileError
from diva.runs.archive import read_archive

if TYPE_CHECKING:
    from torch import nn


class Estimators(UserDict[str, Any]):
    """Classes by name; one that is there by its path is imported when it is first asked for."""

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        if isinstance(found, str):
            module, _, kind = found.rpartition(".")
            found = self[name] = getattr(import_module(module), kind)
        return found


_PATHS = {"diva": "diva.models.diva.DIVA", "mixture": "diva.mixture.estimator.DPMixture"}
_PATHS |= {name: f"diva.baselines.{path}" for name, path in BASELINES.items()}
MODELS = Estimators(_PATHS)  # what `diva fit` can fit, by names on the command line
ESTIMATORS = Estimators({path.rpartition(".")[2]: path for path in _PATHS.values()})  # what files hold, by kind
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
