"""Commits of a log merged to versions: consecutive ones of an offset key by one writer, which say nothing new.

:func:`take_commits` takes what a coordinator writes all day, commits outside transactions, and stops, having changed
nothing, at the first batch that is anything else. ``coordinator_core.history.versions`` has the rules.
"""

import cython

from coordinator_core.kernels.arrays import grown, new_bytes, new_rows, zeros

if not cython.compiled:
    from coordinator_core.kernels.commits import commit_value
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.fold import find_keys, group_row, put_record, split_records
    from coordinator_core.kernels.fold_tables import FoldTables
    from coordinator_core.kernels.framing import *
    from coordinator_core.kernels.key_table import KeyTable
    from coordinator_core.kernels.passing import Passage, pass_status
    from coordinator_core.kernels.primitives import *

_FIRST_ROWS = 64
_NO_METADATA = cython.declare(Int, 0)
_LARGEST_OFFSET = cython.declare(Int, 1 << 60)
"""Steps between larger offsets, taken so many times as counts as usual, do not fit 64 bits."""


@cython.final
@cython.cclass
class VersionTable:
    """Open versions by offset key, and versions that ended since the caller last took them.

    ``fold`` has the names: rows of its ``keys`` are those of ``open``, rows of its ``group_ids`` those of ``groups``.
    A group that first appears in a commit has writer 0, and ``next_writer`` after that commit. ``metadata`` numbers
    the committers' texts; number 0 is the empty one. Larger steps than ``small_step`` and ``boring_steps`` times the
    largest one begin a new version, once there are ``few`` commits.
    """

    fold = cython.declare(FoldTables, visibility="public")
    passage = cython.declare(Passage, visibility="public")
    groups = cython.declare(WrittenGroupRows, visibility="public")
    groups_used = cython.declare(Int, visibility="public")
    open = cython.declare(OpenVersionRows, visibility="public")
    open_used = cython.declare(Int, visibility="public")
    closed = cython.declare(ClosedVersionRows, visibility="public")
    closed_used = cython.declare(Int, visibility="public")
    metadata = cython.declare(KeyTable, visibility="public")
    identities = cython.declare(MutableInt64s)  # By writer: equal where one goes on that another began.
    next_writer = cython.declare(Int)
    minus_one_expires = cython.declare(cython.bint)
    small_step = cython.declare(Int)
    boring_steps = cython.declare(Int)
    few = cython.declare(Int)
    largest_reckoned = cython.declare(Int)  # The largest step that times ``boring_steps`` fits 64 bits.
    unknown = cython.declare(Int, visibility="public")  # The group because of whose writers a batch was left, or -1.
    position = cython.declare(Int)  # Position of the batch at which the last call stopped.
    batch = cython.declare(Int, visibility="public")  # Its number among those of the call.

    def __init__(
        self,
        fold: FoldTables,
        passage: Passage,
        closed: Int,
        next_writer: Int,
        minus_one_expires: cython.bint,
        small_step: Int,
        boring_steps: Int,
        few: Int,
    ) -> None:
        """Nothing taken yet. The caller takes ``closed`` versions at a time."""
        self.fold = fold
        self.passage = passage
        self.groups = new_rows("WrittenGroup", _FIRST_ROWS)
        self.groups_used = 0
        self.open = new_rows("OpenVersion", _FIRST_ROWS)
        self.open_used = 0
        self.closed = new_rows("ClosedVersion", closed)
        self.closed_used = 0
        self.identities = zeros(_FIRST_ROWS)
        self.next_writer = next_writer
        self.minus_one_expires = minus_one_expires
        self.small_step = small_step
        self.boring_steps = boring_steps
        self.few = few
        self.largest_reckoned = 2 * _LARGEST_OFFSET // boring_steps
        self.unknown = -1
        self.position = 0
        self.batch = 0
        self._new_metadata()

    def _new_metadata(self) -> None:
        self.metadata = KeyTable()
        self.metadata.number(new_bytes(1), 0, 0)

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, records: Int, data_bytes: Int) -> cython.int:
        """Make room for ``records`` more commits of ``data_bytes`` bytes."""
        self.metadata.reserve(records, data_bytes)
        if (
            self.fold.keys.used > len(self.open)
            or self.fold.group_ids.used > len(self.groups)
            or self.closed_used + records > len(self.closed)
        ):
            with cython.gil:
                self._grow(records)
        while self.groups_used < self.fold.group_ids.used:
            self.groups[self.groups_used].writer = 0
            self.groups[self.groups_used].next_writer = self.next_writer
            self.groups[self.groups_used].generations = 0
            self.groups[self.groups_used].is_special = 0
            self.groups[self.groups_used].is_touched = 0
            self.groups[self.groups_used].records = 0
            self.groups_used += 1
        while self.open_used < self.fold.keys.used:
            self.open[self.open_used].commits = 0
            self.open[self.open_used].owner = -1
            self.open[self.open_used].generations = -1
            self.open[self.open_used].ended = 0
            self.open_used += 1
        return 0

    def _grow(self, records: Int) -> None:
        self.groups = grown(self.groups, self.groups_used, self.fold.group_ids.used)
        self.open = grown(self.open, self.open_used, self.fold.keys.used)
        self.closed = grown(self.closed, self.closed_used, self.closed_used + records)

    def end_all(self, first: Int, stop: Int) -> None:
        """Put the open versions of the keys from ``first`` up to ``stop`` among those that ended, as they stand."""
        self.closed = grown(self.closed, self.closed_used, self.closed_used + stop - first)
        with cython.nogil:
            for key in range(first, stop):
                if self.open[key].commits:
                    self._end(key)

    def forget_metadata(self) -> None:
        """Keep the texts of open versions only. No version may have ended since the caller took them."""
        old: KeyTable = self.metadata
        self._new_metadata()
        for key in range(self.open_used):
            if self.open[key].commits:
                row = self.open[key].metadata
                self.metadata.reserve(1, old.keys[row].length)
                self.open[key].metadata = self.metadata.number(old.data, old.keys[row].start, old.keys[row].length)

    def identify(self, writer: Int, identity: Int) -> None:
        """Declare the identity of a writer; their numbers come without gaps."""
        self.identities = grown(self.identities, writer, writer + 1)
        self.identities[writer] = identity

    def number_group(self, group_id: Bytes) -> Int:
        """Row of the group whose id, with its int16 length, is ``group_id``; made when it is new."""
        self.fold.reserve(1, len(group_id), 0)
        row: Int = group_row(group_id, 0, len(group_id), self.fold)
        self.reserve(0, 0)
        return row

    def is_touched(self, group: Int) -> bool:
        """Whether a commit came since the last group record."""
        return self.groups[group].is_touched != 0

    def forget_writers(self, group: Int) -> None:
        """A group record came: who commits next is not known."""
        self.groups[group].writer = -1
        self.groups[group].next_writer = -1
        self.groups[group].generations += 1
        self.groups[group].is_touched = 0

    def set_writer(self, group: Int, writer: Int, next_writer: Int) -> None:
        """The next commit of the group is by ``writer``, those after it, up to its next record, by ``next_writer``."""
        self.groups[group].writer = writer
        self.groups[group].next_writer = next_writer
        self.groups[group].is_touched = 0

    def set_special(self, group: Int) -> None:
        """Commits of the group are not to be taken any more, and those that were do not count."""
        self.groups[group].is_special = 1

    @cython.cfunc
    def has_malformed_names(self) -> cython.bint:
        """Whether the first malformed name was just numbered. From now on names are looked at before that."""
        if not self.fold.has_malformed_names or self.fold.check_utf8:
            return False
        self.fold.check_utf8 = True
        return True

    @cython.cfunc
    def writer_of(self, key: Int, group: Int) -> Int:
        """Number of the writer of the key's next commit, -1 where it is not known."""
        writer: Int = self.groups[group].writer
        if writer >= 0 or self.open[key].generations != self.groups[group].generations:
            return writer
        return self.open[key].owner

    @cython.cfunc
    def take(self, data: Bytes, record: Int, position: Int, writer: Int, group: Int) -> cython.void:
        """Take the commit ``record`` of ``fold.scratch``, in the batch at ``position`` of its segment."""
        key: Int = self.fold.scratch[record].row
        offset: Int = self.fold.scratch[record].offset
        commit = commit_value(data, self.fold.scratch[record].value, self.fold.scratch[record].value_bytes, 4)
        expires: Int = commit.version == 1 and (commit.expire_timestamp != -1 or self.minus_one_expires)
        expire_timestamp: Int = commit.expire_timestamp if expires else 0
        metadata: Int = _NO_METADATA
        if commit.metadata_bytes:
            metadata = self.metadata.number(data, commit.metadata, commit.metadata_bytes)
        leader_epoch: Int = max(commit.leader_epoch, -1)
        goes_on: cython.bint = False
        if self.open[key].commits:
            step: Int = commit.committed_offset - self.open[key].committed_offset
            goes_on = (
                step >= 0
                and (
                    self.open[key].commits < self.few
                    or self.open[key].largest_step > self.largest_reckoned
                    or step <= max(self.small_step, self.boring_steps * self.open[key].largest_step)
                )
                and self.identities[self.open[key].writer] == self.identities[writer]
                and (self.open[key].leader_epoch < 0) == (leader_epoch < 0)
                and self.open[key].expires == expires
                and self.open[key].expire_timestamp == expire_timestamp
            )
            if goes_on:
                self.open[key].largest_step = max(self.open[key].largest_step, step)
                self.open[key].commits += 1
            else:
                self._end(key)
        else:
            self.open[key].first_timestamp = self.fold.scratch[record].timestamp
        if not goes_on:
            self.open[key].first_committed_offset = commit.committed_offset
            self.open[key].record_offset = offset
            self.open[key].timestamp = self.fold.scratch[record].timestamp
            self.open[key].position = position
            self.open[key].largest_step = 0
            self.open[key].commits = 1
            self.open[key].writer = writer
            self.open[key].expires = expires
            self.open[key].expire_timestamp = expire_timestamp
        self.open[key].committed_offset = commit.committed_offset
        self.open[key].last_record_offset = offset
        self.open[key].metadata = metadata
        self.open[key].leader_epoch = leader_epoch
        self.open[key].value_version = commit.version
        self.open[key].commit_timestamp = commit.commit_timestamp
        self.open[key].group = group

    @cython.cfunc
    def _end(self, key: Int) -> cython.void:
        """The open version ended, or stands at the end of the log."""
        row: Int = self.closed_used
        self.closed[row].first_committed_offset = self.open[key].first_committed_offset
        self.closed[row].committed_offset = self.open[key].committed_offset
        self.closed[row].record_offset = self.open[key].record_offset
        self.closed[row].timestamp = self.open[key].timestamp
        self.closed[row].position = self.open[key].position
        self.closed[row].last_record_offset = self.open[key].last_record_offset
        self.closed[row].commits = self.open[key].commits
        self.closed[row].metadata = self.open[key].metadata
        self.closed[row].key = key
        self.closed[row].group = self.open[key].group
        self.closed[row].writer = self.open[key].writer
        self.closed[row].leader_epoch = self.open[key].leader_epoch
        self.closed[row].value_version = self.open[key].value_version
        self.closed_used = row + 1
        self.open[key].ended += 1


@cython.cfunc
def _fetch_open(count: Int, table: VersionTable) -> cython.void:
    """Have the processor fetch the open versions and the groups of the records in ``scratch``: the waits overlap."""
    if cython.compiled:
        for record in range(count):
            if table.fold.scratch[record].kind == Kind.VALUE:
                row = table.fold.scratch[record].row
                fetch_ahead(cython.address(table.open[row].first_committed_offset))
                fetch_ahead(cython.address(table.open[row].commits))
                fetch_ahead(cython.address(table.groups[table.fold.events[row].group].writer))


@cython.cfunc
def _is_plain(data: Bytes, batch: Header, first: Int, table: VersionTable) -> cython.bint:
    """Whether all records of the batch, from ``first`` on in ``scratch``, are commits by writers that are known."""
    for record in range(first, first + batch.count):
        if table.fold.scratch[record].kind != Kind.VALUE:
            return False
        key = table.fold.scratch[record].row
        group = table.fold.events[key].group
        if table.groups[group].is_special:
            continue
        if batch.producer_id != NO_PRODUCER_ID or batch.attributes & TRANSACTIONAL_BIT:
            return False
        if table.writer_of(key, group) < 0:
            table.unknown = group
            return False
        if not _is_usual(data, record, table):
            return False
    return True


@cython.cfunc
def _is_usual(data: Bytes, record: Int, table: VersionTable) -> cython.bint:
    """Whether the commit ``record`` of ``scratch`` has an offset to reckon with and readable text."""
    commit = commit_value(data, table.fold.scratch[record].value, table.fold.scratch[record].value_bytes, 4)
    return -_LARGEST_OFFSET < commit.committed_offset < _LARGEST_OFFSET and is_plain_utf8(
        data, commit.metadata, commit.metadata_bytes
    )


@cython.cfunc
def _take_batch(data: Bytes, first: Int, count: Int, position: Int, table: VersionTable) -> cython.void:
    for record in range(first, first + count):
        key = table.fold.scratch[record].row
        group = table.fold.events[key].group
        table.groups[group].records += 1
        if table.groups[group].is_special == 0:
            table.take(data, record, position, table.writer_of(key, group), group)
            if not table.groups[group].is_touched:
                table.groups[group].is_touched = 1
                if table.groups[group].next_writer >= 0:
                    table.groups[group].writer = table.groups[group].next_writer


@cython.cfunc
@cython.exceptval(-1)
def _take_some(
    data: Bytes, position: Int, stop: Int, is_unpacked: cython.bint, positions: Int64s, table: VersionTable
) -> Int:
    """Take some batches together; returns a :class:`Stop`, ``table.position`` is behind them."""
    first: Int = position
    records: Int = 0
    batches: Int = 0
    expected: Int = table.passage.next_offset
    status: Int = Stop.END
    while position < stop and records < RECORDS_AT_A_TIME:
        status = pass_status(data, position, stop, expected, is_unpacked, table.passage)
        if status != Stop.END:
            break
        if table.passage.holes_used + 2 * batches + 2 > len(table.passage.holes):
            status = Stop.UNUSUAL_RECORDS
            break
        batch = header(data, position)
        table.fold.reserve(records + batch.count, position + batch.size - first, 0)
        if not split_records(data, position, batch, records, table.fold):
            status = Stop.UNUSUAL_RECORDS
            break
        records += batch.count
        batches += 1
        expected = batch.last_offset + 1
        position += batch.size
    find_keys(data, records, table.fold)
    if table.has_malformed_names():
        table.position = first
        return Stop.END
    if table.closed_used + records > len(table.closed) and table.closed_used:
        table.position = first
        return Stop.FULL
    table.reserve(records, position - first)
    _fetch_open(records, table)
    records = 0
    while first < position:
        batch = header(data, first)
        if not _is_plain(data, batch, records, table):
            status = Stop.UNUSUAL_RECORDS
            break
        place = positions[table.batch] if is_unpacked else first
        _take_batch(data, records, batch.count, table.passage.origin + place, table)
        table.passage.note(batch)
        table.batch += 1
        records += batch.count
        first += batch.size
    table.position = first
    return status


def take_commits(
    data: Bytes, start: Int, stop: Int, is_unpacked: cython.bint, positions: Int64s, table: VersionTable
) -> tuple[Int, Int]:
    """Take the batches in ``data[start:stop]``; those that were unpacked are at ``positions`` in their segment.

    Returns a :class:`Stop` and the position reached: ``COMPRESSED`` at such a batch, ``FULL`` when the caller is to
    take the versions that ended, else at a batch that is to be judged by other rules, ``table.unknown`` why.
    """
    status: Int = Stop.END
    table.batch = 0
    table.unknown = -1
    with cython.nogil:
        while status == Stop.END and start < stop:
            status = _take_some(data, start, stop, is_unpacked, positions, table)
            start = table.position
    return status, start


def take_commit(
    record: Bytes, key_bytes: Int, offset: Int, timestamp: Int, position: Int, writer: Int, table: VersionTable
) -> bool:
    """Take one commit by ``writer``, whose key and value are ``record``; false if its group is not to be read here."""
    table.fold.reserve(1, len(record), 0)
    if not put_record(record, key_bytes, offset, timestamp, table.fold):
        return False
    find_keys(record, 1, table.fold)
    if table.has_malformed_names():
        return False
    table.reserve(1, len(record))
    key: Int = table.fold.scratch[0].row
    group: Int = table.fold.events[key].group
    table.groups[group].records += 1
    if table.groups[group].is_special or not _is_usual(record, 0, table):
        return False
    table.take(record, 0, position, writer, group)
    table.open[key].owner = writer
    table.open[key].generations = table.groups[group].generations
    return True
