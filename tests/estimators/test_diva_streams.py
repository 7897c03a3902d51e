"""DIVA goes on: names that last, nothing forgotten, what is novel."""

import copy
import functools

import numpy as np
import pytest
from sklearn.datasets import load_digits

import diva
from diva import DIVA
from diva.exceptions import InterruptedFitWarning
from diva.metrics import Agreement

DIGITS = load_digits()
KNOWN, LATER = DIGITS.target < 3, (DIGITS.target >= 3) & (DIGITS.target < 5)
OLD, NEW = DIGITS.images[KNOWN], DIGITS.images[LATER]
VARIANTS = [{"replay": "draws"}, {"replay": "reservoir", "reservoir": 30}, {"replay": None}]
SEEDS = range(5)  # of tests that judge: one fit ends in one of several optima, and which one hangs on the processor


@functools.cache
def first_fit(seed):
    """A model of the first digits."""
    return DIVA(n_epochs=25, batch_size=64, further_epochs=6, replay="reservoir", random_state=seed).fit(OLD)


@functools.cache
def further_fit(seed):
    """The same, after its networks have learnt the later digits without the first."""
    return copy.deepcopy(first_fit(seed)).set_params(replay="draws", adapt=True).partial_fit(NEW)


@pytest.fixture
def fitted():
    return first_fit(0)


@pytest.fixture
def learnt():
    return further_fit(0)


@pytest.fixture
def model(fitted):
    return copy.deepcopy(fitted).set_params(replay="draws")


def over_seeds(measure, seeds=SEEDS):
    """What is measured on the model before and after, for each seed."""
    return np.array([measure(first_fit(seed), further_fit(seed)) for seed in seeds])


def n_seen(model):
    return sum(record.n_samples for record in model.batches_)


def mass(model):
    """Samples that the mixture counts."""
    return float(model.mixture_.state.total.counts.sum())


def n_waiting(model):
    return len(model.stream_.window)


def events_of_last_batch(model):
    return [r for r in model.cluster_lineage_ if r.batch == model.batches_[-1].batch]


def assert_names_are_explained(before, after):
    told = events_of_last_batch(after)
    assert set(after.cluster_ids_) - set(before.cluster_ids_) <= {i for r in told for i in r.children}
    assert set(before.cluster_ids_) - set(after.cluster_ids_) <= {i for r in told for i in r.parents}
    named = {i for r in after.lineage_[len(before.lineage_) :] for i in r.parents}
    assert set(before.component_ids_) - set(after.component_ids_) <= named


def test_a_first_fit_names_clusters_by_position(fitted):
    np.testing.assert_array_equal(fitted.cluster_ids_, np.arange(fitted.n_clusters_))
    assert fitted.cluster_lineage_ == []
    assert [r.batch for r in fitted.batches_] == [0]
    assert fitted.batches_[0].novel_share is None
    assert fitted.batches_[0].n_samples == len(OLD)


def test_networks_learn_as_long_as_they_are_told_to(fitted, learnt):
    assert learnt.batches_[-1].learnt
    np.testing.assert_array_equal(learnt.predict(NEW), learnt.labels_)
    assert len(learnt.history_) == len(fitted.history_) + 6
    assert [r.epoch for r in learnt.history_] == list(range(len(learnt.history_)))


@pytest.mark.quality
def test_networks_learn_new_kinds():
    def accuracy(_, after):
        return Agreement(DIGITS.target[KNOWN | LATER], after.predict(DIGITS.images[KNOWN | LATER])).acc_majority

    assert np.median(over_seeds(accuracy)) > 0.9


@pytest.mark.quality
def test_nothing_is_forgotten():
    def lost(before, after):
        then, now = (Agreement(DIGITS.target[KNOWN], m.predict(OLD)).acc_one_to_one for m in (before, after))
        return then - now

    def moved(before, after):
        return (after.predict(OLD) != before.labels_).mean()

    assert np.median(over_seeds(lost)) < 0.02
    assert over_seeds(lost).max() < 0.1
    assert np.median(over_seeds(moved)) < 0.02
    assert over_seeds(moved).max() < 0.1


@pytest.mark.quality
def test_old_codes_stay_in_place_while_the_encoder_learns():
    def drift(before, after):
        return np.square(after.transform(OLD) - before.transform(OLD)).mean() / before.transform(OLD).var(axis=0).mean()

    def change(before, after):
        return np.square(after.transform(NEW) - before.transform(NEW)).mean() / before.transform(OLD).var(axis=0).mean()

    def lost(before, after):
        """Log density that old codes lose in the mixture that knew them, in nats."""
        return np.mean(
            before.mixture_.score_samples(before.transform(OLD)) - before.mixture_.score_samples(after.transform(OLD))
        )

    assert over_seeds(drift).max() < 0.01
    assert np.median(over_seeds(change) / over_seeds(drift)) > 5
    assert np.median(over_seeds(lost)) < 0.5


def test_all_samples_seen_count(learnt):
    assert mass(learnt) == pytest.approx(len(OLD) + len(NEW))
    assert n_seen(learnt) == len(OLD) + len(NEW)


def test_every_change_of_a_name_has_a_record(fitted, learnt):
    assert_names_are_explained(fitted, learnt)


@pytest.mark.quality
def test_new_kinds_are_born():
    def n_born(_, after):
        return sum(len(r.children) for r in events_of_last_batch(after) if r.event == "born")

    assert np.median(over_seeds(n_born)) == 2


@pytest.mark.parametrize("params", VARIANTS, ids=str)
def test_every_way_to_go_on_gives_a_finite_model(fitted, params):
    model = copy.deepcopy(fitted).set_params(adapt=True, further_epochs=2, **params)
    model.partial_fit(NEW)
    assert np.isfinite(model.score_samples(OLD)).all()
    assert set(model.predict(OLD)) <= set(model.cluster_ids_)
    assert_names_are_explained(fitted, model)
    assert mass(model) == pytest.approx(len(OLD) + len(NEW), rel=1e-6)


def test_without_self_training_masses_are_those_of_the_data():
    model = DIVA(n_epochs=8, self_training=0.0, further_epochs=2, adapt=True, random_state=0).fit(OLD[:200])
    before = mass(model)
    model.partial_fit(NEW[:150])
    assert mass(model) == pytest.approx(before + 150)


def test_rows_and_the_paper_go_on_as_well():
    rng = np.random.default_rng(0)
    old, new = (rng.normal(c, 0.3, size=(150, 6)) for c in (0, 3))
    for params in ({"preset": "features"}, {"preset": "paper"}, {"preset": "features", "grouping": None}):
        model = DIVA(**params, hidden_sizes=(16,), latent_dim=3, n_epochs=4, further_epochs=2, adapt=True, random_state=0)
        before = copy.deepcopy(model.fit(old))
        model.partial_fit(new)
        assert model.batches_[-1].learnt
        assert np.isfinite(model.score_samples(new)).all()
        assert_names_are_explained(before, model)


@functools.cache
def fitted_again(seed):
    """A model of the first digits, gone on with all."""
    return copy.deepcopy(first_fit(seed)).set_params(warm_start=True).fit(DIGITS.images[KNOWN | LATER])


def test_old_and_new_data_together(fitted):
    model = fitted_again(0)
    assert mass(model) == pytest.approx((KNOWN | LATER).sum(), rel=1e-6)
    assert_names_are_explained(fitted, model)
    assert len(model.batches_) == 2


@pytest.mark.quality
def test_old_and_new_data_together_are_told_apart_under_their_old_names():
    seeds, truth = SEEDS[:3], DIGITS.target[KNOWN | LATER]
    assert np.median([Agreement(truth, fitted_again(seed).labels_).acc_majority for seed in seeds]) > 0.85
    assert np.median([(fitted_again(seed).predict(OLD) == first_fit(seed).labels_).mean() for seed in seeds]) > 0.8


def test_without_warm_start_a_fit_forgets_names(fitted):
    model = copy.deepcopy(fitted).set_params(n_epochs=3)
    model.fit(NEW)
    np.testing.assert_array_equal(model.cluster_ids_, np.arange(model.n_clusters_))
    assert len(model.batches_) == 1
    assert len(model.history_) == 3


@pytest.mark.parametrize("params", VARIANTS, ids=str)
def test_a_loaded_model_goes_on_like_the_one_that_was_saved(fitted, tmp_path, params):
    model = copy.deepcopy(fitted).set_params(further_epochs=2, adapt=True, **params)
    model.partial_fit(NEW[:150])
    model.adapt = "auto"
    model.partial_fit(NEW[150:200])
    model.save(tmp_path / "model.diva")
    other = diva.load(tmp_path / "model.diva")
    for part in (OLD[:40], NEW[200:260]):
        model.partial_fit(part)
        other.partial_fit(part)
    model.save(tmp_path / "one.diva")
    other.save(tmp_path / "other.diva")
    for name in ("labels_", "cluster_ids_", "component_ids_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name))
    np.testing.assert_array_equal(model.predict_proba(OLD), other.predict_proba(OLD))
    assert model.cluster_lineage_ == other.cluster_lineage_
    assert [r.novel_share for r in model.batches_] == [r.novel_share for r in other.batches_]


# --- what is novel


def test_one_known_sample_in_a_hundred_is_called_novel(fitted):
    assert fitted.is_novel(OLD).mean() == pytest.approx(0.01, abs=0.005)


@pytest.mark.quality
def test_new_kinds_are_novel_until_they_are_learnt():
    before, after = np.transpose(over_seeds(lambda before, after: (before.is_novel(NEW).mean(), after.is_novel(NEW).mean())))
    assert np.median(before) > 0.5
    assert np.median(after) < 0.1


@pytest.mark.quality
def test_old_kinds_stay_known():
    assert np.median(over_seeds(lambda before, after: after.is_novel(OLD).mean())) < 0.05


def test_predict_rejects_on_request(fitted):
    labels = fitted.predict(NEW, reject=True)
    novel = fitted.is_novel(NEW)
    assert (labels[novel] == -1).all()
    np.testing.assert_array_equal(labels[~novel], fitted.predict(NEW)[~novel])
    assert -1 not in fitted.predict(NEW)


def test_small_batches_gather_until_there_is_enough_to_learn_from(model):
    model.further_epochs = 2
    learnt = []
    for start in range(0, 320, 40):
        model.partial_fit(np.concatenate([NEW[start : start + 40], OLD[start : start + 40]]))
        learnt.append(model.batches_[-1].learnt)
        if learnt[-1]:
            assert n_waiting(model) == 0
            break
        assert n_waiting(model) == 80 * len(learnt)
    assert learnt == [False] * 6 + [True]  # 560 samples
    assert n_seen(model) == len(OLD) + 560
    assert mass(model) == pytest.approx(len(OLD) + 560, rel=1e-6)


def test_networks_rest_on_request(model):
    codes = model.transform(OLD)
    model.set_params(adapt=False).partial_fit(np.concatenate([NEW, NEW, NEW]))
    assert not model.batches_[-1].learnt
    np.testing.assert_array_equal(model.transform(OLD), codes)
    assert n_waiting(model) == 0


@pytest.mark.quality
def test_batches_of_known_kinds_leave_clusters_alone():
    novel, same, untouched = [], [], []
    for seed in SEEDS:
        model = copy.deepcopy(first_fit(seed)).set_params(replay="draws")
        for part in np.array_split(OLD, 5):
            model.partial_fit(part)
            novel.append(model.batches_[-1].novel_share)
        same.append((model.predict(OLD) == first_fit(seed).labels_).mean())
        untouched.append(set(model.cluster_ids_) == set(first_fit(seed).cluster_ids_) and model.cluster_lineage_ == [])
    assert np.median(novel) < 0.05
    assert np.median(same) > 0.97
    assert sum(untouched) >= 4


# --- when it goes wrong


def test_a_batch_that_fails_leaves_the_model_as_it_was(model, fitted):
    for bad in (np.full((3, 8, 8), np.nan), np.zeros((3, 4, 4)), "no such file"):
        with pytest.raises((ValueError, OSError)):
            model.partial_fit(bad)
    assert len(model.batches_) == 1
    np.testing.assert_array_equal(model.predict_proba(OLD), fitted.predict_proba(OLD))


def test_an_interrupt_while_going_on_keeps_what_was_reached(model, fitted):
    def stop(model, record):
        if record.epoch == len(fitted.history_) + 1:
            raise KeyboardInterrupt

    model.set_params(adapt=True, callbacks=[stop])
    with pytest.warns(InterruptedFitWarning):
        model.partial_fit(NEW)
    assert np.isfinite(model.score_samples(OLD)).all()
    assert set(model.predict(NEW)) <= set(model.cluster_ids_)


@pytest.mark.parametrize(
    ("name", "value"),
    [("adapt", "sometimes"), ("replay", True), ("replay", "all"), ("reservoir", 0), ("reservoir", 1.5), ("further_epochs", 0)],
)
def test_parameters_that_make_no_sense(name, value):
    with pytest.raises(ValueError, match=name):
        DIVA(**{name: value}).fit(OLD)
