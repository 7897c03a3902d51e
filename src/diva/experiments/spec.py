"""What the paper's evaluation consists of: cells, each one fit of a system to data with a seed; which make which figure.

A cell is named by what it is about, and configured for a profile: `configure` gives the frozen `Job` that is run, with every
parameter in it. Experiments share cells: the t-SNE figure takes the codes of the fits that Table 1 scores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from diva.data import dataset_info
from diva.experiments.data import DATA, Availability, find_data, stand_in
from diva.models.config import PAPER_DATASETS

TRUE_K = "the number of classes"


@dataclass(frozen=True)
class Profile:
    """How much of the evaluation is run."""

    name: str
    about: str
    seeds: tuple[int, ...]
    n_train: int | None  # samples; all if None
    n_test: int | None
    stage_epochs: int  # while classes arrive; the paper's 30
    shuffle_epochs: int  # of the comparison of shuffles; the paper's 100
    checkpoint_every: int
    n_shown: int  # test samples whose codes are kept, for maps


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("smoke", "minutes: tiny networks on data that need no files; says nothing", (1,), 100, 100, 1, 2, 1, 100),
        Profile("quick", "hours: one seed, 2,000 samples, few epochs", (1,), 2_000, 2_000, 8, 20, 5, 1_000),
        Profile(
            "full", "days, or a GPU: five seeds, all data, the paper's epochs", (1, 2, 3, 4, 5), None, None, 30, 100, 1, 2_000
        ),
    )
}


@dataclass(frozen=True)
class System:
    """A method, and how it is called."""

    key: str
    title: str
    model: str  # as `diva fit --model` names it
    published: str = ""  # its name in the published tables
    n_clusters: int | str | None = None  # that it is told
    params: dict[str, Any] = field(default_factory=dict)
    n_epochs: tuple[int | None, int | None] = (None, None)  # smoke, quick; its own number in the full profile
    tiny: dict[str, Any] = field(default_factory=dict)  # parameters of the smoke profile
    is_deep: bool = True
    as_rows: bool = False  # images come as rows of numbers


_SMALL = {"hidden_sizes": (32,), "latent_dim": 4}
_FEW = {"min_new_atoms": 1.0, "min_target_atoms": 2.0, "min_retained_atoms": 0.0}
_DIVA: dict[str, Any] = {"model": "diva", "n_epochs": (2, 20), "tiny": _FEW}
_GMVAE: dict[str, Any] = {"model": "gmvae", "n_epochs": (2, 30), "tiny": {**_SMALL, "prior_size": 16, "style_dim": 4}}

SYSTEMS = {
    system.key: system
    for system in (
        System("gmm", "GMM", "gmm", "GMM", TRUE_K, is_deep=False),
        System("dec", "DEC", "dec", "DEC", TRUE_K, n_epochs=(4, 40), tiny=_SMALL),
        System("gmvae", "GMVAE", published="GMVAE", n_clusters=TRUE_K, **_GMVAE),
        System("dpmm", "DPMM, memoized VB", "dpmm", "DPMM+memoVB", is_deep=False),
        System("vsbdvm", "VSB-DVM, told K", "vsbdvm", "VSB-DVM", TRUE_K, n_epochs=(2, 20), tiny={**_SMALL, "stick_size": 16}),
        System("vsbdvm50", "VSB-DVM, K up to 50", "vsbdvm", "VSB-DVM", 50, n_epochs=(2, 20), tiny={**_SMALL, "stick_size": 16}),
        System("ddpm", "DDPM", "ddpm", "DDPM", n_epochs=(4, 40), tiny={**_SMALL, "n_couplings": 2, "n_hidden": 8}),
        System("deepdpm", "DeepDPM", "deepdpm", "DeepDPM", n_epochs=(4, 60), tiny={**_SMALL, "n_hidden": 8, "move_every": 1}),
        System("diva", 'DIVA, preset="paper"', published="DIVA", params={"preset": "paper"}, **_DIVA),
        System("diva_default", "DIVA, default of this package", "diva", n_epochs=(2, 20)),
        System("sbvae", "SB-VAE", "sbvae", n_epochs=(2, 40), tiny=_SMALL),
        System("diva_unshuffled", "DIVA without shuffles", params={"preset": "paper", "shuffles": False}, **_DIVA),
        System(
            "deepdpm_codes",
            "DeepDPM on given codes",
            "deepdpm",
            params={"features": "given", "pca": 10},
            n_epochs=(4, 60),
            tiny={"n_hidden": 8, "move_every": 1},
            as_rows=True,
        ),
        *(System(f"gmm{k}", f"GMM, K = {k}", "gmm", f"GMM K={k}", k, is_deep=False) for k in (3, 5, 10)),
        *(System(f"gmvae{k}", f"GMVAE, K = {k}", published=f"GMVAE K={k}", n_clusters=k, **_GMVAE) for k in (3, 5, 10)),
    )
}
TOLD = {"gmm": "n_clusters", "dec": "n_clusters", "gmvae": "n_clusters", "vsbdvm": "max_clusters"}


@dataclass(frozen=True)
class Cell:
    """One fit, or a fit that goes on as classes arrive."""

    data: str
    system: str
    seed: int
    stages: tuple[int, ...] = ()  # classes present at each stage, the first so many; all of them at once if there is none
    curve: str = ""  # "", "stages" or "shuffle": which number of epochs, each of which is scored


@dataclass(frozen=True)
class Job:
    """A cell with all its parameters: what is run, and what a row says was run."""

    cell: Cell
    profile: str
    source: str  # the data set that is loaded
    substitute: str  # what it is, if not what was published
    n_train: int | None
    n_test: int | None
    n_shown: int
    model: str
    params: dict[str, Any]
    as_rows: bool
    stage_epochs: int | None  # of a cell with a curve
    checkpoint_every: int

    @property
    def name(self) -> str:
        """Of its folder: what it is about, and a mark of all its parameters."""
        cell = self.cell
        stages = "-".join(map(str, cell.stages)) or "all"
        mark = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:8]
        return f"{cell.data}.{cell.system}.{stages}.{cell.curve or 'static'}.seed{cell.seed}.{mark}"


def configure(cell: Cell, profile: Profile) -> Job | None:
    """What is run for a cell; None if its data are not here."""
    found = available(cell.data, profile)
    if found.name is None:
        return None
    return Job(
        cell=cell,
        profile=profile.name,
        source=found.name,
        substitute=found.substitute,
        n_train=profile.n_train,
        n_test=profile.n_test,
        n_shown=profile.n_shown,
        model=SYSTEMS[cell.system].model,
        params=parameters_of(cell, profile, found.name),
        as_rows=SYSTEMS[cell.system].as_rows,
        stage_epochs=epochs_of(cell, profile) if cell.curve else None,
        checkpoint_every=profile.checkpoint_every,
    )


def available(data: str, profile: Profile) -> Availability:
    """What is loaded for a data set of the paper."""
    return stand_in(DATA[data]) if profile.name == "smoke" else find_data(DATA[data])


def parameters_of(cell: Cell, profile: Profile, source: str) -> dict[str, Any]:
    """Parameters of the model of a cell, but for the seed and the folder."""
    data, system = DATA[cell.data], SYSTEMS[cell.system]
    params = dict(system.params)
    if system.n_clusters is not None:
        params[TOLD[system.model]] = data.n_classes if system.n_clusters == TRUE_K else system.n_clusters
    if system.model in ("gmvae", "sbvae"):  # the paper gives them the size of DIVA's codes
        params["latent_dim"] = 16 if data.is_image else 100
    if system.params.get("preset") == "paper":
        params |= PAPER_DATASETS.get(source, {})
    if cell.system == "diva_default":  # as `diva fit` calls it on data by name
        params |= dataset_info(source).parameters
    if profile.name == "smoke":
        params |= system.tiny
    n_epochs = {"smoke": system.n_epochs[0], "quick": system.n_epochs[1]}.get(profile.name)
    if cell.curve and system.is_deep:
        n_epochs = epochs_of(cell, profile)
        params["warm_start"] = True
        if system.model == "diva":  # a curve has all its epochs
            params |= {"further_epochs": n_epochs, "early_stopping": n_epochs}
    if n_epochs is not None:
        params["n_epochs"] = n_epochs
    return params


def epochs_of(cell: Cell, profile: Profile) -> int:
    """Epochs of each stage of a cell with a curve; one without stages has as many as four stages."""
    if cell.curve == "shuffle":
        return profile.shuffle_epochs
    return profile.stage_epochs if len(cell.stages) > 1 else len(GROWING) * profile.stage_epochs


# --- which cells make which table or figure

GROWING = (3, 5, 7, 10)  # classes, as they arrive
TABLE1_DATA = ("mnist", "fashion_mnist", "reuters10k", "hhar", "stl10", "imagenet50")
TABLE1_SYSTEMS = ("gmm", "dec", "gmvae", "dpmm", "vsbdvm", "vsbdvm50", "ddpm", "deepdpm", "diva", "diva_default")
INCREMENTAL_DATA = ("mnist", "fashion_mnist", "stl10")
INCREMENTAL_SYSTEMS = ("diva", "dpmm", "gmvae10", "gmvae5", "gmvae3", "gmm10", "gmm5", "gmm3")
DYNAMIC_SYSTEMS = ("diva", "gmvae10", "gmvae5", "gmvae3", "dpmm", "vsbdvm50", "deepdpm_codes")
TSNE_SYSTEMS = ("diva", "sbvae", "vsbdvm", "deepdpm", "gmvae", "gmvae5", "gmvae3")
GENERATE_DATA = ("mnist", "fashion_mnist", "cifar10", "svhn")
STATIC_MOVES = (3, 5, 10)
TRACE = (2, 3)


def _table1(profile: Profile) -> Iterable[Cell]:
    for seed in profile.seeds:
        for data in TABLE1_DATA:
            yield from (Cell(data, system, seed) for system in TABLE1_SYSTEMS)


def _incremental(profile: Profile) -> Iterable[Cell]:
    for seed in profile.seeds:
        for data in INCREMENTAL_DATA:
            for n in GROWING:
                yield from (incremental_cell(data, system, n, seed) for system in INCREMENTAL_SYSTEMS)


def incremental_cell(data: str, system: str, n_classes: int, seed: int) -> Cell:
    """A static fit to the first classes; that to all of them is a cell of Table 1 where that has it."""
    is_all = n_classes == DATA[data].n_classes
    same = {"gmvae10": "gmvae", "gmm10": "gmm"}.get(system, system) if is_all else system
    return Cell(data, same, seed, () if is_all else (n_classes,))


def _dynamic(profile: Profile) -> Iterable[Cell]:
    return (Cell("mnist", system, seed, GROWING, "stages") for seed in profile.seeds for system in DYNAMIC_SYSTEMS)


def _tsne(profile: Profile) -> Iterable[Cell]:
    return (Cell("mnist", system, profile.seeds[0]) for system in TSNE_SYSTEMS)


def _generate(profile: Profile) -> Iterable[Cell]:
    return (Cell(data, "diva", profile.seeds[0]) for data in GENERATE_DATA)


def _moves(profile: Profile) -> Iterable[Cell]:
    for seed in profile.seeds:
        yield from (Cell("mnist", "diva", seed, (n,), "stages") for n in STATIC_MOVES)
        yield Cell("mnist", "diva", seed, GROWING, "stages")


def _trace(profile: Profile) -> Iterable[Cell]:
    return [Cell("mnist", "diva", profile.seeds[0], TRACE, "stages")]


def _shuffle(profile: Profile) -> Iterable[Cell]:
    systems = ("diva", "diva_unshuffled")
    return (Cell("mnist", system, seed, (), "shuffle") for seed in profile.seeds for system in systems)


def _no_cells(profile: Profile) -> Iterable[Cell]:  # noqa: ARG001  # asked of every experiment
    return ()


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper."""

    key: str
    title: str
    where: str  # in the paper
    cells: Callable[[Profile], Iterable[Cell]]


EXPERIMENTS = {
    experiment.key: experiment
    for experiment in (
        Experiment("table1", "Accuracy on six data sets, eight systems", "Table 1, supplementary tables 2 and 3", _table1),
        Experiment(
            "incremental", "Accuracy with 3, 5, 7 and 10 classes", "Figure 5, supplementary tables 4 to 6", _incremental
        ),
        Experiment("dynamic", "Accuracy and K while classes arrive", "Figure 6, supplementary figure 4", _dynamic),
        Experiment("tsne", "Codes of MNIST, as t-SNE shows them", "Figure 4", _tsne),
        Experiment("generate", "Draws of components", "Figure 7, supplementary figures 6 to 8", _generate),
        Experiment("moves", "Births and merges over the epochs", "supplementary figure 5", _moves),
        Experiment("trace", "Components by their ids, as a class arrives", "supplementary figure 9", _trace),
        Experiment("shuffle", "Accuracy with and without shuffles", "supplementary figure 10", _shuffle),
        Experiment("dp-draw", "A draw of a Dirichlet process", "Figure 1b", _no_cells),
    )
}


def cells_of(names: Iterable[str], profile: Profile) -> list[Cell]:
    """Cells of experiments, each once, those of the first experiment first."""
    return list(dict.fromkeys(cell for name in names for cell in EXPERIMENTS[name].cells(profile)))
