"""Laps of memoized variational Bayes: revisit every batch, then try every move."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diva.distributed import agree
from diva.exceptions import BoundFellError, DataChangedError
from diva.mixture.local import Block, visit
from diva.mixture.moves import Birth, Delete, Merge, Move, MoveMemory, MoveRecord, Shuffle
from diva.mixture.moves.base import Collected, Study, try_candidates
from diva.mixture.moves.shuffle import ShuffleStudy
from diva.mixture.state import MixtureState
from diva.threads import one_thread

DEFAULT_MOVES: tuple[Move, ...] = (Birth(), Merge(), Delete(), Shuffle())


@dataclass(frozen=True)
class LapRecord:
    """What one lap did, as a plain row."""

    lap: int
    elbo: float
    elbo_per_sample: float
    n_components: int
    births: int
    merges: int
    deletes: int
    proposals: int


@dataclass(frozen=True)
class MixtureFit:
    """Outcome of :func:`fit_mixture`."""

    state: MixtureState
    history: tuple[LapRecord, ...]
    lineage: tuple[MoveRecord, ...]
    converged: bool
    interrupted: bool
    crowded: bool
    collected: Mapping[int, Collected]  # samples of components, for births that no lap has tried
    newborn: frozenset[int]  # components that no lap has given data yet


def assign_lap(state: MixtureState, batches: Iterable[Block], studies: Sequence[Study]) -> MixtureState:
    """First lap over batches that the memo does not hold yet: all are assigned by the posterior as it stands."""
    posterior, past = state.posterior, state.past
    state = replace(state, memo=(), total=past)
    for batch, block in enumerate(batches):
        state = state.revisit(batch, visit(posterior, block, studies))
    if not state.memo:
        raise DataChangedError(
            "The source had rows when it was measured and has none now. Pass something that can be iterated again and again."
        )
    return state


def revisit_lap(state: MixtureState, batches: Iterable[Block], studies: Sequence[Study]) -> MixtureState:
    """Visit every batch once, with a global step after each."""
    n_seen = 0
    for batch, block in enumerate(batches):
        if batch >= len(state.memo):
            raise DataChangedError(
                f"The source had {len(state.memo)} batches in the lap before and has more now. "
                "Pass something that gives the same batches each time it is iterated."
            )
        state = state.revisit(batch, visit(state.posterior, block, studies))
        n_seen += 1
    if n_seen < len(state.memo):
        raise DataChangedError(
            f"The source had {len(state.memo)} batches in the lap before and has {n_seen} now. "
            "Pass something that can be iterated again and again, such as a list of arrays."
        )
    return state.refreshed()


def try_moves(state: MixtureState, studies: Sequence[Study], memory: MoveMemory) -> tuple[MixtureState, list[MoveRecord]]:
    """Try what the studies of a lap have learnt."""
    in_order = any(isinstance(study, ShuffleStudy) for study in studies)
    changed: set[int] = set()
    records: list[MoveRecord] = []
    for study in studies:
        state, tried = try_candidates(state, study.end_lap(), memory, changed, in_order=in_order)
        records += tried
    return state.refreshed(), records


@one_thread()
def fit_mixture(
    batches: Iterable[Block],
    init: MixtureState,
    rng: np.random.Generator,
    moves: Sequence[Move] = DEFAULT_MOVES,
    max_laps: int = 100,
    tol: float = 1e-4,
    on_lap: Callable[[LapRecord], None] | None = None,
    first_lap: int = 0,
) -> MixtureFit:
    """Fit a mixture to batches that have the same rows in the same order on every lap, starting from ``init``.

    Parameters
    ----------
    batches : re-iterable of Block
    init : MixtureState
        Its ``past`` stays part of the total, its memo is built anew.
    rng : numpy.random.Generator
    moves : sequence of Move
        Tried in this order after every lap; an ablation is a shorter list.
    max_laps : int
        Laps at most, the first assignment included.
    tol : float
        Converged when no move has anything left to try and a lap raises the bound by less than this, per sample.
    on_lap : callable, optional
        Called after each lap with its record.
    first_lap : int
        Number of the first lap, for records that continue earlier ones.
    """
    options = (rng, moves, max_laps, tol, on_lap, first_lap)
    chance = rng.bit_generator.state
    try:
        return _fit_laps(batches, init, *options)
    except BoundFellError:  # single precision is not enough where codes all but lie in a plane
        rng.bit_generator.state = chance
        fit = _fit_laps(batches, replace(init, precise=True), *options)
        return replace(fit, state=replace(fit.state, precise=False))


def _fit_laps(
    batches: Iterable[Block],
    init: MixtureState,
    rng: np.random.Generator,
    moves: Sequence[Move],
    max_laps: int,
    tol: float,
    on_lap: Callable[[LapRecord], None] | None,
    first_lap: int,
) -> MixtureFit:
    memory = MoveMemory()
    history: list[LapRecord] = []
    lineage: list[MoveRecord] = []
    state, converged, interrupted = init, False, False
    best = -math.inf
    judged_under = state.family  # the prior under which proposals were rejected
    try:
        for lap in range(first_lap, first_lap + max_laps):
            studies = [move.study(state, memory, rng) for move in moves]
            newborn, memory.newborn = memory.newborn, set()
            if lap == first_lap:
                state = assign_lap(state, batches, studies)
            else:
                if converged and not any(study.busy for study in studies):
                    if not memory.prior_moved(judged_under, state.family):
                        break
                    memory, judged_under = replace(memory, mass_when_rejected={}), state.family  # judge all of them again
                    studies = [move.study(state, memory, rng) for move in moves]
                state = revisit_lap(state, batches, studies)
                if newborn:  # accepted on other grounds than the bound, which may have fallen
                    state = state.without_past_of(newborn)
                else:
                    _check_bound(state, best, lap)
            state, records = try_moves(state, studies, memory)
            state = state.with_adapted_prior()
            lineage += [replace(r, lap=lap) for r in records if r.accepted and r.move != "shuffle"]
            of_data = state.without(memory.newborn)
            mass = max(float(of_data.total.counts.sum()), 1e-300)
            converged = of_data.elbo - best <= tol * mass and not memory.newborn
            best = of_data.elbo
            history.append(_lap_record(lap, of_data, mass, records))
            agree((state.ids, converged), "decision about components")
            if on_lap is not None:
                on_lap(history[-1])
        else:
            converged = False
    except KeyboardInterrupt:
        if not history:
            raise  # nothing has been learnt yet
        interrupted = True
        state = state.refreshed()
    if any(isinstance(move, Shuffle) for move in moves):
        state = state.in_canonical_order()
    return MixtureFit(
        state,
        tuple(history),
        tuple(lineage),
        converged,
        interrupted,
        memory.crowded,
        memory.targets,
        frozenset(memory.newborn),
    )


def _lap_record(lap: int, state: MixtureState, mass: float, records: Sequence[MoveRecord]) -> LapRecord:
    births, merges, deletes = (sum(r.accepted and r.move == move for r in records) for move in ("birth", "merge", "delete"))
    tried = sum(r.move != "shuffle" for r in records)
    return LapRecord(lap, state.elbo, state.elbo / mass, state.n_components, births, merges, deletes, tried)


def _check_bound(state: MixtureState, before: float, lap: int) -> None:
    """Coordinate ascent cannot lower the bound; float32 products may, by their rounding."""
    if before <= state.elbo < math.inf:
        return
    per_number = max(1e-5, 16 * 2.0**-24 * state.family.amplification(state.total))
    slack = 1e-5 * abs(before) + per_number * float(state.total.counts.sum()) * state.family.dim
    # very many degrees of freedom, or a very high concentration: log normalizers so large that their differences are rounded
    normalizers = state.family.dim * abs(math.lgamma(state.family.nu0 / 2)) + abs(math.lgamma(state.alpha))
    slack += 2.0**-48 * state.n_components * normalizers + state.family.cancellation(state.total)
    if not math.isfinite(state.elbo) or state.elbo < before - slack:
        raise BoundFellError(
            f"The evidence lower bound fell from {before:.6f} to {state.elbo:.6f} in lap {lap}. This should not happen; "
            "please report it with the data."
        )
