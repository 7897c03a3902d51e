"""How DIVA learns: every preset is a Recipe, and the estimator's parameters replace single fields of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from diva.networks.mlp import HIDDEN_SIZES

Phase = Literal["warm-up", "coupled", "sharpening"]

MIN_EPOCHS = 15
MAX_EPOCHS = 200
FURTHER_WARMUP, FURTHER_SHARPENING = 0.1, 0.4  # of the epochs when a fit goes on
MIN_STEPS = 1100  # gradient steps that small data deserve


@dataclass(frozen=True)
class Recipe:
    """Settings of a run.

    Attributes
    ----------
    n_epochs : int or None
        None makes as many as give ``MIN_STEPS`` gradient steps, at least ``MIN_EPOCHS``.
    warmup, sharpening : float
        Shares of the epochs: before the first mixture, with a standard normal prior; and at the end, with confident samples
        as labels.
    batch_size, learning_rate, weight_decay
        Of the optimizer, Adam.
    latent_dim : int
        D.
    hidden_sizes : tuple of int
        Layers of the networks for rows of numbers.
    reconstruction : {"mse", "nll"}
        Squared error, or a Gaussian likelihood whose variance is learnt.
    kl_weight : float or "auto"
        Of the KL term beside the *mean* squared error, the paper's kld_weight (beside "nll": of the KL term itself). "auto"
        calibrates it to the error of reconstruction.
    assignment : {"soft", "hard"}
        Equation 10 or 9.
    buffered_codes : bool
        Whether a mixture sees the codes sampled while the encoder moved, as in the paper, or those of the encoder at rest.
    covariance_type, final_covariance_type : {"diag", "full"}
        Of the mixture that is the prior, and of the one that is left at the end.
    final_refit : bool
        Whether a new mixture is fitted at the end; otherwise the prior stays.
    concentration, covariance_scale : float
        As in DPMixture.
    n_laps : int
        Laps of the mixture after an epoch, T in Algorithm 1.
    birth_rows : int or None
        Codes that the births of a lap are planned on, drawn from all; with few, only births that matter are seen to pay, and K
        settles. None: as many as each component needs.
    min_new_mass : float
        Fewest samples a new component may have.
    shuffles : bool
        Whether components are put in order of their mass after every lap.
    max_components : int
    views : {"affine", "mask", None}
        How samples are moved: while learning, and to see what they wander between.
    n_views : int
        Views of a sample that are averaged to decide where it belongs.
    grouping : {"walk", None}
        Whether components are grouped into clusters.
    resolution : float or "auto"
    """

    n_epochs: int | None = None
    warmup: float = 0.2
    sharpening: float = 1 / 3
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    latent_dim: int = 16
    hidden_sizes: tuple[int, ...] = (500, 500)
    reconstruction: Literal["mse", "nll"] = "mse"
    kl_weight: float | Literal["auto"] = "auto"
    assignment: Literal["soft", "hard"] = "soft"
    buffered_codes: bool = False
    covariance_type: str = "diag"
    final_covariance_type: str = "full"
    final_refit: bool = True
    concentration: float = 5.0
    covariance_scale: float = 0.1
    n_laps: int = 5
    birth_rows: int | None = None
    min_new_mass: float = 1.0
    shuffles: bool = True
    max_components: int = 200
    views: Literal["affine", "mask"] | None = "affine"
    n_views: int = 4
    grouping: Literal["walk"] | None = "walk"
    resolution: float | Literal["auto"] = "auto"

    def for_samples(self, n_samples: int) -> Recipe:
        """Fill in what depends on the number of samples."""
        if self.n_epochs is not None:
            return self
        steps_per_epoch = max(1, math.ceil(n_samples / self.batch_size))
        return replace(self, n_epochs=min(max(MIN_EPOCHS, math.ceil(MIN_STEPS / steps_per_epoch)), MAX_EPOCHS))

    def going_on(self, n_epochs: int) -> Recipe:
        """For networks that have learnt before: a short warm-up, and more of the epochs to sharpen what is new."""
        sharpening = FURTHER_SHARPENING if self.sharpening > 0 else 0.0
        return replace(self, n_epochs=n_epochs, warmup=min(self.warmup, FURTHER_WARMUP), sharpening=sharpening)

    @property
    def schedule(self) -> Schedule:
        """Epochs of each phase."""
        n = self.n_epochs or 0
        n_sharpening = round(self.sharpening * n) if self.grouping else 0
        n_warmup = min(max(1, round(self.warmup * n)), n - n_sharpening)
        return Schedule(n_warmup, n - n_warmup - n_sharpening, n_sharpening)


@dataclass(frozen=True)
class Schedule:
    """How many epochs each phase has."""

    n_warmup: int
    n_coupled: int
    n_sharpening: int

    @property
    def n_epochs(self) -> int:
        """All of them."""
        return self.n_warmup + self.n_coupled + self.n_sharpening

    @property
    def sharpening_starts(self) -> int:
        """Position of the first sharpening epoch."""
        return self.n_warmup + self.n_coupled

    def phase(self, position: int) -> Phase:
        """Phase of the epoch at a position."""
        if position < self.n_warmup:
            return "warm-up"
        return "coupled" if position < self.sharpening_starts else "sharpening"

    def updates_mixture(self, position: int) -> bool:
        """Whether a mixture is fitted after this epoch: from the last epoch of the warm-up on."""
        return position >= self.n_warmup - 1

    def allows_births(self, position: int) -> bool:
        """The last tenth of the coupled epochs only tidies up, if there are some to spare."""
        quiet = max(1, self.n_coupled // 10) if self.n_coupled > 2 else 0
        return position < self.sharpening_starts - quiet

    def teaches(self, position: int) -> bool:
        """Whether confident samples are chosen anew before this epoch: first, and after three fifths of the sharpening."""
        rounds = {0, math.ceil(0.6 * self.n_sharpening)} - {self.n_sharpening}
        return position - self.sharpening_starts in rounds


PRESETS = {
    "images": Recipe(),
    "features": Recipe(latent_dim=10, views="mask"),
    "sensors": Recipe(latent_dim=10, views="mask"),
    "paper": Recipe(
        n_epochs=11,
        hidden_sizes=HIDDEN_SIZES,
        warmup=0.0,
        sharpening=0.0,
        kl_weight=1e-4,
        buffered_codes=True,
        final_covariance_type="diag",
        final_refit=False,
        n_laps=2,
        birth_rows=1800,
        min_new_mass=20.0,
        views=None,
        grouping=None,
    ),
}


def recipe_from_plain(plain: dict[str, Any]) -> Recipe:
    """Rebuild a recipe from JSON; raises TypeError or ValueError unless every field is there."""
    if not isinstance(plain, dict) or set(plain) != {f.name for f in fields(Recipe)}:
        raise ValueError("a recipe should have all its fields and no others")
    recipe = Recipe(**plain | {"hidden_sizes": tuple(plain["hidden_sizes"])})
    choices = {
        "covariance_type": ("diag", "full"),
        "final_covariance_type": ("diag", "full"),
        "views": ("affine", "mask", None),
        "grouping": ("walk", None),
        "buffered_codes": (True, False),
        "final_refit": (True, False),
        "shuffles": (True, False),
    }
    for name, allowed in choices.items():
        if getattr(recipe, name) not in allowed:
            raise ValueError(f"{name} should be one of {allowed}, is {getattr(recipe, name)!r}")
    if recipe.birth_rows is not None and (type(recipe.birth_rows) is not int or recipe.birth_rows < 1):
        raise ValueError(f"birth_rows should be a whole number or None, is {recipe.birth_rows!r}")
    if not isinstance(recipe.min_new_mass, int | float) or not 0 <= recipe.min_new_mass < math.inf:
        raise ValueError(f"min_new_mass should be a number, is {recipe.min_new_mass!r}")
    for field in fields(Recipe):
        if getattr(recipe, field.name) is None and field.name not in ("n_epochs", "birth_rows", "views", "grouping"):
            raise ValueError(f"{field.name} is missing")
    return recipe
