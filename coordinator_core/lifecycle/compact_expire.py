"""The tombstones of an expiry plan as the next segment of the log that is compacted, and their proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from coordinator_core.groups.model import ClassicGroup, PartitionState
from coordinator_core.lifecycle.compact_proof import ProofFailedError
from coordinator_core.lifecycle.compact_scan import LogScan
from coordinator_core.lifecycle.plan import ExpiryPlan
from coordinator_core.log.reader import last_entry
from coordinator_core.log.segments import segment_name
from coordinator_core.log.types import Batch, PartitionLog, Record, SegmentFile
from coordinator_core.log.writer import BatchHeader, encode_batch, encode_message, encode_record

_RECORDS_A_BATCH = 1000
"""A sweep of the Java coordinator splits its records at ``max.message.bytes``; these stay well below."""


def with_tombstones(log: PartitionLog, scan: LogScan, plan: ExpiryPlan, directory: Path) -> PartitionLog:
    """``log`` with the plan's tombstones behind its end, in a segment file that is written to ``directory``.

    They are written as the log's last batch is: by its leader epoch, and in its message format if that is an
    old one. As the coordinator's own they have no producer.
    """
    base_offset = max(scan.log_end_offset, max(segment.base_offset for segment in log.segments))
    last = _last_batch(log)
    records = [
        Record(base_offset + index, plan.now_ms, tombstone.key, None) for index, tombstone in enumerate(plan.tombstones)
    ]
    if last is not None and last.magic < 2:
        data = b"".join(encode_message(record, last.magic) for record in records)
    else:
        epoch = -1 if last is None else last.partition_leader_epoch
        data = b"".join(
            _batch(records[start : start + _RECORDS_A_BATCH], epoch, plan.now_ms)
            for start in range(0, len(records), _RECORDS_A_BATCH)
        )
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / segment_name(base_offset)
    path.write_bytes(data)
    segment = SegmentFile(str(path), log.offsets_partition, base_offset, len(data))
    # A segment without a batch would have the same name as this one.
    before = tuple(item for item in log.segments if item.base_offset != base_offset)
    return replace(log, segments=(*before, segment))


def _batch(records: Sequence[Record], leader_epoch: int, now_ms: int) -> bytes:
    base = records[0].offset
    section = b"".join(encode_record(record, base_offset=base, base_timestamp_ms=now_ms) for record in records)
    header = BatchHeader(
        base,
        records[-1].offset,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        partition_leader_epoch=leader_epoch,
    )
    return encode_batch(header, section, len(records))


def _last_batch(log: PartitionLog) -> Batch | None:
    for segment in reversed(log.segments):
        last = last_entry(segment)
        if last is not None:
            return last
    return None


def prove_expired(before: PartitionState, after: PartitionState, plan: ExpiryPlan) -> None:
    """Check that the tombstones delete the offsets and groups of the plan, and nothing else; raises
    :class:`ProofFailedError`."""
    gone = plan.expired_offset_keys()
    kept = {offset_key: offset for offset_key, offset in before.offsets.items() if offset_key not in gone}
    wrong = [f"offset of {offset_key}" for offset_key in kept.keys() ^ after.offsets.keys()]
    wrong += [
        f"offset of {offset_key}"
        for offset_key, offset in kept.items()
        if after.offsets.get(offset_key, offset) != offset
    ]
    deleted = plan.deleted_groups()
    with_offsets = {offset_key.group_id for offset_key in kept}
    for group_id, group in before.groups.items():
        offsets_only = isinstance(group, ClassicGroup) and group.record_offset is None
        if group_id in deleted:
            expected = None
        elif offsets_only and group_id not in with_offsets:
            continue  # Whether it is still there depends on the loader, and means nothing.
        else:
            expected = group
        if after.groups.get(group_id) != expected:
            wrong.append(f"group {group_id!r}")
    wrong += [f"group {group_id!r}" for group_id in after.groups.keys() - before.groups.keys()]
    if before.pending != after.pending:
        wrong.append("offsets of open transactions")
    if wrong:
        raise ProofFailedError(
            f"offsets partition {plan.offsets_partition}: the tombstones change more than the plan: "
            + "; ".join(sorted(wrong)[:5])
        )
