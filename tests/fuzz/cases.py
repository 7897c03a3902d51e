"""One case: odd data, odd parameters, and what may come of them.

A model either fits, and then all that can be asked of it is finite and repeats with its seed, or it says what is wrong: a
ValueError or TypeError that diva itself, or scikit-learn's validation, raised on purpose. Everything else is a failure.
"""

from __future__ import annotations

import itertools
import linecache
import os
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from sklearn.exceptions import ConvergenceWarning
from tests.fuzz.arrays import Odd, odd_array, odd_images, odd_weights

import diva
from diva import DIVA, DPMixture
from diva.exceptions import ComponentLimitWarning, DataKindWarning, FewerClustersWarning, ScaleWarning

SOURCES = str(Path(diva.__file__).parent)
VALIDATION = os.path.join("sklearn", "utils", "")
CPU_SECONDS = 60  # a case of so few numbers that takes longer hangs
REPEATED = 0.25  # share of the cases that are run twice
Answers = list[bytes]


class Failure(BaseException):
    """What should not have come of a case; no ``except Exception`` may hold it up."""


# --- what may be raised


def is_on_purpose(error: BaseException) -> bool:
    """Whether an error was raised by a line of diva that begins with raise, or below scikit-learn's validation."""
    if not isinstance(error, ValueError | TypeError) or len(str(error)) < 20:
        return False
    frames = traceback.extract_tb(error.__traceback__)
    own = [number for number, frame in enumerate(frames) if frame.filename.startswith(SOURCES)]
    if not own:
        return False
    if own[-1] == len(frames) - 1:
        last = frames[-1]
        return linecache.getline(last.filename, last.lineno or 0).lstrip().startswith("raise")
    return VALIDATION in frames[own[-1] + 1].filename


def attempt(step: str, action: Callable[[], Any]) -> bool:
    """Whether an action worked; False if it was refused as it should be."""
    try:
        action()
    except Exception as error:
        if is_on_purpose(error):
            return False
        raise unexpected(step, error) from error
    return True


def unexpected(step: str, error: Exception) -> Failure:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return Failure(f"{step}: {type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {str(error)[:200]}")


@contextmanager
def watched() -> Iterator[None]:
    """Warnings that are not meant for users are errors; what hangs ends; chance of the whole process is left alone."""

    def too_long(*_: Any) -> None:
        raise Failure(f"it took more than {CPU_SECONDS} seconds of a processor")

    before = np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()  # noqa: NPY002  # others use it
    handler = signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for meant in (ConvergenceWarning, ComponentLimitWarning, ScaleWarning, DataKindWarning, FewerClustersWarning):
                warnings.simplefilter("ignore", meant)
            warnings.filterwarnings("ignore", "X (has|does not have valid) feature names")  # scikit-learn's, and helpful
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
    after = np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()  # noqa: NPY002
    if before != after:
        raise Failure("the random numbers of the whole process have moved on")


# --- what is asked


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Failure(what)


def finite(name: str, values: Any, answers: Answers) -> np.ndarray:
    values = np.asarray(values)
    check(bool(np.isfinite(values).all()), f"{name} is not finite")
    answers.append(values.tobytes())
    return values


def ask(model: Any, data: Any, answers: Answers) -> None:
    """All that a model says about samples."""
    proba = finite("predict_proba", model.predict_proba(data), answers)
    check(proba.shape[1] == model.n_clusters_ and proba.min(initial=0.0) >= 0.0, "probabilities are not of the clusters")
    check(bool((abs(proba.sum(axis=1) - 1.0) < 1e-5).all()), "probabilities do not add up to 1")
    predicted = finite("predict", model.predict(data), answers)
    check(np.isin(predicted, model.cluster_ids_).all(), "there are labels of no cluster")
    finite("score_samples", model.score_samples(data), answers)
    rejecting = finite("predict with reject", model.predict(data, reject=True), answers)
    check(bool(((rejecting == -1) | (rejecting == predicted)).all()), "outliers change the others")
    if isinstance(model, DPMixture):
        scores = finite("outlier_scores", model.outlier_scores(data), answers)
        check(bool(((scores >= 0.0) & (scores <= 1.0)).all()), "outlier scores are no shares")
    else:
        finite("transform", model.transform(data), answers)


def inspect(model: Any, answers: Answers) -> None:
    """All that a fit leaves behind."""
    finite("labels_", model.labels_, answers)
    mixture = model.mixture_
    for name in ("weights", "means", "covariances"):
        finite(f"{name}_", getattr(mixture, name), answers)
    check(float(np.sum(mixture.weights)) < 1.0 + 1e-6, "weights are no shares")
    finite("elbo", mixture.elbo, answers)
    finite("draws", model.sample(3, random_state=0)[0], answers)
    quality = getattr(model, "quality_", None)
    check(quality is None or not np.isnan(quality).any(), "quality_ is NaN")


def same_labels(model: Any, odd: Odd) -> None:
    check(bool((model.predict(odd.data) == model.labels_).all()), "predict gives other labels than labels_")


# --- what is done


def mixture_parameters(chance: Generator) -> dict[str, Any]:
    """Defaults, or a quick fit, now and then with odd parameters."""
    if chance.random() < 0.1:
        return {}
    params: dict[str, Any] = {
        "n_init": int(chance.integers(0, 2)),
        "covariance_type": str(chance.choice(["full", "diag", "auto"], p=[0.5, 0.4, 0.1])),
        "max_laps": int(chance.integers(1, 12)),
        "grouping": [None, "valleys"][int(chance.random() < 0.3)],
    }
    odd = {
        "concentration": 10.0 ** chance.uniform(-12, 12),
        "covariance_scale": 10.0 ** chance.uniform(-16, 16),
        "mean_precision": 10.0 ** chance.uniform(-16, 16),
        "degrees_of_freedom": 10.0 ** chance.uniform(-3, 12),
        "max_components": int(chance.integers(1, 5)),
        "batch_size": int(chance.integers(1, 30)),
        "tol": 10.0 ** chance.uniform(-20, 5),
        "births": False,
        "merges": False,
        "deletes": False,
        "resolution": 10.0 ** chance.uniform(-5, 5),
    }
    names = list(odd)
    for _ in range(int(chance.choice([0, 1, 2], p=[0.6, 0.3, 0.1]))):
        name = names[int(chance.integers(len(names)))]
        params[name] = odd[name]
    return params


def diva_parameters(chance: Generator) -> dict[str, Any]:
    """Networks so small, and epochs so few, that a case takes a fraction of a second."""
    params: dict[str, Any] = {
        "n_epochs": int(chance.integers(1, 4)),
        "hidden_sizes": (4,),
        "n_views": 1,
        "n_laps": 1,
        "further_epochs": 1,
        "codes": str(chance.choice(["learnt", "auto", "features"], p=[0.5, 0.35, 0.15])),
    }
    odd = {
        "latent_dim": int(chance.integers(1, 4)),
        "batch_size": int(chance.integers(1, 9)),
        "learning_rate": 10.0 ** chance.uniform(-8, 0),
        "pca": int(chance.integers(1, 4)),
        "tfidf": True,
        "n_views": 2,
        "warmup": 0.0,
        "self_training": 0.0,
        "adapt": True,
        "preset": "paper",
        "covariance_type": "diag",
    }
    names = list(odd)
    for _ in range(int(chance.choice([0, 1, 2], p=[0.5, 0.3, 0.2]))):
        name = names[int(chance.integers(len(names)))]
        params[name] = odd[name]
    return params


def go_on(model: Any, chance: Generator, answers: Answers, story: list[str]) -> None:
    """More data, other data, a file: each may follow a fit."""
    if chance.random() < 0.35:
        more = odd_array(chance, model.n_features_in_)
        story.append(f"partial_fit {more.words}")
        before: Answers = []
        inspect(model, before)
        if attempt("partial_fit", lambda: model.partial_fit(more.data)):
            inspect(model, answers)
            attempt("asked after partial_fit", lambda: ask(model, more.data, answers))
        else:
            after: Answers = []
            inspect(model, after)
            check(before == after, "a refused partial_fit changed the model")
    if chance.random() < 0.35:
        other = odd_array(chance, model.n_features_in_)
        story.append(f"asked of {other.words}")
        attempt("asked of others", lambda: ask(model, other.data, answers))
    if chance.random() < 0.1:
        story.append("saved")
        before, after = [], []
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder, "m.diva"))
            inspect(diva.load(Path(folder, "m.diva")), after)
        inspect(model, before)
        check(before == after, "a loaded model is another one")


def fit_mixture(chance: Generator, answers: Answers, story: list[str]) -> str:
    """DPMixture with weights now and then."""
    odd, params = odd_array(chance), mixture_parameters(chance)
    weights = odd_weights(chance, odd.n_samples) if chance.random() < 0.15 else None
    story += [f"{odd.words}", f"{params}", "" if weights is None else f"weights {weights[:3]}..."]
    model = DPMixture(random_state=int(chance.integers(100)), **params)
    return fitted(model, odd, chance, answers, story, sample_weight=weights)


def fit_diva(chance: Generator, answers: Answers, story: list[str]) -> str:
    """DIVA of rows or images."""
    odd = odd_images(chance) if chance.random() < 0.2 else odd_array(chance)
    params = diva_parameters(chance)
    story += [f"{odd.words}", f"{params}"]
    model = DIVA(random_state=int(chance.integers(100)), **params)
    return fitted(model, odd, chance, answers, story)


def bytes_of(data: Any) -> bytes:
    return np.asarray(data).tobytes() if isinstance(data, np.ndarray) and data.dtype != object else b""


def fitted(model: Any, odd: Odd, chance: Generator, answers: Answers, story: list[str], **extra: Any) -> str:
    before = bytes_of(odd.data)
    fits = attempt("fit", lambda: model.fit(odd.data, **extra))
    check(bytes_of(odd.data) == before, "the data were changed")
    if not fits:
        return "refused"
    inspect(model, answers)
    attempt("asked", lambda: ask(model, odd.data, answers))
    attempt("asked", lambda: same_labels(model, odd))
    go_on(model, chance, answers, story)
    return "fitted"


CASES = {"dpmixture": fit_mixture, "diva": fit_diva}


def run_case(estimator: str, seed: int, number: int, story: list[str] | None = None) -> str:
    """Outcome of a case, ``fitted`` or ``refused``; raises Failure, and tells what was done in ``story``."""
    story = [] if story is None else story
    told: list[Answers] = []
    twice = np.random.default_rng([seed, number, 1]).random() < REPEATED
    for _ in range(1 + twice):
        del story[:]
        told.append([])
        with watched():
            try:
                outcome = CASES[estimator](np.random.default_rng([seed, number]), told[-1], story)
            except Exception as error:
                raise unexpected("looked at", error) from error
    for first, second in itertools.pairwise(told):
        check(first == second, "the same seed gave something else the second time")
    return outcome
