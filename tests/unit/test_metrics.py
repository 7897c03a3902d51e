import numpy as np
import pytest

from diva.metrics import Agreement, acc_one_to_one


def test_one_to_one_uses_each_cluster_and_each_class_once():
    classes = [0, 0, 0, 0, 1, 1, 1, 1]
    clusters = [0, 0, 1, 1, 2, 2, 2, 2]
    assert acc_one_to_one(classes, clusters) == 6 / 8


def test_majority_lets_a_class_be_used_any_number_of_times():
    assert Agreement([0, 0, 0, 1], [0, 1, 2, 3]).acc_majority == 1.0


def test_three_to_one_lets_a_class_be_used_three_times():
    assert Agreement([0, 0, 0, 0], [0, 1, 2, 3]).acc_three_to_one == 3 / 4


def test_perfect_agreement_up_to_names():
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 5, 100)
    row = Agreement(classes, 7 - classes).as_row()
    assert row.pop("n_clusters") == 5
    assert all(value == pytest.approx(1.0) for value in row.values())


def test_more_classes_than_clusters():
    assert acc_one_to_one([0, 1, 2, 3], [0, 0, 0, 0]) == 1 / 4


def test_string_classes():
    assert acc_one_to_one(["cat", "cat", "dog"], [1, 1, 0]) == 1.0


@pytest.mark.parametrize(("classes", "clusters"), [([0, 1], [0]), ([], []), ([[0], [1]], [[0], [1]])])
def test_needs_a_class_and_a_cluster_for_each_sample(classes, clusters):
    with pytest.raises(ValueError, match="a class and a cluster"):
        Agreement(classes, clusters)
