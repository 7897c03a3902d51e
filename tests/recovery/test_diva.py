"""DIVA on real images: what a user gets without setting anything."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from diva import DIVA
from diva.metrics import Agreement


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    return data.images, data.target


@pytest.fixture(scope="module")
def model(digits):
    return DIVA(random_state=0).fit(digits[0])


def test_digits_are_found_without_their_number(model, digits):
    agreement = Agreement(digits[1], model.labels_)
    assert agreement.acc_one_to_one >= 0.85
    assert agreement.nmi >= 0.87
    assert 9 <= model.n_clusters_ <= 14


def test_reconstructions_are_close(model, digits):
    images = digits[0]
    error = ((model.reconstruct(images) - images) ** 2).mean()
    assert error < 0.5 * images.var(axis=0).mean()


def test_drawn_samples_are_of_their_cluster(model):
    drawn = [model.sample(50, cluster=c, random_state=0)[0] for c in range(model.n_clusters_)]
    share = np.mean([(model.predict(x) == c).mean() for c, x in enumerate(drawn)])
    assert share > 0.9


def test_noise_is_of_no_known_kind(model, digits):
    noise = np.random.default_rng(0).uniform(0, 16, size=(200, 8, 8))
    known = model.score_samples(digits[0])
    assert (model.score_samples(noise) < np.quantile(known, 0.05)).mean() > 0.9


def test_the_tree_can_be_cut(model, digits):
    coarse = model.predict(digits[0], level=3)
    assert len(np.unique(coarse)) == 3
    assert all(len(np.unique(coarse[model.component_labels_ == k])) <= 1 for k in range(model.n_components_))


def test_plain_kinds_of_many_rows():
    rng = np.random.default_rng(0)
    kinds = rng.integers(4, size=4_100)
    rows = rng.normal(0, 2, size=(4, 12))[kinds] + rng.normal(size=(4_100, 12))
    model = DIVA(n_epochs=4, hidden_sizes=(32,), random_state=0).fit(rows)
    assert model.n_clusters_ == 4
    assert Agreement(kinds, model.labels_).acc_one_to_one > 0.98


@pytest.mark.slow
def test_another_number_of_threads_changes_little(digits):
    import torch

    before = torch.get_num_threads()
    scores = []
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            scores.append(Agreement(digits[1], DIVA(random_state=1).fit(digits[0]).labels_).acc_one_to_one)
    finally:
        torch.set_num_threads(before)
    assert abs(scores[0] - scores[1]) <= 0.02
