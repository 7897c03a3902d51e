"""Where a first fit starts: several starts, and shapes of components, compete by their bound on a sample of the data.

A mixture that grows from one component by births finds few broad ones, and may miss many that are close; one that starts from
k-means with many centres, and lets merges work, may end with too many, since a merge must pay by itself. So the centres are
agglomerated, down to one, and laps go on from where the bound was highest on the way. Variational bounds compare such starts,
as well as diagonal with full covariances, once they have settled by all moves but births, which cost most; the highest goes on
with births too.
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
from diva.mixture.agglomeration import agglomerate, holding
from diva.mixture.bound import elbo
from diva.mixture.centres import CHUNK_ROWS, k_means
from diva.mixture.fitting import Fitted, fit_from, run_laps, warn_of_interrupt
from diva.mixture.gaussian import GaussianFamily
from diva.mixture.laps import LapRecord
from diva.mixture.model import MixtureModel
from diva.mixture.moves import MoveRecord
from diva.mixture.options import MixtureOptions
from diva.mixture.standardize import FARTHEST, Measurement
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
    seed = int(rng.integers(2**63))  # all starts have the same luck
    without_births = replace(options, births=False).moves()
    for start in _starts(measured, options, seed):
        try:
            model, fit = run_laps(start, source, np.random.default_rng(seed), without_births, on_lap)
        except KeyboardInterrupt:
            if best is None:
                raise
            interrupted = True
            break
        if best is None or model.elbo > best.elbo:
            best, least_variance = _with_birth_of(start.state, model), start.state.least_variance
        if interrupted := fit.interrupted:
            break
    assert best is not None
    if not interrupted and options.births:
        model, fit = run_laps(_to_start_from(best, least_variance), source, np.random.default_rng(seed), on_lap=on_lap)
        best, interrupted = replace(model, options=best.options), fit.interrupted
    best = _to_start_from(best, least_variance)
    if len(sample) < measured.n_rows:  # bounds on a sample say nothing beside those on all data
        best = replace(best, history=(), lineage=tuple(replace(r, lap=0) for r in best.lineage))
    return Found(best, interrupted)


def _to_start_from(model: MixtureModel, least_variance: Tensor | None) -> MixtureModel:
    """Components without their data, and without those that had hardly any."""
    state = model.state
    held = torch.nonzero(state.total.counts >= min(1.0, float(state.total.counts.max()))).flatten().tolist()
    return replace(model, state=replace(state.part(held).forgetting_data(), least_variance=least_variance))


def first_component(measured: Measurement, options: MixtureOptions) -> MixtureModel:
    """One component with the prior that the first data give, which is to be learnt if the options say so."""
    standardization = measured.robust().on_principal_axes(measured.sample, varies=not measured.flat.all())
    rounding = measured.rounding(standardization.scale)
    if standardization.axes is not None:
        rounding = rounding @ standardization.axes**2
    rounding = rounding.clamp_max(FARTHEST**2)  # a weight of next to nothing gives a scale of next to nothing
    model = MixtureModel.start(standardization, options, rounding=rounding if bool((rounding > 0).any()) else None)
    if options.covariance_scale != "auto":
        return model
    return replace(model, state=replace(model.state, least_variance=rounding.clamp_min(LEAST_SCALE).to(model.device)))


def _starts(measured: Measurement, options: MixtureOptions, seed: int) -> Iterator[MixtureModel]:
    """Cuts of an agglomeration, or one component, for each shape of component."""
    first = first_component(measured, options)
    rounding, least_variance = first.state.family.rounding, first.state.least_variance
    from_one = not options.births or options.n_init == 0
    centred = None if from_one else _at_centres(first, measured.sample, np.random.default_rng(seed))
    for covariance_type in options.covariance_types if first.n_features > 1 else options.covariance_types[:1]:
        one = MixtureModel.start(first.standardization, replace(options, covariance_type=covariance_type), rounding=rounding)
        one = replace(one, state=replace(one.state, least_variance=least_variance))
        if centred is None:
            yield one
            continue
        for cut in agglomerate(holding(one.state, centred.stats(one.state.family)), options.n_init):
            yield replace(one, state=cut)


class _Centred(NamedTuple):
    """Codes, each at one of the centres of k-means."""

    z: Tensor  # (n, D)
    weights: Tensor  # (n,)
    labels: Tensor  # (n,): of the centres

    def stats(self, family: GaussianFamily) -> SuffStats:
        """Statistics of components that hold whole codes, one for each centre."""
        n_components = int(self.labels.max()) + 1
        counts = torch.zeros(n_components, dtype=torch.float64, device=self.z.device).index_add_(0, self.labels, self.weights)
        products = torch.zeros(n_components, family.n_features, dtype=torch.float64, device=self.z.device)
        for rows, some, of in zip(*(torch.split(values, CHUNK_ROWS) for values in self), strict=True):
            products.index_add_(0, of, family.features(rows) * some.unsqueeze(1))
        return family.stats(counts, products, torch.zeros_like(counts))


def _at_centres(first: MixtureModel, sample: Rows, rng: np.random.Generator) -> _Centred:
    """As many centres as there may be components, or one for each code of fewer."""
    z, given = first.standardization.apply(sample, first.device)
    z = z.double()
    weights = torch.ones(len(z), dtype=torch.float64, device=z.device) if given is None else given.double()
    return _Centred(z, weights, k_means(z, weights, first.options.max_components, rng))


def _with_birth_of(start: MixtureState, model: MixtureModel) -> MixtureModel:
    """Put the components of a start on record, as born from one; all that they gained in the end is the gain."""
    if start.n_components == 1:
        return model
    state, whole = model.state, model.state.total.merged()
    gain = state.elbo - float(elbo(state.family, state.alpha, replace(whole, entropy=torch.zeros_like(whole.entropy))))
    birth = MoveRecord("birth", (0,), start.ids, gain, tuple(start.total.counts.tolist()), accepted=True)
    return replace(model, lineage=(birth, *model.lineage))
