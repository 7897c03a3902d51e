"""DIVA: a variational auto-encoder whose prior is a Dirichlet process mixture, and clusters of its components."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor, nn

from diva.data import PartOfSource, Samples
from diva.data.scaling import RowScale
from diva.mixture.editing import EditableClusters
from diva.mixture.model import NO_TREE, Level, MixtureModel, check_component_labels
from diva.mixture.moves import MoveRecord
from diva.mixture.options import Wishes
from diva.models.algorithm1 import Algorithm1
from diva.models.base import Assignment, DeepClusterer, flushed_denormals
from diva.models.clusters import final_mixture
from diva.models.config import (
    DIVA_PARAMETERS,
    LONGEST,
    OWN,
    DIVAConfig,
    OwnNetworks,
    check_together,
    resolve,
    scale_of,
)
from diva.models.feature_clusters import Candidate
from diva.models.incremental import IncrementalMixin
from diva.models.memory import BatchOutcome, StreamMemory
from diva.models.networks import check_own_networks, make_vae
from diva.models.state import DIVAState, Task
from diva.networks.vae import VAE
from diva.parameters import takes, values_of
from diva.partition.calibration import spread_rows
from diva.partition.hierarchy import Hierarchy
from diva.partition.matching import ClusterRecord
from diva.runs.archive import Archive, parts_with
from diva.runs.records import record_from_plain
from diva.training.augmentation import Augmentation, check_own_augmentation, make_augmentation, recognisable
from diva.training.encode import Codes

PART_ROWS = 20_000
FIRST_VARIANCE = 0.1  # of the decoder before it has been measured, as a share of the data's


@takes(*DIVA_PARAMETERS)
class DIVA(EditableClusters, IncrementalMixin, DeepClusterer):
    """Deep clustering that finds the number of clusters by itself.

    A variational auto-encoder learns codes of the samples, a Dirichlet process mixture of the codes is its prior, and births
    and merges change the number of components while both learn. Components that augmented views of a sample pass between are
    grouped into clusters; at the end, the encoder is trained on confident assignments as pseudo-labels.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each sample, by its permanent id.
    component_labels_ : ndarray of shape (n_samples,)
        Component of the mixture, the fine level.
    n_clusters_, n_components_ : int
    mixture_ : MixtureModel
        The mixture of the codes.
    hierarchy_ : Hierarchy or None
        Tree of components; ``predict(X, level=k)`` cuts it into k clusters.
    cluster_ids_ : ndarray of shape (n_clusters,)
        Permanent ids of the clusters, in the order of the columns of ``predict_proba``; from 0 after a first fit.
    component_ids_ : ndarray of shape (n_components,)
        Permanent ids of the components, by position.
    cluster_names_ : dict of int to str
        Names given with ``rename``, by id.
    cluster_lineage_ : list of ClusterRecord
        Which clusters were born, split, merged, renamed or died after the first fit.
    lineage_ : list of MoveRecord
        Every birth, merge and deletion: those while training with their epoch, then those of the final mixture.
    batches_ : list of BatchRecord
        What each fit or partial fit did, with the share of novel samples.
    novelty_threshold_ : float
        Samples that ``score_samples`` puts below are novel.
    history_ : list of EpochRecord
    config_ : DIVAConfig
        What the parameters came to; ``config_.codes`` says whether clusters are of learnt codes or of the features.
    agreement_ : dict of str to float
        Where both were tried: what the cluster of a sample tells of that of its nearest neighbours, in nats, for each.
    vae_ : VAE
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from diva import DIVA
    >>> images = load_digits().images[:200]
    >>> model = DIVA(n_epochs=3, random_state=0).fit(images)
    >>> model.transform(images).shape
    (200, 16)
    """

    config_class: ClassVar[type[DIVAConfig]] = DIVAConfig
    state_class: ClassVar[type[DIVAState]] = DIVAState
    config_: DIVAConfig
    network_: VAE
    mixture_: MixtureModel
    agreement_: dict[str, float]
    lineage_: list[MoveRecord]
    cluster_lineage_: list[ClusterRecord]
    hierarchy_: Hierarchy | None

    @property
    def vae_(self) -> VAE:
        """Encoder and decoder."""
        return self.network_

    # --- what DeepClusterer asks for

    def validate_parameters(self) -> None:
        """Raise ValueError at the first parameter that makes no sense, alone or beside the others."""
        super().validate_parameters()
        check_together(self)
        values_of(self, Wishes).check()

    def _resolve(self, is_image: bool, n_samples: int) -> DIVAConfig:
        config, width = resolve(self, is_image).for_samples(n_samples), self.pipeline_.scaling.n_numbers
        by_columns = self.pipeline_.windows is None and len(self.pipeline_.scaling.unit) > 1
        config = replace(config, scale="columns" if by_columns else "one")
        if self.pipeline_.windows is not None and config.augmentation == "mask" and self.augmentation == "auto":
            config = replace(config, augmentation="series")
        if not config.grouping and values_of(self, Wishes).any():
            raise ValueError(NO_TREE)
        if config.codes == "auto" and width > LONGEST:
            return replace(config, codes="learnt")
        if config.codes != "features":
            return config
        if width > LONGEST:
            raise ValueError(f'codes="features" takes at most {LONGEST:,} features, got {width:,}. Set pca, or codes="learnt".')
        return self._on_features(config)

    def _row_scale(self) -> RowScale:
        scale: RowScale = self.scale or scale_of(self.preset)
        return scale

    def _on_features(self, config: DIVAConfig) -> DIVAConfig:
        return replace(config, codes="features", latent_dim=self.pipeline_.scaling.n_numbers)

    def _make_network(self) -> VAE:
        return make_vae(self.config_, self.pipeline_.scaling.input_shape, values_of(self, OwnNetworks))

    def _make_objective(self, samples: Samples, validation: Samples | None) -> Algorithm1:
        self.stream_, self.agreement_ = StreamMemory(), {}
        if self.config_.augmentation == "mask" and self.mask_share is None and self.config_.schedule.n_epochs:
            self.config_ = replace(self.config_, mask_share=recognisable(samples))
        return Algorithm1(self._make_task(self.config_, samples, validation))

    def _make_task(self, config: DIVAConfig, samples: Samples, validation: Samples | None = None) -> Task:
        augmentation: Augmentation | None = None
        if config.augmentation != OWN:
            is_image, windows = samples.scaling.is_image, self.pipeline_.windows
            augmentation = make_augmentation(
                config.augmentation, is_image=is_image, windows=windows, mask_share=config.mask_share
            )
        elif callable(own := values_of(self, DIVAConfig).augmentation):  # not that of a loaded model: files hold no functions
            check_own_augmentation(own, samples)
            augmentation = own
        return Task(config, samples, self._device(), validation, augmentation)

    def _make_state(self, objective: Algorithm1, seed: int) -> DIVAState:
        task, state = objective.task, self._fresh_state(seed)
        assert isinstance(state, DIVAState)
        if values_of(self, OwnNetworks).encoder is not None:
            check_own_networks(state.network, task)
        index = torch.arange(min(2048, len(task.samples)))
        spread = float(task.samples.take(index).flatten(1).var(0, correction=0).mean())
        state.variance = max(FIRST_VARIANCE * spread, 1e-6)
        return state

    def _is_usable(self, state: DIVAState) -> bool:
        return state.next_component_id > 0

    def _finish(self, state: DIVAState, objective: Algorithm1) -> None:
        task = objective.task
        codes, self.mixture_ = final_mixture(state, task)
        self.variance_, self.training_lineage_ = state.variance, state.lineage
        if self.config_.codes == "auto" and codes is not None:
            codes = self._choose_codes(codes, objective, state.seed)
        if codes is not None:
            labels = self.mixture_.predict(codes[: task.n_own].numpy(), "component")
        else:
            labels = self._component_of(task.samples)[: task.n_own]
        sizes = np.bincount(labels, minlength=self.mixture_.n_components)
        self.mixture_ = self._granted(self.mixture_, sizes, state.before)
        rows = spread_rows(len(labels), PART_ROWS)
        some = self._codes_at(task.samples, rows) if codes is None else codes[rows].numpy()
        self.mixture_ = self.mixture_.calibrated(some)
        self._set_labels(labels)
        self._remember(task.fresh_samples, task.n_gone)
        if state.before is None:  # a first fit
            self._close_batch(task.samples, BatchOutcome(state.started, n_moves=0, n_seen=len(task.samples)))

    def _component_of(self, samples: Samples) -> NDArray[np.int64]:
        """Component of each sample, a part at a time: features of all may not fit into memory."""
        chunks = (np.arange(start, min(start + PART_ROWS, len(samples))) for start in range(0, len(samples), PART_ROWS))
        return np.concatenate([self.mixture_.predict(self._codes_at(samples, rows), "component") for rows in chunks])

    def _codes_at(self, samples: Samples, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        codes: NDArray[np.float32] = self._encode(replace(samples, source=PartOfSource(samples.source, rows))).mean.numpy()
        return codes

    def _choose_codes(self, learnt: Tensor, objective: Algorithm1, seed: int) -> Tensor | None:
        """Keep what was learnt if nearest neighbours agree on its clusters at least as well as on those of the features.

        Where they agree on neither there is one cluster.
        """
        config = self._on_features(self.config_)
        network = make_vae(config, self.pipeline_.scaling.input_shape, OwnNetworks()).eval()
        rival = objective.rival = objective.rival or Candidate.fit(network, objective.task.samples, config, seed)
        self.agreement_ = rival.compared(self.mixture_, learnt.numpy())
        told = self.agreement_["learnt"]
        if told >= self.agreement_["features"] and (told > 0 or self.mixture_.n_clusters == 1):
            self.config_ = replace(self.config_, codes="learnt")
            return learnt
        self.config_, self.network_ = config, network.to(self._device())
        self.mixture_, self.training_lineage_ = rival.mixture, []
        return None

    def _set_labels(self, component_labels: NDArray[np.int64]) -> None:
        """Set the fitted attributes that follow from the mixture."""
        mixture = self.mixture_
        self.lineage_ = [*self.training_lineage_, *mixture.lineage]
        self.hierarchy_ = mixture.hierarchy
        self.n_components_, self.n_clusters_ = mixture.n_components, mixture.n_clusters
        self.component_ids_, self.cluster_ids_ = mixture.component_ids, mixture.cluster_ids
        self.cluster_lineage_ = list(mixture.cluster_lineage)
        self.component_labels_ = component_labels
        self.labels_ = mixture.label_of_component()[component_labels]

    def _adopt(self, mixture: MixtureModel) -> None:
        self.mixture_ = mixture
        self.stream_ = replace(self.stream_, anchor=None)  # had the clusters of before
        self._set_labels(self.component_labels_)

    def _assign(self, codes: Codes) -> Assignment:
        z = codes.mean.numpy()
        components, scores = self.mixture_.predict(z, "component"), self._scores(codes)
        return Assignment(
            codes=z,
            probabilities=self.mixture_.calibrated_proba(z),
            positions=self.mixture_.cluster_of_component()[components],
            components=components,
            scores=scores,
            novel=scores < self.novelty_threshold_,
        )

    # --- using

    def predict(self, X: Any, level: Level | None = None, *, reject: bool = False) -> NDArray[np.int64]:
        """Most probable cluster of each sample.

        Parameters
        ----------
        X : as in ``fit``
        level : {"cluster", "component"} or int, optional
            "component" for the fine level, a number to cut the hierarchy into so many clusters. Clusters by default.
        reject : bool, default=False
            Answer -1, none of these, for novel samples.

        Returns
        -------
        array of int, shape (n_samples,)
            Permanent ids of clusters; at other levels, positions.
        """
        codes = self._codes(X)
        with flushed_denormals():
            labels = self.mixture_.predict(codes.mean.numpy(), level)
            return np.where(self._scores(codes) < self.novelty_threshold_, -1, labels) if reject else labels

    def predict_proba(self, X: Any, level: Level | None = None) -> NDArray[np.float64]:
        """Probability of each cluster for each sample, (n_samples, n_clusters), as sure as nearest neighbours are alike."""
        codes = self._codes(X)
        return self.mixture_.calibrated_proba(codes.mean.numpy(), level)

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Log density of the codes of samples, less for codes the encoder is unsure of: low means novel."""
        codes = self._codes(X)
        with flushed_denormals():
            return self._scores(codes)

    def is_novel(self, X: Any) -> NDArray[np.bool_]:
        """Whether samples are unlike all that is known: less likely than all but 1 in 100 of the samples learnt from."""
        novel: NDArray[np.bool_] = self.score_samples(X) < self.novelty_threshold_
        return novel

    def sample(
        self,
        n_samples: int = 1,
        *,
        component: int | None = None,
        cluster: int | None = None,
        random_state: Any = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Draw new samples: codes of the mixture, decoded.

        Parameters
        ----------
        n_samples : int
        component, cluster : int, optional
            Draw only from this one.
        random_state : int, RandomState or None

        Returns
        -------
        X : ndarray of shape (n_samples, ...)
            In the shape and units of the data.
        labels : ndarray of shape (n_samples,)
            Cluster of each draw.
        """
        self._ready()
        rng = check_random_state(self.run_parameters.random_state if random_state is None else random_state)
        codes, labels = self.mixture_.sample(n_samples, rng, component=component, cluster=cluster)
        return self._decode(codes), labels

    # --- files

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        mixture, mixture_tensors = self.mixture_.to_archive()
        stream, stream_tensors = self.stream_.to_archive()
        document = {
            "own_networks": values_of(self, OwnNetworks).encoder is not None,
            "variance": self.variance_,
            "agreement": self.agreement_,
            "training_lineage": [asdict(r) for r in self.training_lineage_],
            "mixture": mixture,
            "stream": stream,
        }
        tensors = {f"stream.{name}": value for name, value in stream_tensors.items()}
        tensors |= {f"mixture.{name}": value for name, value in mixture_tensors.items()}
        return document, tensors | {"component_labels": torch.from_numpy(self.component_labels_)}

    @classmethod
    def from_archive(cls, archive: Archive, **own: nn.Module | None) -> Self:
        """Rebuild a model, with networks of the user if it was fitted with such."""
        is_own = archive.document["own_networks"]
        if type(is_own) is not bool:
            raise TypeError("flags should be true or false")
        if is_own and (own.get("encoder") is None or own.get("decoder") is None):
            raise ValueError("it was fitted with networks of your own: pass them to load as encoder= and decoder=")
        if not is_own and any(network is not None for network in own.values()):
            raise ValueError("it was fitted with networks of diva: load it without encoder and decoder")
        return super().from_archive(archive, **own)

    def _restore(self, document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.variance_ = float(document["variance"])
        if not self.variance_ > 0 or not isinstance(document["training_lineage"], list):
            raise ValueError("the variance should be positive and the lineage a list")
        self.agreement_ = {str(name): float(value) for name, value in dict(document["agreement"]).items()}
        self.mixture_ = MixtureModel.from_archive(document["mixture"], parts_with(tensors, "mixture."))
        latent_dim = self.config_.latent_dim
        if self.mixture_.standardization.n_features != latent_dim:
            raise ValueError("mixture and encoder have codes of different length")
        shape = self.pipeline_.prepared_shape
        self.stream_ = StreamMemory.from_archive(document["stream"], parts_with(tensors, "stream."), shape, self.network_)
        if self.stream_.anchor is not None and self.stream_.anchor.standardization.n_features != latent_dim:
            raise ValueError("mixtures have codes of different length")
        self.batches_ = list(self.stream_.records)
        if self.stream_.novelty is not None:
            self.novelty_threshold_ = self.stream_.novelty.threshold
        self.training_lineage_ = [record_from_plain(MoveRecord, r) for r in document["training_lineage"]]
        labels = tensors["component_labels"].numpy()
        check_component_labels(labels, self.mixture_.n_components)
        self._set_labels(labels)
