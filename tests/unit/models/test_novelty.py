"""The out-of-distribution score, and the threshold that goes with it."""

import json

import numpy as np
import pytest
import torch

from diva import DPMixture
from diva.models.novelty import NOVEL_SHARE, EncoderUncertainty, Novelty
from diva.training.encode import Codes


def codes(*log_vars):
    return Codes(torch.zeros(len(log_vars), 2), torch.tensor(log_vars, dtype=torch.float32)[:, None].expand(-1, 2))


def test_only_codes_that_are_less_sure_than_usual_are_penalized():
    usual = EncoderUncertainty.of(codes(-1, 1))
    assert (usual.mean, usual.std) == (0.0, 1.0)
    np.testing.assert_allclose(usual.penalty(codes(-3, 0, 2)), [0, 0, 2])


def test_uncertainty_of_two_batches_is_that_of_both():
    first, second = codes(0, 1, 2), codes(5)
    joint, both = (
        EncoderUncertainty.of(first).joined(EncoderUncertainty.of(second), share=0.25),
        EncoderUncertainty.of(codes(0, 1, 2, 5)),
    )
    assert joint.mean == pytest.approx(both.mean)
    assert joint.std == pytest.approx(both.std)


# --- score and threshold


@pytest.fixture(scope="module")
def known():
    """A mixture, and codes it was fitted on that the encoder is about equally sure of."""
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(c, 0.3, size=(500, 2)) for c in (-3, 3)]).astype(np.float32)
    log_var = torch.from_numpy(rng.normal(-2, 0.1, size=z.shape).astype(np.float32))
    return DPMixture(random_state=0).fit(z).mixture_, Codes(torch.from_numpy(z), log_var)


def novelty_of(mixture, codes, n_gone=0, seed=0):
    return Novelty.calibrated(mixture, EncoderUncertainty.of(codes), codes, n_gone, np.random.default_rng(seed))


def test_so_many_of_the_known_samples_are_called_novel(known):
    mixture, codes = known
    novelty = novelty_of(mixture, codes)
    scores = novelty.scores(mixture, codes)
    assert (scores < novelty.threshold).mean() == pytest.approx(NOVEL_SHARE, abs=1 / len(scores))
    assert np.median(scores) == pytest.approx(novelty.typical)


def test_far_codes_and_unsure_codes_are_novel(known):
    mixture, codes = known
    novelty = novelty_of(mixture, codes)
    sure, unsure = torch.full((1, 2), -2.0), torch.full((1, 2), 0.0)
    near, far = torch.full((1, 2), 3.0), torch.full((1, 2), 9.0)
    novel = [
        novelty.scores(mixture, Codes(*code))[0] < novelty.threshold for code in ((near, sure), (far, sure), (near, unsure))
    ]
    assert novel == [False, True, True]


def test_samples_that_are_gone_take_part_in_the_threshold(known):
    mixture, codes = known
    near = codes.mean[(codes.mean - 3).square().sum(1) < 0.01]  # new samples are all where the density is highest
    few = Codes(near, codes.log_var[: len(near)])
    assert novelty_of(mixture, few, n_gone=5000).threshold < novelty_of(mixture, few).threshold
    assert novelty_of(mixture, few, n_gone=5000) == novelty_of(mixture, few, n_gone=5000)


def test_novelty_survives_json(known):
    novelty = novelty_of(*known)
    assert Novelty.from_plain(json.loads(json.dumps(novelty.to_plain()))) == novelty


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": None},
        {"threshold": float("nan")},
        {"typical": "high"},
        {"uncertainty": {"mean": 0.0, "std": 0.0}},
        {"uncertainty": {"mean": 0.0}},
        {"uncertainty": 3},
    ],
)
def test_novelty_that_is_none_is_refused(change):
    plain = {"uncertainty": {"mean": 0.0, "std": 1.0}, "threshold": -3.0, "typical": 0.0}
    with pytest.raises((KeyError, TypeError, ValueError)):
        Novelty.from_plain(plain | change)
