"""Evidence for auditors: who committed which offset when, by which bytes of the log.

A directory with three files. ``history.jsonl`` has the rows of the table ``history``, one a line. ``statement.json`` is
an in-toto Statement (v1): its subjects are that file and the segments, each with its SHA-256; its predicate is an
:class:`Evidence`, which has what the rows depend on besides. ``statement.json.sig`` is its signature
(:mod:`coordinator_core.runs.signature`). JSON is canonical (:func:`coordinator_core.jsontext.canonical`).

A statement may name the one before it by its SHA-256, and says what of the log was lost in between.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from coordinator_core import __version__, storage
from coordinator_core.errors import Damage, UsageError
from coordinator_core.fold.fingerprint import RunningFingerprint
from coordinator_core.fold.pin import Pin, check_pin
from coordinator_core.history.model import PartitionHistory
from coordinator_core.history.parts import Asked, history_parts, noting_rows
from coordinator_core.jsontext import canonical, fields_of, from_json, parse_json, to_json
from coordinator_core.log.reader import OnDamage, read_partition, with_records
from coordinator_core.log.segments import partition_directory_name
from coordinator_core.log.segments import segment_name as file_name
from coordinator_core.log.types import PartitionLog, SegmentFile, Snapshot
from coordinator_core.log.windows import SegmentWindows
from coordinator_core.releases import profile_from_label

STATEMENT, HISTORY = "statement.json", "history.jsonl"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:regroup:consumer-offsets-history:2"

BESIDE_SEGMENTS = ("log_start_offset", "clean_shutdown", "broker_id", "recovery_point", "cleaned_offset")
"""Facts of a partition that its segments do not have, by their names in ``PartitionLog``: they decide what is read."""

_OPTIONS = ("profile", "on_damage", "groups", "offsets_retention_ms", "offsets_retention_captured_ms")
"""Fields of :class:`Evidence` that are options on which rows depend."""

_ROWS = 1 << 12
"""Rows that are made text at once."""


@dataclass(frozen=True, slots=True)
class SegmentEvidence:
    """The first ``bytes`` of a segment; a broker may have written more since."""

    base_offset: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Removed:
    """Record offsets from ``first`` to before ``end``, of which there is no record any more."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class PartitionEvidence:
    """An offsets partition from ``first_offset`` to before ``end_offset``; of ``missing_offsets`` in between there is
    no record any more, ``removed`` has their longest ranges, in log order. The others are those of
    :class:`~coordinator_core.log.types.PartitionLog`."""

    offsets_partition: int
    first_offset: int
    end_offset: int
    missing_offsets: int
    removed: tuple[Removed, ...]
    log_start_offset: int | None
    clean_shutdown: bool
    broker_id: int | None
    recovery_point: int | None
    cleaned_offset: int | None
    segments: tuple[SegmentEvidence, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """Record offsets behind those of the statement before that this one has not read either: from ``from_offset`` to
    before ``to_offset``, which is ``None`` where the partition is not there any more."""

    offsets_partition: int
    from_offset: int
    to_offset: int | None


@dataclass(frozen=True, slots=True)
class Previous:
    """The statement before, by the SHA-256 of its file. ``rewritten`` are segments that have other bytes now.

    ``missing`` counts by offsets partition, where there are any, the record offsets from the end of the statement
    before to that of this one of which there is no record any more. ``gaps`` are the longest ranges of them alone.
    """

    statement_sha256: str
    gaps: tuple[Gap, ...]
    rewritten: tuple[str, ...]
    missing: dict[str, int]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The predicate. ``topic_names`` (by topic id) and ``transactional_ids`` (by producer id) were found beside the
    log; ``groups`` is ``None`` for all; ``damage`` names segments as the subjects do."""

    regroup_version: str
    now_ms: int
    cluster_id: str | None
    profile: str
    on_damage: OnDamage
    groups: tuple[str, ...] | None
    offsets_retention_ms: int | None
    topic_names: dict[str, str]
    transactional_ids: dict[str, str]
    partitions: tuple[PartitionEvidence, ...]
    damage: tuple[Damage, ...]
    rows: int
    history_sha256: str
    previous: Previous | None
    offsets_retention_captured_ms: int | None = None
    """What the brokers had when the log was copied; absent where that is not known."""

    def asked(self) -> Asked:
        """Parameters of the table."""
        return Asked(
            profile_from_label(self.profile),
            self.topic_names,
            self.on_damage,
            None if self.groups is None else frozenset(self.groups),
            self.offsets_retention_ms,
            {int(producer_id): name for producer_id, name in self.transactional_ids.items()},
            captured_retention_ms=self.offsets_retention_captured_ms,
        )

    def digests(self) -> dict[str, str]:
        """SHA-256 of each subject by its name."""
        segments = {
            segment_name(partition.offsets_partition, segment.base_offset): segment.sha256
            for partition in self.partitions
            for segment in partition.segments
        }
        return {HISTORY: self.history_sha256} | segments

    def document(self) -> dict[str, Any]:
        """The statement."""
        subjects = [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(self.digests().items())]
        predicate = to_json(self)
        if self.offsets_retention_captured_ms is None:
            del predicate["offsets_retention_captured_ms"]
        return {
            "_type": STATEMENT_TYPE,
            "subject": subjects,
            "predicateType": PREDICATE_TYPE,
            "predicate": predicate,
        }


class Statement(NamedTuple):
    """A statement that was read: its directory, the SHA-256 of its file, and what it says."""

    directory: str
    sha256: str
    evidence: Evidence


def segment_name(offsets_partition: int, base_offset: int) -> str:
    """Name of a segment, wherever it lies."""
    return f"{partition_directory_name(offsets_partition)}/{file_name(base_offset)}"


def name_of(segment: SegmentFile) -> str:
    return segment_name(segment.offsets_partition, segment.base_offset)


def read_statement(directory: str) -> Statement:
    """The statement in a directory; :class:`UsageError` where there is none that this version can read."""
    path = storage.join(directory, STATEMENT)
    if not storage.exists(path):
        raise UsageError(f"{directory} has no evidence: there is no {STATEMENT}")
    data = bytes(storage.read(path))
    try:
        document = parse_json(data)
        if (found := document["predicateType"]) != PREDICATE_TYPE:
            raise ValueError(f"its predicate is of type {found}, this version reads {PREDICATE_TYPE}")
        evidence = from_json(Evidence, document["predicate"])
        if evidence.document() != document:
            raise ValueError("it is of another form, or its subjects are not those of its predicate")
        evidence.asked()
    except (ValueError, KeyError, TypeError, UsageError) as error:
        raise UsageError(f"{path} is no statement of regroup audit export: {error}") from None
    return Statement(directory, hashlib.sha256(data).hexdigest(), evidence)


def export_evidence(
    directory: str,
    snapshot: Snapshot,
    asked: Asked,
    damage: list[Damage],
    *,
    now_ms: int,
    previous: Statement | None,
    sign: Callable[[str, bytes], None],
    check_absent: Callable[[set[str]], None],
) -> Statement:
    """Write the history, the signature of the statement (by ``sign``, which gets path and bytes), and the statement
    last: without it nothing counts.

    ``damage`` gets that of the log, ``check_absent`` the groups asked for that have no row: when it raises, nothing is
    left. Raises :class:`UsageError` where a statement is there already, and
    :class:`~coordinator_core.errors.DamagedInputError` as ``read_records`` does, or when a segment changes meanwhile.
    """
    path = storage.join(directory, STATEMENT)
    if storage.exists(path):
        raise UsageError(f"{directory} has evidence already; choose a new directory")
    if previous is not None:
        require_cluster(previous, snapshot)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        digests = dict(zip(snapshot.segments, threads.map(content_sha256, snapshot.segments), strict=True))
    read: list[PartitionHistory] = []
    whole, rows = hashlib.sha256(), 0
    absent = set(asked.groups or ())

    def portions() -> Iterator[bytes]:
        nonlocal rows
        for lines in history_lines(snapshot, asked, damage, read, absent):
            rows += len(lines)
            whole.update(portion := b"".join(lines))
            yield portion
        check_absent(absent)

    storage.write_atomic(storage.join(directory, HISTORY), portions())
    check_pin(Pin(snapshot))
    names = {segment.path: name_of(segment) for segment in snapshot.segments}
    partitions = tuple(_partition(log, one, digests) for log, one in zip(snapshot.partitions, read, strict=True))
    evidence = Evidence(
        __version__,
        now_ms,
        snapshot.cluster_id,
        asked.profile.label,
        asked.on_damage,
        None if asked.groups is None else tuple(sorted(asked.groups)),
        asked.retention_ms,
        dict(asked.topic_names),
        {str(producer_id): name for producer_id, name in asked.transactional_ids.items()},
        partitions,
        tuple(replace(one, path=names.get(one.path, one.path)) for one in damage),
        rows,
        whole.hexdigest(),
        None if previous is None else _since(previous, snapshot, partitions, asked.on_damage),
        asked.captured_retention_ms,
    )
    data = canonical(evidence.document()) + b"\n"
    sign(path, data)
    storage.write_atomic(path, data)
    return Statement(directory, hashlib.sha256(data).hexdigest(), evidence)


def other_options(evidence: Evidence, before: Evidence) -> list[str]:
    """Names of the options on which rows depend that are not those of the statement before."""
    return [name for name in _OPTIONS if getattr(evidence, name) != getattr(before, name)]


def require_cluster(statement: Statement, snapshot: Snapshot) -> None:
    """:class:`UsageError` where the statement is of another cluster than the log, as far as both say."""
    own, found = statement.evidence.cluster_id, snapshot.cluster_id
    if None not in (own, found) and own != found:
        where = ", ".join(snapshot.sources)
        raise UsageError(f"{statement.directory} is evidence of cluster {own}, {where} is of cluster {found}")


def history_lines(
    snapshot: Snapshot,
    asked: Asked,
    damage: list[Damage],
    read: list[PartitionHistory],
    absent: set[str] | None = None,
) -> Iterator[list[bytes]]:
    """Lines of ``history.jsonl``, some thousand at a time; groups that have rows go from ``absent``."""
    parts = history_parts(snapshot, asked, damage, read)
    for part in parts if absent is None else noting_rows(parts, absent):
        for batch in part.table.to_batches(_ROWS):
            columns = [_values(column) for column in batch.columns]
            rows = (dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True))
            yield [canonical(row) + b"\n" for row in rows]


def _values(column: pa.Array) -> list[Any]:
    """``to_pylist`` of a column, in a fraction of its time."""
    if isinstance(column, pa.DictionaryArray):
        names = column.dictionary.to_pylist()
        codes = column.indices.fill_null(len(names)).to_numpy()
        return [*map([*names, None].__getitem__, codes.tolist())]
    if pa.types.is_integer(column.type) and column.null_count == 0:
        return column.to_numpy().tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def content_sha256(segment: SegmentFile) -> str:
    """SHA-256 of the segment's first ``size`` bytes, in hex."""
    content = RunningFingerprint(SegmentWindows(segment), with_content=True).finish().content
    assert content is not None
    return content


def _partition(log: PartitionLog, read: PartitionHistory, digests: Mapping[SegmentFile, str]) -> PartitionEvidence:
    return PartitionEvidence(
        **fields_of(log, "offsets_partition", *BESIDE_SEGMENTS),
        **fields_of(read, "first_offset", "end_offset"),
        missing_offsets=read.missing,
        removed=removed_of(read),
        segments=tuple(SegmentEvidence(one.base_offset, one.size, digests[one]) for one in log.segments),
    )


def removed_of(read: PartitionHistory) -> tuple[Removed, ...]:
    """The longest ranges of record offsets without a record, in log order."""
    return tuple(Removed(*hole) for hole in sorted(read.holes))


def gaps_since(previous: Statement, partitions: Iterable[PartitionEvidence]) -> Iterator[Gap]:
    """Record offsets that neither the statement before nor these partitions have."""
    now = {one.offsets_partition: one for one in partitions}
    for before in previous.evidence.partitions:
        number, end = before.offsets_partition, before.end_offset
        after = now.get(number)
        if after is None:
            yield Gap(number, end, None)
            continue
        if after.first_offset > end:
            yield Gap(number, end, after.first_offset)
        # The cleaner was there after the statement before had been made.
        yield from (Gap(number, max(one.first, end), one.end) for one in after.removed if one.end > end)


def missing_since(previous: Statement, snapshot: Snapshot, on_damage: OnDamage) -> dict[str, int]:
    """``Previous.missing`` of a log, by the headers of its batches."""
    logs = {log.offsets_partition: log for log in snapshot.partitions}
    found = {}
    for before in previous.evidence.partitions:
        log = logs.get(before.offsets_partition)
        if log is not None and (count := _missing_behind(log, before.end_offset, on_damage)):
            found[str(before.offsets_partition)] = count
    return found


def _missing_behind(log: PartitionLog, end_offset: int, on_damage: OnDamage) -> int:
    expected, missing = end_offset, 0
    for segment, batch in read_partition(log.since(end_offset), on_damage=on_damage, damage=[]):
        if batch.next_offset <= end_offset:
            continue
        first = batch.base_offset
        if batch.record_count is None:
            # The offset of a wrapper of format 0 or 1 is that of its last message.
            for _, _, records in with_records([(segment, batch)], on_damage, []):
                first = records[0].offset if records else first
        elif not batch.is_control:
            missing += batch.last_offset - batch.base_offset + 1 - batch.record_count
        missing += max(0, first - expected)
        expected = batch.next_offset
    return missing


def _since(
    previous: Statement, snapshot: Snapshot, partitions: tuple[PartitionEvidence, ...], on_damage: OnDamage
) -> Previous:
    """What became of the log that the statement before had read."""
    segments = {name_of(segment): segment for segment in snapshot.segments}
    rewritten = []
    for before in previous.evidence.partitions:
        for old in before.segments:
            name = segment_name(before.offsets_partition, old.base_offset)
            found = segments.get(name)
            if found is not None and not has_content(found, old):
                rewritten.append(name)
    missing = missing_since(previous, snapshot, on_damage)
    return Previous(previous.sha256, tuple(gaps_since(previous, partitions)), tuple(sorted(rewritten)), missing)


def has_content(segment: SegmentFile, evidence: SegmentEvidence) -> bool:
    """Whether the segment begins with the bytes of that evidence."""
    is_long_enough = segment.size >= evidence.bytes
    return is_long_enough and content_sha256(replace(segment, size=evidence.bytes)) == evidence.sha256
