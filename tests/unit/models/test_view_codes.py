import numpy as np
import torch

from diva import DPMixture
from diva.models.view_codes import ViewCodes, walk_of


def codes_and_mixture():
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(c, 0.1, size=(100, 2)) for c in (-2, 0, 2)]).astype(np.float32)
    return torch.from_numpy(z), DPMixture(random_state=0).fit(z).mixture_


def test_a_single_view_is_reached_from_the_clean_sample():
    z, mixture = codes_and_mixture()
    swapped = torch.cat([z[200:], z[100:200], z[:100]])  # the first class is seen as the last, and back
    flow = walk_of(ViewCodes(z, (swapped,)), [mixture], np.random.default_rng(0)).flow
    first, middle, last = mixture.predict(np.array([[-2, -2], [0, 0], [2, 2]]))
    assert flow[first, last] > 0.3
    assert flow[first, first] < 1e-3
    assert flow[middle, middle] > 0.3


def test_walks_go_from_view_to_view():
    z, mixture = codes_and_mixture()
    elsewhere = torch.zeros_like(z) + 2.0
    flow = walk_of(ViewCodes(z, (elsewhere, elsewhere)), [mixture], np.random.default_rng(0)).flow
    last = mixture.predict(np.array([[2.0, 2.0]]))[0]
    assert flow[last, last] > 0.99  # where the clean samples are does not matter
