"""Messages of formats 0 and 1 into the fold.

As :mod:`~coordinator_core.kernels.fold` they know the rules of healthy logs only; ``coordinator_core.log.legacy`` says
what anything else is.
"""

import cython

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.fold import *
    from coordinator_core.kernels.fold_tables import FoldTables
    from coordinator_core.kernels.primitives import *


@cython.cfunc
def _message_size(data: Bytes, at: Int, stop: Int) -> Int:
    """Size of the message at ``at``, or 0 where none lies wholly before ``stop``."""
    if stop - at < LEGACY_HEADER_0 + LEGACY_LENGTHS:
        return 0
    magic: Int = data[at + LegacyField.MAGIC]
    size: Int = be32(data, at + LegacyField.SIZE) + LENGTH_END
    return size if magic < 2 and _overhead(magic) <= size <= stop - at else 0


@cython.cfunc
def _overhead(magic: Int) -> Int:
    """Size of a message without key and value."""
    return LEGACY_LENGTHS + (LEGACY_HEADER_0 if magic == 0 else LEGACY_HEADER_1)


@cython.cfunc
def _is_sound(data: Bytes, at: Int, size: Int, expected: Int, bounds: Bounds) -> cython.bint:
    """Whether the message belongs where it is; ``expected`` is the lowest offset that it may have."""
    offset: Int = be64(data, at)
    if offset < expected or offset > bounds.last_offset or size - LENGTH_END > bounds.max_batch_bytes:
        return False
    if not bounds.check_crc:
        return True
    declared: Int = be32(data, at + LegacyField.CRC) & LOW_32_BITS
    return crc32(data, at + LegacyField.MAGIC, at + size) == declared


@cython.cfunc
def _is_compressed(data: Bytes, at: Int) -> cython.bint:
    return data[at + LegacyField.ATTRIBUTES] & CODEC_BITS != 0


@cython.cfunc
def _timestamp(data: Bytes, at: Int) -> Int:
    """Format 0 has none."""
    return -1 if data[at + LegacyField.MAGIC] == 0 else be64(data, at + LegacyField.TIMESTAMP)


@cython.cfunc
def _split_message(data: Bytes, at: Int, size: Int, offset: Int, index: Int, tables: FoldTables) -> cython.bint:
    """Put the message of ``size`` bytes at ``at`` into ``tables.scratch[index]``, its own time with it.

    False if anything about it is unusual.
    """
    stop: Int = at + size
    magic: Int = data[at + LegacyField.MAGIC]
    key: Int = at + _overhead(magic) - LEGACY_LENGTHS
    key_bytes: Int = be32(data, key)
    key += 4
    if key_bytes < 2 or key_bytes > stop - key - 4:
        return False
    value: Int = key + key_bytes
    value_bytes: Int = max(be32(data, value), -1)
    value += 4
    if value_bytes > stop - value:
        return False
    tables.scratch[index].offset = offset
    tables.scratch[index].timestamp = _timestamp(data, at)
    tables.scratch[index].size_bytes = key_bytes + max(value_bytes, 0)
    return put_split(data, key, key_bytes, value, value_bytes, index, tables)


@cython.cfunc
def _header(offset: Int, last_offset: Int, count: Int, codec: Int) -> Header:
    return Header(
        size=0,
        base_offset=offset,
        last_offset=last_offset,
        attributes=codec,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        count=count,
    )


def fold_messages(data: Bytes, start: Int, stop: Int, tag: Int, tables: FoldTables) -> Int:
    """Fold the plain messages in ``data[start:stop]`` that have the format of the first; returns a :class:`Stop`.

    ``tag`` goes on positions. ``tables.position`` is where it stopped; the fold holds all messages before that.
    """
    position: Int = start
    status: Int = Stop.END
    tables.position = start
    with cython.nogil:
        while status == Stop.END and position < stop:
            status = _fold_some_messages(data, position, stop, tag, tables)
            position = tables.position
    return status


@cython.cfunc
@cython.exceptval(-1)
def _fold_some_messages(data: Bytes, position: Int, stop: Int, tag: Int, tables: FoldTables) -> Int:
    """Fold some messages together; returns a :class:`Stop`, ``tables.position`` is behind them."""
    first: Int = position
    records: Int = 0
    expected: Int = tables.next_offset
    magic: Int = -1
    status: Int = Stop.END
    while position < stop and records < RECORDS_AT_A_TIME:
        size = _message_size(data, position, stop)
        if size == 0 or not _is_sound(data, position, size, expected, tables.bounds):
            status = Stop.UNUSUAL_BATCH
            break
        offset = be64(data, position)
        if offset < tables.bounds.start_offset:
            # Nothing came before it.
            position += size
            first, expected = position, offset + 1
            tables.next_offset = expected
            continue
        if magic >= 0 and data[position + LegacyField.MAGIC] != magic:
            break
        if _is_compressed(data, position):
            status = Stop.COMPRESSED
            break
        magic = data[position + LegacyField.MAGIC]
        tables.reserve(records + 1, position + size - first, 0)
        if not _split_message(data, position, size, offset, records, tables):
            status = Stop.UNUSUAL_RECORDS
            break
        tables.scratch[records].size_bytes += _overhead(magic)
        tables.scratch[records].index = 0
        tables.scratch[records].batch_records = 1
        records += 1
        expected = offset + 1
        position += size
    reserve_group_records(records, tables)
    find_keys(data, records, tables)
    for index in range(records):
        offset = tables.scratch[index].offset
        fold_records(data, index, _header(offset, offset, 1, 0), tag, tables)
        count_batch(_header(offset, offset, 1, 0), offset + 1, tables)
    if magic >= 0:
        tables.messages[magic] += records
    tables.position = position
    return status


def fold_wrapper(
    data: Bytes,
    start: Int,
    stop: Int,
    tag: Int,
    magic: Int,
    codec: Int,
    last_offset: Int,
    has_append_time: cython.bint,
    append_time: Int,
    tables: FoldTables,
) -> cython.bint:
    """Fold the messages of a wrapper, whose content is ``data[start:stop]``, as one batch.

    ``magic``, ``codec``, ``last_offset`` and ``append_time`` are those of the wrapper. False, and nothing is folded, if
    anything is unusual.
    """
    count: Int = 0
    last: Int = 0
    position: Int = start
    # A message that is cut at the end is none.
    while stop - position >= LENGTH_END:
        size = be32(data, position + LegacyField.SIZE) + LENGTH_END
        if size > stop - position:
            break
        if _message_size(data, position, stop) == 0 or _is_compressed(data, position):
            return False
        last = be64(data, position)
        count += 1
        position += size
    # Offsets of format 1 count from that of the first message.
    base: Int = last_offset - last if magic == 1 else 0
    if count == 0 or count > tables.bounds.max_records or last < 0 or base < 0 or base + last != last_offset:
        return False
    tables.reserve(count, stop - start, 0)
    position = start
    previous: Int = -1
    for index in range(count):
        size = _message_size(data, position, stop)
        offset = be64(data, position)
        if offset <= previous or offset > last:
            return False
        previous = offset
        if not _split_message(data, position, size, base + offset, index, tables):
            return False
        tables.scratch[index].size_bytes += _overhead(magic)
        tables.scratch[index].index = index
        if has_append_time and data[position + LegacyField.MAGIC] == 1:
            tables.scratch[index].timestamp = append_time
        position += size
    tables.scratch[0].batch_records = count
    reserve_group_records(count, tables)
    find_keys(data, count, tables)
    batch = _header(tables.scratch[0].offset, last_offset, count, codec)
    fold_records(data, 0, batch, tag, tables)
    count_batch(batch, last_offset + 1, tables)
    tables.messages[magic] += 1
    return True
