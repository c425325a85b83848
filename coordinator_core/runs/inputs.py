"""The log that a run was made of, as far as the run has read it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from coordinator_core import storage
from coordinator_core.errors import UsageError
from coordinator_core.fold.pin import Pin, segment_fingerprint
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import PartitionLog, SegmentFile, Snapshot
from coordinator_core.runs.read import Run


def snapshot_of_run(run: Run, paths: Sequence[str] = ()) -> Snapshot:
    """The snapshot of :func:`pin_of_run`, after :func:`check_bytes` of it."""
    pin = pin_of_run(run, paths)
    check_bytes(pin.snapshot.segments, pin.fingerprints)
    return pin.snapshot


def pin_of_run(run: Run, paths: Sequence[str] = ()) -> Pin:
    """The segments that ``run`` has read, with the sizes in bytes and the log start offsets that they had then.

    ``paths``: where the log lies, if not where the run has found it. Batches written behind the segments since are left
    out. No segment is read: who reads them calls :func:`check_bytes` first. Raises :class:`UsageError` where one is
    gone or has become shorter.
    """
    read: dict[int, list[dict[str, Any]]] = {}
    for entry in run.manifest["inputs"]:
        read.setdefault(entry["offsets_partition"], []).append(entry)
    sources = tuple(paths or run.manifest["sources"])
    gone = [] if paths else [path for path in sources if storage.stat(path) is None]
    if gone:
        raise UsageError(f"{run.path} was made of {gone[0]}, which is gone: name the log where it is now, not the run")
    snapshot = discover(sources)
    logs = {log.offsets_partition: log for log in snapshot.partitions}
    partitions, fingerprints = [], {}
    # A part of a run has the cuts of its partitions alone.
    for name, cut in sorted(run.manifest["cut"].items(), key=lambda item: int(item[0])):
        number = int(name)
        if number not in read:
            raise UsageError(f"{run.path}: its manifest names no segment of offsets partition {number}")
        if number not in logs:
            where = ", ".join(snapshot.sources)
            raise UsageError(f"{where} does not hold offsets partition {number}, which the run has read")
        segments = _segments(logs[number], read[number])
        for segment, entry in zip(segments, read[number], strict=True):
            fingerprints[segment.path] = entry["fingerprint"]
        # A broker keeps a log start offset only where it is another than the first base offset.
        start = cut["log_start_offset"] if cut["log_start_offset"] != segments[0].base_offset else None
        cleaned = cut.get("cleaned_offset", logs[number].cleaned_offset)
        partitions.append(replace(logs[number], segments=segments, log_start_offset=start, cleaned_offset=cleaned))
    return Pin(replace(snapshot, partitions=tuple(partitions)), fingerprints)


def _segments(log: PartitionLog, read: Iterable[Mapping[str, Any]]) -> tuple[SegmentFile, ...]:
    """The segments that a run has read, found by path or, in a copy of the log, by base offset."""
    by_path = {segment.path: segment for segment in log.segments}
    by_offset = {segment.base_offset: segment for segment in log.segments}
    segments = []
    for entry in read:
        found = by_path.get(entry["path"]) or by_offset.get(entry["base_offset"])
        if found is None:
            raise _rewritten(entry["path"], "it is gone")
        if found.size < entry["bytes"]:
            raise _rewritten(found.path, f"it has {found.size} bytes of {entry['bytes']}")
        segments.append(replace(found, size=entry["bytes"]))
    return tuple(segments)


def check_bytes(segments: Iterable[SegmentFile], fingerprints: Mapping[str, str]) -> None:
    """:class:`UsageError` for a segment whose bytes do not have the fingerprint that is known of its path. It is read
    for that, at the price of a CRC."""
    known = [segment for segment in segments if segment.path in fingerprints]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for segment, digest in zip(known, threads.map(segment_fingerprint, known), strict=True):
            if digest != fingerprints[segment.path]:
                raise _rewritten(segment.path, f"other bytes are in its first {segment.size}")


def _rewritten(path: str, how: str) -> UsageError:
    return UsageError(f"the log that the run was made of has been rewritten since: {path}: {how}")
