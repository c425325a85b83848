"""The plan of one expiry sweep over one offsets partition: tombstones, a forecast, and the offsets that are kept.

``ExpiryPlan.tombstones`` are the records that the coordinator's next sweep would append, in an order in which
every loader accepts them: group by group (by group id); inside a group its offsets (by topic and partition),
then, when the group goes too, its own records. Records of a KIP-848 group are in the order of
``createGroupTombstoneRecords``: target assignment metadata (6), regular expressions (16), partition metadata
(4), and group metadata (3) last; a streams group: 20, 17, 23. A group goes only while it is Empty, and has no
member records then. All tombstones of a group must be written or none: the loader of the
Java coordinator refuses a group record's tombstone while records under it are left.

Each tombstone has a null value and the timestamp ``ExpiryPlan.now_ms``. ``Tombstone.key`` has the layout of the
profile's broker, key type 1 for an offset (0 in 0.8.2). The record it deletes, at ``record_offset``, may have the other
key type for the same offset key: compaction drops that record by its record offset, not by comparing keys.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from coordinator_core.groups.model import OffsetKey
from coordinator_core.records.codec import encode_key
from coordinator_core.records.wire import MAX_STRING_BYTES, encode_utf8
from coordinator_core.releases import CLASSIC_KEY_TYPES


class TombstoneKind(StrEnum):
    """Kind of record that a tombstone deletes, with the record types of each kind of group."""

    OFFSET = "offset"
    """A committed offset: type 1 (0 in 0.8.2)."""

    GROUP = "group"
    """The group itself: type 2, 3, 11 or 17."""

    TARGET_ASSIGNMENT = "target_assignment"
    """Target assignment metadata: type 6, 12 or 20."""

    REGULAR_EXPRESSION = "regular_expression"
    """A resolved regular expression: type 16."""

    PARTITION_METADATA = "partition_metadata"
    """Partition metadata: type 4 or 9. No release since 4.1 writes a value, all write the tombstone."""

    TOPOLOGY = "topology"
    """Topology of a streams group: type 23."""


class Reason(StrEnum):
    """Rules by which an offset or a group expires."""

    EXPIRE_TIMESTAMP = "expire_timestamp"
    """The value's own expire timestamp has passed (value v1: OffsetCommit v2 to v4 with a retention)."""

    COMMIT_AGE = "commit_age"
    """Retention since the commit, with members or without (before KIP-211: up to 2.0)."""

    EMPTY_GROUP = "empty_group"
    """Retention since the group became Empty (KIP-211: classic groups with a protocol type, 2.1 on)."""

    EMPTY_GROUP_COMMIT = "empty_group_commit"
    """The group is Empty, and retention counts from the commit: no state timestamp is known, or the group
    is a consumer (KIP-848) or streams group."""

    SIMPLE_GROUP = "simple_group"
    """Retention since the commit: the group has no protocol type, it only stores offsets (2.1 on)."""

    UNSUBSCRIBED_TOPIC = "unsubscribed_topic"
    """The group has members, and none subscribes to the topic: retention since the commit (2.4 on)."""

    NOTHING_LEFT = "nothing_left"
    """The group is Empty, and no committed offset and no open transaction is left to it."""


class Kept(StrEnum):
    """Why an offset or a group gets no tombstone, neither now nor at a known time."""

    SUBSCRIBED_TOPIC = "subscribed_topic"
    """Offset: a member subscribes to the topic."""

    ACTIVE_GROUP = "active_group"
    """Offset: the group has members, and nothing of it expires: by the release, by its protocol type, or because its
    members' subscriptions cannot be read."""

    REBALANCING_GROUP = "rebalancing_group"
    """Offset: the group is known to be rebalancing (KAFKA-13636)."""

    PENDING_COMMIT = "pending_commit"
    """Offset: an open transaction has a commit of the same partition (Java coordinator, 3.8 on)."""

    ORPHANED = "orphaned"
    """Offset: its group's record is tombstoned; the Java sweep goes from group to group and never sees it."""

    SHARE_GROUP = "share_group"
    """Offset or group: share groups do not expire (KAFKA-19016)."""

    NEVER = "never"
    """Offset: the time at which it expires is past the end of a signed 64-bit clock."""

    SWEEP_FAILS = "sweep_fails"
    """Offset or group: due, but the sweep of this partition fails, see :attr:`ExpiryPlan.failure`."""

    GROUP_HAS_MEMBERS = "group_has_members"
    """Group: it is not Empty."""

    GROUP_HAS_OFFSETS = "group_has_offsets"
    """Group: it keeps an offset."""

    OPEN_TRANSACTION = "open_transaction"
    """Group: a transaction with commits of the group is open."""

    GENERATION_ZERO = "generation_zero"
    """Group: the broker forgets it without a record, its generation is 0 (Scala coordinator)."""

    NEVER_DELETED = "never_deleted"
    """Group: sweeps of this release delete no groups (up to 0.10.0)."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """One tombstone, due or to come.

    ``base_timestamp_ms`` is the time from which the retention counts; ``None`` where no retention decides
    (an explicit expire timestamp, a group). ``expires_at_ms`` is the first time at which a sweep writes it;
    for a group, when its last offset goes, ``now_ms`` where it has none. ``record_offset`` is that of the
    record it deletes, ``None`` where no such record is known: ghosts, simple groups, records that only
    accompany a group's.
    """

    kind: TombstoneKind
    group_id: str
    topic: str | None
    partition: int | None
    key_type: int
    offsets_partition: int
    reason: Reason
    base_timestamp_ms: int | None
    expires_at_ms: int
    record_offset: int | None
    regular_expression: str | None = None

    @property
    def key(self) -> bytes:
        """The bytes of the record's key."""
        name = "group" if self.key_type in CLASSIC_KEY_TYPES else "groupId"
        data: dict[str, object] = {name: self.group_id}
        if self.topic is not None:
            data |= {"topic": self.topic, "partition": self.partition}
        if self.regular_expression is not None:
            data["regularExpression"] = self.regular_expression
        return encode_key(self.key_type, data)

    @property
    def is_writable(self) -> bool:
        """Whether a record can have the key: each malformed byte of a name is three bytes once it is decoded."""
        names = (self.group_id, self.topic, self.regular_expression)
        return all(len(encode_utf8(name)) <= MAX_STRING_BYTES for name in names if name is not None)

    def digested_key(self) -> bytes:
        """The key, behind its length: what the digest of a plan is made of."""
        key = self.key
        return len(key).to_bytes(4, "big") + key

    @property
    def offset_key(self) -> OffsetKey | None:
        """Offset key that an offset tombstone deletes; ``None`` for the other kinds."""
        if self.topic is None or self.partition is None:
            return None
        return OffsetKey(self.group_id, self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """Effect of one sweep at ``now_ms`` on an offsets partition.

    ``tombstones`` are due, in the order to write them. ``forecast`` are those that later sweeps would write
    if nothing else happened, by ``expires_at_ms``. ``kept`` counts offsets without either, by group and reason.
    ``failure`` says why the sweep of such a broker fails and writes nothing (there are no tombstones then).
    """

    offsets_partition: int
    now_ms: int
    offsets_retention_ms: int
    tombstones: tuple[Tombstone, ...] = ()
    forecast: tuple[Tombstone, ...] = ()
    kept: Mapping[str, Mapping[Kept, int]] = field(default_factory=dict)
    failure: str | None = None

    def deleted_groups(self) -> frozenset[str]:
        """Ids of the groups that :attr:`tombstones` delete."""
        return frozenset(item.group_id for item in self.tombstones if item.kind is TombstoneKind.GROUP)

    def digest(self) -> str:
        """SHA-256 (hex) of the keys that get a tombstone, in the order of writing."""
        digest = hashlib.sha256()
        for tombstone in self.tombstones:
            digest.update(tombstone.digested_key())
        return digest.hexdigest()


def kept_by_reason(plans: Iterable[ExpiryPlan], group_ids: Collection[str] | None = None) -> dict[str, int]:
    """Counts of what the plans keep, by reason in order; of these groups only where ``group_ids`` is set."""
    found: Counter[str] = Counter()
    for plan in plans:
        for group_id, counts in plan.kept.items():
            if group_ids is None or group_id in group_ids:
                found.update({str(reason): count for reason, count in counts.items()})
    return dict(sorted(found.items()))
