"""A Dirichlet process mixture on the data themselves, by memoized variational Bayes: Hughes and Sudderth, NeurIPS 2013.

The mixture of `diva.mixture`, with the settings of the paper's comparison: diagonal covariances, one component at first and
births from then on, every component a cluster, and a prior that expects the same variance of all features, a tenth of their
mean variance. A departure: with diagonal covariances the prior of a feature has 3 degrees of freedom, what a Wishart prior of
all features with the paper's D + 2 leaves to each of them by itself. With D + 2 for each, the expected variance of every pixel
is worth 786 images, and one component has a higher bound than 20 on 3,000 images of MNIST: no births can help there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.baselines.shallow import ShallowClusterer
from diva.data import ArrayBatches
from diva.mixture.fitting import continue_fit, fit_from
from diva.mixture.model import MixtureModel
from diva.mixture.options import MixtureOptions
from diva.mixture.standardize import Standardization
from diva.models.base import Assignment, learning_from, unchanged_on_failure
from diva.models.config import Config, DataParameters, RunParameters
from diva.parameters import Number, OneOf, Whole, parameter, takes
from diva.runs.archive import parts_with
from diva.training.encode import Codes

FEATURE_FREEDOM = 3.0  # of the precision of one feature, if that of all has a Wishart prior with D + 2: nu0 - (D - 1)


@dataclass(frozen=True)
class DPMMConfig(Config):
    """Dirichlet process mixture."""

    concentration: float = parameter(5.0, Number(), help="Of the Dirichlet process; more of it expects more components.")
    covariance_type: str = parameter("diag", OneOf("diag", "full"), help="Shape of a component.")
    covariance_scale: float = parameter(
        0.1, Number(), help="Expected variance of a feature in a component, as a share of the mean variance of all features."
    )
    degrees_of_freedom: float | None = parameter(
        None,
        Number(2),
        help="""How many samples the expected variance is worth, about. By default 3 for a feature by itself (diag), and the
        number of features plus 2 for all together (full).""",
    )
    max_components: int = parameter(200, Whole(), help="Most components the mixture may have.")
    max_laps: int = parameter(100, Whole(), help="Passes over the data at most.")


def one_unit(rows: NDArray[np.float32]) -> Standardization:
    """Rows (n, d) less their mean, in one unit for all features."""
    unit = max(float(np.sqrt(rows.var(axis=0, dtype=np.float64).mean())), 1e-12)
    mean = torch.from_numpy(rows.mean(axis=0, dtype=np.float64))
    return Standardization(mean, torch.full_like(mean, unit))


class MixtureClusterer(ShallowClusterer):
    """Clusters of a mixture of rows, or of their codes.

    Attributes
    ----------
    mixture_ : MixtureModel
    """

    mixture_: MixtureModel

    def _set_classes(self, labels: NDArray[np.int64], n_clusters: int) -> None:
        super()._set_classes(labels, n_clusters)
        self.cluster_ids_ = self.mixture_.cluster_ids
        self.labels_ = self.cluster_ids_[labels]

    def _assign(self, codes: Codes) -> Assignment:
        rows, mixture = codes.mean.numpy(), self.mixture_
        components, scores = mixture.predict(rows, "component"), mixture.score_samples(rows)
        positions = mixture.cluster_of_component()[components]
        proba = mixture.predict_proba(rows)
        return Assignment(rows, proba, positions, components, scores, scores < self.novelty_threshold_)

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        document, tensors = super()._to_document()
        mixture, parts = self.mixture_.to_archive()
        order = np.argsort(self.cluster_ids_)
        positions = order[np.searchsorted(self.cluster_ids_, self.labels_, sorter=order)]
        tensors |= {"labels": torch.from_numpy(positions)} | {f"mixture.{name}": part for name, part in parts.items()}
        return document | {"mixture": mixture}, tensors

    def _restore(self, document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.mixture_ = MixtureModel.from_archive(document["mixture"], parts_with(tensors, "mixture."))
        if self.mixture_.standardization.n_features != self._n_features_out:
            raise ValueError("the mixture is about codes of another length")
        super()._restore(document, tensors)


@takes(DataParameters, DPMMConfig, RunParameters)
class DPMM(MixtureClusterer):
    """Dirichlet process mixture of Gaussians on the data themselves (Hughes and Sudderth 2013); finds K by itself."""

    config_class: ClassVar[type[DPMMConfig]] = DPMMConfig
    config_: DPMMConfig

    def _fit_rows(self, rows: NDArray[np.float32], seed: int) -> None:
        config = self.config_
        if config.covariance_type == "diag" and config.degrees_of_freedom is None:
            config = replace(config, degrees_of_freedom=FEATURE_FREEDOM)
        options = MixtureOptions(**vars(config), grouping=None, device=str(self._device()), seed=seed)
        start = MixtureModel.start(one_unit(rows), options)
        self.mixture_ = fit_from(start, ArrayBatches(rows), len(rows), options.generator()).model

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  # scikit-learn's signature
        """Go on with new data; the first call is a fit.

        Data of earlier calls count in full, through their statistics, and are not needed again. Clusters keep their ids, and
        new ones are born where the mixture describes the new data badly. ``labels_`` are those of ``X``.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X)
        self.validate_parameters()
        with unchanged_on_failure(self):
            samples = self._samples(X)
            with learning_from(samples):
                self.mixture_ = continue_fit(self.mixture_, self._encode(samples).mean.numpy())
                self._set_answers(samples)
        return self
