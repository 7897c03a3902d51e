"""``make screenshots``: the pictures of the terminal and of the report in these docs, made anew from `diva fit digits`."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from diva.cli import _console as console
from diva.report import write_figures
from diva.runs.snapshot import SNAPSHOT
from diva.runs.summary import Summary

IMAGES = Path(__file__).parent / "images"
RUN = Path("demo")
PAGES = {"report.png": (1280, 1500), "report-phone.png": (500, 1400)}  # Chromium makes no window narrower than 500


def main() -> int:
    """Fit unless the demo is there, then draw."""
    if not (RUN / SNAPSHOT).exists():
        subprocess.run([sys.executable, "-m", "diva", "fit", "digits", "--out", str(RUN)], check=True)
    draw_summary()
    with tempfile.TemporaryDirectory() as folder:
        for path in write_figures(RUN, Path(folder), formats=("png",)):
            if "gallery" in path.name:
                shutil.copy(path, IMAGES / "digits.png")
    browser = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
    if browser is None:
        print("No Chromium found: the pictures of the report stay as they are.")
        return 1
    for name, (width, height) in PAGES.items():
        photograph(browser, RUN / "report.html", IMAGES / name, width, height)
    return 0


def draw_summary() -> None:
    """What `diva fit` prints at the end, as SVG."""
    console.output = Console(record=True, width=92, force_terminal=True, file=io.StringIO(), highlight=False)
    console.show_summary(console.describe(Summary.read(RUN), str(RUN), str(RUN / "report.html")))
    console.output.save_svg(str(IMAGES / "terminal.svg"), title="diva fit digits")


def photograph(browser: str, page: Path, picture: Path, width: int, height: int) -> None:
    """Open a page in a headless browser and keep what it shows."""
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=20000"]
        options += [f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--screenshot={picture.resolve()}"]
        subprocess.run([browser, *options, page.resolve().as_uri()], check=True, capture_output=True, timeout=180)


if __name__ == "__main__":
    raise SystemExit(main())
