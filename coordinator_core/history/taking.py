"""Reading a log into versions without an object for each commit.

A kernel takes what is plain, commits outside transactions whose writers are known. The rest comes one record after the
other: records of groups, which tell the writers, go through :class:`~coordinator_core.history.read.HistoryReader`.
A group of which more than commits is in the log (tombstones, transactions), or with a commit in another segment than
its record offset says, is *special*: its history is read by :func:`~coordinator_core.history.read.read_history`, and
what was taken of it does not count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold.passing import Passing, prefix_of
from coordinator_core.groups.model import Group
from coordinator_core.history.members import generation_of, owner_of
from coordinator_core.history.model import Deletions, Member, PartitionHistory, Place
from coordinator_core.history.read import HistoryReader
from coordinator_core.history.spill import Spill
from coordinator_core.history.versions import BORING_STEPS, FEW_COMMITS, SMALL_STEP
from coordinator_core.kernels import Bounds, FoldTables, KeyTable, VersionTable, take_commit, take_commits
from coordinator_core.kernels.arrays import Bytes, Int64s, array_of, new_rows
from coordinator_core.kernels.layout import Stop
from coordinator_core.log.ahead import ReadAhead, segment_bytes
from coordinator_core.log.limits import Limits, standing_allowance, too_large
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import NO_PRODUCER_ID, Batch, PartitionLog, Record
from coordinator_core.process.allocator import give_back_freed_memory
from coordinator_core.releases import Loader, Profile
from coordinator_core.replay.interpret import GroupRecord, OffsetRecord

_ROWS = 1 << 16
_MOST_METADATA_BYTES = 1 << 26
"""Metadata from which on those of ended versions are forgotten, or twice what stands where that is more."""
_MADE = 1
"""Writer of a group that its first commit made."""
_NOT_GIVEN = np.zeros(0, np.int64)


class Writer(NamedTuple):
    """State of a group at a commit: its generation, whether it had members, and the partition's owner."""

    generation: int | None
    had_members: bool
    member: Member | None


class Taken(NamedTuple):
    """Versions of an offsets partition. Rows of ``spill`` have numbers of ``writers``, and rows of ``table``.

    ``history`` has what the records of groups tell. ``special`` are group ids, with the number of their records.
    """

    log: PartitionLog
    spill: Spill
    table: VersionTable
    writers: Sequence[Writer]
    history: PartitionHistory
    special: Mapping[str, int]


def take_history(
    log: PartitionLog,
    profile: Profile,
    deletions: Deletions,
    topic_names: Mapping[str, str],
    thread: Executor,
    *,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage],
) -> Taken:
    """Read one offsets partition; ``deletions`` gets the tombstones of all groups, the ``thread`` puts versions away.

    Raises as ``read_records`` does.
    """
    return _Taker(log, profile, deletions, topic_names, thread).taken(on_damage, damage)


def row_of(table: VersionTable, group_id: str) -> int:
    """Row of a group in ``table.groups``."""
    return int(table.number_group(np.frombuffer(prefix_of(group_id), np.uint8)))


class _Through(Passing):
    """Batches that the kernel did not take."""

    def __init__(
        self,
        log: PartitionLog,
        profile: Profile,
        spill: Spill,
        thread: Executor,
        names_writer: Callable[[int], bool],
    ) -> None:
        """``names_writer`` sets the writer of all commits of a group, by row; false where each has its own. Versions go
        to ``spill`` in the ``thread``."""
        super().__init__(())
        self._bases = [segment.base_offset for segment in log.segments]
        self._path = log.segments[0].path if log.segments else ""
        self._allowance = standing_allowance(log.size)
        self._most_metadata = _MOST_METADATA_BYTES
        self._names_writer = names_writer
        limits = Limits()
        fold = FoldTables(Bounds(limits.max_batch_bytes, limits.max_records))
        fold.max_legacy_version = profile.max_legacy_offset_value_version
        fold.max_version = profile.max_offset_value_version
        next_writer = _MADE if profile.loader is Loader.JAVA else -1
        self.table = VersionTable(
            fold,
            self.passage,
            _ROWS,
            next_writer,
            profile.minus_one_expires,
            SMALL_STEP,
            BORING_STEPS,
            FEW_COMMITS,
        )
        self._spill = spill
        self._thread = thread
        self._spilling: Future[None] = Future()
        self._spilling.set_result(None)
        self._spare = new_rows("ClosedVersion", _ROWS)

    def __call__(
        self, view: memoryview, first: int, position: int, expected: int, last_offset: int, *, is_cut: bool
    ) -> tuple[int, int]:
        # Of what the kernel takes the record offset tells the segment, so none may be below the segment's base offset.
        if expected < self._bases[self.segment_of(last_offset)]:
            return position, expected
        return super().__call__(view, first, position, expected, last_offset, is_cut=is_cut)

    def segment_of(self, record_offset: int) -> int:
        """Number of the segment in whose range a record offset is."""
        return max(bisect_right(self._bases, record_offset) - 1, 0)

    def _through(self, data: Bytes, position: int, positions: Int64s | None) -> tuple[int, int]:
        is_unpacked = positions is not None
        given = _NOT_GIVEN if positions is None else np.ascontiguousarray(positions)
        while True:
            status, position = take_commits(data, position, len(data), is_unpacked, given, self.table)
            is_full = status == Stop.FULL
            if is_full or self.table.metadata.data_used > self._most_metadata:
                self.flush()
            if is_unpacked:
                given = given[self.table.batch :]
            if not is_full and (self.table.unknown < 0 or not self._names_writer(self.table.unknown)):
                return status, position

    def flush(self) -> None:
        """Spill the versions that ended."""
        table = self.table
        if table.closed_used:
            self._spilling.result()
            ended, table.closed, self._spare = table.closed, self._spare, table.closed
            rows, table.closed_used = array_of(ended)[: table.closed_used], 0
            self._spilling = self._thread.submit(self._spill.add, rows, _texts(table.metadata))
        if table.metadata.data_used > self._most_metadata:
            table.forget_metadata()
            stand = table.metadata.data_used
            if stand > self._allowance:
                raise DamagedInputError(too_large(self._path, "metadata that stand unpack", self._allowance))
            if stand > _MOST_METADATA_BYTES:
                give_back_freed_memory()
            self._most_metadata = max(_MOST_METADATA_BYTES, 2 * stand)

    def end(self) -> None:
        """Spill the rest."""
        self.flush()
        for first in range(0, self.table.open_used, _ROWS):
            self.table.end_all(first, min(first + _ROWS, self.table.open_used))
            self.flush()
        self._spilling.result()
        if self.table.metadata.data_used > _MOST_METADATA_BYTES:
            self.table.metadata = KeyTable()
            give_back_freed_memory()


class _Taker(HistoryReader):
    def __init__(
        self,
        log: PartitionLog,
        profile: Profile,
        deletions: Deletions,
        topic_names: Mapping[str, str],
        thread: Executor,
    ) -> None:
        self._spill = Spill()
        self._through = _Through(log, profile, self._spill, thread, self._name_writer)
        self._table = self._through.table
        super().__init__(log, profile, self._through, deletions, topic_names, texts=None)
        self._log = log
        self._thread = thread
        self._writers: dict[tuple[object, ...], int] = {}
        self._by_number: list[Writer] = []
        self._identities: dict[tuple[object, ...], int] = {}
        # The kernel knows two writers: a group that was not there, and one that its first commit made.
        self._is_java = profile.loader is Loader.JAVA
        assert [self._numbered(Writer(generation, False, None)) for generation in (None, 0)] == [0, _MADE]
        self._special: set[str] = set()

    def taken(self, on_damage: OnDamage, damage: list[Damage]) -> Taken:
        is_local = all(storage.is_local(segment.path) for segment in self._log.segments)
        reads = segment_bytes if is_local else ReadAhead(self._log, self._thread)
        for segment, batch, records in self._through.read(self._log, on_damage=on_damage, damage=damage, reads=reads):
            self.batch(segment, batch, records)
        history = self.finish()
        self._through.end()
        groups = array_of(self._table.groups)
        special = {group_id: int(groups["records"][self._row(group_id)]) for group_id in sorted(self._special)}
        return Taken(self._log, self._spill, self._table, self._by_number, history, special)

    def _is_wanted(self, key: bytes | None) -> bool:
        return True

    def _row(self, group_id: str) -> int:
        return row_of(self._table, group_id)

    def _marker(self, batch: Batch, records: Sequence[Record], record: Record, place: Place) -> None:
        """Markers change special groups only."""

    def _weigh(self, group_id: str, batch: Batch, record: Record, place: Place) -> None:
        """Before any record of the group: tell the replay of commits that the kernel has taken."""
        if self._table.is_touched(self._row(group_id)):
            self._replayer.touch(group_id)

    def _group_record(
        self, group_id: str, record: GroupRecord, place: Place, before: Group | None, members: tuple[Member, ...]
    ) -> None:
        super()._group_record(group_id, record, place, before, members)
        self._table.forget_writers(self._row(group_id))

    def _offset(
        self, batch: Batch, records: Sequence[Record], record: Record, place: Place, meaning: OffsetRecord
    ) -> None:
        key = meaning.offset_key
        if meaning.value is None:
            self._deletions.add(record.timestamp_ms, key.group_id, key.topic)
        elif (
            batch.producer_id == NO_PRODUCER_ID
            and not batch.is_transactional
            and key.group_id not in self._special
            and self._log.segments[self._through.segment_of(record.offset)].path == place.segment
        ):
            group = self._replayer.group(key.group_id)
            members = self._members_of(key.group_id, group)
            writer = self._writer(group, members, owner_of(members, key))
            assert record.key is not None
            assert record.value is not None
            data = np.frombuffer(record.key + record.value, np.uint8)
            position = batch.position
            if take_commit(data, len(record.key), record.offset, record.timestamp_ms, position, writer, self._table):
                self._replayer.touch(key.group_id)
                self._name_writer(self._row(key.group_id))
                return
        self._special.add(key.group_id)
        self._table.set_special(self._row(key.group_id))

    def _name_writer(self, row: int) -> bool:
        group_id = self._table.fold.group_ids.key(row)[2:].decode()
        group = self._replayer.group(group_id)
        members = self._members_of(group_id, group)
        if len(members) > 1:
            return False
        # The first commit of an id makes a group of generation 0, where it makes one.
        following = _MADE if group is None and self._is_java else -1
        self._table.set_writer(row, self._writer(group, members, members[0] if members else None), following)
        return True

    def _writer(self, group: Group | None, members: Sequence[Member], member: Member | None) -> int:
        return self._numbered(Writer(generation_of(group), bool(members), member))

    def _numbered(self, writer: Writer) -> int:
        generation, _, member = writer
        shown = None if member is None else (member.member_id, member.instance_id, member.client_id, member.client_host)
        number = self._writers.setdefault((generation, writer.had_members, shown), len(self._by_number))
        if number == len(self._by_number):
            self._by_number.append(writer)
            identity = generation, writer.had_members, None if member is None else member.member_id
            self._table.identify(number, self._identities.setdefault(identity, number))
        return number


def _texts(table: KeyTable) -> pa.Array:
    """The byte strings of a table, by number."""
    used = table.used
    bounds = np.empty(used + 1, np.int64)
    bounds[:-1] = array_of(table.keys)["start"][:used]
    bounds[-1] = table.data_used
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), used, [None, pa.py_buffer(bounds), pa.py_buffer(array_of(table.data))]
    )
