"""Clusters of samples: a mixture of their codes, whose components are grouped by what views of a sample wander between."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn import functional

from diva.codes import encode
from diva.grouping import Walk, extend, neighbour_walk
from diva.mixture.estimator import Carried, DPMixture
from diva.sharpening import Teacher
from diva.training import Course, Learner

Weights: TypeAlias = NDArray[np.float64]

MIXTURE_ROWS = 60_000  # codes that clusters are found on, at most
WALK_ROWS = 20_000
DRAWS_EACH = 32  # of a component, to see which cluster it is in


@dataclass(frozen=True)
class SeenCodes:
    """Means of the codes of samples as they are, and of several views of each.

    Attributes
    ----------
    clean : Tensor of shape (n, D)
    moved : tuple of Tensor of shape (n, D)
    """

    clean: Tensor
    moved: tuple[Tensor, ...]

    @property
    def all(self) -> tuple[Tensor, ...]:
        """Clean codes first."""
        return (self.clean, *self.moved)


def see(learner: Learner, course: Course) -> SeenCodes:
    """Encode all samples, and views of them, with the encoder at rest."""
    clean = encode(learner.vae, course.samples, course.device).mean
    if course.views is None:
        return SeenCodes(clean, ())
    moved = (
        encode(learner.vae, course.samples, course.device, course.views, learner.generator).mean
        for _ in range(course.recipe.n_views)
    )
    return SeenCodes(clean, tuple(moved))


def find_clusters(
    codes: SeenCodes, learner: Learner, course: Course, weights: Weights | None = None, carried: Carried | None = None
) -> DPMixture:
    """Fit a mixture to clean and moved codes together, then group its components.

    More data carry more components, and finer ones group better: a component that straddles two classes cannot be undone.

    Parameters
    ----------
    codes : SeenCodes
    learner, course
    weights : array of shape (n,), optional
        How many samples each code stands for.
    carried : Carried, optional
        Components to start from.
    """
    mixture = new_mixture(learner, course)
    rows = np.sort(_choose(len(codes.all) * len(codes.clean), MIXTURE_ROWS, learner.rng))
    X = torch.cat(codes.all).numpy()[rows]
    weights = None if weights is None else np.tile(weights, len(codes.all))[rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few laps more or less do not matter here
        if carried is None:
            mixture.fit(X, sample_weight=weights)
        else:
            mixture._fit_carried(X, weights, carried)
    if course.recipe.grouping:
        mixture.regroup(walk_of(codes, mixture, learner.rng))
    return mixture


def fill_clusters(
    codes: SeenCodes, learner: Learner, course: Course, weights: Weights | None = None, carried: Carried | None = None
) -> DPMixture:
    """Fit a mixture inside every cluster of a sharpened encoder: no component straddles two of them.

    Parameters are those of ``find_clusters``.
    """
    assert learner.teacher is not None
    labels = head_proba(learner.teacher, codes, course.device).argmax(1).numpy()
    if carried is not None:
        there = SeenCodes(torch.from_numpy(carried.codes), ())
        carried = replace(carried, labels=head_proba(learner.teacher, there, course.device).argmax(1).numpy())
    mixture = new_mixture(learner, course)
    rows = np.sort(_choose(len(codes.clean), MIXTURE_ROWS, learner.rng))
    X = codes.clean.numpy()[rows]  # clean codes: the density is that of the data
    mixture.fit_clusters(X, labels[rows], None if weights is None else weights[rows], carried=carried)
    return mixture.regroup(walk_of(codes, mixture, learner.rng), keep_clusters=True)


def teach(learner: Learner, course: Course) -> Teacher | None:
    """Find clusters as they are now and choose what is sure enough to be taught."""
    codes = see(learner, course)
    if course.recall is None:
        mixture = find_clusters(codes, learner, course)
    else:
        mixture = find_more(codes, learner, course, count_views=True)
    if mixture.n_clusters_ < 2:
        return None
    proba = torch.stack([torch.from_numpy(mixture.predict_proba(z.numpy())) for z in codes.all]).mean(0)
    clean = codes.clean
    if course.recall is not None:  # what is gone is taught as well, to the head alone
        z = course.recall.z
        of_draws = torch.from_numpy(mixture._groups(None)[mixture.predict(z.numpy(), level="component")])
        proba = torch.cat([proba, functional.one_hot(of_draws, proba.shape[1])])
        clean = torch.cat([clean, z])
    return Teacher.of(proba, clean, course.recipe.learning_rate, course.device)


def find_more(codes: SeenCodes, learner: Learner, course: Course, *, count_views: bool) -> DPMixture:
    """Let the mixture as it was go on with new codes: its clusters stay, new components find their place among them.

    Parameters
    ----------
    codes : SeenCodes
    learner, course
    count_views : bool
        Whether views count as samples: finer components group better, but masses are no longer those of the data.
    """
    assert course.recall is not None
    before, static = course.recall.before, course.recall.z.numpy()
    X = torch.cat(codes.all if count_views else (codes.clean,)).numpy()
    mixture = go_on(before, X[np.sort(_choose(len(X), MIXTURE_ROWS, learner.rng))])

    def walk() -> Walk:
        return with_static(walk_of(codes, mixture, learner.rng), mixture, static)

    return extend_clusters(before, mixture, walk, learner.rng)


def go_on(before: DPMixture, X: NDArray[np.float32], *, births: bool = True) -> DPMixture:
    """A mixture that has gone on with new codes, and still has components of every cluster."""
    for tidy in (True, False):
        mixture = copy.copy(before)
        mixture.births, mixture.merges, mixture.deletes = births, tidy, tidy
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a few laps more or less do not matter here
            mixture.partial_fit(X)
        mixture.births, mixture.merges, mixture.deletes = before.births, before.merges, before.deletes
        cluster_of = dict(zip(before.component_ids_.tolist(), before._groups(None).tolist(), strict=True))
        left = {cluster_of[i] for i in mixture.component_ids_.tolist() if i in cluster_of}
        if before.hierarchy_ is None or len(left) == before.n_clusters_:
            break
    return mixture


def fill_more(codes: SeenCodes, learner: Learner, course: Course) -> DPMixture:
    """Go on inside every cluster that a sharpened encoder sees, old and new; old components keep what they have seen."""
    assert learner.teacher is not None
    assert course.recall is not None
    before = course.recall.before
    labels = head_proba(learner.teacher, codes, course.device).argmax(1).numpy()
    draws, components, weights = before._draw_each(DRAWS_EACH, learner.rng)
    seen = SeenCodes(torch.from_numpy(draws).float(), ())
    votes = np.zeros((before.n_clusters_, max(learner.teacher.head.out_features, before.n_clusters_)))
    groups = before._groups(None)
    np.add.at(votes, (groups[components], head_proba(learner.teacher, seen, course.device).argmax(1).numpy()), weights)
    number_of = linear_sum_assignment(votes, maximize=True)[1]  # old clusters stay apart, whatever the head makes of them
    mixture = copy.copy(before)
    rows = np.sort(_choose(len(codes.clean), MIXTURE_ROWS, learner.rng))
    mixture._fit_more_clusters(codes.clean.numpy()[rows], labels[rows], number_of[groups])
    return mixture._keep_names(before, learner.rng)


def extend_clusters(before: DPMixture, mixture: DPMixture, walk: Callable[[], Walk], rng: np.random.Generator) -> DPMixture:
    """Give a mixture that has gone on the clusters it had before; new components join them or form new ones."""
    if before.hierarchy_ is None:
        return mixture
    ids, ids_before = mixture.component_ids_.tolist(), before.component_ids_.tolist()
    if sorted(ids) == sorted(ids_before):
        hierarchy = before.hierarchy_.permuted([ids_before.index(i) for i in ids])
    else:
        cluster_of = dict(zip(ids_before, before.hierarchy_.labels.tolist(), strict=True))
        hierarchy = extend(walk(), [cluster_of.get(i, -1) for i in ids])
    return mixture._adopt_hierarchy(hierarchy)._keep_names(before, rng)


def with_static(walk: Walk, mixture: DPMixture, codes: NDArray[np.float32]) -> Walk:
    """Let codes of samples that are gone take part in a walk by staying where they are."""
    resp = mixture.predict_proba(codes, level="component")
    return Walk(np.concatenate([walk.resp, resp]), np.concatenate([walk.resp_moved, resp]))


@torch.no_grad()
def head_proba(teacher: Teacher, codes: SeenCodes, device: torch.device) -> Tensor:
    """What the head makes of samples, averaged over their views, (n, G)."""
    votes = [functional.softmax(teacher.head(z.to(device)), dim=1).cpu() for z in codes.all]
    return torch.stack(votes).mean(0)


def walk_of(codes: SeenCodes, mixture: DPMixture, rng: np.random.Generator) -> Walk:
    """From views of samples to other views of them; from samples to their nearest neighbours where there are no views.

    Both ends of a step are moved, so that components that only clean samples reach do not look set apart.
    """
    chosen = _choose(len(codes.clean), WALK_ROWS, rng)
    seen = codes.moved if len(codes.moved) > 1 else codes.all  # a single view has no other to go to but the clean sample
    resp = [mixture.predict_proba(z.numpy()[chosen], level="component") for z in seen]
    if len(resp) == 1:
        return neighbour_walk(codes.clean.numpy()[chosen], resp[0])
    return Walk(np.concatenate(resp), np.concatenate([*resp[1:], resp[0]]))


def new_mixture(learner: Learner, course: Course) -> DPMixture:
    """A mixture that names its components after those that training knew."""
    recipe = course.recipe
    mixture = DPMixture(
        concentration=recipe.concentration,
        covariance_type=recipe.final_covariance_type,
        covariance_scale=recipe.covariance_scale,
        max_components=recipe.max_components,
        resolution=recipe.resolution,
        random_state=int(learner.rng.integers(2**31)),
    )
    mixture._first_id = learner.next_component_id
    return mixture


def _choose(n: int, n_chosen: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.arange(n) if n <= n_chosen else rng.choice(n, n_chosen, replace=False)
