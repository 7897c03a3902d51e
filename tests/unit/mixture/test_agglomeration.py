import numpy as np
import pytest
import torch

from diva.mixture.agglomeration import agglomerate, holding
from diva.mixture.bound import elbo
from diva.mixture.options import MixtureOptions
from diva.mixture.state import MixtureState


def pieces(points, labels, covariance_type="full"):
    """Components that hold whole points."""
    family = MixtureOptions(covariance_type=covariance_type).family(points.shape[1])
    z = torch.from_numpy(points)
    resp = torch.nn.functional.one_hot(torch.from_numpy(labels)).double()
    stats = family.stats(resp.sum(0), resp.T @ family.features(z), torch.zeros(resp.shape[1], dtype=torch.float64))
    return holding(MixtureState.start(family, 5.0), stats)


@pytest.fixture
def blobs():
    """Three Gaussians, each in four pieces."""
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [3, 0], [0, 3]])
    points = np.concatenate([rng.normal(c, 0.3, (80, 2)) for c in centres])
    quarter = (points > np.repeat(centres, 80, axis=0)).astype(int) @ [1, 2]
    return pieces(points, np.repeat(np.arange(3), 80) * 4 + quarter)


@pytest.mark.parametrize("n_cuts", [1, 2])
def test_pieces_of_gaussians_become_gaussians(blobs, n_cuts):
    best = agglomerate(blobs, n_cuts)[0]
    assert best.total.counts.tolist() == [80, 80, 80]


def test_cuts_hold_the_same_data_highest_bound_first(blobs):
    cuts = agglomerate(blobs, 3)
    bounds = [float(elbo(cut.family, cut.alpha, cut.total)) for cut in cuts]
    assert bounds == sorted(bounds, reverse=True)
    for cut in cuts:
        torch.testing.assert_close(cut.total.merged().sum_zz, blobs.total.merged().sum_zz)
        assert len(cut.ids) == len(cut.total)


def test_one_component_stays_one():
    (cut,) = agglomerate(pieces(np.random.default_rng(0).normal(size=(50, 2)), np.zeros(50, dtype=int)), 2)
    assert cut.n_components == 1
