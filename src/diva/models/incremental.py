"""How a fitted model goes on: with old and new data together, with new data alone, with networks that learn or that rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data import ArraySource, JoinedSource, PartOfSource, Samples
from diva.mixture.estimator import Carried, DPMixture
from diva.mixture.moves import MoveRecord
from diva.mixture.prior import MixturePrior
from diva.models.building import make_learner, make_views, seed_of
from diva.models.novelty import Doubt, familiarity
from diva.partition.grouping import Walk, neighbour_walk
from diva.training.clustering import (
    DRAWS_EACH,
    extend_clusters,
    fill_clusters,
    fill_more,
    find_clusters,
    find_more,
    go_on,
    new_mixture,
    see,
    teach,
    with_static,
)
from diva.training.encode import Codes, decode, encode
from diva.training.loop import Course, Learner
from diva.training.replay import Memory, Moments, Rehearsal, can_rest, let_rest, measure_moments, recall, remember, repeated

if TYPE_CHECKING:
    from diva.models.diva import DIVA

NOVEL_SHARE = 0.01  # of samples that are not novel, that are called so
CALIBRATION_SAMPLES = 10_000
MAX_DRAWN = 2000  # to see what components that are past wander between


# --- networks that learn


def course_with_all(model: DIVA, samples: Samples, held_out: Samples | None) -> tuple[Course, Memory]:
    """Learn from old and new data together; the surest samples of known kinds tell where old clusters are afterwards."""
    course = _course(model, samples, held_out)
    chosen = np.flatnonzero(model._scores(samples) >= model._stream.typical_score)
    known = replace(samples, source=PartOfSource(samples.source, chosen if len(chosen) else np.arange(len(samples))))
    return course, remember(model.vae_, model.mixture_, known, float(model._stream.n_seen), course.device, gone=False)


def course_with_new(model: DIVA, samples: Samples) -> tuple[Course, Memory | None]:
    """Learn from new samples and those that wait, and from what stands in for old data that are gone."""
    stream, memory = model._stream, None
    rng = np.random.default_rng(seed_of(model, stream.n_batches))
    mass = float(max(stream.n_seen - len(stream.window), 1))
    course = _course(model, samples, None)
    if len(stream.window):
        waiting = replace(samples, source=ArraySource(stream.window.values))
        memory = remember(model.vae_, model.mixture_, waiting, float(len(waiting)), course.device, gone=False)
        course = replace(course, samples=replace(samples, source=JoinedSource([samples.source, waiting.source])))
    if model.replay != "draws":
        return _with_reservoir(model, course, mass, rng)
    assert stream.moments is not None
    before = (stream.anchor or model.mixture_)._naming_from(model.mixture_._state.next_id)
    shape = samples.source.item_shape
    recalled = recall(model.vae_, before, stream.moments, samples.scaling, shape, mass, course.device, rng)
    return replace(course, recall=recalled), memory


def _course(model: DIVA, samples: Samples, held_out: Samples | None) -> Course:
    recipe = model.recipe_.going_on(model.further_epochs)
    views = make_views(model, recipe, samples)
    return Course(recipe, samples, held_out, views, model._device(), model.early_stopping, teach)


def _with_reservoir(model: DIVA, course: Course, mass: float, rng: np.random.Generator) -> tuple[Course, Memory]:
    """Learn from real samples of the past again, repeated, if there are any.

    Without any, decoded draws still show where old components are when all is learnt, but are not learnt from.
    """
    fresh, reservoir = course.samples, model._stream.reservoir
    if not (model.replay == "reservoir" and len(reservoir)):
        z = torch.from_numpy(model.mixture_._draw_each(DRAWS_EACH, rng)[0]).float()
        values = decode(model.vae_, z, fresh.scaling, fresh.source.item_shape, course.device)
        drawn = replace(fresh, source=ArraySource(values))
        return course, remember(model.vae_, model.mixture_, drawn, mass, course.device, gone=True)
    kept = replace(fresh, source=ArraySource(reservoir.values))
    memory = remember(model.vae_, model.mixture_, kept, mass, course.device, gone=True)
    again = repeated(len(memory), round(min(mass, len(fresh))), rng)  # half of what is learnt from at most
    rehearsal = Rehearsal(len(fresh), memory.mean[again], memory.variance[again])
    joined = JoinedSource([fresh.source, PartOfSource(memory.source, again)])
    return replace(course, samples=replace(fresh, source=joined), rehearsal=rehearsal), memory


def fresh_samples(course: Course) -> Samples:
    """Those of a course that are not remembered ones."""
    if course.rehearsal is None:
        return course.samples
    return replace(course.samples, source=PartOfSource(course.samples.source, np.arange(course.rehearsal.first)))


def make_further_learner(model: DIVA, course: Course) -> Learner:
    """A learner that begins with what a model has learnt."""
    before = model.mixture_
    learner = make_learner(model, course, model._stream.n_batches)
    learner.vae.load_state_dict(model.vae_.state_dict())
    if course.recall is not None:
        let_rest(learner.vae)
    learner.variance = model._variance
    learner.epoch, learner.history = len(model.history_), list(model.history_)
    learner.lineage = list(model.lineage_)
    learner.next_component_id, learner.goes_on = before._state.next_id, True
    if not course.recipe.final_refit:  # the prior is the mixture, and stays it
        learner.prior = MixturePrior(before._state, before._frame, course.recipe.assignment)
    return learner


# --- the mixture that is left


def last_mixture(learner: Learner, course: Course, before: DPMixture | None, memory: Memory | None) -> tuple[Tensor, DPMixture]:
    """Codes of the samples of a course, and a mixture of them and of all that is remembered.

    Parameters
    ----------
    learner, course
    before : DPMixture or None
        The mixture of the fit before, after which clusters are named.
    memory : Memory or None
        Samples of the past: components are carried over and clusters keep their names by where these are now.
    """
    moved = None
    if memory is not None:
        moved = encode(learner.vae, replace(course.samples, source=memory.source), course.device).mean.numpy()
    prior = learner.prior
    if not course.recipe.final_refit and isinstance(prior, MixturePrior):
        clean = encode(learner.vae, course.samples, course.device).mean
        mixture = new_mixture(learner, course)._adopt(prior.mixture, prior.frame, clean.numpy())
    elif course.recall is not None:
        codes = see(learner, course)
        clean = codes.clean
        if learner.teacher is None:
            mixture = find_more(codes, learner, course, count_views=False)
        else:
            mixture = fill_more(codes, learner, course)
        mixture.lineage_ = mixture.lineage_[len(course.recall.before.lineage_) :]  # the rest is the learner's already
    else:
        carried = weights = None
        if memory is not None and before is not None and moved is not None:
            carried = Carried(moved, memory.components, memory.weights, before._state.ids, learner.next_component_id)
            if memory.gone:
                fresh = fresh_samples(course)
                course = replace(course, samples=replace(fresh, source=JoinedSource([fresh.source, memory.source])))
                weights = np.concatenate([np.ones(len(fresh)), memory.weights])
        codes = see(learner, course)
        clean = codes.clean
        fitted = find_clusters if learner.teacher is None else fill_clusters
        mixture = fitted(codes, learner, course, weights, carried)
    if before is not None:
        _keep_names(before, mixture, learner, course, memory, moved)
        learner.lineage += _forgotten(before, mixture, learner.lineage)
    return clean, mixture


def _keep_names(
    before: DPMixture,
    mixture: DPMixture,
    learner: Learner,
    course: Course,
    memory: Memory | None,
    moved: NDArray[np.float32] | None,
) -> None:
    """Name clusters after those before, by where remembered samples are now, and draws of what stays in place."""
    where: list[tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float64]]] = []
    if memory is not None and moved is not None:
        where.append((memory.components, moved, memory.weights))
    if course.recall is not None:
        codes, _, weights = course.recall.before._draw_each(DRAWS_EACH, learner.rng)
        where.append((before.predict(codes, level="component"), codes.astype(np.float32), weights))
    components, codes, weights = (np.concatenate(parts) for parts in zip(*where, strict=True))
    now = mixture._groups(None)[mixture.predict(codes, level="component")]
    mixture._rename(before, before._groups(None)[components], now, weights)


def _forgotten(before: DPMixture, after: DPMixture, lineage: Sequence[MoveRecord]) -> list[MoveRecord]:
    """Components that are gone without a move of their own: nothing of what is remembered was theirs."""
    named = {i for record in (*lineage, *after.lineage_) for i in record.parents if i not in record.children}
    lost = sorted(set(before._state.ids) - set(after._state.ids) - named)
    return [MoveRecord("delete", (i,), (), 0.0, (), True) for i in lost]


# --- networks that rest


def place(model: DIVA, samples: Samples, *, births: bool) -> tuple[Tensor, DPMixture]:
    """Codes of new samples, and the mixture, gone on with them; new components find their place among the clusters."""
    before = model.mixture_
    clean = encode(model.vae_, samples, model._device()).mean
    mixture = go_on(before, clean.numpy(), births=births)
    rng = np.random.default_rng(seed_of(model, model._stream.n_batches))
    return clean, extend_clusters(before, mixture, lambda: _walk_after(model, mixture, samples, clean, rng), rng)


def _walk_after(model: DIVA, mixture: DPMixture, samples: Samples, clean: Tensor, rng: np.random.Generator) -> Walk:
    """Views of new samples; samples that are gone take part through draws of the mixture."""
    views = make_views(model, model.recipe_, samples)
    components = rng.choice(mixture.n_components_, min(model._stream.n_seen, MAX_DRAWN), p=mixture.weights_)
    draws = mixture._draw(components, rng).astype(np.float32)
    if views is None:
        z = np.concatenate([clean.numpy(), draws])
        return neighbour_walk(z, mixture.predict_proba(z, level="component"))
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    moved = encode(model.vae_, samples, model._device(), views, generator).mean
    resp, resp_moved = (mixture.predict_proba(z.numpy(), level="component") for z in (clean, moved))
    return with_static(Walk(resp, resp_moved), mixture, draws)


# --- what is remembered of a batch that was learnt from


def typical_scores(
    mixture: DPMixture, doubt: Doubt, codes: Codes, n_gone: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Score below which a sample is novel, and the median: by codes that are not novel, and draws for those gone."""
    scores = [familiarity(mixture, doubt, codes)]
    if n_gone:
        components = rng.choice(mixture.n_components_, min(n_gone, CALIBRATION_SAMPLES), p=mixture.weights_)
        scores.append(mixture.score_samples(mixture._draw(components, rng)))
    novel_below, median = np.quantile(np.concatenate(scores), [NOVEL_SHARE, 0.5])
    return float(novel_below), float(median)


def encoder_moments(model: DIVA, samples: Samples, share: float, rng: np.random.Generator) -> Moments | None:
    """Moments of features that let the encoder learn later; these samples are ``share`` of all."""
    if not can_rest(model.vae_) or model.adapt is False:
        return None
    moments, before = measure_moments(model.vae_, samples, model._device(), rng), model._stream.moments
    return moments if share == 1 or before is None else before.joined(moments, share)
