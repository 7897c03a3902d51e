"""Tests of Adam without torch's compiler."""

import subprocess
import sys

import torch
from torch import nn

from diva.training.adam import Adam


def descended(kind):
    network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    with torch.no_grad():
        for i, parameter in enumerate(network.parameters()):
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape) + i)
    optimizer = kind(network.parameters(), lr=0.02, weight_decay=0.1)
    for step in range(30):
        optimizer.zero_grad()
        network(torch.arange(6.0).reshape(2, 3) + step % 3).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in network.parameters()]


def test_steps_are_those_of_torch():
    for ours, torchs in zip(descended(Adam), descended(torch.optim.Adam), strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-5, atol=1e-6)


def test_the_compiler_of_torch_is_not_imported():
    code = """
import sys, torch
from diva.training.adam import Adam
from diva.training.state import optimizer_tensors
weight = torch.nn.Parameter(torch.ones(2))
optimizer = Adam([weight])
weight.sum().backward()
optimizer.step()
optimizer.zero_grad()
assert weight[0] < 1 and optimizer_tensors("adam", optimizer)
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
