"""Rules about committed offsets: against the topics, against the groups, and on their own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.model import GroupType
from coordinator_core.groups.offsets import metadata_length
from coordinator_core.rules.columns import OFFSET_KEY, Bools, Int64s, coded, combined, combined_pair, is_in, lookup
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.model import Limits, Rule, Severity
from coordinator_core.rules.needs import Need
from coordinator_core.rules.topics import lag_between


def first_of_each(key: Int64s, rows: Int64s) -> tuple[Int64s, pa.Array]:
    """The first of ``rows`` with each value of ``key`` (one a row), and the number of rows that each stands for."""
    _, first, count = np.unique(key, return_index=True, return_counts=True)
    return rows[first], pa.array(count)


def same_topic(facts: Facts) -> Bools:
    """Committed offsets that name no topic id, or the id of the live topic."""
    of_commit = facts.offsets.array("topic_id").cast(pa.string())
    same: Bools = pc.fill_null(pc.equal(of_commit, facts.live_ids(facts.offset_topic)), True).to_numpy(
        zero_copy_only=False
    )
    return same


def _beyond_end(facts: Facts, _: Limits) -> pa.Table:
    assert facts.topics is not None
    at = facts.offset_place
    end = np.where(at < 0, -1, facts.topics.end[at] if len(facts.topics.end) else -1)
    bad = (end >= 0) & (facts.offsets.numbers("committed_offset") > end) & same_topic(facts)
    if facts.topics.captured_at_ms is not None:
        # The partition went on after its end was noted.
        bad &= facts.offsets.numbers("commit_timestamp_ms") <= facts.topics.captured_at_ms
    columns = (*OFFSET_KEY, "committed_offset", "leader_epoch", "commit_timestamp_ms")
    skipped = facts.offsets.numbers("committed_offset")[bad] - end[bad]
    return facts.offsets.rows(bad, *columns, log_end_offset=end[bad], beyond=skipped)


def _below_start(facts: Facts, _: Limits) -> pa.Table:
    assert facts.topics is not None
    at = facts.offset_place
    start = np.where(at < 0, -1, facts.topics.start[at] if len(facts.topics.start) else -1)
    committed = facts.offsets.numbers("committed_offset")
    bad = (start >= 0) & (committed >= 0) & (committed < start) & same_topic(facts)
    end = facts.topics.end[at[bad]] if len(facts.topics.end) else start[bad]
    more = {
        "log_start_offset": start[bad],
        "removed_unread": start[bad] - committed[bad],
        "lag": lag_between(committed[bad], start[bad], end),
    }
    return facts.offsets.rows(bad, *OFFSET_KEY, "committed_offset", "commit_timestamp_ms", **more)


def _no_leader_epoch(facts: Facts, _: Limits) -> pa.Table:
    # Offset 0 is what a consumer commits of a partition of which it has read nothing.
    bad = np.flatnonzero(facts.offsets.is_null("leader_epoch") & (facts.offsets.numbers("committed_offset") != 0))
    rows, count = first_of_each(group_of_offsets(facts)[bad], bad)
    return facts.offsets.rows(rows, "group_id", "value_version", rows=count)


def group_of_offsets(facts: Facts) -> Int64s:
    """One number for the offsets partition and the group id of each committed offset."""
    codes = facts.offsets.array("group_id").indices.to_numpy(zero_copy_only=False).astype(np.int64)
    key: Int64s = facts.offsets.numbers("offsets_partition") << 32 | codes
    return key


def first_of_topics(facts: Facts, bad: Int64s) -> tuple[Int64s, pa.Array]:
    """:func:`first_of_each` of committed offsets: one for each group and topic, as mutes name them."""
    return first_of_each(combined(group_of_offsets(facts), facts.offset_topic)[bad], bad)


def _other_topic_id(facts: Facts, _: Limits) -> pa.Table:
    rows, count = first_of_topics(facts, np.flatnonzero(~same_topic(facts)))
    columns = ("group_id", "topic", "topic_id", "committed_offset")
    live = facts.live_ids(facts.offset_topic[rows])
    return facts.offsets.rows(rows, *columns, live_topic_id=live, rows=count)


def _no_topic(facts: Facts, _: Limits) -> pa.Table:
    rows, count = first_of_topics(facts, np.flatnonzero(facts.offset_place < 0))
    return facts.offsets.rows(rows, *OFFSET_KEY, "commit_timestamp_ms", rows=count)


def _odd_time(facts: Facts, limits: Limits) -> pa.Table:
    time = facts.offsets.numbers("commit_timestamp_ms", null=0)
    bad = (time > facts.now_ms + limits["clock_skew_ms"]) | (time <= 0)
    return facts.offsets.rows(bad, *OFFSET_KEY, "commit_timestamp_ms", now_ms=facts.now_ms)


def _metadata_units(facts: Facts, least: float) -> Int64s:
    """Lengths of metadata as brokers count them, where they may be above ``least``; 0 elsewhere."""

    def units(metadata: pa.Array) -> Int64s:
        found = np.zeros(len(metadata), np.int64)
        # No character has fewer bytes in UTF-8 than units in UTF-16.
        candidates = np.flatnonzero(pc.greater(pc.binary_length(metadata), least).to_numpy(zero_copy_only=False))
        found[candidates] = [metadata_length(text) for text in metadata.take(pa.array(candidates)).to_pylist()]
        return found

    return facts.offsets.each("metadata", units)


def _long_metadata(facts: Facts, limits: Limits) -> pa.Table:
    limit = int(limits["offset_metadata_max_bytes"])
    length = _metadata_units(facts, limit)
    bad = np.flatnonzero(length > limit)
    return facts.offsets.rows(bad, *OFFSET_KEY, metadata_length=length[bad], limit=limit)


def _by_nobody(facts: Facts, _: Limits) -> pa.Table:
    offsets, members = facts.offsets, facts.members
    group, row = facts.group_row("offsets"), facts.group_row("members")
    newest = facts.groups.numbers("record_offset").copy()
    classic = facts.groups.equals("type", GroupType.CLASSIC)
    np.maximum.at(newest, row[row >= 0], members.numbers("assignment_record_offset")[row >= 0])
    size = pc.fill_null(pc.binary_length(members.array("assignment_data")), 0).to_numpy(zero_copy_only=False)
    judged = facts.is_active & facts.subscription_is_known & facts.ownership_is_known
    judged &= ~facts.group_rows_with(np.where(classic[row] & (size == 0), row, -1))
    known = facts.of_groups(judged, group) & (offsets.numbers("record_offset") > facts.of_groups(newest, group))
    rows = np.flatnonzero(known)
    rows = rows[is_in(facts.group_topic(group[rows], facts.offset_topic[rows]), facts.subscribed_keys())]
    assigned = facts.assigned
    rows = rows[~_is_of(facts, rows, (assigned.group, assigned.topic, assigned.partition))]
    rows = rows[~_is_of(facts, rows, facts.handed_over(group[rows]))]
    return offsets.rows(rows, *OFFSET_KEY, "committed_offset", "commit_timestamp_ms")


def _is_of(facts: Facts, rows: Int64s, partitions: tuple[Int64s, Int64s, Int64s]) -> Bools:
    """Which committed offsets are of these ``partitions``: rows in ``groups``, numbers of topics, partitions."""
    group, topic = facts.group_row("offsets")[rows], facts.offset_topic[rows]
    offset_key, wanted = combined_pair((group, topic, facts.offsets.numbers("partition")[rows]), partitions)
    found: Bools = is_in(offset_key, wanted)
    return found


def _silent(facts: Facts, limits: Limits) -> pa.Table:
    newest = facts.newest_commit_ms
    allowed = limits["offsets_retention_ms"] * limits["silent_share"]
    tasks = pc.list_value_length(pc.struct_field(facts.members.array("tasks"), "active_tasks"))
    has_tasks = pc.greater(pc.fill_null(tasks, 0), 0).to_numpy(zero_copy_only=False)
    owns = facts.group_rows_with(np.append(facts.assigned.group, facts.group_row("members")[has_tasks]))
    bad = facts.is_active & owns & (newest > 0) & (facts.now_ms - newest > allowed)
    more = {"newest_commit_ms": newest[bad], "silent_ms": facts.now_ms - newest[bad]}
    return facts.groups.rows(bad, "group_id", "state", "member_count", **more)


def _storm(facts: Facts, limits: Limits) -> pa.Table:
    stats, offsets = facts.table("group_stats"), facts.offsets
    key_type, tombstones = stats.numbers("key_type"), stats.numbers("tombstones")
    commits = stats.numbers("records") - tombstones
    duration = stats.numbers("last_timestamp_ms") - stats.numbers("first_timestamp_ms")
    rate = commits * 1000 / np.maximum(duration, 1000)
    # A record without a time leaves the duration unknown.
    judged = (key_type <= 1) & (stats.numbers("first_timestamp_ms") >= 0)
    bad = judged & (commits >= limits["storm_commits"]) & (rate > limits["storm_commits_per_second"])
    # One commit of a consumer is a record for each of its partitions: those that stand, and those that were deleted.
    names = coded(stats.array("group_id"), offsets.array("group_id"))[0]
    of_stats, of_offsets = combined_pair(
        (stats.numbers("offsets_partition"), names[0]), (offsets.numbers("offsets_partition"), names[1])
    )
    groups, count = np.unique(of_offsets, return_counts=True)
    partitions = np.maximum(np.append(count, 0)[lookup(of_stats, groups)] + tombstones, 1)
    bad &= rate > limits["storm_commits_of_partition_per_second"] * partitions
    more = {"commits": commits[bad], "commits_per_second": np.rint(rate[bad]).astype(np.int64)}
    more["partitions"] = partitions[bad]
    return stats.rows(bad, "group_id", "size_bytes", "first_timestamp_ms", "last_timestamp_ms", **more)


def _not_subscribed(facts: Facts, _: Limits) -> pa.Table:
    group = facts.group_row("offsets")
    judged = facts.is_active & facts.topics_are_known
    rows = np.flatnonzero(facts.of_groups(judged, group))
    key = facts.group_topic(group[rows], facts.offset_topic[rows])
    bad = ~is_in(key, facts.subscribed_keys())
    rows, count = first_of_each(key[bad], rows[bad])
    return facts.offsets.rows(rows, "group_id", "topic", "commit_timestamp_ms", rows=count)


def _negative(facts: Facts, _: Limits) -> pa.Table:
    bad = facts.offsets.numbers("committed_offset") < 0
    return facts.offsets.rows(bad, *OFFSET_KEY, "committed_offset")


def _near_limit(facts: Facts, limits: Limits) -> pa.Table:
    limit = int(limits["offset_metadata_max_bytes"])
    least = float(limits["metadata_share"] * limit)
    length = _metadata_units(facts, least)
    rows, count = first_of_topics(facts, np.flatnonzero((length > least) & (length <= limit)))
    return facts.offsets.rows(rows, *OFFSET_KEY, metadata_length=length[rows], limit=limit, rows=count)


def _stopped(facts: Facts, limits: Limits) -> pa.Table:
    assert facts.topics is not None
    offsets, assigned = facts.offsets, facts.assigned
    judged = facts.of_groups(facts.is_active, facts.group_row("offsets")) & (facts.offset_place >= 0)
    rows = np.flatnonzero(judged)
    wanted, owned = combined_pair(
        (facts.group_row("offsets")[rows], facts.offset_topic[rows], offsets.numbers("partition")[rows]),
        (assigned.group, assigned.topic, assigned.partition),
    )
    first = np.unique(owned, return_index=True)[1]
    at = lookup(wanted, owned[first])
    rows, member = rows[at >= 0], assigned.member[first[at[at >= 0]]]
    time = offsets.numbers("commit_timestamp_ms")[rows]
    newest = np.full(len(facts.members) + 1, -1, np.int64)
    np.maximum.at(newest, member, time)
    quiet = newest[member] - time
    place = facts.offset_place[rows]
    start, end, committed = (
        facts.topics.start[place],
        facts.topics.end[place],
        offsets.numbers("committed_offset")[rows],
    )
    lag = np.where(end < 0, 0, lag_between(committed, start, end))
    judged = (committed >= start) & (committed <= end) & (time > 0) & same_topic(facts)[rows]
    bad = judged & (quiet >= limits["stopped_ms"]) & (lag >= limits["stopped_lag"])
    members = facts.members.array("member_id").take(pa.array(member[bad]))
    more = {"member_id": members, "lag": lag[bad], "quiet_ms": quiet[bad]}
    return offsets.rows(rows[bad], *OFFSET_KEY, "committed_offset", "commit_timestamp_ms", **more)


BEYOND_END = Rule(
    "R31",
    "committed-beyond-log-end",
    Severity.CRITICAL,
    summary="A committed offset lies beyond the end of its partition.",
    why="The partition lost records (unclean leader election, truncation, re-creation), or the commit is of "
    "another cluster. The consumer gets OFFSET_OUT_OF_RANGE and resets, or waits until the log has grown "
    "past it and misses what came in between. Clients whose stored offset is ahead commit nothing until then.",
    evidence="Committed offset, its leader epoch, log end offset, how many records would be skipped. A commit that is "
    "newer than the topics says nothing.",
    remedy="Reset the partition to its end once it is known what was lost: kafka-consumer-groups "
    "--reset-offsets --to-latest; to its start (--to-earliest) if the topic was made again.",
    message="committed offset {committed_offset} of {topic}-{partition} is beyond the log end {log_end_offset}: the "
    "next {beyond:record} would be skipped",
    reads=("offsets",),
    needs=(Need.TOPICS,),
    find=_beyond_end,
)
BELOW_START = Rule(
    "R32",
    "committed-below-log-start",
    Severity.WARNING,
    summary="A committed offset lies below the start of its partition.",
    why="Retention deleted records that the group has not read. Its next fetch is out of range and falls "
    "back to auto.offset.reset: it skips to the end, or reads everything again.",
    evidence="Committed offset, log start offset, how many records went unread, the lag that is left.",
    remedy="Decide before the consumer does: kafka-consumer-groups --reset-offsets --to-earliest.",
    message="committed offset {committed_offset} of {topic}-{partition} is below the log start {log_start_offset}: "
    "{removed_unread:record} removed unread, {lag} left to read (not {removed_unread} more, as tools say "
    "that do not look at the log start)",
    reads=("offsets",),
    needs=(Need.TOPICS,),
    find=_below_start,
)
NO_LEADER_EPOCH = Rule(
    "R33",
    "commit-without-leader-epoch",
    Severity.INFO,
    summary="Commits of a group carry no leader epoch.",
    why="After an unclean leader election the consumer cannot notice that the log under its offset is "
    "another one (KAFKA-20507). Old clients, Admin resets and commits with a retention time have none, nor has Streams "
    "with exactly_once_v2 for its repartition topics.",
    evidence="How many partitions; one of the commits. Nothing lies under offset 0, which a consumer commits before it "
    "has read anything.",
    remedy="Upgrade an old client; commit offsets together with the epoch of the last record.",
    message="commits of {group_id} carry no leader epoch",
    reads=("offsets",),
    find=_no_leader_epoch,
    applies=lambda profile: profile.max_offset_value_version >= 3,
)
OTHER_TOPIC_ID = Rule(
    "R35",
    "committed-for-another-topic-id",
    Severity.CRITICAL,
    summary="A committed offset is of a topic that was deleted and created again.",
    why="The offset means nothing in the new topic: the consumer skips its first records, or resets (KAFKA-19141).",
    evidence="Topic id of the commit and of the live topic.",
    remedy="Stop the group's consumers, and reset its offsets of the topic (kafka-consumer-groups --reset-offsets) or "
    "delete them (--delete-offsets): brokers refuse both while members read the topic.",
    message="{group_id} committed for topic id {topic_id} of {topic}, which now is {live_topic_id}",
    reads=("offsets",),
    needs=(Need.TOPICS,),
    find=_other_topic_id,
)
NO_TOPIC = Rule(
    "R36",
    "committed-for-missing-partition",
    Severity.WARNING,
    summary="Offsets are committed for a topic or partition that the cluster does not have.",
    why="Nobody cleans them up but their expiry; if a topic of that name is created again, consumers start "
    "in its middle.",
    evidence="The group, the topic, one of the partitions.",
    remedy="Leave it to the retention: brokers refuse kafka-consumer-groups --delete-offsets of what they do not have "
    "(UNKNOWN_TOPIC_OR_PARTITION). With all other offsets of the group it goes by --delete, once the group is empty.",
    message="{topic}-{partition} is not in the topic snapshot",
    reads=("offsets",),
    needs=(Need.TOPICS,),
    find=_no_topic,
)
ODD_TIME = Rule(
    "R37",
    "commit-time-is-no-time",
    Severity.WARNING,
    summary="The time of a commit lies in the future, or is not set.",
    why="Where offsets age from their commit, one from the future stays that much longer, and one of 0 or -1 goes with "
    "the next sweep. Releases up to 2.0 took the client's time; a broker's clock may be wrong.",
    evidence="The commit's time and the run's.",
    remedy="Check the clocks of the brokers and, before 2.1, of the clients; let the group commit again.",
    message="the commit of {topic}-{partition} has the time {commit_timestamp_ms}",
    reads=("offsets",),
    thresholds=("clock_skew_ms",),
    find=_odd_time,
)
LONG_METADATA = Rule(
    "R38",
    "metadata-over-limit",
    Severity.WARNING,
    summary="The metadata of a commit is longer than brokers accept.",
    why="A broker with the default limit refuses such commits; the limit was higher, or something else wrote "
    "the record. A restore of these offsets fails.",
    evidence="Length in UTF-16 units, and the limit.",
    remedy="Set offset_metadata_max_bytes to the brokers' offset.metadata.max.bytes, or shorten it.",
    message="metadata of {topic}-{partition} has {metadata_length} characters, the limit is {limit}",
    reads=("offsets",),
    thresholds=("offset_metadata_max_bytes",),
    find=_long_metadata,
    also=("D17",),
)
BY_NOBODY = Rule(
    "R39",
    "committed-by-no-owner",
    Severity.WARNING,
    summary="In a stable group a partition was committed after the assignment that gives it to nobody.",
    why="A zombie, a client that commits what it does not own, or a person: the owner will start from an "
    "offset that it did not commit.",
    evidence="The commit, newer than the assignment. What a cooperative rebalance hands over is left out.",
    remedy="See who: regroup explain --group --topic. Check clients that commit by hand.",
    message="{topic}-{partition} was committed, and no member owns it",
    reads=("offsets", "groups", "members", "regexes"),
    find=_by_nobody,
)
SILENT = Rule(
    "R40",
    "active-group-is-silent",
    Severity.WARNING,
    summary="A stable group with members has not committed for a large part of the retention.",
    why="Its consumers heartbeat and do nothing, or do not commit. Once a KIP-848 group becomes Empty its offsets "
    "expire that much sooner (before 2.1: those of any group, even now).",
    evidence="Time of the newest commit.",
    remedy="Look at its consumers; if its topics are silent too, mute the rule for the group.",
    message="{group_id} has {member_count:member} and has not committed for {silent_ms} ms",
    reads=("offsets", "groups", "members"),
    thresholds=("offsets_retention_ms", "silent_share"),
    find=_silent,
)
STORM = Rule(
    "R41",
    "commit-storm",
    Severity.WARNING,
    summary="A group commits very often.",
    why="A commit is a record for each partition. Commits fill the offsets partition, slow its coordinator for all of "
    "its groups, and make every load after a failover longer.",
    evidence="Commit records in the log, how many a second, for how many partitions.",
    remedy="Commit after batches or time, not after records (enable.auto.commit, commit intervals).",
    message="{group_id} wrote {commits:commit record}, {commits_per_second} a second, for {partitions:partition}",
    reads=("group_stats", "offsets"),
    thresholds=("storm_commits_per_second", "storm_commits_of_partition_per_second", "storm_commits"),
    find=_storm,
)
UNSUBSCRIBED = Rule(
    "R43",
    "committed-topic-not-subscribed",
    Severity.INFO,
    summary="An active group has offsets of a topic that nobody in it subscribes to.",
    why="From 2.4 on they expire although the group lives (KIP-496).",
    evidence="How many partitions; one of the commits.",
    remedy="None if the topic was dropped on purpose; else bring the subscription back in time.",
    message="{group_id} has offsets of {topic} and does not subscribe to it",
    reads=("offsets", "groups", "members", "regexes", "streams_topology"),
    find=_not_subscribed,
    applies=lambda profile: profile.expiry.expires_unsubscribed,
    also=("D11",),
)
NEGATIVE = Rule(
    "R44",
    "negative-committed-offset",
    Severity.WARNING,
    summary="A committed offset is negative.",
    why="A consumer cannot start there and resets. Coordinators do not refuse it.",
    evidence="The committed offset.",
    remedy="Fix the client that commits it; reset the partition.",
    message="committed offset {committed_offset} of {topic}-{partition} is negative",
    reads=("offsets",),
    find=_negative,
    also=("D17",),
)

STOPPED = Rule(
    "R46",
    "partition-stopped",
    Severity.WARNING,
    summary="A partition with records to read is not committed any more, while its owner goes on with others.",
    why="The client has paused it, fails at one of its records again and again, or a worker of it hangs. Or the "
    "partition was quiet, and its records came just before the topics were noted: no time of theirs tells.",
    evidence="Its lag, how long before the owner's newest commit its own was.",
    remedy="Look at the owner for that partition; with read_committed also for a transaction that hangs in the topic: "
    "kafka-transactions.sh find-hanging.",
    message="{topic}-{partition} stays at {committed_offset}, {lag} behind; its owner's newest commit is {quiet_ms} ms "
    "later",
    reads=("offsets", "groups", "members"),
    needs=(Need.TOPICS,),
    thresholds=("stopped_ms", "stopped_lag"),
    find=_stopped,
)
NEAR_LIMIT = Rule(
    "R47",
    "metadata-near-limit",
    Severity.WARNING,
    summary="The metadata of a group's commits of a topic is nearly as long as brokers accept.",
    why="Beyond the limit the broker refuses the commit (OFFSET_METADATA_TOO_LARGE), and the group's offset stands "
    "still: Kafka Streams with many tasks, parallel consumers that keep their state there.",
    evidence="Length of one of them in UTF-16 units, and the limit; how many partitions of the topic.",
    remedy="Shorten it, or raise offset.metadata.max.bytes of the brokers.",
    message="metadata of {topic}-{partition} has {metadata_length} of {limit} characters",
    reads=("offsets",),
    thresholds=("offset_metadata_max_bytes", "metadata_share"),
    find=_near_limit,
)
