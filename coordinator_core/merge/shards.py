"""An offsets partition merged in several places at once, each with a share of the offset keys.

For a partition too large for one task. The three steps, and what each has in memory:

1. some segments a task: ``shard_folds(fold, shards)`` gives a fold for each shard;
2. one task a shard: ``merge_shard(folds, profile, offsets_partition)`` (in :mod:`~merge.partition`) of the
   shard's folds in log order, and ``.stored(path)`` of the result: files, and their names as an answer;
3. one task a partition: ``combine_shards([each.read(profile) for each in stored])``, in the order of the shards, is
   the :class:`MergedPartition` that a merge of the whole folds would have given. Its offsets are read from the
   stored files block by block.

An offset key belongs to one shard, by hash, and so does a group, with its records and statistics. Data of
neither (records of no group, counts, transactions that lie in one segment) are in shard 0; producers and their
markers are in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core import storage
from coordinator_core.fold.arrow import column
from coordinator_core.fold.schema import SegmentCounts, SegmentFold
from coordinator_core.groups.model import CarriedRecord, Group, LoadFailure
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.merge.group_replay import GroupReplay
from coordinator_core.merge.packed import BLOCK_BYTES
from coordinator_core.merge.plain import read_plain, write_plain
from coordinator_core.merge.schema import (
    BLOCK_ROWS,
    OFFSETS,
    TRANSACTIONS,
    MergedPartition,
    OffsetRows,
    with_dictionaries,
)
from coordinator_core.merge.transactions import transaction_order
from coordinator_core.releases import Profile

T = TypeVar("T", LoadFailure, CarriedRecord)

_STORED_ROWS = 1 << 16
"""Rows of a stored shard that are written, and read, at once."""


@dataclass
class MergedShard:
    """State of a share of the offset keys of one offsets partition."""

    offsets_partition: int
    offsets: OffsetRows
    pending: pa.Table
    transactions: pa.Table
    group_stats: pa.Table
    groups_with_offsets: list[str]
    replay: GroupReplay
    record_bytes: int = 0

    def stored(self, path: str, columns: Sequence[str] | None = None) -> StoredShard:
        """Store the shard in two files: offsets at ``path`` (a path or URI), the rest beside it.

        With ``columns``, offsets have these alone, in any order: :meth:`OffsetRows.in_any_order` is all that can be
        asked of them.
        """
        stored = StoredShard(self.offsets_partition, store_rows(self.offsets, path, columns))
        rest = {name: getattr(self, name) for name in _REST} | {"replay": self.replay.ended_state()}
        with storage.output_file(stored.rest_path) as sink:
            write_plain(rest, sink)
        return stored


_REST = ("pending", "transactions", "group_stats", "groups_with_offsets")


@dataclass(frozen=True)
class StoredShard:
    """A :class:`MergedShard` in files."""

    offsets_partition: int
    offsets: StoredRows

    @property
    def rest_path(self) -> str:
        parent, name = storage.split(self.offsets.path)
        return storage.join(parent, f"{name}.rest")

    def read(self, profile: Profile) -> MergedShard:
        """The shard; its offsets stay in their file. ``profile`` is that of the merge."""
        with storage.input_file(self.rest_path) as source:
            rest = read_plain(source.read_buffer())
        replay = GroupReplay(profile)
        replay.load_ended(rest.pop("replay"))
        return MergedShard(self.offsets_partition, self.offsets, replay=replay, **rest)


@dataclass(frozen=True)
class StoredRows:
    """Rows (``merge.schema.OffsetRows``) in a file, an Arrow stream."""

    path: str
    num_rows: int

    def blocks(self, block_rows: int = BLOCK_ROWS) -> Iterator[pa.Table]:
        return _blocks_of(self.pieces(), block_rows)

    def in_any_order(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        # Of whole rows texts are no dictionaries in the file.
        schema = with_dictionaries(columns)
        return (piece.select(columns).cast(schema) for piece in self.pieces())

    def pieces(self) -> Iterator[pa.Table]:
        """The rows in order, as they were written."""
        system, inner = storage.filesystem(self.path)
        with system.open_input_stream(inner) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])


def store_rows(rows: OffsetRows, path: str, columns: Sequence[str] | None = None) -> StoredRows:
    """Write ``rows`` to a file at ``path``: in order, or these ``columns`` in any order."""
    schema = OFFSETS if columns is None else with_dictionaries(columns)
    blocks = rows.blocks(_STORED_ROWS) if columns is None else rows.in_any_order(columns)
    with storage.output_file(path) as sink, pa.ipc.new_stream(sink, schema) as writer:
        for block in blocks:
            writer.write_table(block)
    return StoredRows(path, rows.num_rows)


class CombinedRows:
    """Rows (``merge.schema.OffsetRows``) of several shards, merged while they are read."""

    def __init__(self, shards: Sequence[OffsetRows]) -> None:
        self._shards = shards

    @property
    def num_rows(self) -> int:
        return sum(shard.num_rows for shard in self._shards)

    def blocks(self, block_rows: int = BLOCK_ROWS) -> Iterator[pa.Table]:
        return _blocks_of(self._pieces(), block_rows)

    def in_any_order(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        return chain.from_iterable(shard.in_any_order(columns) for shard in self._shards)

    def _pieces(self) -> Iterator[pa.Table]:
        """Rows in order. Of a shard that has more rows, one is always held back, to compare the others with."""
        readers = [shard.blocks(_STORED_ROWS) for shard in self._shards]
        held = [OFFSETS.empty_table() for _ in readers]
        unread = hungry = set(range(len(readers)))
        while True:
            for shard in hungry:
                piece = next(readers[shard], None)
                if piece is None:
                    unread = unread - {shard}
                else:
                    held[shard] = pa.concat_tables([held[shard], piece])
            if not unread:
                yield _in_order(held)
                return
            last = {shard: held[shard]["record_offset"][-1].as_py() for shard in unread}
            bound = min(last.values())
            sizes = [int(np.searchsorted(rows["record_offset"].to_numpy(), bound)) for rows in held]
            yield _in_order([rows.slice(0, size) for rows, size in zip(held, sizes, strict=True)])
            held = [rows.slice(size) for rows, size in zip(held, sizes, strict=True)]
            hungry = {shard for shard, offset in last.items() if offset == bound}


def _in_order(parts: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(parts)
    offsets = rows["record_offset"].to_numpy()
    order = np.argsort(offsets, kind="stable")
    if (np.diff(offsets[order]) == 0).any():
        keys = ("record_offset", "group_id", "topic", "partition")
        order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in keys]).to_numpy()
    return rows.take(column(order.astype(np.int64)))


def _blocks_of(pieces: Iterator[pa.Table], block_rows: int) -> Iterator[pa.Table]:
    """``pieces`` cut anew, into tables of ``block_rows``, or fewer: in the last one, and where they are large."""
    held: list[pa.Table] = []
    rows = size = 0
    for piece in pieces:
        while rows + piece.num_rows >= block_rows:
            taken = block_rows - rows
            yield pa.concat_tables([*held, piece.slice(0, taken)])
            piece = piece.slice(taken)
            held, rows, size = [], 0, 0
        held.append(piece)
        rows += piece.num_rows
        size += piece.nbytes
        if size >= BLOCK_BYTES:
            yield pa.concat_tables(held)
            held, rows, size = [], 0, 0
    if rows:
        yield pa.concat_tables(held)


def shard_folds(fold: SegmentFold, shards: int) -> list[SegmentFold]:
    """Parts of ``fold``, one a shard (see the module); each has the names of all groups and topics."""
    shard_of = _shard_of_offset_keys(fold, shards)
    groups = fold.groups.cast(pa.large_binary()).to_pylist()
    shard_of_group = np.array([_shard_of_group(name, shards) for name in groups], np.int64)
    return [_part(fold, shard_of, shard_of_group, shard) for shard in range(shards)]


def _shard_of_group(name: bytes, shards: int) -> int:
    return crc32(name) % shards


def _shard_of_offset_keys(fold: SegmentFold, shards: int) -> Int64s:
    """By names and partition, the same in every fold and on every machine."""
    groups, topics = (
        np.array([crc32(name) for name in names.cast(pa.large_binary()).to_pylist()], np.uint64)
        for names in (fold.groups, fold.topics)
    )
    mixed = groups[fold.offset_keys["group"].to_numpy()] << np.uint64(32)
    mixed |= topics[fold.offset_keys["topic"].to_numpy()]
    mixed += fold.offset_keys["partition"].to_numpy().astype(np.uint64)
    for multiplier in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9):
        mixed *= np.uint64(multiplier)
        mixed ^= mixed >> np.uint64(32)
    shard_of: Int64s = (mixed % np.uint64(shards)).astype(np.int64)
    return shard_of


def _part(fold: SegmentFold, shard_of: Int64s, shard_of_group: Int64s, shard: int) -> SegmentFold:
    own = shard_of == shard
    row_of = np.cumsum(own) - 1
    offset_key_of_pending = fold.pending["key"].to_numpy()
    own_pending = own[offset_key_of_pending]
    pending = fold.pending.filter(column(own_pending)).set_column(
        0, fold.pending.schema.field(0), column(row_of[offset_key_of_pending[own_pending]].astype(np.int32))
    )

    def of_groups(table: pa.Table) -> pa.Table:
        rows = np.zeros(table.num_rows, np.int64)  # rows without a group are in shard 0
        has_group = table["group"].is_valid().to_numpy()
        rows[has_group] = shard_of_group[table["group"].drop_null().to_numpy()]
        return table.filter(column(rows == shard))

    part = replace(
        fold,
        offset_keys=fold.offset_keys.filter(column(own)),
        pending=pending,
        group_records=of_groups(fold.group_records),
        implicit_group_creations=of_groups(fold.implicit_group_creations),
        group_stats=of_groups(fold.group_stats),
    )
    if shard == 0:
        return part
    # A transaction that lies whole in one segment has no keys here, and is left out when the shards are combined.
    first = fold.transactions.filter(fold.transactions["first"])
    keys = first.schema.get_field_index("keys")
    return replace(
        part,
        counts=SegmentCounts(0, 0, 0, None, None, {}, {}, {}),
        transactions=first.set_column(keys, first.schema.field(keys), column(np.zeros(first.num_rows, np.int64))),
    )


def combine_shards(shards: Sequence[MergedShard]) -> MergedPartition:
    """The state of the partition that these ``shards``, all of them in their order, are parts of."""
    main = shards[0]
    replays = [shard.replay for shard in shards]
    record_counts: Counter[tuple[int, int | None]] = Counter()
    for replay in replays:
        record_counts.update(replay.record_counts)
    return MergedPartition(
        offsets_partition=main.offsets_partition,
        offsets=main.offsets if len(shards) == 1 else CombinedRows([shard.offsets for shard in shards]),
        pending=main.pending if len(shards) == 1 else _in_order([shard.pending for shard in shards]),
        transactions=_combined_transactions([shard.transactions for shard in shards]),
        group_stats=pa.concat_tables(shard.group_stats for shard in shards),
        tell_groups=_told_groups(shards),
        load_failures=_by_record_offset([replay.load_failures for replay in replays]),
        carried=_by_record_offset([replay.carried for replay in replays]),
        record_counts=dict(record_counts),
        record_bytes=sum(shard.record_bytes for shard in shards),
    )


def _told_groups(shards: Sequence[MergedShard]) -> Callable[[], dict[str, Group]]:
    """Groups come from the shard that has their records; whether they have offsets, from all shards."""
    found = sorted({group for shard in shards for group in shard.groups_with_offsets})
    with_offsets: list[list[str]] = [found] if len(shards) == 1 else [[] for _ in shards]
    for group in found if len(shards) > 1 else ():
        with_offsets[_shard_of_group(group.encode(), len(shards))].append(group)

    def told() -> dict[str, Group]:
        groups: dict[str, Group] = {}
        for shard, its_groups in zip(shards, with_offsets, strict=True):
            groups |= shard.replay.finish(its_groups)
        return groups

    return told


def _by_record_offset(lists: Iterable[list[T]]) -> list[T]:
    return sorted(chain(*lists), key=lambda found: (found.record_offset, repr(found)))


def _combined_transactions(tables: Sequence[pa.Table]) -> pa.Table:
    """The first table has all transactions; the others have more keys and groups for some of them."""
    main, *others = tables
    more: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for table in others:
        for row in table.filter(column(table["keys"].to_numpy() > 0)).to_pylist():
            more.setdefault(_shared_name(row), []).append(row)
    if more:
        found = np.isin(main["end_place"].to_numpy(), [place for place, _ in more])
        rows = main.filter(column(found)).to_pylist()
        for row in rows:
            for share in more.get(_shared_name(row), ()):
                row["keys"] += share["keys"]
                row["groups"] = sorted({*row["groups"], *share["groups"]}, key=str.encode)
        main = pa.concat_tables([main.filter(column(~found)), pa.Table.from_pylist(rows, main.schema)])
        marker = main["end_marker_offset"]
        sorted_by = {name: main[name].to_numpy() for name in ("end_place", "producer_id", "first_record_offset")}
        sorted_by |= {"end_marker_offset": marker.fill_null(0).to_numpy(), "is_open": marker.is_null().to_numpy()}
        main = main.combine_chunks().take(column(transaction_order(sorted_by)))
    return main.select(TRANSACTIONS.names)


def _shared_name(row: Mapping[str, int]) -> tuple[int, int]:
    return row["end_place"], row["producer_id"]
