"""A compaction planned now and carried out later: its bytes, its rules, and the offsets that may expire.

The plan is a file that names the snapshot manifest of its input. An approval covers its digest, and
with the digest every byte of the input, every option, and every key that gets a tombstone: compaction by a
plan whose file, input or tombstones are others by then fails.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from coordinator_core import files, storage
from coordinator_core.errors import UsageError
from coordinator_core.fold.pin import Pin, check_fingerprint, check_segment, read_pin, segment_fingerprint
from coordinator_core.jsontext import parse_json
from coordinator_core.lifecycle.compact import CompactionOptions
from coordinator_core.lifecycle.compact_proof import ProofFailedError
from coordinator_core.lifecycle.compact_publish import REPORT
from coordinator_core.lifecycle.forecast import Forecast
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import SegmentFile
from coordinator_core.releases import profile_from_label

PLAN_VERSION = 1
Document = dict[str, Any]


@dataclass(frozen=True)
class PlannedCompaction:
    """A plan that was read: ``digest`` of its file (SHA-256, hex) and its ``document``."""

    digest: str
    document: Mapping[str, Any]
    pin: Pin
    options: CompactionOptions

    @property
    def partial(self) -> bool:
        return bool(self.document["partial"])


def expiry_row(forecast: Forecast) -> Document:
    """Records of an offsets partition that expire by its forecast."""
    return {
        "offsets_partition": forecast.offsets_partition,
        "offsets": forecast.expired_offsets,
        "groups": forecast.expired_groups,
        "tombstones": forecast.tombstones,
        "sha256": forecast.sha256,
    }


def plan_document(
    pin_path: str,
    profile: str,
    expiry: Sequence[Mapping[str, Any]],
    *,
    now_ms: int,
    partial: bool,
    options: Mapping[str, Any],
) -> Document:
    """The plan of a compaction of the snapshot pinned at ``pin_path``, for the profile of this label.

    ``expiry`` has the :func:`expiry_row` of all partitions; ``options`` are the other arguments of
    :meth:`CompactionOptions.chosen`.
    """
    return {
        "plan_version": PLAN_VERSION,
        "pin": pin_path,
        "pin_sha256": files.sha256(pin_path),
        "profile": profile,
        "now_ms": now_ms,
        "partial": partial,
        "options": dict(options),
        "expiry": list(expiry),
    }


def write_plan(path: str, document: Document) -> str:
    """Write a plan; returns its digest."""
    files.write_json(path, document)
    return files.sha256(path)


def read_plan(path: str, digest: str) -> PlannedCompaction:
    """The plan at ``path``; :class:`UsageError` when it is none, or not the one with this digest."""
    if not storage.exists(path):
        raise UsageError(f"{path}: no such file")
    # The bytes of this digest and no others: the file may be another one a moment later.
    content = bytes(storage.read(path))
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise UsageError(f"{path} is not the plan that was approved: its SHA-256 is {found}, not {digest}")
    try:
        document = parse_json(content)
        version = document["plan_version"]
        if version != PLAN_VERSION:
            raise UsageError(f"{path}: compaction plan of version {version}, this is for {PLAN_VERSION}")
        pin_path, pinned = document["pin"], document["pin_sha256"]
        options = CompactionOptions.chosen(
            profile_from_label(document["profile"]),
            now_ms=document["now_ms"],
            approved={row["offsets_partition"]: row["sha256"] for row in document["expiry"]},
            **document["options"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not a compaction plan: {error!r}") from None
    pin = _read_pinned(pin_path, pinned)
    if any(segment.path not in pin.fingerprints for segment in pin.snapshot.segments):
        raise UsageError(f"{pin_path}: a plan needs a snapshot manifest with the fingerprints of the planned segments")
    return PlannedCompaction(digest, document, pin, options)


def _read_pinned(path: str, sha256: str) -> Pin:
    """The snapshot manifest of these bytes: read from a copy of what was hashed, as the file may be replaced."""
    content = bytes(storage.read(path)) if storage.exists(path) else b""
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UsageError(f"{path}: the snapshot manifest of the plan is gone or another one")
    with TemporaryDirectory(prefix="regroup-") as directory:
        copy = storage.join(directory, storage.split(path)[1])
        storage.write_atomic(copy, content)
        return read_pin(copy)


def pinned_segments(pin: Pin) -> dict[int, list[tuple[SegmentFile, str]]]:
    """Segments and their fingerprints by offsets partition."""
    return {
        log.offsets_partition: [(segment, pin.fingerprints[segment.path]) for segment in log.segments]
        for log in pin.snapshot.partitions
    }


def check_pinned(segments: Iterable[tuple[SegmentFile, str]]) -> None:
    """``DamagedInputError`` (``changed_since_pin``) unless the segments are as they were pinned."""
    for segment, fingerprint in segments:
        check_segment(segment, fingerprint, is_active=True)
        check_fingerprint(segment, segment_fingerprint(segment), fingerprint)


def check_compacted(directory: str, planned: PlannedCompaction) -> Document:
    """Check that ``directory`` holds the proved log, and that this is the planned one; returns its report.

    Every byte is read, every CRC checked. Raises :class:`ProofFailedError`.
    """
    report: Document = files.read_json(storage.join(directory, REPORT))
    if report["plan_sha256"] != planned.digest:
        raise ProofFailedError(f"{directory} was not made by plan {planned.digest}")
    rows = {row["offsets_partition"]: row for row in report["partitions"]}
    expected = {row["offsets_partition"]: row for row in planned.document["expiry"]}
    if rows.keys() != expected.keys():
        raise ProofFailedError(f"{directory}: other offsets partitions than were planned")
    for number, row in rows.items():
        plan = expected[number]
        if (row["expired_offsets"], row["expired_groups"]) != (plan["offsets"], plan["groups"]):
            raise ProofFailedError(f"{directory}: offsets partition {number}: not what was to expire")
        if not row["proved_profiles"]:
            raise ProofFailedError(f"{directory}: offsets partition {number} was not proved")
    found = {log.offsets_partition: log for log in discover([directory]).partitions}
    for number, row in rows.items():
        segments = found[number].segments if number in found else ()
        here = [{"name": item.name, "bytes": item.size, "fingerprint": segment_fingerprint(item)} for item in segments]
        if here != row["segments"]:
            raise ProofFailedError(f"{directory}: offsets partition {number} is not what was proved")
    return report
