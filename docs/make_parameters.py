"""Write docs/parameters.md from the declarations of the hyper-parameters: ``python docs/make_parameters.py``."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from diva import DIVA, DPMixture
from diva.baselines import BASELINES, load_baseline
from diva.models.config import PAPER_DATASETS, PAPER_ROWS, PRESETS

PAGE = Path(__file__).parent / "parameters.md"
HEAD = """# Parameters

Every parameter of the estimators: its default, what it may be, and what it does. Each is declared once in the code, and this
page, the signatures, the checks and the flags of the command line follow from that. Written by
`python docs/make_parameters.py`.

A default of None means that the preset has the value. On the command line, `latent_dim` is `--latent-dim`.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for estimator in (DIVA, DPMixture, *map(load_baseline, BASELINES)):
        parts += [f"## {estimator.__name__}\n", *tables(estimator)]
    return "\n".join([*parts, presets()])


def tables(estimator: Any) -> list[str]:
    """One table for each group of parameters."""
    made = []
    for group, members in groupby(estimator.declared_parameters.items(), key=lambda item: item[1].group):
        rows = [f"| `{name}` | `{p.default!r}` | {p.expected} | {p.help} |" for name, p in members]
        made.append("\n".join([f"{group}:\n", "| parameter | default | allowed | |", "|---|---|---|---|", *rows]) + "\n")
    return made


def presets() -> str:
    """What the presets of DIVA set beside the defaults of its configuration."""
    listed = {f"`{name}`": set_to for name, set_to in PRESETS.items()}
    listed["`paper`, rows of numbers: as well"] = PAPER_ROWS
    listed |= {f"`diva fit {name} --preset paper`: as well": set_to for name, set_to in PAPER_DATASETS.items()}
    rows = [
        f"| {name} | {', '.join(f'`{k}={v!r}`' for k, v in set_to.items()) or 'the defaults'} |"
        for name, set_to in listed.items()
    ]
    return "\n".join(["## Presets of DIVA\n", "| preset | sets |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
