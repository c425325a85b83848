"""Passes records that show ``--profile auto`` nothing new.

``replay.inference`` alone knows what a record shows. Nearly all records show nothing new: commits like those before.
"""

import cython

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.fold import split_records
    from coordinator_core.kernels.fold_tables import FoldTables
    from coordinator_core.kernels.framing import *


def pass_known(
    data: Bytes, start: Int, stop: Int, batches: Int, is_unpacked: cython.bint, witness: WitnessRows, tables: FoldTables
) -> tuple[Int, Int, Int]:
    """Pass over at most ``batches`` batches whose records show nothing that ``witness[0]`` does not have.

    Returns a :class:`Stop`, the position reached and the number of batches passed: ``COMPRESSED`` at such a
    batch; ``UNUSUAL_RECORDS`` at one to be looked at; ``UNUSUAL_BATCH`` at anything but a sound one.
    ``tables.next_offset`` is the lowest offset that the next batch may have.
    """
    passed: Int = 0
    status: Int = Stop.END
    with cython.nogil:
        while start < stop and passed < batches:
            size = sound_size(data, start, stop, tables.next_offset, is_unpacked, tables.bounds)
            if size == 0:
                status = Stop.UNUSUAL_BATCH
                break
            batch = header(data, start)
            if batch.count > 0:
                if not is_unpacked and is_compressed(batch):
                    status = Stop.COMPRESSED
                    break
                if not may_hold_records(batch, len(tables.scratch)) or not split_records(data, start, batch, 0, tables):
                    status = Stop.UNUSUAL_RECORDS
                    break
                if not _are_known(batch.count, witness, tables):
                    status = Stop.UNUSUAL_RECORDS
                    break
            tables.next_offset = batch.last_offset + 1
            passed += 1
            start += size
    return status, start, passed


@cython.cfunc
def _are_known(count: Int, witness: WitnessRows, tables: FoldTables) -> cython.bint:
    for record in range(count):
        if tables.scratch[record].kind == Kind.CONTROL:
            continue
        if tables.scratch[record].kind > Kind.TOMBSTONE:
            return False
        if tables.scratch[record].key_type == 0:
            if not witness[0].has_legacy_keys:
                return False
        elif not witness[0].has_keys or tables.scratch[record].detail > witness[0].offset_version:
            return False
    return True
