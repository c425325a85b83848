"""A kernel that takes every kind of argument."""

from __future__ import annotations

from typing import Any, NamedTuple

from coordinator_core.columnar import types
from coordinator_core.columnar.compiling import kernel


class Pair(NamedTuple):
    numbers: Any
    rows: Any


VECTOR, TABLE = types.Array(types.int32, 1), types.Array(types.int64, 2)


@kernel(types.int64(VECTOR, types.boolean, types.NamedTuple((VECTOR, TABLE), Pair), types.int64))
def take_everything(numbers: Any, negative: bool, pair: Any, scale: Any) -> Any:
    """Every kind of argument: each is changed or counts in the result."""
    total = 0
    for row in range(len(pair.rows)):
        for column in range(pair.rows.shape[1]):
            total += pair.rows[row, column] * scale
            pair.rows[row, column] = row
    for at in range(len(numbers)):
        pair.numbers[at] = numbers[at]
    return -total if negative else total
