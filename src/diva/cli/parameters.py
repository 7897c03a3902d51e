"""Every parameter of the estimator as a flag of the same name, and as a line of a TOML file."""

from __future__ import annotations

import difflib
import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from diva.cli.errors import UsageError
from diva.models.diva import DIVA
from diva.models.parameters import check_params

OF_THE_COMMAND = ("run_dir", "resume", "callbacks", "verbose", "encoder", "decoder")  # set by the command, or not by text
PANEL = "Parameters of the model (all optional)"


def add_flags(command: Callable[..., None]) -> None:
    """Give a command that takes ``**given`` a typer option for each parameter in its place."""
    hints = get_type_hints(command, include_extras=True)
    own = [
        p.replace(annotation=hints[p.name]) for p in inspect.signature(command).parameters.values() if p.kind != p.VAR_KEYWORD
    ]
    signature = inspect.Signature(own + flags())
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}


def flags() -> list[inspect.Parameter]:
    """A typer option for each parameter, with its text from the docstring."""
    said = described()
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None,
                typer.Option(
                    f"--{name.replace('_', '-')}",
                    help=said[name][1],
                    metavar=said[name][0],
                    rich_help_panel=PANEL,
                    show_default=False,
                ),
            ],
        )
        for name in names()
    ]


def names() -> list[str]:
    """Parameters that can be given as text."""
    return [name for name in inspect.signature(DIVA).parameters if name not in OF_THE_COMMAND]


def described() -> dict[str, tuple[str, str]]:
    """Type and meaning of every parameter, from the docstring of DIVA."""
    section = inspect.cleandoc(DIVA.__doc__ or "").split("Parameters\n----------\n")[1].split("\nAttributes\n")[0]
    entries: dict[str, tuple[str, str]] = {}
    for entry in re.split(r"\n(?=\w)", section):
        head, _, body = entry.partition("\n")
        listed, _, kind = head.partition(" : ")
        for name in listed.split(", "):
            meaning = re.sub(r":class:`(\w+)`", r"\1", " ".join(body.split()))
            entries[name.strip()] = (_metavar(kind), meaning)
    return entries


def _metavar(kind: str) -> str:
    """Short word for a type.

    >>> _metavar("int, optional"), _metavar('{"soft", "hard"}, optional')
    ('INT', 'soft|hard')
    """
    if kind.startswith("{"):
        return "|".join(re.findall(r'"([^"]+)"', kind.partition("}")[0]))
    if kind.startswith("("):
        return "H,W[,C]"
    words = {"int": "INT", "float": "FLOAT", "bool": "true|false", "tuple": "INT,INT,..."}
    return next((word for start, word in words.items() if kind.startswith(start)), "VALUE")


def from_text(name: str, text: str) -> Any:
    """The value a flag's text means.

    >>> from_text("image_shape", "28,28"), from_text("kl_weight", "auto"), from_text("grouping", "none"), from_text("pca", "8")
    ((28, 28), 'auto', None, 8)
    """
    plain = text.strip()
    if plain.lower() in ("none", "null"):
        return None
    if plain.lower() in ("true", "false"):
        return plain.lower() == "true"
    if "," in plain or name == "hidden_sizes":
        return tuple(_number(part) for part in plain.strip("()").split(",") if part.strip())
    return _number(plain)


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def resolve(given: dict[str, str | None], config: Path | None) -> dict[str, Any]:
    """Parameters of the model: flags before the TOML file.

    Raises
    ------
    UsageError
        If one of them makes no sense.
    """
    params = {} if config is None else read_toml(config)
    params |= {name: from_text(name, text) for name, text in given.items() if text is not None}
    try:
        check_params(DIVA(**params))
    except (TypeError, ValueError) as error:
        raise UsageError(_as_flags(str(error), params)) from None
    return params


def _as_flags(message: str, params: dict[str, Any]) -> str:
    """Name a parameter the way it is given here."""
    for name in sorted(params, key=len, reverse=True):
        if message.startswith(name):
            return f"--{name.replace('_', '-')}{message[len(name) :]}"
    return message


def read_toml(path: Path) -> dict[str, Any]:
    """Parameters in a TOML file: at its top, or under [diva]."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"There is no configuration file {str(path)!r}.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{str(path)!r} cannot be read as TOML: {error}.") from None
    params = document.get("diva", document)
    if not isinstance(params, dict):
        raise UsageError(f"{str(path)!r} sets 'diva' to {params!r}; parameters belong below a line [diva].")
    known = names()
    for name in params:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Parameters are {', '.join(known)}."
            raise UsageError(f"{str(path)!r} sets {name!r}, which is no parameter of the model.{hint}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in params.items()}
