"""DPMixture: the scikit-learn face of the mixture, useful without any network."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from diva.data import ArrayBatches, ReiterableBatches, Rows, ShardBatches, is_batch_source, to_numpy
from diva.distributed import Shard, is_main
from diva.exceptions import DataChangedError, InterruptedFitWarning
from diva.mixture.fitting import Fitted, fit_from, fit_within_clusters
from diva.mixture.laps import LapRecord
from diva.mixture.model import Level, MixtureModel, check_component_labels
from diva.mixture.moves import MoveRecord
from diva.mixture.options import MixtureOptions, make_generator
from diva.mixture.search import first_component, fit_first
from diva.mixture.standardize import Measurement, measure
from diva.parameters import Flag, Seed, check_parameters, parameter, plain, takes, values_of
from diva.partition.hierarchy import Hierarchy, group, group_as
from diva.partition.walk import Walk
from diva.runs.archive import Archive, write_archive


@dataclass(frozen=True)
class FitParameters:
    """Fitting."""

    warm_start: bool = parameter(False, Flag(), help="Whether fit starts from the components of the fit before.")
    random_state: Any = parameter(
        None, Seed(), help="Same seed, data, machine and number of threads: same numbers, bit for bit."
    )
    verbose: bool = parameter(False, Flag(), help="Print a line for every lap.")


@takes(MixtureOptions, FitParameters)
class DPMixture(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Dirichlet process mixture of Gaussians that finds the number of components by itself.

    Memoized online variational Bayes with births, merges and deletions, each accepted only if the evidence lower bound on all
    data rises. Works on arrays, memory-mapped files and any re-iterable of batches; memory does not grow with the data.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each sample of the last fit, by its permanent id.
    component_labels_ : ndarray of shape (n_samples,)
        Component of each sample, a position in ``means_``.
    n_components_, n_clusters_ : int
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
    covariances_ : ndarray of shape (n_components, n_features) or (n_components, n_features, n_features)
    component_ids_ : ndarray of shape (n_components,)
        Permanent names: positions may change as data arrive, these do not.
    cluster_ids_ : ndarray of shape (n_clusters,)
        Permanent names of the clusters, in the order of the columns of ``predict_proba``. From 0 after a first fit; when data
        arrive, a name lives on where most of its samples are.
    cluster_lineage_ : list of ClusterRecord
        Which clusters were born, split, merged or died after the first fit.
    elbo_ : float
        Evidence lower bound on all data seen.
    mixture_ : MixtureModel
        All of the above as one frozen value.
    hierarchy_ : Hierarchy
        Tree of components; ``predict(X, level=k)`` cuts it into k clusters. Only with grouping.
    quality_ : ndarray of shape (n_clusters,)
        Log odds, in nats, that each cluster is one of its own beside that which it would be joined with next: 0 is undecided,
        4.6 a hundred to one, infinite for a single cluster. Only with grouping.
    layers_ : list of Layer
        A handful of partitions that are clearer than others, from fine to coarse, each with its strength. Only with grouping.
    lineage_ : list of MoveRecord
        Every accepted birth, merge and deletion.
    history_ : list of LapRecord
    n_features_in_ : int
    feature_names_in_ : ndarray of str, if the data had column names

    Examples
    --------
    >>> import numpy as np
    >>> from diva import DPMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.1, size=(200, 2)) for c in (-1, 0, 1)])
    >>> model = DPMixture(random_state=0).fit(X)
    >>> model.n_components_
    3
    >>> model.predict([[1.0, 1.0]]) == model.predict([[0.9, 1.1]])
    array([ True])
    """

    covariance_type: str
    random_state: Any
    mixture_: MixtureModel
    hierarchy_: Hierarchy | None

    if TYPE_CHECKING:  # made by `takes`

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    @property
    def options(self) -> MixtureOptions:
        """What a fit needs to know."""
        return values_of(self, MixtureOptions)

    # --- fitting

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002  # scikit-learn's signature
        """Fit the mixture to data, forgetting any fit before.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), memmap, or re-iterable of such batches
            Batches must come in the same order each time they are iterated. Several processes are given the same data, or a
            `diva.distributed.Shard` of them each.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Only with an array.
        """
        check_parameters(self)
        warm = values_of(self, FitParameters).warm_start and hasattr(self, "mixture_")
        source = self._source(X, sample_weight, reset=not warm)
        rng = make_generator(self.random_state)
        measured = measure(source)
        if warm:
            before = self._checked_start(measured)
            start = replace(before, state=before.state.forgetting_data(), history=(), lineage=())
            return self._fit_from(start, source, measured, rng, named_after=before)
        return self._fit_from(None, source, measured, rng)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Go on with new data; the first call is a fit.

        Data of earlier calls count in full, through their statistics, and are not needed again. Components keep their ids; new
        ones are born where the mixture describes the new data badly. The prior stays that of the first data. ``labels_`` are
        those of ``X``.
        """
        if not hasattr(self, "mixture_"):
            return self.fit(X, y, sample_weight)
        check_parameters(self)
        source = self._source(X, sample_weight, reset=False)
        measured = measure(source)
        before = self._checked_start(measured)  # the prior and its standardization stay
        rng = make_generator(self.random_state, before.next_lap)
        return self._fit_from(before, source, measured, rng, named_after=before)

    def fit_clusters(self, X: Any, labels: Any, sample_weight: Any = None) -> Self:
        """Fit components inside clusters that are known already, for example from a classifier.

        Every cluster gets a mixture of its own, with as many components as its data ask for; together they are one mixture,
        whose clusters are the given ones, numbered anew by falling size.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        labels : array-like of int, shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
        """
        check_parameters(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        labels = np.asarray(labels)
        if labels.shape != (len(X),):
            raise ValueError(f"labels should have shape ({len(X)},), one cluster for each sample, got {labels.shape}.")
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise ValueError("labels should name a cluster for each sample, got NaN or infinity among them.")
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        rng = make_generator(self.random_state)
        measured = measure(ArrayBatches(X, weights, self.options.batch_size))
        base = first_component(measured, self.options).with_next_id(0)  # only its prior is used
        with _explaining_singular():
            return self._store(fit_within_clusters(base, {}, X, labels, weights, rng))

    def regroup(self, walk: Walk, *, keep_clusters: bool = False) -> Self:
        """Group the components by another walk between them, for example that of augmented samples.

        Clusters are named anew, from 0 on by falling mass.

        Parameters
        ----------
        walk : Walk
            Responsibilities, as ``predict_proba(X, level="component")`` gives them, of samples before and after a move.
        keep_clusters : bool, default=False
            Keep the clusters as they are and only build their tree anew.
        """
        check_is_fitted(self)
        mixture = self.mixture_
        if walk.n_components != mixture.n_components:
            raise ValueError(f"The walk is between {walk.n_components} components, the mixture has {mixture.n_components}.")
        if keep_clusters:
            hierarchy = group_as(walk, mixture.cluster_of_component())
        else:
            hierarchy = group(walk, self.options.resolution, make_generator(self.random_state))
        return self._store(Fitted(mixture.with_hierarchy(hierarchy), self.component_labels_))

    def _fit_from(
        self,
        start: MixtureModel | None,
        source: Iterable[Rows],
        measured: Measurement,
        rng: np.random.Generator,
        named_after: MixtureModel | None = None,
    ) -> Self:
        """Run laps from a start, or from the best of several."""
        on_lap = _print_lap if values_of(self, FitParameters).verbose and is_main() else None
        try:
            with _explaining_singular():
                if start is not None:
                    fitted = fit_from(start, source, measured.n_rows, rng, on_lap=on_lap)
                elif (n_features := len(measured.lowest)) == self.n_features_in_:
                    fitted = fit_first(source, measured, self.options, rng, on_lap)
                else:
                    raise DataChangedError(f"The source had {self.n_features_in_} features at first and has {n_features} now.")
        except KeyboardInterrupt:
            if not hasattr(self, "mixture_"):
                raise
            warnings.warn("The fit was interrupted early; the model is as before.", InterruptedFitWarning, stacklevel=3)
            return self
        if fitted.unfinished:
            warnings.warn(
                f"The fit stopped after max_laps={self.options.max_laps} laps before it had converged. "
                "Raise max_laps, or tol if this is good enough.",
                ConvergenceWarning,
                stacklevel=3,
            )
        if named_after is not None:
            fitted = fitted._replace(model=fitted.model.named_after(named_after, rng))
        return self._store(fitted)

    def _checked_start(self, measured: Measurement) -> MixtureModel:
        """The mixture as it is, if it can go on with some data."""
        fitted = self.mixture_.state.family.covariance_type
        if self.options.covariance_type not in ("auto", fitted):
            raise ValueError(
                f"The components were fitted with covariance_type={fitted!r} and not {self.options.covariance_type!r}. "
                "Set it back, or fit anew with warm_start=False."
            )
        measured.check_within_reach_of(self.mixture_.standardization)
        return replace(self.mixture_, options=replace(self.options, covariance_type=fitted))

    def _store(self, fitted: Fitted) -> Self:
        """Set the fitted attributes."""
        self.mixture_ = mixture = fitted.model
        self.n_components_, self.n_clusters_ = mixture.n_components, mixture.n_clusters
        self.component_ids_, self.cluster_ids_ = mixture.component_ids, mixture.cluster_ids
        self.weights_, self.means_, self.covariances_ = mixture.weights, mixture.means, mixture.covariances
        self.elbo_ = mixture.elbo
        self.hierarchy_ = mixture.hierarchy
        self.quality_ = None if mixture.hierarchy is None else mixture.hierarchy.separations()
        self.layers_ = [] if mixture.hierarchy is None else mixture.hierarchy.layers()
        self.history_: list[LapRecord] = list(mixture.history)
        self.lineage_: list[MoveRecord] = list(mixture.lineage)
        self.cluster_lineage_ = list(mixture.cluster_lineage)
        self.component_labels_ = fitted.labels
        self.labels_ = mixture.label_of_component()[fitted.labels]
        return self

    # --- using

    def predict(self, X: Any, level: Level | None = None, *, reject: bool = False) -> NDArray[np.int64]:
        """Most probable cluster of each sample.

        Parameters
        ----------
        X : as in ``fit``
        level : {"cluster", "component"} or int, optional
            "component" for the fine level, a number to cut the hierarchy into so many clusters. Clusters by default.
        reject : bool, default=False
            Answer -1, no cluster, for outliers: samples that are so far from all components that of all samples seen about
            one would be by chance.

        Returns
        -------
        array of int, shape (n_samples,)
            Permanent ids of clusters; at other levels, positions.
        """
        check_is_fitted(self)
        source = self._source(X, reset=False)
        labels = self.mixture_.predict(source, level)
        if reject:
            labels[self.mixture_.tail_probability(source) < self.mixture_.outlier_level] = -1
        return labels

    def outlier_scores(self, X: Any) -> NDArray[np.float64]:
        """How far out each sample is, from 0 to 1: the share of samples of the mixture that are denser, (n_samples,)."""
        check_is_fitted(self)
        return 1.0 - self.mixture_.tail_probability(self._source(X, reset=False))

    def predict_proba(self, X: Any, level: Level | None = None) -> NDArray[np.float64]:
        """Probability of each cluster for each sample, (n_samples, n_clusters)."""
        check_is_fitted(self)
        return self.mixture_.predict_proba(self._source(X, reset=False), level)

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Log density of each sample, all parameters integrated out.

        A mixture of Student t distributions; what weight the sticks leave goes to the prior's, for clusters not seen yet.
        """
        check_is_fitted(self)
        return self.mixture_.score_samples(self._source(X, reset=False))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002  # scikit-learn's signature
        """Mean log density of the samples."""
        return float(self.score_samples(X).mean())

    def sample(
        self, n_samples: int = 1, *, component: int | None = None, cluster: int | None = None, random_state: Any = None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw new samples.

        Parameters
        ----------
        n_samples : int
        component, cluster : int, optional
            Draw only from this one.
        random_state : int, RandomState or None
            The estimator's own by default.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        labels : ndarray of shape (n_samples,)
            Cluster of each draw.
        """
        check_is_fitted(self)
        rng = check_random_state(self.random_state if random_state is None else random_state)
        return self.mixture_.sample(n_samples, rng, component=component, cluster=cluster)

    # --- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file; ``diva.load`` reads it back."""
        check_is_fitted(self)
        document, tensors = self.mixture_.to_archive()
        document["params"] = {name: plain(value) for name, value in self.get_params().items()}
        if self.covariance_type != "auto":
            document["params"]["covariance_type"] = document["family"]
        document["feature_names"] = [str(n) for n in getattr(self, "feature_names_in_", ())]
        tensors["component_labels"] = torch.from_numpy(self.component_labels_)
        write_archive(path, "DPMixture", document, tensors)

    @classmethod
    def from_archive(cls, archive: Archive) -> Self:
        """Rebuild a model; raises KeyError, TypeError or ValueError if the contents do not fit together."""
        document = archive.document
        mixture = MixtureModel.from_archive(document, archive.tensors)
        model = cls(**document["params"])
        check_parameters(model)
        model.n_features_in_ = mixture.standardization.n_features
        if names := document["feature_names"]:
            if len(names) != model.n_features_in_ or not all(isinstance(name, str) for name in names):
                raise ValueError("there should be one name for each feature")
            model.feature_names_in_ = np.array(names, dtype=object)
        labels = archive.tensors["component_labels"].numpy()
        check_component_labels(labels, mixture.n_components)
        return cls._store(model, Fitted(mixture, labels))

    # --- data and parameters

    def _source(self, X: Any, sample_weight: Any = None, *, reset: bool) -> Iterable[Rows]:
        """Validated batches of X."""
        if isinstance(X, Shard):
            own = self._source(X.rows, sample_weight, reset=reset)
            if isinstance(own, ArrayBatches):
                return ShardBatches(own.in_batches_of, own.n_rows)
            return ShardBatches(lambda _: own)
        if is_batch_source(X):
            if sample_weight is not None:
                raise ValueError("sample_weight needs one array of samples; with a source of batches it is not supported.")
            source = ReiterableBatches(X)
            first = next((rows.values for rows in source), None)
            if first is None:
                raise ValueError("Expected at least one batch with at least one sample, got none.")
            self._check_head(first, reset)
            return source
        if isinstance(X, torch.Tensor):
            X = to_numpy(X)
        if isinstance(X, np.memmap) and X.ndim == 2 and X.dtype in (np.float32, np.float64) and len(X):
            self._check_head(X, reset)  # the rest is checked batch by batch, without pulling the file into memory
        else:
            X = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=not reset)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return ArrayBatches(X, sample_weight, self.options.batch_size)

    def _check_head(self, X: NDArray[Any], reset: bool) -> None:
        validate_data(self, np.array(X[:1]), reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False)


@contextmanager
def _explaining_singular() -> Iterator[None]:
    try:
        yield
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise ValueError(
            "A covariance matrix is singular: features that others determine are lost in rounding. Rescale sample_weight to a "
            'smaller sum, raise covariance_scale, leave such features out, or set covariance_type="diag".'
        ) from error


def _print_lap(record: LapRecord) -> None:
    done = ", ".join(f"{n} {name}" for name in ("births", "merges", "deletes") if (n := getattr(record, name)))
    print(f"lap {record.lap:3d}  K {record.n_components:3d}  bound per sample {record.elbo_per_sample:.5f}  {done}")
