"""Several processes on this machine, as torchrun would start them, but forked: nothing is imported again."""

import multiprocessing
import os
import pickle
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch

from diva import distributed

LIMIT = 120.0  # seconds after which a test gives up on its processes


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _work(rank: int, world: int, port: int, task: Callable[[], Any], timeout: float, answer: Any) -> None:
    torch.set_num_threads(1)
    settings = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    settings |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in settings.items()})
    try:
        with distributed.join(timeout):
            answer.send_bytes(pickle.dumps(task()))
    except Exception as error:
        answer.send_bytes(pickle.dumps(error))


@pytest.fixture
def together() -> Callable[..., list[Any]]:
    """Run a function on several processes; what each returns or raises, None for one that died."""

    def run(task: Callable[[], Any], world: int, timeout: float = 60.0) -> list[Any]:
        context, port, running = multiprocessing.get_context("fork"), free_port(), []
        for rank in range(world):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(rank, world, port, task, timeout, theirs))
            process.start()
            theirs.close()
            running.append((process, ours))
        answers = []
        for process, ours in running:
            try:
                answers.append(pickle.loads(ours.recv_bytes()) if ours.poll(LIMIT) else TimeoutError("no answer"))
            except EOFError:
                answers.append(None)
            process.join(10)
            process.kill()
        return answers

    return run
