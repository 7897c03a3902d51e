"""Hyper-parameters, declared once: name, default, allowed values and help text of each in one field of a dataclass.

The signature of an estimator, its validation, its docstring, the flags of the command line and the tables of the documentation
follow from the declaration.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from sklearn.utils import check_random_state

Group = TypeVar("Group")
Estimator = TypeVar("Estimator", bound=type)


class Allowed(Protocol):
    """Values that make sense; its text completes "should be"."""

    @property
    def metavar(self) -> str:
        """A short word for the command line."""
        ...

    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""
        ...


@dataclass(frozen=True)
class Whole:
    """Whole numbers in a range."""

    low: int = 1
    high: int = 10**9
    metavar: ClassVar[str] = "INT"

    def __str__(self) -> str:
        return f"a whole number from {self.low:,} to {self.high:,}"

    def accepts(self, value: Any) -> bool:  # noqa: D102
        return is_whole(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Number:
    """Real numbers in a range."""

    low: float = 1e-12
    high: float = 1e12
    metavar: ClassVar[str] = "FLOAT"

    def __str__(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"

    def accepts(self, value: Any) -> bool:  # noqa: D102
        return is_number(value) and self.low <= value <= self.high


@dataclass(frozen=True, init=False)
class OneOf:
    """A few words, or None, True, False."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        object.__setattr__(self, "values", values)

    def __str__(self) -> str:
        shown = [f'"{v}"' if isinstance(v, str) else repr(v) for v in self.values]
        return shown[0] if len(shown) == 1 else "one of " + ", ".join(shown)

    @property
    def metavar(self) -> str:  # noqa: D102
        return "|".join(v if isinstance(v, str) else repr(v).lower() for v in self.values)

    def accepts(self, value: Any) -> bool:  # noqa: D102
        return any(value is v or (isinstance(value, str) and value == v) for v in self.values)


@dataclass(frozen=True)
class Flag:
    """True or False."""

    metavar: ClassVar[str] = "true|false"

    def __str__(self) -> str:
        return "True or False"

    def accepts(self, value: Any) -> bool:  # noqa: D102
        return isinstance(value, bool | np.bool_ | int)


@dataclass(frozen=True)
class Sizes:
    """So many whole numbers."""

    lengths: range
    high: int
    shown: str
    metavar: str

    def __str__(self) -> str:
        return self.shown

    def accepts(self, value: Any) -> bool:  # noqa: D102
        is_list = isinstance(value, tuple | list) and len(value) in self.lengths
        return is_list and all(is_whole(size) and 1 <= size <= self.high for size in value)


@dataclass(frozen=True)
class Folder:
    """The path of a folder."""

    metavar: ClassVar[str] = "PATH"

    def __str__(self) -> str:
        return "the path of a folder"

    def accepts(self, value: Any) -> bool:  # noqa: D102
        if not isinstance(value, str | os.PathLike):
            return False
        name = os.fspath(value)
        return isinstance(name, str) and name != "" and "\0" not in name


@dataclass(frozen=True)
class Seed:
    """What scikit-learn takes as a random state."""

    metavar: ClassVar[str] = "INT|none"

    def __str__(self) -> str:
        return "a seed, a whole number from 0 to 4294967295, a RandomState or None"

    def accepts(self, value: Any) -> bool:  # noqa: D102
        try:
            check_random_state(value)
        except ValueError:
            return False
        return True


@dataclass(frozen=True)
class Holds:
    """Whatever passes a test; without a metavar if it cannot be given as text."""

    test: Callable[[Any], bool]
    shown: str
    metavar: str = ""

    def __str__(self) -> str:
        return self.shown

    def accepts(self, value: Any) -> bool:  # noqa: D102
        return self.test(value)


@dataclass(frozen=True)
class Parameter:
    """One hyper-parameter."""

    default: Any  # in the signature of the estimator; where presets differ, what stands for "as the preset has it"
    allowed: tuple[Allowed, ...]  # a value should be accepted by one of them, or be the default
    help: str  # one or two sentences for users
    group: str = ""  # what the parameter is about, a heading of the command line
    public: bool = True  # whether it is in the signature; others are set by presets alone

    @property
    def expected(self) -> str:
        """What a value should be, for people."""
        return " or ".join(map(str, self.allowed))

    @property
    def metavar(self) -> str:
        """For the command line."""
        return "|".join(dict.fromkeys(option.metavar for option in self.allowed if option.metavar))

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError, naming what was expected, unless a value makes sense."""
        is_default = value is self.default or (isinstance(value, str) and value == self.default)
        if not is_default and not any(option.accepts(value) for option in self.allowed):
            raise ValueError(f"{name} should be {self.expected}, got {value!r}.")


def parameter(default: Any, *allowed: Allowed, help: str, unset: Any = MISSING, public: bool = True) -> Any:  # noqa: A002  # as in argparse
    """Declare a hyper-parameter as a field of a dataclass.

    Parameters
    ----------
    default : object
        Of the field.
    *allowed : Allowed
    help : str
    unset : object, optional
        Default in the estimator's signature, if presets differ.
    public : bool, default=True
    """
    shown = default if unset is MISSING else unset
    return field(default=default, metadata={"parameter": Parameter(shown, allowed, " ".join(help.split()), public=public)})


_declared: dict[type, Mapping[str, Parameter]] = {}  # what was looked up: a prediction of one sample should not do it again


def declared_in(group: type) -> Mapping[str, Parameter]:
    """Parameters of one dataclass, by name; each is about what the first class says that declares it."""
    if group in _declared:
        return _declared[group]
    about: dict[str, str] = {}
    for base in reversed(group.__mro__):
        heading = (base.__doc__ or "").partition("\n")[0].rstrip(".")
        about = dict.fromkeys(inspect.get_annotations(base), heading) | about
    found = {f.name: f.metadata["parameter"] for f in fields(group)}
    _declared[group] = MappingProxyType({name: replace(p, group=about[name]) for name, p in found.items()})
    return _declared[group]


def takes(*groups: type) -> Callable[[Estimator], Estimator]:
    """Give an estimator the parameters that dataclasses declare: signature, ``get_params`` and docstring.

    The first one may be given by position, as in scikit-learn. The docstring gets a section "Parameters" before its first
    other section.
    """
    declared = {name: p for group in groups for name, p in declared_in(group).items() if p.public}
    ours = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    kinds = [inspect.Parameter.POSITIONAL_OR_KEYWORD, *[inspect.Parameter.KEYWORD_ONLY] * len(declared)]
    listed = [inspect.Parameter(n, kind, default=p.default) for kind, (n, p) in zip(kinds, declared.items(), strict=False)]
    signature = inspect.Signature([ours, *listed])

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        for name in declared:
            setattr(self, name, bound.arguments[name])

    def decorate(cls: Estimator) -> Estimator:
        initialize.__signature__ = signature  # type: ignore[attr-defined]  # what scikit-learn and editors read
        initialize.__name__, initialize.__qualname__ = "__init__", f"{cls.__qualname__}.__init__"
        cls.__init__ = initialize  # type: ignore[misc]
        cls.declared_parameters = declared  # type: ignore[attr-defined]
        cls.__doc__ = _with_parameters(inspect.cleandoc(cls.__doc__ or ""), declared)
        return cls

    return decorate


def _with_parameters(text: str, declared: Mapping[str, Parameter]) -> str:
    entries = [f"{name} : {p.expected}, default={p.default!r}\n    {p.help}" for name, p in declared.items()]
    section = "\n".join(["Parameters", "----------", *entries])
    first = next((name for name in ("Attributes", "Examples") if f"\n{name}\n---" in text), None)
    if first is None:
        return f"{text}\n\n{section}\n"
    before, _, after = text.partition(f"\n{first}\n---")
    return f"{before}\n{section}\n\n{first}\n---{after}"


def check_parameters(estimator: Any) -> None:
    """Raise ValueError, naming what was expected, at the first parameter of an estimator that makes no sense."""
    for name, declaration in estimator.declared_parameters.items():
        declaration.check(name, getattr(estimator, name))


def values_of(estimator: Any, group: type[Group]) -> Group:
    """What an estimator has for the parameters of one dataclass; those that were not given have the field's default."""
    given = {name: (getattr(estimator, name), p.default) for name, p in declared_in(group).items() if p.public}
    return group(**{name: value for name, (value, default) in given.items() if value is not default})


def is_number(value: Any) -> bool:
    """Whether value is a finite real number."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and bool(np.isfinite(float(value)))
    except OverflowError:
        return False


def is_whole(value: Any) -> bool:
    """Whether value is an integer."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def plain(value: Any) -> Any:
    """A value as JSON can hold it; what it cannot hold, a module or a random state, becomes None."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike) or type(value).__module__ == "torch":  # a device of torch, which need not be imported
        return str(value)
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    return value if value is None or isinstance(value, bool | int | float | str) else None
