"""Columns of numpy arrays, made without ``pa.array``, which imports pandas when it is first called."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def column(values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """The numbers or booleans of a one-dimensional array; null where ``mask`` is true, as in ``pa.array``.

    A contiguous array of numbers is not copied, and must not change while the column is used.
    """
    kind = pa.from_numpy_dtype(values.dtype)
    data = _bits(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    validity = None if mask is None or not mask.any() else _bits(~mask)
    return pa.Array.from_buffers(kind, len(values), [validity, data])


def _bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
