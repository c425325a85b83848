"""Compaction of one offsets partition, with its proof.

    scan → plan → write → replay both → the same? → compact the output: nothing changes? → done

Where the cleaner's rules would change an answer of some release, the records behind that answer stay, and the
partition is written again. Any difference that is left is a failed proof.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from coordinator_core import storage
from coordinator_core.durations import DAY_MS
from coordinator_core.errors import DamagedInputError, UsageError
from coordinator_core.fold.pin import segment_fingerprint
from coordinator_core.fold.segments import forget_folds
from coordinator_core.lifecycle.compact_attempts import Proved, records_of_groups, until_proved
from coordinator_core.lifecycle.compact_expire import (
    Expired,
    OffsetsLeft,
    groups_changed,
    prove_expired,
    write_tombstones,
)
from coordinator_core.lifecycle.compact_output import (
    base_offset,
    has_leader_epochs,
    output_log,
    write_beside,
    write_segments,
)
from coordinator_core.lifecycle.compact_plan import (
    CompactionPlan,
    CompactionRules,
    Extra,
    TransactionFacts,
    leader_epochs,
)
from coordinator_core.lifecycle.compact_proof import (
    Behind,
    Difference,
    OffsetMap,
    ProofFailedError,
    Subjects,
    differences,
)
from coordinator_core.lifecycle.compact_scan import LogScan, NewestRecords, has_producers, scan_log
from coordinator_core.lifecycle.compact_states import Alike, CommitClass, proof_profiles, states_of
from coordinator_core.lifecycle.compact_write import OutputFormat, SameBytes, write_survivors
from coordinator_core.lifecycle.repartition import MOST_PARTITIONS
from coordinator_core.log.segments import DEFAULT_SEGMENT_BYTES
from coordinator_core.log.types import Codec, PartitionLog, SegmentFile
from coordinator_core.merge.schema import MergedPartition
from coordinator_core.merge.shards import store_rows
from coordinator_core.process.allocator import give_back_freed_memory
from coordinator_core.releases import Profile

_LARGE_ROWS = 1 << 18
"""Of a partition with more committed offsets or records memory is given back between steps."""


@dataclass(frozen=True, slots=True)
class ProvedSegment:
    """A file of the output as the proof has read it, with its fingerprint (as in pins)."""

    name: str
    bytes: int
    fingerprint: str

    @classmethod
    def of(cls, segment: SegmentFile) -> ProvedSegment:
        return cls(segment.name, segment.size, segment_fingerprint(segment))


def proved_log(offsets_partition: int, directory: str, segments: Iterable[ProvedSegment]) -> PartitionLog:
    """The log of the output that is in ``directory``, a path or URI."""
    files = [
        SegmentFile(storage.join(directory, segment.name), offsets_partition, int(segment.name[:20]), segment.bytes)
        for segment in segments
    ]
    return output_log(offsets_partition, directory, files)


@dataclass(frozen=True)
class Output:
    """What was written of a partition."""

    batches: int
    records: int
    bytes: int
    log_end_offset: int
    segments: tuple[ProvedSegment, ...]


@dataclass(frozen=True)
class CompactionReport:
    """Result of compacting one partition. ``protected_records`` stay beyond those that the cleaner would keep.

    ``told`` says why, one line each; ``last_stable_offset`` is where compaction ended, ``open_producers``
    whose transactions stopped it there (none when that is the log end). ``expiry_failure``: why nothing expires, where
    the sweep of such a broker fails.
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
    expiry_failure: str | None = None

    @classmethod
    def of(
        cls,
        scan: LogScan,
        facts: TransactionFacts,
        output: Output,
        proved: Proved,
        *,
        protected_records: int,
        profiles: Iterable[Alike],
    ) -> CompactionReport:
        return cls(
            offsets_partition=scan.log.offsets_partition,
            input_bytes=scan.bytes,
            input_batches=scan.batches,
            input_records=scan.records,
            output_bytes=output.bytes,
            output_batches=output.batches,
            output_records=output.records,
            output_segments=len(output.segments),
            log_start_offset=int(output.segments[0].name[:20]),
            log_end_offset=output.log_end_offset,
            last_stable_offset=facts.last_stable_offset,
            open_producers=facts.open_producers,
            protected_records=protected_records,
            told=proved.told,
            proved_profiles=tuple(profile.label for alike in profiles for profile in alike),
            segments=output.segments,
        )

    def with_expired(self, expired: Expired) -> CompactionReport:
        """The report of a log to which tombstones were added: they were not in the input."""
        return replace(
            self,
            input_bytes=self.input_bytes - (0 if expired.segment is None else expired.segment.size),
            input_batches=self.input_batches - expired.batches,
            input_records=self.input_records - expired.records,
            expired_offsets=expired.offsets.count,
            expired_groups=len(expired.groups),
            expiry_failure=expired.failure,
        )


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

    def check_approved(self, expired: Expired) -> None:
        """:class:`ProofFailedError` where other tombstones were approved."""
        number = expired.offsets_partition
        if self.approved is not None and self.approved.get(number) != expired.sha256:
            raise ProofFailedError(f"offsets partition {number}: other records expire than were planned")

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
    log: PartitionLog, target: Path, options: CompactionOptions, *, workers: int = 1, scratch: Path | None = None
) -> CompactionReport:
    """Compact ``log`` into its directory below ``target``, which is there and nobody reads yet, and prove it.

    Temporary files are in a directory of ``scratch`` (``None``: where those of this machine are). Raises
    :class:`DamagedInputError` for damaged input and :class:`ProofFailedError`; the output so far is worth nothing.
    """
    with tempfile.TemporaryDirectory(prefix="regroup-offsets-", dir=scratch) as directory:
        expired = _expired(log, directory, options, workers)
        if expired is not None:
            log = expired.added_to(log)
        steps = _InOnePlace(log, target, options, workers, os.path.join(directory, "offsets"))
        report = steps.report(until_proved(steps))
    return report if expired is None else report.with_expired(expired)


def _expired(log: PartitionLog, directory: str, options: CompactionOptions, workers: int) -> Expired | None:
    """What expires, where that is asked for; it was proved that its tombstones delete that and nothing else."""
    if options.offsets_retention_ms is None:
        return None

    def merged(of_log: PartitionLog, name: str) -> MergedPartition:
        states = states_of(of_log, [(options.profile,)], with_producers=True, workers=workers)
        (commits,) = _in_files(states, os.path.join(directory, name))
        return commits.merged

    before = merged(log, "before")
    expired = write_tombstones(
        log,
        before,
        options.profile,
        now_ms=options.rules.now_ms,
        offsets_retention_ms=options.offsets_retention_ms,
        path=os.path.join(directory, "tombstones.log"),
    )
    options.check_approved(expired)
    if expired.segment is not None:
        after = merged(expired.added_to(log), "after")
        left = OffsetsLeft.of(before.offsets, after.offsets)
        wrong = groups_changed(before.groups, after.groups, expired.groups, left.groups)
        if before.pending != after.pending:
            wrong.append("offsets of open transactions")
        prove_expired(expired, [left], wrong)
    return expired


class _InOnePlace:
    """Steps (``compact_attempts.Steps``) of a compaction of which one process has all the keys."""

    def __init__(self, log: PartitionLog, target: Path, options: CompactionOptions, workers: int, stored: str) -> None:
        self._log = log
        self._target = target
        self._options = options
        self._workers = workers
        self._scan = scan_log(log, workers=workers)
        self._cleaners = self._plan = CompactionPlan.of(self._scan, options.rules, workers=workers)
        self._newest: NewestRecords | None = None
        self._with_producers = has_producers(self._scan)
        key_types = self._plan.key_types if self.end_offset == self._scan.log_end_offset else None
        self._profiles = proof_profiles(options.profile, key_types, with_producers=self._with_producers)
        if self._scan.records > _LARGE_ROWS:
            give_back_freed_memory()
        # Every CRC was checked by the scan.
        states = states_of(log, self._profiles, with_producers=self._with_producers, check_crc=False, workers=workers)
        self._before = _in_files(states, stored)

    @property
    def offsets_partition(self) -> int:
        return self._log.offsets_partition

    @property
    def end_offset(self) -> int:
        return self._plan.end_offset

    def write(self, extra: Extra) -> None:
        self._plan = self._cleaners.keeping(extra, self._newest)
        self._newest = None
        scan, options = self._scan, self._options
        first_offset = base_offset(scan)
        self._written, self._result = write_segments(
            self.offsets_partition,
            self._target,
            first_offset,
            options.segment_bytes,
            lambda sink: write_survivors(self._plan, sink, options.output, first_offset),
        )
        write_beside(self._log, Path(self._result.directory), self._epochs())

    def _epochs(self) -> list[tuple[int, int]] | None:
        """Leader epochs of the output; ``None``: those of the input's file."""
        if not self._options.output.renumber and has_leader_epochs(self._log):
            return None
        pairs = leader_epochs(self._scan)
        if (moved := self._moved()) is not None and pairs:
            starts = moved(np.array([start for _, start in pairs], np.int64)).tolist()
            pairs = [(epoch, start) for (epoch, _), start in zip(pairs, starts, strict=True)]
        return pairs

    def _moved(self) -> OffsetMap | None:
        """Maps record offsets of the input to those of a renumbered output; ``None`` when they are the same."""
        return self._written.moved if self._options.output.renumber else None

    def differences(self) -> list[Difference]:
        try:
            after = states_of(self._result, self._profiles, with_producers=self._with_producers, workers=self._workers)
        except DamagedInputError as error:
            raise ProofFailedError(f"the output is not valid: {error}") from None
        kept = {release.profile.name for commits in self._before for release in commits.releases}
        after = [
            CommitClass(commits.merged, tuple(release for release in commits.releases if release.profile.name in kept))
            for commits in after
        ]
        after = [commits for commits in after if commits.releases]
        found = differences(self._before, after, self._moved())
        if not self._options.output.renumber:
            return list(found)
        return [replace(difference, stops_at=self._written.origin(difference.stops_at)) for difference in found]

    def behind(self, subjects: Subjects) -> list[Behind]:
        self._newest = self._cleaners.newest(workers=self._workers)
        return [Behind.of(subjects, self._newest)]

    def records_of(self, groups: Collection[str]) -> Extra:
        return records_of_groups(self._scan, groups, self.end_offset)

    def is_stable(self, extra: Extra) -> bool:
        """Every batch must stay as it is."""
        if self._scan.records > _LARGE_ROWS:
            forget_folds()
        moved = self._moved()
        if moved is not None:
            extra = frozenset(moved(np.array(sorted(extra), np.int64)).tolist())
        scan = scan_log(self._result, workers=self._workers)
        same = SameBytes(scan)
        plan = CompactionPlan.of(scan, self._options.rules, workers=self._workers).keeping(extra)
        if scan.records > _LARGE_ROWS:
            give_back_freed_memory()
        write_survivors(plan, same, self._options.output, base_offset(scan))
        return same.same

    def report(self, proved: Proved) -> CompactionReport:
        written, segments = self._written, self._result.segments
        return CompactionReport.of(
            self._scan,
            self._plan.facts,
            Output(
                batches=written.batches,
                records=written.records,
                bytes=written.bytes,
                log_end_offset=max(written.log_end_offset, segments[0].base_offset),
                segments=tuple(map(ProvedSegment.of, segments)),
            ),
            proved,
            protected_records=len(self._plan.stays.offsets) - len(self._cleaners.stays.offsets),
            profiles=[(one.profile, *one.also) for commits in self._before for one in commits.releases],
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
