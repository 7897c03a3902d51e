"""Ask a fitted estimator all that a run should keep: the only place that knows both an estimator and a summary."""

from __future__ import annotations

import inspect
import platform
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diva.data import LoadedData, PartOfSource, Source, TableSchema
from diva.metrics import Agreement
from diva.models.base import Clusterer
from diva.parameters import plain
from diva.runs.snapshot import MOST_BYTES, SNAPSHOT, Snapshot, choose_samples
from diva.runs.summary import Components, ImageFormat, Move, Summary, Tree, read_facts
from diva.version import __version__

N_DRAWS = 10  # new samples of each cluster
N_WORDS = 10  # that explain a cluster of texts
N_RECONSTRUCTED = 16  # images in all, of at most twice as many clusters
MOST_RECONSTRUCTED = 2_000  # rows whose reconstruction error is measured
MOVE_FIELDS = [field.name for field in fields(Move)]
NOT_OF_THE_RESULT = ("callbacks", "checkpoint_every", "decoder", "encoder", "resume", "run_dir", "verbose")


def summarize(model: Clusterer, data: LoadedData) -> Summary:
    """Look at the samples that an estimator was just fitted on, whose ``labels_`` it has, and at what it found."""
    order = np.argsort(model.cluster_ids_)  # labels are ids, which may have gaps
    positions = order[np.searchsorted(model.cluster_ids_, model.labels_, sorter=order)]
    components = getattr(model, "component_labels_", None)
    if components is not None:  # labels of outliers may be -1
        positions = model.mixture_.cluster_of_component()[components]
    about: dict[str, Any] = {
        "source": data.name or "data",
        "feature_names": _texts(data.feature_names),
        "columns": _texts(data.columns),
        "data": data.facts or None,
        "versions": {"diva": __version__, "python": platform.python_version()}
        | {package: metadata.version(package) for package in ("torch", "numpy", "scikit-learn")},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    snapshot = _take_snapshot(model, data.source, positions, components)
    if data.labels is not None:
        names, classes = np.unique(np.asarray(data.labels), return_inverse=True)
        levels = {"clusters": positions} | ({} if components is None else {"components": components})
        about["class_names"] = _texts(names.tolist())
        about["metrics"] = {level: Agreement(classes, found).as_row() for level, found in levels.items()}
        table = np.zeros((len(names), model.n_clusters_), dtype=np.int64)
        np.add.at(table, (classes, positions), 1)
        snapshot = replace(snapshot, truth=classes[snapshot.index].astype(np.int64), table=table)
    return _describe(model, snapshot, about)


def _take_snapshot(
    model: Clusterer, source: Source, positions: NDArray[np.int64], components: NDArray[np.int64] | None
) -> Snapshot:
    index = choose_samples(len(source), source.take(np.arange(1)).nbytes)
    part, clusters = PartOfSource(source, index), positions[index]
    said = model.assign(part)
    confidence = np.minimum(said.probabilities[np.arange(len(index)), clusters], 1.0)
    sums = np.bincount(clusters, weights=confidence, minlength=model.n_clusters_)
    kept = np.bincount(clusters, minlength=model.n_clusters_)
    values = part.take(np.arange(len(index)))
    return Snapshot(
        index=index,
        values=values if values.dtype in (np.uint8, np.float32) else values.astype(np.float32),  # what files may hold
        codes=said.codes,
        clusters=clusters,
        confidence=confidence,
        sizes=np.bincount(positions, minlength=model.n_clusters_),
        mean_confidence=np.divide(sums, kept, out=np.zeros_like(sums), where=kept > 0),
        components=None if components is None else components[index],
        log_density=said.scores,
    )


def summarize_old_run(model: Any, run: str | Path) -> Summary:
    """Make the summary of a run that only kept a snapshot, as runs did before there were summaries."""
    document = read_facts(run)
    about = {name: document.get(name) for name in ("feature_names", "columns", "class_names", "metrics", "finished")}
    about |= {"source": str(document.get("source") or "data"), "versions": document.get("versions") or {}}
    return _describe(model, Snapshot.read(Path(run) / SNAPSHOT), about)


def _describe(model: Any, snapshot: Snapshot, about: Mapping[str, Any]) -> Summary:
    """Add what only the estimator can tell: the structure it found, its history, and what it generates."""
    image = image_format(model)
    if about.get("feature_names") is None and hasattr(model, "feature_names_in_"):
        about = {**about, "feature_names": _texts(model.feature_names_in_)}
    if (windows := model.pipeline_.windows) is not None:
        steps, channels = windows
        about = {**about, "data": (about.get("data") or {}) | {"kind": "series", "steps": steps, "channels": channels}}
        if about.get("feature_names") is None:
            about = {**about, "feature_names": [f"channel {c} at {t}" for t in range(steps) for c in range(channels)]}
    if (schema := model.pipeline_.schema) is not None:
        about = {**about, "data": schema.facts() | (about.get("data") or {}) | _words(snapshot, schema)}
    generated = _draws(model, snapshot) if hasattr(model, "sample") else {}
    if hasattr(model, "inverse_transform"):
        generated |= (_feature_errors if image is None else _reconstructions)(model, snapshot)
    return Summary(
        **about,
        model=type(model).__name__,
        n_samples=int(snapshot.sizes.sum()),
        n_features=int(model.n_features_in_),
        n_clusters=int(model.n_clusters_),
        image=image,
        params=changed_params(model),
        config=model.config_.to_plain() if hasattr(model, "config_") else model.options.to_plain(),
        epochs=model.history_ if hasattr(model, "config_") else (),
        components=_components(model),
        tree=_tree(model),
        lineage=[Move(**{name: getattr(move, name) for name in MOVE_FIELDS}) for move in getattr(model, "lineage_", ())],
        agreement=getattr(model, "agreement_", None) or None,
        snapshot=replace(snapshot, **generated),
    )


def _words(snapshot: Snapshot, schema: TableSchema) -> dict[str, list[list[str]]]:
    """Words that tell each cluster from all texts, the most telling first; nothing without text."""
    is_word = np.repeat([column.use == "text" for column in schema.used], [column.n_features for column in schema.used])
    if not is_word.any():
        return {}
    names, rows = np.array(schema.feature_names)[is_word], snapshot.rows[:, is_word]
    telling = []
    for position in range(len(snapshot.sizes)):
        members = snapshot.clusters == position
        ahead = rows[members].mean(axis=0) - rows.mean(axis=0) if members.any() else np.zeros(len(names))
        telling.append([str(names[j]) for j in np.argsort(-ahead, kind="stable")[:N_WORDS] if ahead[j] > 0])
    return {"words": telling}


def _components(model: Any) -> Components | None:
    if not hasattr(model, "component_labels_"):
        return None
    sizes = np.bincount(model.component_labels_, minlength=model.n_components_)
    clusters = np.arange(model.n_components_) if model.hierarchy_ is None else model.hierarchy_.labels
    return Components(model.component_ids_.tolist(), sizes.tolist(), clusters.tolist())


def _tree(model: Any) -> Tree | None:
    hierarchy = getattr(model, "hierarchy_", None)
    if hierarchy is None or hierarchy.n_components < 2:
        return None
    return Tree(hierarchy.merges.tolist(), hierarchy.linkage()[:, 2].tolist(), 1 / (1 + hierarchy.resolution))


def _draws(model: Any, snapshot: Snapshot) -> dict[str, NDArray[Any]]:
    """New samples of every cluster, or of the largest ones where all would be too much to keep."""
    bytes_each = N_DRAWS * 4 * snapshot.values[0].size
    largest = np.argsort(-snapshot.sizes, kind="stable")[: max(1, MOST_BYTES // bytes_each)]
    ids = model.cluster_ids_
    drawn = [model.sample(N_DRAWS, cluster=int(ids[position]), random_state=int(position))[0] for position in largest]
    return {"draws": np.concatenate(drawn), "draw_clusters": np.repeat(largest, N_DRAWS)}


def _reconstructions(model: Any, snapshot: Snapshot) -> dict[str, NDArray[Any]]:
    """Images of every cluster, evenly spread over its members, and what the decoder makes of them."""
    chosen: list[int] = []
    each = max(1, N_RECONSTRUCTED // model.n_clusters_)
    for position in range(min(model.n_clusters_, 2 * N_RECONSTRUCTED)):
        members = np.flatnonzero(snapshot.clusters == position)
        if len(members):
            chosen += members[np.unique(np.linspace(0, len(members) - 1, each + 2).astype(int)[1:-1])].tolist()
    index = np.array(chosen, dtype=np.int64)
    return {"reconstructed": index, "reconstructions": model.inverse_transform(snapshot.codes[index])}


def _feature_errors(model: Any, snapshot: Snapshot) -> dict[str, NDArray[Any]]:
    """Mean squared error of each feature, as a share of its variance."""
    some = np.unique(np.linspace(0, len(snapshot) - 1, min(len(snapshot), MOST_RECONSTRUCTED)).astype(int))
    made = model.inverse_transform(snapshot.codes[some]).reshape(len(some), -1)
    _, sd = snapshot.moments
    return {"feature_errors": ((snapshot.rows[some] - made) ** 2).mean(axis=0) / sd**2}


def image_format(model: Any) -> ImageFormat | None:
    """How the samples are images; None for rows."""
    if not hasattr(model, "pipeline_"):
        return None
    scaling = model.pipeline_.scaling
    return ImageFormat(scaling.input_shape, scaling.channels_last, scaling.value_range) if scaling.is_image else None


def changed_params(model: Any) -> dict[str, Any]:
    """Parameters that differ from their defaults; of a function or a generator, its name."""
    signature = inspect.signature(type(model)).parameters
    params = {name: value for name, value in model.get_params(deep=False).items() if name not in NOT_OF_THE_RESULT}
    changed = {name: value for name, value in params.items() if str(value) != str(signature[name].default)}
    return {
        name: getattr(value, "__name__", type(value).__name__) if callable(value) else plain(value)
        for name, value in changed.items()
    }


def _texts(names: Iterable[Any] | None) -> list[str] | None:
    return None if names is None else [str(name) for name in names]
