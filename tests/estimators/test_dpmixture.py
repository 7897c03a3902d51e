import re
import warnings

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits, make_moons
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from torch.utils.data import DataLoader, TensorDataset

import diva.mixture.laps
from diva import DPMixture
from diva.exceptions import ComponentLimitWarning, InterruptedFitWarning
from diva.partition.calibration import tempered

from .helpers import CORNERS, assert_usable, blobs

X = blobs()
TRUTH = np.repeat(range(4), 100)


@pytest.fixture(scope="module")
def model():
    return DPMixture(random_state=0).fit(X)


@pytest.fixture(scope="module")
def moons():
    return make_moons(1000, noise=0.05, random_state=0)


@pytest.fixture(scope="module")
def grouped(moons):
    return DPMixture(grouping="valleys", random_state=0).fit(moons[0])


# --- the number of components


@pytest.mark.quality
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("n_features", [1, 2, 10])
@pytest.mark.parametrize("n_samples", [50, 500, 5000])
def test_one_gaussian_is_one_component(n_samples, n_features, covariance_type):
    for seed in range(3):
        Z = np.random.default_rng([seed, n_samples, n_features]).normal(size=(n_samples, n_features))
        model = DPMixture(covariance_type=covariance_type, random_state=seed).fit(Z)
        assert model.n_components_ == 1
        np.testing.assert_allclose(model.means_[0], Z.mean(axis=0), atol=1e-3)


@pytest.mark.quality
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_four_blobs_are_four_components(covariance_type, dtype):
    for seed in range(3):
        model = DPMixture(covariance_type=covariance_type, random_state=seed).fit(blobs(seed=seed).astype(dtype))
        assert model.n_components_ == model.n_clusters_ == 4
        assert adjusted_rand_score(TRUTH, model.labels_) > 0.99
        nearest = np.linalg.norm(model.means_[:, None] - CORNERS, axis=2).min(axis=1)
        assert nearest.max() < 4 / np.sqrt(100)  # four standard errors
        covariances = model.covariances_ if covariance_type == "diag" else np.diagonal(model.covariances_, axis1=1, axis2=2)
        np.testing.assert_allclose(covariances, 1.0, atol=0.7)
        np.testing.assert_allclose(model.weights_, 0.25, atol=0.05)


@pytest.mark.parametrize("batch_size", [None, 1, 7, 100, 399, 400, 10**6])
def test_the_size_of_a_batch_does_not_decide_the_number_of_components(batch_size):
    centres = CORNERS[:3]
    model = DPMixture(batch_size=batch_size, random_state=0).fit(blobs(centres, n=30))
    assert model.n_components_ == 3


def to_memmap(values, folder):
    np.save(folder / "x.npy", values)
    return np.load(folder / "x.npy", mmap_mode="r")


@pytest.mark.parametrize(
    "hand_over",
    [
        pytest.param(lambda values, _: torch.from_numpy(values), id="tensor"),
        pytest.param(to_memmap, id="memmap"),
        pytest.param(lambda values, _: [values[:150], values[150:300], values[300:]], id="list"),
        pytest.param(lambda values, _: DataLoader(TensorDataset(torch.from_numpy(values)), batch_size=150), id="loader"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_way_to_hand_over_the_data_gives_the_same_mixture(hand_over, dtype, tmp_path):
    values = X.astype(dtype)
    data = hand_over(values, tmp_path)
    other = DPMixture(random_state=0, batch_size=150).fit(data)
    same = DPMixture(random_state=0, batch_size=150).fit(values)
    for name in ("labels_", "means_", "covariances_", "weights_", "elbo_"):
        np.testing.assert_array_equal(getattr(other, name), getattr(same, name), err_msg=name)
    np.testing.assert_array_equal(other.predict(data), same.predict(values))
    np.testing.assert_array_equal(other.score_samples(data), same.score_samples(values))


def test_batches_change_no_more_than_rounding_in_the_bound(model):
    split = DPMixture(random_state=0, batch_size=100).fit(X)
    assert split.n_components_ == model.n_components_
    assert split.elbo_ == pytest.approx(model.elbo_, rel=1e-3)


@pytest.mark.quality
@pytest.mark.parametrize("width", [0.1, 0.03, 0.003])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_float32_finds_tight_clusters_too(width, covariance_type):
    found, agreement = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        centres, truth = rng.normal(size=(5, 5)), rng.integers(0, 5, 1000)
        Z = centres[truth] + width * rng.normal(size=(1000, 5))
        model = DPMixture(covariance_type=covariance_type, random_state=seed).fit(Z.astype(np.float32))
        found.append(model.n_components_)
        agreement.append(adjusted_rand_score(truth, model.labels_))
    assert sum(n == 5 for n in found) >= 4
    assert np.median(agreement) > 0.99


def test_without_moves_there_is_one_component():
    model = DPMixture(births=False, merges=False, deletes=False, shuffles=False, random_state=0).fit(X)
    assert model.n_components_ == 1
    assert model.lineage_ == []
    np.testing.assert_allclose(model.means_[0], X.mean(axis=0), atol=1e-4)


def test_a_weight_counts_like_repetition(model):
    weighted = DPMixture(random_state=0).fit(X, sample_weight=np.full(len(X), 3))
    repeated = DPMixture(random_state=0).fit(np.repeat(X, 3, axis=0))
    assert weighted.n_components_ == repeated.n_components_
    assert weighted.elbo_ == pytest.approx(repeated.elbo_, rel=1e-6)


def test_rows_of_weight_zero_teach_nothing():
    weight = (np.arange(len(X)) < 200).astype(float)
    model = DPMixture(random_state=0).fit(X, sample_weight=weight)
    assert model.n_components_ == 2
    assert len(model.labels_) == len(X)
    assert model.elbo_ == pytest.approx(DPMixture(random_state=0).fit(X[:200]).elbo_, rel=1e-6)


# --- what a fit tells


def test_the_bound_never_falls(grouped, model):
    for fitted in (model, grouped, DPMixture(max_laps=100, covariance_type="diag", random_state=1).fit(X)):
        bounds = np.array([r.elbo for r in fitted.history_])
        assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()
        assert bounds[-1] == pytest.approx(fitted.elbo_)
        assert [r.lap for r in fitted.history_] == list(range(len(bounds)))
        assert fitted.history_[-1].n_components == fitted.n_components_
        assert fitted.history_[-1].elbo_per_sample == pytest.approx(fitted.elbo_ / len(fitted.labels_))


def assert_lineage_explains(model):
    """Every component is the first one, or was born; parents existed; names are never used twice."""
    known, gone = {0}, set()
    for record in model.lineage_:
        assert record.accepted
        assert record.gain > 0
        parents, children = set(record.parents), set(record.children)
        assert parents <= known
        fresh = children - known
        if record.move == "birth":
            assert parents <= children  # the heir keeps the name
            assert fresh
            assert not fresh & gone
        else:
            assert record.move in ("merge", "delete")
            assert not fresh
            assert len(parents - children) == 1
        gone |= parents - children
        known = (known | children) - gone
    assert set(model.component_ids_.tolist()) == known


def test_the_lineage_explains_every_component(model, grouped):
    assert_lineage_explains(model)
    assert_lineage_explains(grouped)
    count = {m: sum(r.move == m for r in grouped.lineage_) for m in ("birth", "merge", "delete")}
    start = grouped.lineage_[0]  # the components that laps began with
    assert (start.move, start.parents) == ("birth", (0,))
    assert count["birth"] == 1 + sum(r.births for r in grouped.history_)
    assert count["merge"] == sum(r.merges for r in grouped.history_)
    assert count["delete"] == sum(r.deletes for r in grouped.history_)


def test_the_bound_is_that_of_the_data_not_of_their_units():
    bound, scaled = (DPMixture(random_state=0).fit(X * scale).elbo_ for scale in (1.0, 10.0))
    assert scaled == pytest.approx(bound - len(X) * 2 * np.log(10), rel=1e-9)


def test_reaching_max_components_warns():
    with pytest.warns(ComponentLimitWarning, match="max_components=4"):
        model = DPMixture(max_components=4, random_state=0).fit(X)
    assert model.n_components_ == 4


@pytest.mark.parametrize("max_components", [2])
def test_max_components_limits_births_instead_of_forbidding_them(max_components):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = DPMixture(max_components=max_components, random_state=0).fit(X)
    assert 1 < model.n_components_ <= max_components
    assert [w.category for w in caught] == [ComponentLimitWarning]


def test_max_components_is_respected():
    for max_components in (1, 2, 3, 5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert DPMixture(max_components=max_components, max_laps=10, random_state=0).fit(X).n_components_ <= max_components


def test_too_few_laps_warn():
    with pytest.warns(ConvergenceWarning, match="max_laps=1 laps"):
        model = DPMixture(max_laps=1, random_state=0).fit(X)
    assert_usable(model, X)


def test_verbose_prints_a_line_for_every_lap(capsys):
    model = DPMixture(n_init=0, verbose=True, random_state=0).fit(X)  # from one component, by births
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= len(model.history_)
    assert all(re.match(r"lap +\d+  K +\d+  bound per sample -?\d", line) for line in lines)
    assert any("birth" in line for line in lines)


def test_verbose_prints_the_bound_of_the_history(capsys):
    model = DPMixture(verbose=True, random_state=0).fit(X)
    assert f"{model.history_[-1].elbo_per_sample:.5f}" in capsys.readouterr().out


def test_silent_unless_asked(capsys):
    DPMixture(random_state=0).fit(X)
    assert capsys.readouterr() == ("", "")


# --- interruption


def interrupt(monkeypatch, name, at):
    """Press Ctrl-C in the at-th call of a function of the laps."""
    real, calls = getattr(diva.mixture.laps, name), [0]

    def interrupted(*args):
        calls[0] += 1
        if calls[0] == at:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(diva.mixture.laps, name, interrupted)


@pytest.mark.parametrize(("name", "at"), [("revisit_lap", 1), ("try_moves", 3), ("revisit_lap", 2)])
def test_an_interrupted_fit_leaves_a_usable_model(monkeypatch, name, at):
    with monkeypatch.context() as patch:
        interrupt(patch, name, at)
        with pytest.warns(InterruptedFitWarning, match=r"after \d laps.*warm_start"):
            model = DPMixture(warm_start=True, random_state=0).fit(X)
    assert_usable(model, X)
    assert model.fit(X).n_components_ == 4  # as the warning advises


@pytest.mark.parametrize("name", ["assign_lap", "try_moves"])
def test_a_fit_interrupted_in_its_first_lap_has_learnt_nothing(monkeypatch, name):
    interrupt(monkeypatch, name, 1)
    model = DPMixture(random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert not hasattr(model, "means_")


def test_an_interrupted_fit_keeps_the_laps_it_had_done(monkeypatch):
    interrupt(monkeypatch, "try_moves", 3)
    with pytest.warns(InterruptedFitWarning, match="after 2 laps"):
        model = DPMixture(random_state=0).fit(X)
    assert len(model.history_) == 3  # one more to label the data
    assert model.n_components_ > 1
    assert model.elbo_ == pytest.approx(model.history_[-1].elbo)


def test_an_interrupted_partial_fit_keeps_the_past(monkeypatch, model):
    other = DPMixture(random_state=0).partial_fit(X)
    interrupt(monkeypatch, "assign_lap", 1)
    with pytest.warns(InterruptedFitWarning):
        other.partial_fit(X + 100)
    np.testing.assert_array_equal(other.means_, model.means_)
    np.testing.assert_array_equal(other.predict(X), model.predict(X))


def test_an_interrupted_warm_start_keeps_the_components(monkeypatch, model):
    other = DPMixture(warm_start=True, random_state=0).fit(X)
    interrupt(monkeypatch, "assign_lap", 1)
    with pytest.warns(InterruptedFitWarning):
        other.fit(X)
    np.testing.assert_allclose(other.means_, model.means_)


# --- warm start and streams


def test_warm_start_goes_on_from_the_components_before(model):
    warm = DPMixture(warm_start=True, random_state=0).fit(X)
    ids = warm.component_ids_
    warm.fit(X)
    assert set(warm.component_ids_) == set(ids)
    assert len(warm.history_) < len(model.history_) + 1
    assert warm.elbo_ == pytest.approx(model.elbo_)  # the data count once, not twice


def test_warm_start_follows_the_data():
    warm = DPMixture(warm_start=True, random_state=0).fit(X).fit(X + 3)
    assert warm.n_components_ == 4
    np.testing.assert_allclose(
        np.sort(warm.means_.sum(1)), np.sort(DPMixture(random_state=0).fit(X + 3).means_.sum(1)), atol=1e-2
    )


def by_id(model, data):
    return model.component_ids_[model.predict(data, level="component")]


@pytest.mark.quality
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("seed", range(3))
def test_a_new_kind_is_found_and_the_old_ones_keep_their_names(covariance_type, seed):
    old, new = blobs(CORNERS[:3], seed=seed), blobs(CORNERS[3:], seed=seed + 100)
    model = DPMixture(covariance_type=covariance_type, random_state=seed).partial_fit(old)
    ids, names, clusters = set(model.component_ids_), by_id(model, old), model.predict(old)
    model.partial_fit(new)
    assert model.n_components_ == 4
    np.testing.assert_array_equal(model.predict(old), clusters)
    assert set(model.predict(new)) == {3}
    assert [(r.event, r.children, r.batch) for r in model.cluster_lineage_] == [("born", (3,), 1)]
    assert ids < set(model.component_ids_)
    np.testing.assert_array_equal(by_id(model, old), names)
    assert set(by_id(model, new)) == set(model.component_ids_) - ids
    np.testing.assert_array_equal(model.predict(new), model.labels_)
    assert_lineage_explains(model)


@pytest.mark.parametrize("grouping", [None, "valleys"])
def test_clusters_keep_their_names_when_their_order_changes(grouping):
    rng = np.random.default_rng(0)
    few, many = rng.normal(0, 0.2, size=(100, 2)), rng.normal(8, 0.2, size=(300, 2))
    model = DPMixture(grouping=grouping, random_state=0).fit(np.concatenate([few, many]))
    assert set(model.predict(many)) == {0}
    for _ in range(3):
        model.partial_fit(rng.normal(0, 0.2, size=(400, 2)))  # now the small one is the large one
    assert set(model.predict(many)) == {0}
    assert set(model.predict(few)) == set(model.labels_) == {1}
    assert model.cluster_lineage_ == []
    positions = model.predict_proba(few).argmax(1)
    np.testing.assert_array_equal(model.cluster_ids_[positions], model.predict(few))
    drawn, names = model.sample(20, cluster=0, random_state=0)
    assert set(names) == {0}
    assert abs(drawn.mean() - 8) < 1
    with pytest.raises(ValueError, match="cluster should be from 0 to 1"):
        model.sample(3, cluster=2)


def test_the_first_partial_fit_is_a_fit(model):
    other = DPMixture(random_state=0).partial_fit(X)
    np.testing.assert_array_equal(other.means_, model.means_)
    np.testing.assert_array_equal(other.labels_, model.labels_)


def test_data_of_earlier_calls_count_in_full():
    model = DPMixture(random_state=0)
    for part in np.split(np.random.default_rng(0).permutation(X), 4):
        model.partial_fit(part)
    whole = DPMixture(random_state=0).fit(X)
    assert float(model.mixture_.state.total.counts.sum()) == pytest.approx(len(X))
    assert model.n_components_ == 4
    order, whole_order = (np.lexsort(m.means_.round().T) for m in (model, whole))
    np.testing.assert_allclose(model.means_[order], whole.means_[whole_order], atol=0.05)
    assert [r.lap for r in model.history_] == list(range(len(model.history_)))


def n_bytes(state):
    """Memory a state holds on to."""
    assert state.memo == ()
    return sum(t.untyped_storage().nbytes() for stats in (state.past, state.total) for t in stats.fields())


def test_a_model_does_not_grow_with_the_data_it_has_seen():
    model = DPMixture(random_state=0).partial_fit(X)
    size = n_bytes(model.mixture_.state)
    for seed in range(5):
        model.partial_fit(blobs(seed=seed, n=300))
        assert model.n_components_ == 4
        assert n_bytes(model.mixture_.state) == size
    assert len(model.labels_) == 1200  # of the last data alone


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_moves_neither_make_nor_lose_mass(seed):
    Z, truth = make_moons(1000, noise=0.05, random_state=seed)
    model = DPMixture(random_state=seed).fit(Z)
    for moon in (0, 1, 0):
        model.partial_fit(Z[truth == moon])
    assert float(model.mixture_.state.total.counts.sum()) == pytest.approx(2500)
    np.testing.assert_allclose(
        model.weights_ @ model.means_, Z[truth == 0].mean(axis=0) * 0.6 + Z[truth == 1].mean(axis=0) * 0.4, atol=0.02
    )
    assert_lineage_explains(model)


@pytest.mark.parametrize("seed", [0, 1])
def test_digits_are_fitted_whatever_the_seed(seed):
    codes = PCA(10, random_state=0).fit_transform(load_digits().data)
    model = DPMixture(random_state=seed).fit(codes)
    assert float(model.mixture_.state.total.counts.sum()) == pytest.approx(len(codes))
    assert_lineage_explains(model)


# --- using a model


def test_probabilities(model):
    proba = model.predict_proba(X)
    assert proba.shape == (400, 4)
    assert proba.dtype == np.float64
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(proba.argmax(axis=1), model.predict(X))
    between = model.predict_proba([model.means_[:2].mean(axis=0)])
    assert proba.max(axis=1).min() > between.max()


def test_densities_are_close_to_those_of_the_gaussians(model):
    Z = np.random.default_rng(1).uniform(-2, 10, size=(50, 2))
    parts = [
        np.log(w) + multivariate_normal(m, c).logpdf(Z)
        for w, m, c in zip(model.weights_, model.means_, model.covariances_, strict=True)
    ]
    near = logsumexp(parts, axis=0) > -8  # further out the tails of a Student t are heavier
    assert near.sum() > 10
    np.testing.assert_allclose(model.score_samples(Z)[near], logsumexp(parts, axis=0)[near], atol=0.5)
    assert model.score(Z) == pytest.approx(model.score_samples(Z).mean())


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_the_density_is_one_in_all(covariance_type):
    model = DPMixture(covariance_type=covariance_type, random_state=0).fit(blobs([[0.0], [9.0]]) * 100 + 5)
    grid = np.concatenate([-np.geomspace(1e9, 1, 4000), np.geomspace(1, 1e9, 4000)]) + 400
    density = np.exp(model.score_samples(grid[:, None]))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)


def test_score_is_higher_for_data_like_those_seen(model):
    assert model.score(blobs(seed=1)) > model.score(blobs(seed=1) + 4) > model.score(blobs(seed=1) + 100)


def test_samples(model):
    Z, labels = model.sample(2000, random_state=1)
    assert Z.shape == (2000, 2)
    assert labels.shape == (2000,)
    assert set(labels) == {0, 1, 2, 3}
    assert (model.predict(Z) == labels).mean() > 0.98
    np.testing.assert_allclose(np.bincount(labels) / 2000, model.weights_, atol=0.05)
    assert model.score(Z) == pytest.approx(model.score(X), abs=0.2)


def test_samples_repeat_with_their_seed(model):
    first, second, third = (model.sample(5, random_state=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert (first != third).all()
    np.testing.assert_array_equal(model.sample(5)[0], model.sample(5)[0])  # the estimator's own seed


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_samples_of_one_component_look_like_it(covariance_type):
    model = DPMixture(covariance_type=covariance_type, random_state=0).fit(X)
    for k in range(4):
        Z, labels = model.sample(500, component=k, random_state=0)
        assert (labels == k).all()
        np.testing.assert_allclose(Z.mean(axis=0), model.means_[k], atol=0.3)
        assert model.predict_proba(Z).mean(axis=0).argmax() == k


# --- clusters of several components


@pytest.mark.quality
def test_two_moons_are_two_clusters_of_several_components():
    n_clusters, agreement, later = [], [], []
    for seed in range(5):
        Z, truth = make_moons(1000, noise=0.05, random_state=seed)
        model = DPMixture(grouping="valleys", random_state=seed).fit(Z)
        n_clusters.append(model.n_clusters_)
        assert model.n_components_ >= 4
        agreement.append(adjusted_rand_score(truth, model.labels_))
        later.append(adjusted_rand_score(truth, model.partial_fit(Z[truth == 0]).predict(Z)))
    assert sum(n == 2 for n in n_clusters) >= 3
    assert np.median(agreement) > 0.95
    assert np.median(later) > 0.95  # clusters stay apart while new data come from one of them


def test_labels_are_those_of_the_clusters(grouped, moons):
    np.testing.assert_array_equal(grouped.predict(moons[0]), grouped.labels_)
    np.testing.assert_array_equal(grouped.predict(moons[0], level="cluster"), grouped.labels_)


def test_levels_are_nested(grouped, moons):
    Z, _ = moons
    components = grouped.predict(Z, level="component")
    np.testing.assert_array_equal(components, grouped.component_labels_)
    np.testing.assert_array_equal(grouped.hierarchy_.labels[components], grouped.labels_)
    for level in range(1, grouped.n_components_ + 1):
        labels = grouped.predict(Z, level=level)
        groups = grouped.hierarchy_.cut(level)
        np.testing.assert_array_equal(labels, groups[components])
        assert len(set(groups)) == level
        assert grouped.predict_proba(Z, level=level).shape == (len(Z), level)
    three, two = grouped.hierarchy_.cut(3), grouped.hierarchy_.cut(2)
    assert len(set(zip(three, two, strict=True))) == 3


def test_probabilities_of_a_cluster_are_those_of_its_components(grouped, moons):
    Z, _ = moons
    fine, coarse = grouped.predict_proba(Z, level="component"), grouped.predict_proba(Z)
    assert fine.shape == (len(Z), grouped.n_components_)
    sums = np.stack([fine[:, grouped.hierarchy_.labels == k].sum(axis=1) for k in range(grouped.n_clusters_)], axis=1)
    np.testing.assert_allclose(coarse, tempered(sums, grouped.mixture_.temperature), atol=1e-12)


def test_samples_of_a_cluster(grouped):
    for cluster in range(grouped.n_clusters_):
        Z, labels = grouped.sample(300, cluster=cluster, random_state=0)
        assert (labels == cluster).all()
        assert (grouped.predict(Z) == cluster).mean() > 0.95
    k = int(np.flatnonzero(grouped.hierarchy_.labels == 1)[0])
    assert (grouped.sample(10, cluster=1, component=k)[1] == 1).all()


def test_a_given_resolution_is_used(moons):
    coarse, fine = (DPMixture(grouping="valleys", resolution=r, random_state=0).fit(moons[0]) for r in (1e-6, 1e6))
    assert coarse.n_clusters_ < fine.n_clusters_ == fine.n_components_


def test_without_grouping_every_component_is_a_cluster():
    model = DPMixture(grouping=None, random_state=0).fit(X)
    assert model.hierarchy_ is None
    assert model.n_clusters_ == model.n_components_
    np.testing.assert_array_equal(model.predict(X), model.predict(X, level="component"))
