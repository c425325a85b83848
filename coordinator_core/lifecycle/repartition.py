"""A compacted log for a topic with another number of partitions: groups move to ``abs(hash) % count``.

A broker looks for a group in the partition that its hash names among those that the topic has, so a log for
another count is another log. Batches that hold several groups are split; leader epochs begin again at 0, as
the partitions of a new topic do. Records that cannot be moved are refused: groups of open transactions, whose end
markers go to the partitions that ``__transaction_state`` names; records whose key names no group; and offsets
of several partitions that would collide, unless the records are numbered anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coordinator_core.errors import DamagedInputError, UsageError
from coordinator_core.groups.hashing import partition_for
from coordinator_core.lifecycle.compact_output import output_log
from coordinator_core.lifecycle.compact_proof import ProofFailedError, subject, the_first_of, with_record_offsets
from coordinator_core.lifecycle.compact_states import proof_profiles, states_of
from coordinator_core.lifecycle.compact_write import whole_at
from coordinator_core.log.layout import BatchField
from coordinator_core.log.reader import read_records
from coordinator_core.log.segments import LEADER_EPOCH_FILE, SegmentWriter, leader_epoch_text, partition_directory_name
from coordinator_core.log.types import Batch, PartitionLog, Record
from coordinator_core.log.writer import rebuild_batch
from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.releases import Profile

MOST_PARTITIONS = 500
"""Each has a file open while records are moved."""

_FIRST_EPOCH = (0).to_bytes(4, "big")


@dataclass(frozen=True)
class MovedPartition:
    """An offsets partition of the new count; ``sources`` are those that its groups were in."""

    offsets_partition: int
    sources: tuple[int, ...]
    groups: int
    records: int
    bytes: int
    log_end_offset: int


@dataclass
class _Target:
    writer: SegmentWriter
    next_offset: int
    groups: int = 0
    records: int = 0
    bytes: int = 0


@dataclass
class _Homes:
    """Offsets partitions of groups, before and after."""

    count: int
    sources: dict[str, int] = field(default_factory=dict)

    def target(self, record: Record, log: PartitionLog) -> int:
        key_type, group_id, _ = (-1, None, None) if record.key is None else subject(record.key)
        place = f"offsets partition {log.offsets_partition}, record offset {record.offset}"
        if group_id is None or key_type not in RECORD_TYPES:
            raise UsageError(f"{place}: no known key, so the partition of the record is unknown")
        source = self.sources.setdefault(group_id, log.offsets_partition)
        if source != log.offsets_partition:
            raise UsageError(f"{place}: group {group_id!r} is in offsets partition {source}, too: which is its own?")
        return partition_for(group_id, self.count)

    def of_targets(self) -> dict[int, tuple[int, ...]]:
        """The sources of every partition."""
        found: dict[int, set[int]] = {number: set() for number in range(self.count)}
        for group_id, source in self.sources.items():
            found[partition_for(group_id, self.count)].add(source)
        return {number: tuple(sorted(sources)) for number, sources in found.items()}


def repartition(
    logs: Sequence[PartitionLog],
    directory: Path,
    count: int,
    profile: Profile,
    *,
    renumber: bool,
    segment_bytes: int,
    workers: int = 1,
) -> list[MovedPartition]:
    """Write the compacted ``logs`` as the ``count`` partitions of another topic, and prove it.

    ``directory`` is there. Every partition is written, also those without a group. Raises :class:`UsageError` for a log
    that cannot be moved and :class:`ProofFailedError`.
    """
    homes = _Homes(count)
    for log in logs:
        for _, batch, records in read_records(log):
            if not batch.is_control:
                for record in records:
                    homes.target(record, log)
    sources = homes.of_targets()
    for number, several in sources.items():
        if len(several) > 1 and not renumber:
            raise UsageError(
                f"offsets partition {number} of {count} would take groups of the partitions "
                f"{', '.join(map(str, several))}, whose record offsets collide: --renumber"
            )
    bases = {log.offsets_partition: log.segments[0].base_offset for log in logs}
    targets = {}
    for number, several in sources.items():
        base = 0 if renumber or not several else bases[several[0]]
        place = directory / partition_directory_name(number)
        writer = SegmentWriter(place, number, base, segment_bytes=segment_bytes)
        targets[number] = _Target(writer, base)
    for log in logs:
        _move(log, homes, targets, renumber=renumber)
    for group_id in homes.sources:
        targets[partition_for(group_id, count)].groups += 1
    written = []
    for number, target in targets.items():
        place = directory / partition_directory_name(number)
        segments = target.writer.finish()
        (place / LEADER_EPOCH_FILE).write_text(leader_epoch_text([(0, segments[0].base_offset)]))
        written.append(output_log(number, str(place), segments))
    _prove(logs, written, profile, count, workers)
    return [
        MovedPartition(number, sources[number], target.groups, target.records, target.bytes, target.next_offset)
        for number, target in targets.items()
    ]


def _move(log: PartitionLog, homes: _Homes, targets: dict[int, _Target], *, renumber: bool) -> None:
    """Append the log's records to the partitions of their groups, and end markers to those that have data of
    the transaction."""
    unended: dict[int, set[int]] = {}
    for segment, batch, records in read_records(log):
        if batch.is_control:
            parts = dict.fromkeys(unended.pop(batch.producer_id, ()), records)
        else:
            parts = {}
            for record in records:
                parts.setdefault(homes.target(record, log), []).append(record)
            if batch.is_transactional:
                unended.setdefault(batch.producer_id, set()).update(parts)
        for number, part in parts.items():
            target = targets[number]
            first = target.next_offset if renumber else None
            data = _part(batch, records, part, first, segment.path)
            base = whole_at(data, BatchField.BASE_OFFSET, 8)
            last = base + whole_at(data, BatchField.LAST_OFFSET_DELTA, 4)
            target.writer.write(memoryview(data), base, last)
            target.next_offset = last + 1
            target.records += len(part)
            target.bytes += len(data)


def _part(
    batch: Batch, records: Sequence[Record], part: Sequence[Record], first_offset: int | None, path: str
) -> bytes:
    is_whole = batch.magic == 2 and len(part) == len(records)
    is_dense = len(records) == batch.last_offset - batch.base_offset + 1
    if is_whole and (first_offset is None or is_dense):
        data = bytes(batch.data)
    else:
        offsets = {record.offset for record in part}
        data = rebuild_batch(batch, offsets.__contains__, path=path, convert=True, first_offset=first_offset)
    base = data[: BatchField.LENGTH] if first_offset is None else first_offset.to_bytes(8, "big")
    # Neither is under the CRC.
    return base + data[BatchField.LENGTH : BatchField.LEADER_EPOCH] + _FIRST_EPOCH + data[BatchField.MAGIC :]


_Answers = dict[str, dict[tuple[str, Any], Any]]
"""By profile: the state of every group and offset key after a load, wherever the records lie, and load failures."""


def _answers(logs: Sequence[PartitionLog], profile: Profile, workers: int) -> Iterator[tuple[int, _Answers]]:
    profiles = proof_profiles(profile, None, with_producers=True)
    for log in logs:
        found: _Answers = {}
        for commits in states_of(log, profiles, with_producers=True, workers=workers):
            state = commits.merged.to_state(whole_metadata=False)
            if state.pending:
                raise ProofFailedError(f"offsets partition {log.offsets_partition}: an open transaction is left")
            offsets = {
                ("offset", offset_key): offset._replace(record_offset=0, ordering_offset=0)
                for offset_key, offset in state.offsets.items()
            }
            for release in commits.releases:
                groups = {
                    ("group", group_id): with_record_offsets(group, np.zeros_like)
                    for group_id, group in release.groups.items()
                }
                stops = Counter(failure.detail for failure in release.load_failures)
                found[release.profile.name] = {**offsets, **groups, ("stops", ""): stops}
        yield log.offsets_partition, found


def _prove(
    before: Sequence[PartitionLog], after: Sequence[PartitionLog], profile: Profile, count: int, workers: int
) -> None:
    """Every group and offset is in its partition, as it was; for every release that can load all the logs."""
    try:
        old = list(_answers(before, profile, workers))
        new = list(_answers(after, profile, workers))
    except DamagedInputError as error:
        raise ProofFailedError(f"the output is not valid: {error}") from None
    names = set.intersection(*(set(answers) for _, answers in old)) if old else set()
    for name in sorted(names):
        expected: dict[tuple[str, Any], Any] = {("stops", ""): Counter()}
        for _, answers in old:
            stops = expected["stops", ""] + answers[name]["stops", ""]
            expected |= answers[name] | {("stops", ""): stops}
        left: dict[tuple[str, Any], Any] = {("stops", ""): Counter()}
        for number, answers in new:
            for (kind, what), answer in answers.get(name, {}).items():
                if kind == "stops":
                    left["stops", ""] = left["stops", ""] + answer
                    continue
                group_id = what if kind == "group" else what.group_id
                if partition_for(group_id, count) != number:
                    raise ProofFailedError(f"group {group_id!r} is in offsets partition {number} of {count}")
                left[kind, what] = answer
        wrong = [
            f"{kind} {what}"
            for kind, what in expected.keys() | left.keys()
            if expected.get((kind, what)) != left.get((kind, what))
        ]
        if wrong:
            raise ProofFailedError(
                f"profile {name}: {count} partitions load another state: {the_first_of(sorted(wrong))}"
            )
