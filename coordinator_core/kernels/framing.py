"""Record batches and records as they lie in a log: the one reader of their framing in compiled code.

Source: ``DefaultRecordBatch`` and ``DefaultRecord`` of Kafka's clients.
"""

import cython

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.primitives import *


@cython.final
@cython.cclass
class Bounds:
    """Limits of batches and records; the readers of ``coordinator_core.log`` take those beyond them.

    ``start_offset``: batches wholly below it are not part of the log. ``last_offset``: the last record offset
    that belongs to the segment. ``check_crc``: whether CRCs were not checked before.
    """

    max_batch_bytes = cython.declare(Int, visibility="public")
    max_records = cython.declare(Int, visibility="public")
    start_offset = cython.declare(Int, visibility="public")
    last_offset = cython.declare(Int, visibility="public")
    check_crc = cython.declare(cython.bint, visibility="public")

    def __init__(self, max_batch_bytes: Int, max_records: Int) -> None:
        self.max_batch_bytes = max_batch_bytes
        self.max_records = max_records
        self.start_offset = -0x7FFFFFFFFFFFFFFF
        self.last_offset = 0x7FFFFFFFFFFFFFFF
        self.check_crc = True


@cython.cfunc
def batch_size(data: Bytes, at: Int, stop: Int) -> Int:
    """Size of the v2 batch at ``at``, or 0 where none lies wholly before ``stop``."""
    if stop - at < HEADER_BYTES or data[at + BatchField.MAGIC] != 2:
        return 0
    size: Int = be32(data, at + BatchField.LENGTH) + LENGTH_END
    return size if HEADER_BYTES <= size <= stop - at else 0


@cython.cfunc
def crc_matches(data: Bytes, at: Int, size: Int) -> cython.bint:
    """Whether the v2 batch at ``at`` has the CRC-32C that it declares."""
    declared: Int = be32(data, at + BatchField.CRC) & LOW_32_BITS
    return crc32c(data, at + BatchField.ATTRIBUTES, at + size) == declared


@cython.cfunc
def header(data: Bytes, at: Int) -> Header:
    """Fields of the v2 batch at ``at``, of which :data:`HEADER_BYTES` are there."""
    base_offset: Int = be64(data, at)
    return Header(
        size=be32(data, at + BatchField.LENGTH) + LENGTH_END,
        base_offset=base_offset,
        last_offset=base_offset + be32(data, at + BatchField.LAST_OFFSET_DELTA),
        attributes=data[at + BatchField.ATTRIBUTES + 1],
        base_timestamp=be64(data, at + BatchField.BASE_TIMESTAMP),
        max_timestamp=be64(data, at + BatchField.MAX_TIMESTAMP),
        producer_id=be64(data, at + BatchField.PRODUCER_ID),
        producer_epoch=be16(data, at + BatchField.PRODUCER_EPOCH),
        count=be32(data, at + BatchField.RECORD_COUNT),
    )


@cython.cfunc
def sound_size(data: Bytes, at: Int, stop: Int, expected: Int, is_unpacked: cython.bint, bounds: Bounds) -> Int:
    """Size of the v2 batch at ``at``, or 0 if anything about it but its records is unusual.

    ``expected`` is the lowest offset that it may have. ``is_unpacked`` says that the batch was sound before
    its records were decompressed.
    """
    size: Int = batch_size(data, at, stop)
    if size == 0:
        return 0
    base_offset: Int = be64(data, at)
    last_offset_delta: Int = be32(data, at + BatchField.LAST_OFFSET_DELTA)
    # A gap is usual, but not that the next batch fits into it: then that one's offset is below ``expected``.
    if base_offset < expected or last_offset_delta < 0 or be32(data, at + BatchField.RECORD_COUNT) < 0:
        return 0
    if base_offset > bounds.last_offset - last_offset_delta or be32(data, at + BatchField.LEADER_EPOCH) < -1:
        return 0
    if not is_unpacked:
        if size - LENGTH_END > bounds.max_batch_bytes:
            return 0
        if bounds.check_crc and not crc_matches(data, at, size):
            return 0
    return size


@cython.cfunc
def is_compressed(batch: Header) -> cython.bint:
    """Whether the batch has records, and they are compressed."""
    return batch.attributes & CODEC_BITS != 0 and batch.count != 0


@cython.cfunc
def may_hold_records(batch: Header, max_records: Int) -> cython.bint:
    """Whether the batch is large enough for its record count, which is at most ``max_records``."""
    return batch.count * MIN_RECORD_BYTES <= batch.size - HEADER_BYTES and batch.count <= max_records


@cython.ccall
def next_record(data: Bytes, at: Int, stop: Int) -> Record:
    """The v2 record at ``at`` of a batch that ends at ``stop``.

    ``Record.unusual`` says what is not as clients and brokers write it; offset deltas are for
    :func:`follows`. With ``Unusual.FRAMING``, ``KEY`` or ``VALUE`` the fields from there on mean nothing.
    """
    length: Int
    timestamp_delta: Int
    offset_delta: Int
    key_bytes: Int
    key: Int
    value_bytes: Int
    value: Int
    unusual: Int = 0
    tail: Int = INVALID
    length, at = varint(data, at, stop)
    if at == INVALID or length < 1 or length > stop - at:
        return _broken(INVALID, Unusual.FRAMING)
    end: Int = at + length
    timestamp_delta, at = varlong(data, at + 1, end)
    if at == INVALID:
        return _broken(end, Unusual.FRAMING)
    offset_delta, tail = varint(data, at, end)
    if tail == INVALID:
        return _broken(end, Unusual.FRAMING)
    key_bytes, key = varint(data, tail, end)
    if key == INVALID:
        return _broken(end, Unusual.KEY)
    if key_bytes < 0:
        key_bytes = -1
        unusual = Unusual.NO_KEY
        at = key
    else:
        if key_bytes > end - key:
            return _broken(end, Unusual.KEY)
        at = key + key_bytes
    value_bytes, value = varint(data, at, end)
    if value == INVALID:
        return _broken(end, Unusual.VALUE)
    if value_bytes < 0:
        value_bytes = -1
        at = value
    else:
        if value_bytes > end - value:
            unusual |= Unusual.VALUE
            at = end
        else:
            at = value + value_bytes
    if at + 1 != end or data[at] != 0:
        unusual |= Unusual.HEADERS
    return Record(
        end=end,
        unusual=unusual,
        timestamp_delta=timestamp_delta,
        offset_delta=offset_delta,
        tail=tail,
        key=key,
        key_bytes=key_bytes,
        value=value,
        value_bytes=value_bytes,
    )


@cython.cfunc
def _broken(end: Int, unusual: Int) -> Record:
    return Record(
        end=end,
        unusual=unusual,
        timestamp_delta=0,
        offset_delta=0,
        tail=INVALID,
        key=INVALID,
        key_bytes=-1,
        value=INVALID,
        value_bytes=-1,
    )


@cython.cfunc
def header_count(data: Bytes, record: Record) -> Int:
    """Number of headers behind the value of a record, -1 where anything else follows it."""
    position: Int = record.value + max(record.value_bytes, 0)
    headers, position = varint(data, position, record.end)
    if position == INVALID or headers < 0 or headers > record.end - position:
        return -1
    for _ in range(headers):
        length, position = varint(data, position, record.end)
        if position == INVALID or length < 0 or length > record.end - position:
            return -1
        position += length
        length, position = varint(data, position, record.end)
        if position == INVALID or length > record.end - position:
            return -1
        position += max(length, 0)
    return headers if position == record.end else -1


@cython.cfunc
def follows(record: Record, previous_delta: Int, batch: Header) -> cython.bint:
    """Whether the record's offset comes behind the one before, within its batch."""
    return previous_delta < record.offset_delta <= batch.last_offset - batch.base_offset


@cython.cfunc
def record_timestamp(batch: Header, record: Record) -> Int:
    """Timestamp of a record, epoch milliseconds: the append time where the batch has one.

    A sum beyond int64 wraps, as in Java.
    """
    if batch.attributes & LOG_APPEND_TIME_BIT:
        return batch.max_timestamp
    return signed(cython.cast(Word, batch.base_timestamp + record.timestamp_delta) & ALL_64_BITS)


def gather_headers(data: Bytes, start: Int, stop: Int, out: MutableBytes) -> tuple[Int, Int, Int]:
    """Copy the :data:`HEADER_BYTES` of each intact v2 batch in ``data[start:stop]`` to ``out``, without gaps.

    Intact is a batch that lies wholly before ``stop`` and has the CRC-32C that it declares: its header then
    stands for all its bytes. Returns a :class:`Stop`, the position reached and the number of headers:
    ``FULL`` when ``out`` is, ``UNUSUAL_BATCH`` at anything but an intact batch.
    """
    headers: Int = 0
    status: Int = Stop.END
    with cython.nogil:
        while start < stop:
            if (headers + 1) * HEADER_BYTES > len(out):
                status = Stop.FULL
                break
            size = batch_size(data, start, stop)
            if size == 0 or not crc_matches(data, start, size):
                status = Stop.UNUSUAL_BATCH
                break
            copy_bytes(data, start, out, headers * HEADER_BYTES, HEADER_BYTES)
            headers += 1
            start += size
    return status, start, headers
