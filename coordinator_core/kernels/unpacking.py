"""Decompresses batches by the C functions of the codec libraries.

Reads the form that writers use. A batch that it leaves (damaged, unusual, another codec) goes to ``log.compression``,
which knows every rule and names the error.
"""

import cython

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.framing import *
    from coordinator_core.kernels.primitives import *


def list_batches(
    data: Bytes, start: Int, stop: Int, expected: Int, max_bytes: Int, rows: PackedBatchRows, bounds: Bounds
) -> Int:
    """List sound batches from ``start`` on, whose offsets begin at ``expected``, into ``rows``.

    Ends at the first unsound one, when ``rows`` is full, or with ``max_bytes``. Returns how many.
    """
    position: Int = start
    batches: Int = 0
    with cython.nogil:
        while position < stop and batches < len(rows) and position - start < max_bytes:
            size = sound_size(data, position, stop, expected, False, bounds)
            if size == 0:
                break
            batch = header(data, position)
            expected = batch.last_offset + 1
            rows[batches].position = position
            rows[batches].size = size
            rows[batches].codec = batch.attributes & CODEC_BITS if is_compressed(batch) else 0
            rows[batches].next_offset = expected
            rows[batches].plain_size = 0
            batches += 1
            position += size
    return batches


def unpack(data: Bytes, rows: PackedBatchRows, out: MutableBytes, at: Int, max_bytes: Int, functions: Int64s) -> Int:
    """Put the batches ``rows`` into ``out`` from ``at`` on, and their sizes there into ``rows``.

    ``functions`` are addresses by :class:`CodecFunction`, 0 for none. Returns the first row that it leaves:
    ``out`` is full, its records would exceed ``max_bytes``, or they are not compressed as writers do.
    """
    row: Int = 0
    with cython.nogil:
        while row < len(rows):
            plain = _unpack_one(
                data, rows[row].position, rows[row].size, rows[row].codec, out, at, max_bytes, functions
            )
            if plain < 0:
                break
            rows[row].plain_size = plain
            at += plain
            row += 1
    return row


@cython.cfunc
def _unpack_one(
    data: Bytes, start: Int, size: Int, codec: Int, out: MutableBytes, at: Int, max_bytes: Int, functions: Int64s
) -> Int:
    """Size in ``out`` of the batch at ``start``, or -1."""
    section: Int = at + HEADER_BYTES
    room: Int = min(len(out) - section, max_bytes)
    plain: Int = -1
    if start < 0 or size < HEADER_BYTES or size > len(data) - start or room < 0:
        return -1
    if codec == 0:
        if size - HEADER_BYTES <= room:
            plain = size - HEADER_BYTES
            copy_bytes(data, start + HEADER_BYTES, out, section, plain)
    elif room > 0 and codec == CodecFunction.LZ4 and functions[CodecFunction.LZ4] != 0:
        plain = _lz4(data, start + HEADER_BYTES, start + size, out, section, room, functions)
    elif room > 0 and codec == CodecFunction.ZSTD and functions[CodecFunction.ZSTD] != 0:
        plain = _zstd(data, start + HEADER_BYTES, start + size, out, section, room, functions)
    if plain < 0:
        return -1
    copy_bytes(data, start, out, at, HEADER_BYTES)
    put_be(out, at + BatchField.LENGTH, HEADER_BYTES - LENGTH_END + plain, 4)
    return HEADER_BYTES + plain


@cython.cfunc
def _lz4(data: Bytes, start: Int, stop: Int, out: MutableBytes, at: Int, room: Int, functions: Int64s) -> Int:
    """Bytes that the frame in ``data[start:stop]`` becomes in ``out`` from ``at`` on, or -1.

    Without block checksums; content size and content checksum are skipped (``log.compression``).
    """
    if stop - start < 15 or le32(data, start) != LZ4_MAGIC:
        return -1
    flags: Int = data[start + 4]
    largest: Int = data[start + 5]
    if flags & 0xF3 != 0x60 or largest & 0x0F or largest < 0x40 or largest > 0x70:
        return -1
    block_max: Int = 1 << (2 * (largest >> 4) + 8)
    position: Int = start + (14 if flags & 0x08 else 6)
    if data[position] != _lz4_header_checksum(data, start + 4, position):
        return -1
    position += 1
    written: Int = 0
    word: Int
    while position + 4 <= stop:
        word = le32(data, position)
        size = word & 0x7FFFFFFF
        position += 4
        if size == 0:
            return written
        if size > block_max or size > stop - position or written >= room:
            return -1
        if word != size:
            if size > room - written:
                return -1
            copy_bytes(data, position, out, at + written, size)
            written += size
        else:
            got = -1
            if cython.compiled:
                got = call_lz4(
                    functions[CodecFunction.LZ4],
                    cython.address(data[position]),
                    size,
                    cython.address(out[at + written]),
                    min(room - written, block_max),
                )
            if got < 0:
                return -1
            written += got
        position += size
    return -1


@cython.cfunc
def _lz4_header_checksum(data: Bytes, start: Int, stop: Int) -> Int:
    """``log.compression.lz4.header_checksum`` of ``data[start:stop]``."""
    value: Word = 374761393 + stop - start
    at: Int = start
    while at + 4 <= stop:
        value = (value + le32(data, at) * XXH32_PRIME_3) & LOW_32_BITS
        value = (((value << 17) | (value >> 15)) & LOW_32_BITS) * 668265263 & LOW_32_BITS
        at += 4
    while at < stop:
        value = (value + cython.cast(Word, data[at]) * 374761393) & LOW_32_BITS
        value = (((value << 11) | (value >> 21)) & LOW_32_BITS) * XXH32_PRIME_1 & LOW_32_BITS
        at += 1
    value = (value ^ (value >> 15)) * XXH32_PRIME_2 & LOW_32_BITS
    value = (value ^ (value >> 13)) * XXH32_PRIME_3 & LOW_32_BITS
    value ^= value >> 16
    return (value >> 8) & 0xFF


@cython.cfunc
def _zstd(data: Bytes, start: Int, stop: Int, out: MutableBytes, at: Int, room: Int, functions: Int64s) -> Int:
    """Bytes that the one frame in ``data[start:stop]`` becomes in ``out`` from ``at`` on, or -1."""
    if stop - start < 6 or le32(data, start) != ZSTD_MAGIC:
        return -1
    # Windows of 128 MiB and more are refused by those who read piece by piece, Kafka among them; a frame of
    # a single segment has none, and what it becomes has room here.
    if data[start + 4] & 0x20 == 0 and data[start + 5] >> 3 > 16:
        return -1
    got: Int = -1
    if cython.compiled:
        if (
            call_zstd_frame_size(functions[CodecFunction.ZSTD_FRAME_SIZE], cython.address(data[start]), stop - start)
            == stop - start
        ):
            got = call_zstd(
                functions[CodecFunction.ZSTD],
                functions[CodecFunction.ZSTD_CONTEXT],
                cython.address(data[start]),
                stop - start,
                cython.address(out[at]),
                room,
            )
    return got
