"""What the mixture costs beside the network: epochs with and without it, and against a literal loop over components."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from benchmarks.datasets import LOADERS
from benchmarks.recording import Row, record
from diva import DIVA
from diva.data import ArraySource, Samples
from diva.data.scaling import scaling_for
from diva.mixture.prior import MixturePrior
from diva.models.algorithm1 import Algorithm1, calibrate, fit_prior
from diva.models.base import flushed_denormals
from diva.models.clusters import refit_within_clusters, refresh_pseudo_labels
from diva.models.config import OwnNetworks, resolve
from diva.models.diva import FIRST_VARIANCE
from diva.models.networks import make_vae
from diva.models.state import DIVAState, Task
from diva.models.view_codes import encode_views
from diva.networks.priors import LatentPrior, StandardNormal
from diva.training.adam import Adam
from diva.training.augmentation import make_augmentation
from diva.training.encode import subset
from diva.training.loop import train_epoch


class LiteralPrior:
    """Equation 9 as it is written: a loop over components, a torch distribution for each."""

    def __init__(self, prior: MixturePrior) -> None:
        self._prior = prior
        total, family = prior.mixture.total, prior.mixture.family
        unit, origin = prior.standardization.scale, prior.standardization.mean
        means = (family.means(total) * unit + origin).float()
        spreads = (family.covariances(total) * unit**2).float()
        self._components = [MultivariateNormal(m, torch.diag(v)) for m, v in zip(means, spreads, strict=True)]

    def kl(self, q_mean: Tensor, q_log_var: Tensor, at: Tensor) -> Tensor:
        resp = self._prior.responsibilities(at)
        total = torch.zeros(len(q_mean))
        for k, component in enumerate(self._components):
            q = MultivariateNormal(q_mean, torch.diag_embed(q_log_var.exp()))
            total = total + resp[:, k] * kl_divergence(q, component)
        return total


def standard_normal(q_mean: Tensor, q_log_var: Tensor) -> Tensor:
    """The same for a standard normal prior; a check of the classes above."""
    q = Independent(Normal(q_mean, (q_log_var / 2).exp()), 1)
    return kl_divergence(q, Independent(Normal(torch.zeros_like(q_mean), torch.ones_like(q_mean)), 1))


def start(n_samples: int, **params: Any) -> tuple[DIVAState, Task]:
    """DIVA on MNIST before its first epoch."""
    return start_on(LOADERS["mnist"]().x[:n_samples], **params)


def start_on(x: NDArray[Any], **params: Any) -> tuple[DIVAState, Task]:
    """DIVA on images or rows before its first epoch."""
    source, is_image = ArraySource(x), x.ndim > 2
    samples = Samples(source, scaling_for(source, None))
    config = resolve(DIVA(**params), is_image=is_image).for_samples(len(samples))
    augmentation = make_augmentation(config.augmentation, is_image=is_image)
    torch.manual_seed(0)
    network = make_vae(config, samples.scaling.input_shape, OwnNetworks())
    optimizer = Adam(network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    chance = torch.Generator().manual_seed(0), np.random.default_rng(0)
    state = DIVAState(network, optimizer, *chance, seed=0, variance=FIRST_VARIANCE)
    return state, Task(config, samples, torch.device("cpu"), augmentation=augmentation)


def timed_epoch(state: DIVAState, task: Task, prior: LatentPrior) -> float:
    state.prior, objective = prior, Algorithm1(task)
    objective.before_epoch(state)
    begun = time.perf_counter()
    train_epoch(state, objective)
    return time.perf_counter() - begun


def literal_loop(n_samples: int = 6_400, repeats: int = 3) -> None:
    """Bar: the paper's training epoch against a literal loop with per-component KL divergences."""
    rows: list[Row] = []
    with flushed_denormals():
        state, task = start(n_samples, preset="paper")
        timed_epoch(state, task, StandardNormal())
        for _ in range(6):  # as many updates as in the middle of a run, so that there are as many components
            fit_prior(state, task)
        prior = state.prior
        assert isinstance(prior, MixturePrior)
        for repeat in range(repeats):
            ours, literal = (timed_epoch(state, task, p) for p in (prior, LiteralPrior(prior)))
            rows.append(
                {
                    "repeat": repeat,
                    "K": prior.mixture.n_components,
                    "one product, seconds": ours,
                    "literal loop, seconds": literal,
                    "ratio": literal / ours,
                }
            )
            print(rows[-1], flush=True)
    ratio = float(np.median([row["ratio"] for row in rows]))
    record(
        "training_literal",
        f"Training epoch of the paper's preset, {n_samples:,} MNIST images, batch 128, {torch.get_num_threads()} threads",
        rows,
        [f"The literal loop makes a MultivariateNormal and its KL divergence for every component. Median ratio {ratio:.2f}."],
    )


def overhead(n_samples: int = 60_000, n_timed: int = 12_800, repeats: int = 2, n_epochs: int = 20) -> None:
    """Bar: mixture and grouping as a share of an epoch; throughput against the same VAE without a mixture."""
    rows: list[Row] = []
    with flushed_denormals():
        state, task = start(n_samples, n_epochs=n_epochs)
        part = replace(task, samples=subset(task.samples, n_timed, state.rng))
        scale = n_samples / n_timed
        timed_epoch(state, part, StandardNormal())
        calibrate(state, task)
        for _ in range(repeats):
            begun = time.perf_counter()
            fit = fit_prior(state, task)
            update, prior = time.perf_counter() - begun, state.prior
            coupled, plain = (scale * timed_epoch(state, part, p) for p in (prior, StandardNormal()))
            state.prior = prior
            rows.append(
                {
                    "K": fit.state.n_components,
                    "epoch with mixture, seconds": coupled,
                    "epoch without, seconds": plain,
                    "throughput": plain / coupled,
                    "mixture update, seconds": update,
                    "share of an epoch": update / coupled,
                }
            )
            print(rows[-1], flush=True)
        begun = time.perf_counter()
        state.head = refresh_pseudo_labels(state, task)
        refreshed = time.perf_counter()
        refit_within_clusters(encode_views(state, task), state, task)
        filled = time.perf_counter()
    share = float(np.mean([row["share of an epoch"] for row in rows]))
    epoch = float(np.mean([row["epoch with mixture, seconds"] for row in rows]))
    refresh, last = refreshed - begun, filled - refreshed
    spread = (2 * refresh + last) / n_epochs / epoch
    record(
        "training_overhead",
        f"What the mixture costs on MNIST, {n_samples:,} images, {torch.get_num_threads()} threads",
        rows,
        [
            f"Epochs are timed on {n_timed:,} images and scaled up. The update includes encoding the codes it sees; mean share "
            f"{share:.3f}.",
            f"Clusters are found three times in {n_epochs} epochs: two refreshes of the pseudo-labels of {refresh:.1f} s, "
            f"and {last:.1f} s for the last clusters and mixture, all with encoding; spread over the run, {spread:.3f} of an "
            "epoch.",
        ],
    )


BENCHMARKS = {"literal": literal_loop, "overhead": overhead}
