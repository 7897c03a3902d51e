"""The one way to run a mixture on codes: laps from a start, then a last look at the data to label and group."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics.cluster import contingency_matrix
from torch import Tensor

from diva.data import ArrayBatches, Rows
from diva.distributed import alike, alone, gather, gather_rows
from diva.exceptions import ComponentLimitWarning, DataChangedError, InterruptedFitWarning
from diva.mixture.laps import LapRecord, MixtureFit, fit_mixture
from diva.mixture.local import Chunk, exp_of_log, row_luck
from diva.mixture.model import MixtureModel, in_order
from diva.mixture.moves import Move
from diva.mixture.options import MixtureOptions
from diva.mixture.standardize import Standardization, StandardizedBatches, measure
from diva.mixture.state import MixtureState
from diva.mixture.stats import concat
from diva.partition.hierarchy import Hierarchy, group_as
from diva.partition.valleys import Components, group_by_valleys
from diva.partition.walk import Walk
from diva.threads import one_thread, one_thread_in_numpy

GROUPING_SAMPLES = 30_000  # rows by which components are grouped, at most
MOST_LAPS = 1000  # of the history that are kept: streams have no end


class Fitted(NamedTuple):
    """Outcome of a fit."""

    model: MixtureModel
    labels: NDArray[np.int64]  # (n,): component of each row, by its position
    unfinished: bool = False  # whether laps ended before they had converged


@contextmanager
def explaining_singular() -> Iterator[None]:
    """Say what can be done about a matrix that has no Cholesky factor: raises ValueError."""
    try:
        yield
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise ValueError(
            "A covariance matrix is singular: features that others determine are lost in rounding. Rescale sample_weight to a "
            'smaller sum, raise covariance_scale, leave such features out, or set covariance_type="diag".'
        ) from error


def start_on(
    codes: NDArray[Any], options: MixtureOptions, weights: NDArray[np.float64] | None = None, first_id: int = 0
) -> MixtureModel:
    """One component with the prior that codes (n, D) give, each of which stands for ``weights`` (n,) samples."""
    with alone():
        measured = measure(ArrayBatches(codes, weights, options.batch_size))
    return MixtureModel.start(measured.standardization, options, first_id)


def fit_codes(start: MixtureModel, codes: NDArray[Any], weights: NDArray[np.float64] | None = None) -> MixtureModel:
    """Fit a mixture to codes (n, D), from the components of a model."""
    source = ArrayBatches(codes, weights, start.options.batch_size)
    return alike(lambda: fit_from(start, source, len(codes), start.options.generator()).model)


def continue_fit(before: MixtureModel, codes: NDArray[Any], *, births: bool = True) -> MixtureModel:
    """Add new codes (n, D) to those a mixture has seen; every cluster still has components, and keeps its name."""
    source = ArrayBatches(codes, None, before.options.batch_size)
    measure(source).check_within_reach_of(before.standardization)
    cluster_of = before.cluster_by_id()
    for tidy in (True, False):
        moves = replace(before.options, births=births, merges=tidy, deletes=tidy).moves()
        rng = before.options.generator(before.next_lap)
        model = fit_from(before, source, len(codes), rng, moves).model
        left = {cluster_of[i] for i in model.state.ids if i in cluster_of}
        if before.hierarchy is None or len(left) == before.n_clusters:
            break
    return model.named_after(before, rng)


@explaining_singular()
@one_thread()
def fit_from(
    start: MixtureModel,
    source: Iterable[Rows],
    n_rows: int,
    rng: np.random.Generator,
    moves: Sequence[Move] | None = None,
    on_lap: Callable[[LapRecord], None] | None = None,
) -> Fitted:
    """Run laps from a model's components, with what they have seen; clusters are found and named anew.

    The source gives the same ``n_rows`` rows in the same order on every lap; ``moves`` are those of the options by default.
    """
    model, fit = run_laps(start, source, rng, moves, on_lap)
    _warn(fit, start.options)
    last_look = _LastLook(model, source, n_rows, fit.state.past.counts.cpu().numpy(), rng)
    if start.options.grouping is None:
        hierarchy = None
    else:
        together = start.cluster_by_id() if last_look.past_share > 0 else {}
        position = {name: i for i, name in enumerate(start.naming.ids)}
        apart = [(position[one], position[other]) for one, other in start.naming.apart] if together else []
        hierarchy = last_look.by_valleys(np.array([together.get(i, -1) for i in model.state.ids]), apart)
    return Fitted(model.with_hierarchy(hierarchy), last_look.labels, unfinished=not fit.converged and not fit.interrupted)


@explaining_singular()
@one_thread()
def fit_within_clusters(
    base: MixtureModel,
    starts: Mapping[Any, MixtureState],
    codes: NDArray[Any],
    labels: NDArray[Any],
    weights: NDArray[np.float64] | None,
    rng: np.random.Generator,
) -> Fitted:
    """Fit a mixture inside every cluster, each from its own start; together they are one, whose clusters are those given.

    Prior, standardization, options, records and the next free id are those of ``base``. ``labels`` (n,) are the clusters of the
    codes (n, D); one that is not among the ``starts`` starts with one component that has seen nothing.
    """
    options, prior = base.options, base.state
    parts: list[MixtureState] = []
    cluster_of: dict[int, int] = {}
    model, next_id = base, prior.next_id
    names = np.union1d(labels, np.array(list(starts), dtype=labels.dtype)).tolist()
    for number, name in enumerate(names):
        part = starts.get(name)
        part = MixtureState.start(prior.family, prior.alpha, next_id) if part is None else replace(part, next_id=next_id)
        if (chosen := labels == name).any():
            rows = ArrayBatches(codes[chosen], None if weights is None else weights[chosen], options.batch_size)
            model, _ = run_laps(replace(model, state=part), rows, rng)
            part = model.state
        next_id = part.next_id
        parts.append(part)
        cluster_of |= dict.fromkeys(part.ids, number)
    state = _joined(parts)
    seen_before = {i: m for part in starts.values() for i, m in zip(part.ids, part.past.counts.tolist(), strict=True)}
    old_masses = np.array([seen_before.get(i, 0.0) for i in state.ids])
    model = replace(model, state=state)
    last_look = _LastLook(model, ArrayBatches(codes, weights, options.batch_size), len(codes), old_masses, rng)
    resp, known = last_look.components.resp, np.array([cluster_of[i] for i in state.ids])
    return Fitted(model.with_hierarchy(group_as(Walk(resp, resp), known)), last_look.labels)


@one_thread()
def grouped_by_valleys(model: MixtureModel, codes: NDArray[Any], rng: np.random.Generator) -> MixtureModel:
    """Components of a mixture grouped by the valleys between them in codes (n, D)."""
    source = ArrayBatches(codes, None, model.options.batch_size)
    last_look = _LastLook(model, source, len(codes), np.zeros(model.n_components), rng)
    return model.with_hierarchy(last_look.by_valleys(np.full(model.n_components, -1), ()))


def joined_without_valley(
    base: MixtureModel, codes: NDArray[Any], labels: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Clusters (n,) that were found by other means, joined where the codes (n, D) have no valley between them.

    Components with the prior of ``base`` are fitted inside every cluster, and grouped as if nothing were known of them;
    clusters most of whose samples are in one group are one.
    """
    within = fit_within_clusters(base, {}, codes, labels, None, rng)
    group_of = grouped_by_valleys(within.model, codes, rng).cluster_of_component()
    _, positions = np.unique(labels, return_inverse=True)
    return np.asarray(contingency_matrix(positions, group_of[within.labels]).argmax(axis=1)[positions])


def _joined(parts: Sequence[MixtureState]) -> MixtureState:
    """Components of several states as one."""
    past = concat(part.total for part in parts)
    ids = tuple(i for part in parts for i in part.ids)
    whole = MixtureState(parts[0].family, parts[0].alpha, past, (), past, ids, parts[-1].next_id)
    return whole.in_canonical_order()


def run_laps(
    start: MixtureModel,
    source: Iterable[Rows],
    rng: np.random.Generator,
    moves: Sequence[Move] | None = None,
    on_lap: Callable[[LapRecord], None] | None = None,
) -> tuple[MixtureModel, MixtureFit]:
    """The model after laps, with their records."""
    options, standardization = start.options, start.standardization
    fit = fit_mixture(
        StandardizedBatches(source, standardization, start.device),
        start.state,
        rng,
        moves=options.moves() if moves is None else moves,
        max_laps=options.max_laps,
        tol=float(options.tol),
        on_lap=None if on_lap is None else lambda lap: on_lap(_in_data_units(lap, standardization)),
        first_lap=start.next_lap,
    )
    history = (*start.history, *(_in_data_units(lap, standardization) for lap in fit.history))[-MOST_LAPS:]
    lineage = (*start.lineage, *fit.lineage)
    return replace(start, state=fit.state.with_memo_as_past(), history=history, lineage=lineage), fit


def _in_data_units(record: LapRecord, standardization: Standardization) -> LapRecord:
    """The bound of the data, not of standardized ones."""
    mass = record.elbo / record.elbo_per_sample if record.elbo_per_sample else 0.0
    volume = standardization.log_volume
    return replace(record, elbo=record.elbo - mass * volume, elbo_per_sample=record.elbo_per_sample - volume)


class _LastLook:
    """The data as the final mixture sees them: a label for each row, and some rows to group the components by.

    ``old_masses`` (K,) are what each component has seen that is not in the source; such data take part through draws of the
    components that remember them.
    """

    def __init__(
        self,
        model: MixtureModel,
        source: Iterable[Rows],
        n_rows: int,
        old_masses: NDArray[np.float64],
        rng: np.random.Generator,
    ) -> None:
        self._model, state = model, model.state
        self.past_share = float(old_masses.sum()) / max(float(state.total.counts.sum()), 1e-300)  # weights may add up to 0
        posterior, seed = state.posterior, int(rng.integers(2**63))
        chance = GROUPING_SAMPLES * (1.0 - self.past_share) / n_rows

        def look(chunk: Chunk) -> tuple[NDArray[Any], ...]:
            """Labels of all codes; numbers, points, responsibilities and weights of some."""
            scores = posterior.log_scores(posterior.features(chunk.z))
            drawn = np.flatnonzero(row_luck(seed, chunk.first, len(scores)) < chance)
            resp = exp_of_log(torch.log_softmax(scores[drawn], dim=1))
            weights = torch.ones(len(drawn)) if chunk.weights is None else chunk.weights[drawn].cpu()
            parts = (chunk.z[drawn].cpu(), resp.cpu(), weights)
            return scores.argmax(1).cpu().numpy(), chunk.first + drawn, *(part.double().numpy() for part in parts)

        seen = list(model.look_at(source, look))
        self.labels = in_order(some._replace(found=some.found[:1]) for some in seen)[0]
        n_now = sum(gather(sum(len(some.found[0]) for some in seen)))
        if n_now != n_rows:
            raise DataChangedError(f"The source had {n_rows} rows when it was measured and {n_now} at last.")
        drawn = (np.concatenate(parts) for parts in zip(*(some.found[1:] for some in seen), strict=True))
        points, resps, weights = ([column] for column in gather_rows(*drawn)[1:])
        new_share = 1.0 - self.past_share
        n_looked_at = GROUPING_SAMPLES if n_rows >= GROUPING_SAMPLES * new_share else n_rows / new_share
        if (n_drawn := round(n_looked_at * self.past_share)) > 0:
            z = _draw_standardized(state, n_drawn, old_masses, rng)
            points.append(z.double().cpu().numpy())
            resps.append(state.posterior.responsibilities(z).double().cpu().numpy())
            present = sum(float(w.sum()) for w in weights)  # 0 if new data are so few, or so light, that none was drawn
            each = present * self.past_share / new_share if present > 0 else min(n_drawn, float(old_masses.sum()))
            weights.append(np.full(n_drawn, each / n_drawn))
        self.components = Components(
            state.family.means(state.total).cpu().numpy(),
            state.family.covariances(state.total).cpu().numpy(),
            *(np.concatenate(parts) for parts in (points, resps, weights)),
        )

    def by_valleys(self, together: NDArray[np.int64], apart: Sequence[tuple[int, int]]) -> Hierarchy:
        """Group the components.

        ``together`` (K,) are clusters that stay whole: draws do not show what filled a valley. Pairs of them in ``apart`` were
        split by hand.
        """
        with one_thread_in_numpy():  # little work: the same on any number of cores, and no memory for idle threads
            return group_by_valleys(self.components, self._model.options.resolution, together, apart)


def _draw_standardized(
    state: MixtureState, n_samples: int, old_masses: NDArray[np.float64], rng: np.random.Generator
) -> Tensor:
    """Draws of the components, standardized, in proportion to the mass that is past."""
    family, total = state.family, state.total
    chances = old_masses.clip(min=0.0)
    drawn = rng.choice(len(chances), n_samples, p=chances / chances.sum())
    noise = torch.from_numpy(rng.standard_normal((n_samples, family.dim))).to(family.m0.device)
    spread = family.covariances(total)
    deviation: Tensor = (
        noise * spread[drawn].sqrt()
        if spread.ndim == 2
        else (torch.linalg.cholesky(spread)[drawn] @ noise.unsqueeze(-1)).squeeze(-1)
    )
    return family.means(total)[drawn] + deviation


def warn_of_interrupt(n_laps: int) -> None:
    """Say what became of the fit, and how to go on."""
    warnings.warn(
        f"The fit was interrupted after {n_laps} laps and keeps what it had reached. "
        "To go on, set warm_start=True and fit the same data again.",
        InterruptedFitWarning,
        stacklevel=7,
    )


def _warn(fit: MixtureFit, options: MixtureOptions) -> None:
    if fit.interrupted:
        warn_of_interrupt(len(fit.history))
    if fit.crowded or fit.state.n_components >= options.max_components > 1:
        warnings.warn(
            f"The mixture has reached max_components={options.max_components} and may want more. Raise it, raise "
            "covariance_scale, or check the data for duplicates and extreme values.",
            ComponentLimitWarning,
            stacklevel=6,
        )
