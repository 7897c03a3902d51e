"""Every hyper-parameter of the models as a flag of the same name, and as a line of a TOML file."""

from __future__ import annotations

import copy
import difflib
import inspect
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self, get_type_hints

import typer
from typer.core import TyperCommand

from diva.cli._errors import UsageError
from diva.cli._options import either
from diva.models.base import Clusterer
from diva.parameters import Parameter, Sizes
from diva.runs.load import MODELS

SET_BY_COMMAND = ("run_dir", "resume", "verbose")
RENAMED = {"sharpening": "self_training"}
SEED = {"random_state": 0}  # a command gives the same numbers when it is given again


def parameters_of(model: str) -> dict[str, Parameter]:
    """Parameters of a model that can be given as text: those that have a metavar."""
    declared = MODELS[model].declared_parameters
    return {name: p for name, p in declared.items() if p.metavar and name not in SET_BY_COMMAND}


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes ``**given`` an option for each parameter of any model in its place."""
    hints = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command)
    own = [p.replace(annotation=hints[p.name]) for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    names = dict.fromkeys(name for model in MODELS for name in parameters_of(model))
    options = {name: typer.Option(_flag(name)) for name in names}
    options |= {name: typer.Option(_flag(name), hidden=True) for name in RENAMED}
    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option])
        for name, option in options.items()
    ]
    command.__signature__ = signature.replace(parameters=own + flags)  # type: ignore[attr-defined]  # what typer reads
    command.__annotations__ = {p.name: p.annotation for p in own + flags}
    return command


class ModelCommand(TyperCommand):
    """A command with flags; its help shows those of the model that is asked for, which comes before ``--help``."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Help for the model of this call."""
        model = ctx.params.get("model")
        TyperCommand.format_help(self.showing(model if model in MODELS else next(iter(MODELS))), ctx, formatter)

    def showing(self, model: str) -> Self:
        """The command with the flags of one model alone, with their texts and defaults."""
        known = parameters_of(model)
        flags = {name for other in MODELS for name in parameters_of(other)}
        shown = copy.copy(self)
        shown.params = [option for option in self.params if option.name not in flags]
        by_name = {option.name: option for option in self.params}
        for name, parameter in known.items():
            option: Any = copy.copy(by_name[name])
            default = SEED.get(name, parameter.default)
            option.help, option.metavar, option.rich_help_panel = parameter.help, parameter.metavar, parameter.group
            option.show_default = False if default is None else _as_text(default)
            shown.params.append(option)
        return shown


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _as_text(value: Any) -> str:
    """A value as a flag takes it.

    >>> _as_text((500, 2000)), _as_text(True), _as_text(0.5)
    ('500,2000', 'true', '0.5')
    """
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def from_text(parameter: Parameter, text: str) -> Any:
    """The value that the text of a flag means.

    >>> parameters = parameters_of("diva")
    >>> [from_text(parameters[name], text) for name, text in (("hidden_sizes", "500"), ("kl_weight", "auto"), ("pca", "8"))]
    [(500,), 'auto', 8]
    """
    plain = text.strip()
    words = {"none": None, "null": None, "true": True, "false": False}
    if plain.lower() in words:
        return words[plain.lower()]
    if "," in plain or any(isinstance(allowed, Sizes) for allowed in parameter.allowed):
        return tuple(_number(part) for part in plain.strip("()").split(",") if part.strip())
    return _number(plain)


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def make_model(model: str, params: Mapping[str, Any]) -> Clusterer:
    """A model of a name with parameters; raises UsageError, naming the flag, if one of them makes no sense."""
    try:
        made = MODELS[model](**params)
        made.validate_parameters()
    except (TypeError, ValueError) as error:
        message = str(error)
        name = max((name for name in params if message.startswith(name)), key=len, default=None)
        raise UsageError(f"{_flag(name)}{message.removeprefix(name)}" if name else message) from None
    return made


def suitable(model: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Of parameters that suit some data, those that a model has."""
    return {name: value for name, value in params.items() if name in parameters_of(model)}


def given_params(model: str, given: Mapping[str, str | None], config: Path | None) -> dict[str, Any]:
    """Parameters of a model as given, flags before the TOML file; raises UsageError if it has none such, or one is nonsense."""
    known = parameters_of(model)
    params = {} if config is None else _read_toml(config, model)
    for name, text in given.items():
        if text is not None:
            if name not in known:
                raise UsageError(_foreign_flag(name, model))
            params[name] = from_text(known[name], text)
    make_model(model, params)
    return params


def _foreign_flag(name: str, model: str) -> str:
    if name in RENAMED:
        return f"{_flag(name)} is called {_flag(RENAMED[name])} now."
    others = either([other for other in MODELS if name in parameters_of(other)])
    return f"{_flag(name)} is no parameter of the model {model}. Leave it out, or pass --model {others}."


def _read_toml(path: Path, model: str) -> dict[str, Any]:
    """Parameters in a TOML file: at its top, or below the name of the model in brackets."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"There is no configuration file {str(path)!r}.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{str(path)!r} cannot be read as TOML: {error}.") from None
    params = document.get(model, document)
    if not isinstance(params, dict):
        raise UsageError(f"{str(path)!r} sets {model!r} to {params!r}; parameters belong below a line [{model}].")
    known = list(parameters_of(model))
    for name in params:
        if name not in known:
            near = [RENAMED[name]] if name in RENAMED else difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Parameters are {', '.join(known)}."
            raise UsageError(f"{str(path)!r} sets {name!r}, which is no parameter of the model {model}. {hint}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in params.items()}
