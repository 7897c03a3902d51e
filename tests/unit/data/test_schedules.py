import numpy as np
import pytest

from diva.data import ArraySource, ClassSchedule, FeatureDrift, Imbalance, MixtureDrift, PartOfSource

LABELS = np.repeat(np.arange(4), [40, 30, 20, 10])
SCHEDULES = [
    ClassSchedule(((0, 1), (0, 1, 2), (0, 1, 2, 3))),
    ClassSchedule(((0, 1), (0, 1, 2), (1, 2, 3)), keep=False),
    MixtureDrift((1, 1, 0, 0), (0, 0, 1, 1), n_stages=5),
    Imbalance.geometric(4, ratio=8, n_stages=3),
    FeatureDrift(shift=1.0, n_stages=4),
]
ONCE = SCHEDULES[1:]


def stages(schedule, seed=0):
    return list(schedule.stages(LABELS, np.random.default_rng(seed)))


def name(schedule):
    return type(schedule).__name__ + ("" if getattr(schedule, "keep", True) else " once")


@pytest.mark.parametrize("schedule", SCHEDULES, ids=name)
def test_stages_tell_the_truth(schedule):
    seen = set()
    for number, stage in enumerate(stages(schedule)):
        assert stage.number == number
        assert stage.index.dtype == np.int64
        assert len(np.unique(stage.index)) == len(stage.index)
        assert set(stage.classes) == set(LABELS[stage.index].tolist())
        assert set(stage.new_classes) == set(stage.classes) - seen
        seen |= set(stage.classes)
    assert stage.progress == 1.0


@pytest.mark.parametrize("schedule", SCHEDULES, ids=name)
def test_same_seed_same_stages(schedule):
    for a, b in zip(stages(schedule), stages(schedule), strict=True):
        np.testing.assert_array_equal(a.index, b.index)
    assert any(a.index.tolist() != b.index.tolist() for a, b in zip(stages(schedule), stages(schedule, 1), strict=True))


@pytest.mark.parametrize("schedule", ONCE, ids=name)
def test_samples_come_once(schedule):
    index = np.concatenate([stage.index for stage in stages(schedule)])
    assert len(np.unique(index)) == len(index)


def test_classes_appear():
    first, second, third = stages(SCHEDULES[0])
    assert (len(first.index), len(second.index), len(third.index)) == (70, 90, 100)
    assert third.new_classes == (3,)


def test_old_data_go():
    first, second, third = stages(SCHEDULES[1])
    counts = [np.bincount(LABELS[stage.index], minlength=4).tolist() for stage in (first, second, third)]
    assert counts == [[20, 10, 0, 0], [20, 10, 10, 0], [0, 10, 10, 10]]


def test_mixture_drifts():
    counts = np.stack([np.bincount(LABELS[stage.index], minlength=4) for stage in stages(SCHEDULES[2])])
    assert counts[0, 2:].sum() == 0
    assert counts[-1, :2].sum() == 0
    assert counts[:, 3].sum() == 10  # the class that limits the size is used up
    share = counts[:, :2].sum(1) / counts.sum(1)
    assert (np.diff(share) < 0).all()


def test_mixture_that_stays():
    counts = np.stack([np.bincount(LABELS[s.index]) for s in stages(MixtureDrift((4, 3, 2, 1), (4, 3, 2, 1), n_stages=5))])
    np.testing.assert_array_equal(counts, np.tile([8, 6, 4, 2], (5, 1)))


def test_imbalance():
    (stage,) = Imbalance.geometric(4, ratio=8).stages(np.repeat(np.arange(4), 64), np.random.default_rng(0))
    assert np.bincount(np.repeat(np.arange(4), 64)[stage.index]).tolist() == [64, 32, 16, 8]
    (stage,) = Imbalance((1.0, 0.0, 1.0)).stages(LABELS, np.random.default_rng(0))
    assert np.bincount(LABELS[stage.index]).tolist() == [20, 0, 20]
    (stage,) = Imbalance((1.0, 1e-9)).stages(LABELS, np.random.default_rng(0))
    assert stage.classes == (0, 1)


def test_features_drift():
    drift = FeatureDrift(shift=2.0, rotation=90, n_stages=3)
    x = np.array([[1, 0, 0, 0], [0, 1, 0, 0]], np.float32)
    np.testing.assert_array_equal(drift.apply(x, 0.0), x)
    np.testing.assert_allclose(drift.apply(x, 1.0), np.array([[0, 1, 0, 0], [-1, 0, 0, 0]]) + 1.0, atol=1e-6)
    assert np.linalg.norm(FeatureDrift(shift=2.0).apply(x, 0.5) - x, axis=1) == pytest.approx(1.0)
    assert x[0, 0] == 1  # the data are left alone
    assert FeatureDrift(shift=1.0).apply(np.zeros((2, 3), np.uint8), 1.0).dtype == np.float32


def test_stage_cuts_a_source_into_batches():
    source = ArraySource(np.arange(100))
    stage = stages(SCHEDULES[0])[1]
    part = PartOfSource(source, stage.index)
    np.testing.assert_array_equal(part.take(np.arange(len(part))), stage.index)
    batches = list(stage.batches(40))
    assert [len(batch) for batch in batches] == [40, 40, 10]
    np.testing.assert_array_equal(np.concatenate(batches), stage.index)
    with pytest.raises(ValueError, match="batch_size"):
        next(stage.batches(0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ClassSchedule(()),
        lambda: ClassSchedule(((0,), ())),
        lambda: MixtureDrift((1,), (1, 2)),
        lambda: MixtureDrift((1, -1), (1, 2)),
        lambda: MixtureDrift((0, 0), (1, 2)),
        lambda: MixtureDrift((1, 1), (1, 2), n_stages=1),
        lambda: Imbalance(()),
        lambda: Imbalance((1.0, float("nan"))),
        lambda: Imbalance((1.0,), n_stages=0),
        lambda: Imbalance.geometric(3, ratio=0.5),
        lambda: FeatureDrift(n_stages=1),
        lambda: FeatureDrift(rotation=90).apply(np.zeros((3, 1)), 0.5),
        lambda: FeatureDrift().apply(np.zeros(3), 0.5),
        lambda: list(ClassSchedule(((0, 9),)).stages(LABELS, np.random.default_rng(0))),
        lambda: list(ClassSchedule(((0,),)).stages(["a", "b"], np.random.default_rng(0))),
        lambda: list(ClassSchedule(((0,),)).stages([], np.random.default_rng(0))),
    ],
)
def test_schedules_that_cannot_be(make):
    with pytest.raises(ValueError, match=r"should|[Ee]xpected|names the classes"):
        make()
