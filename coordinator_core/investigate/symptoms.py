"""From what people see or search for to the explanations that matter.

A name is a part of what they say; of one with `` … `` in it both parts, in either order.
"""

from __future__ import annotations

from itertools import chain

_SYMPTOMS = (
    (
        "OFFSET_OUT_OF_RANGE, OutOfRange, Resetting offset, out of range, auto.offset.reset",
        "jumped-forward committed-beyond-log-end committed-below-log-start topic-recreated "
        "committed-for-missing-topic offsets-expired offsets-expired-while-active offsets-deleted topic-deleted",
    ),
    (
        "reprocess, duplicate, from the beginning, from beginning, from scratch, from offset 0, NO_OFFSET, "
        "NoOffsetForPartition, no committed offset, Undefined offset, earliest, twice, redeliver, offset … lost, "
        "offset … gone, offset … missing, offset … vanish, offset … disappear, offset … expir, offset … delet, "
        "offset … wiped, offset … reset",
        "offsets-expired-while-active offsets-expired groups-lost-offsets-together offsets-deleted "
        "removed-offsets-cleaned reset-by-admin offsets-set-again-and-again synced-over-own-commits stale-commit "
        "moved-back commits-end-with-coordinator left-long-after-last-commit negative-offset-committed two-owners "
        "commit-overtaken tombstones-without-a-rule log-start-moved group-in-two-partitions group-out-of-reach "
        "two-writers offsets-topic-copied commits-refused-beside-members group-id-not-filled-in "
        "commit-after-losing-partition topic-recreated group-is-empty never-committed group-took-over group-is-new "
        "groups-went-back-together offsets-topic-anew partitions-moved-in-one-rebalance commits-out-of-order "
        "transactions-aborted clock-went-back",
    ),
    (
        "skipped, missing records, lost messages, missing messages, not delivered, lag became 0",
        "jumped-forward skipped-by-admin synced-over-own-commits commits-missing-at-failover commits-paused "
        "partition-begun-late subscription-not-applied record-passed-at-close committed-one-too-many "
        "members-of-two-kinds group-id-not-filled-in offsets-topic-anew offsets-expired offsets-deleted guest-in-group",
    ),
    (
        "lag, negative",
        "committed-beyond-log-end committed-below-log-start partition-stopped committed-one-too-many "
        "instance-ids-do-not-last member-stopped group-stopped restarts-without-progress group-behind record-not-done "
        "stands-still nothing-assigned partitions-left-out scaled-up-and-down left-long-after-last-commit "
        "commits-end-with-coordinator lag-of-one partitions-unassigned topic-unsubscribed committed-for-missing-topic "
        "members-without-partitions rebalance-storm flapping-member mirror-translates-back jumped-forward "
        "partitions-without-owner mixed-subscriptions group-is-empty topic-recreated",
    ),
    (
        "COORDINATOR_LOAD_IN_PROGRESS, CoordinatorLoadInProgress, coordinator is loading, stuck loading, loading, "
        "slow start",
        "load-never-ends batch-larger-than-load-buffer preallocated-segment load-refused load-at-risk heavy-writer "
        "not-cleaned cleaner-stopped transaction-leftovers-pile-up",
    ),
    (
        "NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, CoordinatorNotAvailable, NotCoordinator, not coordinator, "
        "not the correct coordinator, coordinator not available, coordinator is not available, "
        "coordinator is unavailable, Waiting for coordinator, IllegalStateException, still owned, is not a",
        "offsets-topic-without-replicas offsets-partition-silent offsets-partition-paused "
        "commits-end-with-coordinator coordinator-moves load-refused load-at-risk load-never-ends group-id-reused "
        "mixed-message-formats group-in-two-partitions group-out-of-reach",
    ),
    (
        "REBALANCE_IN_PROGRESS, rebalanc, UNKNOWN_MEMBER_ID, UnknownMemberId, not aware of this member, "
        "Unknown member, ILLEGAL_GENERATION, IllegalGeneration, generation id is not valid, CommitFailed, "
        "commit cannot be completed, heartbeat failed, max.poll",
        "rebalance-storm flapping-member duplicate-instance-id mixed-subscriptions protocol-type-changed "
        "rebalances-by-the-clock commits-refused-beside-members instance-ids-do-not-last scaled-up-and-down "
        "group-crowded assignor-changed restarts-without-progress group-stopped groups-rebalanced-together "
        "partitions-not-released partitions-moved-in-one-rebalance",
    ),
    (
        "FENCED_INSTANCE_ID, FencedInstanceId, group.instance.id, UNRELEASED_INSTANCE_ID, UnreleasedInstanceId",
        "duplicate-instance-id static-members-fenced instance-ids-do-not-last member-stopped",
    ),
    (
        "INCONSISTENT_GROUP_PROTOCOL, InconsistentGroupProtocol, incompatible with those of existing members",
        "protocol-type-changed assignor-changed mixed-subscriptions group-changed-type",
    ),
    (
        "NOT_ENOUGH_REPLICAS, NotEnoughReplicas, min.insync.replicas, commit timed out, commit fail",
        "commits-paused commits-end-with-coordinator commits-missing-at-failover offsets-topic-without-replicas "
        "mixed-message-formats",
    ),
    (
        "OFFSET_METADATA_TOO_LARGE, OffsetMetadataTooLarge, offset.metadata.max, parallel consumer",
        "metadata-near-limit record-not-done",
    ),
    (
        "GROUP_ID_NOT_FOUND, GroupIdNotFound, group does not exist, group disappeared, group is gone",
        "offsets-deleted offsets-expired groups-lost-offsets-together group-in-two-partitions group-out-of-reach "
        "load-refused tombstones-without-a-rule",
    ),
    (
        "sync.group.offsets, MirrorMaker, MM2, failover cluster, checkpoint",
        "offsets-topic-copied synced-over-own-commits reset-undone-by-sync mirror-translates-back two-writers "
        "committed-beyond-log-end commits-from-outside-stopped",
    ),
    (
        "reset did not, reset does not, reset undone, reset has no effect, jumps back, set back",
        "reset-undone-by-sync reset-without-effect synced-over-own-commits offsets-set-again-and-again two-writers "
        "commit-overtaken moved-back",
    ),
    (
        "crash, CrashLoop, OutOfMemory, OOMKilled, keeps restarting, poison",
        "record-passed-at-close restarts-without-progress flapping-member partition-stopped rebalance-storm",
    ),
    (
        "UNKNOWN_TOPIC_OR_PARTITION, UnknownTopicOrPartition, topic does not exist",
        "committed-for-missing-topic topic-deleted topic-recreated",
    ),
    (
        "PreparingRebalance, CompletingRebalance",
        "group-stopped group-silent rebalance-storm flapping-member restarts-without-progress",
    ),
    (
        "idle, no partitions, nobody consumes, not consumed, stuck, stops consuming, not moving",
        "record-not-done stands-still nothing-assigned partitions-left-out subscription-not-applied partition-stopped "
        "member-stopped member-silent restarts-without-progress partition-never-committed partitions-not-released "
        "group-stopped group-silent offsets-partition-silent partitions-unassigned partitions-without-owner "
        "members-without-partitions mixed-subscriptions offsets-topic-without-replicas group-is-empty "
        "transactions-aborted",
    ),
    (
        "ping-pong, to and fro, back and forth, alternat",
        "two-writers synced-over-own-commits moved-back commits-out-of-order",
    ),
    (
        "broker down, halt, all consumers",
        "offsets-topic-without-replicas offsets-partition-silent offsets-partition-paused coordinator-moves "
        "load-refused load-never-ends",
    ),
    (
        "UNSTABLE_OFFSET_COMMIT, hanging, last stable offset, read_committed",
        "hanging-transaction open-transaction commit-overtaken",
    ),
    (
        "disk, grow, huge, large, too big, cleaner, compact, marker",
        "heavy-writer not-cleaned cleaner-stopped preallocated-segment hanging-transaction "
        "transaction-leftovers-pile-up empty-segments empty-batches one-shot-groups",
    ),
    ("too many groups, uuid, random group", "one-shot-groups"),
    ("downgrade, upgrade, roll back", "load-refused load-at-risk"),
    ("preallocat, Record size 0, minimum record overhead", "preallocated-segment"),
    ("staging, environment, half of", "members-of-two-kinds two-writers mixed-subscriptions"),
    ("lz4, checksum", "old-lz4-checksum"),
    ("connector", "connector-offsets-stay"),
    (
        "no active members, no members, inactive",
        "commits-without-members commits-from-outside-stopped group-is-empty share-group",
    ),
    (
        "ABORT, PRODUCER_FENCED, ProducerFenced, InvalidProducerEpoch, INVALID_PRODUCER_EPOCH, fenced",
        "producer-begins-again transactions-aborted commit-overtaken",
    ),
    (
        "RecordTooLarge, MESSAGE_TOO_LARGE, UNKNOWN_SERVER_ERROR, GROUP_MAX_SIZE_REACHED, group.max.size",
        "record-near-max-message-bytes group-crowded",
    ),
    ("autoscal, KEDA, scale down, scaled down", "scaled-up-and-down left-long-after-last-commit"),
    ("probing, warmup, warm-up", "rebalances-by-the-clock"),
    ("new group, application.id, renamed", "group-took-over group-is-new"),
    ("clock, NTP, timestamps", "clock-went-back"),
    ("share group, acknowledge", "share-group share-offsets-set share-offsets-deleted"),
    ("FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH, session.timeout", "flapping-member rebalance-storm"),
    ("group.protocol, KIP-848, migrat", "group-changed-type group-type-goes-to-and-fro load-refused load-at-risk"),
)
"""What people say, separated by commas, and the codes that explain it, the first ones first."""


def codes_for(symptom: str) -> tuple[str, ...] | None:
    """Codes of the explanations that a symptom leads to, the first ones first; ``None`` if it is not known."""
    text = symptom.lower()
    found = [
        codes.split()
        for names, codes in _SYMPTOMS
        if any(all(part in text for part in name.split(" … ")) for name in names.lower().split(", "))
    ]
    return tuple(dict.fromkeys(chain.from_iterable(found))) or None


def known_symptoms() -> tuple[str, ...]:
    """One name of each kind of symptom."""
    return tuple(names.partition(", ")[0] for names, _ in _SYMPTOMS)
