"""``diva predict``: where samples belong."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from diva.cli import _console
from diva.cli._errors import UsageError, for_people
from diva.cli._options import Columns, IdColumn, ImageSize, Json, Key, LabelColumn, Limit, RunOrModel, SkipBroken, Split
from diva.cli._runs import open_model, recorded_image_size, recorded_names
from diva.cli._sources import SOURCE_FILE, SourceSpec, open_spec, specify
from diva.cli._tables import TableWriter
from diva.data import LoadedData, PartOfSource, TableSchema
from diva.data.formats.paths import is_table
from diva.distributed import is_main, world_size
from diva.metrics import Agreement

PREDICTED_AT_ONCE = 4096
STANDARD_OUTPUT = "-"


def predict(
    run: RunOrModel,
    source: Annotated[str, typer.Argument(help="Samples to ask about: as in `diva fit`.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write: .parquet or .csv; - writes CSV to standard output.")
    ] = Path("predictions.parquet"),
    split: Split = "train",
    columns: Columns = None,
    id_column: IdColumn = None,
    label_column: LabelColumn = None,
    keep_columns: Annotated[
        bool, typer.Option("--keep-columns", help="Write the columns of the table as well, not its ids alone.")
    ] = False,
    image_size: ImageSize = None,
    skip_broken: SkipBroken = False,
    key: Key = None,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Write cluster, component, probability and novelty of every sample.

    \b
    Examples
      diva predict runs/digits digits --out labels.csv
      diva predict runs/photos new_photos/ --image-size 32,32 --json
      diva predict runs/penguins penguins.csv --keep-columns --out - | head
    """
    with for_people():
        model = open_model(run)
        if out.suffix not in (".parquet", ".csv") and str(out) != STANDARD_OUTPUT:
            raise UsageError(f"--out should end in .parquet or .csv, or be - for standard output, got {str(out)!r}.")
        if str(out) == STANDARD_OUTPUT and as_json:
            raise UsageError("--json and --out - both write to standard output. Choose one.")
        if os.path.realpath(source) == os.path.realpath(out):
            raise UsageError(f"--out is {str(out)!r}, the data themselves. Choose another file.")
        of_table = {"id_column": id_column, "label_column": label_column}
        spec = specify(source, split, columns, image_size, **of_table, key=key, skip_broken=skip_broken, limit=limit)
        schema = model.schema_
        found = _write_predictions(model, open_spec(_as_in_run(spec, run, schema), schema, keep_columns=keep_columns), out)
        if str(out) == STANDARD_OUTPUT or not is_main():
            return  # one process writes and speaks
        if as_json:
            print(json.dumps(found))
        else:
            _show(found)


def _as_in_run(spec: SourceSpec, run: Path, schema: TableSchema | None) -> SourceSpec:
    """Read samples as those of the run were: the same columns, in whatever order they come, and images of the same size."""
    spec = replace(spec, image_size=spec.image_size or recorded_image_size(run, spec.source), typed=schema is not None)
    if (run / SOURCE_FILE).exists():
        before = SourceSpec.read(run)
        spec = replace(spec, window=before.window, step=before.step)
    if spec.columns is None and is_table(spec.source) and schema is None:
        spec = replace(spec, columns=recorded_names(run, "columns"))
        if spec.columns is None:
            _console.note("This model names no columns; they are taken in the order they come in.")
    return spec


def _write_predictions(model: Any, data: LoadedData, out: Path) -> dict[str, Any]:
    """Write a row for each sample, some of them at a time; returns what they come to."""
    has_mixture = hasattr(model, "mixture_")
    clusters, n_novel = [], 0
    at_once = PREDICTED_AT_ONCE * world_size()  # of which each process has a share
    with TableWriter(out) if is_main() else nullcontext() as table:
        for start in range(0, len(data.source), at_once):
            index = np.arange(start, min(start + at_once, len(data.source)))
            found = model.assign(PartOfSource(data.source, index))
            clusters.append(model.cluster_ids_[found.positions])
            n_novel += int(found.novel.sum())
            rows: dict[str, Any] = {
                "sample": index if data.sample_names is None else [data.sample_names[i] for i in index],
                "cluster": clusters[-1],
                **({"component": found.components} if has_mixture else {}),
                "probability": found.confidence,
                "log_density" if has_mixture else "score": found.scores,
                "novel": found.novel,
            }
            if table is not None:
                table.write(rows if data.beside is None else _beside(rows, data.beside.slice(start, len(index))))
    labels = np.concatenate(clusters)
    sizes = {int(k): int((labels == k).sum()) for k in model.cluster_ids_}
    said: dict[str, Any] = {"out": str(out), "n_samples": len(labels), "n_novel": n_novel, "sizes": sizes}
    if broken := data.facts.get("broken"):
        said["broken"] = broken
    return said if data.labels is None else said | {"metrics": Agreement(data.labels, labels).as_row()}


def _beside(rows: dict[str, Any], kept: Any) -> dict[str, Any]:
    """Columns of a table and what was found, which is said to be diva's where a column has its name."""
    columns = dict(zip(kept.schema.names, kept.columns, strict=True))
    found = {f"{name} of diva" if name in columns else name: values for name, values in rows.items()}
    return {"sample": found.pop("sample")} | columns | found if "sample" in found else columns | found


def _show(found: dict[str, Any]) -> None:
    _console.show_columns({"broken": found.get("broken")})
    n_clusters = sum(size > 0 for size in found["sizes"].values())
    said = f"{found['n_samples']:,} samples in {n_clusters} clusters, {found['n_novel']:,} of them novel"
    _console.say(f"{said}: {found['out']}")
    if metrics := found.get("metrics"):
        _console.say(f"one-to-one accuracy {metrics['acc_one_to_one']:.3f}, NMI {metrics['nmi']:.3f}")
