"""Parts of a log that brokers of a release cannot read, before any record means something to a coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from coordinator_core.log.reader import OnDamage, last_entry, read_segment
from coordinator_core.log.types import Batch, Codec, PartitionLog, SegmentFile
from coordinator_core.releases import Profile

LOAD_BUFFER_BYTES: Final = 5 * 1024 * 1024
"""Default of ``offsets.load.buffer.size``."""


class Unreadable(NamedTuple):
    """A batch that cannot be read, or (``record_offset`` is ``None``) an end of the log that is not found.

    ``bug`` is Kafka's issue, if that is one.
    """

    record_offset: int | None
    detail: str
    bug: str | None = None


def first_unreadable(log: PartitionLog, profile: Profile) -> Unreadable | None:
    """The first thing in ``log`` that brokers of ``profile`` cannot read; ``None``: they read all of it.

    Looks at the first and the last batch of each segment, and at all of a segment only where these cannot be read.
    """
    for segment in log.segments:
        first, last = next(_batches(segment), None), last_entry(segment)
        if all(batch is None or _complaint(batch, profile) is None for batch in (first, last)):
            continue
        for batch in _batches(segment):
            if complaint := _complaint(batch, profile):
                return Unreadable(batch.base_offset, complaint)
    if not profile.grows_load_buffer and (large := _first_large(log)):
        detail = f"a batch of {large.size} bytes, more than offsets.load.buffer.size by default: the load never ends"
        return Unreadable(large.base_offset, detail, "KAFKA-7286")
    if not profile.ends_at_empty_read and has_empty_tail(log):
        detail = "the last segment is empty, and the last batch ends before it: the load never ends"
        return Unreadable(None, detail, "KAFKA-9065")
    return None


def _batches(segment: SegmentFile) -> Iterator[Batch]:
    """Batches of a segment that was replayed before: damage was reported then."""
    return read_segment(segment, on_damage=OnDamage.SALVAGE, damage=[])


def _first_large(log: PartitionLog) -> Batch | None:
    """The first batch that the loader's buffer does not hold."""
    batches = (batch for segment in log.segments if segment.size > LOAD_BUFFER_BYTES for batch in _batches(segment))
    return next((batch for batch in batches if batch.size > LOAD_BUFFER_BYTES), None)


def has_empty_tail(log: PartitionLog) -> bool:
    """Whether the last segment is empty and begins behind the end of the last batch, as a cleaner leaves it."""
    if not log.segments or log.segments[-1].size:
        return False
    ends = (last.next_offset for last in _last_batches(log))
    return next(ends, log.log_start_offset or 0) < log.segments[-1].base_offset


def _last_batches(log: PartitionLog) -> Iterator[Batch]:
    """The last batch of each segment that has one, last segment first."""
    return (last for segment in reversed(log.segments) if (last := last_entry(segment)))


def _complaint(batch: Batch, profile: Profile) -> str | None:
    if batch.magic > profile.newest_message_format:
        return f"message format {batch.magic} is unknown to Kafka {profile.release}"
    if batch.codec_id == Codec.ZSTD and not profile.reads_zstd:
        return f"zstd is unknown to Kafka {profile.release} (KIP-110)"
    return None
