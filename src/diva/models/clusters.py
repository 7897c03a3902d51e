"""Clusters of samples: a mixture of their codes, whose components are grouped by the walk that augmented views make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional

from diva.data import JoinedSource
from diva.mixture.fitting import continue_fit, fit_codes, fit_within_clusters, grouped_by_valleys, start_on
from diva.mixture.model import Draws, MixtureModel
from diva.mixture.moves import MoveRecord
from diva.mixture.prior import MixturePrior
from diva.mixture.state import MixtureState
from diva.mixture.warm_start import WarmStart
from diva.models.ensemble import fit_ensemble, mixture_options
from diva.models.feature_clusters import FEATURE_ROWS, fit_features
from diva.models.state import DIVAState, Task
from diva.models.view_codes import ViewCodes, choose_rows, encode_views, walk_of, with_stationary
from diva.partition.hierarchy import extend, group, group_as
from diva.partition.matching import Naming
from diva.partition.walk import Walk
from diva.training.encode import encode, subset
from diva.training.pseudo_labels import PseudoLabelHead
from diva.training.replay import GenerativeReplay

Weights: TypeAlias = NDArray[np.float64]

MIXTURE_ROWS = 60_000  # codes that clusters are found on, at most
DRAWS_EACH = 32  # of a component, to see which cluster it is in


def find_clusters(
    codes: ViewCodes,
    state: DIVAState,
    task: Task,
    weights: Weights | None = None,
    warm_start: WarmStart | None = None,
) -> MixtureModel:
    """Fit a mixture to codes of samples and views together, then group its components.

    More data carry more components, and finer ones group better: a component that straddles two classes cannot be undone.

    Parameters
    ----------
    codes : ViewCodes
    state, task
    weights : array of shape (n,), optional
        How many samples each code stands for.
    warm_start : WarmStart, optional
        Components to start from.
    """
    options = mixture_options(state, task)
    rows = np.sort(choose_rows(len(codes.all) * len(codes.clean), MIXTURE_ROWS, state.rng))
    X = torch.cat(codes.all).numpy()[rows]
    weights = None if weights is None else np.tile(weights, len(codes.all))[rows]
    start = start_on(X, options, weights, state.next_component_id)
    mixture = fit_codes(start if warm_start is None else warm_start.applied_to(start), X, weights)
    if not task.config.grouping:
        return mixture
    walk = walk_of(codes, [mixture], state.rng)
    by_views = mixture.with_hierarchy(group(walk, options.resolution, options.generator()))
    if by_views.n_clusters > 1 or options.resolution != "auto":
        return by_views
    # views that go everywhere, of rows with most features left out for instance, show no clusters: the density may
    return grouped_by_valleys(mixture, codes.clean.numpy(), options.generator())


def refit_within_clusters(
    codes: ViewCodes,
    state: DIVAState,
    task: Task,
    weights: Weights | None = None,
    warm_start: WarmStart | None = None,
) -> MixtureModel:
    """Fit a mixture inside every cluster that self-training has led to: no component straddles two of them.

    Parameters are those of ``find_clusters``.
    """
    proba_of = cluster_assigner(codes, state, task)
    labels = proba_of(codes).argmax(1).numpy()
    options = mixture_options(state, task)
    rows = np.sort(choose_rows(len(codes.clean), MIXTURE_ROWS, state.rng))
    X, labels = codes.clean.numpy()[rows], labels[rows]  # clean codes: the density is that of the data
    weights = None if weights is None else weights[rows]
    base = start_on(X, options, weights).with_next_id(state.next_component_id)
    starts: dict[int, MixtureState] = {}
    if warm_start is not None:
        warm_labels = proba_of(ViewCodes(torch.from_numpy(warm_start.codes))).argmax(1).numpy()
        starts = warm_start.within_clusters(base, warm_labels, np.unique(labels))
    mixture = fit_within_clusters(base, starts, X, labels, weights, options.generator()).model
    walk = walk_of(codes, [mixture], state.rng)
    return mixture.with_hierarchy(group_as(walk, mixture.cluster_of_component()))


def refresh_pseudo_labels(state: DIVAState, task: Task) -> PseudoLabelHead | None:
    """Find clusters as they are now, and choose which samples are sure enough to learn from; None if there is only one."""
    codes = encode_views(state, task)
    clean = codes.clean
    if task.replay is not None:
        mixture = extend_partition(codes, state, task, count_views=True)
        z = task.replay.z  # samples that are gone have pseudo-labels as well, for the head alone
        of_draws = torch.from_numpy(mixture.cluster_of_component()[mixture.predict(z.numpy(), level="component")])
        proba = cluster_proba(mixture, codes)
        proba = torch.cat([proba, functional.one_hot(of_draws, proba.shape[1])])
        clean = torch.cat([clean, z])
    elif ensemble := fit_ensemble(codes, state, task):
        proba = ensemble.predict_proba(codes)
    else:
        proba = cluster_proba(find_clusters(codes, state, task), codes)
    if proba.shape[1] < 2:
        return None
    return PseudoLabelHead.choose(proba, clean, task.config.learning_rate, task.device)


def cluster_assigner(codes: ViewCodes, state: DIVAState, task: Task) -> Callable[[ViewCodes], Tensor]:
    """What gives the final clusters: an ensemble draws better boundaries than the head, which was there to train by."""
    head = state.head
    assert head is not None
    if ensemble := fit_ensemble(codes, state, task):
        return ensemble.predict_proba
    return lambda others: head.probabilities(others.all)


def cluster_proba(mixture: MixtureModel, codes: ViewCodes) -> Tensor:
    """Cluster of each sample by one mixture, averaged over its views, (n, G)."""
    return torch.stack([torch.from_numpy(mixture.predict_proba(z.numpy())) for z in codes.all]).mean(0)


def extend_partition(codes: ViewCodes, state: DIVAState, task: Task, *, count_views: bool) -> MixtureModel:
    """Let the mixture as it was go on with new codes: its clusters stay, new components find their place among them.

    Parameters
    ----------
    codes : ViewCodes
    state, task
    count_views : bool
        Whether views count as samples: finer components group better, but masses are no longer those of the data.
    """
    assert task.replay is not None
    before, stationary = task.replay.before, task.replay.z.numpy()
    X = torch.cat(codes.all if count_views else (codes.clean,)).numpy()
    mixture = continue_fit(before, X[np.sort(choose_rows(len(X), MIXTURE_ROWS, state.rng))])

    def walk() -> Walk:
        return with_stationary(walk_of(codes, [mixture], state.rng), mixture, stationary)

    return extend_clusters(before, mixture, walk, state.rng)


def continue_within_clusters(codes: ViewCodes, state: DIVAState, task: Task) -> MixtureModel:
    """Go on inside every cluster that the head sees, old and new; old components keep what they have seen."""
    assert state.head is not None
    assert task.replay is not None
    before = task.replay.before
    labels = state.head.probabilities(codes.all).argmax(1).numpy()
    draws = before.draw_each(DRAWS_EACH, state.rng)
    drawn_labels = state.head.probabilities([torch.from_numpy(draws.codes).float()]).argmax(1).numpy()
    overlap = np.zeros((before.n_clusters, max(state.head.n_clusters, before.n_clusters)))
    old_clusters = before.cluster_of_component()
    np.add.at(overlap, (old_clusters[draws.components], drawn_labels), draws.weights)
    number_of = linear_sum_assignment(overlap, maximize=True)[1]  # old clusters stay apart, whatever the head makes of them
    rows = np.sort(choose_rows(len(codes.clean), MIXTURE_ROWS, state.rng))
    new_clusters = number_of[old_clusters]
    starts = {c: before.state.part(np.flatnonzero(new_clusters == c).tolist()) for c in np.unique(new_clusters).tolist()}
    rng = before.options.generator(before.next_lap)
    mixture = fit_within_clusters(before, starts, codes.clean.numpy()[rows], labels[rows], None, rng).model
    return mixture.named_after(before, state.rng)


def extend_clusters(
    before: MixtureModel, mixture: MixtureModel, walk: Callable[[], Walk], rng: np.random.Generator
) -> MixtureModel:
    """Give a mixture that has gone on the clusters it had before; new components join them or form new ones."""
    if before.hierarchy is None:
        return mixture
    ids, ids_before = mixture.state.ids, before.state.ids
    if sorted(ids) == sorted(ids_before):
        hierarchy = before.hierarchy.permuted([ids_before.index(i) for i in ids])
    else:
        cluster_of = before.cluster_by_id()
        hierarchy = extend(walk(), [cluster_of.get(i, -1) for i in ids])
    return mixture.with_hierarchy(hierarchy).named_after(before, rng)


# --- the mixture that is left


def final_mixture(state: DIVAState, task: Task) -> tuple[Tensor | None, MixtureModel]:
    """Codes of the samples, and a mixture of them and of all that is remembered; clusters are named after those before.

    Codes that are the features are not returned: there may be too many to hold.
    """
    codes: Tensor | None
    past = None
    if task.past is not None:
        past = encode(state.network, replace(task.samples, source=task.past.source), task.device).mean.numpy()
    if task.config.codes == "features":
        codes, mixture = None, _feature_mixture(state, task)
    elif not task.config.final_refit and isinstance(state.prior, MixturePrior):
        codes = encode(state.network, task.samples, task.device).mean
        adopted = state.prior.mixture.without(state.newborn)  # what no lap has given data is not known to be any good
        state.lineage += [MoveRecord("delete", (i,), (), 0.0, (), True) for i in sorted(state.newborn)]
        naming = Naming.first(adopted.n_components)
        mixture = MixtureModel(adopted, state.prior.standardization, mixture_options(state, task), naming)
    elif task.replay is not None:
        codes, mixture = _continued_mixture(state, task, task.replay)
    else:
        codes, mixture = _refitted_mixture(state, task, past)
    if state.before is not None:
        mixture = mixture.named_by(state.before, _remembered(state.before, state, task, past))
        state.lineage += _unexplained_losses(state.before, mixture, state.lineage)
    return codes, mixture


def _feature_mixture(state: DIVAState, task: Task) -> MixtureModel:
    """Start anew, or from the components of the fit before: they are in the same place, since nothing was learnt."""
    codes = encode(state.network, subset(task.samples, FEATURE_ROWS, state.rng), task.device).mean
    if state.before is None:
        return fit_features(codes, task.config, int(state.rng.integers(2**31)))
    start = replace(state.before, state=state.before.state.forgetting_data(), history=(), lineage=())
    return fit_codes(start, codes.numpy())


def _continued_mixture(state: DIVAState, task: Task, replay: GenerativeReplay) -> tuple[Tensor, MixtureModel]:
    codes = encode_views(state, task)
    if state.head is None:
        mixture = extend_partition(codes, state, task, count_views=False)
    else:
        mixture = continue_within_clusters(codes, state, task)
    own = mixture.lineage[len(replay.before.lineage) :]  # the rest is in the lineage of the training already
    return codes.clean, replace(mixture, lineage=own)


def _refitted_mixture(state: DIVAState, task: Task, past: NDArray[np.float32] | None) -> tuple[Tensor, MixtureModel]:
    warm_start = weights = None
    if task.past is not None and state.before is not None and past is not None:
        warm_start = WarmStart(past, task.past.components, task.past.weights, state.before.state.ids, state.next_component_id)
        if task.past.gone:
            fresh = task.fresh_samples
            task = replace(task, samples=replace(fresh, source=JoinedSource([fresh.source, task.past.source])))
            weights = np.concatenate([np.ones(len(fresh)), warm_start.weights])
    codes = encode_views(state, task)
    fit = find_clusters if state.head is None else refit_within_clusters
    return codes.clean, fit(codes, state, task, weights, warm_start)


def _remembered(before: MixtureModel, state: DIVAState, task: Task, past: NDArray[np.float32] | None) -> Draws:
    """Where remembered samples are now, and draws of what stays in place, by their components before."""
    parts: list[Draws] = []
    if task.past is not None and past is not None:
        parts.append(Draws(past, task.past.components, task.past.weights))
    if task.replay is not None:
        codes, _, weights = task.replay.before.draw_each(DRAWS_EACH, state.rng)
        parts.append(Draws(codes.astype(np.float32), before.predict(codes, "component"), weights))
    return Draws(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def _unexplained_losses(before: MixtureModel, after: MixtureModel, lineage: Sequence[MoveRecord]) -> list[MoveRecord]:
    """Components that are gone without a move of their own: nothing of what is remembered was theirs."""
    named = {i for record in (*lineage, *after.lineage) for i in record.parents if i not in record.children}
    lost = sorted(set(before.state.ids) - set(after.state.ids) - named)
    return [MoveRecord("delete", (i,), (), 0.0, (), True) for i in lost]
