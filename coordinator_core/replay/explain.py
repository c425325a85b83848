"""Origin of a group, or of one of its committed offsets: the records that made it, in log order.

Nothing is deduced a second time here: each record is given to the reference replay, and the effect
shown is the difference it made there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coordinator_core.errors import Damage
from coordinator_core.groups.model import CommittedOffset, Group, LoadFailure, OffsetKey
from coordinator_core.groups.modern import ConsumerRecords, ShareRecords, StreamsRecords
from coordinator_core.log.batch import control_type
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import Batch, PartitionLog, Record
from coordinator_core.records.codec import RecordDecodeError, decode_key
from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.releases import OFFSET_KEY_TYPES, Profile
from coordinator_core.replay.interpret import GroupRecord, OffsetRecord, UninterpretedRecord, interpret
from coordinator_core.replay.sequential import SequentialReplayer, is_pending


@dataclass(frozen=True, slots=True)
class Event:
    """One record (or end marker) that concerns the group. ``topic`` and ``partition`` are set for commits."""

    offsets_partition: int
    record_offset: int
    timestamp_ms: int
    record: str
    topic: str | None
    partition: int | None
    effect: str


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject of an explanation: a whole group, or the offset keys of one topic (partition ``None``: all of them)."""

    group_id: str
    topic: str | None = None
    partition: int | None = None

    def includes(self, offset_key: OffsetKey) -> bool:
        if offset_key.group_id != self.group_id:
            return False
        if self.topic is None:
            return True
        return offset_key.topic == self.topic and self.partition in (None, offset_key.partition)


def explain_partition(
    log: PartitionLog, profile: Profile, subject: Subject, *, on_damage: OnDamage = OnDamage.FAIL, damage: list[Damage]
) -> Iterator[Event]:
    """The events of ``subject`` in one offsets partition, in log order."""
    replayer = SequentialReplayer(profile, log.offsets_partition, kept_metadata=lambda _: "")
    for _, batch, records in read_records(log, on_damage=on_damage, damage=damage):
        for record in replayer.loaded_records(batch, records):
            found = _marker if batch.is_control else _data
            for what, key, effect in found(replayer, batch, records, record, subject, profile):
                topic, partition = (None, None) if key is None else (key.topic, key.partition)
                place = log.offsets_partition, record.offset, record.timestamp_ms
                yield Event(*place, record=what, topic=topic, partition=partition, effect=effect)


_Effect = tuple[str, OffsetKey | None, str]
"""Words for the record, the offset key of a commit, and the effect."""


def _marker(
    replayer: SequentialReplayer, batch: Batch, records: Sequence[Record], record: Record, subject: Subject, _: Profile
) -> Iterator[_Effect]:
    before = {
        offset_key: (replayer.committed(offset_key), replayer.pending(offset_key)[batch.producer_id])
        for offset_key in replayer.pending_offset_keys(batch.producer_id)
        if subject.includes(offset_key)
    }
    failures = len(replayer.load_failures())
    replayer.replay_record(batch, records, record)
    failed = replayer.load_failures()[failures:]
    if failed:
        # Of all groups of the partition, since none of them loads.
        yield "control record", None, _load_fails(failed)
        return
    kind = control_type(record).name
    for offset_key, (committed, pending) in sorted(before.items()):
        after = replayer.committed(offset_key)
        if batch.producer_id in replayer.pending(offset_key):
            effect = "ignored: this coordinator knows only COMMIT and ABORT"
        elif after is pending:
            effect = f"committed offset becomes {pending.committed_offset} (record {pending.record_offset})"
        elif kind == "COMMIT" and committed is not None:
            effect = (
                f"committed offset stays {committed.committed_offset}: record {committed.record_offset} is "
                f"newer than the transaction's record {pending.record_offset}, and age is decided by the "
                "commit, not by the marker"
            )
        else:
            effect = f"pending commit of {pending.committed_offset} (record {pending.record_offset}) is dropped"
        yield f"{kind} marker of producer {batch.producer_id}", offset_key, effect


def _data(
    replayer: SequentialReplayer,
    batch: Batch,
    records: Sequence[Record],
    record: Record,
    subject: Subject,
    profile: Profile,
) -> Iterator[_Effect]:
    meaning = interpret(record.offset, record.key, record.value, profile)
    if isinstance(meaning, OffsetRecord) and subject.includes(meaning.offset_key):
        offset_key = meaning.offset_key
        committed, pending = replayer.committed(offset_key), replayer.pending(offset_key)
        replayer.replay_record(batch, records, record)
        name = "tombstone" if meaning.value is None else f"commit of {meaning.value['offset']}"
        effect = _commit_effect(replayer, offset_key, meaning, committed, pending, is_pending(batch, profile), batch)
        yield name, offset_key, effect
        return
    failures = len(replayer.load_failures())
    found = not isinstance(meaning, GroupRecord) or _holds(replayer.group(subject.group_id), meaning)
    replayer.replay_record(batch, records, record)
    if isinstance(meaning, UninterpretedRecord):
        if meaning.failure:
            yield from _not_loaded(record.key, subject, replayer.load_failures()[failures:])
        return
    if isinstance(meaning, GroupRecord) and meaning.key.get("group", meaning.key.get("groupId")) == subject.group_id:
        failed = replayer.load_failures()[failures:]
        effect = _load_fails(failed) if failed else _group_effect(meaning, found=found)
        yield f"{RECORD_TYPES[meaning.key_type].name} {'tombstone' if meaning.value is None else 'value'}", None, effect


def _not_loaded(key: bytes | None, subject: Subject, failed: Sequence[LoadFailure]) -> Iterator[_Effect]:
    """The end of the load at a record of the subject, or at one whose group nobody can tell: then none loads."""
    try:
        decoded = None if key is None else decode_key(key)
    except RecordDecodeError:
        decoded = None
    data = None if decoded is None else decoded.data
    if decoded is None or data is None:
        yield "record", None, _load_fails(failed)
    elif decoded.type in OFFSET_KEY_TYPES:
        offset_key = OffsetKey(data["group"], data["topic"], data["partition"])
        if subject.includes(offset_key):
            yield "commit", offset_key, _load_fails(failed)
    elif data.get("group", data.get("groupId")) == subject.group_id:
        yield f"{RECORD_TYPES[decoded.type].name} value", None, _load_fails(failed)


def _load_fails(failed: Sequence[LoadFailure]) -> str:
    return f"the load fails here: {failed[0].detail}"


def _commit_effect(
    replayer: SequentialReplayer,
    offset_key: OffsetKey,
    commit: OffsetRecord,
    committed: CommittedOffset | None,
    pending: dict[int, CommittedOffset],
    transactional: bool,
    batch: Batch,
) -> str:
    if commit.value is not None:
        if transactional:
            return f"pending in the transaction of producer {batch.producer_id}"
        return "committed offset set" if committed is None else f"replaces {committed.committed_offset}"
    effects = []
    if committed is not None and replayer.committed(offset_key) is None:
        effects.append(f"committed offset {committed.committed_offset} removed")
    dropped = sorted(set(pending) - set(replayer.pending(offset_key)))
    if dropped:
        effects.append(f"pending commits of producers {', '.join(map(str, dropped))} removed")
    kept = sorted(replayer.pending(offset_key))
    if kept:
        effects.append(f"pending commits of producers {', '.join(map(str, kept))} stay")
    return "; ".join(effects) or "nothing to remove"


_TARGETS = frozenset({kind.target_member for kind in (ConsumerRecords, ShareRecords, StreamsRecords)})
"""Key types of the target assignments of members."""


def _holds(group: Group | None, record: GroupRecord) -> bool:
    """Whether the group has what a tombstone with the key of ``record`` removes."""
    member_id, regex = record.key.get("memberId"), record.key.get("regularExpression")
    if member_id is not None:
        return member_id in getattr(group, "target_assignment" if record.key_type in _TARGETS else "members", ())
    if regex is not None:
        return regex in getattr(group, "regexes", ())
    return group is not None


def _group_effect(record: GroupRecord, *, found: bool) -> str:
    value = record.value
    member = record.key.get("memberId")
    where = f"member {member}: " if member is not None else ""
    if value is None:
        return where + ("removed" if found else "nothing to remove")
    if record.key_type == 2:
        members = ", ".join(entry["memberId"] for entry in value["members"]) or "none"
        return f"generation {value['generation']}, protocol {value['protocol'] or 'none'}, members: {members}"
    told = [f"{name} {value[name]}" for name in ("epoch", "assignmentEpoch", "memberEpoch") if name in value]
    return where + (", ".join(told) or "set")
