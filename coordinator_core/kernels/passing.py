"""Passes batches of which a reader of some groups, or of some key types, needs the header only."""

import cython

from coordinator_core.kernels.arrays import zeros

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.framing import *
    from coordinator_core.kernels.key_table import KeyTable
    from coordinator_core.kernels.primitives import *

_MOST_HOLES = 4096


@cython.final
@cython.cclass
class Passage:
    """Conditions by which batches are passed, and a summary of their headers.

    Wanted are groups in ``group_ids`` (with int16 length, as in keys), those of ``portion`` where ``portions`` is not
    0, records with another key type than 0 to ``newest_key_type``, and tombstones if ``wants_tombstones``. A batch
    with a leader epoch above ``leader_epoch`` or a codec that is not a bit of ``codecs`` is not passed either.

    ``batches`` were passed since the caller set this to 0, the newest record of them at ``max_timestamp``;
    ``next_offset`` is behind the last. ``holes``, ``holes_used`` numbers, are record offsets that the log does not
    have: first and end. ``removed`` records are gone from batches, the last of them before ``removed_end``.

    The bytes begin at ``origin`` in their segment; ``is_cut``: more are behind them.
    """

    bounds = cython.declare(Bounds, visibility="public")
    group_ids = cython.declare(KeyTable, visibility="public")
    portion = cython.declare(Int, visibility="public")
    portions = cython.declare(Int, visibility="public")
    newest_key_type = cython.declare(Int, visibility="public")
    wants_tombstones = cython.declare(cython.bint, visibility="public")
    leader_epoch = cython.declare(Int, visibility="public")
    codecs = cython.declare(Int, visibility="public")
    next_offset = cython.declare(Int, visibility="public")
    batches = cython.declare(Int, visibility="public")
    max_timestamp = cython.declare(Int, visibility="public")
    holes = cython.declare(MutableInt64s, visibility="public")
    holes_used = cython.declare(Int, visibility="public")
    removed = cython.declare(Int, visibility="public")
    origin = cython.declare(Int, visibility="public")
    is_cut = cython.declare(cython.bint, visibility="public")
    removed_end = cython.declare(Int, visibility="public")

    def __init__(self, bounds: Bounds, portion: Int, portions: Int) -> None:
        """Nothing passed, no group wanted but those of the portion, and no batch to pass before an epoch is set."""
        self.bounds = bounds
        self.group_ids = KeyTable()
        self.portion = portion
        self.portions = portions
        self.newest_key_type = 0x7FFF
        self.wants_tombstones = False
        self.leader_epoch = -2
        self.codecs = 0
        self.next_offset = -1
        self.holes = zeros(_MOST_HOLES)
        self.origin = 0
        self.is_cut = False
        self.begin()

    def begin(self) -> None:
        """Set the counters to 0."""
        self.batches = 0
        self.max_timestamp = -1
        self.holes_used = 0
        self.removed = 0
        self.removed_end = -1

    @cython.cfunc
    def wants(self, data: Bytes, record: Record) -> cython.bint:
        """Whether the record is for the caller, as all are that take more than a look."""
        if record.unusual or record.key_bytes < 4:
            return True
        if record.value_bytes < 0 and self.wants_tombstones:
            return True
        key_type: Int = be16(data, record.key)
        group_bytes: Int = be16(data, record.key + 2)
        if key_type < 0 or key_type > self.newest_key_type or group_bytes < 0 or group_bytes > record.key_bytes - 4:
            return True
        at: Int = record.key + 2
        length: Int = group_bytes + 2
        if self.portions:
            return portion_of(data, at, length, self.portions) == self.portion
        return self.group_ids.used > 0 and self.group_ids.find(data, at, length, hash_bytes(data, at, length)) >= 0

    @cython.cfunc
    def wants_any(self, data: Bytes, at: Int, batch: Header) -> cython.bint:
        """Whether a record of the batch at ``at`` is for the caller."""
        position: Int = at + HEADER_BYTES
        stop: Int = at + batch.size
        previous_delta: Int = -1
        for _ in range(batch.count):
            record = next_record(data, position, stop)
            if self.wants(data, record) or not follows(record, previous_delta, batch):
                return True
            previous_delta = record.offset_delta
            position = record.end
        return batch.count != 0 and position != stop

    @cython.cfunc
    def note(self, batch: Header) -> cython.void:
        """Count a batch that is passed."""
        if batch.base_offset > self.next_offset:
            self.holes[self.holes_used] = self.next_offset
            self.holes[self.holes_used + 1] = batch.base_offset
            self.holes_used += 2
        removed: Int = batch.last_offset - batch.base_offset + 1 - batch.count
        if removed:
            self.removed += removed
            self.removed_end = batch.last_offset + 1
        self.max_timestamp = max(self.max_timestamp, batch.max_timestamp)
        self.next_offset = batch.last_offset + 1
        self.batches += 1


@cython.ccall
def portion_of(data: Bytes, at: Int, length: Int, portions: Int) -> Int:
    """The portion of a group id, with its int16 length. Ids that may be read as one are in one: in the first."""
    if not is_plain_utf8(data, at + 2, length - 2):
        return 0
    return crc32c(data, at, at + length) % portions


@cython.cfunc
def pass_status(data: Bytes, at: Int, stop: Int, expected: Int, is_unpacked: cython.bint, passage: Passage) -> Int:
    """``Stop.END`` if the header of the batch at ``at`` lets it pass, behind one that ends before ``expected``."""
    size: Int = sound_size(data, at, stop, expected, is_unpacked, passage.bounds)
    if size == 0:
        return Stop.UNUSUAL_BATCH
    batch = header(data, at)
    if (
        batch.attributes & CONTROL_BIT
        or be32(data, at + BatchField.LEADER_EPOCH) > passage.leader_epoch
        or passage.codecs >> (batch.attributes & CODEC_BITS) & 1 == 0
        or batch.last_offset - batch.base_offset + 1 < batch.count
        or batch.count == 0
    ):
        return Stop.UNUSUAL_RECORDS
    # Where offsets are missing and the next batch fits there, this one's offset is wrong.
    if batch.base_offset > expected and (
        be64(data, at + size) <= batch.last_offset if stop - at - size >= 8 else is_unpacked or passage.is_cut
    ):
        return Stop.UNUSUAL_BATCH
    if not is_unpacked and is_compressed(batch):
        return Stop.COMPRESSED
    return Stop.END if may_hold_records(batch, passage.bounds.max_records) else Stop.UNUSUAL_RECORDS


def pass_batches(data: Bytes, start: Int, stop: Int, is_unpacked: cython.bint, passage: Passage) -> tuple[Int, Int]:
    """Pass batches from ``start`` on that the caller of ``passage`` does not want.

    Returns a :class:`Stop` and the position reached: ``COMPRESSED`` at such a batch, ``FULL`` when ``holes`` are, else
    at a batch that is wanted or to be judged.
    """
    status: Int = Stop.END
    with cython.nogil:
        while start < stop:
            if passage.holes_used + 2 > len(passage.holes):
                status = Stop.FULL
                break
            status = pass_status(data, start, stop, passage.next_offset, is_unpacked, passage)
            if status != Stop.END:
                break
            batch = header(data, start)
            if passage.wants_any(data, start, batch):
                status = Stop.UNUSUAL_RECORDS
                break
            passage.note(batch)
            start += batch.size
    return status, start
