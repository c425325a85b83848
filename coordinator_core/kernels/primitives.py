"""Numbers and text in bytes: big-endian integers, varints, UTF-8, copies, hashes, CRC-32C.

The caller has checked that the bytes are there.
"""

import cython

if not cython.compiled:
    from zlib import crc32 as _crc32

    from crc32c import crc32c as _crc32c

    from coordinator_core.kernels.arrays import HASH_SECRETS
    from coordinator_core.kernels.declare import *

    def folded_product(left: Word, right: Word) -> Word:
        product = left * right
        return (product ^ (product >> 64)) & ALL_64_BITS

    def byte_length(word: Word) -> Int:
        return (word.bit_length() + 7) // 8


@cython.ccall
def be64(data: Bytes, at: Int) -> Int:
    """Big-endian int64 at ``at``."""
    if cython.compiled:
        return load_be64(cython.address(data[at]), cython.address(data[at + 7]))
    return int.from_bytes(bytes(data[at : at + 8]), "big", signed=True)


@cython.ccall
def be32(data: Bytes, at: Int) -> Int:
    """Big-endian int32 at ``at``."""
    if cython.compiled:
        return load_be32(cython.address(data[at]), cython.address(data[at + 3]))
    return int.from_bytes(bytes(data[at : at + 4]), "big", signed=True)


@cython.ccall
def be16(data: Bytes, at: Int) -> Int:
    """Big-endian int16 at ``at``."""
    if cython.compiled:
        return load_be16(cython.address(data[at]), cython.address(data[at + 1]))
    return int.from_bytes(bytes(data[at : at + 2]), "big", signed=True)


@cython.ccall
def le64(data: Bytes, at: Int) -> Word:
    """Little-endian uint64 at ``at``."""
    if cython.compiled:
        return load_le64(cython.address(data[at]), cython.address(data[at + 7]))
    return int.from_bytes(bytes(data[at : at + 8]), "little")


@cython.cfunc
def le32(data: Bytes, at: Int) -> Int:
    """Little-endian uint32 at ``at``."""
    return (
        cython.cast(Int, data[at])
        | cython.cast(Int, data[at + 1]) << 8
        | cython.cast(Int, data[at + 2]) << 16
        | cython.cast(Int, data[at + 3]) << 24
    )


@cython.cfunc
def put_le64(out: MutableBytes, at: Int, word: Word) -> cython.void:
    """Store ``word`` in eight bytes, the lowest first."""
    if cython.compiled:
        store_le64(cython.address(out[at]), cython.address(out[at + 7]), word)
    else:
        for byte in range(8):
            out[at + byte] = (word >> (8 * byte)) & 0xFF


@cython.cfunc
def put_be(out: MutableBytes, at: Int, value: Int, size: Int) -> cython.void:
    """Store the lower ``size`` bytes of ``value``, the highest first."""
    for byte in range(size):
        out[at + byte] = (value >> (8 * (size - 1 - byte))) & 0xFF


@cython.ccall
def crc32c(data: Bytes, start: Int, stop: Int) -> Int:
    """CRC-32C of ``data[start:stop]``, which is not empty."""
    if cython.compiled:
        return crc32c_of(cython.address(data[start]), cython.address(data[stop - 1]))
    return _crc32c(bytes(data[start:stop]))


@cython.ccall
def crc32c_by_tables(data: Bytes, start: Int, stop: Int) -> Int:
    """:func:`crc32c` as processors without an instruction for it compute it."""
    if cython.compiled:
        return crc32c_by_tables_of(cython.address(data[start]), cython.address(data[stop - 1]))
    return _crc32c(bytes(data[start:stop]))


@cython.ccall
def crc32(data: Bytes, start: Int, stop: Int) -> Int:
    """CRC-32 of ``data[start:stop]``, which is not empty."""
    if cython.compiled:
        return crc32_of(cython.address(data[start]), cython.address(data[stop - 1]))
    return _crc32(bytes(data[start:stop]))


@cython.ccall
def varint(data: Bytes, at: Int, stop: Int) -> tuple[Int, Int]:
    """Zigzag int32 of at most five bytes and the position behind it, ``INVALID`` if there is none."""
    value: Int = 0
    if at < stop and data[at] < 0x80:
        value = data[at]
        return (value >> 1) ^ -(value & 1), at + 1
    byte: Int
    for shift in range(0, 35, 7):
        if at >= stop:
            return 0, INVALID
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= LOW_32_BITS
            return (value >> 1) ^ -(value & 1), at
    return 0, INVALID


@cython.cfunc
def uvarlong(data: Bytes, at: Int, stop: Int) -> tuple[Word, Int]:
    """Unsigned varint of at most ten bytes and the position behind it, or ``INVALID``."""
    value: Word = 0
    byte: Word
    shift: Int
    for shift in range(0, 70, 7):
        if at >= stop:
            return 0, INVALID
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ALL_64_BITS, at
    return 0, INVALID


@cython.ccall
def varlong(data: Bytes, at: Int, stop: Int) -> tuple[Int, Int]:
    """Zigzag int64 of at most ten bytes and the position behind it, or ``INVALID``."""
    value: Word
    value, at = uvarlong(data, at, stop)
    return signed(value >> 1) ^ -signed(value & 1), at


@cython.cfunc
def signed(word: Word) -> Int:
    """The int64 with the bits of ``word``."""
    if cython.compiled:
        return word
    return word - (1 << 64) if word >> 63 else word


@cython.ccall
def uvarint(data: Bytes, at: Int, stop: Int) -> tuple[Int, Int]:
    """Unsigned varint below 2^28 and the position behind it, or ``INVALID``, also for larger ones."""
    value: Int = 0
    byte: Int
    for shift in range(0, 28, 7):
        if at >= stop:
            return 0, INVALID
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return 0, INVALID


@cython.cfunc
def _zigzag(value: Int) -> Word:
    return ((cython.cast(Word, value) << 1) ^ cython.cast(Word, value >> 63)) & ALL_64_BITS


@cython.cfunc
def put_uvarint(out: MutableBytes, at: Int, word: Word) -> Int:
    """Store an unsigned varint; returns the position behind it."""
    while word > 0x7F:
        out[at] = (word & 0x7F) | 0x80
        word >>= 7
        at += 1
    out[at] = word
    return at + 1


@cython.cfunc
def put_varint(out: MutableBytes, at: Int, value: Int) -> Int:
    """Store a zigzag varint; returns the position behind it."""
    return put_uvarint(out, at, _zigzag(value))


@cython.cfunc
def varint_bytes(value: Int) -> Int:
    """Size of the zigzag varint of ``value``."""
    word: Word = _zigzag(value)
    size: Int = 1
    while word > 0x7F:
        word >>= 7
        size += 1
    return size


@cython.ccall
def copy_bytes(source: Bytes, at: Int, target: MutableBytes, target_at: Int, length: Int) -> cython.void:
    """Copy ``length`` bytes; none when that is not positive."""
    if cython.compiled:
        if length > 0:
            copy_run(
                cython.address(target[target_at]),
                cython.address(target[target_at + length - 1]),
                cython.address(source[at]),
                cython.address(source[at + length - 1]),
            )
    else:
        for index in range(length):
            target[target_at + index] = source[at + index]


@cython.cfunc
def same_bytes(left: Bytes, left_at: Int, right: Bytes, right_at: Int, length: Int) -> cython.bint:
    """Whether the two runs of ``length`` bytes are equal."""
    # The last word may overlap the one before it.
    last: Int = length - 8
    at: Int = 0
    while at < last:
        if le64(left, left_at + at) != le64(right, right_at + at):
            return False
        at += 8
    if last >= 0:
        return le64(left, left_at + last) == le64(right, right_at + last)
    while at < length and left[left_at + at] == right[right_at + at]:
        at += 1
    return at >= length


_FIRST_STATE = cython.declare(Word, HASH_SECRETS[0])
_SECOND_STATE = cython.declare(Word, HASH_SECRETS[1])
_FIRST_FACTOR = cython.declare(Word, HASH_SECRETS[2] | 1)
_SECOND_FACTOR = cython.declare(Word, HASH_SECRETS[3] | 1)


@cython.cfunc
def _mixed(state: Word, word: Word, factor: Word) -> Word:
    return folded_product(state ^ word, factor)


@cython.ccall
def hash_bytes(data: Bytes, at: Int, length: Int) -> Int:
    """A 63-bit hash of ``length`` bytes, another one in each process; decides speed only, never a result.

    Nobody can choose names of which many have one hash.
    """
    # Two words side by side: each waits for the one before it.
    first: Word = _FIRST_STATE ^ length
    second: Word = _SECOND_STATE
    tail: Word = 0
    stop: Int = at + length
    while at + 16 <= stop:
        first = _mixed(first, le64(data, at), _FIRST_FACTOR)
        second = _mixed(second, le64(data, at + 8), _SECOND_FACTOR)
        at += 16
    if at + 8 <= stop:
        first = _mixed(first, le64(data, at), _FIRST_FACTOR)
        at += 8
    if at < stop:
        if length >= 8:
            tail = le64(data, stop - 8)
        else:
            while at < stop:
                tail = (tail << 8) | cython.cast(Word, data[at])
                at += 1
        second = _mixed(second, tail, _SECOND_FACTOR)
    first = (_mixed(first, second, _FIRST_FACTOR) * HASH_FINISHER) & ALL_64_BITS
    return (first ^ (first >> 32)) >> 1


@cython.ccall
def is_plain_utf8(data: Bytes, at: Int, length: Int) -> cython.bint:
    """Whether the bytes are well-formed UTF-8 without U+FFFD, which is what malformed bytes become.

    Well-formed: no overlong forms, no surrogates, at most U+10FFFF.
    """
    stop: Int = at + length
    first: Int
    low: Int
    high: Int
    more: Int
    while at + 8 <= stop and le64(data, at) & TOP_BITS_OF_BYTES == 0:
        at += 8
    while at < stop:
        first = data[at]
        at += 1
        if first < 0x80:
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                high = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F
        else:
            return False
        if at + more > stop or data[at] < low or data[at] > high:
            return False
        for following in range(at + 1, at + more):
            if data[following] & 0xC0 != 0x80:
                return False
        if first == 0xEF and data[at] == 0xBF and data[at + 1] == 0xBD:
            return False
        at += more
    return True
