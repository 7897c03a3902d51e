"""Options that several commands share, and what their texts mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from diva.cli._errors import UsageError

DATA = "Reading the data"  # a heading
_of_data = partial(typer.Option, rich_help_panel=DATA)

RunOrModel = Annotated[Path, typer.Argument(help="Folder of a finished run, or a model file.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]
Report = Annotated[bool, typer.Option(help="Write RUN/report.html at the end.")]
Split = Annotated[str, _of_data(help="Part of a named data set: train or test.")]
Columns = Annotated[
    str | None,
    _of_data(help="Columns of a table to learn from, such as a,b,c; all that fit by default."),
]
Exclude = Annotated[str | None, _of_data(help="Columns of a table to leave out, such as a,b,c.")]
IdColumn = Annotated[str | None, _of_data(help="Column that names the rows: kept in predictions, never learnt from.")]
LabelColumn = Annotated[str | None, _of_data(help="Column with known classes: to compare with, never learnt from.")]
Missing = Annotated[
    str | None,
    typer.Option(
        help="Rows with gaps: impute fills them (default), drop, or error.", metavar="impute|drop|error", rich_help_panel=DATA
    ),
]
ImageSize = Annotated[str | None, _of_data(help="Resize images to HEIGHT,WIDTH, both divisible by 4.", metavar="H,W")]
SkipBroken = Annotated[
    bool,
    typer.Option(
        "--skip-broken", help="Leave broken images of a folder out, and list them, instead of stopping.", rich_help_panel=DATA
    ),
]
Key = Annotated[str | None, _of_data(help="Which array of an .npz file.")]
Window = Annotated[
    int | None,
    _of_data(min=2, help="Cut one long recording, a row a step, into windows of so many steps."),
]
Step = Annotated[int | None, _of_data(min=1, help="Steps from one window to the next; half a window by default.")]
Limit = Annotated[int | None, _of_data(min=1, help="Only the first so many samples.")]


def one_of(flag: str, text: str, allowed: Iterable[str]) -> str:
    """A word that a flag takes; raises UsageError, naming all, for any other."""
    words = list(allowed)
    if text not in words:
        raise UsageError(f"{flag} should be {either(words)}, got {text!r}.")
    return text


def either(words: Sequence[str]) -> str:
    """Words to choose from.

    >>> either(["one"]), either(["one", "two", "three"])
    ('one', 'one, two or three')
    """
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def columns_of(text: str | None) -> tuple[str, ...] | None:
    """Names of columns.

    >>> columns_of("a, b")
    ('a', 'b')
    """
    return None if text is None else tuple(name.strip() for name in text.split(","))


def image_size_of(text: str | None) -> tuple[int, int] | None:
    """Height and width.

    >>> image_size_of("32,48")
    (32, 48)
    """
    if text is None:
        return None
    try:
        height, width = (int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise UsageError(f"--image-size should be HEIGHT,WIDTH, such as 32,32, got {text!r}.") from None
    if min(height, width) < 4 or height % 4 or width % 4:
        raise UsageError(f"--image-size should be two numbers divisible by 4, got {text!r}.")
    return height, width
