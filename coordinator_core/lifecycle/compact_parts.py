"""A large offsets partition compacted in several places at once: the same bytes and the same proof as in one.

    segments: scan → newest records → buckets of keys: survivors → segments: write → one place: cut into segments
    segments of input and output: fold → shards → shards: the same offsets? → one place: the same groups?
    segments and buckets of the output: compact it again: nothing changes?

Files of a staging directory carry from one step to the next what follows the size of the log. A task holds some
segments or a share of the keys; who asks for the steps holds batches of producers alone, 80 bytes each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
from pyarrow import NativeFile

from coordinator_core import storage
from coordinator_core.errors import DamagedInputError
from coordinator_core.file_ranges import FileRange
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.tasks import packed
from coordinator_core.kernels.arrays import Array, Int64s, dtype
from coordinator_core.lifecycle.compact import CompactionOptions, CompactionReport, Output, ProvedSegment, proved_log
from coordinator_core.lifecycle.compact_attempts import Proved, records_of_groups, until_proved
from coordinator_core.lifecycle.compact_newest import (
    BUCKETS,
    NewestFile,
    SurvivorsFile,
    merged_newest,
    read_survivors,
    store_newest,
    store_survivors,
)
from coordinator_core.lifecycle.compact_output import (
    adopt,
    base_offset,
    has_leader_epochs,
    write_beside,
    write_segments,
)
from coordinator_core.lifecycle.compact_parts_expire import expire_in_parts
from coordinator_core.lifecycle.compact_plan import (
    CompactionPlan,
    CompactionRules,
    Extra,
    TransactionFacts,
    batch_actions,
    cleanable,
    leader_epochs,
    survivors,
    transaction_facts,
)
from coordinator_core.lifecycle.compact_proof import (
    Behind,
    Difference,
    ProofFailedError,
    Subjects,
    WholeTable,
    differences,
    table_differences,
)
from coordinator_core.lifecycle.compact_scan import (
    LogScan,
    NewestRecords,
    has_producers,
    join_scans,
    newest_records,
    scan_ranges,
)
from coordinator_core.lifecycle.compact_states import (
    Alike,
    CommitClass,
    commit_class,
    commit_classes,
    proof_profiles,
    reads_commits,
)
from coordinator_core.lifecycle.compact_tasks import PartSizes, Run, Tasks, merged_in_files
from coordinator_core.lifecycle.compact_write import OutputFormat, SameBytes, Sink, WrittenLog, write_survivors
from coordinator_core.log.limits import standing_allowance
from coordinator_core.log.segments import partition_directory_name
from coordinator_core.log.types import PartitionLog
from coordinator_core.merge.schema import NoRows
from coordinator_core.merge.shards import MergedShard, StoredShard, combine_shards
from coordinator_core.releases import Profile
from coordinator_core.runs.table_directory import STAGING, message_path, staging_path

T = TypeVar("T")
R = TypeVar("R")


def compact_in_parts(
    log: PartitionLog, target: str, options: CompactionOptions, run: Run, sizes: PartSizes | None
) -> CompactionReport:
    """As ``compact.compact_partition`` without new record offsets; ``target`` is a path or URI that all tasks reach.

    Several partitions may be compacted into one ``target`` at the same time.
    """
    work = storage.join(target, f"{STAGING}-{log.offsets_partition}")
    storage.make_directory(staging_path(work))
    tasks = Tasks(log.offsets_partition, work, run, sizes or PartSizes())
    try:
        expired = None if options.offsets_retention_ms is None else expire_in_parts(log, options, tasks)
        steps = _InParts(log if expired is None else expired.added_to(log), options, tasks, target)
        report = steps.report(until_proved(steps))
        steps.publish()
        return report if expired is None else report.with_expired(expired)
    finally:
        storage.delete_while_written(work)


def is_for_parts(options: CompactionOptions) -> bool:
    """Whether a compaction with these options can be done in parts."""
    return not options.output.renumber


@dataclass(frozen=True)
class _Log:
    """A log with its newest records in files. ``scans`` have its segments, some each; ``scan`` has all.

    ``bounds`` are the record offsets at which the parts begin.
    """

    scans: Sequence[LogScan]
    bounds: Int64s
    scan: LogScan
    facts: TransactionFacts
    end_offset: int
    newest: Sequence[NewestFile]
    shares: Sequence[range]

    def share(self, number: int) -> _Share:
        buckets = self.shares[number]
        unkeyed = tuple(file.unkeyed for file in self.newest) if number == 0 else ()
        return _Share(tuple(file.of_buckets(buckets) for file in self.newest), unkeyed)


def _bounds_of(scans: Sequence[LogScan]) -> Int64s:
    """Record offsets at which the parts begin: behind the last batch of those before.

    The name of a segment may be higher: a wrapper of an old format has the offset of its last record, and so has a
    segment that begins with it.
    """
    ends = [scan.log_end_offset if scan.batches else 0 for scan in scans[:-1]]
    return np.maximum.accumulate(np.array([0, *ends], np.int64))


def _by_part(offsets: Int64s, bounds: Int64s) -> list[slice]:
    """Which of ``offsets``, ascending, are in each of the parts that begin at ``bounds``."""
    cuts = [*np.searchsorted(offsets, bounds).tolist(), len(offsets)]
    return [slice(first, stop) for first, stop in pairwise(cuts)]


@dataclass(frozen=True)
class _Share:
    """Where the newest records of a share of the keys are."""

    places: tuple[FileRange, ...]
    unkeyed: tuple[FileRange, ...]


@dataclass(frozen=True)
class _Survivors:
    file: SurvivorsFile
    is_left: Array
    """Whether a record of the batch stays, for each batch of the index that can be cleaned."""
    key_types: frozenset[int]


@dataclass(frozen=True)
class _Written:
    """Batches that stay of some segments."""

    data: FileRange
    rows_path: str
    batches: int
    records: int
    end_offset: int
    kept: int


@dataclass(frozen=True)
class _Compared:
    """Result of a shard: differences of committed offsets, and the rest of both states by the members of the class."""

    differences: tuple[Difference, ...]
    before: tuple[StoredShard, ...]
    after: tuple[StoredShard, ...]


class _InParts:
    """Steps (``compact_attempts.Steps``) of such a compaction."""

    def __init__(self, log: PartitionLog, options: CompactionOptions, tasks: Tasks, target: str) -> None:
        self._log = log
        self._options = options
        self._tasks = tasks
        self._target = target
        self._work = tasks.directory
        self._run = tasks.run
        self._input = self._read(log)
        self._cleaned: int | None = None
        self._before: dict[FoldRules, list[list[FileRange]]] = {}
        self._classes: dict[FoldRules, list[Alike]] = {}

    @property
    def offsets_partition(self) -> int:
        return self._log.offsets_partition

    @property
    def end_offset(self) -> int:
        return self._input.end_offset

    def _read(self, log: PartitionLog) -> _Log:
        """Scan a log and find its newest records."""
        scans = self._run(partial(scan_ranges, replace(log, segments=())), self._tasks.parts_of(log))
        scan, bounds = join_scans(log, scans), _bounds_of(scans)
        facts = transaction_facts(scan, self._options.rules)
        end_offset = facts.end_of_compaction(self._options.rules)
        store = partial(_store_newest, end_offset=end_offset, directory=self._work)
        aborted = [facts.aborted[own] for own in _by_part(facts.aborted, bounds)]
        newest = self._run(store, list(zip(scans, aborted, strict=True)))
        sizes = [sum(file.of_buckets(range(bucket, bucket + 1)).size for file in newest) for bucket in range(BUCKETS)]
        return _Log(scans, bounds, scan, facts, end_offset, newest, packed(sizes, self._tasks.sizes.newest))

    def _survivors(self, log: _Log, extra: Extra) -> list[_Survivors]:
        find = partial(
            _find_survivors,
            rules=self._options.rules,
            extra=extra,
            bounds=log.bounds,
            batches=cleanable(log.scan, log.end_offset),
            directory=self._work,
        )
        return self._run(find, [log.share(number) for number in range(len(log.shares))])

    def _plans(self, log: _Log, stays: Sequence[_Survivors]) -> list[Part]:
        """Plans of the parts of a log, each without its survivors, and where these are."""
        is_left = np.logical_or.reduce([part.is_left for part in stays])
        actions = batch_actions(log.scan, log.facts, is_left, self._options.rules, log.end_offset)
        facts = replace(log.facts, aborted=log.facts.aborted[:0], last_of_producer=frozenset())
        nothing, plans = read_survivors(()), []
        for number, (scan, own) in enumerate(zip(log.scans, _by_part(actions["base_offset"], log.bounds), strict=True)):
            places = tuple(part.file.between(number) for part in stays)
            plan = CompactionPlan(scan, self._options.rules, facts, log.end_offset, frozenset(), nothing, actions[own])
            plans.append((plan, places))
        return plans

    def write(self, extra: Extra) -> None:
        stays = self._survivors(self._input, extra)
        plans = self._plans(self._input, stays)
        write = partial(_write, output=self._options.output, directory=self._work)
        self._written = self._run(write, plans)
        if self._cleaned is None:
            self._cleaned = self._kept
            self._prepare_proof(frozenset().union(*(part.key_types for part in stays)))
        join = partial(
            _join,
            log=replace(self._log, segments=()),
            directory=self._work,
            first_offset=base_offset(self._input.scan),
            segment_bytes=self._options.segment_bytes,
            epochs=None if has_leader_epochs(self._log) else leader_epochs(self._input.scan),
        )
        ((self._attempt, self._segments),) = self._run(join, [self._written])
        directory = storage.join(self._attempt, partition_directory_name(self.offsets_partition))
        self._result = proved_log(self.offsets_partition, directory, self._segments)

    def publish(self) -> None:
        """Let the output be that of the partition, once it is proved."""
        self._run(partial(adopt, target=self._target, offsets_partition=self.offsets_partition), [self._attempt])

    @property
    def _kept(self) -> int:
        """Number of records that stay."""
        return sum(part.kept for part in self._written)

    def _prepare_proof(self, key_types: frozenset[int]) -> None:
        with_producers = has_producers(self._input.scan)
        known = key_types if self.end_offset == self._input.scan.log_end_offset else None
        profiles = proof_profiles(self._options.profile, known, with_producers=with_producers)
        self._main = profiles[0][0]
        for rules, members in commit_classes(profiles, with_producers=with_producers).items():
            # Every CRC was checked by the scan.
            folds = self._tasks.folds(self._log, rules, check_crc=False)
            versions = frozenset().union(*(fold.versions for fold in folds))
            able = [alike for alike in members if alike[0] == self._main or reads_commits(alike[0], versions)]
            if able:
                self._classes[rules] = able
                self._before[rules] = self._tasks.cut(folds, self._tasks.shards_for(folds))
        assert self._classes, "the profile that the log is compacted for is always compared"

    def differences(self) -> list[Difference]:
        found: list[Difference] = []
        for rules, members in self._classes.items():
            before = self._before[rules]
            try:
                after = self._tasks.cut(self._tasks.folds(self._result, rules, check_crc=True), len(before))
            except DamagedInputError as error:
                raise ProofFailedError(f"the output is not valid: {error}") from None
            compare = partial(
                _compare_shard,
                members=members,
                main=self._main,
                offsets_partition=self.offsets_partition,
                allowances=(standing_allowance(self._log.size), standing_allowance(self._result.size)),
                directory=self._work,
            )
            compared = self._run(compare, list(zip(before, after, strict=True)))
            found += [difference for shard in compared for difference in shard.differences]
            (rest,) = self._run(partial(_compare_rest, members=members), [compared])
            found += rest
        return found

    def behind(self, subjects: Subjects) -> list[Behind]:
        shares = [self._input.share(number) for number in range(len(self._input.shares))]
        return self._run(partial(_behind, subjects=subjects), shares)

    def records_of(self, groups: Collection[str]) -> Extra:
        of_groups = partial(records_of_groups, groups=groups, end_offset=self.end_offset)
        return frozenset().union(*self._run(of_groups, self._input.scans))

    def is_stable(self, extra: Extra) -> bool:
        output = self._read(self._result)
        plans = self._plans(output, self._survivors(output, extra))
        return all(self._run(partial(_is_same, output=self._options.output), plans))

    def report(self, proved: Proved) -> CompactionReport:
        written = self._written
        end_offset = max((part.end_offset for part in written), default=0)
        return CompactionReport.of(
            self._input.scan,
            self._input.facts,
            Output(
                batches=sum(part.batches for part in written),
                records=sum(part.records for part in written),
                bytes=sum(part.data.size for part in written),
                log_end_offset=max(end_offset, self._result.segments[0].base_offset),
                segments=self._segments,
            ),
            proved,
            protected_records=self._kept - (self._cleaned or 0),
            profiles=[alike for members in self._classes.values() for alike in members],
        )


def _store_newest(item: tuple[LogScan, Int64s], end_offset: int, directory: str) -> NewestFile:
    scan, aborted = item
    newest = newest_records(scan, aborted=aborted, end_offset=end_offset)
    return store_newest(newest, message_path(directory, "newest"))


def _newest_of(share: _Share) -> NewestRecords:
    return merged_newest(share.places, share.unkeyed)


def _find_survivors(
    share: _Share, rules: CompactionRules, extra: Extra, bounds: Int64s, batches: Array, directory: str
) -> _Survivors:
    newest = _newest_of(share)
    stays = survivors(newest, rules, extra)
    is_left = stays.are_in(batches)
    file = store_survivors(stays, bounds, message_path(directory, "survivors"))
    return _Survivors(file, is_left, frozenset(newest.key_types().tolist()))


def _behind(share: _Share, subjects: Subjects) -> Behind:
    return Behind.of(subjects, _newest_of(share))


Part = tuple[CompactionPlan, tuple[FileRange, ...]]
"""The plan of some segments without its survivors, and where these are."""


def _rewritten(part: Part, sink: Sink, output: OutputFormat) -> WrittenLog:
    plan, places = part
    return write_survivors(replace(plan, stays=read_survivors(places)), sink, output)


def _write(part: Part, output: OutputFormat, directory: str) -> _Written:
    """Write the batches that stay to one file, and the rows about them to another."""
    path, rows_path = message_path(directory, "batches"), message_path(directory, "rows")
    with storage.output_file(path) as data, storage.output_file(rows_path) as rows:
        written = _rewritten(part, _FileSink(data, rows), output)
        size = data.tell()
    place = FileRange(path, 0, size)
    return _Written(place, rows_path, written.batches, written.records, written.log_end_offset, len(written.kept))


def _is_same(part: Part, output: OutputFormat) -> bool:
    """Whether what stays are, byte for byte, the segments."""
    same = SameBytes(part[0].scan)
    _rewritten(part, same, output)
    return same.same


class _FileSink:
    """Batches one behind the other in a file, and their rows in another."""

    def __init__(self, data: NativeFile, rows: NativeFile) -> None:
        self._data = data
        self._rows = rows

    def write(self, data: memoryview, batches: Array) -> None:
        batches = batches.copy()
        batches["position"] += self._data.tell()
        self._data.write(data)
        self._rows.write(batches.tobytes())


def _join(
    written: Sequence[_Written],
    log: PartitionLog,
    directory: str,
    first_offset: int,
    segment_bytes: int,
    epochs: Sequence[tuple[int, int]] | None,
) -> tuple[str, tuple[ProvedSegment, ...]]:
    """Cut what was written into the segments of the output, in a directory that no other attempt writes; its path."""
    attempt = message_path(directory, "joined")
    # Without parents: an attempt that comes late must not make the staging directory again in what is published.
    storage.make_directory(attempt, parents=False)

    def write(sink: Sink) -> None:
        for part in written:
            rows = FileRange(part.rows_path, 0, part.batches * dtype("WrittenBatch").itemsize).read()
            sink.write(memoryview(part.data.read()), np.frombuffer(rows, dtype("WrittenBatch")))

    with storage.directory_of(attempt) as place:
        _, result = write_segments(log.offsets_partition, place, first_offset, segment_bytes, write)
        write_beside(log, Path(result.directory), epochs)
        return attempt, tuple(map(ProvedSegment.of, result.segments))


def _compare_shard(
    places: tuple[Sequence[FileRange], Sequence[FileRange]],
    members: Sequence[Alike],
    main: Profile,
    offsets_partition: int,
    allowances: tuple[int, int],
    directory: str,
) -> _Compared:
    """Replay a shard of the input and of the output, and compare the offsets."""
    before, after = (
        merged_in_files(side, members, main, offsets_partition, allowance, directory)
        for side, allowance in zip(places, allowances, strict=True)
    )
    name = members[0][0].name
    old, new = before[members[0]], after[members[0]]
    found = [*table_differences(name, "committed offset", old.offsets, new.offsets, None)]
    found += table_differences(name, "pending offset", WholeTable(old.pending), WholeTable(new.pending), None)

    def rest(shards: Mapping[Alike, MergedShard]) -> tuple[StoredShard, ...]:
        return tuple(
            replace(shard, offsets=NoRows(), pending=shard.pending.slice(0, 0)).stored(message_path(directory, "rest"))
            for shard in shards.values()
        )

    return _Compared(tuple(found), rest(before), rest(after))


def _compare_rest(shards: Sequence[_Compared], members: Sequence[Alike]) -> list[Difference]:
    """Compare groups, open transactions and loads, which all shards together tell."""

    def state(of_shards: Sequence[tuple[StoredShard, ...]]) -> CommitClass:
        return commit_class(
            {
                alike: combine_shards([shard[number].read(alike[0]) for shard in of_shards])
                for number, alike in enumerate(members)
            }
        )

    before, after = state([shard.before for shard in shards]), state([shard.after for shard in shards])
    return list(differences([before], [after], None))
