"""``diva data``: list, get and check data sets, and make features of images."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from diva.cli._errors import for_people
from diva.data import check_dataset, dataset_info, get_dataset, list_datasets
from diva.data.datasets.features import Features, ImageSet, extract_features, load_encoder, open_images, write_features
from diva.data.formats.labels import number_classes, read_labels
from diva.exceptions import DataError

data_app = typer.Typer(no_args_is_help=True, help="Data sets by name: list, get and check them.", rich_markup_mode=None)

Tell = Callable[[int, int | None], None]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table.")]


@contextmanager
def _progress(title: str, columns: tuple[ProgressColumn, ...], quiet: bool) -> Iterator[Tell | None]:
    """A progress bar on stderr, given as what to call with the done and the total; None where nobody watches."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    with Progress(TextColumn("{task.description}"), BarColumn(), *columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, default=str))


def _print_rows(header: list[str], rows: list[list[str]], console: Console | None = None) -> None:
    """Print a table for people, or plain lines with tabs where the output goes into a file or another program."""
    console = console or Console()
    if not console.is_terminal:
        for row in [header, *rows]:
            typer.echo("\t".join(row))
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in header:
        table.add_column(name, overflow="fold", no_wrap=name in ("name", "shape", "state"))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # no markup: a path may hold brackets
    console.print(table)


@data_app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List all data sets, and which of them are here.

    Example: diva data list
    """
    with for_people():
        statuses = list_datasets()
        if as_json:
            _print_json([asdict(status) for status in statuses])
            return
        rows = []
        for s in statuses:
            state = (str(s.where) if s.where else "built in") if s.is_here else ("diva data get" if s.is_downloadable else "no")
            rows.append([s.name, s.shape, str(s.n_classes), s.licence, state, s.fidelity or ""])
        _print_rows(["name", "shape", "classes", "licence", "here", "this copy is"], rows)


@data_app.command("get")
def get_command(
    name: Annotated[str, typer.Argument(help="Name of a data set, see `diva data list`.")],
    as_json: AsJson = False,
) -> None:
    """Download a data set, unless it is here already. A broken download goes on where it stopped.

    Example: diva data get fashion_mnist
    """
    with for_people():
        info = dataset_info(name)
        with _progress(name, (DownloadColumn(), TransferSpeedColumn()), quiet=as_json) as tell:
            paths = get_dataset(name, on_progress=tell)
    if as_json:
        _print_json({"name": name, "files": [str(path) for path in paths], "licence": info.licence, "citation": info.citation})
    elif not paths:
        typer.echo(f"{name} needs no files.")
    else:
        typer.echo(f"{name} is in {paths[0].parent}. Licence: {info.licence}. Please cite: {info.citation}.")


@data_app.command("check")
def check_command(
    name: Annotated[str | None, typer.Argument(help="Name of a data set; all that are here if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check the files of data sets: all there, as published, and readable. Exit code 1 if not.

    Examples: diva data check mnist, or diva data check for all that are here
    """
    with for_people():
        names = [name] if name is not None else [status.name for status in list_datasets() if status.is_here]
        found = [(each, check) for each in names for check in check_dataset(each)]
    if as_json:
        _print_json([{"name": each, **asdict(check)} for each, check in found])
    else:
        rows = [[each, check.filename, "good" if check.is_good else "bad", check.message] for each, check in found]
        _print_rows(["name", "file", "state", "found"], rows)
    if not all(check.is_good for _, check in found):
        if not as_json and name is not None and any(check.message == "missing" for _, check in found):
            missing = next(check.path for _, check in found if check.message == "missing")
            info = dataset_info(name)
            advice = f"`diva data get {name}` downloads it." if info.is_downloadable else info.note
            typer.echo(f"Error: {name} is not complete: {missing} is missing. {advice}", err=True)
        raise typer.Exit(1)


@data_app.command("features")
def features_command(
    images: Annotated[Path, typer.Argument(help="Folder of images, with one folder for each class or none; or an npy file.")],
    encoder: Annotated[str, typer.Option(help="module:function that returns a torch.nn.Module, trained and frozen.")],
    out: Annotated[Path, typer.Option(help="File to write, .npz.")],
    labels: Annotated[
        Path | None, typer.Option(help="File with the labels, where folders do not give them: .npy or text.")
    ] = None,
    test: Annotated[Path | None, typer.Option(help="Images that are set apart for testing, as the first.")] = None,
    test_labels: Annotated[Path | None, typer.Option(help="File with the labels of the images for testing.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 64,
    image_size: Annotated[int, typer.Option(min=1, help="Height and width the encoder is given.")] = 224,
    as_json: AsJson = False,
) -> None:
    """Make features of images with a frozen network, as for STL-10 and ImageNet-50.

    The network gets float32 images (n, 3, size, size) from 0 to 1 and returns one row for each. The file holds X and, where
    classes are known, y and class_names; with --test also X_test and y_test. Saved as stl10/features.npz in $DIVA_DATA it is
    the data set stl10.

    Example: diva data features photos/train --test photos/test --encoder my_encoders:resnet50 --out stl10/features.npz
    """
    with for_people():
        if out.suffix != ".npz":
            raise DataError(f"Expected a file that ends in .npz for --out, got {out.name}.")
        if test is None and test_labels is not None:
            raise DataError("--test-labels are those of --test, which is missing. Name the images for testing.")
        parts = [_open_labelled(images, labels), *([] if test is None else [_open_labelled(test, test_labels)])]
        network = load_encoder(encoder)
        found = []
        for part in parts:
            with _progress("images", (MofNCompleteColumn(),), quiet=as_json) as tell:
                x = extract_features(part, network, batch_size=batch_size, image_size=image_size, on_progress=tell)
            found.append(Features(x, part.labels, part.class_names))
        write_features(out, *found)
    shapes = [list(part.x.shape) for part in found]
    y = found[0].labels
    n_classes = None if y is None else len(np.unique(y))
    if as_json:
        _print_json({"file": str(out), "shape": shapes[0], "test_shape": shapes[1] if test else None, "n_classes": n_classes})
    else:
        classes = "no labels" if n_classes is None else f"{n_classes} classes"
        rows = " + ".join(f"{shape[0]:,}" for shape in shapes)
        typer.echo(f"{out} holds {rows} x {shapes[0][1]:,} features, {classes}.")


def _open_labelled(path: Path, labels: Path | None) -> ImageSet:
    """Images with the classes that a file gives them, or else their folders."""
    images = open_images(path)
    if labels is None:
        return images
    given = read_labels(labels)
    if len(given) != len(images):
        raise DataError(f"Expected one label for each of {len(images):,} images, {labels.name} has {len(given):,}.")
    return ImageSet(images.items, *number_classes(given))
