"""One page about what a run found; everything is inside, nothing is fetched."""

from __future__ import annotations

import base64
import gzip
import json
import os
from functools import lru_cache
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from diva.atomic import write_atomically
from diva.report.draw_plotly import to_plotly
from diva.report.findings import Findings, naming_the_run, read_findings
from diva.report.panels import Panel, make_panels, summary, tiles
from diva.version import __version__

REPORT = "report.html"


def write_report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    projection: str = "auto",
) -> Path:
    """Write one HTML file about a run, from its folder alone.

    Parameters
    ----------
    run : str or path-like
        Folder of a finished run with a summary, as ``diva fit`` makes it.
    out : str or path-like, optional
        The file to write; ``report.html`` in the run's folder by default.
    projection : {"auto", "tsne", "umap", "pca", "codes"}
        How codes are laid out on the map; the result is kept in the run's folder. "auto" takes UMAP if umap-learn is
        installed, else t-SNE.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ReportError
        If the folder holds no finished run, or no summary of it.
    ModelFileError
        If one of its files is damaged.
    """
    target = Path(run) / REPORT if out is None else Path(out)
    with naming_the_run(run):
        page = make_page(read_findings(run, projection=projection))
    # the folder of a run may come from anywhere: a link in it is replaced, one that was asked for is followed
    write_atomically(target if out is None else Path(os.path.realpath(target)), page.encode(), shown=target)
    return target


def write_page(findings: Findings, path: str | os.PathLike[str]) -> Path:
    """Write one HTML file about findings that have a map; a file that is there is replaced."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(
            f"{os.fspath(path)!r} is a folder. Give the file to write, for example {str(target / REPORT)!r}."
        )
    write_atomically(Path(os.path.realpath(target)), make_page(findings).encode(), shown=target)
    return target


def make_page(findings: Findings) -> str:
    """The whole page."""
    panels = make_panels(findings)
    plots = {name: to_plotly(plot) for panel in panels for name, plot in panel.plots.items()}
    extra = {name: value for panel in panels for name, value in panel.data.items()}
    return Template(_part("page.html")).substitute(
        title=escape(findings.summary.source),
        style=_part("page.css"),
        summary=summary(findings),
        tiles=tiles(findings),
        contents="".join(f'<li><a href="#{panel.name}">{panel.title}</a></li>' for panel in panels),
        panels="".join(_section(panel) for panel in panels),
        version=escape(__version__),
        data=to_json({"plots": plots} | extra),
        library=_library(),
        script=_part("page.js"),
    )


def to_json(value: Any) -> str:
    """JSON that can stand inside a script element, whatever text it holds."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _section(panel: Panel) -> str:
    heading = f'<h2 id="{panel.name}-title">{panel.title}</h2>'
    return f'<section id="{panel.name}" aria-labelledby="{panel.name}-title">{heading}{panel.body}</section>\n'


@lru_cache(maxsize=1)
def _library() -> str:
    """Plotly's script, compressed: a third of its size even as text."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), compresslevel=9, mtime=0)).decode()


def _part(name: str) -> str:
    return files("diva.report").joinpath(name).read_text(encoding="utf-8")
