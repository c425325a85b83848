"""State of an offsets partition after the merge of its folds, as columns where it may be large."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.fold.arrow import list_of, schema
from coordinator_core.groups.model import (
    CarriedRecord,
    CommittedOffset,
    Group,
    LoadFailure,
    OffsetKey,
    PartitionState,
    Transaction,
    TransactionOutcome,
)
from coordinator_core.merge.packed import LongTexts, digest_of
from coordinator_core.merge.values import inverse

BLOCK_ROWS = 1 << 20
"""Rows that are handled at once; results of a partition never depend on it."""

_TEXT, _INT, _LONG, _SHORT = pa.string(), pa.int32(), pa.int64(), pa.int16()

OFFSETS = schema(
    ("leader_epoch", "expire_timestamp_ms", "topic_id", "producer_id", "producer_epoch"),
    group_id=_TEXT,
    topic=_TEXT,
    partition=_INT,
    record_offset=_LONG,
    ordering_offset=_LONG,
    value_version=_SHORT,
    committed_offset=_LONG,
    leader_epoch=_INT,
    metadata=_TEXT,
    commit_timestamp_ms=_LONG,
    expire_timestamp_ms=_LONG,
    topic_id=_TEXT,
    producer_id=_LONG,
    producer_epoch=_SHORT,
)
"""Columns of :attr:`MergedPartition.offsets` and ``pending``: offset key and fields of ``CommittedOffset``."""

TRANSACTIONS = schema(
    ("end_marker_offset",),
    producer_id=_LONG,
    producer_epoch=_SHORT,
    first_record_offset=_LONG,
    last_record_offset=_LONG,
    outcome=_TEXT,
    end_marker_offset=_LONG,
    groups=list_of(_TEXT),
    keys=_LONG,
    timestamp_ms=_LONG,
)
"""Columns of :attr:`MergedPartition.transactions`: the fields of ``Transaction``."""

END_PLACE = pa.field("end_place", pa.int64(), nullable=False)
"""Column that transactions of a shard have in addition: twice the number of the fold with the end marker, plus 1 where
that is not the producer's first in the fold; :data:`STILL_OPEN` for open ones. With the producer it names a transaction
that shards may share, also where record offsets repeat (:attr:`~log.reader.OnDamage.RECOVER`)."""
STILL_OPEN = (1 << 63) - 2
"""Even, as of all transactions that shards may share."""

GROUP_STATS = schema(
    group_id=_TEXT,
    key_type=_SHORT,
    records=_LONG,
    tombstones=_LONG,
    size_bytes=_LONG,
    first_timestamp_ms=_LONG,
    last_timestamp_ms=_LONG,
)
"""Columns of :attr:`MergedPartition.group_stats`: records and bytes of each group in the log."""

_STATE_ROWS = 1 << 12
"""Rows of which objects are made at once."""

_SHOWN_METADATA = 64
"""Longer metadata are left out of states without whole metadata."""


def with_dictionaries(columns: Sequence[str]) -> pa.Schema:
    """These ``columns`` of :data:`OFFSETS`; group ids and topics, which come often, are dictionaries."""
    names = pa.dictionary(pa.int32(), _TEXT)
    fields = map(OFFSETS.field, columns)
    return pa.schema(field.with_type(names) if field.name in ("group_id", "topic") else field for field in fields)


class RowBlocks(Protocol):
    """Rows that are made when they are asked for, so that they need not be in memory at once."""

    @property
    def num_rows(self) -> int: ...

    def blocks(self, block_rows: int = BLOCK_ROWS) -> Iterator[pa.Table]:
        """The rows in order, ``block_rows`` in a table, or fewer: in the last one, and where they are large."""


class OffsetRows(RowBlocks, Protocol):
    """Rows with the columns :data:`OFFSETS`, of which some may be asked for where their order does not matter."""

    def in_any_order(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """All rows, with these ``columns``, as :func:`with_dictionaries` has them; some at a time."""


class NoRows:
    """:class:`OffsetRows` without any."""

    num_rows = 0

    def blocks(self, block_rows: int = 0) -> Iterator[pa.Table]:
        return iter(())

    def in_any_order(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        return iter(())


@dataclass
class MergedPartition:
    """State of one offsets partition.

    ``offsets`` are the committed offsets, by record offset (then group, topic, partition), ``pending`` those
    of open transactions. ``transactions`` is in the order of first record offsets. ``tell_groups`` makes
    ``groups``, when they are first asked for. The rest is as in :class:`PartitionState`.
    """

    offsets_partition: int
    offsets: OffsetRows
    pending: pa.Table
    transactions: pa.Table
    group_stats: pa.Table
    tell_groups: Callable[[], dict[str, Group]]
    load_failures: list[LoadFailure] = field(default_factory=list)
    carried: list[CarriedRecord] = field(default_factory=list)
    record_counts: dict[tuple[int, int | None], int] = field(default_factory=dict)
    record_bytes: int = 0
    """Names and group records."""

    @cached_property
    def groups(self) -> dict[str, Group]:
        return self.tell_groups()

    def without_offsets(self) -> PartitionState:
        """The same as Python objects but for the committed offsets."""
        return replace(self, offsets=NoRows()).to_state(whole_metadata=False)

    def open_transactions(self) -> list[Transaction]:
        """Transactions without an end marker, in the order of first record offsets."""
        is_open = pc.equal(self.transactions["outcome"], TransactionOutcome.OPEN.value)
        return [_transaction(row) for row in self.transactions.filter(is_open).to_pylist()]

    def to_state(self, *, whole_metadata: bool = True, long_texts: LongTexts | None = None) -> PartitionState:
        """The same as Python objects, one for every offset.

        Without ``whole_metadata`` a digest stands for metadata of more than a few characters: for callers that compare
        them, or do not look at them. ``long_texts`` is given the texts of such digests.
        """
        told = partial(_committed_offsets, texts=_Texts(whole_metadata, long_texts))
        pending: dict[int, dict[OffsetKey, CommittedOffset]] = {}
        for batch in self.pending.to_batches(max_chunksize=_STATE_ROWS):
            for offset_key, offset in told(batch):
                assert offset.producer_id is not None
                pending.setdefault(offset.producer_id, {})[offset_key] = offset
        return PartitionState(
            offsets_partition=self.offsets_partition,
            groups=self.groups,
            offsets=dict(pair for block in self.offsets.blocks(_STATE_ROWS) for pair in told(block)),
            pending=pending,
            transactions=[_transaction(row) for row in self.transactions.to_pylist()],
            load_failures=self.load_failures,
            carried=self.carried,
            record_counts=self.record_counts,
        )


class _Texts:
    """Text of offset keys and metadata, the same object wherever it is the same."""

    def __init__(self, whole_metadata: bool, long_texts: LongTexts | None) -> None:
        self._whole_metadata = whole_metadata
        self._long_texts = long_texts
        self._known: dict[str, str] = {}

    def of(self, name: str, values: Any) -> Any:
        """The values of a column as Python objects."""
        if name == "metadata" and not self._whole_metadata:
            values = without_long_texts(values, self._long_texts)
        found = values.to_pylist()
        return [self._known.setdefault(text, text) for text in found] if name in _REPEATED else found


_REPEATED = frozenset(("group_id", "topic", "metadata", "topic_id"))


def without_long_texts(texts: pa.ChunkedArray | pa.Array, long_texts: LongTexts | None = None) -> pa.Array:
    """``texts`` with the SHA-256 of those that are longer than a few characters in their place.

    A digest is longer than a few characters itself, so no text is taken for one. ``long_texts`` is given the texts;
    ``ValueError`` for one that is no UTF-8.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    is_long = pc.greater(pc.binary_length(texts), _SHOWN_METADATA)
    # As Python's text they may take four times their bytes.
    found = texts.filter(is_long)
    digests = [digest_of(text) for text in found]
    if not digests:
        return texts
    if long_texts is not None:
        for digest, text in zip(digests, found, strict=True):
            long_texts.add(digest, text.as_py())
    # Replaced in place, they would leave a buffer as large as it was.
    order = np.argsort(is_long.to_numpy(zero_copy_only=False), kind="stable")
    found = pa.concat_arrays([texts.filter(pc.invert(is_long)), pa.array(digests, texts.type)])
    return found.take(pa.array(inverse(order)))


def _committed_offsets(table: pa.Table | pa.RecordBatch, texts: _Texts) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
    lists = {name: texts.of(name, table[name]) for name in OFFSETS.names}
    offset_keys = zip(lists.pop("group_id"), lists.pop("topic"), lists.pop("partition"), strict=True)
    for offset_key, *values in zip(offset_keys, *lists.values(), strict=True):
        yield OffsetKey(*offset_key), CommittedOffset(**dict(zip(lists, values, strict=True)))


def _transaction(row: dict[str, Any]) -> Transaction:
    return Transaction(**row | {"outcome": TransactionOutcome(row["outcome"]), "groups": tuple(row["groups"])})
