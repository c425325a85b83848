"""Last pass of compaction: writes the rest of each batch, in order (``MemoryRecords.filterTo``)."""

import cython

from coordinator_core.kernels.arrays import grown, new_bytes, new_rows

if not cython.compiled:
    from coordinator_core.kernels.batch_index import may_have_been_sound
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.framing import *
    from coordinator_core.kernels.primitives import *


@cython.final
@cython.cclass
class BatchFilter:
    """Records that stay of a log, and the bytes that were written of them since the output was last taken.

    ``kept`` are the offsets of records that stay, ascending; ``tombstones`` (0 or 1) says which of them have
    no value and are the newest of their key, ``numbered`` gets their offsets in the output. ``actions`` are rows
    of :class:`BatchAction`, by base offset. Batches from ``end_offset`` on stay as they are. ``horizon`` (epoch
    milliseconds) is set on batches that keep such tombstones and have no delete horizon. With ``renumbers`` records
    get consecutive offsets from ``next_offset`` on. The output is ``out_used`` bytes of ``out``,
    ``written_used`` batches.
    """

    kept = cython.declare(Int64s)
    tombstones = cython.declare(Bytes)
    numbered = cython.declare(MutableInt64s)
    actions = cython.declare(BatchActionRows)
    start_offset = cython.declare(Int)
    end_offset = cython.declare(Int)
    horizon = cython.declare(Int)
    renumbers = cython.declare(cython.bint)
    next_offset = cython.declare(Int, visibility="public")
    kept_at = cython.declare(Int, visibility="public")  # First of ``kept`` not yet passed.
    action_at = cython.declare(Int)  # First of ``actions`` not yet passed.
    out = cython.declare(MutableBytes, visibility="public")
    out_used = cython.declare(Int, visibility="public")
    written = cython.declare(WrittenBatchRows, visibility="public")
    written_used = cython.declare(Int, visibility="public")

    def __init__(
        self,
        kept: Int64s,
        tombstones: Bytes,
        numbered: MutableInt64s,
        actions: BatchActionRows,
        start_offset: Int,
        end_offset: Int,
        horizon: Int,
        renumbers: cython.bint,
        next_offset: Int,
        out_bytes: Int,
        out_batches: Int,
    ) -> None:
        """Nothing written yet. The caller takes the output after ``out_bytes`` bytes or ``out_batches`` batches."""
        self.kept = kept
        self.tombstones = tombstones
        self.numbered = numbered
        self.actions = actions
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.horizon = horizon
        self.renumbers = renumbers
        self.next_offset = next_offset
        self.kept_at = 0
        self.action_at = 0
        self.out = new_bytes(out_bytes)
        self.written = new_rows("WrittenBatch", out_batches)
        self.begin_output()

    def begin_output(self) -> None:
        """Begin again with an empty output."""
        self.out_used = 0
        self.written_used = 0

    @cython.cfunc
    def action_of(self, base_offset: Int) -> Int:
        """:class:`Action` for a batch; batches must be asked about in their order."""
        if base_offset >= self.end_offset:
            return Action.COPY
        while self.action_at < len(self.actions) and self.actions[self.action_at].base_offset < base_offset:
            self.action_at += 1
        if self.action_at < len(self.actions) and self.actions[self.action_at].base_offset == base_offset:
            return self.actions[self.action_at].action
        return Action.NONE

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, size: Int) -> cython.bint:
        """Whether a batch of ``size`` bytes has room; a batch that comes first always has."""
        if self.written_used == len(self.written):
            return False
        if size > len(self.out) - self.out_used:
            if self.out_used:
                return False
            with cython.gil:
                self.out = grown(self.out, 0, size)
        return True

    @cython.cfunc
    def note(self, end: Int, source_base_offset: Int) -> cython.void:
        """Take the batch that ends at ``end`` into the output."""
        at: Int = self.out_used
        row: Int = self.written_used
        base_offset: Int = be64(self.out, at)
        last_offset: Int = base_offset + be32(self.out, at + BatchField.LAST_OFFSET_DELTA)
        self.written[row].position = at
        self.written[row].base_offset = base_offset
        self.written[row].last_offset = last_offset
        self.written[row].records = be32(self.out, at + BatchField.RECORD_COUNT)
        self.written[row].source_base_offset = source_base_offset
        self.written_used = row + 1
        self.out_used = end
        self.next_offset = last_offset + 1


@cython.cfunc
def _put_header(
    data: Bytes, source: Int, out: MutableBytes, at: Int, base_offset: Int, last_delta: Int, attributes: Int
) -> cython.void:
    """The header of the batch at ``source``, but for what :func:`_seal` puts."""
    copy_bytes(data, source, out, at, HEADER_BYTES)
    put_be(out, at, base_offset, 8)
    out[at + BatchField.ATTRIBUTES + 1] = attributes
    put_be(out, at + BatchField.LAST_OFFSET_DELTA, last_delta, 4)


@cython.cfunc
def _seal(out: MutableBytes, at: Int, end: Int, base_timestamp: Int, records: Int) -> cython.void:
    put_be(out, at + BatchField.LENGTH, end - at - LENGTH_END, 4)
    put_be(out, at + BatchField.BASE_TIMESTAMP, base_timestamp, 8)
    put_be(out, at + BatchField.RECORD_COUNT, records, 4)
    put_be(out, at + BatchField.CRC, crc32c(out, at + BatchField.ATTRIBUTES, end), 4)


@cython.cfunc
def _put_copy(data: Bytes, source: Int, batch: Header, last: Int, plan: BatchFilter) -> Int:
    at: Int = plan.out_used
    copy_bytes(data, source, plan.out, at, batch.size)
    if plan.renumbers:
        put_be(plan.out, at, plan.next_offset, 8)
        for place in range(plan.kept_at, last):
            plan.numbered[place] = plan.next_offset + plan.kept[place] - batch.base_offset
    return at + batch.size


@cython.cfunc
def _put_empty(data: Bytes, source: Int, batch: Header, plan: BatchFilter) -> Int:
    at: Int = plan.out_used
    attributes: Int = batch.attributes & ~(CODEC_BITS | DELETE_HORIZON_BIT)
    if plan.renumbers:
        _put_header(data, source, plan.out, at, plan.next_offset, 0, attributes)
    else:
        last_delta: Int = batch.last_offset - batch.base_offset
        _put_header(data, source, plan.out, at, batch.base_offset, last_delta, attributes)
    _seal(plan.out, at, at + HEADER_BYTES, -1, 0)
    return at + HEADER_BYTES


@cython.cfunc
def _put_records(
    data: Bytes, source: Int, batch: Header, horizon: Int, keeps_all: cython.bint, last: Int, plan: BatchFilter
) -> Int:
    """Write the rest of a batch, the records from ``plan.kept_at`` to ``last``; returns the end.

    ``horizon`` is the delete horizon to set, or -1. ``INVALID`` if the records cannot be read, or are not
    those of which it was decided.
    """
    at: Int = plan.out_used
    target: Int = at + HEADER_BYTES
    position: Int = source + HEADER_BYTES
    stop: Int = source + batch.size
    attributes: Int = batch.attributes
    if attributes & DELETE_HORIZON_BIT:
        horizon = batch.base_timestamp
    base_timestamp: Int = horizon
    highest: Int = 0
    place: Int = plan.kept_at
    written: Int = 0
    previous_delta: Int = -1
    for _ in range(batch.count):
        record = next_record(data, position, stop)
        if record.unusual & ~(Unusual.NO_KEY | Unusual.HEADERS) or not follows(record, previous_delta, batch):
            return INVALID
        previous_delta = record.offset_delta
        position = record.end
        if not keeps_all:
            if place == last or plan.kept[place] != batch.base_offset + record.offset_delta:
                continue
            plan.numbered[place] = plan.next_offset + written if plan.renumbers else plan.kept[place]
            place += 1
        timestamp = record_timestamp(batch, record)
        if written == 0 and base_timestamp < 0:
            base_timestamp = timestamp
        highest = timestamp if written == 0 else max(highest, timestamp)
        delta = signed(cython.cast(Word, timestamp - base_timestamp) & ALL_64_BITS)
        offset_delta = written if plan.renumbers else record.offset_delta
        target = put_varint(
            plan.out, target, 1 + varint_bytes(delta) + varint_bytes(offset_delta) + record.end - record.tail
        )
        plan.out[target] = 0
        target = put_varint(plan.out, target + 1, delta)
        target = put_varint(plan.out, target, offset_delta)
        copy_bytes(data, record.tail, plan.out, target, record.end - record.tail)
        target += record.end - record.tail
        written += 1
    if position != stop or written == 0 or (place != last and not keeps_all):
        return INVALID
    if horizon >= 0:
        attributes |= DELETE_HORIZON_BIT
    if plan.renumbers:
        _put_header(data, source, plan.out, at, plan.next_offset, written - 1, attributes)
    else:
        offset_delta = batch.last_offset - batch.base_offset
        _put_header(data, source, plan.out, at, batch.base_offset, offset_delta, attributes)
    put_be(plan.out, at + BatchField.MAX_TIMESTAMP, highest, 8)
    _seal(plan.out, at, target, base_timestamp, written)
    return target


@cython.cfunc
@cython.exceptval(-1)
def _put_batch(data: Bytes, source: Int, batch: Header, plan: BatchFilter) -> Int:
    """Write the rest of a batch; returns a :class:`Stop`, ``END`` when that is done."""
    action: Int = plan.action_of(batch.base_offset)
    first: Int = plan.kept_at
    last: Int = first
    horizon: Int = -1
    has_tombstone: cython.bint = False
    while last < len(plan.kept) and plan.kept[last] <= batch.last_offset:
        has_tombstone = has_tombstone or plan.tombstones[last] != 0
        last += 1
    if action == Action.SET_HORIZON or (has_tombstone and batch.attributes & DELETE_HORIZON_BIT == 0):
        horizon = plan.horizon
    if action == Action.COPY or (
        0 < last - first == batch.count
        and horizon < 0
        and action != Action.SET_HORIZON
        and (not plan.renumbers or batch.count == batch.last_offset - batch.base_offset + 1)
    ):
        if not plan.reserve(batch.size):
            return Stop.FULL
        end = _put_copy(data, source, batch, last, plan)
    elif action == Action.KEEP_EMPTY and first == last:
        if not plan.reserve(HEADER_BYTES):
            return Stop.FULL
        end = _put_empty(data, source, batch, plan)
    elif action != Action.SET_HORIZON and (first == last or action == Action.DROP):
        plan.kept_at = last
        return Stop.END
    elif is_compressed(batch):
        return Stop.COMPRESSED
    elif not may_hold_records(batch, batch.count):
        return Stop.UNUSUAL_RECORDS
    else:
        if not plan.reserve(batch.size + MOST_BYTES_A_RECORD_GROWS * batch.count):
            return Stop.FULL
        end = _put_records(data, source, batch, horizon, action == Action.SET_HORIZON, last, plan)
        if end == INVALID:
            return Stop.UNUSUAL_RECORDS
    plan.note(end, batch.base_offset)
    plan.kept_at = last
    return Stop.END


def filter_batches(data: Bytes, start: Int, stop: Int, plan: BatchFilter) -> tuple[Int, Int]:
    """Write to ``plan.out`` the rest of the batches in ``data[start:stop]``.

    Returns a :class:`Stop` and the position reached: ``FULL`` when the output is to be taken; ``COMPRESSED``
    and ``UNUSUAL_RECORDS`` at batches that must be read or written otherwise; ``UNUSUAL_BATCH`` where no v2
    batch lies, or none that was sound when it was checked.
    """
    status: Int = Stop.END
    with cython.nogil:
        while start < stop:
            if not may_have_been_sound(data, start, stop):
                status = Stop.UNUSUAL_BATCH
                break
            batch = header(data, start)
            if batch.last_offset >= plan.start_offset:
                status = _put_batch(data, start, batch, plan)
                if status != Stop.END:
                    break
            start += batch.size
    return status, start
