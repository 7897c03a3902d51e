"""How a fitted DIVA goes on: with old and new data together, or with new data alone; with networks that learn, or without."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.atomic import without_link
from diva.data import ArraySource, JoinedSource, PartOfSource, Samples
from diva.mixture.fitting import continue_fit
from diva.mixture.model import MixtureModel
from diva.mixture.moves import MoveRecord
from diva.mixture.options import Wishes
from diva.mixture.prior import MixturePrior
from diva.models.algorithm1 import Algorithm1
from diva.models.base import Assignment, DeepClusterer, learning_from, seed_of, unchanged_on_failure
from diva.models.clusters import DRAWS_EACH, extend_clusters
from diva.models.config import DIVAConfig, StreamParameters
from diva.models.memory import BIRTH_SHARE, MOST_BATCHES, BatchOutcome, BatchRecord, StreamMemory, Window
from diva.models.novelty import CALIBRATION_SAMPLES, EncoderUncertainty, Novelty
from diva.models.state import DIVAState, Task
from diva.models.view_codes import with_stationary
from diva.networks.vae import VAE
from diva.parameters import values_of
from diva.partition.walk import Walk, neighbour_walk
from diva.training.encode import Codes, decode, encode, subset
from diva.training.replay import (
    ExperienceReplay,
    Reservoir,
    draw_replay,
    freeze_body,
    measure_moments,
    remember,
    repeated,
    trains_last_layer,
)

MAX_DRAWN = 2000  # to see what components of the past share samples with


class IncrementalMixin(DeepClusterer):
    """Warm starts and ``partial_fit`` of DIVA: clusters and components keep their ids, nothing old is forgotten."""

    config_: DIVAConfig
    network_: VAE
    mixture_: MixtureModel
    variance_: float
    lineage_: list[MoveRecord]
    stream_: StreamMemory

    @abstractmethod
    def _make_task(self, config: DIVAConfig, samples: Samples, validation: Samples | None = None) -> Task:
        """What is learnt from samples."""

    @abstractmethod
    def _make_state(self, objective: Algorithm1, seed: int) -> DIVAState:
        """Networks with fresh weights."""

    @abstractmethod
    def _set_labels(self, component_labels: NDArray[np.int64]) -> None:
        """Set the fitted attributes that follow from the mixture."""

    @property
    def stream_parameters(self) -> StreamParameters:
        """How it goes on with new data."""
        return values_of(self, StreamParameters)

    def _scores(self, codes: Codes) -> NDArray[np.float64]:
        assert self.stream_.novelty is not None
        return self.stream_.novelty.scores(self.mixture_, codes)

    def fit(self, X: Any, y: Any = None, *, validation: Any = None) -> Self:  # noqa: D102
        if not (self.stream_parameters.warm_start and self.__sklearn_is_fitted__()):
            return super().fit(X, y, validation=validation)
        self.validate_parameters()
        with unchanged_on_failure(self):
            samples = self._samples(X)
            held_out = None if validation is None else self._samples(validation)
            with learning_from(samples):
                n_moves = len(self.lineage_)
                objective = Algorithm1(self._task_with_all(samples, held_out))
                with self._locked_folder() as folder:
                    identity = self._identity(objective.task.config, samples, held_out) if folder else None
                    state = self._further_state(objective)
                    self._train(state, objective, folder, identity)
                    self._end_training(state, objective)
                    self.stream_ = replace(self.stream_, window=Window.empty(), anchor=None, reservoir=Reservoir.empty())
                    self._close_batch(samples, BatchOutcome(state.started, n_moves, len(samples)))
                    if folder is not None:
                        self.save(without_link(folder.model))
        return self

    fit.__doc__ = DeepClusterer.fit.__doc__

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  # scikit-learn's signature
        """Go on with new samples, the old ones gone; the first call is a fit.

        Clusters and components keep their ids. New components are born where the mixture describes new samples badly, and
        find their place among the clusters. When there are enough novel samples, the networks learn as well: from the latest
        samples, and from what the model remembers of those that are gone. ``labels_`` are those of ``X``.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X)
        self.validate_parameters()
        with unchanged_on_failure(self):
            self._partial_fit(self._samples(X))
        return self

    def partial_fit_assign(self, X: Any) -> Assignment:
        """Go on as ``partial_fit`` does and say where the samples belong now; ``novel`` is what the model before called so.

        Samples are encoded once, unless the networks learnt.
        """
        self._ready()
        self.validate_parameters()
        with unchanged_on_failure(self):
            codes, novel = self._partial_fit(self._samples(X))
            return replace(self._assign(codes), novel=novel)

    def _partial_fit(self, samples: Samples) -> tuple[Codes, NDArray[np.bool_]]:
        started, stream, n_moves = time.perf_counter(), self.stream_, len(self.lineage_)
        asked = self.stream_parameters
        with learning_from(samples):
            codes = self._encode(samples)
            novel = self._scores(codes) < self.novelty_threshold_
            verdict = stream.window.judge(samples.source, novel)
            learns = asked.adapt is True or (asked.adapt == "auto" and verdict == "learn")
            learns = learns and (asked.replay != "draws" or stream.moments is not None) and self.config_.codes != "features"
            if learns:
                objective = Algorithm1(self._task_with_new(samples))
                state = self._further_state(objective)
                self._train(state, objective, None, None)
                self._end_training(state, objective)
            else:
                before = self.mixture_
                mixture = self._extended_mixture(samples, codes.mean, births=float(novel.mean()) >= BIRTH_SHARE)
                self.mixture_ = self._granted(mixture, mixture.masses, before)
                self._set_labels(self.mixture_.predict(codes.mean.numpy(), "component"))
            waiting, anchor = Window.empty(), None
            if not learns and asked.adapt == "auto" and verdict == "wait":
                waiting, anchor = stream.window.after(samples.source, novel), stream.anchor or before
            self.stream_ = replace(self.stream_, window=waiting, anchor=anchor)
            n_seen = stream.n_seen + len(samples)
            self._close_batch(samples, BatchOutcome(started, n_moves, n_seen, learns, novel))
            return self._encode(samples) if learns else codes, novel

    # --- networks that learn

    def _further_task(self, samples: Samples, validation: Samples | None = None) -> Task:
        return self._make_task(self.config_.continued(self.stream_parameters.further_epochs), samples, validation)

    def _task_with_all(self, samples: Samples, validation: Samples | None) -> Task:
        """Learn from old and new data together; the surest samples of known classes tell where old clusters are afterwards."""
        task = self._further_task(samples, validation)
        assert self.stream_.novelty is not None
        chosen = np.flatnonzero(self._scores(self._encode(samples)) >= self.stream_.novelty.typical)
        known = replace(samples, source=PartOfSource(samples.source, chosen if len(chosen) else np.arange(len(samples))))
        past = remember(self.network_, self.mixture_, known, float(self.stream_.n_seen), task.device, gone=False)
        return replace(task, past=past)

    def _task_with_new(self, samples: Samples) -> Task:
        """Learn from new samples and those that wait, and from what stands in for old data that are gone."""
        stream, past = self.stream_, None
        rng = np.random.default_rng(seed_of(self.run_parameters.random_state, stream.n_batches))
        n_gone = stream.n_seen - len(stream.window)
        task = replace(self._further_task(samples), n_own=len(samples), n_gone=n_gone)
        if len(stream.window):
            waiting = replace(samples, source=ArraySource(stream.window.values))
            past = remember(self.network_, self.mixture_, waiting, float(len(waiting)), task.device, gone=False)
            task = replace(task, samples=replace(samples, source=JoinedSource([samples.source, waiting.source])))
        mass = float(max(n_gone, 1))
        if self.stream_parameters.replay != "draws":
            return self._with_reservoir(task, mass, rng)
        assert stream.moments is not None
        before = (stream.anchor or self.mixture_).with_next_id(self.mixture_.state.next_id)
        return replace(task, replay=draw_replay(self.network_, before, stream.moments, samples, mass, rng), past=past)

    def _with_reservoir(self, task: Task, mass: float, rng: np.random.Generator) -> Task:
        """Learn from real samples of the past again, repeated, if there are any.

        Without any, decoded draws still show where old components are when all is learnt, but are not learnt from.
        """
        fresh, reservoir = task.samples, self.stream_.reservoir
        if not (self.stream_parameters.replay == "reservoir" and len(reservoir)):
            z = torch.from_numpy(self.mixture_.draw_each(DRAWS_EACH, rng).codes).float()
            shape = fresh.source.item_shape
            values = decode(self.network_, z, lambda x: fresh.scaling.to_raw(x, shape), task.device)
            drawn = replace(fresh, source=ArraySource(values))
            return replace(task, past=remember(self.network_, self.mixture_, drawn, mass, task.device, gone=True))
        kept = replace(fresh, source=ArraySource(reservoir.values))
        past = remember(self.network_, self.mixture_, kept, mass, task.device, gone=True)
        again = repeated(len(past), round(min(mass, len(fresh))), rng)  # half of what is learnt from at most
        experience = ExperienceReplay(len(fresh), past.mean[again], past.variance[again])
        joined = JoinedSource([fresh.source, PartOfSource(past.source, again)])
        return replace(task, samples=replace(fresh, source=joined), experience=experience, past=past)

    def _further_state(self, objective: Algorithm1) -> DIVAState:
        """A state that begins with what the model has learnt."""
        before, config = self.mixture_, objective.task.config
        state = self._make_state(objective, seed_of(self.run_parameters.random_state, self.stream_.n_batches))
        state.network.load_state_dict(self.network_.state_dict())
        if objective.task.replay is not None:
            freeze_body(state.network)
        state.variance, state.before = self.variance_, before
        state.epoch, state.history, state.lineage = len(self.history_), list(self.history_), list(self.lineage_)
        state.next_component_id = before.state.next_id
        if not config.final_refit:  # the prior is the mixture, and stays it
            state.prior = MixturePrior(before.state, before.standardization, config.assignment)
        return state

    def _granted(self, mixture: MixtureModel, sizes: NDArray[Any], before: MixtureModel | None) -> MixtureModel:
        """A mixture with the clusters that were wished for, named after those of the one before if there is one."""
        wished = mixture.granting(values_of(self, Wishes), sizes)
        if wished is mixture or before is None:
            return wished
        return wished.named_after(before, np.random.default_rng(seed_of(self.run_parameters.random_state)))

    # --- networks that stay as they are

    def _extended_mixture(self, samples: Samples, codes: Tensor, *, births: bool) -> MixtureModel:
        """The mixture, gone on with new samples; new components find their place among the clusters."""
        before = self.mixture_
        mixture = continue_fit(before, codes.numpy(), births=births)
        if self.config_.codes == "features":  # grouped by its own valleys
            return mixture
        rng = np.random.default_rng(seed_of(self.run_parameters.random_state, self.stream_.n_batches))
        return extend_clusters(before, mixture, lambda: self._walk_after(mixture, samples, codes, rng), rng)

    def _walk_after(self, mixture: MixtureModel, samples: Samples, codes: Tensor, rng: np.random.Generator) -> Walk:
        """Augmented views of new samples; samples that are gone take part through draws of the mixture."""
        task = self._make_task(self.config_, samples)
        components = rng.choice(mixture.n_components, min(self.stream_.n_seen, MAX_DRAWN), p=mixture.weights)
        draws = mixture.draw(components, rng).astype(np.float32)
        if task.augmentation is None:
            z = np.concatenate([codes.numpy(), draws])
            return neighbour_walk(z, mixture.predict_proba(z, "component"))
        generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
        views = encode(self.network_, samples, task.device, task.augmentation, generator).mean
        resp, resp_views = (mixture.predict_proba(z.numpy(), "component") for z in (codes, views))
        return with_stationary(Walk(resp, resp_views), mixture, draws)

    # --- what is remembered

    def _remember(self, samples: Samples, n_gone: int) -> None:
        """Measure, on samples that were learnt from, what is novel, and what lets the encoder learn later."""
        stream = self.stream_
        rng = np.random.default_rng([seed_of(self.run_parameters.random_state, stream.n_batches), 2])
        some = subset(samples, CALIBRATION_SAMPLES, rng)
        codes = self._encode(some)
        share = len(samples) / (len(samples) + n_gone)
        uncertainty = EncoderUncertainty.of(codes)
        if n_gone and stream.novelty is not None:
            uncertainty = stream.novelty.uncertainty.joined(uncertainty, share)
        novelty = Novelty.calibrated(self.mixture_, uncertainty, codes, n_gone, rng)
        moments = None
        if trains_last_layer(self.network_) and self.stream_parameters.adapt is not False:
            moments = measure_moments(self.network_, some, self._device(), rng)
            if n_gone and stream.moments is not None:
                moments = stream.moments.joined(moments, share)
        self.stream_ = replace(stream, moments=moments, novelty=novelty)
        self.novelty_threshold_ = novelty.threshold

    def _close_batch(self, samples: Samples, outcome: BatchOutcome) -> None:
        """Write the batch's record, and remember what has to be remembered of its samples."""
        stream, asked = self.stream_, self.stream_parameters
        reservoir = stream.reservoir
        if asked.replay == "reservoir":
            rng = np.random.default_rng([seed_of(self.run_parameters.random_state, stream.n_batches), 1])
            reservoir = reservoir.after(samples.source, int(asked.reservoir), rng)
        moves = [record.move for record in self.lineage_[outcome.n_moves :]]
        record = BatchRecord(
            batch=stream.n_batches,
            n_samples=len(samples),
            novel_share=None if outcome.novel is None else float(outcome.novel.mean()),
            learnt=outcome.learnt,
            births=moves.count("birth"),
            merges=moves.count("merge"),
            deletes=moves.count("delete"),
            n_components=self.mixture_.n_components,
            n_clusters=self.mixture_.n_clusters,
            seconds=time.perf_counter() - outcome.started,
        )
        self.stream_ = replace(
            stream,
            n_seen=outcome.n_seen,
            n_batches=stream.n_batches + 1,
            reservoir=reservoir,
            records=(*stream.records, record)[-MOST_BATCHES:],
        )
        self.batches_ = list(self.stream_.records)
