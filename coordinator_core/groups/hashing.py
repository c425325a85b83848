"""Which offsets partition a group belongs to."""

from __future__ import annotations

DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS = 50
"""Kafka's default of ``offsets.topic.num.partitions``."""

_INT_MIN = -0x80000000


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
