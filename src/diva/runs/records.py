"""Records, frozen dataclasses of plain values, as JSON and back."""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def record_from_plain(kind: type[Record], plain: Any) -> Record:
    """Rebuild a record from JSON; raises TypeError or ValueError unless every field is there and of its type."""
    types = get_type_hints(kind)
    if not isinstance(plain, dict) or set(plain) != set(types):
        raise ValueError(f"a record of kind {kind.__name__} should have the fields {sorted(types)}")
    return kind(**{name: _checked(name, plain[name], expected) for name, expected in types.items()})


def _checked(name: str, value: Any, expected: Any) -> Any:
    if get_origin(expected) is tuple:
        if not isinstance(value, list):
            raise TypeError(f"{name} should be a list")
        return tuple(_checked(name, v, get_args(expected)[0]) for v in value)
    options = get_args(expected) or (expected,)  # int | None has two
    if float in options and type(value) is int:
        value = float(value)
    if type(value) not in options:
        raise TypeError(f"{name} should be {expected}, is {value!r}")
    return value
