"""JSON that others wrote: parsed, and read into typed values; dataclasses as JSON."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import groupby, islice
from reprlib import repr as shown
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

T = TypeVar("T")

_ITEMS = 256
"""Items of a list that are made text at once."""

_SMALL = 32
_PLAIN = (int, str, bool, float)

_encoded = json.JSONEncoder(ensure_ascii=False).encode
_CANONICAL: dict[str, Any] = {"sort_keys": True, "separators": (",", ":")}
_canonical = json.JSONEncoder(**_CANONICAL).encode


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of a number, in ``Annotated[int, Within(1, 9)]``; both belong to it."""

    low: float
    high: float

    @classmethod
    def bits(cls, count: int) -> Within:
        """A signed number of so many bits."""
        return cls(-(1 << count - 1), (1 << count - 1) - 1)


@dataclass(frozen=True, slots=True)
class Matching:
    """Text that the whole of ``pattern`` fits, in ``Annotated[str, Matching(...)]``; ``what`` it is called."""

    pattern: str
    what: str


Int16 = Annotated[int, Within.bits(16)]
Int32 = Annotated[int, Within.bits(32)]
Uint16 = Annotated[int, Within(0, 0xFFFF)]
_BOUNDS = {int: Within.bits(64), float: Within(-sys.float_info.max, sys.float_info.max)}


class FormError(ValueError):
    """JSON of another form than its type has. ``place`` is the path of the value, such as ``.steps[0].number``."""

    def __init__(self, problem: str, place: str = "") -> None:
        super().__init__(f"{place.lstrip('.')}: {problem}" if place else problem)
        self.problem, self.place = problem, place

    def below(self, place: str) -> FormError:
        return FormError(self.problem, place + self.place)


def parse_json(text: str | bytes, made: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """The document in ``text``; ``ValueError`` when it is none, or is nested too deeply to be one of ours.

    ``made`` converts each object, inner ones first.
    """
    try:
        return json.loads(text, object_hook=made)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def canonical(document: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Canonical JSON: sorted keys, no spaces, ASCII. ``default`` gives what an object that is no JSON stands for."""
    encode = _canonical if default is None else json.JSONEncoder(**_CANONICAL, default=default).encode
    return encode(document).encode()


def json_pieces(value: Any, depth: int = 4) -> Iterator[str]:
    """The text that ``json.dumps`` makes of a document, in pieces: objects and lists of the first levels are not made
    whole. An iterator is written as the list of its items."""
    if isinstance(value, dict) and depth and all(isinstance(name, str) for name in value):
        before = "{"
        for name, one in value.items():
            yield f"{before}{_encoded(name)}: "
            yield from json_pieces(one, depth - 1)
            before = ", "
        yield "}" if value else "{}"
    elif isinstance(value, list | Iterator) and depth:
        before = "["
        for is_small, items in groupby(value, key=(lambda one: True) if depth == 1 else _is_small):
            while some := list(islice(items, _ITEMS if is_small else 1)):
                yield before
                if is_small:
                    yield _encoded(some)[1:-1]
                else:
                    yield from json_pieces(some[0], depth - 1)
                before = ", "
        yield "[]" if before == "[" else "]"
    else:
        yield _encoded(value)


def _is_small(value: Any, depth: int = 2) -> bool:
    """Whether a value has few parts: it is faster made text with its neighbours than part by part."""
    if value is None or type(value) in _PLAIN:
        return True
    parts = value.values() if isinstance(value, dict) else value
    return (
        isinstance(value, dict | list)
        and depth > 0
        and len(parts) <= _SMALL
        and all(_is_small(one, depth - 1) for one in parts)
    )


def to_json(value: Any) -> Any:
    """JSON of a frozen dataclass: field names as they are, enums as their values, tuples as lists."""
    if value is None or type(value) in _PLAIN:
        return value
    if dataclasses.is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [to_json(one) for one in value]
    if isinstance(value, dict):
        return {str(name): to_json(one) for name, one in value.items()}
    return value


def fields_of(value: object, *names: str, **more: Any) -> dict[str, Any]:
    """Attributes of ``value`` by their names, and ``more`` behind them."""
    return {name: getattr(value, name) for name in names} | more


def from_json(kind: type[T], value: Any) -> T:
    """The value of type ``kind`` that ``value``, parsed JSON, stands for; :func:`reader` says what can be read.

    Raises ``ValueError`` with the path of a field that has another form, is missing, or is not in ``kind``.
    """
    read: Callable[[Any], T] = reader(cast(Any, kind))
    return read(value)


@cache
def reader(kind: Any, named: Callable[[str], str] = str, *, exact: bool = True) -> Callable[[Any], Any]:
    """A function that reads parsed JSON as a value of type ``kind``; it raises :class:`FormError`.

    Types are ``str``, ``bool``, ``int`` (64 bits), ``float`` (finite), ``bytes`` (base64), one
    of these ``Annotated`` with :class:`Within` or :class:`Matching`, enums (their values), an optional one, lists and
    tuples of one, tuples of several, mappings by text or number, dataclasses, named tuples and ``TypedDict``.
    ``named`` gives the name of a field in JSON. A field with a default may be absent; with ``exact`` others may not be
    there, except in a ``TypedDict``, which keeps them as they are.
    """
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin is Annotated:
        return _plain(*arguments)
    if kind is Any:
        return lambda value: value
    if origin in (Union, UnionType):
        (optional,) = (reader(one, named, exact=exact) for one in arguments if one is not NoneType)
        return lambda value: None if value is None else optional(value)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _row([reader(one, named, exact=exact) for one in arguments])
    if origin in (tuple, list):
        return _items(origin, reader(arguments[0], named, exact=exact))
    if isinstance(origin, type) and issubclass(origin, Mapping) and not is_typeddict(kind):
        return _entries(arguments[0], reader(arguments[1], named, exact=exact))
    if issubclass(kind, Enum):
        return _member(kind)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields") or is_typeddict(kind):
        return _fields(kind, named, exact)
    return _plain(kind)


def _plain(kind: type, rule: Within | Matching | None = None) -> Callable[[Any], Any]:
    taken = {float: (float, int), bytes: (str,)}.get(kind, (kind,))
    bounds = rule if isinstance(rule, Within) else _BOUNDS.get(kind)
    form = (re.compile(rule.pattern), rule.what) if isinstance(rule, Matching) else None

    def read(value: Any) -> Any:
        # True is an int to Python, and no number.
        if value.__class__ not in taken:
            raise FormError(f"expected {kind.__name__}, got {shown(value)}")
        if bounds is not None and not bounds.low <= value <= bounds.high:
            raise FormError(f"expected {kind.__name__} from {bounds.low} to {bounds.high}, got {shown(value)}")
        if form is not None and not form[0].fullmatch(value):
            raise FormError(f"expected {form[1]}, got {shown(value)}")
        if kind is bytes:
            return base64.b64decode(value, validate=True)
        return float(value) if kind is float else value

    return read


def _member(kind: type[Enum]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(str(one.value) for one in kind)
            raise FormError(f"{shown(value)} is none of {known}") from None

    return read


def _items(kind: type, item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value.__class__ is not list:
            raise FormError(f"expected list, got {shown(value)}")
        found: list[Any] = []
        try:
            for one in value:
                found.append(item(one))
        except FormError as error:
            raise error.below(f"[{len(found)}]") from None
        return kind(found)

    return read


def _row(columns: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value.__class__ is not list or len(value) != len(columns):
            raise FormError(f"expected a list of {len(columns)}")
        return tuple(column(one) for column, one in zip(columns, value, strict=True))

    return read


def _entries(key: type, item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value.__class__ is not dict:
            raise FormError("expected an object")
        found = {}
        for name, one in value.items():
            if key is int and not (name.isascii() and name.isdigit() and len(name) <= 10):
                raise FormError(f"{name[:20]!r} is no number")
            try:
                found[key(name)] = item(one)
            except FormError as error:
                raise error.below(f".{name[:80]}") from None
        return found

    return read


def _fields(kind: Any, named: Callable[[str], str], exact: bool) -> Callable[[Any], Any]:
    hints = get_type_hints(kind, include_extras=True)
    is_open = is_typeddict(kind)
    if is_open:
        optional, exact = kind.__optional_keys__, False
    elif dataclasses.is_dataclass(kind):
        missing = dataclasses.MISSING
        fields = dataclasses.fields(kind)
        optional = {one.name for one in fields if (one.default, one.default_factory) != (missing, missing)}
    else:
        optional = kind._field_defaults.keys()
    shape = [(name, named(name), reader(hint, named, exact=exact), name in optional) for name, hint in hints.items()]
    known = {field for _, field, _, _ in shape}

    def read(value: Any) -> Any:
        if value.__class__ is kind:
            # A part that ``parse_json`` has made already.
            return value
        if value.__class__ is not dict:
            raise FormError("expected an object")
        found = {}
        for name, field, inner, may_be_absent in shape:
            if field in value:
                try:
                    found[name] = inner(value[field])
                except FormError as error:
                    raise error.below(f".{field}") from None
            elif not may_be_absent:
                raise FormError("missing", f".{field}")
        if exact and not value.keys() <= known:
            raise FormError("unknown field", f".{min(value.keys() - known)}")
        return value | found if is_open else kind(**found)

    return read
