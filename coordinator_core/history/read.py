"""Reading a log into histories: the reference replay does the work, and its changes are noted down.

A partition is read once. With ``groups`` only batches with records of those groups are decoded; of the others no more
than the headers, and the keys of tombstones, which tell what else was deleted at the same time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from coordinator_core.durations import MINUTE_MS
from coordinator_core.errors import Damage
from coordinator_core.fold.passing import Passing, Portion
from coordinator_core.fold.tasks import packed
from coordinator_core.groups.model import ClassicGroup, CommittedOffset, Group, GroupState, OffsetKey
from coordinator_core.groups.modern import ShareRecords
from coordinator_core.history.course import Course
from coordinator_core.history.members import generation_of, members_of, owner_of, succession
from coordinator_core.history.model import (
    TOPICS_CHANGED,
    Aborts,
    Bare,
    Change,
    ChangeKind,
    Deletions,
    End,
    EndKind,
    GroupHistory,
    Member,
    Overtaken,
    PartitionHistory,
    Place,
    Removal,
    ShareAct,
    Version,
)
from coordinator_core.history.removals import Removals
from coordinator_core.history.trespasses import Commit, trespasses
from coordinator_core.history.versions import add_version
from coordinator_core.lifecycle.expiry import condition_of
from coordinator_core.lifecycle.subscriptions import subscribed_topics
from coordinator_core.log.batch import marker_type
from coordinator_core.log.reader import OnDamage, read_records, with_records
from coordinator_core.log.types import NO_PRODUCER_ID, Batch, ControlType, PartitionLog, Record, SegmentFile
from coordinator_core.merge.packed import PackedText, PackedTexts
from coordinator_core.records.codec import RecordDecodeError, decode_key
from coordinator_core.records.ordinary import OrdinaryDecode
from coordinator_core.releases import EPOCH_KEY_TYPES, OFFSET_KEY_TYPES, Loader, Profile
from coordinator_core.replay.interpret import GroupRecord, OffsetRecord, commit_decoders, interpret
from coordinator_core.replay.sequential import SequentialReplayer, is_pending

_LONG_NAMES = 1000
"""Characters from which on a name is kept once, and not with each offset key."""
_MEMBER_TYPES = frozenset({5, 10, 19})
_GROUP_TYPES = EPOCH_KEY_TYPES | {2}
_ASSIGNMENT_TYPE = 8
_ENDS = frozenset({ControlType.COMMIT, ControlType.ABORT})
"""Control records that end a transaction; to the Scala loader every one with a readable key does, as an abort."""


def read_history(
    log: PartitionLog,
    profile: Profile,
    *,
    groups: Collection[str] | Portion | None,
    deletions: Deletions | None,
    topic_names: Mapping[str, str],
    texts: PackedTexts | None = None,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage],
    end_offset: int | None = None,
    seen: Callable[[Batch, Sequence[Record]], None] | None = None,
) -> PartitionHistory:
    """The history of ``groups`` (``None``: all) in one offsets partition.

    ``deletions`` gets the tombstones of all groups; ``None``: they are known.

    Consecutive commits of one writer are one :class:`Version`, so that memory follows what happened and not how often
    groups commit. ``texts`` keeps metadata; without it histories have none. ``end_offset``: no further. ``seen`` takes
    every batch that is read. Raises as ``read_records`` does.
    """
    passing = None
    if groups is not None:
        passing = Passing(groups, wants_tombstones=deletions is not None, end_offset=end_offset)
    reader = HistoryReader(log, profile, passing, deletions, topic_names, texts)
    read = passing.read if passing is not None else read_records
    for segment, batch, records in read(log, on_damage=on_damage, damage=damage):
        if end_offset is not None and batch.base_offset >= end_offset:
            break
        reader.batch(segment, batch, records)
        if seen is not None:
            seen(batch, records)
    return reader.finish()


def batched(records: Mapping[str, int], most: int) -> list[list[str]]:
    """Ids of groups that are read at a time: neighbours with at most ``most`` ``records`` in all, or a single one."""
    ids = list(records)
    return [ids[run.start : run.stop] for run in packed([*records.values()], most)]


def read_deletions(
    log: PartitionLog, spans: Sequence[tuple[int, int]], deletions: Deletions, *, on_damage: OnDamage
) -> None:
    """Add the tombstones of all groups within ``spans``, which ascend, as :func:`read_history` does."""
    passing = Passing((), wants_tombstones=True)
    batches = (
        (segment, batch)
        for segment, batch in passing.batches(log, on_damage=on_damage, damage=[])
        if not batch.is_control and _may_overlap(batch, spans)
    )
    for _, _, records in with_records(batches, on_damage, []):
        for record in records:
            if record.value is None:
                _note_deletion(deletions, record)


def _may_overlap(batch: Batch, spans: Sequence[tuple[int, int]]) -> bool:
    if batch.magic < 2:
        return True
    # The cleaner puts its delete horizon where the first timestamp was.
    first_ms = batch.base_timestamp_ms if batch.delete_horizon_ms is None else 0
    at = bisect_left(spans, first_ms, key=itemgetter(1))
    return at < len(spans) and spans[at][0] <= batch.max_timestamp_ms


def _note_deletion(deletions: Deletions, record: Record) -> None:
    """A member that leaves has tombstones, too, and takes nothing from its group."""
    key = record.key or b""
    if int.from_bytes(key[:2], "big") not in _GROUP_TYPES | OFFSET_KEY_TYPES:
        return
    try:
        data = decode_key(key).data or {}
    except RecordDecodeError:
        return
    deletions.add(record.timestamp_ms, data.get("group", data.get("groupId", "")), data.get("topic"))


class HistoryReader:
    """Reads one offsets partition, batch after batch in log order."""

    def __init__(
        self,
        log: PartitionLog,
        profile: Profile,
        passing: Passing | None,
        deletions: Deletions | None,
        topic_names: Mapping[str, str],
        texts: PackedTexts | None,
    ) -> None:
        self._profile = profile
        self._replayer = SequentialReplayer(profile, log.offsets_partition)
        # The Java coordinator writes commits of several requests into one batch.
        self._batch_is_request = profile.loader is Loader.SCALA
        self._notes_epochs = not profile.bumps_transaction_epochs
        self._requests: dict[tuple[str, int], list[Commit]] = {}
        self._history = PartitionHistory(log.offsets_partition, profile)
        self._course = Course(self._history)
        self._notes_others = deletions is not None
        self._deletions = deletions or Deletions()
        self._topic_names = dict(topic_names)
        self._own_topic_names: dict[str, dict[str, str]] = {}
        self._passing = passing
        self._texts = texts
        self._long_names: dict[str, str] = {}
        self._members: dict[str, tuple[Member, ...]] = {}
        self._pending: dict[int, dict[OffsetKey, Version]] = {}
        self._known_keys: dict[bytes | None, _KnownKey] = {}
        self._decoders = commit_decoders(profile)
        self._removals = Removals(self._history.groups, pending_protects=profile.expiry.pending_protects_offset_key)
        self._epoch_causes: dict[str, list[str]] = {}
        self._pending_dropped: dict[str, int] = {}

    def batch(self, segment: SegmentFile, batch: Batch, records: Sequence[Record]) -> None:
        self._note_passed()
        course = self._course
        newest_ms = course.newest_ms
        course.batch(segment, batch, records)
        self._removals.settle(course.newest_ms, self._pending_of)
        is_control = batch.is_control
        known_keys = {} if is_control else self._known_keys
        partition, path, position = self._history.offsets_partition, segment.path, batch.position
        epoch = batch.partition_leader_epoch
        for record in self._replayer.loaded_records(batch, records):
            place = Place(partition, record.offset, record.timestamp_ms, path, position, epoch)
            known = known_keys.get(record.key)
            if known is not None and (commit := known.commit(record.value)) is not None:
                course.clock(place, newest_ms)
                self._weigh(known.offset_key.group_id, batch, record, place)
                self._commit(batch, records, record, place, known.offset_key, known.key_type, *commit)
            elif is_control:
                self._marker(batch, records, record, place)
            elif self._is_wanted(record.key):
                course.clock(place, newest_ms)
                self._data(batch, records, record, place)
            elif record.value is None and self._notes_others:
                _note_deletion(self._deletions, record)
        for (group_id, _), commits in self._requests.items():
            self._group(group_id).trespasses += trespasses(commits, is_request=self._batch_is_request)
        self._requests.clear()

    def finish(self) -> PartitionHistory:
        self._note_passed()
        self._removals.settle(None, self._pending_of)
        self._course.end()
        self._history.state = self._replayer.finish()
        for group in self._history.groups.values():
            group.cleaned_to = self._history.cleaned_to
            for removal in group.removals:
                removal.near_end = self._history.last_ms - removal.place.timestamp_ms <= MINUTE_MS
            group.end = self._history.state.groups.get(group.group_id)
            self._end_members(group, group.end)
        return self._history

    def _end_members(self, group: GroupHistory, end: Group | None) -> None:
        """Members of a group that is, or was, no classic one, as they are at the ``end`` of the log."""
        if end is None or (isinstance(end, ClassicGroup) and group.assigned is None):
            return
        # Commits name topics, too.
        ids = {version.last.topic_id: key.topic for key, version in group.all_versions()}
        named = {topic_id: name for topic_id, name in ids.items() if topic_id is not None}
        members = members_of(end, ChainMap(named, self._topic_names_of(group.group_id)))
        if group.assigned is not None:
            group.members = members
        last = group.changes[-1] if group.changes else None
        if last is None or last.kind not in (ChangeKind.EPOCH, ChangeKind.EMPTY) or last.group_type is not end.type:
            return
        if {one.member_id for one in members} != {one.member_id for one in last.members}:
            # A member that tells of another host or timeout brings no epoch. Where the cleaner has removed its first
            # record, the newest one comes behind the epoch with which it joined.
            last.members, last.kind = members, ChangeKind.EPOCH if members else ChangeKind.EMPTY

    def _note_passed(self) -> None:
        if self._passing is not None:
            self._course.passed(self._passing.passage)

    def _pending_of(self, group_id: str) -> set[OffsetKey]:
        """Offset keys of the group in open transactions."""
        of_producers = (self._pending.get(producer_id, ()) for producer_id in self._group(group_id).producers)
        return {key for keys in of_producers for key in keys if key.group_id == group_id}

    def _is_wanted(self, key: bytes | None) -> bool:
        return self._passing is None or key is None or key in self._passing.chosen

    def _group(self, group_id: str) -> GroupHistory:
        found = self._history.groups.get(group_id)
        if found is None:
            found = self._history.groups[group_id] = GroupHistory(group_id, self._history.offsets_partition)
        return found

    def _data(self, batch: Batch, records: Sequence[Record], record: Record, place: Place) -> None:
        meaning = interpret(record.offset, record.key, record.value, self._profile)
        failures = len(self._replayer.load_failures())
        match meaning:
            case OffsetRecord():
                key = meaning.offset_key
                if len(key.group_id) + len(key.topic) > _LONG_NAMES:
                    key = OffsetKey(self._known(key.group_id), self._known(key.topic), key.partition)
                    meaning = meaning._replace(offset_key=key)
                group_id = key.group_id
                self._weigh(group_id, batch, record, place)
                self._offset(batch, records, record, place, meaning)
            case GroupRecord():
                group_id = meaning.key.get("group", meaning.key.get("groupId", ""))
                self._weigh(group_id, batch, record, place)
                before = self._replayer.group(group_id)
                members = self._members_of(group_id, before)
                self._replayer.replay_data(batch, records, record, meaning)
                self._members.pop(group_id, None)
                self._group_record(group_id, meaning, place, before, members)
            case _:
                self._replayer.replay_data(batch, records, record, meaning)
                return
        for failure in self._replayer.load_failures()[failures:]:
            self._group(group_id).changes.append(Change(ChangeKind.REFUSED, place, None, cause=failure.detail))

    def _known(self, name: str) -> str:
        return self._long_names.setdefault(name, name)

    def _weigh(self, group_id: str, batch: Batch, record: Record, place: Place) -> None:
        group = self._group(group_id)
        group.records += 1
        size = len(record.key or b"") + len(record.value or b"")
        group.size_bytes += size
        if size > group.largest_record_bytes:
            group.largest_record_bytes, group.largest_record = size, place
        if batch.size > group.largest_batch_bytes:
            group.largest_batch_bytes, group.largest_batch = batch.size, place

    def _members_of(self, group_id: str, group: Group | None) -> tuple[Member, ...]:
        found = self._members.get(group_id)
        if found is None:
            found = self._members[group_id] = members_of(group, self._topic_names_of(group_id))
        return found

    def _topic_names_of(self, group_id: str) -> MutableMapping[str, str]:
        """Names by topic id. Records of other groups tell the group nothing, so that it reads the same alone."""
        own = self._own_topic_names.get(group_id)
        return self._topic_names if own is None else ChainMap(own, self._topic_names)

    def _offset(
        self, batch: Batch, records: Sequence[Record], record: Record, place: Place, meaning: OffsetRecord
    ) -> None:
        replayer, key = self._replayer, meaning.offset_key
        if meaning.value is None:
            group, before = replayer.group(key.group_id), replayer.committed(key)
            self._deletions.add(record.timestamp_ms, key.group_id, key.topic)
            removal = None if before is None else self._removal(batch, place, key, before, group)
            history = self._group(key.group_id)
            if before is None and self._has_cleaned and not self._has_committed(key):
                history.bare.append(Bare(key, place))
            replayer.replay_data(batch, records, record, meaning)
            for pending in self._pending.values():
                if self._profile.tombstone_drops_pending and pending.pop(key, None) is not None:
                    self._pending_dropped[key.group_id] = record.timestamp_ms
            if removal is not None and replayer.committed(key) is None:
                self._removals.remove(removal)
                history.removals.append(removal)
                # The cause is judged when everything is read; where the value ended is known now.
                history.versions[key][-1].end = removal.end = End(EndKind.NO_RULE, place)
            return
        self._commit(batch, records, record, place, key, meaning.key_type, meaning.version or 0, meaning.value)
        if record.key is not None and len(record.key) <= _LONG_NAMES:
            self._known_keys.setdefault(record.key, _KnownKey(key, meaning.key_type, self._decoders[meaning.key_type]))

    @property
    def _has_cleaned(self) -> bool:
        """Whether records before this batch are gone."""
        return self._history.missing > 0 or self._history.first_offset > 0

    def _has_committed(self, key: OffsetKey) -> bool:
        """Whether a commit of the offset key was read, in an open transaction or not."""
        pending = any(key in commits for commits in self._pending.values())
        return pending or key in self._group(key.group_id).versions

    def _commit(
        self,
        batch: Batch,
        records: Sequence[Record],
        record: Record,
        place: Place,
        key: OffsetKey,
        key_type: int,
        version: int,
        value: dict[str, Any],
    ) -> None:
        replayer = self._replayer
        group = replayer.group(key.group_id)
        members = self._members_of(key.group_id, group)
        owner = owner_of(members, key) if members else None
        history = self._group(key.group_id)
        if owner is not None and len(members) > 1 and not is_pending(batch, self._profile):
            versions = history.versions.setdefault(key, [])
            before = replayer.committed(key)
            held = None if before is None else before.committed_offset
            commit = Commit(key, place, owner, generation_of(group), versions, held, value["offset"])
            # Commits of one request have one time.
            request = 0 if self._batch_is_request else value["commitTimestamp"]
            self._requests.setdefault((key.group_id, request), []).append(commit)
        metadata = value["metadata"]
        if metadata:
            value["metadata"] = ""
            if len(metadata) > history.longest_metadata:
                history.longest_metadata, history.longest_place = len(metadata), place
        committed = replayer.replay_commit(batch, records, record, key, key_type, version, value)
        kept = "" if self._texts is None else self._texts.add(metadata)
        found = self._version(committed, kept, place, group, owner, bool(members))
        found.told = hash(metadata)
        if committed.producer_id is not None:
            epochs = history.producers.setdefault(batch.producer_id, [])
            if self._notes_epochs and (not epochs or epochs[-1][0] != batch.producer_epoch):
                epochs.append((batch.producer_epoch, place))
            self._pending.setdefault(batch.producer_id, {})[key] = found
            return
        self._add(key, found, history)

    def _version(
        self,
        value: CommittedOffset,
        metadata: str | PackedText,
        place: Place,
        group: Group | None,
        owner: Member | None,
        had_members: bool,
    ) -> Version:
        if value.leader_epoch is not None and value.leader_epoch < 0:
            # No client has such an epoch: it counts as none here and in ``kernels.versions``.
            value = value._replace(leader_epoch=None)
        generation, missing = generation_of(group), self._history.missing
        return Version(
            value, value, place, place, place, generation, had_members, owner, missing, metadata=metadata, still=place
        )

    def _add(self, key: OffsetKey, version: Version, group: GroupHistory) -> None:
        group.aborts = None
        add_version(group.versions.setdefault(key, []), version)

    def _removal(
        self, batch: Batch, place: Place, key: OffsetKey, value: CommittedOffset, group: Group | None
    ) -> Removal:
        rules = self._profile.expiry
        topics = None if group is None else subscribed_topics(group)
        members = self._members_of(key.group_id, group)
        return Removal(
            key,
            value,
            place,
            condition_of(group, rules)
            if group is not None or not rules.needs_group
            else condition_of(ClassicGroup(key.group_id, GroupState.EMPTY), rules),
            generation_of(group),
            bool(members),
            bool(members) and (topics is None or key.topic in topics),
            _is_foreign(batch),
        )

    def _marker(self, batch: Batch, records: Sequence[Record], record: Record, place: Place) -> None:
        self._replayer.replay_record(batch, records, record)
        kind = marker_type(record)
        ends = kind in _ENDS or (kind is not None and self._profile.loader is Loader.SCALA)
        pending = self._pending.pop(batch.producer_id, {}) if ends else {}
        for key, version in pending.items():
            held = self._replayer.committed(key)
            if held == version.last:
                version.valid_from = place
                self._add(key, version, self._group(key.group_id))
            elif held is not None and kind is ControlType.COMMIT:
                self._group(key.group_id).overtaken.append(Overtaken(key, version, place, held))
            else:
                self._drop(key, version, place)

    def _drop(self, key: OffsetKey, version: Version, marker: Place) -> None:
        group = self._group(key.group_id)
        group.dropped += 1
        if group.aborts is None:
            group.aborts = Aborts(version.place, marker, key, version.last)
        aborts = group.aborts
        if not aborts.transactions or aborts.last != marker:
            aborts.transactions += 1
            aborts.last, aborts.key, aborts.value = marker, key, version.last

    def _group_record(
        self, group_id: str, record: GroupRecord, place: Place, before: Group | None, members: tuple[Member, ...]
    ) -> None:
        if record.key_type == 4 and record.value is not None:
            names = self._own_topic_names.setdefault(group_id, {})
            names.update({topic["topicId"]: topic["topicName"] for topic in record.value["topics"]})
        if record.key_type not in _GROUP_TYPES:
            if record.key_type == _ASSIGNMENT_TYPE:
                self._group(group_id).assigned = place
            self._note_epoch_cause(group_id, record)
            if record.key_type == ShareRecords.state_metadata and record.value is not None:
                self._group(group_id).share_acts += _share_acts(place, record.value)
            return
        group = self._replayer.group(group_id)
        history = self._group(group_id)
        if record.value is None:
            self._deletions.add(place.timestamp_ms, group_id, None)
            if before is None and self._has_cleaned and not history.changes:
                history.bare.append(Bare(None, place))
            if before is None or (record.key_type in EPOCH_KEY_TYPES and isinstance(before, ClassicGroup)):
                return
            change = Change(ChangeKind.DELETED, place, generation_of(before), left=members)
            change.had_offsets = len(history.standing)
            change.had_pending = self._pending_dropped.get(group_id) == place.timestamp_ms
            change.group_type = before.type
            history.note(change)
            return
        now = self._members_of(group_id, group)
        if history.changes:
            # Records of KIP-848 members come before the epoch that they bring.
            members = history.changes[-1].members
        known = {member.member_id for member in members}
        stay = {member.member_id for member in now}
        joined = tuple(member for member in now if member.member_id not in known)
        left = tuple(member for member in members if member.member_id not in stay)
        kind = ChangeKind.EPOCH if record.key_type in EPOCH_KEY_TYPES else ChangeKind.GENERATION
        causes = self._epoch_causes.pop(group_id, [])
        history.note(
            Change(
                kind if now else ChangeKind.EMPTY,
                place,
                generation_of(group),
                now,
                joined,
                left,
                succession(joined, left),
                getattr(group, "protocol_type", None),
                "; ".join(causes) or (TOPICS_CHANGED if kind is ChangeKind.EPOCH else ""),
                group_type=None if group is None else group.type,
                protocol=getattr(group, "protocol", None),
            )
        )

    def _note_epoch_cause(self, group_id: str, record: GroupRecord) -> None:
        causes = self._epoch_causes.setdefault(group_id, [])
        if record.key_type in _MEMBER_TYPES:
            member = record.key["memberId"]
            if record.value is None:
                causes.append(f"member {member} left or was fenced")
            else:
                causes.append(f"member {member} ({record.value['clientId']}) joined or changed its subscription")
        elif record.key_type == 16:
            causes.append("a regular expression was resolved anew")
        elif record.key_type in (6, 12, 20):
            causes.clear()


class _KnownKey(NamedTuple):
    """What the bytes of an offset key say; ``decoders`` (``commit_decoders``) read the values that come with it."""

    offset_key: OffsetKey
    key_type: int
    decoders: Mapping[bytes, tuple[int, OrdinaryDecode]]

    def commit(self, value: bytes | None) -> tuple[int, dict[str, Any]] | None:
        """Version and fields of a value; ``None``: it takes a closer look."""
        if value is None or (known := self.decoders.get(value[:2])) is None:
            return None
        version, decode = known
        found = decode(value, 2)
        return None if found is None or found[1] != len(value) else (version, found[0])


def _is_foreign(batch: Batch) -> bool:
    """Whether a batch of tombstones is none that a coordinator writes: those have no producer, and the Java
    coordinator, whose records a Scala one loads after a downgrade, numbers its batches from 0."""
    return batch.magic >= 2 and (batch.producer_id != NO_PRODUCER_ID or batch.base_sequence > 0)


def _share_acts(place: Place, value: Mapping[str, Any]) -> Iterator[ShareAct]:
    """What an Admin client did to the progress of a share group: partitions are initialized anew where they are
    already, or topics are deleted."""
    known = {(topic["topicId"], number) for topic in value["initializedTopics"] for number in topic["partitions"]}
    anew = [
        topic["topicName"]
        for topic in value["initializingTopics"]
        if any((topic["topicId"], number) in known for number in topic["partitions"])
    ]
    for topics, deletes in ((anew, False), ([topic["topicName"] for topic in value["deletingTopics"]], True)):
        if topics:
            yield ShareAct(place, tuple(topics), deletes)
