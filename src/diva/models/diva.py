"""DIVA: the scikit-learn face of the whole."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from diva.checks import plain_param, resolve_device
from diva.data import Samples, Scaling
from diva.data.opening import check_range, check_shape, open_samples, scaling_for
from diva.data.preparation import Preparation, PreparedSource, fit_preparation
from diva.data.samples import FARTHEST
from diva.exceptions import InterruptedFitWarning, ModelFileError, TrainingError
from diva.mixture.estimator import DPMixture, Level
from diva.mixture.moves import MoveRecord
from diva.mixture.saving import record_from_plain
from diva.models.building import (
    RECIPE_PARAMETERS,
    flushed_denormals,
    learning_from,
    make_learner,
    make_recipe,
    make_vae,
    make_views,
    seed_of,
)
from diva.models.incremental import (
    CALIBRATION_SAMPLES,
    course_with_all,
    course_with_new,
    encoder_moments,
    fresh_samples,
    last_mixture,
    make_further_learner,
    place,
    typical_scores,
)
from diva.models.novelty import Doubt, familiarity
from diva.models.parameters import check_params
from diva.models.recipes import Recipe, recipe_from_plain
from diva.models.stream_memory import BIRTH_SHARE, MOST_BATCHES, BatchRecord, Stream, Verdict, Window
from diva.networks.vae import VAE
from diva.partition.grouping import Hierarchy
from diva.runs.archive import Archive, write_archive
from diva.runs.folder import RunFolder, fingerprint, learner_from_archive, parts_with
from diva.training.augmentation import Views
from diva.training.clustering import teach
from diva.training.encode import Codes, decode, encode, subset
from diva.training.loop import Course, EpochRecord, Learner, fit_epochs
from diva.training.replay import Memory, Reservoir, can_rest, last_layer
from diva.version import __version__

Callback = Callable[["DIVA", EpochRecord], Any]


class DIVA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Deep clustering that finds the number of clusters by itself.

    A variational auto-encoder learns codes of the samples, a Dirichlet process mixture of the codes is its prior, and births
    and merges change the number of components while both learn. Components that views of a sample wander between are grouped
    into clusters; at the end, samples whose views agree teach the encoder to see the clusters more sharply.

    Parameters
    ----------
    preset : {"auto", "images", "features", "sensors", "paper"}, default="auto"
        Where the parameters that are None come from. "auto" takes "images" for images and "features" for rows of numbers;
        "paper" is Algorithm 1 to the letter, with the paper's hyper-parameters.
    image_shape : (height, width) or (height, width, channels), optional
        Shape of the images if they come as flat rows.
    tfidf : bool, default=False
        Whether rows are counts of words, to be turned into tf-idf of unit length first.
    pca : int, optional
        Principal axes to reduce rows to first.
    latent_dim : int, optional
        Length of a code.
    hidden_sizes : tuple of int, optional
        Layers of the networks for rows of numbers; (500, 500), or (500, 500, 2000) as in the paper.
    encoder, decoder : nn.Module, optional
        Networks of your own, both or none. The encoder returns (mean, log_var), each (n, latent_dim).
    n_epochs : int, optional
        Passes over the data in all; by default at least 15, and more for small data.
    warmup : float, optional
        Share of the epochs before the first mixture, with a standard normal prior.
    sharpening : float, optional
        Share of the epochs at the end, with confident samples as labels.
    batch_size : int, optional
        Samples in a step of the optimizer.
    learning_rate, weight_decay : float, optional
        Of the optimizer, Adam.
    reconstruction : {"mse", "nll"}, optional
        Squared error, or a Gaussian likelihood whose variance is learnt.
    kl_weight : float or "auto", optional
        Weight of the KL term beside the mean squared error. "auto" calibrates it to the data.
    assignment : {"soft", "hard"}, optional
        Whether the KL term weighs all components or takes the most probable one.
    concentration : float, optional
        Of the Dirichlet process: more of it expects more components.
    covariance_scale : float, optional
        Expected variance of a component, as a share of the variance of the codes.
    covariance_type : {"full", "diag"}, optional
        Of the mixture that is left at the end.
    n_laps : int, optional
        Laps of the mixture after an epoch.
    max_components : int, optional
        Most components the mixture may have.
    augmentation : {"auto", "affine", "affine+flip", "photo", "mask", None} or callable, default="auto"
        How samples may be moved and stay of their kind: "affine" turns, shears, zooms and shifts images, "affine+flip"
        mirrors them as well, "photo" mirrors them, changes their light and moves them less far, "mask" leaves features of
        rows out. A callable takes a batch as the network sees it (images: channels first, from -1 to 1) and a
        torch.Generator, and returns a batch of the same shape.
    n_views : int, optional
        Views that vote on where a sample belongs.
    grouping : {"auto", "walk", None}, default="auto"
        None makes every component a cluster.
    resolution : float or "auto", optional
        Of the grouping.
    early_stopping : int, optional
        Epochs without a better bound, on the validation data if there are any, after which the coupled phase ends.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the fit before, on data that take the place of those before: old ones and new ones
        together. Clusters and components keep their ids.
    adapt : {"auto", True, False}, default="auto"
        Whether ``partial_fit`` lets the networks learn. "auto": when there are enough samples of no known kind; the mixture
        always goes on.
    further_epochs : int, default=10
        Passes over the data when networks go on learning.
    replay : {"draws", "reservoir", None}, default="draws"
        What stands in for data that are gone when networks learn in ``partial_fit``: draws of the mixture, decoded, and
        statistics that keep old codes in place; a few real samples; or nothing.
    reservoir : int, default=100
        Real samples to keep for that, chosen at random from all that were seen; only with ``replay="reservoir"``.
    run_dir : str or path-like, optional
        Folder for checkpoints, history and the fitted model.
    checkpoint_every : int, default=1
        Epochs between two checkpoints.
    resume : bool, default=False
        Whether ``fit`` goes on from the last checkpoint in ``run_dir``, if there is one.
    callbacks : sequence of callables, default=()
        Called as ``callback(model, record)`` after every epoch; training ends early if one returns True. If a callback has
        a method ``on_step``, that is called as ``on_step(step, n_steps)`` after every step inside an epoch.
    device : str, default="auto"
        As torch names it.
    random_state : int, RandomState or None, default=None
        Same seed, data, machine and number of threads: same numbers, bit for bit. On small data (fewer than 131,072 numbers) on
        any number of threads.
    verbose : bool, default=False
        Print a line for every epoch.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each sample, by its permanent id.
    component_labels_ : ndarray of shape (n_samples,)
        Component of the mixture, the fine level.
    n_clusters_, n_components_ : int
    mixture_ : DPMixture
        The mixture of the codes.
    vae_ : VAE
    hierarchy_ : Hierarchy or None
        Tree of components; ``predict(X, level=k)`` cuts it into k clusters.
    cluster_ids_ : ndarray of shape (n_clusters,)
        Permanent names of the clusters, in the order of the columns of ``predict_proba``; from 0 after a first fit.
    component_ids_ : ndarray of shape (n_components,)
        Permanent names of the components, by position.
    cluster_lineage_ : list of ClusterRecord
        Which clusters were born, split, merged or died after the first fit.
    lineage_ : list of MoveRecord
        Every birth, merge and deletion: those while training with their epoch, then those of the final mixture.
    batches_ : list of BatchRecord
        What each fit or partial fit did, with the share of novel samples.
    novelty_threshold_ : float
        Samples that ``score_samples`` puts below are of no known kind.
    history_ : list of EpochRecord
    recipe_ : Recipe
        What the parameters came to.
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

    mixture_: DPMixture
    vae_: VAE
    _scaling: Scaling
    _item_shape: tuple[int, ...]
    _preparation: Preparation | None
    _stream: Stream
    lineage_: list[MoveRecord]

    def __init__(
        self,
        preset: str = "auto",
        *,
        image_shape: tuple[int, ...] | None = None,
        tfidf: bool = False,
        pca: int | None = None,
        latent_dim: int | None = None,
        hidden_sizes: tuple[int, ...] | None = None,
        encoder: nn.Module | None = None,
        decoder: nn.Module | None = None,
        n_epochs: int | None = None,
        warmup: float | None = None,
        sharpening: float | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        reconstruction: str | None = None,
        kl_weight: float | Literal["auto"] | None = None,
        assignment: str | None = None,
        concentration: float | None = None,
        covariance_scale: float | None = None,
        covariance_type: str | None = None,
        n_laps: int | None = None,
        max_components: int | None = None,
        augmentation: str | Views | None = "auto",
        n_views: int | None = None,
        grouping: str | None = "auto",
        resolution: float | Literal["auto"] | None = None,
        early_stopping: int | None = None,
        warm_start: bool = False,
        adapt: bool | Literal["auto"] = "auto",
        further_epochs: int = 10,
        replay: str | None = "draws",
        reservoir: int = 100,
        run_dir: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.preset = preset
        self.image_shape = image_shape
        self.tfidf = tfidf
        self.pca = pca
        self.latent_dim = latent_dim
        self.hidden_sizes = hidden_sizes
        self.encoder = encoder
        self.decoder = decoder
        self.n_epochs = n_epochs
        self.warmup = warmup
        self.sharpening = sharpening
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.reconstruction = reconstruction
        self.kl_weight = kl_weight
        self.assignment = assignment
        self.concentration = concentration
        self.covariance_scale = covariance_scale
        self.covariance_type = covariance_type
        self.n_laps = n_laps
        self.max_components = max_components
        self.augmentation = augmentation
        self.n_views = n_views
        self.grouping = grouping
        self.resolution = resolution
        self.early_stopping = early_stopping
        self.warm_start = warm_start
        self.adapt = adapt
        self.further_epochs = further_epochs
        self.replay = replay
        self.reservoir = reservoir
        self.run_dir = run_dir
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.callbacks = callbacks
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # --- fitting

    def fit(self, X: Any, y: Any = None, *, validation: Any = None) -> Self:
        """Learn codes and clusters of samples, forgetting any fit before.

        Parameters
        ----------
        X : array-like of shape (n, d), (n, h, w) or (n, h, w, c), or what holds one
            Also memmap, torch Tensor or Dataset, pandas, polars or Arrow table, scipy sparse matrix, Hugging Face dataset,
            AnnData; and the path of a .npy, .npz, .csv, .parquet or IDX file, or of a folder of images.
        y : ignored
        validation : like X, optional
            Samples that are not learnt from; the bound on them is in ``history_`` and decides about early stopping.
        """
        check_params(self)
        before = dict(vars(self))
        try:
            return self._fit(X, validation)
        except BaseException:  # a fit that fails leaves the model as it was
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X: Any, validation: Any) -> Self:
        started = time.perf_counter()
        folder = None if self.run_dir is None else RunFolder(Path(self.run_dir))
        goes_on = bool(self.warm_start) and hasattr(self, "mixture_")
        n_moves = len(self.lineage_) if goes_on else 0
        if not goes_on:
            self._stream = Stream()
            source = open_samples(self, X, reset=True)
            self._item_shape = source.item_shape
            self._preparation = fit_preparation(source, tfidf=bool(self.tfidf), n_axes=self.pca)
            if self._preparation is not None:
                source = PreparedSource(source, self._preparation)
            self._scaling = scaling_for(source, self.image_shape)
        samples = self._samples(X) if goes_on else Samples(source, self._scaling)
        held_out = None if validation is None else self._samples(validation)
        with learning_from(samples):
            memory = None
            if goes_on:
                course, memory = course_with_all(self, samples, held_out)
            else:
                self.recipe_ = recipe = make_recipe(self, self._scaling.is_image).for_samples(len(samples))
                views = make_views(self, recipe, samples)
                course = Course(recipe, samples, held_out, views, self._device(), self.early_stopping, teach)
            with folder.locked() if folder else nullcontext():  # after all that can be wrong with parameters and data
                learner = make_further_learner(self, course) if goes_on else make_learner(self, course)
                if folder is not None:
                    self._open_run(folder, learner, course)
                self._learn(learner, course, folder)
                self._finish(learner, course, memory)
                self._remember(samples)
                self._stream = replace(self._stream, window=Window.empty(), anchor=None)
                self._close_batch(samples, None, learnt=True, n_seen=len(samples), n_moves=n_moves, started=started)
                if folder is not None:
                    self.save(folder.model)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on with new samples, the old ones gone; the first call is a fit.

        Clusters and components keep their ids. New components are born where the mixture describes new samples badly, and
        find their place among the clusters. When there are enough samples of no known kind, the networks learn as well:
        from the latest samples, and from what the model remembers of those that are gone. ``labels_`` are those of ``X``.
        """
        if not hasattr(self, "mixture_"):
            return self.fit(X)
        check_params(self)
        before = dict(vars(self))
        try:
            return self._partial_fit(X)
        except BaseException:  # a fit that fails leaves the model as it was
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _partial_fit(self, X: Any) -> Self:
        started = time.perf_counter()
        samples, stream, n_moves = self._samples(X), self._stream, len(self.lineage_)
        with learning_from(samples):
            novel = self._novel_among(samples)
            verdict: Verdict = stream.window.judge(samples.source, novel)
            learns = self.adapt is True or (self.adapt == "auto" and verdict == "learn")
            learns = learns and (self.replay != "draws" or stream.moments is not None)
            if learns:
                course, memory = course_with_new(self, samples)
                learner = make_further_learner(self, course)
                self._learn(learner, course, None)
                self._finish(learner, course, memory, len(samples))
                self._remember(fresh_samples(course), n_gone=stream.n_seen - len(stream.window))
            else:
                before = self.mixture_
                clean, self.mixture_ = place(self, samples, births=float(novel.mean()) >= BIRTH_SHARE)
                self.lineage_ = [*self._training_lineage, *self.mixture_.lineage_]
                self._publish(clean)
            self._stream = replace(self._stream, window=Window.empty(), anchor=None)
            if not learns and self.adapt == "auto" and verdict == "wait":
                waiting = stream.window.after(samples.source, novel)
                self._stream = replace(self._stream, window=waiting, anchor=stream.anchor or before)
            n_seen = stream.n_seen + len(samples)
            self._close_batch(samples, novel, learnt=learns, n_seen=n_seen, n_moves=n_moves, started=started)
        return self

    def _remember(self, samples: Samples, n_gone: int = 0) -> None:
        """Measure, on samples that were learnt from, what is novel, and what lets the encoder learn later."""
        rng = np.random.default_rng([seed_of(self, self._stream.n_batches), 2])
        some = subset(samples, CALIBRATION_SAMPLES, rng)
        codes = encode(self.vae_, some, self._device())
        share = len(samples) / (len(samples) + n_gone)
        doubt = Doubt.of(codes)
        if n_gone and self._stream.doubt is not None:
            doubt = self._stream.doubt.joined(doubt, share)
        self.novelty_threshold_, typical_score = typical_scores(self.mixture_, doubt, codes, n_gone, rng)
        moments = encoder_moments(self, some, share, rng)
        self._stream = replace(self._stream, moments=moments, doubt=doubt, typical_score=typical_score)

    def _close_batch(
        self, samples: Samples, novel: NDArray[np.bool_] | None, *, learnt: bool, n_seen: int, n_moves: int, started: float
    ) -> None:
        """Write the batch's record, and remember what has to be remembered of its samples."""
        stream = self._stream
        rng = np.random.default_rng([seed_of(self, stream.n_batches), 1])
        reservoir = stream.reservoir if novel is not None else Reservoir.empty()
        if self.replay == "reservoir":
            reservoir = reservoir.after(samples.source, int(self.reservoir), rng)
        moves = [record.move for record in self.lineage_[n_moves:]]
        record = BatchRecord(
            batch=stream.n_batches,
            n_samples=len(samples),
            novel_share=None if novel is None else float(novel.mean()),
            learnt=learnt,
            births=moves.count("birth"),
            merges=moves.count("merge"),
            deletes=moves.count("delete"),
            n_components=self.n_components_,
            n_clusters=self.n_clusters_,
            seconds=time.perf_counter() - started,
        )
        self._stream = replace(
            stream,
            n_seen=n_seen,
            n_batches=stream.n_batches + 1,
            reservoir=reservoir,
            records=(*stream.records, record)[-MOST_BATCHES:],
        )
        self.batches_ = list(self._stream.records)

    def _learn(self, learner: Learner, course: Course, folder: RunFolder | None) -> None:
        """Run the schedule, with checkpoints; an interrupted run keeps what it has if it can be used."""
        config, mark = self._config(course.recipe), self._mark(course) if folder else ""

        def on_epoch(record: EpochRecord) -> bool:
            if folder is not None and (
                learner.epoch % self.checkpoint_every == 0 or learner.position >= course.schedule.n_epochs
            ):
                folder.write_checkpoint(learner, config, mark)
            if self.verbose:
                print(describe_epoch(record, course.schedule.n_epochs), flush=True)
            self.history_ = learner.history
            answers = [callback(self, record) for callback in self.callbacks]
            return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)

        watchers = [callback.on_step for callback in self.callbacks if hasattr(callback, "on_step")]

        def on_step(step: int, n_steps: int) -> None:
            for watcher in watchers:
                watcher(step, n_steps)

        try:
            fit_epochs(learner, course, on_epoch, on_step)
        except TrainingError as error:
            kept = f" The last good checkpoint is {folder.checkpoint}." if folder and folder.checkpoint.exists() else ""
            raise TrainingError(f"{error}{kept}") from error
        except KeyboardInterrupt:
            if learner.next_component_id == 0:
                raise  # there is no mixture yet
            how = f"set resume=True to go on from {folder.checkpoint}" if folder else "set run_dir to be able to go on"
            warnings.warn(
                f"The fit was interrupted after {learner.epoch} epochs and keeps what it had reached; {how}.",
                InterruptedFitWarning,
                stacklevel=4,
            )

    def _finish(self, learner: Learner, course: Course, memory: Memory | None = None, n_own: int | None = None) -> None:
        """The mixture that is left at the end, and what follows from it.

        Parameters
        ----------
        learner, course
        memory : Memory, optional
            Samples of the past: components and clusters keep their names by where these are now.
        n_own : int, optional
            Only the first so many samples are those of the caller.
        """
        clean, self.mixture_ = last_mixture(learner, course, self.mixture_ if learner.goes_on else None, memory)
        self.vae_ = learner.vae.eval()
        self._variance = learner.variance
        self._training_lineage = learner.lineage
        self.history_ = learner.history
        self.lineage_ = [*learner.lineage, *self.mixture_.lineage_]
        self._publish(clean[:n_own])

    def _publish(self, clean: torch.Tensor) -> None:
        """Set the fitted attributes that follow from the mixture and the codes of the samples."""
        self._set_labels(self.mixture_.predict(clean.numpy(), level="component"))

    def _set_labels(self, component_labels: NDArray[np.int64]) -> None:
        mixture = self.mixture_
        self.hierarchy_: Hierarchy | None = mixture.hierarchy_
        self.n_components_ = mixture.n_components_
        self.n_clusters_ = mixture.n_clusters_
        self.component_ids_, self.cluster_ids_ = mixture.component_ids_, mixture.cluster_ids_
        self.cluster_lineage_ = mixture.cluster_lineage_
        self.component_labels_ = component_labels
        self.labels_ = mixture._names(None)[component_labels]

    # --- using

    def predict(self, X: Any, level: Level | None = None, *, reject: bool = False) -> NDArray[np.int64]:
        """Most probable cluster of each sample.

        Parameters
        ----------
        X : as in ``fit``
        level : {"cluster", "component"} or int, optional
            "component" for the fine level, a number to cut the hierarchy into so many clusters. Clusters by default.
        reject : bool, default=False
            Answer -1, none of these, for samples of no known kind.

        Returns
        -------
        array of int, shape (n_samples,)
            Permanent ids of clusters; at other levels, positions.
        """
        check_is_fitted(self)
        samples = self._samples(X)
        with flushed_denormals():
            labels = self.mixture_.predict(encode(self.vae_, samples, self._device()).mean.numpy(), level)
            return np.where(self._novel_among(samples), -1, labels) if reject else labels

    def predict_proba(self, X: Any, level: Level | None = None) -> NDArray[np.float64]:
        """Probability of each cluster for each sample, (n_samples, n_clusters)."""
        check_is_fitted(self)
        return self.mixture_.predict_proba(self._encode(X), level)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Codes of samples, the means of q(z|x), (n_samples, latent_dim)."""
        check_is_fitted(self)
        return self._encode(X)

    def inverse_transform(self, Z: Any) -> NDArray[np.float32]:
        """Decode codes (n, latent_dim) to samples, in the shape and units of the data."""
        check_is_fitted(self)
        Z = check_array(Z, dtype=np.float64)
        if Z.shape[1] != self.recipe_.latent_dim:
            raise ValueError(
                f"Z should have shape (n_samples, {self.recipe_.latent_dim}), but got {Z.shape}. "
                "Pass codes, for example those of transform."
            )
        if float(np.abs(Z).max()) > FARTHEST:
            raise ValueError(
                f"Z holds numbers beyond {FARTHEST:g}, too large for codes. Pass codes, for example those of transform."
            )
        return self._decode(Z)

    def _decode(self, codes: NDArray[Any]) -> NDArray[np.float32]:
        """Decode codes as they are, however far out."""
        Z = np.clip(codes, -FARTHEST, FARTHEST).astype(np.float32)
        shape = self._item_shape if self._preparation is None else self._scaling.input_shape
        with flushed_denormals():
            values = decode(self.vae_, torch.from_numpy(Z), self._scaling, shape, self._device())
        return values if self._preparation is None else self._preparation.undo(values)

    def reconstruct(self, X: Any) -> NDArray[np.float32]:
        """What the decoder makes of the codes of samples, in the shape and units of the data."""
        check_is_fitted(self)
        return self._decode(self._encode(X))

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Log density of the codes of samples, less for codes the encoder is unsure of: low means of no known kind."""
        check_is_fitted(self)
        with flushed_denormals():
            return self._scores(self._samples(X))

    def _codes_and_scores(self, X: Any) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """What ``transform`` and ``score_samples`` give, for one look at the samples."""
        with flushed_denormals():
            codes = encode(self.vae_, self._samples(X), self._device())
            return codes.mean.numpy(), self._familiarity(codes)

    def is_novel(self, X: Any) -> NDArray[np.bool_]:
        """Whether samples are of no known kind: less likely than all but 1 in 100 of the samples learnt from."""
        check_is_fitted(self)
        with flushed_denormals():
            return self._novel_among(self._samples(X))

    def _novel_among(self, samples: Samples) -> NDArray[np.bool_]:
        novel: NDArray[np.bool_] = self._scores(samples) < self.novelty_threshold_
        return novel

    def _scores(self, samples: Samples) -> NDArray[np.float64]:
        return self._familiarity(encode(self.vae_, samples, self._device()))

    def _familiarity(self, codes: Codes) -> NDArray[np.float64]:
        assert self._stream.doubt is not None
        return familiarity(self.mixture_, self._stream.doubt, codes)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of ``score_samples``."""
        return float(self.score_samples(X).mean())

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
        check_is_fitted(self)
        if random_state is None:
            random_state = self.random_state
        codes, labels = self.mixture_.sample(
            n_samples, component=component, cluster=cluster, random_state=check_random_state(random_state)
        )
        return self._decode(codes), labels

    # --- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file; ``diva.load`` reads it back.

        Networks of your own are not written, only their weights: pass them to ``load``.
        """
        check_is_fitted(self)
        mixture, mixture_tensors = self.mixture_._to_archive()
        params = self.get_params(deep=False)
        document = {
            "params": {name: plain_param(value) for name, value in params.items()} | {"callbacks": []},
            "own_networks": self.encoder is not None,
            "own_views": callable(self.augmentation),
            "recipe": asdict(self.recipe_),
            "input_shape": list(self._scaling.input_shape),
            "channels_last": self._scaling.channels_last,
            "item_shape": list(self._item_shape),
            "variance": self._variance,
            "feature_names": [str(n) for n in getattr(self, "feature_names_in_", ())],
            "history": [asdict(r) for r in self.history_],
            "training_lineage": [asdict(r) for r in self._training_lineage],
            "novelty_threshold": self.novelty_threshold_,
            "mixture": mixture,
        }
        document["stream"], stream = self._stream.to_archive()
        tensors = {f"stream.{name}": value for name, value in stream.items()}
        tensors |= {f"vae.{name}": value for name, value in self.vae_.state_dict().items()}
        tensors |= {f"mixture.{name}": value for name, value in mixture_tensors.items()}
        if self._preparation is not None:
            tensors |= {f"preparation.{name}": value for name, value in self._preparation.to_tensors().items()}
        tensors |= {"scaling.offset": self._scaling.offset, "scaling.unit": self._scaling.unit}
        tensors["component_labels"] = torch.from_numpy(self.component_labels_)
        write_archive(path, "DIVA", document, tensors)

    @classmethod
    def _from_archive(cls, archive: Archive, encoder: nn.Module | None = None, decoder: nn.Module | None = None) -> Self:
        """Rebuild a model; raises KeyError, TypeError or ValueError if the contents do not fit together."""
        document, tensors = archive.document, archive.tensors
        if not isinstance(document["params"], dict):
            raise TypeError("parameters should be an object")
        model = cls(**_with_tuples(document["params"]))
        if set(document["params"]) != set(model.get_params(deep=False)):
            raise ValueError("parameters are missing")
        if document["own_networks"] and (encoder is None or decoder is None):
            raise ValueError("it was fitted with networks of your own: pass them to load as encoder= and decoder=")
        if not document["own_networks"] and (encoder is not None or decoder is not None):
            raise ValueError("it was fitted with networks of diva: load it without encoder and decoder")
        model.encoder, model.decoder = encoder, decoder
        check_params(model)
        model.recipe_ = recipe_from_plain(document["recipe"])
        check_params(cls(**{name: getattr(model.recipe_, name) for name in RECIPE_PARAMETERS}))
        model._scaling = Scaling(
            tuple(document["input_shape"]),
            bool(document["channels_last"]),
            tensors["scaling.offset"],
            tensors["scaling.unit"],
        )
        model._item_shape = tuple(document["item_shape"])
        if type(document["channels_last"]) is not bool or type(document["own_networks"]) is not bool:
            raise TypeError("flags should be true or false")
        if not all(type(n) is int for n in (*model._scaling.input_shape, *model._item_shape)):
            raise TypeError("sizes should be whole numbers")
        model._variance = float(document["variance"])
        if not model._variance > 0 or min(model._item_shape, default=0) < 1:
            raise ValueError("sizes and variance should be positive")
        model._scaling.check()
        if not all(isinstance(document[name], list) for name in ("feature_names", "history", "training_lineage")):
            raise TypeError("names and records should be lists")
        n_features = math.prod(model._item_shape)
        steps = parts_with(tensors, "preparation.")
        model._preparation = Preparation(**steps) if steps else None
        if model._preparation is not None:
            model._preparation.check(n_features)
        n_prepared = n_features if model._preparation is None else model._preparation.n_features_out(n_features)
        if n_prepared != model._scaling.n_numbers:
            raise ValueError("samples and network input have different sizes")
        model.n_features_in_ = n_features
        if document["feature_names"]:
            if len(document["feature_names"]) != n_features or not all(isinstance(n, str) for n in document["feature_names"]):
                raise ValueError("there should be one name for each feature")
            model.feature_names_in_ = np.array(document["feature_names"], dtype=object)
        model.vae_ = make_vae(model, model.recipe_, model._scaling.input_shape)
        model.vae_.load_state_dict(parts_with(tensors, "vae."))
        model.vae_.to(model._device()).eval()
        model.mixture_ = DPMixture._from_archive(Archive("DPMixture", document["mixture"], parts_with(tensors, "mixture.")))
        if model.mixture_.n_features_in_ != model.recipe_.latent_dim:
            raise ValueError("mixture and encoder have codes of different length")
        model.novelty_threshold_ = float(document["novelty_threshold"])
        kept_shape = model._item_shape if model._preparation is None else model._scaling.input_shape
        n_weights = last_layer(model.vae_).shape[1] if can_rest(model.vae_) else 0
        model._stream = Stream.from_archive(
            document["stream"], parts_with(tensors, "stream."), kept_shape, n_weights, model.recipe_.latent_dim
        )
        model.batches_ = list(model._stream.records)
        model.history_ = [record_from_plain(EpochRecord, r) for r in document["history"]]
        model._training_lineage = [record_from_plain(MoveRecord, r) for r in document["training_lineage"]]
        model.lineage_ = [*model._training_lineage, *model.mixture_.lineage_]
        labels = tensors["component_labels"].numpy()
        if (
            labels.dtype != np.int64
            or labels.ndim != 1
            or (labels.size and not 0 <= labels.min() <= labels.max() < model.mixture_.n_components_)
        ):
            raise ValueError("labels name components that do not exist")
        model._set_labels(labels)
        return model

    # --- parts

    @property
    def _n_features_out(self) -> int:
        """Length of a code, for scikit-learn's feature names."""
        return self.recipe_.latent_dim

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "mixture_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]  # networks compute in float32
        return tags

    def _encode(self, X: Any) -> NDArray[np.float32]:
        with flushed_denormals():
            codes: NDArray[np.float32] = encode(self.vae_, self._samples(X), self._device()).mean.numpy()
        return codes

    def _samples(self, X: Any) -> Samples:
        """New samples, checked against those of the fit."""
        source = open_samples(self, X, reset=False)
        check_shape(source, self._item_shape, self._scaling)
        check_range(source, self._scaling)
        if self._preparation is not None:
            source = PreparedSource(source, self._preparation)
        return Samples(source, self._scaling)

    def _open_run(self, folder: RunFolder, learner: Learner, course: Course) -> None:
        """Start the run's folder, or go on from its checkpoint."""
        config = self._config(course.recipe)
        if self.resume and folder.checkpoint.exists():
            archive = folder.read_checkpoint(config, self._mark(course))
            try:
                learner_from_archive(archive, learner, course.recipe.learning_rate, course.device)
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                raise ModelFileError(
                    f"{folder.checkpoint} does not fit this model ({error}). Choose another run_dir to start anew."
                ) from error
            folder.write_history(learner)
        else:
            folder.start(config)

    def _config(self, recipe: Recipe) -> dict[str, Any]:
        """What must be the same for a run to go on: parameters and what they came to, not where and how it is watched."""
        params = {name: plain_param(value) for name, value in self.get_params(deep=False).items() if name not in WATCHING}
        own = {"own encoder and decoder": self.encoder is not None, "own augmentation": callable(self.augmentation)}
        return {"version": __version__, "params": params, "recipe": asdict(recipe), **own}

    def _mark(self, course: Course) -> str:
        """What tells the data of one run from those of another."""
        held_out = "" if course.validation is None else fingerprint(course.validation.source)
        return fingerprint(course.samples.source) + held_out

    def _device(self) -> torch.device:
        return resolve_device(self.device)


WATCHING = ("run_dir", "checkpoint_every", "resume", "callbacks", "verbose", "device")


def describe_epoch(record: EpochRecord, n_epochs: int) -> str:
    """One line for people."""
    counts = {"births": record.births, "merges": record.merges, "deletions": record.deletes}
    moves = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
    terms = f"reconstruction {record.reconstruction:.2f}  kl {record.kl:.2f}"
    if record.sharpening is not None:
        terms += f"  sharpening {record.sharpening:.3f}"
    progress = f"epoch {record.epoch + 1:3d}/{n_epochs}  {record.phase:10s}"
    size = f"K {record.n_components}" if record.n_clusters is None else f"clusters {record.n_clusters}"
    return f"{progress}  {terms}  {size}  {record.seconds:.1f} s  {moves}".rstrip()


def _with_tuples(params: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in params.items()}
