"""``diva fit``: learn, with checkpoints, and say what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diva.cli._errors import for_people
from diva.cli._flags import AUTO, SEED, ModelCommand, given_params, make_model, model_names, suitable
from diva.cli._options import (
    DATA,
    Columns,
    Exclude,
    IdColumn,
    ImageSize,
    Json,
    Key,
    LabelColumn,
    Limit,
    Missing,
    Report,
    SkipBroken,
    Split,
    Step,
    Window,
    either,
    one_of,
)

COMMAND_CLASS = ModelCommand


def fit(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            help="A data set (see `diva data list`), .npy, .npz, .csv, .parquet, .txt, .h5ad, .idx.gz, or a folder of images "
            "or texts."
        ),
    ],
    model: Annotated[str, typer.Option(help=f"What to fit: {either(model_names())}.", metavar="NAME", is_eager=True)] = AUTO,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the run; by default a new one under runs/.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="TOML file with parameters of the model.")] = None,
    split: Split = "train",
    columns: Columns = None,
    exclude: Exclude = None,
    id_column: IdColumn = None,
    label_column: LabelColumn = None,
    missing: Missing = None,
    labels: Annotated[
        str | None, typer.Option(help="File with known classes: .npy, or text with one a line.", rich_help_panel=DATA)
    ] = None,
    image_size: ImageSize = None,
    skip_broken: SkipBroken = False,
    key: Key = None,
    window: Window = None,
    step: Step = None,
    limit: Limit = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already in --out.")] = False,
    report: Report = True,
    as_json: Json = False,
) -> None:
    """Find clusters in SOURCE; nobody needs to know how many there are.

    --model auto is DIVA; of rows of numbers it keeps clusters of the features as they are if neighbours agree more on those.
    mixture fits those at once, without networks: fast, for embeddings and narrow tables. Others are baselines to compare with.
    The parameters of a model are shown by `diva fit --model NAME --help`.

    \b
    Examples
      diva fit digits
      diva fit penguins.csv
      diva fit measurements.csv --label-column species --exclude site,year --missing drop --out runs/measurements
      diva fit photos/ --image-size 32,32 --augmentation photo
      diva fit recording.csv --window 128 --kind series
      diva fit features.parquet --columns a,b,c --n-epochs 30 --random-state 1
      diva fit embeddings.npy --model mixture
      diva fit mnist --model dec --n-clusters 10
    """
    from diva.cli._learn import learn, suggestions  # seconds: not for help
    from diva.cli._runs import new_run, went_on
    from diva.cli._sources import open_spec, specify

    with for_people():
        of_table = {"exclude": exclude, "id_column": id_column, "label_column": label_column, "missing": missing}
        spec = specify(
            source,
            split,
            columns,
            image_size,
            **of_table,
            labels=labels,
            key=key,
            skip_broken=skip_broken,
            window=window,
            step=step,
            limit=limit,
        )
        params = given_params(one_of("--model", model, model_names()), ctx.meta["flags"], config)  # said before long reading
        data = open_spec(spec)
        made = make_model(model, SEED | suitable(model, suggestions(data, params)) | params)
        if (goes_on := out is not None and went_on(out, overwrite)) and "resume" in made.get_params():
            made.set_params(run_dir=out, resume=True)  # a mixture has nothing to go on from, and begins anew
        with new_run(out, data.name, overwrite, goes_on=goes_on) as run:
            learn(made, run, spec, data, with_report=report, as_json=as_json)
