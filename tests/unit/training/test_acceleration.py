"""Networks that are compiled or run in bfloat16 learn, answer and are kept like any others."""

import copy
import os
import pickle
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import diva
from diva import DIVA
from diva.baselines import BASELINES, DEC, GMM, load_baseline
from diva.exceptions import NotCompiledWarning
from diva.networks.vae import VAE
from diva.training.acceleration import Accelerator, parts_of

torch.set_num_threads(1)

rng = np.random.default_rng(0)
X = (np.repeat([[0, 0, 0, 0], [6, 0, 0, 6], [0, 6, 6, 0]], 20, axis=0) + rng.normal(size=(60, 4))).astype(np.float32)
IMAGES = rng.uniform(size=(40, 8, 8)).astype(np.float32)
TINY = {"latent_dim": 2, "hidden_sizes": (8,), "n_epochs": 4, "random_state": 0}
DEEP = [name for name in BASELINES if "warm_start" in load_baseline(name).declared_parameters]


def tiny(name, **given):
    if name == "diva":
        return DIVA(**TINY | given)
    kind = load_baseline(name)
    return kind(**TINY | given | ({"n_clusters": 3} if "n_clusters" in kind.declared_parameters else {}))


def accelerated(network):
    return [name for name, module in network.named_modules() if "forward" in vars(module)]


@pytest.fixture
def calls(monkeypatch):
    """What torch.compile was asked for, which gives it back as it is."""
    asked = []
    monkeypatch.setattr(torch, "compile", lambda function: asked.append(function) or function)
    return asked


@pytest.fixture(params=["asked", "called"])
def broken(request, monkeypatch):
    """A torch.compile that fails, at once or when what it made is called first; the number of attempts."""
    attempts = []

    def fails(*_):
        attempts.append(1)
        raise RuntimeError("no C++ compiler\nand many more lines")

    monkeypatch.setattr(torch, "compile", fails if request.param == "asked" else lambda _: fails)
    return attempts


# --- by default, nothing


def test_by_default_networks_are_left_alone(calls):
    model = DIVA(**TINY).fit(X)
    assert accelerated(model.vae_) == []
    assert calls == []


def test_all_models_with_networks_have_both_and_others_have_neither():
    for name in DEEP:
        assert {"compile", "precision"} <= load_baseline(name)().get_params().keys()
    assert not {"compile", "precision"} & GMM().get_params().keys()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"compile": "yes"}, "compile should be True or False, got 'yes'"),
        ({"compile": None}, "compile should be True or False, got None"),
        ({"precision": "float16"}, 'precision should be one of "float32", "bfloat16", got \'float16\''),
        ({"precision": None}, "precision should be one of"),
        ({"precision": torch.bfloat16}, "precision should be one of"),
    ],
)
@pytest.mark.parametrize("kind", [DIVA, DEC])
def test_what_makes_no_sense_is_said(kind, given, message):
    with pytest.raises(ValueError, match=message):
        kind(**TINY, **given).fit(X)


# --- where it is done


@pytest.mark.parametrize(
    ("name", "data", "parts"),
    [
        ("diva", X, ["encoder", "decoder"]),
        ("diva", IMAGES, ["encoder", "decoder"]),
        ("dec", X, ["encoder.0", "encoder.1", "decoder.0", "decoder.1"]),
        ("vade", X, ["encoder.0", "encoder.1", "decoder.0", "decoder.1"]),
        ("gmvae", X, ["encoder", "decoder"]),
        ("vsbdvm", X, ["encoder.body", "decoder"]),
    ],
)
def test_encoder_and_decoder_are(calls, name, data, parts):
    model = tiny(name, compile=True).fit(data)
    assert sorted(accelerated(model.network_)) == sorted(parts)
    assert len(calls) >= len(parts)


@pytest.mark.parametrize("name", ["diva", *DEEP])
def test_what_is_compiled_gives_the_same(calls, name):
    plain, compiled = (tiny(name, compile=given).fit(X) for given in (False, True))
    np.testing.assert_array_equal(compiled.transform(X), plain.transform(X))
    np.testing.assert_array_equal(compiled.labels_, plain.labels_)
    assert compiled.network_.state_dict().keys() == plain.network_.state_dict().keys()
    assert calls


def test_features_as_they_are_have_nothing_to_compile(calls):
    DIVA(codes="features", compile=True, random_state=0).fit(X).transform(X)
    assert calls == []


def test_each_module_has_code_of_its_own(calls):
    DEC(**TINY, n_clusters=3, compile=True).fit(X)
    assert len({id(function.__code__) for function in calls}) == len(calls) == 4


# --- where it cannot be done


@pytest.mark.parametrize("name", ["diva", "dec"])
def test_what_cannot_be_compiled_runs_as_it_is_and_one_warning_says_so(broken, name):
    plain = tiny(name).fit(X)
    model = tiny(name, compile=True, callbacks=[lambda model, record: model.predict(X) is None])
    if name == "dec":
        model.set_params(callbacks=[])  # has no clusters in its first epochs
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model.fit(X)
        codes = model.transform(X)
    said = [str(w.message) for w in warned if w.category is NotCompiledWarning]
    assert said == [
        "The networks cannot be compiled here, so they run as they are (RuntimeError: no C++ compiler). "
        "compile=False leaves this warning out."
    ]
    assert len(broken) == 1
    np.testing.assert_array_equal(codes, plain.transform(X))


def test_the_next_fit_tries_again(broken):
    model = DIVA(**TINY, compile=True)
    for _ in range(2):
        with pytest.warns(NotCompiledWarning):
            model.fit(X)
    assert len(broken) == 2


def test_errors_of_the_network_itself_are_its_own(broken):
    module = nn.Linear(3, 2)
    how = Accelerator(compile=True)
    how.apply_to(VAE(module, nn.Linear(2, 3)))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        module(torch.ones(1, 5))
    assert how.compile  # it need not be the compiler's fault


# --- what is kept


@pytest.mark.parametrize("name", ["diva", "dec"])
def test_a_saved_model_comes_back(calls, name, tmp_path):
    model = tiny(name, compile=True, precision="bfloat16").fit(X)
    model.save(tmp_path / "model")
    loaded = diva.load(tmp_path / "model")
    assert (loaded.compile, loaded.precision) == (True, "bfloat16")
    assert accelerated(loaded.network_) == accelerated(model.network_)
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    plain = tiny(name)
    assert plain.set_params(compile=True, precision="bfloat16").get_params() == loaded.get_params()


class StoppedError(Exception):
    pass


def stop_at(epoch):
    def stop(model, record):
        if record.epoch == epoch:
            raise StoppedError

    return stop


@pytest.mark.parametrize("after", [{}, {"compile": True}, {"precision": "bfloat16"}])
def test_a_run_goes_on_with_and_without(calls, tmp_path, after):
    whole = DIVA(**TINY).fit(X)
    with pytest.raises(StoppedError):
        DIVA(**TINY, run_dir=tmp_path, compile=True, callbacks=[stop_at(1)]).fit(X)
    resumed = DIVA(**TINY, run_dir=tmp_path, resume=True, **after).fit(X)
    assert len(resumed.history_) == 4
    np.testing.assert_allclose(resumed.transform(X), whole.transform(X), atol=0.2 if "precision" in after else 0)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("given", [{"compile": True}, {"precision": "bfloat16"}])
def test_copies_run_alike_with_networks_of_their_own(calls, again, given):
    model = DIVA(**TINY, **given).fit(X)
    expected, n_calls = model.transform(X), len(calls)
    other = again(model)
    with torch.no_grad():
        for p in model.vae_.parameters():
            p.zero_()
    np.testing.assert_array_equal(other.transform(X), expected)
    assert accelerated(other.vae_) == ["encoder", "decoder"]
    assert len(calls) == n_calls + ("compile" in given)  # what was compiled is not copied


def test_a_model_goes_on_with_new_data(calls):
    plain, compiled = (DIVA(**TINY, adapt=True, further_epochs=2, compile=given).fit(X[:40]) for given in (False, True))
    np.testing.assert_array_equal(*(model.partial_fit(X[40:]).transform(X) for model in (plain, compiled)))


# --- bfloat16


@pytest.mark.parametrize("name", ["diva", *DEEP])
def test_bfloat16_learns_and_codes_are_float32(name):
    model = tiny(name, precision="bfloat16").fit(X)
    codes = model.transform(X)
    assert all(np.isfinite(record.loss) for record in model.history_)
    assert codes.dtype == np.float32
    assert model.reconstruct(X).dtype == np.float32
    assert {value.dtype for value in model.network_.state_dict().values()} == {
        value.dtype for value in tiny(name).fit(X).network_.state_dict().values()
    }
    for module in model.network_.modules():
        vars(module).pop("forward", None)
    precise = model.transform(X)
    assert 0 < np.abs(codes - precise).max() < 0.05 * max(1, np.abs(precise).max())


def test_bfloat16_of_images():
    model = DIVA(**TINY, precision="bfloat16").fit(IMAGES)
    assert np.isfinite(model.history_[-1].loss)
    assert model.transform(IMAGES).dtype == np.float32


def test_gradients_and_outputs_are_float32_and_what_lies_between_is_not():
    seen = []
    encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    encoder[1].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    Accelerator(precision="bfloat16").apply_to(VAE(encoder, nn.Linear(2, 4)))
    out = encoder(torch.ones(3, 4))
    out.sum().backward()
    assert seen == [torch.bfloat16]
    assert {out.dtype, encoder[0].weight.grad.dtype} == {torch.float32}
    assert not torch.is_autocast_enabled("cpu")


class Listing(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(4, 2)

    def forward(self, x):
        return [self.mean(x), torch.zeros(len(x), 2)]


def test_networks_of_ones_own(calls):
    own = {"encoder": Listing(), "decoder": nn.Linear(2, 4)}
    model = DIVA(latent_dim=2, n_epochs=2, random_state=0, compile=True, precision="bfloat16", **own).fit(X)
    assert model.transform(X).dtype == np.float32
    assert accelerated(model.vae_) == ["encoder", "decoder"]
    assert not accelerated(own["encoder"])


def test_a_module_without_weights_is_no_part():
    network = VAE(nn.Identity(), nn.Linear(2, 2))
    assert list(parts_of(network)) == [network.decoder]


# --- what torch makes of it

SCRIPT = """
import sys, warnings
import numpy as np
import torch
from diva import DIVA
from diva.exceptions import NotCompiledWarning

torch.set_num_threads(1)
X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
tiny = {"latent_dim": 2, "hidden_sizes": (8,), "n_epochs": 3, "random_state": 0, "batch_size": 30}
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    plain, compiled = (DIVA(**tiny, compile=given).fit(X) for given in (False, True))
np.testing.assert_allclose(compiled.transform(X), plain.transform(X), atol=1e-3)
assert compiled.vae_.state_dict().keys() == plain.vae_.state_dict().keys()
said = [str(w.message) for w in warned if w.category is NotCompiledWarning]
print(compiled._accelerator.compile, len(said), *said)
"""


@pytest.mark.slow  # torch's compiler takes seconds
@pytest.mark.parametrize("has_compiler", [True, False])
def test_what_torch_makes_of_it(has_compiler, tmp_path):
    if has_compiler and shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler")
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    if not has_compiler:
        environment |= {"CXX": "/nowhere/g++"}
    said = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, capture_output=True, text=True).stdout
    assert said.startswith("True 0" if has_compiler else "False 1 The networks cannot be compiled here")
