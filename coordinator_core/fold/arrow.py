"""Schemas by the names of columns; columns of numpy arrays, made without ``pa.array``, which imports pandas."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def column(values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """The numbers or booleans of a one-dimensional array; null where ``mask`` is true, as in ``pa.array``.

    A contiguous array of numbers is not copied, and must not change while the column is used.
    """
    kind = pa.from_numpy_dtype(values.dtype)
    data = bits(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    validity = None if mask is None or not mask.any() else bits(~mask)
    return pa.Array.from_buffers(kind, len(values), [validity, data])


def joined(chunks: pa.ChunkedArray) -> pa.Array:
    """The values of all ``chunks`` as one array. A single chunk, which ``combine_chunks`` copies, is that array."""
    return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()


def schema(nullable: Collection[str] = (), /, **columns: pa.DataType) -> pa.Schema:
    """A schema of ``columns`` in this order; those in ``nullable`` may be null."""
    return pa.schema([pa.field(name, kind, nullable=name in nullable) for name, kind in columns.items()])


def list_of(kind: pa.DataType) -> pa.DataType:
    """The type of lists of ``kind`` without nulls."""
    return pa.list_(pa.field("element", kind, nullable=False))


def bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer:
    """A bitmap, as Arrow has them."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
