import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diva.data import ArrayBatches
from diva.mixture.gaussian import make_family
from diva.mixture.laps import fit_mixture
from diva.mixture.local import summarize
from diva.mixture.moves import Birth, Delete, Expansion, Merge, Shuffle
from diva.mixture.moves.base import Edit, MoveMemory, Proposal, joint_entropy_floor, try_proposal, x_log_x
from diva.mixture.standardize import StandardizedBatches, measure
from diva.mixture.state import MixtureState
from diva.mixture.stats import SuffStats

from ...properties.helpers import assert_close
from ...properties.strategies import responsibilities, weights

FAMILY = make_family("diag", torch.zeros(1).double(), torch.full((1,), 0.1).double())


@st.composite
def held(draw):
    """Responsibilities of some rows, and their weights."""
    n = draw(st.integers(1, 30))
    resp, w = draw(responsibilities(n, draw(st.integers(2, 4)))), draw(weights(n))
    return resp, torch.ones(n, dtype=torch.float64) if w is None else w


def past_of(resp, w):
    return summarize(FAMILY, torch.zeros(len(resp), 1), resp, w)


@given(held())
def test_joint_entropy_floor_is_a_lower_bound(case):
    resp, w = case
    exact = w @ (x_log_x(resp[:, 0]) + x_log_x(resp[:, 1]) - x_log_x(resp[:, 0] + resp[:, 1]))
    floor = joint_entropy_floor(past_of(resp, w), 0, 1)
    assert floor <= exact + 1e-9
    assert floor <= 1e-9


@given(held())
def test_joint_entropy_floor_is_symmetric_and_never_makes_entropy_negative(case):
    past = past_of(*case)
    floor = joint_entropy_floor(past, 0, 1)
    assert abs(floor - joint_entropy_floor(past, 1, 0)) < 1e-9
    assert past.entropy[0] + past.entropy[1] + floor > -1e-9


def test_joint_entropy_floor_is_exact_for_proportional_shares():
    """Jensen loses nothing where every row is shared alike, and other components keep the joint entropy up."""
    resp = torch.tensor([[0.1, 0.3, 0.6]], dtype=torch.float64).repeat(5, 1)
    w = torch.ones(5, dtype=torch.float64)
    exact = w @ (x_log_x(resp[:, 0]) + x_log_x(resp[:, 1]) - x_log_x(resp[:, 0] + resp[:, 1]))
    torch.testing.assert_close(torch.tensor(joint_entropy_floor(past_of(resp, w), 0, 1)).double(), exact, rtol=1e-6, atol=0.0)


def test_nobody_s_past_costs_nothing():
    assert joint_entropy_floor(FAMILY.empty(2), 0, 1) == 0.0


# --- proposals


def two_components(same_place):
    """Two halves of ten rows, at one place or far apart."""
    z = torch.linspace(-0.1, 0.1, 10, dtype=torch.float64).unsqueeze(1)
    resp = torch.eye(2).repeat(5, 1)
    z = z if same_place else z + 20.0 * resp[:, :1]
    memo = summarize(FAMILY, z, resp)
    return MixtureState(FAMILY, 1.0, FAMILY.empty(2), (memo,), memo, ids=(4, 7), next_id=9)


def joining():
    edit = Edit(torch.tensor([0, 0]), (4,), torch.tensor([0]))
    return Proposal("merge", (4, 7), (4,), edit, (FAMILY.empty(1),), FAMILY.empty(1))


def test_a_proposal_that_raises_the_bound_is_accepted():
    before = two_components(same_place=True)
    after, record = try_proposal(before, joining())
    assert record.accepted
    assert record.masses == (10.0,)
    assert after.ids == (4,)
    assert after.next_id == 9
    assert abs(after.elbo - before.elbo - record.gain) < 1e-9
    assert_close(after.total, before.total.merged())
    assert_close(after.memo[0], after.total)


def test_a_rejected_proposal_returns_the_same_object():
    before = two_components(same_place=False)
    after, record = try_proposal(before, joining())
    assert after is before
    assert not record.accepted
    assert record.gain < 0


def test_a_proposal_that_changes_nothing_is_rejected():
    before = two_components(same_place=True)
    same = Edit(torch.arange(2), before.ids, torch.empty(0, dtype=torch.long))
    after, record = try_proposal(before, Proposal("none", (), (), same, (FAMILY.empty(0),), FAMILY.empty(0)))
    assert after is before
    assert record.gain == 0.0


def test_edits_put_the_heaviest_first():
    stats = SuffStats(
        *(torch.tensor(x).double() for x in ([1.0, 5.0, 3.0], [[1.0], [5.0], [3.0]], [[1.0], [5.0], [3.0]], [0.0] * 3))
    )
    edit = Edit(torch.arange(3), (10, 11, 12), torch.tensor([0])).sorted_by(torch.tensor([1.0, 5.0, 3.0]))
    assert edit.ids == (11, 12, 10)
    changed = edit.apply(stats, stats[0])
    assert changed.counts.tolist() == [5.0, 3.0, 2.0]


def test_a_rejected_proposal_cools_down_until_its_mass_has_changed():
    memory = MoveMemory(cool_down=0.05)
    memory.rejected(("birth", 3), 100.0)
    assert memory.cools_down(("birth", 3), 104.0)
    assert not memory.cools_down(("birth", 3), 94.0)
    assert not memory.cools_down(("birth", 4), 100.0)
    assert not memory.cools_down(("merge", 3), 100.0)


# --- births


TWELVE = np.concatenate(
    [np.random.default_rng(i).normal(c, 0.1, size=(100, 2)) for i, c in enumerate(itertools.product(range(4), range(3)))]
)


def moves_with(births, **options):
    """Those of the paper, with its births or ours."""
    if births == "all":
        return [Birth(**options), Merge(), Shuffle()]
    return [Merge(), Expansion(**options, judged=births == "collected"), Shuffle()]


def fit_twelve(births, max_laps=60, **options):
    batches = StandardizedBatches(ArrayBatches(TWELVE), measure(ArrayBatches(TWELVE)).standardization, torch.device("cpu"))
    family = make_family("diag", torch.zeros(2).double(), torch.full((2,), 0.1).double())
    start = MixtureState.start(family, 5.0)
    return fit_mixture(batches, start, np.random.default_rng(0), moves=moves_with(births, **options), max_laps=max_laps)


@pytest.mark.parametrize("births", ["all", "collected"])
def test_births_find_twelve_places(births):
    state = fit_twelve(births).state
    assert state.n_components == 12
    np.testing.assert_allclose(state.total.counts, 100.0, atol=1.0)


def test_births_that_are_not_judged_find_them_with_some_to_spare():
    fit = fit_twelve("always")
    assert 12 <= fit.state.without(fit.newborn).n_components <= 16
    assert max(record.elbo for record in fit.history) == pytest.approx(fit_twelve("all").history[-1].elbo, abs=5.0)


@pytest.mark.parametrize("births", ["all", "collected", "always"])
def test_nothing_is_lost_or_counted_twice(births):
    """What an expansion lends is taken back after the lap."""
    for max_laps in range(2, 9):
        fit = fit_twelve(births, max_laps)
        held = fit.state.without(fit.newborn)
        assert float(held.total.counts.sum()) == pytest.approx(1200.0)
        torch.testing.assert_close(held.total.sum_z.sum(0), torch.zeros(2).double(), atol=1e-3, rtol=0.0)
        assert fit.history[-1].elbo == pytest.approx(held.elbo)


def test_what_is_judged_by_collected_samples_is_accepted_if_their_bound_rises():
    fit = fit_twelve("collected", max_laps=8)
    births = [record for record in fit.lineage if record.move == "birth"]
    assert births
    assert all(record.gain > 0 for record in births)


def test_what_is_not_judged_is_born_in_every_lap_of_one_component():
    fit = fit_twelve("always", max_laps=6)
    assert {record.births for record in fit.history} == {0, 1}
    assert any(record.gain < 0 for record in fit_twelve("always", max_laps=12).lineage if record.move == "birth")
    assert sum(record.merges for record in fit.history) > 0  # which undo them


@pytest.mark.parametrize("births", ["all", "collected"])
@pytest.mark.parametrize("share", [1.0, 0.2])
def test_a_new_component_needs_its_atoms_of_the_data(births, share):
    """However few samples the birth is planned on."""
    assert fit_twelve(births, collected_share=share, min_new_atoms=90.0).state.n_components > 1
    assert fit_twelve(births, collected_share=share, min_new_atoms=700.0).state.n_components == 1


@pytest.mark.parametrize("births", ["all", "collected", "always"])
def test_a_component_gives_birth_only_if_it_has_the_atoms(births):
    assert fit_twelve(births, min_target_atoms=1199.0).state.n_components > 1
    assert fit_twelve(births, min_target_atoms=1201.0).state.n_components == 1
    parents = [r for r in fit_twelve(births, min_target_atoms=500.0).lineage if r.move == "birth"]
    assert len(parents) < len([r for r in fit_twelve(births, min_target_atoms=2.0).lineage if r.move == "birth"])


@pytest.mark.parametrize("births", ["all", "collected", "always"])
def test_a_component_that_was_born_needs_its_atoms_to_stay(births):
    def held(least):
        fit = fit_twelve(births, max_laps=30, min_retained_atoms=least)
        return fit.state.without(fit.newborn).n_components

    assert held(0.0) >= 12
    assert 1 < held(150.0) < 12
    assert held(700.0) == 1


# --- shuffles


def three_at_places():
    """Ten, thirty and twenty rows at three places far apart."""
    rng = np.random.default_rng(0)
    places = np.repeat([0.0, 9.0, 20.0], [100, 300, 200])
    return (places + rng.normal(0, 0.3, 600)).reshape(-1, 1)


def fit_of(z, moves, max_laps=20):
    batches = StandardizedBatches(ArrayBatches(z), measure(ArrayBatches(z)).standardization, torch.device("cpu"))
    return fit_mixture(batches, MixtureState.start(FAMILY, 5.0), np.random.default_rng(1), moves=moves, max_laps=max_laps).state


def test_without_shuffles_components_stay_where_they_are():
    z = three_at_places()
    state = fit_of(z, [Birth(), Merge(), Delete()])
    assert state.ids == tuple(sorted(state.ids))  # the parent in its place, children behind it
    assert state.total.counts.tolist() != sorted(state.total.counts.tolist(), reverse=True)


def test_with_shuffles_the_heaviest_is_first():
    state = fit_of(three_at_places(), [Birth(), Merge(), Delete(), Shuffle()])
    assert state.n_components == 3
    assert state.total.counts.tolist() == sorted(state.total.counts.tolist(), reverse=True)


def test_a_merge_without_shuffles_moves_no_other_component():
    family = FAMILY
    z = torch.cat([torch.full((n, 1), place, dtype=torch.float64) for place, n in ((0.0, 2), (5.0, 4), (0.01, 8), (9.0, 16))])
    resp = torch.eye(4, dtype=torch.float64).repeat_interleave(torch.tensor([2, 4, 8, 16]), 0)
    memo = summarize(family, z, resp)
    state = MixtureState(family, 1.0, family.empty(4), (memo,), memo, ids=(0, 1, 2, 3), next_id=4)
    edit = Edit(torch.tensor([1, 0, 1, 2]), (1, 2, 3), torch.tensor([1]))
    merge = Proposal("merge", (2, 0), (2,), edit, (family.empty(1),), family.empty(1))
    assert try_proposal(state, merge, in_order=False)[0].ids == (1, 2, 3)
    assert try_proposal(state, merge)[0].ids == (3, 2, 1)


def test_a_shuffle_is_a_proposal_like_any_other():
    state = two_components(same_place=False)
    heavier = summarize(FAMILY, torch.zeros(3, 1), torch.tensor([[0.0, 1.0]]).repeat(3, 1))
    memo = state.memo[0] + heavier
    state = MixtureState(FAMILY, 1.0, FAMILY.empty(2), (memo,), memo, ids=(4, 7), next_id=9)
    (order,) = Shuffle().study(state, MoveMemory(), np.random.default_rng(0)).end_lap()
    after, record = try_proposal(state, order.proposal(state), in_order=False)
    assert record.accepted
    assert after.ids == (7, 4)
    assert after.total.counts.tolist() == [8.0, 5.0]
    assert order.proposal(after) is None
