"""A few odd arrays of every kind, and all that have failed once; ``make fuzz`` tries as many as there is time for."""

import numpy as np
import pytest
import torch
from tests.fuzz.arrays import odd_array
from tests.fuzz.cases import Failure, attempt, run_case
from tests.fuzz.found import FOUND, FOUND_FILES, found_in
from tests.fuzz.readers import TARGETS, mutated, outcome, try_mutations

SEED = 19
N_CASES = {"dpmixture": 25, "diva": 12}
N_FILES = 25  # of each kind


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def fails(estimator, seed, number):
    """What went wrong in a case, or nothing."""
    story = []
    try:
        run_case(estimator, seed, number, story)
    except Failure as failure:
        return f"{failure}: {story}"
    return None


@pytest.mark.parametrize("estimator", N_CASES)
def test_odd_arrays(estimator):
    assert [what for number in range(N_CASES[estimator]) if (what := fails(estimator, SEED, number))] == []


@pytest.mark.parametrize("case", found_in(FOUND), ids=" ".join)
def test_what_was_found_stays_mended(case):
    estimator, seed, number = case
    assert fails(estimator, int(seed), int(number)) is None


@pytest.mark.parametrize("kind", TARGETS)
def test_damaged_files(kind):
    assert try_mutations(kind, N_FILES, SEED) == []


@pytest.mark.parametrize("case", found_in(FOUND_FILES), ids=" ".join)
def test_files_that_were_found_stay_refused(case):
    kind, seed, number = case
    outcome(kind, mutated(np.random.default_rng([int(seed), int(number)]), TARGETS[kind].whole()))


def test_a_seed_makes_the_same_array():
    for number in range(50):
        first, second = (odd_array(np.random.default_rng(number)) for _ in range(2))
        assert (first.words, type(first.data)) == (second.words, type(second.data))
        if isinstance(first.data, np.ndarray) and first.data.dtype != object:
            assert first.data.tobytes() == second.data.tobytes()


def raised_elsewhere():
    return np.zeros(2) + np.zeros(3)


def a_mistake():
    return None + 1


def short():
    raise ValueError("no")


@pytest.mark.parametrize("action", [raised_elsewhere, a_mistake, short, lambda: 1 / 0])
def test_errors_that_nobody_meant_are_failures(action):
    with pytest.raises(Failure):
        attempt("it", action)
