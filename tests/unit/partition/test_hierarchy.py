import json

import numpy as np
import pytest
from scipy.cluster.hierarchy import is_valid_linkage

from diva.partition.hierarchy import Hierarchy, group, group_as
from diva.partition.louvain import communities
from diva.partition.walk import Walk

PAIRS = np.kron(np.eye(2), [[0.8, 0.2], [0.2, 0.8]])  # four components in two pairs


def test_augmentation_walk_needs_no_points():
    tree = group(Walk(np.eye(4), PAIRS))
    assert tree.labels.tolist() == [0, 0, 1, 1]


def test_components_without_mass_join_the_heaviest():
    flow = np.zeros((4, 4))
    flow[1, 1], flow[2, 2] = 1.0, 2.0
    assert communities(flow, 1.0).tolist() == [0, 1, 0, 0]
    resp = np.eye(4)[[1, 2, 2]]
    tree = group(Walk(resp, resp))
    assert tree.labels.tolist() == [0, 1, 0, 0]
    assert np.isfinite(tree.heights).all()
    assert len(np.unique(tree.cut(4))) == 4


def test_one_component():
    tree = group(Walk(np.ones((3, 1)), np.ones((3, 1))))
    assert (tree.n_groups, tree.labels.tolist(), tree.cut(1).tolist()) == (1, [0], [0])
    assert Hierarchy.from_dict(tree.to_dict()).to_dict() == tree.to_dict()


def test_components_that_share_nothing_join_last_and_lightest_first():
    resp = np.repeat(np.eye(3), [5, 1, 2], axis=0)
    tree = group(Walk(resp, resp))
    assert tree.n_groups == 3
    assert tree.heights.tolist() == [0, 0]
    assert tree.cut(2).tolist() == [0, 1, 1]


def test_given_resolution():
    walk = Walk(np.eye(4), PAIRS)
    assert group(walk, 0.5).n_groups == 2
    assert group(walk, 10.0).n_groups == 4
    assert group(walk, 0.5).resolution == 0.5


def test_cut_at_follows_the_resolution():
    tree = group(Walk(np.eye(4), PAIRS), 0.5)
    assert tree.cut_at(0.5).tolist() == tree.labels.tolist()
    assert tree.cut_at(1e9).tolist() == [0, 1, 2, 3]
    connected = group(Walk(np.eye(4), 0.9 * PAIRS + 0.1 / 4), 0.5)
    assert connected.cut_at(1e-9).tolist() == [0, 0, 0, 0]


def test_clusters_that_are_no_groups_of_the_greedy_tree_are_still_cut():
    """A chain that modularity cuts in the middle of its strongest link."""
    chain = np.diag([1.0] * 6) + np.diag([0.3, 0.3, 0.31, 0.3, 0.3], 1) + np.diag([0.3, 0.3, 0.31, 0.3, 0.3], -1)
    resp = np.eye(6)
    tree = group(Walk(resp, chain), 0.5)
    assert tree.cut(tree.n_groups).tolist() == tree.labels.tolist()
    assert (np.diff(tree.heights) <= 0).all()


def test_linkage_is_scipys():
    rng = np.random.default_rng(0)
    tree = group(Walk(rng.dirichlet(np.ones(7), 50), rng.dirichlet(np.ones(7), 50)))
    assert is_valid_linkage(tree.linkage())


def test_hierarchy_cannot_be_written_to():
    tree = group(Walk(np.eye(4), PAIRS))
    with pytest.raises(ValueError, match="read-only"):
        tree.labels[0] = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"merges": [[0, 1], [2, 3]]}, "merges should have shape"),
        ({"merges": [[0, 1], [2, 3], [4, 6]]}, "join each node once"),
        ({"merges": [[0, 1], [2, 3], [4, 4]]}, "join each node once"),
        ({"merges": [[0, 1], [2, 5], [3, 4]]}, "join each node once"),
        ({"merges": [[0.5, 1], [2, 3], [4, 5]]}, "whole numbers"),
        ({"merges": "tree"}, "could not convert"),
        ({"heights": [1.0, 2.0, 0.0]}, "never rise"),
        ({"heights": [2.0, 1.0, -1.0]}, "not negative"),
        ({"heights": [2.0, float("nan"), 0.0]}, "finite"),
        ({"heights": [2.0, 1.0]}, "heights should have shape"),
        ({"masses": [0.25, 0.25, 0.25, -0.25]}, "not negative"),
        ({"masses": []}, "should have shape"),
        ({"labels": [0, 1, 1, 0]}, "labels should be the cut"),
        ({"labels": [1, 1, 0, 0]}, "labels should be the cut"),
        ({"labels": [0, 0, -1, -1]}, "labels should be the cut"),
        ({"labels": [0, 0, 9, 9]}, "labels should be the cut"),
        ({"labels": [0, 1, 2, 3]}, "at the resolution"),
        ({"labels": None}, "whole numbers"),
        ({"resolution": 0.0}, "positive"),
        ({"resolution": float("inf")}, "positive"),
        ({"resolution": None}, "numbers only"),
        ({"resolution": 100.0}, "at the resolution"),
    ],
)
def test_from_dict_rejects_what_does_not_fit(change, message):
    data = json.loads(json.dumps(group(Walk(np.eye(4), PAIRS)).to_dict()))
    assert data["merges"] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ValueError, match=message):
        Hierarchy.from_dict(data | change)


def test_from_dict_names_what_is_missing():
    data = group(Walk(np.eye(4), PAIRS)).to_dict()
    del data["heights"]
    with pytest.raises(ValueError, match="heights is missing"):
        Hierarchy.from_dict(data)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: group(Walk(np.eye(2), np.eye(2)), -1.0), "positive number"),
        (lambda: group(Walk(np.eye(2), np.eye(2)), "best"), '"auto"'),
        (lambda: group(Walk(np.eye(2), np.eye(2))).cut(3), "from 1 to 2"),
        (lambda: group(Walk(np.eye(2), np.eye(2))).cut(0), "from 1 to 2"),
        (lambda: group(Walk(np.eye(2), np.eye(2))).cut_at(0.0), "positive number"),
    ],
)
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def random_walk(seed, n_components, n_samples=60, sparse=False):
    rng = np.random.default_rng(seed)
    resp, moved = rng.dirichlet(np.full(n_components, 0.05 if sparse else 1.0), size=(2, n_samples))
    if sparse:
        resp[:, 0] = moved[:, 0] = 0.0  # a component nobody visits
        resp, moved = np.round(resp, 1), np.round(moved, 1)
    return Walk(resp, moved)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("n_components", [2, 5, 12])
@pytest.mark.parametrize("sparse", [True, False])
def test_labels_are_kept_and_numbered_by_mass(seed, n_components, sparse):
    walk = random_walk(seed, n_components, sparse=sparse)
    labels = np.random.default_rng(seed + 100).integers(-2, 4, n_components)
    tree = group_as(walk, labels)
    assert tree.n_components == n_components
    assert tree.n_groups == len(set(labels.tolist()))
    assert len(set(zip(labels.tolist(), tree.labels.tolist(), strict=True))) == tree.n_groups
    np.testing.assert_allclose(tree.masses, walk.flow.sum(0), atol=1e-9)
    masses = np.bincount(tree.labels, weights=tree.masses)
    assert (np.diff(masses) <= 1e-9).all()
    np.testing.assert_array_equal(tree.cut(tree.n_groups), tree.labels)
    np.testing.assert_array_equal(tree.cut_at(tree.resolution), tree.labels)
    assert n_components == 1 or is_valid_linkage(tree.linkage())


@pytest.mark.parametrize("seed", range(4))
def test_cuts_are_nested_and_respect_the_labels(seed):
    labels = np.random.default_rng(seed).integers(0, 3, 9)
    tree = group_as(random_walk(seed, 9), labels)
    for n_groups in range(1, 9):
        coarse, fine = tree.cut(n_groups), tree.cut(n_groups + 1)
        assert len(set(zip(fine.tolist(), coarse.tolist(), strict=True))) == n_groups + 1
        pairs = set(zip(labels.tolist(), coarse.tolist(), strict=True))
        assert len(pairs) == max(n_groups, tree.n_groups)  # joins inside the clusters come first


def test_the_tree_survives_json():
    tree = group_as(random_walk(0, 7), [0, 1, 1, 0, 2, 2, 2])
    again = Hierarchy.from_dict(json.loads(json.dumps(tree.to_dict())))
    assert again.to_dict() == tree.to_dict()
    np.testing.assert_array_equal(again.cut(2), tree.cut(2))


def test_one_component_with_a_known_cluster():
    tree = group_as(Walk(np.ones((3, 1)), np.ones((3, 1))), [5])
    assert tree.labels.tolist() == [0]
    assert tree.merges.shape == (0, 2)


@pytest.mark.parametrize(("labels", "n_groups"), [([3, 3, 3, 3], 1), ([0, 1, 2, 3], 4)])
def test_all_in_one_and_each_for_itself(labels, n_groups):
    assert group_as(random_walk(1, 4), labels).n_groups == n_groups


def test_heavier_inside_first():
    step = np.kron(np.eye(2), [[0.8, 0.2], [0.2, 0.8]])
    tree = group_as(Walk(np.eye(4), step), [0, 1, 0, 1])  # against what the walk says
    assert tree.labels.tolist() == [0, 1, 0, 1]
    assert sorted(map(tuple, tree.merges[:2].tolist())) == [(0, 2), (1, 3)]


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 1, 2, 3, 4], [[0, 1, 2, 3]], 0, []])
def test_as_many_labels_as_components(labels):
    with pytest.raises(ValueError, match=r"labels should have shape \(4,\), one cluster for each component, but got"):
        group_as(random_walk(0, 4), labels)


@pytest.mark.parametrize("labels", [[0.5, 1, 2, 3], [0, np.nan, 1, 1]])
def test_labels_are_whole_numbers(labels):
    with pytest.raises(ValueError, match="Expected whole numbers"):
        group_as(random_walk(0, 4), labels)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_tree_with_other_groups(seed):
    rng = np.random.default_rng(seed)
    step = rng.dirichlet(np.full(9, 0.3), size=9)
    tree = group(Walk(np.eye(9), step))
    for n_groups in range(1, 10):
        other = tree.with_groups(n_groups)
        assert other.n_groups == n_groups
        np.testing.assert_array_equal(other.labels, tree.cut(n_groups))
        np.testing.assert_array_equal(other.merges, tree.merges)


@pytest.mark.parametrize("seed", range(5))
def test_a_cluster_that_joins_another(seed):
    rng = np.random.default_rng(seed)
    tree = group(Walk(np.eye(9), rng.dirichlet(np.full(9, 0.3), size=9))).with_groups(5)
    for gone, host in ((4, 0), (0, 4), (2, 3)):
        joined = tree.with_joined(gone, host)
        expected = np.where(tree.labels == gone, host, tree.labels)
        assert joined.n_groups == 4
        assert len(set(zip(joined.labels.tolist(), expected.tolist(), strict=True))) == 4
        coarser = joined.cut(2)  # still nested
        assert len(set(zip(joined.labels.tolist(), coarser.tolist(), strict=True))) == 4
