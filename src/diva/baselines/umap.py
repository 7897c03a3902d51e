"""What people do in practice: UMAP (McInnes, Healy and Melville 2018, arXiv 1802.03426), then clusters of its few dimensions.

They are found by a Dirichlet process mixture with full covariances (`UMAPMixture`), or by HDBSCAN (Campello, Moulavi and
Sander 2013) in scikit-learn (`UMAPHDBSCAN`). New samples are placed among the old ones, which a file of the model holds
therefore, by UMAP's own ``transform``: where a sample ends depends a little on which others it is placed with.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from diva.baselines.dpmm import MixtureClusterer
from diva.baselines.shallow import ShallowClusterer
from diva.data import Samples
from diva.mixture.estimator import DPMixture
from diva.models.base import Assignment
from diva.models.config import Config, DataParameters, RunParameters
from diva.parameters import Number, Whole, parameter, takes
from diva.training.encode import Codes

FEWEST = 4  # samples that can be neighbours of one another
CORE_NEIGHBOURS = 5  # the distance to which of its neighbours says how dense it is around a sample


@dataclass(frozen=True)
class UMAPConfig(Config):
    """UMAP."""

    latent_dim: int = parameter(10, Whole(1, 1000), help="Length of a code.")
    n_neighbors: int = parameter(20, Whole(2), help="Neighbours of a sample that stay near it.")
    min_dist: float = parameter(0.0, Number(0, 1), help="How near codes may be.")


@dataclass(frozen=True)
class UMAPHDBSCANConfig(UMAPConfig):
    """HDBSCAN."""

    min_cluster_size: int | None = parameter(
        None, Whole(2), help="Samples in the smallest cluster; by default a hundredth of all, and at least 5."
    )


class UMAPClusterer(ShallowClusterer):
    """Clusters of the codes that UMAP gives.

    Attributes
    ----------
    umap_ : umap.UMAP
    """

    config_class: ClassVar[type[UMAPConfig]] = UMAPConfig
    config_: UMAPConfig
    umap_: Any
    seed_: int

    @abstractmethod
    def _fit_codes(self, codes: NDArray[np.float32], seed: int) -> None:
        """Find clusters."""

    def validate_parameters(self) -> None:
        """Raise ValueError at the first parameter that makes no sense, ImportError without umap-learn."""
        super().validate_parameters()
        try:
            import umap  # noqa: F401
        except ImportError as error:
            raise ImportError(
                f"{type(self).__name__} needs the package umap-learn. Install it: pip install 'diva-clustering[umap]'"
            ) from error

    def _fit_rows(self, rows: NDArray[np.float32], seed: int) -> None:
        if len(rows) < FEWEST:
            raise ValueError(f"{type(self).__name__} needs at least {FEWEST} samples, got n_samples = {len(rows)}.")
        self.seed_ = seed
        few = len(rows) <= self.config_.latent_dim + 2  # too few for eigenvectors
        self.umap_ = self._embed(rows, init="random" if few else "spectral")
        self._fit_codes(self.umap_.embedding_, seed)

    def _embed(self, rows: NDArray[np.float32], **how: Any) -> Any:
        from umap import UMAP

        config = self.config_
        how |= {"n_neighbors": min(config.n_neighbors, len(rows) - 1), "n_components": config.latent_dim, "n_jobs": 1}
        return UMAP(min_dist=config.min_dist, random_state=self.seed_, transform_seed=self.seed_, **how).fit(rows)

    def _encode(self, samples: Samples) -> Codes:
        codes = torch.from_numpy(self.umap_.transform(super()._encode(samples).mean.numpy()))
        return Codes(codes, codes[:, :0])

    @property
    def _n_features_out(self) -> int:
        return self.config_.latent_dim

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        document, tensors = super()._to_document()
        rows, codes = (torch.from_numpy(np.ascontiguousarray(v)) for v in (self.umap_._raw_data, self.umap_.embedding_))  # noqa: SLF001
        return document | {"seed": self.seed_}, tensors | {"umap.rows": rows, "umap.codes": codes}

    def _restore(self, document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Find the neighbours anew, which takes the same chance, and put the codes where they were."""
        rows, codes, self.seed_ = tensors["umap.rows"], tensors["umap.codes"], int(document["seed"])
        if tuple(rows.shape) != (len(codes), self.pipeline_.scaling.n_numbers) or codes.shape[1:] != (self.config_.latent_dim,):
            raise ValueError("rows and codes of UMAP do not fit together")
        self.umap_ = self._embed(rows.numpy(), init=codes.numpy(), n_epochs=0)
        self.umap_.embedding_, self.umap_.n_epochs = codes.numpy(), None
        super()._restore(document, tensors)


@takes(DataParameters, UMAPConfig, RunParameters)
class UMAPMixture(UMAPClusterer, MixtureClusterer):
    """UMAP, then a Dirichlet process mixture with full covariances; finds the number of clusters by itself."""

    def _fit_codes(self, codes: NDArray[np.float32], seed: int) -> None:
        self.mixture_ = DPMixture(covariance_type="full", random_state=seed).fit(codes).mixture_


@takes(DataParameters, UMAPHDBSCANConfig, RunParameters)
class UMAPHDBSCAN(UMAPClusterer):
    """UMAP, then HDBSCAN, which finds the number of clusters by itself.

    A sample is in the cluster of the nearest sample that was learnt from. What HDBSCAN calls noise is in the cluster of the
    nearest sample that is not, and is novel in ``assign``.
    """

    config_class: ClassVar[type[UMAPHDBSCANConfig]] = UMAPHDBSCANConfig
    config_: UMAPHDBSCANConfig
    found_: NDArray[np.int64]  # (n,): what HDBSCAN answered; -1 is noise

    def _fit_codes(self, codes: NDArray[np.float32], seed: int) -> None:  # noqa: ARG002  # no chance in it
        smallest = self.config_.min_cluster_size or max(5, len(codes) // 100)
        smallest = min(smallest, len(codes))
        self._set_found(HDBSCAN(min_cluster_size=smallest, min_samples=min(5, smallest), copy=True).fit_predict(codes))

    def _set_found(self, found: NDArray[Any]) -> None:
        codes = self.umap_.embedding_
        self.found_ = found.astype(np.int64)
        inside = np.flatnonzero(found >= 0)
        self._members = np.zeros(len(codes), dtype=np.int64)  # of each code, its cluster; all are one if all are noise
        if len(inside):
            nearest = NearestNeighbors(n_neighbors=1).fit(codes[inside]).kneighbors(codes, return_distance=False)[:, 0]
            self._members = np.where(found >= 0, found, found[inside][nearest])
        self._neighbours = NearestNeighbors(n_neighbors=min(CORE_NEIGHBOURS, len(codes))).fit(codes)

    def _assign(self, codes: Codes) -> Assignment:
        z = codes.mean.numpy()
        distances, neighbours = self._neighbours.kneighbors(z)
        positions, scores = self._members[neighbours[:, 0]], -distances[:, -1].astype(np.float64)
        proba = np.eye(int(self._members.max()) + 1)[positions]
        novel = (self.found_[neighbours[:, 0]] < 0) | (scores < self.novelty_threshold_)
        return Assignment(z, proba, positions, positions, scores, novel)

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        document, tensors = super()._to_document()
        return document, tensors | {"hdbscan.found": torch.from_numpy(self.found_)}

    def _restore(self, document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super()._restore(document, tensors)
        found = tensors["hdbscan.found"].numpy()
        if found.shape != (len(self.umap_.embedding_),) or found.min() < -1 or found.max() >= self.n_clusters_:
            raise ValueError("clusters of HDBSCAN are not those of its samples")
        self._set_found(found)
