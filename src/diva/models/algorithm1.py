"""Algorithm 1 of the paper as an objective: epochs of the VAE and laps of the mixture take turns; its lines in the margin.

Two phases are around it: a warm-up with a standard normal prior, before there is a mixture, and self-training on pseudo-labels
(Lee 2013), after which a new mixture is fitted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from diva.data import ArrayBatches, Samples
from diva.distributed import alone, gather, gather_rows, mine, own_generator
from diva.exceptions import TrainingError
from diva.mixture.fitting import start_on
from diva.mixture.laps import MixtureFit, fit_mixture
from diva.mixture.moves import Birth, Delete, Expansion, Merge, Move, Shuffle
from diva.mixture.moves.birth import BirthOptions
from diva.mixture.prior import MixturePrior
from diva.mixture.standardize import StandardizedBatches
from diva.models.clusters import refresh_pseudo_labels
from diva.models.ensemble import options_of
from diva.models.feature_clusters import Candidate
from diva.models.state import DIVAState, Task
from diva.networks.priors import StandardNormal
from diva.training.encode import encode, subset
from diva.training.loop import Batch, Loss, RunningMeans, shuffled_batches
from diva.training.state import EpochRecord

CALIBRATION_SAMPLES = 2048
PRIOR_ROWS = 20_000  # codes a mixture sees after an epoch, at most: it keeps what it learnt, and other codes come next time
EVALUATE_ROWS = 512


class Algorithm1:
    """What DIVA does in an epoch.

    Parameters
    ----------
    task : Task
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.rival: Candidate | None = None  # clusters of the features as they are, once they have been asked for

    @property
    def n_epochs(self) -> int:
        """Of all phases."""
        return self.task.schedule.n_epochs

    def before_epoch(self, state: DIVAState) -> None:
        """Choose pseudo-labels where the schedule asks for them."""
        state.sampled = []
        if self.task.schedule.refreshes_pseudo_labels(state.position):
            state.head = refresh_pseudo_labels(state, self.task) or state.head
            if state.head is not None:
                state.prior = StandardNormal()  # components would hold samples where they are

    def batches(self, state: DIVAState) -> Sequence[Batch]:
        """All samples in random order; where data are gone, draws that stand in for them beside, half of a batch at most."""
        task, n = self.task, len(self.task.samples)
        if task.replay is None:
            return [Batch(index) for index in shuffled_batches(n, task.config.batch_size, state.generator)]
        n_replayed = min(len(task.replay), n)
        own = shuffled_batches(n, math.ceil(task.config.batch_size * n / (n + n_replayed)), state.generator)
        freeze_norms(state.network)
        replayed = torch.randperm(len(task.replay), generator=state.generator)[:n_replayed].tensor_split(len(own))
        return [Batch(*rows) for rows in zip(own, replayed, strict=True)]

    def loss(self, batch: Batch, state: DIVAState) -> Loss:
        """Lines 3 to 6: the bound, and what keeps old codes in place or draws clusters apart."""
        task, elbo, vae = self.task, self.task.elbo, state.network
        x = task.samples.take(batch.index).to(task.device)  # line 3
        chance = own_generator(state.generator)
        view = None if task.augmentation is None else task.augmentation(x, chance)
        terms = vae.loss(x, state.prior, chance, view)  # lines 4 to 6
        if task.config.buffered_codes:
            state.sampled.append(terms.z.detach().cpu())  # line 4
        total, nat = elbo.loss(terms, state.variance), elbo.nat(state.variance)
        said = {"reconstruction": terms.reconstruction.mean(), "kl": terms.kl.mean()}
        if task.experience is not None:  # weighed like the pseudo-labels, which would move codes otherwise
            total = total + nat * task.experience.drift(batch.index, terms.q_mean[: len(batch)]).mean()
        if state.head is not None:  # counted in nats, the first term is the negative bound per number of a sample
            said["self_training"] = state.head.loss(batch.index, terms.q_mean)
            total = total + nat * said["self_training"]
        if task.replay is not None:
            total = total + self._replay_loss(batch, state, nat)
        return Loss(total, said)

    def _replay_loss(self, batch: Batch, state: DIVAState, nat: float) -> Tensor:
        """What is due to samples that are gone: decode their codes as before, keep them in place, tell their clusters apart."""
        task, replay, rows = self.task, self.task.replay, batch.replayed
        assert replay is not None
        z, x = replay.z[rows].to(task.device), replay.x[rows].to(task.device)
        errors = state.network.likelihood(state.network.decode(z), x)
        loss: Tensor = errors.sum() / max(len(batch), 1) / task.elbo.n_numbers
        loss = loss + nat * replay.drift.of(state.network)  # in nats, like all else that is so weighed
        if state.head is not None and len(rows):
            loss = loss + nat * state.head.loss(rows + len(task.samples), z)
        return loss

    def after_epoch(self, state: DIVAState, means: Mapping[str, float]) -> EpochRecord:
        """Lines 7 to 11: measure the decoder, then a few laps of the mixture on the codes."""
        task, elbo = self.task, self.task.elbo
        calibrate(state, task)
        started = time.perf_counter()
        fit = None
        if task.schedule.updates_mixture(state.position) and state.head is None:  # line 7
            fit = fit_prior(state, task)  # lines 8 to 11
        mixture_seconds = time.perf_counter() - started
        held_out = None
        if task.validation is not None:
            of = evaluate(state, task, task.validation)
            held_out = elbo.bound(of["reconstruction"], of["kl"], state.variance)
        return EpochRecord(
            epoch=state.epoch,
            phase=task.schedule.phase(state.position),
            loss=means["loss"],
            reconstruction=means["reconstruction"],
            kl=means["kl"],
            self_training=means.get("self_training"),
            kl_weight=elbo.weight(state.variance),
            bound=elbo.bound(means["reconstruction"], means["kl"], state.variance),
            validation_bound=held_out,
            n_components=state.prior.mixture.n_components if isinstance(state.prior, MixturePrior) else 0,
            n_clusters=None if state.head is None else state.head.n_clusters,
            births=sum(r.births for r in fit.history) if fit else 0,
            merges=sum(r.merges for r in fit.history) if fit else 0,
            deletes=sum(r.deletes for r in fit.history) if fit else 0,
            mixture_elbo_per_sample=fit.history[-1].elbo_per_sample if fit else None,
            mixture_seconds=mixture_seconds if fit else 0.0,
        )

    def stop_early(self, state: DIVAState, record: EpochRecord) -> None:
        """End the coupled phase: pseudo-labels are next."""
        if record.phase == "coupled":
            state.position = max(state.position, self.task.schedule.self_training_starts)


def freeze_norms(network: nn.Module) -> None:
    """Keep the statistics of batch norm as they are: those of a batch of new classes are not those of all samples."""
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            module.eval()


@torch.no_grad()
def calibrate(state: DIVAState, task: Task) -> None:
    """Set the decoder's variance to the mean squared error of clean samples: where a Gaussian likelihood is highest."""
    vae = state.network.eval()
    index = torch.arange(min(CALIBRATION_SAMPLES, len(task.samples)))
    error, n = 0.0, 0
    for part in mine(torch.split(index, EVALUATE_ROWS)).items:
        x = task.samples.take(part).to(task.device)
        error += float((vae.decode(vae.encode(x)[0]) - x).square().sum())
        n += x.numel()
    error, n = (sum(of_all) for of_all in zip(*gather((error, n), "measuring the decoder"), strict=True))
    if not math.isfinite(error):
        raise TrainingError(
            f"Reconstructions are no longer finite after epoch {state.epoch}. Most likely the learning rate is too high: "
            "lower learning_rate."
        )
    state.variance = max(error / n, 1e-6)
    vae.train()


def fit_prior(state: DIVAState, task: Task) -> MixtureFit:
    """Lines 8 to 11: a few laps of the mixture on codes, from where it was."""
    z = gathered_in_steps(state.sampled) if state.sampled else fresh_codes(state, task)
    if task.replay is not None:
        z = torch.cat([z, task.replay.z])
    with alone():  # all have the same codes, and few enough
        return _fit_prior_to(z, state, task)


def gathered_in_steps(sampled: Sequence[Tensor]) -> Tensor:
    """Codes of all steps of an epoch, in the order of the steps, whichever process drew them."""
    steps = np.repeat(np.arange(len(sampled)), [len(z) for z in sampled])
    return torch.from_numpy(gather_rows(steps, torch.cat(list(sampled)).numpy())[1])


def _fit_prior_to(z: Tensor, state: DIVAState, task: Task) -> MixtureFit:
    config, prior = task.config, state.prior
    if not isinstance(prior, MixturePrior):
        options = replace(options_of(config, seed=0), covariance_type=config.prior_covariance_type)
        start = start_on(z.numpy(), options, first_id=state.next_component_id)
        prior = MixturePrior(start.state, start.standardization, config.assignment)
    moves = moves_after_epoch(state, task, len(z))
    batches = StandardizedBatches(ArrayBatches(z.numpy()), prior.standardization, torch.device("cpu"))
    fit = fit_mixture(batches, prior.mixture.forgetting_data(), state.rng, moves=moves, max_laps=config.n_laps)
    # a lap tries births on what the lap before it has collected; where it is alone, that is the lap of the epoch before
    state.collected = dict(fit.collected) if config.n_laps == 1 else {}
    state.newborn = fit.newborn
    state.prior = replace(prior, mixture=fit.state.with_memo_as_past())
    state.next_component_id = fit.state.next_id
    state.lineage += [replace(r, epoch=state.epoch) for r in fit.lineage]
    return fit


def moves_after_epoch(state: DIVAState, task: Task, n_codes: int) -> list[Move]:
    """Line 10: the moves that the config asks for."""
    config = task.config
    moves: list[Move] = [Merge(), *([Delete()] if config.deletes else [])]
    if config.buffered_codes or task.schedule.allows_births(state.position):
        options = BirthOptions(
            collected_share=1.0 if config.birth_rows is None else min(1.0, config.birth_rows / n_codes),
            min_new_atoms=config.min_new_atoms,
            min_target_atoms=config.min_target_atoms,
            min_retained_atoms=config.min_retained_atoms,
            max_components=config.max_components,
        )
        if config.births == "all":
            moves.insert(0, Birth(**vars(options), collected=state.collected))
        else:  # after merges, which are judged by what is there
            moves.append(Expansion(**vars(options), judged=config.births == "collected", newborn=state.newborn))
    return [*moves, Shuffle()] if config.shuffles else moves


def fresh_codes(state: DIVAState, task: Task) -> Tensor:
    """Sampled codes of one encoder: the population whose density the prior should be.

    Means alone would not do: they lack the spread of q(z|x), so that components fitted on them are too tight for it, the KL
    term drives them further apart, and they shrink again.
    """
    samples = subset(task.samples, PRIOR_ROWS, state.rng)
    return encode(state.network, samples, task.device).sample(state.generator)


@torch.no_grad()
def evaluate(state: DIVAState, task: Task, samples: Samples) -> Mapping[str, float]:
    """Means of the loss terms of samples that are not learnt from; chance does not move on."""
    vae, means = state.network.eval(), RunningMeans()
    generator = torch.Generator().manual_seed(0)
    for index in torch.split(torch.arange(len(samples)), EVALUATE_ROWS):
        terms = vae.loss(samples.take(index).to(task.device), state.prior, generator)
        said = {"reconstruction": terms.reconstruction.mean(), "kl": terms.kl.mean()}
        means.add(len(index), Loss(task.elbo.loss(terms, state.variance), said))
    vae.train()
    return means.values
