"""Any sequence of visits and moves keeps the books right and the bound rising."""

import math
from collections import Counter
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from diva.mixture.bound import elbo
from diva.mixture.gaussian import make_family
from diva.mixture.laps import assign_lap
from diva.mixture.local import visit
from diva.mixture.moves import Birth, Delete, Merge, MoveMemory, Shuffle
from diva.mixture.moves.base import try_candidates
from diva.mixture.state import MixtureState
from diva.mixture.stats import add_up

from .helpers import MemoryBlock, assert_close
from .shadow import Part, Recorder, Shadow
from .strategies import clumps, concentrations, covariance_types, responsibilities, seeds, weights

# every pair and every component is considered, so that rejections are seen as well
MOVES = {"birth": Birth(n_fresh=3), "merge": Merge(), "delete": Delete(worst_cost=100.0), "shuffle": Shuffle()}
some_moves = st.lists(st.sampled_from(sorted(MOVES)), max_size=4)
ROUNDING = 1e-9  # of float64, relative to |elbo| + n D


@st.composite
def data_sets(draw, dim):
    """One to three batches."""
    z = torch.from_numpy(draw(clumps(dim, st.integers(6, 60))))
    whole = MemoryBlock(z, draw(weights(len(z))))
    return [MemoryBlock(*piece) for piece in whole.chunks(-(-len(z) // draw(st.integers(1, 3))))]


class MixtureMachine(RuleBasedStateMachine):
    outcomes: ClassVar[Counter] = Counter()  # of all runs: (move, accepted) -> how often

    @initialize(covariance_type=covariance_types, dim=st.integers(1, 3), k=st.integers(1, 6), data=st.data())
    def start(self, covariance_type, dim, k, data):
        """Some components with any responsibilities: too many, too few, or just wrong ones."""
        zeros = torch.zeros(dim, dtype=torch.float64)
        family = make_family(covariance_type, m0=zeros, variance=zeros + 0.1)
        self.data, self.rng = data, np.random.default_rng(data.draw(seeds))
        self.memory = MoveMemory(cool_down=-1.0)  # nothing is ever held back
        self.blocks, ids = data.draw(data_sets(dim)), tuple(range(k))
        parts = [Part.of(b, ids, data.draw(responsibilities(len(b.z), k)).log()) for b in self.blocks]
        self.shadow = Shadow(family, parts)
        memo = tuple(part.stats(family, ids) for part in parts)
        self.state = MixtureState(family, data.draw(concentrations), family.empty(k), memo, add_up(memo), ids, next_id=k)
        self.names_given = set(ids)

    # --- what may happen

    @rule(number=st.integers(0, 2))
    def visit_a_batch(self, number):
        self.visit(number % len(self.blocks))

    @rule(names=some_moves)
    def do_a_lap(self, names):
        studies = [MOVES[name].study(self.state, self.memory, self.rng) for name in names]
        for number in range(len(self.blocks)):
            self.visit(number, studies)
        self.try_moves(studies)

    @rule()
    def sum_the_total_anew(self):
        self.rise_to(self.state.refreshed())

    @rule()
    def put_in_canonical_order(self):
        self.rise_to(self.state.in_canonical_order())

    @precondition(lambda self: len(self.shadow.past) < 4)
    @rule(names=some_moves, far=st.sampled_from([0.0, 6.0]))
    def go_on_with_new_data(self, names, far):
        """What was present is past; the bound, now of more data, may start anywhere."""
        self.blocks = [MemoryBlock(b.z + far, b.weights) for b in self.data.draw(data_sets(self.state.family.dim))]
        self.memory = MoveMemory(cool_down=-1.0)
        before = self.state.with_memo_as_past()
        studies = [MOVES[name].study(before, self.memory, self.rng) for name in names]
        recorder = Recorder()
        self.state = assign_lap(before, self.blocks, [*studies, recorder])
        parts = [Part.of(b, before.ids, log_resp) for b, log_resp in zip(self.blocks, recorder.batches, strict=True)]
        self.shadow = Shadow(self.state.family, parts, past=[*self.shadow.past, *self.shadow.present])
        self.try_moves(studies)

    # --- how it happens, each step checked

    def visit(self, number, studies=()):
        recorder = Recorder()
        stats = visit(self.state.posterior, self.blocks[number], [*studies, recorder])
        self.shadow.present[number] = Part.of(self.blocks[number], self.state.ids, recorder.batches[0])
        self.rise_to(self.state.revisit(number, stats))

    def try_moves(self, studies):
        changed = set()
        for study in studies:
            for candidate in study.end_lap():
                before = self.state
                after, records = try_candidates(before, [candidate], self.memory, changed)
                if not records:  # stale, or nothing to propose
                    assert after is before
                    continue
                (record,) = records
                self.outcomes[record.move, record.accepted] += 1
                shadow_after = self.shadow.moved(candidate, record)
                self.check_gain(before, record, shadow_after)
                if record.accepted:
                    assert record.gain > 0
                    self.check_names(before, after)
                    self.shadow = shadow_after
                    self.rise_to(after)
                else:
                    assert after is before

    def check_gain(self, before, record, shadow_after):
        """The gain is that of responsibilities changed as the move defines it, whatever bookkeeping led there."""
        gone = {"birth": (), "merge": record.parents[1:], "delete": record.parents, "shuffle": ()}[record.move]
        ids = (*(i for i in before.ids if i not in gone), *(i for i in record.children if i not in before.ids))
        total = shadow_after.total(ids)
        by_mass = total.counts.argsort(descending=True)
        bound = float(elbo(before.family, before.alpha, total[by_mass]))
        if not self.shadow.past:
            assert math.isclose(before.elbo + record.gain, bound, rel_tol=0.0, abs_tol=self.rounding())
        else:  # of data that are gone the entropy is only known from below
            assert before.elbo + record.gain <= bound + self.rounding()

    def check_names(self, before, after):
        fresh = set(after.ids) - set(before.ids)
        assert not fresh & self.names_given
        self.names_given |= fresh

    def rise_to(self, state):
        assert state.elbo >= self.state.elbo - self.rounding()
        self.state = state

    def rounding(self):
        return ROUNDING * (abs(self.state.elbo) + self.mass() * self.state.family.dim)

    def mass(self):
        return sum(part.block.mass for part in (*self.shadow.past, *self.shadow.present))

    # --- what always holds

    @invariant()
    def total_is_past_plus_memo(self):
        assert_close(self.state.total, add_up([self.state.past, *self.state.memo]))

    @invariant()
    def memo_is_of_the_responsibilities(self):
        for stats, part in zip(self.state.memo, self.shadow.present, strict=True):
            assert_close(stats, part.stats(self.state.family, self.state.ids))

    @invariant()
    def past_is_exact_but_for_its_entropy_which_is_a_lower_bound(self):
        claimed, true = self.state.past, self.shadow.past_stats(self.state.ids)
        assert_close(without_entropy(claimed), without_entropy(true))
        assert (claimed.entropy <= true.entropy + self.rounding()).all()

    @invariant()
    def nothing_is_lost_of_the_data(self):
        family = self.state.family
        ones = [Part.of(p.block, [0], torch.zeros(len(p.block.z), 1)) for p in (*self.shadow.past, *self.shadow.present)]
        data, held = add_up([one.stats(family, (0,)) for one in ones]), self.state.total.merged()
        assert math.isclose(float(held.counts), self.mass(), rel_tol=1e-10)
        assert_close(without_entropy(held), data)

    @invariant()
    def every_component_has_one_name(self):
        ids = self.state.ids
        assert len(set(ids)) == len(ids) == len(self.state.total)
        assert set(ids) <= self.names_given
        assert self.state.next_id > max(self.names_given)

    @invariant()
    def the_bound_is_that_of_the_statistics(self):
        fresh = elbo(self.state.family, self.state.alpha, add_up([self.state.past, *self.state.memo]))
        assert math.isclose(self.state.elbo, float(fresh), rel_tol=0.0, abs_tol=self.rounding())


def without_entropy(stats):
    return replace(stats, entropy=torch.zeros_like(stats.entropy))


def test_any_sequence_of_visits_and_moves():
    MixtureMachine.outcomes.clear()
    quick = settings(max_examples=60, stateful_step_count=12, phases=[Phase.generate, Phase.shrink])
    run_state_machine_as_test(MixtureMachine, settings=quick)
    # else the laws held for want of cases
    assert {move for move, accepted in MixtureMachine.outcomes if accepted} >= {"birth", "merge", "delete"}
    assert not all(accepted for _, accepted in MixtureMachine.outcomes)
