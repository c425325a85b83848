"""The vocabulary in which record schemas are declared: field types, fields, structs, versioned schemas.

Instances are compared and hashed by identity, so that they are cheap keys of the code compiled from them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from coordinator_core.releases.number import Release

ZERO_UUID: Final = "AAAAAAAAAAAAAAAAAAAAAA"


class Primitive(enum.Enum):
    """Scalar field types of Kafka's message protocol."""

    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    INT64 = "int64"
    UUID = "uuid"
    STRING = "string"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True, eq=False)
class ArrayOf:
    """An array whose elements are never null."""

    element: Primitive | Struct


class _TypeDefault(enum.Enum):
    TYPE_DEFAULT = enum.auto()


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field of a struct, present in versions ``since`` to ``until`` (``None``: the newest).

    ``nullable`` fields may be null in every version that has them.  A field with a ``tag`` is written in
    the tag section, and only when it differs from its default.  Without a ``default`` the default is that
    of the type: zero, the empty string, bytes, array or uuid, a struct of defaults.  ``added_in`` is the
    release that added the field to an existing version; older ones skip a tag as unknown.
    """

    name: str
    type: FieldType
    since: int = 0
    until: int | None = None
    nullable: bool = False
    tag: int | None = None
    default: Any = _TypeDefault.TYPE_DEFAULT
    added_in: Release | None = None

    def in_version(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)

    def default_value(self, version: int) -> Any:
        """A fresh value that an absent field of ``version`` has."""
        if self.default is not _TypeDefault.TYPE_DEFAULT:
            return self.default
        if isinstance(self.type, ArrayOf):
            return []
        if isinstance(self.type, Struct):
            return {field.name: field.default_value(version) for field in self.type.fields_in_version(version)}
        return _DEFAULTS[self.type]

    def default_maker(self, version: int) -> Callable[[], Any]:
        """:meth:`default_value` as a function, which copies or hands out one value."""
        value = self.default_value(version)
        parts = value.values() if isinstance(value, dict) else ()
        if any(isinstance(part, dict | list) for part in parts):
            return partial(self.default_value, version)
        return value.copy if isinstance(value, dict | list) else lambda: value


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """Fields in wire order; tagged ones may stand anywhere and are written last."""

    name: str
    fields: tuple[Field, ...]

    def fields_in_version(self, version: int) -> Iterator[Field]:
        return (field for field in self.fields if field.in_version(version))


FieldType = Primitive | ArrayOf | Struct

_DEFAULTS: Final[dict[Primitive, Any]] = {
    Primitive.INT8: 0,
    Primitive.INT16: 0,
    Primitive.UINT16: 0,
    Primitive.INT32: 0,
    Primitive.INT64: 0,
    Primitive.UUID: ZERO_UUID,
    Primitive.STRING: "",
    Primitive.BYTES: b"",
}


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """A struct with its versions 0 to ``last_version``; compact encodings from ``flexible_since`` on."""

    struct: Struct
    last_version: int = 0
    flexible_since: int | None = None

    @property
    def versions(self) -> range:
        return range(self.last_version + 1)

    def is_flexible(self, version: int) -> bool:
        return self.flexible_since is not None and version >= self.flexible_since


def schema(name: str, *fields: Field, last_version: int = 0, flexible_since: int | None = None) -> Schema:
    """A :class:`Schema` of one top-level struct."""
    return Schema(Struct(name, fields), last_version, flexible_since)
