"""Statistics are additive: the one property on which memo, moves and distribution rest."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from diva.mixture.local import summarize, visit
from diva.mixture.state import MixtureState
from diva.mixture.stats import add_up, concat

from .helpers import MemoryBlock, assert_close
from .strategies import assigned, concentrations, families, seeds


@st.composite
def two_parts(draw):
    """A family and two sets of codes assigned to the same number of components, both weighted or none."""
    family, k = draw(families()), draw(st.integers(1, 5))
    a, b = draw(assigned(family.dim, k)), draw(assigned(family.dim, k))
    if a[2] is None or b[2] is None:
        a, b = (*a[:2], None), (*b[:2], None)
    return family, a, b


def together(a, b):
    return tuple(None if x is None else torch.cat([x, y]) for x, y in zip(a, b, strict=True))


@given(two_parts())
def test_parts_add_up_to_the_whole(parts):
    family, a, b = parts
    whole = summarize(family, *together(a, b))
    assert_close(summarize(family, *a) + summarize(family, *b), whole)
    assert_close(add_up([summarize(family, *b), summarize(family, *a)]), whole)


@given(two_parts())
def test_adding_then_subtracting_changes_nothing(parts):
    family, a, b = parts
    a, b = summarize(family, *a), summarize(family, *b)
    assert_close(a + b - b, a)
    assert_close(a - a, family.empty(len(a)))


@given(two_parts(), st.sampled_from([0.0, 0.5, 3.0]))
def test_a_factor_multiplies_every_weight(parts, factor):
    family, (z, resp, weights), _ = parts
    weights = torch.ones(len(z), dtype=torch.float64) if weights is None else weights
    assert_close(summarize(family, z, resp, weights) * factor, summarize(family, z, resp, weights * factor))


@given(two_parts(), seeds)
def test_weights_stand_for_repetition(parts, seed):
    family, (z, resp, _), _ = parts
    times = torch.randint(0, 4, (len(z),), generator=torch.Generator().manual_seed(seed))
    repeated = summarize(family, z.repeat_interleave(times, 0), resp.repeat_interleave(times, 0))
    assert_close(summarize(family, z, resp, times.double()), repeated)


@given(two_parts(), concentrations, seeds)
def test_a_visit_with_weights_is_a_visit_with_repetition(parts, alpha, seed):
    family, (z, resp, _), _ = parts
    posterior = state_of(family, alpha, summarize(family, z, resp)).posterior
    times = torch.randint(0, 4, (len(z),), generator=torch.Generator().manual_seed(seed))
    weighted = visit(posterior, MemoryBlock(z, times.double()))
    assert_close(weighted, visit(posterior, MemoryBlock(z.repeat_interleave(times, 0))))


@given(two_parts(), concentrations)
def test_a_visit_summarizes_the_responsibilities_of_the_posterior(parts, alpha):
    family, (z, resp, weights), _ = parts
    posterior = state_of(family, alpha, summarize(family, z, resp)).posterior
    plain = summarize(family, z, posterior.responsibilities(z), weights)
    assert_close(visit(posterior, MemoryBlock(z, weights)), plain)


@given(two_parts())
def test_what_components_hold_does_not_depend_on_how_they_are_grouped(parts):
    family, a, b = parts
    a, b = summarize(family, *a), summarize(family, *b)
    everything = concat([a, b])
    assert_close(everything.regrouped(torch.arange(len(a)).repeat(2), len(a)), a + b)
    assert_close(everything.merged(), a.merged() + b.merged())


def state_of(family, alpha, total):
    return MixtureState(family, alpha, family.empty(len(total)), (total,), total, tuple(range(len(total))), len(total))
