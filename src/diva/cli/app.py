"""The commands, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from diva.cli._flags import ModelCommand
from diva.cli.compare import compare
from diva.cli.data import data_app
from diva.cli.fit import fit
from diva.cli.predict import predict
from diva.cli.report import report
from diva.cli.resume import resume
from diva.cli.sample import sample
from diva.cli.stream import stream
from diva.version import __version__

app = typer.Typer(
    name="diva",
    help="Find groups in data when nobody knows how many there are.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda token: token.replace("_", "-"),  # --latent_dim is --latent-dim
    },
)


def _version(asked: bool) -> None:
    if asked:
        print(f"diva {__version__}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Find groups in data when nobody knows how many there are.

    \b
    Try it
      diva fit digits
      diva fit my_table.csv --out runs/mine
      diva predict runs/mine new_table.csv --out labels.csv
    """


app.command(cls=ModelCommand)(fit)
for command in (resume, stream, predict, sample, report, compare):
    app.command()(command)
app.add_typer(data_app, name="data")


def put_together() -> Callable[..., Any]:
    """The command line as one function."""
    return typer.main.get_command(app)
