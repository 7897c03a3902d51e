"""What a fit of the mixture needs to know beside the data: each parameter declared once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from diva.devices import DEVICE, resolve_device
from diva.parameters import Flag, Holds, Number, OneOf, Seed, Whole, declared_in, parameter, plain

if TYPE_CHECKING:  # parameters are declared without torch
    from diva.mixture.gaussian import GaussianFamily
    from diva.mixture.moves import Move

START_SCALE = 0.1  # the paper's sF: where learning the covariance scale starts


@dataclass(frozen=True)
class MixtureOptions:
    """Mixture."""

    concentration: float = parameter(5.0, Number(), help="Of the Dirichlet process; more of it expects more components.")
    covariance_type: str = parameter(
        "auto", OneOf("auto", "full", "diag"), help="Shape of a component; auto takes the one with the higher bound."
    )
    covariance_scale: float | Literal["auto"] = parameter(
        "auto",
        OneOf("auto"),
        Number(),
        help="""Expected variance of a component, as a share of the variance of the first data; auto learns it, for every
        feature, from the components (empirical Bayes).""",
    )
    mean_precision: float = parameter(1e-4, Number(), help="How many samples the prior mean, that of the first data, is worth.")
    degrees_of_freedom: float | None = parameter(
        None, Number(), help="Of the precision; the number of features plus 2 by default."
    )
    max_components: int = parameter(200, Whole(), help="A guard, not a guess: a fit that reaches it warns.")
    max_laps: int = parameter(100, Whole(), help="Passes over the data at most.")
    tol: float = parameter(
        1e-4,
        Number(0),
        help="The fit has converged when no move is left to try and a lap raises the bound by less than this per sample.",
    )
    n_init: int = parameter(
        2,
        Whole(0),
        help="""Starts for every shape of component: the most prominent peaks of the bound while many centres of k-means are
        joined, pair by pair, to one. The highest bound after laps from each is kept. 0 grows from one component by births.""",
    )
    births: bool = parameter(True, Flag(), help="Whether components are born; turned off for ablations.")
    merges: bool = parameter(True, Flag(), help="Whether components are merged.")
    deletes: bool = parameter(True, Flag(), help="Whether components are deleted.")
    shuffles: bool = parameter(True, Flag(), help="Whether components are put in the order of their mass.")
    grouping: str | None = parameter(
        "valleys",
        OneOf("valleys", None),
        help="""valleys groups components between which the data have no valley: what a Gaussian mixture cuts into pieces, a
        curved class for instance, becomes one cluster again. None makes every component a cluster.""",
    )
    resolution: float | Literal["auto"] = parameter(
        "auto",
        OneOf("auto"),
        Number(),
        help="Of the grouping: a higher one gives more clusters. auto parts what is more likely two than one.",
    )
    batch_size: int | None = parameter(None, Whole(), help="Rows of one batch of the memo; chosen from the data by default.")
    device: str = parameter("cpu", DEVICE, help="Where to compute, as torch names it, or auto.")
    seed: int | None = parameter(
        None, Seed(), public=False, help="Of all chance, where the caller has no generator of its own."
    )

    def check(self) -> None:
        """Raise ValueError, naming what was expected, unless every option makes sense."""
        for name, declaration in declared_in(type(self)).items():
            declaration.check(name, getattr(self, name))

    def family(self, n_features: int) -> GaussianFamily:
        """Prior of the components of standardized data."""
        import torch

        from diva.mixture.gaussian import make_family

        least = 2.0 if self.covariance_type == "diag" else n_features + 1.0
        scale = START_SCALE if isinstance(self.covariance_scale, str) else float(self.covariance_scale)
        if self.degrees_of_freedom is not None and self.degrees_of_freedom <= least:
            raise ValueError(
                f"degrees_of_freedom should be more than {least:g} for {self.covariance_type} covariance and {n_features} "
                f"features, got {self.degrees_of_freedom!r}. Leave it at None for the number of features plus 2."
            )
        zeros = torch.zeros(n_features, dtype=torch.float64, device=resolve_device(self.device))
        return make_family(
            self.covariance_type,
            m0=zeros,
            variance=zeros + scale,
            kappa0=float(self.mean_precision),
            nu0=self.degrees_of_freedom,
        )

    @property
    def covariance_types(self) -> tuple[str, ...]:
        """Shapes of a component to choose from."""
        return ("full", "diag") if self.covariance_type == "auto" else (self.covariance_type,)

    def moves(self) -> tuple[Move, ...]:
        """Moves to try after every lap, in their order."""
        from diva.mixture.moves import Birth, Delete, Merge, Shuffle

        chosen = (
            (self.births, Birth(max_components=self.max_components)),
            (self.merges, Merge()),
            (self.deletes, Delete()),
            (self.shuffles, Shuffle()),
        )
        return tuple(move for wanted, move in chosen if wanted)

    def generator(self, lap: int | None = None) -> np.random.Generator:
        """Chance of a first fit, or of one that goes on at a lap."""
        return make_generator(self.seed, lap)

    def to_plain(self) -> dict[str, Any]:
        """As files hold them: the parameters of a ``DPMixture``."""
        params = {name: plain(value) for name, value in asdict(self).items()}
        return params | {"random_state": params.pop("seed"), "warm_start": False, "verbose": False}

    @classmethod
    def from_plain(cls, document: Mapping[str, Any]) -> Self:
        """Rebuild what `to_plain` gave; raises KeyError, TypeError or ValueError if it does not fit."""
        params = dict(document)
        params["seed"] = params.pop("random_state")
        names = {field.name for field in fields(cls)}
        known = {name for group in MIXTURE_PARAMETERS for name in declared_in(group)}
        if not names | {"warm_start", "verbose"} <= set(params) <= known:
            raise ValueError("parameters are missing, or of something else")
        options = cls(**{name: params[name] for name in names})
        options.check()
        return options


@dataclass(frozen=True)
class Wishes:
    """Wishes about clusters."""

    n_clusters: int | None = parameter(
        None,
        Whole(),
        help="""So many clusters are wished for: the tree of components is cut into as many, or into single components if there
        are fewer. By default the evidence decides.""",
    )
    max_clusters: int | None = parameter(
        None, Whole(), help="At most so many clusters: if the evidence is for more, the tree is cut into as many."
    )
    min_cluster_size: int | None = parameter(
        None,
        Whole(),
        help="Clusters of fewer samples are none of their own: each joins the cluster that its samples would else be in.",
    )

    def check(self) -> None:
        """Raise ValueError where wishes contradict each other."""
        if self.n_clusters is not None and self.max_clusters is not None:
            raise ValueError("n_clusters and max_clusters should not be given both: the first says how many there are.")

    def any(self) -> bool:
        """Whether anything is wished for."""
        return any(value is not None for value in vars(self).values())


@dataclass(frozen=True)
class RowParameters:
    """Data."""

    pca: int | None = parameter(None, Whole(), help="Principal components to reduce rows to first.")


@dataclass(frozen=True)
class ColumnParameters:
    """Columns of a table."""

    columns: Any = parameter(
        None,
        Holds(lambda value: isinstance(value, str) and value == "auto", '"auto"'),
        Holds(
            lambda value: isinstance(value, tuple | list) and bool(value) and all(isinstance(name, str) for name in value),
            "a list of names",
        ),
        help="""Of a table, as a frame or a file, and of a list of text: "auto" uses each column as what it holds (numbers,
        categories, text; ids and dates are not learnt from) and puts all on one scale; a list of names does so with these
        alone. By default columns should be numbers, and are taken as they are.""",
    )
    missing: Literal["impute", "drop", "error"] | None = parameter(
        None,
        Holds(lambda value: value in ("impute", "drop", "error"), 'one of "impute", "drop", "error"'),
        help="""What happens to rows with gaps where columns are given: impute fills a gap with what says nothing, the mean of
        its column; drop leaves them out of the fit; error refuses them. By default impute.""",
    )

    def open_table(self, X: Any, *, is_shard: bool = False) -> Any:
        """What to fit: rows of a table as numbers if columns are given, else X as it is; raises DataError."""
        if self.columns is None:
            if self.missing is not None:
                raise ValueError(f"missing={self.missing!r} is about columns of a table: set columns='auto' as well.")
            return X
        from diva.data import ColumnOptions, open_columns

        names = None if isinstance(self.columns, str) else tuple(self.columns)
        return open_columns(X, ColumnOptions(names, missing=self.missing or "impute", is_shard=is_shard))


@dataclass(frozen=True)
class FitParameters:
    """Fitting."""

    reject: bool = parameter(
        False,
        Flag(),
        help="""Whether labels_ and predict answer -1, no cluster, for outliers: samples so far from all components that of all
        samples seen about one would be by chance.""",
    )

    warm_start: bool = parameter(False, Flag(), help="Whether fit starts from the components of the fit before.")
    random_state: Any = parameter(
        None, Seed(), help="Same seed, data, machine and number of threads: same numbers, bit for bit."
    )
    verbose: bool = parameter(False, Flag(), help="Show a bar in a terminal or a notebook, elsewhere a line for every lap.")


MIXTURE_PARAMETERS = (MixtureOptions, Wishes, RowParameters, ColumnParameters, FitParameters)


def make_generator(random_state: Any, lap: int | None = None) -> np.random.Generator:
    """Chance as scikit-learn's ``random_state`` sets it, for a first fit or for one that goes on at a lap."""
    from sklearn.utils import check_random_state

    seed = check_random_state(random_state).randint(2**31)
    return np.random.default_rng(seed if lap is None else [seed, lap])
