"""Arrow tables as data frames of pandas, which GX takes, and back; neither copies a value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa


class _Column(pd.arrays.ArrowExtensionArray):  # type: ignore[misc]
    def _hash_pandas_object(self, *, encoding: str, hash_key: str, categorize: bool) -> npt.NDArray[np.uint64]:
        """Zero for each value. For a fingerprint of the frame, GX hashes each value of each frame; the gate has no use
        for it, and it would cost more than all checks together."""
        return np.zeros(len(self), np.uint64)


class _ColumnDtype(pd.ArrowDtype):  # type: ignore[misc]
    @classmethod
    def construct_array_type(cls) -> type[_Column]:
        return _Column


def frame_of(rows: pa.Table) -> pd.DataFrame:
    """Frame with the columns of a table, of the same Arrow types."""
    return rows.to_pandas(types_mapper=_ColumnDtype)


def columns_of(frame: pd.DataFrame, names: Sequence[str]) -> pa.Table:
    """Table with these columns of a frame. Raises :class:`LookupError`, in the words of GX, when there is none."""
    for name in names:
        if name not in frame.columns:
            raise LookupError(f'Error: The column "{name}" in BatchData does not exist.')
    return pa.table([pa.array(frame[name].array) for name in names], names=list(names))
