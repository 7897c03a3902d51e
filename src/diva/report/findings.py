"""What a run found, computed once: the page and the figures for papers only draw it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list

from diva.exceptions import ModelFileError, ReportError
from diva.models.diva import DIVA
from diva.report.lineage import Flow, survivors, trace
from diva.report.palette import BIRTHS, NEUTRAL, REMOVALS, colour_of
from diva.report.pictures import to_pictures
from diva.report.projection import Projection, project_run
from diva.runs.folder import RunFolder
from diva.runs.load import load
from diva.runs.snapshot import Snapshot
from diva.training.state import EpochRecord

SNAPSHOT = "snapshot.safetensors"
N_SHOWN = 10  # samples of each sort in a gallery
N_FEATURES = 8  # features that set a cluster apart
N_ROW_FEATURES = 5  # unusual features of a row, for the map
MOST_RECONSTRUCTED = 2_000  # rows whose reconstruction error is measured


@dataclass(frozen=True)
class Difference:
    """A feature of a cluster beside that of all samples.

    Attributes
    ----------
    feature : str
    by : float
        Difference of the means, in standard deviations of the feature over all samples.
    mean, overall : float
    nearest, drawn, least : float
        The feature of the member nearest the centre, of a generated one, of the least certain one.
    decimals : int
        How many are worth showing, by how much the feature varies.
    """

    feature: str
    by: float
    mean: float
    overall: float
    nearest: float
    drawn: float
    least: float
    decimals: int


@dataclass(frozen=True, eq=False)
class FoundCluster:
    """One cluster.

    Attributes
    ----------
    number, size : int
    share, confidence : float
        Of all samples; mean over those kept.
    components : tuple of int
        Positions of its components.
    mostly : (str, float) or None
        Its largest class and the share of it, if labels were given.
    nearest, least : array of int
        Positions in the snapshot: nearest the centre (of highest density) first; least certain first.
    drawn : array of shape (N_SHOWN, ...)
        Samples that the model made.
    differences : tuple of Difference
        Of tables: what sets it apart, the most telling first.
    """

    number: int
    size: int
    share: float
    confidence: float
    components: tuple[int, ...]
    mostly: tuple[str, float] | None
    nearest: NDArray[np.int64]
    least: NDArray[np.int64]
    drawn: NDArray[Any]
    differences: tuple[Difference, ...]

    @property
    def colour(self) -> str:
        """Its colour everywhere."""
        return colour_of(self.number)


@dataclass(frozen=True, eq=False)
class Level:
    """One way to tell samples apart: a word for it, the group of each sample, the names of the groups."""

    word: str
    title: str
    groups: NDArray[np.int64]
    names: list[str]


@dataclass(frozen=True, eq=False)
class Tree:
    """A dendrogram from left (leaves) to right.

    Attributes
    ----------
    leaves : tuple of int
        Positions of components, top to bottom.
    lines : tuple of (x, y, cluster or None)
        Two points each, and the cluster that the branch is part of.
    start, cut : float
        Where leaves begin, and where the clusters were cut.
    """

    leaves: tuple[int, ...]
    lines: tuple[tuple[tuple[float, float], tuple[float, float], int | None], ...]
    start: float
    cut: float


@dataclass(frozen=True)
class Moves:
    """Moves of one sort over the epochs: when, how high to draw them, how many."""

    name: str
    symbol: str
    colour: str
    epochs: list[int]
    levels: list[float]
    counts: list[int]


@dataclass(frozen=True)
class Curves:
    """What changed from epoch to epoch; None where there was none. Epochs are counted from 1."""

    epochs: list[int]
    components: list[int | None]
    clusters: list[int | None]
    bound: list[float]
    validation_bound: list[float | None]
    births: Moves
    removals: Moves
    top: int


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything a report shows.

    Attributes
    ----------
    model : DIVA
    snapshot : Snapshot
    projection : Projection
    """

    model: DIVA
    snapshot: Snapshot
    projection: Projection

    # --- names

    @property
    def source(self) -> str:
        """What the data were called."""
        return str(self.snapshot.about.get("source") or "data")

    @property
    def is_image(self) -> bool:
        """Whether samples are images."""
        return self.model.pipeline_.scaling.is_image

    @property
    def n_samples(self) -> int:
        """Samples of the run, of which the snapshot may keep some."""
        return int(self.snapshot.sizes.sum())

    @property
    def history(self) -> list[EpochRecord]:
        """What each epoch did."""
        return self.model.history_

    @property
    def seconds(self) -> float:
        """How long the epochs took."""
        return float(sum(record.seconds for record in self.history))

    @property
    def confidence(self) -> float:
        """Mean probability of a sample's own cluster."""
        return float(self.snapshot.confidence.mean())

    @property
    def what_samples_are(self) -> str:
        """Images of so many pixels, or rows of so many features."""
        if not self.is_image:
            n = self.model.n_features_in_
            return f"rows of {n:,} feature{'s' if n != 1 else ''}"
        channels, height, width = self.model.pipeline_.scaling.input_shape
        return f"{'colour ' if channels >= 3 else ''}images of {height} \u00d7 {width} pixels"

    @cached_property
    def feature_names(self) -> list[str]:
        """Names of the features of a table."""
        n = self.model.n_features_in_
        names = self.snapshot.about.get("feature_names")
        if names is None and hasattr(self.model, "feature_names_in_"):
            names = list(self.model.feature_names_in_)
        return [str(name) for name in names] if names is not None and len(names) == n else [f"feature {i}" for i in range(n)]

    @property
    def class_names(self) -> list[str] | None:
        """Names of the true classes, if labels were given."""
        names = self.snapshot.about.get("class_names")
        return [str(name) for name in names] if names and self.snapshot.truth is not None else None

    @property
    def metrics(self) -> dict[str, dict[str, float]] | None:
        """Level -> metric -> value, if labels were given."""
        return self.snapshot.about.get("metrics") or None

    @cached_property
    def cluster_of(self) -> NDArray[np.int64]:
        """Cluster of each component."""
        return self.model.mixture_.cluster_of_component()

    @cached_property
    def component_sizes(self) -> NDArray[np.int64]:
        """Samples in each component, of all samples."""
        return np.bincount(self.model.component_labels_, minlength=self.model.n_components_)

    def component_name(self, position: int) -> int:
        """The name that a component keeps through moves."""
        return int(self.model.component_ids_[position])

    # --- samples

    @cached_property
    def rows(self) -> NDArray[np.float64]:
        """Samples as rows of numbers."""
        values: NDArray[np.float64] = self.snapshot.values.reshape(len(self.snapshot), -1).astype(np.float64)
        return values

    @cached_property
    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of each feature; 1 for those that never vary."""
        mean, sd = self.rows.mean(axis=0), self.rows.std(axis=0)
        return mean, np.where(sd > 1e-9 * np.maximum(1.0, np.abs(mean)), sd, 1.0)

    @cached_property
    def unusual(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Features in which each row differs most from the mean, and their values, both (m, at most 5)."""
        mean, sd = self.moments
        parts = []
        for rows in np.array_split(self.rows, max(1, self.rows.size >> 22)):  # wide rows, some at a time
            score = -np.abs((rows - mean) / sd)
            n_top = min(N_ROW_FEATURES, score.shape[1])
            top = np.argpartition(score, n_top - 1, axis=1)[:, :n_top]
            order = np.argsort(np.take_along_axis(score, top, axis=1), axis=1, kind="stable")
            parts.append(np.take_along_axis(top, order, axis=1))
        which = np.concatenate(parts)
        return which, np.take_along_axis(self.rows, which, axis=1)

    def pictures(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        """Samples that are images, as bytes."""
        scaling = self.model.pipeline_.scaling
        low, high = (float((scaling.offset[0] + sign * scaling.unit[0]).item()) for sign in (-1, 1))
        return to_pictures(values, scaling.input_shape, scaling.channels_last, (low, high))

    @cached_property
    def levels(self) -> list[Level]:
        """Clusters, components, and true classes if labels were given."""
        snapshot = self.snapshot
        names = [str(self.component_name(k)) for k in range(self.model.n_components_)]
        levels = [
            Level("cluster", "Clusters", snapshot.clusters, [str(k) for k in range(self.model.n_clusters_)]),
            Level("component", "Components", snapshot.components, names),
        ]
        if snapshot.truth is not None and self.class_names:
            levels.append(Level("class", "True classes", snapshot.truth, self.class_names))
        return levels

    def middles(self, level: Level) -> dict[int, NDArray[np.float32]]:
        """For each group, the member on the map that is nearest to the middle of them: where its name is written."""
        middles = {}
        for group in np.unique(level.groups).tolist():
            points = self.projection.points[level.groups == group]
            middles[group] = points[np.square(points - np.median(points, axis=0)).sum(axis=1).argmin()]
        return middles

    # --- clusters

    @cached_property
    def clusters(self) -> tuple[FoundCluster, ...]:
        """All clusters, by number."""
        return tuple(self._cluster(number) for number in range(self.model.n_clusters_))

    @property
    def filled(self) -> tuple[FoundCluster, ...]:
        """Clusters that hold samples: a mixture may keep components that none is nearest to."""
        return tuple(cluster for cluster in self.clusters if cluster.size > 0)

    def _cluster(self, number: int) -> FoundCluster:
        snapshot = self.snapshot
        members = np.flatnonzero(snapshot.clusters == number)
        nearest = members[np.argsort(-snapshot.log_density[members], kind="stable")][:N_SHOWN]
        least = members[np.argsort(snapshot.confidence[members], kind="stable")][:N_SHOWN]
        drawn = self.model.sample(N_SHOWN, cluster=int(self.model.cluster_ids_[number]), random_state=number)[0]
        mostly = None
        if snapshot.table is not None and self.class_names and (column := snapshot.table[:, number]).sum() > 0:
            top = int(column.argmax())
            mostly = (self.class_names[top], float(column[top] / column.sum()))
        return FoundCluster(
            number=number,
            size=int(snapshot.sizes[number]),
            share=float(snapshot.sizes[number] / max(self.n_samples, 1)),
            confidence=float(snapshot.mean_confidence[number]),
            components=tuple(int(k) for k in np.flatnonzero(self.cluster_of == number)),
            mostly=mostly,
            nearest=nearest,
            least=least,
            drawn=drawn,
            differences=() if self.is_image else self._differences(members, nearest, least, drawn),
        )

    def _differences(
        self, members: NDArray[np.int64], nearest: NDArray[np.int64], least: NDArray[np.int64], drawn: NDArray[Any]
    ) -> tuple[Difference, ...]:
        if len(members) == 0:
            return ()
        overall, sd = self.moments
        mean = self.rows[members].mean(axis=0)
        by = (mean - overall) / sd
        first_drawn = drawn.reshape(len(drawn), -1)[0]
        return tuple(
            Difference(
                feature=self.feature_names[j],
                by=float(by[j]),
                mean=float(mean[j]),
                overall=float(overall[j]),
                nearest=float(self.rows[nearest[0], j]),
                drawn=float(first_drawn[j]),
                least=float(self.rows[least[0], j]),
                decimals=int(np.clip(2 - np.round(np.log10(sd[j])), 0, 9)),
            )
            for j in np.argsort(-np.abs(by), kind="stable")[:N_FEATURES]
        )

    # --- reconstruction

    @cached_property
    def examples(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Positions of samples of every cluster, evenly spread over its members, and what the decoder makes of them."""
        chosen: list[int] = []
        each = max(1, 16 // max(1, self.model.n_clusters_))
        for number in range(min(self.model.n_clusters_, 32)):
            members = np.flatnonzero(self.snapshot.clusters == number)
            if len(members):
                chosen += members[np.unique(np.linspace(0, len(members) - 1, each + 2).astype(int)[1:-1])].tolist()
        index = np.array(chosen, dtype=np.int64)
        return index, self.model.inverse_transform(self.snapshot.codes[index])

    @cached_property
    def feature_errors(self) -> NDArray[np.float64]:
        """Share of each feature's variance that reconstruction loses."""
        some = np.unique(np.linspace(0, len(self.rows) - 1, min(len(self.rows), MOST_RECONSTRUCTED)).astype(int))
        made = self.model.inverse_transform(self.snapshot.codes[some]).reshape(len(some), -1)
        _, sd = self.moments
        errors: NDArray[np.float64] = ((self.rows[some] - made) ** 2).mean(axis=0) / sd**2
        return errors

    # --- the tree and the lineage

    @cached_property
    def tree(self) -> Tree | None:
        """How components join to clusters; None if every component is a cluster, or there is only one."""
        hierarchy = self.model.hierarchy_
        if hierarchy is None or hierarchy.n_components < 2:
            return None
        linkage, n = hierarchy.linkage(), hierarchy.n_components
        leaves = tuple(int(k) for k in leaves_list(linkage))
        start = max(0.0, float(linkage[:, 2].min()) - 0.15)  # nothing happens before
        x, y = np.full(2 * n - 1, start), np.zeros(2 * n - 1)
        y[list(leaves)] = np.arange(n)
        cluster: list[int | None] = [int(k) for k in hierarchy.labels] + [None] * (n - 1)
        lines: list[tuple[tuple[float, float], tuple[float, float], int | None]] = []
        for step, (left, right) in enumerate(hierarchy.merges):
            node = n + step
            x[node], y[node] = linkage[step, 2], (y[left] + y[right]) / 2
            cluster[node] = cluster[left] if cluster[left] == cluster[right] else None
            for side in (left, right):
                lines.append(((float(x[side]), float(x[node])), (float(y[side]), float(y[side])), cluster[side]))
            lines.append(((float(x[node]), float(x[node])), (float(y[left]), float(y[right])), cluster[node]))
        return Tree(leaves, tuple(lines), start, 1 / (1 + hierarchy.resolution))

    @cached_property
    def flows(self) -> dict[str, Flow]:
        """Where components came from: title -> diagram; two if the final mixture was fitted anew."""
        model = self.model
        training, final = model.training_lineage_, list(model.mixture_.lineage)
        ends = {self.component_name(k): max(float(self.component_sizes[k]), 0.5) for k in range(model.n_components_)}
        left = survivors(training)
        if not training or set(ends) & set(left):
            flows = {"From the first component to the final ones": trace([*training, *final], ends)}
        else:
            flows = {
                "While training": trace(training, left),
                "In the final mixture, fitted anew": trace(final, ends),
            }
        return {title: flow for title, flow in flows.items() if flow.links}

    def colour_of_component(self, name: int) -> str:
        """Colour of the cluster that a component is in; grey if it is no longer there."""
        position = np.flatnonzero(self.model.component_ids_ == name)
        return colour_of(int(self.cluster_of[position[0]])) if len(position) else NEUTRAL

    # --- epochs

    @cached_property
    def curves(self) -> Curves:
        """K, moves and the bound over the epochs."""
        history = self.history
        components = [record.n_components or None for record in history]
        clusters = [record.n_clusters for record in history]
        top = max([1, *(k or 0 for k in (*components, *clusters))])

        def moves(name: str, symbol: str, colour: str, counts: list[int], shift: float) -> Moves:
            moved = [i for i, n in enumerate(counts) if n]
            levels = [max((components[i] or 0) + shift * top, 0.02 * top) for i in moved]
            return Moves(name, symbol, colour, [history[i].epoch + 1 for i in moved], levels, [counts[i] for i in moved])

        removed = [record.merges + record.deletes for record in history]
        return Curves(
            epochs=[record.epoch + 1 for record in history],
            components=components,
            clusters=clusters,
            bound=[record.bound for record in history],
            validation_bound=[record.validation_bound for record in history],
            births=moves("births", "triangle-up", BIRTHS, [record.births for record in history], 0.06),
            removals=moves("merges and deletions", "triangle-down", REMOVALS, removed, -0.06),
            top=top,
        )

    @cached_property
    def bound_range(self) -> tuple[float, float] | None:
        """Where the bound spends its time, so that a few bad epochs do not flatten the rest; None without epochs."""
        values = np.array([v for r in self.history for v in (r.bound, r.validation_bound) if v is not None])
        if len(values) == 0:
            return None
        high, usual = float(values.max()), float(np.quantile(values, 0.1))
        low = max(float(values.min()), usual - 2 * (high - usual))
        pad = 0.08 * (high - low) or 1.0
        return low - pad, high + pad

    @cached_property
    def n_below(self) -> int:
        """Epochs whose bound is below that range."""
        return 0 if self.bound_range is None else sum(r.bound < self.bound_range[0] for r in self.history)

    @cached_property
    def phases(self) -> list[tuple[str, int, int]]:
        """Phase, first and last epoch, counted from 1."""
        spans: list[tuple[str, int, int]] = []
        for record in self.history:
            if spans and spans[-1][0] == record.phase:
                spans[-1] = (record.phase, spans[-1][1], record.epoch + 1)
            else:
                spans.append((record.phase, record.epoch + 1, record.epoch + 1))
        return spans

    @cached_property
    def table_order(self) -> list[int]:
        """Clusters with samples in the order of the classes they hold, so that a contingency table has a diagonal."""
        table = self.snapshot.table
        assert table is not None
        filled = np.flatnonzero(table.sum(axis=0)).tolist()
        return sorted(filled, key=lambda k: (int(table[:, k].argmax()), -int(table[:, k].max())))


def read_findings(run: str | os.PathLike[str], *, projection: str = "auto", model: DIVA | None = None) -> Findings:
    """Read the folder of a run.

    Parameters
    ----------
    run : str or path-like
    projection : {"auto", "tsne", "umap", "pca", "codes"}
        How the map is made.
    model : DIVA, optional
        The fitted model, if it has networks of your own: its file holds their weights, not their code.

    Raises
    ------
    ReportError
        If the folder holds no finished run, or no snapshot.
    ModelFileError
        If one of its files is damaged.
    """
    folder = RunFolder(Path(run))
    if not folder.path.is_dir():
        raise ReportError(f"There is no folder {os.fspath(run)!r}. Give the folder of a run, as made with diva fit.")
    if not folder.model.is_file():
        raise ReportError(
            f"{os.fspath(run)!r} holds no fitted model: it is no run, or one that has not ended. Resume it first."
        )
    if not (folder.path / SNAPSHOT).is_file():
        raise ReportError(f"{os.fspath(run)!r}: this run keeps no snapshot of its data; make it with diva fit.")
    snapshot = Snapshot.read(folder.path / SNAPSHOT)
    fitted = load(folder.model) if model is None else model
    if not isinstance(fitted, DIVA):
        raise ReportError(f"{folder.model} holds a {type(fitted).__name__}. Reports are made of runs of DIVA.")
    _check_they_fit(fitted, snapshot, folder.path)
    return Findings(fitted, snapshot, project_run(folder.path, snapshot.codes, projection))


def _check_they_fit(model: DIVA, snapshot: Snapshot, run: Path) -> None:
    """Refuse a snapshot that is not of this model."""
    m = len(snapshot)
    fits = (
        m > 0
        and snapshot.codes.shape == (m, model.config_.latent_dim)
        and snapshot.values.size == m * model.n_features_in_
        and snapshot.sizes.shape == snapshot.mean_confidence.shape == (model.n_clusters_,)
        and 0 <= snapshot.clusters.min() <= snapshot.clusters.max() < model.n_clusters_
        and 0 <= snapshot.components.min() <= snapshot.components.max() < model.n_components_
        and (snapshot.truth is None or snapshot.truth.shape == (m,))
        and (snapshot.table is None or snapshot.table.shape[1:] == (model.n_clusters_,))
    )
    if not fits:
        raise ModelFileError(f"In {str(run)!r} the snapshot is not of this model. Fit again, or restore both from a copy.")
