"""Rows: what every measurement of this repository writes down, reproduction and benchmarks alike."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import sklearn
import torch

from diva.metrics import Agreement
from diva.version import __version__

Row = dict[str, Any]

# metrics by their full names, in the order of columns
METRICS = {
    "one-to-one accuracy": "acc_one_to_one",
    "majority accuracy": "acc_majority",
    "three-to-one accuracy": "acc_three_to_one",
    "NMI": "nmi",
    "ARI": "ari",
    "AMI": "ami",
    "K": "n_clusters",
}


def scores(agreement: Agreement) -> Row:
    """How well clusters agree with classes, by the full name of each metric."""
    return {name: getattr(agreement, attribute) for name, attribute in METRICS.items()}


@cache  # read when a measurement starts, not when it ends: that is the code it runs
def commit() -> str:
    """Commit of the code that runs, or its version where it does not run from a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # no git here
        return __version__
    return said.stdout.strip() or __version__


@cache
def processor() -> str:
    """Name of the processor and its cores."""
    name, cpuinfo = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        name = named[0] if named else name
    return f"{name}, {os.cpu_count()} cores"


def circumstances() -> Row:
    """Date, commit, machine and versions."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
        "diva": __version__,
    }


def peak_memory() -> float | None:
    """The most memory that this process has had so far, in MB; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
