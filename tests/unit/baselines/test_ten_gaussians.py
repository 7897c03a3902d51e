"""Baselines recover ten well separated Gaussians in 50 dimensions, all at their defaults.

Not SB-VAE, in whose codes the classes are apart but share largest segments, and VSB-DVM, which with components to spare cuts
some classes in two, and without merges some: their own tests hold what they find.
"""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from diva.baselines import BASELINES, load_baseline
from diva.metrics import Agreement

from .helpers import labelled_gaussians

torch.set_num_threads(1)

NAMES = [name for name in BASELINES if name not in ("sbvae", "vsbdvm")]
TOLD = ("dec", "vade", "gmvae", "gmm")
QUICK = ("gmm", "dpmm")


def marks(name):
    wanted = [] if name in QUICK else [pytest.mark.slow]
    return [*wanted, pytest.mark.skipif("umap" in name and find_spec("umap") is None, reason="needs umap-learn")]


@pytest.mark.quality
@pytest.mark.filterwarnings("ignore")  # of umap and numba
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in NAMES])
def test_ten_gaussians_are_found(name):
    X, classes = labelled_gaussians(1200)
    told, scores, found = {"n_clusters": 10} if name in TOLD else {}, [], []
    for seed in range(3):
        model = load_baseline(name)(**told, random_state=seed).fit(X[:1000])
        learnt = Agreement(classes[:1000], model.labels_).acc_one_to_one
        new = Agreement(classes[1000:], model.predict(X[1000:])).acc_one_to_one
        scores.append(min(learnt, new))
        found.append(abs(model.n_clusters_ - 10))
    assert np.median(scores) >= 0.95
    assert np.median(found) <= 2
