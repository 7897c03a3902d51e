"""What stands in for data that are gone."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from diva import DPMixture
from diva.data import ArraySource, JoinedSource
from diva.training.replay import MOST_RANK, ExperienceReplay, FeatureMoments, Reservoir, mean_precision, repeated, storable


def features(n, h, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([torch.randn(n, h, generator=generator) * torch.linspace(0.1, 2, h), torch.ones(n, 1)], dim=1)


def even(n):
    return torch.full((n,), 1.0 / n)


def test_moments_say_exactly_how_far_outputs_move():
    rows, change = features(300, 12), torch.randn(4, 13, generator=torch.Generator().manual_seed(1))
    moments = FeatureMoments.of(rows, even(300))
    moves = rows @ change.T
    torch.testing.assert_close(moments.moved(change), moves.T @ moves / 300)


def test_moments_of_two_batches_are_those_of_both():
    first, second = features(200, 8), 3 * features(100, 8, seed=1)
    joint = FeatureMoments.of(first, even(200)).joined(FeatureMoments.of(second, even(100)), share=1 / 3)
    change = torch.randn(2, 9, generator=torch.Generator().manual_seed(2))
    moves = torch.cat([first, second]) @ change.T
    torch.testing.assert_close(joint.moved(change), moves.T @ moves / 300)


def test_moments_of_wide_features_keep_the_most_and_spread_the_rest():
    rows = features(700, MOST_RANK + 300)
    torch.manual_seed(0)
    moments = FeatureMoments.of(rows, even(700))
    assert moments.root.shape == (MOST_RANK + 301, MOST_RANK)
    total = rows.square().sum() / 700
    kept = moments.root.square().sum() + moments.rest * (MOST_RANK + 301 - MOST_RANK)
    torch.testing.assert_close(kept, total, rtol=1e-4, atol=0)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_drift_is_the_divergence_of_components_that_move(covariance_type):
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(c, [0.1, 2.0], size=(200, 2)) for c in (-9, 9)])
    mixture = DPMixture(covariance_type=covariance_type, random_state=0).fit(z).mixture_
    assert mixture.n_components == 2
    full = mixture.covariances if covariance_type == "full" else np.stack([np.diag(c) for c in mixture.covariances])
    move = torch.tensor([0.3, 0.1])
    moved = [
        float(kl_divergence(MultivariateNormal(m + move, c), MultivariateNormal(m, c)))
        for m, c in zip(torch.from_numpy(mixture.means), torch.from_numpy(full), strict=True)
    ]
    found = 0.5 * float(move.double() @ mean_precision(mixture) @ move.double())
    assert found == pytest.approx(float(mixture.weights @ moved))


def test_only_remembered_samples_drift():
    experience = ExperienceReplay(2, mean=torch.zeros(1, 3), variance=torch.full((1, 3), 0.5))
    drift = experience.drift(torch.tensor([2, 0]), torch.ones(2, 3))
    torch.testing.assert_close(drift, torch.tensor([3.0, 0.0]))


def test_a_reservoir_keeps_all_samples_alike():
    kept = np.zeros(60)
    for seed in range(400):
        rng, reservoir = np.random.default_rng(seed), Reservoir.empty()
        for start in range(0, 60, 20):
            reservoir = reservoir.after(ArraySource(np.arange(start, start + 20, dtype=np.float32)[:, None]), 6, rng)
        assert len(reservoir) == len(reservoir.values) == 6
        kept[reservoir.values[:, 0].astype(int)] += 1
    assert kept.sum() == 2400
    assert (abs(kept - 40) < 5 * np.sqrt(40)).all()


def test_a_reservoir_larger_than_the_data_keeps_everything():
    reservoir = Reservoir.empty().after(ArraySource(np.eye(3, dtype=np.uint8)), 100, np.random.default_rng(0))
    np.testing.assert_array_equal(reservoir.values, np.eye(3))
    assert reservoir.values.dtype == np.uint8


def test_joined_sources_are_one():
    source = JoinedSource([ArraySource(np.arange(4)[:, None]), ArraySource(np.arange(4, 6)[:, None] + 0.5)])
    assert len(source) == 6
    assert source.item_shape == (1,)
    np.testing.assert_array_equal(source.take(np.array([5, 0, 4, 3])), [[5.5], [0], [4.5], [3]])
    np.testing.assert_array_equal(source.take(np.array([2, 1])), [[2], [1]])


def test_few_are_repeated_alike():
    index = repeated(3, 10, np.random.default_rng(0))
    assert sorted(np.bincount(index)) == [3, 3, 4]


@pytest.mark.parametrize("dtype", [np.int64, np.float16, np.bool_, np.uint16, np.float64, np.uint8])
def test_values_that_are_kept_come_back_the_same(dtype):
    values = np.array([[0, 1], [1, 0]], dtype=dtype)
    assert torch.from_numpy(storable(values)).dtype in (torch.uint8, torch.float32, torch.float64)
    np.testing.assert_array_equal(storable(values), values)
