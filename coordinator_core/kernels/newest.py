"""Second pass of compaction: the newest record of every raw key.

The meaning of a record is not known here: keys are bytes, as they are to the broker's cleaner
(``Cleaner.buildOffsetMap``).
"""

import cython

from coordinator_core.kernels.arrays import grown, new_rows, zeros

if not cython.compiled:
    from coordinator_core.kernels.batch_index import delete_horizon, may_have_been_sound
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.framing import *
    from coordinator_core.kernels.key_table import KeyTable
    from coordinator_core.kernels.primitives import *

_FIRST_NEWEST = 256


@cython.final
@cython.cclass
class NewestTable:
    """The newest records of each raw key: a row of ``rows`` for each in ``keys``.

    ``unkeyed_used`` of ``unkeyed`` are offsets of records without a key, ascending.
    """

    keys = cython.declare(KeyTable, visibility="public")
    rows = cython.declare(NewestRows, visibility="public")
    unkeyed = cython.declare(MutableInt64s, visibility="public")
    unkeyed_used = cython.declare(Int, visibility="public")
    max_records = cython.declare(Int)
    scratch = cython.declare(SplitKeyRows)
    aborted_at = cython.declare(Int)  # First of the aborted batches not yet passed.

    def __init__(self, max_records: Int, records: Int = 0, size: Int = 0) -> None:
        """An empty table for a log of ``records`` records, in batches of at most ``max_records``, and ``size`` bytes.

        Room that is not used takes no memory; to grow takes as much as there is once more.
        """
        rows: Int = max(_FIRST_NEWEST, records)
        self.keys = KeyTable(rows, size // 2)
        self.rows = new_rows("Newest", rows)
        self.unkeyed = zeros(_FIRST_NEWEST)
        self.unkeyed_used = 0
        self.max_records = max_records
        self.scratch = new_rows("SplitKey", 2 * RECORDS_AT_A_TIME)
        self.aborted_at = 0

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, records: Int, key_bytes: Int) -> cython.int:
        """Make room for ``records`` more records, whose keys have ``key_bytes`` bytes."""
        self.keys.reserve(records, key_bytes)
        if self.keys.used + records > len(self.rows) or self.unkeyed_used + records > len(self.unkeyed):
            with cython.gil:
                self._grow(records)
        return 0

    def _grow(self, records: Int) -> None:
        self.rows = grown(self.rows, self.keys.used, self.keys.used + records)
        self.unkeyed = grown(self.unkeyed, self.unkeyed_used, self.unkeyed_used + records)

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve_scratch(self, records: Int) -> cython.int:
        """Make room for ``records`` at hand."""
        if records > len(self.scratch):
            with cython.gil:
                self.scratch = grown(self.scratch, len(self.scratch), records)
        return 0

    @cython.cfunc
    def row_of(self, data: Bytes, key: Int, key_bytes: Int, hashed: Int) -> Int:
        """Row of a key, made when it is new."""
        row: Int = self.keys.find(data, key, key_bytes, hashed)
        if row < 0:
            row = self.keys.add(data, key, key_bytes, hashed)
            self.rows[row].offset = -1
            self.rows[row].is_tombstone = 0
            self.rows[row].delete_horizon = -1
            self.rows[row].value_offset = -1
            self.rows[row].aborted_offset = -1
        return row

    @cython.cfunc
    def note_unkeyed(self, offset: Int) -> cython.void:
        """Add a record without a key."""
        self.unkeyed[self.unkeyed_used] = offset
        self.unkeyed_used += 1

    @cython.cfunc
    def is_aborted(self, base_offset: Int, aborted: Int64s) -> cython.bint:
        """Whether the batch is among ``aborted``; batches must be asked about in their order."""
        while self.aborted_at < len(aborted) and aborted[self.aborted_at] < base_offset:
            self.aborted_at += 1
        return self.aborted_at < len(aborted) and aborted[self.aborted_at] == base_offset

    @cython.cfunc
    def fetch_row(self, row: Int) -> cython.void:
        """Have the processor fetch a row, which exists, and its key's."""
        self.keys.fetch_key(row)
        if cython.compiled:
            fetch_ahead(cython.address(self.rows[row]))


@cython.cfunc
@cython.exceptval(-1)
def _split_keys(data: Bytes, at: Int, batch: Header, first: Int, aborted: Int64s, table: NewestTable) -> cython.bint:
    """Split the records of the batch at ``at`` into ``table.scratch`` from ``first`` on.

    False if one of them is for the readers of ``log``.
    """
    stop: Int = at + batch.size
    horizon: Int = delete_horizon(batch)
    is_aborted: Int = table.is_aborted(batch.base_offset, aborted)
    previous_delta: Int = -1
    table.reserve_scratch(first + batch.count)
    at += HEADER_BYTES
    for index in range(first, first + batch.count):
        record = next_record(data, at, stop)
        if record.unusual & ~Unusual.NO_KEY or not follows(record, previous_delta, batch):
            return False
        table.scratch[index].offset = batch.base_offset + record.offset_delta
        table.scratch[index].key = record.key
        table.scratch[index].key_bytes = record.key_bytes
        table.scratch[index].delete_horizon = horizon
        table.scratch[index].is_tombstone = record.value_bytes < 0
        table.scratch[index].is_aborted = is_aborted
        previous_delta = record.offset_delta
        at = record.end
    return at == stop


@cython.cfunc
@cython.exceptval(-1)
def _enter_keys(data: Bytes, records: Int, table: NewestTable) -> cython.int:
    """Enter the records in ``table.scratch``. Memory that look-ups will read is fetched beforehand."""
    key_bytes: Int = 0
    for record in range(records):
        if table.scratch[record].key_bytes >= 0:
            key_bytes += table.scratch[record].key_bytes
            hashed = hash_bytes(data, table.scratch[record].key, table.scratch[record].key_bytes)
            table.scratch[record].hash = hashed
            table.keys.fetch_index(hashed)
    table.reserve(records, key_bytes)
    for record in range(records):
        if table.scratch[record].key_bytes >= 0:
            row = table.keys.likely_row(table.scratch[record].hash)
            if row >= 0:
                table.fetch_row(row)
    for record in range(records):
        if table.scratch[record].key_bytes >= 0:
            row = table.keys.likely_row(table.scratch[record].hash)
            if row >= 0:
                table.keys.fetch_data(row)
    for record in range(records):
        if table.scratch[record].key_bytes < 0:
            table.note_unkeyed(table.scratch[record].offset)
            continue
        row = table.row_of(data, table.scratch[record].key, table.scratch[record].key_bytes, table.scratch[record].hash)
        if table.scratch[record].is_aborted:
            if not table.scratch[record].is_tombstone:
                table.rows[row].aborted_offset = table.scratch[record].offset
            continue
        table.rows[row].offset = table.scratch[record].offset
        table.rows[row].is_tombstone = table.scratch[record].is_tombstone
        table.rows[row].delete_horizon = table.scratch[record].delete_horizon
        if not table.scratch[record].is_tombstone:
            table.rows[row].value_offset = table.scratch[record].offset
    return 0


def enter_newest(
    data: Bytes, start: Int, stop: Int, start_offset: Int, end_offset: Int, aborted: Int64s, table: NewestTable
) -> tuple[Int, Int]:
    """Enter the records of the batches in ``data[start:stop]``, up to the first that begins at ``end_offset``
    or behind it; batches below ``start_offset`` are passed.

    ``aborted`` are the base offsets, ascending, of batches whose transactions were aborted. Returns a
    :class:`Stop` and the position reached: ``UNUSUAL_BATCH`` where no v2 batch lies, or none that was sound
    when it was checked.
    """
    status: Int = Stop.END
    with cython.nogil:
        while start < stop and status == Stop.END:
            records = 0
            while start < stop and records < RECORDS_AT_A_TIME:
                if not may_have_been_sound(data, start, stop):
                    status = Stop.UNUSUAL_BATCH
                    break
                batch = header(data, start)
                if batch.base_offset >= end_offset:
                    stop = start
                    break
                if batch.attributes & CONTROL_BIT == 0 and batch.count and batch.last_offset >= start_offset:
                    if is_compressed(batch):
                        status = Stop.COMPRESSED
                        break
                    if not may_hold_records(batch, table.max_records) or not _split_keys(
                        data, start, batch, records, aborted, table
                    ):
                        status = Stop.UNUSUAL_RECORDS
                        break
                    records += batch.count
                start += batch.size
            _enter_keys(data, records, table)
    return status, start


@cython.cfunc
def _enter_row(table: NewestTable, row: Int, rows: NewestRows, source: Int) -> cython.void:
    """Enter what ``rows[source]`` knows of a key, from a later part of the log, into the key's row."""
    if rows[source].offset >= 0:
        table.rows[row].offset = rows[source].offset
        table.rows[row].is_tombstone = rows[source].is_tombstone
        table.rows[row].delete_horizon = rows[source].delete_horizon
    if rows[source].value_offset >= 0:
        table.rows[row].value_offset = rows[source].value_offset
    if rows[source].aborted_offset >= 0:
        table.rows[row].aborted_offset = rows[source].aborted_offset


def merge_newest(later: NewestTable, table: NewestTable) -> None:
    """Enter the rows of ``later`` into ``table``, which holds an earlier part of the log."""
    with cython.nogil:
        for source in range(later.keys.used):
            table.reserve(1, later.keys.keys[source].length)
            row = table.row_of(
                later.keys.data,
                later.keys.keys[source].start,
                later.keys.keys[source].length,
                later.keys.keys[source].hash,
            )
            _enter_row(table, row, later.rows, source)
        table.reserve(later.unkeyed_used, 0)
        for source in range(later.unkeyed_used):
            table.note_unkeyed(later.unkeyed[source])


def merge_stored_newest(rows: NewestRows, keys: Bytes, ends: Int64s, table: NewestTable) -> None:
    """Enter ``rows`` that another process has made of a later part of the log. Their keys lie end to end in ``keys``;
    ``ends`` begins with 0."""
    with cython.nogil:
        for source in range(len(rows)):
            start: Int = ends[source]
            length: Int = ends[source + 1] - start
            table.reserve(1, length)
            row = table.row_of(keys, start, length, hash_bytes(keys, start, length))
            _enter_row(table, row, rows, source)
