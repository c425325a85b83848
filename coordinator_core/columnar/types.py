"""Types of the arguments and results of kernels, spelled as numba spells them but without importing it.

A kernel is called with a list of int64 words: the value of a number; address and shape of an array; and all
of this for each field of a named tuple of arrays. ``words`` makes them, and checks what compiled code cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Number:
    """An integer or truth value; called with parameter types it is the :class:`Signature` that returns it."""

    name: str

    def __call__(self, *parameters: Parameter) -> Signature:
        return Signature(self, parameters)

    def words(self, value: Any) -> Iterator[int]:
        yield int(value)


int64, int32, int16, int8, uint8 = map(Number, ("int64", "int32", "int16", "int8", "uint8"))
boolean, void = Number("boolean"), Number("void")


@dataclass(frozen=True)
class Array:
    """A C-ordered array. A ``readonly`` parameter takes writable arrays as well, not the other way round."""

    dtype: Number
    ndim: int
    layout: Literal["C"] = "C"
    readonly: bool = False

    def words(self, value: Any) -> Iterator[int]:
        if value.dtype != self.dtype.name or value.ndim != self.ndim or not value.flags.c_contiguous:
            raise TypeError(f"a kernel takes {self}, not {value.ndim} dimensions of {value.dtype}")
        if not (self.readonly or value.flags.writeable):
            raise TypeError(f"a kernel takes {self}, which it changes, not a read-only array")
        yield value.ctypes.data
        yield from value.shape


@dataclass(frozen=True)
class NamedTuple:
    """An instance of a ``typing.NamedTuple`` class with arrays as fields."""

    fields: tuple[Array, ...]
    instance_class: type[tuple[Any, ...]]

    def words(self, value: Any) -> Iterator[int]:
        for kind, field in zip(self.fields, value, strict=True):
            yield from kind.words(field)


Parameter = Number | Array | NamedTuple


@dataclass(frozen=True)
class Signature:
    """Result and parameters of a kernel."""

    result: Number
    parameters: tuple[Parameter, ...]

    def words(self, arguments: tuple[Any, ...]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The arguments as compiled code takes them; they must outlive the call."""
        pairs = zip(self.parameters, arguments, strict=True)
        return np.array([word for kind, value in pairs for word in kind.words(value)], np.int64)
