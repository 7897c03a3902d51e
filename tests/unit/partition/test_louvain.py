import numpy as np
import pytest

from diva.partition.louvain import communities


def test_communities_are_numbered_by_mass():
    flow = np.array([[1.0, 0, 0.5, 0], [0, 4.0, 0, 2.0], [0.5, 0, 1.0, 0], [0, 2.0, 0, 4.0]])
    assert communities(flow, 0.5).tolist() == [1, 0, 1, 0]
    assert communities(flow, 100.0).tolist() == [2, 0, 3, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: communities(np.ones((2, 3)), 1.0), "flow should have shape"),
        (lambda: communities([[1.0, 2.0], [0.0, 1.0]], 1.0), "symmetric"),
        (lambda: communities(np.zeros((2, 2)), 1.0), "not all 0"),
        (lambda: communities(np.eye(2), 0.0), "positive number"),
    ],
)
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()
