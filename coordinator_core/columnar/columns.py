"""The finished tables of a fold as the Arrow columns of :class:`SegmentFold`; only survivors are decoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.columnar.finishing import Commit, decode_commits, gather
from coordinator_core.columnar.tables import (
    CONTROL_KEY,
    NO_KEY_TYPE,
    Bytes,
    FragmentGroupRow,
    FragmentRow,
    GroupRow,
    Int64s,
    Interned,
    OtherRow,
    PendingKind,
    PendingRow,
    Phase,
    ProducerRow,
    SlotKind,
    SlotRow,
    State,
    Statistic,
    Tables,
    TouchRow,
    used_rows,
)
from coordinator_core.log.types import Codec, SegmentFile
from coordinator_core.records.wire import decode_utf8, uuid_text
from coordinator_core.replay import fold
from coordinator_core.replay.fold import FoldRules, SegmentCounts, SegmentFold

_NO_BYTES: Bytes = np.empty(0, np.uint8)
_Mask = npt.NDArray[np.bool_]


def to_segment_fold(
    segment: SegmentFile,
    rules: FoldRules,
    tables: Tables,
    partitions: npt.NDArray[np.int32],
    data: Bytes,
    arena: Bytes,
    *,
    stopped: bool,
    legacy_formats: Mapping[int, int],
) -> SegmentFold:
    """The fold in ``tables``; ``data`` is the segment, ``partitions`` those of the slots."""
    source = _Source(data, arena)
    state = tables.state
    empty = state[State.BATCHES] == 0
    return SegmentFold(
        path=segment.path,
        offsets_partition=segment.offsets_partition,
        base_offset=segment.base_offset,
        rules=rules,
        first_offset=None if empty else int(state[State.FIRST_OFFSET]),
        next_offset=None if empty else int(state[State.NEXT_OFFSET]),
        stopped=stopped,
        counts=_counts(tables, legacy_formats),
        groups=_names(tables, "groups"),
        topics=_names(tables, "topics"),
        slots=_slots(tables, partitions, source),
        pending=_pending(tables, source),
        producers=_producers(tables),
        transactions=_transactions(tables),
        others=_others(tables, source),
        touches=_touches(tables),
        group_stats=_group_stats(tables),
    )


class _Source:
    """Where surviving bytes are read from."""

    def __init__(self, data: Bytes, arena: Bytes) -> None:
        self._data = data
        self._arena = arena

    def binary(self, positions: Int64s, lengths: Int64s, *, nulls: bool = False) -> pa.Array:
        """The runs of bytes as ``large_binary``; with ``nulls`` negative lengths are null."""
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(np.maximum(lengths, 0), out=starts[1:])
        out = np.empty(starts[-1], np.uint8)
        gather(
            self._data,
            self._arena,
            np.ascontiguousarray(positions),
            np.ascontiguousarray(lengths),
            starts,
            out,
        )
        validity = None
        if nulls and (lengths < 0).any():
            validity = pa.py_buffer(np.packbits(lengths >= 0, bitorder="little"))
        buffers = [validity, pa.py_buffer(starts), pa.py_buffer(out)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lengths), buffers)

    def commits(self, positions: Int64s, lengths: Int64s) -> Int64s:
        """Decoded values, columns as in ``finishing.Commit``."""
        out = np.empty((len(positions), Commit.WIDTH), np.int64)
        runs = np.ascontiguousarray(positions), np.ascontiguousarray(lengths)
        decode_commits(self._data, self._arena, *runs, out)
        return out


def _text(binary: pa.Array) -> pa.Array:
    """Bytes as ``large_string``, decoded as Java does."""
    try:
        return binary.cast(pa.large_string())
    except pa.ArrowInvalid:
        texts = [None if data is None else decode_utf8(data) for data in binary.to_pylist()]
        return pa.array(texts, pa.large_string())


def _names(tables: Tables, name: str) -> pa.Array:
    """The interned names of ``groups`` or ``topics``, without their length prefix."""
    rows = used_rows(tables, name)
    source = _Source(tables.keys, _NO_BYTES)
    return _text(source.binary(rows[:, Interned.BODY] + 2, rows[:, Interned.BODY_BYTES] - 2))


def _values(
    row_is_value: _Mask,
    positions: Int64s,
    lengths: Int64s,
    row_offsets: Mapping[str, Int64s],
    producers: tuple[Int64s, Int64s, _Mask],
    source: _Source,
) -> dict[str, pa.Array]:
    """The columns of ``fold.VALUE_FIELDS``."""
    size = len(row_is_value)
    commits = np.zeros((size, Commit.WIDTH), np.int64)
    commits[:, Commit.TOPIC_ID] = -1
    commits[row_is_value] = source.commits(positions[row_is_value], lengths[row_is_value])
    version = commits[:, Commit.VERSION]
    has_expiry = row_is_value & (version == 1)
    producer_ids, producer_epochs, has_producer = producers
    return {
        **{name: pa.array(np.where(row_is_value, column, 0)) for name, column in row_offsets.items()},
        "value_version": pa.array(version.astype(np.int16)),
        "committed_offset": _column(commits, Commit.COMMITTED_OFFSET),
        "leader_epoch": pa.array(commits[:, Commit.LEADER_EPOCH].astype(np.int32)),
        "metadata": _text(source.binary(commits[:, Commit.METADATA], commits[:, Commit.METADATA_BYTES])),
        "commit_timestamp_ms": _column(commits, Commit.COMMIT_TIMESTAMP),
        "expire_timestamp_ms": pa.array(commits[:, Commit.EXPIRE_TIMESTAMP], mask=~has_expiry),
        "topic_id": _topic_ids(commits[:, Commit.TOPIC_ID], source),
        "producer_id": pa.array(producer_ids, mask=~has_producer),
        "producer_epoch": pa.array(producer_epochs.astype(np.int16), mask=~has_producer),
    }


def _topic_ids(positions: Int64s, source: _Source) -> pa.Array:
    """Topic ids as dictionary-encoded text; the zero id, and none at all, is null."""
    has_id = positions >= 0
    raw = source.binary(positions[has_id], np.full(int(has_id.sum()), 16, np.int64))
    encoded = raw.dictionary_encode()
    texts = [None if not any(data) else uuid_text(data) for data in encoded.dictionary.to_pylist()]
    zero = np.array([text is None for text in texts], np.bool_)
    indices = np.full(len(positions), -1, np.int32)
    indices[has_id] = encoded.indices.to_numpy(zero_copy_only=False)
    missing = indices < 0
    if zero.any():
        missing[~missing] |= zero[indices[~missing]]
    dictionary = pa.array(["" if text is None else text for text in texts], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(np.where(missing, 0, indices), mask=missing), dictionary)


def _column(rows: Int64s, column: int) -> pa.Array:
    return pa.array(np.ascontiguousarray(rows[:, column]))


def _narrow(rows: Int64s, column: int, kind: type[np.generic]) -> pa.Array:
    return pa.array(rows[:, column].astype(kind))


def _table(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _slots(tables: Tables, partitions: npt.NDArray[np.int32], source: _Source) -> pa.Table:
    rows = used_rows(tables, "slots")
    kinds = rows[:, SlotRow.KIND]
    is_value = kinds == SlotKind.VALUE
    flags = np.where(is_value, rows[:, SlotRow.FLAGS], 0)
    offsets = {
        "record_offset": rows[:, SlotRow.RECORD_OFFSET],
        "merge_offset": rows[:, SlotRow.MERGE_OFFSET],
    }
    producers = (
        np.ascontiguousarray(rows[:, SlotRow.PRODUCER_ID]),
        rows[:, SlotRow.PRODUCER_EPOCH],
        flags & 2 != 0,
    )
    values = _values(
        is_value, rows[:, SlotRow.VALUE], rows[:, SlotRow.VALUE_BYTES], offsets, producers, source
    )
    return _table(
        fold.SLOTS,
        {
            "group": _narrow(rows, SlotRow.GROUP, np.int32),
            "topic": _narrow(rows, SlotRow.TOPIC, np.int32),
            "partition": pa.array(partitions),
            "kind": pa.array(kinds.astype(np.int8)),
            "sequence": pa.array(np.where(kinds == SlotKind.NONE, -1, rows[:, SlotRow.SEQUENCE])),
            "last_tombstone": _column(rows, SlotRow.LAST_TOMBSTONE),
            **values,
        },
    )


def _pending(tables: Tables, source: _Source) -> pa.Table:
    rows = used_rows(tables, "pending")
    rows = rows[rows[:, PendingRow.PHASE] != Phase.FREE]
    is_open = rows[:, PendingRow.PHASE] == Phase.OPEN
    is_value = is_open & (rows[:, PendingRow.KIND] == PendingKind.VALUE)
    offsets = {
        "record_offset": rows[:, PendingRow.RECORD_OFFSET],
        "merge_offset": rows[:, PendingRow.MERGE_OFFSET],
    }
    producer_ids = used_rows(tables, "producers")[rows[:, PendingRow.PRODUCER], ProducerRow.PRODUCER_ID]
    producers = (producer_ids, rows[:, PendingRow.PRODUCER_EPOCH], is_value)
    values = _values(
        is_value, rows[:, PendingRow.VALUE], rows[:, PendingRow.VALUE_BYTES], offsets, producers, source
    )
    return _table(
        fold.PENDING,
        {
            "slot": _narrow(rows, PendingRow.SLOT, np.int32),
            "producer": _narrow(rows, PendingRow.PRODUCER, np.int32),
            "kind": _narrow(rows, PendingRow.KIND, np.int8),
            "open": pa.array(is_open),
            **values,
        },
    )


def _producers(tables: Tables) -> pa.Table:
    rows = used_rows(tables, "producers")
    is_open = rows[:, ProducerRow.OPEN] != 0
    has_marker = rows[:, ProducerRow.FIRST_MARKER] >= 0

    def where(condition: _Mask, column: int) -> Int64s:
        return np.where(condition, rows[:, column], 0)

    return _table(
        fold.PRODUCERS,
        {
            "producer_id": _column(rows, ProducerRow.PRODUCER_ID),
            "first_marker": _column(rows, ProducerRow.FIRST_MARKER),
            "first_marker_offset": pa.array(where(has_marker, ProducerRow.FIRST_MARKER_OFFSET)),
            "first_marker_commits": pa.array(where(has_marker, ProducerRow.FIRST_MARKER_COMMITS) != 0),
            "open": pa.array(is_open),
            "producer_epoch": pa.array(where(is_open, ProducerRow.EPOCH).astype(np.int16)),
            "first_record_offset": pa.array(where(is_open, ProducerRow.FIRST_OFFSET)),
            "last_record_offset": pa.array(where(is_open, ProducerRow.LAST_OFFSET)),
            "timestamp_ms": pa.array(where(is_open, ProducerRow.TIMESTAMP)),
        },
    )


def _transactions(tables: Tables) -> pa.Table:
    rows = used_rows(tables, "fragments")
    # Groups were appended fragment by fragment.
    groups = used_rows(tables, "fragment_groups")
    starts = np.searchsorted(groups[:, FragmentGroupRow.FRAGMENT], np.arange(len(rows) + 1))
    lists = pa.LargeListArray.from_arrays(
        pa.array(starts.astype(np.int64)), _narrow(groups, FragmentGroupRow.GROUP, np.int32)
    )
    return _table(
        fold.TRANSACTIONS,
        {
            "producer_id": _column(rows, FragmentRow.PRODUCER_ID),
            "producer_epoch": _narrow(rows, FragmentRow.PRODUCER_EPOCH, np.int16),
            "first_record_offset": _column(rows, FragmentRow.FIRST_OFFSET),
            "last_record_offset": _column(rows, FragmentRow.LAST_OFFSET),
            "timestamp_ms": _column(rows, FragmentRow.TIMESTAMP),
            "end_marker_offset": _column(rows, FragmentRow.MARKER_OFFSET),
            "committed": pa.array(rows[:, FragmentRow.COMMITTED] != 0),
            "keys": _column(rows, FragmentRow.KEYS),
            "first": pa.array(rows[:, FragmentRow.FIRST] != 0),
            "groups": lists.cast(fold.TRANSACTIONS.field("groups").type),
        },
    )


def _others(tables: Tables, source: _Source) -> pa.Table:
    rows = used_rows(tables, "others")
    groups = rows[:, OtherRow.GROUP]
    return _table(
        fold.OTHERS,
        {
            "sequence": _column(rows, OtherRow.SEQUENCE),
            "record_offset": _column(rows, OtherRow.RECORD_OFFSET),
            "key": source.binary(rows[:, OtherRow.KEY], rows[:, OtherRow.KEY_BYTES], nulls=True),
            "value": source.binary(rows[:, OtherRow.VALUE], rows[:, OtherRow.VALUE_BYTES], nulls=True),
            "timestamp_ms": _column(rows, OtherRow.TIMESTAMP),
            "size_bytes": _column(rows, OtherRow.SIZE_BYTES),
            "group": pa.array(groups.astype(np.int32), mask=groups < 0),
            "control": pa.array(rows[:, OtherRow.KEY_TYPE] == CONTROL_KEY),
        },
    )


def _touches(tables: Tables) -> pa.Table:
    rows = used_rows(tables, "touches")
    return _table(
        fold.TOUCHES,
        {
            "sequence": _column(rows, TouchRow.SEQUENCE),
            "record_offset": _column(rows, TouchRow.RECORD_OFFSET),
            "group": _narrow(rows, TouchRow.GROUP, np.int32),
        },
    )


def _group_stats(tables: Tables) -> pa.Table:
    """Statistics of commits as the kernel kept them, of other records from their rows."""
    groups = used_rows(tables, "groups")
    parts: list[tuple[Int64s, ...]] = []
    for key_type in (0, 1):
        first = GroupRow.STATISTICS + Statistic.WIDTH * key_type
        seen = np.flatnonzero(groups[:, first + Statistic.RECORDS])
        columns = [groups[seen, first + column] for column in range(Statistic.WIDTH)]
        parts.append((seen, np.full(len(seen), key_type, np.int64), *columns))
    parts.append(_other_stats(used_rows(tables, "others")))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    names = (
        "group",
        "key_type",
        "records",
        "tombstones",
        "size_bytes",
        "first_timestamp_ms",
        "last_timestamp_ms",
    )
    arrays = dict(zip(names, columns, strict=True))
    return _table(
        fold.GROUP_STATS,
        {
            **{name: pa.array(array) for name, array in arrays.items()},
            "group": pa.array(arrays["group"].astype(np.int32)),
            "key_type": pa.array(arrays["key_type"].astype(np.int16)),
        },
    )


def _other_stats(others: Int64s) -> tuple[Int64s, ...]:
    rows = others[(others[:, OtherRow.GROUP] >= 0) & (others[:, OtherRow.KEY_TYPE] > NO_KEY_TYPE)]
    pairs = (rows[:, OtherRow.GROUP] << 16) | (rows[:, OtherRow.KEY_TYPE] & 0xFFFF)
    _, first, group_of, records = np.unique(pairs, return_index=True, return_inverse=True, return_counts=True)
    tombstones = np.bincount(group_of, rows[:, OtherRow.VALUE_BYTES] < 0, len(first)).astype(np.int64)
    sizes = np.zeros(len(first), np.int64)
    np.add.at(sizes, group_of, rows[:, OtherRow.SIZE_BYTES])
    last = np.zeros(len(first), np.int64)
    last[group_of] = np.arange(len(rows))
    return (
        rows[first, OtherRow.GROUP],
        rows[first, OtherRow.KEY_TYPE],
        records,
        tombstones,
        sizes,
        rows[first, OtherRow.TIMESTAMP],
        rows[last, OtherRow.TIMESTAMP],
    )


def _counts(tables: Tables, legacy_formats: Mapping[int, int]) -> SegmentCounts:
    state = tables.state
    batches = int(state[State.BATCHES])
    formats = Counter(legacy_formats)
    formats[2] = batches - formats.total()
    codecs = {}
    for codec in Codec:
        if state[State.CODECS + codec]:
            codecs[codec.name.lower()] = int(state[State.CODECS + codec])
    commits: dict[tuple[int, int | None], int] = {}
    for key_type in (0, 1):
        for version in range(-1, 5):
            records = int(state[State.COMMITS + 6 * key_type + 1 + version])
            if records:
                commits[key_type, None if version < 0 else version] = records
    records = int(state[State.SEQUENCE])
    control_records = int(state[State.CONTROL_RECORDS])
    has_records = records > control_records
    return SegmentCounts(
        batches=batches,
        records=records,
        control_records=control_records,
        min_timestamp_ms=int(state[State.MIN_TIMESTAMP]) if has_records else None,
        max_timestamp_ms=int(state[State.MAX_TIMESTAMP]) if has_records else None,
        codecs=codecs,
        formats={magic: formats[magic] for magic in sorted(formats) if formats[magic]},
        commits=commits,
    )
