"""Arrow without pandas: ``pa.array`` and ``pa.scalar`` import it when first called, a second of CPU time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
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


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=fullname)


def keep_pandas_out() -> None:
    """Let Arrow find that there is no pandas. For processes of our own only: it is then missing for all."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())
