"""Values that the paper publishes (arXiv 2305.14067), and where it contradicts itself."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from diva.experiments.data import DATA

METRIC_NAMES = {"ACC": "majority accuracy", "NMI": "NMI", "ARI": "ARI"}  # what the paper's formula of ACC measures
TITLES = {"Reuters10k (imbalanced)": "Reuters10k"}
METHODS = {"Vanilla DPMM": "DPMM+memoVB"}


@dataclass(frozen=True)
class Value:
    """A published mean over runs, with its standard deviation."""

    mean: float
    std: float
    where: str  # the table or figure

    def __str__(self) -> str:
        return f"{short(self.mean)} ± {short(self.std)}"


# Of two values for one thing, Table 1 is compared with.
CONTRADICTIONS = (
    "STL-10, DIVA: .88 in Table 1, .72 in the supplement.",
    "Fashion-MNIST, DPMM: .57 in Table 1, .39 in supplementary table 5. STL-10, DPMM: .64 and .70.",
    "Four bars of Figure 5 differ from their tables: MNIST GMVAE K = 10 (.806, table .82) and K = 3 (.905, table .89), "
    "Fashion-MNIST DIVA with 7 classes (.699, table .68), STL-10 GMVAE K = 5 with 5 classes (.794, table .84).",
    '"Two hidden layers", where figure and code have three: 500, 500 and 2,000.',
    "Values for DEC on MNIST and Reuters10k are those of its own paper, which learns from training and test samples together.",
)


def short(value: float) -> str:
    """A share with two digits, as the paper prints it.

    >>> short(0.944), short(1.0), short(-0.01)
    ('.94', '1.00', '-.01')
    """
    return ("-" if value <= -0.005 else "") + f"{abs(value):.2f}".removeprefix("0")


@cache
def published() -> dict[tuple[str, str, str, int | None], Value]:
    """Values by data set (its key), method (as printed), metric (by its full name), and number of classes if not all."""
    found: dict[tuple[str, str, str, int | None], Value] = {}
    keys = {data.title: data.key for data in DATA.values()}
    for file in ("table1", "metrics", "incremental"):  # of several values for one thing, the first counts
        for line in _lines(file):
            where = line.get("table") or line["source"]
            if not line["mean"] or where == "Fig. 5 bars":
                continue
            data = keys[TITLES.get(line["dataset"], line["dataset"])]
            n_classes = int(line["classes"]) if line.get("classes") else None
            key = (data, METHODS.get(line["method"], line["method"]), METRIC_NAMES[line["metric"]], n_classes)
            found.setdefault(key, Value(float(line["mean"]), float(line["std"] or 0), where))
    return found


def value_of(data: str, method: str, metric: str = "majority accuracy", n_classes: int | None = None) -> Value | None:
    """A published value, if there is one."""
    return published().get((data, method, metric, n_classes))


def _lines(name: str) -> list[dict[str, str]]:
    text = files("diva.experiments").joinpath("published", f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
