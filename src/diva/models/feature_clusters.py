"""Clusters of the features as they are: what learnt codes have to be better than, and what is kept if they are not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data import ArrayBatches, Rows
from diva.mixture.model import MixtureModel
from diva.mixture.options import MixtureOptions
from diva.mixture.search import fit_first
from diva.mixture.standardize import measure
from diva.models.config import DIVAConfig
from diva.models.view_codes import WALK_ROWS, choose_rows
from diva.partition.agreement import neighbour_information


class Candidate(NamedTuple):
    """A mixture of the features of samples."""

    features: NDArray[np.float32]  # (n, D), in the units of the network's input
    mixture: MixtureModel

    def compared(self, learnt: NDArray[np.int64], seed: int) -> dict[str, float]:
        """What clusters (n,) of learnt codes and those of the features tell of nearest neighbours, by features on one scale."""
        rows = np.sort(choose_rows(len(learnt), WALK_ROWS, np.random.default_rng(seed)))
        points, _ = self.mixture.standardization.apply(Rows(self.features[rows]), torch.device("cpu"))
        own = self.mixture.predict(self.features[rows])
        return dict(zip(("learnt", "features"), neighbour_information(points.numpy(), learnt[rows], own), strict=True))


def fit_features(codes: Tensor, config: DIVAConfig, seed: int) -> MixtureModel:
    """Fit a mixture to features (n, D) as `DPMixture` does."""
    options = MixtureOptions(
        concentration=config.concentration,
        covariance_type="diag" if config.covariance_type == "diag" else "auto",
        max_components=config.max_components,
        grouping="valleys" if config.grouping else None,
        resolution=config.resolution,
        seed=seed,
    )
    source = ArrayBatches(codes.numpy(), None, options.batch_size)
    return fit_first(source, measure(source), options, options.generator()).model
