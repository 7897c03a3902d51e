"""MixtureModel: a fitted mixture as a frozen value."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diva.data import ArrayBatches, Rows
from diva.devices import resolve_device
from diva.distributed import alike, alone, gather_rows, world_size
from diva.exceptions import FewerClustersWarning
from diva.mixture.laps import LapRecord
from diva.mixture.local import Chunk
from diva.mixture.moves import MoveRecord
from diva.mixture.options import MixtureOptions, Wishes
from diva.mixture.saving import mixture_from_archive, mixture_to_archive
from diva.mixture.standardize import Standardization, StandardizedBlock
from diva.mixture.state import MixtureState
from diva.mixture.sticks import expected_weights, stick_posterior
from diva.parameters import is_whole
from diva.partition.calibration import neighbour_temperature, tempered
from diva.partition.hierarchy import Hierarchy, ungrouped
from diva.partition.matching import ClusterRecord, Naming
from diva.runs.records import record_from_plain
from diva.threads import mapped, one_thread

Level = Literal["cluster", "component"] | int

N_TAIL_DRAWS = 20_000  # of the mixture, to see how dense its samples are
NO_TREE = (
    "n_clusters, max_clusters and min_cluster_size cut a tree, which grouping=None has not. Leave grouping at its default."
)
DRAWS_EACH = 64  # of a component, to see which cluster it is in now


class Draws(NamedTuple):
    """Codes drawn from components."""

    codes: NDArray[Any]  # (m, D)
    components: NDArray[np.int64]  # (m,): position of the component of each draw
    weights: NDArray[np.float64]  # (m,): samples seen that each draw stands for


class Seen(NamedTuple):
    """What was made of a few codes."""

    first: int  # number of the first
    is_shard: bool  # whether other processes have other rows
    found: tuple[NDArray[Any], ...]  # (m, ...) each


def in_order(seen: Iterable[Seen]) -> list[NDArray[Any]]:
    """What was made of all codes, (n, ...) each, in the order of the rows; of a shard, of its own rows alone."""
    seen = list(seen)
    columns = [np.concatenate(parts) for parts in zip(*(some.found for some in seen), strict=True)]
    if seen[-1].is_shard or world_size() == 1:
        return columns
    numbers = np.concatenate([np.arange(some.first, some.first + len(some.found[0])) for some in seen])
    return list(gather_rows(numbers, *columns)[1:])


@dataclass(frozen=True, eq=False)
class MixtureModel:
    """A fitted mixture: what it has learnt, and the names of its clusters; immutable, so that it can be shared."""

    state: MixtureState  # without data: what it has seen is past
    standardization: Standardization  # coordinates of the state
    options: MixtureOptions
    naming: Naming  # permanent ids of the clusters, by position
    # tree of components whose cut is the clusters; without one, every component is a cluster
    hierarchy: Hierarchy | None = None
    history: tuple[LapRecord, ...] = ()
    lineage: tuple[MoveRecord, ...] = ()  # every accepted birth, merge and deletion
    cluster_lineage: tuple[ClusterRecord, ...] = ()  # which clusters were born, split, merged or died after the first fit
    temperature: float = 1.0  # at which probabilities of clusters are as sure as nearest neighbours are alike

    @classmethod
    def start(
        cls, standardization: Standardization, options: MixtureOptions, first_id: int = 0, rounding: Tensor | None = None
    ) -> MixtureModel:
        """One component that has seen nothing; ``rounding`` (D,) is the variance with which standardized data are rounded."""
        family = replace(options.family(standardization.n_coordinates), rounding=rounding)
        state = MixtureState.start(family, float(options.concentration), first_id)
        return cls(state, standardization, options, Naming.first(1))

    # --- what it is

    @property
    def n_components(self) -> int:
        """K."""
        return self.state.n_components

    @property
    def n_features(self) -> int:
        """Length of a code, D."""
        return self.state.family.dim

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.naming.ids)

    @property
    def next_lap(self) -> int:
        """Number of the lap with which a fit goes on."""
        return self.history[-1].lap + 1 if self.history else 0

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.state.family.m0.device

    @cached_property
    def component_ids(self) -> NDArray[np.int64]:
        """Permanent name of each component, (K,)."""
        return np.array(self.state.ids)

    @cached_property
    def cluster_ids(self) -> NDArray[np.int64]:
        """Permanent name of each cluster, in the order of the columns of ``predict_proba``."""
        return np.array(self.naming.ids)

    @cached_property
    def masses(self) -> NDArray[np.float64]:
        """Samples that each component has seen, (K,)."""
        return np.asarray(self.state.total.counts.cpu())

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """Expected weight of each component, (K,); they sum to 1."""
        weights = expected_weights(*stick_posterior(self.state.total.counts, self.state.alpha))[:-1]
        return np.asarray((weights / weights.sum()).cpu())

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """Mean of each component, (K, D)."""
        return np.asarray(self.standardization.undo(self.state.family.means(self.state.total)))

    @cached_property
    def covariances(self) -> NDArray[np.float64]:
        """Covariance of each component, (K, D, D), or its diagonal, (K, D); on principal axes, if the mixture is on those."""
        if self.standardization.axes is not None:
            return np.asarray(self.state.family.covariances(self.state.total).cpu())
        scale, covariances = self.standardization.scale, self.state.family.covariances(self.state.total).cpu()
        return np.asarray(covariances * (scale**2 if covariances.ndim == 2 else torch.outer(scale, scale)))

    @cached_property
    def elbo(self) -> float:
        """Evidence lower bound on all data seen."""
        return self.state.elbo - float(self.state.total.counts.sum()) * self.standardization.log_volume

    def cluster_of_component(self, level: Level | None = None) -> NDArray[np.int64]:
        """Position of the cluster of each component, (K,).

        Parameters
        ----------
        level : {"cluster", "component"} or int, optional
            A number cuts the hierarchy into so many clusters.
        """
        if level in (None, "cluster") and self.hierarchy is not None:
            return self.hierarchy.labels
        if level in (None, "cluster", "component"):
            return np.arange(self.n_components)
        if level is None or not is_whole(level):
            raise ValueError(f'level should be "cluster", "component" or a number of clusters, got {level!r}.')
        if self.hierarchy is None:
            raise ValueError(f'level={level} needs a hierarchy of components: fit with grouping="valleys".')
        if not 1 <= int(level) <= self.n_components:
            raise ValueError(f"level should be from 1 to {self.n_components}, the number of components, got {level}.")
        return self.hierarchy.cut(int(level))

    def label_of_component(self, level: Level | None = None) -> NDArray[np.int64]:
        """What ``predict`` answers for each component, (K,): the permanent id of its cluster; at other levels, a position."""
        positions = self.cluster_of_component(level)
        return self.cluster_ids[positions] if level in (None, "cluster") else positions

    def cluster_by_id(self) -> dict[int, int]:
        """Component id -> position of its cluster."""
        return dict(zip(self.state.ids, self.cluster_of_component().tolist(), strict=True))

    # --- what it says about codes: an array of shape (n, D), or batches of rows

    def look_at(
        self, codes: NDArray[Any] | Iterable[Rows], look: Callable[[Chunk], tuple[NDArray[Any], ...]]
    ) -> Iterator[Seen]:
        """What a function makes of codes, a few at a time: of those that fall to this process."""
        source = ArrayBatches(codes) if isinstance(codes, np.ndarray) else codes  # batch_size is the memo's
        n_rows, is_shard = self.state.posterior.chunk_rows(), False
        for rows in source:
            is_shard = rows.is_shard
            parts = StandardizedBlock(rows, self.standardization, self.device).parts(n_rows).items
            for seen in mapped(lambda part: [(chunk.first, look(chunk)) for chunk in part], parts):
                yield from (Seen(first, is_shard, found) for first, found in seen)
        nothing = self.state.family.m0.new_zeros(0, self.n_features)  # others may have rows: they agree on columns
        yield Seen(0, is_shard, look(Chunk(nothing, None, 0)))

    @one_thread()
    def coordinates(self, codes: NDArray[Any] | Iterable[Rows]) -> NDArray[np.float32]:
        """Codes as the mixture sees them, standardized, (n, D)."""
        return self._answers(codes, lambda chunk: chunk.z.cpu().numpy().astype(np.float32))

    @one_thread()
    def predict(self, codes: NDArray[Any] | Iterable[Rows], level: Level | None = None) -> NDArray[np.int64]:
        """Most probable cluster of each code, (n,): of the most probable component, its label."""
        labels = torch.from_numpy(self.label_of_component(level))
        posterior = self.state.posterior
        return self._answers(codes, lambda chunk: labels[posterior.best(chunk.z).cpu()].numpy())

    @one_thread()
    def predict_proba(self, codes: NDArray[Any] | Iterable[Rows], level: Level | None = None) -> NDArray[np.float64]:
        """Responsibility of each cluster for each code, (n, n_clusters); `calibrated_proba` is what to tell people."""
        positions = torch.tensor(self.cluster_of_component(level))
        member = torch.nn.functional.one_hot(positions).double().to(self.device)
        posterior = self.state.posterior

        def probabilities(chunk: Chunk) -> NDArray[np.float64]:
            resp = posterior.responsibilities(chunk.z).double()
            return np.asarray((resp @ member).clamp_max(1.0).cpu())  # were rounded

        return self._answers(codes, probabilities)

    def calibrated_proba(self, codes: NDArray[Any] | Iterable[Rows], level: Level | None = None) -> NDArray[np.float64]:
        """Probability of each cluster for each code, (n, n_clusters), at the temperature; of components, responsibilities."""
        return tempered(self.predict_proba(codes, level), 1.0 if level == "component" else self.temperature)

    def calibrated(self, codes: NDArray[Any], weights: NDArray[Any] | None = None) -> MixtureModel:
        """At the temperature that nearest neighbours among codes (n, D), the same in all processes, speak for."""
        return replace(self, temperature=alike(lambda: self._neighbour_temperature(codes, weights)))

    def _neighbour_temperature(self, codes: NDArray[Any], weights: NDArray[Any] | None) -> float:
        return neighbour_temperature(self.coordinates(codes), self.predict_proba(codes), weights)

    @one_thread()
    def score_samples(self, codes: NDArray[Any] | Iterable[Rows]) -> NDArray[np.float64]:
        """Log density of each code, (n,), all parameters integrated out.

        A mixture of Student t distributions; what weight the sticks leave goes to the prior's, for clusters not seen yet.
        """
        family, total = self.state.family, self.state.total
        log_weights = expected_weights(*stick_posterior(total.counts, self.state.alpha)).log()

        def log_density(chunk: Chunk) -> NDArray[np.float64]:
            z = chunk.z.double()
            log_predictive = torch.cat([family.log_predictive(stats, z) for stats in (total, family.empty())], dim=1)
            return np.asarray(torch.logsumexp(log_predictive + log_weights, dim=1).cpu())

        return np.asarray(self._answers(codes, log_density) - self.standardization.log_volume)

    def _answers(self, codes: NDArray[Any] | Iterable[Rows], answer: Callable[[Chunk], NDArray[Any]]) -> NDArray[Any]:
        """One answer for each code, in the order of the rows, whoever has looked at them."""
        return in_order(self.look_at(codes, lambda chunk: (answer(chunk),)))[0]

    def _log_joint(self, codes: NDArray[Any]) -> NDArray[np.float64]:
        """Log density of each code and component, (n, K): far from all of them as well, where responsibilities are 0."""
        family, total = self.state.family, self.state.total
        log_weights = torch.from_numpy(np.log(self.weights)).to(self.device)
        return self._answers(codes, lambda chunk: (family.log_predictive(total, chunk.z.double()) + log_weights).cpu().numpy())

    @cached_property
    def _scores_of_draws(self) -> NDArray[np.float64]:
        """Log densities of draws of its own, in rising order."""
        rng = np.random.default_rng(0)
        with alone():  # kept: a process that has them already would not answer the others
            return np.sort(self.score_samples(self.sample(N_TAIL_DRAWS, rng)[0]))

    def tail_probability(self, codes: NDArray[Any] | Iterable[Rows]) -> NDArray[np.float64]:
        """Share of draws of the mixture that are less dense than each code, (n,): near 0 far from all components."""
        return self.tail_probability_of(self.score_samples(codes))

    def tail_probability_of(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same by log densities that are known already, (n,)."""
        rank = np.searchsorted(self._scores_of_draws, scores, side="right")
        return np.asarray((rank + 1.0) / (N_TAIL_DRAWS + 1.0))

    @property
    def outlier_level(self) -> float:
        """Tail probability below which a code is an outlier: of as many as were seen, about one is by chance."""
        return max(1.0 / max(float(self.masses.sum()), 1.0), 2.0 / (N_TAIL_DRAWS + 1.0))

    # --- draws

    def draw(self, components: NDArray[np.int64], rng: Any) -> NDArray[np.float64]:
        """One draw of each component named (m,), in the units of the data, (m, D)."""
        noise = rng.standard_normal((len(components), self.n_features))
        if self.covariances.ndim == 2:
            deviation = noise * np.sqrt(self.covariances[components])
        else:
            deviation = np.einsum("nij,nj->ni", np.linalg.cholesky(self.covariances)[components], noise)
        if self.standardization.axes is not None:
            return np.asarray(self.means[components] + deviation @ torch.linalg.pinv(self.standardization.axes).numpy())
        return np.asarray(self.means[components] + deviation)

    def draw_each(self, n_each: int, rng: np.random.Generator) -> Draws:
        """So many draws of every component."""
        components = np.repeat(np.arange(self.n_components), n_each)
        return Draws(self.draw(components, rng), components, self.masses[components] / n_each)

    def sample(
        self, n_samples: int, rng: Any, *, component: int | None = None, cluster: int | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw codes in proportion to the weights, (n_samples, D), and the id of the cluster of each.

        Parameters
        ----------
        n_samples : int
        rng : numpy.random.Generator or numpy.random.RandomState
        component, cluster : int, optional
            Draw only from the component at this position, or the cluster of this id.
        """
        if not is_whole(n_samples) or n_samples < 1:
            raise ValueError(f"n_samples should be a whole number of at least 1, got {n_samples!r}.")
        labels = self.label_of_component()
        allowed = np.ones(self.n_components, dtype=bool)
        given = (("component", component, np.arange(self.n_components)), ("cluster", cluster, labels))
        for name, value, of_component in given:
            if value is not None:
                allowed &= of_component == value
                if not (of_component == value).any():
                    raise ValueError(f"{name} should be {_one_of(np.unique(of_component))}, got {value!r}.")
        if not allowed.any():
            raise ValueError(f"Component {component} is not part of cluster {cluster}: give one or the other.")
        weights = np.where(allowed, self.weights, 0.0)
        drawn = np.repeat(np.arange(self.n_components), rng.multinomial(n_samples, weights / weights.sum()))
        return self.draw(drawn, rng), labels[drawn]

    # --- the same mixture with other clusters or names

    def with_hierarchy(self, hierarchy: Hierarchy | None) -> MixtureModel:
        """Give it other clusters, numbered from 0 on."""
        n_clusters = self.n_components if hierarchy is None else hierarchy.n_groups
        return replace(self, hierarchy=hierarchy, naming=Naming.first(n_clusters), cluster_lineage=())

    def granting(self, wishes: Wishes, sizes: NDArray[Any]) -> MixtureModel:
        """Give it the clusters that are wished for, numbered from 0 on; ``sizes`` (K,) are the samples of each component.

        A cluster that is too small joins the one that draws of it would else be in. Warns if there are fewer components than
        clusters are wished for; raises ValueError without a tree to cut.
        """
        if not wishes.any():
            return self
        if self.hierarchy is None:
            raise ValueError(NO_TREE)
        tree = self.hierarchy.with_groups(self._wished_number(wishes, self.hierarchy.n_groups))
        draws = self.draw_each(DRAWS_EACH, np.random.default_rng(0))  # the same for the same mixture
        log_joint = self._log_joint(draws.codes)
        while tree.n_groups > 1:
            inside = np.bincount(tree.labels, weights=sizes, minlength=tree.n_groups)
            if inside.min() >= (wishes.min_cluster_size or 0):
                break
            smallest = int(inside.argmin())
            of_it = log_joint[tree.labels[draws.components] == smallest]
            nearest = np.where(tree.labels == smallest, -np.inf, of_it).argmax(axis=1)
            tree = tree.with_joined(smallest, int(np.bincount(tree.labels[nearest]).argmax()))
        return self.with_hierarchy(tree)

    def _wished_number(self, wishes: Wishes, n_found: int) -> int:
        wished = wishes.n_clusters or min(n_found, wishes.max_clusters or n_found)
        if wished > self.n_components:
            warnings.warn(
                f"n_clusters={wished} is more than the {self.n_components} components that the evidence is for: each is a "
                "cluster of its own. Wish for fewer, or raise concentration.",
                FewerClustersWarning,
                stacklevel=4,
            )
        return min(wished, self.n_components)

    def with_next_id(self, next_id: int) -> MixtureModel:
        """Name the next component so: for a mixture that others have followed."""
        return replace(self, state=replace(self.state, next_id=next_id))

    def renamed(self, names: Mapping[int, str]) -> MixtureModel:
        """Call clusters, given by their ids, by names of one's own."""
        naming = self.naming.renamed(names)
        size = dict(zip(naming.ids, np.bincount(self.cluster_of_component(), weights=self.masses).tolist(), strict=True))
        records = tuple(ClusterRecord("renamed", (i,), (i,), (size[i],), naming.batch) for i in sorted(names))
        return replace(self, naming=naming, cluster_lineage=(*self.cluster_lineage, *records))

    def merged(self, clusters: Sequence[int]) -> MixtureModel:
        """Make one cluster of several, given by their ids; the heaviest keeps its id."""
        chosen = [self._position_of(cluster) for cluster in clusters]
        if len(set(chosen)) < 2:
            raise ValueError(f"Expected at least two different clusters to merge, got {list(clusters)}.")
        now = self.cluster_of_component()
        return self._regrouped(np.where(np.isin(now, chosen), min(chosen), now))

    def split(self, cluster: int, n_parts: int = 2) -> MixtureModel:
        """Part a cluster, given by its id, where its components were joined last; the heaviest part keeps the id."""
        now, tree = self.cluster_of_component(), self._tree()
        own = now == self._position_of(cluster)
        if not is_whole(n_parts) or not 2 <= n_parts <= own.sum():
            raise ValueError(
                f"Cluster {cluster} has {own.sum()} component{'' if own.sum() == 1 else 's'} to part; "
                + ("there is nothing finer in the tree." if own.sum() == 1 else f"n_parts should be from 2 to {own.sum()}.")
            )
        for n_groups in range(tree.n_groups, tree.n_components + 1):
            parts = tree.cut(n_groups)[own]
            if len(np.unique(parts)) >= n_parts:
                break
        labels = now.copy()
        labels[own] = now.max() + 1 + parts
        return self._regrouped(labels)

    def _tree(self) -> Hierarchy:
        return ungrouped(self.masses) if self.hierarchy is None else self.hierarchy

    def _position_of(self, cluster: int) -> int:
        if not is_whole(cluster) or cluster not in self.naming.ids:
            raise ValueError(f"There is no cluster {cluster!r}; there are {', '.join(map(str, sorted(self.naming.ids)))}.")
        return self.naming.ids.index(int(cluster))

    def _regrouped(self, labels: NDArray[np.int64]) -> MixtureModel:
        """Give components other clusters by hand."""
        hierarchy = self._tree().with_labels(labels)
        naming = self.naming.regrouped(self.cluster_of_component(), hierarchy.labels, self.masses)
        lineage = (*self.cluster_lineage, *naming.records)
        return replace(self, hierarchy=hierarchy, naming=naming, cluster_lineage=lineage)

    def named_after(self, before: MixtureModel, rng: np.random.Generator) -> MixtureModel:
        """Name clusters after those of the mixture before, by where draws of its components belong now."""
        if before.cluster_by_id() == self.cluster_by_id():
            naming = replace(before.naming, records=(), batch=before.naming.batch + 1)
            return replace(self, naming=naming, cluster_lineage=before.cluster_lineage)
        return self.named_by(before, before.draw_each(DRAWS_EACH, rng))

    def named_by(self, before: MixtureModel, seen: Draws) -> MixtureModel:
        """Name clusters after those of the mixture before, by codes that were in components of it."""
        then, now = before.cluster_of_component(), self.cluster_of_component()
        overlap = np.zeros((before.n_clusters, self.n_clusters))
        np.add.at(overlap, (then[seen.components], now[self.predict(seen.codes, "component")]), seen.weights)
        masses = np.bincount(now, weights=self.masses).tolist()
        naming = before.naming.after(overlap, masses, before.naming.batch + 1)
        return replace(self, naming=naming, cluster_lineage=(*before.cluster_lineage, *naming.records))

    # --- files

    def to_archive(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Take it apart, in the layout of a ``DPMixture`` without data of its own."""
        document, tensors = mixture_to_archive(self.state, self.standardization)
        document |= {
            "params": self.options.to_plain(),
            "feature_names": [],
            "hierarchy": None if self.hierarchy is None else self.hierarchy.to_dict(),
            "lineage": [asdict(r) for r in self.lineage],
            "history": [asdict(r) for r in self.history],
            "cluster_ids": list(self.naming.ids),
            "next_cluster_id": self.naming.next_id,
            "batch": self.naming.batch,
            "cluster_names": {str(i): name for i, name in self.naming.names},
            "apart": [list(pair) for pair in self.naming.apart],
            "cluster_lineage": [asdict(r) for r in self.cluster_lineage],
            "temperature": self.temperature,
        }
        return document, tensors | {"component_labels": torch.empty(0, dtype=torch.int64)}

    @classmethod
    def from_archive(cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> MixtureModel:
        """Put it together again; raises KeyError, TypeError or ValueError if its parts do not fit."""
        options = MixtureOptions.from_plain(document["params"])
        state, standardization = mixture_from_archive(document, tensors, resolve_device(options.device))
        if options.covariance_type not in ("auto", document["family"]):
            raise ValueError("the components are of another covariance type than the parameters say")
        lists = ("feature_names", "lineage", "history", "cluster_ids", "cluster_lineage")
        if not all(isinstance(document[name], list) for name in lists):
            raise TypeError("names and records should be lists")
        model = cls(
            state,
            standardization,
            options,
            Naming(
                tuple(document["cluster_ids"]),
                document["next_cluster_id"],
                batch=document["batch"],
                names=tuple((int(i), name) for i, name in document.get("cluster_names", {}).items()),  # later than 0.1.0.dev0
                apart=tuple((int(one), int(other)) for one, other in document.get("apart", ())),
            ),
            None if document["hierarchy"] is None else Hierarchy.from_dict(document["hierarchy"]),
            tuple(record_from_plain(LapRecord, r) for r in document["history"]),
            tuple(record_from_plain(MoveRecord, r) for r in document["lineage"]),
            tuple(record_from_plain(ClusterRecord, r) for r in document["cluster_lineage"]),
            float(document.get("temperature", 1.0)),  # later than 0.1.0.dev0
        )
        if not 1.0 <= model.temperature < math.inf:
            raise ValueError("the temperature should be at least 1")
        if model.hierarchy is not None and model.hierarchy.n_components != model.n_components:
            raise ValueError("the hierarchy is about another number of components")
        check_component_labels(tensors["component_labels"].numpy(), model.n_components)
        model.naming.check(int(model.cluster_of_component().max()) + 1)
        if not all(np.isfinite(x).all() for x in (model.means, model.covariances, model.weights, model.elbo)):
            raise ValueError("the statistics are not those of any data")
        return model


def check_component_labels(labels: NDArray[Any], n_components: int) -> None:
    """Raise ValueError unless every label is the position of a component."""
    inside = not labels.size or 0 <= labels.min() <= labels.max() < n_components
    if labels.ndim != 1 or labels.dtype != np.int64 or not inside:
        raise ValueError("labels name components that do not exist")


def _one_of(names: NDArray[np.int64]) -> str:
    """For people: a range if there are no gaps."""
    if names[-1] - names[0] == len(names) - 1:
        return f"from {names[0]} to {names[-1]}"
    return "one of " + ", ".join(str(n) for n in names)
