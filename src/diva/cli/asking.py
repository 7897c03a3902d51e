"""``diva predict``, ``diva sample`` and ``diva report``: what can be asked of a finished run."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from diva.atomic import write_atomically
from diva.cli import console
from diva.cli.errors import UsageError, for_people
from diva.cli.options import Columns, ImageSize, Json, Key, LabelColumn, Limit, Split, columns_of, image_size_of, split_of
from diva.cli.runs import add_missing_summary, check_finished, open_model
from diva.cli.sources import SOURCE_FILE, SourceSpec, open_spec, specify
from diva.cli.tables import TableWriter
from diva.data import LoadedData, PartOfSource
from diva.data.formats.paths import is_table
from diva.metrics import Agreement
from diva.models.diva import DIVA
from diva.report import write_figures, write_report
from diva.report.pictures import contact_sheet, to_pictures
from diva.runs.snapshot import SNAPSHOT
from diva.runs.stream_log import STREAM, read_commit
from diva.runs.summary import read_facts

PREDICTED_AT_ONCE = 4096

Run = Annotated[Path, typer.Argument(help="Folder of a finished run, or a model file.")]


def predict(
    run: Run,
    source: Annotated[str, typer.Argument(help="Samples to ask about: as in `diva fit`.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: .parquet or .csv.")] = Path("predictions.parquet"),
    split: Split = "train",
    columns: Columns = None,
    label_column: LabelColumn = None,
    image_size: ImageSize = None,
    key: Key = None,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Write cluster, component, probability and novelty of every sample.

    \b
    Examples
      diva predict runs/digits digits --out labels.csv
      diva predict runs/photos new_photos/ --image-size 32,32 --json
    """
    with for_people():
        model = open_model(run)
        if out.suffix not in (".parquet", ".csv"):
            raise UsageError(f"--out should end in .parquet or .csv, got {str(out)!r}.")
        if os.path.realpath(source) == os.path.realpath(out):
            raise UsageError(f"--out is {str(out)!r}, the data themselves. Choose another file.")
        chosen = columns_of(columns)
        if chosen is None and is_table(source):
            chosen = noted(run, "columns")  # so that they may come in another order, and others beside them
            if chosen is None:
                console.note("This model names no columns; they are taken in the order they come in.")
        data = open_spec(
            specify(
                source,
                split=split_of(split),
                columns=chosen,
                label_column=label_column,
                image_size=image_size_of(image_size) or noted_image_size(run, source),
                key=key,
                limit=limit,
            )
        )
        clusters, n_novel = _write_predictions(model, data, out)
        said: dict[str, Any] = {
            "out": str(out),
            "n_samples": len(clusters),
            "n_novel": n_novel,
            "sizes": {int(k): int((clusters == k).sum()) for k in model.cluster_ids_},
        }
        if data.labels is not None:
            said["metrics"] = Agreement(data.labels, clusters).as_row()
        if as_json:
            print(json.dumps(said))
            return
        found = f"{len(clusters):,} samples in {len(np.unique(clusters))} clusters, {n_novel:,} of no known kind"
        console.output.print(f"{found}: {out}", soft_wrap=True)
        if "metrics" in said:
            console.output.print(
                f"one-to-one accuracy {said['metrics']['acc_one_to_one']:.3f}, NMI {said['metrics']['nmi']:.3f}"
            )


def noted(run: Path, what: str) -> tuple[str, ...] | None:
    """Names of the features, or of the columns they came from, that a run has noted; a model file alone has none."""
    if not run.is_dir() or not (run / SNAPSHOT).exists():
        return None
    names = read_facts(run).get(what)
    return None if names is None else tuple(names)


def noted_image_size(run: Path, source: str) -> tuple[int, int] | None:
    """What images were resized to for the run."""
    if not Path(source).is_dir() or is_table(source) or not (run / SOURCE_FILE).exists():
        return None
    return SourceSpec.read(run).image_size


def _write_predictions(model: DIVA, data: LoadedData, out: Path) -> tuple[NDArray[np.int64], int]:
    clusters, n_novel = [], 0
    groups = model.mixture_.cluster_of_component()
    with TableWriter(out) as table:
        for start in range(0, len(data.source), PREDICTED_AT_ONCE):
            index = np.arange(start, min(start + PREDICTED_AT_ONCE, len(data.source)))
            codes, score = model._codes_and_scores(PartOfSource(data.source, index))
            proba = model.mixture_.predict_proba(codes, level="component")
            component = proba.argmax(axis=1)
            cluster = groups[component]  # as predict has it
            probability = np.where(groups == cluster[:, None], proba, 0.0).sum(axis=1)
            novel = score < model.novelty_threshold_
            clusters.append(model.cluster_ids_[cluster])
            rows: dict[str, Any] = {"sample": index if data.sample_names is None else [data.sample_names[i] for i in index]}
            rows |= {"cluster": clusters[-1], "component": component, "probability": probability, "log_density": score}
            table.write(rows | {"novel": novel})
            n_novel += int(novel.sum())
    return np.concatenate(clusters), n_novel


def sample(
    run: Run,
    n: Annotated[int, typer.Option("--n", "-n", min=1, max=100_000, help="How many.")] = 16,
    cluster: Annotated[int | None, typer.Option(min=0, help="Only of this cluster.")] = None,
    component: Annotated[int | None, typer.Option(min=0, help="Only of this component.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write: .png, .npy or .csv.")] = None,
    random_state: Annotated[int, typer.Option(min=0, help="Seed.")] = 0,
) -> None:
    """Draw new samples from the model: a picture of many for images, an array for rows.

    \b
    Examples
      diva sample runs/digits --cluster 3 --out threes.png
      diva sample runs/measurements -n 1000 --out new.csv
    """
    with for_people():
        model = open_model(run)
        is_image = model._scaling.is_image
        out = out or Path("samples.png" if is_image else "samples.npy")
        allowed = (".png", ".npy") if is_image else (".npy", ".csv")
        if out.suffix not in allowed:
            raise UsageError(f"--out should end in {' or '.join(allowed)} for this model, got {str(out)!r}.")
        there = {"cluster": model.cluster_ids_.tolist(), "component": list(range(model.n_components_))}
        for flag, number in (("cluster", cluster), ("component", component)):
            if number is not None and number not in there[flag]:
                known = ", ".join(map(str, sorted(there[flag])))
                raise UsageError(f"--{flag} should be one of {known}, got {number}.")
        if cluster is not None and component is not None:
            raise UsageError("Give --cluster or --component, not both.")
        values, labels = model.sample(n, cluster=cluster, component=component, random_state=random_state)
        names = noted(run, "feature_names") or tuple(f"x{i}" for i in range(model.n_features_in_))
        _write_samples(model, values, labels, out, names)
        console.output.print(f"{n:,} samples: {out}", soft_wrap=True)


def _write_samples(
    model: DIVA, values: NDArray[np.float32], labels: NDArray[np.int64], out: Path, names: tuple[str, ...]
) -> None:
    if out.suffix == ".csv":
        with TableWriter(out) as table:
            own = "cluster" if "cluster" not in names else "cluster of diva"
            table.write({own: labels} | {name: values[:, i] for i, name in enumerate(names)})
        return
    buffer = io.BytesIO()
    if out.suffix == ".npy":
        np.save(buffer, values)
    else:
        scaling = model._scaling
        pictures = to_pictures(values, scaling.input_shape, scaling.channels_last, scaling.value_range)
        contact_sheet(pictures).save(buffer, format="PNG")
    write_atomically(out, buffer.getvalue())


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="HTML file to write; RUN/report.html by default.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for the same plots as PNG and SVG, for papers.")] = None,
) -> None:
    """Write what was found as one HTML file that needs no network.

    \b
    Examples
      diva report runs/digits
      diva report runs/digits --figures paper/figures
    """
    with for_people():
        check_finished(run)
        add_missing_summary(run)
        if (streamed := read_commit(run / STREAM)) is not None:
            console.note(f"The report is about the fit; {streamed.samples:,} samples of a stream came after it.")
        console.output.print(f"Report: {write_report(run, out)}", soft_wrap=True)
        if figures is not None:
            for path in write_figures(run, figures):
                console.output.print(f"Figure: {path}", soft_wrap=True)
