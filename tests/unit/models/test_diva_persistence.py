"""Saved DIVA models come back bit for bit; damaged and mismatched files are refused, whatever is in them."""

import copy
import json
import os
import resource
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import diva
from diva import DIVA, DPMixture
from diva.exceptions import ModelFileError
from diva.runs.archive import read_archive, write_archive
from diva.runs.upgrade import LATER

torch.set_num_threads(1)

TINY = {"latent_dim": 2, "hidden_sizes": (8,), "n_epochs": 3, "n_laps": 2, "n_views": 1, "random_state": 0}
rng = np.random.default_rng(0)
X = np.concatenate([rng.normal(c, 1, size=(20, 4)) for c in ([0, 0, 0, 0], [8, 0, 0, 8], [0, 8, 8, 0])])
IMAGES = rng.random((30, 4, 4))
BYTES = (IMAGES * 255).astype(np.uint8)


class Encoder(nn.Module):
    def __init__(self, n_features=4, n_hidden=8):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_features, n_hidden), nn.Tanh())
        self.mean, self.log_var = nn.Linear(n_hidden, 2), nn.Linear(n_hidden, 2)

    def forward(self, x):
        hidden = self.body(x)
        return self.mean(hidden), self.log_var(hidden)


CASES = {
    "rows": (X, {"learning_rate": 0.01}),
    "images": (IMAGES, {}),
    "bytes": (BYTES, {}),
    "colours": (np.stack([IMAGES] * 3, axis=3), {}),
    "flat": (IMAGES.reshape(30, 16), {"image_shape": (4, 4)}),
    "paper": (X, {"preset": "paper"}),
    "nll": (X, {"reconstruction": "nll", "assignment": "hard", "grouping": None}),
    "neighbours": (X, {"augmentation": None, "covariance_type": "diag"}),
}


@pytest.fixture(scope="module")
def fitted():
    return {name: DIVA(**(TINY | params)).fit(data) for name, (data, params) in CASES.items()}


@pytest.fixture(params=CASES)
def case(request, fitted):
    return copy.deepcopy(fitted[request.param]), CASES[request.param][0]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.diva"


def round_trip(model, path, **networks):
    model.save(path)
    return diva.load(path, **networks)


def assert_same(first, second, data):
    for method in ("predict", "predict_proba", "transform", "score_samples", "reconstruct"):
        np.testing.assert_array_equal(getattr(first, method)(data), getattr(second, method)(data), err_msg=method)
    np.testing.assert_array_equal(first.predict(data, level="component"), second.predict(data, level="component"))
    for drawn, same in zip(first.sample(9, random_state=1), second.sample(9, random_state=1), strict=True):
        np.testing.assert_array_equal(drawn, same)
    for name in ("labels_", "component_labels_", "component_ids_"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
        assert getattr(first, name).dtype == getattr(second, name).dtype
    assert first.history_ == second.history_
    assert first.lineage_ == second.lineage_
    assert (first.n_clusters_, first.n_components_, first.n_features_in_) == (
        second.n_clusters_,
        second.n_components_,
        second.n_features_in_,
    )
    assert first.config_ == second.config_


# --- what is saved comes back


def test_a_loaded_model_is_the_same_bit_for_bit(case, path):
    model, data = case
    loaded = round_trip(model, path)
    assert isinstance(loaded, DIVA)
    assert_same(loaded, model, data)
    assert {n for n in vars(loaded) if n.endswith("_")} == {n for n in vars(model) if n.endswith("_")}
    assert loaded.get_params() == model.get_params()
    if model.hierarchy_ is not None:
        assert loaded.hierarchy_.to_dict() == model.hierarchy_.to_dict()
        for level in range(1, model.n_components_ + 1):
            np.testing.assert_array_equal(loaded.predict(data, level=level), model.predict(data, level=level))


def test_going_on_after_loading_is_going_on(case, path):
    model, data = case
    loaded = round_trip(model, path)
    new = data[::-1]
    loaded.partial_fit(new)
    model.partial_fit(new)
    assert_same(loaded, model, data)


def test_fitting_again_after_loading_is_fitting(fitted, path):
    loaded = round_trip(fitted["rows"], path).fit(X)
    np.testing.assert_array_equal(loaded.transform(X), fitted["rows"].transform(X))
    np.testing.assert_array_equal(loaded.labels_, fitted["rows"].labels_)


def test_saving_a_loaded_model_writes_the_same(fitted, tmp_path):
    fitted["rows"].save(tmp_path / "a")
    diva.load(tmp_path / "a").save(tmp_path / "b")
    first, second = (read_archive(tmp_path / name, kinds={"DIVA"}) for name in "ab")
    assert first.document == second.document
    assert first.tensors.keys() == second.tensors.keys()
    assert all(torch.equal(tensor, second.tensors[name]) for name, tensor in first.tensors.items())


def test_column_names_come_back(path):
    frame = pd.DataFrame(X, columns=["grüße", "b", "c", "d"])
    loaded = round_trip(DIVA(**TINY).fit(frame), path)
    assert list(loaded.feature_names_in_) == ["grüße", "b", "c", "d"]
    loaded.predict(frame)
    with pytest.raises(ValueError, match="in the same order"):
        loaded.predict(frame[["d", "c", "b", "grüße"]])


def test_loading_leaves_the_random_numbers_of_the_user(case, path):
    model, _ = case
    model.save(path)
    before = torch.random.get_rng_state()
    diva.load(path)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_no_column_names_stay_none(fitted, path):
    assert not hasattr(round_trip(fitted["rows"], path), "feature_names_in_")


@pytest.mark.parametrize(
    "params",
    [
        {"latent_dim": np.int64(2), "n_epochs": np.int32(2), "n_views": np.int64(1)},
        {"learning_rate": np.float32(1e-3), "warmup": np.float32(0.5), "kl_weight": np.float32(1)},
        {"hidden_sizes": (np.int64(8),)},
        {"hidden_sizes": [8, 8]},
        {"random_state": np.int64(0)},
        {"random_state": np.random.RandomState(0)},
        {"resume": False, "verbose": np.False_},
        {"device": torch.device("cpu")},
        {"callbacks": [lambda model, record: None]},
        {"augmentation": lambda x, generator: x + 0.1},
        {"concentration": 1, "resolution": np.float64(1.0), "max_components": np.int64(50)},
    ],
    ids=lambda params: ",".join(f"{k}:{type(v).__name__}" for k, v in params.items()),
)
def test_parameters_of_any_allowed_type_can_be_saved(params, path):
    model = DIVA(**(TINY | {"n_epochs": 2} | params)).fit(X)
    loaded = round_trip(model, path)
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    assert loaded.latent_dim == 2


def test_a_model_with_an_augmentation_of_ones_own_goes_on_without_it_or_with_it(path):
    def shifted(x, generator):
        return x + 0.1

    model = DIVA(**TINY, augmentation=shifted, adapt=True).fit(X)
    plain, given = round_trip(model, path), diva.load(path).set_params(augmentation=shifted)
    for goes_on in (model, plain, given):
        assert goes_on.config_.augmentation == "own"
        goes_on.partial_fit(X[:20] + 1)
    np.testing.assert_array_equal(given.transform(X), model.transform(X))
    assert not np.array_equal(plain.transform(X), model.transform(X))


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("resume", [False, True])
def test_the_model_of_a_run_can_be_loaded(tmp_path, kind, resume):
    model = DIVA(**TINY, run_dir=kind(tmp_path / "run"), resume=resume).fit(X)
    loaded = diva.load(tmp_path / "run" / "model.diva")
    assert_same(loaded, model, X)


def test_a_path_may_be_text(fitted, tmp_path):
    target = str(tmp_path / "a model of mine.diva")
    assert_same(round_trip(fitted["rows"], target), fitted["rows"], X)


def test_a_model_of_two_samples_comes_back(path):
    model = DIVA(**TINY).fit(X[:2])
    assert_same(round_trip(model, path), model, X[:2])


def test_a_model_that_went_on_comes_back(fitted, path):
    model = copy.deepcopy(fitted["rows"]).partial_fit(X[:10] + 20)
    assert_same(round_trip(model, path), model, X)


# --- networks of one's own


@pytest.fixture(scope="module")
def own():
    return DIVA(**TINY, encoder=Encoder(), decoder=nn.Linear(2, 4)).fit(X)


def test_networks_of_ones_own_come_back(own, path):
    encoder, decoder = Encoder(), nn.Linear(2, 4)
    before = copy.deepcopy(encoder.state_dict())
    loaded = round_trip(own, path, encoder=encoder, decoder=decoder)
    assert_same(loaded, own, X)
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


@pytest.mark.parametrize("given", [(), ("encoder",), ("decoder",)], ids=str)
def test_networks_of_ones_own_must_be_passed(own, path, given):
    networks = {"encoder": Encoder(), "decoder": nn.Linear(2, 4)}
    own.save(path)
    with pytest.raises(ModelFileError, match=r"model\.diva.*encoder= and decoder="):
        diva.load(path, **{name: networks[name] for name in given})


@pytest.mark.parametrize(
    ("encoder", "decoder"),
    [
        pytest.param(Encoder(n_hidden=9), nn.Linear(2, 4), id="other-encoder"),
        pytest.param(Encoder(), nn.Linear(2, 5), id="other-decoder"),
        pytest.param(nn.Linear(4, 2), nn.Linear(2, 4), id="other-kind"),
        pytest.param("mlp", "mlp", id="words"),
        pytest.param(Encoder, nn.Linear, id="classes"),
    ],
)
def test_other_networks_are_refused(own, path, encoder, decoder):
    own.save(path)
    with pytest.raises((ModelFileError, TypeError), match=r"model\.diva|Module"):
        diva.load(path, encoder=encoder, decoder=decoder)


def test_networks_for_a_model_without_are_refused_or_do_not_matter(fitted, path):
    fitted["rows"].save(path)
    try:
        loaded = diva.load(path, encoder=Encoder(), decoder=nn.Linear(2, 4))
    except ModelFileError as error:
        assert "encoder" in str(error)  # noqa: PT017
        assert "state_dict" not in str(error)  # noqa: PT017
    else:
        assert_same(loaded, fitted["rows"], X)


def test_networks_for_a_mixture_are_refused(path):
    DPMixture(random_state=0).fit(X).save(path)
    with pytest.raises(ModelFileError, match=r"model\.diva is a DPMixture.*without encoder and decoder"):
        diva.load(path, encoder=Encoder(), decoder=nn.Linear(2, 4))


# --- saving


def test_saving_into_a_missing_folder(fitted, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.*Create the folder"):
        fitted["rows"].save(tmp_path / "nowhere" / "model.diva")
    assert os.listdir(tmp_path) == []


def test_saving_onto_a_folder(fitted, tmp_path):
    with pytest.raises(ModelFileError, match="it is a folder"):
        fitted["rows"].save(tmp_path)
    assert os.listdir(tmp_path) == []


def test_saving_leaves_one_file_and_replaces_the_old_one(fitted, path):
    fitted["rows"].save(path)
    fitted["images"].save(path)
    assert os.listdir(path.parent) == ["model.diva"]
    assert diva.load(path).n_features_in_ == 16


@pytest.mark.parametrize("function", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["disk-full", "ctrl-c"])
def test_an_interrupted_save_leaves_the_old_file(fitted, path, monkeypatch, function, error):
    fitted["rows"].save(path)
    before = path.read_bytes()

    def fail(*args):
        raise error

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(type(error)):
        fitted["images"].save(path)
    assert os.listdir(path.parent) == ["model.diva"]
    assert path.read_bytes() == before


def test_a_network_that_holds_nan_is_not_written(fitted, path):
    model = copy.deepcopy(fitted["rows"])
    with torch.no_grad():
        next(model.vae_.parameters()).fill_(torch.nan)
    with pytest.raises(ModelFileError, match=r"model\.diva.*NaN"):
        model.save(path)
    assert not path.exists()


# --- files that are no models, or no longer


def assert_refused(path):
    with pytest.raises(ModelFileError) as caught:
        diva.load(path)
    assert path.name in str(caught.value)


def test_a_truncated_file(fitted, path):
    fitted["rows"].save(path)
    content = path.read_bytes()
    for length in [*range(0, 24), *np.linspace(24, len(content) - 1, 60, dtype=int)]:
        path.write_bytes(content[:length])
        assert_refused(path)
    path.write_bytes(content + b"\0")
    assert_refused(path)


def test_a_flipped_bit_in_header_or_payload(fitted, path):
    fitted["rows"].save(path)
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    for position in [
        *range(16),
        *np.linspace(16, header - 1, 60, dtype=int),
        *np.linspace(header, len(content) - 1, 60, dtype=int),
    ]:
        damaged = bytearray(content)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        assert_refused(path)


def test_a_checkpoint_is_no_model(tmp_path):
    DIVA(**TINY, run_dir=tmp_path / "run").fit(X)
    with pytest.raises(ModelFileError, match=r"checkpoint\.safetensors.*checkpoint.*resume"):
        diva.load(tmp_path / "run" / "checkpoint.safetensors")


def test_another_schema(fitted, path, monkeypatch):
    monkeypatch.setattr("diva.runs.archive.SCHEMA", "99")
    fitted["rows"].save(path)
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match=r"schemas .*'1', '2'.*it has schema '99'"):
        diva.load(path)


# --- files with a right checksum and wrong contents


@pytest.fixture(scope="module")
def archives(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.diva"
    found = {}
    for name, model in fitted.items():
        model.save(path)
        found[name] = read_archive(path, kinds={"DIVA"})
    return found


@pytest.fixture
def archive(archives):
    return archives["rows"]


def is_refused(path, document, tensors, kind="DIVA"):
    """Whether a file with these contents is refused as it should be; any other error passes through."""
    write_archive(path, kind, document, tensors)
    try:
        diva.load(path)
    except ModelFileError as error:
        assert path.name in str(error)  # noqa: PT017
        return True
    return False


def test_another_kind_of_model(path, archive):
    assert is_refused(path, archive.document, archive.tensors, kind="DPMixture")
    assert is_refused(path, archive.document, archive.tensors, kind="DIVA checkpoint")
    assert is_refused(path, archive.document["mixture"], archive.tensors)


def test_a_part_of_the_document_is_missing(path, archive):
    accepted = [name for name in archive.document if not is_refused(path, _without(archive.document, name), archive.tensors)]
    assert accepted == []
    for name in ("params", "config", "mixture"):
        # files of earlier versions are without those
        for inner in archive.document[name].keys() - LATER.keys() - {"cluster_names", "apart", "temperature"}:
            document = archive.document | {name: _without(archive.document[name], inner)}
            assert is_refused(path, document, archive.tensors), (name, inner)
    for name in ("history", "training_lineage"):
        for inner in archive.document[name][0] if archive.document[name] else ():
            records = [_without(archive.document[name][0], inner), *archive.document[name][1:]]
            assert is_refused(path, archive.document | {name: records}, archive.tensors), (name, inner)


def _without(mapping, name):
    return {k: v for k, v in mapping.items() if k != name}


JUNK = ["junk", 12, -1.5, None, [], ["junk"], {}, {"junk": [{}]}, [[[None]]]]


@pytest.mark.parametrize(
    "name",
    ["params", "config", "mixture", "history", "training_lineage", "input_shape", "item_shape", "variance", "feature_names"],
)
def test_a_part_of_the_document_is_junk(name, path, archive):
    value = archive.document[name]
    accepted = [
        junk
        for junk in JUNK
        if not is_refused(path, archive.document | {name: junk}, archive.tensors)
        and not (isinstance(value, float) and isinstance(junk, int | float) and junk > 0)
        and not (name in ("history", "training_lineage", "feature_names") and junk == [])
    ]
    assert accepted == []


NONSENSE = [
    ("n_epochs", "junk"),
    ("n_epochs", -3),
    ("latent_dim", 3),
    ("latent_dim", "2"),
    ("latent_dim", None),
    ("batch_size", 0),
    ("batch_size", [128]),
    ("learning_rate", -1.0),
    ("learning_rate", "fast"),
    ("reconstruction", "nll"),
    ("reconstruction", "junk"),
    ("grouping", 5),
    ("grouping", {"junk": 1}),
    ("augmentation", "junk"),
    ("n_views", 0),
    ("n_views", "many"),
    ("max_components", -1),
    ("assignment", "junk"),
    ("warmup", 17),
    ("final_refit", "junk"),
    ("resolution", []),
]


def test_a_config_that_makes_no_sense(path, archive):
    config = archive.document["config"]
    accepted = [
        (name, value)
        for name, value in NONSENSE
        if not is_refused(path, archive.document | {"config": config | {name: value}}, archive.tensors)
    ]
    assert accepted == []


IMPOSSIBLE = [
    ("params", {"latent_dim": -1}),
    ("params", {"preset": "junk"}),
    ("params", {"hidden_sizes": "8"}),
    ("params", {"device": "nonsense"}),
    ("params", {"wings": 2}),
    ("params", {"self": 2}),
    (None, {"input_shape": [5]}),
    (None, {"input_shape": [1, 2, 2]}),
    (None, {"input_shape": [2, 2]}),
    (None, {"input_shape": ["a"]}),
    (None, {"input_shape": [-4]}),
    (None, {"item_shape": [5]}),
    (None, {"item_shape": [-2, -2]}),
    (None, {"item_shape": [4.0]}),
    (None, {"variance": -1.0}),
    (None, {"variance": "junk"}),
    (None, {"feature_names": ["a"]}),
    (None, {"feature_names": ["a", "b", "c", 4]}),
    (None, {"feature_names": "abcd"}),
    (None, {"channels_last": "junk"}),
    (None, {"own_networks": True}),
    (None, {"own_networks": "junk"}),
    (None, {"history": {}}),
]


def test_a_value_is_impossible(path, archive):
    accepted = []
    for where, value in IMPOSSIBLE:
        changed = value if where is None else {where: archive.document[where] | value}
        if not is_refused(path, archive.document | changed, archive.tensors):
            accepted.append((where, value))
    assert accepted == []


def test_every_tensor_must_be_there_and_of_its_shape(path, archives):
    for which in ("rows", "images", "nll"):
        document, tensors = archives[which].document, archives[which].tensors
        accepted = [name for name in tensors if not is_refused(path, document, _without(tensors, name))]
        assert [name for name in accepted if not name.endswith("num_batches_tracked")] == []  # torch does without
    document, tensors = archives["rows"].document, archives["rows"].tensors
    changes = {
        "more axes": lambda t: t[None],
        "shorter": lambda t: t[:-1],
        "longer": lambda t: torch.cat([t, t[:1]]),
        "empty": lambda t: t[:0],
    }
    labels = ("component_labels", "mixture.component_labels")  # of any number of samples
    accepted = [
        (name, how)
        for name, tensor in tensors.items()
        for how, change in changes.items()
        if not (name in labels and how in ("shorter", "longer", "empty"))
        and not is_refused(path, document, tensors | {name: change(tensor)})
    ]
    assert accepted == []


def test_a_tensor_too_many(path, archive):
    assert is_refused(path, archive.document, archive.tensors | {"network.wings": torch.zeros(2)})


@pytest.mark.parametrize(
    ("name", "value"),
    [("scaling.unit", 0.0), ("scaling.unit", -1.0), ("mixture.frame.unit", -1.0), ("mixture.past.counts", -5.0)],
)
def test_a_tensor_is_impossible(name, value, path, archive):
    tensors = archive.tensors | {name: torch.full_like(archive.tensors[name], value)}
    assert is_refused(path, archive.document, tensors)


def test_a_tensor_is_not_finite(path, archive, monkeypatch):
    for name in archive.tensors:
        if not archive.tensors[name].is_floating_point():
            continue
        tensor = archive.tensors[name].clone()
        tensor.view(-1)[0] = np.nan
        with monkeypatch.context() as patch:  # or it could not be written
            patch.setattr("diva.runs.archive._check_tensors", lambda *_: None)
            write_archive(path, "DIVA", archive.document, archive.tensors | {name: tensor})
        assert_refused(path)


@pytest.mark.parametrize("shift", [-1, 1000])
def test_labels_of_components_that_do_not_exist(shift, path, archive):
    tensors = archive.tensors | {"component_labels": archive.tensors["component_labels"] + shift}
    assert is_refused(path, archive.document, tensors)


@pytest.mark.parametrize("change", [{"hidden_sizes": [8000, 8000]}, {"hidden_sizes": [8] * 10**5}, {"latent_dim": 4096}])
def test_networks_that_a_file_only_claims_take_no_memory(change, path, archive):
    document = archive.document | {"config": archive.document["config"] | change}
    document["params"] = archive.document["params"] | change
    write_archive(path, "DIVA", document, archive.tensors)
    reading, writing = os.pipe()
    if not (pid := os.fork()):  # a process of its own, whose peak is that of this load
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            refused = is_refused(path, document, archive.tensors)
            os.write(writing, json.dumps([refused, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    refused, kilobytes = json.loads(os.read(reading, 99))
    os.waitpid(pid, 0)
    os.close(reading)
    assert refused
    assert kilobytes < 50_000


def test_the_parts_of_another_model(path, archives):
    for other in ("images", "paper", "nll"):
        assert is_refused(path, archives["rows"].document, archives[other].tensors)
        assert is_refused(path, archives[other].document, archives["rows"].tensors)
