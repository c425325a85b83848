"""From what people see or search for to the explanations that matter."""

from __future__ import annotations

_SYMPTOMS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        ("OFFSET_OUT_OF_RANGE", "Resetting offset", "out of range", "auto.offset.reset"),
        (
            "jumped-forward",
            "committed-beyond-log-end",
            "committed-below-log-start",
            "topic-recreated",
            "offsets-expired",
            "offsets-expired-while-active",
            "offsets-deleted",
            "topic-deleted",
        ),
    ),
    (
        ("reprocess", "duplicate", "from the beginning", "NO_OFFSET", "no committed offset", "earliest", "twice"),
        (
            "offsets-expired-while-active",
            "offsets-expired",
            "offsets-deleted",
            "reset-by-admin",
            "stale-commit",
            "moved-back",
            "negative-offset-committed",
            "two-owners",
            "commit-overtaken",
            "tombstones-without-a-rule",
            "log-start-moved",
            "group-in-two-partitions",
            "two-writers",
            "commit-after-losing-partition",
            "topic-recreated",
            "group-is-empty",
            "never-committed",
            "group-took-over",
            "group-is-new",
            "transactions-aborted",
            "clock-went-back",
        ),
    ),
    (
        ("skipped", "missing records", "lost messages", "lag became 0"),
        ("jumped-forward", "skipped-by-admin", "commits-missing-at-failover", "guest-in-group"),
    ),
    (
        ("lag", "negative"),
        (
            "committed-beyond-log-end",
            "committed-below-log-start",
            "partition-stopped",
            "group-stopped",
            "group-behind",
            "partitions-unassigned",
            "topic-unsubscribed",
            "members-without-partitions",
            "rebalance-storm",
            "flapping-member",
            "mirror-translates-back",
            "jumped-forward",
            "partitions-without-owner",
            "mixed-subscriptions",
            "group-is-empty",
        ),
    ),
    (
        ("COORDINATOR_LOAD_IN_PROGRESS", "stuck loading", "loading"),
        ("load-never-ends", "batch-larger-than-load-buffer", "load-refused", "load-at-risk", "heavy-writer"),
    ),
    (
        ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "IllegalStateException", "still owned", "is not a"),
        (
            "offsets-topic-without-replicas",
            "coordinator-moves",
            "load-refused",
            "load-at-risk",
            "load-never-ends",
            "group-id-reused",
            "group-in-two-partitions",
        ),
    ),
    (
        ("REBALANCE_IN_PROGRESS", "rebalanc", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "CommitFailed", "max.poll"),
        (
            "rebalance-storm",
            "flapping-member",
            "duplicate-instance-id",
            "mixed-subscriptions",
            "group-stopped",
            "groups-rebalanced-together",
            "partitions-not-released",
        ),
    ),
    (("FENCED_INSTANCE_ID", "FencedInstanceId"), ("duplicate-instance-id",)),
    (
        ("idle", "no partitions", "nobody consumes", "not consumed", "stuck", "stops consuming", "not moving"),
        (
            "partition-stopped",
            "partition-never-committed",
            "partitions-not-released",
            "group-stopped",
            "group-silent",
            "partitions-unassigned",
            "partitions-without-owner",
            "members-without-partitions",
            "mixed-subscriptions",
            "offsets-topic-without-replicas",
            "group-is-empty",
            "transactions-aborted",
        ),
    ),
    (("ping-pong", "to and fro", "jumps back and forth", "alternat"), ("two-writers", "moved-back")),
    (
        ("broker down", "halt", "all consumers"),
        ("offsets-topic-without-replicas", "coordinator-moves", "load-refused", "load-never-ends"),
    ),
    (
        ("UNSTABLE_OFFSET_COMMIT", "hanging", "last stable offset", "read_committed"),
        ("hanging-transaction", "commit-overtaken"),
    ),
    (
        ("disk", "grows", "large", "too big", "cleaner"),
        ("heavy-writer", "not-cleaned", "hanging-transaction", "empty-segments", "one-shot-groups"),
    ),
    (("too many groups", "uuid", "random group"), ("one-shot-groups",)),
    (("downgrade", "upgrade", "roll back"), ("load-refused", "load-at-risk")),
    (("lz4", "checksum"), ("old-lz4-checksum",)),
    (("connector",), ("connector-offsets-stay",)),
    (("no active members", "no members", "inactive"), ("commits-without-members", "group-is-empty", "share-group")),
    (("ABORT", "PRODUCER_FENCED", "ProducerFenced"), ("transactions-aborted", "commit-overtaken")),
    (("RecordTooLarge", "MESSAGE_TOO_LARGE", "UNKNOWN_SERVER_ERROR"), ("record-near-max-message-bytes",)),
    (("new group", "application.id", "renamed"), ("group-took-over", "group-is-new")),
    (("clock", "NTP", "timestamps"), ("clock-went-back",)),
    (("share group", "acknowledge"), ("share-group",)),
    (("FENCED_MEMBER_EPOCH", "STALE_MEMBER_EPOCH", "session.timeout"), ("flapping-member", "rebalance-storm")),
    (("group.protocol", "KIP-848", "migrat"), ("group-changed-type", "load-refused", "load-at-risk")),
)


def codes_for(symptom: str) -> tuple[str, ...] | None:
    """Codes of the explanations that a symptom leads to, the first ones first; ``None`` if it is not known."""
    text = symptom.lower()
    found = [code for words, codes in _SYMPTOMS if any(word.lower() in text for word in words) for code in codes]
    return tuple(dict.fromkeys(found)) or None


def known_symptoms() -> tuple[str, ...]:
    """One name of each kind of symptom."""
    return tuple(words[0] for words, _ in _SYMPTOMS)
