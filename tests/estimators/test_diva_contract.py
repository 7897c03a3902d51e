"""What scikit-learn, and users who know it, may expect of DIVA."""

import copy
import doctest
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import diva.models.diva
from diva import DIVA
from diva.exceptions import InterruptedFitWarning
from diva.partition.calibration import tempered

from .helpers import blobs

TINY = {"latent_dim": 2, "hidden_sizes": (8,), "n_epochs": 2, "n_laps": 1, "n_views": 1, "random_state": 0}
GOOD = TINY | {"n_epochs": 6, "learning_rate": 0.01, "batch_size": 32, "n_laps": 3, "n_views": 2}
X = blobs([[0.0, 0, 0, 0], [8, 0, 0, 8], [0, 8, 8, 0]], n=30)
NEW = blobs([[4.0, 2, 2, 4]], n=7, seed=1)


def bars(n=24, size=8, channels=0):
    """Images from 0 to 1 of bars that lie or stand."""
    chance = np.random.default_rng(0)
    images = chance.uniform(0, 0.2, size=(n, size, size))
    for number, image in enumerate(images):
        place = chance.integers(1, size - 1)
        (image if number % 2 else image.T)[place] = 1.0
    return np.stack([images] * channels, axis=3) if channels else images


IMAGES = bars()
TAKES_FOR_CLASSIFIER = "it takes what has predict_proba for a classifier, and asks for as many columns as y has classes"
REASONS = {
    "check_estimator_sparse_array": TAKES_FOR_CLASSIFIER,
    "check_estimator_sparse_matrix": TAKES_FOR_CLASSIFIER,
    "check_methods_subset_invariance": "a float32 network rounds rows that share a batch otherwise than rows alone, by 1e-6",
}


CHECKED = TINY | {"n_epochs": 3, "learning_rate": 0.01, "augmentation": None}


@pytest.mark.filterwarnings("ignore::diva.exceptions.FewerClustersWarning")  # some checks set n_clusters=2 on one cluster
@parametrize_with_checks([DIVA(**CHECKED)], expected_failed_checks=lambda estimator: REASONS)
def test_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    return DIVA(**GOOD).fit(X)


@pytest.fixture(scope="module")
def images():
    return DIVA(**(GOOD | {"n_epochs": 4})).fit(IMAGES)


def assert_same(first, second, data=X):
    """Two models are equal, bit for bit."""
    for name in ("labels_", "component_labels_", "component_ids_"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    for name in ("transform", "predict_proba", "score_samples", "reconstruct"):
        np.testing.assert_array_equal(getattr(first, name)(data), getattr(second, name)(data), err_msg=name)
    assert without_times(first) == without_times(second)
    assert first.lineage_ == second.lineage_


def without_times(model):
    return [{k: v for k, v in vars(r).items() if "seconds" not in k} for r in model.history_]


def assert_finite(model, data):
    for name in ("transform", "predict_proba", "score_samples", "reconstruct"):
        assert np.isfinite(getattr(model, name)(data)).all(), name
    np.testing.assert_array_equal(model.predict(data), model.labels_)
    assert all(np.isfinite([r.loss, r.kl, r.reconstruction, r.bound]).all() for r in model.history_)


class Encoder(nn.Module):
    def __init__(self, n_features=4, latent_dim=2, dropout=0.0):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(n_features, 8), nn.Tanh(), nn.Dropout(dropout))
        self.mean, self.log_var = nn.Linear(8, latent_dim), nn.Linear(8, latent_dim)

    def forward(self, x):
        hidden = self.body(x)
        return self.mean(hidden), self.log_var(hidden)


# --- parameters and copies


def test_a_clone_has_the_parameters_and_nothing_else(rows):
    copied = clone(rows)
    assert copied.get_params() == rows.get_params()
    with pytest.raises(NotFittedError):
        copied.predict(X)


def test_a_clone_with_everything_given():
    model = DIVA(
        "features", encoder=Encoder(), decoder=nn.Linear(2, 4), callbacks=[print], augmentation=lambda x, generator: x, **TINY
    )
    copied = clone(model)
    assert copied.encoder is not model.encoder
    assert isinstance(copied.encoder, Encoder)
    assert copied.callbacks == [print]
    assert set(model.get_params()) == set(copied.get_params())


def test_set_params_refuses_unknown_names():
    assert DIVA().set_params(latent_dim=3).latent_dim == 3
    with pytest.raises(ValueError, match="latent_dims"):
        DIVA().set_params(latent_dims=3)


def test_every_parameter_but_the_first_is_keyword_only():
    with pytest.raises(TypeError):
        DIVA("auto", (8, 8))


def test_the_parameters_are_shown():
    assert re.sub(r"\s+", " ", repr(DIVA(latent_dim=3, n_epochs=2))) == "DIVA(latent_dim=3, n_epochs=2)"


def test_a_fit_leaves_the_parameters_as_they_were():
    model = DIVA(**TINY)
    before = model.get_params()
    model.fit(X)
    assert model.get_params() == before


@pytest.mark.parametrize("copying", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_of_a_fitted_model_are_equal_and_independent(copying, rows):
    copied = copying(rows)
    assert_same(copied, rows)
    before = rows.predict_proba(X)
    copied.partial_fit(X + 30)
    np.testing.assert_array_equal(rows.predict_proba(X), before)


def test_works_in_a_pipeline():
    model = make_pipeline(StandardScaler(), DIVA(**TINY))
    labels = model.fit_predict(X)
    np.testing.assert_array_equal(labels, model.predict(X))
    assert model.transform(X).shape == (len(X), 2)
    assert np.isfinite(model.score(X))
    assert list(model[-1].get_feature_names_out()) == ["diva0", "diva1"]


def test_names_of_the_codes_make_a_frame():
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = DIVA(**TINY).set_output(transform="pandas").fit(frame)
    assert list(model.feature_names_in_) == list("abcd")
    assert list(model.transform(frame).columns) == ["diva0", "diva1"]
    np.testing.assert_array_equal(model.predict(frame), model.labels_)
    assert np.isfinite(model.reconstruct(frame)).all()
    model.set_output(transform="default").fit(IMAGES)
    assert not hasattr(model, "feature_names_in_")


def test_the_example_in_the_docstring():
    outcome = doctest.testmod(diva.models.diva)
    assert outcome.attempted > 0
    assert outcome.failed == 0


# --- chance


@pytest.mark.parametrize(
    ("data", "params"),
    [
        (X, {}),
        (X, {"preset": "paper"}),
        (X, {"augmentation": None, "grouping": "walk"}),
        (IMAGES, {}),
        (IMAGES, {"preset": "paper", "reconstruction": "nll"}),
    ],
    ids=["rows", "rows-paper", "rows-neighbours", "images", "images-paper-nll"],
)
def test_same_seed_same_numbers_bit_for_bit(data, params):
    torch.manual_seed(1)
    first = DIVA(**(TINY | {"n_epochs": 3} | params)).fit(data)
    torch.manual_seed(2)
    np.random.seed(5)  # noqa: NPY002
    second = DIVA(**(TINY | {"n_epochs": 3} | params)).fit(data)
    assert_same(first, second, data)
    np.testing.assert_array_equal(first.sample(5)[0], second.sample(5)[0])
    assert_same(first.partial_fit(data + 0.01), second.partial_fit(data + 0.01), data)


@pytest.fixture
def set_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_little_data_give_the_same_numbers_on_any_number_of_threads(set_threads, n_threads):
    digits = load_digits().images[:600]
    models = []
    for n in (1, n_threads):
        set_threads(n)
        models.append(DIVA(n_epochs=3, latent_dim=4, random_state=0).fit(digits))
        assert torch.get_num_threads() == n
    first, second = (model.vae_.state_dict() for model in models)
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    np.testing.assert_array_equal(models[0].labels_, models[1].labels_)


def test_same_seed_same_numbers_with_dropout_in_an_encoder_of_ones_own():
    models = []
    for seed in (1, 2):
        torch.manual_seed(seed)  # whatever the user did before
        torch.rand(3)
        networks = {"encoder": Encoder(dropout=0.5), "decoder": nn.Linear(2, 4)}
        for parameter in [*networks["encoder"].parameters(), *networks["decoder"].parameters()]:
            nn.init.constant_(parameter, 0.1)
        models.append(DIVA(**TINY, **networks).fit(X))
    assert_same(*models)


def test_another_seed_gives_other_numbers():
    assert not np.array_equal(DIVA(**TINY).fit_transform(X), DIVA(**(TINY | {"random_state": 1})).fit_transform(X))


@pytest.mark.parametrize("params", [{}, {"n_epochs": 3, "self_training": 0.7, "learning_rate": 0.01}], ids=["short", "long"])
def test_a_fit_leaves_the_state_of_the_process_alone(params):
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    chance = np.random.get_state()[1].copy()  # noqa: NPY002
    model = DIVA(**(GOOD | params)).fit(X)
    model.partial_fit(X)
    model.sample(3)
    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(np.random.get_state()[1], chance)  # noqa: NPY002
    assert torch.is_grad_enabled()
    assert float(torch.tensor([1e-40]) * 1.0) != 0  # denormals are numbers again
    assert torch.get_default_dtype() == torch.float32


def test_denormals_are_numbers_again_after_a_fit_that_failed():
    with pytest.raises(ZeroDivisionError):
        DIVA(**TINY, callbacks=[lambda *_: 1 / 0]).fit(X)
    assert float(torch.tensor([1e-40]) * 1.0) != 0


def test_refitting_forgets_the_fit_before(rows):
    assert_same(DIVA(**GOOD).fit(IMAGES).fit(X), rows)


# --- what a fit tells


def test_three_ways_to_the_same_labels(rows):
    labels = DIVA(**GOOD).fit_predict(X)
    np.testing.assert_array_equal(labels, rows.labels_)
    np.testing.assert_array_equal(labels, rows.predict(X))
    np.testing.assert_array_equal(labels, rows.predict_proba(X).argmax(axis=1))


def test_fit_transform_is_fit_then_transform(rows):
    np.testing.assert_array_equal(DIVA(**GOOD).fit_transform(X), rows.transform(X))


@pytest.mark.parametrize("which", ["rows", "images"])
def test_labels_follow_from_components_and_the_hierarchy(which, request):
    model, data = request.getfixturevalue(which), {"rows": X, "images": IMAGES}[which]
    assert model.labels_.dtype == model.component_labels_.dtype == np.int64
    assert model.hierarchy_.n_components == model.n_components_ == len(model.component_ids_)
    np.testing.assert_array_equal(model.labels_, model.hierarchy_.labels[model.component_labels_])
    assert model.n_clusters_ == len(set(model.hierarchy_.labels))
    assert set(model.labels_) <= set(range(model.n_clusters_))
    np.testing.assert_array_equal(model.predict(data, level="cluster"), model.labels_)
    np.testing.assert_array_equal(model.predict(data, level="component"), model.component_labels_)
    for level in range(1, model.n_components_ + 1):
        cut = model.predict(data, level=level)
        np.testing.assert_array_equal(cut, model.hierarchy_.cut(level)[model.component_labels_])
        proba = model.predict_proba(data, level=level)
        assert proba.shape == (len(data), level)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(model.predict(data, level=np.int64(1)), 0)


def test_probabilities_of_clusters_are_sums_of_those_of_components(rows):
    fine = rows.predict_proba(X, level="component")
    sums = np.stack([fine[:, rows.hierarchy_.labels == k].sum(axis=1) for k in range(rows.n_clusters_)], axis=1)
    np.testing.assert_allclose(rows.predict_proba(X), tempered(sums, rows.mixture_.temperature), atol=1e-6)


@pytest.mark.quality
def test_the_three_blobs_are_found():
    truth = np.repeat(range(3), 30)
    found = [adjusted_rand_score(truth, DIVA(**(GOOD | {"random_state": seed})).fit(X).labels_) for seed in range(5)]
    assert np.median(found) > 0.5  # after six epochs of a tiny network


def test_shapes_of_answers_about_rows(rows):
    assert rows.n_features_in_ == 4
    assert rows.transform(NEW).shape == (7, 2)
    assert rows.transform(NEW).dtype == np.float32
    assert rows.inverse_transform(rows.transform(NEW)).shape == (7, 4)
    np.testing.assert_array_equal(rows.reconstruct(NEW), rows.inverse_transform(rows.transform(NEW)))
    assert rows.score_samples(NEW).shape == (7,)
    assert rows.score(NEW) == pytest.approx(rows.score_samples(NEW).mean())
    drawn, labels = rows.sample(9, random_state=1)
    assert drawn.shape == (9, 4)
    assert set(labels) <= set(range(rows.n_clusters_))
    np.testing.assert_array_equal(drawn, rows.sample(9, random_state=1)[0])
    only, labels = rows.sample(5, cluster=0, random_state=1)
    assert only.shape == (5, 4)
    np.testing.assert_array_equal(labels, 0)
    _, labels = rows.sample(5, component=rows.n_components_ - 1, random_state=1)
    np.testing.assert_array_equal(labels, rows.hierarchy_.labels[-1])


@pytest.mark.parametrize(
    ("data", "params"),
    [
        (IMAGES, {}),
        (bars(20, channels=1), {}),
        (bars(20, channels=3), {}),
        ((bars(20) * 255).astype(np.uint8), {}),
        (bars(20).reshape(20, -1), {"image_shape": (8, 8)}),
        (bars(20, size=4), {}),
        (bars(20)[:, :4], {}),
    ],
    ids=["3-d", "one-channel", "three-channels", "uint8", "flat", "4x4", "4x8"],
)
def test_answers_about_images_have_the_shape_and_units_of_images(data, params):
    model = DIVA(**TINY, **params).fit(data)
    for answer in (model.reconstruct(data), model.inverse_transform(model.transform(data))):
        assert answer.shape == data.shape
        assert 0 <= answer.min() <= answer.max() <= (255 if data.dtype == np.uint8 else 1)
    assert model.sample(3)[0].shape == (3, *data.shape[1:])
    assert model.n_features_in_ == data[0].size
    assert_finite(model, data)


def test_flat_images_may_come_as_images_later(images):
    np.testing.assert_array_equal(images.transform(IMAGES.reshape(len(IMAGES), -1)), images.transform(IMAGES))


@pytest.mark.quality
def test_reconstructions_learn():
    params = GOOD | {"n_epochs": 30, "learning_rate": 0.02, "augmentation": None, "grouping": None}
    models = [DIVA(**(params | {"random_state": seed})).fit(X) for seed in range(3)]
    assert np.median([((model.reconstruct(X) - X) ** 2).mean() for model in models]) < 0.2 * X.var(axis=0).mean()


def test_one_sample_is_answered_like_many(rows, images):
    for model, data in ((rows, X), (images, IMAGES)):
        np.testing.assert_allclose(model.transform(data[:1]), model.transform(data)[:1], atol=1e-5)
        np.testing.assert_array_equal(model.predict(data[:1]), model.labels_[:1])


def test_the_history_is_one_record_for_each_epoch(rows, images):
    for model, n_epochs in ((rows, 6), (images, 4)):
        assert [r.epoch for r in model.history_] == list(range(n_epochs))
        phases = [r.phase for r in model.history_]
        assert phases == sorted(phases, key=("warm-up", "coupled", "self-training").index)
        assert all(r.validation_bound is None for r in model.history_)
    assert rows.config_.n_epochs == 6
    assert {r.epoch for r in rows.lineage_ if r.epoch is not None} <= set(range(6))


def test_ids_of_components_are_used_once(rows):
    assert len(set(rows.component_ids_)) == rows.n_components_


# --- ways to fit


def test_networks_of_ones_own():
    encoder, decoder = Encoder(), nn.Linear(2, 4)
    before = copy.deepcopy(encoder.state_dict())
    model = DIVA(**TINY, encoder=encoder, decoder=decoder).fit(X)
    assert_finite(model, X)
    assert isinstance(model.vae_.encoder, Encoder)
    assert model.vae_.encoder is not encoder
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert_same(model, DIVA(**TINY, encoder=encoder, decoder=decoder).fit(X))


def test_an_augmentation_of_ones_own():
    seen = []

    def shifted(x, generator):
        seen.append(tuple(x.shape))
        return x.roll(1, dims=3) * torch.rand((), generator=generator)

    model = DIVA(**TINY, augmentation=shifted).fit(IMAGES)
    assert_finite(model, IMAGES)
    assert {shape[1:] for shape in seen} == {(1, 8, 8)}
    n_fit = len(seen)
    model.set_params(adapt=True, further_epochs=1).partial_fit(IMAGES)
    assert len(seen) > n_fit


@pytest.mark.parametrize("preset", ["auto", "paper"])
def test_a_callback_can_stop_the_fit(preset):
    records = []

    def stop(model, record):
        assert isinstance(model, DIVA)
        assert model.history_[-1] == record
        records.append(record)
        return record.epoch == 2

    model = DIVA(**(TINY | {"n_epochs": 6, "preset": preset}), callbacks=[stop]).fit(X)
    assert len(records) == len(model.history_) == 3
    assert_finite(model, X)


def test_stopping_in_the_first_epoch_of_a_long_warm_up_is_a_model_all_the_same():
    model = DIVA(**(TINY | {"n_epochs": 6, "warmup": 0.5}), callbacks=[lambda *_: True]).fit(X)
    assert len(model.history_) == 1
    assert_finite(model, X)


def test_only_true_stops_and_all_callbacks_are_called():
    called = []
    callbacks = [lambda m, r: 1, lambda m, r: "stop", lambda m, r: np.array([1, 2]), lambda m, r: called.append(r)]
    DIVA(**TINY, callbacks=callbacks).fit(X)
    assert len(called) == 2


def test_numpy_true_stops_too():
    model = DIVA(**TINY, callbacks=[lambda model, record: np.float64(record.loss) < np.inf]).fit(X)
    assert len(model.history_) == 1


def test_validation_is_measured_but_not_learnt():
    with_it, without = DIVA(**TINY).fit(X, validation=NEW), DIVA(**TINY).fit(X)
    assert all(np.isfinite(r.validation_bound) for r in with_it.history_)
    np.testing.assert_array_equal(with_it.transform(X), without.transform(X))
    np.testing.assert_array_equal(with_it.labels_, without.labels_)
    assert [r.bound for r in with_it.history_] == [r.bound for r in without.history_]


def test_validation_on_the_samples_themselves_is_near_the_bound():
    model = DIVA(**(TINY | {"augmentation": None, "learning_rate": 1e-6})).fit(X, validation=X)
    assert model.history_[0].validation_bound == pytest.approx(model.history_[0].bound, rel=0.1)


def test_early_stopping_ends_the_coupled_phase():
    params = TINY | {"n_epochs": 10, "learning_rate": 1e-12, "self_training": 0.2, "warmup": 0.1}
    model = DIVA(**params, early_stopping=2).fit(X, validation=NEW)
    phases = [r.phase for r in model.history_]
    assert len(phases) < 10
    assert phases.count("self-training") == 2
    assert [r.epoch for r in model.history_] == list(range(len(phases)))
    assert_finite(model, X)


@pytest.mark.parametrize(
    "params",
    [
        {"reconstruction": "nll"},
        {"reconstruction": "nll", "kl_weight": 0.5},
        {"assignment": "hard"},
        {"preset": "paper"},
        {"preset": "paper", "reconstruction": "nll", "assignment": "hard"},
        {"preset": "paper", "grouping": "walk"},
        {"preset": "paper", "covariance_type": "full"},
        {"preset": "paper", "augmentation": "mask"},
        {"covariance_type": "diag"},
        {"augmentation": "mask"},
        {"kl_weight": 0.01},
        {"grouping": None},
        {"self_training": 0.5, "warmup": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("which", ["rows", "images"])
def test_every_way_to_learn_gives_a_finite_model(params, which):
    data = {"rows": X, "images": IMAGES}[which]
    model = DIVA(**(TINY | params)).fit(data)
    assert len(model.history_) == 2
    assert_finite(model, data)
    if params.get("preset") == "paper" and "grouping" not in params:
        assert model.hierarchy_ is None


def test_the_paper_s_codes():
    rows, images = DIVA("paper", hidden_sizes=(8,), n_epochs=2, random_state=0).fit(X), DIVA("paper", n_epochs=2).fit(IMAGES)
    assert rows.transform(X).shape == (len(X), 100)
    assert images.transform(IMAGES).shape == (len(IMAGES), 16)


def test_without_grouping_every_component_is_a_cluster():
    model = DIVA(**TINY, grouping=None).fit(X)
    assert model.hierarchy_ is None
    assert model.n_clusters_ == model.n_components_
    np.testing.assert_array_equal(model.labels_, model.component_labels_)
    assert all(r.phase != "self-training" for r in model.history_)
    assert model.partial_fit(NEW).hierarchy_ is None


# --- going on


def test_the_first_partial_fit_is_a_fit(rows):
    assert_same(DIVA(**GOOD).partial_fit(X), rows)


def test_partial_fit_keeps_ids_and_codes_and_finds_a_new_class(rows):
    model = copy.deepcopy(rows)
    ids, codes, n_training = set(model.component_ids_), model.transform(X), len(model.lineage_)
    far = blobs([[60.0, 60, -60, 60]], n=40, seed=3)
    model.partial_fit(far)
    np.testing.assert_array_equal(model.transform(X), codes)
    assert len(model.labels_) == 40
    deleted = {i for r in model.lineage_[n_training:] for i in r.parents}
    assert ids - deleted <= set(model.component_ids_)
    assert len(set(model.component_ids_) - ids) >= 1
    assert not set(model.component_labels_) & set(model.predict(X, level="component"))
    np.testing.assert_array_equal(model.predict(far), model.labels_)
    assert_finite(model.partial_fit(X), X)


def test_partial_fit_of_one_sample(rows, images):
    for model, data in ((rows, X), (images, IMAGES)):
        going_on = copy.deepcopy(model).partial_fit(data[:1])
        assert going_on.labels_.shape == (1,)
        assert np.isfinite(going_on.score_samples(data)).all()


def test_partial_fit_by_parts_repeats(rows):
    first, second = (copy.deepcopy(rows) for _ in range(2))
    for part in np.array_split(X + 0.1, 3):
        first.partial_fit(part)
        second.partial_fit(part)
    assert_same(first, second)


# --- interrupts


def interrupt_at(epoch):
    def callback(model, record):
        if record.epoch == epoch:
            raise KeyboardInterrupt

    return callback


def test_an_interrupt_keeps_what_was_reached():
    with pytest.warns(InterruptedFitWarning, match=r"after 3 epochs.*run_dir"):
        model = DIVA(**(TINY | {"n_epochs": 6}), callbacks=[interrupt_at(2)]).fit(X)
    assert len(model.history_) == 3
    assert_finite(model, X)


def test_an_interrupt_during_self_training_keeps_what_was_reached():
    params = GOOD | {"n_epochs": 6, "self_training": 0.5}
    with pytest.warns(InterruptedFitWarning, match="after 4 epochs"):
        model = DIVA(**params, callbacks=[interrupt_at(3)]).fit(X)
    assert model.history_[-1].phase == "self-training"
    assert_finite(model, X)


def test_an_interrupt_before_there_are_clusters_is_an_interrupt():
    model = DIVA(**(TINY | {"n_epochs": 6, "warmup": 0.5}), callbacks=[interrupt_at(0)])
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_an_interrupt_of_a_second_fit_before_there_are_clusters_leaves_the_first(rows):
    model = copy.deepcopy(rows).set_params(warmup=0.5, callbacks=[interrupt_at(0)])
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:40] * 5)
    np.testing.assert_array_equal(model.predict_proba(X), rows.predict_proba(X))
    assert model.history_ == rows.history_


def test_verbose_prints_a_line_for_every_epoch(capsys):
    DIVA(**TINY, verbose=True).fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("epoch")]) == 2
    DIVA(**TINY).fit(X)
    assert capsys.readouterr().out == ""
