import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from diva.partition.hierarchy import Hierarchy, group
from diva.partition.louvain import communities
from diva.partition.resolution import choose_resolution
from diva.partition.walk import Walk

seeds = st.integers(0, 2**32 - 1)
resolutions = st.floats(0.01, 10.0)


@st.composite
def walks(draw, max_components=8):
    """Soft or hard responsibilities, perhaps with components that nobody has, perhaps in separate blocks."""
    rng = np.random.default_rng(draw(seeds))
    n_samples, n_components = draw(st.integers(1, 40)), draw(st.integers(1, max_components))
    sharpness = draw(st.sampled_from([0.02, 0.3, 3.0]))
    resp, moved = rng.dirichlet(np.full(n_components, sharpness), (2, n_samples))
    moved = draw(st.sampled_from([0.0, 0.5, 0.9, 1.0])) * (resp - moved) + moved
    if draw(st.booleans()):
        resp, moved = (np.eye(n_components)[part.argmax(axis=1)] for part in (resp, moved))
    n_empty = draw(st.integers(0, 2))
    empty = np.zeros((n_samples, n_empty))
    resp, moved = (np.hstack([part, empty]) for part in (resp, moved))
    moved += 1e-9 * resp  # hard ones that all moved would have no flow at all only if they kept no place
    return Walk(resp, moved, draw(st.sampled_from([None, rng.uniform(0.1, 2.0, n_samples)])))


@st.composite
def generic_walks(draw):
    """No ties: every component has a mass and contacts of its own."""
    rng = np.random.default_rng(draw(seeds))
    n_components = draw(st.integers(2, 9))
    shares = rng.dirichlet(np.full(n_components, 5.0))
    resp = rng.dirichlet(5.0 * shares + 0.05, 60)
    return Walk(resp, 0.7 * resp + 0.3 * rng.dirichlet(5.0 * shares + 0.05, 60))


def together(labels):
    return labels[:, None] == labels


@given(walks(), seeds)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_flow_is_symmetric_and_sums_to_one(walk, seed):
    for flow in (walk.flow, walk.overlap, walk.resampled(np.random.default_rng(seed)).flow):
        np.testing.assert_array_equal(flow, flow.T)
        assert flow.min() >= 0
        np.testing.assert_allclose(flow.sum(), 1.0)


@given(walks())
@settings(max_examples=50, deadline=None, derandomize=True)
def test_going_back_is_the_same_walk(walk):
    back = Walk(walk.resp_moved, walk.resp, walk.weights)
    np.testing.assert_allclose(back.flow, walk.flow, atol=1e-12)


@given(walks(), resolutions, seeds)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_communities_are_numbered_by_falling_mass(walk, resolution, seed):
    labels = communities(walk.flow, resolution, seed)
    masses = np.bincount(labels, weights=walk.flow.sum(axis=0))
    assert (np.diff(masses) <= 1e-11).all()
    assert set(labels) == set(range(labels.max() + 1))
    assert (labels[walk.flow.sum(axis=0) == 0] == 0).all()


@given(generic_walks(), resolutions, seeds)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_no_two_communities_are_better_joined(walk, resolution, seed):
    labels = communities(walk.flow, resolution, seed)
    member = np.eye(labels.max() + 1)[labels]
    masses = walk.flow.sum(axis=0) @ member
    gain = member.T @ walk.flow @ member - resolution * np.outer(masses, masses)
    np.fill_diagonal(gain, 0.0)
    assert gain.max() <= 1e-4  # what Louvain's method calls no gain, and the edges it was not shown


@given(walks(), st.one_of(st.just("auto"), resolutions), seeds)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_cuts_are_nested_and_hold_the_clusters(walk, resolution, seed):
    tree = group(walk, resolution, seed)
    finer = tree.cut(tree.n_components)
    assert len(np.unique(finer)) == tree.n_components
    for n_groups in range(tree.n_components - 1, 0, -1):
        coarser = tree.cut(n_groups)
        assert set(coarser) == set(range(n_groups))
        assert (together(coarser) >= together(finer)).all()
        finer = coarser
    np.testing.assert_array_equal(tree.cut(tree.n_groups), tree.labels)
    np.testing.assert_array_equal(tree.cut_at(tree.resolution), tree.labels)
    assert np.isfinite(tree.heights).all()
    assert (np.diff(tree.heights) <= 0).all()


@given(walks(), resolutions, resolutions)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_a_higher_resolution_cuts_finer(walk, chosen, other):
    tree = group(walk, chosen)
    low, high = sorted((chosen, other))
    assert (together(tree.cut_at(low)) >= together(tree.cut_at(high))).all()


@given(walks(), st.one_of(st.just("auto"), resolutions))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_round_trip_through_json(walk, resolution):
    tree = group(walk, resolution)
    again = Hierarchy.from_dict(json.loads(json.dumps(tree.to_dict())))
    assert again.to_dict() == tree.to_dict()
    for name in ("merges", "heights", "masses", "labels"):
        np.testing.assert_array_equal(getattr(again, name), getattr(tree, name))


@given(walks(), seeds)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_same_seed_same_result(walk, seed):
    assert group(walk, rng=seed).to_dict() == group(walk, rng=np.random.default_rng(seed)).to_dict()


@given(generic_walks(), seeds, seeds)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_permuting_components_permutes_clusters(walk, shuffle, seed):
    order = np.random.default_rng(shuffle).permutation(walk.n_components)
    tree = group(walk, rng=seed)
    permuted = group(Walk(walk.resp[:, order], walk.resp_moved[:, order]), rng=seed)
    np.testing.assert_array_equal(together(permuted.labels), together(tree.labels[order]))
    np.testing.assert_allclose(permuted.heights, tree.heights, rtol=1e-6, atol=1e-9)
    assert permuted.resolution == tree.resolution


@given(walks(), seeds)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_the_choice_is_one_of_the_candidates(walk, seed):
    choice = choose_resolution(walk, seed, n_resolutions=10, n_bootstraps=2)
    assert choice.best in choice.candidates
    partitions = [together(candidate.labels).tobytes() for candidate in choice.candidates]
    assert len(set(partitions)) == len(partitions)
    assert choice.best.score == 0 or choice.best.score >= 0.9 * max(c.score for c in choice.candidates)
