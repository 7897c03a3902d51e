"""Clusters of samples: a mixture of their codes, whose components are grouped by the walk that augmented views make."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional

from diva.mixture.fitting import continue_fit, fit_codes, fit_within_clusters, start_on
from diva.mixture.model import MixtureModel
from diva.mixture.state import MixtureState
from diva.mixture.warm_start import WarmStart
from diva.partition.hierarchy import extend, group, group_as
from diva.partition.walk import Walk
from diva.training.ensemble import fit_ensemble, mixture_options
from diva.training.loop import Course, Learner
from diva.training.pseudo_labels import Teacher
from diva.training.view_codes import ViewCodes, choose_rows, encode_views, walk_of, with_stationary

Weights: TypeAlias = NDArray[np.float64]

MIXTURE_ROWS = 60_000  # codes that clusters are found on, at most
DRAWS_EACH = 32  # of a component, to see which cluster it is in


def find_clusters(
    codes: ViewCodes, learner: Learner, course: Course, weights: Weights | None = None, warm_start: WarmStart | None = None
) -> MixtureModel:
    """Fit a mixture to codes of samples and views together, then group its components.

    More data carry more components, and finer ones group better: a component that straddles two classes cannot be undone.

    Parameters
    ----------
    codes : ViewCodes
    learner, course
    weights : array of shape (n,), optional
        How many samples each code stands for.
    warm_start : WarmStart, optional
        Components to start from.
    """
    options = mixture_options(learner, course)
    rows = np.sort(choose_rows(len(codes.all) * len(codes.clean), MIXTURE_ROWS, learner.rng))
    X = torch.cat(codes.all).numpy()[rows]
    weights = None if weights is None else np.tile(weights, len(codes.all))[rows]
    start = start_on(X, options, weights, learner.next_component_id)
    mixture = fit_codes(start if warm_start is None else warm_start.applied_to(start), X, weights)
    if not course.recipe.grouping:
        return mixture
    walk = walk_of(codes, [mixture], learner.rng)
    return mixture.with_hierarchy(group(walk, options.resolution, options.generator()))


def refit_within_clusters(
    codes: ViewCodes, learner: Learner, course: Course, weights: Weights | None = None, warm_start: WarmStart | None = None
) -> MixtureModel:
    """Fit a mixture inside every cluster that self-training has led to: no component straddles two of them.

    Parameters are those of ``find_clusters``.
    """
    proba_of = cluster_assigner(codes, learner, course)
    labels = proba_of(codes).argmax(1).numpy()
    options = mixture_options(learner, course)
    rows = np.sort(choose_rows(len(codes.clean), MIXTURE_ROWS, learner.rng))
    X, labels = codes.clean.numpy()[rows], labels[rows]  # clean codes: the density is that of the data
    weights = None if weights is None else weights[rows]
    base = start_on(X, options, weights).with_next_id(learner.next_component_id)
    starts: dict[int, MixtureState] = {}
    if warm_start is not None:
        warm_labels = proba_of(ViewCodes(torch.from_numpy(warm_start.codes))).argmax(1).numpy()
        starts = warm_start.within_clusters(base, warm_labels, np.unique(labels))
    mixture = fit_within_clusters(base, starts, X, labels, weights, options.generator()).model
    walk = walk_of(codes, [mixture], learner.rng)
    return mixture.with_hierarchy(group_as(walk, mixture.cluster_of_component()))


def refresh_pseudo_labels(learner: Learner, course: Course) -> Teacher | None:
    """Find clusters as they are now, and choose which samples are sure enough to learn from; None if there is only one."""
    codes = encode_views(learner, course)
    clean = codes.clean
    if course.recall is not None:
        mixture = extend_partition(codes, learner, course, count_views=True)
        z = course.recall.z  # samples that are gone have pseudo-labels as well, for the head alone
        of_draws = torch.from_numpy(mixture.cluster_of_component()[mixture.predict(z.numpy(), level="component")])
        proba = cluster_proba(mixture, codes)
        proba = torch.cat([proba, functional.one_hot(of_draws, proba.shape[1])])
        clean = torch.cat([clean, z])
    elif ensemble := fit_ensemble(codes, learner, course):
        proba = ensemble.predict_proba(codes)
    else:
        proba = cluster_proba(find_clusters(codes, learner, course), codes)
    if proba.shape[1] < 2:
        return None
    return Teacher.of(proba, clean, course.recipe.learning_rate, course.device)


def cluster_assigner(codes: ViewCodes, learner: Learner, course: Course) -> Callable[[ViewCodes], Tensor]:
    """What gives the final clusters: an ensemble draws better boundaries than the head, which was there to train by."""
    teacher = learner.teacher
    assert teacher is not None
    if ensemble := fit_ensemble(codes, learner, course):
        return ensemble.predict_proba
    return lambda others: head_proba(teacher, others, course.device)


def cluster_proba(mixture: MixtureModel, codes: ViewCodes) -> Tensor:
    """Cluster of each sample by one mixture, averaged over its views, (n, G)."""
    return torch.stack([torch.from_numpy(mixture.predict_proba(z.numpy())) for z in codes.all]).mean(0)


@torch.no_grad()
def head_proba(teacher: Teacher, codes: ViewCodes, device: torch.device) -> Tensor:
    """Cluster of each sample by the head, averaged over its views, (n, G)."""
    return torch.stack([functional.softmax(teacher.head(z.to(device)), dim=1).cpu() for z in codes.all]).mean(0)


def extend_partition(codes: ViewCodes, learner: Learner, course: Course, *, count_views: bool) -> MixtureModel:
    """Let the mixture as it was go on with new codes: its clusters stay, new components find their place among them.

    Parameters
    ----------
    codes : ViewCodes
    learner, course
    count_views : bool
        Whether views count as samples: finer components group better, but masses are no longer those of the data.
    """
    assert course.recall is not None
    before, stationary = course.recall.before, course.recall.z.numpy()
    X = torch.cat(codes.all if count_views else (codes.clean,)).numpy()
    mixture = continue_fit(before, X[np.sort(choose_rows(len(X), MIXTURE_ROWS, learner.rng))])

    def walk() -> Walk:
        return with_stationary(walk_of(codes, [mixture], learner.rng), mixture, stationary)

    return extend_clusters(before, mixture, walk, learner.rng)


def continue_within_clusters(codes: ViewCodes, learner: Learner, course: Course) -> MixtureModel:
    """Go on inside every cluster that the head sees, old and new; old components keep what they have seen."""
    assert learner.teacher is not None
    assert course.recall is not None
    before = course.recall.before
    labels = head_proba(learner.teacher, codes, course.device).argmax(1).numpy()
    draws = before.draw_each(DRAWS_EACH, learner.rng)
    drawn_labels = (
        head_proba(learner.teacher, ViewCodes(torch.from_numpy(draws.codes).float()), course.device).argmax(1).numpy()
    )
    overlap = np.zeros((before.n_clusters, max(learner.teacher.head.out_features, before.n_clusters)))
    old_clusters = before.cluster_of_component()
    np.add.at(overlap, (old_clusters[draws.components], drawn_labels), draws.weights)
    number_of = linear_sum_assignment(overlap, maximize=True)[1]  # old clusters stay apart, whatever the head makes of them
    rows = np.sort(choose_rows(len(codes.clean), MIXTURE_ROWS, learner.rng))
    new_clusters = number_of[old_clusters]
    starts = {c: before.state.part(np.flatnonzero(new_clusters == c).tolist()) for c in np.unique(new_clusters).tolist()}
    rng = before.options.generator(before.next_lap)
    mixture = fit_within_clusters(before, starts, codes.clean.numpy()[rows], labels[rows], None, rng).model
    return mixture.named_after(before, learner.rng)


def extend_clusters(
    before: MixtureModel, mixture: MixtureModel, walk: Callable[[], Walk], rng: np.random.Generator
) -> MixtureModel:
    """Give a mixture that has gone on the clusters it had before; new components join them or form new ones."""
    if before.hierarchy is None:
        return mixture
    ids, ids_before = mixture.state.ids, before.state.ids
    if sorted(ids) == sorted(ids_before):
        hierarchy = before.hierarchy.permuted([ids_before.index(i) for i in ids])
    else:
        cluster_of = before.cluster_by_id()
        hierarchy = extend(walk(), [cluster_of.get(i, -1) for i in ids])
    return mixture.with_hierarchy(hierarchy).named_after(before, rng)
