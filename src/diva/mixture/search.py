"""Where a first fit starts: several starts, and shapes of components, compete by their bound on a sample of the data.

A mixture that grows from one component by births finds few broad ones, and may miss many that are close; one that starts from
k-means with many centres, and lets merges and deletions work, is good at those, and may end with too many. Variational bounds
compare them, as well as diagonal with full covariances: the highest is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diva.data import ArrayBatches, Rows
from diva.distributed import alike
from diva.mixture.bound import elbo
from diva.mixture.centres import CHUNK_ROWS, k_means
from diva.mixture.fitting import Fitted, fit_from, run_laps, warn_of_interrupt
from diva.mixture.gaussian import GaussianFamily
from diva.mixture.laps import LapRecord
from diva.mixture.model import MixtureModel
from diva.mixture.moves import MoveRecord
from diva.mixture.options import MixtureOptions
from diva.mixture.standardize import Measurement
from diva.mixture.state import MixtureState
from diva.mixture.stats import SuffStats
from diva.threads import one_thread

LEAST_SCALE = 0.01  # of the variance of the data, that the prior may come to expect of a component at least


class Found(NamedTuple):
    """Where to start from."""

    model: MixtureModel  # components without data
    interrupted: bool  # whether the search ended early


def fit_first(
    source: Iterable[Rows],
    measured: Measurement,
    options: MixtureOptions,
    rng: np.random.Generator,
    on_lap: Callable[[LapRecord], None] | None = None,
) -> Fitted:
    """A first fit: to a sample from several starts, then to all data from the best; after an interrupt, only labels."""

    def search() -> tuple[Found, Any]:
        return best_start(measured, options, rng, on_lap), rng.bit_generator.state

    (start, interrupted), rng.bit_generator.state = alike(search)
    if not interrupted:
        return fit_from(start, source, measured.n_rows, rng, on_lap=on_lap)
    n_laps, options = len(start.history), start.options
    fitted = fit_from(replace(start, options=replace(options, max_laps=1)), source, measured.n_rows, rng, moves=())
    warn_of_interrupt(n_laps)
    return Fitted(replace(fitted.model, options=options), fitted.labels)


@one_thread()
def best_start(
    measured: Measurement,
    options: MixtureOptions,
    rng: np.random.Generator,
    on_lap: Callable[[LapRecord], None] | None = None,
) -> Found:
    """Fit mixtures from several starts to the sample of a measurement; the one with the highest bound, its data forgotten.

    An interrupt ends the search, with the best so far; it is raised if nothing has been learnt yet.
    """
    interrupted, least_variance = False, None
    sample = measured.sample
    source = ArrayBatches(sample.values, sample.weights, options.batch_size)
    best: MixtureModel | None = None
    for start in _starts(measured, options, rng):
        chance = np.random.default_rng(rng.integers(2**63))
        moves = replace(options, births=options.births and start.n_components == 1).moves()  # of many centres none is missing
        try:
            model, fit = run_laps(start, source, chance, moves, on_lap)
        except KeyboardInterrupt:
            if best is None:
                raise
            interrupted = True
            break
        if best is None or model.elbo > best.elbo:
            best = replace(_with_birth_of(start.state, model), options=start.options)
            least_variance = start.state.least_variance
        if interrupted := fit.interrupted:
            break
    assert best is not None
    best = replace(best, state=_to_start_from(best.state, least_variance))
    if len(sample) < measured.n_rows:  # bounds on a sample say nothing beside those on all data
        best = replace(best, history=(), lineage=tuple(replace(r, lap=0) for r in best.lineage))
    return Found(best, interrupted)


def _to_start_from(state: MixtureState, least_variance: Tensor | None) -> MixtureState:
    """Components without their data, and without those that had hardly any."""
    held = torch.nonzero(state.total.counts >= min(1.0, float(state.total.counts.max()))).flatten().tolist()
    return replace(state.part(held).forgetting_data(), least_variance=least_variance)


def first_component(measured: Measurement, options: MixtureOptions) -> MixtureModel:
    """One component with the prior that the first data give, which is to be learnt if the options say so."""
    standardization = measured.robust().on_principal_axes(measured.sample)
    rounding = measured.rounding(standardization.scale)
    if standardization.axes is not None:
        rounding = rounding @ standardization.axes**2
    model = MixtureModel.start(standardization, options, rounding=rounding if bool((rounding > 0).any()) else None)
    if options.covariance_scale != "auto":
        return model
    return replace(model, state=replace(model.state, least_variance=rounding.clamp_min(LEAST_SCALE).to(model.device)))


def _starts(measured: Measurement, options: MixtureOptions, rng: np.random.Generator) -> Iterator[MixtureModel]:
    """One component, and many centres, for each shape of component."""
    first = first_component(measured, options)
    rounding, least_variance = first.state.family.rounding, first.state.least_variance
    for covariance_type in options.covariance_types if first.n_features > 1 else options.covariance_types[:1]:
        one = MixtureModel.start(first.standardization, replace(options, covariance_type=covariance_type), rounding=rounding)
        one = replace(one, state=replace(one.state, least_variance=least_variance))
        yield one
        if options.births:
            for _ in range(options.n_init):
                yield _from_centres(one, measured.sample, rng)


def _from_centres(one: MixtureModel, sample: Rows, rng: np.random.Generator) -> MixtureModel:
    """Components at the centres of k-means, as many as the sample could carry, with a prior that suits them."""
    z, given = one.standardization.apply(sample, one.device)
    z = z.double()
    weights = torch.ones(len(z), dtype=torch.float64, device=z.device) if given is None else given.double()
    n_different = min(float(weights.sum()), len(torch.unique(z, dim=0)))
    n_centres = int(n_different / (2 * (z.shape[1] + 1)))  # a Gaussian needs D + 1 samples to have a volume
    labels = k_means(z, weights, max(1, min(n_centres, one.options.max_components)), rng)
    ids = tuple(range(int(labels.max()) + 1))
    stats = _hard_stats(one.state.family, z, weights, labels, len(ids))
    many = replace(one.state, past=stats.zeros(len(ids)), total=stats, ids=ids, next_id=len(ids))
    return replace(one, state=many.in_canonical_order().with_adapted_prior())


def _hard_stats(family: GaussianFamily, z: Tensor, weights: Tensor, labels: Tensor, n_components: int) -> SuffStats:
    """Statistics of components that hold whole codes."""
    counts = torch.zeros(n_components, dtype=torch.float64, device=z.device).index_add_(0, labels, weights)
    products = torch.zeros(n_components, family.n_features, dtype=torch.float64, device=z.device)
    parts = (torch.split(values, CHUNK_ROWS) for values in (z, weights, labels))
    for rows, some, of in zip(*parts, strict=True):
        products.index_add_(0, of, family.features(rows) * some.unsqueeze(1))
    return family.stats(counts, products, torch.zeros_like(counts))


def _with_birth_of(start: MixtureState, model: MixtureModel) -> MixtureModel:
    """Put the components of a start on record, as born from one; all that they gained in the end is the gain."""
    if start.n_components == 1:
        return model
    state, whole = model.state, model.state.total.merged()
    gain = state.elbo - float(elbo(state.family, state.alpha, replace(whole, entropy=torch.zeros_like(whole.entropy))))
    birth = MoveRecord("birth", (0,), start.ids, gain, tuple(start.total.counts.tolist()), accepted=True)
    return replace(model, lineage=(birth, *model.lineage))
