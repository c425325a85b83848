"""Parts of a log that brokers of a release cannot read, before any record means something to a coordinator."""

from __future__ import annotations

from typing import Final, NamedTuple

from coordinator_core.fold.passing import Passing
from coordinator_core.log.reader import OnDamage, last_batch
from coordinator_core.log.types import Batch, Codec, PartitionLog
from coordinator_core.releases import Profile

_NEWEST_FORMAT: Final = 2

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
    """The first thing in ``log`` that brokers of ``profile`` cannot read; ``None``: they read all of it."""
    large = None
    if not (profile.newest_message_format >= _NEWEST_FORMAT and profile.reads_zstd and profile.grows_load_buffer):
        # The first batch of a codec is never passed. Damage was reported when the log was replayed.
        unusual = Passing((), most_batch_bytes=LOAD_BUFFER_BYTES)
        for _, batch in unusual.batches(log, on_damage=OnDamage.SALVAGE, damage=[]):
            if complaint := _complaint(batch, profile):
                return Unreadable(batch.base_offset, complaint)
            if large is None and batch.size > LOAD_BUFFER_BYTES:
                large = batch
    if large is not None and not profile.grows_load_buffer:
        detail = f"a batch of {large.size} bytes, more than offsets.load.buffer.size by default: the load never ends"
        return Unreadable(large.base_offset, detail, "KAFKA-7286")
    if not profile.ends_at_empty_read and has_empty_tail(log):
        detail = "the last segment is empty, and the last batch ends before it: the load never ends"
        return Unreadable(None, detail, "KAFKA-9065")
    return None


def has_empty_tail(log: PartitionLog) -> bool:
    """Whether the last segment is empty and begins behind the end of the last batch, as a cleaner leaves it."""
    if not log.segments or log.segments[-1].size:
        return False
    last = last_batch(log)
    end_offset = (log.log_start_offset or 0) if last is None else last.next_offset
    return end_offset < log.segments[-1].base_offset


def _complaint(batch: Batch, profile: Profile) -> str | None:
    if batch.magic > profile.newest_message_format:
        return f"message format {batch.magic} is unknown to Kafka {profile.release}"
    if batch.codec_id == Codec.ZSTD and not profile.reads_zstd:
        return f"zstd is unknown to Kafka {profile.release} (KIP-110)"
    return None
