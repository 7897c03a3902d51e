"""Figures: pure functions of rows, of the published values, and of the codes and draws that cells kept.

Each function gives the figures of an experiment by name, or none if what they show has not been run.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diva.atomic import write_atomically
from diva.experiments import spec
from diva.experiments.data import DATA
from diva.experiments.paper import value_of
from diva.experiments.rows import Row
from diva.experiments.spec import Cell
from diva.experiments.tables import Results, estimate, judge
from diva.experiments.trials import read_stage
from diva.mixture.process import draw_dirichlet_process
from diva.report.draw_matplotlib import STYLE
from diva.report.palette import COLOURS, INK, NEUTRAL, colour_of
from diva.report.projection import project_run

Named = Iterator[tuple[str, Any]]  # names and figures of matplotlib
Folders = Mapping[tuple[str, str, tuple[int, ...], str], Path]  # of cells that are done, one seed of each

PAPER = "#1f2933"
SYSTEM_COLOURS = {
    "diva": "#D55E00",
    "diva_default": "#882255",
    "gmvae10": "#0072B2",
    "gmvae": "#0072B2",
    "gmvae5": "#56B4E9",
    "gmvae3": "#9fc5e8",
    "gmm10": "#4d4d4d",
    "gmm5": "#8c8c8c",
    "gmm3": "#bfbfbf",
    "dpmm": "#CC79A7",
    "vsbdvm": "#E69F00",
    "vsbdvm50": "#E69F00",
    "deepdpm": "#009E73",
    "deepdpm_codes": "#009E73",
}
SHORT = {"diva": "DIVA", "deepdpm_codes": "DeepDPM, codes", "vsbdvm50": "VSB-DVM", "vsbdvm": "VSB-DVM", "dpmm": "DPMM"}


def title_of(system: str) -> str:
    """A short name for a legend."""
    return SHORT.get(system, spec.SYSTEMS[system].title)


def _figure(width: float, height: float, n_rows: int = 1, n_columns: int = 1, **how: Any) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False, **how)


# --- Table 1 and the incremental tables


def table1(results: Results, folders: Folders) -> Named:  # noqa: ARG001  # asked of every experiment
    """Ours against the paper's, a panel for each data set."""
    if not results.rows:
        return
    figure, panels = _figure(7.2, 4.2, 2, 3, sharex=True, sharey=True)
    systems = [key for key in spec.TABLE1_SYSTEMS if key != "vsbdvm50"][::-1]
    for data, panel in zip(spec.TABLE1_DATA, panels.flat, strict=True):
        for y, key in enumerate(systems):
            value, rows = value_of(data, spec.SYSTEMS[key].published), results.of(Cell(data, key, 0))
            ours = estimate(rows, "majority accuracy")
            if value is not None:
                panel.errorbar(value.mean, y, xerr=value.std, fmt="D", color=PAPER, mfc="white", ms=4.5, lw=0.8, zorder=2)
            if ours is not None:
                is_judged = judge(rows, value, results.data[data]).kind in ("reproduced", "better", "worse")
                face = COLOURS[3] if is_judged else "white"
                panel.errorbar(ours.mean, y, xerr=ours.std, fmt="o", color=COLOURS[3], mfc=face, ms=5, lw=1, zorder=3)
        here = results.data[data].substitute
        panel.set_title(DATA[data].title, loc="left", fontsize=8, fontweight="bold", pad=11 if here else 5)
        if here:
            panel.text(0, 1.02, here, transform=panel.transAxes, fontsize=6, color=NEUTRAL)
        panel.set_yticks(range(len(systems)), [title_of(key).partition(",")[0] for key in systems], fontsize=7)
        panel.grid(axis="y", color="#e4e7eb", linewidth=0.6)
        panel.set(xlim=(0, 1.03), ylim=(-0.6, len(systems) - 0.4))
        panel.set_axisbelow(True)
    names = {"diva_default": "DIVA, default", "diva": "DIVA, paper"}
    panels[0, 0].set_yticks(range(len(systems)), [names.get(k, title_of(k).partition(",")[0]) for k in systems], fontsize=7)
    for panel in panels[-1]:
        panel.set_xlabel("majority accuracy")
    _legend(
        figure,
        [
            ("D", PAPER, "white", "paper"),
            ("o", COLOURS[3], COLOURS[3], "ours"),
            ("o", COLOURS[3], "white", "ours, on a substitute"),
        ],
    )
    yield "table1", figure


def incremental(results: Results, folders: Folders) -> Named:  # noqa: ARG001  # asked of every experiment
    """Bars of ours, and lines across them for the paper's."""
    cells = [(d, s, n) for d in spec.INCREMENTAL_DATA for s in spec.INCREMENTAL_SYSTEMS for n in spec.GROWING]
    if not any(results.of(spec.incremental_cell(d, s, n, 0)) for d, s, n in cells):
        return
    figure, panels = _figure(7.2, 4.6, 3, 1, sharex=True)
    width = 0.8 / len(spec.INCREMENTAL_SYSTEMS)
    for data, panel in zip(spec.INCREMENTAL_DATA, panels.flat, strict=True):
        for i, system in enumerate(spec.INCREMENTAL_SYSTEMS):
            for j, n in enumerate(spec.GROWING):
                x = j + (i - (len(spec.INCREMENTAL_SYSTEMS) - 1) / 2) * width
                ours = estimate(results.of(spec.incremental_cell(data, system, n, 0)), "majority accuracy")
                label = title_of(system) if j == 0 else None
                if ours is not None:
                    error = ours.std if ours.n > 1 else None
                    panel.bar(x, ours.mean, 0.92 * width, color=SYSTEM_COLOURS[system], label=label, yerr=error)
                if (value := value_of(data, spec.SYSTEMS[system].published, n_classes=n)) is not None:
                    panel.plot(
                        [x - 0.46 * width, x + 0.46 * width], [value.mean] * 2, color=PAPER, lw=1.4, solid_capstyle="butt"
                    )
        here = results.data[data].substitute
        panel.set_title(DATA[data].title + (f" ({here})" if here else ""), loc="left", fontsize=8, fontweight="bold")
        panel.set(ylim=(0, 1), ylabel="majority accuracy")
        panel.set_xticks(range(len(spec.GROWING)), [f"{n} classes" for n in spec.GROWING])
        panel.tick_params(axis="x", length=0)
        panel.grid(axis="y", color="#e4e7eb", linewidth=0.6)
        panel.set_axisbelow(True)
    panels[0, 0].plot([], [], color=PAPER, lw=1.4, label="paper")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=7)
    yield "incremental", figure


# --- curves


def dynamic(results: Results, folders: Folders) -> Named:
    """Accuracy of all systems while digits arrive, K of DIVA, and maps of its codes."""
    found = {s: results.of(Cell("mnist", s, 0, spec.GROWING, "stages")) for s in spec.DYNAMIC_SYSTEMS}
    if not any(found.values()):
        return
    figure, panels = _figure(6.4, 3.2)
    panel, epochs = panels[0, 0], results.profile.stage_epochs
    for system in reversed([s for s in spec.DYNAMIC_SYSTEMS if found[s]]):
        x, mean, std = curve_of(found[system], "majority accuracy")
        style = {"color": SYSTEM_COLOURS[system], "lw": 2.0 if system == "diva" else 1.2, "label": title_of(system)}
        if spec.SYSTEMS[system].is_deep:
            panel.plot(x, mean, **style)
        else:  # it learns at once: one value for a stage
            ends = np.arange(len(mean)) * epochs
            panel.hlines(mean, ends, ends + epochs - 1, **style)
        if len(found[system]) > 1 and spec.SYSTEMS[system].is_deep:
            panel.fill_between(x, mean - std, mean + std, color=SYSTEM_COLOURS[system], alpha=0.18, lw=0)
    _stage_marks(panel, epochs)
    panel.set(xlabel="epoch", ylabel="majority accuracy", ylim=(0, 1.02), xlim=(-0.5, len(spec.GROWING) * epochs - 0.5))
    panel.xaxis.get_major_locator().set_params(integer=True)
    if found["diva"]:
        right = panel.twinx()
        x, mean, _ = curve_of(found["diva"], "K")
        right.plot(x, mean, ":", color=COLOURS[7], lw=1.8, label="DIVA, K")
        right.spines["right"].set_visible(True)
        right.set_ylim(0, max(30.0, 1.15 * float(np.nanmax(mean))))
        right.set_ylabel("components of DIVA", color=COLOURS[7])
        panel.plot([], [], ":", color=COLOURS[7], lw=1.8, label="DIVA, components")
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=4, fontsize=7)
    yield "dynamic", figure
    folder = folders.get(("mnist", "diva", spec.GROWING, "stages"))
    if folder is not None:
        titles = [f"epoch {(i + 1) * epochs}: {n} digits" for i, n in enumerate(spec.GROWING)]
        parts = [(title, *kept_map(folder, i, "clusters")) for i, title in enumerate(titles)]
        yield "dynamic_tsne", _maps(parts, 4, by="component")


def moves(results: Results, folders: Folders) -> Named:  # noqa: ARG001  # asked of every experiment
    """Components after every epoch; births above, merges below the axis."""
    trials = (*((n,) for n in spec.STATIC_MOVES), spec.GROWING)
    found = [results.of(Cell("mnist", "diva", 0, stages, "stages")) for stages in trials]
    if not any(found):
        return
    figure, panels = _figure(7.2, 2.5, 1, len(trials), sharey=True)
    for stages, rows, panel in zip(trials, found, panels[0], strict=True):
        panel.set_title(f"{', '.join(map(str, stages))} digits", loc="left", fontsize=8, fontweight="bold")
        panel.set_xlabel("epoch")
        panel.axhline(0, color=INK, lw=0.6)
        if not rows:
            continue
        x, mean, std = curve_of(rows, "K")
        panel.bar(x, curve_of(rows, "births")[1], 0.9, color=COLOURS[2], label="births")
        gone = curve_of(rows, "merges")[1] + curve_of(rows, "deletes")[1]
        panel.bar(x, -gone, 0.9, color=COLOURS[6], label="merges")
        panel.plot(x, mean, color=COLOURS[0], lw=1.4, label="components")
        if len(rows) > 1:
            panel.fill_between(x, mean - std, mean + std, color=COLOURS[0], alpha=0.18, lw=0)
        panel.xaxis.get_major_locator().set_params(integer=True)
        if len(stages) > 1:
            _stage_marks(panel, results.profile.stage_epochs, named=False)
    panels[0, 0].set_ylabel("number")
    handles, labels = next(p for p, rows in zip(panels[0], found, strict=True) if rows).get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7)
    yield "moves", figure


def shuffle(results: Results, folders: Folders) -> Named:  # noqa: ARG001  # asked of every experiment
    """Test accuracy after every epoch, with and without shuffles."""
    found = {s: results.of(Cell("mnist", s, 0, (), "shuffle")) for s in ("diva", "diva_unshuffled")}
    if not any(found.values()):
        return
    figure, panels = _figure(4.2, 2.6)
    panel = panels[0, 0]
    for (system, rows), colour in zip(found.items(), (COLOURS[0], COLOURS[3]), strict=True):
        if rows:
            x, mean, std = curve_of(rows, "majority accuracy")
            panel.plot(x, mean, color=colour, lw=1.5, label="with shuffles" if system == "diva" else "without")
            if len(rows) > 1:
                panel.fill_between(x, mean - std, mean + std, color=colour, alpha=0.18, lw=0)
    panel.set(xlabel="epoch", ylabel="majority accuracy", ylim=(0, 1.02))
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.grid(axis="y", color="#e4e7eb", linewidth=0.6)
    panel.legend(loc="lower right")
    yield "shuffle", figure


def curve_of(rows: Sequence[Row], name: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Epochs, mean and standard deviation over seeds; rows have the same epochs."""
    n = min(len(row["curve"]) for row in rows)
    values = np.array([[_number(point[name]) for point in row["curve"][:n]] for row in rows])
    x = np.array([point["epoch"] for point in rows[0]["curve"][:n]])
    if len(rows) == 1:
        return x, values[0], np.zeros(n)
    return x, values.mean(axis=0), values.std(axis=0, ddof=1)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _stage_marks(panel: Any, epochs: int, *, named: bool = True) -> None:
    for i, n in enumerate(spec.GROWING):
        if i:
            panel.axvline(i * epochs - 0.5, color=NEUTRAL, lw=0.7, ls=(0, (3, 3)), zorder=0)
        if named:
            place = ((i + 0.5) * epochs - 0.5, 1.01)
            panel.text(*place, f"{n} digits", transform=panel.get_xaxis_transform(), ha="center", fontsize=7, color=NEUTRAL)


# --- maps


def tsne(results: Results, folders: Folders) -> Named:  # noqa: ARG001  # asked of every experiment
    """Codes of MNIST by their classes."""
    places = [(s, folders.get(("mnist", s, (), ""))) for s in spec.TSNE_SYSTEMS]
    names = {"gmvae": "GMVAE, K = 10"}
    parts = [(names.get(s, title_of(s)), *kept_map(folder, 0, "classes")) for s, folder in places if folder is not None]
    if parts:
        yield "tsne", _maps(parts, 4, by="digit")


def trace(results: Results, folders: Folders) -> Named:  # noqa: ARG001  # asked of every experiment
    """Codes by the ids of components, before and after a class arrives: an id keeps its colour."""
    folder = folders.get(("mnist", "diva", spec.TRACE, "stages"))
    if folder is not None:
        parts = [(f"{n} digits", *kept_map(folder, i, "clusters")) for i, n in enumerate(spec.TRACE)]
        yield "trace", _maps(parts, 2, by="component", size=3.0)


def kept_map(folder: Path, stage: int, by: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Points of a map of the codes that a cell kept, made once, and the number that each is coloured by."""
    kept = read_stage(folder, stage)
    place = folder / f"map-{stage}"
    place.mkdir(exist_ok=True)
    return project_run(place, kept["codes"], "tsne").points, kept[by]


def _maps(parts: Sequence[tuple[str, NDArray[Any], NDArray[Any]]], n_columns: int, by: str, size: float = 1.8) -> Any:
    n_columns = min(n_columns, len(parts))
    n_rows = -(-len(parts) // n_columns)
    figure, panels = _figure(size * n_columns, 0.9 * size * n_rows + 0.3, n_rows, n_columns)
    numbers = sorted({int(k) for *_, labels in parts for k in np.unique(labels)})
    place = {k: i for i, k in enumerate(numbers)}
    for panel in panels.flat:
        panel.set_axis_off()
    for (title, points, labels), panel in zip(parts, panels.flat, strict=False):
        for k in np.unique(labels):
            mine = points[labels == k]
            marker = "oDs^PX*v"[place[int(k)] // len(COLOURS) % 8]
            panel.scatter(
                *mine.T, s=4 if len(points) > 200 else 10, marker=marker, color=colour_of(place[int(k)]), lw=0, rasterized=True
            )
            if by == "component" and len(mine) > len(points) / 50:
                x, y = np.median(mine, axis=0)
                panel.text(x, y, str(int(k)), fontsize=6, ha="center", va="center", fontweight="bold", color=INK).set_bbox(
                    {"facecolor": "white", "edgecolor": "none", "alpha": 0.65, "pad": 0.8}
                )
        panel.set_title(title, fontsize=8, loc="left", fontweight="bold")
    if by == "digit":
        _legend(figure, [("o", colour_of(place[k]), colour_of(place[k]), str(k)) for k in numbers], n_columns=len(numbers))
    return figure


# --- draws


def generate(results: Results, folders: Folders) -> Named:  # noqa: ARG001  # asked of every experiment
    """16 draws of each component in a square; components of a class beside each other."""
    for data in spec.GENERATE_DATA:
        folder = folders.get((data, "diva", (), ""))
        if folder is None:
            continue
        kept = read_stage(folder)
        if "draws" in kept:
            yield f"generate_{data}", _gallery(kept["draws"], kept["draw_classes"], kept["draw_counts"], _names_of(data))


def _names_of(data: str) -> Sequence[str]:
    from diva.data import dataset_info

    info = dataset_info(data)
    return info.class_names or [str(i) for i in range(info.n_classes)]


def _gallery(draws: NDArray[Any], classes: NDArray[Any], counts: NDArray[Any], names: Sequence[str]) -> Any:
    """A line for each class, its largest components from left to right."""
    present = [c for c in range(len(names)) if (classes == c).any()]
    widest = min(8, max(int((classes == c).sum()) for c in present))
    figure, panels = _figure(0.82 * widest + 0.9, 0.86 * len(present) + 0.1, len(present), widest)
    for panel in panels.flat:
        panel.set_axis_off()
    for c, line in zip(present, panels, strict=True):
        mine = np.flatnonzero(classes == c)
        mine = mine[np.argsort(-counts[mine], kind="stable")][:widest]
        for k, panel in zip(mine, line, strict=False):
            side = round(len(draws[k]) ** 0.5)
            tiles = [np.concatenate(list(draws[k][i * side : (i + 1) * side]), axis=1) for i in range(side)]
            panel.imshow(np.concatenate(tiles), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        line[0].text(-0.08, 0.5, names[c], transform=line[0].transAxes, ha="right", va="center", fontsize=7)
    return figure


def dp_draw(results: Results, folders: Folders) -> Named:  # noqa: ARG001  # asked of every experiment
    """The paper's figure 1b: a draw of DP(5, N(0, 1)), beside its base distribution."""
    atoms, weights = draw_dirichlet_process(5.0, random_state=4)
    figure, panels = _figure(4.2, 2.5)
    panel, grid = panels[0, 0], np.linspace(-3.6, 3.6, 200)
    panel.vlines(atoms, 0, weights, color=COLOURS[0], lw=1.6)
    panel.plot(atoms, weights, "o", color=COLOURS[0], ms=2.5)
    panel.plot(grid, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi), color=COLOURS[3], lw=1.2, label="density of H = N(0, 1)")
    panel.set(xlabel="atom", ylabel="weight", xlim=(-3.6, 3.6), ylim=(0, max(0.45, 1.1 * float(weights.max()))))
    panel.legend(loc="upper right")
    yield "dp_draw", figure


def _legend(figure: Any, entries: Sequence[tuple[str, str, str, str]], n_columns: int = 3) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], marker=m, color=edge, mfc=face, ls="", ms=4.5, label=text) for m, edge, face, text in entries]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=n_columns, fontsize=7, handletextpad=0.2, columnspacing=1.2
    )


FIGURES: dict[str, Callable[[Results, Folders], Named]] = {
    "table1": table1,
    "incremental": incremental,
    "dynamic": dynamic,
    "tsne": tsne,
    "generate": generate,
    "moves": moves,
    "trace": trace,
    "shuffle": shuffle,
    "dp-draw": dp_draw,
}


def write_figures(
    names: Sequence[str], results: Results, folders: Folders, target: Path, formats: Sequence[str] = ("png", "pdf")
) -> dict[str, list[Path]]:
    """Draw the figures of experiments; files by experiment, the PNG of each. Needs matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ImportError("Figures need matplotlib. Install it with: pip install 'diva-clustering[plot]'") from error
    target.mkdir(parents=True, exist_ok=True)
    written: dict[str, list[Path]] = {}
    with mpl.rc_context(STYLE):
        for name in names:
            for title, figure in FIGURES[name](results, folders):
                for form in formats:
                    buffer = io.BytesIO()
                    dated = {"pdf": {"CreationDate": None}, "png": {"Software": None}, "svg": {"Date": None}}[form]
                    figure.savefig(buffer, format=form, dpi=200, metadata=dated)
                    write_atomically(target / f"{title}.{form}", buffer.getvalue())
                written.setdefault(name, []).append(target / f"{title}.png")
    return written
