"""Arrays that kernels work on: vectors of numbers, and rows of the structs in ``layout``.

Compiled kernels take numpy arrays. Uncompiled ones get views of them whose items are Python numbers, which
do not overflow; :func:`array_of` either is the array.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from coordinator_core.kernels import layout
from coordinator_core.kernels.mode import IS_COMPILED

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

HASH_SECRETS = tuple(int.from_bytes(os.urandom(8), "little") for _ in range(4))
"""Secret with which hashes of this process are made."""

_CODES = {"i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1", "u8": "u1"}
_CACHE_LINE_BYTES = 64


@cache
def dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of the struct of that name, padded as C pads it."""
    fields = getattr(layout, name).__annotations__
    return np.dtype([(field, _CODES[kind]) for field, kind in fields.items()], align=True)


_kinds: dict[str, np.dtype[Any]] = {}


def array_of(view: Any) -> Array:
    """The vector or rows that a kernel has, as a numpy array of the same memory.

    ``np.asarray`` reads the format of a struct each time, which takes longer than to fold a batch.
    """
    if isinstance(view, np.ndarray | StructRows):
        return np.asarray(view)
    buffer = memoryview(view)
    kind = _kinds.get(buffer.format)
    if kind is None:
        kind = _kinds[buffer.format] = np.asarray(view).dtype
    return np.frombuffer(buffer, kind)


def new_rows(name: str, count: int) -> Any:
    """``count`` uninitialised rows of the struct of that name, which begin with a cache line."""
    return viewed(_aligned(dtype(name), count))


def zeros(count: int) -> Any:
    """A vector of ``count`` int64 zeros."""
    return viewed(np.zeros(count, np.int64))


def new_bytes(count: int) -> Any:
    """``count`` uninitialised bytes."""
    return viewed(np.empty(count, np.uint8))


def grown(array: Any, used: int, need: int) -> Any:
    """``array`` if it has ``need`` items, else a larger one that begins with its ``used`` items."""
    if need <= len(array):
        # Compiled kernels pass a view of what they have. A view of that next time, and so on, is a chain that ends in
        # a recursion as deep as it is long.
        return array if isinstance(array, np.ndarray) else getattr(array, "base", array)
    old = array_of(array)
    bigger = _aligned(old.dtype, max(need, 2 * len(old)))
    bigger[:used] = old[:used]
    return viewed(bigger)


def _aligned(kind: np.dtype[Any], count: int) -> Array:
    room = np.empty(count * kind.itemsize + _CACHE_LINE_BYTES, np.uint8)
    first = -room.ctypes.data % _CACHE_LINE_BYTES
    return room[first : first + count * kind.itemsize].view(kind)


def viewed(array: Array) -> Any:
    """``array`` as kernels take it."""
    if IS_COMPILED:
        return array
    return StructRows(array) if array.dtype.names else memoryview(cast(Any, array))


class StructRows:
    """Rows of a struct for uncompiled kernels: ``rows[number].field``."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, row: int) -> StructRow:
        if not 0 <= row < len(self.array):
            raise IndexError(f"row {row} of {len(self.array)}")
        return StructRow(self.array, row)

    def __setitem__(self, row: int, struct: layout.Struct | StructRow) -> None:
        self.array[row] = tuple(getattr(struct, field) for field in self.array.dtype.names or ())

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        return self.array


class StructRow:
    """One row; assigning to a field changes the array."""

    __slots__ = ("_array", "_row")
    _array: Array
    _row: int

    def __init__(self, array: Array, row: int) -> None:
        object.__setattr__(self, "_array", array)
        object.__setattr__(self, "_row", row)

    def __getattr__(self, field: str) -> int:
        return int(self._array[field][self._row])

    def __setattr__(self, field: str, value: int) -> None:
        self._array[field][self._row] = value
