"""A Gaussian mixture with a given number of components, by expectation maximization, on the data themselves.

Scikit-learn's GaussianMixture, with diagonal covariances as in the paper's comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture
from torch import Tensor

from diva.baselines.shallow import ShallowClusterer
from diva.models.base import Assignment
from diva.models.config import Config, DataParameters, RunParameters
from diva.parameters import OneOf, Whole, parameter, takes
from diva.training.encode import Codes

LEARNT = ("weights_", "means_", "covariances_", "precisions_cholesky_")


@dataclass(frozen=True)
class GMMConfig(Config):
    """Gaussian mixture."""

    n_clusters: int = parameter(10, Whole(), help="Number of clusters, K.")
    covariance_type: str = parameter("diag", OneOf("diag", "full", "tied", "spherical"), help="Shape of a component.")
    max_iter: int = parameter(100, Whole(), help="Passes of expectation maximization at most.")
    n_init: int = parameter(1, Whole(), help="Starts from k-means; the one with the highest likelihood is kept.")


@takes(DataParameters, GMMConfig, RunParameters)
class GMM(ShallowClusterer):
    """Gaussian mixture with a given number of components, on the data themselves.

    Attributes
    ----------
    gmm_ : sklearn.mixture.GaussianMixture
    n_iter_ : int
        Passes of the start that was kept.
    """

    config_class: ClassVar[type[GMMConfig]] = GMMConfig
    config_: GMMConfig
    gmm_: GaussianMixture
    n_iter_: int

    def _fit_rows(self, rows: NDArray[np.float32], seed: int) -> None:
        if len(rows) < self.config_.n_clusters:
            raise ValueError(f"n_clusters={self.config_.n_clusters} needs as many samples, got {len(rows)}.")
        self.gmm_ = self._make(random_state=seed).fit(rows.astype(np.float64))
        self.n_iter_ = int(self.gmm_.n_iter_)

    def _make(self, **others: Any) -> GaussianMixture:
        config = self.config_
        how = {"covariance_type": config.covariance_type, "max_iter": config.max_iter, "n_init": config.n_init}
        return GaussianMixture(config.n_clusters, **how, **others)

    def _assign(self, codes: Codes) -> Assignment:
        rows = codes.mean.numpy()
        proba, scores = self.gmm_.predict_proba(rows.astype(np.float64)), self.gmm_.score_samples(rows.astype(np.float64))
        positions = proba.argmax(1)
        return Assignment(rows, proba, positions, positions, scores, scores < self.novelty_threshold_)

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        document, tensors = super()._to_document()
        document["n_iter"] = self.n_iter_
        return document, tensors | {f"gmm.{name}": torch.from_numpy(getattr(self.gmm_, name)) for name in LEARNT}

    def _restore(self, document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        k, d, kind = self.config_.n_clusters, self.pipeline_.scaling.n_numbers, self.config_.covariance_type
        spread = {"diag": (k, d), "full": (k, d, d), "tied": (d, d), "spherical": (k,)}[kind]
        self.gmm_, self.n_iter_ = self._make(), int(document["n_iter"])
        for name, shape in zip(LEARNT, ((k,), (k, d), spread, spread), strict=True):
            value = tensors[f"gmm.{name}"]
            if value.dtype != torch.float64 or tuple(value.shape) != shape or not bool(value.isfinite().all()):
                raise ValueError(f"{name} of the mixture should be float64 of shape {shape}, and finite")
            setattr(self.gmm_, name, value.numpy())
        super()._restore(document, tensors)
