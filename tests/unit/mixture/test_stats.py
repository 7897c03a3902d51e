import pytest
import torch

from diva.mixture.gaussian import make_family
from diva.mixture.stats import SuffStats, add_up, concat

NAMES = ("counts", "sum_z", "sum_zz", "entropy")


def example(n_components=3, dim=2, full=True):
    """Different numbers everywhere."""
    shape = (n_components, dim, dim) if full else (n_components, dim)
    fields = [
        torch.arange(1.0, 1 + torch.Size(s).numel(), dtype=torch.float64).view(s)
        for s in ((n_components,), (n_components, dim), shape)
    ]
    return SuffStats(*fields, fields[0] / 10)


def assert_equal(a, b):
    for name in NAMES:
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("index", [1, -1 + 2, [1], slice(1, 2), torch.tensor([1])])
def test_a_part_keeps_its_component_axis(index):
    part = example()[index]
    assert len(part) == 1
    assert part.counts.tolist() == [2.0]
    assert part.sum_z.shape == (1, 2)
    assert part.sum_zz.shape == (1, 2, 2)


def test_components_can_be_taken_in_any_order():
    assert example()[[2, 0]].counts.tolist() == [3.0, 1.0]
    assert len(example()[[]]) == 0


def test_addition_returns_a_new_value():
    a = example()
    double = a + a
    assert_equal(double, a * 2.0)
    assert_equal(a, example())


def test_different_kinds_do_not_mix():
    with pytest.raises(RuntimeError):
        example(dim=2) + example(dim=3)


def test_zeros_are_of_the_same_kind():
    zeros = example().zeros(5)
    assert [t.shape for t in zeros.fields()] == [(5,), (5, 2), (5, 2, 2), (5,)]
    assert not any(t.any() for t in zeros.fields())


@pytest.mark.parametrize("full", [True, False])
def test_merged_is_the_sum_over_components(full):
    a = example(full=full)
    assert_equal(a.merged(), a[0] + a[1] + a[2])


def test_regrouped_adds_those_that_meet_and_leaves_others_empty():
    a = example()
    grouped = a.regrouped(torch.tensor([2, 0, 2]), 4)
    assert_equal(grouped, concat([a[1], a.zeros(1), a[0] + a[2], a.zeros(1)]))


def test_regrouped_permutes():
    assert_equal(example().regrouped(torch.tensor([1, 2, 0]), 3), example()[[2, 0, 1]])


def test_plus_at_adds_where_it_belongs():
    a = example()
    changed = a.plus_at(torch.tensor([2, 0]), a[[0, 0]])
    assert_equal(changed, concat([a[0] + a[0], a[1], a[2] + a[0]]))
    assert_equal(a, example())


def test_plus_at_adds_twice_to_a_position_named_twice():
    a = example()
    assert_equal(a.plus_at(torch.tensor([1, 1]), a[[0, 2]])[1], a[1] + a[0] + a[2])


def test_plus_at_nowhere_changes_nothing():
    assert_equal(example().plus_at(torch.empty(0, dtype=torch.long), example().zeros(0)), example())


def test_add_up_sums_any_number():
    assert_equal(add_up(example() for _ in range(4)), example() * 4.0)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_the_fields_of_empty_statistics_share_no_memory(covariance_type):
    zeros = torch.zeros(2, dtype=torch.float64)
    empty = make_family(covariance_type, zeros, zeros + 1).empty(3)
    pointers = {t.data_ptr() for t in empty.fields()}
    assert len(pointers) == len(NAMES)
