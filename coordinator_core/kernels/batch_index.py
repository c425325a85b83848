"""First pass of compaction: checks every batch, and notes those that decide about others."""

import cython

from coordinator_core.kernels.arrays import grown, new_rows

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.framing import *
    from coordinator_core.kernels.primitives import *

_FIRST_INDEXED_BATCHES = 64


@cython.final
@cython.cclass
class BatchIndex:
    """Batches of a segment: counts, and a row for each that decides about others.

    ``used`` rows of ``rows`` are batches with a producer id, control batches, and batches with another leader
    epoch than the one before. ``last_base_offset`` is -1 before there is a batch.
    """

    next_offset = cython.declare(Int, visibility="public")
    leader_epoch = cython.declare(Int, visibility="public")
    last_base_offset = cython.declare(Int, visibility="public")
    batches = cython.declare(Int, visibility="public")
    records = cython.declare(Int, visibility="public")
    used = cython.declare(Int, visibility="public")
    rows = cython.declare(IndexedBatchRows, visibility="public")

    def __init__(self, next_offset: Int) -> None:
        """An empty index; no batch may begin below ``next_offset``."""
        self.next_offset = next_offset
        self.leader_epoch = -2
        self.last_base_offset = -1
        self.batches = 0
        self.records = 0
        self.used = 0
        self.rows = new_rows("IndexedBatch", _FIRST_INDEXED_BATCHES)

    @cython.cfunc
    def pass_batch(self, batch: Header, leader_epoch: Int) -> cython.void:
        """Count a batch."""
        self.leader_epoch = leader_epoch
        self.last_base_offset = batch.base_offset
        self.next_offset = batch.last_offset + 1
        self.batches += 1
        self.records += batch.count

    @cython.cfunc
    @cython.exceptval(-1)
    def note(self, data: Bytes, at: Int, batch: Header, leader_epoch: Int) -> cython.int:
        """Add a row for the batch at ``at``."""
        if self.used == len(self.rows):
            with cython.gil:
                self.rows = grown(self.rows, self.used, self.used + 1)
        row: Int = self.used
        self.used = row + 1
        self.rows[row].base_offset = batch.base_offset
        self.rows[row].last_offset = batch.last_offset
        self.rows[row].attributes = batch.attributes
        self.rows[row].records = batch.count
        self.rows[row].producer_id = batch.producer_id
        self.rows[row].producer_epoch = batch.producer_epoch
        self.rows[row].max_timestamp = batch.max_timestamp
        self.rows[row].delete_horizon = delete_horizon(batch)
        self.rows[row].control_type = _control_type(data, at, batch)
        self.rows[row].leader_epoch = leader_epoch
        self.rows[row].position = at
        self.rows[row].segment = 0
        return 0


@cython.cfunc
def delete_horizon(batch: Header) -> Int:
    """Delete horizon of a batch in epoch milliseconds, -1 for none."""
    return batch.base_timestamp if batch.attributes & DELETE_HORIZON_BIT else -1


@cython.cfunc
def may_have_been_sound(data: Bytes, at: Int, stop: Int) -> cython.bint:
    """Whether a v2 batch lies at ``at`` that an earlier pass can have found sound: files may change."""
    if batch_size(data, at, stop) == 0:
        return False
    batch = header(data, at)
    return batch.last_offset >= batch.base_offset and batch.count >= 0


@cython.cfunc
def _control_type(data: Bytes, at: Int, batch: Header) -> Int:
    """Type of the control record of a batch that has one such record, as plain as brokers write it."""
    if batch.attributes & CONTROL_BIT == 0 or batch.count == 0:
        return NO_CONTROL_TYPE
    if batch.count != 1 or is_compressed(batch):
        return UNREAD_CONTROL_TYPE
    record = next_record(data, at + HEADER_BYTES, at + batch.size)
    if record.unusual or record.end != at + batch.size or record.key_bytes < 4 or be16(data, record.key) < 0:
        return UNREAD_CONTROL_TYPE
    return be16(data, record.key + 2)


def index_batches(data: Bytes, start: Int, stop: Int, bounds: Bounds, index: BatchIndex) -> tuple[Int, Int]:
    """Check the v2 batches in ``data[start:stop]``, and note in ``index`` those that decide about others.

    Returns a :class:`Stop` and the position reached: ``UNUSUAL_BATCH`` at anything but a sound batch.
    """
    status: Int = Stop.END
    with cython.nogil:
        while start < stop:
            if sound_size(data, start, stop, index.next_offset, False, bounds) == 0:
                status = Stop.UNUSUAL_BATCH
                break
            batch = header(data, start)
            leader_epoch = be32(data, start + BatchField.LEADER_EPOCH)
            if (
                batch.producer_id != NO_PRODUCER_ID
                or batch.attributes & CONTROL_BIT
                or leader_epoch != index.leader_epoch
            ):
                index.note(data, start, batch, leader_epoch)
            index.pass_batch(batch, leader_epoch)
            start += batch.size
    return status, start
