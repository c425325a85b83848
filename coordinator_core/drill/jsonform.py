"""Frozen dataclasses as JSON and back: field names as they are, enums as text, tuples as lists."""

from __future__ import annotations

import dataclasses
import types
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_SHAPES: dict[Any, dict[str, tuple[Any, frozenset[Any], bool]]] = {}


def to_json(value: Any) -> Any:
    """JSON of a dataclass whose fields are dataclasses, enums, tuples, mappings and plain values."""
    if value is None or type(value) in (int, str, bool):
        return value
    if dataclasses.is_dataclass(value):
        return {name: to_json(getattr(value, name)) for name in _fields(type(value))}
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
    fields = _fields(cls)
    prefix = f"{path}." if path else ""
    found = {}
    for name, (kind, plain, required) in fields.items():
        if name in value:
            one = value[name]
            found[name] = one if type(one) in plain else _read(kind, one, prefix + name)
        elif required:
            raise ValueError(f"{prefix}{name}: missing")
    if len(found) < len(value):
        raise ValueError(f"{prefix}{min(value.keys() - fields.keys())}: unknown field")
    return cls(**found)


def _fields(cls: Any) -> dict[str, tuple[Any, frozenset[Any], bool]]:
    """Type of each field, the types of values that are taken as they are, and whether it has to be there."""
    if cls not in _SHAPES:
        hints, missing = get_type_hints(cls), dataclasses.MISSING
        _SHAPES[cls] = {
            field.name: (
                hints[field.name],
                frozenset(get_args(hints[field.name]) if _is_union(hints[field.name]) else [hints[field.name]]),
                field.default is missing and field.default_factory is missing,
            )
            for field in dataclasses.fields(cls)
        }
    return _SHAPES[cls]


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _read(kind: Any, value: Any, path: str) -> Any:
    if type(value) is kind:
        return value
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(str(one.value) for one in kind)
            raise ValueError(f"{path}: {value!r} is none of {known}") from None
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if _is_union(kind):
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
        if kind is float and type(value) in (int, float):
            return float(value)
    raise ValueError(f"{path}: expected {getattr(origin or kind, '__name__', kind)}, got {value!r}")
