import json
from dataclasses import asdict, replace
from itertools import pairwise

import pytest
import torch
from diva.models.recipes import MAX_EPOCHS, MIN_EPOCHS, MIN_STEPS, PRESETS, Recipe, Schedule, recipe_from_plain

from diva.mixture.options import MixtureOptions
from diva.training.encode import start_mixture

N_EPOCHS = [1, 2, 3, 4, 5, 7, 10, 11, 15, 30, 100, 200]
SHARES = [(0.2, 1 / 3), (0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.9, 0.9), (0.5, 0.5)]


@pytest.mark.parametrize("n_epochs", N_EPOCHS)
@pytest.mark.parametrize(("warmup", "sharpening"), SHARES)
@pytest.mark.parametrize("grouping", ["walk", None])
def test_phases_add_up(n_epochs, warmup, sharpening, grouping):
    schedule = Recipe(n_epochs=n_epochs, warmup=warmup, sharpening=sharpening, grouping=grouping).schedule
    assert min(schedule.n_warmup, schedule.n_coupled, schedule.n_sharpening) >= 0
    assert schedule.n_epochs == n_epochs
    phases = [schedule.phase(i) for i in range(n_epochs)]
    expected = ["warm-up"] * schedule.n_warmup + ["coupled"] * schedule.n_coupled + ["sharpening"] * schedule.n_sharpening
    assert phases == expected
    assert schedule.sharpening_starts == n_epochs - schedule.n_sharpening


@pytest.mark.parametrize("n_epochs", N_EPOCHS)
@pytest.mark.parametrize("preset", PRESETS)
def test_shares_are_those_asked_for(n_epochs, preset):
    recipe = replace(PRESETS[preset], n_epochs=n_epochs)
    schedule = recipe.schedule
    assert schedule.n_warmup >= 1  # there are no codes for a mixture before the first epoch
    assert schedule.n_warmup == 1 or abs(schedule.n_warmup - recipe.warmup * n_epochs) <= 0.5
    assert abs(schedule.n_sharpening - recipe.sharpening * n_epochs) <= 0.5


@pytest.mark.parametrize("n_epochs", N_EPOCHS)
@pytest.mark.parametrize(("warmup", "sharpening"), SHARES)
def test_there_is_a_mixture_from_the_end_of_the_warm_up_on(n_epochs, warmup, sharpening):
    schedule = Recipe(n_epochs=n_epochs, warmup=warmup, sharpening=sharpening).schedule
    updates = [schedule.updates_mixture(i) for i in range(n_epochs)]
    first = max(schedule.n_warmup - 1, 0)
    assert updates == [i >= first for i in range(n_epochs)]
    assert updates[-1]


@pytest.mark.parametrize("n_sharpening", range(31))
@pytest.mark.parametrize(("n_warmup", "n_coupled"), [(0, 0), (1, 0), (1, 1), (3, 20)])
def test_teaching_starts_with_the_sharpening_and_happens_at_most_twice(n_warmup, n_coupled, n_sharpening):
    schedule = Schedule(n_warmup, n_coupled, n_sharpening)
    lessons = [i - schedule.sharpening_starts for i in range(schedule.n_epochs) if schedule.teaches(i)]
    assert lessons[:1] == [0] * (n_sharpening > 0)
    assert len(lessons) <= 2
    if n_sharpening >= 3:
        assert len(lessons) == 2
        assert lessons[1] == pytest.approx(0.6 * n_sharpening, abs=1)
    assert all(schedule.phase(schedule.sharpening_starts + i) == "sharpening" for i in lessons)


@pytest.mark.parametrize(("n_sharpening", "lessons"), [(0, []), (1, [0]), (2, [0]), (3, [0, 2]), (5, [0, 3]), (10, [0, 6])])
def test_lessons(n_sharpening, lessons):
    schedule = Schedule(1, 4, n_sharpening)
    assert [i - 5 for i in range(-3, 30) if schedule.teaches(i)] == lessons


@pytest.mark.parametrize("n_coupled", [1, 2, 5, 9, 10, 19, 20, 57, 100])
@pytest.mark.parametrize("n_sharpening", [0, 4])
def test_the_last_tenth_of_the_coupled_epochs_only_tidies_up(n_coupled, n_sharpening):
    schedule = Schedule(3, n_coupled, n_sharpening)
    births = [i for i in range(schedule.n_epochs) if schedule.allows_births(i)]
    quiet = max(1, n_coupled // 10) if n_coupled > 2 else 0
    assert births == list(range(3 + n_coupled - quiet))
    assert any(schedule.updates_mixture(i) for i in births)
    assert not any(schedule.phase(i) == "sharpening" for i in births)


@pytest.mark.parametrize("n_epochs", [1, 2])
def test_even_the_shortest_run_allows_births(n_epochs):
    schedule = Recipe(n_epochs=n_epochs).schedule
    assert schedule.n_coupled == 0
    assert any(schedule.allows_births(i) and schedule.updates_mixture(i) for i in range(n_epochs))


@pytest.mark.parametrize(
    ("n_epochs", "phases"), [(1, (1, 0, 0)), (2, (1, 0, 1)), (3, (1, 1, 1)), (15, (3, 7, 5)), (30, (6, 14, 10))]
)
def test_schedule_of_images(n_epochs, phases):
    schedule = replace(PRESETS["images"], n_epochs=n_epochs).schedule
    assert (schedule.n_warmup, schedule.n_coupled, schedule.n_sharpening) == phases


@pytest.mark.parametrize("n_epochs", N_EPOCHS)
def test_schedule_of_the_paper(n_epochs):
    schedule = replace(PRESETS["paper"], n_epochs=n_epochs).schedule
    assert schedule == Schedule(1, n_epochs - 1, 0)
    assert all(schedule.updates_mixture(i) for i in range(n_epochs))
    assert not any(schedule.teaches(i) for i in range(n_epochs))


def test_no_grouping_no_sharpening():
    schedule = Recipe(n_epochs=15, grouping=None).schedule
    assert (schedule.n_warmup, schedule.n_coupled, schedule.n_sharpening) == (3, 12, 0)


@pytest.mark.parametrize("n_samples", [1, 10, 128, 129, 1000, 10_000, 70_000, 10**7])
def test_small_data_get_more_epochs(n_samples):
    n_epochs = Recipe().for_samples(n_samples).n_epochs
    steps = -(-n_samples // 128)
    assert MIN_EPOCHS <= n_epochs <= MAX_EPOCHS
    if n_epochs < MAX_EPOCHS:
        assert n_epochs * steps >= MIN_STEPS
    if n_epochs > MIN_EPOCHS:
        assert (n_epochs - 1) * steps < MIN_STEPS


def test_more_samples_never_get_more_epochs():
    counts = [Recipe().for_samples(n).n_epochs for n in range(1, 20_000, 97)]
    assert all(a >= b for a, b in pairwise(counts))


def test_given_epochs_stay():
    assert Recipe(n_epochs=4).for_samples(10**6) == Recipe(n_epochs=4)
    assert PRESETS["paper"].for_samples(10) == PRESETS["paper"]


def test_the_paper_preset_holds_the_table_of_hyper_parameters():
    recipe = PRESETS["paper"]
    assert recipe.kl_weight == 1e-4  # kld_weight
    assert recipe.learning_rate == 1e-3
    assert recipe.weight_decay == 0.0
    assert recipe.batch_size == 128
    assert recipe.min_new_mass == 20  # b_minNumAtomsForNewComp
    assert recipe.covariance_scale == 0.1  # sF
    assert recipe.covariance_type == recipe.final_covariance_type == "diag"
    assert recipe.reconstruction == "mse"
    assert recipe.assignment == "soft"  # equation 10
    assert recipe.latent_dim == 16  # of its images
    assert recipe.buffered_codes  # line 4
    assert recipe.n_laps >= 2
    assert not recipe.final_refit
    assert recipe.views is None
    assert recipe.grouping is None
    assert recipe.n_epochs <= 500


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_starts_with_one_component(preset):
    recipe = PRESETS[preset]
    z = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)) * 4 + 1
    prior = start_mixture(z, MixtureOptions(recipe.concentration, recipe.covariance_type, recipe.covariance_scale))
    assert prior.mixture.n_components == 1
    assert float(prior.mixture.total.counts.sum()) == 0.0
    torch.testing.assert_close(prior.standardization.mean, z.double().mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(prior.standardization.scale, z.double().std(0, correction=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("preset", ["images", "features", "sensors"])
def test_other_presets_share_the_papers_optimizer(preset):
    ours, papers = PRESETS[preset], PRESETS["paper"]
    for name in ("batch_size", "learning_rate", "weight_decay", "covariance_scale", "concentration", "assignment"):
        assert getattr(ours, name) == getattr(papers, name), name


@pytest.mark.parametrize("preset", PRESETS)
def test_recipes_survive_json(preset):
    assert recipe_from_plain(json.loads(json.dumps(asdict(PRESETS[preset])))) == PRESETS[preset]


@pytest.mark.parametrize("change", [{"n_laps": None}, {"colour": "blue"}])
def test_a_recipe_needs_all_its_fields_and_no_others(change):
    plain = asdict(Recipe())
    for name, value in change.items():
        if value is None:
            del plain[name]
        else:
            plain[name] = value
    with pytest.raises(ValueError, match="all its fields and no others"):
        recipe_from_plain(plain)
    with pytest.raises(ValueError, match="all its fields"):
        recipe_from_plain([])


@pytest.mark.parametrize("rows", [0, -3, 2.5, "many", True])
def test_births_are_planned_on_a_whole_number_of_codes(rows):
    with pytest.raises(ValueError, match="birth_rows should be a whole number or None"):
        recipe_from_plain(asdict(Recipe()) | {"birth_rows": rows})
