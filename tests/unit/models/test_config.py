import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from diva import DIVA
from diva.mixture.fitting import start_on
from diva.models.config import (
    MAX_EPOCHS,
    MIN_EPOCHS,
    MIN_STEPS,
    OWN,
    PAPER_ROWS,
    PRESETS,
    DIVAConfig,
    Schedule,
    check_together,
    resolve,
)
from diva.models.ensemble import options_of

N_EPOCHS = [1, 2, 3, 4, 5, 7, 10, 11, 15, 30, 100, 200]
CONFIGS = {preset: resolve(DIVA(preset=preset), is_image=preset != "features") for preset in PRESETS}
SHARES = [(0.2, 1 / 3), (0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.9, 0.9), (0.5, 0.5)]


@pytest.mark.parametrize("n_epochs", N_EPOCHS)
@pytest.mark.parametrize(("warmup", "self_training"), SHARES)
@pytest.mark.parametrize("grouping", ["walk", None])
def test_phases_add_up(n_epochs, warmup, self_training, grouping):
    schedule = DIVAConfig(n_epochs=n_epochs, warmup=warmup, self_training=self_training, grouping=grouping).schedule
    assert min(schedule.n_warmup, schedule.n_coupled, schedule.n_self_training) >= 0
    assert schedule.n_epochs == n_epochs
    phases = [schedule.phase(i) for i in range(n_epochs)]
    expected = ["warm-up"] * schedule.n_warmup + ["coupled"] * schedule.n_coupled + ["self-training"] * schedule.n_self_training
    assert phases == expected
    assert schedule.self_training_starts == n_epochs - schedule.n_self_training


@pytest.mark.parametrize("n_epochs", N_EPOCHS)
@pytest.mark.parametrize("preset", PRESETS)
def test_shares_are_those_asked_for(n_epochs, preset):
    config = replace(CONFIGS[preset], n_epochs=n_epochs)
    schedule = config.schedule
    assert schedule.n_warmup >= 1  # there are no codes for a mixture before the first epoch
    assert schedule.n_warmup == 1 or abs(schedule.n_warmup - config.warmup * n_epochs) <= 0.5
    assert abs(schedule.n_self_training - config.self_training * n_epochs) <= 0.5


@pytest.mark.parametrize("n_epochs", N_EPOCHS)
@pytest.mark.parametrize(("warmup", "self_training"), SHARES)
def test_there_is_a_mixture_from_the_end_of_the_warm_up_on(n_epochs, warmup, self_training):
    schedule = DIVAConfig(n_epochs=n_epochs, warmup=warmup, self_training=self_training).schedule
    updates = [schedule.updates_mixture(i) for i in range(n_epochs)]
    first = max(schedule.n_warmup - 1, 0)
    assert updates == [i >= first for i in range(n_epochs)]
    assert updates[-1]


@pytest.mark.parametrize("n_self_training", range(31))
@pytest.mark.parametrize(("n_warmup", "n_coupled"), [(0, 0), (1, 0), (1, 1), (3, 20)])
def test_pseudo_labels_are_chosen_first_and_at_most_once_more(n_warmup, n_coupled, n_self_training):
    schedule = Schedule(n_warmup, n_coupled, n_self_training)
    rounds = [i - schedule.self_training_starts for i in range(schedule.n_epochs) if schedule.refreshes_pseudo_labels(i)]
    assert rounds[:1] == [0] * (n_self_training > 0)
    assert len(rounds) <= 2
    if n_self_training >= 3:
        assert len(rounds) == 2
        assert rounds[1] == pytest.approx(0.6 * n_self_training, abs=1)
    assert all(schedule.phase(schedule.self_training_starts + i) == "self-training" for i in rounds)


@pytest.mark.parametrize(("n_self_training", "rounds"), [(0, []), (1, [0]), (2, [0]), (3, [0, 2]), (5, [0, 3]), (10, [0, 6])])
def test_when_pseudo_labels_are_chosen(n_self_training, rounds):
    schedule = Schedule(1, 4, n_self_training)
    assert [i - 5 for i in range(-3, 30) if schedule.refreshes_pseudo_labels(i)] == rounds


@pytest.mark.parametrize("n_coupled", [1, 2, 5, 9, 10, 19, 20, 57, 100])
@pytest.mark.parametrize("n_self_training", [0, 4])
def test_the_last_tenth_of_the_coupled_epochs_only_merges_and_deletes(n_coupled, n_self_training):
    schedule = Schedule(3, n_coupled, n_self_training)
    births = [i for i in range(schedule.n_epochs) if schedule.allows_births(i)]
    quiet = max(1, n_coupled // 10) if n_coupled > 2 else 0
    assert births == list(range(3 + n_coupled - quiet))
    assert any(schedule.updates_mixture(i) for i in births)
    assert not any(schedule.phase(i) == "self-training" for i in births)


@pytest.mark.parametrize("n_epochs", [1, 2])
def test_even_the_shortest_run_allows_births(n_epochs):
    schedule = DIVAConfig(n_epochs=n_epochs).schedule
    assert schedule.n_coupled == 0
    assert any(schedule.allows_births(i) and schedule.updates_mixture(i) for i in range(n_epochs))


@pytest.mark.parametrize(
    ("n_epochs", "phases"), [(1, (1, 0, 0)), (2, (1, 0, 1)), (3, (1, 1, 1)), (15, (3, 7, 5)), (30, (6, 14, 10))]
)
def test_schedule_of_images(n_epochs, phases):
    schedule = replace(CONFIGS["images"], n_epochs=n_epochs).schedule
    assert (schedule.n_warmup, schedule.n_coupled, schedule.n_self_training) == phases


@pytest.mark.parametrize("n_epochs", N_EPOCHS)
def test_schedule_of_the_paper(n_epochs):
    schedule = replace(CONFIGS["paper"], n_epochs=n_epochs).schedule
    assert schedule == Schedule(1, n_epochs - 1, 0)
    assert all(schedule.updates_mixture(i) for i in range(n_epochs))
    assert not any(schedule.refreshes_pseudo_labels(i) for i in range(n_epochs))


def test_no_grouping_no_self_training():
    schedule = DIVAConfig(n_epochs=15, grouping=None).schedule
    assert (schedule.n_warmup, schedule.n_coupled, schedule.n_self_training) == (3, 12, 0)


@pytest.mark.parametrize("n_samples", [1, 10, 128, 129, 1000, 10_000, 70_000, 10**7])
def test_small_data_get_more_epochs(n_samples):
    n_epochs = DIVAConfig().for_samples(n_samples).n_epochs
    steps = -(-n_samples // 128)
    assert MIN_EPOCHS <= n_epochs <= MAX_EPOCHS
    if n_epochs < MAX_EPOCHS:
        assert n_epochs * steps >= MIN_STEPS
    if n_epochs > MIN_EPOCHS:
        assert (n_epochs - 1) * steps < MIN_STEPS


def test_more_samples_never_get_more_epochs():
    counts = [DIVAConfig().for_samples(n).n_epochs for n in range(1, 20_000, 97)]
    assert all(a >= b for a, b in pairwise(counts))


def test_given_epochs_stay():
    assert DIVAConfig(n_epochs=4).for_samples(10**6) == DIVAConfig(n_epochs=4)
    assert CONFIGS["paper"].for_samples(10) == CONFIGS["paper"]


def test_the_paper_preset_holds_the_table_of_hyper_parameters():
    config = CONFIGS["paper"]
    assert config.kl_weight == 1e-4  # kld_weight
    assert config.learning_rate == 1e-3
    assert config.weight_decay == 0.0
    assert config.batch_size == 128
    assert config.min_new_atoms == 20  # b_minNumAtomsForNewComp
    assert config.min_target_atoms == 40  # b_minNumAtomsForTargetComp
    assert config.min_retained_atoms == 40  # b_minNumAtomsForRetainComp
    assert config.births == "collected"  # section 3.3
    assert not config.deletes  # it has none
    assert config.covariance_scale == 0.1  # sF
    assert config.prior_covariance_type == config.covariance_type == "diag"
    assert config.reconstruction == "mse"
    assert config.assignment == "soft"  # equation 9
    assert config.latent_dim == 16  # of its images
    assert config.buffered_codes  # line 4
    assert config.n_laps >= 2
    assert not config.final_refit
    assert config.augmentation is None
    assert config.grouping is None
    assert config.n_epochs == 500  # max_epochs, or until it converges
    assert config.early_stopping is not None


def test_the_paper_s_second_values_are_for_rows():
    images, rows = CONFIGS["paper"], resolve(DIVA(preset="paper"), is_image=False)
    assert rows.latent_dim == 100
    assert (rows.min_new_atoms, rows.min_target_atoms, rows.min_retained_atoms) == (80, 100, 100)
    assert replace(rows, **{name: getattr(images, name) for name in PAPER_ROWS}) == images
    assert resolve(DIVA(preset="paper", min_new_atoms=20), is_image=False).min_new_atoms == 20


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_starts_with_one_component(preset):
    z = (np.random.default_rng(0).normal(size=(50, 3)) * 4 + 1).astype(np.float32)
    start = start_on(z, options_of(CONFIGS[preset], seed=0))
    assert start.state.n_components == 1
    assert float(start.state.total.counts.sum()) == 0.0
    np.testing.assert_allclose(start.standardization.mean, z.astype(np.float64).mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(start.standardization.scale, z.astype(np.float64).std(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("preset", ["images", "features"])
def test_other_presets_share_what_the_paper_says_of_batches_and_the_prior(preset):
    ours, papers = CONFIGS[preset], CONFIGS["paper"]
    for name in ("batch_size", "weight_decay", "covariance_scale", "concentration", "assignment"):
        assert getattr(ours, name) == getattr(papers, name), name


# --- from parameters to a config


def test_presets_set_parameters_that_exist():
    for settings in PRESETS.values():
        assert replace(DIVAConfig(), **settings).to_plain() | settings  # raises TypeError otherwise


def test_presets_depend_on_the_data():
    assert resolve(DIVA(), is_image=True) == CONFIGS["images"] == DIVAConfig()
    assert resolve(DIVA(), is_image=False) == CONFIGS["features"]
    assert CONFIGS["features"].augmentation == "mask"
    with pytest.raises(ValueError, match='preset="images" is for images'):
        resolve(DIVA(preset="images"), is_image=False)


def test_what_is_given_comes_before_the_preset():
    model = DIVA(
        preset="paper", latent_dim=3, hidden_sizes=[7, 5], warmup=0.5, grouping="walk", augmentation="affine", n_epochs=2
    )
    config = resolve(model, is_image=False)
    assert (config.latent_dim, config.hidden_sizes, config.warmup) == (3, (7, 5), 0.5)
    assert (config.grouping, config.augmentation, config.n_epochs) == ("walk", "affine", 2)
    assert config.n_laps == CONFIGS["paper"].n_laps


def test_none_is_a_value_where_auto_is_the_default():
    config = resolve(DIVA(augmentation=None, grouping=None), is_image=True)
    assert (config.augmentation, config.grouping) == (None, None)


def test_numbers_of_numpy_become_plain():
    config = resolve(DIVA(latent_dim=np.int64(4), warmup=np.float32(0.5), max_components=np.int16(9)), is_image=True)
    assert [type(value) for value in (config.latent_dim, config.warmup, config.max_components)] == [int, float, int]
    json.dumps(config.to_plain())


def test_a_prior_that_stays_has_the_covariance_asked_for():
    config = resolve(DIVA(preset="paper", covariance_type="full"), is_image=True)
    assert config.prior_covariance_type == config.covariance_type == "full"
    assert resolve(DIVA(covariance_type="full"), is_image=True).prior_covariance_type == "diag"


def test_an_augmentation_of_the_user_is_called_so():
    config = resolve(DIVA(augmentation=lambda x, generator: x), is_image=False)
    assert config.augmentation == OWN
    assert DIVAConfig.from_plain(json.loads(json.dumps(config.to_plain()))) == config


@pytest.mark.parametrize("preset", PRESETS)
def test_a_fit_that_goes_on_warms_up_less(preset):
    config, further = CONFIGS[preset], CONFIGS[preset].continued(10)
    assert further.n_epochs == 10
    assert further.warmup <= config.warmup
    assert (further.self_training > 0) == (config.self_training > 0)
    assert further.schedule.n_epochs == 10


@pytest.mark.parametrize("given", [{"warmup": 0.6, "self_training": 0.5}, {"encoder": object()}, {"decoder": object()}])
def test_parameters_that_do_not_go_together(given):
    with pytest.raises(
        ValueError, match=" and ".join(["warmup", "self_training"] if "warmup" in given else ["encoder", "decoder"])
    ):
        check_together(DIVA(**given))


# --- files


@pytest.mark.parametrize("preset", PRESETS)
def test_configs_survive_json(preset):
    assert DIVAConfig.from_plain(json.loads(json.dumps(CONFIGS[preset].to_plain()))) == CONFIGS[preset]


@pytest.mark.parametrize("change", [{"n_laps": None}, {"colour": "blue"}])
def test_a_config_needs_all_its_fields_and_no_others(change):
    plain = DIVAConfig().to_plain()
    for name, value in change.items():
        if value is None:
            del plain[name]
        else:
            plain[name] = value
    with pytest.raises(ValueError, match="all its fields and no others"):
        DIVAConfig.from_plain(plain)
    with pytest.raises(ValueError, match="all its fields"):
        DIVAConfig.from_plain([])


@pytest.mark.parametrize("rows", [0, -3, 2.5, "many", True])
def test_births_are_planned_on_a_whole_number_of_codes(rows):
    with pytest.raises(ValueError, match="birth_rows should be a whole number from 1 to 1,000,000,000 or None"):
        DIVAConfig.from_plain(DIVAConfig().to_plain() | {"birth_rows": rows})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("latent_dim", None),
        ("latent_dim", 0),
        ("latent_dim", 16.0),
        ("latent_dim", 1_000_000),
        ("hidden_sizes", [8] * 1001),
        ("batch_size", True),
        ("hidden_sizes", []),
        ("hidden_sizes", 5),
        ("warmup", 1.5),
        ("self_training", None),
        ("assignment", "firm"),
        ("covariance_type", None),
        ("prior_covariance_type", "round"),
        ("augmentation", "blur"),
        ("grouping", "tree"),
        ("min_new_atoms", "few"),
        ("min_retained_atoms", -1.0),
        ("births", "sometimes"),
        ("deletes", "no"),
        ("final_refit", None),
        ("kl_weight", -1.0),
    ],
)
def test_settings_that_make_no_sense_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        DIVAConfig.from_plain(DIVAConfig().to_plain() | {name: value})
