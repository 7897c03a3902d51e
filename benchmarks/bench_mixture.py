"""What DPMixture promises on any numbers: noise, many close Gaussians, embeddings, any seed; and what each part of it gives."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.spatial import cKDTree
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture

from benchmarks.bench_zoo import load_problem, zoo_names
from benchmarks.datasets import load
from benchmarks.recording import Row, record
from diva import DPMixture
from diva.data.datasets.load import data_folders
from diva.metrics import Agreement
from diva.mixture import agglomeration, search
from diva.partition import valleys

Data = tuple[NDArray[Any], NDArray[Any]]
N_DRAWS = 20


NOISE: dict[str, Callable[[np.random.Generator], NDArray[Any]]] = {
    "normal, 1,000 x 5": lambda rng: rng.normal(size=(1000, 5)),
    "normal, 50 x 500": lambda rng: rng.normal(size=(50, 500)),
    "uniform, 1,000 x 2": lambda rng: rng.uniform(size=(1000, 2)),
}


def clusters_in_noise(fit: Callable[[int, NDArray[Any]], int]) -> list[Row]:
    """How often one cluster is found where there is none, by what ``fit`` of a seed and some rows says."""
    rows: list[Row] = []
    for name, draw in NOISE.items():
        found = [fit(seed, draw(np.random.default_rng(seed))) for seed in range(N_DRAWS)]
        rows.append({"data": name, "draws": N_DRAWS, "one cluster": found.count(1), "clusters": str(sorted(found))})
        print(rows[-1], flush=True)
    return rows


def noise() -> None:
    """Data without clusters, and four blobs beside one row that is far away."""
    rows = clusters_in_noise(lambda seed, X: DPMixture(random_state=seed).fit(X).n_clusters_)
    right = 0
    for seed in range(N_DRAWS):
        rng = np.random.default_rng(seed)
        centres = np.array([[0, 0], [3, 0], [0, 3], [3, 3]])
        X = np.concatenate([centres.repeat(100, axis=0) + 0.3 * rng.normal(size=(400, 2)), [[3e3, 3e3]]])
        labels = DPMixture(random_state=seed).fit(X).labels_[:-1]
        right += adjusted_rand_score(np.arange(4).repeat(100), labels) > 0.99
    rows.append({"data": "four blobs, one row at 10^4", "draws": N_DRAWS, "one cluster": "", "clusters": f"right: {right}"})
    record("mixture_noise", f"Clusters that DPMixture() finds in noise, {N_DRAWS} draws each", rows)


def many_gaussians(n: int = 100_000, seeds: int = 3) -> None:
    """100 Gaussians on a grid of unit distance, as close as they can be told apart."""
    centres = np.column_stack(np.divmod(np.arange(100), 10)).astype(float)
    rows: list[Row] = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        truth = rng.integers(100, size=n)
        X = centres[truth] + 0.225 * rng.normal(size=(n, 2))
        best = adjusted_rand_score(truth, cKDTree(centres).query(X)[1])
        start = time.perf_counter()
        model = DPMixture(random_state=seed).fit(X)
        seconds = time.perf_counter() - start
        rows.append(
            {
                "seed": seed,
                "components": model.n_components_,
                "ARI of components": adjusted_rand_score(truth, model.component_labels_),
                "clusters": model.n_clusters_,
                "ARI of clusters": adjusted_rand_score(truth, model.labels_),
                "ARI of the true centres": best,
                "seconds": seconds,
            }
        )
        print(rows[-1], flush=True)
    title = f"100 Gaussians on a 10 x 10 grid of unit distance, standard deviation .225, n = {n:,}, DPMixture()"
    record("mixture_grid", title, rows)


def _umap_codes(name: str) -> Data:
    """Ten numbers for each sample, as umap-learn makes them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from umap import UMAP  # the extra `bench`

        X, y = _reuters10k() if name == "reuters10k" else _rows(name)
        metric = "cosine" if name == "reuters10k" else "euclidean"
        codes = UMAP(n_components=10, n_neighbors=20, min_dist=0.0, metric=metric, random_state=0).fit_transform(X)
    return np.asarray(codes), y


def _rows(name: str) -> Data:
    """The first 10,000 samples of a data set, flat; all of a smaller one."""
    data = load(name)
    x = data.x if name == "har" else data.x[:10_000]
    return x.reshape(len(x), -1).astype(np.float32), data.y[: len(x)]


def _file(*names: str) -> Any:
    """An archive that no data set by name reads, in one of the folders where data are looked for."""
    for folder in data_folders():
        if (path := folder.joinpath(*names)).exists():
            return np.load(path)
    raise SystemExit(f"{'/'.join(names)} is in none of {', '.join(map(str, data_folders()))}. Set DIVA_DATA to its folder.")


def _reuters10k() -> tuple[Any, NDArray[Any]]:
    with _file("reuters10k_redrawn", "reuters10k_rcv1.npz") as file:
        parts = file["data"].astype(np.float32), file["indices"].astype(np.int32), file["indptr"]
        return csr_matrix(parts, tuple(file["shape"])), file["y"]


def _imagenette() -> Data:
    with _file("imagenette_lite0", "imagenette_lite0.npz") as file:
        X = file["X"].astype(np.float32)
        return X / np.linalg.norm(X, axis=1, keepdims=True), file["y"]


def _topics(n: int, n_features: int, n_topics: int) -> Data:
    """Unit vectors around as many directions as there are topics."""
    rng = np.random.default_rng(0)
    centres, truth = rng.normal(size=(n_topics, n_features)), rng.integers(n_topics, size=n)
    X = centres[truth] / np.sqrt(n_features) + rng.normal(size=(n, n_features)) / np.sqrt(n_features)
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), truth


def embeddings() -> None:
    """Wide unit vectors: time and agreement."""
    rows: list[Row] = []
    torch.set_num_threads(2)
    for n, n_features, n_topics in ((20_000, 384, 30), (100_000, 768, 50), (100_000, 128, 79)):
        X, truth = _topics(n, n_features, n_topics)
        start = time.perf_counter()
        model = DPMixture(random_state=0).fit(X)
        rows.append(
            {
                "data": f"{n:,} x {n_features}, {n_topics} topics",
                "ARI": adjusted_rand_score(truth, model.labels_),
                "K": model.n_clusters_,
                "axes": model.mixture_.standardization.n_coordinates,
                "seconds": time.perf_counter() - start,
            }
        )
        print(rows[-1], flush=True)
    record("mixture_embeddings", "Unit vectors of simulated topics, DPMixture(), two threads", rows)


def codes() -> None:
    """Codes of UMAP, and features of a network, beside HDBSCAN and scikit-learn's Dirichlet process mixture."""
    rows: list[Row] = []
    for name, X, truth in _codes():
        n_true = len(np.unique(truth))
        scaled = PCA(50, random_state=0).fit_transform(X) if X.shape[1] > 50 else X
        methods: dict[str, Callable[[int], NDArray[Any]]] = {
            "DPMixture": lambda seed, X=X: DPMixture(random_state=seed).fit(X).labels_,
            "HDBSCAN": lambda _, X=scaled: HDBSCAN().fit_predict(X),
            "HDBSCAN, n/100": lambda _, X=scaled: HDBSCAN(min_cluster_size=len(X) // 100).fit_predict(X),
            "BayesianGaussianMixture(30)": lambda seed, X=scaled: BayesianGaussianMixture(
                n_components=30, max_iter=300, random_state=seed
            ).fit_predict(X),
            "k-means, true K": lambda seed, X=scaled, k=n_true: KMeans(k, n_init=10, random_state=seed).fit_predict(X),
        }
        for method, cluster in methods.items():
            for seed in range(1 if method.startswith("HDBSCAN") else 3):
                start = time.perf_counter()
                agreement = Agreement(truth, cluster(seed))
                scores = {"one-to-one accuracy": agreement.acc_one_to_one, "ARI": agreement.ari, "NMI": agreement.nmi}
                seconds = time.perf_counter() - start
                rows.append(
                    {"data": name, "method": method, "seed": seed, **scores, "K": agreement.n_clusters, "seconds": seconds}
                )
                print(rows[-1], flush=True)
    record("mixture_codes", "Codes of UMAP (10 numbers) and features of Imagenette, clustered without labels", rows)


def _codes() -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    yield "Imagenette features", *_imagenette()
    for name in ("har", "reuters10k", "fashion_mnist"):
        yield f"UMAP of {name}", *_umap_codes(name)


def restarts(n_seeds: int = 10) -> None:
    """The bound that a fit reaches, by seed."""
    rng = np.random.default_rng(0)
    truth = rng.integers(100, size=20_000)
    grid = np.column_stack(np.divmod(truth, 10)) + 0.225 * rng.normal(size=(20_000, 2))
    rows: list[Row] = []
    for name, X in {
        "grid of 100 Gaussians, n = 20,000": grid,
        "UMAP of fashion_mnist": _umap_codes("fashion_mnist")[0],
    }.items():
        bounds = np.array([DPMixture(random_state=seed).fit(X).elbo_ / len(X) for seed in range(n_seeds)])
        rows.append(
            {
                "data": name,
                "best": bounds.max(),
                "median below best": np.median(bounds.max() - bounds),
                "worst below best": np.ptp(bounds),
            }
        )
        print(rows[-1], flush=True)
    record("mixture_restarts", f"Evidence lower bound per sample over {n_seeds} seeds, DPMixture()", rows)


Change = tuple[ModuleType | type, str, Any]  # a constant, or what is computed, and what stands in its place
FIT_CHANGES: dict[str, tuple[dict[str, Any], Change | None]] = {
    "as it is": ({}, None),
    "covariance_type='full'": ({"covariance_type": "full"}, None),
    "covariance_type='diag'": ({"covariance_type": "diag"}, None),
    "covariance_scale=0.1: the prior is not learnt": ({"covariance_scale": 0.1}, None),
    "n_init=1 (2)": ({"n_init": 1}, None),
    "n_init=4 (2)": ({"n_init": 4}, None),
    "n_init=0: births from one component": ({"n_init": 0}, None),
    "the prior learnt anew at 0.8 of the components (0.9)": ({}, (agglomeration, "ADAPT_BELOW", 0.8)),
    "least scale 0.001 (0.01)": ({}, (search, "LEAST_SCALE", 0.001)),
    "least scale 0.1 (0.01)": ({}, (search, "LEAST_SCALE", 0.1)),
}
GROUPING_CHANGES: dict[str, Change] = {
    "12 bins between two means (24)": (valleys, "N_BINS", 12),
    "48 bins between two means (24)": (valleys, "N_BINS", 48),
    "optimism 0 nats (1)": (valleys, "OPTIMISM", 0.0),
    "optimism 2 nats (1)": (valleys, "OPTIMISM", 2.0),
    "thinner by half a nat (sqrt(D / 2))": (valleys.Components, "log_density_spread", 0.5),
    "thinner by 2 nats (sqrt(D / 2))": (valleys.Components, "log_density_spread", 2.0),
    "never thinner": (valleys.Components, "log_density_spread", np.inf),
    "thinner is evidence of a nat (0)": (valleys, "EVEN", 1.0),
    "tails are not looked for": (valleys, "evidence_against_tails", lambda *_: np.inf),
    "what overlaps counts as well as what does not": (valleys, "unclear", lambda *_: 0.0),
}


def zoo_data(name: str) -> Data:
    """Rows and labels of one set."""
    problem = load_problem(name)
    return problem.rows, problem.y


def ablation(largest: int = 1600) -> None:
    """Mean adjusted Rand index over the sets of the zoo with few samples, one thing changed at a time; one seed."""
    names = [name for name in zoo_names() if len(zoo_data(name)[1]) <= largest]
    rows: list[Row] = []
    for what, (params, change) in FIT_CHANGES.items():
        with _changed(change):
            models = {name: DPMixture(random_state=0, **params).fit(zoo_data(name)[0]) for name in names}
        labels = {name: model.labels_ for name, model in models.items()}
        rows.append(_ablation_row(what, labels))
        if what == "as it is":
            rows.append(_ablation_row("grouping=None", {name: model.component_labels_ for name, model in models.items()}))
            for of_grouping, constant in GROUPING_CHANGES.items():
                with _changed(constant):
                    labels = {name: _regrouped(model, zoo_data(name)[0]) for name, model in models.items()}
                rows.append(_ablation_row(of_grouping, labels))
        record("mixture_ablation", f"DPMixture() on {len(names)} sets of the zoo with at most {largest:,} samples", rows)


@contextmanager
def _changed(change: Change | None) -> Iterator[None]:
    if change is None:
        yield
        return
    module, name, value = change
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def _regrouped(model: DPMixture, X: NDArray[Any]) -> NDArray[np.int64]:
    """Labels of the same mixture, grouped anew."""
    mixture = model.mixture_
    z = mixture.standardization.points(torch.from_numpy(np.asarray(X, dtype=np.float64)))
    means, covariances = (
        f(mixture.state.total).numpy() for f in (mixture.state.family.means, mixture.state.family.covariances)
    )
    resp = mixture.predict_proba(np.asarray(X), "component")
    components = valleys.Components(means, covariances, z.numpy(), resp)
    return valleys.group_by_valleys(components).labels[resp.argmax(1)]


def _ablation_row(what: str, labels: Mapping[str, NDArray[np.int64]]) -> Row:
    ari = {name: adjusted_rand_score(zoo_data(name)[1], found) for name, found in labels.items()}
    row = {"what": what, "ARI": np.mean(list(ari.values()))}
    for kind in ("shape", "table"):
        row[f"{kind}s"] = np.mean([value for name, value in ari.items() if name.startswith(kind)])
    print(row, flush=True)
    return row


BENCHMARKS = {
    "mixture_noise": noise,
    "mixture_grid": many_gaussians,
    "mixture_embeddings": embeddings,
    "mixture_codes": codes,
    "mixture_restarts": restarts,
    "mixture_ablation": ablation,
}
