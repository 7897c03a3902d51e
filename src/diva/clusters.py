"""Clusters of samples: a mixture of their codes, whose components are grouped by what views of a sample wander between."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn import functional

from diva.codes import encode
from diva.grouping import Walk, neighbour_walk
from diva.mixture.estimator import Carried, DPMixture
from diva.sharpening import Teacher
from diva.training import Course, Learner

Weights: TypeAlias = NDArray[np.float64]

MIXTURE_ROWS = 60_000  # codes that clusters are found on, at most
WALK_ROWS = 20_000


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
    mixture = find_clusters(codes, learner, course)
    if mixture.n_clusters_ < 2:
        return None
    proba = sum(torch.from_numpy(mixture.predict_proba(z.numpy())) for z in codes.all) / len(codes.all)
    assert isinstance(proba, Tensor)
    return Teacher.of(proba, codes.clean, course.recipe.learning_rate, course.device)


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
