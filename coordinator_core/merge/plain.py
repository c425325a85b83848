"""Values as bytes that hold data and nothing else: reading them runs no code, even if others wrote them.

JSON, and behind it the bytes of arrays and tables that it refers to by position. The result is made of
Python's own containers, NumPy arrays, Arrow tables, and the classes of ``groups.model``: a name that is none of
these is an error, never a look-up.
"""

from __future__ import annotations

import json
import struct
from dataclasses import fields
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from coordinator_core.groups import model
from coordinator_core.jsontext import parse_json

_HEAD = struct.Struct("<4sQ")
_MAGIC = b"rgp1"
_ALIGNMENT = 64
_ATOMS = frozenset({type(None), bool, int, str})
_CLASSES = {
    kind.__name__: kind for kind in vars(model).values() if isinstance(kind, type) and kind.__module__ == model.__name__
}
_KINDS = frozenset("biuV")
"""Kinds of arrays: numbers and records of numbers, never objects."""


def write_plain(value: Any, sink: pa.NativeFile) -> None:
    """Write ``value`` to ``sink``. ``TypeError`` for a value that :func:`read_plain` cannot make."""
    parts: list[pa.Buffer] = []
    text = json.dumps(_tree(value, parts), separators=(",", ":")).encode()
    sink.write(_HEAD.pack(_MAGIC, len(text)) + text)
    for part in parts:
        sink.write(bytes(-sink.tell() % _ALIGNMENT))
        sink.write(part)


def read_plain(data: pa.Buffer) -> Any:
    """The value that :func:`write_plain` wrote; ``ValueError`` for other bytes. Tables refer to ``data``."""
    try:
        magic, size = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("not a value of this format")
        tree = parse_json(data.slice(_HEAD.size, size).to_pybytes())
        return _Reader(data, _HEAD.size + size).value(tree)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, struct.error, pa.ArrowException) as error:
        raise ValueError(f"not a plain value: {error}") from error


def _tree(value: Any, parts: list[pa.Buffer]) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind in (list, tuple, set):
        items = value if all(type(item) in _ATOMS for item in value) else [_tree(item, parts) for item in value]
        return [kind.__name__, list(items)]
    if kind is dict:
        return ["dict", _tree(list(value), parts), _tree(list(value.values()), parts)]
    if kind is bytes:
        return ["bytes", value.hex()]
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS and not value.dtype.hasobject:
        parts.append(pa.py_buffer(np.ascontiguousarray(value).view(np.uint8).data))
        return ["array", parts[-1].size, np.lib.format.dtype_to_descr(value.dtype), list(value.shape)]
    if isinstance(value, pa.Table):
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, value.schema) as writer:
            writer.write_table(value)
        parts.append(stream.getvalue())
        return ["table", parts[-1].size]
    if _CLASSES.get(kind.__name__) is kind:
        if isinstance(value, Enum):
            return ["enum", kind.__name__, value.value]
        held = list(value) if isinstance(value, tuple) else [getattr(value, field.name) for field in fields(value)]
        return ["object", kind.__name__, _tree(held, parts)]
    raise TypeError(f"a {kind.__name__} is no plain value")


class _Reader:
    def __init__(self, data: pa.Buffer, position: int) -> None:
        self._data = data
        self._position = position

    def _part(self, size: int) -> pa.Buffer:
        self._position += -self._position % _ALIGNMENT
        part = self._data.slice(self._position, size)
        self._position += size
        if part.size != size:
            raise ValueError("it ends too early")
        return part

    def value(self, tree: Any) -> Any:
        if type(tree) in _ATOMS:
            return tree
        match tree:
            case ["list", items]:
                return self._items(items)
            case ["tuple", items]:
                return tuple(self._items(items))
            case ["set", items]:
                return set(self._items(items))
            case ["dict", keys, values]:
                return dict(zip(self.value(keys), self.value(values), strict=True))
            case ["bytes", text]:
                return bytes.fromhex(text)
            case ["array", size, descr, shape]:
                return self._array(size, descr, shape)
            case ["table", size]:
                with pa.ipc.open_stream(self._part(size)) as reader:
                    return reader.read_all()
            case ["enum", name, value] if issubclass(_CLASSES[name], Enum):
                return _CLASSES[name](value)
            case ["object", name, held] if not issubclass(_CLASSES[name], Enum):
                return self._object(_CLASSES[name], self.value(held))
        raise ValueError(f"no value: {str(tree)[:40]}")

    def _items(self, items: list[Any]) -> list[Any]:
        return [item if type(item) in _ATOMS else self.value(item) for item in items]

    def _array(self, size: int, descr: Any, shape: list[int]) -> Any:
        wanted = [tuple(each) for each in descr] if isinstance(descr, list) else descr
        dtype = np.lib.format.descr_to_dtype(wanted)
        if dtype.kind not in _KINDS or dtype.hasobject:
            raise ValueError(f"no array of numbers: {dtype}")
        return np.frombuffer(self._part(size), dtype).reshape(shape).copy()

    @staticmethod
    def _object(kind: Any, held: list[Any]) -> Any:
        if issubclass(kind, tuple):
            return kind(*held)
        made = object.__new__(kind)
        for field, value in zip(fields(kind), held, strict=True):
            object.__setattr__(made, field.name, value)
        return made
