"""Maps of codes."""

import numpy as np
import pytest
import torch

from diva.report.projection import project


def test_umap_leaves_the_number_of_threads_alone():
    pytest.importorskip("umap")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        project(np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32), "umap")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
