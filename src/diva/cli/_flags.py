"""Every hyper-parameter of the models as a flag of the same name, and as a line of a TOML file."""

from __future__ import annotations

import copy
import difflib
import inspect
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Self

import typer
from typer.core import TyperCommand

from diva.cli._errors import UsageError, for_people
from diva.cli._options import either
from diva.parameters import Parameter, Sizes, declared_in
from diva.runs.load import MODELS

SET_BY_COMMAND = ("run_dir", "resume", "verbose", "reject")  # who is novel is said beside the cluster
RENAMED = {"sharpening": "self_training"}
SEED = {"random_state": 0}  # a command gives the same numbers when it is given again


# where the parameters of these are declared, so that help needs no torch; those of others are with their classes
DECLARED = {"diva": "diva.models.config.DIVA_PARAMETERS", "mixture": "diva.mixture.options.MIXTURE_PARAMETERS"}
AUTO = "auto"

COMMON = (
    "n_clusters",
    "max_clusters",
    "min_cluster_size",
    "resolution",
    "augmentation",
    "n_epochs",
    "pca",
    "tfidf",
    "preset",
    "device",
    "random_state",
)
COMMON_PANEL = "Parameters that are changed most"


def model_names() -> tuple[str, ...]:
    """What ``--model`` takes."""
    return (AUTO, *MODELS)


def kind_of(model: str) -> str:
    """The model that a name on the command line stands for: auto is DIVA, which of rows keeps what the evidence is for."""
    return "diva" if model == AUTO else model


def parameters_of(model: str) -> dict[str, Parameter]:
    """Parameters of a model that can be given as text: those that have a metavar."""
    model = kind_of(model)
    if model in DECLARED:
        module, _, name = DECLARED[model].rpartition(".")
        groups = getattr(import_module(module), name)
        declared = {name: p for group in groups for name, p in declared_in(group).items() if p.public}
    else:
        declared = MODELS[model].declared_parameters
    return {name: p for name, p in declared.items() if p.metavar and name not in SET_BY_COMMAND}


def options_of(model: str) -> list[Any]:
    """The parameters of a model as options, those that are changed most first."""
    known = parameters_of(model)
    first = [name for name in COMMON if name in known]
    order = [*first, *(name for name in known if name not in first), *(old for old in RENAMED if old not in known)]
    made = _text_options(order)
    for name, parameter in known.items():
        option = made[name]
        option.help, option.metavar = parameter.help, parameter.metavar
        option.rich_help_panel = COMMON_PANEL if name in first else parameter.group
        option.show_default = _default_as_text(kind_of(model), name, parameter)
    return [made[name] for name in order]


def _text_options(names: Iterable[str]) -> dict[str, Any]:
    """An option for a text for each name, as typer makes them; those of old names are not shown."""

    def takes_them(**_: str | None) -> None:
        """Only its signature is of use."""

    flags = []
    for name in names:
        option = typer.Option(_flag(name), hidden=name in RENAMED)
        kind = inspect.Parameter.KEYWORD_ONLY
        flags.append(inspect.Parameter(name, kind, default=None, annotation=Annotated[str | None, option]))
    takes_them.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined]
    takes_them.__annotations__ = {flag.name: flag.annotation for flag in flags}
    app = typer.Typer(add_completion=False)
    app.command()(takes_them)
    return {str(option.name): option for option in typer.main.get_command(app).params}


def _default_as_text(model: str, name: str, parameter: Parameter) -> str | bool:
    """What a flag that is not given stands for; False where that is nothing that could be given."""
    default = SEED.get(name, parameter.default)
    if default is not None:
        return _as_text(default)
    if parameter.otherwise is None:
        return False
    from diva.models.config import PRESETS

    of_rows = PRESETS["features"].get(name, parameter.otherwise) if model == "diva" else parameter.otherwise
    shown = _as_text(parameter.otherwise)
    return shown if of_rows == parameter.otherwise else f"{shown}, of rows {_as_text(of_rows)}"


class ModelCommand(TyperCommand):
    """A command with the flags of a model: of the one that ``--model`` names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse with the flags of that model; one of another is said to be so."""
        ctx.meta[ModelCommand] = _model_in(args)
        try:
            return TyperCommand.parse_args(self, ctx, args)
        except Exception as error:
            name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")  # of click's NoSuchOption
            others = [] if not name or ctx.resilient_parsing else [m for m in MODELS if name in parameters_of(m)]
            if not others:
                raise
            with for_people():
                raise UsageError(_foreign_flag(name, ctx.meta[ModelCommand])) from error
            raise AssertionError from error  # for_people has left

    def invoke(self, ctx: Any) -> Any:
        """Run the command, which finds the flags in its context; typer knows only parameters of the function."""
        flags = {option.name for option in options_of(ctx.meta[ModelCommand])}
        ctx.meta["flags"] = {name: ctx.params.pop(name) for name in list(ctx.params) if name in flags}
        return TyperCommand.invoke(self, ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """Options of the command, and flags of the model."""
        return _ordered(TyperCommand.get_params(self, ctx), ctx.meta.get(ModelCommand, AUTO))

    def showing(self, model: str) -> Self:
        """The command with the flags of one model, for those who look at its parameters."""
        shown = copy.copy(self)
        shown.params = _ordered(self.params, model)
        return shown


def _ordered(own: list[Any], model: str) -> list[Any]:
    """Options of a command, flags that are changed most, options that have a heading, other flags."""
    flags = options_of(model)
    plain = [option for option in own if getattr(option, "rich_help_panel", None) is None]
    common = [option for option in flags if option.rich_help_panel == COMMON_PANEL]
    return [*plain, *common, *(o for o in own if o not in plain), *(o for o in flags if o not in common)]


def _model_in(args: Sequence[str]) -> str:
    """The model that arguments ask for; what they do not know is said later."""
    for flag, value in zip(args, [*args[1:], ""], strict=False):
        name, has_value, text = flag.partition("=")
        if name == "--model":
            return text if has_value and text in model_names() else value if value in model_names() else AUTO
    return AUTO


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


def make_model(model: str, params: Mapping[str, Any]) -> Any:
    """A model of a name with parameters; raises UsageError, naming the flag, if one of them makes no sense."""
    try:
        made = MODELS[kind_of(model)](**params)
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
    params = {} if config is None else _read_toml(config, kind_of(model))
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
    return f"{_flag(name)} is no parameter of the model {kind_of(model)}. Leave it out, or pass --model {others}."


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
