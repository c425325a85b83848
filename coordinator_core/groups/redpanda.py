"""Offsets partition of a group in Redpanda: another hash than Kafka's, of the same names.

Sources: ``coordinator_ntp_mapper`` (``src/v/kafka/server``), ``jump_consistent_hash.h`` and ``xx.h``
(``src/v/hashing``) of Redpanda: ``jump_consistent_hash(XXH64(group id, seed 0), partitions)``. Jump consistent hash:
arXiv 1406.2294; XXH64: the xxHash specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

DEFAULT_GROUP_TOPIC_PARTITIONS = 16
"""Redpanda's default of ``group_topic_partitions``, its number of offsets partitions."""

_MOST_PARTITIONS = 1 << 31
_MASK = (1 << 64) - 1
_PRIME_1, _PRIME_2, _PRIME_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_PRIME_4, _PRIME_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def redpanda_partitions(placed: Iterable[tuple[str, int]]) -> range:
    """Every number of offsets partitions for which Redpanda puts each group where it is; empty for none.

    ``placed`` are groups with the offsets partitions that they are in, read up to the group that leaves no number.
    """
    least, most = 1, _MOST_PARTITIONS
    for group_id, partition in placed:
        at, until = next(jump for jump in _jumps(group_id) if jump[1] > partition)
        if at != partition:
            return range(0)
        least, most = max(least, at + 1), min(most, until)
        if least > most:
            return range(0)
    return range(least, most + 1)


def _jumps(group_id: str) -> Iterator[tuple[int, int]]:
    """Partitions of the group as their number grows, each with the greatest number for which it is the group's."""
    key = xxh64(group_id.encode("utf-8", "surrogatepass"))
    at = 0
    while True:
        key = (key * 2862933555777941757 + 1) & _MASK
        following = int((at + 1) * (float(1 << 31) / float((key >> 33) + 1)))
        yield at, following
        at = following


def xxh64(data: bytes) -> int:
    """XXH64 of ``data`` with seed 0."""
    position = 0
    if len(data) < 32:
        value = _PRIME_5
    else:
        lanes = [(_PRIME_1 + _PRIME_2) & _MASK, _PRIME_2, 0, -_PRIME_1 & _MASK]
        while position <= len(data) - 32:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], int.from_bytes(data[position : position + 8], "little"))
                position += 8
        value = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _PRIME_1 + _PRIME_4) & _MASK
    value = (value + len(data)) & _MASK
    while position <= len(data) - 8:
        value ^= _round(0, int.from_bytes(data[position : position + 8], "little"))
        value = (_rotated(value, 27) * _PRIME_1 + _PRIME_4) & _MASK
        position += 8
    if position <= len(data) - 4:
        value ^= int.from_bytes(data[position : position + 4], "little") * _PRIME_1 & _MASK
        value = (_rotated(value, 23) * _PRIME_2 + _PRIME_3) & _MASK
        position += 4
    for byte in data[position:]:
        value = _rotated(value ^ (byte * _PRIME_5 & _MASK), 11) * _PRIME_1 & _MASK
    value = (value ^ value >> 33) * _PRIME_2 & _MASK
    value = (value ^ value >> 29) * _PRIME_3 & _MASK
    return value ^ value >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _PRIME_2) & _MASK, 31) * _PRIME_1 & _MASK


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK
