"""One reading of the log, for rules about events that the tables of a run no longer show.

It gives signs of the raw log and the histories of groups. Damaged batches are left out: rule R03 finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator_core.history.judge import Judge
from coordinator_core.history.model import Deletions, GroupHistory
from coordinator_core.history.origins import settle_origins
from coordinator_core.history.read import read_history
from coordinator_core.log.batch import marker_type
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Batch, ControlType, PartitionLog, Record
from coordinator_core.records.codec import RecordDecodeError, decode_key, decode_value
from coordinator_core.records.schemas import CURRENT_LAYOUT
from coordinator_core.releases import OFFSET_KEY_TYPES
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.needs import Need
from coordinator_core.runs.inputs import snapshot_of_run

Place = tuple[int, int]
"""Offsets partition and record offset."""


@dataclass(frozen=True, slots=True)
class OffsetKeyEvent:
    """Something about one offset key: where, whose, and the record offset of the other record that it is about."""

    place: Place
    group_id: str
    topic: str
    partition: int
    other_offset: int


@dataclass(frozen=True, slots=True)
class LogScan:
    """Signs of the log of a run.

    ``histories``: the judged history of every group, each offsets partition judged alone. ``epochs_back``: batches
    with the leader epoch and the higher one before. ``lone_markers``: end markers with their producer, of which no
    data was there. ``lone_tombstones``: tombstones of keys never seen, with type and group. ``layouts``: records in a
    layout that later releases read otherwise, with type, group and layout. ``two_keys``: live commits of one offset
    key under different raw keys. ``shadowed``: live commits under key type 0 whose offset key a tombstone of type 1
    deleted.
    """

    histories: list[GroupHistory] = field(default_factory=list)
    epochs_back: list[tuple[Place, int, int]] = field(default_factory=list)
    lone_markers: list[tuple[Place, int, str]] = field(default_factory=list)
    lone_tombstones: list[tuple[Place, int, str]] = field(default_factory=list)
    layouts: list[tuple[Place, int, str, str]] = field(default_factory=list)
    two_keys: list[OffsetKeyEvent] = field(default_factory=list)
    shadowed: list[OffsetKeyEvent] = field(default_factory=list)


def scan_log(facts: Facts) -> LogScan:
    """Signs of the log as far as the run of ``facts`` has read it; it is read once for all rules.

    Raises :class:`UsageError` when it is not the log that the run was made of.
    """
    return facts.noted("log scan", lambda: _scan(facts))


def _scan(facts: Facts) -> LogScan:
    scan = LogScan()
    cut = facts.run.manifest["cut"]
    for log in snapshot_of_run(facts.run, facts.extra[Need.LOG]).partitions:
        deletions, partition = Deletions(), _PartitionScan(scan, log)
        history = read_history(
            log,
            facts.profile,
            groups=None,
            deletions=deletions,
            topic_names=facts.run.topic_names,
            on_damage=OnDamage.SALVAGE,
            damage=[],
            end_offset=cut[str(log.offsets_partition)]["log_end_offset"],
            seen=partition.batch,
        )
        partition.finish()
        groups = list(history.groups.values())
        Judge(facts.profile, deletions).judge(groups)
        settle_origins(groups)
        scan.histories.extend(groups)
    return scan


class _PartitionScan:
    """The walk over one offsets partition."""

    def __init__(self, scan: LogScan, log: PartitionLog) -> None:
        self._scan, self._log = scan, log
        self._live: dict[bytes, int] = {}
        self._dead: dict[bytes, int] = {}
        self._producers: set[int] = set()
        self._leader_epoch = -1

    def batch(self, batch: Batch, records: Sequence[Record]) -> None:
        """Take the next batch of the partition."""
        if batch.magic >= 2 and batch.partition_leader_epoch < self._leader_epoch:
            place = self._place(batch.base_offset)
            self._scan.epochs_back.append((place, batch.partition_leader_epoch, self._leader_epoch))
        if batch.magic >= 2:
            self._leader_epoch = max(self._leader_epoch, batch.partition_leader_epoch)
        for record in records:
            self._record(batch, record)

    def _place(self, record_offset: int) -> Place:
        return self._log.offsets_partition, record_offset

    def _record(self, batch: Batch, record: Record) -> None:
        if batch.is_control:
            kind = marker_type(record)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                if batch.producer_id not in self._producers:
                    place = self._place(record.offset)
                    self._scan.lone_markers.append((place, batch.producer_id, kind.name))
                self._producers.discard(batch.producer_id)
            return
        if batch.is_transactional:
            self._producers.add(batch.producer_id)
        key, value = record.key, record.value
        if key is None or len(key) < 2:
            return
        if value is None:
            if key not in self._live and key not in self._dead:
                self._lone_tombstone(record.offset, key)
            self._live.pop(key, None)
            self._dead[key] = record.offset
        else:
            self._live[key] = record.offset
            self._dead.pop(key, None)
            if int.from_bytes(key[:2], "big") not in OFFSET_KEY_TYPES:
                self._layout(record.offset, key, value)

    def _lone_tombstone(self, record_offset: int, key: bytes) -> None:
        names = _names(key)
        if names is not None:
            self._scan.lone_tombstones.append((self._place(record_offset), names[0], names[1]))

    def _layout(self, record_offset: int, key: bytes, value: bytes) -> None:
        names = _names(key)
        if names is None:
            return
        try:
            layout = decode_value(names[0], value).layout
        except RecordDecodeError:
            return  # Rule R05 finds it.
        if layout != CURRENT_LAYOUT:
            self._scan.layouts.append((self._place(record_offset), names[0], names[1], layout))

    def finish(self) -> None:
        """Compare the keys that stand at the end: by offset key, of any type and spelling."""
        first: dict[tuple[int, str, str, int], int] = {}
        for key, offset in self._live.items():
            offset_key = _offset_key(key)
            if offset_key is None:
                continue
            other = first.setdefault(offset_key, offset)
            if other != offset:
                newer, older = max(offset, other), min(offset, other)
                self._scan.two_keys.append(OffsetKeyEvent(self._place(newer), *offset_key[1:], older))
        legacy = {offset_key[1:]: offset for offset_key, offset in first.items() if offset_key[0] == 0}
        for key, offset in self._dead.items() if legacy else ():
            offset_key = _offset_key(key)
            if offset_key is not None and offset_key[0] == 1 and legacy.get(offset_key[1:], offset) < offset:
                self._scan.shadowed.append(OffsetKeyEvent(self._place(legacy[offset_key[1:]]), *offset_key[1:], offset))


def _names(key: bytes) -> tuple[int, str] | None:
    """Record type and group of a key; ``None`` for one that cannot be read."""
    try:
        decoded = decode_key(key)
    except RecordDecodeError:
        return None
    if decoded.data is None:
        return None
    return decoded.type, str(decoded.data.get("group", decoded.data.get("groupId")))


def _offset_key(key: bytes) -> tuple[int, str, str, int] | None:
    """Key type, group, topic and partition of an offset's key."""
    if int.from_bytes(key[:2], "big") not in OFFSET_KEY_TYPES:
        return None
    try:
        decoded = decode_key(key)
    except RecordDecodeError:
        return None
    names = decoded.data
    return None if names is None else (decoded.type, names["group"], names["topic"], names["partition"])
