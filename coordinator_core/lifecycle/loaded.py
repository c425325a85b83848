"""What one release makes of an offsets partition, with committed offsets as columns: most are the same in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.model import PartitionState
from coordinator_core.merge.schema import OFFSETS, MergedPartition, with_dictionaries, without_long_texts

NOT_ANSWERED: Final = frozenset({"record_offset", "ordering_offset", "value_version", "target_record_offsets"})
"""Fields of groups and offsets that no request shows."""

_KEY: Final = ("group_id", "topic", "partition")
_VALUES: Final = tuple(name for name in OFFSETS.names if name not in NOT_ANSWERED | {*_KEY})
_NO_OFFSETS: Final = with_dictionaries(("record_offset", *_KEY, *_VALUES)).empty_table()


class Loaded(NamedTuple):
    """``state`` has no offsets. ``offsets`` has them, in any order: record offsets, keys, and fields that requests
    show, with a digest in the place of longer metadata."""

    state: PartitionState
    offsets: pa.Table = _NO_OFFSETS


def loaded(merged: MergedPartition) -> tuple[Loaded, int]:
    """A partition after a load, and the bytes of the metadata in it."""
    blocks = merged.offsets.in_any_order(_NO_OFFSETS.column_names)
    offsets = pa.concat_tables([_NO_OFFSETS, *map(_without_long_metadata, blocks)])
    return Loaded(merged.without_offsets(), offsets), pc.sum(pc.binary_length(offsets["metadata"])).as_py() or 0


def _without_long_metadata(block: pa.Table) -> pa.Table:
    place = block.schema.get_field_index("metadata")
    return block.set_column(place, block.field(place), without_long_texts(block.column(place)))


def changed_offset_keys(before: Loaded, after: Loaded) -> Counter[str]:
    """By group, the number of offset keys whose committed offset is absent, new, or has other values."""
    old, new = (
        dict(zip(_rows(table, _KEY), _rows(table, _VALUES), strict=True))
        for table in _unlike(before.offsets, after.offsets)
    )
    return Counter(key[0] for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _rows(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(_items(table[name]) for name in names), strict=True)


def _items(column: pa.ChunkedArray) -> Iterator[Any]:
    for chunk in column.chunks:
        if isinstance(chunk, pa.DictionaryArray):
            # Each name once: it may have 32 KiB, and stand in every row.
            numbers = chunk.indices.to_pylist()
            names = {number: chunk.dictionary[number].as_py() for number in set(numbers)}
            yield from map(names.__getitem__, numbers)
        else:
            yield from chunk.to_pylist()


def _unlike(before: pa.Table, after: pa.Table) -> Iterator[pa.Table]:
    """Rows of each of two tables that are not in the other one, too. A record offset tells the key, unless it repeats,
    as in damaged logs: then all rows."""
    old, new = (table["record_offset"].to_numpy() for table in (before, after))
    if any(len(np.unique(each)) < len(each) for each in (old, new)):
        yield from (before, after)
        return
    _, in_old, in_new = np.intersect1d(old, new, assume_unique=True, return_indices=True)
    shared = [(before, in_old), (after, in_new)]
    are_equal = _equal_rows(*(table.select(_VALUES).take(pa.array(rows)) for table, rows in shared))
    for table, rows in shared:
        is_unlike = np.ones(table.num_rows, np.bool_)
        is_unlike[rows[are_equal]] = False
        yield table.filter(pa.array(is_unlike))


def _equal_rows(one: pa.Table, other: pa.Table) -> npt.NDArray[np.bool_]:
    are_equal = np.ones(one.num_rows, np.bool_)
    for name in one.column_names:
        both_null = pc.and_(pc.is_null(one[name]), pc.is_null(other[name]))
        are_equal &= pc.or_(pc.fill_null(pc.equal(one[name], other[name]), False), both_null).to_numpy()
    return are_equal
