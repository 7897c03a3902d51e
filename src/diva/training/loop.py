"""Algorithm 1: epochs of the VAE and laps of the mixture, in turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from diva.data import Samples
from diva.exceptions import TrainingError
from diva.mixture.laps import MixtureFit
from diva.mixture.moves import Birth, Delete, Merge, Move, MoveRecord, Shuffle
from diva.mixture.prior import LatentPrior, MixturePrior, StandardNormal
from diva.models.recipes import Recipe, Schedule
from diva.networks.vae import VAE, LossTerms
from diva.training.augmentation import Views
from diva.training.encode import encode, start_mixture, subset, update_mixture
from diva.training.pseudo_labels import Teacher
from diva.training.replay import Recall, Rehearsal

CALIBRATION_SAMPLES = 2048
FIRST_VARIANCE = 0.1  # of the decoder before it has been measured, as a share of the data's
KL_SHARE = (
    0.25  # of the calibrated weight: an error that is still falling overstates the noise, and too much lets codes collapse
)
PRIOR_ROWS = 20_000  # codes a mixture sees after an epoch, at most: it keeps what it learnt, and other codes come next time


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch did, as a plain row."""

    epoch: int
    phase: str
    loss: float
    reconstruction: float
    kl: float
    sharpening: float | None
    kl_weight: float
    bound: float
    validation_bound: float | None
    n_components: int
    n_clusters: int | None
    births: int
    merges: int
    deletes: int
    mixture_elbo_per_sample: float | None
    seconds: float
    mixture_seconds: float


@dataclass
class Learner:
    """Everything that changes while DIVA learns; a checkpoint is exactly this.

    Attributes
    ----------
    vae, optimizer
    prior : LatentPrior
        What the VAE sees of the mixture.
    variance : float
        Of the decoder, by which the KL term is weighed.
    generator, rng
        All chance: torch's for networks and views, numpy's for the mixture.
    seed : int
        What they were set to at the beginning.
    epoch : int
        Epochs done.
    position : int
        Place in the schedule: further than ``epoch`` if training stopped early.
    teacher : Teacher or None
        In the sharpening phase.
    best_bound, best_epoch
        For early stopping.
    history, lineage
    next_component_id : int
        First name that no component of the training has had.
    goes_on : bool
        Whether there was a fit before, whose clusters keep their names.
    """

    vae: VAE
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    rng: np.random.Generator
    seed: int
    variance: float
    prior: LatentPrior = field(default_factory=StandardNormal)
    epoch: int = 0
    position: int = 0
    teacher: Teacher | None = None
    best_bound: float = -math.inf
    best_epoch: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    lineage: list[MoveRecord] = field(default_factory=list)
    next_component_id: int = 0
    goes_on: bool = False

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Of the networks and, while there is one, of the teacher's head."""
        return [self.optimizer] if self.teacher is None else [self.optimizer, self.teacher.optimizer]


@dataclass(frozen=True)
class Course:
    """What stays the same while DIVA learns.

    Attributes
    ----------
    recipe : Recipe
    samples : Samples
    validation : Samples or None
    views : Views or None
    device : torch.device
    patience : int or None
        Epochs without a better bound after which the coupled phase ends.
    teach : callable
        Finds clusters as they are now and chooses what to teach; None if there is nothing to tell apart.
    rehearsal : Rehearsal or None
        Which of the samples are remembered ones, and the codes they should keep.
    recall : Recall or None
        What stands in for samples that are gone.
    """

    recipe: Recipe
    samples: Samples
    validation: Samples | None
    views: Views | None
    device: torch.device
    patience: int | None
    teach: Callable[[Learner, Course], Teacher | None]
    rehearsal: Rehearsal | None = None
    recall: Recall | None = None

    @property
    def schedule(self) -> Schedule:
        """Epochs of each phase."""
        return self.recipe.schedule

    @property
    def n_numbers(self) -> int:
        """Numbers in a sample, d."""
        return self.samples.scaling.n_numbers


def fit_epochs(
    learner: Learner,
    course: Course,
    on_epoch: Callable[[EpochRecord], bool],
    on_step: Callable[[int, int], None] = lambda step, n_steps: None,
) -> None:
    """Algorithm 1, its lines in the margin; ends when the schedule does or ``on_epoch`` returns True."""
    schedule = course.schedule
    while learner.position < schedule.n_epochs:
        started = time.perf_counter()
        # dropout in a user's networks draws on torch's own generator; so it repeats, and a resumed run goes on alike
        torch.manual_seed(learner.seed + learner.epoch)
        if schedule.teaches(learner.position):
            learner.teacher = course.teach(learner, course) or learner.teacher
            if learner.teacher is not None:
                learner.prior = StandardNormal()  # components would hold samples where they are
        terms, buffer = train_epoch(learner, course, on_step)  # lines 3 to 6
        calibrate(learner, course)
        mixture_started = time.perf_counter()
        fit = None
        if schedule.updates_mixture(learner.position) and learner.teacher is None:  # line 7
            z = buffer if buffer is not None else fresh_codes(learner, course)
            if course.recall is not None:
                z = torch.cat([z, course.recall.z])
            fit = fit_prior(learner, course, z)  # lines 8 to 11
        record = close_epoch(learner, course, terms, fit, started, mixture_started)
        if on_epoch(record):
            break


def train_epoch(
    learner: Learner, course: Course, on_step: Callable[[int, int], None] = lambda step, n_steps: None
) -> tuple[MeanTerms, Tensor | None]:
    """Lines 3 to 6: one pass over the samples in random order, in steps of the optimizer.

    Returns
    -------
    terms : MeanTerms
    buffer : Tensor of shape (n, D) or None
        Sampled codes, gathered while the encoder moved, if the recipe asks for them.
    """
    vae, recipe, generator = learner.vae.train(), course.recipe, learner.generator
    order = torch.randperm(len(course.samples), generator=generator)
    sums, buffer = MeanTerms(), []
    n_recalled = 0 if course.recall is None else min(len(course.recall), len(order))  # half of a batch at most
    batches = mini_batches(order, math.ceil(recipe.batch_size * len(order) / (len(order) + n_recalled)))
    recalled: Sequence[Tensor] = ()
    if course.recall is not None:
        rest_norms(vae)
        recalled = torch.randperm(len(course.recall), generator=generator)[:n_recalled].tensor_split(len(batches))
    for step, index in enumerate(batches):
        x = course.samples.take(index).to(course.device)  # line 3
        view = None if course.views is None else course.views(x, generator)
        terms = vae.loss(x, learner.prior, generator, view)  # lines 4 to 6
        loss, sharpening = total_loss(learner, course, terms, index)
        if course.recall is not None:
            loss = loss + remind(learner, course, course.recall, recalled[step], len(index))
        check_finite(loss, terms, learner.epoch, step)
        for optimizer in learner.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in learner.optimizers:
            optimizer.step()
        sums.add(len(index), loss, terms, sharpening)
        if recipe.buffered_codes:
            buffer.append(terms.z.detach().cpu())  # line 4
        on_step(step + 1, len(batches))
    return sums, torch.cat(buffer) if buffer else None


def mini_batches(order: Tensor, batch_size: int) -> Sequence[Tensor]:
    """Cut into batches of nearly equal size, at least 2, so that none is too small for batch norm."""
    return order.tensor_split(max(1, min(math.ceil(len(order) / batch_size), len(order) // 2)))


def calibrated_weight(learner: Learner, course: Course) -> float:
    """What a nat is worth beside the reconstruction term.

    With a Gaussian decoder of variance s the bound is -(SSE / 2s + KL): beside the squared error it is 2s.
    """
    return 1.0 if course.recipe.reconstruction == "nll" else 2.0 * KL_SHARE * learner.variance


def kl_weight(learner: Learner, course: Course) -> float:
    """Weight of the KL term beside the summed squared error, or beside the negative log-likelihood."""
    recipe = course.recipe
    if recipe.kl_weight == "auto":
        return calibrated_weight(learner, course)
    return recipe.kl_weight if recipe.reconstruction == "nll" else recipe.kl_weight * course.n_numbers


def total_loss(learner: Learner, course: Course, terms: LossTerms, index: Tensor) -> tuple[Tensor, Tensor | None]:
    """Mean loss of a batch, per number of a sample as in the paper, and its sharpening term."""
    loss = (terms.reconstruction + kl_weight(learner, course) * terms.kl).mean() / course.n_numbers
    if course.rehearsal is not None:  # weighed like the sharpening, which would move codes otherwise
        drift = course.rehearsal.drift(index, terms.q_mean[: len(index)])
        loss = loss + calibrated_weight(learner, course) * drift.mean()
    if learner.teacher is None:
        return loss, None
    sharpening = learner.teacher.loss(index, terms.q_mean)
    # counted in nats, the first term is the negative bound per number of a sample
    return loss + calibrated_weight(learner, course) * sharpening, sharpening


def remind(learner: Learner, course: Course, recall: Recall, rows: Tensor, n_new: int) -> Tensor:
    """What is due to samples that are gone: decode their codes as before, tell their clusters apart, leave them in place."""
    z, x = recall.z[rows].to(course.device), recall.x[rows].to(course.device)
    loss = learner.vae.likelihood(learner.vae.decode(z), x).sum() / max(n_new, 1) / course.n_numbers
    loss = loss + calibrated_weight(learner, course) * recall.drift(learner.vae)  # in nats, like all else that is so weighed
    if learner.teacher is not None and len(rows):
        loss = loss + calibrated_weight(learner, course) * learner.teacher.loss(rows + len(course.samples), z)
    return cast(Tensor, loss)


def rest_norms(vae: VAE) -> None:
    """Keep the statistics of batch norm as they are: those of a batch of new kinds are not those of all samples."""
    for module in vae.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()


def check_finite(loss: Tensor, terms: LossTerms, epoch: int, step: int) -> None:
    """Stop at the step where a NaN appears, not where it is noticed."""
    if bool(torch.isfinite(loss)):
        return
    culprit = next((n for n in ("reconstruction", "kl") if not bool(torch.isfinite(getattr(terms, n)).all())), "sharpening")
    cause = {
        "reconstruction": "the decoder's output overflowed: lower learning_rate, or look for extreme values in the data",
        "kl": "codes or their variances overflowed: lower learning_rate, or raise covariance_scale",
        "sharpening": "the head overflowed: lower learning_rate",
    }[culprit]
    raise TrainingError(f"The {culprit} term became {float(loss.detach())} in epoch {epoch}, step {step}. Most likely {cause}.")


@torch.no_grad()
def calibrate(learner: Learner, course: Course) -> None:
    """Set the decoder's variance to the mean squared error of clean samples: where a Gaussian likelihood is highest."""
    vae = learner.vae.eval()
    index = torch.arange(min(CALIBRATION_SAMPLES, len(course.samples)))
    error, n = 0.0, 0
    for part in torch.split(index, 512):
        x = course.samples.take(part).to(course.device)
        error += float((vae.decode(vae.encode(x)[0]) - x).square().sum())
        n += x.numel()
    if not math.isfinite(error):
        raise TrainingError(
            f"Reconstructions are no longer finite after epoch {learner.epoch}. Most likely the learning rate is too high: "
            "lower learning_rate."
        )
    learner.variance = max(error / n, 1e-6)
    vae.train()


def fresh_codes(learner: Learner, course: Course) -> Tensor:
    """Sampled codes of the encoder at rest: the population whose density the prior should be.

    Means alone would not do: they lack the spread of q(z|x), so that components fitted on them are too tight for it, the KL
    term drives them further apart, and they shrink again.
    """
    samples = subset(course.samples, PRIOR_ROWS, learner.rng)
    return encode(learner.vae, samples, course.device).sample(learner.generator)


def fit_prior(learner: Learner, course: Course, z: Tensor) -> MixtureFit:
    """Lines 8 to 11: a few laps of the mixture on codes, from where it was."""
    recipe, schedule = course.recipe, course.schedule
    prior = learner.prior
    if not isinstance(prior, MixturePrior):
        prior = replace(
            start_mixture(z, recipe.covariance_type, recipe.concentration, recipe.covariance_scale, learner.next_component_id),
            assignment=recipe.assignment,
        )
    moves: list[Move] = [Merge(), Delete(), *([Shuffle()] if recipe.shuffles else [])]
    if recipe.buffered_codes or schedule.allows_births(learner.position):
        share = 1.0 if recipe.birth_rows is None else min(1.0, recipe.birth_rows / len(z))
        birth = Birth(min_mass=recipe.min_new_mass, max_components=recipe.max_components, collected_share=share)
        moves.insert(0, birth)
    learner.prior, fit = update_mixture(prior, z, moves, recipe.n_laps, learner.rng)
    learner.next_component_id = fit.state.next_id
    learner.lineage += [replace(r, epoch=learner.epoch) for r in fit.lineage]
    return fit


def close_epoch(
    learner: Learner,
    course: Course,
    terms: MeanTerms,
    fit: MixtureFit | None,
    started: float,
    mixture_started: float,
) -> EpochRecord:
    """Write the epoch's record, and decide whether to stop early."""
    mixture_seconds = time.perf_counter() - mixture_started
    bound = bound_of(terms, learner, course)
    held_out = None if course.validation is None else bound_of(evaluate(learner, course, course.validation), learner, course)
    record = EpochRecord(
        epoch=learner.epoch,
        phase=course.schedule.phase(learner.position),
        loss=terms.loss,
        reconstruction=terms.reconstruction,
        kl=terms.kl,
        sharpening=terms.sharpening if learner.teacher is not None else None,
        kl_weight=kl_weight(learner, course),
        bound=bound,
        validation_bound=held_out,
        n_components=learner.prior.mixture.n_components if isinstance(learner.prior, MixturePrior) else 0,
        n_clusters=None if learner.teacher is None else learner.teacher.head.out_features,
        births=sum(r.births for r in fit.history) if fit else 0,
        merges=sum(r.merges for r in fit.history) if fit else 0,
        deletes=sum(r.deletes for r in fit.history) if fit else 0,
        mixture_elbo_per_sample=fit.history[-1].elbo_per_sample if fit else None,
        seconds=time.perf_counter() - started,
        mixture_seconds=mixture_seconds if fit else 0.0,
    )
    learner.history.append(record)
    watched = bound if held_out is None else held_out
    if watched > learner.best_bound:
        learner.best_bound, learner.best_epoch = watched, learner.epoch
    waited = learner.epoch - learner.best_epoch
    learner.epoch += 1
    learner.position += 1
    if course.patience is not None and waited >= course.patience and record.phase == "coupled":
        learner.position = max(learner.position, course.schedule.sharpening_starts)
    return record


@dataclass
class MeanTerms:
    """Running means of the loss terms over an epoch."""

    n: int = 0
    loss: float = 0.0
    reconstruction: float = 0.0
    kl: float = 0.0
    sharpening: float = 0.0

    def add(self, n: int, loss: Tensor, terms: LossTerms, sharpening: Tensor | None) -> None:
        """Take in a batch of n samples."""
        self.n += n
        share = n / self.n
        parts = (loss, terms.reconstruction.mean(), terms.kl.mean(), torch.zeros(()) if sharpening is None else sharpening)
        values = torch.stack([part.detach().cpu() for part in parts]).tolist()
        for name, value in zip(("loss", "reconstruction", "kl", "sharpening"), values, strict=True):
            setattr(self, name, getattr(self, name) + share * (value - getattr(self, name)))


def bound_of(terms: MeanTerms, learner: Learner, course: Course) -> float:
    """Evidence lower bound per sample, of a Gaussian decoder."""
    if course.recipe.reconstruction == "nll":
        return -(terms.reconstruction + terms.kl)
    s, d = learner.variance, course.n_numbers
    return -(terms.reconstruction / (2 * s) + 0.5 * d * math.log(2 * math.pi * s) + terms.kl)


@torch.no_grad()
def evaluate(learner: Learner, course: Course, samples: Samples) -> MeanTerms:
    """Loss terms of samples that are not learnt from; chance does not move on."""
    vae, sums = learner.vae.eval(), MeanTerms()
    generator = torch.Generator().manual_seed(0)
    for index in torch.split(torch.arange(len(samples)), 512):
        terms = vae.loss(samples.take(index).to(course.device), learner.prior, generator)
        loss = (terms.reconstruction + kl_weight(learner, course) * terms.kl).mean() / course.n_numbers
        sums.add(len(index), loss, terms, None)
    vae.train()
    return sums
