"""Offsets partition of a group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS = 50
"""Kafka's default of ``offsets.topic.num.partitions``."""

MOST_PARTITIONS = 100_000
"""No offsets topic is believed to have more: a greater number is a divisor that few groups leave."""

_INT_MIN = -0x80000000
_LAST_OF_BMP = 0xFFFF
_LONGEST_SIDE_BY_SIDE = 256
_AT_A_TIME = 1 << 14


def java_string_hash(text: str) -> int:
    """``String.hashCode``: signed 32 bits over UTF-16 code units (a non-BMP character counts as two)."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        value = (31 * value + ((data[index] << 8) | data[index + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def partition_for(group_id: str, num_partitions: int = DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS) -> int:
    """Offsets partition of a group (``GroupMetadataManager.partitionFor``)."""
    return _magnitude(group_id) % num_partitions


def _magnitude(group_id: str) -> int:
    """``Utils.abs`` of the hash, which maps the one integer without a positive counterpart to 0."""
    hashed = java_string_hash(group_id)
    return 0 if hashed == _INT_MIN else abs(hashed)


def placement_divisor(group_ids: Sequence[str], partition: int) -> int:
    """Greatest number of which every count of offsets partitions is a divisor that puts all groups in ``partition``;
    0 when any count above ``partition`` does. The divisor of several partitions is the greatest common one."""
    return int(np.gcd.reduce(_magnitudes(group_ids) - partition, initial=0))


def number_of_partitions(divisor: int, least: int) -> int | None:
    """Count of offsets partitions, if groups tell: at least ``least``, and a divisor of ``divisor``.

    Kafka's default where that fits, else ``least``, else the greatest count that fits; ``None`` when none does.
    """
    if divisor == 0:
        return max(least, DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS)
    for count in (DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS, least, divisor):
        if count >= least and divisor % count == 0:
            return count
    return None


def partitions_for(group_ids: Sequence[str], num_partitions: int) -> npt.NDArray[np.int64]:
    """:func:`partition_for` of each group: int64, one for each of ``group_ids``."""
    return _magnitudes(group_ids) % num_partitions


def _magnitudes(group_ids: Sequence[str]) -> npt.NDArray[np.int64]:
    """``Utils.abs`` of the hash of each group, character by character of all of them."""
    found = np.empty(len(group_ids), np.int64)
    for first in range(0, len(group_ids), _AT_A_TIME):
        some = group_ids[first : first + _AT_A_TIME]
        lengths = np.array([len(group_id) for group_id in some])
        width = min(int(lengths.max()), _LONGEST_SIDE_BY_SIDE)
        points = np.array(some, f"U{max(width, 1)}").view(np.uint32).reshape(len(some), -1)
        hashed = np.zeros(len(some), np.uint32)
        for at in range(width):
            hashed = np.where(at < lengths, np.uint32(31) * hashed + points[:, at], hashed)
        magnitude = np.abs(hashed.view(np.int32).astype(np.int64))
        magnitude[magnitude == -_INT_MIN] = 0
        found[first : first + len(some)] = magnitude
        for row in np.flatnonzero((lengths > width) | (points > _LAST_OF_BMP).any(axis=1)).tolist():
            found[first + row] = _magnitude(some[row])
    return found
