"""Codes of samples and of augmented views of them, and the walk of samples between components that the views make."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.mixture.model import MixtureModel
from diva.models.state import DIVAState, Task
from diva.partition.walk import Walk, neighbour_walk
from diva.training.encode import encode

WALK_ROWS = 20_000
CHUNK_ROWS = 2_500  # at a time: an ensemble has hundreds of components


@dataclass(frozen=True)
class ViewCodes:
    """Means of the codes of samples as they are, and of several augmented views of each."""

    clean: Tensor  # (n, D)
    views: tuple[Tensor, ...] = ()  # (n, D)

    @property
    def all(self) -> tuple[Tensor, ...]:
        """Clean codes first."""
        return (self.clean, *self.views)

    def take(self, rows: NDArray[np.int64]) -> ViewCodes:
        """Codes of some of the samples."""
        return ViewCodes(self.clean[rows], tuple(z[rows] for z in self.views))

    def chunks(self) -> Iterator[Tensor]:
        """All codes, a few at a time."""
        return (chunk for z in self.all for chunk in torch.split(z, CHUNK_ROWS))


def encode_views(state: DIVAState, task: Task) -> ViewCodes:
    """Encode all samples, and augmented views of them, with the encoder in eval mode."""
    clean = encode(state.network, task.samples, task.device).mean
    if task.augmentation is None:
        return ViewCodes(clean)
    views = (
        encode(state.network, task.samples, task.device, task.augmentation, state.generator).mean
        for _ in range(task.config.n_views)
    )
    return ViewCodes(clean, tuple(views))


def shared_responsibilities(mixtures: Sequence[MixtureModel], z: Tensor) -> NDArray[np.float64]:
    """Responsibilities of the components of all mixtures, side by side, (n, J); each mixture has an equal share."""
    return np.concatenate([m.predict_proba(z.numpy(), level="component") for m in mixtures], axis=1) / len(mixtures)


def walk_of(codes: ViewCodes, mixtures: Sequence[MixtureModel], rng: np.random.Generator) -> Walk:
    """From views of samples to other views of them; from samples to their nearest neighbours where there are no views.

    Both ends of a step are views, so that components that only clean samples reach do not look set apart.
    """
    chosen = choose_rows(len(codes.clean), WALK_ROWS, rng)
    ends = codes.views if len(codes.views) > 1 else codes.all  # a single view has no other to go to but the clean sample
    resp = [shared_responsibilities(mixtures, z[chosen]) for z in ends]
    if len(resp) == 1:
        return neighbour_walk(codes.clean.numpy()[chosen], resp[0])
    return Walk(np.concatenate(resp), np.concatenate([*resp[1:], resp[0]]))


def flow_between(mixtures: Sequence[MixtureModel], codes: ViewCodes, rng: np.random.Generator) -> NDArray[np.float64]:
    """Flow of `walk_of` between the components of all mixtures, (J, J), a part of the samples at a time."""
    if len(codes.all) == 1:  # neighbours are sought among all samples
        return walk_of(codes, mixtures, rng).flow
    chosen = choose_rows(len(codes.clean), WALK_ROWS, rng)
    flow = np.zeros(())
    for rows in np.array_split(chosen, math.ceil(len(chosen) / CHUNK_ROWS)):
        flow = flow + len(rows) * walk_of(codes.take(rows), mixtures, rng).flow
    return flow


def with_stationary(walk: Walk, mixture: MixtureModel, codes: NDArray[np.float32]) -> Walk:
    """Let codes of samples that are gone take part in a walk by staying where they are."""
    resp = mixture.predict_proba(codes, level="component")
    return Walk(np.concatenate([walk.resp, resp]), np.concatenate([walk.resp_moved, resp]))


def choose_rows(n: int, n_chosen: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """At most so many of n rows, drawn without replacement; all of them, in order, if there are no more."""
    return np.arange(n) if n <= n_chosen else rng.choice(n, n_chosen, replace=False)
