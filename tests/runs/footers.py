"""Footers of Parquet files that lie: the structure of Thrift's compact protocol, read, changed and written again.

Only what footers use: structs, lists, integers of 16 to 64 bits, bytes, booleans.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

_TAIL = struct.Struct("<I4s")
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 7, 8, 9, 12
_INTEGERS = (4, 5, 6)

Fields = dict[int, "Field"]
"""Fields of a struct by their ids."""


class Field(NamedTuple):
    """Type and value: an integer, bytes, the fields of a struct, or the type and the items of a list."""

    kind: int
    value: Any


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._take(1)[0]
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return found

    def _zigzag(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def fields(self) -> Fields:
        found: Fields = {}
        number = 0
        while head := self._take(1)[0]:
            kind = head & 0x0F
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            found[number] = Field(kind, None if kind in (_TRUE, _FALSE) else self._value(kind))
        return found

    def _value(self, kind: int) -> Any:
        if kind in _INTEGERS:
            return self._zigzag()
        if kind == _BINARY:
            return self._take(self._varint())
        if kind in (_BYTE, _TRUE, _FALSE):
            return self._take(1)
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _STRUCT:
            return self.fields()
        assert kind == _LIST, kind
        head = self._take(1)[0]
        size = head >> 4 if head >> 4 < 15 else self._varint()
        return head & 0x0F, [self._value(head & 0x0F) for _ in range(size)]


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _zigzag(number: int) -> bytes:
    return _varint(number << 1 if number >= 0 else -number * 2 - 1)


def _written(kind: int, value: Any) -> bytes:
    if kind in _INTEGERS:
        return _zigzag(value)
    if kind == _BINARY:
        return _varint(len(value)) + value
    if kind == _STRUCT:
        parts = []
        for number, field in value.items():
            body = b"" if field.kind in (_TRUE, _FALSE) else _written(*field)
            parts.append(bytes([field.kind]) + _zigzag(number) + body)
        return b"".join(parts) + b"\0"
    if kind == _LIST:
        inner, items = value
        size = items if isinstance(items, int) else len(items)
        body = b"" if isinstance(items, int) else b"".join(_written(inner, item) for item in items)
        return bytes([0xF0 | inner]) + _varint(size) + body
    return bytes(value)


def footer_of(data: bytes) -> Fields:
    """The FileMetaData of a Parquet file."""
    size = _TAIL.unpack(data[-_TAIL.size :])[0]
    return _Reader(data[-_TAIL.size - size : -_TAIL.size]).fields()


def with_footer(data: bytes, footer: Fields) -> bytes:
    """The file with another FileMetaData."""
    size = _TAIL.unpack(data[-_TAIL.size :])[0]
    written = _written(_STRUCT, footer)
    return data[: -_TAIL.size - size] + written + _TAIL.pack(len(written), b"PAR1")


_HUGE, _LARGE = (1 << 62), (1 << 31) - 1
# Ids are those of parquet.thrift. A row group: 1 columns, 2 total_byte_size, 3 num_rows, 5 file_offset. A column chunk:
# 2 file_offset, 3 meta_data. Its metadata: 1 type, 4 codec, 5 num_values, 6 and 7 sizes, 9 data_page_offset,
# 11 dictionary_page_offset. A schema element: 1 type, 3 repetition_type, 5 num_children, 6 converted_type.
_FILE = {3: "rows of the file"}
_GROUP = {2: "bytes of a row group", 3: "rows of a row group"}
_COLUMN = {
    1: "type of a column",
    4: "codec",
    5: "values of a column",
    6: "unpacked bytes",
    7: "packed bytes",
    9: "place of the data",
    11: "place of the dictionary",
}
_ELEMENT = {1: "type in the schema", 3: "repetition", 5: "children", 6: "converted type"}


def mutations(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Files that differ from ``data`` in one place of the footer, by what that is."""
    footer = footer_of(data)
    assert footer_of(with_footer(data, footer)) == footer

    def changed(names: dict[int, str], *path: Any) -> Iterator[tuple[str, bytes]]:
        for number, name in names.items():
            was = _at(footer, path).get(number)
            if was is None:
                continue
            for value in (-1, 0, was.value + 1, len(data) + 1, _LARGE, _HUGE):
                if value != was.value and (was.kind == 6 or value <= _LARGE):
                    copy = deepcopy(footer)
                    _at(copy, path)[number] = Field(was.kind, value)
                    yield f"{name} {value}", with_footer(data, copy)

    yield from changed(_FILE)
    yield from changed(_GROUP, 4, 0)
    for column in (0, 1):
        yield from changed(_COLUMN, 4, 0, 1, column, 3)
    for element in (0, 1):
        yield from changed(_ELEMENT, 2, element)
    for number, name in ((2, "schema"), (4, "row groups")):
        for size in (0, 1 << 20, _LARGE):
            copy = deepcopy(footer)
            copy[number] = Field(_LIST, (_STRUCT, size))
            yield f"{name}: {size} of them, none there", with_footer(data, copy)
    for size in (0, 1, len(data), _LARGE, (1 << 32) - 1):
        yield f"footer of {size} bytes", data[: -_TAIL.size] + _TAIL.pack(size, b"PAR1")
    twice = deepcopy(footer)
    kind, groups = twice[4].value
    twice[4] = Field(_LIST, (kind, groups * 2))
    yield "row groups twice", with_footer(data, twice)


def _at(fields: Fields, path: tuple[Any, ...]) -> Fields:
    """The struct at a path of field ids, each with an index behind it where it is a list."""
    found: Any = fields
    steps = iter(path)
    for step in steps:
        found = found[step].value
        if isinstance(found, tuple):
            found = found[1][next(steps)]
    assert isinstance(found, dict)
    return found
