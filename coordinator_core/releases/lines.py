"""The table of releases: a row a release line, with its differences from the row above.

A patch release has a row inside the row of its line, and changes that line alone: a correction that came in
3.0.1 and 3.2.0 stands in the patches of 3.0 and in the row of 3.2. A row without a change says that nothing
is known to differ. Comments name the source of a boundary where the column in ``facts.py`` does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from coordinator_core.durations import MINUTE_MS
from coordinator_core.releases.facts import (
    CLASSIC_KEY_TYPES,
    CONSUMER_KEY_TYPES,
    OFFSET_KEY_TYPES,
    SHARE_KEY_TYPES,
    STREAMS_KEY_TYPES,
    Clock,
    Deleter,
    DumpText,
    ExpiryRules,
    Loader,
    MergeOffsetRule,
    PendingHold,
    Profile,
    ShareSweep,
    Sign,
    SubscriptionReading,
    Tools,
    ValueLayout,
)
from coordinator_core.releases.number import Release
from coordinator_core.releases.requests import CLASSIC_3_9, NEW_4_3, NEW_4_4

Change = Callable[[Profile], Profile]


@dataclass(frozen=True, slots=True)
class Patch:
    """Facts of a coordinator that the patch release ``since`` changes, with later ones of its line."""

    since: str
    classic: Change | None = None
    new: Change | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A row. ``since`` is the first release that it is true of, ``latest`` the newest one of the line
    (empty: none is released). ``None`` leaves a cell as in the row above.

    ``classic`` and ``new`` change the facts of a coordinator; a :class:`Profile` introduces one.
    ``coordinators`` are those that a broker can have, its default first. ``new_fields`` are fields of record
    values, as ``<schema>.<field>``, that the line adds to an existing version. ``inferred_from`` are signs
    by which a log is taken for one of this line.
    """

    since: str
    latest: str = ""
    classic: Change | Profile | None = None
    new: Change | Profile | None = None
    coordinators: tuple[Loader, ...] | None = None
    tools: Callable[[Tools], Tools] | Tools | None = None
    new_fields: tuple[str, ...] = ()
    inferred_from: tuple[Sign, ...] = ()
    patches: tuple[Patch, ...] = ()


_FIRST_CLASSIC = Profile(
    name="S0",
    release=Release((0, 8, 2)),
    loader=Loader.SCALA,
    ordering_offset_rule=MergeOffsetRule.BATCH_HEADER,
    known_key_types=OFFSET_KEY_TYPES,
    unknown_key_aborts=True,
    max_legacy_offset_value_version=1,
    max_offset_value_version=1,
    max_group_value_version=-1,
    reads_unknown_versions=False,
    value_layout=ValueLayout.CURRENT,
    keeps_offsets_only_groups=True,
    has_group_state=False,
    empty_group_keeps_protocol_type=False,
    state_timestamp_versions=frozenset({2, 3, 4}),
    refuses_duplicate_instances=False,
    subscription_reading=SubscriptionReading.HARMLESS,
    bumps_transaction_epochs=False,
    minus_one_expires=False,
    tombstone_drops_pending=False,
    newest_message_format=0,
    reads_zstd=False,
    ends_at_empty_read=False,
    grows_load_buffer=False,
    tolerates_missing_groups=True,
    tolerates_missing_share_groups=True,
    tolerates_owned_partitions=True,
    consumer_replaces_simple=True,
    streams_replaces_simple=True,
    converts_groups=False,
    reads_validated_topology=False,
    compares_target_epochs=False,
    initial_epoch=0,
    describes_pending_revocation=False,
    expiry=ExpiryRules(
        clock=Clock.COMMIT,
        default_offsets_retention_ms=1440 * MINUTE_MS,
        offset_key_type=0,
        needs_group=False,
        deletes_groups=False,
        generation_zero_is_silent=True,
        expires_unsubscribed=False,
        knows_sources=True,
        rebalance_protects=False,
        pending_protects_offset_key=False,
        pending_hold=PendingHold.NONE,
        share_sweep=ShareSweep.DELETES,
    ),
    deleters=frozenset({Deleter.EXPIRY}),
    requests=None,
)
_FIRST_NEW = Profile(
    name="J0",
    release=Release((3, 7)),
    loader=Loader.JAVA,
    ordering_offset_rule=MergeOffsetRule.NONE,
    known_key_types=CLASSIC_KEY_TYPES | CONSUMER_KEY_TYPES - {16},
    unknown_key_aborts=False,
    max_legacy_offset_value_version=4,
    max_offset_value_version=4,
    max_group_value_version=4,
    reads_unknown_versions=True,
    value_layout=ValueLayout.PREVIEW_3_7,
    keeps_offsets_only_groups=True,
    has_group_state=True,
    empty_group_keeps_protocol_type=True,
    state_timestamp_versions=frozenset({2, 3, 4}),
    refuses_duplicate_instances=True,
    subscription_reading=SubscriptionReading.VALIDATED,
    bumps_transaction_epochs=False,
    minus_one_expires=False,
    tombstone_drops_pending=False,
    newest_message_format=2,
    reads_zstd=True,
    ends_at_empty_read=True,
    grows_load_buffer=True,
    tolerates_missing_groups=False,
    tolerates_missing_share_groups=False,
    tolerates_owned_partitions=True,
    consumer_replaces_simple=False,
    streams_replaces_simple=False,
    converts_groups=False,
    reads_validated_topology=False,
    compares_target_epochs=True,
    initial_epoch=0,
    describes_pending_revocation=False,
    expiry=ExpiryRules(
        clock=Clock.GROUP,
        default_offsets_retention_ms=10_080 * MINUTE_MS,
        offset_key_type=1,
        needs_group=True,
        deletes_groups=True,
        generation_zero_is_silent=False,
        expires_unsubscribed=True,
        knows_sources=True,
        rebalance_protects=True,
        pending_protects_offset_key=False,
        pending_hold=PendingHold.NONE,
        share_sweep=ShareSweep.DELETES,
    ),
    deleters=frozenset(Deleter),
    requests=None,
)


def _reads_kip_915(was: Profile) -> Profile:
    return replace(
        was,
        name="S4",
        unknown_key_aborts=False,
        max_legacy_offset_value_version=4,
        max_offset_value_version=4,
        max_group_value_version=4,
    )


def _rebalance_protects(was: Profile) -> Profile:
    return replace(was, expiry=replace(was.expiry, rebalance_protects=True))


def _reads_every_state_timestamp(was: Profile) -> Profile:
    return replace(was, state_timestamp_versions=frozenset({2, 3, 4}))


def _validates_subscriptions(was: Profile) -> Profile:
    return replace(was, subscription_reading=SubscriptionReading.VALIDATED)


def _bumps_transaction_epochs(was: Profile) -> Profile:
    return replace(was, bumps_transaction_epochs=True)


def _keeps_protocol_type(was: Profile) -> Profile:
    return replace(was, empty_group_keeps_protocol_type=True)


def _tolerates_owned_partitions(was: Profile) -> Profile:
    return replace(was, tolerates_owned_partitions=True)


def _pending_commit_holds_group(was: Profile) -> Profile:
    return replace(was, expiry=replace(was.expiry, pending_hold=PendingHold.OFFSET_KEY))


def _modern_groups_not_compared(was: Profile) -> Profile:
    assert was.requests is not None
    return replace(was, requests=replace(was.requests, modern_groups=False))


def _deleted_by(deleter: Deleter) -> Change:
    return lambda was: replace(was, deleters=was.deleters | {deleter})


def _text(text: DumpText) -> Callable[[Tools], Tools]:
    return lambda was: replace(was, dump_text=text)


LINES: Final = (
    Line(
        "0.8.2",
        "0.8.2.2",
        classic=_FIRST_CLASSIC,
        coordinators=(Loader.SCALA,),
        tools=Tools(DumpText.RAW, dumped_key_types=frozenset()),
        inferred_from=(Sign.FORMAT_0,),
    ),
    Line(
        "0.9",
        "0.9.0.1",
        classic=lambda was: replace(
            was,
            name="S1",
            known_key_types=CLASSIC_KEY_TYPES,
            max_group_value_version=0,
            keeps_offsets_only_groups=False,
            has_group_state=True,
            expiry=replace(was.expiry, clock=Clock.VALUE, offset_key_type=1),
        ),
        tools=_text(DumpText.PLAIN),
        inferred_from=(Sign.GROUPS,),
    ),
    Line("0.10", "0.10.0.1", classic=lambda was: replace(was, newest_message_format=1)),
    Line(
        "0.10.1",
        "0.10.1.1",
        classic=lambda was: replace(
            was,
            max_group_value_version=1,
            keeps_offsets_only_groups=True,
            expiry=replace(was.expiry, needs_group=True, deletes_groups=True),
        ),
        tools=_text(DumpText.TIMESTAMPS),
    ),
    Line(
        "0.10.2",
        "0.10.2.2",
        classic=_deleted_by(Deleter.TOPIC_DELETION),
        tools=_text(DumpText.CODEC_NAMES),
        inferred_from=(Sign.FORMAT_1,),
    ),
    Line(
        "0.11",
        "0.11.0.3",
        # Transactions: KIP-98.
        classic=lambda was: replace(_pending_commit_holds_group(was), newest_message_format=2),
        tools=_text(DumpText.BATCHES),
    ),
    Line(
        "1.0",
        "1.0.2",
        classic=lambda was: replace(was, ordering_offset_rule=MergeOffsetRule.BATCH_FIRST_RECORD),
        tools=_text(DumpText.GROUPS_AS_JSON),
        patches=(Patch("1.0.1", classic=_keeps_protocol_type),),
    ),
    Line("1.1", "1.1.1", classic=lambda was: _deleted_by(Deleter.DELETE_GROUPS)(_keeps_protocol_type(was))),
    Line(
        "2.0",
        "2.0.1",
        classic=lambda was: replace(was, expiry=replace(was.expiry, default_offsets_retention_ms=10_080 * MINUTE_MS)),
        inferred_from=(Sign.FORMAT_2,),
        patches=(Patch("2.0.1", classic=lambda was: replace(was, grows_load_buffer=True)),),
    ),
    Line(
        "2.1",
        "2.1.1",
        classic=lambda was: replace(
            was,
            name="S2",
            max_legacy_offset_value_version=3,
            max_offset_value_version=3,
            max_group_value_version=2,
            reads_zstd=True,
            grows_load_buffer=True,
            minus_one_expires=True,
            expiry=replace(was.expiry, clock=Clock.GROUP),
        ),
    ),
    Line(
        "2.2",
        "2.2.2",
        classic=lambda was: replace(was, minus_one_expires=False),
        tools=_text(DumpText.BATCH_LINES),
        inferred_from=(Sign.GROUPS_V2,),
    ),
    Line(
        "2.3",
        "2.3.1",
        classic=lambda was: replace(was, max_group_value_version=3, state_timestamp_versions=frozenset({2})),
    ),
    Line(
        "2.4",
        "2.4.1",
        classic=lambda was: replace(
            was,
            name="S3",
            deleters=was.deleters | {Deleter.OFFSET_DELETE},
            ends_at_empty_read=True,
            expiry=replace(was.expiry, expires_unsubscribed=True),
        ),
        tools=_text(DumpText.NAMED_KEYS),
    ),
    Line("2.5", "2.5.1"),
    Line("2.6", "2.6.3", patches=(Patch("2.6.1", classic=_reads_every_state_timestamp),)),
    Line(
        "2.7",
        "2.7.2",
        classic=lambda was: replace(
            _reads_every_state_timestamp(was), subscription_reading=SubscriptionReading.GENERATED
        ),
    ),
    Line(
        "2.8",
        "2.8.2",
        tools=_text(DumpText.BATCH_IN_EVERY_LINE),
        patches=(Patch("2.8.2", classic=lambda was: _validates_subscriptions(_rebalance_protects(was))),),
    ),
    # The patches with KIP-915 up to 3.3.3 exist as branches; nobody released them.
    Line(
        "3.0",
        "3.0.2",
        classic=lambda was: replace(was, refuses_duplicate_instances=True),
        tools=_text(DumpText.SHORT_LINES),
        patches=(
            Patch("3.0.1", classic=_rebalance_protects),
            Patch("3.0.2", classic=_validates_subscriptions),
            Patch("3.0.3", classic=_reads_kip_915),
        ),
    ),
    Line(
        "3.1",
        "3.1.2",
        patches=(
            Patch("3.1.1", classic=_rebalance_protects),
            Patch("3.1.2", classic=_validates_subscriptions),
            Patch("3.1.3", classic=_reads_kip_915),
        ),
    ),
    Line(
        "3.2",
        "3.2.3",
        classic=_rebalance_protects,
        tools=_text(DumpText.DELETE_HORIZON),
        patches=(Patch("3.2.3", classic=_validates_subscriptions), Patch("3.2.4", classic=_reads_kip_915)),
    ),
    Line(
        "3.3",
        "3.3.2",
        classic=_validates_subscriptions,
        tools=_text(DumpText.LOG_START),
        patches=(Patch("3.3.3", classic=_reads_kip_915),),
    ),
    Line("3.4", "3.4.1", patches=(Patch("3.4.1", classic=_reads_kip_915),)),
    Line("3.5", "3.5.2", classic=_reads_kip_915),
    Line("3.6", "3.6.2"),
    Line("3.7", "3.7.2", new=_FIRST_NEW, coordinators=(Loader.SCALA, Loader.JAVA)),
    Line(
        "3.8",
        "3.8.1",
        new=lambda was: replace(
            was,
            name="J1",
            value_layout=ValueLayout.CURRENT,
            ordering_offset_rule=MergeOffsetRule.RECORD,
            tombstone_drops_pending=True,
            converts_groups=True,
            compares_target_epochs=False,
            # The brokers that were tried begin at 3.8.1; 3.7 is left as it was.
            tolerates_owned_partitions=False,
            expiry=replace(
                was.expiry, pending_protects_offset_key=True, pending_hold=PendingHold.TRANSACTION_BESIDE_OFFSETS
            ),
        ),
        tools=Tools(DumpText.JSON, dumped_key_types=frozenset(range(9))),
    ),
    Line("3.9", "3.9.2", classic=lambda was: replace(was, requests=CLASSIC_3_9), inferred_from=(Sign.GROUPS_V3,)),
    Line(
        "4.0",
        "4.0.2",
        classic=_bumps_transaction_epochs,
        new=lambda was: replace(
            _bumps_transaction_epochs(was),
            known_key_types=was.known_key_types | {16} | SHARE_KEY_TYPES,
            reads_unknown_versions=False,
            value_layout=ValueLayout.SHARE_4_0,
            tolerates_missing_groups=True,
            consumer_replaces_simple=True,
        ),
        coordinators=(Loader.JAVA, Loader.SCALA),
        tools=lambda was: replace(was, dumped_key_types=frozenset(range(17))),
        inferred_from=(Sign.NUMBERED_BATCHES,),
        patches=(Patch("4.0.1", new=_pending_commit_holds_group), Patch("4.0.2", new=_tolerates_owned_partitions)),
    ),
    Line(
        "4.1",
        "4.1.2",
        new=lambda was: replace(
            was,
            name="J2",
            known_key_types=was.known_key_types - {9} | STREAMS_KEY_TYPES,
            max_legacy_offset_value_version=0,
            value_layout=ValueLayout.CURRENT,
            tolerates_missing_share_groups=True,
            expiry=replace(
                was.expiry,
                # Seen on 4.1.1 and 4.1.2: no patch of the line has the correction.
                knows_sources=False,
                pending_hold=PendingHold.OFFSET_KEY,
                share_sweep=ShareSweep.LEAVES,
            ),
        ),
        coordinators=(Loader.JAVA,),
        tools=lambda was: replace(was, dumped_key_types=was.dumped_key_types - {9} | STREAMS_KEY_TYPES),
        new_fields=(
            "OffsetCommitValue.topicId",
            "ConsumerGroupMetadataValue.metadataHash",
            "ShareGroupMetadataValue.metadataHash",
        ),
        patches=(Patch("4.1.2", new=_tolerates_owned_partitions),),
    ),
    Line(
        "4.2",
        "4.2.1",
        new=lambda was: _tolerates_owned_partitions(
            replace(was, name="J3", reads_validated_topology=True, expiry=replace(was.expiry, knows_sources=True))
        ),
        new_fields=(
            "StreamsGroupMetadataValue.validatedTopologyEpoch",
            "StreamsGroupMetadataValue.lastAssignmentConfigs",
            "StreamsGroupCurrentMemberAssignmentValue.assignmentEpochs",
        ),
        patches=(Patch("4.2.1", new=lambda was: replace(was, streams_replaces_simple=True)),),
    ),
    Line(
        "4.3",
        "4.3.1",
        new=lambda was: replace(
            was, streams_replaces_simple=True, initial_epoch=1, describes_pending_revocation=True, requests=NEW_4_3
        ),
        tools=_text(DumpText.JSON_WITHOUT_SLIP),
        new_fields=(
            "ConsumerGroupCurrentMemberAssignmentValue.assignmentEpochs",
            "ConsumerGroupTargetAssignmentMetadataValue.assignmentTimestamp",
            "ShareGroupTargetAssignmentMetadataValue.assignmentTimestamp",
            "StreamsGroupTargetAssignmentMetadataValue.assignmentTimestamp",
        ),
        inferred_from=(Sign.COMMITS_V4, Sign.NOTHING),
    ),
    Line(
        "4.4",
        "4.4.0",
        new=lambda was: replace(
            was,
            name="J4",
            subscription_reading=SubscriptionReading.HARMLESS,
            expiry=replace(was.expiry, share_sweep=ShareSweep.FAILS_ON_OFFSETS),
            requests=NEW_4_4,
        ),
        new_fields=(
            "StreamsGroupMetadataValue.storedDescriptionTopologyEpoch",
            "StreamsGroupMetadataValue.failedDescriptionTopologyEpoch",
        ),
    ),
    Line("4.5", new=_modern_groups_not_compared),
)
"""Oldest first."""
