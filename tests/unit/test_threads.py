import os
import threading

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from diva.threads import mapped, on_own_cores, one_thread, one_thread_in_numpy


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_items_are_worked_on_at_the_same_time_by_threads_that_stay(two_threads):
    meeting = threading.Barrier(2, timeout=30)

    def meet(item):
        meeting.wait()  # for the other thread
        return item, threading.get_ident(), torch.get_num_threads()

    with one_thread():
        found = [mapped(meet, [1, 2]) for _ in range(3)]
        assert torch.get_num_threads() == 1
    assert [[item for item, *_ in items] for items in found] == [[1, 2]] * 3
    assert len({thread for items in found for _, thread, _ in items}) == 2
    assert {n for items in found for *_, n in items} == {1}
    assert torch.get_num_threads() == 2


def test_a_thread_does_not_wait_for_itself(two_threads):
    with one_thread():
        assert mapped(lambda n: mapped(lambda m: n * m, range(3)), range(4)) == [[0, n, 2 * n] for n in range(4)]


def test_without_leave_there_is_one_thread(two_threads):
    assert set(mapped(lambda _: threading.get_ident(), range(4))) == {threading.get_ident()}
    with pytest.raises(ZeroDivisionError), one_thread():
        mapped(lambda n: 1 // n, [1, 0])
    assert torch.get_num_threads() == 2


def test_numpy_has_its_threads_back_afterwards():
    def threads():
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        for _ in range(2):
            with one_thread_in_numpy():
                assert set(threads()) == {1}
            assert threads() == before


@pytest.fixture
def eight_cores(monkeypatch):
    """A machine of eight cores, of which this process may use those in the list."""
    mine = [set(range(8))]
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: mine[-1], raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: mine.append(set(cores)), raising=False)
    return mine


def test_processes_have_cores_of_their_own_and_give_them_back(eight_cores):
    for number in range(3):
        with pytest.raises(ZeroDivisionError), on_own_cores(number, 3):
            _ = 1 / 0
    assert eight_cores[1::2] == [{0, 1}, {2, 3, 4}, {5, 6, 7}]
    assert eight_cores[::2] == [set(range(8))] * 4


@pytest.mark.parametrize("of", [1, 2])
def test_cores_that_somebody_has_chosen_are_left_alone(eight_cores, of):
    eight_cores[-1] = {2, 3}
    with on_own_cores(0, of):
        assert eight_cores == [{2, 3}]


@pytest.mark.parametrize(("number", "of"), [(0, 9), (1, 1)])  # more than there are cores; a launcher that does not say how many
def test_processes_without_a_share_have_all_cores(eight_cores, number, of):
    with on_own_cores(number, of):
        assert eight_cores == [set(range(8))]
