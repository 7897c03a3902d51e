"""DPMixture: the scikit-learn face of the mixture, useful without any network."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from diva.assignment import Assignment
from diva.data import (
    ArrayBatches,
    ReiterableBatches,
    Rows,
    ShardBatches,
    Source,
    SourceBatches,
    TableSchema,
    is_batch_source,
    open_columns,
    to_numpy,
)
from diva.data.columns import schema_of
from diva.data.formats.objects import check_frame
from diva.data.pipeline import Preparation, axes_of
from diva.data.sources import ArraySource
from diva.data.validate import FiniteCheck, open_samples
from diva.distributed import Shard, from_main, is_main
from diva.exceptions import DataChangedError, InterruptedFitWarning
from diva.explain import Explained
from diva.mixture.editing import EditableClusters
from diva.mixture.fitting import Fitted, explaining_singular, fit_from, fit_within_clusters
from diva.mixture.laps import LapRecord
from diva.mixture.model import NO_TREE, Level, MixtureModel, check_component_labels
from diva.mixture.moves import MoveRecord
from diva.mixture.options import (
    MIXTURE_PARAMETERS,
    ColumnParameters,
    FitParameters,
    MixtureOptions,
    RowParameters,
    Wishes,
    make_generator,
)
from diva.mixture.search import first_component, fit_first
from diva.mixture.standardize import Measurement, measure
from diva.parameters import check_parameters, declared_in, plain, takes, values_of
from diva.partition.hierarchy import Hierarchy, group, group_as
from diva.partition.walk import Walk
from diva.progress import progress_of
from diva.runs.archive import Archive, parts_with, write_archive


@takes(*MIXTURE_PARAMETERS)
class DPMixture(EditableClusters, Explained, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Dirichlet process mixture of Gaussians that finds the number of components by itself.

    Memoized online variational Bayes with births, merges and deletions, each accepted only if the evidence lower bound on all
    data rises. Works on arrays, memory-mapped files and any re-iterable of batches; memory does not grow with the data.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each sample of the last fit, by its permanent id; with ``reject``, -1 for outliers.
    component_labels_ : ndarray of shape (n_samples,)
        Component of each sample, a position in ``means_``.
    n_components_, n_clusters_ : int
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
    covariances_ : ndarray of shape (n_components, n_features) or (n_components, n_features, n_features)
        With ``pca``, of the principal components.
    component_ids_ : ndarray of shape (n_components,)
        Permanent names: positions may change as data arrive, these do not.
    cluster_ids_ : ndarray of shape (n_clusters,)
        Permanent names of the clusters, in the order of the columns of ``predict_proba``. From 0 after a first fit; when data
        arrive, a name lives on where most of its samples are.
    cluster_names_ : dict of int to str
        Names given with ``rename``, by id.
    cluster_lineage_ : list of ClusterRecord
        Which clusters were born, split, merged, renamed or died after the first fit.
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
    schema_ : TableSchema or None
        What the columns of a table are used as, with ``columns="auto"``.

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
    preparation_: Preparation | None
    hierarchy_: Hierarchy | None
    schema_: TableSchema | None = None

    if TYPE_CHECKING:  # made by `takes`

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    @property
    def options(self) -> MixtureOptions:
        """What a fit needs to know."""
        return values_of(self, MixtureOptions)

    def validate_parameters(self) -> None:
        """Raise ValueError, naming what was expected, at the first parameter that makes no sense."""
        check_parameters(self)
        wishes = values_of(self, Wishes)
        wishes.check()
        if wishes.any() and self.options.grouping is None:
            raise ValueError(NO_TREE)

    # --- fitting

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002  # scikit-learn's signature
        """Fit the mixture to data, forgetting any fit before.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), memmap, path, or re-iterable of such batches
            Batches must come in the same order each time they are iterated. A path is that of a .npy, .npz, .csv or .parquet
            file. Several processes are given the same data, or a `diva.distributed.Shard` of them each.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Only with an array.
        """
        self.validate_parameters()
        as_before = dict(vars(self))
        warm = values_of(self, FitParameters).warm_start and hasattr(self, "mixture_")
        source = self._source(X, sample_weight, reset=not warm)
        rng = make_generator(self.random_state)
        measured = measure(source)
        if warm:
            before = self._checked_start(measured)
            start = replace(before, state=before.state.forgetting_data(), history=(), lineage=())
            return self._fit_from(start, source, measured, rng, named_after=before)
        return self._fit_from(None, source, measured, rng, as_before=as_before)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Go on with new data; the first call is a fit.

        Data of earlier calls count in full, through their statistics, and are not needed again. Components keep their ids; new
        ones are born where the mixture describes the new data badly. The prior stays that of the first data. ``labels_`` are
        those of ``X``.
        """
        if not hasattr(self, "mixture_"):
            return self.fit(X, y, sample_weight)
        self.validate_parameters()
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
        self.preparation_ = self._fit_preparation(ArrayBatches(X, weights, self.options.batch_size))
        X = X if self.preparation_ is None else self.preparation_.apply(X, X.dtype.type)
        measured = measure(ArrayBatches(X, weights, self.options.batch_size))
        base = first_component(measured, self.options).with_next_id(0)  # only its prior is used
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
        as_before: dict[str, Any] | None = None,
    ) -> Self:
        """Run laps from a start, or from the best of several; after an early interrupt, attributes are as before."""
        verbose = values_of(self, FitParameters).verbose and is_main()
        try:
            with explaining_singular(), progress_of(verbose) as progress:

                def on_lap(record: LapRecord) -> None:
                    progress.say(_describe_lap(record))

                if start is not None:
                    fitted = fit_from(start, source, measured.n_rows, rng, on_lap=on_lap)
                elif (n_features := len(measured.lowest)) == self._n_prepared:
                    fitted = fit_first(source, measured, self.options, rng, on_lap)
                else:
                    raise DataChangedError(f"The source had {self._n_prepared} features at first and has {n_features} now.")
        except KeyboardInterrupt:
            if not hasattr(self, "mixture_"):
                raise
            self.__dict__.update(as_before or {})
            warnings.warn("The fit was interrupted early; the model is as before.", InterruptedFitWarning, stacklevel=3)
            return self
        if fitted.unfinished:
            warnings.warn(
                f"The fit stopped after max_laps={self.options.max_laps} laps before it had converged. "
                "Raise max_laps, or tol if this is good enough.",
                ConvergenceWarning,
                stacklevel=3,
            )
        fitted = fitted._replace(model=fitted.model.granting(values_of(self, Wishes), fitted.model.masses))
        if named_after is not None:
            fitted = fitted._replace(model=fitted.model.named_after(named_after, rng))
        if start is None:
            some = measured.sample
            fitted = fitted._replace(model=fitted.model.calibrated(some.values, some.weights))
        return self._store(fitted, source)

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

    def _store(self, fitted: Fitted, source: Iterable[Rows] | None = None) -> Self:
        """Set the fitted attributes; outliers are looked for in the samples of the fit, where they are at hand."""
        self.mixture_ = mixture = fitted.model
        self.n_components_, self.n_clusters_ = mixture.n_components, mixture.n_clusters
        self.component_ids_, self.cluster_ids_ = mixture.component_ids, mixture.cluster_ids
        self.weights_, self.means_, self.covariances_ = mixture.weights, self._to_raw(mixture.means), mixture.covariances
        self.elbo_ = mixture.elbo
        self.hierarchy_ = mixture.hierarchy
        self.quality_ = None if mixture.hierarchy is None else mixture.hierarchy.separations()
        self.layers_ = [] if mixture.hierarchy is None else mixture.hierarchy.layers()
        self.history_: list[LapRecord] = list(mixture.history)
        self.lineage_: list[MoveRecord] = list(mixture.lineage)
        self.cluster_lineage_ = list(mixture.cluster_lineage)
        self.component_labels_ = fitted.labels
        self.labels_ = mixture.label_of_component()[fitted.labels]
        if source is not None and values_of(self, FitParameters).reject:
            self.labels_[self._is_outlier(source)] = -1
        return self

    def _adopt(self, mixture: MixtureModel) -> None:
        self._store(Fitted(mixture, self.component_labels_))

    # --- using

    def predict(self, X: Any, level: Level | None = None, *, reject: bool | None = None) -> NDArray[np.int64]:
        """Most probable cluster of each sample.

        Parameters
        ----------
        X : as in ``fit``
        level : {"cluster", "component"} or int, optional
            "component" for the fine level, a number to cut the hierarchy into so many clusters. Clusters by default.
        reject : bool, optional
            Answer -1, no cluster, for outliers: samples that are so far from all components that of all samples seen about
            one would be by chance. What the parameter of the same name says by default.

        Returns
        -------
        array of int, shape (n_samples,)
            Permanent ids of clusters; at other levels, positions.
        """
        check_is_fitted(self)
        source = self._source(X, reset=False)
        labels = self.mixture_.predict(source, level)
        if values_of(self, FitParameters).reject if reject is None else reject:
            labels[self._is_outlier(source)] = -1
        return labels

    def is_novel(self, X: Any) -> NDArray[np.bool_]:
        """Whether samples are unlike all that is known: outliers, for which ``predict(X, reject=True)`` answers -1."""
        check_is_fitted(self)
        return self._is_outlier(self._source(X, reset=False))

    def _is_outlier(self, source: Iterable[Rows]) -> NDArray[np.bool_]:
        return np.asarray(self.mixture_.tail_probability(source) < self.mixture_.outlier_level)

    def assign(self, X: Any) -> Assignment:
        """All that the mixture says about samples: clusters, probabilities, log densities, outliers; and where they lie."""
        check_is_fitted(self)
        rows = list(self._source(X, reset=False))  # looked at several times
        mixture, scores = self.mixture_, self.mixture_.score_samples(rows)
        components = mixture.predict(rows, "component")
        return Assignment(
            codes=mixture.coordinates(rows),
            probabilities=mixture.calibrated_proba(rows),
            positions=mixture.cluster_of_component()[components],
            components=components,
            scores=scores,
            novel=mixture.tail_probability_of(scores) < mixture.outlier_level,
        )

    def partial_fit_assign(self, X: Any) -> Assignment:
        """Go on as ``partial_fit`` does and say where the samples belong now; ``novel`` is what the model before called so."""
        novel = self.is_novel(X)
        return replace(self.partial_fit(X).assign(X), novel=novel)

    def outlier_scores(self, X: Any) -> NDArray[np.float64]:
        """How far out each sample is, from 0 to 1: the share of samples of the mixture that are denser, (n_samples,)."""
        check_is_fitted(self)
        return 1.0 - self.mixture_.tail_probability(self._source(X, reset=False))

    def predict_proba(self, X: Any, level: Level | None = None) -> NDArray[np.float64]:
        """Probability of each cluster for each sample, (n_samples, n_clusters), as sure as nearest neighbours are alike."""
        check_is_fitted(self)
        return self.mixture_.calibrated_proba(self._source(X, reset=False), level)

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
        codes, labels = self.mixture_.sample(n_samples, rng, component=component, cluster=cluster)
        return self._to_raw(codes), labels

    # --- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file; ``diva.load`` reads it back."""
        check_is_fitted(self)
        document, tensors = self.mixture_.to_archive()
        params = {name: plain(value) for name, value in self.get_params().items()}
        document["columns"] = {name: params.pop(name) for name in declared_in(ColumnParameters)}  # not of the mixture itself
        document["params"] = params
        if self.covariance_type != "auto":
            document["params"]["covariance_type"] = document["family"]
        document["feature_names"] = [str(n) for n in getattr(self, "feature_names_in_", ())]
        if self.schema_ is not None:
            document["schema"] = self.schema_.to_dict()
        tensors["component_labels"] = torch.from_numpy(self.component_labels_)
        if (outliers := self.labels_ < 0).any():
            tensors["outliers"] = torch.from_numpy(np.flatnonzero(outliers))
        if self.preparation_ is not None:
            tensors |= {f"preparation.{name}": value for name, value in self.preparation_.to_tensors().items()}
        write_archive(path, "DPMixture", document, tensors)

    @classmethod
    def from_archive(cls, archive: Archive) -> Self:
        """Rebuild a model; raises KeyError, TypeError or ValueError if the contents do not fit together."""
        document = archive.document
        mixture = MixtureModel.from_archive(document, archive.tensors)
        model = cls(**document["params"], **document.get("columns", {}))
        if set(document["params"]) != set(model.get_params()) - set(declared_in(ColumnParameters)):
            raise ValueError("parameters are missing")
        model.validate_parameters()
        model.n_features_in_ = mixture.standardization.n_features
        model.preparation_ = None
        if steps := parts_with(archive.tensors, "preparation."):
            model.preparation_ = Preparation(**steps)
            model.n_features_in_ = len(steps["mean"])
            model.preparation_.check(model.n_features_in_)
            if len(steps["axes"]) != mixture.standardization.n_features:
                raise ValueError("the principal axes are not those of the mixture")
        if names := document["feature_names"]:
            if len(names) != model.n_features_in_ or not all(isinstance(name, str) for name in names):
                raise ValueError("there should be one name for each feature")
            model.feature_names_in_ = np.array(names, dtype=object)
        if "schema" in document:
            model.schema_ = TableSchema.from_dict(document["schema"])
            if model.schema_.n_features != model.n_features_in_:
                raise ValueError("columns and mixture have different sizes")
        labels = archive.tensors["component_labels"].numpy()
        check_component_labels(labels, mixture.n_components)
        cls._store(model, Fitted(mixture, labels))
        if (outliers := archive.tensors.get("outliers")) is not None:
            if not set(outliers.flatten().tolist()) <= set(range(len(model.labels_))):
                raise ValueError("there are outliers that are no samples")
            model.labels_[outliers.flatten().long().numpy()] = -1
        return model

    # --- data and parameters

    def _source(self, X: Any, sample_weight: Any = None, *, reset: bool) -> Iterable[Rows]:
        """Validated batches of X, projected on principal axes if asked for; a first fit decides which."""
        source = self._raw_source(X, sample_weight, reset=reset)
        if reset:
            self.preparation_ = self._fit_preparation(source)
        return source if self.preparation_ is None else _Prepared(source, self.preparation_)

    def _fit_preparation(self, source: Iterable[Rows]) -> Preparation | None:
        n_axes = values_of(self, RowParameters).pca
        if n_axes is None:
            return None
        measured = measure(source)  # checks every number
        if n_axes > min(self.n_features_in_, measured.n_rows):
            found = f"{measured.n_rows:,} samples of {self.n_features_in_:,} features"
            raise ValueError(f"pca={n_axes} is more than {found} have axes. Choose a smaller number.")
        mean, axes = from_main(axes_of(source, self.n_features_in_, n_axes))
        return Preparation(mean=mean, axes=axes)

    @property
    def _n_prepared(self) -> int:
        """Numbers in a row that the mixture sees."""
        return self.n_features_in_ if self.preparation_ is None else self.preparation_.n_features_out(self.n_features_in_)

    def _to_raw(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows that the mixture sees in the units of the data."""
        return rows if self.preparation_ is None else self.preparation_.undo(rows.astype(np.float32)).astype(np.float64)

    def _raw_source(self, X: Any, sample_weight: Any, *, reset: bool, is_shard: bool = False) -> Iterable[Rows]:
        if isinstance(X, Shard):
            return self._shard(X, sample_weight, reset)
        if (rows := self._rows_of_table(X, reset, is_shard)) is not None:
            return self._weighted(rows, sample_weight)
        check_frame(X)
        if isinstance(X, Source | str | os.PathLike):
            opened = open_samples(self, X, reset=reset)
            if not isinstance(opened, ArraySource) or opened.values.ndim != 2:
                if sample_weight is not None:
                    raise ValueError("sample_weight needs one array of samples; with a file or a source it is not supported.")
                return SourceBatches(opened, self.options.batch_size)
            X = opened.values
        if is_batch_source(X):
            return self._batches(X, sample_weight, reset)
        if isinstance(X, torch.Tensor):
            X = to_numpy(X)
        if isinstance(X, np.memmap) and X.ndim == 2 and X.dtype in (np.float32, np.float64) and len(X):
            self._check_head(X, reset)  # the rest is checked batch by batch, without pulling the file into memory
        else:
            X = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False)
        return self._weighted(X, sample_weight)

    def _shard(self, X: Shard, sample_weight: Any, reset: bool) -> ShardBatches:
        own = self._raw_source(X.rows, sample_weight, reset=reset, is_shard=True)
        return ShardBatches(own.in_batches_of, own.n_rows) if isinstance(own, ArrayBatches) else ShardBatches(lambda _: own)

    def _batches(self, X: Any, sample_weight: Any, reset: bool) -> ReiterableBatches:
        if sample_weight is not None:
            raise ValueError("sample_weight needs one array of samples; with a source of batches it is not supported.")
        source = ReiterableBatches(X)
        first = next((rows.values for rows in source), None)
        if first is None:
            raise ValueError("Expected at least one batch with at least one sample, got none.")
        self._check_head(first, reset)
        return source

    def _weighted(self, rows: NDArray[Any], sample_weight: Any) -> ArrayBatches:
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        return ArrayBatches(rows, sample_weight, self.options.batch_size)

    def _rows_of_table(self, X: Any, reset: bool, is_shard: bool) -> NDArray[Any] | None:
        """Rows of a table as numbers where columns are given; None if X is none."""
        if reset:
            X = values_of(self, ColumnParameters).open_table(X, is_shard=is_shard)
            if (schema := schema_of(X)) is not self.schema_:
                self.schema_ = schema
        elif self.schema_ is not None:
            X = open_columns(X, schema=self.schema_)
        if self.schema_ is None or not isinstance(X, Source):
            return None
        rows = X.take(np.arange(len(X)))
        FiniteCheck("DPMixture", "The table")(rows)
        if reset:
            self.n_features_in_ = self.schema_.n_features
            self.feature_names_in_ = np.array(self.schema_.feature_names, dtype=object)
        return rows

    def _check_head(self, X: NDArray[Any], reset: bool) -> None:
        validate_data(self, np.array(X[:1]), reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False)


class _Prepared:
    """Batches, each projected on principal axes."""

    def __init__(self, source: Iterable[Rows], preparation: Preparation) -> None:
        self._source, self._preparation = source, preparation

    def __iter__(self) -> Iterator[Rows]:
        for rows in self._source:
            yield replace(rows, values=self._preparation.apply(rows.values, rows.values.dtype.type)) if len(rows) else rows


def _describe_lap(record: LapRecord) -> str:
    done = ", ".join(f"{n} {name}" for name in ("births", "merges", "deletes") if (n := getattr(record, name)))
    return f"lap {record.lap:3d}  K {record.n_components:3d}  bound per sample {record.elbo_per_sample:.5f}  {done}".rstrip()
