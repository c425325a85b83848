"""The fold of a segment: its whole effect on the state of its offsets partition, as columns.

A fold is computed from an empty prior state by the rules of the sequential replay, and carries the facts that splice it
behind earlier folds (``merge.partition``). Sequence numbers count the records of the segment; they order the events
inside one fold. Rows refer to groups and topics by position in :attr:`SegmentFold.groups` and
:attr:`SegmentFold.topics`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa

from coordinator_core.fold.arrow import schema
from coordinator_core.fold.rules import FoldRules
from coordinator_core.jsontext import parse_json
from coordinator_core.releases import MergeOffsetRule

FORMAT = 5
"""Version of the serialised form; readers refuse any other."""

NOT_VALUE, VALUE, TOMBSTONE = 0, 1, 2
"""``offset_keys.kind``: no event but in transactions that are aborted or still open; a value; a tombstone."""

NOTED, PENDING_VALUE, CLEARED = 0, 1, 2
"""``pending.kind``: an offset key that only counts as a key of its transaction; a value; nothing, not even what an
earlier segment left pending."""


@dataclass(frozen=True, slots=True)
class SegmentCounts:
    """Counts of a segment. ``commits`` are by (key type, value version; ``None`` for a tombstone)."""

    batches: int
    records: int
    control_records: int
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None
    codecs: dict[str, int]
    formats: dict[int, int]
    commits: dict[tuple[int, int | None], int]


_INT, _LONG, _BYTES, _BOOL = pa.int32(), pa.int64(), pa.large_binary(), pa.bool_()

_VALUE = {"record_offset": _LONG, "ordering_offset": _LONG, "value": _BYTES}
_PRODUCER = {"producer_id": _LONG, "producer_epoch": pa.int16()}

VALUES = schema(_PRODUCER, **_VALUE, **_PRODUCER)
"""A commit; ``value`` is the record's OffsetCommitValue, of a version that the rules read. Most are
superseded by those of later segments, so none is decoded before the merge. Zero or empty in rows that are not
values."""

OFFSET_KEYS = schema(
    _PRODUCER,
    group=_INT,
    topic=_INT,
    partition=_INT,
    kind=pa.int8(),
    sequence=_LONG,
    last_tombstone=_LONG,
    **_VALUE,
    **_PRODUCER,
)
"""Every offset key that the segment names, with its last event; ``last_tombstone`` is the sequence of the newest
tombstone that applied at once, -1 for none. Offsets of a committed transaction have the sequence of its marker."""

PENDING = schema(_PRODUCER, key=_INT, producer=_INT, kind=pa.int8(), open=_BOOL, **_VALUE, **_PRODUCER)
"""Offset keys in transactions that are open at the end of the segment (``open``), or that a producer's first end
marker closed, which may have begun in an earlier segment. ``key`` and ``producer`` are row numbers."""

PRODUCERS = schema(
    producer_id=_LONG,
    first_marker=_LONG,
    first_marker_offset=_LONG,
    first_marker_commits=_BOOL,
    open=_BOOL,
    producer_epoch=pa.int16(),
    first_record_offset=_LONG,
    last_record_offset=_LONG,
    timestamp_ms=_LONG,
)
"""Producers: the first end marker (its sequence, -1 for none) and, where ``open``, the open transaction."""

TRANSACTIONS = schema(
    **_PRODUCER,
    first_record_offset=_LONG,
    last_record_offset=_LONG,
    timestamp_ms=_LONG,
    end_marker_offset=_LONG,
    committed=_BOOL,
    keys=_LONG,
    first=_BOOL,
    groups=pa.large_list(pa.field("element", _INT, nullable=False)),
)
"""Transactions with records and end marker in this segment; one closed by its producer's ``first`` marker may
have begun earlier."""

GROUP_RECORDS = schema(
    ("key", "value", "group"),
    sequence=_LONG,
    record_offset=_LONG,
    key=_BYTES,
    value=_BYTES,
    timestamp_ms=_LONG,
    size_bytes=_LONG,
    group=_INT,
    control=_BOOL,
)
"""Records that are not commits, or not such that the rules let fold: carried whole, interpreted later.
``control`` marks records of control batches whose key is no control key."""

IMPLICIT_GROUP_CREATIONS = schema(sequence=_LONG, record_offset=_LONG, group=_INT)
"""The first commit of each group since the group's last record in ``group_records`` (only where commits create
groups: Java)."""

GROUP_STATS = schema(
    group=_INT,
    key_type=pa.int16(),
    records=_LONG,
    tombstones=_LONG,
    size_bytes=_LONG,
    first_timestamp_ms=_LONG,
    last_timestamp_ms=_LONG,
)
"""Records and bytes of each group by key type; sizes are those in (decompressed) batches."""


@dataclass(frozen=True)
class SegmentFold:
    """The fold of one segment, or of any whole batches that follow each other.

    Of segments that were folded together the last one has the effect of all; the others have no rows.
    ``first_offset`` is the first batch's base offset, ``None`` when there is no batch; ``next_offset`` is the
    one behind the last batch. ``stopped``: a loader gives up in this segment (``OnDamage.RECOVER``), so later
    segments are not part of the state.
    """

    path: str
    offsets_partition: int
    base_offset: int
    rules: FoldRules
    first_offset: int | None
    next_offset: int | None
    stopped: bool
    counts: SegmentCounts
    groups: pa.Array
    topics: pa.Array
    offset_keys: pa.Table
    pending: pa.Table
    producers: pa.Table
    transactions: pa.Table
    group_records: pa.Table
    implicit_group_creations: pa.Table
    group_stats: pa.Table

    @property
    def nbytes(self) -> int:
        """Size of the columns in bytes."""
        columns = (getattr(self, one.name) for one in fields(self))
        return sum(column.nbytes for column in columns if isinstance(column, pa.Array | pa.Table))

    @property
    def has_rows(self) -> bool:
        """Whether the fold has any effect but its counts."""
        return any(len(getattr(self, name)) for name in (*_NAMES, *_TABLES))

    def write_ipc(self, sink: pa.NativeFile, *, compression: str | None = None) -> None:
        """Write the fold as Arrow streams, one behind the other: the head in an empty one, then the parts, if there are
        any rows.

        ``compression`` is ``"lz4"``, ``"zstd"`` or none.
        """
        head = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in NO_ROWS}
        head |= {"rules": asdict(self.rules), "counts": _counts_to_json(self.counts), "has_rows": self.has_rows}
        metadata = {"regroup.fold.format": str(FORMAT), "regroup.fold": json.dumps(head)}
        _write_stream(sink, pa.schema([], metadata=metadata).empty_table())
        if not head["has_rows"]:
            return
        for name in _NAMES:
            _write_stream(sink, pa.table({name: getattr(self, name)}), compression)
        for name in _TABLES:
            _write_stream(sink, getattr(self, name), compression)

    @classmethod
    def read_ipc(cls, source: pa.NativeFile) -> SegmentFold:
        """The fold that :meth:`write_ipc` wrote; ``ValueError`` for anything else.

        Copies nothing out of memory or a mapped file, unless it is compressed.
        """
        fold = cls.read_ipc_lazily(source)
        try:
            return cls(**{field.name: getattr(fold, field.name) for field in fields(cls)})
        except (pa.ArrowException, KeyError, OSError) as error:
            raise ValueError(f"not a fold: {error}") from error

    @classmethod
    def read_ipc_lazily(cls, source: pa.NativeFile, **changed: Any) -> SegmentFold:
        """Like :meth:`read_ipc`, but reads columns when one is first asked for.

        ``changed`` replaces fields of the head.
        """
        try:
            metadata = _read_stream(source).schema.metadata or {}
            if metadata.get(b"regroup.fold.format") != str(FORMAT).encode():
                raise ValueError("not a fold of this version")
            head = parse_json(metadata[b"regroup.fold"])
        except (pa.ArrowException, KeyError, TypeError, OSError) as error:
            raise ValueError(f"not a fold: {error}") from error
        rules = head["rules"]
        rules["ordering_offset_rule"] = MergeOffsetRule(rules["ordering_offset_rule"])
        head["rules"] = FoldRules(**rules)
        head["counts"] = _counts_from_json(head["counts"])
        if not head.pop("has_rows"):
            return cls(**head | changed, **NO_ROWS)
        return _LazyFold(head | changed, source)

    def to_ipc(self) -> pa.Buffer:
        """The bytes that :meth:`write_ipc` writes."""
        sink = pa.BufferOutputStream()
        self.write_ipc(sink)
        return sink.getvalue()

    @classmethod
    def from_ipc(cls, data: bytes | memoryview | pa.Buffer) -> SegmentFold:
        """The fold of these bytes, which :meth:`to_ipc` made; ``ValueError`` for others."""
        return cls.read_ipc(pa.BufferReader(data))

    def __reduce__(self) -> tuple[Any, ...]:
        return SegmentFold.from_ipc, (self.to_ipc(),)


_NAMES = ("groups", "topics")
_TABLES = {
    "offset_keys": OFFSET_KEYS,
    "pending": PENDING,
    "producers": PRODUCERS,
    "transactions": TRANSACTIONS,
    "group_records": GROUP_RECORDS,
    "implicit_group_creations": IMPLICIT_GROUP_CREATIONS,
    "group_stats": GROUP_STATS,
}


NO_ROWS: Mapping[str, Any] = {
    **{name: pa.array([], pa.large_string()) for name in _NAMES},
    **{name: table.empty_table() for name, table in _TABLES.items()},
}
"""Columns of a fold that has no effect."""


class _LazyFold(SegmentFold):
    """A fold whose parts are read when one of them is first asked for."""

    def __init__(self, head: Mapping[str, Any], source: pa.NativeFile) -> None:
        self.__dict__.update(head, _source=source)

    def __getattr__(self, name: str) -> Any:
        if "_source" not in self.__dict__ or name not in (*_NAMES, *_TABLES):
            raise AttributeError(name)
        source = self.__dict__.pop("_source")
        for part in _NAMES:
            self.__dict__[part] = _read_stream(source).column(part).combine_chunks()
        for part in _TABLES:
            self.__dict__[part] = _read_stream(source)
        return self.__dict__[name]


def _write_stream(sink: pa.NativeFile, table: pa.Table, compression: str | None = None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)


def _read_stream(source: pa.NativeFile) -> pa.Table:
    with pa.ipc.open_stream(source) as reader:
        return reader.read_all()


def _counts_to_json(counts: SegmentCounts) -> dict[str, Any]:
    plain = {field.name: getattr(counts, field.name) for field in fields(counts)}
    plain["formats"] = list(counts.formats.items())
    plain["commits"] = [[*key, records] for key, records in counts.commits.items()]
    return plain


def _counts_from_json(plain: dict[str, Any]) -> SegmentCounts:
    formats = dict(plain.pop("formats"))
    commits = {(key_type, version): records for key_type, version, records in plain.pop("commits")}
    return SegmentCounts(**plain, formats=formats, commits=commits)
