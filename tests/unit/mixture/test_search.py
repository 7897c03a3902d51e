import numpy as np
import pytest
import torch

from diva import DPMixture, load
from diva.data import ArrayBatches
from diva.mixture.centres import k_means
from diva.mixture.options import MixtureOptions
from diva.mixture.search import LEAST_SCALE, best_start, first_component
from diva.mixture.standardize import SAMPLE_ROWS, measure


def grid(n=1000, n_side=6, sd=0.15, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_side**2, size=n)
    return np.column_stack(np.divmod(truth, n_side)) + sd * rng.normal(size=(n, 2)), truth


def found(X, **options):
    return best_start(measure(ArrayBatches(X)), MixtureOptions(**options), np.random.default_rng(0)).model


def test_many_close_gaussians_are_found():
    model = found(grid(2000)[0])
    assert model.n_components == 36


def test_the_shape_of_components_follows_the_data():
    rng = np.random.default_rng(0)
    round_ones = np.concatenate([rng.normal(c, 1, (100, 6)) for c in (-4, 4)])
    mixing = rng.normal(size=(6, 6))
    assert found(round_ones).state.family.covariance_type == "diag"
    assert found(round_ones @ mixing).state.family.covariance_type == "full"
    assert found(round_ones @ mixing, covariance_type="diag").state.family.covariance_type == "diag"


def test_the_best_of_the_starts_is_kept():
    X = grid()[0]
    best = found(X).elbo
    assert best >= max(found(X, covariance_type=kind).elbo for kind in ("full", "diag")) - 1e-9


def test_components_of_a_start_are_on_record():
    model = DPMixture(random_state=0).fit(grid()[0])
    first = model.lineage_[0]
    assert (first.move, first.parents) == ("birth", (0,))
    assert first.gain > 0
    alive = set(first.children)
    for record in model.lineage_[1:]:
        alive = alive - set(record.parents) | set(record.children)
    assert set(model.component_ids_) <= alive


def test_the_prior_is_learnt_and_a_given_one_is_not():
    X = grid()[0]
    learnt, given = found(X), found(X, covariance_scale=0.1, covariance_type="full")
    assert learnt.elbo > given.elbo
    np.testing.assert_allclose(given.state.family.variance, 0.1)
    assert (learnt.state.family.variance < 0.1).all()
    assert (learnt.state.family.variance >= LEAST_SCALE).all()


def test_the_prior_stays_when_data_go_on():
    X = grid()[0]
    model = DPMixture(random_state=0).fit(X[:500])
    before = model.mixture_.state.family
    after = model.partial_fit(X[500:]).mixture_.state.family
    torch.testing.assert_close(after.variance, before.variance)


# --- numbers as people have them


def test_a_row_far_away_does_not_blind_it():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, 0.3, (100, 2)) for c in ([0, 0], [3, 0], [0, 3], [3, 3])] + [[[1e4, 1e4]]])
    labels = DPMixture(random_state=0).fit(X).labels_[:-1].reshape(4, 100)
    assert (labels == labels[:, :1]).all()
    assert len(set(labels[:, 0])) == 4


def test_a_feature_of_whole_numbers_does_not_pull_components_onto_them():
    rng = np.random.default_rng(0)
    X = np.concatenate([np.column_stack([rng.normal(c, 1, 200), rng.integers(0, 4, 200)]) for c in (-5, 5)])
    model = DPMixture(random_state=0).fit(X)
    assert model.n_clusters_ == 2
    np.testing.assert_allclose(np.sort(model.means_[:, 1]), [1.5, 1.5], atol=0.2)


def test_wide_rows_are_looked_at_along_principal_axes(tmp_path):
    rng = np.random.default_rng(0)
    centres, truth = rng.normal(size=(5, 200)), rng.integers(5, size=400)
    X = centres[truth] + 0.5 * rng.normal(size=(400, 200))
    model = DPMixture(random_state=0).fit(X)
    assert len(set(zip(truth, model.labels_, strict=True))) == model.n_clusters_ == 5
    assert model.mixture_.standardization.n_coordinates == 4
    assert model.means_.shape == (model.n_components_, 200)
    assert model.sample(3, random_state=0)[0].shape == (3, 200)
    model.save(tmp_path / "wide.diva")
    np.testing.assert_array_equal(load(tmp_path / "wide.diva").predict_proba(X), model.predict_proba(X))


def test_directions_have_one_unit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)) * [5.0, 1, 1, 1, 1]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    scale = first_component(measure(ArrayBatches(X)), MixtureOptions()).standardization.scale
    assert scale.unique().numel() == 1


@pytest.mark.parametrize("n", [10, SAMPLE_ROWS, 3 * SAMPLE_ROWS, 100_000])
def test_a_sample_is_spread_evenly(n):
    sample = measure(ArrayBatches(np.arange(float(n))[:, None], batch_size=7001)).sample.values[:, 0]
    assert min(n, SAMPLE_ROWS) <= len(sample) <= 2 * SAMPLE_ROWS
    assert len(set(np.diff(sample))) == 1
    assert sample[0] == 0


def test_wild_values_do_not_move_the_scale():
    X = np.random.default_rng(0).normal(3, 2, (1000, 1))
    X[::100] = 1e9
    standardization = measure(ArrayBatches(X)).robust()
    assert standardization.mean.item() == pytest.approx(3, abs=0.2)
    assert 1e3 < standardization.scale.item() < 1e4  # so wide that squares of the wild ones are exact
    X[::100] = 1e4
    assert measure(ArrayBatches(X)).robust().scale.item() == pytest.approx(2, rel=0.1)


def test_centres_of_k_means():
    rng = np.random.default_rng(0)
    z = torch.from_numpy(np.concatenate([rng.normal(c, 0.1, (50, 2)) for c in (-3, 0, 3)]))
    assert torch.bincount(k_means(z, torch.ones(150, dtype=torch.float64), 3, rng)).tolist() == [50, 50, 50]
    assert k_means(z[:1].repeat(20, 1), torch.ones(20, dtype=torch.float64), 5, rng).tolist() == [0] * 20


# --- outliers, quality, layers


@pytest.fixture(scope="module")
def four_blobs():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, 0.3, (100, 2)) for c in ([0, 0], [2, 0], [9, 0], [11, 0])])
    return DPMixture(random_state=0).fit(X), X


def test_what_is_far_from_everything_is_in_no_cluster(four_blobs):
    model, X = four_blobs
    far = np.array([[5.5, 0.0], [0.0, 8.0], [1e3, 1e3]])
    assert model.predict(far, reject=True).tolist() == [-1, -1, -1]
    assert (model.predict(far) >= 0).all()
    assert (model.predict(X, reject=True) == -1).sum() <= 5
    scores = model.outlier_scores(np.concatenate([far, [[0.0, 0.0]]]))
    assert ((scores >= 0) & (scores <= 1)).all()
    assert scores[:3].min() > 0.999
    assert scores[3] < 0.9


def test_clusters_that_are_further_apart_are_surer(four_blobs):
    model, _ = four_blobs
    assert model.quality_.shape == (4,)
    assert (model.quality_ > 3).all()
    single = DPMixture(random_state=0).fit(np.random.default_rng(0).normal(size=(100, 2)))
    assert single.quality_.tolist() == [np.inf]
    assert single.layers_ == []


def test_layers_go_from_fine_to_coarse(four_blobs):
    model, X = four_blobs
    sizes = [layer.n_groups for layer in model.layers_]
    assert sizes == sorted(sizes, reverse=True)
    assert 4 in sizes
    assert all(layer.strength > 0 for layer in model.layers_)
    for layer in model.layers_:
        np.testing.assert_array_equal(layer.labels[model.component_labels_], model.predict(X, level=layer.n_groups))
