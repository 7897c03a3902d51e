"""Hyper-parameters of the deep models: each declared once, with its presets and the schedule that follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from diva.devices import DEVICE
from diva.mixture.options import ColumnParameters, Wishes
from diva.parameters import Flag, Folder, Holds, Number, OneOf, Seed, Sizes, Whole, declared_in, parameter, plain

if TYPE_CHECKING:  # parameters are declared without torch
    from torch import nn

Phase = Literal["warm-up", "coupled", "self-training"]

MIN_EPOCHS = 15
MAX_EPOCHS = 40
FURTHER_WARMUP, FURTHER_SELF_TRAINING = 0.1, 0.4  # of the epochs when a fit goes on
MIN_STEPS = 1100  # gradient steps that small data deserve
WIDEST = 10**6  # layer of a network
LONGEST = 4096  # code: a full covariance has the square of it
OWN = "own"  # what the config calls an augmentation that the user wrote

_IMAGE_SHAPE = Sizes(range(2, 4), 10**9, "(height, width) or (height, width, channels)", "H,W[,C]")
LAYERS = Sizes(range(1, 1001), WIDEST, "a tuple of whole numbers, such as (500, 500, 2000)", "INT,INT,...")
AUGMENTATIONS = ("affine", "affine+flip", "photo", "mask", "series")  # that ours are called
_COVARIANCES = OneOf("full", "diag")
_CALLABLES = Holds(
    lambda value: isinstance(value, tuple | list) and all(map(callable, value)),
    "a list of callables that take the model and the record of an epoch",
)


def _is_module(value: Any) -> bool:
    from torch import nn

    return isinstance(value, nn.Module)


_MODULE = Holds(_is_module, "a torch.nn.Module")
SHARE = Number(0, 1)
by_preset = partial(parameter, unset=None)  # None by default: the preset has its value
_hidden = partial(parameter, help="", public=False)


@dataclass(frozen=True)
class DataParameters(ColumnParameters):
    """Data."""

    kind: str | None = parameter(
        None,
        OneOf("images", "series"),
        help="""What samples with two axes are: images (height, width), or windows of sensors (steps, channels). By default
        their shape decides: few channels and many steps are a window.""",
    )

    image_shape: tuple[int, ...] | None = parameter(None, _IMAGE_SHAPE, help="Shape of the images if they come as flat rows.")
    tfidf: bool = parameter(False, Flag(), help="Whether rows are counts of words, to become tf-idf of unit length first.")
    pca: int | None = parameter(None, Whole(), help="Principal components to reduce rows to first.")


@dataclass(frozen=True)
class Acceleration:
    """Acceleration."""

    compile: bool = parameter(
        False,
        Flag(),
        help="""Whether torch.compile compiles encoder and decoder, which takes seconds to minutes in every process. Where it
        cannot, a warning says so and they run as they are.""",
    )
    precision: Literal["float32", "bfloat16"] = parameter(
        "float32",
        OneOf("float32", "bfloat16"),
        help="""What encoder and decoder compute in; bfloat16 is meant for GPUs. Weights, codes and losses stay float32.""",
    )


@dataclass(frozen=True)
class RunParameters:
    """Running."""

    run_dir: str | None = parameter(None, Folder(), help="Folder for checkpoints, history and the fitted model.")
    checkpoint_every: int = parameter(1, Whole(), help="Epochs between two checkpoints.")
    resume: bool = parameter(False, Flag(), help="Whether fit goes on from the last checkpoint in run_dir, if there is one.")
    callbacks: Sequence[Callable[..., Any]] = parameter(
        (),
        _CALLABLES,
        help="""Called as callback(model, record) after every epoch; training ends early if one returns True. The model can be
        asked (predict, transform, score_samples, sample): it answers as if training had ended with this epoch. If a callback
        has a method on_step, that is called as on_step(step, n_steps) after every step inside an epoch.""",
    )
    device: str = parameter("auto", DEVICE, help="As torch names it; auto takes a GPU if there is one.")
    random_state: Any = parameter(
        None,
        Seed(),
        help="""Same seed, data, machine and number of threads: same numbers, bit for bit. On small data (fewer than 131,072
        numbers) on any number of threads.""",
    )
    verbose: bool = parameter(False, Flag(), help="Show a bar in a terminal or a notebook, elsewhere a line for every epoch.")


@dataclass(frozen=True)
class Config:
    """What the parameters of a model came to."""

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {name: plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_plain(cls, document: Any) -> Self:
        """Read it back; raises ValueError unless every field is there and allowed."""
        declared = declared_in(cls)
        if not isinstance(document, dict) or set(document) != set(declared):
            raise ValueError("a configuration should have all its fields and no others")
        settings: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in document.items()}
        config = cls(**settings)
        for f in fields(cls):
            value = getattr(config, f.name)
            if value != f.default or type(value) is not type(f.default):
                declared[f.name].check(f.name, value)
                if value is None and not any(option.accepts(None) for option in declared[f.name].allowed):
                    raise ValueError(f"{f.name} is missing")
        return config


@dataclass(frozen=True)
class TrainingConfig(Config):
    """Networks and optimizer."""

    latent_dim: int = by_preset(16, Whole(high=LONGEST), help="Length of a code.")
    hidden_sizes: tuple[int, ...] = by_preset((500, 500), LAYERS, help="Layers of the networks for rows of numbers.")
    n_epochs: int | None = parameter(None, Whole(), help="Passes over the data; by default 15, and up to 40 for small data.")
    batch_size: int = by_preset(128, Whole(), help="Samples in a step of the optimizer.")
    learning_rate: float = by_preset(1e-3, Number(), help="Of the optimizer, Adam.")
    weight_decay: float = by_preset(0.0, Number(0), help="Of the optimizer, Adam.")
    early_stopping: int | None = parameter(
        None, Whole(), help="Epochs without a better bound, on validation data if there are any, after which a phase ends."
    )


@dataclass(frozen=True)
class OwnNetworks:
    """Networks of your own."""

    encoder: nn.Module | None = parameter(
        None, _MODULE, help="Yours in the place of ours, with a decoder. Returns (mean, log_var), each (n, latent_dim)."
    )
    decoder: nn.Module | None = parameter(None, _MODULE, help="Takes codes (n, latent_dim), returns samples.")


@dataclass(frozen=True)
class DIVAConfig(TrainingConfig):
    """Learning."""

    learning_rate: float = by_preset(2e-3, Number(), help="Of the optimizer, Adam.")
    codes: Literal["auto", "learnt", "features"] = parameter(
        "learnt",
        OneOf("auto", "learnt", "features"),
        unset="auto",
        help="""What clusters are found in: codes that networks learn, or the features as they are. auto learns codes, finds
        clusters in both, of rows, and keeps those that nearest neighbours agree on more; if latent_dim or networks are given,
        codes are learnt.""",
    )
    scale: Literal["auto", "columns", "one"] = by_preset(
        "one",
        OneOf("auto", "columns", "one"),
        help="""What rows are divided by for networks to learn from: columns, each by its standard deviation; one number for
        all. auto takes columns, unless rows are all of one length, most columns have the same ends, or most numbers are 0:
        then they are in one unit already.""",
    )
    warmup: float = by_preset(0.2, SHARE, help="Share of the epochs before the first mixture, with a standard normal prior.")
    self_training: float = by_preset(
        1 / 3, SHARE, help="Share of the epochs at the end in which confident assignments are pseudo-labels."
    )
    reconstruction: Literal["mse", "nll"] = by_preset(
        "mse", OneOf("mse", "nll"), help="Squared error, or a Gaussian likelihood whose variance is learnt."
    )
    kl_weight: float | Literal["auto"] = by_preset(
        "auto",
        OneOf("auto"),
        Number(0),
        help="""Weight of the KL term beside the mean over a sample's numbers of the squared error or nll, the paper's
        kld_weight. auto calibrates it to the error of reconstruction.""",
    )
    assignment: Literal["soft", "hard"] = by_preset(
        "soft", OneOf("soft", "hard"), help="Whether the KL term weighs all components (equation 9) or takes one (equation 8)."
    )
    concentration: float = by_preset(5.0, Number(), help="Of the Dirichlet process: more of it expects more components.")
    covariance_scale: float = by_preset(
        0.1, Number(), help="Expected variance of a component, as a share of that of all codes."
    )
    covariance_type: Literal["full", "diag"] = by_preset("full", _COVARIANCES, help="Of the mixture that is left at the end.")
    n_laps: int = by_preset(5, Whole(), help="Laps of the mixture after an epoch, T in Algorithm 1.")
    max_components: int = by_preset(200, Whole(), help="Most components the mixture may have.")
    births: Literal["all", "collected", "always"] = by_preset(
        "all",
        OneOf("all", "collected", "always"),
        help="""What decides about births: the bound on all codes; that on the codes collected to plan them (section 3.3 of the
        paper); or nothing, so that merges have to undo what was not needed (its appendix).""",
    )
    min_new_atoms: float = by_preset(1.0, Number(0), help="Samples that a new component needs when it is created.")
    min_target_atoms: float = by_preset(2.0, Number(0), help="A component gives birth only if it has more samples than this.")
    min_retained_atoms: float = by_preset(
        0.0, Number(0), help="Samples that a component needs to stay, counted over all data in the lap after its birth."
    )
    deletes: bool = by_preset(True, Flag(), help="Whether components are deleted, their samples shared among others.")
    shuffles: bool = by_preset(
        True, Flag(), help="Whether components are put in order of their mass; without, they keep their positions."
    )
    augmentation: Any = parameter(
        "affine",
        OneOf("auto", *AUGMENTATIONS, None),
        Holds(callable, "a callable"),
        unset="auto",
        help="""How a sample may change and keep its class: affine turns, shears, zooms and shifts images, affine+flip mirrors
        them as well, photo mirrors them, changes their light and moves them less far, mask leaves features of rows out, series
        adds noise to windows of sensors, scales and leaves out channels, and warps time. A
        callable takes a batch as the network sees it (images: channels first, from -1 to 1) and a torch.Generator, and returns
        a batch of the same shape.""",
    )
    mask_share: float = by_preset(
        1.0,
        SHARE,
        help="""Largest share of the features that mask leaves out of a row. By default measured: as many as leave half of the
        views nearest to their own sample.""",
    )
    n_views: int = by_preset(
        4, Whole(), help="Augmented views whose assignments are averaged to decide where a sample belongs."
    )
    grouping: Literal["walk"] | None = parameter(
        "walk", OneOf("auto", "walk", None), unset="auto", help="None makes every component a cluster."
    )
    resolution: float | Literal["auto"] = by_preset(
        "auto", OneOf("auto"), Number(), help="Of the grouping; larger values give more clusters."
    )
    # set by presets alone
    buffered_codes: bool = _hidden(False, Flag())  # a mixture sees codes sampled while the encoder moved, as in the paper
    prior_covariance_type: Literal["full", "diag"] = _hidden("diag", _COVARIANCES)  # of the prior while networks learn
    final_refit: bool = _hidden(True, Flag())  # a new mixture is fitted at the end; otherwise the prior stays
    # codes that the births of a lap are planned on; with few, only births that matter are seen to pay, and K settles
    birth_rows: int | None = _hidden(None, Whole(), OneOf(None))

    @classmethod
    def from_plain(cls, document: Any) -> Self:  # noqa: D102
        if not isinstance(document, dict) or document.get("augmentation") != OWN:
            return super().from_plain(document)
        return replace(super().from_plain(document | {"augmentation": None}), augmentation=OWN)

    def for_samples(self, n_samples: int) -> DIVAConfig:
        """Fill in what depends on the number of samples."""
        if self.n_epochs is not None:
            return self
        steps_per_epoch = max(1, math.ceil(n_samples / self.batch_size))
        return replace(self, n_epochs=min(max(MIN_EPOCHS, math.ceil(MIN_STEPS / steps_per_epoch)), MAX_EPOCHS))

    def continued(self, n_epochs: int) -> DIVAConfig:
        """For networks that have learnt before: a short warm-up, and more of the epochs for pseudo-labels of what is new."""
        self_training = FURTHER_SELF_TRAINING if self.self_training > 0 else 0.0
        return replace(self, n_epochs=n_epochs, warmup=min(self.warmup, FURTHER_WARMUP), self_training=self_training)

    @property
    def schedule(self) -> Schedule:
        """Epochs of each phase."""
        if self.codes == "features":
            return Schedule(0, 0, 0)
        n = self.n_epochs or 0
        n_self_training = round(self.self_training * n) if self.grouping else 0
        n_warmup = min(max(1, round(self.warmup * n)), n - n_self_training)
        return Schedule(n_warmup, n - n_warmup - n_self_training, n_self_training)


@dataclass(frozen=True)
class Schedule:
    """How many epochs each phase has."""

    n_warmup: int
    n_coupled: int
    n_self_training: int

    @property
    def n_epochs(self) -> int:
        """All of them."""
        return self.n_warmup + self.n_coupled + self.n_self_training

    @property
    def self_training_starts(self) -> int:
        """Position of the first epoch with pseudo-labels."""
        return self.n_warmup + self.n_coupled

    def phase(self, position: int) -> Phase:
        """Phase of the epoch at a position."""
        if position < self.n_warmup:
            return "warm-up"
        return "coupled" if position < self.self_training_starts else "self-training"

    def updates_mixture(self, position: int) -> bool:
        """Whether a mixture is fitted after this epoch: from the last epoch of the warm-up on."""
        return position >= self.n_warmup - 1

    def allows_births(self, position: int) -> bool:
        """The last tenth of the coupled epochs only merges and deletes, if there are some to spare."""
        quiet = max(1, self.n_coupled // 10) if self.n_coupled > 2 else 0
        return position < self.self_training_starts - quiet

    def refreshes_pseudo_labels(self, position: int) -> bool:
        """Whether pseudo-labels are chosen before this epoch: at first, and after three fifths of the self-training."""
        rounds = {0, math.ceil(0.6 * self.n_self_training)} - {self.n_self_training}
        return position - self.self_training_starts in rounds


@dataclass(frozen=True)
class StreamParameters:
    """Going on with new data."""

    warm_start: bool = parameter(
        False,
        Flag(),
        help="""Whether fit goes on from the fit before, on data that take the place of those before: old ones and new ones
        together. Clusters and components keep their ids.""",
    )
    adapt: bool | Literal["auto"] = parameter(
        "auto",
        OneOf("auto", True, False),
        help="Whether partial_fit lets the networks learn. auto: when enough samples are novel; the mixture always goes on.",
    )
    further_epochs: int = parameter(10, Whole(), help="Passes over the data when networks go on learning.")
    replay: Literal["draws", "reservoir"] | None = parameter(
        "draws",
        OneOf("draws", "reservoir", None),
        help="""What stands in for data that are gone when networks learn in partial_fit: draws of the mixture, decoded, and a
        penalty on the drift of old codes (generative replay); a few real samples (experience replay); or nothing.""",
    )
    reservoir: int = parameter(100, Whole(), help="Real samples to keep for replay=reservoir, drawn from all that were seen.")


PRESETS: dict[str, dict[str, Any]] = {
    "images": {},
    "features": {"codes": "auto", "latent_dim": 10, "scale": "auto", "augmentation": "mask"},
    "paper": {
        "n_epochs": 500,
        "learning_rate": 1e-3,
        "early_stopping": 20,
        "hidden_sizes": (500, 500, 2000),
        "warmup": 0.0,
        "self_training": 0.0,
        "kl_weight": 1e-4,
        "buffered_codes": True,
        "covariance_type": "diag",
        "final_refit": False,
        "n_laps": 2,
        "birth_rows": 1800,
        "births": "collected",
        "deletes": False,
        "min_new_atoms": 20.0,
        "min_target_atoms": 40.0,
        "min_retained_atoms": 40.0,
        "augmentation": None,
        "grouping": None,
    },
}


# Of parameters with two values in the paper's table, which does not say what they are for, images have the first, rows have
# the second minimum atoms, more than the 20 that 100 latents could hardly be told from, and STL-10 the second learning rate.
PAPER_ROWS: dict[str, Any] = {
    "latent_dim": 100,
    "min_new_atoms": 80.0,
    "min_target_atoms": 100.0,
    "min_retained_atoms": 100.0,
}
PAPER_DATASETS: dict[str, dict[str, Any]] = {"stl10": {"learning_rate": 2.5e-5}}


@dataclass(frozen=True)
class PresetParameter:
    """Preset."""

    preset: str = parameter(
        "auto",
        OneOf("auto", *PRESETS),
        help="""Where the parameters that are None come from. auto takes images for images and features for rows of numbers;
        paper is Algorithm 1 with the paper's hyper-parameters.""",
    )


DIVA_PARAMETERS = (
    PresetParameter,
    DataParameters,
    OwnNetworks,
    DIVAConfig,
    Wishes,
    StreamParameters,
    Acceleration,
    RunParameters,
)


def resolve(model: Any, is_image: bool) -> DIVAConfig:
    """The preset of an estimator, with the parameters that were given."""
    preset = model.preset
    if preset == "auto":
        preset = "images" if is_image else "features"
    if preset == "images" and not is_image:
        raise ValueError(f'preset="{preset}" is for images, but the samples are rows. Pass image_shape, or choose "features".')
    settings = dict(PRESETS[preset])
    if preset == "paper" and not is_image:
        settings |= PAPER_ROWS
    for name, declaration in declared_in(DIVAConfig).items():
        value = getattr(model, name) if declaration.public else declaration.default
        if value is not declaration.default and value != declaration.default:
            settings[name] = OWN if name == "augmentation" and callable(value) else value
    settings = {name: plain(value) for name, value in settings.items()}  # numbers of numpy cannot be written as JSON
    if "hidden_sizes" in settings:
        settings["hidden_sizes"] = tuple(settings["hidden_sizes"])
    config = DIVAConfig(**settings)
    asks_for_codes = model.encoder is not None or model.latent_dim is not None
    if config.codes == "auto" and (is_image or asks_for_codes or not config.grouping):  # pixels mean little one by one
        config = replace(config, codes="learnt")
    if not config.final_refit:  # the prior is the mixture that is left
        config = replace(config, prior_covariance_type=config.covariance_type)
    return config


def scale_of(preset: str) -> Literal["auto", "columns", "one"]:
    """What a preset divides rows by."""
    scale: Literal["auto", "columns", "one"] = PRESETS["features" if preset == "auto" else preset].get("scale", "one")
    return scale


def check_together(model: Any) -> None:
    """Raise ValueError where parameters that make sense alone do not together."""
    if (model.warmup or 0) + (model.self_training or 0) > 1:
        shares = f"{model.warmup!r} and {model.self_training!r}"
        raise ValueError(f"warmup and self_training should add up to 1 at most, got {shares}.")
    if (model.encoder is None) != (model.decoder is None):
        raise ValueError("encoder and decoder should be given both or not at all.")
    if model.encoder is not None and model.codes == "features":
        raise ValueError('codes="features" has no networks, but encoder and decoder are given. Leave them out, or codes.')
