import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from diva.partition.valleys import OPTIMISM, Components, _learnt_log_odds, find_valleys, group_by_valleys, valley_evidence


def on_a_line(means, sds, points, weights=None):
    """Components in one dimension, with the responsibilities they imply."""
    means, sds = np.asarray(means, float)[:, None], np.asarray(sds, float)[:, None]
    log_density = -0.5 * ((points - means) / sds) ** 2 - np.log(sds)  # (K, n)
    resp = np.exp(log_density - log_density.max(0)).T
    return Components(means, sds**2, points[:, None], resp / resp.sum(1, keepdims=True), weights)


def two_blobs(n, distance, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(0, 1, n), rng.normal(distance, 1, n)])


def test_gaussians_that_overlap_have_a_valley_between_them():
    evidence = valley_evidence(on_a_line([0, 3.5], [1, 1], two_blobs(300, 3.5)))
    assert evidence[0, 1] == evidence[1, 0] > 3


def test_halves_of_an_even_spread_have_none():
    points = np.random.default_rng(0).uniform(0, 2, 600)
    assert valley_evidence(on_a_line([0.5, 1.5], [0.29, 0.29], points))[0, 1] < -3


def test_evidence_grows_with_the_samples():
    few, many = (valley_evidence(on_a_line([0, 4], [1, 1], two_blobs(n, 4)))[0, 1] for n in (50, 500))
    assert few > 0
    assert many > 5 * few


@pytest.mark.parametrize("means", [[0, 0.5], [0, 0]])
def test_components_that_are_one_hill_have_no_valley(means):
    components = on_a_line(means, [1, 1], two_blobs(100, 0.5))
    assert valley_evidence(components)[0, 1] <= -OPTIMISM / 2
    assert find_valleys(components).reach[0, 1] == 0


def test_the_bottom_is_between_the_hills_and_the_top_is_that_of_the_lower_one():
    components = on_a_line([0, 5], [1, 1], np.concatenate([two_blobs(300, 5), np.random.default_rng(1).normal(0, 1, 300)]))
    found = find_valleys(components)
    direction = found.directions[0, 1, 0]
    assert 1 < found.bottom[0, 1] * direction < 4
    assert found.top[0, 1] * direction == pytest.approx(5, abs=0.3)  # the lighter component
    assert 0 < found.share[0, 1] < 0.3


def test_a_weight_counts_like_a_repetition():
    points = two_blobs(60, 3)
    twice = valley_evidence(on_a_line([0, 3], [1, 1], np.repeat(points, 2)))
    np.testing.assert_allclose(valley_evidence(on_a_line([0, 3], [1, 1], points, np.full(120, 2.0))), twice)


def test_full_and_diagonal_covariances_say_the_same():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(c, [1, 0.5], (80, 2)) for c in ([0, 0], [4, 1])])
    resp = np.repeat(np.eye(2), 80, axis=0)
    means, variances = np.array([[0.0, 0], [4, 1]]), np.tile([1.0, 0.25], (2, 1))
    diagonal = Components(means, variances, points, resp)
    full = diagonal._replace(covariances=np.stack([np.diag(v) for v in variances]))
    np.testing.assert_allclose(valley_evidence(full), valley_evidence(diagonal), rtol=1e-6)
    np.testing.assert_allclose(group_by_valleys(full).heights, group_by_valleys(diagonal).heights, rtol=1e-6)


# --- clusters


def ring(n=1200, n_pieces=12, seed=0):
    """A ring, in pieces, around a ball."""
    rng = np.random.default_rng(seed)
    angle, radius = rng.uniform(0, 2 * np.pi, n), rng.normal(5, 0.2, n)
    points = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    ball = rng.normal(0, 0.5, (n // 4, 2))
    piece = (angle / (2 * np.pi) * n_pieces).astype(int)
    labels = np.concatenate([piece, np.full(len(ball), n_pieces)])
    points = np.concatenate([points, ball])
    means = np.stack([points[labels == k].mean(0) for k in range(n_pieces + 1)])
    covariances = np.stack([np.cov(points[labels == k].T) for k in range(n_pieces + 1)])
    gaps = points[:, None] - means
    distance2 = np.einsum("nki,kij,nkj->nk", gaps, np.linalg.inv(covariances), gaps)
    log_density = -0.5 * (distance2 + np.linalg.slogdet(covariances)[1]) + np.log(np.bincount(labels))
    resp = np.exp(log_density - log_density.max(1, keepdims=True))
    return Components(means, covariances, points, resp / resp.sum(1, keepdims=True)), np.repeat([0, 1], [n, n // 4])


@pytest.mark.parametrize("seed", range(3))
def test_pieces_of_a_ring_are_one_cluster_and_the_ball_inside_is_another(seed):
    components, truth = ring(seed=seed)
    tree = group_by_valleys(components)
    assert tree.n_groups == 2
    assert adjusted_rand_score(truth, tree.labels[components.resp.argmax(1)]) == 1.0


def test_thin_noise_around_all_joins_no_clusters():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(c, 0.3, (200, 2)) for c in (-2, 2)] + [rng.uniform(-5, 5, (60, 2))])
    labels = np.repeat([0, 1, 2], [200, 200, 60])
    means = np.array([[-2.0, -2], [2, 2], [0, 0]])
    resp = np.eye(3)[labels] * 0.98 + 0.02 / 3
    tree = group_by_valleys(Components(means, np.array([[0.09, 0.09], [0.09, 0.09], [8.0, 8.0]]), points, resp))
    assert tree.labels[0] != tree.labels[1]


def test_more_resolution_gives_more_clusters():
    components, _ = ring()
    n_groups = [group_by_valleys(components, resolution).n_groups for resolution in (1e-12, 0.01, 0.999999)]
    assert n_groups == sorted(n_groups)
    assert n_groups[0] < n_groups[-1]


def test_what_is_known_to_belong_together_stays_together():
    components = on_a_line([0, 8, 16], [1, 1, 1], np.concatenate([two_blobs(200, 8), two_blobs(200, 8) + 8]))
    assert group_by_valleys(components).n_groups == 3
    tree = group_by_valleys(components, together=np.array([5, -1, 5]))
    assert tree.labels[0] == tree.labels[2] != tree.labels[1]


def test_one_component_is_one_cluster():
    tree = group_by_valleys(on_a_line([0], [1], two_blobs(10, 0)))
    assert tree.labels.tolist() == [0]


def test_a_component_without_samples_does_no_harm():
    components = on_a_line([0, 6, 100], [1, 1, 1e-3], two_blobs(100, 6))
    tree = group_by_valleys(components)
    assert tree.labels[0] != tree.labels[1]
    assert np.isfinite(tree.heights).all()


def test_evidence_that_is_needed_is_learnt_from_all_joins():
    clear, noise, alone = np.full(9, 50.0), np.full(9, -5.0), np.array([0.0])
    assert _learnt_log_odds(clear) == 0.0  # no reason to part what has no valley
    assert _learnt_log_odds(noise) < -2.5
    assert _learnt_log_odds(alone) == pytest.approx(0.0)


# --- the samples alone


def test_a_gap_that_the_mixture_does_not_know_is_a_valley():
    """Two even spreads side by side: Gaussians with their variance hardly have a valley between them."""
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.uniform(0, 1, 150), rng.uniform(1.2, 2.2, 150)])
    resp = np.eye(2)[(points > 1.1).astype(int)]
    components = Components(np.array([[0.5], [1.7]]), np.full((2, 1), 1 / 12), points[:, None], 0.98 * resp + 0.01)
    filled = components._replace(points=np.where(points > 1.1, points - 0.2, points)[:, None], means=np.array([[0.5], [1.5]]))
    assert valley_evidence(components)[0, 1] > 5
    assert valley_evidence(filled)[0, 1] < 0


def test_without_a_valley_a_dense_cluster_and_a_broad_one_are_two():
    rng = np.random.default_rng(0)
    dense, broad = rng.normal(0.0, 0.1, 300), rng.normal(2.0, 1.5, 100)
    components = on_a_line([0.0, 2.0], [0.1, 1.5], np.concatenate([dense, broad]))
    assert group_by_valleys(components).n_groups == 2


def test_a_core_and_its_tails_have_one_centre_and_are_one_cluster():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(0.0, 0.5, 300), rng.normal(0.0, 3.0, 100)])
    assert group_by_valleys(on_a_line([0.0, 0.05], [0.5, 3.0], points)).n_groups == 1


# --- thinner components


def of_gaussians(points, means, sds, shares):
    """Round components in two dimensions, with the responsibilities they imply."""
    means, sds, shares = np.asarray(means, float), np.asarray(sds, float), np.asarray(shares, float)
    squared = ((points[:, None] - means) ** 2).sum(axis=2) / sds**2
    log_density = np.log(shares) - 2 * np.log(sds) - 0.5 * squared
    resp = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    return Components(means, np.repeat(sds[:, None] ** 2, 2, axis=1), points, resp / resp.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("seed", range(3))
def test_what_lies_around_all_is_thin_although_its_mean_is_in_the_middle(seed):
    rng = np.random.default_rng(seed)
    centres, corners = [(0, 0), (-5, 0), (5, 0)], [(20, 20), (20, -20), (-20, 20), (-20, -20)]
    points = np.concatenate([rng.normal(c, 0.5, (400, 2)) for c in centres] + [rng.normal(c, 0.1, (4, 2)) for c in corners])
    components = of_gaussians(points, [*centres, (0, 0)], [0.5, 0.5, 0.5, 20], [400, 400, 400, 16])
    labels = group_by_valleys(components).labels[components.resp.argmax(axis=1)]
    assert adjusted_rand_score(np.repeat([0, 1, 2, 3], [400, 400, 400, 16]), labels) > 0.99
    assert len(set(labels)) == 4


@pytest.mark.parametrize(("share_apart", "n_groups"), [(0.0, 1), (4.0, 2)])
def test_a_thinner_component_that_overlaps_is_part_of_the_cluster(share_apart, n_groups):
    """A skewed cluster takes two Gaussians; beside others that are clear, the thinner one would else be a cluster."""
    rng = np.random.default_rng(0)
    skewed = rng.gamma(2.0, 1.0, (400, 2)) + share_apart * (rng.random((400, 1)) < 0.3)
    others = [rng.normal(centre, 0.5, (100, 2)) for centre in ([40, 0], [0, 40], [40, 40])]
    points = np.concatenate([skewed, *others])
    near = [(1.4, 1.4), (3.0, 3.0)] if n_groups == 1 else [(2.0, 2.0), (6.0, 6.0)]
    components = of_gaussians(points, [*near, (40, 0), (0, 40), (40, 40)], [0.8, 1.7, 0.5, 0.5, 0.5], [220, 180, 100, 100, 100])
    assert group_by_valleys(components).n_groups == 3 + n_groups
