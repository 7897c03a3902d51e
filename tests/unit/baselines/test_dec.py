"""DEC: its formulas against plain numpy, its training part by part, and what it gets from the base class."""

import copy
import json
import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

import diva
from diva.baselines import DEC
from diva.baselines.dec import DECConfig, DECNetwork, EmbeddedClustering
from diva.data import ArraySource, Samples
from diva.data.scaling import scaling_for
from diva.exceptions import ModelFileError
from diva.runs.archive import read_archive, write_archive
from diva.training.encode import encode
from diva.training.loop import Batch, run_epochs, train_epoch
from diva.training.state import TrainState

torch.set_num_threads(1)

DIGITS = load_digits().images[:200].astype(np.float32)
NEW = load_digits().images[200:230].astype(np.float32)
SMALL = {"n_clusters": 4, "latent_dim": 3, "hidden_sizes": (16, 8), "n_epochs": 10, "batch_size": 64, "random_state": 0}
CONFIG = DECConfig(n_clusters=4, latent_dim=3, hidden_sizes=(16, 8), n_epochs=10, batch_size=64, layer_share=0.3)


@pytest.fixture(scope="module")
def fitted():
    return DEC(**SMALL).fit(DIGITS)


def case(config=CONFIG, data=DIGITS, position=0):
    """An objective, and a state at some place of its schedule."""
    source = ArraySource(data)
    samples = Samples(source, scaling_for(source, None))
    torch.manual_seed(0)
    network = DECNetwork(samples.scaling.input_shape, config)
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    state = TrainState(network, optimizer, torch.Generator().manual_seed(0), np.random.default_rng(0), 0, position=position)
    return EmbeddedClustering(config, samples, torch.device("cpu")), state


def clustering(config=CONFIG, data=DIGITS):
    """The same where clusters begin to be learnt."""
    objective, state = case(config, data)
    state.position = objective.n_pretraining
    objective.before_epoch(state)
    return objective, state


def codes(objective, state):
    return encode(state.network, objective.samples, objective.device).mean


# --- formulas of the paper


def literal_q(z, centres):
    """Equation 1 with a = 1, sample by sample."""
    q = np.zeros((len(z), len(centres)))
    for i in range(len(z)):
        for j in range(len(centres)):
            q[i, j] = (1 + ((z[i] - centres[j]) ** 2).sum()) ** -1.0
        q[i] /= q[i].sum()
    return q


def literal_p(q):
    """Equation 3."""
    frequency = q.sum(axis=0)
    p = np.zeros_like(q)
    for i in range(len(q)):
        p[i] = q[i] ** 2 / frequency
        p[i] /= p[i].sum()
    return p


def test_soft_assignments_are_those_of_the_paper():
    rng = np.random.default_rng(0)
    network = DECNetwork((5,), DECConfig(n_clusters=3, latent_dim=2, hidden_sizes=(4,))).double()
    z, centres = 3 * rng.normal(size=(30, 2)), rng.normal(size=(3, 2))
    network.centres.data.copy_(torch.from_numpy(centres))
    found = network.soft_assignment(torch.from_numpy(z)).detach().numpy()
    np.testing.assert_allclose(found, literal_q(z, centres), rtol=1e-10)


def test_the_target_is_that_of_the_paper():
    objective, state = clustering()
    q = literal_q(codes(objective, state).double().numpy(), state.network.centres.detach().double().numpy())
    np.testing.assert_allclose(state.buffers["target"].numpy(), literal_p(q), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(state.buffers["labels"].numpy(), q.argmax(1))
    assert (state.buffers["target"].amax(1) >= torch.from_numpy(q).amax(1) - 0.2).all()


def test_the_loss_is_the_divergence_of_the_paper():
    objective, state = clustering()
    index = torch.arange(50, 90)
    q = literal_q(codes(objective, state)[index].double().numpy(), state.network.centres.detach().double().numpy())
    p = state.buffers["target"][index].double().numpy()
    loss = objective.loss(Batch(index), state)
    assert float(loss.total.detach()) == pytest.approx(float((p * np.log(p / q)).sum() / len(index)), rel=1e-3)
    assert loss.terms.keys() == {"kl"}


def test_centres_start_from_k_means():
    objective, state = case()
    seed = int(copy.deepcopy(state.rng).integers(2**31))
    assert not state.network.centres.any()
    state.position = objective.n_pretraining
    objective.before_epoch(state)
    expected = KMeans(4, n_init=20, random_state=seed).fit(codes(objective, state).numpy()).cluster_centers_
    np.testing.assert_allclose(state.network.centres.detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_codes_have_the_scale_of_the_kernel_when_clusters_begin_to_be_learnt():
    objective, state = case()
    state.network.encoder[-1][0].weight.data *= 50
    x = objective.samples.take(torch.arange(200))
    before, reconstructions = codes(objective, state), state.network.decode(state.network.encode(x))
    state.position = objective.n_pretraining
    objective.before_epoch(state)
    distances = (codes(objective, state) - state.network.centres.detach()[state.buffers["labels"]]).norm(dim=1)
    assert float(distances.square().mean().sqrt()) == pytest.approx(2.0, rel=1e-3)
    torch.testing.assert_close(codes(objective, state) * before.std(), before * codes(objective, state).std())
    torch.testing.assert_close(state.network.decode(state.network.encode(x)), reconstructions)


def test_codes_that_are_all_the_same_do_not_divide_by_zero():
    objective, state = case(data=np.ones_like(DIGITS))
    state.position = objective.n_pretraining
    with pytest.warns(UserWarning, match="distinct clusters"):
        objective.before_epoch(state)
    assert all(bool(value.isfinite().all()) for value in state.network.state_dict().values())


def test_clusters_are_learnt_by_stochastic_gradient_descent_with_momentum():
    objective, state = clustering(replace(CONFIG, cluster_learning_rate=0.03))
    assert isinstance(state.optimizer, torch.optim.SGD)
    assert (state.optimizer.param_groups[0]["lr"], state.optimizer.param_groups[0]["momentum"]) == (0.03, 0.9)
    before = {name: value.clone() for name, value in state.network.state_dict().items()}
    train_epoch(state, objective)
    moved = {name for name, value in state.network.state_dict().items() if not torch.equal(value, before[name])}
    assert "centres" in moved
    assert any(name.startswith("encoder.0") for name in moved)
    assert not any(name.startswith("decoder") for name in moved)


# --- the auto-encoder


def test_the_decoder_is_the_mirror_image():
    network = DECNetwork((1, 8, 8), CONFIG)
    shapes = [[tuple(layer[0].weight.shape) for layer in part] for part in (network.encoder, network.decoder)]
    assert shapes[0] == [(16, 64), (8, 16), (3, 8)]
    assert shapes[1] == [shape[::-1] for shape in shapes[0]]
    assert network.decode(network.encode(torch.zeros(5, 1, 8, 8))).shape == (5, 1, 8, 8)


def test_codes_and_reconstructions_are_linear():
    network = DECNetwork((4,), replace(CONFIG, hidden_sizes=(8,)))
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    assert bool((network.encode(x) < 0).any())
    assert bool((network.decode(network.encode(x)) < 0).any())


@pytest.mark.parametrize("data", [DIGITS, DIGITS.reshape(200, 64) * 100 + 7], ids=["images", "rows"])
def test_samples_come_in_with_a_mean_square_of_one(data):
    model = DEC(**SMALL | {"n_epochs": 1}).fit(data)
    samples = Samples(ArraySource(data), model.pipeline_.scaling)
    x = model.network_.enter(samples.take(torch.arange(200)))
    assert float(x.square().mean()) == pytest.approx(1.0, rel=1e-3)
    if data.ndim == 3:
        assert float(x.min()) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize(("position", "layer"), [(0, 0), (1, 1), (2, 2)])
def test_one_layer_is_trained_at_a_time(position, layer):
    objective, state = case(position=position)
    before = {name: value.clone() for name, value in state.network.state_dict().items()}
    train_epoch(state, objective)
    moved = {name[:9] for name, value in state.network.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {f"encoder.{layer}", f"decoder.{layer}"}


def test_then_all_layers_are_trained():
    objective, state = case()
    state.position = objective.n_layerwise
    before = {name: value.clone() for name, value in state.network.state_dict().items()}
    train_epoch(state, objective)
    same = {name for name, value in state.network.state_dict().items() if torch.equal(value, before[name])}
    assert same == {"centres", "unit"}


def test_all_layers_are_trained_by_gradient_descent_at_a_rate_that_falls_to_0():
    objective, state = case(replace(CONFIG, n_epochs=60, layer_share=0.1, whole_share=0.5, whole_learning_rate=0.4))
    rates = []
    for state.position in range(objective.n_layerwise, objective.n_pretraining):
        objective.before_epoch(state)
        assert isinstance(state.optimizer, torch.optim.SGD)
        rates.append(state.optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(rates, 0.4 * (1 - (np.arange(30) + 0.5) / 30))


@pytest.mark.parametrize(("factor", "expected"), [(1e9, 0.01), (1e-9, None), (0.0, 0.0)], ids=["steep", "flat", "none"])
def test_no_gradient_of_the_auto_encoder_is_steeper_than_a_hundredth_of_what_it_changes(factor, expected):
    objective, state = case()
    weight, x = state.network.encoder[0][0].weight, torch.ones(5, 1, 8, 8)

    def steepness(position):
        state.position, weight.grad = position, None
        objective.before_epoch(state)
        (factor * state.network.encode(x).square().sum()).backward()
        return float(weight.grad.norm() / weight.detach().norm())

    whole, clusters = steepness(objective.n_layerwise), steepness(objective.n_pretraining)
    if expected is None:  # a flat one stays as it is
        assert 0 < whole < 1e-6
    else:
        assert whole == pytest.approx(expected, rel=1e-4)
        assert clusters > 1 or factor == 0


def test_training_does_not_blow_up_on_few_features():
    X = np.random.default_rng(0).normal(5, 5, size=(100, 3))
    model = DEC(**SMALL | {"n_epochs": 40, "hidden_sizes": (64, 64)}).fit(X)
    assert np.isfinite(model.transform(X)).all()


# --- the schedule


def phases(model):
    return [record.phase for record in model.history_]


def test_phases_follow_one_another():
    model = DEC(**SMALL, layer_share=0.3, whole_share=0.4).fit(DIGITS)
    assert phases(model) == ["layers"] * 3 + ["auto-encoder"] * 4 + ["clustering"] * 3
    assert [record.n_clusters for record in model.history_] == [None] * 7 + [4] * 3
    assert all((record.kl is None) == (record.phase != "clustering") for record in model.history_)
    assert all((record.reconstruction is None) == (record.phase == "clustering") for record in model.history_)


@pytest.mark.parametrize(
    ("n_epochs", "layer_share", "whole_share"), [(1, 0.2, 0.4), (2, 1.0, 1.0), (3, 0.0, 0.0), (4, 1.0, 0.0), (7, 0.5, 1.0)]
)
def test_clusters_are_learnt_at_the_end_whatever_the_shares(n_epochs, layer_share, whole_share):
    shares = {"layer_share": layer_share, "whole_share": whole_share}
    model = DEC(**SMALL | {"n_epochs": n_epochs, "tolerance": 0.0} | shares).fit(DIGITS)
    assert len(model.history_) == n_epochs
    assert phases(model)[-1] == "clustering"
    assert model.network_.centres.any()


@pytest.mark.parametrize(("target_steps", "every"), [(1, 1), (8, 2), (12, 3)])
def test_the_target_is_computed_anew_every_so_many_steps(target_steps, every):
    objective, state = clustering(replace(CONFIG, target_steps=target_steps, n_epochs=20, tolerance=0.0, layer_share=0.1))
    targets = [state.buffers["target"]]
    for _ in range(5):
        train_epoch(state, objective)  # 4 steps
        state.position += 1
        objective.before_epoch(state)
        targets.append(state.buffers["target"])
    changed = [not torch.equal(a, b) for a, b in pairwise(targets)]
    assert changed == [(i + 1) % every == 0 for i in range(5)]


def test_training_ends_when_few_labels_change():
    config = replace(CONFIG, n_epochs=50, layer_share=0.02, whole_share=0.02, target_steps=1, cluster_learning_rate=1e-9)
    objective, state = case(config)
    run_epochs(state, objective)
    assert [record.phase for record in state.history].count("clustering") == 2  # the second target has the labels of the first
    objective, state = case(replace(config, tolerance=0.0))
    run_epochs(state, objective)
    assert len(state.history) == 50


def test_early_stopping_skips_to_the_next_layer_or_phase():
    params = SMALL | {"n_epochs": 40, "learning_rate": 1e-12, "dropout": 0.0, "early_stopping": 2, "tolerance": 0.0}
    model = DEC(**params, layer_share=0.6, whole_share=0.2).fit(DIGITS)
    found = phases(model)
    assert 3 * 2 <= found.count("layers") < 24  # three layers, each of which waits
    assert 2 <= found.count("auto-encoder") <= 8
    assert found.count("clustering") == 8  # ends by its labels alone


# --- answers


def test_shapes_of_answers(fitted):
    assert fitted.labels_.shape == (200,)
    assert fitted.n_clusters_ == 4
    np.testing.assert_array_equal(fitted.cluster_ids_, range(4))
    assert fitted.transform(NEW).shape == (30, 3)
    assert fitted.reconstruct(NEW).shape == NEW.shape
    assert fitted.inverse_transform(fitted.transform(NEW)).shape == NEW.shape
    assert fitted.n_features_in_ == 64
    assert list(fitted.get_feature_names_out()) == ["dec0", "dec1", "dec2"]


def test_new_samples_are_answered_like_old_ones(fitted):
    np.testing.assert_array_equal(fitted.predict(DIGITS), fitted.labels_)
    proba = fitted.predict_proba(NEW)
    assert proba.shape == (30, 4)
    np.testing.assert_allclose(proba.sum(1), 1.0)
    np.testing.assert_array_equal(fitted.predict(NEW), proba.argmax(1))
    q = literal_q(fitted.transform(NEW).astype(np.float64), fitted.network_.centres.detach().double().numpy())
    np.testing.assert_allclose(proba, q, rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(fitted.fit_predict(DIGITS), fitted.labels_)


def test_samples_far_from_all_centres_are_novel():
    rows = DIGITS.reshape(200, 64)
    model = DEC(**SMALL).fit(rows)
    known, far = model.assign(rows), model.assign(1000 * rows[:5])
    assert known.novel.mean() == pytest.approx(0.01, abs=0.01)
    assert far.novel.all()
    assert model.score(rows) == pytest.approx(known.scores.mean())
    np.testing.assert_array_equal(model.score_samples(rows[:5]) < model.novelty_threshold_, known.novel[:5])


def test_a_copy_answers_alike(fitted):
    for other in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(other.predict_proba(NEW), fitted.predict_proba(NEW))


def test_the_same_seed_gives_the_same_model(fitted):
    again, other = DEC(**SMALL).fit(DIGITS), DEC(**SMALL | {"random_state": 1}).fit(DIGITS)
    np.testing.assert_array_equal(again.transform(NEW), fitted.transform(NEW))
    np.testing.assert_array_equal(again.labels_, fitted.labels_)
    assert not np.array_equal(other.transform(NEW), fitted.transform(NEW))


@pytest.mark.quality
def test_blobs_are_found():
    rng = np.random.default_rng(0)
    truth = np.repeat(range(3), 60)
    X = rng.normal(0, 5, size=(3, 10))[truth] + rng.normal(size=(180, 10))
    params = SMALL | {"n_clusters": 3, "n_epochs": 60, "latent_dim": 2, "hidden_sizes": (32,)}
    found = [adjusted_rand_score(truth, DEC(**params | {"random_state": seed}).fit(X).labels_) for seed in range(5)]
    assert np.median(found) > 0.9


# --- parameters


def test_scikit_learn_knows_its_parameters():
    model = DEC(n_clusters=7, hidden_sizes=(5,))
    assert clone(model).get_params() == model.get_params()
    assert model.get_params()["n_clusters"] == 7
    assert not hasattr(model, "labels_")
    assert repr(model) == "DEC(hidden_sizes=(5,), n_clusters=7)"
    assert DEC().get_params()["hidden_sizes"] == (500, 500, 2000)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"n_clusters": 1}, "n_clusters should be a whole number from 2"),
        ({"n_clusters": "ten"}, "n_clusters"),
        ({"hidden_sizes": ()}, "hidden_sizes should be a tuple"),
        ({"latent_dim": 0}, "latent_dim"),
        ({"dropout": 1.5}, "dropout should be a number from 0 to 1, got 1.5"),
        ({"layer_share": -0.1}, "layer_share"),
        ({"whole_share": None}, "whole_share"),
        ({"target_steps": 0.5}, "target_steps"),
        ({"tolerance": np.nan}, "tolerance"),
        ({"cluster_learning_rate": 0}, "cluster_learning_rate"),
        ({"whole_learning_rate": -1}, "whole_learning_rate"),
        ({"resume": True}, "resume=True needs a run_dir"),
        ({"n_clusters": 201}, "n_clusters=201 needs as many samples, got 200"),
    ],
    ids=str,
)
def test_parameters_that_make_no_sense_are_named(given, expected):
    with pytest.raises(ValueError, match=expected):
        DEC(**SMALL | given).fit(DIGITS)


def test_numbers_of_numpy_can_be_saved(tmp_path):
    params = {"n_clusters": np.int64(4), "learning_rate": np.float32(1e-3), "cluster_learning_rate": np.float32(0.01)}
    params |= {"hidden_sizes": [np.int16(16), 8]}
    model = DEC(**SMALL | params, run_dir=tmp_path / "run").fit(DIGITS)
    assert model.config_ == diva.load(tmp_path / "run" / "model.diva").config_
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["n_clusters"] == 4


def test_a_model_that_is_not_fitted_says_so():
    for ask in (DEC().predict, DEC().predict_proba, DEC().transform, DEC().score, DEC().reconstruct):
        with pytest.raises(NotFittedError):
            ask(DIGITS)


# --- files


def test_a_saved_model_comes_back(fitted, tmp_path):
    fitted.save(tmp_path / "model.diva")
    loaded = diva.load(tmp_path / "model.diva")
    assert isinstance(loaded, DEC)
    assert loaded.get_params() == fitted.get_params()
    assert loaded.config_ == fitted.config_
    assert loaded.history_ == fitted.history_
    for ask in ("predict", "predict_proba", "transform", "score_samples", "reconstruct"):
        np.testing.assert_array_equal(getattr(loaded, ask)(NEW), getattr(fitted, ask)(NEW), err_msg=ask)
    np.testing.assert_array_equal(loaded.labels_, fitted.labels_)
    assert loaded.novelty_threshold_ == fitted.novelty_threshold_


@pytest.mark.parametrize(
    "networks", [{"encoder": torch.nn.Linear(64, 3)}, {"decoder": torch.nn.Linear(3, 64)}], ids=["encoder", "decoder"]
)
def test_networks_of_ones_own_are_refused(fitted, tmp_path, networks):
    fitted.save(tmp_path / "model.diva")
    with pytest.raises(ModelFileError, match=r"is a DEC.*without encoder and decoder"):
        diva.load(tmp_path / "model.diva", **networks)


BROKEN = {
    "no threshold": lambda d, t: (d.pop("novelty_threshold"), None)[1],
    "junk for the threshold": lambda d, t: d.update(novelty_threshold="high"),
    "no config": lambda d, t: d.pop("config"),
    "a setting that makes no sense": lambda d, t: d["config"].update(dropout=3),
    "another number of clusters": lambda d, t: d["config"].update(n_clusters=5),
    "more clusters than there are": lambda d, t: d.update(n_clusters=10**8),
    "no labels": lambda d, t: t.pop("labels"),
    "labels of clusters that do not exist": lambda d, t: t.update(labels=t["labels"] + 1),
    "labels that are no numbers of clusters": lambda d, t: t.update(labels=t["labels"].double()),
    "no centres": lambda d, t: t.pop("network.centres"),
    "no unit": lambda d, t: t.pop("network.unit"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_refused(fitted, tmp_path, how):
    path = tmp_path / "model.diva"
    fitted.save(path)
    archive = read_archive(path, kinds=["DEC"])
    labels = archive.tensors["labels"]
    labels[0] = 3  # so that one more does not exist
    BROKEN[how](archive.document, archive.tensors)
    write_archive(path, "DEC", archive.document, archive.tensors)
    with pytest.raises(ModelFileError, match=r"model\.diva"):
        diva.load(path)


# --- runs


class StoppedError(Exception):
    pass


def failing_at(last):
    def fail(_, record):
        if record.epoch == last:
            raise StoppedError

    return [fail]


def without_times(history):
    return [replace(record, seconds=0.0) for record in history]


@pytest.mark.parametrize(
    "last", [0, 1, 4, 5, 6, 8], ids=["layer", "next-layer", "whole", "before-clusters", "clusters", "late"]
)
def test_a_run_that_failed_goes_on_as_if_nothing_had_been(tmp_path, fitted, last):
    with pytest.raises(StoppedError):
        DEC(**SMALL, run_dir=tmp_path / "run", callbacks=failing_at(last)).fit(DIGITS)
    model = DEC(**SMALL, run_dir=tmp_path / "run", resume=True).fit(DIGITS)
    assert without_times(model.history_) == without_times(fitted.history_)
    for (name, value), other in zip(fitted.network_.state_dict().items(), model.network_.state_dict().values(), strict=True):
        assert torch.equal(value, other), name
    np.testing.assert_array_equal(model.predict_proba(NEW), fitted.predict_proba(NEW))
    np.testing.assert_array_equal(diva.load(tmp_path / "run" / "model.diva").predict(NEW), fitted.predict(NEW))


def test_another_run_is_not_gone_on_with(tmp_path):
    with pytest.raises(StoppedError):
        DEC(**SMALL, run_dir=tmp_path / "run", callbacks=failing_at(2)).fit(DIGITS)
    with pytest.raises(ValueError, match=r"dropout=0\.5"):
        DEC(**SMALL, dropout=0.2, run_dir=tmp_path / "run", resume=True).fit(DIGITS)
    with pytest.raises(ValueError, match="other data"):
        DEC(**SMALL, run_dir=tmp_path / "run", resume=True).fit(DIGITS[:150])
    with pytest.raises(ModelFileError, match="DEC checkpoint"):
        diva.DIVA(run_dir=tmp_path / "run", resume=True, n_epochs=2, random_state=0).fit(DIGITS)
