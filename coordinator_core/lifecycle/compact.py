"""Compaction of one offsets partition, with its proof.

    scan → plan → write → replay both → the same? → compact the output: nothing changes? → done

Where the cleaner's rules would change an answer of some release, the records behind that answer stay, and the
partition is written again. Any difference that is left is a failed proof.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from coordinator_core import storage
from coordinator_core.durations import DAY_MS
from coordinator_core.errors import DamagedInputError, UsageError
from coordinator_core.fold.pin import segment_fingerprint
from coordinator_core.fold.segments import forget_folds
from coordinator_core.groups.model import PartitionState
from coordinator_core.lifecycle.compact_expire import prove_expired, with_tombstones
from coordinator_core.lifecycle.compact_plan import (
    CompactionPlan,
    CompactionRules,
    Extra,
    leader_epochs,
)
from coordinator_core.lifecycle.compact_proof import (
    Difference,
    OffsetMap,
    ProofFailedError,
    differences,
    groups_behind,
    records_behind,
    subject,
)
from coordinator_core.lifecycle.compact_scan import LogScan, scan_log
from coordinator_core.lifecycle.compact_states import CommitClass, proof_profiles, states_of
from coordinator_core.lifecycle.compact_write import (
    OutputFormat,
    SameBytes,
    SegmentSink,
    WrittenLog,
    write_survivors,
)
from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.plan import ExpiryPlan
from coordinator_core.lifecycle.repartition import MOST_PARTITIONS
from coordinator_core.log.discovery import PARTITION_METADATA_FILE
from coordinator_core.log.reader import read_records
from coordinator_core.log.segments import (
    DEFAULT_SEGMENT_BYTES,
    LEADER_EPOCH_FILE,
    SegmentWriter,
    leader_epoch_text,
    partition_directory_name,
)
from coordinator_core.log.types import Codec, PartitionLog
from coordinator_core.merge.shards import store_rows
from coordinator_core.process.allocator import give_back_freed_memory
from coordinator_core.releases import Profile

_LARGE_ROWS = 1 << 18
"""Of a partition with more committed offsets or records memory is given back between steps."""
_ATTEMPTS = 3
_TOLD = 5
"""Most differences that the message of a failed proof lists."""


@dataclass(frozen=True, slots=True)
class ProvedSegment:
    """A file of the output as the proof has read it, with its fingerprint (as in pins)."""

    name: str
    bytes: int
    fingerprint: str


@dataclass(frozen=True)
class CompactionReport:
    """Result of compacting one partition. ``protected_records`` stay beyond those that the cleaner would keep.

    ``told`` says why, one line each; ``last_stable_offset`` is where compaction ended, ``open_producers``
    whose transactions stopped it there (none when that is the log end).
    """

    offsets_partition: int
    input_bytes: int
    input_batches: int
    input_records: int
    output_bytes: int
    output_batches: int
    output_records: int
    output_segments: int
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    open_producers: tuple[int, ...]
    protected_records: int
    told: tuple[str, ...]
    proved_profiles: tuple[str, ...]
    segments: tuple[ProvedSegment, ...]
    expired_offsets: int = 0
    expired_groups: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class CompactionOptions:
    """Options of a compaction. ``profile``: of the brokers that will load the output.

    With ``offsets_retention_ms`` (milliseconds) offsets that have expired at ``rules.now_ms`` are tombstoned first.
    ``approved`` has the :meth:`ExpiryPlan.digest` of every offsets partition, where nothing else is to be tombstoned;
    ``None`` where nobody was asked. ``offsets_partitions`` is another partition count of the topic that the log is for.
    """

    profile: Profile
    rules: CompactionRules
    output: OutputFormat = field(default_factory=OutputFormat)
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    offsets_retention_ms: int | None = None
    approved: Mapping[int, str] | None = None
    offsets_partitions: int | None = None

    @classmethod
    def chosen(
        cls,
        profile: Profile,
        *,
        now_ms: int,
        expire: bool = False,
        offsets_retention_ms: int | None = None,
        delete_retention_ms: int = DAY_MS,
        renumber: bool = False,
        message_format: str = "keep",
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        codec: str = "keep",
        offsets_partitions: int | None = None,
        approved: Mapping[int, str] | None = None,
    ) -> CompactionOptions:
        """The compaction that the options of these names ask for; the retention is by default that of the release.

        Raises :class:`UsageError` for a partition count that is none.
        """
        if offsets_partitions is not None and not 1 <= offsets_partitions <= MOST_PARTITIONS:
            raise UsageError(f"offsets partitions: from 1 to {MOST_PARTITIONS}, not {offsets_partitions}")
        retention_ms = offsets_retention_ms or profile.expiry.default_offsets_retention_ms
        return cls(
            profile=profile,
            rules=CompactionRules(now_ms, delete_retention_ms),
            output=OutputFormat(
                convert=message_format == "2",
                renumber=renumber,
                codec=None if codec == "keep" else Codec[codec.upper()],
            ),
            segment_bytes=segment_bytes,
            offsets_retention_ms=retention_ms if expire else None,
            approved=approved,
            offsets_partitions=offsets_partitions,
        )


def compact_partition(
    log: PartitionLog, target: Path, options: CompactionOptions, *, workers: int = 1
) -> CompactionReport:
    """Compact ``log`` into its directory below ``target``, which nobody reads yet, and prove it.

    Raises :class:`DamagedInputError` for damaged input and :class:`ProofFailedError`; the output so far is worth
    nothing.
    """
    if options.offsets_retention_ms is None:
        return _Compaction(log, target, options, workers).run()
    directory = target / f".expiry-{log.offsets_partition}"
    try:
        expired, plan = _expired(log, directory, options, workers)
        report = _Compaction(expired, target, options, workers).run()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return replace(report, expired_offsets=len(plan.expired_offset_keys()), expired_groups=len(plan.deleted_groups()))


def _expired(
    log: PartitionLog, directory: Path, options: CompactionOptions, workers: int
) -> tuple[PartitionLog, ExpiryPlan]:
    """The log with the tombstones of expired offsets and groups, which were proved to do that and nothing else."""
    assert options.offsets_retention_ms is not None
    before = _state(log, options.profile, workers)
    plan = plan_expiry(
        before,
        options.profile,
        now_ms=options.rules.now_ms,
        offsets_retention_ms=options.offsets_retention_ms,
    )
    if options.approved is not None and options.approved.get(log.offsets_partition) != plan.digest():
        raise ProofFailedError(f"offsets partition {log.offsets_partition}: other records expire than were planned")
    if not plan.tombstones:
        return log, plan
    expired = with_tombstones(log, scan_log(log, workers=workers), plan, directory)
    prove_expired(before, _state(expired, options.profile, workers), plan)
    return expired, plan


def _state(log: PartitionLog, profile: Profile, workers: int) -> PartitionState:
    (commits,) = states_of(log, [(profile,)], with_producers=True, workers=workers)
    return commits.merged.to_state(whole_metadata=False)


class _Compaction:
    """State of one partition between the steps of its compaction."""

    def __init__(self, log: PartitionLog, target: Path, options: CompactionOptions, workers: int) -> None:
        self.log = log
        self.target = target
        self.profile = options.profile
        self.rules = options.rules
        self.output = options.output
        self.segment_bytes = options.segment_bytes
        self.workers = workers

    def run(self) -> CompactionReport:
        with tempfile.TemporaryDirectory(prefix="regroup-offsets-") as directory:
            return self._run(os.path.join(directory, "offsets"))

    def _run(self, stored: str) -> CompactionReport:
        scan = scan_log(self.log, workers=self.workers)
        cleaners = plan = CompactionPlan.of(scan, self.rules, workers=self.workers)
        end_offset = plan.end_offset
        with_producers = bool((scan.index["producer_id"] != -1).any())
        key_types = plan.key_types if end_offset == scan.log_end_offset else None
        profiles = proof_profiles(self.profile, key_types, with_producers=with_producers)
        if scan.records > _LARGE_ROWS:
            give_back_freed_memory()
        # Every CRC was checked by the scan.
        states = states_of(self.log, profiles, with_producers=with_producers, check_crc=False, workers=self.workers)
        before = _in_files(states, stored)
        extra, told = Extra(), []
        for attempt in range(_ATTEMPTS):
            written, result = self._write(plan)
            found = self._differences(before, written, result, profiles, with_producers)
            if not found:
                break
            newest = cleaners.newest(workers=self.workers)
            if attempt == 0:
                protected = records_behind(found, newest, before, end_offset)
            else:
                protected = extra | _whole_groups(self.log, groups_behind(found, newest), end_offset)
            if protected == extra or attempt + 1 == _ATTEMPTS:
                raise ProofFailedError(_failure(self.log.offsets_partition, found))
            extra, plan = protected, cleaners.keeping(protected, newest)
            del newest
            told += [str(difference) for difference in found]
        if scan.records > _LARGE_ROWS:
            forget_folds()
        self._prove_stable(result, _moved(extra, written, self.output))
        return CompactionReport(
            offsets_partition=self.log.offsets_partition,
            input_bytes=scan.bytes,
            input_batches=scan.batches,
            input_records=scan.records,
            output_bytes=written.bytes,
            output_batches=written.batches,
            output_records=written.records,
            output_segments=len(result.segments),
            log_start_offset=result.segments[0].base_offset,
            log_end_offset=max(written.log_end_offset, result.segments[0].base_offset),
            last_stable_offset=plan.facts.last_stable_offset,
            open_producers=plan.facts.open_producers,
            protected_records=len(plan.stays.offsets) - len(cleaners.stays.offsets),
            told=tuple(told),
            proved_profiles=tuple(
                profile.label
                for commits in before
                for release in commits.releases
                for profile in (release.profile, *release.also)
            ),
            segments=tuple(
                ProvedSegment(Path(item.path).name, item.size, segment_fingerprint(item)) for item in result.segments
            ),
        )

    def _write(self, plan: CompactionPlan) -> tuple[WrittenLog, PartitionLog]:
        directory = self.target / partition_directory_name(self.log.offsets_partition)
        if directory.exists():
            shutil.rmtree(directory)
        base_offset = self._base_offset(plan.scan)
        writer = SegmentWriter(directory, self.log.offsets_partition, base_offset, segment_bytes=self.segment_bytes)
        written = write_survivors(plan, SegmentSink(writer), self.output, base_offset)
        segments = writer.finish()
        self._write_beside(directory, plan.scan, written)
        return written, PartitionLog(
            self.log.offsets_partition,
            str(directory),
            segments,
            log_start_offset=None,
            clean_shutdown=False,
        )

    def _base_offset(self, scan: LogScan) -> int:
        """Name of the first segment. A log without any batch keeps its end."""
        if scan.last_base_offset < 0:
            return max(scan.start_offset, *(segment.base_offset for segment in self.log.segments))
        return scan.segments[0].segment.base_offset

    def _write_beside(self, directory: Path, scan: LogScan, written: WrittenLog) -> None:
        epochs = storage.join(self.log.directory, LEADER_EPOCH_FILE)
        if self.output.renumber or not storage.exists(epochs):
            moved = _offset_map(written, self.output)
            pairs = leader_epochs(scan)
            if moved is not None and pairs:
                starts = moved(np.array([start for _, start in pairs], np.int64)).tolist()
                pairs = [(epoch, start) for (epoch, _), start in zip(pairs, starts, strict=True)]
            if pairs:
                (directory / LEADER_EPOCH_FILE).write_text(leader_epoch_text(pairs))
        else:
            (directory / LEADER_EPOCH_FILE).write_bytes(storage.read(epochs))
        metadata = storage.join(self.log.directory, PARTITION_METADATA_FILE)
        if storage.exists(metadata):
            (directory / PARTITION_METADATA_FILE).write_bytes(storage.read(metadata))

    def _differences(
        self,
        before: Sequence[CommitClass],
        written: WrittenLog,
        result: PartitionLog,
        profiles: Sequence[tuple[Profile, ...]],
        with_producers: bool,
    ) -> list[Difference]:
        try:
            after = states_of(result, profiles, with_producers=with_producers, workers=self.workers)
        except DamagedInputError as error:
            raise ProofFailedError(f"the output is not valid: {error}") from None
        kept = {release.profile.name for commits in before for release in commits.releases}
        after = [
            CommitClass(
                commits.merged,
                tuple(release for release in commits.releases if release.profile.name in kept),
            )
            for commits in after
        ]
        after = [commits for commits in after if commits.releases]
        found = differences(before, after, _offset_map(written, self.output))
        if not self.output.renumber:
            return list(found)
        return [replace(difference, stops_at=written.origin(difference.stops_at)) for difference in found]

    def _prove_stable(self, result: PartitionLog, extra: Extra) -> None:
        """Compact the output again: every batch must stay as it is."""
        scan = scan_log(result, workers=self.workers)
        same = SameBytes(scan)
        plan = CompactionPlan.of(scan, self.rules, workers=self.workers).keeping(extra)
        if scan.records > _LARGE_ROWS:
            give_back_freed_memory()
        write_survivors(plan, same, self.output, self._base_offset(scan))
        if not same.same:
            raise ProofFailedError(
                f"offsets partition {self.log.offsets_partition}: a second compaction would change the output"
            )


def _in_files(states: list[CommitClass], path: str) -> list[CommitClass]:
    """The same, with many committed offsets in files, so that those of the output are in memory alone.

    ``states`` is empty afterwards: nothing else holds what is in files now.
    """
    found: list[CommitClass] = []
    while states:
        commits = states.pop(0)
        merged = commits.merged
        if merged.offsets.num_rows > _LARGE_ROWS:
            offsets, groups = store_rows(merged.offsets, f"{path}-{len(found)}"), merged.groups
            commits = replace(commits, merged=replace(merged, offsets=offsets, tell_groups=groups.copy))
        found.append(commits)
        del commits, merged
    if any(commits.merged.offsets.num_rows > _LARGE_ROWS for commits in found):
        forget_folds()
    return found


def _whole_groups(log: PartitionLog, group_ids: Collection[str], end_offset: int) -> Extra:
    """Every record of these groups before ``end_offset``: a line that cannot be shortened stays as it is."""
    return Extra(
        frozenset(
            record.offset
            for _, batch, records in read_records(log)
            if batch.base_offset < end_offset and not batch.is_control
            for record in records
            if record.key is not None and subject(record.key)[1] in group_ids
        )
    )


def _offset_map(written: WrittenLog, output: OutputFormat) -> OffsetMap | None:
    """Maps record offsets of the input to record offsets of a renumbered output; ``None`` when they are the same."""
    return written.moved if output.renumber else None


def _moved(extra: Extra, written: WrittenLog, output: OutputFormat) -> Extra:
    moved = _offset_map(written, output)
    if moved is None:
        return extra
    return Extra(frozenset(moved(np.array(sorted(extra.offsets), np.int64)).tolist()))


def _failure(offsets_partition: int, found: Sequence[Difference]) -> str:
    told = "; ".join(str(difference) for difference in found[:_TOLD])
    more = f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    return f"offsets partition {offsets_partition}: the output replays to another state: {told}{more}"
