"""Release that wrote a log, inferred from its records, for ``--profile auto``.

Every sign is something that no earlier release wrote; the newest release with one wins, because the broker
that would load the log is at least that new. The table of releases says which signs a release line has.
``fold.inference`` looks at the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice

from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import Batch, PartitionLog, Record, SegmentFile
from coordinator_core.records.codec import RecordDecodeError, decode_key, decode_value
from coordinator_core.records.schemas import PREVIEW_3_7_LAYOUT, RECORD_TYPES
from coordinator_core.records.wire import TooManyElementsError
from coordinator_core.releases import OFFSET_KEY_TYPES, Loader, Release
from coordinator_core.releases.facts import Sign
from coordinator_core.releases.table import TABLE

SAMPLED_BATCHES = 2000
"""Batches looked at in the newest segments of each offsets partition: the very newest may just have begun."""


@dataclass(slots=True)
class Evidence:
    """Evidence of a release: key types, newest value versions, and the releases that added fields that are used."""

    key_types: set[int] = field(default_factory=set)
    offset_version: int = -1
    group_version: int = -1
    newest_magic: int = -1
    java_batches: bool = False
    fields_since: set[Release] = field(default_factory=set)
    is_preview: bool = False

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
            except (RecordDecodeError, TooManyElementsError):
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
        # Bytes that fit none are said to be in the first that takes some of them.
        self.is_preview |= decoded.layout == PREVIEW_3_7_LAYOUT and not decoded.trailing
        if key_type == 1:
            self.offset_version = max(self.offset_version, decoded.version)
        elif key_type == 2:
            self.group_version = max(self.group_version, decoded.version)
        elif key_type != 0:
            fields = decoded.data
            self.fields_since |= {
                each.added_in
                for each in RECORD_TYPES[key_type].value.struct.fields
                if each.added_in is not None
                and fields.get(each.name, default := each.default_value(decoded.version)) != default
            }


def release_of(evidence: Evidence) -> tuple[Release, str]:
    """The release (and coordinator, ``classic`` or ``new``) that the evidence points to.

    A field that only one release line began to write is the strongest sign: fields, then commits of version 4, then
    record types of groups. Between releases that write the same bytes the latest is taken.
    """
    if evidence.fields_since:
        return TABLE.latest_alike(max(evidence.fields_since)), Loader.JAVA.coordinator
    if evidence.offset_version < 4:
        first = TABLE.first_with_key_types(evidence.key_types)
        if first is not None:
            return TABLE.latest_alike(first, in_layout=evidence.is_preview), Loader.JAVA.coordinator
    release, loader = TABLE.inferred_from(_sign(evidence))
    return release, loader.coordinator


def _sign(evidence: Evidence) -> Sign:
    if evidence.offset_version >= 4:
        return Sign.COMMITS_V4
    if evidence.java_batches:
        return Sign.NUMBERED_BATCHES
    if evidence.group_version >= 3 or (evidence.offset_version == 3 and evidence.group_version < 0):
        return Sign.GROUPS_V3
    if evidence.offset_version >= 2 or evidence.group_version == 2:
        return Sign.GROUPS_V2
    if evidence.newest_magic >= 2:
        return Sign.FORMAT_2
    if evidence.newest_magic == 1:
        return Sign.FORMAT_1
    if evidence.key_types - {0}:
        return Sign.GROUPS
    return Sign.FORMAT_0 if evidence.newest_magic == 0 else Sign.NOTHING


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
