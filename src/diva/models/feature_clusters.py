"""Clusters of the features as they are: what learnt codes have to be better than, and what is kept if they are not."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data import ArrayBatches, PartOfSource, Rows, Samples
from diva.mixture.fitting import joined_without_valley
from diva.mixture.model import MixtureModel
from diva.mixture.options import MixtureOptions
from diva.mixture.search import fit_first
from diva.mixture.standardize import measure
from diva.models.config import DIVAConfig
from diva.models.view_codes import WALK_ROWS, choose_rows
from diva.networks.vae import VAE
from diva.partition.agreement import neighbour_information
from diva.training.encode import encode, subset

FEATURE_ROWS = 60_000  # that clusters are found on, at most: as many as codes


class Candidate(NamedTuple):
    """A mixture of the features of samples, and some of the samples."""

    mixture: MixtureModel
    rows: NDArray[np.int64]  # (m,): which
    features: NDArray[np.float32]  # (m, D), in the units of the network's input

    @classmethod
    def fit(cls, network: VAE, samples: Samples, config: DIVAConfig, seed: int) -> Candidate:
        """Fit a mixture to the features of samples, that a network gives as codes."""
        rng, device = np.random.default_rng(seed), torch.device("cpu")
        mixture = fit_features(encode(network, subset(samples, FEATURE_ROWS, rng), device).mean, config, seed)
        rows = np.sort(choose_rows(len(samples), WALK_ROWS, rng))
        some = replace(samples, source=PartOfSource(samples.source, rows))
        return cls(mixture, rows, encode(network, some, device).mean.numpy())

    def compared(self, learnt: MixtureModel, codes: NDArray[np.float32]) -> dict[str, float]:
        """What clusters of learnt codes (n, d) and those of the features tell of nearest neighbours, in nats.

        Neighbours agree on any cut through one cloud, noise for instance, and each space is kind to its own clusters. So both
        partitions are asked in both spaces, and learnt clusters count as one if the features have no valley between them.
        """
        z = codes[self.rows]
        points = self.mixture.standardization.apply(Rows(self.features), torch.device("cpu"))[0].numpy()
        partitions = self._joined(learnt.predict(z)), self.mixture.predict(self.features)
        told = np.mean([neighbour_information(space, *partitions) for space in (points, z)], axis=0)
        return dict(zip(("learnt", "features"), told.tolist(), strict=True))

    def _joined(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Clusters (n,), joined where the features have no valley between them.

        What was joined is judged anew, with components of its own: those of many small pieces are narrower than the data.
        """
        base, n_clusters = self.mixture.with_next_id(0), 0
        while n_clusters != (n_clusters := len(np.unique(labels))):
            labels = joined_without_valley(base, self.features, labels, base.options.generator())
        return labels


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
