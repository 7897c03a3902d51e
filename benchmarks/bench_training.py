"""What the mixture costs beside the network: epochs with and without it, and against a literal loop over components."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from diva.models.building import flushed_denormals, make_learner, make_recipe, make_views
from diva.training.clustering import refit_within_clusters, refresh_pseudo_labels
from diva.training.view_codes import encode_views
from torch import Tensor
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from benchmarks.datasets import LOADERS
from benchmarks.recording import Row, record
from diva import DIVA
from diva.data import ArraySource, Samples
from diva.data.scaling import scaling_for
from diva.mixture.prior import MixturePrior
from diva.networks.priors import LatentPrior, StandardNormal
from diva.training.encode import subset
from diva.training.loop import Course, Learner, calibrate, fit_prior, fresh_codes, train_epoch


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


def start(n_samples: int, **params: Any) -> tuple[Learner, Course]:
    """A learner on MNIST before its first epoch."""
    images = LOADERS["mnist"]().x[:n_samples]
    model = DIVA(random_state=0, **params)
    source = ArraySource(images)
    samples = Samples(source, scaling_for(source, None))
    recipe = make_recipe(model, True).for_samples(len(samples))
    course = Course(recipe, samples, None, make_views(model, recipe, samples), torch.device("cpu"), None, refresh_pseudo_labels)
    return make_learner(model, course), course


def timed_epoch(learner: Learner, course: Course, prior: LatentPrior) -> float:
    learner.prior = prior
    begun = time.perf_counter()
    train_epoch(learner, course)
    return time.perf_counter() - begun


def literal_loop(n_samples: int = 6_400, repeats: int = 3) -> None:
    """Bar: the paper's training epoch against a literal loop with per-component KL divergences."""
    rows: list[Row] = []
    with flushed_denormals():
        learner, course = start(n_samples, preset="paper")
        _, buffer = train_epoch(learner, course)
        assert buffer is not None
        for _ in range(6):  # as many updates as in the middle of a run, so that there are as many components
            fit_prior(learner, course, buffer)
        prior = learner.prior
        assert isinstance(prior, MixturePrior)
        for repeat in range(repeats):
            ours, literal = (timed_epoch(learner, course, p) for p in (prior, LiteralPrior(prior)))
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
        learner, course = start(n_samples, n_epochs=n_epochs)
        part = replace(course, samples=subset(course.samples, n_timed, learner.rng))
        scale = n_samples / n_timed
        timed_epoch(learner, part, StandardNormal())
        calibrate(learner, course)
        for _ in range(repeats):
            begun = time.perf_counter()
            fit = fit_prior(learner, course, fresh_codes(learner, course))
            update, prior = time.perf_counter() - begun, learner.prior
            coupled, plain = (scale * timed_epoch(learner, part, p) for p in (prior, StandardNormal()))
            learner.prior = prior
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
        learner.teacher = refresh_pseudo_labels(learner, course)
        taught = time.perf_counter()
        refit_within_clusters(encode_views(learner, course), learner, course)
        filled = time.perf_counter()
    share = float(np.mean([row["share of an epoch"] for row in rows]))
    epoch = float(np.mean([row["epoch with mixture, seconds"] for row in rows]))
    lesson, last = taught - begun, filled - taught
    spread = (2 * lesson + last) / n_epochs / epoch
    record(
        "training_overhead",
        f"What the mixture costs on MNIST, {n_samples:,} images, {torch.get_num_threads()} threads",
        rows,
        [
            f"Epochs are timed on {n_timed:,} images and scaled up. The update includes encoding the codes it sees; mean share "
            f"{share:.3f}.",
            f"Clusters are found three times in {n_epochs} epochs: two lessons of {lesson:.1f} s, and {last:.1f} s for the "
            f"last vote and mixture, all with encoding; spread over the run, {spread:.3f} of an epoch.",
        ],
    )


BENCHMARKS = {"literal": literal_loop, "overhead": overhead}
