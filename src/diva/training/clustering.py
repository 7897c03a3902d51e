"""Clusters of samples: a mixture of their codes, whose components are grouped by what views of a sample wander between."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn import functional

from diva.mixture.estimator import Carried, DPMixture
from diva.models.recipes import Recipe
from diva.partition.grouping import Walk, choose_resolution, communities, extend, neighbour_walk, revise
from diva.training.encode import encode
from diva.training.loop import Course, Learner
from diva.training.pseudo_labels import Teacher

Weights: TypeAlias = NDArray[np.float64]

MIXTURE_ROWS = 60_000  # codes that clusters are found on, at most
WALK_ROWS = 20_000
VOTE_ROWS = 2_500  # at a time: there are hundreds of components on a jury
# codes that a jury sits for: on fewer, mixtures that start from k-means are worse than one that grows, and it costs little; on
# more, one mixture and the head were better where it was measured (MNIST, 60,000 images, one seed); why is not known
FEWEST_JURY_CODES, MOST_JURY_CODES = 20_000, MIXTURE_ROWS
N_OPINIONS = 6  # mixtures on a jury: each ends in an optimum of its own, and what all agree on is no whim of one
N_CENTRES = 100  # that an opinion starts from; finer components group better, and those that are not needed are merged
OPINION_LAPS = 15  # enough to group by
FINE_SHARE = 0.5  # of the gain in likelihood that births have: with less, k-means cuts up what is one
GROWN_LAPS = 10  # enough to see that
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

    def take(self, rows: NDArray[np.int64]) -> SeenCodes:
        """Codes of some of the samples."""
        return SeenCodes(self.clean[rows], tuple(z[rows] for z in self.moved))


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
    with _few_laps_will_do():
        if carried is None:
            mixture.fit(X, sample_weight=weights)
        else:
            mixture._fit_carried(X, weights, carried)
    if course.recipe.grouping:
        mixture.regroup(walk_of(codes, [mixture], learner.rng))
    return mixture


def fill_clusters(
    codes: SeenCodes, learner: Learner, course: Course, weights: Weights | None = None, carried: Carried | None = None
) -> DPMixture:
    """Fit a mixture inside every cluster of a sharpened encoder: no component straddles two of them.

    Parameters are those of ``find_clusters``.
    """
    judge = last_judge(codes, learner, course)
    labels = judge(codes).argmax(1).numpy()
    if carried is not None:
        there = SeenCodes(torch.from_numpy(carried.codes), ())
        carried = replace(carried, labels=judge(there).argmax(1).numpy())
    mixture = new_mixture(learner, course)
    rows = np.sort(_choose(len(codes.clean), MIXTURE_ROWS, learner.rng))
    X = codes.clean.numpy()[rows]  # clean codes: the density is that of the data
    mixture.fit_clusters(X, labels[rows], None if weights is None else weights[rows], carried=carried)
    return mixture.regroup(walk_of(codes, [mixture], learner.rng), keep_clusters=True)


def teach(learner: Learner, course: Course) -> Teacher | None:
    """Find clusters and choose what is sure enough to be taught."""
    codes = see(learner, course)
    clean = codes.clean
    if course.recall is not None:
        mixture = find_more(codes, learner, course, count_views=True)
        z = course.recall.z  # what is gone is taught as well, to the head alone
        of_draws = torch.from_numpy(mixture._groups(None)[mixture.predict(z.numpy(), level="component")])
        proba = cluster_proba(mixture, codes)
        proba = torch.cat([proba, functional.one_hot(of_draws, proba.shape[1])])
        clean = torch.cat([clean, z])
    elif jury := call_jury(codes, learner, course):
        proba = jury.vote(codes)
    else:
        proba = cluster_proba(find_clusters(codes, learner, course), codes)
    if proba.shape[1] < 2:
        return None
    return Teacher.of(proba, clean, course.recipe.learning_rate, course.device)


def last_judge(codes: SeenCodes, learner: Learner, course: Course) -> Callable[[SeenCodes], Tensor]:
    """Whoever has the last word about clusters: a jury draws better lines than the head, which was there to teach."""
    teacher = learner.teacher
    assert teacher is not None
    if jury := call_jury(codes, learner, course):
        return jury.vote
    return lambda seen: head_proba(teacher, seen, course.device)


def cluster_proba(mixture: DPMixture, codes: SeenCodes) -> Tensor:
    """Cluster of each sample as one mixture and all its views see it, (n, G)."""
    return torch.stack([torch.from_numpy(mixture.predict_proba(z.numpy())) for z in codes.all]).mean(0)


@dataclass(frozen=True, eq=False)
class Jury:
    """Several mixtures that decide together.

    Attributes
    ----------
    mixtures : sequence of DPMixture
    member : array of shape (J, G)
        One where a component, of all mixtures one after the other, is in a cluster.
    """

    mixtures: Sequence[DPMixture]
    member: NDArray[np.float64]

    def vote(self, codes: SeenCodes) -> Tensor:
        """Cluster of each sample as all mixtures and all its views see it, (n, G)."""
        votes = [shared_responsibilities(self.mixtures, part) @ self.member for part in _parts(codes)]
        return torch.from_numpy(np.concatenate(votes).reshape(len(codes.all), len(codes.clean), -1).mean(0))


def call_jury(codes: SeenCodes, learner: Learner, course: Course) -> Jury | None:
    """Fit several mixtures and group all their components together; none if codes are too few, too many, or too plain.

    Components of different mixtures that hold the same samples end in one cluster, and a sample that they place in different
    ones is not sure. Clusters that have been taught are revised, not found anew: the encoder has learnt to see each as one.
    """
    if not FEWEST_JURY_CODES <= len(codes.all) * len(codes.clean) <= MOST_JURY_CODES:
        return None
    mixtures = opinions(codes, learner, course)
    if not mixtures:
        return None
    resolution = _resolution_for(mixtures[0], codes, learner, course)
    flow = flow_between(mixtures, codes, learner.rng)
    if learner.teacher is None:
        labels = communities(flow, resolution, learner.rng)
    else:
        labels = revise(flow, homes(mixtures, codes, learner.teacher, course.device), resolution, learner.rng)
    return Jury(mixtures, np.eye(labels.max() + 1)[labels])


def _resolution_for(mixture: DPMixture, codes: SeenCodes, learner: Learner, course: Course) -> float:
    """What the recipe says; else one opinion shows the gaps in the data as well as all, in a fraction of the time."""
    if course.recipe.resolution != "auto":
        return course.recipe.resolution
    chosen = choose_resolution(walk_of(codes, [mixture], learner.rng), learner.rng).best.natural_resolution
    return chosen if learner.teacher is None else max(chosen, 1.0)  # a gap that was found needs no proof again


@torch.no_grad()
def homes(mixtures: Sequence[DPMixture], codes: SeenCodes, teacher: Teacher, device: torch.device) -> NDArray[np.int64]:
    """Cluster that the head sees most of each component in, (J,)."""
    mass = np.zeros((sum(m.n_components_ for m in mixtures), teacher.head.out_features))
    for z in _parts(codes):
        mass += shared_responsibilities(mixtures, z).T @ functional.softmax(teacher.head(z.to(device)), dim=1).cpu().numpy()
    return np.asarray(mass.argmax(1))


def opinions(codes: SeenCodes, learner: Learner, course: Course) -> list[DPMixture]:
    """Mixtures of clean and moved codes, each from a k-means of its own; none if codes are of few kinds and plain ones.

    Births from a single component find mixtures as likely, but take several times as long, and are no better to group by.
    """
    X = torch.cat(codes.all).numpy()
    first = _opinion(X, learner, course)
    if share_of_gain(first, X, course) < FINE_SHARE:
        return []
    return [first, *(_opinion(X, learner, course) for _ in range(N_OPINIONS - 1))]


def _opinion(X: NDArray[np.float32], learner: Learner, course: Course) -> DPMixture:
    mixture = new_mixture(learner, course)
    mixture.births, mixture.max_laps = False, OPINION_LAPS
    n_centres = min(N_CENTRES, course.recipe.max_components)
    seed = int(learner.rng.integers(2**31))
    with _few_laps_will_do():
        with threadpool_limits(1):  # k-means stops by a sum whose last bits depend on which thread is done first
            start = MiniBatchKMeans(n_centres, batch_size=4096, n_init=1, random_state=seed).fit(X).labels_
        found, components = np.unique(start, return_inverse=True)
        ids = range(learner.next_component_id, learner.next_component_id + len(found))
        return mixture._fit_carried(X, None, Carried(X, components, np.ones(len(X)), tuple(ids), ids.stop))


def share_of_gain(opinion: DPMixture, X: NDArray[np.float32], course: Course) -> float:
    """What an opinion gains over a single component, as a share of what births gain; infinite if they find no other.

    On codes of images, say, it is about 1. Where three Gaussians overlap, births find the three, and k-means cuts them into a
    hundred cells, whose grouping would be chance: the share is low, and on a single Gaussian less than nothing.
    """
    with _few_laps_will_do():
        single = _mixture(course.recipe, random_state=0).set_params(births=False, max_laps=2).fit(X)
        grown = _mixture(course.recipe, random_state=0).set_params(max_laps=GROWN_LAPS).fit(X)
    gain, possible = opinion.elbo_ - single.elbo_, grown.elbo_ - single.elbo_
    return gain / possible if possible > 0 else math.copysign(math.inf, gain)


def _parts(codes: SeenCodes) -> Iterator[Tensor]:
    return (part for z in codes.all for part in torch.split(z, VOTE_ROWS))


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
        return with_static(walk_of(codes, [mixture], learner.rng), mixture, static)

    return extend_clusters(before, mixture, walk, learner.rng)


def go_on(before: DPMixture, X: NDArray[np.float32], *, births: bool = True) -> DPMixture:
    """A mixture that has gone on with new codes, and still has components of every cluster."""
    for tidy in (True, False):
        mixture = copy.copy(before)
        mixture.births, mixture.merges, mixture.deletes = births, tidy, tidy
        with _few_laps_will_do():
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


def shared_responsibilities(mixtures: Sequence[DPMixture], z: Tensor) -> NDArray[np.float64]:
    """Responsibilities of the components of all mixtures, side by side, (n, J); each mixture has an equal share."""
    return np.concatenate([m.predict_proba(z.numpy(), level="component") for m in mixtures], axis=1) / len(mixtures)


def walk_of(codes: SeenCodes, mixtures: Sequence[DPMixture], rng: np.random.Generator) -> Walk:
    """From views of samples to other views of them; from samples to their nearest neighbours where there are no views.

    Both ends of a step are moved, so that components that only clean samples reach do not look set apart.
    """
    chosen = _choose(len(codes.clean), WALK_ROWS, rng)
    seen = codes.moved if len(codes.moved) > 1 else codes.all  # a single view has no other to go to but the clean sample
    resp = [shared_responsibilities(mixtures, z[chosen]) for z in seen]
    if len(resp) == 1:
        return neighbour_walk(codes.clean.numpy()[chosen], resp[0])
    return Walk(np.concatenate(resp), np.concatenate([*resp[1:], resp[0]]))


def flow_between(mixtures: Sequence[DPMixture], codes: SeenCodes, rng: np.random.Generator) -> NDArray[np.float64]:
    """Flow of `walk_of` between the components of all mixtures, (J, J), a part of the samples at a time."""
    if len(codes.all) == 1:  # neighbours are sought among all samples
        return walk_of(codes, mixtures, rng).flow
    chosen = _choose(len(codes.clean), WALK_ROWS, rng)
    flow = np.zeros(())
    for rows in np.array_split(chosen, math.ceil(len(chosen) / VOTE_ROWS)):
        flow = flow + len(rows) * walk_of(codes.take(rows), mixtures, rng).flow
    return flow


def new_mixture(learner: Learner, course: Course) -> DPMixture:
    """A mixture that names its components after those that training knew."""
    mixture = _mixture(course.recipe, random_state=int(learner.rng.integers(2**31)))
    mixture._first_id = learner.next_component_id
    return mixture


def _mixture(recipe: Recipe, random_state: int) -> DPMixture:
    return DPMixture(
        concentration=recipe.concentration,
        covariance_type=recipe.final_covariance_type,
        covariance_scale=recipe.covariance_scale,
        max_components=recipe.max_components,
        resolution=recipe.resolution,
        random_state=random_state,
    )


@contextmanager
def _few_laps_will_do() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few laps more or less do not matter here
        yield


def _choose(n: int, n_chosen: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.arange(n) if n <= n_chosen else rng.choice(n, n_chosen, replace=False)
