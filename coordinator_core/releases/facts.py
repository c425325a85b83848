"""The columns of the table of releases: what can differ, what each value means, and the source of each.

Values by release stand in ``lines.py``. Class names are Kafka's: ``GroupMetadataManager`` and
``GroupMetadata`` of package ``kafka.coordinator.group`` (Scala, up to 4.0), the Java classes of
``org.apache.kafka.coordinator.group`` (3.7 on).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from coordinator_core.releases.number import Release
from coordinator_core.releases.requests import RequestRules

OFFSET_KEY_TYPES = frozenset({0, 1})
CLASSIC_KEY_TYPES = frozenset({0, 1, 2})
CONSUMER_KEY_TYPES = frozenset({3, 4, 5, 6, 7, 8, 16})
SHARE_KEY_TYPES = frozenset({9, 10, 11, 12, 13, 14, 15})
STREAMS_KEY_TYPES = frozenset({17, 19, 20, 21, 22, 23})
EPOCH_KEY_TYPES = frozenset({3, 11, 17})
"""Records of the epoch of a consumer, share or streams group."""


class Loader(StrEnum):
    """The two coordinator implementations."""

    SCALA = "scala"
    JAVA = "java"

    @property
    def coordinator(self) -> str:
        """``classic`` or ``new``, as the command line names them."""
        return "classic" if self is Loader.SCALA else "new"


class MergeOffsetRule(StrEnum):
    """Offset that decides whether a committed transaction's value is newer than the offset key's."""

    RECORD = "record"
    """The record's own offset."""

    BATCH_FIRST_RECORD = "batch_first_record"
    """Offset of the first record left in the record's batch."""

    BATCH_HEADER = "batch_header"
    """Base offset in the batch header, even when that record is gone."""

    NONE = "none"
    """Not compared: the marker always wins."""


class ValueLayout(StrEnum):
    """Fields that version 0 of a value has. Early releases wrote others under the same number, and loaders read them as
    their own: a value that does not fit stops the load."""

    CURRENT = "current"

    PREVIEW_3_7 = "preview-3.7"
    """Consumer groups up to 3.7: the types 4, 5, 7 and 8 have other fields."""

    SHARE_4_0 = "share-4.0"
    """Share groups of 4.0: the types 11 and 15 have fewer fields (``ShareGroupMetadataValue.json``)."""


class SubscriptionReading(StrEnum):
    """Result of a subscription that cannot be read, when its group is loaded; the strictest comes last."""

    HARMLESS = "harmless"
    """Nothing: the topics of the group are not known."""

    GENERATED = "generated"
    """Generated code reads it, and stops the load at a null, at user data that are cut, and where it has no memory for
    the list of topics (KAFKA-20570). Other ends of the bytes are harmless."""

    VALIDATED = "validated"
    """As ``GENERATED``, but sizes are looked at first: the load also stops at more topics, and at a longer name, than
    bytes are left."""


class Clock(StrEnum):
    """Start of the retention of an offset, and the meaning of a value's own expire timestamp."""

    COMMIT = "commit"
    """From the commit; there are no expire timestamps."""

    VALUE = "value"
    """Each value has an expire timestamp, its own or commit plus retention; the group's state is not
    asked."""

    GROUP = "group"
    """The group decides whether and from when; a value's own expire timestamp replaces only the time
    (KIP-211)."""


class PendingHold(StrEnum):
    """Ways in which commits of open transactions keep an Empty group from being deleted."""

    NONE = "none"
    """Not at all."""

    OFFSET_KEY = "offset_key"
    """A pending commit does."""

    TRANSACTION_BESIDE_OFFSETS = "transaction_beside_offsets"
    """An open transaction that ever had a commit of the group does, also when a tombstone has removed that
    commit since, but only while the group has committed offsets: the sweep after the one that expires the
    last of them deletes the group (KAFKA-19163)."""


class ShareSweep(StrEnum):
    """Effect of a sweep on share groups; it fails as a whole where it asks one for an expiry condition."""

    LEAVES = "leaves"
    """Passes over them (KAFKA-19016)."""

    FAILS_ON_OFFSETS = "fails_on_offsets"
    """Cleans offsets of every group first, and a share group with committed offsets has no rule."""

    DELETES = "deletes"
    """Deletes an Empty one without offsets; fails on one with offsets."""


class Deleter(StrEnum):
    """Causes for which a coordinator writes the tombstone of a committed offset."""

    EXPIRY = "expiry"
    TOPIC_DELETION = "topic deletion"
    """KAFKA-2000."""
    DELETE_GROUPS = "DeleteGroups"
    """KIP-229."""
    OFFSET_DELETE = "OffsetDelete"
    """KIP-496."""


class DumpText(StrEnum):
    """Form of the lines that ``kafka-dump-log --offsets-decoder`` prints (``DumpLogSegments``)."""

    RAW = "raw"
    PLAIN = "plain"
    TIMESTAMPS = "timestamps"
    CODEC_NAMES = "codec names"
    BATCHES = "batches"
    GROUPS_AS_JSON = "groups as JSON"
    BATCH_LINES = "batch lines"
    NAMED_KEYS = "named keys"
    BATCH_IN_EVERY_LINE = "batch in every line"
    SHORT_LINES = "short lines"
    DELETE_HORIZON = "delete horizon"
    LOG_START = "log start"
    JSON = "JSON"
    JSON_WITHOUT_SLIP = "JSON without slip"


class Sign(StrEnum):
    """Signs of the release that wrote a log, besides fields and record types."""

    COMMITS_V4 = "commits in version 4"
    NUMBERED_BATCHES = "batches that the Java coordinator numbered"
    GROUPS_V3 = "groups in version 3, or commits in version 3 and no groups"
    GROUPS_V2 = "groups or commits in version 2"
    FORMAT_2 = "message format 2"
    FORMAT_1 = "message format 1"
    GROUPS = "record types above 0"
    FORMAT_0 = "message format 0"
    NOTHING = "no record tells anything"


@dataclass(frozen=True, slots=True)
class ExpiryRules:
    """Rules of the expiry sweep.

    Sources: ``OffsetManager.compact`` (0.8.2), ``GroupMetadataManager.deleteExpiredOffsets`` (0.9, 0.10.0),
    ``GroupMetadata.removeExpiredOffsets`` and ``GroupMetadataManager.cleanupGroupMetadata`` (Scala, 0.10.1
    on), ``OffsetMetadataManager.cleanupExpiredOffsets``, ``GroupCoordinatorShard.cleanupGroupMetadata`` and
    the groups' ``offsetExpirationCondition``, ``createGroupTombstoneRecords`` (Java).
    """

    clock: Clock
    """KIP-211."""

    default_offsets_retention_ms: int
    """Default of ``offsets.retention.minutes`` (KIP-186), in milliseconds."""

    offset_key_type: int
    """Key type of an offset's tombstone."""

    needs_group: bool
    """A sweep goes from group to group, and misses offsets whose group is gone
    (``GroupMetadataManager.cleanupGroupMetadata``)."""

    deletes_groups: bool
    """A sweep deletes Empty groups that have nothing left (``cleanupGroupMetadata``)."""

    generation_zero_is_silent: bool
    """A group of generation 0 goes without a tombstone (Scala ``cleanupGroupMetadata``)."""

    expires_unsubscribed: bool
    """Offsets of a live group expire when nobody in it subscribes to their topic (KIP-496)."""

    knows_sources: bool
    """A streams group has its source topics from the load on; else from the first heartbeat after it, and until then
    its offsets expire as those of topics that nobody subscribes to (KAFKA-19661)."""

    rebalance_protects: bool
    """Nothing expires of a classic group that rebalances (KAFKA-13636)."""

    pending_protects_offset_key: bool
    """A commit in an open transaction keeps the committed offset of the same offset key
    (``OffsetMetadataManager.cleanupExpiredOffsets``)."""

    pending_hold: PendingHold
    """KAFKA-19163."""

    share_sweep: ShareSweep
    """``GroupCoordinatorShard.cleanupGroupMetadata``, KAFKA-19016."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The facts of one release and one of its coordinators: what a broker makes of the same bytes.

    Sources unless a column says another: ``GroupMetadataManager.doLoadGroupsAndOffsets`` (Scala),
    ``GroupCoordinatorShard.replay`` and what it calls (Java), and real brokers where those disagree with the
    reading (``tests/corpus``).
    """

    name: str
    """The family: releases that load nearly alike (S0 … S4 for the classic coordinator, J0 … for the new)."""

    release: Release
    loader: Loader
    ordering_offset_rule: MergeOffsetRule
    """``GroupMetadata.completePendingTxnOffsetCommit``, ``OffsetMetadataManager.completeTransaction``."""

    known_key_types: frozenset[int]
    """Types whose records the loader interprets (``CoordinatorRecordType``); it skips others, or gives up."""

    unknown_key_aborts: bool
    """A record of an unknown type ends the load (before KIP-915)."""

    max_legacy_offset_value_version: int
    """Newest value version that is read under key type 0 (``CoordinatorRecordSerde``)."""

    max_offset_value_version: int
    """Newest value version that is read under key type 1 (``OffsetCommitValue.json``)."""

    max_group_value_version: int
    """Newest value version that is read under key type 2 (``GroupMetadataValue.json``); -1: none."""

    reads_unknown_versions: bool
    """A value of a newer version is read as one of the newest known, and of a negative one as version 0, as far as its
    fields go (KAFKA-18672)."""

    value_layout: ValueLayout
    """In which the loader reads version 0 of values."""

    keeps_offsets_only_groups: bool
    """Offsets without a group record make a group: an Empty one, or one without any state."""

    has_group_state: bool
    """Groups have a state; else the coordinator keeps offsets only."""

    empty_group_keeps_protocol_type: bool
    """The protocol type of a group without members survives a load (KAFKA-6287)."""

    state_timestamp_versions: frozenset[int]
    """GroupMetadataValue versions whose state timestamp is read (KAFKA-10401)."""

    refuses_duplicate_instances: bool
    """Two members of a classic group with one group instance id stop the load (``GroupMetadata.add``,
    ``ClassicGroup.add``)."""

    subscription_reading: SubscriptionReading
    """Of a ``consumer`` member's subscription, when its classic group is loaded (``computeSubscribedTopics``)."""

    bumps_transaction_epochs: bool
    """Each transaction has a producer epoch of its own (``transaction.version`` 2, KIP-890)."""

    minus_one_expires: bool
    """An expire timestamp of -1 is taken for a time (KAFKA-8069)."""

    tombstone_drops_pending: bool
    """A tombstone also removes the offset key from open transactions (``OffsetMetadataManager.replay``)."""

    newest_message_format: int
    """Batches of a newer message format (magic) cannot be read (KIP-32, KIP-98)."""

    reads_zstd: bool
    """KIP-110."""

    ends_at_empty_read: bool
    """A read that returns nothing below the end of the log ends the load; else the loader reads for ever, and
    no partition behind this one is loaded (KAFKA-9065)."""

    grows_load_buffer: bool
    """A batch larger than ``offsets.load.buffer.size`` is read; else the loader asks for it for ever (KAFKA-7286)."""

    tolerates_missing_groups: bool
    """Tombstones of unknown groups and members are ignored (KAFKA-17306)."""

    tolerates_missing_share_groups: bool
    """Tombstones of unknown share groups are ignored (KAFKA-19453)."""

    tolerates_owned_partitions: bool
    """An assignment may take a partition from a member at an older epoch, without that member's giving it up
    before (KAFKA-19862)."""

    consumer_replaces_simple: bool
    """A KIP-848 record replaces a simple classic group (``getOrMaybeCreatePersistedConsumerGroup``)."""

    streams_replaces_simple: bool
    """A streams record replaces a simple classic group (KAFKA-20254)."""

    converts_groups: bool
    """A member of another protocol makes an Empty classic group, or one of consumers, a group of its own type
    (``GroupMetadataManager.getOrMaybeCreateConsumerGroup``, from 3.8 on)."""

    reads_validated_topology: bool
    """The epoch of the topology that was validated is loaded (``StreamsGroupMetadataValue.ValidatedTopologyEpoch``);
    else a streams group with members is NotReady after a load."""

    compares_target_epochs: bool
    """A member counts as reconciled by the epoch of the target assignment that it goes to, not by its own, which is
    -2 while a static member is away (``ConsumerGroup.maybeUpdateGroupState`` of 3.7, which alone records it)."""

    initial_epoch: int
    """Group and assignment epoch before any record sets them (KAFKA-20268)."""

    describes_pending_revocation: bool
    """ConsumerGroupDescribe counts partitions still to be revoked as assigned (KAFKA-20431)."""

    deleters: frozenset[Deleter]
    """Causes that remove committed offsets (``GroupMetadataManager.cleanupGroupMetadata`` and its callers)."""

    expiry: ExpiryRules

    requests: RequestRules | None
    """Facts of the coordinator's replies; ``None`` where no broker's answers were compared."""

    @property
    def label(self) -> str:
        """The form that is printed and stored: family, release, coordinator."""
        return f"{self.name} ({self.release}, {self.coordinator} coordinator)"

    @property
    def coordinator(self) -> str:
        """``classic`` or ``new``, as the command line names them."""
        return self.loader.coordinator

    def as_dict(self) -> dict[str, str]:
        """Release and coordinator as JSON."""
        return {"release": str(self.release), "coordinator": self.coordinator}


FACTS_BESIDE_LOADING: Final = frozenset(
    {
        "name",
        "release",
        "bumps_transaction_epochs",
        "converts_groups",
        "describes_pending_revocation",
        "deleters",
        "expiry",
        "requests",
    }
)
"""Columns of :class:`Profile` that the state after a load does not depend on."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Facts about the output of a release's own command line tools."""

    dump_text: DumpText
    """``DumpLogSegments``."""

    dumped_key_types: frozenset[int]
    """Record types that ``DumpLogSegments`` prints as JSON (``CoordinatorRecordType``)."""
