"""Rules that compare a run with one before it: offsets that went backwards, offsets and groups that are gone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.model import GroupType
from coordinator_core.history.model import EndKind, Place
from coordinator_core.rules.columns import (
    OFFSET_KEY,
    Bools,
    Int64s,
    Partners,
    coded,
    combined_pair,
    is_in,
    lookup,
    partners,
)
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.log_scan import scan_log
from coordinator_core.rules.model import Limits, Rule, Severity
from coordinator_core.rules.needs import Need


def matched_offsets(facts: Facts) -> Partners:
    """Pairs of committed offsets of the run and of the one before."""
    previous = facts.previous
    assert previous is not None
    return facts.noted("matched", lambda: partners(facts.offsets, previous.offsets, *OFFSET_KEY))


def _pair(facts: Facts, column: str) -> tuple[Int64s, Int64s]:
    assert facts.previous is not None
    matched = matched_offsets(facts)
    now, before = facts.offsets.numbers(column), facts.previous.offsets.numbers(column)
    return now[matched.now], before[matched.before]


def of_one_topic(facts: Facts, bad: Bools) -> Int64s:
    """Matched pairs for which ``bad`` is true and whose commits name no different topic ids."""
    assert facts.previous is not None
    matched, found = matched_offsets(facts), np.flatnonzero(bad)
    columns = [
        one.offsets.array("topic_id").take(pa.array(rows[found]))
        for one, rows in ((facts, matched.now), (facts.previous, matched.before))
    ]
    now, before = coded(*columns)[0]
    same: Bools = (now == before) | (now < 0) | (before < 0)
    return found[same]


def without_deleted_topics(facts: Facts, found: Int64s) -> Int64s:
    """Those of ``found``, which are matched pairs, between which no offset went with its topic, as far as the log
    tells: a topic that is made again begins again."""
    assert facts.previous is not None
    if not len(found) or facts.missing(Need.LOG) or not (deleted := _deleted_topics(facts)):
        return found
    matched = matched_offsets(facts)
    names = ("offsets_partition", *OFFSET_KEY)
    columns = facts.offsets.rows(matched.now[found], *OFFSET_KEY)
    keys = zip(*(columns[name].to_pylist() for name in names), strict=True)
    since = facts.previous.offsets.numbers("record_offset")[matched.before[found]].tolist()
    return found[[deleted.get(key, -1) <= at for key, at in zip(keys, since, strict=True)]]


def _deleted_topics(facts: Facts) -> dict[tuple[int, str, str, int], int]:
    """Record offsets at which offsets went with their topic, the last time, by offsets partition and offset key."""

    def deleted() -> dict[tuple[int, str, str, int], int]:
        return {key: place.record_offset for key, place, kind in _ends(facts) if kind is EndKind.TOPIC_DELETION}

    return facts.noted("deleted topics", deleted)


def _ends(facts: Facts) -> Iterator[tuple[tuple[int, str, str, int], Place, EndKind]]:
    """Removals whose cause is told: partition and offset key, the tombstone, the cause; the oldest of a key first."""
    for group in scan_log(facts).histories:
        for removal in group.removals:
            if removal.end is not None:
                yield (group.offsets_partition, *removal.offset_key), removal.place, removal.end.kind


def _with_before(facts: Facts, bad: Int64s, column: str, *more: str) -> pa.Table:
    assert facts.previous is not None
    matched = matched_offsets(facts)
    rows = facts.offsets.rows(matched.now[bad], *OFFSET_KEY, column, *more)
    before = facts.previous.offsets.rows(matched.before[bad], column)
    return rows.append_column("before", before[column]).append_column("record_offset_before", before["record_offset"])


def _moved_back(facts: Facts, _: Limits) -> pa.Table:
    now, before = _pair(facts, "committed_offset")
    bad = without_deleted_topics(facts, of_one_topic(facts, now < before))
    return _with_before(facts, bad, "committed_offset", "commit_timestamp_ms")


def _epoch_back(facts: Facts, _: Limits) -> pa.Table:
    epoch, epoch_before = _pair(facts, "leader_epoch")
    offset, offset_before = _pair(facts, "committed_offset")
    bad = (epoch >= 0) & (epoch < epoch_before) & (offset >= offset_before)
    of_one = without_deleted_topics(facts, of_one_topic(facts, bad))
    return _with_before(facts, of_one, "leader_epoch", "committed_offset")


def _time_back(facts: Facts, _: Limits) -> pa.Table:
    now, before = _pair(facts, "commit_timestamp_ms")
    offset, offset_before = _pair(facts, "record_offset")
    bad = np.flatnonzero((offset > offset_before) & (now < before))
    return _with_before(facts, bad, "commit_timestamp_ms")


def _matched_groups(facts: Facts) -> tuple[Int64s, Int64s]:
    assert facts.previous is not None
    found = partners(facts.groups, facts.previous.groups, "group_id")
    return found.now, found.before


def _generation_back(facts: Facts, _: Limits) -> pa.Table:
    assert facts.previous is not None
    rows, at = _matched_groups(facts)
    kind, kind_before = coded(facts.groups.array("type"), facts.previous.groups.array("type"))[0]
    classic = facts.groups.equals("type", GroupType.CLASSIC)[rows]
    now = np.where(classic, facts.groups.numbers("generation")[rows], facts.groups.numbers("group_epoch")[rows])
    groups = facts.previous.groups
    before = np.where(classic, groups.numbers("generation")[at], groups.numbers("group_epoch")[at])
    bad = (kind[rows] == kind_before[at]) & (now < before) & ~facts.groups.is_null("record_offset")[rows]
    return facts.groups.rows(rows[bad], "group_id", "type", "state", now=now[bad], before=before[bad])


def _type_changed(facts: Facts, _: Limits) -> pa.Table:
    assert facts.previous is not None
    rows, at = _matched_groups(facts)
    kind, kind_before = coded(facts.groups.array("type"), facts.previous.groups.array("type"))[0]
    # A simple group has no type of its own: the first member that joins gives it one.
    simple = facts.groups.numbers("simple")[rows] | facts.previous.groups.numbers("simple")[at]
    bad = (kind[rows] != kind_before[at]) & (simple == 0)
    before = facts.previous.groups.array("type").take(pa.array(at[bad]))
    return facts.groups.rows(rows[bad], "group_id", "type", before=before)


def _expired_while_active(facts: Facts, limits: Limits) -> pa.Table:
    previous = facts.previous
    assert previous is not None
    gone = matched_offsets(facts).gone
    rows, at = _matched_groups(facts)
    now_row = np.full(len(previous.groups), -1, np.int64)
    now_row[at] = rows
    group = previous.group_row("offsets")[gone]
    here = np.append(now_row, -1)[group]
    judged = np.ones(len(gone), np.bool_)
    for of, row in ((previous, group), (facts, here)):
        judged &= of.of_groups(of.is_active & of.topics_are_known, row)
    # Subscribed then and now: an offset that may not expire. Topic numbers differ between the runs.
    judged[judged] = is_in(previous.group_topic(group, previous.offset_topic[gone])[judged], previous.subscribed_keys())
    names = previous.offsets.rows(gone[judged], *OFFSET_KEY, "committed_offset", "commit_timestamp_ms")
    topic = coded(names["topic"].combine_chunks(), facts.topic_texts)[0]
    number = lookup(topic[0], topic[1])
    keys = facts.group_topic(here[judged], number)
    still = (number >= 0) & is_in(keys, facts.subscribed_keys())
    still[still] = ~_went_with_topic(facts, gone[judged][still], number[still], limits)
    found = names.filter(pa.array(still))
    # The record of the previous run may be gone; the group's is there.
    record = facts.groups.array("record_offset").take(pa.array(here[judged][still]))
    at_offset = found.column_names.index("record_offset")
    return found.append_column("record_offset_before", found["record_offset"]).set_column(
        at_offset, "record_offset", record
    )


def _went_with_topic(facts: Facts, gone: Int64s, topic: Int64s, limits: Limits) -> Bools:
    """Which offsets of the previous run, in rows ``gone``, went with their topic, of these numbers: as the topics tell,
    or the log; without both, where no group of the offsets partition has an offset of the topic any more, and the
    retention had not passed since the commit."""
    assert facts.previous is not None
    before = facts.previous.offsets
    partition = before.numbers("offsets_partition")[gone]
    if facts.topics is None:
        unsure = np.ones(len(gone), np.bool_)
        left = (facts.offsets.numbers("offsets_partition"), facts.offset_topic)
        went: Bools = ~is_in(*combined_pair((partition, topic), left))
        went &= facts.now_ms - before.numbers("commit_timestamp_ms")[gone] < limits["offsets_retention_ms"]
    else:
        of_commit = before.array("topic_id").take(pa.array(gone)).cast(pa.string())
        is_other = pc.not_equal(of_commit, facts.live_ids(topic))
        is_live = facts.live_topic[topic] >= 0
        unsure = is_live & pc.is_null(is_other).to_numpy(zero_copy_only=False)
        went = ~is_live | pc.fill_null(is_other, False).to_numpy(zero_copy_only=False)
    if facts.missing(Need.LOG):
        return went
    asked = np.flatnonzero(unsure)
    keys = [before.array(name).take(pa.array(gone[asked])).to_pylist() for name in OFFSET_KEY]
    # Why offsets were removed, the last time.
    causes = facts.noted("causes", lambda: {key: kind for key, _, kind in _ends(facts)})
    for at, key in zip(asked.tolist(), zip(partition[asked].tolist(), *keys, strict=True), strict=True):
        cause = causes.get(key)
        if cause is not None:
            went[at] = cause is EndKind.TOPIC_DELETION
    return went


MOVED_BACK = Rule(
    "R30",
    "committed-offset-moved-back",
    Severity.CRITICAL,
    summary="A committed offset is lower than in the previous run.",
    why="The group reads again what it had finished: a reset, a zombie that committed late, or commits that "
    "a failover lost. Brokers never move an offset by themselves.",
    evidence="Both committed offsets and their records. A topic that was deleted and made again in between, as topic "
    "ids or the log tell, begins again.",
    remedy="See who: regroup explain --group --topic. If the reset was planned, mute the rule for the group.",
    message="committed offset of {topic}-{partition} went from {before} back to {committed_offset}",
    reads=("offsets",),
    needs=(Need.PREVIOUS_RUN,),
    find=_moved_back,
    also=("D10",),
)
EPOCH_BACK = Rule(
    "R34",
    "leader-epoch-moved-back",
    Severity.CRITICAL,
    summary="A commit is at the same offset or beyond the previous one, with a lower leader epoch.",
    why="Epochs of a partition only grow. The consumer reads from a broker that was fenced, or the commit is "
    "of another log.",
    evidence="Both leader epochs.",
    remedy="Check the partition for an unclean leader election; compare its replicas.",
    message="leader epoch of {topic}-{partition} went from {before} back to {leader_epoch}",
    reads=("offsets",),
    needs=(Need.PREVIOUS_RUN,),
    find=_epoch_back,
)
TIME_BACK = Rule(
    "R42",
    "commit-time-moved-back",
    Severity.WARNING,
    summary="A newer commit has an earlier time than the one before it.",
    why="The new coordinator's clock is behind. Offsets expire by this time, and lag in time is wrong.",
    evidence="Both times.",
    remedy="Synchronise the clocks of the brokers.",
    message="commit time of {topic}-{partition} went from {before} back to {commit_timestamp_ms}",
    reads=("offsets",),
    needs=(Need.PREVIOUS_RUN,),
    find=_time_back,
)
GENERATION_BACK = Rule(
    "R16",
    "generation-moved-back",
    Severity.WARNING,
    summary="A group's generation or epoch is lower than in the previous run.",
    why="The group was deleted and made again in between, or records of it were lost: then members of the "
    "newer generation are fenced.",
    evidence="Both generations or epochs.",
    remedy="See the group's history: regroup explain --group.",
    message="generation or epoch of {group_id} went from {before} back to {now}",
    reads=("groups",),
    needs=(Need.PREVIOUS_RUN,),
    find=_generation_back,
    also=("D17",),
)
TYPE_CHANGED = Rule(
    "R20",
    "group-type-changed",
    Severity.INFO,
    summary="A group is of another type than in the previous run.",
    why="An online upgrade or downgrade. One that flips back and forth has clients of both protocols.",
    evidence="Both types.",
    remedy="Set group.protocol alike on all clients of the group.",
    message="{group_id} was a {before} group and is a {type} group",
    reads=("groups",),
    needs=(Need.PREVIOUS_RUN,),
    find=_type_changed,
)
EXPIRED_WHILE_ACTIVE = Rule(
    "R61",
    "offset-gone-while-subscribed",
    Severity.CRITICAL,
    summary="An offset is gone although its group was active and subscribed to the topic then and now.",
    why="2.8.1, 3.0.0 and 3.1.0 and earlier expire offsets during a rebalance (KAFKA-13636); before 2.1 "
    "quiet groups lose them too. The consumer starts from auto.offset.reset. What went because its topic was deleted "
    "is no finding.",
    evidence="The committed offset that was there. The deletion of a topic is told by the topics, or by the log; "
    "without both, the rule is silent where no group of the offsets partition has an offset of the topic any more, and "
    "the commit was too young to expire.",
    remedy="Commit it again before the consumer restarts; raise offsets.retention.minutes; upgrade.",
    message="{topic}-{partition} had the committed offset {committed_offset} and has none",
    reads=("offsets", "groups", "members", "regexes", "streams_topology"),
    needs=(Need.PREVIOUS_RUN,),
    thresholds=("offsets_retention_ms",),
    of_partition=True,
    find=_expired_while_active,
)
