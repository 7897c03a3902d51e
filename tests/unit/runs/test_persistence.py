"""Saved models come back bit for bit; damaged and hostile files are refused, whatever is in them."""

import copy
import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import diva
from diva import DPMixture
from diva.exceptions import ModelFileError
from diva.runs.archive import read_archive, write_archive

torch.set_num_threads(1)


def arcs():
    rng = np.random.default_rng(0)
    t = rng.uniform(0, np.pi, size=(2, 80))
    Z = np.concatenate([np.column_stack([np.cos(t[0]), np.sin(t[0])]), np.column_stack([1 - np.cos(t[1]), 0.5 - np.sin(t[1])])])
    return Z + rng.normal(0, 0.05, size=Z.shape)


X = arcs()
MODELS = {
    "full": DPMixture(random_state=0),
    "diag": DPMixture(2.5, covariance_type="diag", degrees_of_freedom=6, tol=1e-3, random_state=0),
    "grouped": DPMixture(grouping="valleys", random_state=0),
}


@pytest.fixture(scope="module")
def fitted():
    return {name: clone(model).fit(X) for name, model in MODELS.items()}


@pytest.fixture(params=MODELS)
def model(request, fitted):
    return copy.deepcopy(fitted[request.param])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.diva"


def round_trip(model, path):
    model.save(path)
    return diva.load(path)


# --- what is saved comes back


def test_a_loaded_model_answers_bit_for_bit_alike(model, path):
    loaded = round_trip(model, path)
    Z = np.random.default_rng(1).normal(size=(100, 2))
    for data in (X, Z, Z.astype(np.float32), [Z[:30], Z[30:]]):
        np.testing.assert_array_equal(loaded.predict(data), model.predict(data))
        np.testing.assert_array_equal(loaded.predict(data, level="component"), model.predict(data, level="component"))
        np.testing.assert_array_equal(loaded.predict_proba(data), model.predict_proba(data))
        np.testing.assert_array_equal(loaded.score_samples(data), model.score_samples(data))
    np.testing.assert_array_equal(loaded.sample(20)[0], model.sample(20)[0])


def test_a_loaded_model_has_the_same_attributes(model, path):
    loaded = round_trip(model, path)
    assert loaded.get_params() == model.get_params()
    assert loaded.lineage_ == model.lineage_
    assert loaded.history_ == model.history_
    assert {n for n in vars(loaded) if n.endswith("_")} == {n for n in vars(model) if n.endswith("_")}
    for name in ("labels_", "component_labels_", "component_ids_", "weights_", "means_", "covariances_", "elbo_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name), err_msg=name)
        assert np.asarray(getattr(loaded, name)).dtype == np.asarray(getattr(model, name)).dtype
    assert (loaded.n_components_, loaded.n_clusters_, loaded.n_features_in_) == (model.n_components_, model.n_clusters_, 2)


def test_the_hierarchy_comes_back(path, fitted):
    model = fitted["grouped"]
    loaded = round_trip(model, path)
    assert loaded.hierarchy_.to_dict() == model.hierarchy_.to_dict()
    for level in range(1, model.n_components_ + 1):
        np.testing.assert_array_equal(loaded.predict(X, level=level), model.predict(X, level=level))


def test_going_on_after_loading_is_going_on(model, path):
    loaded = round_trip(model, path)
    new = X + 4.0
    loaded.partial_fit(new)
    model.partial_fit(new)
    for name in ("labels_", "component_ids_", "weights_", "means_", "covariances_", "elbo_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name), err_msg=name)
    assert loaded.lineage_ == model.lineage_
    assert loaded.history_ == model.history_


def test_column_names_come_back(path):
    frame = pd.DataFrame(X, columns=["grüße", "height"])
    loaded = round_trip(DPMixture(random_state=0).fit(frame), path)
    assert list(loaded.feature_names_in_) == ["grüße", "height"]
    loaded.predict(frame)
    with pytest.raises(ValueError, match="in the same order"):
        loaded.predict(frame[["height", "grüße"]])


def test_no_column_names_stay_none(path, fitted):
    assert not hasattr(round_trip(fitted["full"], path), "feature_names_in_")


def test_a_model_of_one_sample_comes_back(path):
    model = DPMixture(random_state=0).fit([[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(round_trip(model, path).means_, model.means_)


def test_a_random_state_that_is_no_number_is_left_out(path):
    model = DPMixture(random_state=np.random.RandomState(0)).fit(X)
    loaded = round_trip(model, path)
    assert loaded.random_state is None
    np.testing.assert_array_equal(loaded.means_, model.means_)


def test_parameters_may_be_numpy_numbers(path):
    model = DPMixture(np.float32(5), max_components=np.int64(50), births=np.True_, random_state=np.int64(0)).fit(X)
    assert round_trip(model, path).max_components == 50


def test_the_device_may_be_a_torch_device(path):
    model = DPMixture(device=torch.device("cpu"), random_state=0).fit(X)
    np.testing.assert_array_equal(round_trip(model, path).means_, model.means_)


def test_what_can_be_saved_can_be_loaded(path, fitted):
    model = copy.deepcopy(fitted["full"]).set_params(covariance_type="diag")
    np.testing.assert_array_equal(round_trip(model, path).means_, model.means_)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_may_be_text(tmp_path, kind, fitted):
    target = kind(str(tmp_path / "a model of mine.diva"))
    fitted["full"].save(target)
    np.testing.assert_array_equal(diva.load(target).means_, fitted["full"].means_)


# --- saving


def test_an_unfitted_model_cannot_be_saved(path):
    with pytest.raises(NotFittedError):
        DPMixture().save(path)
    assert not path.exists()


def test_saving_into_a_missing_folder(tmp_path, fitted):
    with pytest.raises(FileNotFoundError, match=r"nowhere.*Create the folder"):
        fitted["full"].save(tmp_path / "nowhere" / "model.diva")


def test_saving_onto_a_folder(tmp_path, fitted):
    with pytest.raises(ModelFileError, match="it is a folder"):
        fitted["full"].save(tmp_path)


def test_saving_leaves_one_file_and_replaces_the_old_one(path, fitted):
    fitted["full"].save(path)
    fitted["diag"].save(path)
    assert os.listdir(path.parent) == ["model.diva"]
    assert diva.load(path).covariance_type == "diag"


@pytest.mark.parametrize("function", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["disk-full", "ctrl-c"])
def test_an_interrupted_save_leaves_the_old_file(path, monkeypatch, function, error, fitted):
    fitted["full"].save(path)
    before = path.read_bytes()

    def fail(*args):
        raise error

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(type(error)):
        fitted["diag"].save(path)
    assert os.listdir(path.parent) == ["model.diva"]
    assert path.read_bytes() == before


# --- files that are no models, or no longer


def assert_refused(path):
    with pytest.raises(ModelFileError) as caught:
        diva.load(path)
    assert path.name in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.diva"):
        diva.load(tmp_path / "nothing.diva")


def test_a_folder(tmp_path):
    with pytest.raises(ModelFileError, match="it is a folder"):
        diva.load(tmp_path)


def test_a_truncated_file(model, path):
    model.save(path)
    content = path.read_bytes()
    for length in [*range(0, 24), *np.linspace(24, len(content) - 1, 60, dtype=int)]:
        path.write_bytes(content[:length])
        assert_refused(path)
    path.write_bytes(content + b"\0")
    assert_refused(path)


def test_a_flipped_bit(path, fitted):
    fitted["grouped"].save(path)
    content = path.read_bytes()
    for position in [*range(0, 16), *np.linspace(16, len(content) - 1, 100, dtype=int)]:
        damaged = bytearray(content)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        assert_refused(path)


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def test_nothing_is_executed(path):
    target = path.with_name("executed")
    for content in (pickle.dumps(Bomb(target)), pickle.dumps({"params": Bomb(target)})):
        path.write_bytes(content)
        assert_refused(path)
    torch.save({"params": Bomb(target)}, path)
    assert_refused(path)
    np.save(path.with_suffix(".npy"), np.array([Bomb(target)], dtype=object), allow_pickle=True)
    assert_refused(path.with_suffix(".npy"))
    assert not target.exists()


def test_another_kind_of_model(path, archive):
    write_archive(path, "Quilt", archive.document, archive.tensors)
    with pytest.raises(ModelFileError, match=r"DPMixture.*Quilt"):
        diva.load(path)


def test_another_schema(path, monkeypatch, fitted):
    monkeypatch.setattr("diva.runs.archive.SCHEMA", "99")
    fitted["full"].save(path)
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
        found[name] = read_archive(path, kinds={"DPMixture"})
    return found


@pytest.fixture
def archive(archives):
    return archives["grouped"]


def is_refused(path, document, tensors):
    """Whether a file with these contents is refused as it should be; any other error passes through."""
    write_archive(path, "DPMixture", document, tensors)
    try:
        diva.load(path)
    except ModelFileError as error:
        assert path.name in str(error)  # noqa: PT017
        return True
    return False


def places(value, where=()):
    """Paths to a value and to all values inside it; in a list, to the first."""
    yield where
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*where, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*where, 0))


def at(document, where):
    for key in where:
        document = document[key]
    return document


def with_value(document, where, value):
    document = copy.deepcopy(document)
    at(document, where[:-1])[where[-1]] = value
    return document


def without(document, where):
    document = copy.deepcopy(document)
    del at(document, where[:-1])[where[-1]]
    return document


JUNK = ["junk", "", 12, -1.5, True, None, [], ["junk"], {}, {"junk": [{}]}, [[[None]]]]
OPTIONAL = (
    "batch_size",
    "degrees_of_freedom",
    "epoch",
    "random_state",
    "grouping",
    "hierarchy",
    "pca",
    "n_clusters",
    "max_clusters",
    "min_cluster_size",
)


def is_wrong(junk, value, name):
    """Whether junk is of a type that cannot stand where value stood."""
    if junk is None:
        return name not in OPTIONAL
    if value is None:
        return type(junk) not in (int, float, bool, str)
    number = (int, float, bool)
    kinds = next(k for k in (number, str, list, dict) if isinstance(value, k))
    return not isinstance(junk, kinds) and not (name in ("resolution", "covariance_scale") and isinstance(junk, number))


NUMBERS = [pytest.param(name, id=name) for name in ("alpha", "kappa0", "nu0", "ids", "next_id")]


@pytest.mark.parametrize(
    "name",
    [
        *NUMBERS,
        pytest.param("params"),
        "feature_names",
        "hierarchy",
        pytest.param("lineage"),
        "history",
    ],
)
def test_a_value_is_missing(name, path, archive):
    inside = ((name, *where) for where in places(archive.document[name]) if where[-1:] != (0,))
    accepted = [w for w in inside if not is_refused(path, without(archive.document, w), archive.tensors)]
    assert accepted == []


@pytest.mark.parametrize(
    "name",
    [
        *NUMBERS,
        pytest.param("params"),
        pytest.param("feature_names"),
        "hierarchy",
        pytest.param("lineage"),
        pytest.param("history"),
    ],
)
def test_a_value_is_of_another_type(name, path, archive):
    accepted = [
        (where, junk)
        for where in ((name, *inner) for inner in places(archive.document[name]))
        for junk in JUNK
        if is_wrong(junk, at(archive.document, where), where[-1])
        and not is_refused(path, with_value(archive.document, where, junk), archive.tensors)
    ]
    assert accepted == []


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("alpha",), 0),
        (("alpha",), -5.0),
        (("kappa0",), 0),
        (("kappa0",), -1e-4),
        (("nu0",), 0.5),
        (("nu0",), -4),
        (("ids",), []),
        (("ids",), [0, 1]),
        (("ids", 0), 1_000),
        (("ids", 0), -1),
        (("next_id",), 0),
        (("next_id",), 3),
        (("params", "concentration"), -1),
        (("params", "covariance_type"), "round"),
        (("params", "covariance_type"), "diag"),
        (("params", "max_components"), 0),
        (("params", "grouping"), "junk"),
        (("params", "device"), "nonsense"),
        (("params", "wings"), 2),
        (("params", "self"), 2),
        (("params", "concentration"), 10**400),
        (("hierarchy", "resolution"), -1.0),
        (("hierarchy", "masses", 0), -1.0),
        (("hierarchy", "labels", 0), 99),
        (("hierarchy", "labels", 0), -1),
        (("hierarchy", "merges", 0), [0, 0]),
        (("hierarchy", "merges", 0), [0, 99]),
        (("hierarchy", "heights", 0), -1.0),
        (("lineage", 0, "wings"), 2),
        (("history", 0, "wings"), 2),
        pytest.param(("alpha",), 1e308),
        pytest.param(("nu0",), 1e308),
        pytest.param(("feature_names",), ["a"]),
        pytest.param(("feature_names",), ["a", "b", "c"]),
        pytest.param(("hierarchy", "labels", 0), 1e308),
        pytest.param(("hierarchy", "merges", 0, 0), -1e308),
    ],
    ids=lambda x: ".".join(map(str, x)) if isinstance(x, tuple) else repr(x)[:20],
)
def test_a_value_is_impossible(where, value, path, archive):
    assert is_refused(path, with_value(archive.document, where, value), archive.tensors)


def test_a_hierarchy_of_another_size(path, archives):
    small = DPMixture(grouping="valleys", random_state=0).fit(X[:20])
    assert small.n_components_ != len(archives["full"].document["ids"])
    document = archives["full"].document | {"hierarchy": small.hierarchy_.to_dict()}
    assert is_refused(path, document, archives["full"].tensors)


def test_the_document_of_another_model(path, archives):
    assert is_refused(path, archives["diag"].document, archives["full"].tensors)
    assert is_refused(path, archives["full"].document, archives["diag"].tensors)


def test_deep_nesting(path, archive):
    nested = []
    for _ in range(500):
        nested = [nested]
    for name in archive.document:
        if name in ("feature_names", "lineage", "history"):  # known to be unchecked, see above
            continue
        assert is_refused(path, with_value(archive.document, (name,), nested), archive.tensors)


TENSORS = [f"past.{name}" for name in ("counts", "sum_z", "sum_zz", "entropy")]
TENSORS += ["prior.mean", "prior.spread", "frame.origin", "frame.unit"]
RESHAPED = {
    "scalar": lambda t: t.sum(),
    "flat": lambda t: t.reshape(-1).repeat(2),
    "more axes": lambda t: t[None],
    "shorter": lambda t: t[:-1],
    "longer": lambda t: torch.cat([t, t[:1]]),
    "empty": lambda t: t[:0],
    "float32": lambda t: t.float(),
    "int64": lambda t: t.long(),
    "bool": lambda t: t.bool(),
}


@pytest.mark.parametrize("which", ["full", "diag"])
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_is_missing_or_of_another_shape_or_type(name, which, path, archives):
    document, tensors = archives[which].document, archives[which].tensors
    assert is_refused(path, document, {k: v for k, v in tensors.items() if k != name})
    accepted = [
        how for how, change in RESHAPED.items() if not is_refused(path, document, tensors | {name: change(tensors[name])})
    ]
    assert accepted == []


@pytest.mark.parametrize("which", ["full", "diag"])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("past.counts", lambda t: -t),
        ("past.counts", lambda t: t - t.max()),
        ("prior.spread", lambda t: -t),
        ("prior.spread", lambda t: 0 * t),
        ("frame.unit", lambda t: -t),
        ("frame.unit", lambda t: 0 * t),
        pytest.param("past.counts", lambda t: t + 1e308),
        pytest.param("past.entropy", lambda t: t + 1e308),
        pytest.param("frame.unit", lambda t: t * 1e200),
    ],
)
def test_a_tensor_is_impossible(name, change, which, path, archives):
    document, tensors = archives[which].document, archives[which].tensors
    assert is_refused(path, document, tensors | {name: change(tensors[name])})


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_tensor_is_not_finite(name, value, path, archive, monkeypatch):
    tensor = archive.tensors[name].clone()
    tensor.view(-1)[0] = value
    with monkeypatch.context() as patch:  # or it could not be written
        patch.setattr("diva.runs.archive._check_tensors", lambda *_: None)
        write_archive(path, "DPMixture", archive.document, archive.tensors | {name: tensor})
    assert_refused(path)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(None, id="missing"),
        pytest.param(lambda t: t - 1, id="negative"),
        pytest.param(lambda t: t + 1_000, id="too large"),
        pytest.param(lambda t: t[None], id="2-d"),
        pytest.param(lambda t: t[0], id="scalar"),
        pytest.param(lambda t: t.double(), id="float64"),
        pytest.param(lambda t: t.bool(), id="bool"),
    ],
)
def test_labels_of_components_that_do_not_exist(change, path, archive):
    tensors = dict(archive.tensors)
    labels = tensors.pop("component_labels")
    if change is not None:
        tensors["component_labels"] = change(labels)
    assert is_refused(path, archive.document, tensors)
