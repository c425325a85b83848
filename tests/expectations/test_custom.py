"""Unexpected rows that are found by columns, against a look at one row after the other."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

CUT = {"0": [10, 20], "1": [0, 5], "7": [3, 3]}


def tables(seed: int) -> Iterator[pa.Table]:
    """Offsets partitions and numbers, in chunks of several sizes; some have one partition, or nothing unexpected."""
    random = Random(seed)
    for _ in range(60):
        partitions = random.choice([[0], [1], [0, 1], [0, 1, 7, 9], [0, None]])
        numbers = random.choice([range(10, 20), range(5), range(-3, 25), [None], [-1, 12, None]])
        rows: list[Any] = [(random.choice(partitions), random.choice(numbers)) for _ in range(random.randrange(12))]
        schema = pa.schema({"offsets_partition": pa.int32(), "number": pa.int64()})
        table = pa.table([pa.array(column) for column in ([r[0] for r in rows], [r[1] for r in rows])], schema=schema)
        at = random.randrange(len(rows) + 1)
        yield pa.concat_tables([table.slice(0, at), table.slice(at)])


def is_outside(row: dict[str, Any], unseen: int | None) -> bool:
    bounds = CUT.get(str(row["offsets_partition"]))
    number = row["number"]
    return bounds is None or not (number is None or number == unseen or bounds[0] <= number < bounds[1])


def is_out_of_bounds(row: dict[str, Any], least: int | None, most: int | None) -> bool:
    number = row["number"]
    return number is not None and ((least is not None and number < least) or (most is not None and number > most))


def found(wrong: Any, rows: pa.Table) -> list[bool]:
    return [False] * rows.num_rows if wrong is None else wrong.tolist()


@pytest.mark.parametrize("unseen", [None, -1])
def test_record_offsets_outside_the_cut(unseen: int | None) -> None:
    from expectations.custom import RowsOutsideCut

    for rows in tables(1):
        wrong = RowsOutsideCut.wrong(rows, {"cut": CUT, "unseen": unseen})
        assert found(wrong, rows) == [is_outside(row, unseen) for row in rows.to_pylist()]


@pytest.mark.parametrize(("least", "most"), [(0, None), (None, 12), (0, 12), (None, None)])
def test_values_out_of_bounds(least: int | None, most: int | None) -> None:
    from expectations.custom import RowsOutOfBounds

    for rows in tables(2):
        wrong = RowsOutOfBounds.wrong(rows, {"min_value": least, "max_value": most})
        assert found(wrong, rows) == [is_out_of_bounds(row, least, most) for row in rows.to_pylist()]


def test_rows_with_nulls_and_repeated_rows() -> None:
    from expectations.custom import RepeatedRows, RowsWithNull

    for rows in tables(3):
        values = [tuple(row.values()) for row in rows.to_pylist()]
        assert found(RowsWithNull.wrong(rows, {}), rows) == [None in one for one in values]
        assert found(RepeatedRows.wrong(rows, {}), rows) == [values.count(one) > 1 for one in values]
        in_order = rows.sort_by([(name, "ascending") for name in rows.column_names])
        values = [tuple(row.values()) for row in in_order.to_pylist()]
        assert found(RepeatedRows.wrong(in_order, {}), in_order) == [values.count(one) > 1 for one in values]
