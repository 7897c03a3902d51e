"""DPMixture: the scikit-learn face of the mixture, useful without any network."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from diva.checks import check_device, is_number, is_whole, plain_param, resolve_device
from diva.data import ArrayBatches, ReiterableBatches, Rows, is_batch_source, to_numpy
from diva.exceptions import ComponentLimitWarning, DataChangedError, InterruptedFitWarning
from diva.mixture.gaussian import NormalGamma, make_family
from diva.mixture.laps import LapRecord, MixtureFit, fit_mixture
from diva.mixture.local import summarize
from diva.mixture.moves import Birth, Delete, Merge, Move, MoveRecord, Shuffle
from diva.mixture.saving import mixture_from_archive, mixture_to_archive, record_from_plain
from diva.mixture.standardize import Frame, FramedBatches, FramedBlock, Measurement, measure
from diva.mixture.state import MixtureState
from diva.mixture.stats import concat
from diva.mixture.sticks import expected_weights, stick_posterior
from diva.partition.grouping import Hierarchy, Walk, group, group_as, neighbour_walk
from diva.partition.matching import ClusterRecord, Naming
from diva.runs.archive import Archive, write_archive
from diva.threads import one_thread, threads_for

Level = Literal["cluster", "component"] | int


@dataclass(frozen=True, eq=False)
class Carried:
    """Components of another mixture, by codes they hold: where to start from when an encoder has moved all codes.

    Attributes
    ----------
    codes : array of shape (m, D)
    components : array of int, shape (m,)
        Position of each code's component in ``ids``.
    weights : array of shape (m,)
        How many samples each code stands for.
    ids : tuple of int
        Names to keep.
    next_id : int
        First name that is free.
    labels : array of int, shape (m,), or None
        Cluster of each code, for ``fit_clusters``.
    """

    codes: NDArray[Any]
    components: NDArray[np.int64]
    weights: NDArray[np.float64]
    ids: tuple[int, ...]
    next_id: int
    labels: NDArray[np.int64] | None = None

    def homes(self) -> NDArray[np.int64]:
        """Cluster in which most of each component is, (K,); -1 for a component without codes."""
        assert self.labels is not None
        table = np.zeros((len(self.ids), int(self.labels.max(initial=-1)) + 1))
        np.add.at(table, (self.components, self.labels), self.weights)
        return np.where(table.sum(1) > 0, table.argmax(1), -1)


class DPMixture(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Dirichlet process mixture of Gaussians that finds the number of components by itself.

    Memoized online variational Bayes with births, merges and deletions, each accepted only if the evidence lower bound on all
    data rises. Works on arrays, memory-mapped files and any re-iterable of batches; memory does not grow with the data.

    Parameters
    ----------
    concentration : float, default=5.0
        Of the Dirichlet process; more of it expects more components.
    covariance_type : {"full", "diag"}, default="full"
        Shape of a component.
    covariance_scale : float, default=0.1
        Expected variance of a component, as a share of the variance of the first data.
    mean_precision : float, default=1e-4
        How many samples the prior mean, that of the first data, is worth.
    degrees_of_freedom : float, optional
        Of the precision; the number of features plus 2 by default.
    max_components : int, default=200
        A guard, not a guess: a fit that reaches it warns.
    max_laps : int, default=100
        Passes over the data at most.
    tol : float, default=1e-4
        The fit has converged when no move is left to try and a lap raises the bound by less than this per sample.
    births, merges, deletes, shuffles : bool, default=True
        Which moves to use; turned off for ablations.
    grouping : {None, "walk"}, default=None
        "walk" groups components that samples wander between into clusters: what a Gaussian mixture cuts into pieces, a curved
        class for instance, becomes one cluster again. None makes every component a cluster.
    resolution : "auto" or float, default="auto"
        Of the grouping; "auto" chooses it by stability, larger values give more clusters.
    batch_size : int, optional
        Rows of one batch of the memo; chosen from the data by default.
    warm_start : bool, default=False
        Whether ``fit`` starts from the components of the fit before.
    device : str, default="cpu"
        Where to compute, as torch names it, or "auto".
    random_state : int, RandomState or None, default=None
        Same seed, data, machine and number of threads: same numbers, bit for bit.
    verbose : bool, default=False
        Print a line for every lap.

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
    hierarchy_ : Hierarchy
        Tree of components; ``predict(X, level=k)`` cuts it into k clusters. Only with grouping.
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

    _state: MixtureState
    _frame: Frame
    hierarchy_: Hierarchy | None
    history_: list[LapRecord]
    lineage_: list[MoveRecord]
    _naming: Naming
    _first_id = 0  # name of the first component; a mixture that follows another one goes on counting

    def __init__(
        self,
        concentration: float = 5.0,
        *,
        covariance_type: str = "full",
        covariance_scale: float = 0.1,
        mean_precision: float = 1e-4,
        degrees_of_freedom: float | None = None,
        max_components: int = 200,
        max_laps: int = 100,
        tol: float = 1e-4,
        births: bool = True,
        merges: bool = True,
        deletes: bool = True,
        shuffles: bool = True,
        grouping: str | None = None,
        resolution: float | Literal["auto"] = "auto",
        batch_size: int | None = None,
        warm_start: bool = False,
        device: str = "cpu",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.concentration = concentration
        self.covariance_type = covariance_type
        self.covariance_scale = covariance_scale
        self.mean_precision = mean_precision
        self.degrees_of_freedom = degrees_of_freedom
        self.max_components = max_components
        self.max_laps = max_laps
        self.tol = tol
        self.births = births
        self.merges = merges
        self.deletes = deletes
        self.shuffles = shuffles
        self.grouping = grouping
        self.resolution = resolution
        self.batch_size = batch_size
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # --- fitting

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the mixture to data, forgetting any fit before.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), memmap, or re-iterable of such batches
            Batches must come in the same order each time they are iterated.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Only with an array.
        """
        self._check_params()
        warm = self.warm_start and hasattr(self, "_state")
        source = self._source(X, sample_weight, reset=not warm)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        measured = measure(source)
        if warm:
            self._check_family()
            measured.check_within_reach_of(self._frame)
            before = copy.copy(self)
            self._run(source, measured.n_rows, self._frame, self._state.forgetting_data(), rng, (), ())
            return self._keep_names(before, rng)
        return self._run(source, measured.n_rows, measured.frame, self._start(measured), rng, (), ())

    def _fit_carried(self, X: NDArray[Any], sample_weight: NDArray[np.float64] | None, carried: Carried) -> Self:
        """Fit anew, starting from components that another mixture had, which keep their ids."""
        self._check_params()
        source = self._source(X, sample_weight, reset=True)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        measured = measure(source)
        init = self._carry(self._start(measured), measured.frame, carried)
        return self._run(source, measured.n_rows, measured.frame, init, rng, (), ())

    def _carry(
        self,
        whole: MixtureState,
        frame: Frame,
        carried: Carried,
        chosen: NDArray[np.int64] | None = None,
        next_id: int | None = None,
    ) -> MixtureState:
        """Components, or some of them, as a place to start from."""
        chosen = np.arange(len(carried.ids)) if chosen is None else chosen
        rows = np.isin(carried.components, chosen)
        z = (torch.from_numpy(carried.codes[rows]).double() - frame.origin) / frame.unit
        member = torch.from_numpy(carried.components[rows][:, None] == chosen)
        stats = summarize(whole.family, z.to(self._device()), member.double(), torch.from_numpy(carried.weights[rows]))
        ids = [carried.ids[k] for k in chosen]
        return MixtureState.carried(whole.family, whole.alpha, stats, ids, carried.next_id if next_id is None else next_id)

    def fit_clusters(self, X: Any, labels: Any, sample_weight: Any = None, *, carried: Carried | None = None) -> Self:
        """Fit components inside clusters that are known already, for example from a classifier.

        Every cluster gets a mixture of its own, with as many components as its data ask for; together they are one mixture,
        whose clusters are the given ones, numbered anew by falling size.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        labels : array-like of int, shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
        carried : Carried, optional
            Components to start from, each in the cluster where most of its codes are.
        """
        self._check_params()
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        labels = np.asarray(labels)
        if labels.shape != (len(X),):
            raise ValueError(f"labels should have shape ({len(X)},), one cluster for each sample, got {labels.shape}.")
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise ValueError("labels should name a cluster for each sample, got NaN or infinity among them.")
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        source = ArrayBatches(X, weights, self.batch_size)
        measured = measure(source)
        whole = self._start(measured)
        homes = np.full(0, -1) if carried is None else carried.homes()
        next_id = whole.ids[0] if carried is None else carried.next_id

        def start(cluster: int, next_id: int) -> MixtureState:
            if carried is not None and (homes == cluster).any():
                return self._carry(whole, measured.frame, carried, np.flatnonzero(homes == cluster), next_id)
            return MixtureState.start(whole.family, whole.alpha, next_id)

        self._frame = measured.frame
        self.history_, self.lineage_ = [], []
        self._fill(X, labels, weights, np.unique(labels), start, next_id, np.zeros(0), rng)
        return self

    def _fit_more_clusters(self, X: NDArray[Any], labels: NDArray[np.int64], homes: NDArray[np.int64]) -> Self:
        """Go on with new data whose clusters are known; the components there are stay in the clusters they are at home in.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        labels : array of int, shape (n_samples,)
        homes : array of int, shape (n_components,)
        """
        rng = np.random.default_rng([check_random_state(self.random_state).randint(2**31), _next_lap(self.history_)])
        before = self._state

        def start(cluster: int, next_id: int) -> MixtureState:
            own = np.flatnonzero(homes == cluster).tolist()
            return before.part(own, next_id) if own else MixtureState.start(before.family, before.alpha, next_id)

        self._fill(X, labels, None, np.union1d(labels, homes), start, before.next_id, before.total.counts.cpu().numpy(), rng)
        return self

    def _fill(
        self,
        X: NDArray[Any],
        labels: NDArray[Any],
        weights: NDArray[np.float64] | None,
        clusters: NDArray[Any],
        start: Callable[[int, int], MixtureState],
        next_id: int,
        old_masses: NDArray[np.float64],
        rng: np.random.Generator,
    ) -> None:
        """Fit a mixture inside every cluster, each from its own start; together they are one."""
        old_ids = self._state.ids if len(old_masses) else ()
        parts: list[MixtureState] = []
        groups: list[int] = []
        first_lap = _next_lap(self.history_)
        history: list[LapRecord] = []
        lineage: list[MoveRecord] = []
        for number, cluster in enumerate(clusters):
            part, chosen = start(cluster, next_id), labels == cluster
            if chosen.any():
                rows = ArrayBatches(X[chosen], None if weights is None else weights[chosen], self.batch_size)
                batches = FramedBatches(rows, self._frame, self._device())
                lap = first_lap + len(history)
                fit = fit_mixture(batches, part, rng, self._moves(), self.max_laps, tol=float(self.tol), first_lap=lap)
                part = fit.state.with_memo_as_past()
                history += [_in_data_units(lap, self._frame) for lap in fit.history]
                lineage += fit.lineage
            next_id = part.next_id
            parts.append(part)
            groups += [number] * part.n_components
        past = concat(part.total for part in parts)
        ids = tuple(i for part in parts for i in part.ids)
        family, alpha = parts[0].family, parts[0].alpha
        state = MixtureState(family, alpha, past, (), past, ids, next_id).in_canonical_order()
        self._state, group_of = state, dict(zip(ids, groups, strict=True))
        self.history_ = [*self.history_, *history][-MOST_LAPS:]
        self.lineage_ = [*self.lineage_, *lineage]
        mass_of = dict(zip(old_ids, old_masses, strict=True))
        gone = np.array([mass_of.get(i, 0.0) for i in state.ids])
        whole = FramedBatches(ArrayBatches(X, weights, self.batch_size), self._frame, self._device())
        self._look_once_more(whole, len(X), gone, rng, np.array([group_of[i] for i in state.ids]))

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
        groups = self._checked_groups(None)
        if walk.n_components != self.n_components_:
            raise ValueError(f"The walk is between {walk.n_components} components, the mixture has {self.n_components_}.")
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        return self._adopt_hierarchy(group_as(walk, groups) if keep_clusters else group(walk, self.resolution, rng))

    def _adopt_hierarchy(self, hierarchy: Hierarchy) -> Self:
        self.hierarchy_ = hierarchy
        self._name_anew()
        return self

    def _start(self, measured: Measurement) -> MixtureState:
        """One component with the prior that the first data give."""
        n_features = len(measured.frame.origin)
        if n_features != self.n_features_in_:
            raise DataChangedError(f"The source had {self.n_features_in_} features at first and has {n_features} now.")
        zeros = torch.zeros(n_features, dtype=torch.float64, device=self._device())
        family = make_family(
            self.covariance_type,
            m0=zeros,
            variance=zeros + float(self.covariance_scale),
            kappa0=float(self.mean_precision),
            nu0=self._check_degrees_of_freedom(n_features),
        )
        return MixtureState.start(family, float(self.concentration), self._first_id)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Go on with new data; the first call is a fit.

        Data of earlier calls count in full, through their statistics, and are not needed again. Components keep their ids; new
        ones are born where the mixture describes the new data badly. The prior stays that of the first data. ``labels_`` are
        those of ``X``.
        """
        if not hasattr(self, "_state"):
            return self.fit(X, y, sample_weight)
        self._check_params()
        self._check_family()
        source = self._source(X, sample_weight, reset=False)
        measured = measure(source)
        measured.check_within_reach_of(self._frame)  # the prior and its frame stay
        rng = np.random.default_rng([check_random_state(self.random_state).randint(2**31), _next_lap(self.history_)])
        before = copy.copy(self)
        self._run(source, measured.n_rows, self._frame, self._state, rng, self.history_, self.lineage_)
        return self._keep_names(before, rng)

    @one_thread()
    def _run(
        self,
        source: Iterable[Rows],
        n_rows: int,
        frame: Frame,
        init: MixtureState,
        rng: np.random.Generator,
        history: Sequence[LapRecord],
        lineage: Sequence[MoveRecord],
    ) -> Self:
        batches = FramedBatches(source, frame, self._device())
        try:
            fit = fit_mixture(
                batches,
                init,
                rng,
                moves=self._moves(),
                max_laps=self.max_laps,
                tol=float(self.tol),
                on_lap=(lambda lap, moves: _print_lap(_in_data_units(lap, frame), moves)) if self.verbose else None,
                first_lap=_next_lap(history),
            )
        except KeyboardInterrupt:  # in the first lap, before anything was learnt
            if not hasattr(self, "_state"):
                raise
            warnings.warn(
                "The fit was interrupted in its first lap; the model is as before.", InterruptedFitWarning, stacklevel=3
            )
            return self
        self._warn(fit)
        self._frame, self._state = frame, fit.state.with_memo_as_past()
        self.history_ = [*history, *(_in_data_units(lap, frame) for lap in fit.history)][-MOST_LAPS:]
        self.lineage_ = [*lineage, *fit.lineage]
        old_masses = fit.state.past.counts.cpu().numpy()
        self._look_once_more(batches, n_rows, old_masses, rng)
        return self

    def _look_once_more(
        self,
        batches: FramedBatches,
        n_rows: int,
        old_masses: NDArray[np.float64],
        rng: np.random.Generator,
        known_groups: NDArray[np.int64] | None = None,
    ) -> None:
        """Label the data with the final mixture; group its components if asked to, or as they are known to belong."""
        walks = self.grouping is not None or known_groups is not None
        labels, points, resps = [], [], []
        past_share = float(old_masses.sum() / self._state.total.counts.sum())
        chance = WALK_SAMPLES * (1.0 - past_share) / n_rows
        for block in batches:
            for z, resp in self._responsibilities(block):
                labels.append(resp.argmax(1).cpu().numpy())
                if walks:
                    drawn = torch.from_numpy(rng.random(len(z)) < chance).to(z.device)
                    points.append(z[drawn].cpu().numpy())
                    resps.append(resp[drawn].cpu().numpy())
        if (n_last := sum(map(len, labels))) != n_rows:
            raise DataChangedError(f"The source had {n_rows} rows when it was measured and {n_last} at last.")
        self.component_labels_ = np.concatenate(labels)
        self.hierarchy_ = None
        if walks:
            if (n_drawn := round(min(WALK_SAMPLES, n_rows / (1.0 - past_share)) * past_share)) > 0:
                # data that are gone take part through draws of the components that remember them
                z = self._draw_codes(n_drawn, old_masses, rng)
                points.append(z.cpu().numpy())
                resps.append(self._state.posterior.responsibilities(z).cpu().numpy())
            walked = np.concatenate(resps)
            walk = neighbour_walk(np.concatenate(points), walked) if self.grouping else Walk(walked, walked)
            self.hierarchy_ = group(walk, self.resolution, rng) if known_groups is None else group_as(walk, known_groups)
        self._name_anew()

    def _name_anew(self) -> None:
        """Number the clusters from 0 on."""
        self._naming = Naming.first(int(self._groups(None).max()) + 1)
        self.cluster_lineage_: list[ClusterRecord] = []
        self._publish()

    def _keep_names(self, before: DPMixture, rng: np.random.Generator) -> Self:
        """Name clusters after those of the mixture before, by where draws of its components belong now."""
        if before._state is self._state:  # interrupted before anything was learnt
            return self
        if _clusters_by_component(before) == _clusters_by_component(self):
            self._naming = replace(before._naming, records=(), batch=before._naming.batch + 1)
            self.cluster_lineage_ = before.cluster_lineage_
            self._publish()
            return self
        codes, components, weights = before._draw_each(DRAWS_EACH, rng)
        then, now = before._groups(None)[components], self._groups(None)[self.predict(codes, level="component")]
        return self._rename(before, then, now, weights)

    def _rename(self, before: DPMixture, then: NDArray[np.int64], now: NDArray[np.int64], weights: NDArray[np.float64]) -> Self:
        """Name clusters after those of the mixture before; samples that were in cluster ``then`` are in ``now``."""
        groups = self._groups(None)
        masses = np.bincount(groups, weights=self._state.total.counts.cpu().numpy())
        overlap = np.zeros((len(before.cluster_ids_), len(masses)))
        np.add.at(overlap, (then, now), weights)
        self._naming = before._naming.after(overlap, masses.tolist(), before._naming.batch + 1)
        self.cluster_lineage_ = [*before.cluster_lineage_, *self._naming.records]
        self._publish()
        return self

    def _naming_from(self, next_id: int) -> Self:
        """A copy whose next component is named so: for a mixture that others have followed."""
        other = copy.copy(self)
        other._state = replace(self._state, next_id=next_id)
        return other

    def _draw_each(
        self, n_each: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """Draw alike from every component.

        Returns
        -------
        codes : array of shape (n_components * n_each, n_features)
        components : array of int
            Position of the component of each draw.
        weights : array
            Samples seen that each draw stands for.
        """
        components = np.repeat(np.arange(self.n_components_), n_each)
        weights = self._state.total.counts.cpu().numpy()[components] / n_each
        return self._draw(components, rng), components, weights

    def _draw(self, components: NDArray[np.int64], rng: Any) -> NDArray[np.float64]:
        """One draw of each component named, in the units of the data."""
        noise = rng.standard_normal((len(components), self.n_features_in_))
        if self.covariances_.ndim == 2:
            deviation = noise * np.sqrt(self.covariances_[components])
        else:
            deviation = np.einsum("nij,nj->ni", np.linalg.cholesky(self.covariances_)[components], noise)
        draws: NDArray[np.float64] = self.means_[components] + deviation
        return draws

    def _publish(self) -> None:
        """Set the fitted attributes that follow from state, frame and hierarchy."""
        state = self._state
        family, total = state.family, state.total
        weights = expected_weights(*stick_posterior(total.counts, state.alpha))[:-1]
        self.n_components_ = state.n_components
        self.component_ids_ = np.array(state.ids)
        self.weights_ = (weights / weights.sum()).cpu().numpy()
        self.means_ = self._frame.leave(family.means(total)).numpy()
        unit = self._frame.unit
        square = unit**2 if isinstance(family, NormalGamma) else torch.outer(unit, unit)
        self.covariances_ = (family.covariances(total).cpu() * square).numpy()
        self.elbo_ = state.elbo - float(total.counts.sum()) * self._frame.log_volume
        self.cluster_ids_ = np.array(self._naming.ids)
        self.n_clusters_ = len(self.cluster_ids_)
        self.labels_ = self._names(None)[self.component_labels_]

    def _moves(self) -> tuple[Move, ...]:
        chosen = (
            (self.births, Birth(max_components=self.max_components)),
            (self.merges, Merge()),
            (self.deletes, Delete()),
            (self.shuffles, Shuffle()),
        )
        return tuple(move for wanted, move in chosen if wanted)

    def _warn(self, fit: MixtureFit) -> None:
        if fit.interrupted:
            warnings.warn(
                f"The fit was interrupted after {len(fit.history)} laps and keeps what it had reached. "
                "To go on, set warm_start=True and fit the same data again.",
                InterruptedFitWarning,
                stacklevel=4,
            )
        elif not fit.converged:
            warnings.warn(
                f"The fit stopped after max_laps={self.max_laps} laps before it had converged. "
                "Raise max_laps, or tol if this is good enough.",
                ConvergenceWarning,
                stacklevel=4,
            )
        if fit.crowded or fit.state.n_components >= self.max_components > 1:
            warnings.warn(
                f"The mixture has reached max_components={self.max_components} and may want more. Raise it, raise "
                "covariance_scale, or check the data for duplicates and extreme values.",
                ComponentLimitWarning,
                stacklevel=4,
            )

    # --- using

    @one_thread()
    def predict(self, X: Any, level: Level | None = None) -> NDArray[np.int64]:
        """Most probable cluster of each sample.

        Parameters
        ----------
        X : as in ``fit``
        level : {"cluster", "component"} or int, optional
            "component" for the fine level, a number to cut the hierarchy into so many clusters. Clusters by default.

        Returns
        -------
        array of int, shape (n_samples,)
            Permanent ids of clusters; at other levels, positions.
        """
        check_is_fitted(self)
        groups = self._names(level)
        labels = [groups[resp.argmax(1).cpu().numpy()] for _, resp in self._assign(X)]
        return np.concatenate(labels)

    @one_thread()
    def predict_proba(self, X: Any, level: Level | None = None) -> NDArray[np.float64]:
        """Probability of each cluster for each sample, (n_samples, n_clusters)."""
        groups = self._checked_groups(level)
        members = torch.nn.functional.one_hot(torch.tensor(groups)).double().to(self._device())
        return np.concatenate([(resp.double() @ members).cpu().numpy() for _, resp in self._assign(X)])

    @one_thread()
    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Log density of each sample, all parameters integrated out.

        A mixture of Student t distributions; what weight the sticks leave goes to the prior's, for kinds not seen yet.
        """
        check_is_fitted(self)
        family, total = self._state.family, self._state.total
        log_weights = expected_weights(*stick_posterior(total.counts, self._state.alpha)).log()
        scores = []
        for block in self._blocks(X):
            for z, _ in block.chunks(self._state.posterior.chunk_rows()):
                z = z.double()
                with threads_for(z.numel()):
                    kinds = [family.log_predictive(stats, z) for stats in (total, family.empty())]
                    log_density = torch.logsumexp(torch.cat(kinds, dim=1) + log_weights, dim=1)
                scores.append(log_density.cpu().numpy())
        log_densities: NDArray[np.float64] = np.concatenate(scores) - self._frame.log_volume
        return log_densities

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of the samples."""
        return float(self.score_samples(X).mean())

    def sample(
        self,
        n_samples: int = 1,
        *,
        component: int | None = None,
        cluster: int | None = None,
        random_state: Any = None,
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
        if not is_whole(n_samples) or n_samples < 1:
            raise ValueError(f"n_samples should be a whole number of at least 1, got {n_samples!r}.")
        rng = check_random_state(self.random_state if random_state is None else random_state)
        names = self._names(None)
        allowed = np.ones(self.n_components_, dtype=bool)
        for name, value, of_component in (
            ("component", component, np.arange(len(names))),
            ("cluster", cluster, names),
        ):
            if value is not None:
                allowed &= of_component == value
                if not (of_component == value).any():
                    raise ValueError(f"{name} should be {_one_of(np.unique(of_component))}, got {value!r}.")
        if not allowed.any():
            raise ValueError(f"Component {component} is not part of cluster {cluster}: give one or the other.")
        weights = np.where(allowed, self.weights_, 0.0)
        drawn = np.repeat(np.arange(len(weights)), rng.multinomial(n_samples, weights / weights.sum()))
        return self._draw(drawn, rng), names[drawn]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file; ``diva.load`` reads it back."""
        check_is_fitted(self)
        write_archive(path, "DPMixture", *self._to_archive())

    def _to_archive(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Take the fitted model apart."""
        document, tensors = mixture_to_archive(self._state, self._frame)
        document |= {
            "params": {name: plain_param(value) for name, value in self.get_params().items()}
            | {"covariance_type": "diag" if isinstance(self._state.family, NormalGamma) else "full"},
            "feature_names": [str(n) for n in getattr(self, "feature_names_in_", ())],
            "hierarchy": None if self.hierarchy_ is None else self.hierarchy_.to_dict(),
            "lineage": [asdict(r) for r in self.lineage_],
            "history": [asdict(r) for r in self.history_],
            "cluster_ids": list(self._naming.ids),
            "next_cluster_id": self._naming.next_id,
            "batch": self._naming.batch,
            "cluster_lineage": [asdict(r) for r in self.cluster_lineage_],
        }
        tensors["component_labels"] = torch.from_numpy(self.component_labels_)
        return document, tensors

    def _adopt(self, state: MixtureState, frame: Frame, codes: NDArray[Any]) -> Self:
        """Become a mixture that was fitted elsewhere, and label codes with it."""
        self.n_features_in_ = state.family.dim
        self._frame, self._state, self.hierarchy_ = frame, state, None
        self.history_, self.lineage_ = [], []
        batches = FramedBatches(ArrayBatches(codes, None, self.batch_size), frame, self._device())
        self._look_once_more(batches, len(codes), np.zeros(state.n_components), np.random.default_rng(0))
        return self

    @classmethod
    def _from_archive(cls, archive: Archive) -> Self:
        """Rebuild a model; raises KeyError, TypeError or ValueError if the contents do not fit together."""
        document = archive.document
        model = cls(**document["params"])
        if set(document["params"]) != set(model.get_params()):
            raise ValueError("parameters are missing")
        model._check_params()
        model._state, model._frame = mixture_from_archive(document, archive.tensors, model._device())
        model._check_family()
        lists = ("feature_names", "lineage", "history", "cluster_ids", "cluster_lineage")
        if not all(isinstance(document[name], list) for name in lists):
            raise TypeError("names and records should be lists")
        model.n_features_in_ = model._state.family.dim
        names = document["feature_names"]
        if names:
            if len(names) != model.n_features_in_ or not all(isinstance(name, str) for name in names):
                raise ValueError("there should be one name for each feature")
            model.feature_names_in_ = np.array(names, dtype=object)
        model.lineage_ = [record_from_plain(MoveRecord, r) for r in document["lineage"]]
        model.history_ = [record_from_plain(LapRecord, r) for r in document["history"]]
        model.hierarchy_ = None if document["hierarchy"] is None else Hierarchy.from_dict(document["hierarchy"])
        model.component_labels_ = archive.tensors["component_labels"].numpy()
        n_components = model._state.n_components
        labels = model.component_labels_
        if (
            labels.ndim != 1
            or labels.dtype != np.int64
            or (labels.size and not 0 <= labels.min() <= labels.max() < n_components)
        ):
            raise ValueError("labels name components that do not exist")
        if model.hierarchy_ is not None and model.hierarchy_.n_components != n_components:
            raise ValueError("the hierarchy is about another number of components")
        model._naming = Naming(tuple(document["cluster_ids"]), document["next_cluster_id"], batch=document["batch"])
        model._naming.check(int(model._groups(None).max()) + 1)
        model.cluster_lineage_ = [record_from_plain(ClusterRecord, r) for r in document["cluster_lineage"]]
        model._publish()
        if not all(np.isfinite(x).all() for x in (model.means_, model.covariances_, model.weights_, model.elbo_)):
            raise ValueError("the statistics are not those of any data")
        return model

    # --- data and parameters

    def _draw_codes(self, n_samples: int, past_counts: NDArray[np.float64], rng: np.random.Generator) -> torch.Tensor:
        """Draws of the components, in the frame and in proportion to the mass that is past."""
        family, total = self._state.family, self._state.total
        chances = past_counts.clip(min=0.0)
        drawn = rng.choice(len(chances), n_samples, p=chances / chances.sum())
        noise = torch.from_numpy(rng.standard_normal((n_samples, family.dim))).to(family.m0.device)
        spread = family.covariances(total)
        deviation: torch.Tensor = (
            noise * spread[drawn].sqrt()
            if spread.ndim == 2
            else (torch.linalg.cholesky(spread)[drawn] @ noise.unsqueeze(-1)).squeeze(-1)
        )
        return family.means(total)[drawn] + deviation

    def _source(self, X: Any, sample_weight: Any = None, *, reset: bool) -> Iterable[Rows]:
        """Validated batches of X."""
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
        return ArrayBatches(X, sample_weight, self.batch_size)

    def _check_head(self, X: NDArray[Any], reset: bool) -> None:
        validate_data(self, np.array(X[:1]), reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False)

    def _blocks(self, X: Any) -> Iterator[FramedBlock]:
        check_is_fitted(self)
        yield from FramedBatches(self._source(X, reset=False), self._frame, self._device())

    def _responsibilities(self, block: FramedBlock) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        posterior = self._state.posterior
        for z, _ in block.chunks(posterior.chunk_rows()):
            with threads_for(z.numel()):
                resp = posterior.responsibilities(z)
            yield z, resp

    def _assign(self, X: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for block in self._blocks(X):
            yield from self._responsibilities(block)

    def _checked_groups(self, level: Level | None) -> NDArray[np.int64]:
        check_is_fitted(self)
        return self._groups(level)

    def _names(self, level: Level | None) -> NDArray[np.int64]:
        """What ``predict`` answers for each component: the permanent id of its cluster, or a position at another level."""
        groups = self._groups(level)
        return self.cluster_ids_[groups] if level in (None, "cluster") else groups

    def _groups(self, level: Level | None) -> NDArray[np.int64]:
        """Cluster of each component at a level."""
        n = self._state.n_components
        if level == "component" or (level in (None, "cluster") and self.hierarchy_ is None):
            return np.arange(n)
        if level in (None, "cluster") and self.hierarchy_ is not None:
            return self.hierarchy_.labels
        if level is None or not is_whole(level):
            raise ValueError(f'level should be "cluster", "component" or a number of clusters, got {level!r}.')
        if self.hierarchy_ is None:
            raise ValueError(f'level={level} needs a hierarchy of components: fit with grouping="walk".')
        if not 1 <= int(level) <= n:
            raise ValueError(f"level should be from 1 to {n}, the number of components, got {level}.")
        return self.hierarchy_.cut(int(level))

    def _device(self) -> torch.device:
        return resolve_device(self.device)

    def _check_degrees_of_freedom(self, n_features: int) -> float | None:
        least = 2.0 if self.covariance_type == "diag" else n_features + 1.0
        if self.degrees_of_freedom is not None and self.degrees_of_freedom <= least:
            raise ValueError(
                f"degrees_of_freedom should be more than {least:g} for {self.covariance_type} covariance and {n_features} "
                f"features, got {self.degrees_of_freedom!r}. Leave it at None for the number of features plus 2."
            )
        return self.degrees_of_freedom

    def _check_family(self) -> None:
        fitted = "diag" if isinstance(self._state.family, NormalGamma) else "full"
        if self.covariance_type != fitted:
            raise ValueError(
                f"The components were fitted with covariance_type={fitted!r} and cannot go on with {self.covariance_type!r}. "
                "Set it back, or fit anew with warm_start=False."
            )

    def _check_params(self) -> None:
        for name in ("concentration", "covariance_scale", "mean_precision", "tol"):
            value = getattr(self, name)
            if not is_number(value) or not (1e-12 <= value <= 1e12 or (value == 0 and name == "tol")):
                raise ValueError(f"{name} should be a positive number from 1e-12 to 1e12, got {value!r}.")
        for name in ("max_components", "max_laps", "batch_size"):
            value = getattr(self, name)
            if not (is_whole(value) and value >= 1) and not (name == "batch_size" and value is None):
                raise ValueError(f"{name} should be a whole number of at least 1, got {value!r}.")
        for name, allowed in (("covariance_type", ("full", "diag")), ("grouping", (None, "walk"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} should be one of {allowed}, got {getattr(self, name)!r}.")
        if self.degrees_of_freedom is not None and not is_number(self.degrees_of_freedom):
            raise ValueError(f"degrees_of_freedom should be a number or None, got {self.degrees_of_freedom!r}.")
        if self.resolution != "auto" and not (is_number(self.resolution) and self.resolution > 0):
            raise ValueError(f'resolution should be "auto" or a positive number, got {self.resolution!r}.')
        for name in ("births", "merges", "deletes", "shuffles", "warm_start", "verbose"):
            if not isinstance(getattr(self, name), bool | np.bool_ | int):
                raise ValueError(f"{name} should be True or False, got {getattr(self, name)!r}.")
        check_random_state(self.random_state)
        check_device(self.device)


WALK_SAMPLES = 10_000
DRAWS_EACH = 64  # of a component, to see where it belongs now
MOST_LAPS = 1000  # of the history that are kept: streams have no end


def _clusters_by_component(mixture: DPMixture) -> dict[int, int]:
    return dict(zip(mixture.component_ids_.tolist(), mixture._groups(None).tolist(), strict=True))


def _next_lap(history: Sequence[LapRecord]) -> int:
    return history[-1].lap + 1 if history else 0


def _one_of(names: NDArray[np.int64]) -> str:
    """For people: a range if there are no gaps."""
    if names[-1] - names[0] == len(names) - 1:
        return f"from {names[0]} to {names[-1]}"
    return "one of " + ", ".join(str(n) for n in names)


def _in_data_units(record: LapRecord, frame: Frame) -> LapRecord:
    """The bound of the data, not of their codes in the frame."""
    mass = record.elbo / record.elbo_per_sample if record.elbo_per_sample else 0.0
    volume = frame.log_volume
    return replace(record, elbo=record.elbo - mass * volume, elbo_per_sample=record.elbo_per_sample - volume)


def _print_lap(record: LapRecord, moves: Sequence[MoveRecord]) -> None:
    done = ", ".join(
        f"{sum(m.move == name for m in moves)} {name}s"
        for name in ("birth", "merge", "delete")
        if any(m.move == name for m in moves)
    )
    print(f"lap {record.lap:3d}  K {record.n_components:3d}  bound per sample {record.elbo_per_sample:.5f}  {done}")
