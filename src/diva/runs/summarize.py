"""Ask a fitted estimator all that a run should keep: the only place that knows both an estimator and a summary."""

from __future__ import annotations

import inspect
import platform
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from diva.assignment import Assignment
from diva.data import ArraySource, JoinedSource, LoadedData, PartOfSource, Source, TableSchema, is_batch_source
from diva.data.pipeline import Preparation
from diva.data.sources import name_of
from diva.data.typed import as_table, excerpts_of
from diva.data.validate import open_columns, open_samples
from diva.metrics import Agreement
from diva.models.base import Clusterer
from diva.parameters import plain
from diva.runs.records import EpochRecord
from diva.runs.snapshot import MOST_BYTES, SNAPSHOT, Snapshot, choose_samples
from diva.runs.summary import Components, ImageFormat, Layer, Move, Summary, Tree, read_facts
from diva.version import __version__

N_DRAWS = 10  # new samples of each cluster
N_WORDS = 10  # that explain a cluster of texts
N_RECONSTRUCTED = 16  # images in all, of at most twice as many clusters
MOST_RECONSTRUCTED = 2_000  # rows whose reconstruction error is measured
ASSIGNED_AT_ONCE = 20_000  # samples
MOVE_FIELDS = [field.name for field in fields(Move)]
NOT_OF_THE_RESULT = ("callbacks", "checkpoint_every", "decoder", "encoder", "resume", "run_dir", "verbose")


def summarize(model: Any, data: LoadedData, *, fitted: bool = True) -> Summary:
    """Look at samples and at what an estimator found in them.

    Parameters
    ----------
    model : Clusterer or DPMixture
    data : LoadedData
    fitted : bool, default=True
        Whether these are the samples of its last fit, whose ``labels_`` it has; others are assigned first.
    """
    found = _found_in_fit(model) if fitted else _found_in(model, data.source)
    about = _about(data)
    snapshot = _take_snapshot(model, data.source, found)
    about["sample_names"] = _shown_names(data, snapshot.index)
    if data.labels is not None:
        names, classes = np.unique(np.asarray(data.labels), return_inverse=True)
        levels = {"clusters": found.clusters} | ({} if found.components is None else {"components": found.components})
        about["class_names"] = _texts(names.tolist())
        about["metrics"] = {level: Agreement(classes, groups).as_row() for level, groups in levels.items()}
        table = np.zeros((len(names), model.n_clusters_), dtype=np.int64)
        np.add.at(table, (classes, found.clusters), 1)
        snapshot = replace(snapshot, truth=classes[snapshot.index].astype(np.int64), table=table)
    return _describe(model, snapshot, about, found.components)


def summarize_samples(model: Any, X: Any, y: Any = None, *, name: str | None = None, n_drawn: int = 2_000) -> Summary:
    """Look at whatever users pass; without any samples, at as many as a mixture draws itself.

    Parameters
    ----------
    model : Clusterer or DPMixture
    X : as in ``fit``, or None
    y : array-like of shape (n_samples,), optional
        Known classes.
    name : str, optional
        What the samples are called.
    n_drawn : int
    """
    if X is None:
        nothing = LoadedData(ArraySource(np.empty((0, model.n_features_in_))))
        return _describe(model, _draw_snapshot(model, n_drawn), _about(nothing), model.component_labels_)
    if not isinstance(model, Clusterer) and is_batch_source(X):
        X = JoinedSource([ArraySource(np.asarray(batch)) for batch in X])
    source = open_samples(model, X if model.schema_ is None else open_columns(X, schema=model.schema_), reset=False)
    labels = None if y is None else np.asarray(y)
    if labels is not None and labels.shape != (len(source),):
        raise ValueError(f"y should have shape ({len(source)},), one class for each sample, got {labels.shape}.")
    table = None if model.schema_ is None else as_table(X)
    texts = None if table is None else excerpts_of(table, model.schema_)
    return summarize(model, LoadedData(source, labels, name=name or name_of(source), texts=texts), fitted=False)


def _shown_names(data: LoadedData, index: NDArray[np.int64]) -> list[str] | None:
    """What people know samples by: names of files, how their texts begin, or both; None if there is nothing."""
    names = None if data.sample_names is None else [str(data.sample_names[i]) for i in index.tolist()]
    if data.texts is None:
        return names
    texts: list[str] = data.texts.take(index).to_pylist()
    return texts if names is None else [f"{name}: {text}" for name, text in zip(names, texts, strict=True)]


def _about(data: LoadedData) -> dict[str, Any]:
    """What is known without the samples."""
    return {
        "source": data.name or "data",
        "feature_names": _texts(data.feature_names),
        "columns": _texts(data.columns),
        "data": data.facts or None,
        "versions": {"diva": __version__, "python": platform.python_version()}
        | {package: metadata.version(package) for package in ("torch", "numpy", "scikit-learn")},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _draw_snapshot(model: Any, n_drawn: int) -> Snapshot:
    """Samples that a mixture draws itself, in place of those it was fitted on; sizes are those of the fit."""
    mixture, found = model.mixture_, _found_in_fit(model)
    drawn, _ = model.sample(n_drawn, random_state=0)
    codes, _ = mixture.sample(n_drawn, check_random_state(0))  # the same ones
    components = mixture.predict(codes, "component")
    clusters = mixture.cluster_of_component()[components]
    confidence = mixture.calibrated_proba(codes)[np.arange(n_drawn), clusters]
    kept = np.maximum(np.bincount(clusters, minlength=model.n_clusters_), 1)
    scores = mixture.score_samples(codes)
    if not isinstance(model, Clusterer):  # of a mixture alone, the samples on the scale it sees them on
        codes = mixture.coordinates(codes)
    return Snapshot(
        index=np.arange(n_drawn),
        values=drawn.astype(np.float32),
        codes=codes.astype(np.float32),
        clusters=clusters,
        confidence=confidence,
        sizes=np.bincount(found.clusters, minlength=model.n_clusters_),
        mean_confidence=np.bincount(clusters, weights=confidence, minlength=model.n_clusters_) / kept,
        components=components,
        log_density=scores,
    )


class Found(NamedTuple):
    """Where each sample belongs."""

    clusters: NDArray[np.int64]  # (n,): by position
    components: NDArray[np.int64] | None  # (n,): where there is a mixture


def _found_in_fit(model: Any) -> Found:
    order = np.argsort(model.cluster_ids_)  # labels are ids, which may have gaps
    if (components := getattr(model, "component_labels_", None)) is not None:  # labels of outliers may be -1
        return Found(model.mixture_.cluster_of_component()[components], components)
    return Found(order[np.searchsorted(model.cluster_ids_, model.labels_, sorter=order)], None)


def _found_in(model: Any, source: Source) -> Found:
    """Where samples belong, a part at a time."""
    parts = [
        _assign(model, source, np.arange(start, min(start + ASSIGNED_AT_ONCE, len(source))))
        for start in range(0, len(source), ASSIGNED_AT_ONCE)
    ]
    has_mixture = hasattr(model, "component_labels_")
    components = np.concatenate([part.components for part in parts]) if has_mixture else None
    return Found(np.concatenate([part.positions for part in parts]), components)


def _assign(model: Any, source: Source, index: NDArray[np.int64]) -> Assignment:
    with warnings.catch_warnings():  # names of columns were looked at when the source was opened
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        said: Assignment = model.assign(PartOfSource(source, index))
        return said


def _take_snapshot(model: Any, source: Source, found: Found) -> Snapshot:
    index = choose_samples(len(source), source.take(np.arange(1)).nbytes)
    clusters, said = found.clusters[index], _assign(model, source, index)
    confidence = np.minimum(said.probabilities[np.arange(len(index)), clusters], 1.0)
    sums = np.bincount(clusters, weights=confidence, minlength=model.n_clusters_)
    kept = np.bincount(clusters, minlength=model.n_clusters_)
    values = in_units_of(model, source.take(index))
    return Snapshot(
        index=index,
        values=values if values.dtype in (np.uint8, np.float32) else values.astype(np.float32),  # what files may hold
        codes=said.codes,
        clusters=clusters,
        confidence=confidence,
        sizes=np.bincount(found.clusters, minlength=model.n_clusters_),
        mean_confidence=np.divide(sums, kept, out=np.zeros_like(sums), where=kept > 0),
        components=None if found.components is None else found.components[index],
        log_density=said.scores,
    )


def counts_words(model: Any) -> bool:
    """Whether samples are counts of words, of which the model sees the tf-idf."""
    preparation = model.pipeline_.preparation if hasattr(model, "pipeline_") else None
    return preparation is not None and preparation.idf is not None


def are_texts(model: Any) -> bool:
    """Whether all that samples are is words."""
    columns = () if model.schema_ is None else model.schema_.used
    return counts_words(model) or (len(columns) > 0 and all(column.use == "text" for column in columns))


def in_units_of(model: Any, values: NDArray[Any]) -> NDArray[Any]:
    """Samples in the units of what the model makes: of counts of words, their tf-idf."""
    return Preparation(model.pipeline_.preparation.idf).apply(values) if counts_words(model) else values


def summarize_old_run(model: Any, run: str | Path) -> Summary:
    """Make the summary of a run that only kept a snapshot, as runs did before there were summaries."""
    document = read_facts(run)
    about = {name: document.get(name) for name in ("feature_names", "columns", "class_names", "metrics", "finished")}
    about |= {"source": str(document.get("source") or "data"), "versions": document.get("versions") or {}}
    return _describe(model, Snapshot.read(Path(run) / SNAPSHOT), about, getattr(model, "component_labels_", None))


def _describe(model: Any, snapshot: Snapshot, about: Mapping[str, Any], components: NDArray[np.int64] | None = None) -> Summary:
    """Add what only the estimator can tell: the structure it found, its history, and what it generates."""
    image = image_format(model)
    if about.get("feature_names") is None and hasattr(model, "feature_names_in_"):
        about = {**about, "feature_names": _texts(model.feature_names_in_)}
    pipeline = getattr(model, "pipeline_", None)  # a mixture alone has none
    if pipeline is not None and pipeline.windows is not None:
        steps, channels = pipeline.windows
        about = {**about, "data": (about.get("data") or {}) | {"kind": "series", "steps": steps, "channels": channels}}
        if about.get("feature_names") is None:
            about = {**about, "feature_names": [f"channel {c} at {t}" for t in range(steps) for c in range(channels)]}
    if (schema := model.schema_) is not None:
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
        **_history(model),
        components=_components(model, components),
        tree=_tree(model),
        separations=_separations(model),
        cluster_ids=[int(i) for i in model.cluster_ids_],
        cluster_names={str(i): name for i, name in getattr(model, "cluster_names_", {}).items()} or None,
        units="tf-idf" if are_texts(model) else None,
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


def _history(model: Any) -> dict[str, Any]:
    """What learning did: epochs of networks, or laps of a mixture alone."""
    if hasattr(model, "config_"):
        return {"epochs": model.history_}
    names = ("n_components", "births", "merges", "deletes")
    laps = [
        EpochRecord(
            epoch=i,
            phase="laps",
            loss=-lap.elbo_per_sample,
            bound=lap.elbo_per_sample,
            **{name: getattr(lap, name) for name in names},
        )
        for i, lap in enumerate(model.history_)
    ]
    return {"epochs": laps, "rounds": "lap"}


def _components(model: Any, found: NDArray[np.int64] | None) -> Components | None:
    if found is None:
        return None
    sizes = np.bincount(found, minlength=model.n_components_)
    clusters = np.arange(model.n_components_) if model.hierarchy_ is None else model.hierarchy_.labels
    return Components(model.component_ids_.tolist(), sizes.tolist(), clusters.tolist())


def _log_odds(model: Any) -> NDArray[np.float64]:
    """Of not being one, at each join of the tree."""
    hierarchy, by_valleys = model.hierarchy_, model.mixture_.options.grouping is not None
    odds: NDArray[np.float64] = hierarchy.log_odds() if by_valleys else hierarchy.flow_log_odds()
    return odds


def _tree(model: Any) -> Tree | None:
    hierarchy = getattr(model, "hierarchy_", None)
    if hierarchy is None or hierarchy.n_components < 2:
        return None
    odds = _log_odds(model)
    layers = [Layer(layer.n_groups, layer.strength, layer.labels.tolist()) for layer in hierarchy.layers(odds=odds)]
    distances = hierarchy.linkage()[:, 2].tolist()
    return Tree(hierarchy.merges.tolist(), distances, 1 / (1 + hierarchy.resolution), odds.tolist(), layers)


def _separations(model: Any) -> list[float | None] | None:
    if getattr(model, "hierarchy_", None) is None:
        return None
    found = model.hierarchy_.separations(_log_odds(model)).tolist()
    return [value if np.isfinite(value) else None for value in found]


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
