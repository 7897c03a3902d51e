import numpy as np
import pytest

from diva.partition.consensus import revise


def test_known_groups_that_share_much_are_joined():
    flow = np.kron(np.diag([3.0, 2.0, 1.0]), [[4.0, 1.0], [1.0, 4.0]])
    flow[:2, 2:4] = flow[2:4, :2] = 4.0  # the first two pairs share much
    assert revise(flow, [7, 7, 3, 3, 5, 5], 0.5).tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize(("mass", "parted"), [(0.8, True), (0.2, False)], ids=["heavy", "light"])
def test_known_groups_are_parted_where_both_parts_are_heavy(mass, parted):
    flow = np.diag([1.0, mass, 1.0])  # groups of 1 + mass and of 1
    groups = revise(flow, [4, 4, 2], 1.0)
    assert (groups[0] != groups[1]) == parted
    assert groups[2] not in groups[:2]


def test_a_member_that_went_over_to_another_group_stays_if_it_is_light():
    flow = np.kron(np.eye(2), np.full((3, 3), 1.0)) + np.eye(6)
    known = [0, 0, 1, 1, 1, 1]  # the third component belongs to the first two
    assert revise(flow, known, 1.0).tolist() == [1, 1, 0, 0, 0, 0]
    flow[2, :2] = flow[:2, 2] = 5.0  # now it is heavy
    assert revise(flow, known, 1.0).tolist() == [0, 0, 0, 1, 1, 1]
