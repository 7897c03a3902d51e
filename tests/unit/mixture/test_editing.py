"""Clusters named, merged and split by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diva import DPMixture, load
from diva.partition.hierarchy import Hierarchy, group, ungrouped
from diva.partition.walk import Walk

RNG = np.random.default_rng(0)
CENTRES = np.array([(0, 0), (6, 0), (0, 6), (6, 6), (12, 12)])
X = np.concatenate([RNG.normal(c, 0.5, size=(n, 2)) for c, n in zip(CENTRES, (100, 90, 80, 70, 60), strict=True)])


@pytest.fixture
def model():
    return DPMixture(random_state=0).fit(X)


def partition(labels):
    return {frozenset(np.flatnonzero(labels == k).tolist()) for k in np.unique(labels)}


def test_merge_keeps_the_id_and_the_name_of_the_largest(model):
    before = model.labels_.copy()
    model.rename({1: "right", 3: "corner"}).merge([3, 1])
    assert model.n_clusters_ == 4
    assert set(model.cluster_ids_) == {0, 1, 2, 4}
    assert (model.labels_ == np.where(before == 3, 1, before)).all()
    assert (model.predict(X) == model.labels_).all()
    assert model.predict_proba(X).shape == (len(X), 4)
    assert model.cluster_names_ == {1: "right"}
    assert [record.event for record in model.cluster_lineage_] == ["renamed", "renamed", "merged"]
    assert (model.cluster_lineage_[-1].parents, model.cluster_lineage_[-1].children) == ((1, 3), (1,))
    assert model.describe(X).loc[1, "name"] == "right"


def test_split_undoes_a_merge_and_gives_new_ids(model):
    before = partition(model.labels_)
    model.merge([0, 2]).split(0)
    assert partition(model.labels_) == before
    assert set(model.cluster_ids_) == {0, 1, 3, 4, 5}  # 2 is gone for ever
    assert (model.labels_[:100] == 0).all()


def test_what_was_said_by_hand_is_kept_by_files_and_by_new_data(model, tmp_path):
    model.merge([0, 4]).rename({0: "both"})
    model.save(tmp_path / "model.diva")
    again = load(tmp_path / "model.diva")
    assert again.cluster_names_ == {0: "both"}
    assert again.cluster_lineage_ == model.cluster_lineage_
    for each in (model, again):
        each.partial_fit(X + 0.01)
        assert each.n_clusters_ == 4
        assert each.cluster_names_ == {0: "both"}
        assert set(each.labels_[:100]) == set(each.labels_[-60:]) == {0}


def test_new_data_do_not_join_what_was_split_by_hand():
    rows = np.random.default_rng(1).uniform((0, 0), (8, 1), size=(600, 2))  # one cluster of several components
    model = DPMixture(random_state=0).fit(rows)
    assert model.n_clusters_ == 1 < model.n_components_
    model.split(0)
    assert model.n_clusters_ == 2
    model.partial_fit(rows)
    assert model.n_clusters_ == 2
    assert set(model.cluster_ids_) == {0, 1}


def test_clusters_that_are_components_can_be_merged():
    model = DPMixture(random_state=0, grouping=None).fit(X).merge([0, 1])
    assert model.n_clusters_ == 4
    assert model.hierarchy_ is not None


def test_automatic_names(model):
    model.rename({0: "mine"}).rename("auto", X)
    assert model.cluster_names_[0] == "mine"
    assert set(model.cluster_names_[4].split(", ")) == {"high feature 0", "high feature 1"}
    assert model.rename({0: ""}).cluster_names_.keys() == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: m.merge([0]), "at least two different clusters"),
        (lambda m: m.merge([0, 0]), "at least two different clusters"),
        (lambda m: m.merge([0, 9]), "There is no cluster 9; there are 0, 1, 2, 3, 4"),
        (lambda m: m.split("a"), "There is no cluster 'a'"),
        (lambda m: m.split(0), "has 1 component to part; there is nothing finer"),
        (lambda m: m.rename({7: "x"}), "There is no cluster 7"),
        (lambda m: m.rename({0: 5}), "mapping of ids to names"),
        (lambda m: m.rename("best"), 'or "auto"'),
    ],
)
def test_edits_that_make_no_sense_change_nothing(model, edit, message):
    before = model.mixture_
    with pytest.raises(ValueError, match=message):
        edit(model)
    assert model.mixture_ is before


@given(st.integers(1, 9), st.data())
def test_any_groups_can_be_chosen_in_any_tree(k, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    resp = rng.dirichlet(np.full(k, 0.5), size=30)
    tree = group(Walk(resp, resp), 1.0) if data.draw(st.booleans()) else ungrouped(resp.sum(axis=0))
    labels = data.draw(st.lists(st.integers(0, k - 1), min_size=k, max_size=k))
    chosen = tree.with_labels(labels)  # checks itself that its cut is its clusters
    assert partition(chosen.labels) == partition(np.array(labels))
    assert chosen.n_components == tree.n_components
    assert Hierarchy.from_dict(chosen.to_dict()).labels.tolist() == chosen.labels.tolist()
    back = chosen.with_labels(tree.labels)
    assert back.labels.tolist() == tree.labels.tolist()
