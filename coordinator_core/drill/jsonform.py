"""Frozen dataclasses as JSON and back: field names as they are, enums as text, tuples as lists."""

from __future__ import annotations

import dataclasses
import types
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """JSON of a dataclass whose fields are dataclasses, enums, tuples, mappings and plain values."""
    if dataclasses.is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [to_json(one) for one in value]
    if isinstance(value, dict):
        return {str(name): to_json(one) for name, one in value.items()}
    return value


def from_json(cls: type[T], value: Any, path: str = "") -> T:
    """The dataclass ``cls`` that :func:`to_json` made ``value`` of.

    A field with a default may be absent. Raises ``ValueError`` naming the field that has another type, that
    is missing, or that ``cls`` does not have.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{path or cls.__name__}: expected an object")
    hints = get_type_hints(cls)
    found = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        at = f"{path}.{field.name}" if path else field.name
        if field.name in value:
            found[field.name] = _read(hints[field.name], value[field.name], at)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{at}: missing")
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise ValueError(f"{path + '.' if path else ''}{unknown[0]}: unknown field")
    return cls(**found)


def _read(kind: Any, value: Any, path: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (kind,) = (one for one in arguments if one is not type(None))
        return _read(kind, value, path)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(arguments[0], one, f"{path}[{at}]") for at, one in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {name: _read(arguments[1], one, f"{path}.{name}") for name, one in value.items()}
    if isinstance(kind, type):
        if dataclasses.is_dataclass(kind):
            return from_json(kind, value, path)
        if issubclass(kind, Enum):
            try:
                return kind(value)
            except ValueError:
                known = ", ".join(str(one.value) for one in kind)
                raise ValueError(f"{path}: {value!r} is none of {known}") from None
        if kind is float and type(value) in (int, float):
            return float(value)
        if type(value) is kind:
            return value
    raise ValueError(f"{path}: expected {getattr(origin or kind, '__name__', kind)}, got {value!r}")
