"""Two runs beside each other."""

import numpy as np
import pytest

from diva import DPMixture
from diva.report.compare import compare
from diva.runs.summarize import summarize_samples

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(c, 0.4, size=(80, 2)) for c in ((0, 0), (5, 0), (0, 5), (5, 5))])


@pytest.fixture(scope="module")
def summary():
    return summarize_samples(DPMixture(random_state=0).fit(X), X)


def test_a_run_agrees_with_itself(summary):
    found = compare(summary, summary)
    assert found.n_samples == len(X)
    assert found.agreement["ari"] == pytest.approx(1.0)
    assert found.moves == []
    assert found.better is None


def test_what_moved_is_named_by_ids_and_the_better_run_is_found(summary):
    other = DPMixture(random_state=0).fit(X)
    labels = other.labels_.copy()
    rng = np.random.default_rng(1)
    wrong = DPMixture(random_state=0).fit_clusters(X, np.where(rng.random(len(X)) < 0.3, (labels + 1) % 4, labels))
    found = compare(summary, summarize_samples(wrong, X), ("right", "wrong"))
    assert found.quality["right"]["clusters"] == 4
    if wrong.n_clusters_ > 1 and found.agreement["ari"] < 0.95:
        assert found.moves
    assert found.as_plain()["better"] in (None, "right")
    merged = other.merge([0, 1])
    found = compare(summary, summarize_samples(merged, X))
    assert found.moves == []  # nothing left its cluster
    back = compare(summarize_samples(merged, X), summary)
    assert [(move["from"], move["to"], move["others_went_to"], move["samples"]) for move in back.moves] == [(0, 1, 0, 80)]
    assert back.moves[0]["share"] == 0.5


def test_other_samples_cannot_be_compared(summary):
    model = DPMixture(random_state=0).fit(X)
    with pytest.raises(ValueError, match="not about the same samples"):
        compare(summary, summarize_samples(model, X[:100]))
    with pytest.raises(ValueError, match="not about the same samples"):
        compare(summary, summarize_samples(model, X + 1.0))
