"""What a report shows of a run, computed once from its summary: pages and figures only draw it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from diva.exceptions import ModelFileError, ReportError
from diva.report.lineage import Flow, survivors, trace
from diva.report.palette import NEUTRAL, colour_of
from diva.report.pictures import to_pictures
from diva.report.projection import Projection, project_run
from diva.report.words import count
from diva.runs.snapshot import SNAPSHOT, Snapshot
from diva.runs.summary import RESULTS, Layer, Summary

N_SHOWN = 10  # samples of each sort in a gallery
N_FEATURES = 8  # features that set a cluster apart
N_ASKED = 200  # members of a cluster that are asked for their nearest sample elsewhere
N_NEIGHBOURS = 20  # of a sample that are asked for their cluster
MOST_LAYERS = 4  # beside the clusters as found
MOST_GROUPS = 60  # in one of them
N_ROW_FEATURES = 5  # unusual features of a row, for the map


@dataclass(frozen=True)
class Difference:
    """A feature of a cluster beside that of all samples."""

    feature: str
    by: float  # difference of the means, in standard deviations of the feature over all samples
    # the feature's mean here and over all samples; that of the member nearest the centre, of a generated one if there are any,
    # and of the least certain one: title of a column -> value
    values: dict[str, float]
    decimals: int  # how many are worth showing, by how much the feature varies


@dataclass(frozen=True, eq=False)
class FoundCluster:
    """One cluster."""

    position: int  # in arrays
    number: int  # its permanent id, by which people know it
    name: str | None  # given by hand
    size: int
    share: float  # of all samples; mean over those kept
    confidence: float
    stability: float  # share of its samples' nearest neighbours, by codes, that are in it too
    separation: float | None  # log odds, in nats, that it is one of its own; None if nobody knows
    n_components: int
    majority: tuple[str, float] | None  # its largest class and the share of it, if labels were given
    nearest: NDArray[np.int64]  # positions in the snapshot: nearest the centre first; least certain first
    least: NDArray[np.int64]
    drawn: NDArray[Any]  # (at most N_SHOWN, ...): samples that the model made
    differences: tuple[Difference, ...]  # of tables: what sets it apart, the most telling first
    neighbour: int | None  # position of the cluster whose samples are nearest
    beside_neighbour: tuple[Difference, ...]  # of tables: what sets it apart from that one

    @property
    def colour(self) -> str:
        """Its colour everywhere."""
        return colour_of(self.number)

    @property
    def title(self) -> str:
        """What to call it: its number, and its name if it has one."""
        return f"Cluster {self.number}" + (f": {self.name}" if self.name else "")


@dataclass(frozen=True, eq=False)
class Level:
    """One way to tell samples apart: a word for it, the group of each sample, the names and colours of the groups."""

    word: str
    title: str
    groups: NDArray[np.int64]
    names: list[str]
    numbers: Sequence[int] | None = None  # by which colours are chosen, where they are not positions

    @property
    def colours(self) -> Sequence[int]:
        """Number of the colour of each group."""
        return range(len(self.names)) if self.numbers is None else self.numbers


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything a report shows."""

    summary: Summary
    plane: Projection | None = None  # where codes lie on the map, if there is one
    layer_of: Findings | None = None  # the findings that this is another layer of
    key: str = "cluster"  # by which elements of a page are told from those of other layers
    strength: float | None = None  # of this layer, in nats

    @property
    def projection(self) -> Projection:
        """The map."""
        assert self.plane is not None
        return self.plane

    # --- the data

    @property
    def snapshot(self) -> Snapshot:
        """The samples that were kept."""
        return self.summary.snapshot

    @property
    def is_image(self) -> bool:
        """Whether samples are images."""
        return self.summary.image is not None

    @property
    def what_samples_are(self) -> str:
        """Images of so many pixels, or rows of so many features."""
        if self.summary.image is None and self.are_words:
            return f"texts of {count(self.summary.n_features, 'word')}"
        if self.summary.image is None:
            return f"rows of {count(self.summary.n_features, 'feature')}"
        channels, height, width = self.summary.image.shape
        return f"{'colour ' if channels >= 3 else ''}images of {height} \u00d7 {width} pixels"

    @property
    def image_ratio(self) -> float:
        """Height of an image by its width."""
        assert self.summary.image is not None
        _, height, width = self.summary.image.shape
        return height / width

    def pictures(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        """Samples that are images, as bytes."""
        assert self.summary.image is not None
        return to_pictures(values, self.summary.image)

    @cached_property
    def reconstructions(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]] | None:
        """Some images, and what the decoder makes of their codes; None of tables, or without a decoder."""
        found = self.snapshot
        if found.reconstructed is None or found.reconstructions is None:
            return None
        return self.pictures(found.values[found.reconstructed]), self.pictures(found.reconstructions)

    @cached_property
    def feature_names(self) -> list[str]:
        """Names of the features of a table."""
        n, names = self.summary.n_features, self.summary.feature_names
        return list(names) if names is not None and len(names) == n else [f"feature {i}" for i in range(n)]

    @property
    def class_names(self) -> Sequence[str] | None:
        """Names of the true classes, if labels were given."""
        return self.summary.class_names if self.snapshot.truth is not None else None

    @cached_property
    def unusual(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Features in which each row differs most from the mean, and their values, both (m, at most 5)."""
        mean, sd = self.snapshot.moments
        parts, every = [], self.snapshot.rows
        for rows in np.array_split(every, max(1, every.size >> 22)):  # wide rows, some at a time
            score = -np.abs((rows - mean) / sd)
            n_top = min(N_ROW_FEATURES, score.shape[1])
            top = np.argpartition(score, n_top - 1, axis=1)[:, :n_top]
            order = np.argsort(np.take_along_axis(score, top, axis=1), axis=1, kind="stable")
            parts.append(np.take_along_axis(top, order, axis=1))
        which = np.concatenate(parts)
        return which, np.take_along_axis(every, which, axis=1)

    # --- groups

    @cached_property
    def layers(self) -> list[Findings]:
        """The same samples in other layers of the tree, as if those were the clusters; from fine to coarse."""
        tree, components = self.summary.tree, self.summary.components
        if self.layer_of is not None or tree is None or components is None or self.snapshot.components is None:
            return []
        others = [
            layer for layer in tree.layers if 1 < layer.n_groups <= MOST_GROUPS and layer.n_groups != self.summary.n_clusters
        ]
        strongest = sorted(others, key=lambda layer: -layer.strength)[:MOST_LAYERS]
        return [self._at(layer, i) for i, layer in enumerate(layer for layer in others if layer in strongest)]

    def _at(self, layer: Layer, number: int) -> Findings:
        found, components, tree = self.snapshot, self.summary.components, self.summary.tree
        assert components is not None
        assert tree is not None
        group_of = np.asarray(layer.groups)
        groups = group_of[found.components]
        sizes = np.bincount(group_of, weights=np.asarray(components.sizes), minlength=layer.n_groups).astype(np.int64)
        snapshot = replace(
            found, clusters=groups, sizes=sizes, mean_confidence=np.zeros(layer.n_groups), table=None, draws=None
        )
        n_inside = len(tree.merges) + 1 - layer.n_groups
        ends = tree.distances[max(n_inside - 1, 0)], tree.distances[min(n_inside, len(tree.distances) - 1)]
        summary = replace(
            self.summary,
            n_clusters=layer.n_groups,
            components=replace(components, clusters=layer.groups),
            tree=replace(tree, cut=sum(ends) / 2, layers=()),
            snapshot=snapshot,
            cluster_ids=None,
            cluster_names=None,
            separations=None,
        )
        return Findings(summary, self.plane, self, f"layer-{number}", layer.strength)

    @cached_property
    def levels(self) -> list[Level]:
        """Clusters, components if there are any, and true classes if labels were given."""
        found, components = self.snapshot, self.summary.components
        names = [self.label_of(k) for k in range(self.summary.n_clusters)]
        levels = [Level("cluster", "Clusters", found.clusters, names, self.summary.ids)]
        if found.components is not None and components is not None:
            levels.append(Level("component", "Components", found.components, [str(name) for name in components.ids]))
        if found.truth is not None and self.class_names:
            levels.append(Level("class", "True classes", found.truth, list(self.class_names)))
        return levels

    def middles(self, level: Level) -> dict[int, NDArray[np.float32]]:
        """For each group, the member on the map that is nearest to the middle of them: where its name is written."""
        middles = {}
        for group in np.unique(level.groups).tolist():
            points = self.projection.points[level.groups == group]
            middles[group] = points[np.square(points - np.median(points, axis=0)).sum(axis=1).argmin()]
        return middles

    def label_of(self, position: int) -> str:
        """A short label of the cluster at a position: its name, or its number."""
        return self.summary.name_of(position) or str(self.summary.ids[position])

    def colour_at(self, position: int) -> str:
        """Colour of the cluster at a position."""
        return colour_of(self.summary.ids[position])

    @cached_property
    def clusters(self) -> tuple[FoundCluster, ...]:
        """All clusters, by position."""
        return tuple(self._cluster(position) for position in range(self.summary.n_clusters))

    @property
    def filled(self) -> tuple[FoundCluster, ...]:
        """Clusters that hold samples: a mixture may keep components that none is nearest to."""
        return tuple(cluster for cluster in self.clusters if cluster.size > 0)

    def _cluster(self, position: int) -> FoundCluster:
        found, components, separations = self.snapshot, self.summary.components, self.summary.separations
        members = np.flatnonzero(found.clusters == position)
        nearest = members[np.argsort(-self._centrality(members), kind="stable")][:N_SHOWN]
        least = members[np.argsort(found.confidence[members], kind="stable")][:N_SHOWN]
        drawn = found.values[:0]
        if found.draws is not None and found.draw_clusters is not None:
            drawn = found.draws[found.draw_clusters == position][:N_SHOWN]
        neighbour = self.neighbours.get(position)
        is_table = not self.is_image and len(members) > 0
        return FoundCluster(
            position=position,
            number=self.summary.ids[position],
            name=self.summary.name_of(position),
            size=int(found.sizes[position]),
            share=float(found.sizes[position] / max(self.summary.n_samples, 1)),
            confidence=float(found.mean_confidence[position]),
            stability=float(self.agreement[members].mean()) if len(members) else 0.0,
            separation=None if separations is None else separations[position],
            n_components=0 if components is None else list(components.clusters).count(position),
            majority=self.summary.majority(position),
            nearest=nearest,
            least=least,
            drawn=drawn,
            differences=self._differences(position, nearest, least, drawn) if is_table else (),
            neighbour=neighbour,
            beside_neighbour=self._beside(position, neighbour) if is_table and neighbour is not None else (),
        )

    def _centrality(self, members: NDArray[np.int64]) -> NDArray[np.float64]:
        """How near the centre samples are: by density where the model has one, else by the distance of their codes."""
        if self.snapshot.log_density is not None:
            return self.snapshot.log_density[members]
        codes = self.snapshot.codes[members].astype(np.float64)
        return -np.square(codes - codes.mean(axis=0)).sum(axis=1) if len(codes) else codes[:, 0]

    @cached_property
    def agreement(self) -> NDArray[np.float64]:
        """Share of each sample's nearest neighbours, by codes, that are in its cluster, (m,): low near a border in doubt."""
        found = self.snapshot
        n_asked = min(N_NEIGHBOURS, len(found) - 1)
        if n_asked < 1:
            return np.ones(len(found))
        beside = NearestNeighbors(n_neighbors=n_asked).fit(found.codes).kneighbors(return_distance=False)
        shares: NDArray[np.float64] = (found.clusters[beside] == found.clusters[:, None]).mean(axis=1)
        return shares

    @cached_property
    def neighbours(self) -> dict[int, int]:
        """Which other cluster each cluster is nearest to, by the codes of samples: where most of the nearest others are."""
        found = self.snapshot
        codes, clusters = found.codes.astype(np.float64), found.clusters
        nearest: dict[int, int] = {}
        filled = np.unique(clusters)
        for cluster in filled.tolist() if len(filled) > 1 else ():
            members, others = np.flatnonzero(clusters == cluster), np.flatnonzero(clusters != cluster)
            some = members[np.unique(np.linspace(0, len(members) - 1, N_ASKED).astype(int))]
            index = NearestNeighbors(n_neighbors=1).fit(codes[others])
            beside = clusters[others[index.kneighbors(codes[some], return_distance=False)[:, 0]]]
            nearest[cluster] = int(np.bincount(beside).argmax())
        return nearest

    @cached_property
    def _means(self) -> NDArray[np.float64]:
        """Mean of each feature in each cluster, (n_clusters, d); 0 where there are no samples."""
        member = np.eye(self.summary.n_clusters)[self.snapshot.clusters]
        means: NDArray[np.float64] = member.T @ self.snapshot.rows / np.maximum(member.sum(axis=0), 1)[:, None]
        return means

    def _differences(
        self, position: int, nearest: NDArray[np.int64], least: NDArray[np.int64], drawn: NDArray[Any]
    ) -> tuple[Difference, ...]:
        rows, (overall, _) = self.snapshot.rows, self.snapshot.moments
        mean = self._means[position]
        columns = {"Mean here": mean, "Mean of all": overall}
        if self.are_words:  # of texts, a few words say little: they are shown themselves
            return self._most_different(mean - overall, columns)
        columns["Nearest centre"] = rows[nearest[0]]
        if len(drawn):
            columns["Made by the model"] = drawn.reshape(len(drawn), -1)[0]
        columns["Least certain"] = rows[least[0]]
        return self._most_different(mean - overall, columns)

    def _beside(self, position: int, neighbour: int) -> tuple[Difference, ...]:
        here, there = self._means[position], self._means[neighbour]
        return self._most_different(here - there, {"Mean here": here, "Mean there": there})

    def _most_different(self, gaps: NDArray[np.float64], columns: dict[str, NDArray[Any]]) -> tuple[Difference, ...]:
        """Features by the gap of their means in standard deviations; of words, first those that are here, not those missing."""
        sd = self.snapshot.moments[1]
        by = gaps / sd
        order = -by if self.are_words else -np.abs(by)
        return tuple(
            Difference(
                feature=self.feature_names[j],
                by=float(by[j]),
                values={title: float(values[j]) for title, values in columns.items()},
                decimals=int(np.clip(2 - np.round(np.log10(sd[j])), 0, 9)),
            )
            for j in np.argsort(order, kind="stable")[:N_FEATURES]
        )

    @property
    def are_words(self) -> bool:
        """Whether features are words of texts."""
        return self.summary.units == "tf-idf"

    @cached_property
    def table_order(self) -> list[int]:
        """Clusters with samples in the order of the classes they hold, so that a contingency table has a diagonal."""
        table = self.snapshot.table
        assert table is not None
        filled = np.flatnonzero(table.sum(axis=0)).tolist()
        return sorted(filled, key=lambda k: (int(table[:, k].argmax()), -int(table[:, k].max())))

    # --- components

    def colour_of_component(self, name: int) -> str:
        """Colour of the cluster that a component is in; grey if it is no longer there."""
        components = self.summary.components
        if components is None or name not in components.ids:
            return NEUTRAL
        return self.colour_at(components.clusters[list(components.ids).index(name)])

    @cached_property
    def flows(self) -> dict[str, Flow]:
        """Where components came from: title -> diagram; two if the final mixture was fitted anew."""
        components = self.summary.components
        if components is None:
            return {}
        training = [move for move in self.summary.lineage if move.epoch is not None]
        final = [move for move in self.summary.lineage if move.epoch is None]
        ends = {name: max(float(size), 0.5) for name, size in zip(components.ids, components.sizes, strict=True)}
        left = survivors(training)
        if not training or set(ends) & set(left):
            flows = {"From the first component to the final ones": trace([*training, *final], ends)}
        else:
            flows = {"While training": trace(training, left), "In the final mixture, fitted anew": trace(final, ends)}
        return {title: flow for title, flow in flows.items() if flow.links}

    # --- epochs

    @cached_property
    def bound_range(self) -> tuple[float, float] | None:
        """Where the bound spends its time, so that a few bad epochs do not flatten the rest; None if there is none."""
        values = np.array([v for e in self.summary.epochs for v in (e.bound, e.validation_bound) if v is not None])
        if len(values) == 0:
            return None
        high, usual = float(values.max()), float(np.quantile(values, 0.1))
        low = max(float(values.min()), usual - 2 * (high - usual))
        pad = 0.08 * (high - low) or 1.0
        return low - pad, high + pad

    @property
    def n_below(self) -> int:
        """Epochs whose bound is below that range."""
        low = -np.inf if self.bound_range is None else self.bound_range[0]
        return sum(epoch.bound is not None and epoch.bound < low for epoch in self.summary.epochs)

    @cached_property
    def phases(self) -> list[tuple[str, int, int]]:
        """Phase, first and last epoch, counted from 1."""
        spans: list[tuple[str, int, int]] = []
        for epoch in self.summary.epochs:
            if spans and spans[-1][0] == epoch.phase:
                spans[-1] = (epoch.phase, spans[-1][1], epoch.epoch + 1)
            else:
                spans.append((epoch.phase, epoch.epoch + 1, epoch.epoch + 1))
        return spans


@contextmanager
def naming_the_run(run: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what values of other types than ours lead to into a ModelFileError that names the run."""
    try:
        yield
    except (AttributeError, LookupError, TypeError) as error:
        raise ModelFileError(
            f"The files of the run in {os.fspath(run)!r} are damaged or were changed ({type(error).__name__}: {error}). "
            "Fit again, or restore them from a copy."
        ) from error


def read_findings(run: str | os.PathLike[str], *, projection: str = "auto") -> Findings:
    """Read the folder of a run; raises ReportError if there is no summary in it, ModelFileError if that is damaged."""
    folder, name = Path(run), os.fspath(run)
    if not folder.is_dir():
        raise ReportError(f"There is no folder {name!r}. Give the folder of a run, as made with diva fit.")
    if not (folder / SNAPSHOT).is_file():
        raise ReportError(
            f"{name!r} holds no {SNAPSHOT}: it is no run of diva fit, or one that has not ended. Resume it first."
        )
    if not (folder / RESULTS).is_file():
        raise ReportError(f"{name!r} holds no {RESULTS}: an old run. Make it with: diva report {name}")
    summary = Summary.read(folder)
    return Findings(summary, project_run(folder, summary.snapshot.codes, projection))
