"""The page of a reproduction, as Markdown and as one HTML file: ours beside the paper's, and a verdict for each value."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from diva.atomic import write_atomically
from diva.experiments import spec
from diva.experiments.data import DATA, Availability
from diva.experiments.figures import Folders, write_figures
from diva.experiments.paper import CONTRADICTIONS
from diva.experiments.rows import Row
from diva.experiments.run import Workspace
from diva.experiments.spec import EXPERIMENTS, PROFILES, Profile, available, cells_of, configure
from diva.experiments.tables import TABLES, Results, Table, as_markdown, counted

ROWS, MARKDOWN, PAGE, FIGURES = "rows.jsonl", "reproduction.md", "reproduction.html", "figures"
HOW_JUDGED = (
    "A published accuracy counts as reproduced if our majority accuracy, the mean over seeds, differs from it by no more than "
    "two published standard deviations, or .02 if that is more. The paper's formula of accuracy lets several clusters share a "
    "class, so that majority accuracy is what it measures; it rises with the number of clusters. One-to-one accuracy stands "
    "beside it.",
    "NMI and ARI are shown and not judged: with an accuracy of .69 on 50 classes an NMI of .97 and an ARI of .88, as printed "
    "for ImageNet-50, are not attainable, and the public notebooks score predictions against a relabelling of their own.",
)
REDUCED = {
    "smoke": "This is the smoke profile: tiny networks on stand-ins for the data. It shows that everything runs, and no more.",
    "quick": "This is the quick profile: one seed, a small part of the data and few epochs. A value below the paper's says "
    "first of all that the run was short; only the full profile can speak against a published value.",
}


@dataclass(frozen=True)
class Image:
    """A figure in a file."""

    title: str
    path: Path


@dataclass(frozen=True)
class Section:
    """A heading, and what stands under it."""

    title: str
    texts: tuple[str, ...] = ()
    blocks: tuple[Table | Image, ...] = ()


def collect(workspace: Workspace, profile: Profile) -> tuple[Results, Folders]:
    """Rows of all cells that are done, in the order of the experiments, and the folders of one seed of each."""
    rows: list[Row] = []
    folders: dict[tuple[str, str, tuple[int, ...], str], Path] = {}
    for cell in cells_of(EXPERIMENTS, profile):
        job = configure(cell, profile)
        if job is not None and (row := workspace.row(job)) is not None:
            rows.append(row)
            folders.setdefault((cell.data, cell.system, cell.stages, cell.curve), workspace.folder(job))
    return Results(profile, rows, {key: available(key, profile) for key in DATA}), folders


def write_pages(workspace: Workspace, profile: Profile, names: Iterable[str] = EXPERIMENTS) -> list[Path]:
    """Write rows, figures and pages of what has been run so far; the files, the page for people first."""
    results, folders = collect(workspace, profile)
    path = workspace.path
    lines = "".join(json.dumps(row) + "\n" for row in results.rows)
    write_atomically(path / ROWS, lines.encode())
    images = write_figures(list(names), results, folders, path / FIGURES)
    sections = sections_of(results, images)
    write_atomically(path / MARKDOWN, (as_text(sections, path) + "\n").encode())
    write_atomically(path / PAGE, as_html(sections).encode())
    return [path / PAGE, path / MARKDOWN, path / ROWS, *(image for found in images.values() for image in found)]


def read_rows(path: Path) -> list[Row]:
    """Rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def results_of(rows: Sequence[Row], profile: str) -> Results:
    """Results from rows alone, wherever they were made: which data were there is in the rows."""
    there = {row["data"]: Availability(row["source"], row["substitute"]) for row in rows}
    return Results(PROFILES[profile], rows, {key: there.get(key, Availability(key)) for key in DATA})


def sections_of(results: Results, images: dict[str, list[Path]]) -> list[Section]:
    """All of the page."""
    profile = results.profile
    first = [REDUCED[profile.name]] if profile.name in REDUCED else []
    sections = [Section("Verdicts", (*first, *HOW_JUDGED, *_circumstances(results.rows)), (counted(results),))]
    missing = [f"{DATA[key].title}: {here.missing}" for key, here in results.data.items() if here.missing]
    if missing:
        sections.append(Section("Data that are not here", tuple(missing)))
    for key, experiment in EXPERIMENTS.items():
        tables = [table for table in TABLES[key](results) if table.lines]
        shown = [Image(experiment.title, path) for path in images.get(key, [])]
        if tables or shown:
            where = f"{experiment.where[0].upper()}{experiment.where[1:]} of the paper."
            sections.append(Section(experiment.title, (where,), (*shown, *tables)))
    sections.append(Section("Where the paper contradicts itself", CONTRADICTIONS))
    return sections


def _circumstances(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return ["Nothing has been run yet."]
    said = []
    for name in ("commit", "processor", "device", "torch"):
        said.append(f"{name} {', '.join(sorted({str(row[name]) for row in rows}))}")
    hours = sum(row["seconds"] for row in rows) / 3600
    dates = sorted({row["date"] for row in rows})
    return [
        f"{len(rows)} cells, {hours:.1f} hours in all, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}; {'; '.join(said)}."
    ]


# --- as text


def as_text(sections: Sequence[Section], folder: Path, heading: str = "# Reproduction") -> str:
    """Markdown, with images by their paths from a folder."""
    lines = [heading] if heading else []
    for section in sections:
        lines += ["", f"## {section.title}"]
        lines += [line for text in section.texts for line in ("", text)]
        for block in section.blocks:
            if isinstance(block, Image):
                lines += ["", f"![{block.title}]({block.path.relative_to(folder).as_posix()})"]
            elif len(block.columns) > 8:  # wide ones are folded away
                lines += ["", "<details markdown>", f"<summary>{html.escape(block.title)}: every metric</summary>", ""]
                lines += [*as_markdown(block), "", "</details>"]
            else:
                lines += ["", f"**{block.title}**", "", *as_markdown(block)]
    return "\n".join(lines).lstrip("\n")


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; margin: .5rem 0 1rem; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid #dfe3e8; vertical-align: top; }
th { border-bottom: 2px solid #1f2933; } .wide { overflow-x: auto; } img { max-width: 100%; }
h2 { margin-top: 2.5rem; } summary { cursor: pointer; font-weight: 600; } p { max-width: 54rem; }
"""


def as_html(sections: Sequence[Section]) -> str:
    """One file that needs no network."""
    parts = [f"<h2>{html.escape(section.title)}</h2>{''.join(_section_html(section))}" for section in sections]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
    title = "DIVA: the paper's evaluation, run again"
    body = f"<h1>{title}</h1>{''.join(parts)}"
    return f'<!doctype html><html lang="en"><head>{head}<title>{title}</title></head><body>{body}</body></html>\n'


def _section_html(section: Section) -> Iterable[str]:
    yield from (f"<p>{html.escape(text)}</p>" for text in section.texts)
    for block in section.blocks:
        if isinstance(block, Image):
            content = base64.b64encode(block.path.read_bytes()).decode()
            yield f'<p><img alt="{html.escape(block.title)}" src="data:image/png;base64,{content}"></p>'
            continue
        is_wide, title = len(block.columns) > 8, html.escape(block.title)
        yield f"<details><summary>{title}: every metric</summary>" if is_wide else f"<h3>{title}</h3>"
        head = "".join(f"<th>{html.escape(name)}</th>" for name in block.columns)
        lines = ("".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in block.lines)
        rows = "".join(f"<tr>{line}</tr>" for line in lines)
        yield f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        yield from (f"<p>{html.escape(note)}</p>" for note in block.notes)
        yield "</details>" if is_wide else ""


def progress(workspace: Workspace, profile: Profile) -> Table:
    """How many cells of each experiment are done, running, failed or waiting."""
    states = ("done", "running", "failed", "interrupted", "waiting", "no data")
    lines = []
    for key, experiment in EXPERIMENTS.items():
        jobs = [configure(cell, profile) for cell in experiment.cells(profile)]
        found = ["no data" if job is None else workspace.state(job) for job in jobs]
        lines.append((key, str(len(jobs)), *(str(found.count(state)) for state in states)))
    notes = []
    for cell in spec.cells_of(EXPERIMENTS, profile):
        job = configure(cell, profile)
        if job is not None and workspace.state(job) == "failed":
            notes.append(f"{job.name}: {workspace.trouble(job)}")
    return Table("Cells; experiments share some", ("experiment", "cells", *states), tuple(lines), tuple(notes))
