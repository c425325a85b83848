"""Compiled helpers on byte strings: hash, compare, UTF-8 check, varints, interning in a hash table."""

from __future__ import annotations

from typing import Any

import numpy as np

from coordinator_core.columnar.compiling import called, inlined
from coordinator_core.columnar.intrinsics import le64, put64
from coordinator_core.columnar.tables import Int, Interned

_ROW_BITS = 40
_ROW_MASK = (1 << _ROW_BITS) - 1
_TAG_MASK = ((1 << 63) - 1) ^ _ROW_MASK
"""An index entry is the row number plus one, below the top bits of the hash; 0 is a free entry."""

INVALID = -1


@inlined
def _mixed(state: Any, word: Any) -> Any:
    state = (state ^ word) * np.uint64(0x9E3779B97F4A7C15)
    return state ^ (state >> np.uint64(29))


@inlined
def hash_bytes(data: Any, position: Int, length: Int) -> Int:
    """A 63-bit hash of ``length`` bytes; decides speed only, never a result."""
    # Two words side by side: each waits for the one before it.
    first, second = np.uint64(length), np.uint64(0xD6E8FEB86659FD93)
    at = position
    stop = position + length
    while at + 16 <= stop:
        first = _mixed(first, le64(data, at))
        second = _mixed(second, le64(data, at + 8))
        at += 16
    if at + 8 <= stop:
        first = _mixed(first, le64(data, at))
        at += 8
    if at < stop:
        if length >= 8:
            tail = le64(data, stop - 8)
        else:
            tail = np.uint64(0)
            while at < stop:
                tail = (tail << np.uint64(8)) | np.uint64(data[at])
                at += 1
        second = _mixed(second, tail)
    mixed = _mixed(first, second) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return np.int64(mixed >> np.uint64(1))


@inlined
def copy_bytes(source: Any, position: Int, target: Any, target_at: Int, length: Int) -> None:
    """Copy ``length`` bytes, word by word."""
    if length < 8:
        for at in range(length):
            target[target_at + at] = source[position + at]
        return
    for at in range(0, length - 7, 8):
        put64(target, target_at + at, le64(source, position + at))
    put64(target, target_at + length - 8, le64(source, position + length - 8))


@inlined
def same_bytes(left: Any, left_at: Int, right: Any, right_at: Int, length: Int) -> Any:
    """Whether the two runs of ``length`` bytes are equal."""
    # The last word may overlap the one before it.
    last = length - 8
    at = 0
    while at < last:
        if le64(left, left_at + at) != le64(right, right_at + at):
            return False
        at += 8
    if last >= 0:
        return le64(left, left_at + last) == le64(right, right_at + last)
    while at < length and left[left_at + at] == right[right_at + at]:
        at += 1
    return at >= length


@called
def is_plain_utf8(data: Any, position: Int, length: Int) -> bool:
    """Whether the bytes are well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF) without
    U+FFFD, which is what malformed bytes become."""
    at = position
    stop = position + length
    while at + 8 <= stop and le64(data, at) & np.uint64(0x8080808080808080) == np.uint64(0):
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
        if at + more > stop or not low <= data[at] <= high:
            return False
        for following in range(at + 1, at + more):
            if data[following] & 0xC0 != 0x80:
                return False
        if first == 0xEF and data[at] == 0xBF and data[at + 1] == 0xBD:
            return False
        at += more
    return True


@inlined
def varint(data: Any, position: Int, stop: Int) -> tuple[Int, Int]:
    """Zigzag int32 of at most five bytes and the position behind it, ``INVALID`` if there is none."""
    if position < stop and data[position] < 0x80:
        value: Int = np.int64(data[position])
        return (value >> 1) ^ -(value & 1), position + 1
    value = 0
    at = position
    for shift in range(0, 35, 7):
        if at >= stop:
            return 0, INVALID
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return (value >> 1) ^ -(value & 1), at
    return 0, INVALID


@inlined
def varlong(data: Any, position: Int, stop: Int) -> tuple[Int, Int]:
    """Zigzag int64 of at most ten bytes and the position behind it, or ``INVALID``."""
    value = np.uint64(0)
    at = position
    for shift in range(0, 70, 7):
        if at >= stop:
            return 0, INVALID
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        if byte < 0x80:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
    return 0, INVALID


@inlined
def uvarint(data: Any, position: Int, stop: Int) -> tuple[Int, Int]:
    """Unsigned varint below 2^28 and the position behind it, or ``INVALID``; longer ones are for others."""
    value: Int = 0
    at = position
    for shift in range(0, 28, 7):
        if at >= stop:
            return 0, INVALID
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return 0, INVALID


@inlined
def index_entry(hashed: Int, row: Int) -> Int:
    """The index entry of ``row``."""
    return (hashed & _TAG_MASK) | (row + 1)


@inlined
def find(
    data: Any, position: Int, length: Int, hashed: Int, index: Any, rows: Any, keys: Any
) -> tuple[Int, Int]:
    """Row whose interned bytes are ``data[position : position + length]``, and its place in the index.

    The row is -1 when there is none; the place is then where its entry belongs.
    """
    mask = len(index) - 1
    place = hashed & mask
    tag = hashed & _TAG_MASK
    while True:
        entry = index[place]
        if entry == 0:
            return -1, place
        if entry & _TAG_MASK == tag:
            row = (entry & _ROW_MASK) - 1
            if (
                rows[row, Interned.HASH] == hashed
                and rows[row, Interned.BODY_BYTES] == length
                and same_bytes(keys, rows[row, Interned.BODY], data, position, length)
            ):
                return row, place
        place = (place + 1) & mask


@inlined
def likely_row(hashed: Int, index: Any) -> Int:
    """The row that :func:`find` will look at first, -1 for none."""
    return (index[hashed & (len(index) - 1)] & _ROW_MASK) - 1


@inlined
def free_place(hashed: Int, index: Any) -> Int:
    """Where an entry belongs that is known not to be in the index."""
    mask = len(index) - 1
    place = hashed & mask
    while index[place] != 0:
        place = (place + 1) & mask
    return place
