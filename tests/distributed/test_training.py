"""Networks that several processes train together."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from diva import DIVA, distributed
from diva.mixture.moves import MoveRecord
from diva.models.state import DIVAState
from diva.training.loop import Batch, average_batch_norms

IMAGES = load_digits().images[:240]


def small_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 5), nn.BatchNorm1d(5))


def step(shares):
    """Gradients of the mean over a batch, of which batch norm sees a share at a time; then its running statistics."""
    network, x = small_network(), torch.from_numpy(IMAGES[:12, None]).float()
    for share in shares:
        (network(x[share]).pow(3).sum(1).mean() * len(share) / 12).backward()
    return network


def step_together():
    network = step([Batch(torch.arange(12)).own_share().index])
    distributed.add_up_(p.grad for p in network.parameters())
    average_batch_norms(network)
    return [p.grad.numpy() for p in network.parameters()], running_statistics(network)


def running_statistics(network):
    return [value.numpy() for name, value in network.state_dict().items() if "running" in name or "tracked" in name]


@pytest.mark.parametrize("world", [2, 3])
def test_a_step_together_is_that_of_the_shares(together, world):
    shares = torch.arange(12).chunk(world)
    expected = [p.grad.numpy() for p in step(shares).parameters()]
    of_shares = [running_statistics(step([share])) for share in shares]
    for gradients, norms in together(step_together, world):
        for value, alone in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(value, alone, rtol=1e-3, atol=1e-4 * (1 + np.abs(alone).max()))
        for value, *parts in zip(norms, *of_shares, strict=True):
            np.testing.assert_allclose(value, np.mean(parts, axis=0), rtol=1e-5, atol=1e-6)


def test_alone_batch_norms_stay_as_they_are():
    network = step([torch.arange(12)])
    before = network[1].running_var.clone()
    average_batch_norms(network)
    torch.testing.assert_close(network[1].running_var, before, rtol=0, atol=0)


def too_small():
    distributed.gather(None)  # all are connected: process 0, which may end first, takes with it where they meet
    return Batch(torch.arange(5)).own_share()


def test_a_batch_with_too_few_samples_for_each_process_is_refused_by_all(together):
    for answer in together(too_small, 3):
        assert isinstance(answer, ValueError)
        assert "Raise batch_size" in str(answer)


def taken_over():
    network = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(network.parameters())
    state = DIVAState(network, optimizer, torch.Generator(), np.random.default_rng(distributed.rank()), seed=0)
    if distributed.is_main():
        state.lineage.append(MoveRecord("merge", (1, 2), (3,), 0.5, (10.0,), accepted=True))
        state.variance = 0.25
    state.follow_main()
    return state.lineage, state.variance, state.rng.integers(1000), network.weight.tolist()


def test_all_take_over_what_process_0_has(together):
    first, second = together(taken_over, 2)
    assert first == second
    assert first[0][0].parents == (1, 2)


class Stop:
    """A callback, which only process 0 asks."""

    def __init__(self):
        self.asked = []

    def __call__(self, model, record):
        self.asked.append(model.predict(IMAGES[:20]).tolist())
        return record.epoch == 2


def fit(run_dir=None, **options):
    stop = Stop()
    parameters = {"n_epochs": 4, "augmentation": "affine", "random_state": 0, "callbacks": [stop], "run_dir": run_dir}
    model = DIVA(**parameters | options).fit(IMAGES, validation=IMAGES[:30])
    codes = model.transform(IMAGES)
    history = [(r.loss, r.validation_bound, r.n_components) for r in model.history_]
    return history, model.labels_, codes, model.predict(IMAGES), len(stop.asked)


def test_all_processes_end_with_one_model(together, tmp_path):
    first, second = together(partial(fit, tmp_path / "run"), 2)
    history, labels, codes, predicted, n_asked = first
    assert history == second[0]
    assert len(history) == 3  # until process 0 was told to stop
    assert (n_asked, second[4]) == (3, 0)
    np.testing.assert_array_equal(labels, second[1])
    np.testing.assert_array_equal(codes, second[2])
    np.testing.assert_array_equal(labels, predicted)
    assert codes.shape == (240, 16)
    assert (tmp_path / "run" / "model.diva").exists()
    alone = fit()
    assert history[0][0] == pytest.approx(alone[0][0][0], rel=0.1)  # other noise, the same loss
    assert history[-1][0] < history[0][0]


def wished_and_continued():
    model = DIVA(n_epochs=20, n_clusters=2, random_state=0).fit(IMAGES[:160])  # until it has two components
    n_clusters, labels = model.n_clusters_, model.labels_
    model.partial_fit(IMAGES[160:])
    return n_clusters, labels, model.n_components_, model.cluster_ids_, model.predict(IMAGES)


@pytest.mark.slow
def test_a_wish_and_what_comes_later_lead_all_processes_to_one_model(together):
    first, second = together(wished_and_continued, 2)
    assert first[0] == 2
    for found, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(found, other)
