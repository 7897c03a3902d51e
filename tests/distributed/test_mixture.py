"""One process, two or four: the same mixture, bit for bit."""

import os
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from diva import DPMixture, distributed
from diva.exceptions import DistributedError

WORDS = ("elbo", "labels", "lineage", "component_labels", "scores", "proba")


def data(n=2400, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 3, size=(4, 3))
    return (centres[rng.integers(4, size=n)] + 0.4 * rng.normal(size=(n, 3))).astype(np.float32)


def answers(model, X):
    given = model.elbo_, model.labels_, model.lineage_, model.component_labels_, model.score_samples(X), model.predict_proba(X)
    return dict(zip(WORDS, given, strict=True)) | {"predicted": model.predict(X)}


def fit(X, covariance_type="diag", **options):
    return DPMixture(random_state=0, covariance_type=covariance_type, n_init=0, batch_size=600, **options).fit(X)


def fit_and_ask(covariance_type):
    return answers(fit(data(), covariance_type), data())


def assert_same(found, expected):
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Batches of a few hundred rows are cut as those of a hundred thousand are."""
    monkeypatch.setattr(distributed, "PART_ROWS", 50)


@pytest.mark.parametrize(("covariance_type", "world"), [("diag", 2), ("full", 2), ("diag", 4)])
def test_any_number_of_processes_gives_the_same_mixture(together, covariance_type, world):
    alone = fit_and_ask(covariance_type)
    assert len(np.unique(alone["labels"])) == 4
    assert any(record.move == "birth" for record in alone["lineage"])
    np.testing.assert_array_equal(alone["labels"], alone["predicted"])
    for found in together(partial(fit_and_ask, covariance_type), world):
        assert_same(found, alone)


def test_any_number_of_threads_gives_the_same_mixture():
    torch.set_num_threads(1)
    alone = fit_and_ask("diag")
    torch.set_num_threads(3)
    try:
        assert_same(fit_and_ask("diag"), alone)
    finally:
        torch.set_num_threads(1)


def test_more_processes_than_parts(together, monkeypatch):
    monkeypatch.setattr(distributed, "PART_ROWS", 10_000)  # one part: two processes have nothing to do but to agree
    alone = fit_and_ask("diag")
    for found in together(partial(fit_and_ask, "diag"), 3):
        assert_same(found, alone)


def weighted_fit():
    weights = np.random.default_rng(1).uniform(0.5, 2, size=2400)
    return DPMixture(random_state=0, covariance_type="diag", n_init=0, batch_size=600).fit(data(), sample_weight=weights).elbo_


def test_weights_are_shared_out_with_their_rows(together):
    assert together(weighted_fit, 2) == [weighted_fit()] * 2


def continued():
    model = fit(data()[:1200])
    return answers(model.partial_fit(data()[1200:]), data())


def test_going_on_is_the_same_too(together):
    for found in together(continued, 2):
        assert_same(found, continued())


def fit_at_defaults(**options):
    """Starts are agglomerated, and race, before the laps on all data."""
    X = data(1200).astype(np.float64) @ np.random.default_rng(2).normal(size=(3, 5))
    X[:3] += 1000.0
    model = DPMixture(random_state=0, **options).fit(X)
    return answers(model, X) | {"ids": model.cluster_ids_, "novel": model.is_novel(X), "codes": model.assign(X).codes}


@pytest.mark.parametrize("options", [{}, {"pca": 2, "reject": True}, {"n_clusters": 2}, {"min_cluster_size": 50}], ids=str)
def test_starts_axes_and_wishes_are_the_same_too(together, options):
    alone = fit_at_defaults(**options)
    for found in together(partial(fit_at_defaults, **options), 2):
        assert_same(found, alone)


def fit_shard(shards):
    X = shards[distributed.rank()]
    model = DPMixture(random_state=0, covariance_type="diag", n_init=0).fit(distributed.Shard(X))
    own = np.concatenate(X) if isinstance(X, list) else X
    return model.elbo_, model.component_labels_, model.predict(distributed.Shard(own)), model.labels_


@pytest.mark.parametrize("kind", ["arrays", "batches"])
def test_each_process_has_rows_of_its_own(together, kind):
    """The b-th batch is what all have as their b-th: as one process would see it, given those batches."""
    X = data(1500).astype(np.float64)  # products of float32 are rounded by the piece, and pieces are others
    if kind == "arrays":
        shards, batches = [X[:900], X[900:]], [X]
    else:
        shards = [[X[:500], X[500:900]], [X[900:]]]  # the second process has fewer batches
        batches = [np.concatenate([X[:500], X[900:]]), X[500:900]]
    alone = DPMixture(random_state=0, covariance_type="diag", n_init=0).fit(batches)
    (elbo, components, predicted, labels), (other_elbo, other_components, *_) = together(partial(fit_shard, shards), 2)
    assert elbo == other_elbo == pytest.approx(alone.elbo_, rel=1e-9)
    assert (len(components), len(other_components)) == (900, 600)
    np.testing.assert_array_equal(np.concatenate([components, other_components]), alone.predict(X, level="component"))
    np.testing.assert_array_equal(predicted, labels)


def axes_of_shards(shards):
    model = DPMixture(random_state=0, covariance_type="diag", pca=2, n_init=0).fit(
        distributed.Shard(shards[distributed.rank()])
    )
    return model.preparation_.mean, model.preparation_.axes, model.elbo_, model.labels_


def test_principal_axes_are_those_of_the_rows_of_all(together):
    X = data(1500).astype(np.float64) + 100.0
    alone = DPMixture(random_state=0, covariance_type="diag", pca=2, n_init=0).fit(
        [np.concatenate([X[:500], X[900:]]), X[500:900]]
    )
    first, second = together(partial(axes_of_shards, [[X[:500], X[500:900]], [X[900:]]]), 2)
    for mean, axes, elbo, _ in (first, second):
        torch.testing.assert_close(mean, alone.preparation_.mean, rtol=1e-12, atol=0)
        torch.testing.assert_close(axes, alone.preparation_.axes, rtol=0, atol=1e-9)
        assert elbo == first[2] == pytest.approx(alone.elbo_, rel=1e-9)
    np.testing.assert_array_equal(np.concatenate([first[3], second[3]]), alone.predict(X))


def table_of_things():
    """The second half has a colour, and a gap, that the first has not."""
    rng = np.random.default_rng(0)
    colours = np.where(np.arange(400) < 200, "red", np.array(["red", "green", "blue"])[rng.integers(3, size=400)])
    table = pd.DataFrame({"size": rng.normal(size=400) + 8 * (colours == "red"), "colour": colours})
    table.loc[300, "size"] = np.nan
    return table


def fit_table(shards=None):
    table = table_of_things()
    X = table if shards is None else distributed.Shard(table.iloc[shards[distributed.rank()]])
    model = DPMixture(random_state=0, covariance_type="diag", n_init=0, columns="auto").fit(X)
    return model.elbo_, model.schema_, model.labels_


def test_what_the_columns_of_a_table_are_is_decided_by_the_rows_of_all(together):
    elbo, schema, labels = fit_table()
    found = together(partial(fit_table, [slice(0, 200), slice(200, 400)]), 2)
    for other_elbo, other_schema, _ in found:
        assert other_schema.described() == schema.described()
        assert other_elbo == pytest.approx(elbo, rel=1e-9)
    np.testing.assert_array_equal(np.concatenate([found[0][2], found[1][2]]), labels)


def die_in_a_lap():
    return fit(_Dying(data())).elbo_


class _Dying:
    """Batches of which process 1 sees one lap: a look at the first and a measurement come before."""

    def __init__(self, X):
        self.batches, self.n_passes = np.array_split(X, 3), 0

    def __iter__(self):
        self.n_passes += 1
        for number, batch in enumerate(self.batches):
            if distributed.rank() == 1 and self.n_passes == 4 and number == 1:
                os._exit(9)
            yield batch


def test_a_process_that_dies_in_a_lap_ends_the_fit_of_the_others(together):
    answer, died = together(die_in_a_lap, 2)
    assert died is None
    assert isinstance(answer, DistributedError)
    assert "Process 1 did not answer while process 0 of 2 was adding up statistics" in str(answer)
