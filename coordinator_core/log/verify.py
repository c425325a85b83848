"""Structure check of a snapshot: every segment read to its end, every damage listed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.log.batch import iter_batch_records
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import OnDamage, SegmentWalk, ends_before_start
from coordinator_core.log.types import Batch, Codec, SegmentFile, Snapshot


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """Contents of one segment.

    ``bytes`` is the file's size; ``batches``, ``records`` and ``last_offset`` (``None`` without batches)
    count readable ones.  ``first_timestamp_ms`` and ``last_timestamp_ms`` are the smallest and largest record
    timestamps, ``None`` when no record has one.  ``magics`` and ``codecs`` are those seen, sorted. ``torn_bytes`` are
    the bytes at the end that belong to no readable entry, ``zero_bytes`` the zeroes of a preallocated file.  ``sha256``
    is that of the file, in hex, as ``sha256sum`` prints it.
    """

    path: str
    offsets_partition: int
    base_offset: int
    bytes: int
    batches: int
    records: int
    last_offset: int | None
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    magics: tuple[int, ...]
    codecs: tuple[str, ...]
    crc_errors: int
    torn_bytes: int
    zero_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of a structure check: segments, all damage, and (path, reason) of files that were left aside."""

    segments: tuple[SegmentReport, ...]
    damage: tuple[Damage, ...]
    ignored: tuple[tuple[str, str], ...]

    @property
    def status(self) -> str:
        return "damaged" if self.damage else "clean"

    def as_dict(self) -> dict[str, Any]:
        """The document of ``regroup verify --format json``."""
        return {
            "status": self.status,
            "segments": [asdict(segment) for segment in self.segments],
            "damage": [damage.as_dict() for damage in self.damage],
            "ignored": [{"path": path, "reason": reason} for path, reason in self.ignored],
        }


def verify(snapshot: Snapshot) -> VerifyReport:
    """Check every segment of a snapshot, also those below the log start offset."""
    limits = Limits()
    damage = list(snapshot.damage)
    segments = []
    for log in snapshot.partitions:
        log_end_offset = 0
        for segment, end_offset in log.segment_ranges():
            report = verify_segment(segment, end_offset=end_offset, limits=limits, damage=damage)
            segments.append(report)
            end = segment.base_offset if report.last_offset is None else report.last_offset + 1
            log_end_offset = max(log_end_offset, end)
        missing = ends_before_start(log, log_end_offset)
        if missing is not None:
            damage.append(missing)
    order = sorted(damage, key=lambda found: (found.path, found.byte_position, found.kind))
    return VerifyReport(tuple(segments), tuple(order), snapshot.ignored)


def verify_segment(
    segment: SegmentFile, *, end_offset: int | None, limits: Limits, damage: list[Damage]
) -> SegmentReport:
    """Check one segment; append errors to ``damage``."""
    known = len(damage)
    walk = SegmentWalk(segment, limits, OnDamage.SALVAGE, damage, end_offset)
    batches = records = 0
    last_offset = None
    magics: set[int] = set()
    codecs: set[str] = set()
    first_timestamp = last_timestamp = None
    for batch in walk.batches():
        batches += 1
        last_offset = batch.last_offset
        magics.add(batch.magic)
        codecs.add(_codec_name(batch.codec_id))
        for timestamp in _timestamps(batch, segment.path, limits, damage):
            records += 1
            if timestamp >= 0:
                first_timestamp = timestamp if first_timestamp is None else min(first_timestamp, timestamp)
                last_timestamp = timestamp if last_timestamp is None else max(last_timestamp, timestamp)
    return SegmentReport(
        segment.path,
        segment.offsets_partition,
        segment.base_offset,
        segment.size,
        batches,
        records,
        last_offset,
        first_timestamp,
        last_timestamp,
        tuple(sorted(magics)),
        tuple(sorted(codecs)),
        sum(found.kind == "bad_crc" for found in damage[known:]),
        walk.torn_bytes,
        walk.zero_bytes,
        hashlib.sha256(walk.view()).hexdigest(),
    )


def _timestamps(batch: Batch, path: str, limits: Limits, damage: list[Damage]) -> Iterator[int]:
    try:
        for record in iter_batch_records(batch, path=path, limits=limits):
            yield record.timestamp_ms
    except DamagedInputError as error:
        damage.append(error.damage)


def _codec_name(codec_id: int) -> str:
    try:
        return Codec(codec_id).name.lower()
    except ValueError:
        return str(codec_id)
