"""Rules about things that belong together: groups and offsets, transactions and the offsets that they hold up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.model import GroupType, TransactionOutcome
from coordinator_core.releases import SHARE_KEY_TYPES
from coordinator_core.rules.columns import coded, combined_pair, is_in
from coordinator_core.rules.commits import first_of_each, first_of_topics, group_of_offsets
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.model import Limits, Rule, Severity


def _no_offsets(facts: Facts, _: Limits) -> pa.Table:
    groups, pending = facts.groups, facts.table("pending_offsets")
    names = coded(groups.array("group_id"), pending.array("group_id"))[0]
    here, open_ = combined_pair(
        (groups.numbers("offsets_partition"), names[0]), (pending.numbers("offsets_partition"), names[1])
    )
    bad = (
        ~facts.group_rows_with(facts.group_row("offsets"))
        & ~is_in(here, open_)
        & ~groups.equals("type", GroupType.SHARE)
        & ~facts.is_of_workers
    )
    return groups.rows(bad, "group_id", "type", "state", "member_count")


def _no_group(facts: Facts, _: Limits) -> pa.Table:
    if not facts.profile.keeps_offsets_only_groups:
        # 0.9.0 to 0.10.0 keep no group for offsets that came without one.
        return facts.offsets.rows(np.zeros(len(facts.offsets), np.bool_), "group_id")
    bad = np.flatnonzero(facts.group_row("offsets") < 0)
    rows, count = first_of_each(group_of_offsets(facts)[bad], bad)
    return facts.offsets.rows(rows, "group_id", "commit_timestamp_ms", rows=count)


def _only_offset_tombstones(facts: Facts, _: Limits) -> pa.Table:
    stats = facts.table("group_stats")
    tables = [facts.groups, facts.offsets, stats]
    names = coded(*(table.array("group_id") for table in tables))[0]
    keys = [table.numbers("offsets_partition") << 32 | name for table, name in zip(tables, names, strict=True)]
    offset_type = stats.numbers("key_type") <= 1
    other = keys[2][~offset_type]
    bad = offset_type & (stats.numbers("tombstones") > 0)
    for known in (keys[0], keys[1], other):
        bad &= ~is_in(keys[2], known)
    return stats.rows(bad, "group_id", "tombstones", "last_timestamp_ms")


def _offsets_of_share_group(facts: Facts, _: Limits) -> pa.Table:
    group = facts.group_row("offsets")
    bad = np.flatnonzero(facts.of_groups(facts.groups.equals("type", GroupType.SHARE), group))
    rows, count = first_of_topics(facts, bad)
    return facts.offsets.rows(rows, "group_id", "topic", "partition", rows=count)


def _hanging(facts: Facts, limits: Limits) -> pa.Table:
    transactions = facts.table("transactions")
    timeout = limits["transaction_max_timeout_ms"]
    is_timed = transactions.numbers("timestamp_ms") >= 0
    is_open = transactions.equals("outcome", TransactionOutcome.OPEN) & is_timed
    bad = is_open & (transactions.numbers("age_ms") > timeout)
    rows = transactions.rows(bad, "producer_id", "producer_epoch", "keys", "timestamp_ms", "age_ms", "groups")
    groups = rows["groups"].combine_chunks()
    names = pc.binary_join(groups.cast(pa.list_(pa.string())), ", ")
    first = pa.array([names[0] if names else None for names in groups.to_pylist()], pa.string())
    return rows.drop_columns(["groups"]).append_column("group_id", first).append_column("groups", names)


def _blocked(facts: Facts, limits: Limits) -> pa.Table:
    transactions = facts.table("transactions")
    open_ = transactions.equals("outcome", TransactionOutcome.OPEN)
    partition, first = transactions.numbers("offsets_partition"), transactions.numbers("record_offset")
    end_of = {int(name): bounds["log_end_offset"] for name, bounds in facts.run.manifest["cut"].items()}
    end = np.array([end_of.get(number, 0) for number in partition.tolist()], np.int64)
    order = np.flatnonzero(open_)[np.lexsort((first[open_], partition[open_]))]
    _, oldest = np.unique(partition[order], return_index=True)
    rows = order[oldest]
    rows = rows[end[rows] - first[rows] > limits["blocked_records"]]
    more = {"log_end_offset": end[rows], "blocked_records": end[rows] - first[rows]}
    return transactions.rows(rows, "producer_id", "producer_epoch", "timestamp_ms", **more)


HANGING = Rule(
    "R50",
    "hanging-transaction",
    Severity.CRITICAL,
    summary="A transaction is open, and its newest record is older than any producer may ask for.",
    why="Its marker will not come (KAFKA-12979, KAFKA-15449). Its offsets stay pending, consumers that read "
    "committed offsets get UNSTABLE_OFFSET_COMMIT, nothing behind it is cleaned.",
    evidence="Its first record, producer id and epoch, age and time of its newest record, groups, how many offsets it "
    "holds.",
    remedy="kafka-transactions --bootstrap-server … abort --topic __consumer_offsets --partition "
    "<offsets partition> --start-offset <record offset>",
    message="the transaction of producer {producer_id}, epoch {producer_epoch}, is open, its newest record is "
    "{age_ms} ms old, and it holds {keys:offset} of {groups}",
    reads=("transactions",),
    thresholds=("transaction_max_timeout_ms",),
    find=_hanging,
)
BLOCKED = Rule(
    "R53",
    "last-stable-offset-stuck",
    Severity.WARNING,
    summary="Many records lie behind the oldest open transaction of an offsets partition.",
    why="The last stable offset does not move past it: the cleaner stops there, the partition grows, and so "
    "does the time to load it.",
    evidence="First record of the transaction, log end offset.",
    remedy="Find the producer: kafka-transactions describe-producers. If it is gone, abort the transaction.",
    message="{blocked_records:record} behind the open transaction of producer {producer_id}",
    reads=("transactions",),
    thresholds=("blocked_records",),
    find=_blocked,
)
NO_OFFSETS = Rule(
    "R64",
    "group-without-offsets",
    Severity.INFO,
    summary="A group has no committed offset; share groups and those of workers, as of Connect, never have one.",
    why="It has never committed, keeps its offsets elsewhere, or lost them: its consumers start from "
    "auto.offset.reset.",
    evidence="State and members of the group.",
    remedy="None if it is new, or stores offsets outside Kafka.",
    message="{group_id} ({state}, {member_count:member}) has no committed offset",
    reads=("groups", "offsets", "pending_offsets"),
    find=_no_offsets,
)
NO_GROUP = Rule(
    "R65",
    "offsets-without-group",
    Severity.WARNING,
    summary="There are committed offsets whose group does not exist.",
    why="A group tombstone came after them. The Java coordinator answers no request for them and never "
    "expires them; the Scala one brings them back as a group at the next load.",
    evidence="How many; one of the commits.",
    remedy="Compact them away, or create the group again by a commit and delete it.",
    message="offsets of {group_id}, which does not exist",
    reads=("offsets", "groups"),
    find=_no_group,
    also=("D4",),
)
ONLY_OFFSET_TOMBSTONES = Rule(
    "R66",
    "group-ended-without-tombstone",
    Severity.INFO,
    summary="All offsets of a group were deleted, and no group tombstone was written.",
    why="The Scala coordinator writes none for groups that never had members. Monitors that wait for it list "
    "the group for ever (Burrow #818).",
    evidence="How many tombstones.",
    remedy="None on the broker; monitors must take a group without offsets for gone.",
    message="{group_id} ended with {tombstones:tombstone} of offsets and none of the group",
    reads=("group_stats", "groups", "offsets"),
    find=_only_offset_tombstones,
)
OFFSETS_OF_SHARE_GROUP = Rule(
    "R68",
    "offsets-of-share-group",
    Severity.WARNING,
    summary="Committed offsets are stored under the id of a share group.",
    why="Share groups keep their state elsewhere; such offsets block the sweep that expires offsets in 4.4 "
    "and later, for all groups of the partition.",
    evidence="How many; one of the commits.",
    remedy="Let the share group have another id, and delete this one while it is empty, before the upgrade: "
    "kafka-share-groups --delete takes them along. OffsetDelete knows no share groups.",
    message="share group {group_id} has committed offsets of {topic}",
    reads=("offsets", "groups"),
    find=_offsets_of_share_group,
    applies=lambda profile: not profile.known_key_types.isdisjoint(SHARE_KEY_TYPES),
    also=("D5",),
)
