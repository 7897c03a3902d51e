import pytest
import torch

from diva.exceptions import DataChangedError
from diva.mixture.gaussian import make_family
from diva.mixture.local import summarize
from diva.mixture.state import MixtureState
from diva.mixture.stats import add_up

from ...properties.helpers import assert_close


def part(seed, n=20, k=3, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    z = shift + torch.randn(n, 2, dtype=torch.float64, generator=generator)
    resp = torch.softmax(3 * torch.randn(n, k, dtype=torch.float64, generator=generator), dim=1)
    return summarize(FAMILY, z, resp)


FAMILY = make_family("full", torch.zeros(2).double(), torch.full((2,), 0.1).double())


def state(*memo, k=3):
    past = FAMILY.empty(k)
    return MixtureState(FAMILY, 1.0, past, memo, add_up([past, *memo]), tuple(range(k)), k)


def test_starts_with_one_component_that_has_seen_nothing():
    start = MixtureState.start(FAMILY, alpha=1.0)
    assert start.n_components == 1
    assert start.elbo == 0.0


def test_a_new_batch_joins_and_an_old_one_is_replaced():
    a, b = part(0), part(1)
    both = state(a).revisit(1, b)
    assert_close(both.total, a + b)
    again = both.revisit(0, a[[1, 0, 2]])
    assert_close(again.total, a[[1, 0, 2]] + b)
    assert_close(both.total, a + b)  # the state before is as it was


@pytest.mark.parametrize("other", [part(0, n=21), part(0, shift=0.1)])
def test_other_rows_are_noticed(other):
    with pytest.raises(DataChangedError, match="Batch 0 changed"):
        state(part(0)).revisit(0, other)


def test_merge_scores_are_marginal_likelihood_ratios():
    now = state(part(0))
    zero = FAMILY.log_normalizer(FAMILY.empty())
    lone = FAMILY.log_normalizer(now.total) - zero
    for a in range(3):
        assert now.merge_scores[a, a] == -torch.inf
        for b in range(3):
            if a != b:
                together = FAMILY.log_normalizer(now.total[a] + now.total[b]) - zero
                torch.testing.assert_close(now.merge_scores[a, b], (together - lone[a] - lone[b]).squeeze())


def test_canonical_order_does_not_depend_on_the_order_before():
    now = state(part(0), part(1))
    shuffled = MixtureState(
        FAMILY, 1.0, now.past, tuple(m[[2, 0, 1]] for m in now.memo), now.total[[2, 0, 1]], ids=(2, 0, 1), next_id=3
    )
    one, other = now.in_canonical_order(), shuffled.in_canonical_order()
    assert one.ids == other.ids
    assert_close(one.total, other.total, rtol=0.0)
    assert (one.total.counts.diff() <= 0).all()


def test_components_of_equal_mass_are_ordered_by_their_means():
    z = torch.tensor([[2.0, 0.0], [1.0, 5.0], [1.0, -5.0]], dtype=torch.float64)
    now = state(summarize(FAMILY, z, torch.eye(3)))
    assert now.in_canonical_order().ids == (2, 1, 0)


def test_memo_can_become_past():
    now = state(part(0), part(1))
    later = now.with_memo_as_past()
    assert later.memo == ()
    assert_close(later.past, now.total)
    assert later.elbo == pytest.approx(now.elbo)


def test_forgetting_data_keeps_the_components():
    now = state(part(0))
    blank = now.forgetting_data()
    assert blank.ids == now.ids
    assert not blank.past.counts.any()
    assert torch.equal(blank.posterior.scores.coef, now.posterior.scores.coef)
