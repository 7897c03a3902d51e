"""Systems to compare DIVA with, each on the same data, files and report; deep ones on the same training loop as well."""

from importlib import import_module
from typing import Any

# By their names on the command line, module and class of each: a new one is one line here.
BASELINES = {
    "dec": "dec.DEC",
    "vade": "vade.VaDE",
    "gmvae": "gmvae.GMVAE",
    "sbvae": "sbvae.SBVAE",
    "vsbdvm": "vsbdvm.VSBDVM",
    "deepdpm": "deepdpm.DeepDPM",
    "ddpm": "ddpm.DDPM",
    "gmm": "gmm.GMM",
    "dpmm": "dpmm.DPMM",
    "umap-mixture": "umap.UMAPMixture",
    "umap-hdbscan": "umap.UMAPHDBSCAN",
}


def load_baseline(name: str) -> Any:
    """Class of a baseline by its name on the command line; its module is imported now."""
    module, _, kind = BASELINES[name].partition(".")
    return getattr(import_module(f"{__name__}.{module}"), kind)


def __getattr__(kind: str) -> Any:
    for name, path in BASELINES.items():
        if path.endswith(f".{kind}"):
            return load_baseline(name)
    raise AttributeError(f"module {__name__!r} has no attribute {kind!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(path.rpartition(".")[2] for path in BASELINES.values())})
