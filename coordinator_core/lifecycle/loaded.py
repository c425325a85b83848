"""What one release makes of an offsets partition, with committed offsets as columns: most are the same in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.model import PartitionState
from coordinator_core.merge.schema import OFFSETS, MergedPartition, without_long_texts

NOT_ANSWERED: Final = frozenset({"record_offset", "ordering_offset", "value_version", "target_record_offsets"})
"""Fields of groups and offsets that no request shows."""

_COLUMNS: Final = pa.schema([field for field in OFFSETS if field.name not in NOT_ANSWERED])
_RECORD_OFFSET: Final = OFFSETS.field("record_offset")
_KEY_FIELDS: Final = 3


_NO_OFFSETS: Final = _COLUMNS.append(_RECORD_OFFSET).empty_table()


class Loaded(NamedTuple):
    """``state`` has no offsets. ``offsets`` has them in the order of records: fields that requests show, with a digest
    in the place of longer metadata, and record offsets."""

    state: PartitionState
    offsets: pa.Table = _NO_OFFSETS


def loaded(merged: MergedPartition) -> tuple[Loaded, int]:
    """A partition after a load, and the bytes of the metadata in it."""
    offsets = pa.concat_tables([_NO_OFFSETS, *_answered(merged)])
    return Loaded(merged.without_offsets(), offsets), pc.sum(pc.binary_length(offsets["metadata"])).as_py() or 0


def _answered(merged: MergedPartition) -> Iterator[pa.Table]:
    for block in merged.offsets.blocks():
        metadata = without_long_texts(block["metadata"])
        at = block.column_names.index("metadata")
        yield block.set_column(at, OFFSETS.field(at), metadata).select([*_COLUMNS.names, _RECORD_OFFSET.name])


def changed_offset_keys(before: Loaded, after: Loaded) -> Counter[str]:
    """By group, the number of offset keys whose committed offset is absent, new, or has other values."""
    if before.offsets.equals(after.offsets):
        return Counter()
    old, new = (
        {row[:_KEY_FIELDS]: row[_KEY_FIELDS:] for row in _rows(table.select(_COLUMNS.names))}
        for table in _unlike(before.offsets, after.offsets)
    )
    return Counter(key[0] for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _unlike(*tables: pa.Table) -> Iterator[pa.Table]:
    """Rows of each of two tables that the other does not have with their record offset."""
    offsets = [table[_RECORD_OFFSET.name].to_numpy() for table in tables]
    if not all((np.diff(each) > 0).all() for each in offsets):
        # Record offsets repeat in damaged logs.
        yield from tables
        return
    shared = [np.isin(offsets[one], offsets[1 - one], assume_unique=True) for one in (0, 1)]
    are_equal = _equal_rows(*(table.filter(pa.array(some)) for table, some in zip(tables, shared, strict=True)))
    for table, some in zip(tables, shared, strict=True):
        some[some] = are_equal
        yield table.filter(pa.array(~some))


def _equal_rows(one: pa.Table, other: pa.Table) -> npt.NDArray[np.bool_]:
    are_equal = np.ones(one.num_rows, np.bool_)
    for name in one.column_names:
        both_null = pc.and_(pc.is_null(one[name]), pc.is_null(other[name]))
        are_equal &= pc.or_(pc.fill_null(pc.equal(one[name], other[name]), False), both_null).to_numpy()
    return are_equal
