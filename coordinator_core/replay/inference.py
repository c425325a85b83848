"""Which release wrote a log, told from its records, for ``--profile auto``.

Every rule names something that no earlier release wrote (facts of the record schemas by release); the newest
release with a witness wins, because the broker that would load the log is at least that new. Between releases
that write the same bytes the latest is taken. ``fold.inference`` looks at the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import Batch, PartitionLog, Record, SegmentFile
from coordinator_core.records.codec import RecordDecodeError, decode_key, decode_value
from coordinator_core.replay.profiles import (
    CONSUMER_KEY_TYPES,
    OFFSET_KEY_TYPES,
    SHARE_KEY_TYPES,
    STREAMS_KEY_TYPES,
)

SAMPLED_BATCHES = 2000
"""Batches looked at in the newest segments of each offsets partition: the very newest may just have begun."""


@dataclass(slots=True)
class Evidence:
    """What was seen: key types, newest value versions, and marks of single releases."""

    key_types: set[int] = field(default_factory=set)
    offset_version: int = -1
    group_version: int = -1
    newest_magic: int = -1
    java_batches: bool = False
    marks: set[str] = field(default_factory=set)

    def add(self, batch: Batch, records: Iterable[Record]) -> None:
        """Take in one batch; records that cannot be decoded are no evidence."""
        self.newest_magic = max(self.newest_magic, batch.magic)
        if batch.is_control:
            return
        for record in records:
            if record.key is None or self._is_known_commit(record.key, record.value):
                continue
            try:
                key_type = decode_key(record.key).type
                self.key_types.add(key_type)
                # Only the Java coordinator numbers batches that hold anything but commits.
                if key_type not in OFFSET_KEY_TYPES and batch.magic >= 2 and batch.base_sequence == 0:
                    self.java_batches = True
                if record.value is not None:
                    self._add_value(key_type, record.value)
            except RecordDecodeError:
                continue

    def _is_known_commit(self, key: bytes, value: bytes | None) -> bool:
        """Whether the record is a commit like others before it: nearly all are."""
        key_type = int.from_bytes(key[:2], "big")
        if key_type not in OFFSET_KEY_TYPES or key_type not in self.key_types:
            return False
        version = -1 if value is None else int.from_bytes(value[:2], "big", signed=True)
        return key_type == 0 or version <= self.offset_version

    def _add_value(self, key_type: int, value: bytes) -> None:
        decoded = decode_value(key_type, value)
        if decoded.data is None:
            return
        if key_type == 1:
            self.offset_version = max(self.offset_version, decoded.version)
        elif key_type == 2:
            self.group_version = max(self.group_version, decoded.version)
        else:
            self.marks |= _marks(key_type, decoded.data)


def _marks(key_type: int, data: dict[str, Any]) -> set[str]:
    marks = set()
    if key_type in (3, 11) and data.get("metadataHash"):
        marks.add("4.1.1")
    if key_type == 17 and data.get("validatedTopologyEpoch", -1) != -1:
        marks.add("4.2.0")
    if key_type in (6, 12, 20) and data.get("assignmentTimestamp"):
        marks.add("4.3.1")
    if key_type == 17 and data.get("storedDescriptionTopologyEpoch", -1) != -1:
        marks.add("4.4.0")
    return marks


def release_of(evidence: Evidence) -> tuple[str, str]:
    """The release (and coordinator, ``classic`` or ``new``) that the evidence points to."""
    if evidence.marks:
        return max(evidence.marks), "new"
    if evidence.offset_version >= 4:
        return "4.3.1", "new"
    if evidence.key_types & STREAMS_KEY_TYPES:
        return "4.1.1", "new"
    if evidence.key_types & (SHARE_KEY_TYPES | {16}):
        return "4.0.1", "new"
    if evidence.key_types & CONSUMER_KEY_TYPES:
        return "3.9.2", "new"
    if evidence.java_batches:
        return "4.0.1", "new"
    if evidence.group_version >= 3 or (evidence.offset_version == 3 and evidence.group_version < 0):
        return "3.9.2", "classic"
    if evidence.offset_version >= 2 or evidence.group_version == 2:
        return "2.2.2", "classic"
    if evidence.newest_magic >= 2:
        return "2.0.1", "classic"
    if evidence.newest_magic == 1:
        return "0.10.2.2", "classic"
    if evidence.key_types - {0}:
        return "0.9.0.1", "classic"
    if evidence.newest_magic == 0:
        return "0.8.2.2", "classic"
    return "4.3.1", "new"


def sample(log: PartitionLog, segment: SegmentFile, evidence: Evidence, batches: int) -> int:
    """Take in the first ``batches`` of a segment of ``log``; returns how many it did not have.

    Damage ends the look at it; reporting that is the reader's business.
    """
    alone = replace(log, segments=(segment,))
    records = read_records(alone, on_damage=OnDamage.SALVAGE, damage=[])
    for _, batch, records_of_batch in islice(records, batches):
        evidence.add(batch, records_of_batch)
        batches -= 1
    return batches
