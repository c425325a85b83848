"""The compiled fold: batch walk, record split, commits folded to the last event of each slot.

:func:`walk` is the fast path. It handles what a healthy offsets log consists of and stops, having changed
nothing, at the first batch that is anything else; the readers of ``coordinator_core.log`` then say what that
is. So there is one implementation of damage, and this one need not know the rules of odd input, only
recognise it. Sequential rules: ``coordinator_core.replay.sequential``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from coordinator_core.columnar import types
from coordinator_core.columnar.bytestrings import (
    INVALID,
    copy_bytes,
    find,
    free_place,
    hash_bytes,
    index_entry,
    is_plain_utf8,
    likely_row,
    same_bytes,
    uvarint,
    varint,
    varlong,
)
from coordinator_core.columnar.compiling import called, inlined, kernel
from coordinator_core.columnar.intrinsics import be16, be32, be64, crc32c, prefetch
from coordinator_core.columnar.tables import (
    BYTES_TYPE,
    MUTABLE_BYTES_TYPE,
    TABLES_TYPE,
    EventRow,
    Flags,
    FragmentGroupRow,
    FragmentRow,
    GroupRow,
    Int,
    Interned,
    Kind,
    MergeOffset,
    OtherRow,
    PendingKind,
    PendingRow,
    Phase,
    ProducerRow,
    Rules,
    SlotKind,
    SlotRow,
    Split,
    State,
    Statistic,
    TouchRow,
)
from coordinator_core.log.layout import (
    CODEC_BITS,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MIN_RECORD_BYTES,
    TRANSACTIONAL_BIT,
)

_NO_PRODUCER_ID = -1
_COMMIT, _ABORT = 1, 0
_RECORDS_AT_A_TIME = 128


class Status(IntEnum):
    """Why :func:`walk` returned; ``State.POSITION`` is the batch it stands at."""

    END = 0
    GROW = 1
    """The tables are too small: see ``State.NEED_*``."""
    COMPRESSED = 2
    ODD_RECORDS = 3
    """The batch itself is sound, a record in it is unusual or invalid."""
    ODD_BATCH = 4
    """Not a sound v2 batch, or not in order: legacy, damaged, torn."""


@inlined
def commit_version(data: Any, position: Int, length: Int, newest: Int) -> Int:
    """Version of an OffsetCommitValue whose fields all fit, or -1 if anything about it is unusual."""
    if length < 2:
        return -1
    version = be16(data, position)
    if version < 0 or version > newest or version > 4:
        return -1
    stop = position + length
    at = position + 10
    if version >= 3:
        at += 4
    if version < 4:
        if at + 2 > stop:
            return -1
        metadata = be16(data, at)
        at += 2
        if metadata < 0 or at + metadata + 8 + (8 if version == 1 else 0) > stop:
            return -1
        return version
    if at > stop:
        return -1
    compact, at = uvarint(data, at, stop)
    if at == INVALID or compact < 1 or compact > 0x8000:
        return -1
    at += compact - 1 + 8
    if at >= stop:
        return -1
    if data[at] == 0:
        return version
    # One tagged field, tag 0, 16 bytes: the topic id.
    if data[at] == 1 and at + 19 <= stop and data[at + 1] == 0 and data[at + 2] == 16:
        return version
    return -1


@inlined
def split_records(data: Any, batch: Int, stop: Int, first: Int, count: Int, scratch: Any, rules: Any) -> Any:
    """Split the records of the batch at ``batch``, ending at ``stop``, into ``scratch`` from ``first`` on.

    False if anything about one of them is unusual.
    """
    attributes = np.int64(data[batch + 22])
    base_offset = be64(data, batch)
    # The append time is the time of all records of a batch that has one.
    base_timestamp = be64(data, batch + 35 if attributes & LOG_APPEND_TIME_BIT else batch + 27)
    last_offset_delta = be32(data, batch + 23)
    previous_delta = -1
    at = batch + HEADER_BYTES
    if count > 0:
        scratch[first, Split.BATCH_RECORDS] = count
    for index in range(first, first + count):
        start = at
        length, at = varint(data, at, stop)
        if at == INVALID or length < 0 or at + length > stop:
            return False
        end = at + length
        timestamp_delta, at = varlong(data, at + 1, end)
        if at == INVALID:
            return False
        offset_delta, at = varint(data, at, end)
        if at == INVALID or offset_delta <= previous_delta or offset_delta > last_offset_delta:
            return False
        previous_delta = offset_delta
        key_bytes, at = varint(data, at, end)
        if at == INVALID or key_bytes < 2 or at + key_bytes > end:
            return False
        key = at
        value_bytes, value = varint(data, at + key_bytes, end)
        if value == INVALID:
            return False
        # One more byte must be left, and be zero: no headers.
        at = value + max(value_bytes, 0)
        if at + 1 != end or data[at] != 0:
            return False
        at = end
        scratch[index, Split.OFFSET] = base_offset + offset_delta
        scratch[index, Split.TIMESTAMP] = base_timestamp
        if attributes & LOG_APPEND_TIME_BIT == 0:
            scratch[index, Split.TIMESTAMP] += timestamp_delta
        scratch[index, Split.KEY] = key
        scratch[index, Split.KEY_BYTES] = key_bytes
        scratch[index, Split.VALUE] = value
        scratch[index, Split.VALUE_BYTES] = max(value_bytes, -1)
        scratch[index, Split.SIZE_BYTES] = end - start
        scratch[index, Split.FOLLOWS] = index - first
        scratch[index, Split.HASH] = -1
        if attributes & CONTROL_BIT:
            # The first two bytes are the version, whose later numbers keep the layout.
            if key_bytes < 4 or be16(data, key) < 0:
                return False
            scratch[index, Split.KIND] = Kind.CONTROL
            scratch[index, Split.DETAIL] = be16(data, key + 2)
            continue
        body_bytes = _classify(data, key, key_bytes, value, value_bytes, index, scratch, rules)
        if body_bytes == INVALID:
            return False
        scratch[index, Split.BODY] = key + 2
        scratch[index, Split.BODY_BYTES] = body_bytes
    return count == 0 or at == stop


@inlined
def _classify(
    data: Any, key: Int, key_bytes: Int, value: Int, value_bytes: Int, index: Int, scratch: Any, rules: Any
) -> Int:
    """Put into ``scratch`` what the record is; returns the size of its ``Split.BODY``.

    ``INVALID`` if that takes more than a look at well-formed bytes.
    """
    key_type = be16(data, key)
    scratch[index, Split.KEY_TYPE] = key_type
    stop = key + key_bytes
    group_bytes = -1
    if key_bytes >= 4:
        group_bytes = be16(data, key + 2)
    group_stop = key + 4 + group_bytes
    has_group = group_bytes >= 0 and group_stop <= stop
    if has_group and rules[Rules.CHECK_UTF8] != 0 and not is_plain_utf8(data, key + 4, group_bytes):
        return INVALID
    if key_type != 0 and key_type != 1:
        scratch[index, Split.KIND] = Kind.OTHER
        return group_bytes + 2 if has_group else 0
    if not has_group or group_stop + 2 > stop:
        return INVALID
    topic_bytes = be16(data, group_stop)
    body_stop = group_stop + 2 + topic_bytes + 4
    if topic_bytes < 0 or body_stop > stop:
        return INVALID
    if rules[Rules.CHECK_UTF8] != 0 and not is_plain_utf8(data, group_stop + 2, topic_bytes):
        return INVALID
    if value_bytes < 0:
        scratch[index, Split.KIND] = Kind.TOMBSTONE
        scratch[index, Split.DETAIL] = -1
    else:
        newest = rules[Rules.MAX_VERSION] if key_type == 1 else rules[Rules.MAX_LEGACY_VERSION]
        version = commit_version(data, value, value_bytes, newest)
        if version < 0:
            return INVALID
        scratch[index, Split.KIND] = Kind.VALUE
        scratch[index, Split.DETAIL] = version
    return body_stop - key - 2


@inlined
def _producer_hash(producer_id: Int) -> Int:
    mixed = np.uint64(producer_id) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(mixed >> np.uint64(24))


@inlined
def _producer_place(producer_id: Int, tables: Any) -> Int:
    index, producers = tables.producer_index, tables.producers
    mask = len(index) - 1
    place = _producer_hash(producer_id) & mask
    while index[place] != 0 and producers[index[place] - 1, ProducerRow.PRODUCER_ID] != producer_id:
        place = (place + 1) & mask
    return place


@called
def _producer(producer_id: Int, tables: Any) -> Int:
    """Row of the producer, made when it is new."""
    place = _producer_place(producer_id, tables)
    entry = tables.producer_index[place]
    if entry != 0:
        return entry - 1
    row = tables.state[State.PRODUCERS]
    tables.state[State.PRODUCERS] = row + 1
    tables.producer_index[place] = row + 1
    tables.producers[row, ProducerRow.PRODUCER_ID] = producer_id
    tables.producers[row, ProducerRow.FIRST_MARKER] = -1
    tables.producers[row, ProducerRow.PENDING] = -1
    tables.producers[row, ProducerRow.OPEN] = 0
    tables.producers[row, ProducerRow.KEYS] = 0
    return row


@inlined
def _copy_key(data: Any, position: Int, length: Int, tables: Any) -> Int:
    stored = tables.state[State.KEY_BYTES]
    copy_bytes(data, position, tables.keys, stored, length)
    tables.state[State.KEY_BYTES] = stored + length
    return stored


@called
def _group(data: Any, body: Int, length: Int, stored: Int, tables: Any) -> Int:
    """Row of the group whose id, with its int16 length, is at ``body``.

    ``stored`` is where ``keys`` holds these bytes already, or -1.
    """
    groups, state = tables.groups, tables.state
    hashed = hash_bytes(data, body, length)
    row, place = find(data, body, length, hashed, tables.group_index, groups, tables.keys)
    if row >= 0:
        return row
    if stored < 0:
        stored = _copy_key(data, body, length, tables)
    if not is_plain_utf8(data, body + 2, length - 2):
        state[State.MALFORMED_UTF8] = 1
    row = state[State.GROUPS]
    state[State.GROUPS] = row + 1
    tables.group_index[place] = index_entry(hashed, row)
    groups[row, Interned.HASH] = hashed
    groups[row, Interned.BODY] = stored
    groups[row, Interned.BODY_BYTES] = length
    groups[row, GroupRow.TOUCHED] = 0
    groups[row, GroupRow.STAMP] = 0
    for column in range(GroupRow.STATISTICS, GroupRow.STATISTICS + 2 * Statistic.WIDTH):
        groups[row, column] = 0
    return row


@called
def _topic(data: Any, body: Int, length: Int, stored: Int, tables: Any) -> Int:
    topics, state = tables.topics, tables.state
    hashed = hash_bytes(data, body, length)
    row, place = find(data, body, length, hashed, tables.topic_index, topics, tables.keys)
    if row >= 0:
        return row
    if not is_plain_utf8(data, body + 2, length - 2):
        state[State.MALFORMED_UTF8] = 1
    row = state[State.TOPICS]
    state[State.TOPICS] = row + 1
    tables.topic_index[place] = index_entry(hashed, row)
    topics[row, Interned.HASH] = hashed
    topics[row, Interned.BODY] = stored
    topics[row, Interned.BODY_BYTES] = length
    return row


_LOW_HALF = 0xFFFFFFFF


@inlined
def event_kind(flags: Int) -> Int:
    """The :class:`SlotKind` in ``EventRow.FLAGS``."""
    return (flags >> Flags.KIND_SHIFT) & 3


@inlined
def _value_flags(key_type: Int, value_bytes: Int) -> Int:
    """``EventRow.FLAGS`` of a value."""
    return key_type | SlotKind.VALUE << Flags.KIND_SHIFT | value_bytes << Flags.VALUE_BYTES_SHIFT


@inlined
def _new_slot(data: Any, body: Int, length: Int, hashed: Int, place: Int, names: Int, tables: Any) -> Int:
    """Row made for the slot whose group, topic and partition are at ``body``.

    ``names`` is ``EventRow.NAMES`` when that is known already, else -1.
    """
    slots, events, state = tables.slots, tables.events, tables.state
    stored = _copy_key(data, body, length, tables)
    row = state[State.SLOTS]
    state[State.SLOTS] = row + 1
    tables.slot_index[place] = index_entry(hashed, row)
    slots[row, Interned.HASH] = hashed
    slots[row, Interned.BODY] = stored
    slots[row, Interned.BODY_BYTES] = length
    slots[row, SlotRow.LAST_TOMBSTONE] = -1
    if names < 0:
        group_bytes = be16(data, body) + 2
        group = _group(data, body, group_bytes, stored, tables)
        topic = _topic(data, body + group_bytes, length - group_bytes - 4, stored + group_bytes, tables)
        names = group << 32 | topic
    events[row, EventRow.NAMES] = names
    events[row, EventRow.LINK] = be32(data, body + length - 4) << 32
    events[row, EventRow.PENDING] = -1
    events[row, EventRow.FLAGS] = SlotKind.NONE << Flags.KIND_SHIFT
    return row


@inlined
def _transaction_row(slot: Int, producer: Int, tables: Any) -> Int:
    """The pending row of the slot in the producer's open transaction, made when it is new."""
    events, pending, producers, state = tables.events, tables.pending, tables.producers, tables.state
    row = events[slot, EventRow.PENDING]
    while row >= 0:
        if pending[row, PendingRow.PRODUCER] == producer:
            return row
        row = pending[row, PendingRow.NEXT_SLOT]
    row = state[State.PENDING_FREE]
    if row >= 0:
        state[State.PENDING_FREE] = pending[row, PendingRow.NEXT_SLOT]
    else:
        row = state[State.PENDING]
        state[State.PENDING] = row + 1
    following = events[slot, EventRow.PENDING]
    if following >= 0:
        pending[following, PendingRow.PREVIOUS_SLOT] = row
    events[slot, EventRow.PENDING] = row
    pending[row, PendingRow.SLOT] = slot
    pending[row, PendingRow.PRODUCER] = producer
    pending[row, PendingRow.KIND] = PendingKind.NOTED
    pending[row, PendingRow.PHASE] = Phase.OPEN
    pending[row, PendingRow.NEXT_SLOT] = following
    pending[row, PendingRow.PREVIOUS_SLOT] = -1
    pending[row, PendingRow.NEXT_PRODUCER] = producers[producer, ProducerRow.PENDING]
    producers[producer, ProducerRow.PENDING] = row
    producers[producer, ProducerRow.KEYS] += 1
    return row


@called
def _end_transaction(producer: Int, marker_offset: Int, commits: bool, sequence: Int, tables: Any) -> None:
    """Apply an end marker: resolve what the producer has pending, note the marker if it is the first."""
    events, pending, producers, groups = tables.events, tables.pending, tables.producers, tables.groups
    state, fragment_groups = tables.state, tables.fragment_groups
    first = producers[producer, ProducerRow.FIRST_MARKER] < 0
    fragment = state[State.FRAGMENTS]
    state[State.STAMP] += 1
    stamp = state[State.STAMP]
    always = tables.rules[Rules.MERGE_OFFSET] == MergeOffset.NONE
    row = producers[producer, ProducerRow.PENDING]
    while row >= 0:
        slot = pending[row, PendingRow.SLOT]
        if (
            commits
            and pending[row, PendingRow.KIND] == PendingKind.VALUE
            and (
                event_kind(events[slot, EventRow.FLAGS]) != SlotKind.VALUE
                or always
                or events[slot, EventRow.MERGE_OFFSET] < pending[row, PendingRow.MERGE_OFFSET]
            )
        ):
            events[slot, EventRow.FLAGS] = (
                _value_flags(pending[row, PendingRow.FLAGS], pending[row, PendingRow.VALUE_BYTES])
                | Flags.COMMITTED
                | (pending[row, PendingRow.PRODUCER_EPOCH] & 0xFFFF) << Flags.EPOCH_SHIFT
            )
            events[slot, EventRow.SEQUENCE] = sequence
            events[slot, EventRow.VALUE] = pending[row, PendingRow.VALUE]
            events[slot, EventRow.RECORD_OFFSET] = pending[row, PendingRow.RECORD_OFFSET]
            events[slot, EventRow.MERGE_OFFSET] = pending[row, PendingRow.MERGE_OFFSET]
            tables.slots[slot, SlotRow.PRODUCER_ID] = producers[producer, ProducerRow.PRODUCER_ID]
        before = pending[row, PendingRow.PREVIOUS_SLOT]
        after = pending[row, PendingRow.NEXT_SLOT]
        if before >= 0:
            pending[before, PendingRow.NEXT_SLOT] = after
        else:
            events[slot, EventRow.PENDING] = after
        if after >= 0:
            pending[after, PendingRow.PREVIOUS_SLOT] = before
        group = events[slot, EventRow.NAMES] >> 32
        if groups[group, GroupRow.STAMP] != stamp:
            groups[group, GroupRow.STAMP] = stamp
            entry = state[State.FRAGMENT_GROUPS]
            state[State.FRAGMENT_GROUPS] = entry + 1
            fragment_groups[entry, FragmentGroupRow.FRAGMENT] = fragment
            fragment_groups[entry, FragmentGroupRow.GROUP] = group
        following = pending[row, PendingRow.NEXT_PRODUCER]
        if first:
            pending[row, PendingRow.PHASE] = Phase.CLOSED
        else:
            pending[row, PendingRow.PHASE] = Phase.FREE
            pending[row, PendingRow.NEXT_SLOT] = state[State.PENDING_FREE]
            state[State.PENDING_FREE] = row
        row = following
    producers[producer, ProducerRow.PENDING] = -1
    if producers[producer, ProducerRow.OPEN] != 0:
        fragments = tables.fragments
        fragments[fragment, FragmentRow.PRODUCER_ID] = producers[producer, ProducerRow.PRODUCER_ID]
        fragments[fragment, FragmentRow.PRODUCER_EPOCH] = producers[producer, ProducerRow.EPOCH]
        fragments[fragment, FragmentRow.FIRST_OFFSET] = producers[producer, ProducerRow.FIRST_OFFSET]
        fragments[fragment, FragmentRow.LAST_OFFSET] = producers[producer, ProducerRow.LAST_OFFSET]
        fragments[fragment, FragmentRow.TIMESTAMP] = producers[producer, ProducerRow.TIMESTAMP]
        fragments[fragment, FragmentRow.MARKER_OFFSET] = marker_offset
        fragments[fragment, FragmentRow.COMMITTED] = 1 if commits else 0
        fragments[fragment, FragmentRow.KEYS] = producers[producer, ProducerRow.KEYS]
        fragments[fragment, FragmentRow.FIRST] = 1 if first else 0
        state[State.FRAGMENTS] = fragment + 1
        producers[producer, ProducerRow.OPEN] = 0
    if first:
        producers[producer, ProducerRow.FIRST_MARKER] = sequence
        producers[producer, ProducerRow.FIRST_MARKER_OFFSET] = marker_offset
        producers[producer, ProducerRow.FIRST_MARKER_COMMITS] = 1 if commits else 0


@inlined
def _open_keys(producer_id: Int, tables: Any) -> Int:
    """How many slots the producer's open transaction has pending."""
    entry = tables.producer_index[_producer_place(producer_id, tables)]
    return tables.producers[entry - 1, ProducerRow.KEYS] if entry != 0 else 0


@inlined
def _fits(count: Int, size: Int, groups: Int, tables: Any) -> bool:
    """Whether ``count`` records in ``size`` bytes, and ``groups`` in ended transactions, surely have room."""
    state = tables.state
    if (
        count <= len(tables.scratch)
        and state[State.KEY_BYTES] + size <= len(tables.keys)
        and state[State.SLOTS] + count <= min(len(tables.slots), len(tables.slot_index) // 2)
        and state[State.GROUPS] + count <= min(len(tables.groups), len(tables.group_index) // 2)
        and state[State.TOPICS] + count <= min(len(tables.topics), len(tables.topic_index) // 2)
        and state[State.PRODUCERS] + count <= min(len(tables.producers), len(tables.producer_index) // 2)
        and state[State.PENDING] + count <= len(tables.pending)
        and state[State.OTHERS] + count <= len(tables.others)
        and state[State.TOUCHES] + count <= len(tables.touches)
        and state[State.FRAGMENTS] + count <= len(tables.fragments)
        and state[State.FRAGMENT_GROUPS] + groups <= len(tables.fragment_groups)
    ):
        return True
    state[State.NEED_RECORDS] = max(count, 1)
    state[State.NEED_BYTES] = size
    state[State.NEED_GROUPS] = groups
    return False


@called
def _append_other(index: Int, sequence: Int, group: Int, tag: Int, tables: Any) -> None:
    """Keep the record at ``index`` of ``scratch`` whole."""
    scratch, others, state = tables.scratch, tables.others, tables.state
    row = state[State.OTHERS]
    state[State.OTHERS] = row + 1
    others[row, OtherRow.SEQUENCE] = sequence
    others[row, OtherRow.RECORD_OFFSET] = scratch[index, Split.OFFSET]
    others[row, OtherRow.KEY] = scratch[index, Split.KEY] + tag
    others[row, OtherRow.KEY_BYTES] = scratch[index, Split.KEY_BYTES]
    others[row, OtherRow.VALUE] = scratch[index, Split.VALUE] + tag
    others[row, OtherRow.VALUE_BYTES] = scratch[index, Split.VALUE_BYTES]
    others[row, OtherRow.TIMESTAMP] = scratch[index, Split.TIMESTAMP]
    others[row, OtherRow.SIZE_BYTES] = scratch[index, Split.SIZE_BYTES]
    others[row, OtherRow.GROUP] = group
    others[row, OtherRow.KEY_TYPE] = scratch[index, Split.KEY_TYPE]


@called
def fold_control(first: Int, count: Int, producer_id: Int, tag: Int, tables: Any) -> None:
    """Apply control records in ``scratch``: Scala looks at the first only, and lets any type end."""
    java = tables.rules[Rules.PENDING_BY_PRODUCER] != 0
    scratch, state = tables.scratch, tables.state
    for index in range(first, first + count):
        sequence = state[State.SEQUENCE]
        state[State.SEQUENCE] = sequence + 1
        state[State.CONTROL_RECORDS] += 1
        if index > first and not java:
            continue
        if scratch[index, Split.KIND] == Kind.OTHER:
            _append_other(index, sequence, -1, tag, tables)
            continue
        control = scratch[index, Split.DETAIL]
        if control in (_COMMIT, _ABORT) or not java:
            producer = _producer(producer_id, tables)
            _end_transaction(producer, scratch[index, Split.OFFSET], control == _COMMIT, sequence, tables)


_AHEAD = 8
"""Slots that follow each other in batches were mostly made in that order: so many rows are fetched ahead."""


@inlined
def _hash_slots(data: Any, count: Int, hash_all: bool, tables: Any) -> None:
    """Hash the slots of the records in ``scratch`` that no other precedes in their batch, or those of all.

    With more slots than fit the caches most of the time goes into waiting for memory: what looking up the
    slots will touch is fetched beforehand, so that the waits overlap.
    """
    scratch, index, slots, events = tables.scratch, tables.slot_index, tables.slots, tables.events
    record = 0
    while record < count:
        if scratch[record, Split.KIND] <= Kind.TOMBSTONE:
            hashed = hash_bytes(data, scratch[record, Split.BODY], scratch[record, Split.BODY_BYTES])
            scratch[record, Split.HASH] = hashed
            prefetch(index, hashed & (len(index) - 1))
        record += 1 if hash_all else scratch[record, Split.BATCH_RECORDS]
    record = 0
    while record < count:
        if scratch[record, Split.HASH] >= 0:
            row = likely_row(scratch[record, Split.HASH], index)
            if row >= 0:
                prefetch(slots, row * SlotRow.WIDTH)
                for following in range(row, row + (1 if hash_all else _AHEAD)):
                    prefetch(events, following * EventRow.WIDTH)
        record += 1 if hash_all else scratch[record, Split.BATCH_RECORDS]
    record = 0
    while record < count:
        if scratch[record, Split.HASH] >= 0:
            row = likely_row(scratch[record, Split.HASH], index)
            if row >= 0:
                prefetch(tables.keys, slots[row, Interned.BODY])
                prefetch(tables.keys, slots[row, Interned.BODY] + 64)
        record += 1 if hash_all else scratch[record, Split.BATCH_RECORDS]


@inlined
def _hash_batch(data: Any, record: Int, count: Int, tables: Any) -> None:
    """Hash the slots from ``record`` on to the end of its batch, and fetch their places in the index."""
    scratch, index = tables.scratch, tables.slot_index
    while True:
        hashed = hash_bytes(data, scratch[record, Split.BODY], scratch[record, Split.BODY_BYTES])
        scratch[record, Split.HASH] = hashed
        prefetch(index, hashed & (len(index) - 1))
        record += 1
        if (
            record == count
            or scratch[record, Split.FOLLOWS] == 0
            or scratch[record, Split.KIND] > Kind.TOMBSTONE
            or scratch[record, Split.HASH] >= 0
        ):
            break


@inlined
def _find_slots(data: Any, count: Int, tables: Any) -> None:
    """Put the slots of the records in ``scratch`` there, made when they are new.

    A group commits its partitions in much the same order again and again: the slot that followed the last
    one the time before is tried first, as long as that is right most of the time (``State.LUCK``). Whether it
    is right shows in its event, which is needed anyway, so that its key need not be fetched.
    """
    scratch, events, topics, state = tables.scratch, tables.events, tables.topics, tables.state
    luck = state[State.LUCK]
    _hash_slots(data, count, luck <= 0, tables)
    previous, last_body, last_bytes = -1, 0, 0
    for record in range(count):
        kind = scratch[record, Split.KIND]
        body, body_bytes = scratch[record, Split.BODY], scratch[record, Split.BODY_BYTES]
        if scratch[record, Split.FOLLOWS] == 0:
            previous = -1
        if kind > Kind.TOMBSTONE:
            if kind == Kind.OTHER and body_bytes > 0:
                scratch[record, Split.SLOT] = _group(data, body, body_bytes, -1, tables)
            previous = -1
            continue
        guess, names, slot = -1, -1, -1
        if previous >= 0:
            guess = (events[previous, EventRow.LINK] & _LOW_HALF) - 1
            if body_bytes == last_bytes and same_bytes(data, last_body, data, body, body_bytes - 4):
                names = events[previous, EventRow.NAMES]
            if guess >= 0 and events[guess, EventRow.LINK] >> 32 == be32(data, body + body_bytes - 4):
                likely = events[guess, EventRow.NAMES]
                if names < 0 and likely >> 32 == events[previous, EventRow.NAMES] >> 32:
                    # The same group, another topic?
                    group_bytes = be16(data, last_body) + 2
                    topic = likely & _LOW_HALF
                    topic_bytes = body_bytes - group_bytes - 4
                    if (
                        topic_bytes == topics[topic, Interned.BODY_BYTES]
                        and same_bytes(data, last_body, data, body, group_bytes)
                        and same_bytes(
                            tables.keys, topics[topic, Interned.BODY], data, body + group_bytes, topic_bytes
                        )
                    ):
                        names = likely
                if names == likely:
                    slot = guess
        if slot < 0:
            hashed = scratch[record, Split.HASH]
            if hashed < 0:
                # No slot followed the one before: those behind this one are mostly new too.
                _hash_batch(data, record, count, tables)
                hashed = scratch[record, Split.HASH]
            slot, place = find(data, body, body_bytes, hashed, tables.slot_index, tables.slots, tables.keys)
            if slot < 0:
                slot = _new_slot(data, body, body_bytes, hashed, place, names, tables)
        if slot == guess:
            luck = min(luck + 1, 64)
        elif previous >= 0:
            luck = max(luck - 8, -64)
            link = events[previous, EventRow.LINK]
            events[previous, EventRow.LINK] = (link >> 32) << 32 | (slot + 1)
        scratch[record, Split.SLOT] = slot
        prefetch(events, (slot + _AHEAD) * EventRow.WIDTH)
        previous, last_body, last_bytes = slot, body, body_bytes
    state[State.LUCK] = luck


@inlined
def fold_records(
    tag: Int,
    first: Int,
    count: Int,
    base_offset: Int,
    attributes: Int,
    producer_id: Int,
    producer_epoch: Int,
    tables: Any,
) -> None:
    """Apply ``count`` records in ``scratch`` from ``first`` on; ``tag`` goes on positions."""
    rules, scratch, state = tables.rules, tables.scratch, tables.state
    events, groups, pending = tables.events, tables.groups, tables.pending
    java = rules[Rules.PENDING_BY_PRODUCER] != 0
    drops = rules[Rules.TOMBSTONE_DROPS_PENDING] != 0
    merge_rule = rules[Rules.MERGE_OFFSET]
    in_transaction = producer_id != _NO_PRODUCER_ID if java else attributes & TRANSACTIONAL_BIT != 0
    producer = -1
    sequence = state[State.SEQUENCE] - 1
    state[State.SEQUENCE] += count
    min_timestamp, max_timestamp = state[State.MIN_TIMESTAMP], state[State.MAX_TIMESTAMP]
    for index in range(first, first + count):
        sequence += 1
        offset = scratch[index, Split.OFFSET]
        timestamp = scratch[index, Split.TIMESTAMP]
        min_timestamp = min(min_timestamp, timestamp)
        max_timestamp = max(max_timestamp, timestamp)
        kind = scratch[index, Split.KIND]
        slot = scratch[index, Split.SLOT]
        if kind == Kind.OTHER:
            group = -1
            if scratch[index, Split.BODY_BYTES] > 0:
                group = slot
                groups[group, GroupRow.TOUCHED] = 0
            _append_other(index, sequence, group, tag, tables)
            continue

        group = events[slot, EventRow.NAMES] >> 32
        key_type = scratch[index, Split.KEY_TYPE]
        state[State.COMMITS + 6 * key_type + 1 + scratch[index, Split.DETAIL]] += 1
        statistics = GroupRow.STATISTICS + Statistic.WIDTH * key_type
        if groups[group, statistics + Statistic.RECORDS] == 0:
            groups[group, statistics + Statistic.FIRST_TIMESTAMP] = timestamp
        groups[group, statistics + Statistic.RECORDS] += 1
        groups[group, statistics + Statistic.SIZE_BYTES] += scratch[index, Split.SIZE_BYTES]
        groups[group, statistics + Statistic.LAST_TIMESTAMP] = timestamp

        row = -1
        if in_transaction:
            if producer < 0:
                producer = _producer(producer_id, tables)
            producers = tables.producers
            if producers[producer, ProducerRow.OPEN] == 0:
                producers[producer, ProducerRow.OPEN] = 1
                producers[producer, ProducerRow.KEYS] = 0
                producers[producer, ProducerRow.FIRST_OFFSET] = offset
            producers[producer, ProducerRow.EPOCH] = producer_epoch
            producers[producer, ProducerRow.LAST_OFFSET] = offset
            producers[producer, ProducerRow.TIMESTAMP] = timestamp
            row = _transaction_row(slot, producer, tables)

        if kind == Kind.TOMBSTONE:
            groups[group, statistics + Statistic.TOMBSTONES] += 1
            if java or not in_transaction:
                events[slot, EventRow.FLAGS] = SlotKind.TOMBSTONE << Flags.KIND_SHIFT
                events[slot, EventRow.SEQUENCE] = sequence
                events[slot, EventRow.RECORD_OFFSET] = offset
                tables.slots[slot, SlotRow.LAST_TOMBSTONE] = sequence
            if drops:
                other = events[slot, EventRow.PENDING]
                while other >= 0:
                    pending[other, PendingRow.KIND] = PendingKind.CLEARED
                    other = pending[other, PendingRow.NEXT_SLOT]
            elif in_transaction and not java:
                pending[row, PendingRow.KIND] = PendingKind.CLEARED
            continue

        if java and groups[group, GroupRow.TOUCHED] == 0:
            groups[group, GroupRow.TOUCHED] = 1
            touch = state[State.TOUCHES]
            state[State.TOUCHES] = touch + 1
            tables.touches[touch, TouchRow.SEQUENCE] = sequence
            tables.touches[touch, TouchRow.RECORD_OFFSET] = offset
            tables.touches[touch, TouchRow.GROUP] = group
        merge_offset = offset
        if merge_rule == MergeOffset.BATCH_HEADER:
            merge_offset = base_offset
        elif merge_rule == MergeOffset.BATCH_FIRST_RECORD:
            merge_offset = scratch[first, Split.OFFSET]
        if in_transaction:
            pending[row, PendingRow.KIND] = PendingKind.VALUE
            pending[row, PendingRow.SEQUENCE] = sequence
            pending[row, PendingRow.VALUE] = scratch[index, Split.VALUE] + tag
            pending[row, PendingRow.VALUE_BYTES] = scratch[index, Split.VALUE_BYTES]
            pending[row, PendingRow.FLAGS] = key_type
            pending[row, PendingRow.RECORD_OFFSET] = offset
            pending[row, PendingRow.MERGE_OFFSET] = merge_offset
            pending[row, PendingRow.PRODUCER_EPOCH] = producer_epoch
        else:
            events[slot, EventRow.FLAGS] = _value_flags(key_type, scratch[index, Split.VALUE_BYTES])
            events[slot, EventRow.SEQUENCE] = sequence
            events[slot, EventRow.VALUE] = scratch[index, Split.VALUE] + tag
            events[slot, EventRow.RECORD_OFFSET] = offset
            events[slot, EventRow.MERGE_OFFSET] = merge_offset
    state[State.MIN_TIMESTAMP] = min_timestamp
    state[State.MAX_TIMESTAMP] = max_timestamp


@inlined
def _note_batch(base_offset: Int, next_offset: Int, codec: Int, state: Any) -> None:
    if state[State.FIRST_OFFSET] < 0:
        state[State.FIRST_OFFSET] = base_offset
    state[State.NEXT_OFFSET] = next_offset
    state[State.BATCHES] += 1
    state[State.CODECS + codec] += 1


@inlined
def _crc_matches(data: Any, position: Int, size: Int) -> Any:
    """Whether the v2 batch at ``position`` has the CRC-32C that it declares."""
    return crc32c(data, position + 21, position + size) == be32(data, position + 17) & 0xFFFFFFFF


@inlined
def sound_size(data: Any, position: Int, stop: Int, expected: Int, in_arena: bool, rules: Any) -> Int:
    """Size of the v2 batch at ``position``, or 0 if anything about it but its records is unusual."""
    if stop - position < HEADER_BYTES or data[position + 16] != 2:
        return 0
    size = be32(data, position + 8) + 12
    if size < HEADER_BYTES or size > stop - position:
        return 0
    base_offset = be64(data, position)
    last_offset_delta = be32(data, position + 23)
    # A hole is usual, but not that the next batch fits into it: then that one's offset is below ``expected``.
    if base_offset < expected or last_offset_delta < 0 or be32(data, position + 57) < 0:
        return 0
    last_offset = base_offset + last_offset_delta
    if last_offset > rules[Rules.LAST_OFFSET] or last_offset < base_offset or be32(data, position + 12) < -1:
        return 0
    if not in_arena:
        if size - 12 > rules[Rules.MAX_BATCH_BYTES]:
            return 0
        if rules[Rules.CHECK_CRC] != 0 and not _crc_matches(data, position, size):
            return 0
    return size


@kernel(
    types.int64(BYTES_TYPE, types.int64, types.int64, MUTABLE_BYTES_TYPE, types.Array(types.int64, 1, "C"))
)
def gather_headers(data: Any, start: Int, stop: Int, out: Any, done: Any) -> Int:
    """Copy the 61 header bytes of each intact v2 batch in ``data[start:stop]`` to ``out``, without gaps.

    Intact is a batch that lies wholly before ``stop`` and has the CRC-32C that it declares: its header then
    stands for all its bytes. Returns ``Status.END``, ``GROW`` when ``out`` is full, or ``ODD_BATCH`` at
    anything but an intact batch; ``done`` is set to the position reached and the number of headers.
    """
    position = start
    headers = 0
    status = Status.END
    while position < stop:
        if (headers + 1) * HEADER_BYTES > len(out):
            status = Status.GROW
            break
        status = Status.ODD_BATCH
        if stop - position < HEADER_BYTES or data[position + 16] != 2:
            break
        size = be32(data, position + 8) + 12
        if size < HEADER_BYTES or size > stop - position or not _crc_matches(data, position, size):
            break
        for at in range(HEADER_BYTES):
            out[headers * HEADER_BYTES + at] = data[position + at]
        headers += 1
        position += size
        status = Status.END
    done[0] = position
    done[1] = headers
    return status


@kernel(types.int64(BYTES_TYPE, types.int64, types.int64, types.int64, types.boolean, TABLES_TYPE))
def walk(data: Any, start: Int, stop: Int, tag: Int, in_arena: bool, tables: Any) -> Int:
    """Fold the v2 batches in ``data[start:stop]``, one after the other; returns a :class:`Status`.

    ``in_arena`` says that the CRCs were checked and the records decompressed before. ``State.POSITION``
    tells where it stopped; the fold holds all batches before that and nothing of the one there.
    """
    state, rules = tables.state, tables.rules
    position = start
    status = Status.END
    while status == Status.END and position < stop:
        # Several small batches are folded at a time.
        first, records, groups, expected = position, 0, 0, state[State.NEXT_OFFSET]
        while position < stop and records < _RECORDS_AT_A_TIME:
            size = sound_size(data, position, stop, expected, in_arena, rules)
            if size == 0:
                status = Status.ODD_BATCH
                break
            next_offset = be64(data, position) + be32(data, position + 23) + 1
            count = be32(data, position + 57)
            attributes = np.int64(data[position + 22])
            if next_offset <= rules[Rules.START_OFFSET]:
                # Nothing came before it.
                position += size
                first, expected = position, next_offset
                state[State.NEXT_OFFSET] = next_offset
                continue
            if not in_arena and attributes & CODEC_BITS != 0 and count != 0:
                status = Status.COMPRESSED
                break
            if count * MIN_RECORD_BYTES > size - HEADER_BYTES or count > rules[Rules.MAX_RECORDS]:
                status = Status.ODD_RECORDS
                break
            if attributes & CONTROL_BIT:
                # What is to be folded before may add to its keys.
                groups += _open_keys(be64(data, position + 43), tables) + records
            if not _fits(records + count, position + size - first, groups, tables):
                status = Status.GROW
                break
            if not split_records(
                data, position, position + size, records, count, tables.scratch, tables.rules
            ):
                status = Status.ODD_RECORDS
                break
            records += count
            expected = next_offset
            position += size
        _find_slots(data, records, tables)
        _fold_batches(data, first, position, tag, tables)
    state[State.POSITION] = position
    return status


@inlined
def _fold_batches(data: Any, position: Int, stop: Int, tag: Int, tables: Any) -> None:
    """Fold the batches in ``data[position:stop]``, whose records are in ``scratch``."""
    records = 0
    while position < stop:
        base_offset = be64(data, position)
        attributes = np.int64(data[position + 22])
        producer_id = be64(data, position + 43)
        count = be32(data, position + 57)
        if attributes & CONTROL_BIT:
            fold_control(records, count, producer_id, tag, tables)
        else:
            producer_epoch = be16(data, position + 51)
            fold_records(tag, records, count, base_offset, attributes, producer_id, producer_epoch, tables)
        _note_batch(
            base_offset, base_offset + be32(data, position + 23) + 1, attributes & CODEC_BITS, tables.state
        )
        records += count
        position += be32(data, position + 8) + 12


@kernel(
    types.boolean(
        BYTES_TYPE,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        TABLES_TYPE,
    )
)
def fold_split(
    data: Any,
    tag: Int,
    count: Int,
    size: Int,
    base_offset: Int,
    next_offset: Int,
    attributes: Int,
    producer_id: Int,
    producer_epoch: Int,
    tables: Any,
) -> bool:
    """Fold one batch whose ``count`` records were put into ``scratch`` already; False if tables must grow."""
    control = attributes & CONTROL_BIT != 0
    groups = _open_keys(producer_id, tables) if control else 0
    if not _fits(count, size, groups, tables):
        return False
    if control:
        fold_control(0, count, producer_id, tag, tables)
    else:
        _find_slots(data, count, tables)
        fold_records(tag, 0, count, base_offset, attributes, producer_id, producer_epoch, tables)
    _note_batch(base_offset, next_offset, attributes & CODEC_BITS, tables.state)
    return True


@kernel(types.void(types.Array(types.int64, 1, "C"), types.Array(types.int64, 2, "C")))
def rebuild_index(index: Any, rows: Any) -> None:
    """Fill an empty index with the rows of a table of interned bytes."""
    for row in range(len(rows)):
        hashed = rows[row, Interned.HASH]
        index[free_place(hashed, index)] = index_entry(hashed, row)


@kernel(types.void(types.Array(types.int64, 1, "C"), types.Array(types.int64, 2, "C")))
def rebuild_producer_index(index: Any, producers: Any) -> None:
    """Fill an empty index with the producers."""
    mask = len(index) - 1
    for row in range(len(producers)):
        place = _producer_hash(producers[row, ProducerRow.PRODUCER_ID]) & mask
        while index[place] != 0:
            place = (place + 1) & mask
        index[place] = row + 1
