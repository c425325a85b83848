"""The working tables of a fold: plain arrays that the kernels fill and Python grows.

A table is a two-dimensional int64 array, one row an entry, the columns numbered by the enumerations below.
How many rows are used is in :class:`State`. Bytes of keys are copied to ``keys``; bytes of values stay where
they were read and are named by position: in a segment when below ``ARENA``, else in the arena that holds
decompressed and rewritten batches.
"""

from __future__ import annotations

import threading
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coordinator_core.columnar import types

Int = Any
"""A number in compiled code: int64 there, ``int`` outside."""

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

SEGMENT = 1 << 40
"""Added to positions in a segment for each that was folded before it."""
ARENA = 1 << 56
"""Added to positions in the arena, to tell them from positions in segments."""


class State(IntEnum):
    """Positions in ``Tables.state``: counters of the fold and sizes of its tables."""

    SEQUENCE = 0
    """Records folded so far, control records included: the time axis of the fold."""
    NEXT_OFFSET = 1
    SLOTS = 2
    GROUPS = 3
    TOPICS = 4
    PRODUCERS = 5
    PENDING = 6
    PENDING_FREE = 7
    """First free row of ``pending`` (chained by ``Pending.NEXT_SLOT``), -1 for none."""
    OTHERS = 8
    TOUCHES = 9
    FRAGMENTS = 10
    FRAGMENT_GROUPS = 11
    KEY_BYTES = 12
    STAMP = 13
    MALFORMED_UTF8 = 14
    """Set when a name is not UTF-8, or holds U+FFFD: several keys may mean one slot."""
    BATCHES = 15
    CONTROL_RECORDS = 16
    MIN_TIMESTAMP = 17
    MAX_TIMESTAMP = 18
    POSITION = 19
    """Where :func:`~coordinator_core.columnar.kernels.walk` stopped."""
    NEED_RECORDS = 20
    NEED_BYTES = 21
    NEED_GROUPS = 22
    FIRST_OFFSET = 23
    CODECS = 24
    """Batches by codec id, eight counters."""
    COMMITS = 32
    """Records by key type (0, 1) and value version (-1 for a tombstone, 0 to 4): twice six counters."""
    LUCK = 44
    """How often slots follow each other as they did the time before: above 0 for mostly."""
    SEGMENT_SEQUENCE = 45
    """``SEQUENCE`` at the beginning of the segment at hand."""
    SIZE = 46


class Rules(IntEnum):
    """Positions in ``Tables.rules``."""

    PENDING_BY_PRODUCER = 0
    """Java: a producer id makes a commit pending, all control records count, tombstones apply at once."""
    TOMBSTONE_DROPS_PENDING = 1
    MERGE_OFFSET = 2
    MAX_LEGACY_VERSION = 3
    MAX_VERSION = 4
    CHECK_UTF8 = 5
    MAX_BATCH_BYTES = 6
    LAST_OFFSET = 7
    """The last record offset that belongs to the segment."""
    START_OFFSET = 8
    """Batches wholly below it are not part of the log."""
    MAX_RECORDS = 9
    CHECK_CRC = 10
    SIZE = 11


class MergeOffset(IntEnum):
    """``MergeOffsetRule`` as a number."""

    RECORD = 0
    BATCH_FIRST_RECORD = 1
    BATCH_HEADER = 2
    NONE = 3


class Kind(IntEnum):
    """What a record is to the fold."""

    VALUE = 0
    TOMBSTONE = 1
    OTHER = 2
    CONTROL = 3


class Split(IntEnum):
    """Columns of ``scratch``: the records of one batch."""

    OFFSET = 0
    TIMESTAMP = 1
    KIND = 2
    DETAIL = 3
    """Value version of a commit, type of a control record."""
    KEY_TYPE = 4
    KEY = 5
    KEY_BYTES = 6
    """-1 for a null key."""
    BODY = 7
    """Of a commit: group, topic and partition as in the key. Otherwise the group id with its int16 length."""
    BODY_BYTES = 8
    VALUE = 9
    VALUE_BYTES = 10
    """-1 for a null value."""
    SIZE_BYTES = 11
    """What the record takes in its batch, its own length field included."""
    FOLLOWS = 12
    """How many records precede it in its batch."""
    HASH = 13
    """Of the body of a commit, -1 where it is not needed so far."""
    SLOT = 14
    """Row of the slot of a commit, of the group of another record."""
    BATCH_RECORDS = 15
    """Of the first record of a batch: how many it has."""
    WIDTH = 16


class Interned(IntEnum):
    """The first columns of every table that is found by bytes."""

    HASH = 0
    BODY = 1
    BODY_BYTES = 2


class SlotRow(IntEnum):
    """Columns of ``slots`` from the fourth on: what is seldom looked at."""

    LAST_TOMBSTONE = 3
    """Sequence, -1 for none."""
    PRODUCER_ID = 4
    """Of an event that a transaction committed."""
    WIDTH = 5


class EventRow(IntEnum):
    """Columns of ``events``: the last event of each slot, in one cache line, and what finds it again."""

    NAMES = 0
    """Row of the group in the upper half, row of the topic in the lower."""
    LINK = 1
    """Partition in the upper half. In the lower one more than the row of the slot that followed in the batch
    that this one was last seen in, 0 for none."""
    PENDING = 2
    """First pending row of the slot, -1 for none."""
    FLAGS = 3
    """See :class:`EventFlags`."""
    SEQUENCE = 4
    VALUE = 5
    RECORD_OFFSET = 6
    MERGE_OFFSET = 7
    WIDTH = 8


class Flags(IntEnum):
    """What ``EventRow.FLAGS`` is made of: bit 0 is the key type."""

    COMMITTED = 2
    """Set when a transaction committed the event; its producer epoch is in 16 bits."""
    KIND_SHIFT = 2
    """Two bits: :class:`SlotKind`."""
    EPOCH_SHIFT = 16
    VALUE_BYTES_SHIFT = 32


class SlotKind(IntEnum):
    """The last event of a slot."""

    NONE = 0
    VALUE = 1
    TOMBSTONE = 2


class GroupRow(IntEnum):
    """Columns of ``groups``. The statistics come twice, for key types 0 and 1."""

    TOUCHED = 3
    STAMP = 4
    STATISTICS = 5
    WIDTH = 16


class Statistic(IntEnum):
    """Statistics of a group's commits of one key type."""

    RECORDS = 0
    TOMBSTONES = 1
    SIZE_BYTES = 2
    FIRST_TIMESTAMP = 3
    LAST_TIMESTAMP = 4
    WIDTH = 5


class ProducerRow(IntEnum):
    """Columns of ``producers``. ``TRANSACTION_*`` describe the open transaction, if ``OPEN``."""

    PRODUCER_ID = 0
    FIRST_MARKER = 1
    """Sequence of the producer's first end marker, -1 for none."""
    FIRST_MARKER_OFFSET = 2
    FIRST_MARKER_COMMITS = 3
    PENDING = 4
    OPEN = 5
    EPOCH = 6
    FIRST_OFFSET = 7
    LAST_OFFSET = 8
    TIMESTAMP = 9
    KEYS = 10
    WIDTH = 12


class PendingRow(IntEnum):
    """Columns of ``pending``: a slot in a producer's transaction."""

    SLOT = 0
    PRODUCER = 1
    KIND = 2
    PHASE = 3
    SEQUENCE = 4
    VALUE = 5
    VALUE_BYTES = 6
    FLAGS = 7
    RECORD_OFFSET = 8
    MERGE_OFFSET = 9
    PRODUCER_EPOCH = 10
    NEXT_SLOT = 11
    """Next row of the same slot."""
    PREVIOUS_SLOT = 12
    NEXT_PRODUCER = 13
    """Next row of the same producer."""
    WIDTH = 14


class PendingKind(IntEnum):
    """What a transaction holds for a slot."""

    NOTED = 0
    """A tombstone that changed nothing pending: it only counts as one of the transaction's keys."""
    VALUE = 1
    CLEARED = 2
    """A tombstone removed what was pending, of this segment and of earlier ones."""


class Phase(IntEnum):
    """Life of a pending row."""

    FREE = 0
    OPEN = 1
    CLOSED = 2
    """Closed by the producer's first end marker, which may close rows of earlier segments too."""


class OtherRow(IntEnum):
    """Columns of ``others``: records that are kept whole, also control records without a control key."""

    SEQUENCE = 0
    RECORD_OFFSET = 1
    KEY = 2
    KEY_BYTES = 3
    VALUE = 4
    VALUE_BYTES = 5
    TIMESTAMP = 6
    SIZE_BYTES = 7
    GROUP = 8
    KEY_TYPE = 9
    """``NO_KEY_TYPE`` when the key has none, ``CONTROL_KEY`` in a control batch."""
    WIDTH = 10


NO_KEY_TYPE = -(1 << 15) - 1
CONTROL_KEY = -(1 << 15) - 2
"""Not int16s."""


class TouchRow(IntEnum):
    """Columns of ``touches``."""

    SEQUENCE = 0
    RECORD_OFFSET = 1
    GROUP = 2
    WIDTH = 4


class FragmentRow(IntEnum):
    """Columns of ``fragments``: transactions that an end marker of this segment closed."""

    PRODUCER_ID = 0
    PRODUCER_EPOCH = 1
    FIRST_OFFSET = 2
    LAST_OFFSET = 3
    TIMESTAMP = 4
    MARKER_OFFSET = 5
    COMMITTED = 6
    KEYS = 7
    FIRST = 8
    """Closed by the producer's first end marker: the transaction may have begun in an earlier segment."""
    WIDTH = 10


class FragmentGroupRow(IntEnum):
    """Columns of ``fragment_groups``."""

    FRAGMENT = 0
    GROUP = 1
    WIDTH = 2


class Tables(NamedTuple):
    """All arrays that a kernel works on."""

    state: Int64s
    rules: Int64s
    scratch: Int64s
    keys: Bytes
    slot_index: Int64s
    slots: Int64s
    events: Int64s
    group_index: Int64s
    groups: Int64s
    topic_index: Int64s
    topics: Int64s
    producer_index: Int64s
    producers: Int64s
    pending: Int64s
    others: Int64s
    touches: Int64s
    fragments: Int64s
    fragment_groups: Int64s


_VECTORS = {"state", "rules", "slot_index", "group_index", "topic_index", "producer_index"}
_VECTOR_TYPE = types.Array(types.int64, 1)
_TABLE_TYPE = types.Array(types.int64, 2)
MUTABLE_BYTES_TYPE = types.Array(types.uint8, 1)
BYTES_TYPE = types.Array(types.uint8, 1, readonly=True)
"""Read-only, so that a mapped file is accepted as well as an own array."""


def _field_type(field: str) -> types.Array:
    if field == "keys":
        return MUTABLE_BYTES_TYPE
    return _VECTOR_TYPE if field in _VECTORS else _TABLE_TYPE


TABLES_TYPE = types.NamedTuple(tuple(_field_type(field) for field in Tables._fields), Tables)

_ROWS: dict[str, tuple[int, State]] = {
    "slots": (SlotRow.WIDTH, State.SLOTS),
    "events": (EventRow.WIDTH, State.SLOTS),
    "groups": (GroupRow.WIDTH, State.GROUPS),
    "topics": (4, State.TOPICS),
    "producers": (ProducerRow.WIDTH, State.PRODUCERS),
    "pending": (PendingRow.WIDTH, State.PENDING),
    "others": (OtherRow.WIDTH, State.OTHERS),
    "touches": (TouchRow.WIDTH, State.TOUCHES),
    "fragments": (FragmentRow.WIDTH, State.FRAGMENTS),
    "fragment_groups": (FragmentGroupRow.WIDTH, State.FRAGMENT_GROUPS),
}
_INDEX_OF = {
    "slots": "slot_index",
    "groups": "group_index",
    "topics": "topic_index",
    "producers": "producer_index",
}

_FIRST_ROWS = 64
_FIRST_SCRATCH_ROWS = 256
_FIRST_KEY_BYTES = 4096
_RESERVED = {"slots": 128, "events": 128, "groups": 1024, "topics": 1024}
"""For so many bytes of a segment there is a row from the start. Rows that are not used take no memory."""
_RESERVED_KEYS = 2
_CACHE_LINE_BYTES = 64


_MOST_SPARE_BYTES = 1 << 29

_spare = threading.local()


def new_tables(rules: Int64s, size: int = 0) -> Tables:
    """Empty tables for a segment of ``size`` bytes, in the memory of those that the thread gave up last."""
    state = np.zeros(State.SIZE, np.int64)
    state[State.PENDING_FREE] = -1
    begin_counting(state)
    spare: Tables | None = getattr(_spare, "tables", None)
    if spare is not None and len(spare.keys) >= size // _RESERVED_KEYS:
        _spare.tables = None
        for index in _INDEX_OF.values():
            getattr(spare, index).fill(0)
        return spare._replace(state=state, rules=rules)
    arrays: dict[str, Any] = {
        "state": state,
        "rules": rules,
        "scratch": _rows(_FIRST_SCRATCH_ROWS, Split.WIDTH),
        "keys": np.empty(max(_FIRST_KEY_BYTES, size // _RESERVED_KEYS), np.uint8),
    }
    for name, (width, _) in _ROWS.items():
        reserved = size // _RESERVED[name] if name in _RESERVED else 0
        arrays[name] = _rows(max(_FIRST_ROWS, reserved), width)
    for index in _INDEX_OF.values():
        arrays[index] = np.zeros(2 * _FIRST_ROWS, np.int64)
    return Tables(**arrays)


def begin_counting(state: Int64s) -> None:
    """Set what ``state`` counts of a single segment to nothing."""
    state[State.SEGMENT_SEQUENCE] = state[State.SEQUENCE]
    state[State.NEXT_OFFSET] = np.iinfo(np.int64).min
    state[State.FIRST_OFFSET] = -1
    state[State.MIN_TIMESTAMP] = np.iinfo(np.int64).max
    state[State.MAX_TIMESTAMP] = -1
    state[State.BATCHES] = state[State.CONTROL_RECORDS] = 0
    state[State.CODECS : State.LUCK] = 0


def give_up(tables: Tables) -> None:
    """Leave the memory of ``tables``, which must not be used any more, to the thread's next ones.

    Segments come in one size, and fresh memory costs a fold more than its own work on it.
    """
    if sum(array.nbytes for array in tables) <= _MOST_SPARE_BYTES:
        _spare.tables = tables


def grown(tables: Tables) -> tuple[Tables, list[str]]:
    """Tables with room for what the kernel asked for, and the names of those whose index is to be rebuilt."""
    state = tables.state
    records, key_bytes = int(state[State.NEED_RECORDS]), int(state[State.NEED_BYTES])
    changed: dict[str, Any] = {}
    if records > len(tables.scratch):
        changed["scratch"] = _rows(max(records, 2 * len(tables.scratch)), Split.WIDTH)
    used = int(state[State.KEY_BYTES])
    if used + key_bytes > len(tables.keys):
        changed["keys"] = np.empty(max(used + key_bytes, 2 * len(tables.keys)), np.uint8)
        changed["keys"][:used] = tables.keys[:used]
    rebuilt = []
    for name, (width, counter) in _ROWS.items():
        table: Int64s = getattr(tables, name)
        used = int(state[counter])
        need = used + (int(state[State.NEED_GROUPS]) if name == "fragment_groups" else records)
        if need > len(table):
            changed[name] = _rows(max(need, 2 * len(table)), width)
            changed[name][:used] = table[:used]
        if name in _INDEX_OF and 2 * need > len(index_of(tables, name)):
            changed[_INDEX_OF[name]] = np.zeros(4 * _power_of_two(need), np.int64)
            rebuilt.append(name)
    return tables._replace(**changed), rebuilt


def _rows(count: int, width: int) -> Int64s:
    """An uninitialised table that begins with a cache line."""
    words = np.empty(count * width + _CACHE_LINE_BYTES // 8, np.int64)
    first = -words.ctypes.data % _CACHE_LINE_BYTES // 8
    return words[first : first + count * width].reshape(count, width)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def index_of(tables: Tables, name: str) -> Int64s:
    """The hash index of table ``name``."""
    index: Int64s = getattr(tables, _INDEX_OF[name])
    return index


def used_rows(tables: Tables, name: str) -> Int64s:
    """The rows of table ``name`` that are in use."""
    table: Int64s = getattr(tables, name)
    return table[: tables.state[_ROWS[name][1]]]
