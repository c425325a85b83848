"""Rules over history: the tables of a run no longer show it, because only the newest value of a key stands there.

They look for the signs that ``coordinator_core.history.signs`` knows. Each offsets partition is judged alone: findings
are the same however the partitions are shared out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from coordinator_core.durations import MINUTE_MS, numbered
from coordinator_core.groups.model import are_of_other_topics
from coordinator_core.history.model import Certainty, EndKind, GroupHistory, Place, Removal
from coordinator_core.history.signs import (
    MoveKind,
    flapping_of,
    is_lost_while_alive,
    is_pause,
    moves_of,
    replaced_of,
    rivals_of,
    stands_of,
    stop_between,
    storm_of,
)
from coordinator_core.history.takeovers import takeovers_of
from coordinator_core.releases import Loader
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.log_scan import scan_log
from coordinator_core.rules.model import Find, Limits, Rule, Severity
from coordinator_core.rules.needs import Need

_NUMBER, _TEXT, _WHOLE = pa.int64(), pa.string(), pa.int32()
OFFSET_KEY = {"group_id": _TEXT, "topic": _TEXT, "partition": _WHOLE}

Row = dict[str, Any]

_MOST = (1 << 63) - 1


def _each(found_in: Callable[[GroupHistory, Facts, Limits], Iterator[Row]], /, **columns: pa.DataType) -> Find:
    """A rule's function over the histories of groups: a row for each sign of ``found_in``."""
    schema = pa.schema([("offsets_partition", _WHOLE), ("record_offset", _NUMBER), *columns.items()])

    def find(facts: Facts, limits: Limits) -> pa.Table:
        return pa.Table.from_pylist(
            [row for group in scan_log(facts).histories for row in found_in(group, facts, limits)], schema=schema
        )

    return find


def _at(place: Place, **values: Any) -> Row:
    """A row; a difference that no int64 holds, as of offsets at both of its ends, is the nearest that one does."""
    held = {name: min(max(each, -_MOST - 1), _MOST) if isinstance(each, int) else each for name, each in values.items()}
    return {"offsets_partition": place.offsets_partition, "record_offset": place.record_offset, **held}


def _vanished(group: GroupHistory, facts: Facts, _: Limits) -> Iterator[Row]:
    for removal in group.removals:
        if is_lost_while_alive(removal, facts.profile) and removal.end is not None:
            value = {"committed_offset": removal.value.committed_offset, "why": removal.end.why}
            yield _at(removal.place, **removal.offset_key._asdict(), **value, bug=removal.end.bug)


def _unjustified(group: GroupHistory, facts: Facts, _: Limits) -> Iterator[Row]:
    for removal in group.removals:
        if removal.end is not None and removal.end.kind is EndKind.NO_RULE:
            value = {"committed_offset": removal.value.committed_offset, "why": removal.end.why}
            yield _at(removal.place, **removal.offset_key._asdict(), **value)


_BACK = {
    MoveKind.RESET: "an admin client, while the group had no members",
    MoveKind.MIRROR: "somebody outside the group who writes again and again, as MirrorMaker does",
    MoveKind.STALE: "a member, after a rebalance, to a value that was committed before",
    MoveKind.BACK: "a consumer",
}
_AHEAD = {
    MoveKind.SKIPPED: "an admin client, while the group had no members",
    MoveKind.JUMPED: "a consumer",
}
_AGAIN = "somebody outside the group who sets its offsets again and again: a sync from another cluster, or a job"


def _moved(kinds: dict[MoveKind, str]) -> Callable[[GroupHistory, Facts, Limits], Iterator[Row]]:
    def rows(group: GroupHistory, facts: Facts, _: Limits) -> Iterator[Row]:
        noted = f"{group.offsets_partition} {group.group_id}"
        moves = facts.noted(f"moves {noted}", lambda: moves_of(group))
        puts = facts.noted(f"puts {noted}", lambda: takeovers_of(group).puts) if moves else ()
        for kind, by in kinds.items():
            for move in moves.get(kind, ()):
                if kind is MoveKind.JUMPED and is_pause(move) and stop_between(group, move) is not None:
                    continue  # It was stopped, and has caught up.
                values = {
                    "before": move.before.last.committed_offset,
                    "committed_offset": move.after.first.committed_offset,
                    "record_offset_before": move.before.last.record_offset,
                    "records": abs(move.records),
                    "commits_after": move.after.commits - 1,
                    "by": _AGAIN if id(move.after) in puts else by,
                    "member": None if move.after.member is None else move.after.member.member_id,
                }
                yield _at(move.after.place, **move.key._asdict(), **values)

    return rows


_MOVE_NUMBERS = ("before", "committed_offset", "record_offset_before", "records", "commits_after")
_MOVE = OFFSET_KEY | dict.fromkeys(_MOVE_NUMBERS, _NUMBER) | {"by": _TEXT, "member": _TEXT}


def _two_writers(group: GroupHistory, _: Facts, __: Limits) -> Iterator[Row]:
    for rivals in rivals_of(group):
        first, second = rivals.turns[:2]
        values = {"one": first.committed, "other": second.committed, "turns": len(rivals.turns)}
        yield _at(second.place, **rivals.key._asdict(), **values, record_offset_before=first.place.record_offset)


def _stands_still(group: GroupHistory, facts: Facts, limits: Limits) -> Iterator[Row]:
    topics = facts.topics
    assert topics is not None
    for one in stands_of(group, int(limits["stopped_ms"])):
        value, bounds = one.version.last, topics.bounds(one.key.topic, one.key.partition)
        is_another = are_of_other_topics(value.topic_id, topics.id_of(one.key.topic))
        if bounds is None or value.committed_offset < max(bounds[0], 0) or is_another:
            continue
        lag = bounds[1] - value.committed_offset
        if lag >= limits["stopped_lag"]:
            values = {
                "committed_offset": value.committed_offset,
                "lag": lag,
                "commits": one.version.stood + 1,
                "lasted_ms": one.lasted_ms,
                "until_record_offset": one.version.last_place.record_offset,
            }
            yield _at(one.since, **one.key._asdict(), **values)


def _lost_partition(group: GroupHistory, _: Facts, __: Limits) -> Iterator[Row]:
    for one in group.trespasses:
        values = {"by": one.by.member_id, "owner": one.owner.member_id}
        yield _at(one.place, **one.key._asdict(), **values, generation=one.generation, had_generation=one.before)


def _storm(group: GroupHistory, _: Facts, __: Limits) -> Iterator[Row]:
    storm = storm_of(group)
    if storm is not None:
        often = storm.joins.most_common(1)
        first, last = storm.rounds[0].place, storm.rounds[-1].place
        yield _at(
            first,
            group_id=group.group_id,
            rebalances=len(storm.rounds),
            until_record_offset=last.record_offset,
            minutes=(last.timestamp_ms - first.timestamp_ms) // MINUTE_MS,
            quiet=storm.quiet,
            joined_most=f"{often[0][0]}, {numbered(often[0][1], 'time')}" if often else "nobody",
        )


def _flapping(group: GroupHistory, _: Facts, __: Limits) -> Iterator[Row]:
    # The members of a storm, and processes that share an instance id, are told by other rules.
    for one in flapping_of(group) if storm_of(group) is None and not replaced_of(group) else ():
        first, last = one.joins[0].place, one.joins[-1].place
        minutes = (last.timestamp_ms - first.timestamp_ms) // MINUTE_MS
        yield _at(first, group_id=group.group_id, client=one.name, joins=len(one.joins), minutes=minutes)


def _duplicate_instance(group: GroupHistory, _: Facts, __: Limits) -> Iterator[Row]:
    for one in replaced_of(group):
        values = {"instance": one.instance_id, "times": len(one.changes), "hosts": ", ".join(sorted(one.hosts))}
        yield _at(one.close[0].place, group_id=group.group_id, **values)


def _large_batch(group: GroupHistory, _: Facts, limits: Limits) -> Iterator[Row]:
    buffer = int(limits["offsets_load_buffer_bytes"])
    if group.largest_batch is not None and group.largest_batch_bytes > limits["load_buffer_share"] * buffer:
        yield _at(group.largest_batch, group_id=group.group_id, batch_bytes=group.largest_batch_bytes, limit=buffer)


def _retention(group: GroupHistory, facts: Facts, limits: Limits) -> Iterator[Row]:
    configured = int(limits["offsets_retention_ms"])
    # What is merely possible proves nothing, nor does a bug.
    early = [
        (removal.end.retention_at_most_ms, removal)
        for removal in group.removals
        if removal.end is not None
        and removal.end.kind is EndKind.EXPIRY
        and removal.end.certainty is not Certainty.POSSIBLE
        and removal.end.bug is None
        and removal.end.retention_at_most_ms is not None
        and removal.end.retention_at_most_ms < configured
    ]

    def topic(one: tuple[int, Removal]) -> str:
        return one[1].offset_key.topic

    for _, some in groupby(sorted(early, key=topic), key=topic):
        of_topic = list(some)
        applied, first = min(of_topic, key=itemgetter(0))
        values = {"applied_ms": applied, "configured_ms": configured, "rows": len(of_topic)}
        yield _at(first.place, **first.offset_key._asdict(), **values)


VANISHED = Rule(
    "R70",
    "offset-expired-while-group-lived",
    Severity.CRITICAL,
    summary="An offset expired although members of its group read the topic.",
    why="Before 2.1 offsets of active groups expire by commit age (KIP-211); 2.4 to 2.8.1, 3.0.0 and 3.1.0 take them "
    "during a rebalance (KAFKA-13636). The consumer starts from auto.offset.reset.",
    evidence="The tombstone, the value that it ended, what the cause is told from. Of a tombstone without a time "
    "(message format 0) regroup investigate names the causes that are possible.",
    remedy="Put the offset back while the consumers are stopped (regroup investigate --group … --format csv); raise "
    "offsets.retention.minutes; upgrade.",
    message="{topic}-{partition} had the committed offset {committed_offset} and lost it: {why}",
    reads=(),
    needs=(Need.LOG,),
    find=_each(_vanished, **OFFSET_KEY, committed_offset=_NUMBER, why=_TEXT, bug=_TEXT),
)
UNJUSTIFIED = Rule(
    "R71",
    "tombstone-without-a-rule",
    Severity.CRITICAL,
    summary="A committed offset was removed, and no rule of the release justifies it.",
    why="No sweep, no request and no deletion of a topic writes such a tombstone: a client wrote to "
    "__consumer_offsets, or it is a bug.",
    evidence="The tombstone, the value that it ended, why no rule fits. Offsets partitions are judged one by one: "
    "where no other group of the partition has offsets of the topic, its deletion would explain the tombstone, and the "
    "rule is silent; regroup investigate looks at the groups of all partitions.",
    remedy="Only brokers should be allowed to write to __consumer_offsets: check the ACLs of the topic. Put the offset "
    "back: regroup investigate --group … --format csv.",
    message="{topic}-{partition} had the committed offset {committed_offset}, and no rule justifies its end: {why}",
    reads=(),
    needs=(Need.LOG,),
    find=_each(_unjustified, **OFFSET_KEY, committed_offset=_NUMBER, why=_TEXT),
)
SET_BACK = Rule(
    "R72",
    "committed-offset-went-back",
    Severity.WARNING,
    summary="Within the log a committed offset went back.",
    why="The group reads again what it had finished. R30 tells it from one run to the next; here the log itself has "
    "both commits.",
    evidence="Both commits, who wrote the second, how many records.",
    remedy="See what led there: regroup investigate --group. If it was planned, mute the rule for the group.",
    message="committed offset of {topic}-{partition} went from {before} back to {committed_offset}, by {by}",
    reads=(),
    needs=(Need.LOG,),
    find=_each(_moved(_BACK), **_MOVE),
)
JUMPED = Rule(
    "R73",
    "committed-offset-jumped-ahead",
    Severity.WARNING,
    summary="Within the log a committed offset jumped forward, far beyond every step before, and those after it.",
    why="Records were skipped: an out-of-range fetch with auto.offset.reset=latest, a seek, or a reset.",
    evidence="Both commits, who wrote the second, how many records, how many commits that writer made after it. Large "
    "steps one after the other are a consumer that catches up; without a commit after it, that cannot be told. So is "
    "the first step after a time without members, if it is no larger than what the group reads in that time; and what "
    "a member reads at once that had waited for records, committing one value again and again.",
    remedy="Look at the client's log for OFFSET_OUT_OF_RANGE; set the offset back to read what was skipped.",
    message="committed offset of {topic}-{partition} jumped from {before} to {committed_offset}, by {by}: {records} "
    "records were never committed one by one",
    reads=(),
    needs=(Need.LOG,),
    find=_each(_moved(_AHEAD), **_MOVE),
)
TWO_WRITERS = Rule(
    "R74",
    "two-writers-take-turns",
    Severity.WARNING,
    summary="Two sequences of committed offsets alternate for one partition.",
    why="Two clients use the group id with assign(), or commit by hand: each overwrites the other, and a restart "
    "begins at whichever came last.",
    evidence="A commit of each, how often they took turns.",
    remedy="Give each application a group id of its own.",
    message="{topic}-{partition} is committed in turn at about {one} and {other}, {turns:time}",
    reads=(),
    needs=(Need.LOG,),
    find=_each(_two_writers, **OFFSET_KEY, **dict.fromkeys(("one", "other", "turns", "record_offset_before"), _NUMBER)),
)
STANDS_STILL = Rule(
    "R48",
    "partition-stands-still",
    Severity.WARNING,
    summary="A live group commits the same offset of a partition again and again, while the log end lies ahead.",
    why="The client fails at the next record each time, has paused the partition, or cannot read on: a transaction "
    "that hangs in the topic. Or the partition was quiet, and its records came after the newest commit: the log does "
    "not tell.",
    evidence="The first and the newest commit of that offset, how many, its lag.",
    remedy="Compare with the next capture: it is stuck where the offset is still the same. Then look at the owner's "
    "log, and at the record at that offset; kafka-transactions.sh find-hanging.",
    message="{topic}-{partition} was committed at {committed_offset} {commits:time} in {lasted_ms} ms, and is {lag} "
    "behind",
    reads=(),
    needs=(Need.LOG, Need.TOPICS),
    thresholds=("stopped_ms", "stopped_lag"),
    find=_each(
        _stands_still,
        **OFFSET_KEY,
        **dict.fromkeys(("committed_offset", "lag", "commits", "lasted_ms", "until_record_offset"), _NUMBER),
    ),
)
LOST_PARTITION = Rule(
    "R75",
    "committed-after-losing-partition",
    Severity.WARNING,
    summary="A member committed a partition that it had lost to another member.",
    why="Its request names partitions of two owners: the client commits all that it ever read. The owner's progress is "
    "overwritten.",
    evidence="The commit, both members, the generation in which the partition was lost.",
    remedy="Drop stored offsets in onPartitionsRevoked; commit only what is assigned.",
    message="{by} committed {topic}-{partition}, which belongs to {owner} in generation {generation}",
    reads=(),
    needs=(Need.LOG,),
    find=_each(_lost_partition, **OFFSET_KEY, by=_TEXT, owner=_TEXT, generation=_NUMBER, had_generation=_NUMBER),
    applies=lambda profile: profile.loader is Loader.SCALA,
)
STORM = Rule(
    "R76",
    "rebalance-storm",
    Severity.WARNING,
    summary="A group rebalances again and again.",
    why="With an eager assignor nobody reads on while a classic group rebalances; otherwise the partitions that move "
    "stand still. Members that take longer than max.poll.interval.ms, or crash, start the next one.",
    evidence="First and last record of the busiest hour, rebalances without a commit after them, who joined most.",
    remedy="Compare max.poll.interval.ms with the slowest batch of that client; give members of a classic or consumer "
    "group a group.instance.id.",
    message="{group_id} rebalanced {rebalances:time} in {minutes} min; joined most: {joined_most}",
    reads=(),
    needs=(Need.LOG,),
    find=_each(
        _storm,
        group_id=_TEXT,
        rebalances=_NUMBER,
        until_record_offset=_NUMBER,
        minutes=_NUMBER,
        quiet=_NUMBER,
        joined_most=_TEXT,
    ),
)
FLAPPING = Rule(
    "R77",
    "flapping-member",
    Severity.WARNING,
    summary="One client joins a group again and again.",
    why="A crash, a restart by its supervisor, or session.timeout.ms against its pauses. Each time its partitions "
    "move, and all members of a classic group with an eager assignor give up theirs.",
    evidence="The record of its first join, how often, in how many minutes.",
    remedy="Look at that client; give members of a classic or consumer group a group.instance.id.",
    message="{client} joined {group_id} {joins:time} in {minutes} min",
    reads=(),
    needs=(Need.LOG,),
    find=_each(_flapping, group_id=_TEXT, client=_TEXT, joins=_NUMBER, minutes=_NUMBER),
)
DUPLICATE_INSTANCE = Rule(
    "R78",
    "instance-replaced-again-and-again",
    Severity.WARNING,
    summary="The member behind one group instance id of a classic group is replaced again and again.",
    why="Two processes use the same id and fence each other (FencedInstanceIdException), or one restarts all the time. "
    "In KIP-848 groups a replacement begins no new epoch, and is not looked for.",
    evidence="The first replacement, how many there were, from which hosts.",
    remedy="Give each process a group.instance.id of its own.",
    message="the member behind instance id {instance} of {group_id} was replaced {times:time}, from {hosts}",
    reads=(),
    needs=(Need.LOG,),
    find=_each(_duplicate_instance, group_id=_TEXT, instance=_TEXT, times=_NUMBER, hosts=_TEXT),
)
LARGE_BATCH = Rule(
    "R79",
    "batch-near-load-buffer",
    Severity.WARNING,
    summary="A batch of the offsets partition is nearly as large as the buffer by which brokers load it.",
    why="Releases before 2.0.1 never load a batch that is larger (KAFKA-7286); later ones need the memory.",
    evidence="The batch, its bytes, the buffer's.",
    remedy="Raise offsets.load.buffer.size above it on all brokers; make the group smaller.",
    message="a batch of {group_id} has {batch_bytes} bytes, offsets.load.buffer.size is {limit}",
    reads=(),
    needs=(Need.LOG,),
    thresholds=("offsets_load_buffer_bytes", "load_buffer_share"),
    find=_each(_large_batch, group_id=_TEXT, batch_bytes=_NUMBER, limit=_NUMBER),
)
RETENTION = Rule(
    "R69",
    "retention-shorter-than-configured",
    Severity.INFO,
    summary="Brokers let offsets expire sooner than the configured retention.",
    why="offsets.retention.minutes differs between brokers, or is not what these settings say. Expiry forecasts and "
    "R60 are then wrong.",
    evidence="The offset that expired soonest, its age.",
    remedy="Set offsets_retention_ms to the brokers' offsets.retention.minutes; make it equal on all brokers.",
    message="offsets of {topic} of {group_id} expired after {applied_ms} ms, the configured retention is "
    "{configured_ms} ms",
    reads=(),
    needs=(Need.LOG,),
    thresholds=("offsets_retention_ms",),
    find=_each(_retention, **OFFSET_KEY, applied_ms=_NUMBER, configured_ms=_NUMBER, rows=_NUMBER),
)
