"""Names of clusters: they live on where most of their samples are, and every other change has a record."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from diva.partition.matching import Naming


def events(naming):
    return [(r.event, r.parents, r.children) for r in naming.records]


def after(before, overlap, masses=None):
    overlap = np.array(overlap, dtype=float)
    return before.after(overlap, overlap.sum(0) if masses is None else masses, batch=before.batch + 1)


def test_first_names_are_positions():
    assert Naming.first(3) == Naming((0, 1, 2), 3)


def test_names_follow_their_samples_to_other_positions():
    now = after(Naming.first(3), [[0, 90, 10], [0, 0, 80], [70, 0, 0]])
    assert now.ids == (2, 0, 1)
    assert not now.records


def test_a_cluster_of_new_samples_is_born():
    now = after(Naming.first(2), [[50, 0, 1], [0, 50, 0]], masses=[50, 50, 400])
    assert now.ids == (0, 1, 2)
    assert now.next_id == 3
    assert events(now) == [("born", (), (2,))]
    assert now.records[0].masses == (400.0,)
    assert now.records[0].batch == now.batch == 1


def test_the_larger_part_of_a_split_keeps_the_name():
    now = after(Naming.first(1), [[30, 70]])
    assert now.ids == (1, 0)
    assert events(now) == [("split", (0,), (0, 1))]


def test_a_cluster_that_falls_into_small_parts_loses_its_name():
    now = after(Naming.first(1), [[40, 30, 30]])
    assert now.ids == (1, 2, 3)
    assert events(now) == [("split", (0,), (1, 2, 3))]


def test_the_heavier_of_two_that_merge_keeps_the_name():
    now = after(Naming.first(2), [[30], [70]])
    assert now.ids == (1,)
    assert events(now) == [("merged", (0, 1), (1,))]


def test_a_name_does_not_follow_strays_into_a_new_cluster():
    now = after(Naming.first(2), [[100, 0], [98, 2]], masses=[198, 500])
    assert now.ids == (0, 2)
    assert events(now) == [("merged", (0, 1), (0,)), ("born", (), (2,))]


def test_a_cluster_without_samples_dies():
    now = after(Naming.first(2), [[10, 0], [0, 0]], masses=[10, 5])
    assert now.ids == (0, 2)
    assert events(now) == [("died", (1,), ()), ("born", (), (2,))]


def test_halves_do_not_share_a_name():
    now = after(Naming.first(1), [[50, 50]])
    assert sorted(now.ids) == [0, 1]
    assert events(now)[0][0] == "split"


def test_names_of_the_dead_are_not_used_again():
    one = after(Naming.first(2), [[10], [0]])
    two = after(one, [[10, 0]], masses=[10, 10])
    assert two.ids == (0, 2)


def test_overlap_must_fit():
    with pytest.raises(ValueError, match=r"shape \(2, 1\)"):
        Naming.first(2).after(np.ones((1, 1)), [1.0], batch=1)


@pytest.mark.parametrize(("ids", "next_id"), [((0, 0), 1), ((0, 1), 1), ((-1, 0), 1), ((0,), 1), ((0, 1.0), 2), ((0, True), 2)])
def test_names_that_are_none_are_refused(ids, next_id):
    with pytest.raises(ValueError, match="name"):
        Naming(ids, next_id).check(2)


@given(hnp.arrays(float, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.integers(0, 50)))
def test_every_change_is_explained(overlap):
    before = Naming(tuple(range(10, 10 + len(overlap))), 20)
    masses = overlap.sum(0) + 1
    now = before.after(overlap, masses.tolist(), batch=1)
    now.check(overlap.shape[1])
    told_old = {name for r in now.records for name in r.parents}
    told_new = {name for r in now.records for name in r.children}
    for i, name in enumerate(before.ids):  # a name that is gone is a parent of something
        assert name in now.ids or name in told_old
        if name in now.ids:  # and one that is there has most of its samples
            assert overlap[i, now.ids.index(name)] >= 0.5 * overlap[i].sum()
    for name in now.ids:  # a name that is new is a child of something
        assert name in before.ids or name in told_new
        assert name in before.ids or name >= before.next_id
