"""Files of schema 1, from before the first release: read as if today's code had written them, or refused."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import diva
from diva.exceptions import ModelFileError
from diva.models.config import OWN, DIVAConfig
from diva.runs.archive import read_arrays, write_archive
from diva.runs.upgrade import upgraded, upgraded_params, upgraded_run_config

OLD = Path(__file__).parents[2] / "old_files/0.1.0.dev0"
ASKED = np.load(OLD / "asked.npy")


def as_written(path):
    """Kind, document and arrays of a file, nothing changed."""
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
        assert metadata["schema"] == "1"
        return metadata["kind"], json.loads(metadata["document"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@pytest.fixture
def old():
    """Document and arrays of a model."""
    return as_written(OLD / "model.diva")[1:]


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a file as the code of schema 1 did."""

    def write(document, arrays, kind="DIVA"):
        with monkeypatch.context() as patch:
            patch.setattr("diva.runs.archive.SCHEMA", "1")
            write_archive(tmp_path / "old.diva", kind, document, arrays)
        return tmp_path / "old.diva"

    return write


# --- what is renamed


def test_settings_have_their_new_names(old):
    document, _ = upgraded("1", "DIVA", *old)
    before, config = old[0]["recipe"], document["config"]
    assert "recipe" not in document
    assert DIVAConfig.from_plain(config).to_plain() == config
    assert config["self_training"] == before["sharpening"]
    assert config["prior_covariance_type"] == before["covariance_type"]
    assert config["covariance_type"] == before["final_covariance_type"]
    assert config["augmentation"] == before["views"]
    assert (config["min_new_atoms"], config["min_target_atoms"]) == (before["min_new_mass"], 2 * before["min_new_mass"])
    assert (config["births"], config["deletes"], config["min_retained_atoms"]) == ("all", True, 0.0)
    same = before.keys() - {"sharpening", "covariance_type", "final_covariance_type", "views", "min_new_mass"}
    assert {name: config[name] for name in same} == {name: before[name] for name in same}


def test_early_stopping_was_a_parameter_alone(old):
    document, arrays = old
    document["params"]["early_stopping"] = 7
    assert upgraded("1", "DIVA", document, arrays)[0]["config"]["early_stopping"] == 7


def test_parameters_have_their_new_names(old):
    params = upgraded("1", "DIVA", *old)[0]["params"]
    assert "sharpening" not in params
    assert params["self_training"] == old[0]["params"]["sharpening"]
    assert set(params) <= set(diva.DIVA().get_params())


def test_records_have_their_new_names(old):
    document, arrays = old
    assert {record["phase"] for record in document["history"]} == {"warm-up", "coupled", "sharpening"}
    history = upgraded("1", "DIVA", document, arrays)[0]["history"]
    assert [r["phase"] for r in history] == [r["phase"].replace("sharpening", "self-training") for r in document["history"]]
    assert [r["self_training"] for r in history] == [r["sharpening"] for r in document["history"]]
    assert all("sharpening" not in record for record in history)


def test_score_and_threshold_are_together(old):
    document, _ = upgraded("1", "DIVA", *old)
    novelty = document["stream"]["novelty"]
    assert novelty["threshold"] == old[0]["novelty_threshold"]
    assert novelty["typical"] == old[0]["stream"]["typical_score"]
    assert novelty["uncertainty"] == old[0]["stream"]["doubt"]
    assert not {"doubt", "typical_score"} & document["stream"].keys()


def test_tensors_have_their_new_names(old):
    arrays = upgraded("1", "DIVA", *old)[1]
    assert not any(name.startswith("vae.") for name in arrays)
    assert len(arrays) == len(old[1])
    for name, array in old[1].items():
        assert arrays[name.replace("vae.", "network.")] is array


def test_a_checkpoint_with_pseudo_labels():
    kind, document, arrays = as_written(OLD / "interrupted" / "checkpoint.safetensors")
    labels = np.array([0, -1, 1])
    document, arrays = upgraded("1", kind, document | {"taught_clusters": 2}, arrays | {"taught_labels": labels})
    assert document["n_pseudo_classes"] == 2
    assert arrays["pseudo_labels"] is labels
    assert "taught_clusters" not in document
    assert "self_training" in document["config"]["params"]


def test_nothing_that_was_given_is_changed(old):
    before = copy.deepcopy(old[0])
    upgraded("1", "DIVA", *old)
    assert old[0] == before


@pytest.mark.parametrize("schema", ["1", "2"])
def test_a_mixture_had_one_start_another_way_to_group_and_no_wishes(schema):
    kind, document, arrays = as_written(OLD / "mixture.diva")
    later = {"n_init": 1, "grouping": "valleys", "pca": None, "reject": False}
    later |= {"n_clusters": None, "max_clusters": None, "min_cluster_size": None}
    today = document | {"params": document["params"] | later}
    assert document["params"]["grouping"] == "walk"
    assert upgraded(schema, kind, document, arrays) == (today, arrays)


# --- the preset that went


@pytest.mark.parametrize(("preset", "today"), [("sensors", "features"), ("features", "features"), ("paper", "paper")])
def test_the_preset_sensors_was_that_of_features(preset, today):
    assert upgraded_params({"preset": preset, "sharpening": 0.5}) == {"preset": today, "self_training": 0.5}


def test_a_model_of_the_preset_sensors_is_the_same(old, written):
    document, arrays = old
    document["params"]["preset"] = "sensors"
    model = diva.load(written(document, arrays))
    assert model.preset == "features"
    np.testing.assert_array_equal(model.predict(ASKED), diva.load(OLD / "model.diva").predict(ASKED))


# --- augmentation


@pytest.mark.parametrize(
    ("asked", "own", "expected"), [("auto", False, "mask"), ("mask", False, "mask"), (None, False, None), (None, True, OWN)]
)
def test_the_config_says_which_augmentation_was_used(old, written, asked, own, expected):
    document, arrays = old
    document["params"]["augmentation"], document["own_views"] = asked, own  # a function was written as nothing
    model = diva.load(written(document, arrays))
    assert model.config_.augmentation == expected
    assert np.isfinite(model.partial_fit(ASKED).transform(ASKED)).all()


# --- folders of runs


def test_the_config_of_a_run():
    before = json.loads((OLD / "finished" / "config.json").read_text())
    config = upgraded_run_config(before)
    assert config["model"] == "DIVA"
    assert config["version"] == before["version"]
    assert config["own"] == []
    then = {name: before["recipe"][name] for name in ("n_epochs", "learning_rate")}  # defaults are others now
    then |= {"codes": "learnt", "scale": "one", "mask_share": 1.0}
    given = {name: value for name, value in upgraded_params(before["params"]).items() if value is not None}
    assert {name: value for name, value in config["params"].items() if value is not None} == then | given
    assert DIVAConfig.from_plain(config["config"]).n_epochs == before["recipe"]["n_epochs"]
    assert upgraded_run_config(config) == config


@pytest.mark.parametrize(
    ("networks", "augmentation", "own"),
    [(True, False, ["encoder", "decoder"]), (True, True, ["encoder", "decoder", "augmentation"])],
)
def test_what_of_a_run_was_the_users_own(networks, augmentation, own):
    before = json.loads((OLD / "finished" / "config.json").read_text())
    config = upgraded_run_config(before | {"own encoder and decoder": networks, "own augmentation": augmentation})
    assert config["own"] == own
    assert (config["config"]["augmentation"] == OWN) == augmentation


# --- what is broken


def without(mapping, name):
    return {key: value for key, value in mapping.items() if key != name}


def is_refused(path):
    try:
        diva.load(path)
    except ModelFileError as error:
        assert "old.diva" in str(error)  # noqa: PT017
        return True
    return False


def test_a_part_of_the_document_is_missing(old, written):
    document, arrays = old
    for name in document:
        assert is_refused(written(without(document, name), arrays)), name
    for part in ("recipe", "params", "stream"):
        for name in document[part]:
            assert is_refused(written(document | {part: without(document[part], name)}, arrays)), (part, name)
    for name in document["history"][0]:
        history = [without(document["history"][0], name), *document["history"][1:]]
        assert is_refused(written(document | {"history": history}, arrays)), name


@pytest.mark.parametrize("name", ["recipe", "params", "stream", "history", "novelty_threshold"])
@pytest.mark.parametrize("junk", ["junk", 12, None, [], ["junk"], {}, {"junk": [{}]}, [[[None]]]], ids=str)
def test_a_part_of_the_document_is_junk(old, written, name, junk):
    document, arrays = old
    is_right = (name == "novelty_threshold" and junk == 12) or (name == "history" and junk in ([], {}))  # no records at all
    assert is_refused(written(document | {name: junk}, arrays)) != is_right


@pytest.mark.parametrize("junk", ["junk", 12, None, ["junk"], {}], ids=str)
@pytest.mark.parametrize("name", ["config", "history"])
def test_a_checkpoint_with_junk_is_refused_or_left_to_the_reader(written, name, junk):
    kind, document, arrays = as_written(OLD / "interrupted" / "checkpoint.safetensors")
    path = written(document | {name: junk}, arrays, kind)
    if name == "config" or junk == {}:  # the run's folder looks at it
        assert read_arrays(path, kinds=[kind])[1][name] in (junk, [])
    else:
        with pytest.raises(ModelFileError, match=r"old\.diva"):
            read_arrays(path, kinds=[kind])


@pytest.mark.parametrize("part", ["recipe", "params"])
def test_a_setting_too_many(old, written, part):
    document, arrays = old
    assert is_refused(written(document | {part: document[part] | {"wings": 2}}, arrays))
