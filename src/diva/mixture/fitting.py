"""The one way to run a mixture on codes: laps from a start, then a last look at the data to label and group."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data import ArrayBatches, Rows
from diva.exceptions import ComponentLimitWarning, DataChangedError, InterruptedFitWarning
from diva.mixture.laps import LapRecord, MixtureFit, fit_mixture
from diva.mixture.model import MixtureModel
from diva.mixture.moves import Move
from diva.mixture.options import MixtureOptions
from diva.mixture.standardize import Standardization, StandardizedBatches, measure
from diva.mixture.state import MixtureState
from diva.mixture.stats import concat
from diva.partition.hierarchy import group, group_as
from diva.partition.walk import Walk, neighbour_walk
from diva.threads import one_thread

WALK_SAMPLES = 10_000
MOST_LAPS = 1000  # of the history that are kept: streams have no end


class Fitted(NamedTuple):
    """Outcome of a fit."""

    model: MixtureModel
    labels: NDArray[np.int64]  # (n,): component of each row, by its position
    unfinished: bool = False  # whether laps ended before they had converged


def start_on(
    codes: NDArray[Any], options: MixtureOptions, weights: NDArray[np.float64] | None = None, first_id: int = 0
) -> MixtureModel:
    """One component with the prior that codes (n, D) give, each of which stands for ``weights`` (n,) samples."""
    measured = measure(ArrayBatches(codes, weights, options.batch_size))
    return MixtureModel.start(measured.standardization, options, first_id)


def fit_codes(start: MixtureModel, codes: NDArray[Any], weights: NDArray[np.float64] | None = None) -> MixtureModel:
    """Fit a mixture to codes (n, D), from the components of a model."""
    source = ArrayBatches(codes, weights, start.options.batch_size)
    return fit_from(start, source, len(codes), start.options.generator()).model


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
    model, fit = _run_laps(start, source, rng, moves, on_lap)
    _warn(fit, start.options)
    model, labels = _label_and_group(model, source, n_rows, fit.state.past.counts.cpu().numpy(), rng)
    return Fitted(model, labels, unfinished=not fit.converged and not fit.interrupted)


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
            model, _ = _run_laps(replace(model, state=part), rows, rng)
            part = model.state
        next_id = part.next_id
        parts.append(part)
        cluster_of |= dict.fromkeys(part.ids, number)
    state = _joined(parts)
    seen_before = {i: m for part in starts.values() for i, m in zip(part.ids, part.past.counts.tolist(), strict=True)}
    old_masses = np.array([seen_before.get(i, 0.0) for i in state.ids])
    known = np.array([cluster_of[i] for i in state.ids])
    source = ArrayBatches(codes, weights, options.batch_size)
    model, components = _label_and_group(replace(model, state=state), source, len(codes), old_masses, rng, known)
    return Fitted(model, components)


def _joined(parts: Sequence[MixtureState]) -> MixtureState:
    """Components of several states as one."""
    past = concat(part.total for part in parts)
    ids = tuple(i for part in parts for i in part.ids)
    whole = MixtureState(parts[0].family, parts[0].alpha, past, (), past, ids, parts[-1].next_id)
    return whole.in_canonical_order()


def _run_laps(
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


def _label_and_group(
    model: MixtureModel,
    source: Iterable[Rows],
    n_rows: int,
    old_masses: NDArray[np.float64],
    rng: np.random.Generator,
    known_clusters: NDArray[np.int64] | None = None,
) -> tuple[MixtureModel, NDArray[np.int64]]:
    """Label the data with the final mixture; group its components if asked to, or as they are known to belong.

    ``old_masses`` (K,) are what each component has seen that is not in the source.
    """
    options, state = model.options, model.state
    walks = options.grouping is not None or known_clusters is not None
    labels, points, resps = [], [], []
    past_share = float(old_masses.sum()) / float(state.total.counts.sum())
    chance = WALK_SAMPLES * (1.0 - past_share) / n_rows
    for z, resp in model.assign(source):
        labels.append(resp.argmax(1).cpu().numpy())
        if walks:
            drawn = torch.from_numpy(rng.random(len(z)) < chance).to(z.device)
            points.append(z[drawn].cpu().numpy())
            resps.append(resp[drawn].cpu().numpy())
    if (n_last := sum(map(len, labels))) != n_rows:
        raise DataChangedError(f"The source had {n_rows} rows when it was measured and {n_last} at last.")
    hierarchy = None
    if walks:
        if (n_drawn := round(min(WALK_SAMPLES, n_rows / (1.0 - past_share)) * past_share)) > 0:
            # data that are gone take part through draws of the components that remember them
            z = _draw_standardized(state, n_drawn, old_masses, rng)
            points.append(z.cpu().numpy())
            resps.append(state.posterior.responsibilities(z).cpu().numpy())
        resp_all = np.concatenate(resps)
        walk = neighbour_walk(np.concatenate(points), resp_all) if options.grouping else Walk(resp_all, resp_all)
        hierarchy = group(walk, options.resolution, rng) if known_clusters is None else group_as(walk, known_clusters)
    return model.with_hierarchy(hierarchy), np.concatenate(labels)


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


def _warn(fit: MixtureFit, options: MixtureOptions) -> None:
    if fit.interrupted:
        warnings.warn(
            f"The fit was interrupted after {len(fit.history)} laps and keeps what it had reached. "
            "To go on, set warm_start=True and fit the same data again.",
            InterruptedFitWarning,
            stacklevel=6,
        )
    if fit.crowded or fit.state.n_components >= options.max_components > 1:
        warnings.warn(
            f"The mixture has reached max_components={options.max_components} and may want more. Raise it, raise "
            "covariance_scale, or check the data for duplicates and extreme values.",
            ComponentLimitWarning,
            stacklevel=6,
        )
