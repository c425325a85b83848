"""Which offsets partition a group belongs to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS = 50
"""Kafka's default of ``offsets.topic.num.partitions``."""

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
    """Offsets partition of a group (``GroupMetadataManager.partitionFor``).

    ``Utils.abs`` maps the one integer without a positive counterpart to 0.
    """
    hashed = java_string_hash(group_id)
    return (0 if hashed == _INT_MIN else abs(hashed)) % num_partitions


def partitions_for(group_ids: Sequence[str], num_partitions: int) -> npt.NDArray[np.int64]:
    """:func:`partition_for` of each group: int64, one for each of ``group_ids``. Hashes many groups side by side."""
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
        found[first : first + len(some)] = magnitude % num_partitions
        for row in np.flatnonzero((lengths > width) | (points > _LAST_OF_BMP).any(axis=1)).tolist():
            found[first + row] = partition_for(some[row], num_partitions)
    return found
