"""The commands, put together; the module of each is imported when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from diva.version import __version__

# Name and first line of each, which help and completion need; all else is in the module of the name.
COMMANDS = {
    "fit": "Find clusters in SOURCE; nobody needs to know how many there are.",
    "resume": "Go on with a run that was interrupted; it ends with the numbers of an undisturbed one.",
    "stream": "Go on with the model of a run as samples arrive.",
    "predict": "Write cluster, component, probability and novelty of every sample.",
    "sample": "Draw new samples from the model: a picture of many for images, an array for rows.",
    "report": "Write what was found as one HTML file that needs no network.",
    "compare": "Compare two runs on the same data: do they agree, what moved where, which is better without labels.",
    "reproduce": "Run the paper's evaluation, and show the results beside the published values.",
    "data": "Data sets by name: list, get and check them.",
}
SHARED = ("fit", "resume", "predict")  # several processes under torchrun share the work of these


def load_command(name: str) -> Any:
    """The command of a name, its module imported."""
    module = import_module(f"diva.cli.{name}")
    command = getattr(module, f"{name}_app", None) or getattr(module, name)
    if not isinstance(command, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        alone.command(name, cls=getattr(module, "COMMAND_CLASS", None))(command)
        command = alone
    return typer.main.get_command(command)


class LazyGroup(TyperGroup):
    """Commands that are imported when they are run: `diva --help` needs neither torch nor scikit-learn."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """The command that arguments begin with."""
        name, outline, rest = super().resolve_command(ctx, args)
        if name not in (None, *SHARED) and "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", 1)) > 1:
            ctx.fail(f"`diva {name}` works in one process: start it without torchrun, which is for {', '.join(SHARED)}.")
        return name, None if outline is None else load_command(str(name)), rest


app = typer.Typer(
    name="diva",
    cls=LazyGroup,
    help="Find groups in data when nobody knows how many there are.",
    no_args_is_help=True,
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


def _outline() -> None:
    """Stands for a command until it is loaded."""


for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(_outline)


def put_together() -> Callable[..., Any]:
    """The command line as one function."""
    return typer.main.get_command(app)
