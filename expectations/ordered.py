"""Tables whose rows are in order: what can be said by a look at neighbours."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def is_ordered(rows: pa.Table) -> bool:
    """Whether no row is less than the one before, by all columns.

    Columns with nulls, or of other types than integers and text, have no order here.
    """
    if not all(pa.types.is_integer(kind) or pa.types.is_string(kind) for kind in rows.schema.types):
        return False
    if any(column.null_count for column in rows.columns):
        return False
    undecided = None
    for column in rows.columns:
        one, next_one = column.slice(0, max(0, rows.num_rows - 1)), column.slice(1)
        is_less = pc.less(next_one, one)
        if pc.any(is_less if undecided is None else pc.and_(undecided, is_less)).as_py():
            return False
        is_same = pc.equal(one, next_one)
        undecided = is_same if undecided is None else pc.and_(undecided, is_same)
        if not pc.any(undecided).as_py():
            break
    return True


def repeats(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Per row, whether one of its neighbours has the same values in all columns, none of which is null."""
    found = np.zeros(rows.num_rows, np.bool_)
    if rows.num_rows > 1:
        same = np.ones(rows.num_rows - 1, np.bool_)
        for column in rows.columns:
            same &= pc.equal(column.slice(0, rows.num_rows - 1), column.slice(1)).to_numpy()
        found[1:] |= same
        found[:-1] |= same
    return found
