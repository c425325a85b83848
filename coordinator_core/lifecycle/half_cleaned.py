"""Records of a group that a log cleaner can leave, and whether a coordinator loads them.

A cleaner goes through the segments in order and swaps them one by one; a loader may read meanwhile. So a loader sees a
prefix as it was written, then segments without the records that newer ones have replaced, then segments as they were
written. Source: ``org.apache.kafka.storage.internals.log.Cleaner``; KAFKA-19862 and KAFKA-20254 are loads that this
breaks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from coordinator_core.errors import Damage
from coordinator_core.fold.passing import Passing
from coordinator_core.groups.model import LoadFailure
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Batch, PartitionLog, Record
from coordinator_core.releases import CLASSIC_KEY_TYPES, OFFSET_KEY_TYPES, Loader, Profile
from coordinator_core.replay.interpret import Interpreted, interpret
from coordinator_core.replay.sequential import SequentialReplayer

NEWEST_CLASSIC: Final = max(CLASSIC_KEY_TYPES)
"""Newer key types are of KIP-848 and later groups."""

_EVERY_BATCH: Final = 300
"""Up to so many records of a group, times the segments in which they lie, a loader is taken to be between any two
batches when segments are swapped; for more, between two segments."""

_SEGMENTS: Final = 4
"""Segments that a pass may end with, and in which a loader may be: the newest ones in which a group has records. Older
ones are taken together with the oldest of them: what a loader may see grows with the cube of the segments."""


class WrittenRecord(NamedTuple):
    """A record with its batch; ``segment`` counts the segments of the log from 0."""

    segment: int
    batch: Batch
    record: Record


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """Records of one group that decide whether the group loads, in log order.

    All its group records; of its commits the newest of each offset key, and the first after each group record.
    """

    group_id: str
    records: list[WrittenRecord] = field(default_factory=list)


class Refused(NamedTuple):
    """Records that a cleaner can leave, and where the loader stops among them."""

    failure: LoadFailure
    left: tuple[WrittenRecord, ...]


def group_histories(
    log: PartitionLog, *, on_damage: OnDamage, damage: list[Damage], groups: Collection[str] | None = None
) -> list[GroupHistory]:
    """One for each group of ``log``, or of ``groups``, that has records of newer types than classic groups write.

    Only for them does the order matter to a loader. Raises :class:`DamagedInputError` as ``read_records`` does.
    """
    newest = Passing(() if groups is None else groups, newest_key_type=NEWEST_CLASSIC if groups is None else None)
    newer = {
        _group_id(record.key)
        for _, batch, records in newest.read(log, on_damage=on_damage, damage=damage)
        if not batch.is_control
        for record in records
        if record.key is not None
        and _key_type(record.key) > NEWEST_CLASSIC
        and (groups is None or record.key in newest.chosen)
    }
    found = {group_id: _Collector() for group_id in newer}
    numbers = {segment.path: number for number, segment in enumerate(log.segments)}
    of_newer = Passing([group_id.decode("utf-8", "surrogateescape") for group_id in newer])
    for segment, batch, records in of_newer.read(log, on_damage=on_damage, damage=[]) if newer else ():
        for record in records if not batch.is_control else ():
            if record.key is not None and (collector := found.get(_group_id(record.key))):
                collector.add(WrittenRecord(numbers[segment.path], batch, record))
    return [
        GroupHistory(group_id.decode("utf-8", "replace"), collector.records())
        for group_id, collector in sorted(found.items())
    ]


def first_refused(histories: Iterable[GroupHistory], profile: Profile) -> Refused | None:
    """The first record left by some cleaning of one of ``histories`` at which a loader of ``profile`` stops."""
    if profile.loader is Loader.SCALA:
        return None  # It takes group records one by one, in any order.
    for history in histories:
        read = {each.record.offset: _interpreted(each.record, profile) for each in history.records}
        for left in cleanings(history.records):
            replayer = SequentialReplayer(profile, 0)
            for each in left:
                replayer.replay_data(each.batch, [each.record], each.record, read[each.record.offset])
            if failures := replayer.load_failures():
                return Refused(failures[0], left)
    return None


def _interpreted(record: Record, profile: Profile) -> Interpreted:
    return interpret(record.offset, record.key, record.value, profile)


def refusal(batches: Iterable[tuple[Batch, Sequence[Record]]], profile: Profile) -> LoadFailure | None:
    """Record at which a loader of ``profile`` stops that reads just these records; ``None``: nowhere."""
    replayer = SequentialReplayer(profile, 0)
    for batch, records in batches:
        replayer.replay_batch(batch, records)
        if failures := replayer.load_failures():
            return failures[0]
    return None


def cleanings(records: Sequence[WrittenRecord]) -> Iterator[tuple[WrittenRecord, ...]]:
    """Every different rest of ``records`` that a loader can see during a pass of the cleaner, or after it.

    The first pass removes records that newer ones have replaced, and tombstones whose delete horizon an earlier pass
    has set. The next pass removes the other tombstones (KIP-534). The last segment is taken to have been rolled, so
    that the cleaner may have it, too.
    """
    oldest = sorted({each.segment for each in records})[-_SEGMENTS:][:1]
    records = [each._replace(segment=max(each.segment, *oldest)) for each in records]
    seen: set[tuple[int, ...]] = set()
    for end in sorted({each.segment + 1 for each in records}):
        newest = {each.record.key: each.record.offset for each in records if each.segment < end}
        kept = set(newest.values())
        due = {
            each.record.offset for each in records if _is_tombstone(each) and each.batch.delete_horizon_ms is not None
        }
        cleaned = [each for each in records if each.segment >= end or each.record.offset in kept]
        valued = {each.record.offset for each in cleaned if not _is_tombstone(each)}
        for before, keeps in ((records, kept), (records, kept - due), (cleaned, valued)):
            for left in _during_pass(before, end, keeps):
                offsets = tuple(each.record.offset for each in left)
                if offsets not in seen:
                    seen.add(offsets)
                    yield left


def _is_tombstone(written: WrittenRecord) -> bool:
    return written.record.value is None


def _during_pass(
    records: Sequence[WrittenRecord], end: int, keeps: Collection[int]
) -> Iterator[tuple[WrittenRecord, ...]]:
    """Records that a loader sees of ``records`` while a pass over the segments before ``end`` keeps the record offsets
    ``keeps``."""
    for swapped in sorted({each.segment + 1 for each in records if each.segment < end}):
        for read in _read_before(records, swapped):
            yield tuple(
                each
                for number, each in enumerate(records)
                if number < read or each.segment >= swapped or each.record.offset in keeps
            )


def _read_before(records: Sequence[WrittenRecord], swapped: int) -> Iterable[int]:
    """Counts of ``records`` that a loader, which takes whole batches, may have read when the segments before
    ``swapped`` were swapped."""
    stop = sum(each.segment < swapped for each in records)
    every_batch = len(records) * len({each.segment for each in records}) <= _EVERY_BATCH
    starts = [(each.segment, each.batch.base_offset if every_batch else 0) for each in records]
    return [number for number in range(stop + 1) if not 0 < number < stop or starts[number] != starts[number - 1]]


class _Collector:
    """The records of a :class:`GroupHistory`, as they come."""

    def __init__(self) -> None:
        self._kept: dict[int, WrittenRecord] = {}
        self._newest_commits: dict[bytes, WrittenRecord] = {}
        self._after_group_record = True

    def add(self, written: WrittenRecord) -> None:
        key = written.record.key or b""
        if _key_type(key) not in OFFSET_KEY_TYPES:
            self._kept[written.record.offset] = written
            self._after_group_record = True
            return
        self._newest_commits[key] = written
        if self._after_group_record:
            self._kept[written.record.offset] = written
            self._after_group_record = False

    def records(self) -> list[WrittenRecord]:
        newest = {written.record.offset: written for written in self._newest_commits.values()}
        return [written for _, written in sorted((self._kept | newest).items())]


def _key_type(key: bytes) -> int:
    return int.from_bytes(key[:2], "big")


def _group_id(key: bytes) -> bytes:
    """Group id of a key: the first field of all of them, a length of two bytes and the bytes."""
    return key[4 : 4 + int.from_bytes(key[2:4], "big")]
