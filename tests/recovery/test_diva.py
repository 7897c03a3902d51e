"""DIVA on real images: what a user gets without setting anything but, here, fewer epochs."""

import functools

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from diva import DIVA
from diva.metrics import Agreement

DIGITS = load_digits()
SEEDS = range(5)  # about one in fifteen comes out with a digit in two clusters, on any machine; three of five do not

pytestmark = pytest.mark.quality


@functools.cache
def fitted(seed, n_epochs=30):
    return DIVA(random_state=seed, n_epochs=n_epochs).fit(DIGITS.images)


def median(measure):
    """Of what is measured on the models of all seeds."""
    return np.median([measure(fitted(seed)) for seed in SEEDS])


def test_digits_are_found_without_their_number():
    assert median(lambda model: Agreement(DIGITS.target, model.labels_).acc_one_to_one) >= 0.85
    assert median(lambda model: Agreement(DIGITS.target, model.labels_).nmi) >= 0.87
    assert 9 <= median(lambda model: model.n_clusters_) <= 14


def test_reconstructions_are_close():
    error = median(lambda model: ((model.reconstruct(DIGITS.images) - DIGITS.images) ** 2).mean())
    assert error < 0.5 * DIGITS.images.var(axis=0).mean()


def test_drawn_samples_are_of_their_cluster():
    def share(model):
        drawn = {c: model.sample(50, cluster=c, random_state=0)[0] for c in model.cluster_ids_}
        return np.mean([(model.predict(x) == c).mean() for c, x in drawn.items()])

    assert median(share) > 0.9


def test_noise_is_of_no_known_kind():
    noise = np.random.default_rng(0).uniform(0, 16, size=(200, 8, 8))

    def share(model):
        return (model.score_samples(noise) < np.quantile(model.score_samples(DIGITS.images), 0.05)).mean()

    assert median(share) > 0.9


def test_the_tree_can_be_cut():
    model = fitted(0)
    coarse = model.predict(DIGITS.images, level=3)
    assert len(np.unique(coarse)) == 3
    assert all(len(np.unique(coarse[model.component_labels_ == k])) <= 1 for k in range(model.n_components_))


@pytest.mark.slow
def test_as_many_epochs_as_it_takes():
    models = [fitted(seed, n_epochs=None) for seed in SEEDS]
    assert np.median([Agreement(DIGITS.target, model.labels_).acc_one_to_one for model in models]) >= 0.88


@pytest.mark.slow
def test_another_number_of_threads_changes_little():
    before = torch.get_num_threads()
    scores = []
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            scores.append(Agreement(DIGITS.target, DIVA(random_state=1).fit(DIGITS.images).labels_).acc_one_to_one)
    finally:
        torch.set_num_threads(before)
    assert abs(scores[0] - scores[1]) <= 0.02
