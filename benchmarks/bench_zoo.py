"""Many clustering problems, and what a user would try on them: one cell for every data set, method and seed.

``python -m benchmarks zoo`` runs the cells that ``results/zoo.jsonl`` does not have yet and adds a line for each, so that it
may be interrupted at any time; ``zoo_large`` does the same for larger data, and ``zoo_page`` writes docs/zoo.md from the lines.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.preprocessing import StandardScaler

import diva
from benchmarks.datasets import load
from benchmarks.recording import RESULTS, Row, circumstances
from benchmarks.worker import Outcome, Worker
from diva import DIVA, DPMixture
from diva.atomic import write_atomically
from diva.data import list_datasets
from diva.data.datasets.load import cache_folder, data_folders
from diva.exceptions import DatasetNotFoundError
from diva.metrics import Agreement

ROWS = RESULTS / "zoo.jsonl"
FILE = Path("zoo") / "zoo.npz"  # below $DIVA_DATA
LARGER = ("digits", "reuters1200", "imagenet50", "reuters_r8", "reuters_r52", "har", "reuters10k", "mnist", "fashion_mnist")
MOST_SAMPLES = 10_000  # of the larger data
LIMIT = 300.0  # seconds of a cell
N_SEEDS = 3
NOISE = -1  # the label of points that a method leaves out
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "LOKY_MAX_CPU_COUNT"), "1"
)


# --- data


@dataclass(frozen=True, eq=False)
class Problem:
    """Samples, and the classes that they are scored by."""

    x: NDArray[Any]
    y: NDArray[Any]

    @property
    def rows(self) -> NDArray[np.float64]:
        """Samples as rows of numbers."""
        return self.x.reshape(len(self.x), -1).astype(np.float64)

    @property
    def n_classes(self) -> int:
        return len(np.unique(self.y))


def group_of(name: str) -> str:
    """The kind of a data set: "shapes", "tables" or "larger"."""
    return {"shape": "shapes", "table": "tables"}.get(name.split("-")[0], "larger")


def zoo_file() -> Path:
    """Where the zoo is; raises DatasetNotFoundError if it is nowhere."""
    for folder in data_folders():
        if (folder / FILE).is_file():
            return folder / FILE
    own = os.environ.get("DIVA_DATA")
    known = f"DIVA_DATA is {own}, which has no {FILE}" if own else "DIVA_DATA is not set"
    raise DatasetNotFoundError(f"The zoo is not here: {known}. Set DIVA_DATA to the folder that holds {FILE}.")


def zoo_names() -> list[str]:
    """The data sets of the zoo."""
    with np.load(zoo_file()) as arrays:
        return sorted(name.removesuffix(".X") for name in arrays.files if name.endswith(".X"))


def larger_names() -> list[str]:
    """The larger data sets that are here."""
    here = {status.name for status in list_datasets() if status.is_here}
    for name in LARGER:
        if name not in here:
            print(f"{name} is left out: it is not below DIVA_DATA")
    return [name for name in LARGER if name in here]


@lru_cache(maxsize=1)
def load_problem(name: str) -> Problem:
    """A data set as every method gets it: tables standardized, all others as they are."""
    if group_of(name) == "larger":
        data = load(name).first(MOST_SAMPLES)
        return Problem(data.x, data.y)
    with np.load(zoo_file()) as arrays:
        x, y = arrays[f"{name}.X"].astype(np.float64), arrays[f"{name}.y"]
    return Problem(StandardScaler().fit_transform(x) if group_of(name) == "tables" else x, y)


# --- methods


@dataclass(frozen=True)
class Method:
    """A way to cluster; ``labels`` takes a problem and a seed."""

    title: str
    labels: Callable[[Problem, int], NDArray[Any]]
    package: str = "scikit-learn"
    needs: str = ""  # module that may be missing; it is one that compiles when first called
    is_random: bool = True
    is_slow: bool = False  # only where asked for

    @property
    def is_here(self) -> bool:
        return not self.needs or importlib.util.find_spec(self.needs) is not None

    @property
    def version(self) -> str:
        return f"{self.package} {diva.__version__ if self.package == 'diva' else version(self.package)}"


def dpmixture(problem: Problem, seed: int) -> NDArray[Any]:
    return DPMixture(random_state=seed).fit(problem.rows).labels_


def deep(problem: Problem, seed: int) -> NDArray[Any]:
    return DIVA(random_state=seed).fit(problem.x).labels_


def hdbscan(problem: Problem, seed: int) -> NDArray[Any]:  # noqa: ARG001  (deterministic)
    return HDBSCAN(copy=True).fit_predict(problem.rows)


def hdbscan_by_size(problem: Problem, seed: int) -> NDArray[Any]:  # noqa: ARG001  (deterministic)
    return HDBSCAN(min_cluster_size=one_percent(problem), copy=True).fit_predict(problem.rows)


def one_percent(problem: Problem) -> int:
    """Samples of the smallest cluster that HDBSCAN may find: a hundredth of all, but no fewer than its default."""
    return max(5, len(problem.x) // 100)


def bayesian(problem: Problem, seed: int) -> NDArray[Any]:
    return BayesianGaussianMixture(n_components=30, random_state=seed).fit_predict(problem.rows)


def kmeans(problem: Problem, seed: int) -> NDArray[Any]:
    return KMeans(problem.n_classes, n_init=10, random_state=seed).fit_predict(problem.rows)


def gaussians(problem: Problem, seed: int) -> NDArray[Any]:
    return GaussianMixture(n_components=problem.n_classes, random_state=seed).fit_predict(problem.rows)


def umap_hdbscan(problem: Problem, seed: int) -> NDArray[Any]:
    from umap import UMAP

    x = problem.rows
    reduced = UMAP(n_components=min(10, x.shape[1]), n_neighbors=20, min_dist=0.0, random_state=seed).fit_transform(x)
    return HDBSCAN(min_cluster_size=one_percent(problem), copy=True).fit_predict(reduced)


def evoc(problem: Problem, seed: int) -> NDArray[Any]:
    from evoc import EVoC

    x = problem.rows.astype(np.float32)
    n_dimensions = min(x.shape[1], 15) if x.shape[1] < 4 else None  # by default 4, more than there are
    return EVoC(node_embedding_dim=n_dimensions, random_state=seed).fit_predict(x)


METHODS = {
    "DPMixture": Method("DPMixture()", dpmixture, "diva"),
    "HDBSCAN": Method("HDBSCAN()", hdbscan, is_random=False),
    "HDBSCAN-1pc": Method("HDBSCAN(min_cluster_size=n/100)", hdbscan_by_size, is_random=False),
    "BGM": Method("BayesianGaussianMixture(30)", bayesian),
    "k-means": Method("k-means, true K", kmeans),
    "GMM": Method("Gaussian mixture, true K", gaussians),
    "UMAP": Method("UMAP + HDBSCAN(min_cluster_size=n/100)", umap_hdbscan, "umap-learn", "umap"),
    "EVoC": Method("EVoC()", evoc, "evoc", "evoc"),
    "DIVA": Method("DIVA()", deep, "diva", is_slow=True),
}
USUAL = tuple(key for key, method in METHODS.items() if not method.is_slow)


# --- cells


class Cell(NamedTuple):
    """What a line of the results is about."""

    data: str
    method: str
    seed: int


def cells_of(names: Iterable[str], methods: Iterable[str], n_seeds: int = N_SEEDS) -> list[Cell]:
    """All cells, data set by data set; methods that do not draw random numbers have one seed."""
    seeds = [(key, seed) for key in methods for seed in range(n_seeds if METHODS[key].is_random else 1)]
    return [Cell(name, key, seed) for name in names for key, seed in seeds]


def prepare(cell: Cell) -> Callable[[], NDArray[Any]]:
    """What is timed of a cell: the data are loaded and the method is compiled before."""
    warnings.simplefilter("ignore")  # a fit may not have converged
    problem = load_problem(cell.data)
    warm_up(cell.method)
    return partial(METHODS[cell.method].labels, problem, cell.seed)


@cache
def warm_up(key: str) -> None:
    """Compile a method: by few samples and by more, since umap looks for neighbours in another way from 4,096 on."""
    if not METHODS[key].needs:
        return
    for n in (500, 4500):
        x = np.random.default_rng(0).normal(size=(n, 5))
        METHODS[key].labels(Problem(x, np.zeros(n)), 0)


def row_of(cell: Cell, problem: Problem, outcome: Outcome) -> Row:
    """The line of a cell; one without scores says what the trouble was."""
    n, d = problem.x.shape[0], int(np.prod(problem.x.shape[1:]))
    known = {"n": n, "columns": d, "true K": problem.n_classes, "seconds": round(outcome.seconds, 3)}
    scores = {"trouble": outcome.trouble} if outcome.trouble else scores_of(problem.y, outcome.result)
    facts = {name: value for name, value in circumstances().items() if name in ("commit", "date", "processor")}
    return {**cell._asdict(), **scores, **known, "version": METHODS[cell.method].version, **facts}


def scores_of(classes: NDArray[Any], labels: NDArray[Any]) -> Row:
    """Scores in which points labelled -1 are one more cluster; they are not counted in K."""
    agreement = Agreement(classes, labels)
    found = {"ARI": agreement.ari, "one-to-one accuracy": agreement.acc_one_to_one, "NMI": agreement.nmi}
    is_noise = labels == NOISE
    rounded = {name: round(value, 4) for name, value in found.items()}
    return {**rounded, "K": agreement.n_clusters - int(is_noise.any()), "noise": round(float(is_noise.mean()), 4)}


# --- lines on disk


def read_rows(path: Path = ROWS) -> dict[Cell, Row]:
    """Recorded rows, the last of each cell; a line that was cut short is not one."""
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        rows[Cell(row["data"], row["method"], row["seed"])] = row
    return rows


def add_row(row: Row, path: Path = ROWS) -> None:
    """Add a line, after the end of one that was cut short."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a+b") as file:
        file.seek(max(0, file.tell() - 1))
        is_cut = file.read() not in (b"", b"\n")
        file.write((is_cut * "\n" + json.dumps(row) + "\n").encode())


def forget(names: Collection[str], methods: Collection[str], path: Path = ROWS) -> None:
    """Drop the rows of these methods on these data, so that they are run again."""
    rows = read_rows(path)
    kept = [row for cell, row in rows.items() if cell.data not in names or cell.method not in methods]
    if len(kept) < len(rows):
        write_atomically(path, "".join(json.dumps(row) + "\n" for row in kept).encode())


def labels_file(data: str, method: str) -> Path:
    """Where the labels of seed 0 are kept, for pictures: below diva's cache."""
    return cache_folder() / "zoo" / f"{data}.{method}.npz"


def keep_labels(cell: Cell, labels: NDArray[Any]) -> None:
    path = labels_file(cell.data, cell.method)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, labels=labels.astype(np.int16))


# --- runs


@dataclass(frozen=True)
class Choice:
    """Which cells to run; None stands for all data sets, or for all methods that are not slow."""

    only: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    again: Sequence[str] = ()
    n_seeds: int = N_SEEDS
    limit: float = LIMIT

    def method_keys(self) -> list[str]:
        """Methods to run; those that are not installed are left out, with a note."""
        asked = dict.fromkeys((*(USUAL if self.methods is None else self.methods), *self.again))
        for key in asked:
            if not METHODS[key].is_here:
                print(f'{key} is left out: {METHODS[key].package} is not installed (pip install -e ".[bench]")')
        return [key for key in asked if METHODS[key].is_here]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the zoo on the command line."""
    group = parser.add_argument_group("zoo, zoo_large")
    keys = ", ".join(METHODS)
    group.add_argument("--only", type=_names, metavar="NAME,...", help="data sets, all by default")
    group.add_argument("--methods", type=_methods, metavar="A,...", help=f"of {keys}, or all; by default all but DIVA")
    group.add_argument("--again", type=_methods, default=[], metavar="A,...", help="methods whose results are to be replaced")
    group.add_argument("--seeds", type=int, default=N_SEEDS, help="of methods that draw random numbers, %(default)s by default")
    group.add_argument("--limit", type=float, default=LIMIT, help="seconds of a fit, %(default)g by default")


def choice_of(options: argparse.Namespace) -> Choice:
    return Choice(options.only, options.methods, options.again, options.seeds, options.limit)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _methods(text: str) -> list[str]:
    keys = list(METHODS) if text == "all" else _names(text)
    if unknown := [key for key in keys if key not in METHODS]:
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; choose from {', '.join(METHODS)}, or all")
    return keys


def run(names_of: Callable[[], list[str]], choice: Choice | None = None) -> None:
    """Run the cells of a group of data sets that have not been run."""
    choice = choice or Choice()
    try:
        names = names_of()
    except DatasetNotFoundError as error:
        raise SystemExit(str(error)) from error
    if unknown := set(choice.only or ()) - {*names, *zoo_names(), *LARGER}:
        raise SystemExit(f"Unknown data set {', '.join(sorted(unknown))}; choose from {', '.join(names)}.")
    chosen = [name for name in names if choice.only is None or name in choice.only]
    forget(chosen, choice.again)
    with Worker(prepare, choice.limit, ONE_THREAD) as worker:
        run_cells(cells_of(chosen, choice.method_keys(), choice.n_seeds), worker)


def run_cells(cells: Sequence[Cell], worker: Worker, path: Path = ROWS) -> None:
    """Run the cells that have no row yet, and add a row for each as soon as it is known."""
    done = read_rows(path)
    missing = [cell for cell in cells if cell not in done]
    print(f"{len(cells)} cells, {len(cells) - len(missing)} of them recorded before")
    for i, cell in enumerate(missing, start=1):
        problem = load_problem(cell.data)
        outcome = worker.run(cell)
        row = row_of(cell, problem, outcome)
        if not outcome.trouble and cell.seed == 0 and row["columns"] == 2:
            keep_labels(cell, outcome.result)
        add_row(row, path)
        print(f"[{i}/{len(missing)}] {line_of(row)}", flush=True)


def line_of(row: Row) -> str:
    """A row for the terminal."""
    head = f"{row['data']}, {row['method']}, seed {row['seed']}, {row['seconds']:.1f} s"
    if "trouble" in row:
        return f"{head}: {row['trouble']}"
    said = ", ".join(f"{name} {row[name]:.3f}" for name in ("ARI", "one-to-one accuracy", "NMI"))
    return f"{head}: {said}, K {row['K']} of {row['true K']}"


BENCHMARKS = {"zoo": partial(run, zoo_names), "zoo_large": partial(run, larger_names)}
