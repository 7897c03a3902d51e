"""``diva fit``: learn, with checkpoints, and say what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diva.cli._errors import for_people
from diva.cli._fitting import learn
from diva.cli._flags import SEED, given_params, make_model, with_flags
from diva.cli._options import Columns, ImageSize, Json, Key, LabelColumn, Limit, Report, Split, one_of
from diva.cli._runs import new_run, replacing
from diva.cli._sources import open_spec, specify
from diva.runs.load import DEEP_MODELS


@with_flags
def fit(
    source: Annotated[
        str,
        typer.Argument(help="A data set (see `diva data list`), .npy, .npz, .csv, .parquet, .idx.gz, or a folder of images."),
    ],
    model: Annotated[str, typer.Option(help="What to fit.", metavar="|".join(DEEP_MODELS))] = "diva",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the run; by default a new one under runs/.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="TOML file with parameters of the model.")] = None,
    split: Split = "train",
    columns: Columns = None,
    label_column: LabelColumn = None,
    labels: Annotated[str | None, typer.Option(help="File with known classes: .npy, or text with one a line.")] = None,
    image_size: ImageSize = None,
    key: Key = None,
    limit: Limit = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already in --out.")] = False,
    report: Report = True,
    as_json: Json = False,
    **given: str | None,
) -> None:
    """Find clusters in SOURCE; nobody needs to know how many there are.

    \b
    Examples
      diva fit digits
      diva fit measurements.csv --label-column species --out runs/measurements
      diva fit photos/ --image-size 32,32 --augmentation photo
      diva fit features.parquet --columns a,b,c --n-epochs 30 --random-state 1
      diva fit mnist --model dec --n-clusters 10
    """
    with for_people():
        spec = specify(source, split, columns, image_size, label_column=label_column, labels=labels, key=key, limit=limit)
        params = given_params(one_of("--model", model, DEEP_MODELS), given, config)  # said before long reading
        data = open_spec(spec)
        made = make_model(model, SEED | data.suggested | params)
        run = new_run(out, data.name, overwrite)
        with replacing(run):
            learn(made, run, spec, data, with_report=report, as_json=as_json)
