"""A stream has no end: neither memory, nor time, nor the file of a model grows with the batches it has seen."""

import gc
import pickle
import time

import numpy as np
import pytest

import diva.mixture.fitting
from diva import DPMixture

CENTRES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])


def arriving(rng, n):
    return rng.normal(size=(n, 2)) + CENTRES[rng.integers(0, 3, size=n)]


@pytest.mark.parametrize("n_batches", [60, pytest.param(6000, marks=pytest.mark.slow)])
def test_the_last_of_many_batches_cost_what_those_in_the_middle_cost(n_batches, tmp_path, monkeypatch):
    monkeypatch.setattr(diva.mixture.fitting, "MOST_LAPS", min(n_batches // 3, 1000))  # of the history that are kept
    rng, third = np.random.default_rng(0), n_batches // 3
    model = DPMixture(random_state=0).fit(arriving(rng, 300))
    seconds, n_objects, model_bytes, file_bytes = [], [], [], []
    for _ in range(3):
        begun = time.process_time()
        for _ in range(third):
            model.partial_fit(arriving(rng, 8))
        seconds.append(time.process_time() - begun)
        gc.collect()
        n_objects.append(len(gc.get_objects()))
        model_bytes.append(len(pickle.dumps(model)))
        model.save(tmp_path / "m.diva")
        file_bytes.append((tmp_path / "m.diva").stat().st_size)
    assert len(model.labels_) == 8
    assert len(model.history_) == min(n_batches // 3, 1000)
    assert seconds[2] < 2.0 * seconds[1]
    assert n_objects[2] - n_objects[1] < third  # less than one for each batch
    assert model_bytes[2] < 1.05 * model_bytes[1]
    assert file_bytes[2] < 1.05 * file_bytes[1]
