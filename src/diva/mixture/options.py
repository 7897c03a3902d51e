"""What a fit of the mixture needs to know beside the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.utils import check_random_state

from diva.checks import check_device, is_number, is_whole, plain_param, resolve_device
from diva.mixture.gaussian import GaussianFamily, make_family
from diva.mixture.moves import Birth, Delete, Merge, Move, Shuffle


@dataclass(frozen=True)
class MixtureOptions:
    """Prior, limits, moves and grouping of a fit, as ``DPMixture`` documents them.

    ``seed`` sets all chance where the caller has no generator of its own.
    """

    concentration: float = 5.0
    covariance_type: str = "full"
    covariance_scale: float = 0.1
    mean_precision: float = 1e-4
    degrees_of_freedom: float | None = None
    max_components: int = 200
    max_laps: int = 100
    tol: float = 1e-4
    births: bool = True
    merges: bool = True
    deletes: bool = True
    shuffles: bool = True
    grouping: str | None = None
    resolution: float | Literal["auto"] = "auto"
    batch_size: int | None = None
    device: str = "cpu"
    seed: int | None = None

    def check(self) -> None:
        """Raise ValueError unless every option is of its type and in its range."""
        for name in ("concentration", "covariance_scale", "mean_precision", "tol"):
            value = getattr(self, name)
            if not is_number(value) or not (1e-12 <= value <= 1e12 or (value == 0 and name == "tol")):
                raise ValueError(f"{name} should be a positive number from 1e-12 to 1e12, got {value!r}.")
        for name in ("max_components", "max_laps", "batch_size"):
            value = getattr(self, name)
            if not (is_whole(value) and value >= 1) and not (name == "batch_size" and value is None):
                raise ValueError(f"{name} should be a whole number of at least 1, got {value!r}.")
        for name, allowed in (("covariance_type", ("full", "diag")), ("grouping", (None, "walk"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} should be one of {allowed}, got {getattr(self, name)!r}.")
        if self.degrees_of_freedom is not None and not is_number(self.degrees_of_freedom):
            raise ValueError(f"degrees_of_freedom should be a number or None, got {self.degrees_of_freedom!r}.")
        if self.resolution != "auto" and not (is_number(self.resolution) and self.resolution > 0):
            raise ValueError(f'resolution should be "auto" or a positive number, got {self.resolution!r}.')
        for name in ("births", "merges", "deletes", "shuffles"):
            if not isinstance(getattr(self, name), bool | np.bool_ | int):
                raise ValueError(f"{name} should be True or False, got {getattr(self, name)!r}.")
        check_random_state(self.seed)
        check_device(self.device)

    def family(self, n_features: int) -> GaussianFamily:
        """Prior of the components of standardized data."""
        least = 2.0 if self.covariance_type == "diag" else n_features + 1.0
        if self.degrees_of_freedom is not None and self.degrees_of_freedom <= least:
            raise ValueError(
                f"degrees_of_freedom should be more than {least:g} for {self.covariance_type} covariance and {n_features} "
                f"features, got {self.degrees_of_freedom!r}. Leave it at None for the number of features plus 2."
            )
        zeros = torch.zeros(n_features, dtype=torch.float64, device=resolve_device(self.device))
        return make_family(
            self.covariance_type,
            m0=zeros,
            variance=zeros + float(self.covariance_scale),
            kappa0=float(self.mean_precision),
            nu0=self.degrees_of_freedom,
        )

    def moves(self) -> tuple[Move, ...]:
        """Moves to try after every lap, in their order."""
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
        plain = {name: plain_param(value) for name, value in asdict(self).items()}
        return plain | {"random_state": plain.pop("seed"), "warm_start": False, "verbose": False}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Rebuild what `to_plain` gave; raises KeyError, TypeError or ValueError if it does not fit."""
        params = dict(plain)
        params["seed"] = params.pop("random_state")
        names = {field.name for field in fields(cls)}
        if set(params) != names | {"warm_start", "verbose"}:
            raise ValueError("parameters are missing")
        options = cls(**{name: params[name] for name in names})
        options.check()
        return options


def make_generator(random_state: Any, lap: int | None = None) -> np.random.Generator:
    """Chance as scikit-learn's ``random_state`` sets it, for a first fit or for one that goes on at a lap."""
    seed = check_random_state(random_state).randint(2**31)
    return np.random.default_rng(seed if lap is None else [seed, lap])
