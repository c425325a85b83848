"""The snapshot manifest: which bytes a run reads, written down before it reads them.

A pinned segment is its path, its size and when it was last written; nothing is read for that.  A replay finds
the fingerprint of its bytes and the offset behind its last record, and completes the pin with them.  The active
segment of a partition may grow after the pin; a run reads up to the pinned size.  Anything else that happened to
a segment is damage of kind ``changed_since_pin``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator_core import files, storage
from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.jsontext import fields_of
from coordinator_core.log.types import PartitionLog, SegmentFile, Snapshot
from coordinator_core.log.windows import SegmentWindows

PIN_VERSION = 3


@dataclass(frozen=True)
class Pin:
    """A snapshot, and the findings of a replay by path of the segment: nothing before the first one.

    ``fingerprints`` are those of the pinned bytes; ``next_offsets`` are behind the last record, for segments that
    have one.
    """

    snapshot: Snapshot
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    next_offsets: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The snapshot manifest, JSON."""
        snapshot = self.snapshot
        return {
            "pin_version": PIN_VERSION,
            "sources": list(snapshot.sources),
            "partitions": [self._partition(log) for log in snapshot.partitions],
            "topic_names": snapshot.topic_names,
            "cluster_id": snapshot.cluster_id,
            "ignored": [{"path": path, "reason": reason} for path, reason in snapshot.ignored],
            "damage": [damage.as_dict() for damage in snapshot.damage],
        }

    def _partition(self, log: PartitionLog) -> dict[str, Any]:
        start, end = cut(log, self.next_offsets)
        is_complete = all(segment.path in self.fingerprints for segment in log.segments)
        return {
            "offsets_partition": log.offsets_partition,
            "directory": log.directory,
            "checkpointed_log_start_offset": log.log_start_offset,
            "log_start_offset": start,
            "log_end_offset": end if is_complete else None,
            **fields_of(log, "clean_shutdown", "broker_id", "recovery_point", "cleaned_offset"),
            "segments": [
                {
                    "path": segment.path,
                    "bytes": segment.size,
                    "base_offset": segment.base_offset,
                    "modified_ns": segment.modified_ns,
                    "next_offset": self.next_offsets.get(segment.path),
                    "fingerprint": self.fingerprints.get(segment.path),
                }
                for segment in log.segments
            ],
        }


def cut(log: PartitionLog, next_offsets: Mapping[str, int]) -> tuple[int, int]:
    """Log start offset and log end offset (the one behind the last record) of a partition."""
    start = log.start_offset
    end = max((next_offsets.get(segment.path, segment.base_offset) for segment in log.segments), default=start)
    return start, max(start, end)


def snapshot_of(source: Snapshot | Pin) -> Snapshot:
    """The snapshot itself, or the one that a pin is of."""
    return source.snapshot if isinstance(source, Pin) else source


def write_pin(source: Snapshot | Pin, path: str) -> Pin:
    """Write the snapshot manifest of ``source`` to ``path``. No segment is read."""
    pin = source if isinstance(source, Pin) else Pin(source)
    files.write_json(path, pin.as_dict())
    return pin


def read_pin(path: str) -> Pin:
    """The snapshot manifest at ``path``; ``UsageError`` when there is none that this version knows."""
    if not storage.exists(path):
        raise UsageError(f"{path}: no such file")
    try:
        document = files.read_json(path)
        version = document["pin_version"]
        if version != PIN_VERSION:
            raise UsageError(f"{path}: snapshot manifest of version {version}, this is for {PIN_VERSION}")
        return _pin(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is not a snapshot manifest: {error!r}") from None


def _pin(document: Mapping[str, Any]) -> Pin:
    partitions = []
    fingerprints: dict[str, str] = {}
    next_offsets: dict[str, int] = {}
    for entry in document["partitions"]:
        segments = []
        for segment in entry["segments"]:
            path = segment["path"]
            place = (path, entry["offsets_partition"], segment["base_offset"], segment["bytes"])
            segments.append(SegmentFile(*place, segment["modified_ns"]))
            if segment["fingerprint"] is not None:
                fingerprints[path] = segment["fingerprint"]
            if segment["next_offset"] is not None:
                next_offsets[path] = segment["next_offset"]
        partitions.append(
            PartitionLog(
                entry["offsets_partition"],
                entry["directory"],
                tuple(segments),
                log_start_offset=entry["checkpointed_log_start_offset"],
                clean_shutdown=entry["clean_shutdown"],
                broker_id=entry["broker_id"],
                recovery_point=entry["recovery_point"],
                cleaned_offset=entry.get("cleaned_offset"),
            )
        )
    snapshot = Snapshot(
        tuple(document["sources"]),
        tuple(partitions),
        tuple((entry["path"], entry["reason"]) for entry in document["ignored"]),
        tuple(Damage(**entry) for entry in document["damage"]),
        dict(document["topic_names"]),
        document.get("cluster_id"),
    )
    return Pin(snapshot, fingerprints, next_offsets)


def check_segment(segment: SegmentFile, fingerprint: str | None, *, is_active: bool) -> None:
    """:class:`DamagedInputError` (``changed_since_pin``) when the file is not as it was found.

    One that ``is_active``, the last of its partition, may have become longer. Where a ``fingerprint`` was pinned,
    which :func:`check_fingerprint` compares, the file must only have as many bytes.
    """
    found = storage.stat(segment.path)
    size = 0 if found is None else found.size
    is_longer = size > segment.size
    if found is None or size < segment.size or (is_longer and not is_active and fingerprint is None):
        state = "is gone" if found is None else f"has {size} bytes now"
        raise _changed(segment, min(size, segment.size), f"{segment.size} bytes were pinned; the file {state}")
    if fingerprint is None and not is_longer and segment.modified_ns not in (None, found.modified_ns):
        raise _changed(segment, 0, "the file was written to after it was pinned")


def check_pin(pin: Pin) -> None:
    """:func:`check_segment` of all segments."""
    for log in pin.snapshot.partitions:
        for segment, end_offset in log.segment_ranges():
            check_segment(segment, pin.fingerprints.get(segment.path), is_active=end_offset is None)


def segment_fingerprint(segment: SegmentFile) -> str:
    """Fingerprint of the segment's first ``size`` bytes as they are now."""
    # Reading a pin takes no kernels.
    from coordinator_core.fold.fingerprint import fingerprint

    return fingerprint(SegmentWindows(segment)).digest


def check_fingerprint(segment: SegmentFile, now: str, pinned: str | None) -> None:
    """:class:`DamagedInputError` (``changed_since_pin``) unless ``pinned`` is ``None`` or as ``now``."""
    if pinned is not None and now != pinned:
        raise _changed(segment, 0, f"fingerprint of its first {segment.size} bytes is {now}, pinned was {pinned}")


def _changed(segment: SegmentFile, position: int, detail: str) -> DamagedInputError:
    offset = segment.base_offset if position == 0 else None
    return DamagedInputError(Damage(segment.path, position, offset, "changed_since_pin", detail))
