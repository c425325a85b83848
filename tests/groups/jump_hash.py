"""Redpanda's placement of a group for one number of offsets partitions, as the paper of the hash gives it."""

from __future__ import annotations

from coordinator_core.groups.redpanda import xxh64


def redpanda_partition_for(group_id: str, num_partitions: int) -> int:
    """Offsets partition of a group: ``JumpConsistentHash`` of arXiv 1406.2294, figure 1, over XXH64."""
    key = xxh64(group_id.encode("utf-8", "surrogatepass"))
    found, jump = -1, 0
    while jump < num_partitions:
        found = jump
        key = (key * 2862933555777941757 + 1) % 2**64
        jump = int((found + 1) * (2.0**31 / ((key >> 33) + 1)))
    return found
