"""Offsets in the Java coordinator: a state machine over its records (``OffsetMetadataManager``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.log import NO_PRODUCER_ID, Record
from coordinator_core.coordinator.maps import TimelineHashMap
from coordinator_core.coordinator.membership import Request
from coordinator_core.coordinator.records import offset_commit, offset_tombstone
from coordinator_core.coordinator.replies import Reply, topic_of
from coordinator_core.coordinator.settings import Settings
from coordinator_core.lifecycle.due import expiry_of
from coordinator_core.records.types import ZERO_UUID
from coordinator_core.releases import Clock

DEFAULT_TIMESTAMP = DEFAULT_RETENTION = -1

Validate = Callable[[str, str, int], None]
"""Takes topic name, topic id and partition of one commit; raises :class:`ApiError`."""
ExpiryBase = Callable[["OffsetAndMetadata"], int]
"""From when on an offset ages (``OffsetExpirationCondition``), milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset with the offset of its record, which decides what is newer."""

    record_offset: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    topic_id: str


class CommittingGroup(Protocol):
    """What offsets need of a group of any type."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def expiry_base(self) -> ExpiryBase | None:
        """``None``: nothing of the group expires."""


class Slots:
    """Values by group, topic and partition, in nested maps that vanish when they are empty (``Offsets``)."""

    def __init__(self) -> None:
        self.by_group: dict[str, dict[str, dict[int, Any]]] = TimelineHashMap()

    def get(self, group_id: str, topic: str, partition: int) -> Any:
        return self.by_group.get(group_id, {}).get(topic, {}).get(partition)

    def put(self, group_id: str, topic: str, partition: int, value: Any) -> None:
        topics = self.by_group.setdefault(group_id, TimelineHashMap())
        topics.setdefault(topic, TimelineHashMap())[partition] = value

    def remove(self, group_id: str, topic: str, partition: int) -> Any:
        topics = self.by_group.get(group_id, {})
        value = topics.get(topic, {}).pop(partition, None)
        if topic in topics and not topics[topic]:
            del topics[topic]
        if group_id in self.by_group and not topics:
            del self.by_group[group_id]
        return value

    def of(self, group_id: str) -> Iterator[tuple[str, int, Any]]:
        for topic, partitions in self.by_group.get(group_id, {}).items():
            for partition, value in partitions.items():
                yield topic, partition, value


class OffsetMetadataManager:
    """Committed offsets, pending ones by producer, and which slots an open transaction touches."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.offsets = Slots()
        self.pending: dict[int, Slots] = TimelineHashMap()
        self.open = Slots()
        """Producers (a set) with an open transaction, by slot."""

    # Commits

    def commit_records(self, request: Request, now_ms: int, validate: Validate) -> tuple[Reply, list[Record]]:
        """The answer to an OffsetCommit and its records, both in the order of the request."""
        retention_ms = request.get("retentionTimeMs", DEFAULT_RETENTION)
        expires = None if retention_ms == DEFAULT_RETENTION else now_ms + retention_ms
        return self._commit(request, now_ms, expires, validate, keep_topic_id=True)

    def txn_commit_records(
        self, request: Request, now_ms: int, validate: Validate
    ) -> tuple[Reply, list[Record]]:
        """As :meth:`commit_records`; a transactional commit keeps no topic id and no expiry."""
        return self._commit(request, now_ms, None, validate, keep_topic_id=False)

    def _commit(
        self, request: Request, now_ms: int, expires: int | None, validate: Validate, *, keep_topic_id: bool
    ) -> tuple[Reply, list[Record]]:
        topics, records = [], []
        for topic in request["topics"]:
            results = []
            for partition in topic["partitions"]:
                index, metadata = partition["partitionIndex"], partition["committedMetadata"] or ""
                error = Errors.NONE
                if not self._fits(metadata):
                    error = Errors.OFFSET_METADATA_TOO_LARGE
                else:
                    validate(topic["name"], topic["topicId"], index)
                    timestamp_ms = partition.get("commitTimestamp", DEFAULT_TIMESTAMP)
                    records.append(
                        offset_commit(
                            request["groupId"],
                            topic["name"],
                            index,
                            offset=partition["committedOffset"],
                            leader_epoch=partition.get("committedLeaderEpoch", -1),
                            metadata=metadata,
                            commit_timestamp_ms=(
                                now_ms if timestamp_ms == DEFAULT_TIMESTAMP else timestamp_ms
                            ),
                            expire_timestamp_ms=expires,
                            version=4,
                            topic_id=str(topic["topicId"]) if keep_topic_id else ZERO_UUID,
                        )
                    )
                results.append({"partitionIndex": index, "errorCode": error})
            topics.append(topic_of(topic) | {"partitions": results})
        return {"topics": topics}, records

    def _fits(self, metadata: str) -> bool:
        units = len(metadata.encode("utf-16-be", "surrogatepass")) // 2
        return units <= self._settings.offset_metadata_max_bytes

    # Fetches

    def fetch(self, request: Request, require_stable: bool, *, group_exists: bool) -> list[Reply]:
        """Topics of one group's OffsetFetch; all that have a committed offset when it names none."""
        group_id: str = request["groupId"]
        wanted = request["topics"]
        if wanted is None:
            topics = self.offsets.by_group.get(group_id, {}) if group_exists else {}
            wanted = [{"name": name, "partitionIndexes": list(slots)} for name, slots in topics.items()]
        return [
            topic_of(topic)
            | {
                "partitions": [
                    self._fetched(group_id, topic, partition, require_stable, group_exists)
                    for partition in topic["partitionIndexes"]
                ]
            }
            for topic in wanted
        ]

    def _fetched(
        self, group_id: str, topic: Reply, partition: int, require_stable: bool, group_exists: bool
    ) -> Reply:
        name: str = topic["name"]
        committed: OffsetAndMetadata | None = self.offsets.get(group_id, name, partition)
        error = Errors.NONE
        if require_stable and self.open.get(group_id, name, partition):
            committed, error = None, Errors.UNSTABLE_OFFSET_COMMIT
        elif committed is not None and (
            not group_exists or _mismatched(committed.topic_id, topic.get("topicId", ZERO_UUID))
        ):
            committed = None
        return {
            "partitionIndex": partition,
            "committedOffset": -1 if committed is None else committed.offset,
            "committedLeaderEpoch": -1 if committed is None else committed.leader_epoch,
            "metadata": "" if committed is None else committed.metadata,
            "errorCode": error,
        }

    # Removal

    def delete_records(self, request: Request, group: CommittingGroup) -> tuple[list[Reply], list[Record]]:
        """Results per topic of an OffsetDelete, and its tombstones."""
        topics, records = [], []
        for topic in request["topics"]:
            subscribed = group.is_subscribed_to(topic["name"])
            results = []
            for partition in topic["partitions"]:
                slot = (request["groupId"], topic["name"], partition["partitionIndex"])
                error = Errors.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else Errors.NONE
                results.append({"partitionIndex": slot[2], "errorCode": error})
                known = self.offsets.get(*slot) is not None or self.open.get(*slot)
                if not subscribed and known:
                    records.append(offset_tombstone(*slot))
            topics.append({"name": topic["name"], "partitions": results})
        return topics, records

    def delete_all_records(self, group_id: str) -> list[Record]:
        """Tombstones for every committed slot, then for those that are only pending."""
        records = [offset_tombstone(group_id, topic, index) for topic, index, _ in self.offsets.of(group_id)]
        records += [
            offset_tombstone(group_id, topic, index)
            for topic, index, _ in self.open.of(group_id)
            if self.offsets.get(group_id, topic, index) is None
        ]
        return records

    def expired_records(
        self, group_id: str, group: CommittingGroup, now_ms: int
    ) -> tuple[bool, list[Record]]:
        """Whether nothing of the group is left after this sweep, and the sweep's tombstones."""
        if group_id not in self.offsets.by_group:
            return group_id not in self.open.by_group, []
        base = group.expiry_base()
        if base is None:
            return False, []
        all_expired = True
        records = []
        for topic, partition, offset in self.offsets.of(group_id):
            expires = offset.expire_timestamp_ms
            due = expiry_of(
                Clock.GROUP,
                now_ms=now_ms,
                retention_ms=self._settings.offsets_retention_ms,
                base_ms=base(offset),
                explicit_ms=expires or 0,
                is_explicit=expires is not None,
            ).is_due
            if due and not group.is_subscribed_to(topic) and not self.open.get(group_id, topic, partition):
                records.append(offset_tombstone(group_id, topic, partition))
            else:
                all_expired = False
        return all_expired and group_id not in self.open.by_group, records

    def topics_deleted_records(self, topics: list[tuple[str, str]]) -> list[Record]:
        """A slot with a committed and a pending value gets two tombstones."""
        records = []
        for slots in (self.offsets, *self.pending.values()):
            for group_id in slots.by_group:
                for name, topic_id in topics:
                    for partition, offset in slots.by_group[group_id].get(name, {}).items():
                        if offset.topic_id in (ZERO_UUID, topic_id):
                            records.append(offset_tombstone(group_id, name, partition))
        return records

    # The state machine

    def replay(self, record_offset: int, producer_id: int, record: Record) -> None:
        """Apply a commit or its tombstone."""
        slot = (record.key["group"], record.key["topic"], record.key["partition"])
        value = record.value
        if value is None:
            self.offsets.remove(*slot)
            for producer in self.open.get(*slot) or ():
                if producer in self.pending:
                    self.pending[producer].remove(*slot)
            self.open.remove(*slot)
            return
        expires = value.get("expireTimestamp", -1)
        offset = OffsetAndMetadata(
            record_offset=record_offset,
            offset=value["offset"],
            leader_epoch=value.get("leaderEpoch", -1),
            metadata=value["metadata"],
            commit_timestamp_ms=value["commitTimestamp"],
            expire_timestamp_ms=None if expires == -1 else expires,
            topic_id=value.get("topicId", ZERO_UUID),
        )
        if producer_id == NO_PRODUCER_ID:
            self.offsets.put(*slot, offset)
            return
        self.pending.setdefault(producer_id, Slots()).put(*slot, offset)
        producers = self.open.get(*slot)
        if producers is None:
            self.open.put(*slot, {producer_id})
        else:
            producers.add(producer_id)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """Apply a marker: what is newer than the committed offset takes its place."""
        pending = self.pending.pop(producer_id, None)
        if pending is None:
            return
        slots = [(group_id, *slot) for group_id in pending.by_group for slot in pending.of(group_id)]
        for group_id, topic, partition, offset in slots:
            producers = self.open.get(group_id, topic, partition)
            if producers is not None:
                producers.discard(producer_id)
                if not producers:
                    self.open.remove(group_id, topic, partition)
            current = self.offsets.get(group_id, topic, partition)
            if commit and (current is None or current.record_offset < offset.record_offset):
                self.offsets.put(group_id, topic, partition, offset)


def _mismatched(actual: str, expected: str) -> bool:
    return ZERO_UUID not in (actual, expected) and actual != expected
