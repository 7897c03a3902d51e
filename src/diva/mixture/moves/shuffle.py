"""Shuffle: order components by mass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diva.mixture.local import LocalStep
from diva.mixture.moves.base import Candidate, Edit, MoveMemory, Proposal, Study
from diva.mixture.state import MixtureState


@dataclass(frozen=True)
class Shuffle:
    """Stick-breaking weights fall with position, so the bound is highest with the heaviest component first.

    With it, candidates of the other moves are judged in that order as well; without it, components stay where they are.
    """

    def study(self, state: MixtureState, memory: MoveMemory, rng: np.random.Generator) -> ShuffleStudy:  # noqa: ARG002  # a Move takes it
        """Nothing to plan: the order follows from the statistics."""
        return ShuffleStudy()


class ShuffleStudy(Study):
    """Looks at no data."""

    def observe(self, step: LocalStep) -> Sequence[Tensor]:  # noqa: ARG002  # an Observer takes it
        """Nothing adds up."""
        return ()

    def end_lap(self) -> Sequence[Candidate]:
        """Propose the order by mass."""
        return [_Order()]


class _Order(Candidate):
    key = ("shuffle",)
    touches = frozenset()

    def proposal(self, state: MixtureState) -> Proposal | None:
        if bool((state.total.counts.diff() <= 0).all()):
            return None  # in order already
        same = Edit(torch.arange(state.n_components), state.ids, torch.empty(0, dtype=torch.long))
        nothing = state.family.empty(0)
        edit = same.sorted_by(state.total.counts)
        return Proposal("shuffle", (), (), edit, tuple(nothing for _ in state.memo), nothing)
