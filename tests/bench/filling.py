"""Compiled part of the generator: decides what is committed, writes the batches, keeps the truth.

It shares nothing with the kernels of the product. A batch is left without its CRC, which the caller fills in.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

HEADER_BYTES = 61
TEN_YEARS_MS = 10 * 365 * 86_400_000
COMMIT, ABORT = 1, 0
ENDING_RECORDS = 3
"""Most records of its own that a group without members has."""
TRIES = 64
"""Groups that are tried for one that commits."""
EPOCH_BIT = 37
"""Lowest of the bits of a committed offset that make a leader epoch, where consumers go forward; else 0."""
RECORD_ROOM = 120
"""Bytes of a record beside the names in its key and its metadata: lengths, value, topic id."""


class At(IntEnum):
    """Indexes of the counters of a log in the making."""

    OFFSET = 0
    BATCHES = 1
    BYTES = 2
    RANDOM = 3
    TURN = 4
    PRODUCER = 5
    OPEN = 6
    DUE = 7
    """Group batches that are due."""
    GIVEN = 8
    """Group batches taken of those the caller gave."""
    SIZE = 9


class Effect(IntEnum):
    """Effects of a group batch on the group's offsets."""

    IDLES = 0
    """Nobody commits for the group."""
    COMMITS = 1
    ENDS = 2
    """Offsets of the group are tombstoned before it, in the same batch, and nobody commits."""


class Setting(IntEnum):
    """Indexes of what does not change. Shares are in units of 2**-32."""

    START_MS = 0
    SMALLEST_BATCH = 1
    LARGEST_BATCH = 2
    TRANSACTIONAL = 3
    ABORTED = 4
    TOMBSTONES = 5
    GROUPS_EVERY = 6
    SHUFFLED = 7
    IN_TURN = 8
    PRODUCERS = 9
    TRANSACTION_BATCHES = 10
    METADATA_BYTES = 11
    RECORD_ROOM = 12
    TARGET_BYTES = 13
    GROUP_BATCHES = 14
    TOMBSTONE_BATCHES = 15
    METADATA = 16
    STEPS = 17
    SIZE = 18


class Names(NamedTuple):
    """Group and topic names end to end, with their starts; a topic id of 16 bytes per topic."""

    groups: Bytes
    group_starts: Int64s
    topics: Bytes
    topic_starts: Int64s
    topic_ids: Bytes


class OffsetKeys(NamedTuple):
    """Offset keys that can be committed; those of a group lie together. ``committed`` is the truth, -1 for none.

    ``legacy`` offset keys are committed under key type 0 as often as under type 1.
    """

    group: Int32s
    topic: Int32s
    partition: Int32s
    legacy: Bytes
    committed: Int64s
    written_at: Int64s


class Groups(NamedTuple):
    """``first_offset_key`` has one more entry than there are groups; ``cumulative`` is the chance of each active
    group to be next, added up; ``cursor`` the place in the rotation of its offset keys.

    ``commits`` says who is committed for now, ``touched`` who has been since the log or the group began.
    """

    first_offset_key: Int64s
    active: Int64s
    cumulative: npt.NDArray[np.float64]
    cursor: Int64s
    commits: Bytes
    touched: Bytes


class Transactions(NamedTuple):
    """Open transactions, a row each."""

    due: Int64s
    producer: Int64s
    outcome: Int64s
    first_offset: Int64s
    count: Int64s
    offset_keys: Int64s
    values: Int64s


class Given(NamedTuple):
    """Batches of group records, end to end with their starts; which group each is of, and its ``Effect``.

    Of a group that ends there are only the keys of its tombstones, each behind its length as int16.
    """

    data: Bytes
    starts: Int64s
    groups: Int64s
    effects: Int64s


class Log(NamedTuple):
    """Everything that :func:`fill` works on."""

    settings: Int64s
    versions: Int64s
    at: Int64s
    names: Names
    offset_keys: OffsetKeys
    groups: Groups
    transactions: Transactions


ALL = 1 << 32
"""A share of one, as :class:`Setting` has it."""


def share(value: float) -> int:
    """A share as :class:`Setting` has it."""
    return round(value * ALL)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _random(at: Int64s) -> int:
    """The next 32 random bits (splitmix64)."""
    at[At.RANDOM] += -7046029254386353131
    x = np.uint64(at[At.RANDOM])
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((x ^ (x >> np.uint64(31))) >> np.uint64(32))  # type: ignore[return-value]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _below(at: Int64s, bound: int) -> int:
    return (_random(at) * bound) >> 32


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _put_uvarint(out: Bytes, at: int, value: int) -> int:
    while value > 0x7F:
        out[at] = (value & 0x7F) | 0x80
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _put_varint(out: Bytes, at: int, value: int) -> int:
    return _put_uvarint(out, at, (value << 1) ^ (value >> 63))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _put_integer(out: Bytes, at: int, value: int, count: int) -> int:
    for index in range(count):
        out[at + index] = (value >> (8 * (count - 1 - index))) & 0xFF
    return at + count


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _put_bytes(out: Bytes, at: int, data: Bytes, start: int, stop: int) -> int:
    for index in range(stop - start):
        out[at + index] = data[start + index]
    return at + stop - start


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _put_header(
    out: Bytes, at: int, base_offset: int, count: int, attributes: int, timestamp: int, producer_id: int
) -> int:
    at = _put_integer(out, at, base_offset, 8)
    at += 4  # length, known at the end
    at = _put_integer(out, at, 0, 4)
    out[at] = 2
    at += 1 + 4  # CRC
    at = _put_integer(out, at, attributes, 2)
    at = _put_integer(out, at, count - 1, 4)
    at = _put_integer(out, at, timestamp, 8)
    at = _put_integer(out, at, timestamp, 8)
    at = _put_integer(out, at, producer_id, 8)
    at = _put_integer(out, at, 0 if producer_id >= 0 else -1, 2)
    at = _put_integer(out, at, -1 if attributes & 0x20 else 0, 4)
    return _put_integer(out, at, count, 4)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _uvarint_size(value: int) -> int:
    size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _put_key(out: Bytes, at: int, key_type: int, offset_key: int, names: Names, offset_keys: OffsetKeys) -> int:
    group, topic = offset_keys.group[offset_key], offset_keys.topic[offset_key]
    at = _put_integer(out, at, key_type, 2)
    start, stop = names.group_starts[group], names.group_starts[group + 1]
    at = _put_bytes(out, _put_integer(out, at, stop - start, 2), names.groups, start, stop)
    start, stop = names.topic_starts[topic], names.topic_starts[topic + 1]
    at = _put_bytes(out, _put_integer(out, at, stop - start, 2), names.topics, start, stop)
    return _put_integer(out, at, offset_keys.partition[offset_key], 4)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _key_size(offset_key: int, names: Names, offset_keys: OffsetKeys) -> int:
    group, topic = offset_keys.group[offset_key], offset_keys.topic[offset_key]
    group_size = names.group_starts[group + 1] - names.group_starts[group]
    return 2 + 2 + group_size + 2 + names.topic_starts[topic + 1] - names.topic_starts[topic] + 4


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _put_value(
    out: Bytes, at: int, version: int, committed: int, epoch: int, text: int, timestamp: int, topic: int, names: Names
) -> int:
    """An OffsetCommitValue with leader ``epoch`` and ``text`` bytes of metadata."""
    at = _put_integer(out, at, version, 2)
    at = _put_integer(out, at, committed, 8)
    if version >= 3:
        at = _put_integer(out, at, epoch, 4)
    at = _put_uvarint(out, at, text + 1) if version >= 4 else _put_integer(out, at, text, 2)
    for index in range(text):
        out[at + index] = 97 + (committed + index) % 26
    at = _put_integer(out, at + text, timestamp, 8)
    if version == 1:
        at = _put_integer(out, at, timestamp + TEN_YEARS_MS, 8)
    if version >= 4:
        out[at], out[at + 1], out[at + 2] = 1, 0, 16
        at = _put_bytes(out, at + 3, names.topic_ids, 16 * topic, 16 * topic + 16)
    return at


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _value_size(version: int, text: int) -> int:
    size = 2 + 8 + text + 8
    if version >= 3:
        size += 4
    if version == 1:
        size += 8
    return size + (_uvarint_size(text + 1) + 3 + 16 if version >= 4 else 2)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _put_record_head(out: Bytes, at: int, index: int, key_size: int, value_size: int) -> int:
    """A record up to its key; a ``value_size`` of -1 is a tombstone."""
    size = 1 + 1 + _uvarint_size(2 * index) + _uvarint_size(2 * key_size) + key_size + 1
    size += _uvarint_size(2 * value_size) + value_size if value_size >= 0 else 1
    at = _put_varint(out, at, size)
    out[at], out[at + 1] = 0, 0
    at = _put_varint(out, at + 2, index)
    return _put_varint(out, at, key_size)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _metadata_bytes(counters: Int64s, settings: Int64s) -> int:
    """Length of the text of the next commit."""
    most = settings[Setting.METADATA_BYTES]
    if settings[Setting.METADATA] >= ALL:
        return _below(counters, most + 1)
    return 1 + _below(counters, most) if _random(counters) < settings[Setting.METADATA] else 0


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _put_commits(
    out: Bytes,
    at: int,
    picked: Int64s,
    values: Int64s,
    version: int,
    timestamp: int,
    producer_id: int,
    log: Log,
) -> int:
    """A batch of commits; a value of -1 is a tombstone."""
    counters, settings, names, offset_keys = log.at, log.settings, log.names, log.offset_keys
    start = at
    attributes = 0x10 if producer_id >= 0 else 0
    at = _put_header(out, at, counters[At.OFFSET], len(picked), attributes, timestamp, producer_id)
    for index in range(len(picked)):
        offset_key = picked[index]
        is_legacy = offset_keys.legacy[offset_key] != 0 and producer_id < 0 and _below(counters, 2) == 0
        key_size = _key_size(offset_key, names, offset_keys)
        text = _metadata_bytes(counters, settings)
        value_version = 0 if is_legacy else version
        value_size = _value_size(value_version, text) if values[index] >= 0 else -1
        at = _put_record_head(out, at, index, key_size, value_size)
        at = _put_key(out, at, 0 if is_legacy else 1, offset_key, names, offset_keys)
        at = _put_varint(out, at, value_size)
        if value_size >= 0:
            topic = offset_keys.topic[offset_key]
            # A partition keeps its epoch while its consumer goes on.
            epoch = ((values[index] >> (EPOCH_BIT if settings[Setting.STEPS] > 0 else 0)) & 7) - 1
            at = _put_value(out, at, value_version, values[index], epoch, text, timestamp, topic, names)
        out[at] = 0
        at += 1
    _put_integer(out, start + 8, at - start - 12, 4)
    return at


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _is_pending(offset_key: int, log: Log) -> bool:
    """Whether an open transaction commits the offset key."""
    open_ones = log.transactions
    for row in range(log.at[At.OPEN]):
        for index in range(open_ones.count[row]):
            if open_ones.offset_keys[row, index] == offset_key:
                return True
    return False


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _put_ending(
    out: Bytes, at: int, group: int, keys: Bytes, key_at: int, stop: int, timestamp: int, log: Log
) -> tuple[int, int]:
    """A batch that deletes a group: tombstones of its offsets, then those of its own records, whose ``keys``
    are given. Returns the end of the batch and the number of its records."""
    names, offset_keys = log.names, log.offset_keys
    start, count = at, 0
    at += HEADER_BYTES
    for offset_key in range(log.groups.first_offset_key[group], log.groups.first_offset_key[group + 1]):
        if offset_keys.committed[offset_key] >= 0 or _is_pending(offset_key, log):
            at = _put_record_head(out, at, count, _key_size(offset_key, names, offset_keys), -1)
            at = _put_key(out, at, 1, offset_key, names, offset_keys)
            at = _put_integer(out, _put_varint(out, at, -1), 0, 1)
            offset_keys.committed[offset_key] = -1
            offset_keys.written_at[offset_key] = log.at[At.OFFSET] + count
            count += 1
    while key_at < stop:
        size = (np.int64(keys[key_at]) << 8) | keys[key_at + 1]
        at = _put_record_head(out, at, count, size, -1)
        at = _put_bytes(out, at, keys, key_at + 2, key_at + 2 + size)
        at = _put_integer(out, _put_varint(out, at, -1), 0, 1)
        key_at += 2 + size
        count += 1
    _put_header(out, start, log.at[At.OFFSET], count, 0, timestamp, -1)
    _put_integer(out, start + 8, at - start - 12, 4)
    return at, count


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _end_transaction(out: Bytes, at: int, row: int, timestamp: int, log: Log) -> int:
    """The marker of the transaction at ``row``, and what it makes of the truth; the last row moves there."""
    counters, open_ones = log.at, log.transactions
    count, outcome = open_ones.count[row], open_ones.outcome[row]
    start = at
    at = _put_header(out, at, counters[At.OFFSET], 1, 0x30, timestamp, open_ones.producer[row])
    at = _put_varint(out, at, 16)
    out[at], out[at + 1], out[at + 2] = 0, 0, 0
    at = _put_varint(out, at + 3, 4)
    at = _put_integer(out, at, outcome, 4)
    at = _put_varint(out, at, 6)
    at = _put_integer(out, at, 0, 6)
    out[at] = 0
    at += 1
    _put_integer(out, start + 8, at - start - 12, 4)
    if outcome == COMMIT:
        for index in range(count):
            offset_key, offset = open_ones.offset_keys[row, index], open_ones.first_offset[row] + index
            if offset > log.offset_keys.written_at[offset_key]:
                log.offset_keys.written_at[offset_key] = offset
                log.offset_keys.committed[offset_key] = open_ones.values[row, index]
    last = counters[At.OPEN] - 1
    counters[At.OPEN] = last
    open_ones.due[row] = open_ones.due[last]
    open_ones.producer[row] = open_ones.producer[last]
    open_ones.outcome[row] = open_ones.outcome[last]
    open_ones.first_offset[row] = open_ones.first_offset[last]
    open_ones.count[row] = open_ones.count[last]
    open_ones.offset_keys[row] = open_ones.offset_keys[last]
    open_ones.values[row] = open_ones.values[last]
    return at


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _pick(log: Log, picked: Int64s) -> int:
    """The offset keys of the next commit, none twice; returns how many, none when nobody is found who commits."""
    counters, settings, groups = log.at, log.settings, log.groups
    smallest, largest = settings[Setting.SMALLEST_BATCH], settings[Setting.LARGEST_BATCH]
    count = smallest
    if smallest < largest:
        # As likely between 1 and 2 as between 50 and 100.
        spread = np.log((largest + 1) / smallest) * (_random(counters) / 4294967296.0)
        count = min(largest, int(smallest * np.exp(spread)))
    if settings[Setting.IN_TURN]:
        group = groups.active[counters[At.TURN]]
    else:
        group = -1
        for _ in range(TRIES):
            chance = _random(counters) / 4294967296.0
            found = groups.active[np.searchsorted(groups.cumulative, chance, "right")]
            if groups.commits[found]:
                group = found
                break
        if group < 0:
            return 0
    first, size = (
        groups.first_offset_key[group],
        groups.first_offset_key[group + 1] - groups.first_offset_key[group],
    )
    count = min(count, size)
    if settings[Setting.IN_TURN]:
        count = min(count, size - groups.cursor[group])
        if groups.cursor[group] + count == size:
            counters[At.TURN] = (counters[At.TURN] + 1) % len(groups.active)
    for index in range(count):
        picked[index] = first + (groups.cursor[group] + index) % size
    groups.cursor[group] = (groups.cursor[group] + count) % size
    if settings[Setting.SHUFFLED]:
        for index in range(count - 1, 0, -1):
            other = _below(counters, index + 1)
            picked[index], picked[other] = picked[other], picked[index]
    return count


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _pick_values(log: Log, picked: Int64s, values: Int64s, transactional: bool) -> int:
    """Values for the offset keys of the next commit, -1 for a tombstone; returns how many of these are left.

    A sweep deletes what there is; a batch of which nothing would be left is one of commits.
    """
    counters, settings, offset_keys = log.at, log.settings, log.offset_keys
    most = settings[Setting.TOMBSTONE_BATCHES]
    if most > 0 and not transactional and _random(counters) < most:
        left = 0
        for index in range(len(picked)):
            if offset_keys.committed[picked[index]] >= 0:
                picked[left] = picked[index]
                values[left] = -1
                left += 1
        if left > 0:
            return left
    for index in range(len(picked)):
        values[index] = (_random(counters) << 8) | (counters[At.BATCHES] & 0xFF)
        if settings[Setting.STEPS] > 0 and offset_keys.committed[picked[index]] >= 0:
            values[index] = offset_keys.committed[picked[index]] + 1 + _below(counters, settings[Setting.STEPS])
        if not transactional and _random(counters) < settings[Setting.TOMBSTONES]:
            values[index] = -1
        else:
            log.groups.touched[offset_keys.group[picked[index]]] = 1
    return len(picked)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def fill(out: Bytes, starts: Int64s, controls: Bytes, given: Given, log: Log) -> tuple[int, bool]:
    """Append batches to ``out`` until it is full, the log has its size, or a group batch is due that was not
    given. Returns the number of batches and whether the log is complete.

    ``starts`` takes the start of each batch and the end of the last, ``controls`` 1 for a marker. Batches of
    group records, which are ``given``, get their offset here.
    """
    counters, settings, offset_keys, open_ones = log.at, log.settings, log.offset_keys, log.transactions
    first_offset_key = log.groups.first_offset_key
    picked = np.empty(settings[Setting.LARGEST_BATCH], np.int64)
    values = np.empty(settings[Setting.LARGEST_BATCH], np.int64)
    room = HEADER_BYTES + settings[Setting.LARGEST_BATCH] * settings[Setting.RECORD_ROOM]
    batches = at = 0
    starts[0] = 0
    while batches + 1 < len(starts) and at + room <= len(out):
        now = settings[Setting.START_MS] + counters[At.BATCHES]
        complete = counters[At.BYTES] >= settings[Setting.TARGET_BYTES]
        ended = -1
        for row in range(counters[At.OPEN]):
            if complete or open_ones.due[row] <= counters[At.BATCHES]:
                ended = row
                break
        records = 1
        controls[batches] = ended >= 0
        start = at
        if ended >= 0:
            at = _end_transaction(out, at, ended, now, log)
        elif complete:
            return batches, True
        elif counters[At.DUE] > 0:
            taken = counters[At.GIVEN]
            if taken + 1 >= len(given.starts):
                break
            given_start, given_end = given.starts[taken], given.starts[taken + 1]
            group, effect = given.groups[taken], given.effects[taken]
            if effect == Effect.ENDS:
                tombstones = first_offset_key[group + 1] - first_offset_key[group] + ENDING_RECORDS
                if at + HEADER_BYTES + tombstones * settings[Setting.RECORD_ROOM] > len(out):
                    break
                at, records = _put_ending(out, at, group, given.data, given_start, given_end, now, log)
                log.groups.touched[group] = 0
            else:
                if at + given_end - given_start > len(out):
                    break
                at = _put_bytes(out, at, given.data, given_start, given_end)
                _put_integer(out, start, counters[At.OFFSET], 8)
                records = 1
                for index in range(4):
                    records += np.int64(out[start + 23 + index]) << (24 - 8 * index)
            log.groups.commits[group] = effect == Effect.COMMITS
            counters[At.GIVEN] += 1
            counters[At.DUE] -= 1
        else:
            records = _pick(log, picked)
            if records == 0:
                counters[At.DUE] += 1
                continue
            version = log.versions[_below(counters, len(log.versions))]
            transactional = _random(counters) < settings[Setting.TRANSACTIONAL]
            records = _pick_values(log, picked[:records], values, transactional)
            producer = -1
            if transactional:
                producer = 1000 + counters[At.PRODUCER] % settings[Setting.PRODUCERS]
                counters[At.PRODUCER] += 1
                row = counters[At.OPEN]
                counters[At.OPEN] += 1
                open_ones.due[row] = counters[At.BATCHES] + 1
                open_ones.due[row] += _below(counters, settings[Setting.TRANSACTION_BATCHES])
                open_ones.producer[row] = producer
                open_ones.outcome[row] = ABORT if _random(counters) < settings[Setting.ABORTED] else COMMIT
                open_ones.first_offset[row] = counters[At.OFFSET]
                open_ones.count[row] = records
                for index in range(records):
                    open_ones.offset_keys[row, index] = picked[index]
                    open_ones.values[row, index] = values[index]
            else:
                for index in range(records):
                    offset_keys.committed[picked[index]] = values[index]
                    offset_keys.written_at[picked[index]] = counters[At.OFFSET] + index
            at = _put_commits(out, at, picked[:records], values[:records], version, now, producer, log)
            if settings[Setting.GROUP_BATCHES] > 0:
                # The number of group batches between two commits has a geometric distribution.
                while _random(counters) < settings[Setting.GROUP_BATCHES]:
                    counters[At.DUE] += 1
            elif (counters[At.BATCHES] + 1) % settings[Setting.GROUPS_EVERY] == 0:
                counters[At.DUE] += 1
        counters[At.OFFSET] += records
        counters[At.BATCHES] += 1
        counters[At.BYTES] += at - start
        batches += 1
        starts[batches] = at
    return batches, False
