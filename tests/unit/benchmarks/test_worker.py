"""A job that takes too long, fails or kills its process does not hold up the next."""

import os
import time
from functools import partial

from benchmarks.worker import DIED, TOO_SLOW, Worker

LATER = partial(partial, partial)  # LATER(f) is a function that makes f(job), to be called later, of a job


def test_a_job_over_the_limit_is_killed_and_the_next_begins_anew():
    with Worker(LATER(time.sleep), limit=0.5, environment={}) as worker:
        start = time.perf_counter()
        assert worker.run(60.0).trouble == TOO_SLOW
        assert time.perf_counter() - start < 30
        assert not worker.run(0.0).trouble


def test_an_exception_is_an_outcome_and_the_process_goes_on():
    with Worker(LATER(int), limit=60.0, environment={}) as worker:
        assert worker.run("seven").trouble.startswith("ValueError: invalid literal")
        assert worker.run("7").result == 7


def test_a_process_that_dies_is_an_outcome():
    with Worker(LATER(os._exit), limit=60.0, environment={}) as worker:
        assert worker.run(3).trouble == DIED


def test_variables_are_for_the_other_process_alone():
    with Worker(LATER(os.getenv), limit=60.0, environment={"DIVA_TEST_OF_WORKER": "1"}) as worker:
        assert worker.run("DIVA_TEST_OF_WORKER").result == "1"
    assert "DIVA_TEST_OF_WORKER" not in os.environ
