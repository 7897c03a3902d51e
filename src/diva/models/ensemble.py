"""A consensus ensemble of mixtures: several base clusterings whose components are grouped together.

Each mixture ends in a local optimum of its own, and what all agree on is no accident of one: Strehl and Ghosh, "Cluster
ensembles" (2002); Fred and Jain, "Combining multiple clusterings using evidence accumulation" (2005).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits
from torch import Tensor

from diva.mixture.fitting import fit_codes, start_on
from diva.mixture.model import MixtureModel
from diva.mixture.options import MixtureOptions
from diva.mixture.warm_start import WarmStart
from diva.models.config import DIVAConfig
from diva.models.state import DIVAState, Task
from diva.models.view_codes import ViewCodes, flow_between, shared_responsibilities, walk_of
from diva.partition.consensus import revise
from diva.partition.louvain import communities
from diva.partition.resolution import choose_resolution
from diva.training.pseudo_labels import PseudoLabelHead

# codes that an ensemble is fitted on: on fewer, mixtures that start from k-means are worse than one that grows, and it costs
# little; on more, one mixture and the head were better where it was measured (MNIST, 60,000 images, one seed); why is not known
MIN_CODES, MAX_CODES = 20_000, 60_000
N_BASE_CLUSTERINGS = 6
N_CENTRES = 100  # that a base clustering starts from; finer components group better, and those that are not needed are merged
BASE_LAPS = 15  # enough to group by
MIN_SHARE_OF_GAIN = 0.5  # of the gain in likelihood that births have: with less, k-means cuts up what is one
GROWN_LAPS = 10  # enough to see that


@dataclass(frozen=True, eq=False)
class ConsensusEnsemble:
    """Several mixtures that decide together."""

    mixtures: Sequence[MixtureModel]  # the base clusterings
    member: NDArray[np.float64]  # (J, G): one where a component, of all mixtures one after the other, is in a cluster

    def predict_proba(self, codes: ViewCodes) -> Tensor:
        """Cluster of each sample, averaged over all mixtures and all its views, (n, G)."""
        proba = [shared_responsibilities(self.mixtures, z) @ self.member for z in codes.chunks()]
        return torch.from_numpy(np.concatenate(proba).reshape(len(codes.all), len(codes.clean), -1).mean(0))


def fit_ensemble(codes: ViewCodes, state: DIVAState, task: Task) -> ConsensusEnsemble | None:
    """Fit several mixtures and group all their components together; None if codes are too few, too many, or too plain.

    Components of different mixtures that hold the same samples end in one cluster, and a sample that they place in different
    ones is not sure. Clusters that are pseudo-labels already are revised, not found anew: the encoder has learnt to see each
    as one.
    """
    if not MIN_CODES <= len(codes.all) * len(codes.clean) <= MAX_CODES:
        return None
    mixtures = base_clusterings(codes, state, task)
    if not mixtures:
        return None
    resolution = _resolution_for(mixtures[0], codes, state, task)
    flow = flow_between(mixtures, codes, state.rng)
    if state.head is None:
        labels = communities(flow, resolution, state.rng)
    else:
        known = cluster_of_component(mixtures, codes, state.head)
        labels = revise(flow, known, resolution, state.rng)
    return ConsensusEnsemble(mixtures, np.eye(labels.max() + 1)[labels])


def _resolution_for(mixture: MixtureModel, codes: ViewCodes, state: DIVAState, task: Task) -> float:
    """What the config says; else one base clustering shows the gaps in the data as well as all, in a fraction of the time."""
    if task.config.resolution != "auto":
        return task.config.resolution
    chosen = choose_resolution(walk_of(codes, [mixture], state.rng), state.rng).best.natural_resolution
    return chosen if state.head is None else max(chosen, 1.0)  # a gap that was found needs no proof again


def cluster_of_component(mixtures: Sequence[MixtureModel], codes: ViewCodes, head: PseudoLabelHead) -> NDArray[np.int64]:
    """Cluster that the head sees most of each component in, (J,)."""
    mass = np.zeros((sum(m.n_components for m in mixtures), head.n_clusters))
    for z in codes.chunks():
        mass += shared_responsibilities(mixtures, z).T @ head.probabilities([z]).numpy()
    return np.asarray(mass.argmax(1))


def base_clusterings(codes: ViewCodes, state: DIVAState, task: Task) -> list[MixtureModel]:
    """Mixtures of all codes, each from a k-means of its own; none if there are few clusters, and plain ones.

    Births from a single component find mixtures as likely, but take several times as long, and are no better to group by.
    """
    X = torch.cat(codes.all).numpy()
    first = _base_clustering(X, state, task)
    if share_of_gain(first, X, task) < MIN_SHARE_OF_GAIN:
        return []
    return [first, *(_base_clustering(X, state, task) for _ in range(N_BASE_CLUSTERINGS - 1))]


def _base_clustering(X: NDArray[np.float32], state: DIVAState, task: Task) -> MixtureModel:
    options = replace(mixture_options(state, task), births=False, max_laps=BASE_LAPS)
    n_centres = min(N_CENTRES, task.config.max_components)
    seed = int(state.rng.integers(2**31))
    with warnings.catch_warnings(), threadpool_limits(1):  # k-means stops by a sum that depends on which thread is done first
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different codes than centres
        labels = MiniBatchKMeans(n_centres, batch_size=4096, n_init=1, random_state=seed).fit(X).labels_
    found, components = np.unique(labels, return_inverse=True)
    ids = range(state.next_component_id, state.next_component_id + len(found))
    centres = WarmStart(X, components, np.ones(len(X)), tuple(ids), ids.stop)
    return fit_codes(centres.applied_to(start_on(X, options)), X)


def share_of_gain(mixture: MixtureModel, X: NDArray[np.float32], task: Task) -> float:
    """What a base clustering gains over a single component, as a share of what births gain; infinite if they find no other.

    On codes of images, say, it is about 1. Where three Gaussians overlap, births find the three, and k-means cuts them into a
    hundred cells, whose grouping would be chance: the share is low, and on a single Gaussian less than nothing.
    """
    options = options_of(task.config, seed=0)
    single, grown = (
        fit_codes(start_on(X, changed), X).elbo
        for changed in (replace(options, births=False, max_laps=2), replace(options, max_laps=GROWN_LAPS))
    )
    gain, possible = mixture.elbo - single, grown - single
    return gain / possible if possible > 0 else math.copysign(math.inf, gain)


def mixture_options(state: DIVAState, task: Task) -> MixtureOptions:
    """Of a mixture of codes, with a seed of its own."""
    return options_of(task.config, seed=int(state.rng.integers(2**31)))


def options_of(config: DIVAConfig, seed: int) -> MixtureOptions:
    """What the config says about mixtures of codes."""
    return MixtureOptions(
        concentration=config.concentration,
        covariance_type=config.covariance_type,
        covariance_scale=config.covariance_scale,
        max_components=config.max_components,
        grouping=None,  # by views, which the mixture knows nothing of
        resolution=config.resolution,
        seed=seed,
    )
