"""What a run came to, as plain values: ``results.json`` and the arrays beside it. Read without torch and without a model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from diva.atomic import write_atomically
from diva.exceptions import ModelFileError
from diva.runs.archive import read_arrays
from diva.runs.records import EpochRecord, read_json
from diva.runs.snapshot import KIND, SNAPSHOT, Snapshot

RESULTS = "results.json"  # in the folder of a run
SCHEMA = 1


@dataclass(frozen=True)
class ImageFormat:
    """How samples are images: (channels, height, width), where the channels are, the darkest and the brightest number."""

    shape: Sequence[int]
    channels_last: bool
    value_range: Sequence[float]


@dataclass(frozen=True)
class Components:
    """Components of a mixture: the ids they keep through moves, the samples in each, the position of each one's cluster."""

    ids: Sequence[int]
    sizes: Sequence[int]
    clusters: Sequence[int]


@dataclass(frozen=True)
class Layer:
    """A partition of the components that is clearer than others near it: by how many nats, and the group of each component."""

    n_groups: int
    strength: float
    groups: Sequence[int]


@dataclass(frozen=True)
class Tree:
    """How components join: pairs of nodes as in scipy, the distance of each join, and where the clusters were cut."""

    merges: Sequence[Sequence[int]]
    distances: Sequence[float]
    cut: float
    strengths: Sequence[float] = ()  # log odds, in nats, that what is joined is not one; rising, 0 at the cut
    layers: Sequence[Layer] = ()  # from fine to coarse

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Tree:
        """Read what JSON holds of it."""
        return cls(**{**plain, "layers": tuple(Layer(**layer) for layer in plain.get("layers", ()))})


@dataclass(frozen=True)
class Move:
    """An accepted birth, merge or deletion: ids before and after, gain of the bound, masses after; no epoch at the end."""

    move: str
    parents: Sequence[int]
    children: Sequence[int]
    gain: float
    masses: Sequence[float]
    lap: int = 0
    epoch: int | None = None


@dataclass(frozen=True, eq=False)
class Summary:
    """A finished run. What the model does not have, or nobody said, is None or empty."""

    model: str  # name of the estimator
    source: str  # what the data were called
    n_samples: int
    n_features: int
    n_clusters: int
    versions: Mapping[str, str]
    finished: str | None  # ISO date
    snapshot: Snapshot
    image: ImageFormat | None = None  # none for rows of numbers
    feature_names: Sequence[str] | None = None  # of the features, of the table they came from, and of the true classes
    columns: Sequence[str] | None = None
    class_names: Sequence[str] | None = None
    metrics: Mapping[str, Mapping[str, float]] | None = None  # level -> metric -> value, if labels were given
    params: Mapping[str, Any] | None = None  # parameters of the estimator that differ from their defaults
    config: Mapping[str, Any] | None = None  # what all parameters came to
    epochs: Sequence[EpochRecord] = ()
    components: Components | None = None
    tree: Tree | None = None
    lineage: Sequence[Move] = ()
    data: Mapping[str, Any] | None = None  # how the data became numbers: columns of a table and what each is used as
    agreement: Mapping[str, float] | None = None  # of nearest neighbours on clusters, in nats, where codes were a choice
    cluster_ids: Sequence[int] | None = None  # permanent id of the cluster at each position; positions are ids where None
    cluster_names: Mapping[str, str] | None = None  # those given by hand, by id: keys of JSON are text
    separations: Sequence[float | None] | None = None  # log odds that each cluster is one of its own; None: nothing beside it
    sample_names: Sequence[str] | None = None  # of the samples of the snapshot
    units: str | None = None  # of the features, if they are not those of the data: "tf-idf"
    rounds: str = "epoch"  # what ``epochs`` are passes of: "lap" where there is no network

    @property
    def seconds(self) -> float:
        """How long the epochs took."""
        return float(sum(epoch.seconds for epoch in self.epochs))

    @property
    def ids(self) -> Sequence[int]:
        """Permanent id of the cluster at each position."""
        return range(self.n_clusters) if self.cluster_ids is None else self.cluster_ids

    def name_of(self, cluster: int) -> str | None:
        """Name that was given by hand to the cluster at a position."""
        return (self.cluster_names or {}).get(str(self.ids[cluster]))

    @property
    def n_components(self) -> int | None:
        """Components of the mixture, if there is one."""
        return None if self.components is None else len(self.components.ids)

    def majority(self, cluster: int) -> tuple[str, float] | None:
        """The largest class of a cluster and its share; None without labels, or if the cluster is empty."""
        table = self.snapshot.table
        if table is None or not self.class_names or not (column := table[:, cluster]).sum():
            return None
        return self.class_names[int(column.argmax())], float(column.max() / column.sum())

    def save(self, run: str | os.PathLike[str]) -> None:
        """Write both files into the folder of a run; the snapshot last, since it says that the run is complete."""
        plain = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "snapshot"}
        text = json.dumps({"schema": SCHEMA} | plain, default=asdict, indent=1, allow_nan=False)
        write_atomically(Path(run) / RESULTS, f"{text}\n".encode())
        self.snapshot.save(Path(run) / SNAPSHOT)

    @classmethod
    def read(cls, run: str | os.PathLike[str]) -> Summary:
        """Read both files; raises ModelFileError if they are damaged or do not belong together."""
        path, snapshot = Path(run) / RESULTS, Snapshot.read(Path(run) / SNAPSHOT)
        try:
            plain = read_facts(run)
            parts = {"image": ImageFormat, "components": Components}
            made: dict[str, Any] = {name: kind(**plain[name]) for name, kind in parts.items() if plain[name] is not None}
            made |= {} if plain["tree"] is None else {"tree": Tree.from_plain(plain["tree"])}
            rows = {"epochs": EpochRecord, "lineage": Move}
            made |= {name: tuple(kind(**row) for row in plain[name]) for name, kind in rows.items()}
            summary = cls(**plain | made, snapshot=snapshot)
            belongs = summary._fits_snapshot()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{str(path)!r} cannot be read ({error}). Fit again, or restore it from a copy.") from error
        if not belongs:
            raise ModelFileError(f"In {str(run)!r} the snapshot is not of this run. Fit again, or restore both from a copy.")
        return summary

    def _fits_snapshot(self) -> bool:
        found = self.snapshot
        return (
            len(found.sizes) == self.n_clusters == len(self.ids)
            and (self.separations is None or len(self.separations) == self.n_clusters)
            and (self.sample_names is None or len(self.sample_names) == len(found))
            and int(found.sizes.sum()) == self.n_samples
            and found.values.size == len(found) * self.n_features
            and (found.components is None or 0 <= found.components.min() <= found.components.max() < (self.n_components or 0))
        )


def read_facts(run: str | os.PathLike[str]) -> dict[str, Any]:
    """The facts of a run without its arrays, as plain values; of an old run, those that are with its snapshot.

    Raises ValueError if they are not of this schema.
    """
    path = Path(run) / RESULTS
    if not path.exists():
        return read_arrays(Path(run) / SNAPSHOT, kinds=(KIND,))[1]
    facts = read_json(path)
    if not isinstance(facts, dict) or facts.pop("schema", None) != SCHEMA:
        raise ValueError(f"{str(path)!r} should be of schema {SCHEMA}. Fit again, or restore it from a copy.")
    return facts
