import math

import numpy as np
import pytest
import torch

from diva.data import ArraySource, Samples
from diva.data.scaling import scaling_for
from diva.training.augmentation import Affine, Masked, Photo, Toned, check_own_augmentation, make_augmentation, recognisable

STILL = Affine(rotate=0.0, shear=0.0, scale=0.0, shift=0.0)
SHAPES = pytest.mark.parametrize("shape", [(16, 16), (12, 20)])


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n=6, channels=1, height=8, width=8):
    return torch.rand(n, channels, height, width, generator=seeded(9)) * 2 - 1


def ramps(n, height, width):
    """Images whose two channels are the column and the row of a pixel: a view of them tells where it looked."""
    rows, columns = torch.meshgrid(torch.arange(height).float(), torch.arange(width).float(), indexing="ij")
    return torch.stack([columns, rows]).repeat(n, 1, 1, 1)


def linear_parts(augmentation, height, width, n=400):
    """By what matrix each view maps a step between pixels, (n, 2, 2), measured in the middle where no border is near."""
    moved = augmentation(ramps(n, height, width), seeded())
    y, x = height // 2, width // 2
    across = (moved[:, :, y, x + 1] - moved[:, :, y, x - 1]) / 2
    down = (moved[:, :, y + 1, x] - moved[:, :, y - 1, x]) / 2
    return torch.stack([across, down], dim=2)


@SHAPES
@pytest.mark.parametrize("channels", [1, 3])
def test_no_amplitude_no_move(shape, channels):
    x = images(4, channels, *shape)
    torch.testing.assert_close(STILL(x, seeded()), x, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("augmentation", [Affine(), Affine(flip=True), Toned(), Photo(), Masked()])
def test_same_generator_same_augmentation(augmentation):
    x = images()
    before = x.clone()
    first, again, other = augmentation(x, seeded(1)), augmentation(x, seeded(1)), augmentation(x, seeded(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(x, before)
    assert first.shape == x.shape
    assert first.dtype == x.dtype


@pytest.mark.parametrize("augmentation", [Affine(), Toned(), Photo(), Masked()])
def test_views_follow_one_another(augmentation):
    generator = seeded()
    assert not torch.equal(augmentation(images(), generator), augmentation(images(), generator))


def test_each_image_moves_in_its_own_way():
    moved = Affine()(images(1).repeat(20, 1, 1, 1), seeded()).flatten(1)
    assert float((torch.cdist(moved, moved) + torch.eye(20)).min()) > 1e-2


def test_channels_move_together():
    moved = Affine()(images(5).repeat(1, 3, 1, 1), seeded())
    torch.testing.assert_close(moved[:, :1].expand_as(moved), moved)


@pytest.mark.parametrize("augmentation", [Affine(), Affine(shift=0.9), Affine(rotate=180, scale=0.9, shear=2.0)])
def test_the_border_is_repeated(augmentation):
    x = torch.full((20, 1, 8, 8), -0.7)
    torch.testing.assert_close(augmentation(x, seeded()), x)
    x = images(50)
    moved = augmentation(x, seeded())
    assert bool((moved.amin((1, 2, 3)) >= x.amin((1, 2, 3)) - 1e-6).all())
    assert bool((moved.amax((1, 2, 3)) <= x.amax((1, 2, 3)) + 1e-6).all())


@SHAPES
def test_flip_mirrors_about_half(shape):
    x = images(400, 1, *shape)
    moved = Affine(rotate=0.0, shear=0.0, scale=0.0, shift=0.0, flip=True)(x, seeded())
    mirrored = (moved - x.flip(3)).abs().amax((1, 2, 3)) < 1e-5
    same = (moved - x).abs().amax((1, 2, 3)) < 1e-5
    assert bool((mirrored ^ same).all())
    assert abs(int(mirrored.sum()) - 200) < 4 * 10


def test_light_is_a_power_of_brightness():
    brightness = torch.tensor([0.0, 0.2, 0.5, 0.8, 1.0])
    x = (brightness * 2 - 1).expand(400, 1, 1, 5)
    toned = (Toned(gamma=3.0)(x, seeded())[:, 0, 0] + 1) / 2
    assert bool((toned[:, 0] == 0).all() and (toned[:, 4] == 1).all())
    exponents = toned[:, 1:4].log() / brightness[1:4].log()  # one for all pixels of an image
    torch.testing.assert_close(exponents, exponents[:, 1:2].expand_as(exponents), rtol=1e-3, atol=0.0)
    assert 2.9 < float(exponents.max()) <= 3.001
    assert 2.9 < 1 / float(exponents.min()) <= 3.001
    assert float(exponents[:, 0].log().mean()) == pytest.approx(0.0, abs=4 * math.log(3) / math.sqrt(3 * 400))


def test_light_of_what_is_out_of_range_stays_in_it():
    toned = Toned()(torch.tensor([-7.0, -1.0, 1.0, 9.0]).expand(5, 2, 3, 4), seeded())
    assert toned.tolist() == torch.tensor([-1.0, -1.0, 1.0, 1.0]).expand(5, 2, 3, 4).tolist()


def test_a_photograph_changes_its_light_and_moves():
    x = images(20)
    assert torch.equal(Photo(move=STILL)(x, seeded()), STILL(Toned()(x, seeded()), seeded()))
    dark = torch.full((400, 1, 8, 8), -1.0)
    dark[:, :, 2:6, 2:6] = 1.0  # black and white have no light to change
    moved = Photo()(dark, seeded())
    assert float((moved - dark).abs().amax((1, 2, 3)).min()) > 1e-3
    maps = linear_parts(Photo(tone=Toned(gamma=1.0)).move, 16, 16)
    assert float(torch.linalg.det(maps).min()) < 0 < float(torch.linalg.det(maps).max())


def test_nothing_is_mirrored_unless_asked():
    assert float(torch.linalg.det(linear_parts(Affine(), 16, 16)).min()) > 0
    assert float(torch.linalg.det(linear_parts(Affine(flip=True), 16, 16)).min()) < 0


@SHAPES
@pytest.mark.parametrize("shift", [0.1, 0.3])
def test_shift_is_a_share_of_the_size(shape, shift):
    height, width = shape
    still = ramps(400, height, width)
    moved = Affine(rotate=0.0, shear=0.0, scale=0.0, shift=shift)(still, seeded()) - still
    middle = moved[:, :, height // 2, width // 2]
    for distance, size in zip(middle.T, (width, height), strict=True):
        assert 0.95 * shift * size < float(distance.max()) <= shift * size + 1e-4
        assert 0.95 * shift * size < -float(distance.min()) <= shift * size + 1e-4
    inner = moved[:, :, height // 2 - 1 : height // 2 + 1, width // 2 - 1 : width // 2 + 1]
    torch.testing.assert_close(inner, middle[:, :, None, None].expand_as(inner), rtol=0.0, atol=1e-4)


def test_between_pixels_there_are_means():
    x = images(200)
    moved = Affine(rotate=0.0, shear=0.0, scale=0.0, shift=0.25)(x, seeded())
    where = Affine(rotate=0.0, shear=0.0, scale=0.0, shift=0.25)(ramps(200, 8, 8), seeded())[:, :, 4, 4] - 4
    n = int((where - torch.tensor([1.0, 1.0])).norm(dim=1).argmin())  # the image that moved by nearly one pixel each way
    dx, dy = where[n].tolist()
    fx, fy = dx - math.floor(dx), dy - math.floor(dy)
    column, row = 4 + math.floor(dx), 4 + math.floor(dy)
    patch = x[n, 0, row : row + 2, column : column + 2]
    weights = torch.tensor([[(1 - fy) * (1 - fx), (1 - fy) * fx], [fy * (1 - fx), fy * fx]])
    assert float(moved[n, 0, 4, 4]) == pytest.approx(float((patch * weights).sum()), abs=1e-4)


@SHAPES
def test_rotation_keeps_shapes(shape):
    maps = linear_parts(Affine(rotate=20.0, shear=0.0, scale=0.0, shift=0.0), *shape)
    torch.testing.assert_close(maps @ maps.mT, torch.eye(2).expand_as(maps), rtol=0.0, atol=1e-3)
    angles = torch.rad2deg(torch.atan2(maps[:, 1, 0], maps[:, 0, 0]))
    assert 19 < float(angles.max()) <= 20.01
    assert 19 < -float(angles.min()) <= 20.01


@SHAPES
def test_scale_is_a_share_of_the_size(shape):
    maps = linear_parts(Affine(rotate=0.0, shear=0.0, scale=0.15, shift=0.0), *shape)
    assert float(maps[:, [0, 1], [1, 0]].abs().max()) < 1e-4
    for factor in maps.diagonal(dim1=1, dim2=2).T:
        assert 1.14 < float(factor.max()) < 1.1501
        assert 0.8499 < float(factor.min()) < 0.86


@SHAPES
def test_shear_is_a_slope(shape):
    maps = linear_parts(Affine(rotate=0.0, shear=0.2, scale=0.0, shift=0.0), *shape)
    torch.testing.assert_close(maps.diagonal(dim1=1, dim2=2), torch.ones(400, 2), rtol=0.0, atol=1e-4)
    assert float(maps[:, 1, 0].abs().max()) < 1e-4
    assert 0.19 < float(maps[:, 0, 1].max()) < 0.2001
    assert 0.19 < -float(maps[:, 0, 1].min()) < 0.2001


@pytest.mark.parametrize("shape", [(50,), (1, 8, 8)])
@pytest.mark.parametrize("highest", [0.3, 1.0])
def test_what_is_kept_is_unchanged(shape, highest):
    x = torch.randn(200, *shape, generator=seeded(5))
    masked = Masked(highest)(x, seeded())
    gone = (masked == 0).flatten(1)
    assert bool(((masked == x) | (masked == 0)).all())
    rates = gone.double().mean(1)
    assert float(rates.mean()) == pytest.approx(highest / 2, abs=4 * highest / math.sqrt(12 * 200) + 0.01)
    assert float(rates.std()) > highest / 5  # they differ: some have few features left out, some nearly as many as can be
    assert float(rates.min()) < 0.2 * highest
    assert float(rates.max()) > 0.8 * highest


def test_features_are_left_out_one_by_one():
    gone = Masked()(torch.ones(2000, 10), seeded()) == 0
    assert float((gone.double().mean(0) - 0.5).abs().max()) < 0.06


def test_no_rate_no_mask():
    x = torch.randn(20, 5, generator=seeded())
    assert torch.equal(Masked(highest=0.0)(x, seeded()), x)


# --- by name


@pytest.mark.parametrize(
    ("name", "expected"),
    [("affine", Affine()), ("affine+flip", Affine(flip=True)), ("photo", Photo()), ("mask", Masked()), (None, None)],
)
def test_every_name_has_an_augmentation(name, expected):
    assert make_augmentation(name, is_image=True) == expected


@pytest.mark.parametrize("name", ["affine", "affine+flip", "photo"])
def test_rows_are_not_turned(name):
    with pytest.raises(ValueError, match=rf'augmentation="{name.replace("+", "[+]")}" is for images.*image_shape.*"mask"'):
        make_augmentation(name, is_image=False)
    assert make_augmentation("mask", is_image=False) == Masked()


# --- how much is left out


def rows(n_features, n=300):
    source = ArraySource(np.random.default_rng(0).normal(size=(n, n_features)).astype(np.float32))
    return Samples(source, scaling_for(source, None))


def test_nearly_all_of_many_features_may_be_left_out_and_few_of_a_handful():
    wide, narrow = (recognisable(rows(n_features)) for n_features in (200, 4))
    assert wide == 1.0
    assert 0.2 < narrow < 0.8


def test_half_of_the_views_are_nearest_to_their_own_sample():
    data = rows(6)
    x = data.take(torch.arange(300))
    share = (torch.cdist(Masked(recognisable(data))(x, seeded(7)), x).argmin(1) == torch.arange(300)).float().mean()
    assert float(share) == pytest.approx(0.5, abs=0.12)


def test_as_many_features_are_left_out_as_asked():
    assert make_augmentation("mask", is_image=False, mask_share=0.3) == Masked(highest=0.3)


# --- of the user's own


def samples(n=20):
    source = ArraySource(np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32))
    return Samples(source, scaling_for(source, None))


def test_an_augmentation_of_ones_own_is_tried_out_on_a_few_samples():
    seen = []

    def shifted(x, generator):
        seen.append(len(x))
        x += 1  # on a copy
        return x + torch.rand(x.shape, generator=generator)

    data = samples()
    before = data.take(torch.arange(20)).clone()
    check_own_augmentation(shifted, data)
    assert seen == [8]
    assert torch.equal(data.take(torch.arange(20)), before)


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        (lambda x, generator: x[:, :2], r"got torch.float32 of \(8, 2\)"),
        (lambda x, generator: x.double(), r"got torch.float64 of \(8, 3\)"),
        (lambda x, generator: x.numpy(), "got ndarray"),
        (lambda x, generator: x / 0, "not finite"),
        (lambda x: x, "but it failed: .*It takes a batch and a torch.Generator"),
    ],
)
def test_an_augmentation_that_does_not_fit_is_described(wrong, got):
    with pytest.raises(ValueError, match=rf"augmentation should return a float32 tensor of shape \(8, 3\).*{got}"):
        check_own_augmentation(wrong, samples())
