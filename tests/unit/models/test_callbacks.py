"""Callbacks can ask the model as it is at an epoch, and asking leaves the run as it is without."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import diva
from diva import DIVA
from diva.baselines import DEC

torch.set_num_threads(1)

rng = np.random.default_rng(0)
X = (np.repeat([[0, 0, 0, 0], [6, 0, 0, 6], [0, 6, 6, 0]], 20, axis=0) + rng.normal(size=(60, 4))).astype(np.float32)
NEW = X[:30] + np.float32([9, 9, 0, 0])
IMAGES = rng.uniform(size=(40, 8, 8)).astype(np.float32)
TINY = {"latent_dim": 2, "hidden_sizes": (8,), "n_epochs": 4, "random_state": 0}


class Encoder(nn.Module):
    """With dropout, which draws on torch's own generator, and a thought kept for later, which cannot be copied."""

    def __init__(self):
        super().__init__()
        self.body, self.mean, self.log_var = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3)), nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x):
        self.last = self.body(x)
        return self.mean(self.last), self.log_var(self.last)


def own_networks():
    torch.manual_seed(0)
    return {"encoder": Encoder(), "decoder": nn.Linear(2, 4)}


CASES = {
    "rows": (DIVA(**TINY), X),
    "images": (DIVA(**TINY, batch_size=16), IMAGES),
    "nll": (DIVA(**TINY, reconstruction="nll"), X),
    "self-training": (DIVA(**TINY | {"n_epochs": 6, "self_training": 0.7, "learning_rate": 0.01}), X),
    "paper": (DIVA("paper", **TINY), X),
    "own networks": (DIVA(**TINY, **own_networks()), X),
    "DEC": (DEC(**TINY | {"n_epochs": 6}, n_clusters=3, batch_size=16), X),
}


def answers_of(model, data):
    """All that can be asked of a model."""
    said = {
        "predict": model.predict(data),
        "predict_proba": model.predict_proba(data),
        "transform": model.transform(data),
        "score_samples": model.score_samples(data),
        "score": model.score(data),
        "reconstruct": model.reconstruct(data),
        "inverse_transform": model.inverse_transform(np.zeros((2, 2))),
        "labels_": model.labels_,
        "ids": model.cluster_ids_,
        "positions": model.assign(data).positions,
    }
    if isinstance(model, DIVA):
        drawn, of = model.sample(5, random_state=0)
        said |= {
            "sample": drawn,
            "labels of draws": of,
            "is_novel": model.is_novel(data),
            "lineage": np.array(model.lineage_, object),
        }
        said |= {"components": model.predict(data, level="component"), "rejected": model.predict(data, reject=True)}
    return copy.deepcopy(said)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def without_times(history):
    return [replace(record, seconds=0.0, mixture_seconds=0.0) for record in history]


class Asking:
    """Ask everything after every epoch."""

    def __init__(self, data):
        self.data, self.said, self.kept = data, [], []

    def __call__(self, model, record):
        assert model.history_[-1] == record
        self.said.append(answers_of(model, self.data))
        self.kept.append(model)


@pytest.fixture(scope="module", params=CASES)
def fits(request):
    """One fit without callbacks, one that was asked, and what was said."""
    model, data = CASES[request.param]
    asking = Asking(data)
    silent, asked = copy.deepcopy(model).fit(data), copy.deepcopy(model).set_params(callbacks=[asking]).fit(data)
    return silent, asked, asking, data


def test_asking_leaves_the_run_as_it_is_without(fits):
    silent, asked, asking, data = fits
    assert len(asking.said) == len(silent.history_)
    assert without_times(asked.history_) == without_times(silent.history_)
    assert_same(answers_of(asked, data), answers_of(silent, data))
    for (name, value), other in zip(silent.network_.state_dict().items(), asked.network_.state_dict().values(), strict=True):
        assert torch.equal(value, other), name


def test_a_model_answers_as_if_training_had_ended_with_this_epoch(fits):
    silent, asked, asking, data = fits
    assert_same(asking.said[-1], answers_of(asked, data))
    for epoch in (0, len(asking.said) // 2):
        ended = copy.deepcopy(silent).set_params(callbacks=[lambda _, record, last=epoch: record.epoch == last]).fit(data)
        assert len(ended.history_) == epoch + 1
        assert_same(asking.said[epoch], answers_of(ended, data))


def test_a_model_that_is_kept_does_not_learn_on(fits):
    _, _, asking, data = fits
    for said, kept in zip(asking.said, asking.kept, strict=True):
        assert_same(answers_of(kept, data), said)


def test_models_of_different_epochs_differ(fits):
    _, _, asking, _ = fits
    assert not np.array_equal(asking.said[0]["transform"], asking.said[-1]["transform"])
    assert [len(kept.history_) for kept in asking.kept] == list(range(1, len(asking.said) + 1))


def test_a_callback_can_save_the_model(tmp_path):
    model = DIVA(**TINY, callbacks=[lambda model, record: model.save(tmp_path / f"{record.epoch}.diva")]).fit(X)
    models = [diva.load(tmp_path / f"{epoch}.diva") for epoch in range(4)]
    assert [len(m.history_) for m in models] == [1, 2, 3, 4]
    np.testing.assert_array_equal(models[-1].predict(X), model.predict(X))
    models[0].partial_fit(NEW)
    assert [record.batch for record in models[0].batches_] == [0, 1]


@pytest.mark.parametrize(
    "params", [{"warm_start": True}, {"adapt": True}, {"adapt": True, "replay": "reservoir", "reservoir": 10}], ids=str
)
def test_a_fit_that_goes_on_can_be_asked_as_well(params):
    first = DIVA(**TINY, further_epochs=3, **{"replay": params.get("replay", "draws")}).fit(X).set_params(**params)
    asking = Asking(X)
    silent, asked = copy.deepcopy(first), copy.deepcopy(first).set_params(callbacks=[asking])
    for model in (silent, asked):
        model.fit(np.concatenate([X, NEW])) if "warm_start" in params else model.partial_fit(NEW)
    assert len(asking.said) == 3
    assert without_times(asked.history_) == without_times(silent.history_)
    assert asked.lineage_ == silent.lineage_
    assert asked.cluster_lineage_ == silent.cluster_lineage_
    assert_same(answers_of(asked, X), answers_of(silent, X))
    assert_same({**asking.said[-1], "labels_": asked.labels_}, answers_of(asked, X))


def test_what_is_not_asked_costs_nothing(monkeypatch):
    ended = []
    finish = DIVA._finish
    monkeypatch.setattr(DIVA, "_finish", lambda *given: ended.append(1) or finish(*given))
    DIVA(**TINY, callbacks=[lambda model, record: None]).fit(X)
    assert len(ended) == 1


def test_answers_that_are_not_true_do_not_end_training():
    model = DIVA(
        **TINY, callbacks=[lambda model, record: model.score(X), lambda model, record: np.bool_(record.epoch == 2)]
    ).fit(X)
    assert len(model.history_) == 3
