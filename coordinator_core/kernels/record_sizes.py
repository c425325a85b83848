"""Forensics: records and bytes of each raw key in a log, and how many compaction would keep."""

import cython

from coordinator_core.kernels.arrays import grown, new_rows

if not cython.compiled:
    from coordinator_core.kernels.batch_index import may_have_been_sound
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.framing import *
    from coordinator_core.kernels.key_table import KeyTable

_FIRST_SIZES = 64


@cython.final
@cython.cclass
class SizeTable:
    """Sizes of the records of each raw key: a row of ``rows`` for each in ``keys``.

    Records live when their offset is among ``kept`` (ascending), or is ``end_offset`` or above. Records
    without a key have the empty one; those below ``start_offset`` do not count.
    """

    keys = cython.declare(KeyTable, visibility="public")
    rows = cython.declare(RecordSizesRows, visibility="public")
    kept = cython.declare(Int64s)
    kept_at = cython.declare(Int)  # First of ``kept`` not yet passed.
    start_offset = cython.declare(Int)
    end_offset = cython.declare(Int)

    def __init__(self, kept: Int64s, start_offset: Int, end_offset: Int) -> None:
        self.keys = KeyTable()
        self.rows = new_rows("RecordSizes", _FIRST_SIZES)
        self.kept = kept
        self.kept_at = 0
        self.start_offset = start_offset
        self.end_offset = end_offset

    @cython.cfunc
    @cython.exceptval(-1)
    def row_of(self, data: Bytes, key: Int, key_bytes: Int) -> Int:
        """Row of a key, made when it is new."""
        self.keys.reserve(1, key_bytes)
        if len(self.rows) < len(self.keys.keys):
            with cython.gil:
                self.rows = grown(self.rows, self.keys.used, len(self.keys.keys))
        used: Int = self.keys.used
        row: Int = self.keys.number(data, key, key_bytes)
        if row == used:
            self.rows[row].records = 0
            self.rows[row].tombstones = 0
            self.rows[row].size_bytes = 0
            self.rows[row].live_records = 0
            self.rows[row].live_bytes = 0
        return row

    @cython.cfunc
    def lives(self, offset: Int) -> cython.bint:
        """Whether a record lives; records must be asked about in their order."""
        while self.kept_at < len(self.kept) and self.kept[self.kept_at] < offset:
            self.kept_at += 1
        return offset >= self.end_offset or (self.kept_at < len(self.kept) and self.kept[self.kept_at] == offset)

    @cython.cfunc
    def add(self, row: Int, offset: Int, size: Int, timestamp: Int, is_tombstone: cython.bint) -> cython.void:
        """Add a record to a row."""
        if self.rows[row].records == 0:
            self.rows[row].first_timestamp = timestamp
        self.rows[row].last_timestamp = timestamp
        self.rows[row].records += 1
        self.rows[row].size_bytes += size
        if is_tombstone:
            self.rows[row].tombstones += 1
        if self.lives(offset):
            self.rows[row].live_records += 1
            self.rows[row].live_bytes += size


@cython.cfunc
def _has_plain_records(data: Bytes, at: Int, batch: Header) -> cython.bint:
    """Whether the records take the whole batch, each as clients and brokers write it but for headers."""
    stop: Int = at + batch.size
    previous_delta: Int = -1
    at += HEADER_BYTES
    for _ in range(batch.count):
        record = next_record(data, at, stop)
        if record.unusual & ~(Unusual.NO_KEY | Unusual.HEADERS) or not follows(record, previous_delta, batch):
            return False
        previous_delta = record.offset_delta
        at = record.end
    return at == stop


def add_record_sizes(data: Bytes, start: Int, stop: Int, sizes: Int64s, table: SizeTable) -> tuple[Int, Int]:
    """Add the records of the batches in ``data[start:stop]``.

    ``sizes`` are those of the records of the one batch there is; without them, a record's size is what it
    takes there. Returns a :class:`Stop` and the position reached: ``UNUSUAL_BATCH`` where no v2 batch lies,
    or none that was sound when it was checked.
    """
    status: Int = Stop.END
    with cython.nogil:
        while start < stop:
            if not may_have_been_sound(data, start, stop):
                status = Stop.UNUSUAL_BATCH
                break
            batch = header(data, start)
            end = start + batch.size
            if batch.attributes & CONTROL_BIT == 0 and batch.last_offset >= table.start_offset:
                if is_compressed(batch):
                    status = Stop.COMPRESSED
                    break
                if batch.count > len(sizes) > 0 or not _has_plain_records(data, start, batch):
                    status = Stop.UNUSUAL_RECORDS
                    break
                at = start + HEADER_BYTES
                for index in range(batch.count):
                    record = next_record(data, at, end)
                    if record.end == INVALID:
                        break
                    offset = batch.base_offset + record.offset_delta
                    if offset >= table.start_offset:
                        row = table.row_of(data, record.key, max(record.key_bytes, 0))
                        table.add(
                            row,
                            offset,
                            sizes[index] if len(sizes) else record.end - at,
                            record_timestamp(batch, record),
                            record.value_bytes < 0,
                        )
                    at = record.end
            start = end
    return status, start
