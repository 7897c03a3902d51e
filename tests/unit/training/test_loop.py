"""The training loop with an objective of its own: a line through points, nothing of any model."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn

from diva.exceptions import TrainingError
from diva.runs.archive import Archive, read_archive, write_archive
from diva.training.loop import Batch, Loss, RunningMeans, Watch, run_epochs, shuffled_batches, train_epoch
from diva.training.state import EpochRecord, TrainState

X = torch.linspace(-1, 1, 10).unsqueeze(1)
Y = 3 * X - 1


@dataclass
class Line:
    """Fit a line; terms and scores can be spoilt or scripted."""

    n_epochs: int = 5
    batch_size: int = 4
    scores: tuple[float, ...] = ()  # bounds that epochs report, in the place of the loss
    phase_starts: int = 10**9  # of a second phase, with another optimizer
    spoilt: tuple[int, int, str] | None = None  # epoch, step and term that is not finite
    asked: list[str] = field(default_factory=list)
    step: int = 0

    def before_epoch(self, state):
        self.asked.append(f"before {state.epoch}")
        self.step = 0
        if state.position == self.phase_starts:
            state.optimizer = torch.optim.SGD(state.network.parameters(), lr=0.02, momentum=0.9)
            state.buffers["offset"] = torch.tensor([float(state.rng.normal())])

    def batches(self, state):
        return [Batch(index) for index in shuffled_batches(len(X), self.batch_size, state.generator)]

    def loss(self, batch, state):
        target = Y[batch.index] + state.buffers.get("offset", torch.zeros(1))
        error = (state.network(X[batch.index]) - target).square().mean()
        terms = {"reconstruction": error, "kl": error / 2, "other": error / 3}
        if self.spoilt is not None and self.spoilt[:2] == (state.epoch, self.step):
            error = error * math.inf
            terms |= {self.spoilt[2]: error} if self.spoilt[2] in terms else {}
        self.step += 1
        return Loss(error, terms)

    def after_epoch(self, state, means):
        self.asked.append(f"after {state.epoch}")
        bound = self.scores[state.epoch] if self.scores else None
        phase = "first" if state.position < self.phase_starts else "second"
        return EpochRecord(epoch=state.epoch, phase=phase, loss=means["loss"], bound=bound)

    def stop_early(self, state, record):
        self.asked.append(f"stop {record.epoch}")
        state.position = self.n_epochs


def fresh(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    return TrainState(network, optimizer, torch.Generator().manual_seed(seed), np.random.default_rng(seed), seed)


# --- epochs


def test_the_schedule_is_run():
    state, objective = fresh(), Line(n_epochs=3)
    run_epochs(state, objective)
    assert [record.epoch for record in state.history] == [0, 1, 2]
    assert (state.epoch, state.position) == (3, 3)
    assert objective.asked == [f"{when} {epoch}" for epoch in range(3) for when in ("before", "after")]
    assert all(record.seconds > 0 for record in state.history)


def test_the_loss_falls():
    state = fresh()
    run_epochs(state, Line(n_epochs=100))
    assert state.history[-1].loss < 0.05 * state.history[0].loss


def test_a_schedule_that_is_over_is_not_run():
    state = fresh()
    state.position = 3
    run_epochs(state, Line(n_epochs=3))
    assert state.history == []


def test_the_same_seed_gives_the_same_run():
    ends = []
    for _ in range(2):
        state = fresh(dropout=0.5)
        torch.rand(3)  # what torch's own generator did before does not matter
        run_epochs(state, Line())
        ends.append(state.network.state_dict())
    torch.testing.assert_close(ends[0], ends[1], rtol=0.0, atol=0.0)


def test_dropout_differs_between_epochs():
    seen = []
    state = fresh(dropout=0.5)
    state.network.register_forward_hook(lambda module, given, out: seen.append(torch.rand(1).item()))
    run_epochs(state, Line(batch_size=10, n_epochs=4))
    assert len(set(seen)) == 4


def test_all_optimizers_take_a_step():
    @dataclass
    class TwoOptimizers(TrainState):
        head: nn.Linear = field(default_factory=lambda: nn.Linear(1, 1))

        @property
        def optimizers(self):
            return [self.optimizer, torch.optim.SGD(self.head.parameters(), lr=0.1)]

    class WithHead(Line):
        def loss(self, batch, state):
            plain = super().loss(batch, state)
            return Loss(plain.total + state.head(X[batch.index]).square().mean(), plain.terms)

    single = fresh()
    state = TwoOptimizers(single.network, single.optimizer, single.generator, single.rng, 0)
    before = [state.network[0].weight.detach().clone(), state.head.weight.detach().clone()]
    train_epoch(state, WithHead())
    assert not torch.equal(state.network[0].weight, before[0])
    assert not torch.equal(state.head.weight, before[1])


# --- means


def test_means_are_weighed_by_the_samples_of_a_batch():
    means = RunningMeans()
    for n, value in ((4, 1.0), (3, 2.0), (3, 6.0)):
        means.add(n, Loss(torch.tensor(value), {"kl": torch.tensor(10 * value)}))
    assert means.values == pytest.approx({"loss": 2.8, "kl": 28.0})


def test_a_term_that_comes_later_is_counted_from_nothing():
    means = RunningMeans()
    means.add(5, Loss(torch.tensor(1.0), {}))
    means.add(5, Loss(torch.tensor(1.0), {"kl": torch.tensor(4.0)}))
    assert means.values == pytest.approx({"loss": 1.0, "kl": 2.0})


def test_the_record_has_the_means_of_the_steps():
    losses = []

    class Kept(Line):
        def loss(self, batch, state):
            loss = super().loss(batch, state)
            losses.append((len(batch), float(loss.total.detach())))
            return loss

    state = fresh()
    run_epochs(state, Kept(n_epochs=1))
    assert [n for n, _ in losses] == [4, 3, 3]
    assert state.history[0].loss == pytest.approx(sum(n * value for n, value in losses) / 10)


# --- early stopping


@pytest.mark.parametrize(
    ("patience", "scores", "n_run"),
    [
        (2, (1, 2, 1.5, 1.9, 3, 4), 4),
        (3, (1, 2, 1.5, 1.9, 3, 4), 6),
        (1, (1, 2, 2, 3, 4, 5), 3),  # as good is not better
        (1, (5, 4, 3, 2, 1, 0), 2),
        (None, (5, 4, 3, 2, 1, 0), 6),
        (10, (5, 4, 3, 2, 1, 0), 6),
    ],
)
def test_a_phase_ends_after_so_many_epochs_without_a_better_score(patience, scores, n_run):
    state, objective = fresh(), Line(n_epochs=6, scores=scores)
    run_epochs(state, objective, patience)
    assert len(state.history) == n_run
    stops = [name for name in objective.asked if name.startswith("stop")]
    assert stops == ([f"stop {n_run - 1}"] if n_run < 6 else [])
    assert state.best_score == max(scores[:n_run])


def test_the_objective_decides_what_is_skipped():
    class ToTheSecondPhase(Line):
        def stop_early(self, state, record):
            if record.phase == "first":
                state.position = self.phase_starts

    state = fresh()
    run_epochs(state, ToTheSecondPhase(n_epochs=8, phase_starts=6, scores=(5, 4, 3, 2, 1, 0, 0, 0)), patience=2)
    assert [record.phase for record in state.history] == ["first"] * 3 + ["second"] * 2
    assert [record.epoch for record in state.history] == list(range(5))
    assert (state.epoch, state.position) == (5, 8)


def test_what_early_stopping_watches():
    plain = {"epoch": 0, "phase": "first", "loss": 3.0}
    assert EpochRecord(**plain).score == -3.0
    assert EpochRecord(**plain, bound=-7.0).score == -7.0
    assert EpochRecord(**plain, bound=-7.0, validation_bound=-9.0).score == -9.0


# --- what is not finite


@pytest.mark.parametrize(
    ("term", "advice"),
    [
        ("reconstruction", "the decoder's output overflowed"),
        ("kl", "codes or their variances overflowed"),
        ("other", "a network overflowed"),
        ("last", "a network overflowed"),
    ],
)
def test_the_term_and_the_step_that_are_not_finite_are_named(term, advice):
    state = fresh()
    with pytest.raises(
        TrainingError, match=rf"The {term} term became inf in epoch 1, step 2\. Most likely {advice}.*learning_rate"
    ):
        run_epochs(state, Line(spoilt=(1, 2, term)))
    assert all(bool(torch.isfinite(p).all()) for p in state.network.parameters())  # no step was taken with it
    assert len(state.history) == 1


# --- who is told


def test_everyone_is_told_after_every_epoch_and_step():
    records, steps = [], []
    state = fresh()
    run_epochs(state, Line(n_epochs=2), watch=Watch(lambda r: records.append(r) or False, lambda *at: steps.append(at)))
    assert records == state.history
    assert steps == [(1, 3), (2, 3), (3, 3)] * 2


def test_training_ends_when_it_should():
    state = fresh()
    run_epochs(state, Line(n_epochs=9), watch=Watch(lambda record: record.epoch == 3))
    assert len(state.history) == 4
    run_epochs(state, Line(n_epochs=9))  # and may go on later
    assert len(state.history) == 9


def test_the_state_is_complete_when_an_epoch_is_told():
    class StopError(Exception):
        pass

    def fail(record):
        raise StopError

    state = fresh()
    with pytest.raises(StopError):
        run_epochs(state, Line(), watch=Watch(fail))
    assert (state.epoch, state.position, len(state.history)) == (1, 1, 1)


# --- going on from an archive


def archived(state, path):
    write_archive(path, "toy", *state.to_archive())
    return read_archive(path, kinds=["toy"])


@pytest.mark.parametrize("last", range(5))
@pytest.mark.parametrize("phase_starts", [2, 10**9], ids=["optimizer replaced", "one optimizer"])
def test_a_run_that_was_cut_goes_on_as_if_nothing_had_been(last, phase_starts, tmp_path):
    def objective():
        return Line(n_epochs=6, phase_starts=phase_starts)

    whole, cut, restored = (fresh(dropout=0.3) for _ in range(3))
    run_epochs(whole, objective())
    run_epochs(cut, objective(), watch=Watch(lambda record: record.epoch == last))
    restored.restore(archived(cut, tmp_path / "toy"))
    assert type(restored.optimizer) is type(cut.optimizer)
    run_epochs(restored, objective())
    torch.testing.assert_close(restored.network.state_dict(), whole.network.state_dict(), rtol=0.0, atol=0.0)
    assert [(r.epoch, r.phase, r.loss) for r in restored.history] == [(r.epoch, r.phase, r.loss) for r in whole.history]
    assert restored.buffers == whole.buffers
    assert torch.equal(restored.generator.get_state(), whole.generator.get_state())
    assert restored.rng.bit_generator.state == whole.rng.bit_generator.state
    assert (restored.best_score, restored.best_epoch) == (whole.best_score, whole.best_epoch)


def test_an_optimizer_of_the_same_kind_comes_back_with_its_settings(tmp_path):
    state, restored = fresh(), fresh()
    state.optimizer = torch.optim.Adam(state.network.parameters(), lr=np.float32(0.5), weight_decay=0.1)
    run_epochs(state, Line(n_epochs=1))
    restored.restore(archived(state, tmp_path / "toy"))
    assert restored.optimizer.param_groups[0]["lr"] == 0.5
    assert restored.optimizer.param_groups[0]["weight_decay"] == 0.1


def test_a_state_before_the_first_step_comes_back(tmp_path):
    state, restored = fresh(1), fresh(2)
    restored.restore(archived(state, tmp_path / "toy"))
    run_epochs(state, Line())
    restored.seed = 1  # is given by the user, not archived
    run_epochs(restored, Line())
    torch.testing.assert_close(restored.network.state_dict(), state.network.state_dict(), rtol=0.0, atol=0.0)


def test_early_stopping_waits_on_after_a_cut(tmp_path):
    scores = (1, 5, 4, 3, 2, 1)
    state, restored = fresh(), fresh()
    run_epochs(state, Line(n_epochs=6, scores=scores), patience=3, watch=Watch(lambda record: record.epoch == 2))
    restored.restore(archived(state, tmp_path / "toy"))
    run_epochs(restored, Line(n_epochs=6, scores=scores), patience=3)
    assert len(restored.history) == 5


def without(mapping, name):
    return {key: value for key, value in mapping.items() if key != name}


BROKEN = {
    "no network": lambda d, t: (d, {k: v for k, v in t.items() if not k.startswith("network")}),
    "another network": lambda d, t: (d, t | {"network.0.weight": torch.zeros(9, 1)}),
    "no generator": lambda d, t: (d, without(t, "generator")),
    "another generator": lambda d, t: (d, t | {"generator": torch.zeros(3, dtype=torch.uint8)}),
    "no rng": lambda d, t: (without(d, "rng"), t),
    "junk for rng": lambda d, t: (d | {"rng": "junk"}, t),
    "no epoch": lambda d, t: (without(d, "epoch"), t),
    "negative epoch": lambda d, t: (d | {"epoch": -1}, t),
    "half a position": lambda d, t: (d | {"position": 1.5}, t),
    "junk for a score": lambda d, t: (d | {"best_bound": "high"}, t),
    "junk for history": lambda d, t: (d | {"history": 3}, t),
    "junk for a record": lambda d, t: (d | {"history": [{"epoch": 1}]}, t),
    "no optimizer": lambda d, t: (without(d, "optimizer"), t),
    "another optimizer": lambda d, t: (d | {"optimizer": {"kind": "os.system"}}, t),
    "junk for the optimizer": lambda d, t: (d | {"optimizer": [3]}, t),
    "unknown settings": lambda d, t: (d | {"optimizer": {"kind": "SGD", "wings": 2}}, t),
    "junk for a setting": lambda d, t: (d | {"optimizer": {"kind": "SGD", "lr": "fast"}}, t),
    "moments of another optimizer": lambda d, t: (d | {"optimizer": {"kind": "SGD", "lr": 0.1}}, t),
    "moments of another shape": lambda d, t: (d, t | {"optimizer.0.exp_avg": torch.zeros(3)}),
    "moments that are missing": lambda d, t: (d, without(t, "optimizer.0.step")),
    "moments of a parameter that does not exist": lambda d, t: (
        d,
        t | {f"optimizer.99.{name}": t[f"optimizer.0.{name}"] for name in ("step", "exp_avg", "exp_avg_sq")},
    ),
    "moments without a number": lambda d, t: (d, t | {"optimizer.x.step": torch.zeros(())}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_archive_is_refused(case):
    state = fresh()
    run_epochs(state, Line(n_epochs=2))
    document, tensors = BROKEN[case](*state.to_archive())
    with pytest.raises((KeyError, TypeError, ValueError, RuntimeError)):
        fresh().restore(Archive("toy", document, tensors))


# --- a copy


def test_a_copy_does_not_move_the_original_on():
    state = fresh()
    state.buffers["kept"] = torch.ones(2)
    run_epochs(state, Line(n_epochs=1))
    before = state.to_archive()
    other = state.copy()
    other.rng.normal()
    torch.rand(3, generator=other.generator)
    other.history.append(other.history[0])
    other.buffers["more"] = torch.zeros(1)
    other.position = 7
    after = state.to_archive()
    assert after[0] == before[0]
    assert after[1].keys() == before[1].keys()
    assert all(torch.equal(value, before[1][name]) for name, value in after[1].items())
