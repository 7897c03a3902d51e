"""What older versions wrote, as this one would: files of schemas 1 and 2, from before the first release."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
Tensors = dict[str, Any]

RENAMED_TENSORS = {"vae.": "network.", "taught_labels": "pseudo_labels"}
RENAMED_SETTINGS = {
    "sharpening": "self_training",
    "covariance_type": "prior_covariance_type",
    "final_covariance_type": "covariance_type",
}
# parameters that any file may be without
LATER = {"columns": None, "missing": None, "kind": None, "compile": False, "precision": "float32"}
# came after these files: parameters, None by default, and settings
THEN = {"codes": "learnt", "scale": "one", "mask_share": 1.0}  # always
WISHES = dict.fromkeys(("n_clusters", "max_clusters", "min_cluster_size"))
ATOMS = ("min_new_atoms", "min_target_atoms", "min_retained_atoms")
LATER_PARAMS = THEN | WISHES | dict.fromkeys(("births", "deletes", "shuffles", *ATOMS))
LATER_SETTINGS = THEN | {"births": "all", "deletes": True, "min_retained_atoms": 0.0}


def upgraded(schema: str, kind: str, document: Document, tensors: Tensors) -> tuple[Document, Tensors]:
    """Bring the contents of an older file to today's; raises KeyError, TypeError or ValueError if they are broken."""
    document = dict(document)
    if schema == "1" and kind in ("DIVA", "DIVA checkpoint"):
        document, tensors = _from_schema_1(document, tensors)
    if kind == "DIVA":
        document["params"] = LATER_PARAMS | document["params"]
        document["config"] = _with_later_settings(document["config"])
        document["agreement"] = {}
    if kind == "DIVA checkpoint":
        document |= {"collected": [], "newborn": []}  # what laps had planned for births was thrown away after an epoch
        if isinstance(document.get("config"), dict):
            document["config"] = upgraded_run_config(document["config"])
    if kind == "DPMixture":
        document["params"] = WISHES | {"pca": None, "reject": False} | _mixture_params(document["params"])
    if isinstance(stream := document.get("stream"), dict):
        document["stream"] = _with_upgraded(stream, "anchor")
    return _with_upgraded(document, "mixture"), tensors


def _with_upgraded(document: Document, name: str) -> Document:
    """Bring a mixture that a document holds to today's parameters, if it does hold one."""
    held = document.get(name)
    if not isinstance(held, dict) or "params" not in held:
        return document
    return document | {name: held | {"params": _mixture_params(held["params"])}}


def _mixture_params(params: Document) -> Document:
    """A mixture had one start, and another way to group, whose outcome is kept."""
    grouping = "valleys" if params["grouping"] == "walk" else params["grouping"]
    return params | {"n_init": 1, "grouping": grouping}


def _from_schema_1(document: Document, tensors: Tensors) -> tuple[Document, Tensors]:
    if "recipe" in document:
        document["config"] = _config(document.pop("recipe"), document["params"], document["own_views"])
        document["params"] = upgraded_params(document["params"])
    elif isinstance(before := document.get("config"), dict) and "recipe" in before:
        document["config"] = upgraded_run_config(before)
    if isinstance(stream := document.get("stream"), dict):
        stream = dict(stream)
        scores = {"threshold": document.pop("novelty_threshold"), "typical": stream.pop("typical_score")}
        document["stream"] = stream | {"novelty": {"uncertainty": stream.pop("doubt"), **scores}}
    if "taught_clusters" in document:
        document |= {"n_pseudo_classes": document.pop("taught_clusters"), "optimizer": None}  # it was Adam, always
    document["history"] = [_epoch(record) for record in document["history"]]
    return document, {_tensor_name(name): value for name, value in tensors.items()}


def upgraded_run_config(config: Document) -> Document:
    """The configuration in the folder of a run."""
    if "recipe" not in config:
        if config.get("model") != "DIVA" or "min_new_mass" not in config["config"]:
            return config
        return config | {
            "params": _explicit(config["params"], config["config"]),
            "config": _with_later_settings(config["config"]),
        }
    networks, augmentation = config["own encoder and decoder"], config["own augmentation"]
    return {
        "version": config["version"],
        "model": "DIVA",
        "params": _explicit(upgraded_params(config["params"]), config["recipe"]),
        "config": _config(config["recipe"], config["params"], augmentation),
        "own": [*(["encoder", "decoder"] if networks else []), *(["augmentation"] if augmentation else [])],
    }


def _explicit(params: Document, config: Document) -> Document:
    """Parameters that say what was their default then, and is another now."""
    given = {name: value for name, value in params.items() if value is not None}
    return params | THEN | {name: config[name] for name in ("n_epochs", "learning_rate")} | given


def upgraded_params(params: Document) -> Document:
    """Parameters of the estimator; those that came later have their defaults."""
    params = {"self_training" if name == "sharpening" else name: value for name, value in params.items()}
    if params.get("preset") == "sensors":  # was the same as "features"
        params["preset"] = "features"
    return params


def _config(recipe: Document, params: Document, own_augmentation: bool) -> Document:
    config = {RENAMED_SETTINGS.get(name, name): value for name, value in recipe.items()}
    seen, asked = config.pop("views"), params["augmentation"]
    config["augmentation"] = "own" if own_augmentation else seen if asked == "auto" else asked
    return _with_later_settings(config | {"early_stopping": params["early_stopping"]})


def _with_later_settings(config: Document) -> Document:
    """Minimum atoms were one number, and counted on what births are planned on."""
    if "min_new_mass" not in config:
        return config
    config = dict(config)
    least = config.pop("min_new_mass")
    return config | LATER_SETTINGS | {"min_new_atoms": least, "min_target_atoms": 2 * least}


def _epoch(record: Document) -> Document:
    record = {"self_training" if name == "sharpening" else name: value for name, value in record.items()}
    return record | {"phase": "self-training" if record["phase"] == "sharpening" else record["phase"]}


def _tensor_name(name: str) -> str:
    for old, new in RENAMED_TENSORS.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
