"""A log that may seem to hold less than it does: files that are not read, and logs without a record."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator_core.errors import DamagedInputError
from coordinator_core.log.discovery import PACKED, UNNUMBERED
from coordinator_core.log.reader import read_records
from coordinator_core.log.types import PartitionLog, Snapshot

_FEW_BYTES = 1 << 12
"""Bytes of a partition that may have batches and no record: the cleaner leaves empty ones behind."""


def snapshot_warnings(snapshot: Snapshot) -> Iterator[str]:
    """The warnings of :func:`unread_warnings`, and one of a log without a record: one of which nothing was copied but
    the names of its files is as clean as one without groups."""
    yield from unread_warnings(snapshot)
    if not any(map(_has_record, snapshot.partitions)):
        yield f"{', '.join(snapshot.sources)} holds no record: nothing is known of any group"


def unread_warnings(snapshot: Snapshot) -> Iterator[str]:
    """Warnings of segments that are compressed, or have other names: they leave a gap that a cleaner might have left.

    No segment is opened.
    """
    for reason, what, remedy in (
        (PACKED, "compressed segments", "unpack them"),
        (UNNUMBERED, "files named .log", "a segment has the 20 digits of its first record offset as name"),
    ):
        left = [path for path, why in snapshot.ignored if why == reason]
        if left:
            yield f"{what} are not read ({len(left)}, such as {left[0]}): {remedy}"


def _has_record(log: PartitionLog) -> bool:
    # One of more bytes is not read for that: the file may change before its reader opens it. What is wrong with a
    # damaged one is for its readers to say.
    if log.size > _FEW_BYTES:
        return True
    try:
        return bool(log.size) and any(records for _, _, records in read_records(log, damage=[]))
    except DamagedInputError:
        return True
