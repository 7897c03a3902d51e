import os
import time
from itertools import pairwise

import numpy as np
import pytest
import torch

from diva import distributed
from diva.exceptions import DistributedError
from diva.mixture.local import row_luck


def test_alone_everything_is_the_identity():
    assert (distributed.rank(), distributed.world_size(), distributed.is_main()) == (0, 1, True)
    assert distributed.gather("x") == ["x"]
    assert distributed.from_main(3) == distributed.alike(lambda: 3) == 3
    assert distributed.mine([1, 2, 3]) == ([1, 2, 3], 3)
    tensor = torch.ones(2)
    distributed.add_up_([tensor])
    assert tensor.tolist() == [1.0, 1.0]
    generator = torch.Generator()
    assert distributed.own_generator(generator) is generator
    assert [c.tolist() for c in distributed.gather_rows(np.array([2, 1]), np.array([20, 10]))] == [[1, 2], [10, 20]]


@pytest.mark.parametrize("n_rows", [0, 1, 8191, 8192, 50_000, 200_000, 50_000_000])
def test_parts_cover_all_rows_and_none_is_large(n_rows):
    parts = distributed.split(n_rows)
    assert parts[0].start == 0
    assert parts[-1].stop == n_rows
    assert all(a.stop == b.start for a, b in pairwise(parts))
    assert max(p.stop - p.start for p in parts) <= max(2 * distributed.PART_ROWS, 2 * distributed.LARGEST_PART)
    if n_rows >= 200_000:
        assert len(parts) % distributed.N_PARTS == 0  # shared out evenly


def test_luck_belongs_to_the_row():
    whole = row_luck(7, 0, 1000)
    np.testing.assert_array_equal(whole[13:813], row_luck(7, 13, 800))
    assert not np.array_equal(whole, row_luck(8, 0, 1000))
    assert abs(whole.mean() - 0.5) < 4 * 12**-0.5 / 1000**0.5


def _exchange():
    me = distributed.rank()
    with distributed.alone():
        assert distributed.world_size() == 1
    gradients = [torch.full((2,), float(me + 1)), torch.ones(())]
    distributed.add_up_(gradients)
    mine = distributed.mine(range(5))
    vectors = [torch.tensor([0.1 * part, 1.0], dtype=torch.float64) for part in mine.items]
    rows = np.array([4, 0] if me == 0 else [1], dtype=np.int64)
    numbers, doubled = distributed.gather_rows(rows, 2.0 * rows)
    shared = torch.Generator().manual_seed(0)
    own = torch.rand((), generator=distributed.own_generator(shared)).item()
    return {
        "objects": distributed.gather({"rank": me}),
        "main": distributed.from_main(me),
        "gradients": [t.tolist() for t in gradients],
        "sum": distributed.sum_in_order(vectors, 2, mine.most).tolist(),
        "rows": (numbers.tolist(), doubled.tolist()),
        "shared": torch.rand((), generator=shared).item(),
        "own": own,
    }


def test_what_goes_from_one_process_to_another(together):
    first, second = together(_exchange, 2)
    owns = {answer.pop("own") for answer in (first, second)}
    assert len(owns) == 2
    assert first == second
    assert first["objects"] == [{"rank": 0}, {"rank": 1}]
    assert first["main"] == 0
    assert first["gradients"] == [[3.0, 3.0], 2.0]
    assert first["sum"] == torch.tensor([[0.1 * part, 1.0] for part in range(5)], dtype=torch.float64).sum(0).tolist()
    assert first["rows"] == ([0, 1, 4], [0.0, 2.0, 8.0])


def _disagree():
    distributed.agree(distributed.rank() // 2, "number of components")


def test_processes_that_disagree_say_who(together):
    answers = together(_disagree, 3)
    assert all(isinstance(answer, DistributedError) for answer in answers)
    assert "Process 2 has come to another number of components" in str(answers[0])


def _vanish():
    if distributed.rank() == 1:
        os._exit(9)
    distributed.gather("anybody?")


def test_a_process_that_dies_is_named_at_once(together):
    started = time.monotonic()
    first, died, third = together(_vanish, 3)
    assert died is None
    for answer in (first, third):
        assert isinstance(answer, DistributedError)
        assert "Process 1 did not answer" in str(answer)
    assert time.monotonic() - started < 100


def _stall():
    if distributed.rank() == 1:
        time.sleep(8)
        return None
    return distributed.gather("anybody?")


def test_a_process_that_hangs_is_named_after_the_timeout(together):
    answer, _ = together(_stall, 2, timeout=2.0)
    assert isinstance(answer, DistributedError)
    assert "Process 1 did not answer while process 0 of 2 was comparing notes (it waits 2 seconds at most)" in str(answer)
