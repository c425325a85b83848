"""Rules about how the cluster keeps the offsets topic, and about topics that differ from the committed ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from coordinator_core.durations import HOUR_MS
from coordinator_core.groups.model import TransactionOutcome
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.rules.columns import OFFSET_KEY, Int64s, is_in
from coordinator_core.rules.commits import same_topic
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.model import Find, Limits, Rule, Severity
from coordinator_core.rules.needs import Need
from coordinator_core.rules.topics import UNKNOWN, OffsetsTopic
from coordinator_core.topology import PartitionInfo

_MIN_CLEANABLE_RATIO = 0.5
"""Default of ``min.cleanable.dirty.ratio``."""
_EMPTY_SEGMENTS = 3
_NAMED = 5


def _table(rows: Sequence[dict[str, Any]], **columns: pa.DataType) -> pa.Table:
    schema = pa.schema([("offsets_partition", pa.int32()), *columns.items()])
    return pa.Table.from_pylist([{"offsets_partition": None} | row for row in rows], schema=schema)


def _kept(facts: Facts) -> OffsetsTopic:
    assert facts.topics is not None
    return facts.topics.offsets_topic


def _groups_in(facts: Facts, partitions: Sequence[int]) -> dict[str, Any]:
    """Count of the run's groups in these offsets partitions, and a few names."""
    rows = np.flatnonzero(is_in(facts.groups.numbers("offsets_partition"), np.array(partitions, np.int64)))
    names = facts.groups.array("group_id").take(pa.array(rows[:_NAMED])).cast(pa.string()).to_pylist()
    return {"groups": len(rows), "for_example": ", ".join(sorted(names))}


_GROUPS = {"groups": pa.int64(), "for_example": pa.string()}


def _policy(facts: Facts, _: Limits) -> pa.Table:
    config = _kept(facts).config
    policy = config.get("cleanup.policy", "compact")
    row = {name: config.get(name) for name in ("retention.ms", "retention.bytes")} | {"policy": policy}
    text = pa.string()
    found = _table([row] if policy != "compact" else [], policy=text, **{"retention.ms": text, "retention.bytes": text})
    return found.rename_columns([name.replace(".", "_") for name in found.column_names])


def _moved_start(facts: Facts, _: Limits) -> pa.Table:
    starts = {int(number): cut["log_start_offset"] for number, cut in facts.run.manifest["cut"].items()}
    if (topics := facts.topics) is not None:
        # Where the cluster's log begins at 0 and this one does not, only the copy lacks something.
        starts = {one: start for one, start in starts.items() if not topics.begins_at_0(OFFSETS_TOPIC, one)}
    rows = [{"offsets_partition": one, "log_start_offset": start} for one, start in sorted(starts.items()) if start > 0]
    return _table(rows, log_start_offset=pa.int64())


def _shorter(facts: Facts, _: Limits) -> pa.Table:
    assert facts.previous is not None
    ends, before = (
        {int(number): cut["log_end_offset"] for number, cut in one.run.manifest["cut"].items()}
        for one in (facts, facts.previous)
    )
    rows = [
        {
            "offsets_partition": one,
            "log_end_offset": ends.get(one),
            "log_end_offset_before": end,
            "now": f"ends at record {ends[one]}" if one in ends else "is not in this log",
            **_groups_in(facts.previous, [one]),
        }
        for one, end in sorted(before.items())
        if end > ends.get(one, 0)
    ]
    return _table(rows, log_end_offset=pa.int64(), log_end_offset_before=pa.int64(), now=pa.string(), **_GROUPS)


def _single(facts: Facts, _: Limits) -> pa.Table:
    kept = _kept(facts)
    brokers = {one for info in kept.partitions for one in info.replicas} | kept.racks.keys()
    alone: dict[int, list[int]] = {}
    for info in kept.partitions:
        # One broker alone cannot have it otherwise.
        if len(info.replicas) == 1 < len(brokers):
            alone.setdefault(info.replicas[0], []).append(info.partition)
    rows = [{"broker": one, "partitions": len(of), **_groups_in(facts, of)} for one, of in sorted(alone.items())]
    return _table(rows, broker=pa.int64(), partitions=pa.int64(), **_GROUPS)


def _few_in_sync(is_bad: Callable[[PartitionInfo, int], bool]) -> Find:
    def find(facts: Facts, _: Limits) -> pa.Table:
        kept = _kept(facts)
        least = int(kept.config.get("min.insync.replicas", 1))
        rows = [
            {
                "offsets_partition": info.partition,
                "isr": str(list(info.isr)),
                "replicas": str(list(info.replicas)),
                "min_insync_replicas": least,
                **_groups_in(facts, [info.partition]),
            }
            for info in kept.partitions
            if is_bad(info, least)
        ]
        return _table(rows, isr=pa.string(), replicas=pa.string(), min_insync_replicas=pa.int64(), **_GROUPS)

    return find


def _one_rack(facts: Facts, _: Limits) -> pa.Table:
    kept = _kept(facts)
    several = len({rack for rack in kept.racks.values() if rack is not None}) > 1
    together: dict[str, list[int]] = {}
    for info in kept.partitions:
        racks = {kept.racks.get(one) for one in info.replicas}
        rack = next(iter(racks), None)
        # A broker that is down has no rack here; an unknown rack is no finding.
        if several and len(racks) == 1 and rack is not None and len(info.replicas) > 1:
            together.setdefault(rack, []).append(info.partition)
    rows = [{"rack": rack, "partitions": len(of), **_groups_in(facts, of)} for rack, of in sorted(together.items())]
    return _table(rows, rack=pa.string(), partitions=pa.int64(), **_GROUPS)


def _skewed(facts: Facts, limits: Limits) -> pa.Table:
    infos = [info for info in _kept(facts).partitions if info.leader >= 0]
    brokers = {one for info in infos for one in info.replicas}
    led = Counter(info.leader for info in infos)
    first = Counter(info.replicas[0] for info in infos)
    fair = len(infos) / max(1, len(brokers))
    rows = [
        {"broker": broker, "led": count, "of": len(infos), "brokers": len(brokers), "preferred": first[broker]}
        for broker, count in sorted(led.items())
        if len(brokers) > 1 and fair >= 1 and count >= limits["leader_share"] * fair
    ]
    return _table(rows, **dict.fromkeys(("broker", "led", "of", "brokers", "preferred"), pa.int64()))


def _not_cleaned(facts: Facts, limits: Limits) -> pa.Table:
    """Closed segments that were never cleaned although most of them could go, for longer than it takes.

    The cleaned part is told from the cleaner's checkpoint, else from record offsets that are gone.
    """
    config = {} if facts.topics is None else _kept(facts).config
    least = float(config.get("min.cleanable.dirty.ratio", _MIN_CLEANABLE_RATIO))
    lag = int(config.get("min.compaction.lag.ms", 0)) + limits["cleaner_idle_ms"]
    segments, transactions = facts.table("segments"), facts.table("transactions")
    is_open = transactions.equals("outcome", TransactionOutcome.OPEN)
    rows = []
    for partition in np.unique(segments.numbers("offsets_partition")).tolist():
        closed = np.flatnonzero(segments.numbers("offsets_partition") == partition)
        closed = closed[np.argsort(segments.numbers("base_offset")[closed], kind="stable")][:-1]
        first, behind = segments.numbers("record_offset")[closed], segments.numbers("next_offset")[closed]
        of_partition = is_open & (transactions.numbers("offsets_partition") == partition)
        held = transactions.numbers("record_offset")[of_partition].min(initial=np.iinfo(np.int64).max)
        checkpoint = facts.run.manifest["cut"].get(str(partition), {}).get("cleaned_offset")
        was_cleaned = behind - first != segments.numbers("records")[closed]
        if checkpoint is not None:
            was_cleaned = behind <= checkpoint
        cleaned = int(np.flatnonzero(was_cleaned)[-1]) + 1 if was_cleaned.any() else 0
        dirty = closed[cleaned:][(behind[cleaned:] <= held) & (first[cleaned:] >= 0)]
        if not len(dirty):
            continue
        size = segments.numbers("size_bytes")
        records = int(segments.numbers("records")[dirty].sum())
        ends = int(first[cleaned]), int(segments.numbers("next_offset")[dirty[-1]])
        ratio = size[dirty].sum() / max(1, size[closed].sum())
        since = int(segments.numbers("last_timestamp_ms")[dirty[0]])
        if since < 0 or facts.now_ms - since <= lag or ratio <= least or _live(facts, partition, *ends) * 2 >= records:
            continue
        known_by = "no record was ever removed" if checkpoint is None else f"cleaner checkpoint at {checkpoint}"
        row = {
            "known_by": known_by,
            "record_offset": ends[0],
            "segments": len(dirty),
            "records": records,
            "since_ms": since,
        }
        ratio_text = {"dirty_ratio": round(float(ratio), 2), "cleaned_segments": cleaned}
        rows.append({"offsets_partition": partition, **row, **ratio_text, "hours": (facts.now_ms - since) / HOUR_MS})
    names = ("record_offset", "segments", "cleaned_segments", "records", "since_ms", "hours")
    return _table(rows, **dict.fromkeys(names, pa.int64()), dirty_ratio=pa.float64(), known_by=pa.string())


def _live(facts: Facts, partition: int, first: int, end: int) -> int:
    """Records of a range that state still comes from, about: a KIP-848 member has three."""
    total = 0
    for name, each in (("offsets", 1), ("groups", 2), ("members", 3)):
        table = facts.table(name)
        place = table.numbers("record_offset")
        inside = (table.numbers("offsets_partition") == partition) & (place >= first) & (place < end)
        total += each * int(inside.sum())
    return total


def _empty_segments(facts: Facts, _: Limits) -> pa.Table:
    segments = facts.table("segments")
    partitions, empty = segments.numbers("offsets_partition"), segments.numbers("size_bytes") == 0
    rows = []
    for partition in np.unique(partitions[empty]).tolist():
        here = partitions == partition
        last = segments.numbers("base_offset")[here].max()
        count = int((here & empty & (segments.numbers("base_offset") < last)).sum())
        if count >= _EMPTY_SEGMENTS:
            rows.append({"offsets_partition": partition, "empty": count, "segments": int(here.sum())})
    return _table(rows, empty=pa.int64(), segments=pa.int64())


def _unknown_epoch(facts: Facts, _: Limits) -> pa.Table:
    assert facts.topics is not None
    topics = facts.topics
    current, oldest, start = (_of_topic(facts, one) for one in (topics.epoch, topics.oldest_epoch, topics.start))
    epoch, committed = facts.offsets.numbers("leader_epoch"), facts.offsets.numbers("committed_offset")
    ahead = (current >= 0) & (epoch > current)
    # The epoch is that of the record before the committed offset: if that record is there, so is its epoch.
    gone = (oldest >= 0) & (epoch >= 0) & (epoch < oldest) & (start >= 0) & (committed > start)
    bad = (ahead | gone) & same_topic(facts)
    epochs = (("oldest_leader_epoch", oldest[bad]), ("current_leader_epoch", current[bad]))
    more = {name: pa.array(of_topic, mask=of_topic == UNKNOWN) for name, of_topic in epochs}
    return facts.offsets.rows(bad, *OFFSET_KEY, "leader_epoch", "committed_offset", "commit_timestamp_ms", **more)


def _before_first_record(facts: Facts, limits: Limits) -> pa.Table:
    assert facts.topics is not None
    first = _of_topic(facts, facts.topics.first_record_ms)
    time, committed = facts.offsets.numbers("commit_timestamp_ms"), facts.offsets.numbers("committed_offset")
    bad = (first > 0) & (committed > 0) & (time >= 0) & (time + limits["clock_skew_ms"] < first) & same_topic(facts)
    columns = (*OFFSET_KEY, "committed_offset", "commit_timestamp_ms")
    return facts.offsets.rows(bad, *columns, first_record_ms=first[bad])


def _of_topic(facts: Facts, values: Int64s) -> Int64s:
    """``values``, one for each partition of the topics, of the partition of each committed offset."""
    return np.append(values, UNKNOWN)[facts.offset_place]


def _older_group(facts: Facts, limits: Limits) -> pa.Table:
    groups, cut = facts.groups, facts.run.manifest["cut"]
    ends = {int(number): one["log_end_offset"] for number, one in cut.items()}
    number = np.maximum(groups.numbers("generation"), groups.numbers("group_epoch"))
    end = np.array([ends.get(one, 0) for one in groups.numbers("offsets_partition").tolist()], np.int64)
    bad = number > end + limits["generations_ahead"]
    return groups.rows(bad, "group_id", "type", "state", generation=number[bad], log_end_offset=end[bad])


NOT_COMPACT = Rule(
    "R80",
    "offsets-topic-not-compacted",
    Severity.CRITICAL,
    summary="`cleanup.policy` of the offsets topic is not `compact`.",
    why="With `delete` in it, retention removes whole segments: committed offsets and groups that are quiet for "
    "longer than `retention.ms` are gone at the next load, without a tombstone.",
    evidence="The policy, and the retention that goes with it.",
    remedy="kafka-configs.sh --alter --entity-type topics --entity-name __consumer_offsets --add-config "
    "cleanup.policy=compact",
    message="cleanup.policy of __consumer_offsets is {policy} (retention.ms {retention_ms}, retention.bytes "
    "{retention_bytes})",
    reads=(),
    needs=(Need.CONFIG,),
    across=True,
    find=_policy,
)
MOVED_START = Rule(
    "R81",
    "log-start-moved",
    Severity.CRITICAL,
    summary="The log of an offsets partition does not begin at 0.",
    why="The cleaner keeps the start of a compacted log. Retention (`cleanup.policy` has, or had, `delete`) or "
    "DeleteRecords removed what was before: committed offsets and groups that went without a tombstone.",
    evidence="Log start offset.",
    remedy="Set cleanup.policy=compact; find groups that began anew by their consumers' logs, and reset them.",
    message="the log of offsets partition {offsets_partition} begins at {log_start_offset}, not at 0",
    reads=("segments",),
    find=_moved_start,
)
SINGLE_REPLICA = Rule(
    "R82",
    "offsets-partition-has-one-replica",
    Severity.WARNING,
    summary="Offsets partitions have a single replica.",
    why="While that broker is down, the groups of these partitions can neither join nor commit; if its disk is "
    "lost, so are their offsets. The topic was created when there was one broker, or with "
    "`offsets.topic.replication.factor=1`.",
    evidence="Broker, its partitions, how many groups live in them and some of their names.",
    remedy="Add replicas: kafka-reassign-partitions.sh --execute with three brokers for each partition.",
    message="{partitions:offsets partition} with {groups:group}, on broker {broker} alone",
    reads=("groups",),
    needs=(Need.REPLICAS,),
    across=True,
    find=_single,
)
UNDER_MIN_ISR = Rule(
    "R83",
    "offsets-partition-under-min-isr",
    Severity.CRITICAL,
    summary="Fewer replicas of an offsets partition are in sync than `min.insync.replicas`.",
    why="The coordinator writes with acks=all: it refuses joins and commits of all groups of the partition "
    "(NOT_ENOUGH_REPLICAS, which clients see as COORDINATOR_NOT_AVAILABLE).",
    evidence="Replicas in sync, replicas, the minimum, groups.",
    remedy="Bring the replicas back; see: kafka-topics.sh --describe --under-min-isr-partitions",
    message="only {isr} of replicas {replicas} are in sync, {min_insync_replicas} must be: {groups:group} cannot "
    "commit",
    reads=("groups",),
    needs=(Need.REPLICAS, Need.CONFIG),
    across=True,
    find=_few_in_sync(lambda info, least: len(info.isr) < least),
)
AT_MIN_ISR = Rule(
    "R84",
    "offsets-partition-at-min-isr",
    Severity.WARNING,
    summary="As few replicas of an offsets partition are in sync as `min.insync.replicas` allows, and others are not.",
    why="The loss of one more broker stops all groups of the partition.",
    evidence="Replicas in sync, replicas, the minimum, groups.",
    remedy="Bring the replicas back; see: kafka-topics.sh --describe --at-min-isr-partitions",
    message="{isr} of replicas {replicas} are in sync, as few as may be ({min_insync_replicas})",
    reads=("groups",),
    needs=(Need.REPLICAS, Need.CONFIG),
    across=True,
    find=_few_in_sync(lambda info, least: len(info.isr) == least < len(info.replicas)),
)
ONE_RACK = Rule(
    "R85",
    "offsets-partition-in-one-rack",
    Severity.WARNING,
    summary="All replicas of offsets partitions are in one rack, and the cluster has others.",
    why="Brokers spread replicas over racks only when the topic is created with racks configured. The loss of the "
    "rack stops these groups.",
    evidence="Rack, partitions, groups.",
    remedy="Spread them: kafka-reassign-partitions.sh --generate proposes replicas in several racks.",
    message="all replicas of {partitions:offsets partition} with {groups:group} are in rack {rack}",
    reads=("groups",),
    needs=(Need.REPLICAS,),
    across=True,
    find=_one_rack,
)
SKEWED_LEADERS = Rule(
    "R86",
    "offsets-leaders-skewed",
    Severity.INFO,
    summary="One broker leads many more offsets partitions than its share.",
    why="It coordinates as many groups more, and has to be waited for longer when it fails. Leaders stay where a "
    "failover put them until preferred leaders are elected.",
    evidence="Broker, partitions that it leads, and those of which it is the preferred leader.",
    remedy="kafka-leader-election.sh --election-type PREFERRED --all-topic-partitions; if it is preferred for all of "
    "them, reassign.",
    message="broker {broker} leads {led} of {of:offsets partition} on {brokers:broker}; it is preferred for "
    "{preferred}",
    reads=(),
    needs=(Need.REPLICAS,),
    thresholds=("leader_share",),
    across=True,
    find=_skewed,
)
NOT_CLEANED = Rule(
    "R87",
    "cleaner-does-not-clean",
    Severity.WARNING,
    summary="The log cleaner has not cleaned an offsets partition that it should have.",
    why="A cleaner thread died (until the broker restarts, for all its topics), cannot clean this partition, or is "
    "off (`log.cleaner.enable`). The log grows, and each load of it takes longer.",
    evidence="First record that was never cleaned, since when it could have been, segments and records from there, "
    "their share of all closed segments, and how it is known: the cleaner's checkpoint, or no record is gone.",
    remedy="Look into log-cleaner.log and the metric uncleanable-partitions-count; restart the broker. What cleaning "
    "would leave: regroup stats SNAPSHOT",
    message="{segments:closed segment} from record {record_offset} on, {dirty_ratio} of the bytes, could have been "
    "cleaned for {hours} h ({known_by}); most of their {records:record} are superseded",
    reads=("segments", "offsets", "groups", "members", "transactions"),
    thresholds=("cleaner_idle_ms",),
    find=_not_cleaned,
)
EMPTY_SEGMENTS = Rule(
    "R88",
    "empty-segments",
    Severity.WARNING,
    summary="An offsets partition has empty segments.",
    why="Cleaners before 2.8.1 leave an empty segment behind for each 2^31 offsets, and copy them all each time "
    "(KAFKA-12889). `compact,delete` is no remedy: it removes live offsets.",
    evidence="Empty segments, all segments.",
    remedy="Upgrade the brokers; regroup compact SNAPSHOT writes the partition without them.",
    message="{empty} of {segments:segment} are empty",
    reads=("segments",),
    find=_empty_segments,
)
UNKNOWN_EPOCH = Rule(
    "R89",
    "committed-epoch-unknown-to-topic",
    Severity.WARNING,
    summary="A commit names a leader epoch that its topic does not have.",
    why="The topic was deleted and made again, restored, or lost records in an unclean election. A consumer that "
    "resumes there finds its log truncated, and resets by auto.offset.reset.",
    evidence="Epoch of the commit, oldest and current epoch of the partition.",
    remedy="Compare the topic's contents; reset the group where it should resume.",
    message="{topic}-{partition} is committed with leader epoch {leader_epoch}; the oldest of the partition is "
    "{oldest_leader_epoch}, the current one {current_leader_epoch}",
    reads=("offsets",),
    needs=(Need.EPOCHS,),
    find=_unknown_epoch,
)
OLDER_THAN_TOPIC = Rule(
    "R90",
    "committed-before-first-record",
    Severity.WARNING,
    summary="An offset was committed before the first record of its topic was written.",
    why="The topic was deleted and made again under the name, which no topic id tells before Kafka 4.1: the group "
    "resumes in the middle of records that it never saw, or beyond the end.",
    evidence="Times of the commit and of the record at offset 0.",
    remedy="Reset the group to the start of the topic, or delete its offsets.",
    message="{topic}-{partition} was committed ({committed_offset}) at {commit_timestamp_ms}, before the topic's "
    "record 0 of {first_record_ms}",
    reads=("offsets",),
    needs=(Need.EPOCHS,),
    thresholds=("clock_skew_ms",),
    find=_before_first_record,
)
OLDER_THAN_LOG = Rule(
    "R91",
    "group-older-than-offsets-topic",
    Severity.INFO,
    summary="A group counts many more generations than the offsets partition ever had records.",
    why="A generation that is assigned is a record. The offsets topic was made again, its disk was lost, or this log "
    "was written by `regroup compact --renumber`; in the first two cases committed offsets from before are gone.",
    evidence="Generation (group epoch), log end offset.",
    remedy="Find out when the topic was made (dates of its directories); if offsets are missing, restore them from a "
    "snapshot of before: regroup compact.",
    message="group {group_id} is at generation {generation}, and its offsets partition has had only "
    "{log_end_offset:record}",
    reads=("groups", "segments"),
    thresholds=("generations_ahead",),
    find=_older_group,
)
SHORTER = Rule(
    "R92",
    "log-end-moved-back",
    Severity.CRITICAL,
    summary="An offsets partition ends before the record at which the run before ended, or is not there.",
    why="A log only grows. This copy lacks the partition or its newest records, or the cluster itself lost them: a "
    "replica out of sync was elected leader, a disk was lost, the topic was made again. Groups of the partition look "
    "deleted, their committed offsets older than they are.",
    evidence="Log end offset of both runs; how many groups the run before had there, and some of their names.",
    remedy="Name the copies of all brokers, or capture the topic again. If the cluster has no more, put back what the "
    "run before has: regroup restore plan RUN.",
    message="offsets partition {offsets_partition}, with {groups:group}, {now}; the run before had it up to "
    "{log_end_offset_before}",
    reads=("groups",),
    needs=(Need.PREVIOUS_RUN,),
    find=_shorter,
    across=True,
)
