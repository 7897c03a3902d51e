"""``diva sample``: new samples, drawn from a model."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from diva.atomic import write_atomically
from diva.cli import _console
from diva.cli._errors import UsageError, for_people
from diva.cli._options import RunOrModel
from diva.cli._runs import open_model, recorded_names
from diva.cli._tables import TableWriter
from diva.report.pictures import contact_sheet, to_pictures
from diva.runs.summarize import image_format
from diva.runs.summary import ImageFormat


def sample(
    run: RunOrModel,
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
        model: Any = open_model(run)
        if not hasattr(model, "sample"):
            raise UsageError(f"{str(run)!r} holds a model of {type(model).__name__}, which cannot draw new samples.")
        image = image_format(model)
        allowed = (".npy", ".csv") if image is None else (".png", ".npy")
        out = out or Path(f"samples{allowed[0]}")
        if out.suffix not in allowed:
            raise UsageError(f"--out should end in {' or '.join(allowed)} for this model, got {str(out)!r}.")
        _check_number("--cluster", cluster, model.cluster_ids_.tolist())
        _check_number("--component", component, list(range(model.n_components_)))
        if cluster is not None and component is not None:
            raise UsageError("Give --cluster or --component, not both.")
        values, labels = model.sample(n, cluster=cluster, component=component, random_state=random_state)
        if out.suffix == ".csv":
            _write_table(out, values, labels, recorded_names(run, "feature_names"))
        else:
            _write_array(out, values, image)
        _console.say(f"{n:,} samples: {out}")


def _check_number(flag: str, number: int | None, known: list[int]) -> None:
    if number is not None and number not in known:
        raise UsageError(f"{flag} should be one of {', '.join(map(str, sorted(known)))}, got {number}.")


def _write_table(out: Path, values: NDArray[np.float32], labels: NDArray[np.int64], names: tuple[str, ...] | None) -> None:
    names = names or tuple(f"x{i}" for i in range(values.shape[1]))
    own = "cluster" if "cluster" not in names else "cluster of diva"
    with TableWriter(out) as table:
        table.write({own: labels} | {name: values[:, i] for i, name in enumerate(names)})


def _write_array(out: Path, values: NDArray[np.float32], image: ImageFormat | None) -> None:
    buffer = io.BytesIO()
    if image is None or out.suffix == ".npy":
        np.save(buffer, values)
    else:
        contact_sheet(to_pictures(values, image)).save(buffer, format="PNG")
    write_atomically(out, buffer.getvalue())
