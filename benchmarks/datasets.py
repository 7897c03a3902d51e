"""Real data for benchmarks and tests, by name; see diva.data.datasets.load for where the files are looked for."""

from __future__ import annotations

from functools import partial

from diva.experiments.data import Labelled, load_labelled

__all__ = ["LOADERS", "Labelled", "load"]

load = load_labelled
LOADERS = {name: partial(load_labelled, name) for name in ("digits", "mnist", "fashion_mnist", "har", "reuters_r8")}
