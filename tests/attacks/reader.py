"""Opens forged files one after the other and says of each, as a line of JSON, how it ended and what memory it took."""

import json
import resource
import sys
from pathlib import Path

import numpy as np

from diva import load
from diva.data import open_path
from diva.exceptions import DataError, ModelFileError, ReportError
from diva.report import write_report

PAGES = Path("/proc/self/clear_refs")


def peak_megabytes() -> float:
    """Most that was in memory at once, since it was last forgotten."""
    if PAGES.exists():
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


def outcome(place: str, options: dict[str, str]) -> str:
    try:
        if place.endswith(".diva"):
            load(place)
        elif place.endswith(".run"):
            write_report(place, projection="codes")
        else:
            open_path(place, **options).source.take(np.arange(1))
    except (DataError, ModelFileError, ReportError) as error:
        return f"refused: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


before = peak_megabytes()
for name, place, options in json.load(sys.stdin):
    if PAGES.exists():
        PAGES.write_text("5")
    print(json.dumps([name, outcome(place, options), peak_megabytes() - before]), flush=True)
